//! Text form of hosts: names, and addresses with an optional zone (RFC 4007, section 11; interface
//! name or index), with or without a port. All commands, flags and files use this grammar.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::num::NonZeroU16;

use crate::packet::{interface_exists, interface_index};

/// Reason why a text is not an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AddressError {
    /// The text does not have the syntax of an address.
    Syntax,
    /// The address is not link-local, so it has no zone.
    NotLinkLocal(IpAddr),
    /// The zone is not an interface of this host.
    NoInterface(String),
    /// The address is link-local and has no zone.
    NeedsZone(IpAddr),
}

impl std::fmt::Display for AddressError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Syntax => f.write_str(
                "write an address and a port, such as 192.0.2.1:123, [2001:db8::1]:123 or \
                 [fe80::1%eth0]:123",
            ),
            Self::NotLinkLocal(address) => write!(
                f,
                "{address} is not link-local and takes no zone; omit the '%' and what follows"
            ),
            Self::NoInterface(zone) => write!(
                f,
                "interface '{zone}' does not exist on this host; write the name or the index of \
                 one that 'ip link' shows"
            ),
            Self::NeedsZone(address) => write!(
                f,
                "{address} is a link-local address; name its interface, as in {address}%eth0"
            ),
        }
    }
}

impl std::error::Error for AddressError {}

/// Splits `ADDRESS`, `ADDRESS:PORT`, `[IPV6]`, `[IPV6]:PORT`, `NAME` or `NAME:PORT` into host and
/// port; an IPv6 address may end in `%ZONE`. The host is not validated further.
///
/// # Errors
///
/// [`AddressError::Syntax`] if the text has none of these forms, or port 0.
pub fn split_host(text: &str) -> Result<(&str, Option<u16>), AddressError> {
    let split_at_colon = |text| match str::split_once(text, ':') {
        None => Some((text, None)),
        Some((host, port)) => port.parse().ok().map(|port| (host, Some(port))),
    };
    let split = if let Some(rest) = text.strip_prefix('[') {
        rest.split_once(']').filter(|(host, _)| split_zone(host).is_some()).and_then(
            |(host, port)| match port.strip_prefix(':') {
                Some(port) => port.parse().ok().map(|port| (host, Some(port))),
                None => port.is_empty().then_some((host, None)),
            },
        )
    } else if text.parse::<Ipv6Addr>().is_ok() {
        Some((text, None))
    } else if let Some(at) = text.find('%') {
        // Interface names contain no colon, so a colon after the zone begins the port.
        split_at_colon(&text[at..]).map(|(zone, port)| (&text[..at + zone.len()], port))
    } else {
        split_at_colon(text)
    };
    let (host, port): (&str, Option<NonZeroU16>) = split.ok_or(AddressError::Syntax)?;
    let is_whole = !host.is_empty() && (!host.contains('%') || split_zone(host).is_some());
    is_whole.then_some((host, port.map(NonZeroU16::get))).ok_or(AddressError::Syntax)
}

/// Splits the text of an IPv6 address into address and zone; `None` if it is not valid.
fn split_zone(host: &str) -> Option<(Ipv6Addr, Option<&str>)> {
    let (address, zone) = match host.split_once('%') {
        None => (host, None),
        Some((address, zone)) => (address, Some(zone)),
    };
    let is_zone = |zone: &str| {
        let is_name_byte = |byte: u8| byte.is_ascii_graphic() && !b"/:%[]".contains(&byte);
        (1..libc::IFNAMSIZ).contains(&zone.len()) && zone.bytes().all(is_name_byte)
    };
    Some((address.parse().ok()?, zone)).filter(|(_, zone)| zone.is_none_or(is_zone))
}

/// Returns true if a host is an address, with or without a zone, rather than a name. Does not check
/// that the interface exists.
#[must_use]
pub fn is_address(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok() || split_zone(host).is_some()
}

/// Returns the address of a host without its zone; `None` for a name. Does not check that the
/// interface exists.
#[must_use]
pub fn address_without_zone(host: &str) -> Option<IpAddr> {
    host.parse().ok().or_else(|| split_zone(host).map(|(address, _)| address.into()))
}

/// Parses an address without brackets and port, with or without a zone. A link-local address
/// without a zone is accepted here, since an option may name the interface; [`require_zone`]
/// rejects it.
///
/// # Errors
///
/// [`AddressError`]; for a name, [`AddressError::Syntax`].
pub fn host_address(host: &str, port: u16) -> Result<SocketAddr, AddressError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    match split_zone(host) {
        Some((address, Some(zone))) => {
            let scope = scope_id(address, zone)?;
            Ok(SocketAddrV6::new(address, port, 0, scope).into())
        }
        _ => Err(AddressError::Syntax),
    }
}

fn scope_id(address: Ipv6Addr, zone: &str) -> Result<u32, AddressError> {
    if !address.is_unicast_link_local() && !address.is_multicast() {
        return Err(AddressError::NotLinkLocal(address.into()));
    }
    let by_index = zone.parse().ok().filter(|index| interface_exists(*index));
    by_index
        .or_else(|| interface_index(zone).ok())
        .ok_or_else(|| AddressError::NoInterface(zone.to_owned()))
}

/// Rejects a link-local address without a zone, which the kernel cannot use.
///
/// # Errors
///
/// [`AddressError::NeedsZone`].
pub fn require_zone(address: SocketAddr) -> Result<SocketAddr, AddressError> {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => {
            Err(AddressError::NeedsZone(address.ip()))
        }
        address => Ok(address),
    }
}

/// Parses an address with its port, which may be 0. A link-local address must have a zone.
///
/// # Errors
///
/// See [`AddressError`].
pub fn socket_address(text: &str) -> Result<SocketAddr, AddressError> {
    if let Some(text) = text.strip_suffix(":0") {
        return match split_host(text)? {
            (host, None) if host.contains(':') == text.starts_with('[') => {
                host_address(host, 0).and_then(require_zone)
            }
            _ => Err(AddressError::Syntax),
        };
    }
    match split_host(text)? {
        (host, Some(port)) => host_address(host, port).and_then(require_zone),
        (_, None) => Err(AddressError::Syntax),
    }
}

/// Returns the interface index that is the zone of an address, if any.
#[must_use]
pub fn zone_index(address: SocketAddr) -> Option<u32> {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => Some(v6.scope_id()),
        _ => None,
    }
}

/// Sets the zone of a link-local IPv6 address to this interface index, since a zone received from
/// another host is meaningless here; returns other addresses unchanged.
#[must_use]
pub fn in_zone_of(address: SocketAddr, scope: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(mut v6) if v6.ip().is_unicast_link_local() => {
            v6.set_scope_id(scope);
            v6.into()
        }
        other => other,
    }
}

/// Returns all addresses of a host, resolving it if it is a name. A link-local address must have a
/// zone.
///
/// # Errors
///
/// Of the resolver, and [`AddressError`] as `NotFound`; never an empty list.
pub fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if is_address(host) {
        let missing = |error| io::Error::new(io::ErrorKind::NotFound, error);
        let address = host_address(host, port).and_then(require_zone);
        return address.map(|address| vec![address]).map_err(missing);
    }
    let found: Vec<_> = (host, port).to_socket_addrs()?.collect();
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The index of the loopback interface, which each network namespace has.
    fn lo() -> u32 {
        interface_index("lo").unwrap()
    }

    #[test]
    fn hosts_with_and_without_port_are_split() {
        for (text, host, port) in [
            ("192.0.2.1", "192.0.2.1", None),
            ("192.0.2.1:123", "192.0.2.1", Some(123)),
            ("2001:db8::1", "2001:db8::1", None),
            ("[2001:db8::1]", "2001:db8::1", None),
            ("[2001:db8::1]:5", "2001:db8::1", Some(5)),
            ("fe80::1%eth0", "fe80::1%eth0", None),
            ("fe80::1%eth0:5", "fe80::1%eth0", Some(5)),
            ("[fe80::1%eth0.7]", "fe80::1%eth0.7", None),
            ("[fe80::1%2]:65535", "fe80::1%2", Some(65_535)),
            ("name", "name", None),
            ("name:5", "name", Some(5)),
        ] {
            assert_eq!(split_host(text), Ok((host, port)), "{text}");
        }
        for bad in [
            "",
            ":5",
            "[]",
            "[]:5",
            "[::1",
            "::1]",
            "[::1]5",
            "[::1]:",
            "[::1]:0",
            "name:0",
            "name:65536",
            "a:b:c",
            "[name]:5",
            "[192.0.2.1]:5",
            "fe80::1%",
            "[fe80::1%]:5",
            "fe80::1%a/b",
            "fe80::1%a%b",
            "name%eth0",
            "192.0.2.1%eth0",
            "[fe80::1]%eth0",
            "fe80::1%sixteen-letters-",
            "fe80::1%eth0:",
            "%eth0",
            "%",
            "é%lo",
            "[é",
        ] {
            assert_eq!(split_host(bad), Err(AddressError::Syntax), "{bad}");
        }
    }

    #[test]
    fn zones_are_names_or_indexes_of_interfaces() {
        let at =
            |port| SocketAddr::from(SocketAddrV6::new("fe80::1".parse().unwrap(), port, 0, lo()));
        assert_eq!(socket_address("[fe80::1%lo]:123"), Ok(at(123)));
        assert_eq!(socket_address(&format!("[fe80::1%{}]:123", lo())), Ok(at(123)));
        assert_eq!(socket_address("fe80::1%lo:123"), Ok(at(123)));
        assert_eq!(socket_address("[fe80::1%lo]:0"), Ok(at(0)));
        assert_eq!(host_address("fe80::1%lo", 7), Ok(at(7)));
        assert_eq!(resolve("fe80::1%lo", 7).unwrap(), [at(7)]);
        assert!(
            matches!(socket_address("[ff02::101%lo]:123"), Ok(SocketAddr::V6(v6)) if v6.scope_id() == lo())
        );
        for unknown in ["no-such-link", "4294967295", "99999999999"] {
            let refused = socket_address(&format!("[fe80::1%{unknown}]:123"));
            assert_eq!(refused, Err(AddressError::NoInterface(unknown.into())));
        }
        let refused = socket_address("[2001:db8::1%lo]:123");
        assert!(matches!(refused, Err(AddressError::NotLinkLocal(_))), "{refused:?}");
        assert_eq!(address_without_zone("fe80::1%nowhere"), Some("fe80::1".parse().unwrap()));
        assert_eq!(address_without_zone("name"), None);
        assert_eq!((zone_index(at(1)), zone_index(in_zone_of(at(1), 77))), (Some(lo()), Some(77)));
        let global = "[2001:db8::1]:123".parse().unwrap();
        assert_eq!(in_zone_of(global, 77), global);
    }

    #[test]
    fn a_link_local_address_without_its_zone_is_refused() {
        let address: IpAddr = "fe80::1".parse().unwrap();
        let refused = Err(AddressError::NeedsZone(address));
        for text in ["[fe80::1]:123", "[fe80::1]:0"] {
            assert_eq!(socket_address(text), refused, "{text}");
        }
        let error = resolve("fe80::1", 123).unwrap_err().to_string();
        assert!(error.ends_with("as in fe80::1%eth0"), "{error}");
        assert!(host_address("fe80::1", 123).is_ok(), "an option may name the interface");
        assert!(socket_address("[ff02::101]:123").is_ok());
    }

    #[test]
    fn addresses_with_a_port() {
        for text in ["192.0.2.1:123", "[2001:db8::1]:123", "0.0.0.0:0", "[::]:0"] {
            assert_eq!(socket_address(text), Ok(text.parse().unwrap()));
        }
        for bad in
            ["192.0.2.1", "::1", "::0", "1::2:0", "[::1]", "name:5", "", ":0", "x:0", "[::1]:0:0"]
        {
            assert_eq!(socket_address(bad), Err(AddressError::Syntax), "{bad}");
        }
    }
}
