//! Checks that a port answers or that a name has an address. A UDP port is queried in its own
//! protocol if that is known (NTP, DNS), since a port does not answer requests that it cannot
//! parse.

use std::fmt::{self, Display, Formatter};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::str::FromStr;
use std::time::{Duration, Instant};

use horolog_sys::zone::{self, AddressError};

use super::CheckResult;

const NTP_PORT: u16 = 123;
const DNS_PORT: u16 = 53;
/// Largest payload of a datagram over IPv4, in bytes.
const PAYLOAD_MAX: usize = 65_507;

/// Host by name or address, and port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    host: String,
    port: u16,
}

/// Reason why a text is no endpoint.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EndpointError {
    /// The text is not a host and a port.
    #[error(
        "write a host and a port, such as nas:2049, 192.0.2.1:2049, [2001:db8::1]:2049 or \
         [fe80::1%eth0]:2049"
    )]
    InvalidEndpoint,
    /// An option of a UDP endpoint is invalid.
    #[error("write HOST:PORT, optionally followed by ',send=HEX' and ',no-reply=ok'")]
    InvalidOption,
    /// The host is a link-local address without a zone.
    #[error(transparent)]
    MissingZone(#[from] AddressError),
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        match zone::split_host(text) {
            Ok((host, Some(port))) if zone::is_address(host) || is_name(host) => {
                // A zone is resolved at the check: its interface may appear later.
                if let Ok(address) = host.parse::<IpAddr>() {
                    zone::require_zone((address, port).into())?;
                }
                Ok(Self { host: host.to_owned(), port })
            }
            _ => Err(EndpointError::InvalidEndpoint),
        }
    }
}

/// Returns true if the text can be a host name or an IPv4 address.
fn is_name(text: &str) -> bool {
    let letter = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '.' | '_');
    !text.is_empty() && text.len() <= 253 && text.chars().all(letter)
}

impl Display for Endpoint {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{open}{}{close}:{}", self.host, self.port)
    }
}

impl Endpoint {
    fn addresses(&self) -> Result<Vec<SocketAddr>, CheckResult> {
        zone::resolve(&self.host, self.port).map_err(|error| {
            CheckResult::unsatisfied(format!(
                "cannot resolve {}: {}",
                self.host,
                short_error(&error)
            ))
        })
    }
}

/// UDP port and the request sent to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UdpEndpoint {
    /// Host and port to which the request is sent.
    pub endpoint: Endpoint,
    /// Payload of the request; `None` for the default of the port number.
    request_payload: Option<Vec<u8>>,
    /// True if a port that neither answers nor refuses satisfies the condition.
    accepts_timeout: bool,
}

impl FromStr for UdpEndpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let mut parts = text.split(',');
        let endpoint = parts.next().unwrap_or_default().parse()?;
        let mut udp = Self { endpoint, request_payload: None, accepts_timeout: false };
        for part in parts {
            match part.split_once('=') {
                Some(("send", hex)) if udp.request_payload.is_none() => {
                    udp.request_payload = Some(parse_hex(hex).ok_or(EndpointError::InvalidOption)?);
                }
                Some(("no-reply", "ok")) => udp.accepts_timeout = true,
                _ => return Err(EndpointError::InvalidOption),
            }
        }
        Ok(udp)
    }
}

fn parse_hex(hex: &str) -> Option<Vec<u8>> {
    let has_even_length = !hex.is_empty() && hex.len().is_multiple_of(2);
    if !has_even_length || !hex.is_ascii() || hex.len() / 2 > PAYLOAD_MAX {
        return None;
    }
    let byte = |index| u8::from_str_radix(hex.get(index..index + 2)?, 16).ok();
    hex.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
    (0..hex.len()).step_by(2).map(byte).collect()
}

impl UdpEndpoint {
    fn payload(&self) -> Vec<u8> {
        match (&self.request_payload, self.endpoint.port) {
            (Some(bytes), _) => bytes.clone(),
            // RFC 5905: version 4, client; the rest may be zero.
            (None, NTP_PORT) => std::iter::once(0x23).chain([0; 47]).collect(),
            // RFC 1035: recursion desired, one question: the root name servers.
            (None, DNS_PORT) => vec![0x68, 0x6f, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1],
            (None, _) => vec![0],
        }
    }
}

/// Checks that a connection is established to one of the addresses.
pub(super) fn check_tcp(endpoint: &Endpoint, timeout: Duration) -> CheckResult {
    try_addresses(endpoint, timeout, |address, timeout| {
        TcpStream::connect_timeout(&address, timeout)?;
        Ok(CheckResult::satisfied(format!("{address} accepts connections")))
    })
}

/// Checks that a reply arrives from one of the addresses or, with `no-reply=ok`, that one of them
/// does not refuse.
pub(super) fn check_udp(udp: &UdpEndpoint, timeout: Duration) -> CheckResult {
    let payload = udp.payload();
    try_addresses(&udp.endpoint, timeout, |address, timeout| {
        let bind_address: SocketAddr = if address.is_ipv4() {
            (Ipv4Addr::UNSPECIFIED, 0).into()
        } else {
            (Ipv6Addr::UNSPECIFIED, 0).into()
        };
        let socket = UdpSocket::bind(bind_address)?;
        // Only a connected socket receives refusals.
        socket.connect(address)?;
        socket.send(&payload)?;
        socket.set_read_timeout(Some(timeout))?;
        match socket.recv(&mut [0; 1]) {
            Ok(_) => Ok(CheckResult::satisfied(format!("{address} answers"))),
            Err(error) if is_timeout(&error) && udp.accepts_timeout => {
                Ok(CheckResult::satisfied(format!("{address} did not refuse")))
            }
            Err(error) => Err(error),
        }
    })
}

/// Tries the addresses in turn, each for an equal share of the remaining time. Returns the first
/// success, or the last failure.
fn try_addresses(
    endpoint: &Endpoint,
    timeout: Duration,
    attempt: impl Fn(SocketAddr, Duration) -> io::Result<CheckResult>,
) -> CheckResult {
    let addresses = match endpoint.addresses() {
        Ok(addresses) => addresses,
        Err(result) => return result,
    };
    let end = Instant::now() + timeout;
    let mut last_result = CheckResult::unsatisfied("no time left for an attempt");
    for (index, address) in addresses.iter().enumerate() {
        let remaining = end.saturating_duration_since(Instant::now());
        let share = remaining / u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        if share.is_zero() {
            break;
        }
        match attempt(*address, share) {
            Ok(result) => return result,
            Err(error) => {
                last_result =
                    CheckResult::unsatisfied(format!("{address}: {}", short_error(&error)));
            }
        }
    }
    last_result
}

/// Checks that the name has an address.
pub(super) fn check_dns(name: &str) -> CheckResult {
    let found = (name, 0).to_socket_addrs().map(|addresses| addresses.map(|found| found.ip()));
    match found.map(Vec::from_iter) {
        Ok(addresses) if !addresses.is_empty() => {
            let shown: Vec<_> = addresses.iter().take(3).map(ToString::to_string).collect();
            CheckResult::satisfied(shown.join(", "))
        }
        Ok(_) => CheckResult::unsatisfied("the name has no address"),
        Err(error) => CheckResult::unsatisfied(short_error(&error)),
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Formats an error without the error numbers and prefixes of the libraries.
fn short_error(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "no answer".to_owned(),
        ErrorKind::ConnectionRefused => "refused".to_owned(),
        ErrorKind::HostUnreachable => "no route to the host".to_owned(),
        ErrorKind::NetworkUnreachable => "no route to the network".to_owned(),
        _ => {
            let text = error.to_string();
            text.rsplit("information: ").next().unwrap_or(&text).replace('\n', " ")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    #[test]
    fn endpoints_are_written_and_read() {
        for text in ["nas:2049", "192.0.2.1:1", "[2001:db8::1]:65535", "a-b.example:123"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        for bad in ["", "nas", "nas:", "nas:0", "nas:70000", "::1:5", "[nas]:5", "a b:1", ":5"] {
            assert_eq!(bad.parse::<Endpoint>(), Err(EndpointError::InvalidEndpoint), "{bad}");
        }
        let refused = "[fe80::1]:123".parse::<Endpoint>();
        assert!(matches!(refused, Err(EndpointError::MissingZone(AddressError::NeedsZone(_)))));
        assert!("[fe80::1%later0]:123".parse::<Endpoint>().is_ok());
        let udp: UdpEndpoint = "nas:9,send=00fF,no-reply=ok".parse().unwrap();
        assert_eq!((udp.payload(), udp.accepts_timeout), (vec![0, 255], true));
        for bad in ["nas:9,send=", "nas:9,send=0", "nas:9,send=+1", "nas:9,x=1", "nas:9,é=é"] {
            assert!(bad.parse::<UdpEndpoint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_port_holds_once_it_is_open() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let endpoint: Endpoint = listener.local_addr().unwrap().to_string().parse().unwrap();
        assert!(check_tcp(&endpoint, TIMEOUT).holds);
        drop(listener);
        let result = check_tcp(&endpoint, TIMEOUT);
        assert!(!result.holds && result.detail.ends_with(": refused"), "{result:?}");
    }

    #[test]
    fn a_datagram_port_holds_once_it_answers() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let text = server.local_addr().unwrap().to_string();
        let short = Duration::from_millis(20);
        assert!(!check_udp(&text.parse().unwrap(), short).holds, "it says nothing");
        assert!(check_udp(&format!("{text},no-reply=ok").parse().unwrap(), short).holds);
        let mut request = [0; 8];
        server.recv_from(&mut request).unwrap();
        server.recv_from(&mut request).unwrap();
        let answering = std::thread::spawn(move || {
            let mut request = [0; 8];
            let (length, from) = server.recv_from(&mut request).unwrap();
            server.send_to(&request[..length], from).unwrap();
        });
        assert!(check_udp(&text.parse().unwrap(), TIMEOUT).holds);
        answering.join().unwrap();
        let refused = check_udp(&format!("{text},no-reply=ok").parse().unwrap(), TIMEOUT);
        assert!(!refused.holds && refused.detail.ends_with(": refused"), "{refused:?}");
    }

    #[test]
    fn a_name_holds_once_it_has_an_address() {
        assert!(check_dns("localhost").holds && check_dns("192.0.2.1").holds);
        assert!(!check_dns("").holds);
    }
}
