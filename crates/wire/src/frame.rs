//! UDP datagram in an Ethernet frame: all layers together, for code that sends or checks raw
//! frames. Anything other than plain UDP over IP is classified, not interpreted.

use core::net::{IpAddr, SocketAddr};

use crate::{Malformed, checksum, ethernet, ipv4, ipv6, udp};

/// Reason for which a frame yields no UDP datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotUdp {
    /// Malformed layer.
    Malformed(Malformed),
    /// Neither IPv4 nor IPv6, or more than one VLAN tag.
    OtherEtherType,
    /// Fragment of a packet.
    Fragment,
    /// Protocol other than UDP, including IPv6 extension headers.
    OtherProtocol,
}

impl From<Malformed> for NotUdp {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// UDP datagram in its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpFrame<'a> {
    /// Ethernet header.
    pub ethernet: ethernet::Header,
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
    /// Length of the IPv4 options in bytes.
    pub options_len: usize,
    /// Bytes from the start of the UDP header to the end of its payload, unchanged.
    pub datagram: &'a [u8],
    /// Payload of the datagram.
    pub payload: &'a [u8],
    /// Bytes in the IP packet after the datagram, and in the frame after the packet.
    pub trailer_len: usize,
}

impl<'a> UdpFrame<'a> {
    /// Parses a frame down to the UDP payload. Lengths and the IPv4 header checksum are verified;
    /// the UDP checksum is not (see [`UdpFrame::checksum_fits`]).
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

    /// Returns true if the UDP checksum is valid; an absent one (0) is valid over IPv4 only (RFC
    /// 8200, section 8.1).
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

    /// Returns true if the UDP checksum is the sum of the pseudo-header alone, to be completed by a
    /// NIC: a datagram of this host arrives like that over a virtual link.
    #[must_use]
    pub fn has_partial_checksum(&self) -> bool {
        let length = self.datagram.len() as u16;
        let pseudo = pseudo_header(self.source.ip(), self.destination.ip(), length);
        self.datagram[6..8] == (!pseudo.finish()).to_be_bytes()
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

/// Datagram that was looped back as transmitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransmittedFrame<'a> {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Payload.
    pub payload: &'a [u8],
}

/// Parses a packet from the socket's error queue, as it was transmitted: an Ethernet frame, or an
/// IP packet from a device without link headers.
#[must_use]
pub fn looped(packet: &[u8]) -> Option<TransmittedFrame<'_>> {
    match UdpFrame::parse(packet) {
        Ok(frame) => Some(TransmittedFrame {
            source: frame.source.ip(),
            destination: frame.destination.ip(),
            payload: frame.payload,
        }),
        Err(_) => bare(packet),
    }
}

/// Parses the datagram of an IP packet.
fn bare(packet: &[u8]) -> Option<TransmittedFrame<'_>> {
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
    (protocol == ipv4::PROTOCOL_UDP).then_some(TransmittedFrame { source, destination, payload })
}

/// Builder of a frame around a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Builder {
    /// Destination MAC address.
    pub destination_mac: ethernet::MacAddress,
    /// Source MAC address.
    pub source_mac: ethernet::MacAddress,
    /// VLAN tag, if the frame is to have one.
    pub vlan: Option<ethernet::VlanTag>,
    /// Source address and port; of the same family as `destination`.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
}

impl Builder {
    /// Returns the length of all headers before the payload, in bytes.
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

    /// Writes headers and `payload` to the front of `buffer`, with all checksums, fragmentation
    /// disallowed and a hop limit of 64; returns the frame's length.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`Builder::headers_len`] and the payload together, or if
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
            // `emit` has refused mixed families before this call.
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

    #[test]
    fn the_checksum_of_the_pseudo_header_alone_is_recognised() {
        for (source, destination) in
            [("192.0.2.1:40000", "192.0.2.2:123"), ("[fd00::1]:40000", "[fd00::2]:123")]
        {
            let builder = Builder {
                destination_mac: ethernet::MacAddress([2; 6]),
                source_mac: ethernet::MacAddress([4; 6]),
                vlan: None,
                source: source.parse().unwrap(),
                destination: destination.parse().unwrap(),
            };
            let mut frame = vec![0; builder.headers_len() + 48];
            builder.emit(&[7; 48], &mut frame);
            let whole = UdpFrame::parse(&frame).unwrap();
            assert!(whole.checksum_fits() && !whole.has_partial_checksum());
            let length = whole.datagram.len() as u16;
            let (from, to) = (whole.source.ip(), whole.destination.ip());
            let partial = !pseudo_header(from, to, length).finish();
            let at = builder.headers_len() - 2;
            frame[at..at + 2].copy_from_slice(&partial.to_be_bytes());
            let partial = UdpFrame::parse(&frame).unwrap();
            assert!(!partial.checksum_fits() && partial.has_partial_checksum());
            frame[at] ^= 1;
            let wrong = UdpFrame::parse(&frame).unwrap();
            assert!(!wrong.checksum_fits() && !wrong.has_partial_checksum());
        }
    }
}
