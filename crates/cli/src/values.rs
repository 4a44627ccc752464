//! Value parsers of command-line options: rates, times, sizes, shares, addresses, reference
//! identifiers and leap indicators.

use std::net::SocketAddr;

pub(crate) use horolog_time::text::{
    duration, numbers, positive_duration, positive_span, rates, sizes, span,
};

use horolog_sys::zone::{self, AddressError};
use horolog_time::text::{self, QuantityError};
use horolog_wire::ntp::LeapIndicator;

/// Parses a whole number from 1 to 4,294,967,295, with an optional decimal multiplier.
pub(crate) fn count(text: &str) -> Result<u32, QuantityError> {
    text::count(text)
}

/// Parses an IP address with a port; an IPv6 address may have a zone, such as `[fe80::1%eth0]:123`.
pub(crate) fn socket_address(text: &str) -> Result<SocketAddr, AddressError> {
    zone::socket_address(text)
}

/// Parses a ratio from 0 to below 1, as a number or in percent: `0.0001`, `0.01%`.
pub(crate) fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text::fraction(text).filter(|ratio| *ratio < 1.0);
    ratio.ok_or_else(|| "write a share from 0 to below 1, such as 0.0001 or 0.01%".into())
}

/// Parses a relative increase over a previous value, from 0 to 1,000 (100,000%): `0.1`, `10%`,
/// `250%`.
pub(crate) fn excess(text: &str) -> Result<f64, String> {
    const MAX: f64 = 1_000.0;
    let excess = text::fraction(text).filter(|excess| *excess <= MAX);
    excess.ok_or_else(|| "write a fraction of the earlier value, such as 0.1, 10% or 250%".into())
}

/// Parses a reference identifier (RFC 5905, section 7.3): one to four printable ASCII characters,
/// padded with zeros, or an IPv4 address.
pub(crate) fn reference_id(text: &str) -> Result<[u8; 4], String> {
    if let Ok(address) = text.parse::<std::net::Ipv4Addr>() {
        return Ok(address.octets());
    }
    let bytes = text.as_bytes();
    if bytes.is_empty() || bytes.len() > 4 || !bytes.iter().all(u8::is_ascii_graphic) {
        return Err("write one to four printable ASCII characters or an IPv4 address".into());
    }
    let mut id = [0; 4];
    id[..bytes.len()].copy_from_slice(bytes);
    Ok(id)
}

/// Parses a leap indicator (RFC 5905, section 7.3): 0 to 3 or its name.
pub(crate) fn leap(text: &str) -> Result<LeapIndicator, String> {
    match text {
        "0" | "none" => Ok(LeapIndicator::None),
        "1" | "insert" => Ok(LeapIndicator::Insert),
        "2" | "delete" => Ok(LeapIndicator::Delete),
        "3" | "unsynchronised" => Ok(LeapIndicator::Unsynchronised),
        _ => Err("write none, insert, delete, unsynchronised or 0 to 3".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_all_of_it_may_be_allowed() {
        assert_eq!(excess("250%"), Ok(2.5));
        assert_eq!((excess("0"), excess("0.1")), (Ok(0.0), Ok(0.1)));
        for text in ["", "x", "-1%", "nan", "inf", "1e9"] {
            assert!(excess(text).is_err_and(|why| why.contains("250%")), "{text}");
        }
    }

    #[test]
    fn shares() {
        assert_eq!(ratio("0.01%"), Ok(0.0001));
        assert_eq!(ratio("0"), Ok(0.0));
        assert!(ratio("100%").is_err() && ratio("-1").is_err());
    }

    #[test]
    fn reference_identifiers() {
        assert_eq!(reference_id("GPS"), Ok(*b"GPS\0"));
        assert_eq!(reference_id("192.0.2.1"), Ok([192, 0, 2, 1]));
        assert!(reference_id("GNSS1").is_err() && reference_id("").is_err());
        assert!(reference_id("é").is_err());
    }
}
