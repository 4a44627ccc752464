//! Parser of the TCP header fields that stall detection needs (RFC 9293, section 3.1), from an
//! Ethernet frame that may be truncated after its headers. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const ETHERNET_LEN: usize = 14;
const VLAN_TAG: u16 = 0x8100;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const IPV6_LEN: usize = 40;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Header fields of a TCP segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpSegment {
    /// Sender.
    pub from: SocketAddr,
    /// Receiver.
    pub to: SocketAddr,
    /// Sequence number of the first byte of payload.
    pub sequence: u32,
    /// Acknowledgement number; `None` without the ACK flag.
    pub acknowledgement: Option<u32>,
    /// Length of the payload in bytes, computed from the headers.
    pub payload_len: u32,
    /// True if SYN is set.
    pub is_syn: bool,
    /// True if FIN or RST is set.
    pub is_fin_or_rst: bool,
}

impl TcpSegment {
    /// Parses an Ethernet frame with at most one VLAN tag; `None` if it holds no TCP header, as a
    /// later IP fragment.
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let (kind, at) = match u16_at(frame, 12)? {
            VLAN_TAG => (u16_at(frame, 16)?, ETHERNET_LEN + 4),
            kind => (kind, ETHERNET_LEN),
        };
        let packet = frame.get(at..)?;
        match kind {
            IPV4 => Self::parse_ipv4(packet),
            IPV6 => Self::parse_ipv6(packet),
            _ => None,
        }
    }

    fn parse_ipv4(packet: &[u8]) -> Option<Self> {
        let header = usize::from(*packet.first()? & 0xf) * 4;
        let is_later_fragment = u16_at(packet, 6)? & 0x1fff != 0;
        if *packet.get(9)? != TCP || header < 20 || is_later_fragment {
            return None;
        }
        let address = |at: usize| -> Option<IpAddr> {
            Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?).into())
        };
        let length = usize::from(u16_at(packet, 2)?).checked_sub(header)?;
        Self::parse_tcp(packet.get(header..)?, length, address(12)?, address(16)?)
    }

    fn parse_ipv6(packet: &[u8]) -> Option<Self> {
        if *packet.get(6)? != TCP {
            return None;
        }
        let address = |at: usize| -> Option<IpAddr> {
            Some(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?).into())
        };
        let length = usize::from(u16_at(packet, 4)?);
        Self::parse_tcp(packet.get(IPV6_LEN..)?, length, address(8)?, address(24)?)
    }

    fn parse_tcp(bytes: &[u8], length: usize, from: IpAddr, to: IpAddr) -> Option<Self> {
        let header = usize::from(*bytes.get(12)? >> 4) * 4;
        let flags = *bytes.get(13)?;
        let payload = length.checked_sub(header).filter(|_| header >= 20)?;
        Some(Self {
            from: SocketAddr::new(from, u16_at(bytes, 0)?),
            to: SocketAddr::new(to, u16_at(bytes, 2)?),
            sequence: u32_at(bytes, 4)?,
            acknowledgement: if flags & ACK == 0 { None } else { Some(u32_at(bytes, 8)?) },
            payload_len: u32::try_from(payload).ok()?,
            is_syn: flags & SYN != 0,
            is_fin_or_rst: flags & (FIN | RST) != 0,
        })
    }

    /// Returns the sequence number after the payload.
    #[must_use]
    pub const fn end_sequence(&self) -> u32 {
        self.sequence.wrapping_add(self.payload_len)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame with a payload of 132 bytes that were left out.
    fn frame() -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00, 0x45, 0, 0, 40 + 132, 0, 0, 0x40, 0, 64, 6, 0, 0]);
        frame.extend([192, 0, 2, 1, 192, 0, 2, 2]);
        frame
            .extend([0x9c, 0x40, 0x21, 0xb1, 0, 0, 0, 7, 0, 0, 0, 9, 0x50, 0x18, 0, 0, 0, 0, 0, 0]);
        frame
    }

    #[test]
    fn the_fields_stand_where_the_standards_put_them() {
        let segment = TcpSegment::parse(&frame()).unwrap();
        assert_eq!(segment.from, "192.0.2.1:40000".parse().unwrap());
        assert_eq!(segment.to, "192.0.2.2:8625".parse().unwrap());
        assert_eq!(
            (segment.sequence, segment.acknowledgement, segment.payload_len),
            (7, Some(9), 132)
        );
        assert_eq!(
            (segment.is_syn, segment.is_fin_or_rst, segment.end_sequence()),
            (false, false, 139)
        );
    }

    #[test]
    fn a_tag_is_passed_over_and_other_protocols_are_none() {
        let mut tagged = frame();
        tagged.splice(12..12, [0x81, 0x00, 0, 7]);
        assert_eq!(TcpSegment::parse(&tagged), TcpSegment::parse(&frame()));
        for (at, value) in [(23, 17), (12, 9), (14, 0x44), (21, 1), (46, 0x40), (17, 30)] {
            let mut other = frame();
            other[at] = value;
            assert_eq!(TcpSegment::parse(&other), None, "{at}");
        }
    }

    #[test]
    fn ipv6_is_read_too() {
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 25, 6, 64]);
        frame.extend([0; 15].into_iter().chain([1]).chain([0; 15]).chain([2]));
        frame.extend([0, 80, 0x9c, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x01, 0, 0, 0, 0, 0, 0]);
        let segment = TcpSegment::parse(&frame).unwrap();
        assert_eq!(segment.from, "[::1]:80".parse().unwrap());
        assert_eq!(
            (segment.acknowledgement, segment.payload_len, segment.is_fin_or_rst),
            (None, 5, true)
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, cut in 0..60_usize) {
            let _ = TcpSegment::parse(&bytes);
            let mut whole = frame();
            whole.truncate(cut);
            let _ = TcpSegment::parse(&whole);
        }
    }
}
