//! Ethernet II header with at most one VLAN tag (IEEE 802.3; IEEE 802.1Q clause 9). A second tag
//! and LLC length fields are not interpreted; they are returned as the `EtherType`.

use core::net::IpAddr;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ParseError;

/// `EtherType` of IPv4.
pub const TYPE_IPV4: u16 = 0x0800;
/// `EtherType` of IPv6.
pub const TYPE_IPV6: u16 = 0x86dd;
/// Tag protocol identifier of a customer VLAN tag (IEEE 802.1Q, table 9-1).
pub const TYPE_VLAN: u16 = 0x8100;
/// Tag protocol identifier of a service VLAN tag (IEEE 802.1Q, table 9-1).
pub const TYPE_SERVICE_VLAN: u16 = 0x88a8;

/// Length of a header without a tag, in bytes.
pub const HEADER_LEN: usize = 14;
/// Offset of the type in a header without a tag, in bytes.
pub const ETHER_TYPE_OFFSET: u32 = 12;
/// Length of a VLAN tag, in bytes.
pub const VLAN_TAG_LEN: usize = 4;

/// 48-bit MAC address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Returns the MAC address of an IP multicast group (RFC 1112, section 6.4; RFC 2464, section
    /// 7).
    #[must_use]
    pub const fn of_group(group: IpAddr) -> Self {
        match group {
            IpAddr::V4(group) => {
                let [_, b, c, d] = group.octets();
                Self([0x01, 0x00, 0x5e, b & 0x7f, c, d])
            }
            IpAddr::V6(group) => {
                let [.., a, b, c, d] = group.octets();
                Self([0x33, 0x33, a, b, c, d])
            }
        }
    }

    /// Returns true if the group bit is set: a multicast or broadcast address (IEEE 802, clause
    /// 8.2).
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl core::fmt::Display for MacAddress {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:02x}", self.0[0])?;
        self.0[1..].iter().try_for_each(|byte| write!(f, ":{byte:02x}"))
    }
}

impl core::fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

impl core::str::FromStr for MacAddress {
    type Err = ParseError;

    /// Parses six numbers of one or two hexadecimal digits, separated by colons or hyphens. Fewer
    /// than six are [`ParseError::Truncated`], other errors [`ParseError::Length`].
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut parts = text.split([':', '-']);
        let mut bytes = [0; 6];
        for byte in &mut bytes {
            let part = parts.next().ok_or(ParseError::Truncated)?;
            let digits = part.len() <= 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
            *byte =
                u8::from_str_radix(part, 16).ok().filter(|_| digits).ok_or(ParseError::Length)?;
        }
        if parts.next().is_some() { Err(ParseError::Length) } else { Ok(Self(bytes)) }
    }
}

/// VLAN tag (IEEE 802.1Q, clause 9.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VlanTag {
    /// Tag protocol identifier: [`TYPE_VLAN`] or [`TYPE_SERVICE_VLAN`].
    pub protocol: u16,
    /// Tag control information: priority, drop eligibility and VLAN identifier.
    pub control: u16,
}

/// Ethernet II header with at most one VLAN tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Destination MAC address.
    pub destination: MacAddress,
    /// Source MAC address.
    pub source: MacAddress,
    /// VLAN tag, if present; a second one appears as [`Header::ether_type`].
    pub vlan: Option<VlanTag>,
    /// `EtherType` of the payload; of a frame with a second VLAN tag, that tag's protocol
    /// identifier.
    pub ether_type: u16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct EthernetHeaderLayout {
    destination: [u8; 6],
    source: [u8; 6],
    ether_type: U16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct VlanTagLayout {
    control: U16,
    ether_type: U16,
}

impl Header {
    /// Parses a header; returns it with the bytes after it.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (layout, rest) =
            EthernetHeaderLayout::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
        let outer = layout.ether_type.get();
        let mut header = Self {
            destination: MacAddress(layout.destination),
            source: MacAddress(layout.source),
            vlan: None,
            ether_type: outer,
        };
        if outer != TYPE_VLAN && outer != TYPE_SERVICE_VLAN {
            return Ok((header, rest));
        }
        let (tag, rest) =
            VlanTagLayout::ref_from_prefix(rest).map_err(|_| ParseError::Truncated)?;
        header.vlan = Some(VlanTag { protocol: outer, control: tag.control.get() });
        header.ether_type = tag.ether_type.get();
        Ok((header, rest))
    }

    /// Returns the length of the header in bytes, including the tag.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        if self.vlan.is_some() { HEADER_LEN + VLAN_TAG_LEN } else { HEADER_LEN }
    }

    /// Writes the header, with its VLAN tag if it has one, to the front of `buffer` and returns its
    /// length in bytes.
    ///
    /// # Panics
    ///
    /// If `buffer` is shorter than [`Header::len`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let outer = self.vlan.map_or(self.ether_type, |tag| tag.protocol);
        let layout = EthernetHeaderLayout {
            destination: self.destination.0,
            source: self.source.0,
            ether_type: U16::new(outer),
        };
        buffer[..HEADER_LEN].copy_from_slice(layout.as_bytes());
        if let Some(tag) = self.vlan {
            let tag = VlanTagLayout {
                control: U16::new(tag.control),
                ether_type: U16::new(self.ether_type),
            };
            buffer[HEADER_LEN..HEADER_LEN + VLAN_TAG_LEN].copy_from_slice(tag.as_bytes());
        }
        self.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mac_address_text() {
        let mac: MacAddress = "aa:BB:cc-00:01:ff".parse().unwrap();
        assert_eq!(mac.to_string(), "aa:bb:cc:00:01:ff");
        for bad in
            ["", "aa:bb:cc:dd:ee", "aa:bb:cc:dd:ee:ff:00", "aa:bb:cc:dd:ee:+f", "gg:0:0:0:0:0"]
        {
            assert!(bad.parse::<MacAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_tag_without_room_is_truncated() {
        let mut frame = [0; 16];
        frame[12..14].copy_from_slice(&TYPE_VLAN.to_be_bytes());
        assert_eq!(Header::parse(&frame), Err(ParseError::Truncated));
    }

    #[test]
    fn groups_of_ip_have_groups_of_ethernet() {
        let mac = |group: &str| MacAddress::of_group(group.parse().unwrap()).to_string();
        assert_eq!(mac("224.0.1.129"), "01:00:5e:00:01:81");
        assert_eq!(mac("239.129.2.3"), "01:00:5e:01:02:03");
        assert_eq!(mac("ff0e::1:0181"), "33:33:00:01:01:81");
    }

    proptest! {
        #[test]
        fn round_trip(destination: [u8; 6], source: [u8; 6], tagged: bool, service: bool, control: u16, ether_type: u16) {
            prop_assume!(tagged || (ether_type != TYPE_VLAN && ether_type != TYPE_SERVICE_VLAN));
            let protocol = if service { TYPE_SERVICE_VLAN } else { TYPE_VLAN };
            let vlan = tagged.then_some(VlanTag { protocol, control });
            let header = Header { destination: MacAddress(destination), source: MacAddress(source), vlan, ether_type };
            let mut buffer = [0; HEADER_LEN + VLAN_TAG_LEN + 3];
            let length = header.emit(&mut buffer);
            let (back, rest) = Header::parse(&buffer).unwrap();
            prop_assert_eq!(back, header);
            prop_assert_eq!(rest.len(), buffer.len() - length);
        }
    }
}
