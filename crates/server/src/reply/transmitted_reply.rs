//! Replies that the kernel looped back with their transmit timestamps, for interleaved mode. Client
//! and receive timestamp are parsed from the looped-back packet, so that no state is stored
//! meanwhile.

use std::net::IpAddr;

use horolog_time::NtpTimestamp;
use horolog_wire::frame::parse_looped_frame;
use horolog_wire::ntp::{AssociationMode, Header};

/// Client and receive timestamp of a reply of this server that was looped back after transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TransmittedReplyKey {
    /// Address of the client.
    pub(crate) client: IpAddr,
    /// Receive timestamp of the reply, which identifies it.
    pub(crate) receive: NtpTimestamp,
}

impl TransmittedReplyKey {
    /// Parses a looped-back packet: an Ethernet frame, or an IP packet from a device without link
    /// headers. `None` if it is not an NTP packet of mode 4 (server).
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        let sent = parse_looped_frame(packet)?;
        let (header, _) = Header::parse(sent.payload).ok()?;
        let (client, receive) = (sent.destination, header.receive);
        (header.mode == AssociationMode::Server).then_some(Self { client, receive })
    }
}

#[cfg(test)]
mod tests {
    use horolog_wire::ethernet::MacAddress;
    use horolog_wire::frame::UdpFrameBuilder;
    use horolog_wire::ntp::HEADER_LEN;
    use proptest::prelude::*;

    use super::*;

    const RECEIVE: NtpTimestamp = NtpTimestamp::from_bits(0xe000_0000_1234_5678);

    fn frame(mode: AssociationMode, client: &str, rest: usize) -> Vec<u8> {
        let destination: std::net::SocketAddr = client.parse().unwrap();
        let source = if destination.is_ipv4() { "192.0.2.1:123" } else { "[2001:db8::1]:123" };
        let mut payload = vec![0; HEADER_LEN + rest];
        let header =
            Header { mode, receive: RECEIVE, ..Header::request(4, NtpTimestamp::from_bits(7)) };
        header.emit(&mut payload);
        let builder = UdpFrameBuilder {
            destination_mac: MacAddress([2; 6]),
            source_mac: MacAddress([4; 6]),
            vlan: None,
            source: source.parse().unwrap(),
            destination,
        };
        let mut frame = vec![0; builder.headers_len() + payload.len()];
        builder.emit(&payload, &mut frame);
        frame
    }

    #[test]
    fn a_reply_is_known_with_and_without_a_link_header() {
        for (client, rest) in [("192.0.2.7:40000", 0), ("[2001:db8::7]:123", 148)] {
            let frame = frame(AssociationMode::Server, client, rest);
            let destination: std::net::SocketAddr = client.parse().unwrap();
            let expected = TransmittedReplyKey { client: destination.ip(), receive: RECEIVE };
            assert_eq!(TransmittedReplyKey::parse(&frame), Some(expected));
            assert_eq!(TransmittedReplyKey::parse(&frame[14..]), Some(expected));
        }
    }

    #[test]
    fn what_is_no_reply_is_nothing() {
        let request = frame(AssociationMode::Client, "192.0.2.7:40000", 0);
        assert_eq!(TransmittedReplyKey::parse(&request), None);
        let reply = frame(AssociationMode::Server, "192.0.2.7:40000", 0);
        for cut in 0..reply.len() {
            assert_eq!(TransmittedReplyKey::parse(&reply[..cut]), None, "{cut} bytes of it");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = TransmittedReplyKey::parse(&bytes);
        }
    }
}
