//! Ancillary data of datagrams (control messages, cmsg(3)), parsed and written byte by byte within
//! the bounds of the buffer. Only the kinds that Horolog requests are decoded; others are skipped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use horolog_time::{Timestamp, Utc};

/// Size of `struct cmsghdr` in bytes: length, level, type.
const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();
const LENGTH_BYTES: usize = size_of::<usize>();

/// Buffer size in bytes for the most data that accompanies a looped-back packet: a timestamp (three
/// `timespec`) with its interface, packet information of both IP versions, and an extended error.
pub(crate) const CAPACITY: usize = 256;

/// Buffer for the control messages of one datagram, aligned as the kernel requires.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct ControlBuffer(pub(crate) [u8; CAPACITY]);

/// Ancillary data of a received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AncillaryData {
    /// Software timestamp (`SO_TIMESTAMPING`, `SO_TIMESTAMPNS`) on `CLOCK_REALTIME`: of the
    /// reception; of the transmission for a looped-back copy of a sent datagram; of the send call
    /// for Unix sockets.
    pub received_at: Option<Timestamp<Utc>>,
    /// Raw hardware timestamp (`SO_TIMESTAMPING`) in ns on the interface's own clock, whose epoch
    /// is arbitrary.
    pub hardware_ns: Option<i64>,
    /// Local address to reply from (`IP_PKTINFO`, `IPV6_PKTINFO`); `None` for IPv6 multicast, or if
    /// not reported.
    pub local: Option<IpAddr>,
    /// Destination address of the IP header (`IP_PKTINFO`, `IPV6_PKTINFO`); `None` if not reported.
    /// It differs from `local` for multicast and broadcast.
    pub destination: Option<IpAddr>,
    /// Index of the ingress interface, 0 if not reported.
    pub interface: u32,
    /// Index of the interface that took the hardware timestamp, 0 if not reported.
    pub clock_interface: u32,
    /// Received traffic class: DSCP and ECN (`IP_RECVTOS`, `IPV6_RECVTCLASS`).
    pub traffic_class: Option<u8>,
    /// Remaining TTL or hop limit (`IP_RECVTTL`, `IPV6_RECVHOPLIMIT`).
    pub hop_limit: Option<u8>,
    /// Number of the datagram to which a transmit timestamp belongs, counted from 0 for each socket
    /// (`SOF_TIMESTAMPING_OPT_ID`).
    pub timestamp_id: Option<u32>,
}

impl AncillaryData {
    /// Parses control messages from the kernel. Messages that are cut off, of an unknown kind or
    /// inconsistent with their own length are skipped, and parsing stops at an impossible length.
    #[must_use]
    pub fn parse(mut bytes: &[u8]) -> Self {
        let mut control = Self::default();
        while let Some((level, kind, payload, rest)) = split_message(bytes) {
            control.apply_message(level, kind, payload);
            bytes = rest;
        }
        control
    }

    /// Returns the multicast group of the destination, if the kernel reported one.
    #[must_use]
    pub fn group(&self) -> Option<IpAddr> {
        self.destination.filter(|destination| destination.to_canonical().is_multicast())
    }

    /// Returns true if the destination is a unicast address of this host, or was not reported. For
    /// broadcast and multicast the kernel reports another local address, or none.
    #[must_use]
    #[inline]
    pub fn is_unicast(&self) -> bool {
        self.destination == self.local
    }

    fn apply_message(&mut self, level: libc::c_int, kind: libc::c_int, payload: &[u8]) {
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPING) => {
                self.received_at = timespec(payload, SOFTWARE_INDEX)
                    .map(|(s, ns)| Timestamp::from_timespec(s, ns));
                self.hardware_ns = timespec(payload, RAW_HARDWARE_INDEX)
                    .map(|(s, ns)| Timestamp::<Utc>::from_timespec(s, ns).as_ns());
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                let sent = timespec(payload, SOFTWARE_INDEX);
                self.received_at = sent.map(|(s, ns)| Timestamp::from_timespec(s, ns));
            }
            // struct scm_ts_pktinfo: the interface whose clock gave the hardware timestamp, which a
            // bridge or a bond on the path has not replaced.
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING_PKTINFO) => {
                if let Some(interface @ 1..) = read_u32(payload, 0) {
                    self.clock_interface = interface;
                }
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // struct in_pktinfo: interface, local address to reply from, destination address.
                if let (Some(interface), Some(local), Some(destination)) =
                    (read_u32(payload, 0), chunk::<4>(payload, 4), chunk::<4>(payload, 8))
                {
                    self.interface = interface;
                    self.local = Some(Ipv4Addr::from(local).into());
                    self.destination = Some(Ipv4Addr::from(destination).into());
                }
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                // struct in6_pktinfo: destination address, interface.
                if let (Some(local), Some(interface)) =
                    (chunk::<16>(payload, 0), read_u32(payload, 16))
                {
                    let destination = Ipv6Addr::from(local);
                    self.interface = interface;
                    self.destination = Some(destination.into());
                    self.local = (!destination.is_multicast()).then_some(destination.into());
                }
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => self.traffic_class = payload.first().copied(),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => self.traffic_class = byte_from_int(payload),
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                self.hop_limit = byte_from_int(payload);
            }
            // struct sock_extended_err: errno, origin, type, code, padding, info, data.
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
                if payload.get(4) == Some(&libc::SO_EE_ORIGIN_TIMESTAMPING) =>
            {
                self.timestamp_id = read_u32(payload, 12);
            }
            _ => {}
        }
    }
}

/// Parses a byte that is stored as a C `int`.
fn byte_from_int(payload: &[u8]) -> Option<u8> {
    read_u32(payload, 0).and_then(|value| u8::try_from(value).ok())
}

/// Splits off the first message: returns its level, type and payload, and the remaining bytes.
fn split_message(bytes: &[u8]) -> Option<(libc::c_int, libc::c_int, &[u8], &[u8])> {
    let length = usize::from_ne_bytes(*bytes.first_chunk::<LENGTH_BYTES>()?);
    let level = libc::c_int::from_ne_bytes(chunk(bytes, LENGTH_BYTES)?);
    let kind = libc::c_int::from_ne_bytes(chunk(bytes, LENGTH_BYTES + 4)?);
    let payload = bytes.get(HEADER_BYTES..length)?;
    let next = length.next_multiple_of(LENGTH_BYTES).min(bytes.len());
    Some((level, kind, payload, &bytes[next..]))
}

/// Indices of the software and raw hardware timestamps in `struct scm_timestamping`.
const SOFTWARE_INDEX: usize = 0;
const RAW_HARDWARE_INDEX: usize = 2;

/// Returns one of the timestamps as seconds and nanoseconds; `None` if it is zero, that is, absent.
fn timespec(payload: &[u8], index: usize) -> Option<(i64, libc::c_long)> {
    let at = index * size_of::<libc::timespec>();
    let seconds = i64::from_ne_bytes(chunk(payload, at)?);
    let nanoseconds = libc::c_long::from_ne_bytes(chunk(payload, at + size_of::<i64>())?);
    (seconds != 0 || nanoseconds != 0).then_some((seconds, nanoseconds))
}

/// Source of a requested transmit timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum TransmitTimestampSource {
    /// Kernel, when the packet is passed to the driver.
    #[default]
    Kernel,
    /// Hardware, or the kernel if the hardware takes none.
    Hardware,
}

/// Writes the control message that requests a transmit timestamp for one datagram, `start` bytes
/// into the buffer; returns the end offset (Documentation/networking/timestamping.rst, 1.3.4).
pub(crate) fn write_timestamp_request(
    buffer: &mut ControlBuffer,
    start: usize,
    source: TransmitTimestampSource,
) -> usize {
    let flags = match source {
        TransmitTimestampSource::Kernel => libc::SOF_TIMESTAMPING_TX_SOFTWARE,
        TransmitTimestampSource::Hardware => {
            libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_TX_HARDWARE
        }
    };
    write_message(buffer, start, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags.to_ne_bytes())
}

/// Writes the control message that sets the source address of a datagram; returns the end offset.
pub(crate) fn write_source(buffer: &mut ControlBuffer, local: IpAddr) -> usize {
    match local {
        IpAddr::V4(v4) => {
            let mut payload = [0; 12];
            payload[4..8].copy_from_slice(&v4.octets());
            write_message(buffer, 0, libc::IPPROTO_IP, libc::IP_PKTINFO, &payload)
        }
        IpAddr::V6(v6) => {
            let mut payload = [0; 20];
            payload[..16].copy_from_slice(&v6.octets());
            write_message(buffer, 0, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &payload)
        }
    }
}

fn write_message(
    buffer: &mut ControlBuffer,
    start: usize,
    level: libc::c_int,
    kind: libc::c_int,
    payload: &[u8],
) -> usize {
    let length = HEADER_BYTES + payload.len();
    let padded = length.next_multiple_of(LENGTH_BYTES);
    let bytes = &mut buffer.0[start..start + padded];
    bytes[..LENGTH_BYTES].copy_from_slice(&length.to_ne_bytes());
    bytes[LENGTH_BYTES..][..4].copy_from_slice(&level.to_ne_bytes());
    bytes[LENGTH_BYTES + 4..][..4].copy_from_slice(&kind.to_ne_bytes());
    bytes[HEADER_BYTES..length].copy_from_slice(payload);
    bytes[length..].fill(0);
    start + padded
}

fn chunk<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

fn read_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    chunk(bytes, offset).map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the kernel gives for one IPv6 datagram: a timestamp, then the packet information.
    fn sample() -> Vec<u8> {
        let mut timestamps = [0u8; 48];
        timestamps[..8].copy_from_slice(&1_700_000_000i64.to_ne_bytes());
        timestamps[8..16].copy_from_slice(&123_456_789i64.to_ne_bytes());
        timestamps[32..40].copy_from_slice(&77i64.to_ne_bytes());
        timestamps[40..48].copy_from_slice(&5i64.to_ne_bytes());
        let mut buffer = ControlBuffer([0; CAPACITY]);
        let length =
            write_message(&mut buffer, 0, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &timestamps);
        let mut bytes = buffer.0[..length].to_vec();
        let length = write_source(&mut buffer, "2001:db8::7".parse().unwrap());
        bytes.extend_from_slice(&buffer.0[..length]);
        bytes
    }

    #[test]
    fn both_messages_are_read() {
        let control = AncillaryData::parse(&sample());
        assert_eq!(control.received_at, Some(Timestamp::from_timespec(1_700_000_000, 123_456_789)));
        assert_eq!(control.local, Some("2001:db8::7".parse().unwrap()));
        assert_eq!(control.hardware_ns, Some(77_000_000_005));
    }

    #[test]
    fn a_request_for_a_timestamp_stands_behind_the_source_address() {
        let mut buffer = ControlBuffer([0xff; CAPACITY]);
        let local: IpAddr = "2001:db8::1".parse().unwrap();
        let source = write_source(&mut buffer, local);
        let end = write_timestamp_request(&mut buffer, source, TransmitTimestampSource::Hardware);
        assert_eq!(AncillaryData::parse(&buffer.0[..end]).local, Some(local));
        let (level, kind, flags, rest) = split_message(&buffer.0[source..end]).unwrap();
        assert_eq!((level, kind), (libc::SOL_SOCKET, libc::SO_TIMESTAMPING));
        assert_eq!((read_u32(flags, 0), flags.len(), rest.len()), (Some(3), 4, 0));
    }

    /// Control messages of the kernel for a datagram over IPv4.
    fn pktinfo(local: [u8; 4], destination: [u8; 4]) -> AncillaryData {
        let mut payload = [0; 12];
        payload[4..8].copy_from_slice(&local);
        payload[8..].copy_from_slice(&destination);
        let mut buffer = ControlBuffer([0; CAPACITY]);
        let end = write_message(&mut buffer, 0, libc::IPPROTO_IP, libc::IP_PKTINFO, &payload);
        AncillaryData::parse(&buffer.0[..end])
    }

    #[test]
    fn a_destination_of_several_hosts_is_recognised() {
        let own = [192, 0, 2, 1];
        assert!(pktinfo(own, own).is_unicast() && AncillaryData::default().is_unicast());
        for broadcast in [[192, 0, 2, 255], [255; 4]] {
            let control = pktinfo(own, broadcast);
            assert!(!control.is_unicast() && control.group().is_none(), "{broadcast:?}");
        }
        let control = pktinfo(own, [224, 0, 0, 1]);
        assert!(!control.is_unicast());
        assert_eq!(control.group(), Some("224.0.0.1".parse().unwrap()));
        for (destination, is_unicast) in [("ff02::1", false), ("fd00::1", true), ("::1", true)] {
            let mut buffer = ControlBuffer([0; CAPACITY]);
            let end = write_source(&mut buffer, destination.parse().unwrap());
            let control = AncillaryData::parse(&buffer.0[..end]);
            assert_eq!(control.is_unicast(), is_unicast, "{destination}");
            assert_eq!(control.group().is_none(), is_unicast, "{destination}");
        }
    }

    #[test]
    fn class_hop_limit_and_number_are_read() {
        let mut buffer = ControlBuffer([0; CAPACITY]);
        let mut error = [0; 16];
        error[4] = libc::SO_EE_ORIGIN_TIMESTAMPING;
        error[12..].copy_from_slice(&77_u32.to_ne_bytes());
        let at = write_message(&mut buffer, 0, libc::IPPROTO_IP, libc::IP_TOS, &[0xb8]);
        let ttl = 63_i32.to_ne_bytes();
        let at = write_message(&mut buffer, at, libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &ttl);
        let at = write_message(&mut buffer, at, libc::IPPROTO_IP, libc::IP_RECVERR, &error);
        let control = AncillaryData::parse(&buffer.0[..at]);
        assert_eq!((control.traffic_class, control.hop_limit), (Some(0xb8), Some(63)));
        assert_eq!(control.timestamp_id, Some(77));
    }

    #[test]
    fn a_truncated_buffer_gives_what_is_whole() {
        let bytes = sample();
        let first = HEADER_BYTES + 48;
        for length in 0..bytes.len() {
            let control = AncillaryData::parse(&bytes[..length]);
            assert_eq!(control.received_at.is_some(), length >= first, "{length} bytes kept");
            assert_eq!(
                control.local.is_some(),
                length >= first + HEADER_BYTES + 20,
                "{length} kept"
            );
        }
    }

    #[test]
    fn a_length_that_cannot_be_ends_the_reading() {
        for length in [0usize, 1, HEADER_BYTES - 1, usize::MAX, usize::MAX - 7, isize::MAX as usize]
        {
            let mut bytes = sample();
            bytes[..LENGTH_BYTES].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(AncillaryData::parse(&bytes), AncillaryData::default(), "length {length}");
        }
    }

    #[test]
    fn written_messages_have_the_size_that_the_c_library_gives_them() {
        let mut buffer = ControlBuffer([0xff; CAPACITY]);
        for (local, payload) in [
            ("192.0.2.1", size_of::<libc::in_pktinfo>()),
            ("2001:db8::1", size_of::<libc::in6_pktinfo>()),
        ] {
            let local: IpAddr = local.parse().unwrap();
            // SAFETY: numbers only.
            let space = unsafe { libc::CMSG_SPACE(payload as u32) } as usize;
            assert_eq!(write_source(&mut buffer, local), space);
            assert_eq!(AncillaryData::parse(&buffer.0[..space]).local, Some(local));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_upset_the_parser(bytes in proptest::collection::vec(any::<u8>(), 0..CAPACITY * 2)) {
            let _ = AncillaryData::parse(&bytes);
        }

        #[test]
        fn no_damage_upsets_the_parser(at in 0usize..104, value: u8) {
            let mut bytes = sample();
            bytes[at] = value;
            let _ = AncillaryData::parse(&bytes);
        }
    }
}
