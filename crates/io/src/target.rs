//! What a tool is aimed at, as a person writes it: a name or an address becomes a socket address.
//! Also whose an address may be, by which a tool decides whom it may trouble.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use horolog_wire::ntp;
use thiserror::Error;

/// Why a target has no address.
#[derive(Debug, Error)]
pub enum TargetNameError {
    /// Neither an address nor a name.
    #[error("'{0}' is no target; write ADDRESS, ADDRESS:PORT, [IPV6]:PORT, NAME or NAME:PORT")]
    Syntax(String),
    /// A name without an address of the family asked for.
    #[error("cannot resolve '{name}': {source}; check the name or give an address")]
    Unresolved {
        /// The name.
        name: String,
        /// The resolver's reason.
        source: io::Error,
    },
    /// An address of the version of IP that is not wanted.
    #[error("{0} is no address of {1}; leave the option away, or give another address")]
    OtherFamily(IpAddr, Family),
    /// An address that is not one host's.
    #[error("{0} is not the address of one host; give a unicast address")]
    NotUnicast(IpAddr),
}

/// The version of IP to take where a name has addresses of both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl fmt::Display for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A target as a person writes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetName {
    host: String,
    port: u16,
    /// The port was given as well, in the text or by [`TargetName::with_port`].
    has_port: bool,
}

impl FromStr for TargetName {
    type Err = TargetNameError;

    /// `ADDRESS`, `ADDRESS:PORT`, `[IPV6]:PORT`, `NAME` or `NAME:PORT`; the port is 123 unless
    /// given.
    fn from_str(text: &str) -> Result<Self, TargetNameError> {
        Self::parse(text, ntp::PORT)
    }
}

impl TargetName {
    /// Reads a target whose port is `port` unless given.
    pub fn parse(text: &str, port: u16) -> Result<Self, TargetNameError> {
        let syntax = || TargetNameError::Syntax(text.to_owned());
        let named = |host: &str, port, has_port| Self { host: host.to_owned(), port, has_port };
        let name = |host: &str, port| named(host, port, true);
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if bare.parse::<IpAddr>().is_ok() {
            return Ok(named(bare, port, false));
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return nonzero(address.port())
                .map(|port| name(&address.ip().to_string(), port))
                .ok_or_else(syntax);
        }
        let (host, given) = match text.split_once(':') {
            None => (text, None),
            Some((host, port)) => {
                (host, Some(port.parse().ok().and_then(nonzero).ok_or_else(syntax)?))
            }
        };
        let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_name = !host.is_empty() && host.bytes().all(is_name_byte);
        // What looks like an IPv4 address and is none would be read in surprising ways.
        let is_number = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        if !is_name || is_number {
            return Err(syntax());
        }
        Ok(named(host, given.unwrap_or(port), given.is_some()))
    }
}

fn nonzero(port: u16) -> Option<u16> {
    (port != 0).then_some(port)
}

impl From<IpAddr> for TargetName {
    /// An address without a port.
    fn from(address: IpAddr) -> Self {
        Self { host: address.to_string(), port: ntp::PORT, has_port: false }
    }
}

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl TargetName {
    /// The same host with another port.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Self {
        Self { host: self.host.clone(), port, has_port: true }
    }

    /// Whether the port was given, be it the one that is taken otherwise.
    #[must_use]
    pub const fn has_port(&self) -> bool {
        self.has_port
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The name or the address.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The name, where it is not an address already.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.host.parse::<IpAddr>().is_err().then_some(&self.host)
    }

    /// Its first address, of the given family where one is given.
    pub fn resolve(&self, family: Option<Family>) -> Result<SocketAddr, TargetNameError> {
        if let (Ok(address), Some(family)) = (self.host.parse::<IpAddr>(), family)
            && address.is_ipv4() != (family == Family::V4)
        {
            return Err(TargetNameError::OtherFamily(address, family));
        }
        let unresolved = |source| TargetNameError::Unresolved { name: self.host.clone(), source };
        let fits = |address: &SocketAddr| match family {
            None => true,
            Some(Family::V4) => address.is_ipv4(),
            Some(Family::V6) => address.is_ipv6(),
        };
        (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(unresolved)?
            .find(fits)
            .ok_or_else(|| {
                unresolved(io::Error::new(io::ErrorKind::NotFound, "no address of this family"))
            })
    }
}

/// Refuses addresses that are not one host's.
pub fn require_unicast(address: IpAddr) -> Result<(), TargetNameError> {
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    if address.is_unspecified() || address.is_multicast() || broadcast {
        return Err(TargetNameError::NotUnicast(address));
    }
    Ok(())
}

/// Whether an address may belong to somebody on the Internet.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            let shared = a == 100 && (64..128).contains(&b); // RFC 6598
            let benchmark = a == 198 && (b == 18 || b == 19); // RFC 2544, appendix C.2.2
            !(v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_documentation()
                || shared
                || benchmark)
        }
        IpAddr::V6(v6) => {
            let [a, b, ..] = v6.segments();
            let documentation = (a == 0x2001 && b == 0xdb8) || (a == 0x3fff && b < 0x1000);
            let benchmark = a == 0x2001 && b == 2; // RFC 5180
            !(v6.is_loopback()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
                || documentation
                || benchmark)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(String, u16)> {
        text.parse::<TargetName>().ok().map(|target| (target.host, target.port))
    }

    #[test]
    fn every_way_to_write_a_target() {
        let cases = [
            ("192.0.2.1", "192.0.2.1", 123),
            ("192.0.2.1:11123", "192.0.2.1", 11123),
            ("2001:db8::1", "2001:db8::1", 123),
            ("[2001:db8::1]", "2001:db8::1", 123),
            ("[2001:db8::1]:5000", "2001:db8::1", 5000),
            ("time.example", "time.example", 123),
            ("time.example:124", "time.example", 124),
        ];
        for (text, host, port) in cases {
            assert_eq!(parsed(text), Some((host.to_owned(), port)), "{text}");
        }
        for bad in [
            "",
            ":123",
            "host:",
            "host:0",
            "host:70000",
            "1.2.3",
            "a b",
            "192.0.2.1:0",
            "300.1.1.1",
        ] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_written_can_be_read_again() {
        for text in ["[2001:db8::1]:5000", "192.0.2.1:123", "time.example:124"] {
            assert_eq!(text.parse::<TargetName>().unwrap().to_string(), text);
        }
        assert_eq!("[::1]:1".parse::<TargetName>().unwrap().name(), None);
        assert_eq!("localhost".parse::<TargetName>().unwrap().name(), Some("localhost"));
    }

    #[test]
    fn addresses_need_no_resolver_but_a_family_that_fits() {
        let target: TargetName = "192.0.2.1".parse().unwrap();
        assert_eq!(target.resolve(None).unwrap().to_string(), "192.0.2.1:123");
        assert!(matches!(
            target.resolve(Some(Family::V6)),
            Err(TargetNameError::OtherFamily(_, Family::V6))
        ));
    }

    #[test]
    fn public_addresses_are_known() {
        for public in ["8.8.8.8", "100.128.0.1", "2a00::1", "::ffff:8.8.8.8", "3fff:1000::1"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for harmless in
            ["10.0.0.1", "100.64.0.1", "198.18.0.1", "127.0.0.1", "fd00::1", "fe80::1", "::1"]
        {
            assert!(!is_public(harmless.parse().unwrap()), "{harmless}");
        }
    }

    #[test]
    fn groups_are_no_host() {
        for group in ["224.0.1.1", "255.255.255.255", "0.0.0.0", "::", "ff02::101"] {
            let refused = require_unicast(group.parse().unwrap());
            assert!(matches!(refused, Err(TargetNameError::NotUnicast(_))), "{group}");
        }
        assert!(require_unicast("192.0.2.1".parse().unwrap()).is_ok());
    }
}
