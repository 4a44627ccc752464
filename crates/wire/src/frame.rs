//! A whole UDP datagram in an Ethernet frame: the layers put together, for whoever sends or judges
//! raw frames. What is not plain UDP over IP is told apart, not interpreted.

use core::net::{IpAddr, SocketAddr};

use crate::{Malformed, checksum, ethernet, ipv4, ipv6, udp};

/// Why a frame carries no UDP datagram that could be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotUdp {
    /// A layer is malformed.
    Malformed(Malformed),
    /// Neither IPv4 nor IPv6, or behind more than one VLAN tag.
    OtherEtherType,
    /// A piece of a fragmented packet.
    Fragment,
    /// Another protocol than UDP, IPv6 extension headers among them.
    OtherProtocol,
}

impl From<Malformed> for NotUdp {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// A UDP datagram in its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpFrame<'a> {
    /// The Ethernet header.
    pub ethernet: ethernet::Header,
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
    /// Bytes of IPv4 options.
    pub options_len: usize,
    /// Bytes from the start of the UDP header to the end of its payload, as they stand.
    pub datagram: &'a [u8],
    /// The datagram's payload.
    pub payload: &'a [u8],
    /// Bytes in the IP packet behind the datagram, and in the frame behind the packet.
    pub trailer_len: usize,
}

impl<'a> UdpFrame<'a> {
    /// Reads a frame down to the UDP payload. Lengths and the IPv4 header checksum are checked; the
    /// UDP checksum is not (see [`UdpFrame::checksum_fits`]).
    pub fn parse(frame: &'a [u8]) -> Result<Self, NotUdp> {
        let (ethernet, rest) = ethernet::Header::parse(frame)?;
        let (source, destination, options_len, payload, trailer) = match ethernet.ether_type {
            ethernet::TYPE_IPV4 => {
                let packet = ipv4::Header::parse(rest)?;
                if packet.is_fragment {
                    return Err(NotUdp::Fragment);
                }
                if packet.header.protocol != ipv4::PROTOCOL_UDP {
                    return Err(NotUdp::OtherProtocol);
                }
                let (source, destination) = (packet.header.source, packet.header.destination);
                let options_len = packet.options.len();
                (source.into(), destination.into(), options_len, packet.payload, packet.trailer)
            }
            ethernet::TYPE_IPV6 => {
                let packet = ipv6::Header::parse(rest)?;
                if packet.header.next_header != ipv4::PROTOCOL_UDP {
                    return Err(NotUdp::OtherProtocol);
                }
                let (source, destination) = (packet.header.source, packet.header.destination);
                (source.into(), destination.into(), 0, packet.payload, packet.trailer)
            }
            _ => return Err(NotUdp::OtherEtherType),
        };
        let datagram = udp::Header::parse(payload)?;
        Ok(Self {
            ethernet,
            source: SocketAddr::new(source, datagram.header.source_port),
            destination: SocketAddr::new(destination, datagram.header.destination_port),
            options_len,
            datagram: &payload[..payload.len() - datagram.trailer.len()],
            payload: datagram.payload,
            trailer_len: datagram.trailer.len() + trailer.len(),
        })
    }

    /// Whether the UDP checksum fits; an absent one (0) fits over IPv4 only (RFC 8200,
    /// section 8.1).
    #[must_use]
    pub fn checksum_fits(&self) -> bool {
        let absent = self.datagram[6..8] == [0, 0];
        if absent {
            return self.source.is_ipv4();
        }
        let length = self.datagram.len() as u16;
        udp::Header::verify(
            self.datagram,
            pseudo_header(self.source.ip(), self.destination.ip(), length),
        )
    }
}

fn pseudo_header(source: IpAddr, destination: IpAddr, udp_length: u16) -> checksum::Sum {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            checksum::udp_over_ipv4(source, destination, udp_length)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            checksum::udp_over_ipv6(source, destination, udp_length)
        }
        // Frames are parsed and built from one family; a mixed pair has no pseudo-header.
        _ => checksum::Sum::default(),
    }
}

/// A datagram that came back as it left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Looped<'a> {
    /// Where it came from.
    pub source: IpAddr,
    /// Where it went.
    pub destination: IpAddr,
    /// What it held.
    pub payload: &'a [u8],
}

/// The datagram of a packet that came back from the socket's error queue, as it left: an Ethernet
/// frame, or an IP packet from a device without link headers.
#[must_use]
pub fn looped(packet: &[u8]) -> Option<Looped<'_>> {
    match UdpFrame::parse(packet) {
        Ok(frame) => Some(Looped {
            source: frame.source.ip(),
            destination: frame.destination.ip(),
            payload: frame.payload,
        }),
        Err(_) => bare(packet),
    }
}

/// The datagram of an IP packet.
fn bare(packet: &[u8]) -> Option<Looped<'_>> {
    let (source, destination, protocol, rest): (IpAddr, IpAddr, _, _) = match packet.first()? >> 4 {
        4 => {
            let packet = ipv4::Header::parse(packet).ok()?;
            if packet.is_fragment {
                return None;
            }
            let ipv4::Header { source, destination, protocol, .. } = packet.header;
            (source.into(), destination.into(), protocol, packet.payload)
        }
        6 => {
            let packet = ipv6::Header::parse(packet).ok()?;
            let ipv6::Header { source, destination, next_header, .. } = packet.header;
            (source.into(), destination.into(), next_header, packet.payload)
        }
        _ => return None,
    };
    let datagram = udp::Header::parse(rest).ok()?;
    let payload = datagram.payload;
    (protocol == ipv4::PROTOCOL_UDP).then_some(Looped { source, destination, payload })
}

/// What it takes to build a frame around a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Builder {
    /// Destination MAC address.
    pub destination_mac: ethernet::MacAddress,
    /// Source MAC address.
    pub source_mac: ethernet::MacAddress,
    /// VLAN tag, where the frame is to have one.
    pub vlan: Option<ethernet::VlanTag>,
    /// Source address and port; of the same family as `destination`.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
}

impl Builder {
    /// Length of all headers in front of the payload, in bytes.
    #[must_use]
    pub const fn headers_len(&self) -> usize {
        let link = match self.vlan {
            Some(_) => ethernet::HEADER_LEN + ethernet::VLAN_TAG_LEN,
            None => ethernet::HEADER_LEN,
        };
        let network = match self.source {
            SocketAddr::V4(_) => ipv4::HEADER_LEN,
            SocketAddr::V6(_) => ipv6::HEADER_LEN,
        };
        link + network + udp::HEADER_LEN
    }

    /// Writes headers and `payload` to the front of `buffer`, with all checksums, no fragmenting
    /// allowed and 64 hops to go; returns the frame's length.
    ///
    /// # Panics
    /// When `buffer` is shorter than [`Builder::headers_len`] and the payload together, or when
    /// `source` and `destination` are of different families.
    pub fn emit(&self, payload: &[u8], buffer: &mut [u8]) -> usize {
        assert_eq!(self.source.is_ipv4(), self.destination.is_ipv4(), "one address family");
        let udp_length = (udp::HEADER_LEN + payload.len()) as u16;
        let ether_type =
            if self.source.is_ipv4() { ethernet::TYPE_IPV4 } else { ethernet::TYPE_IPV6 };
        let link = ethernet::Header {
            destination: self.destination_mac,
            source: self.source_mac,
            vlan: self.vlan,
            ether_type,
        };
        let mut at = link.emit(buffer);
        at += self.emit_network(udp_length, &mut buffer[at..]);
        buffer[at + udp::HEADER_LEN..][..payload.len()].copy_from_slice(payload);
        let ports = udp::Header {
            source_port: self.source.port(),
            destination_port: self.destination.port(),
        };
        let pseudo = pseudo_header(self.source.ip(), self.destination.ip(), udp_length);
        at += ports.emit(&mut buffer[at..], payload.len(), pseudo);
        at + payload.len()
    }

    fn emit_network(&self, udp_length: u16, buffer: &mut [u8]) -> usize {
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => ipv4::Header {
                source,
                destination,
                protocol: ipv4::PROTOCOL_UDP,
                traffic_class: 0,
                identification: 0,
                dont_fragment: true,
                time_to_live: 64,
                payload_len: udp_length,
            }
            .emit(buffer),
            (IpAddr::V6(source), IpAddr::V6(destination)) => ipv6::Header {
                source,
                destination,
                next_header: ipv4::PROTOCOL_UDP,
                traffic_class: 0,
                flow_label: 0,
                hop_limit: 64,
                payload_len: udp_length,
            }
            .emit(buffer),
            // `emit` has refused mixed families before it comes here.
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ethernet::{MacAddress, TYPE_VLAN, VlanTag};
    use proptest::prelude::*;

    fn builder(ipv4: bool, tagged: bool, source_port: u16) -> Builder {
        let address = |last: u8| -> IpAddr {
            if ipv4 {
                [192, 0, 2, last].into()
            } else {
                [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)].into()
            }
        };
        Builder {
            destination_mac: MacAddress([2, 0, 0, 0, 0, 2]),
            source_mac: MacAddress([2, 0, 0, 0, 0, 1]),
            vlan: tagged.then_some(VlanTag { protocol: TYPE_VLAN, control: 5 }),
            source: SocketAddr::new(address(1), source_port),
            destination: SocketAddr::new(address(2), 123),
        }
    }

    proptest! {
        #[test]
        fn what_is_built_is_read_back(ipv4: bool, tagged: bool, port: u16, payload in proptest::collection::vec(any::<u8>(), 0..90)) {
            let builder = builder(ipv4, tagged, port);
            let mut frame = vec![0; builder.headers_len() + payload.len()];
            prop_assert_eq!(builder.emit(&payload, &mut frame), frame.len());
            let parsed = UdpFrame::parse(&frame).unwrap();
            prop_assert_eq!(parsed.source, builder.source);
            prop_assert_eq!(parsed.destination, builder.destination);
            prop_assert_eq!(parsed.ethernet.vlan, builder.vlan);
            prop_assert_eq!(parsed.payload, &payload[..]);
            prop_assert_eq!((parsed.options_len, parsed.trailer_len), (0, 0));
            prop_assert!(parsed.checksum_fits());
        }

        #[test]
        fn a_changed_payload_byte_breaks_the_checksum(ipv4: bool, at in 0usize..48, change in 1u8..) {
            let builder = builder(ipv4, false, 1000);
            let mut frame = vec![0; builder.headers_len() + 48];
            builder.emit(&[3; 48], &mut frame);
            frame[builder.headers_len() + at] ^= change;
            prop_assert!(!UdpFrame::parse(&frame).unwrap().checksum_fits());
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = UdpFrame::parse(&bytes).map(|frame| frame.checksum_fits());
        }
    }
}
