//! UDP datagram in an Ethernet frame, parsed and built through all layers, for code that uses raw
//! frames. For other frames, the parser returns the reason why they contain no such datagram.

use core::net::{IpAddr, SocketAddr};

use crate::{ParseError, checksum, ethernet, ipv4, ipv6, udp};

/// Reason why a frame has no complete UDP datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotUdpReason {
    /// Malformed Ethernet, IP or UDP header.
    Malformed(ParseError),
    /// Neither IPv4 nor IPv6; also a frame with more than one VLAN tag.
    OtherEtherType,
    /// Fragment of a packet.
    Fragment,
    /// Protocol other than UDP, including IPv6 extension headers.
    OtherProtocol,
}

impl From<ParseError> for NotUdpReason {
    fn from(malformed: ParseError) -> Self {
        Self::Malformed(malformed)
    }
}

/// Parsed Ethernet frame with a UDP datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpFrame<'a> {
    /// Ethernet header.
    pub ethernet: ethernet::Header,
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
    /// Length of the IPv4 options in bytes; 0 over IPv6.
    pub options_len: usize,
    /// Bytes from the start of the UDP header to the end of its payload, unchanged.
    pub datagram: &'a [u8],
    /// Payload of the datagram.
    pub payload: &'a [u8],
    /// Number of trailing bytes: after the datagram in the IP packet, and after the packet in the
    /// frame.
    pub trailer_len: usize,
}

impl<'a> UdpFrame<'a> {
    /// Parses a frame down to the UDP payload. Lengths and the IPv4 header checksum are verified;
    /// the UDP checksum is not (see [`UdpFrame::has_valid_checksum`]).
    pub fn parse(frame: &'a [u8]) -> Result<Self, NotUdpReason> {
        let (ethernet, rest) = ethernet::Header::parse(frame)?;
        let (source, destination, options_len, payload, trailer) = match ethernet.ether_type {
            ethernet::TYPE_IPV4 => {
                let packet = ipv4::Header::parse(rest)?;
                if packet.is_fragment {
                    return Err(NotUdpReason::Fragment);
                }
                if packet.header.protocol != ipv4::PROTOCOL_UDP {
                    return Err(NotUdpReason::OtherProtocol);
                }
                let (source, destination) = (packet.header.source, packet.header.destination);
                let options_len = packet.options.len();
                (source.into(), destination.into(), options_len, packet.payload, packet.trailer)
            }
            ethernet::TYPE_IPV6 => {
                let packet = ipv6::Header::parse(rest)?;
                if packet.header.next_header != ipv4::PROTOCOL_UDP {
                    return Err(NotUdpReason::OtherProtocol);
                }
                let (source, destination) = (packet.header.source, packet.header.destination);
                (source.into(), destination.into(), 0, packet.payload, packet.trailer)
            }
            _ => return Err(NotUdpReason::OtherEtherType),
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

    /// Returns true if the UDP checksum is correct. Checksum 0 (none) counts as correct over IPv4
    /// only (RFC 8200, section 8.1).
    #[must_use]
    pub fn has_valid_checksum(&self) -> bool {
        let absent = self.datagram[6..8] == [0, 0];
        if absent {
            return self.source.is_ipv4();
        }
        let length = self.datagram.len() as u16;
        udp::Header::verify(
            self.datagram,
            pseudo_header_sum(self.source.ip(), self.destination.ip(), length),
        )
    }

    /// Returns true if the checksum field holds only the pseudo-header sum (`CHECKSUM_PARTIAL`), to
    /// be completed by checksum offload. Datagrams from the same host arrive like this over veth
    /// links.
    #[must_use]
    pub fn has_partial_checksum(&self) -> bool {
        let length = self.datagram.len() as u16;
        let pseudo = pseudo_header_sum(self.source.ip(), self.destination.ip(), length);
        self.datagram[6..8] == (!pseudo.finish()).to_be_bytes()
    }
}

fn pseudo_header_sum(
    source: IpAddr,
    destination: IpAddr,
    udp_length: u16,
) -> checksum::OnesComplementSum {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            checksum::ipv4_pseudo_header_sum(source, destination, udp_length)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            checksum::ipv6_pseudo_header_sum(source, destination, udp_length)
        }
        // Unreachable: frames are parsed and built with addresses of one family.
        _ => checksum::OnesComplementSum::default(),
    }
}

/// UDP datagram that was sent and looped back to the error queue of a socket with its transmit
/// timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransmittedDatagram<'a> {
    /// IP address of the sender.
    pub source: IpAddr,
    /// IP address to which the datagram was sent.
    pub destination: IpAddr,
    /// Payload of the datagram.
    pub payload: &'a [u8],
}

/// Parses a looped-back packet from a socket's error queue: an Ethernet frame, or a bare IP packet
/// if the device has no link-layer header. `None` if it is no UDP datagram.
#[must_use]
pub fn parse_looped_frame(packet: &[u8]) -> Option<TransmittedDatagram<'_>> {
    match UdpFrame::parse(packet) {
        Ok(frame) => Some(TransmittedDatagram {
            source: frame.source.ip(),
            destination: frame.destination.ip(),
            payload: frame.payload,
        }),
        Err(_) => parse_ip_packet(packet),
    }
}

/// Parses an IP packet without a link-layer header; `None` if it is no UDP datagram.
fn parse_ip_packet(packet: &[u8]) -> Option<TransmittedDatagram<'_>> {
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
    (protocol == ipv4::PROTOCOL_UDP).then_some(TransmittedDatagram { source, destination, payload })
}

/// Addresses of a UDP frame to be sent, from which [`UdpFrameBuilder::emit`] writes its headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpFrameBuilder {
    /// Destination MAC address.
    pub destination_mac: ethernet::MacAddress,
    /// Source MAC address.
    pub source_mac: ethernet::MacAddress,
    /// VLAN tag; `None` for an untagged frame.
    pub vlan: Option<ethernet::VlanTag>,
    /// Source address and port; of the same family as `destination`.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
}

impl UdpFrameBuilder {
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

    /// Writes the headers and `payload` to the front of `buffer`, with checksums, the
    /// don't-fragment flag and a hop limit of 64; returns the length of the frame in bytes.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`UdpFrameBuilder::headers_len`] and the payload together, or if
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
        let mut length = link.emit(buffer);
        length += self.emit_network(udp_length, &mut buffer[length..]);
        buffer[length + udp::HEADER_LEN..][..payload.len()].copy_from_slice(payload);
        let ports = udp::Header {
            source_port: self.source.port(),
            destination_port: self.destination.port(),
        };
        let pseudo = pseudo_header_sum(self.source.ip(), self.destination.ip(), udp_length);
        length += ports.emit(&mut buffer[length..], payload.len(), pseudo);
        length + payload.len()
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

    fn builder(ipv4: bool, tagged: bool, source_port: u16) -> UdpFrameBuilder {
        let address = |last: u8| -> IpAddr {
            if ipv4 {
                [192, 0, 2, last].into()
            } else {
                [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)].into()
            }
        };
        UdpFrameBuilder {
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
            prop_assert!(parsed.has_valid_checksum());
        }

        #[test]
        fn a_changed_payload_byte_breaks_the_checksum(ipv4: bool, at in 0usize..48, change in 1u8..) {
            let builder = builder(ipv4, false, 1000);
            let mut frame = vec![0; builder.headers_len() + 48];
            builder.emit(&[3; 48], &mut frame);
            frame[builder.headers_len() + at] ^= change;
            prop_assert!(!UdpFrame::parse(&frame).unwrap().has_valid_checksum());
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = UdpFrame::parse(&bytes).map(|frame| frame.has_valid_checksum());
        }
    }

    #[test]
    fn the_checksum_of_the_pseudo_header_alone_is_recognised() {
        for (source, destination) in
            [("192.0.2.1:40000", "192.0.2.2:123"), ("[fd00::1]:40000", "[fd00::2]:123")]
        {
            let builder = UdpFrameBuilder {
                destination_mac: ethernet::MacAddress([2; 6]),
                source_mac: ethernet::MacAddress([4; 6]),
                vlan: None,
                source: source.parse().unwrap(),
                destination: destination.parse().unwrap(),
            };
            let mut frame = vec![0; builder.headers_len() + 48];
            builder.emit(&[7; 48], &mut frame);
            let whole = UdpFrame::parse(&frame).unwrap();
            assert!(whole.has_valid_checksum() && !whole.has_partial_checksum());
            let length = whole.datagram.len() as u16;
            let (from, to) = (whole.source.ip(), whole.destination.ip());
            let partial = !pseudo_header_sum(from, to, length).finish();
            let at = builder.headers_len() - 2;
            frame[at..at + 2].copy_from_slice(&partial.to_be_bytes());
            let partial = UdpFrame::parse(&frame).unwrap();
            assert!(!partial.has_valid_checksum() && partial.has_partial_checksum());
            frame[at] ^= 1;
            let wrong = UdpFrame::parse(&frame).unwrap();
            assert!(!wrong.has_valid_checksum() && !wrong.has_partial_checksum());
        }
    }
}
