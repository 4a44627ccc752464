//! Text format of an IP address with a prefix length, as in `10.0.0.0/8`: an interface's address, a
//! destination, or a network. A refused text is copied into the error.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// IP address with a prefix length.
///
/// Host bits may be set, as in an interface's address (`192.0.2.1/30`); [`Prefix::network`] clears
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// Reason why a text or an address with a length is not a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrefixError {
    /// The part before the slash is not an IP address, or there is no slash.
    Syntax(String),
    /// The length exceeds the bits of the address.
    Length {
        /// The address.
        address: IpAddr,
        /// Requested length in bits.
        length: u8,
        /// Largest length: 32 for IPv4, 128 for IPv6.
        max: u8,
    },
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(text) => {
                write!(f, "'{text}' is not a network such as 10.0.0.0/8 or fd00::/8")
            }
            Self::Length { address, length, max } => {
                write!(f, "prefix length {length} of {address} is too long; it has {max} bits")
            }
        }
    }
}

impl core::error::Error for PrefixError {}

impl Prefix {
    /// Creates a prefix; an error if `length` (in bits) is too large for the IP version.
    pub fn new(address: IpAddr, length: u8) -> Result<Self, PrefixError> {
        let max = width(address);
        if length > max {
            return Err(PrefixError::Length { address, length, max });
        }
        Ok(Self { address, length })
    }

    /// Returns the prefix that contains nothing but `address`.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self { address, length: width(address) }
    }

    /// Returns the address, host bits included.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the prefix length in bits.
    #[must_use]
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Returns the prefix with its host bits cleared.
    #[must_use]
    pub fn network(&self) -> Self {
        let address = match self.address {
            IpAddr::V4(v4) => Ipv4Addr::from_bits(keep_v4(v4.to_bits(), self.length)).into(),
            IpAddr::V6(v6) => Ipv6Addr::from_bits(keep_v6(v6.to_bits(), self.length)).into(),
        };
        Self { address, length: self.length }
    }

    /// Returns the broadcast address of an IPv4 network; `None` for lengths 31 and 32 (RFC 3021),
    /// and for IPv6.
    #[must_use]
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        match self.address {
            IpAddr::V4(v4) if self.length < 31 => {
                Some(Ipv4Addr::from_bits(v4.to_bits() | u32::MAX >> self.length))
            }
            _ => None,
        }
    }

    /// Returns true if `address` is in this network; false for the other IP version.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Self { address, length: self.length }.network() == self.network()
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

// A shift by the full width, needed for length 0, overflows in Rust.
fn keep_v4(bits: u32, length: u8) -> u32 {
    bits & u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
}

fn keep_v6(bits: u128, length: u8) -> u128 {
    bits & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let syntax = || PrefixError::Syntax(text.to_owned());
        let (address, length) = text.split_once('/').ok_or_else(syntax)?;
        let address = address.parse().map_err(|_| syntax())?;
        let length = length.parse().map_err(|_| syntax())?;
        Self::new(address, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn text_survives_a_round_trip() {
        for text in ["10.0.0.0/8", "192.0.2.1/30", "0.0.0.0/0", "fd00::/8", "2001:db8::1/128"] {
            assert_eq!(prefix(text).to_string(), text);
        }
    }

    #[test]
    fn bad_text_is_refused() {
        for text in ["", "10.0.0.0", "10.0.0.0/", "/8", "10.0.0/8", "10.0.0.0/256", "a/b"] {
            assert!(matches!(text.parse::<Prefix>(), Err(PrefixError::Syntax(_))), "{text}");
        }
        for text in ["10.0.0.0/33", "fd00::/129"] {
            assert!(matches!(text.parse::<Prefix>(), Err(PrefixError::Length { .. })), "{text}");
        }
    }

    #[test]
    fn the_network_clears_what_lies_behind_the_prefix() {
        assert_eq!(prefix("192.0.2.6/30").network(), prefix("192.0.2.4/30"));
        assert_eq!(prefix("255.255.255.255/0").network(), prefix("0.0.0.0/0"));
        assert_eq!(prefix("192.0.2.6/32").network(), prefix("192.0.2.6/32"));
        assert_eq!(prefix("2001:db8::ffff/64").network(), prefix("2001:db8::/64"));
    }

    #[test]
    fn a_network_holds_its_own_and_no_other() {
        assert!(prefix("10.0.0.0/8").contains("10.255.0.1".parse().unwrap()));
        assert!(!prefix("10.0.0.0/8").contains("11.0.0.1".parse().unwrap()));
        assert!(!prefix("0.0.0.0/0").contains("::1".parse().unwrap()));
        assert!(prefix("fd00::/8").contains("fdff::1".parse().unwrap()));
    }
}
