//! Scenarios of unusual requests, as clients of all ages and makes send them: header values,
//! trailers, and datagrams that are no requests. Each is sent over the network to a running server,
//! at several of its addresses; a reply comes from the address of the request and is no longer than
//! it, and datagrams without a reply are counted by reason.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header, PORT, TRANSMIT_OFFSET};
use serde_json::Value;
use tempfile::TempDir;

use crate::ROOT_AND_IPV6;
use crate::client;
use crate::process::{
    Engine, Server, TIMEOUT, run_to_end, server_address, wait_until, write_secret,
};
use crate::scenario::{Scenario, scenario};

/// Time in which an unexpected reply would arrive.
const QUIET_PERIOD: Duration = Duration::from_millis(100);
/// Further address of the server's host, from a range for documentation (RFC 5737).
const OTHER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
/// Transmit timestamps: the uptime of a device without a clock, and a time.
const UPTIME: u64 = 0x0000_0005_1234_5678;
const TIME: u64 = 0xee10_0000_1234_5678;

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    for engine in Engine::ALL {
        for (name, with_keys) in [("without_keys", false), ("with_keys", true)] {
            let title = format!("odd_requests::{name}::{}", engine.name());
            all.push(scenario(title, ROOT_AND_IPV6, move || {
                odd_requests_get_the_expected_reply(engine, with_keys)
            }));
        }
    }
    all
}

/// Expected reaction to a request.
#[derive(Clone, Copy)]
enum Expected {
    /// A reply of 48 bytes.
    Reply,
    /// A reply of 48 bytes without keys; with keys, none, since the authenticator is invalid.
    ReplyWithoutKeys,
    /// No reply; the request is counted under this name.
    Nothing(&'static str),
}

struct OddRequest {
    name: &'static str,
    expected: Expected,
    /// First byte: leap indicator, version and mode.
    first: u8,
    poll: u8,
    transmit: u64,
    /// Bytes after the header.
    trailer: &'static [u8],
    /// Number of bytes that are sent.
    length: usize,
}

const fn odd(name: &'static str, due: Expected, first: u8, trailer: &'static [u8]) -> OddRequest {
    let length = HEADER_LEN + trailer.len();
    OddRequest { name, expected: due, first, poll: 6, transmit: TIME, trailer, length }
}

const fn cut(name: &'static str, reason: &'static str, first: u8, length: usize) -> OddRequest {
    OddRequest { length, ..odd(name, Expected::Nothing(reason), first, &[0; 144]) }
}

/// Returns bytes that begin with `front`, followed by zeros.
const fn zero_padded<const N: usize>(front: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let mut at = 0;
    while at < front.len() {
        bytes[at] = front[at];
        at += 1;
    }
    bytes
}

const DRAFT_5: &[u8] = b"\xf5\xff\0\x1cdraft-ietf-ntp-ntpv5-05\0";
/// The key identifier of a Windows domain member is its RID, with the lowest byte first.
const RID: [u8; 4] = [0xe8, 3, 0, 0];

const ODD_REQUESTS: [OddRequest; 34] = {
    use Expected::{Nothing, Reply, ReplyWithoutKeys};
    [
        // The Windows time service sends symmetric active mode, or requests of a domain member
        // (MS-SNTP).
        OddRequest { poll: 17, ..odd("w32time, version 3", Reply, 0xd9, &[]) },
        OddRequest { poll: 10, ..odd("w32time, version 4", Reply, 0xe1, &[]) },
        odd("MS-SNTP", ReplyWithoutKeys, 0xdb, &zero_padded::<20>(&RID)),
        odd(
            "MS-SNTP, extended",
            ReplyWithoutKeys,
            0xdb,
            &zero_padded::<72>(&[0xe8, 3, 0, 0, 0, 1]),
        ),
        // Authenticators.
        odd("MAC of 20 bytes", ReplyWithoutKeys, 0x23, &zero_padded::<20>(&[0, 0, 0, 42, 1, 2, 3])),
        odd("MAC of 24 bytes", ReplyWithoutKeys, 0xe3, &zero_padded::<24>(&[0, 0, 0, 1, 1, 2, 3])),
        odd("crypto-NAK", ReplyWithoutKeys, 0x23, &[0; 4]),
        odd(
            "authenticator of version 2",
            ReplyWithoutKeys,
            0x13,
            &zero_padded::<12>(&[0, 0, 0, 1, 9]),
        ),
        // Extension fields.
        odd("Autokey, no operation", Reply, 0x23, &zero_padded::<28>(&[0, 2, 0, 28])),
        odd("Autokey, long", Reply, 0x23, &zero_padded::<404>(&[0, 2, 1, 0x94])),
        odd("field of 16 bytes", Reply, 0x23, &zero_padded::<16>(&[0xf3, 0x23, 0, 16])),
        odd("field of length 0", ReplyWithoutKeys, 0x23, &zero_padded::<28>(&[1, 4, 0, 0])),
        odd("field of length 2", ReplyWithoutKeys, 0x23, &zero_padded::<28>(&[1, 4, 0, 2])),
        odd(
            "field beyond the end",
            ReplyWithoutKeys,
            0x23,
            &zero_padded::<28>(&[1, 4, 0xff, 0xfc]),
        ),
        odd("field of 29 bytes", Nothing("length"), 0x23, &zero_padded::<29>(&[0x20, 5, 0, 29])),
        odd("version 4 that proposes 5", Reply, 0x23, DRAFT_5),
        // Simple clients.
        odd("version 1 without a mode", Reply, 0x08, &[]),
        odd("version 1", Reply, 0x0b, &[]),
        OddRequest { poll: 0, transmit: 0, ..odd("only version and mode", Reply, 0x1b, &[]) },
        OddRequest { transmit: UPTIME, ..odd("uptime as time", Reply, 0x1b, &[]) },
        OddRequest { transmit: 0xdeb1_3da1_fc4d_6c74, ..odd("timesyncd", Reply, 0xe3, &[]) },
        OddRequest { poll: 0x80, ..odd("poll of -128", Reply, 0x23, &[]) },
        // Datagrams that are no requests, or of other versions.
        odd("version 0", Nothing("version"), 0x03, &[]),
        odd("version 5", Nothing("version"), 0x2b, DRAFT_5),
        odd("mode 0 of version 4", Nothing("mode_reserved"), 0x20, &[]),
        odd("symmetric passive", Nothing("mode_passive"), 0x22, &[]),
        odd("reply", Nothing("mode_server"), 0x24, &[]),
        odd("broadcast", Nothing("mode_broadcast"), 0x25, &[]),
        cut("readvar", "mode_control", 0x16, 12),
        cut("monlist", "mode_private", 0x17, 8),
        cut("monlist, padded", "mode_private", 0x17, 192),
        cut("47 bytes", "length", 0x23, 47),
        cut("50 bytes", "length", 0x23, 50),
        cut("empty", "length", 0x23, 0),
    ]
};

impl OddRequest {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        (bytes[0], bytes[2]) = (self.first, self.poll);
        bytes[TRANSMIT_OFFSET..].copy_from_slice(&self.transmit.to_be_bytes());
        bytes.extend(self.trailer);
        bytes.truncate(self.length);
        bytes
    }

    /// Returns the name under which the request is counted if it has no reply.
    fn reason(&self, with_keys: bool) -> Option<&'static str> {
        match self.expected {
            Expected::Reply => None,
            Expected::ReplyWithoutKeys => with_keys.then_some("mac"),
            Expected::Nothing(reason) => Some(reason),
        }
    }

    /// Sends the request and checks the reply.
    fn query(&self, socket: &UdpSocket, at: SocketAddr) -> Result<()> {
        let request = self.bytes();
        socket.send_to(&request, at)?;
        let mut buffer = [0; 2_048];
        let (length, from) = socket.recv_from(&mut buffer).context("no reply")?;
        ensure!(from == at, "reply from {from}");
        let (header, rest) = Header::parse(&buffer[..length])?;
        ensure!(rest.is_empty() && length <= request.len(), "a reply of {length} bytes");
        let mode = if self.first & 7 == 1 {
            AssociationMode::SymmetricPassive
        } else {
            AssociationMode::Server
        };
        ensure!(header.mode == mode && header.version == self.first >> 3 & 7, "{header:?}");
        ensure!(header.poll == self.poll.cast_signed(), "{header:?}");
        ensure!(header.origin.to_bits() == self.transmit, "{header:?}");
        let times = [header.receive, header.transmit].map(|time| time.to_bits() >> 63);
        ensure!(header.stratum == 10 && times == [1; 2], "{header:?}");
        Ok(())
    }
}

fn odd_requests_get_the_expected_reply(engine: Engine, with_keys: bool) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let addresses =
        [server_address(&lab, false)?.ip(), OTHER.into(), server_address(&lab, true)?.ip()];
    add_address(&lab)?;
    let files = TempDir::new()?;
    let keys = files.path().join("ntp.keys");
    // The server ignores the lines that it cannot use.
    write_secret(&keys, "1 MD5 abc\n7 AES128 HEX:000102030405060708090a0b0c0d0e0f\n9 S 1fe3\n")?;
    let keys = keys.display().to_string();
    let arguments: &[&str] = if with_keys { &["--keys", &keys] } else { &[] };
    let anywhere = [(Ipv4Addr::UNSPECIFIED, PORT).into(), (Ipv6Addr::UNSPECIFIED, PORT).into()];
    let server = Server::start(lab.server(), engine, &anywhere, arguments)?;
    for ip in addresses {
        exchange_all(&lab, (ip, PORT).into(), &server, with_keys).with_context(|| {
            let status = server.status().unwrap_or_default();
            format!("{ip}: {}, {}", status["counters"], status["xdp_counters"])
        })?;
    }
    check_counters(&server, engine, with_keys, addresses.len() as u64)?;
    let stderr = server.end("TERM")?.stderr;
    let named = "ignored line 1: MD5 is not supported";
    let is_named = stderr.contains(named) && stderr.contains("line 3: DES is not supported");
    ensure!(is_named == with_keys && !stderr.contains("1fe3"), "{stderr}");
    Ok(())
}

/// Sends all requests to one address, and one from the NTP port.
fn exchange_all(lab: &Lab, at: SocketAddr, server: &Server, with_keys: bool) -> Result<()> {
    let socket = client::socket(lab.client(), at, TIMEOUT)?;
    let mut is_retried = false;
    for odd in &ODD_REQUESTS {
        if odd.reason(with_keys).is_some() {
            socket.send_to(&odd.bytes(), at)?;
            continue;
        }
        let mut replied = odd.query(&socket, at);
        // The host was paused for longer than the life of the clock page.
        if replied.is_err() && !is_retried && has_expired(server)? {
            is_retried = true;
            replied = odd.query(&socket, at);
        }
        replied.with_context(|| odd.name)?;
    }
    check_no_further_reply(&socket)?;
    let from_ntp = ntp_port_socket(lab.client(), at.ip())?;
    ODD_REQUESTS[0].query(&from_ntp, at).context("from port 123")?;
    check_no_further_reply(&from_ntp)
}

fn has_expired(server: &Server) -> Result<bool> {
    Ok(server.status()?["counters"]["expired"].as_u64() > Some(0))
}

fn ntp_port_socket(host: &LabHost, server: IpAddr) -> Result<UdpSocket> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = host.run(|| UdpSocket::bind((any, PORT)))??;
    socket.set_read_timeout(Some(TIMEOUT))?;
    Ok(socket)
}

fn check_no_further_reply(socket: &UdpSocket) -> Result<()> {
    socket.set_read_timeout(Some(QUIET_PERIOD))?;
    let more = socket.recv_from(&mut [0; 2_048]);
    ensure!(more.is_err(), "more than one reply: {more:?}");
    Ok(())
}

fn add_address(lab: &Lab) -> Result<()> {
    let (server, client) = (lab.server(), lab.client());
    let other = format!("{OTHER}/32");
    let (own, way) =
        (server.first_interface().ipv4.to_string(), client.first_interface().name.clone());
    for (host, arguments) in [
        (server, ["addr", "add", &other, "dev", &server.first_interface().name, "scope", "global"]),
        (client, ["route", "add", &other, "via", &own, "dev", &way]),
    ] {
        let output = run_to_end(host.command("ip").args(arguments), TIMEOUT)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Checks that requests without a reply are counted by reason, and replies in mode 2 separately,
/// `times` times each.
fn check_counters(server: &Server, engine: Engine, with_keys: bool, times: u64) -> Result<()> {
    let mut expected = BTreeMap::new();
    for reason in ODD_REQUESTS.iter().filter_map(|odd| odd.reason(with_keys)) {
        *expected.entry(reason.to_owned()).or_default() += times;
    }
    let mut status = server.status()?;
    // The last requests may still be in the server's queue.
    wait_until("requests without a reply are counted", || {
        status = server.status()?;
        Ok(ignored(&status)?.values().sum::<u64>() >= expected.values().sum())
    })?;
    let ignored = ignored(&status)?;
    ensure!(ignored == expected, "{ignored:?} instead of {expected:?}");
    let count = |pointer: &str| status.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let symmetric = [count("/counters/symmetric"), count("/xdp_counters/answered_symmetric")];
    let all = 3 * times;
    let by_engine = if engine == Engine::Xdp { [0, all] } else { [all, 0] };
    ensure!(symmetric == by_engine, "{symmetric:?} in mode 2 instead of {by_engine:?}");
    Ok(())
}

/// Returns the numbers of ignored requests, by reason.
fn ignored(status: &Value) -> Result<BTreeMap<String, u64>> {
    let all = status["counters"]["ignored"].as_object().context("no counters")?;
    let counted = all.iter().filter_map(|(name, count)| Some((name.clone(), count.as_u64()?)));
    Ok(counted.filter(|(_, count)| *count > 0).collect())
}
