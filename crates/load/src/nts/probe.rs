//! Checks before an NTS load: the NTP server that NTS-KE negotiated, and one request that tests the
//! keys where implementations export them differently.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use horolog_ke::SessionMaterial as KeyMaterial;
use horolog_nts::{NonceStream, ReplyError, SessionKeys, UNIQUE_ID_LEN, open_reply, seal_request};
use horolog_record::{Finding, FindingCode, Severity};
use horolog_sys::zone;
use horolog_time::NtpTimestamp;
use horolog_wire::ntp::{HEADER_LEN, Header};

/// Reply timeout of the test request.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns false if the reply to one request proves that the server has other keys; true otherwise,
/// also if no reply arrives or the request cannot be sent.
pub(super) fn may_fit(keys: &SessionKeys, cookies: &[Vec<u8>], target: SocketAddr) -> bool {
    let answer = cookies.first().and_then(|cookie| exchange_request(keys, cookie, target));
    !matches!(answer, Some(Err(ReplyError::CookieRefused | ReplyError::Forged)))
}

fn exchange_request(
    keys: &SessionKeys,
    cookie: &[u8],
    target: SocketAddr,
) -> Option<Result<(), ReplyError>> {
    let mut nonces = NonceStream::new().ok()?;
    let (mut nonce, mut unique_id, mut transmit) = ([0; 16], [0; UNIQUE_ID_LEN], [0; 8]);
    nonces.fill(&mut nonce);
    nonces.fill(&mut unique_id);
    nonces.fill(&mut transmit);
    let mut header = [0; HEADER_LEN];
    Header::request(4, NtpTimestamp::from_bits(u64::from_ne_bytes(transmit))).emit(&mut header);
    let (mut packet, mut text) = ([0; 2048], [0; 2048]);
    let len = seal_request(keys, &header, &unique_id, cookie, 0, &nonce, &mut packet);
    let wildcard: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((wildcard, 0)).ok()?;
    socket.connect(target).ok()?;
    socket.set_read_timeout(Some(REPLY_TIMEOUT)).ok()?;
    socket.send(&packet[..len]).ok()?;
    let received_len = socket.recv(&mut packet).ok()?;
    Some(open_reply(keys, &packet[..received_len], &unique_id, &mut text).map(drop))
}

/// Returns a finding if NTS-KE negotiated another NTP server or port than the target of the load.
pub(super) fn other_server_finding(material: &KeyMaterial, target: SocketAddr) -> Option<Finding> {
    let port = material.port.unwrap_or(target.port());
    let (is_target, named) = match &material.server {
        None => (port == target.port(), format!("its port {port}")),
        Some(host) => (resolves_to(host, port, target), format!("{host}, port {port},")),
    };
    (!is_target).then(|| Finding {
        code: FindingCode::OtherNtpServer,
        severity: Severity::Warning,
        message: format!("the NTS-KE server names {named} as NTP server, not {target}"),
        advice:
            "requests are refused unless both share their keys; load the named server, or name the \
             matching NTS-KE server with --nts-ke"
                .to_owned(),
        trial: None,
    })
}

/// Returns true if `host` resolves to the target. A link-local address without a zone takes the
/// target's zone. Names with one proxy address for several hosts are not distinguished.
fn resolves_to(host: &str, port: u16, target: SocketAddr) -> bool {
    let scope = zone::zone_index(target).unwrap_or(0);
    let is_target = |address| zone::in_zone_of(address, scope) == target;
    match zone::address_without_zone(host) {
        Some(address) => is_target(SocketAddr::new(address, port)),
        None => zone::resolve(host, port).into_iter().flatten().any(is_target),
    }
}

/// Returns the note that the keys of AES-128-GCM-SIV did not match.
pub(super) fn algorithm_abandoned() -> Finding {
    Finding {
        code: FindingCode::AlgorithmAbandoned,
        severity: Severity::Note,
        message: "NTS keys for AES-128-GCM-SIV did not match, so keys were negotiated \
                  again"
            .to_owned(),
        advice:
            "RFC 8915 and chrony 4.4 to 4.6 export these keys differently; a server that does not \
             announce RFC conformance with record 1024 is treated as such a chrony"
                .to_owned(),
        trial: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn material(server: Option<&str>, port: Option<u16>) -> KeyMaterial {
        KeyMaterial {
            algorithm: 15,
            c2s: vec![0; 32].into(),
            s2c: vec![0; 32].into(),
            cookies: Vec::new(),
            server: server.map(str::to_owned),
            port,
            keys_uncertain: false,
        }
    }

    #[test]
    fn a_link_local_target_is_not_another_server() {
        let global = "[2001:db8::1]:123".parse().unwrap();
        let link_local = zone::in_zone_of("[fe80::1]:123".parse().unwrap(), 7);
        for (target, address) in [(link_local, "fe80::1"), (global, "2001:db8::1")] {
            for server in [None, Some(address)] {
                assert_eq!(other_server_finding(&material(server, None), target), None, "{target}");
                assert_eq!(
                    other_server_finding(&material(server, Some(123)), target),
                    None,
                    "{target}"
                );
                assert!(
                    other_server_finding(&material(server, Some(124)), target).is_some(),
                    "{target}"
                );
            }
            let other = other_server_finding(&material(Some("fe80::2"), None), target);
            assert!(other.is_some_and(|other| other.message.contains("fe80::2, port 123,")));
        }
        let port =
            other_server_finding(&material(None, Some(124)), global).map(|finding| finding.message);
        let expected = "the NTS-KE server names its port 124 as NTP server, not [2001:db8::1]:123";
        assert_eq!(port.as_deref(), Some(expected));
    }
}
