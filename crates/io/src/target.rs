//! Targets as text: parses and resolves names and addresses to socket addresses. Also classifies
//! addresses as public or not, for tools that must not disturb third parties.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use horolog_sys::explain::explain;
use horolog_sys::packet::interface_index;
use horolog_sys::zone::{self, AddressError};
use horolog_wire::ntp;
use thiserror::Error;

/// Reason for which a target has no address.
#[derive(Debug, Error)]
pub enum TargetNameError {
    /// Neither an address nor a name.
    #[error(
        "invalid target '{0}'; write ADDRESS, ADDRESS:PORT, [IPV6]:PORT, [IPV6%INTERFACE]:PORT, \
         NAME or NAME:PORT"
    )]
    Syntax(String),
    /// Address with an invalid zone: unknown on this host, or not permitted for this address.
    #[error(transparent)]
    Zone(#[from] AddressError),
    /// Link-local address without its zone.
    #[error("{0} is a link-local address; name its interface, as in {0}%eth0")]
    NeedsZone(IpAddr),
    /// Zone of the address that differs from the requested interface.
    #[error("the zone of {0} differs from the interface '{1}'; omit one of them")]
    OtherZone(IpAddr, String),
    /// Name that cannot be resolved to an address of the requested IP version.
    #[error(
        "cannot resolve '{name}': {why}; check the name or specify an address",
        why = explain(.source)
    )]
    Unresolved {
        /// Name.
        name: String,
        /// Error of the resolver.
        source: io::Error,
    },
    /// Address of another IP version than requested.
    #[error("{0} is not an {1} address; omit the option, or choose another address")]
    OtherFamily(IpAddr, AddressFamily),
    /// Multicast, broadcast or unspecified address.
    #[error("{0} is not the address of one host; specify a unicast address")]
    NotUnicast(IpAddr),
}

impl TargetNameError {
    /// Returns true if the target's text, or an option that contradicts it, is wrong; false if a
    /// name could not be resolved or an interface does not exist.
    #[must_use]
    pub const fn is_usage_error(&self) -> bool {
        !matches!(self, Self::Unresolved { .. } | Self::Zone(AddressError::NoInterface(_)))
    }
}

/// IP version requested for a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl AddressFamily {
    fn matches_address(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self == Self::V4)
    }
}

impl fmt::Display for AddressFamily {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// Target as text: a host name or address, and a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetName {
    host: String,
    port: u16,
    /// True if the port was set explicitly, in the text or by [`TargetName::with_port`].
    has_port: bool,
}

impl FromStr for TargetName {
    type Err = TargetNameError;

    /// Parses `ADDRESS`, `ADDRESS:PORT`, `[IPV6]:PORT`, `NAME` or `NAME:PORT`, an IPv6 address with
    /// `%ZONE` if it has one; the default port is 123.
    fn from_str(text: &str) -> Result<Self, TargetNameError> {
        Self::parse(text, ntp::PORT)
    }
}

impl TargetName {
    /// Parses a target with the default port `port`.
    pub fn parse(text: &str, port: u16) -> Result<Self, TargetNameError> {
        let syntax = || TargetNameError::Syntax(text.to_owned());
        let (host, explicit_port) = zone::split_host(text).map_err(|_| syntax())?;
        let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_name = host.bytes().all(is_name_byte);
        // A resolver may interpret digits and dots as a legacy form of IPv4 address (inet_aton(3)).
        let is_number = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        if !zone::is_address(host) && (!is_name || is_number) {
            return Err(syntax());
        }
        let (port, has_port) = (explicit_port.unwrap_or(port), explicit_port.is_some());
        Ok(Self { host: host.to_owned(), port, has_port })
    }
}

impl From<SocketAddr> for TargetName {
    /// Converts an address with its zone; its port is replaced by the default port 123.
    fn from(address: SocketAddr) -> Self {
        let zone = zone::zone_index(address).map_or_else(String::new, |index| format!("%{index}"));
        Self { host: format!("{}{zone}", address.ip()), port: ntp::PORT, has_port: false }
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
    /// Returns the same host with another port.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Self {
        Self { host: self.host.clone(), port, has_port: true }
    }

    /// Returns true if the port was set explicitly, even if it is the default.
    #[must_use]
    pub const fn has_port(&self) -> bool {
        self.has_port
    }

    /// Returns the port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the name or the address.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the name, if it is not an address.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        (!zone::is_address(&self.host)).then_some(&self.host)
    }

    /// Returns the name or the address without its zone, which is meaningless to another host.
    #[must_use]
    pub fn host_without_zone(&self) -> &str {
        self.host.split_once('%').map_or(&self.host, |(address, _)| address)
    }

    /// Resolves the target to its first address, of `family` if set. `interface` supplies the zone
    /// of a link-local address without one (RFC 4007), and must not contradict its zone otherwise.
    pub fn resolve(
        &self,
        family: Option<AddressFamily>,
        interface: Option<&str>,
    ) -> Result<SocketAddr, TargetNameError> {
        with_scope(self.first_address(family)?, interface)
    }

    fn first_address(&self, family: Option<AddressFamily>) -> Result<SocketAddr, TargetNameError> {
        if let Some(address) = zone::address_without_zone(&self.host) {
            if let Some(family) = family.filter(|family| !family.matches_address(address)) {
                return Err(TargetNameError::OtherFamily(address, family));
            }
            return Ok(zone::host_address(&self.host, self.port)?);
        }
        let unresolved = |source| TargetNameError::Unresolved { name: self.host.clone(), source };
        let fits = |at: &SocketAddr| family.is_none_or(|family| family.matches_address(at.ip()));
        let found = zone::resolve(&self.host, self.port).map_err(unresolved)?;
        found.into_iter().find(fits).ok_or_else(|| {
            unresolved(io::Error::new(io::ErrorKind::NotFound, "no address of this family"))
        })
    }
}

/// Fails for unspecified, multicast and limited broadcast addresses.
pub fn require_unicast(address: IpAddr) -> Result<(), TargetNameError> {
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    if address.is_unspecified() || address.is_multicast() || broadcast {
        return Err(TargetNameError::NotUnicast(address));
    }
    Ok(())
}

/// Sets the scope of a link-local IPv6 address without a zone to `interface` (RFC 4007); other
/// addresses are unchanged. Fails if neither zone nor interface is set, if they differ, or if the
/// interface does not exist.
fn with_scope(address: SocketAddr, interface: Option<&str>) -> Result<SocketAddr, TargetNameError> {
    let SocketAddr::V6(mut v6) = address else { return Ok(address) };
    if !v6.ip().is_unicast_link_local() {
        return Ok(address);
    }
    let unknown = |name: &str| AddressError::NoInterface(name.to_owned());
    let index = |name: &str| interface_index(name).map_err(|_| unknown(name));
    match (v6.scope_id(), interface) {
        (0, None) => Err(TargetNameError::NeedsZone(address.ip())),
        (0, Some(name)) => {
            v6.set_scope_id(index(name)?);
            Ok(v6.into())
        }
        (scope, Some(name)) if scope != index(name)? => {
            Err(TargetNameError::OtherZone(address.ip(), name.to_owned()))
        }
        _ => Ok(address),
    }
}

/// Returns true unless an address is private, shared, loopback, link-local, or reserved for
/// documentation or benchmarks. Multicast and unspecified addresses count as public.
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
            ("fe80::1%eth0", "fe80::1%eth0", 123),
            ("[fe80::1%eth0]", "fe80::1%eth0", 123),
            ("fe80::1%eth0:124", "fe80::1%eth0", 124),
            ("[fe80::1%2]:124", "fe80::1%2", 124),
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
            "time.example%eth0",
            "192.0.2.1%eth0",
            "[fe80::1%]:123",
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
        assert_eq!(target.resolve(None, None).unwrap().to_string(), "192.0.2.1:123");
        assert!(matches!(
            target.resolve(Some(AddressFamily::V6), None),
            Err(TargetNameError::OtherFamily(_, AddressFamily::V6))
        ));
    }

    #[test]
    fn a_zone_names_the_interface() {
        let target: TargetName = "[fe80::1%lo]:5".parse().unwrap();
        assert_eq!((target.name(), target.host_without_zone()), (None, "fe80::1"));
        assert_eq!(target.to_string(), "[fe80::1%lo]:5");
        let SocketAddr::V6(found) = target.resolve(Some(AddressFamily::V6), None).unwrap() else {
            panic!()
        };
        assert!(found.scope_id() > 0 && found.port() == 5);
        assert_eq!(target.resolve(None, Some("lo")).unwrap(), found.into());
        let unknown: TargetName = "fe80::1%no-such-link".parse().unwrap();
        let error = unknown.resolve(None, None).unwrap_err();
        let message = error.to_string();
        assert!(!error.is_usage_error(), "an interface may come later");
        assert!(message.starts_with("interface 'no-such-link' does not exist"), "{message}");
        let bare: TargetName = "fe80::1".parse().unwrap();
        let message = bare.resolve(None, None).unwrap_err().to_string();
        assert!(message.ends_with("as in fe80::1%eth0"), "{message}");
        assert_eq!(
            zone::zone_index(bare.resolve(None, Some("lo")).unwrap()),
            Some(found.scope_id())
        );
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
