//! UDP datagrams of a path measurement between two Horolog hosts, the near end and the far end. The
//! protocol is Horolog's own; [`crate::stamp`] is used with far ends of other implementations.
//!
//! The near end sends a hello and receives a session identifier in the welcome, which proves that
//! it receives at its source address. Only probes with a valid session are echoed. No reply is
//! longer than its request, and replies are never answered.
//!
//! | bytes | field |
//! |---|---|
//! | 0–3 | `HPth` |
//! | 4 | version, 1 |
//! | 5 | kind |
//! | 6 | flags |
//! | 7 | by the kind |
//! | 8–15 | session; 0 in a hello |
//! | 16–19 | sequence number of a probe and its echo; of a hello a number that is returned |
//! | 20–47 | by the kind, zero if unused |
//!
//! Byte 7 of an echo is the traffic class with which the probe arrived; of a welcome, the length of
//! the shortest probe that is echoed, or 0 for 48.
//!
//! A *welcome* carries in bytes 32–39 a hash of the far end's boot ID and the hello's number, by
//! which two ends on one kernel recognise that they share a clock, and in bytes 40–47 the error
//! bound of its clock in ns, −1 if not synchronised. An *echo* and a *counts* datagram carry the
//! number of counted probes of the session that arrived (20–23), of those that arrived out of order
//! (24–27), and of load datagrams (28–31). An echo also carries the receive time of the probe
//! (32–39) and its own transmit time (40–47), in ns since 1970 on the far end's clock. A *counts*
//! datagram with flag 8 also carries the losses at the far end: counted probes not echoed because
//! of its rate limit (32–39), and all datagrams that its socket dropped during the session (40–47).
//!
//! Probes of 16 to 47 bytes and their echoes use the short format of [`short`]; the other datagrams
//! do not change.

pub mod short;

use zerocopy::byteorder::network_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ParseError;

/// Length of the header of a datagram, in bytes; the rest of the datagram is padding.
pub const HEADER_LEN: usize = 48;
/// Length of a hello, in bytes.
pub const HELLO_LEN: usize = 64;
/// Default port of the far end, UDP and TCP.
pub const PORT: u16 = 8625;

const MAGIC: [u8; 4] = *b"HPth";
const VERSION: u8 = 1;

/// Flag of a hello: requests kernel receive timestamps of probes.
pub const FLAG_KERNEL_TIME: u8 = 1;
/// Flag of a hello: requests that echoes report the traffic class of their probe and are sent with
/// it.
pub const FLAG_TRAFFIC_CLASS: u8 = 2;
/// Flag of a probe: warm-up, not counted.
pub const FLAG_WARM_UP: u8 = 4;
/// Flag of a counts datagram: it carries losses of the far end's host.
pub const FLAG_LOSSES: u8 = 8;

/// Kind of a datagram of the path measurement protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PathDatagramKind {
    /// Request for a session.
    Hello = 1,
    /// Assignment of a session, in reply to a hello.
    Welcome = 2,
    /// Refusal of a session: the far end is at its session limit.
    Refusal = 3,
    /// Numbered test packet, to be echoed.
    Probe = 4,
    /// Echo of a probe.
    Echo = 5,
    /// Load datagram: counted, never answered.
    Load = 6,
    /// End of a session; requests its counts.
    End = 7,
    /// Far end's counts of a session, in reply to its end.
    Counts = 8,
}

impl PathDatagramKind {
    const ALL: [Self; 8] = [
        Self::Hello,
        Self::Welcome,
        Self::Refusal,
        Self::Probe,
        Self::Echo,
        Self::Load,
        Self::End,
        Self::Counts,
    ];
}

/// Counts of one session at the far end, without warm-up probes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SessionCounts {
    /// Probes received, duplicates included.
    pub arrivals: u32,
    /// Probes received after one with a higher number, and duplicates.
    pub out_of_order: u32,
    /// Load datagrams received.
    pub load: u32,
}

/// Datagrams lost at the far end's host after they had arrived there.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FarEndHostLosses {
    /// Counted probes of the session that were not echoed because of the rate limit.
    pub limited: u64,
    /// Datagrams, of any sender, dropped at the full socket buffer.
    pub dropped: u64,
}

/// Header of all datagrams of the path measurement protocol, except short probes and echoes. Fields
/// that a kind does not use are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Kind of the datagram.
    pub kind: PathDatagramKind,
    /// Bitwise OR of `FLAG_` constants.
    pub flags: u8,
    /// Echo: traffic class with which the probe arrived. Welcome: length of the shortest probe that
    /// is echoed, in bytes, or 0.
    pub traffic_class: u8,
    /// Session identifier; 0 in a hello.
    pub session: u64,
    /// Sequence number of a probe and its echo; of a hello, a number that is returned.
    pub sequence: u32,
    /// Far end's counts, in an echo and in a counts datagram.
    pub counts: SessionCounts,
    /// Echo: receive time of the probe, in ns since 1970. Welcome: hash of boot ID and number.
    /// Counts: number of rate-limited probes.
    pub received_ns: i64,
    /// Echo: transmit time of the echo, in ns since 1970. Welcome: error bound of the clock in ns,
    /// or −1. Counts: number of dropped datagrams.
    pub sent_ns: i64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PathHeaderLayout {
    magic: [u8; 4],
    version: u8,
    kind: u8,
    flags: u8,
    traffic_class: u8,
    session: U64,
    sequence: U32,
    arrivals: U32,
    behind: U32,
    load: U32,
    received_ns: I64,
    sent_ns: I64,
}

const _: () = assert!(size_of::<PathHeaderLayout>() == HEADER_LEN);

impl Header {
    /// Returns a header with only kind, session and sequence number set.
    #[must_use]
    pub const fn new(kind: PathDatagramKind, session: u64, sequence: u32) -> Self {
        Self {
            kind,
            flags: 0,
            traffic_class: 0,
            session,
            sequence,
            counts: SessionCounts { arrivals: 0, out_of_order: 0, load: 0 },
            received_ns: 0,
            sent_ns: 0,
        }
    }

    /// Returns the header of a counts datagram with the losses of the far end's host, in place of
    /// its times.
    #[must_use]
    pub fn with_losses(self, losses: FarEndHostLosses) -> Self {
        Self {
            flags: self.flags | FLAG_LOSSES,
            received_ns: losses.limited.cast_signed(),
            sent_ns: losses.dropped.cast_signed(),
            ..self
        }
    }

    /// Returns the losses of the far end's host in a counts datagram; `None` if it does not report
    /// them.
    #[must_use]
    pub fn losses(&self) -> Option<FarEndHostLosses> {
        let (limited, dropped) = (self.received_ns.cast_unsigned(), self.sent_ns.cast_unsigned());
        (self.flags & FLAG_LOSSES != 0).then_some(FarEndHostLosses { limited, dropped })
    }

    /// Parses the header; returns it with the padding after it. Another magic number, version or
    /// kind is [`ParseError::Version`].
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (layout, rest) =
            PathHeaderLayout::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
        if layout.magic != MAGIC || layout.version != VERSION {
            return Err(ParseError::Version);
        }
        let kind = PathDatagramKind::ALL.into_iter().find(|kind| *kind as u8 == layout.kind);
        let header = Self {
            kind: kind.ok_or(ParseError::Version)?,
            flags: layout.flags,
            traffic_class: layout.traffic_class,
            session: layout.session.get(),
            sequence: layout.sequence.get(),
            counts: SessionCounts {
                arrivals: layout.arrivals.get(),
                out_of_order: layout.behind.get(),
                load: layout.load.get(),
            },
            received_ns: layout.received_ns.get(),
            sent_ns: layout.sent_ns.get(),
        };
        Ok((header, rest))
    }

    /// Writes the header to the front of `buffer`; returns its length in bytes.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`HEADER_LEN`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let layout = PathHeaderLayout {
            magic: MAGIC,
            version: VERSION,
            kind: self.kind as u8,
            flags: self.flags,
            traffic_class: self.traffic_class,
            session: U64::new(self.session),
            sequence: U32::new(self.sequence),
            arrivals: U32::new(self.counts.arrivals),
            behind: U32::new(self.counts.out_of_order),
            load: U32::new(self.counts.load),
            received_ns: I64::new(self.received_ns),
            sent_ns: I64::new(self.sent_ns),
        };
        buffer[..HEADER_LEN].copy_from_slice(layout.as_bytes());
        HEADER_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_fields_are_at_the_documented_offsets() {
        let header = Header {
            flags: FLAG_KERNEL_TIME | FLAG_WARM_UP,
            traffic_class: 0xb8,
            counts: SessionCounts { arrivals: 5, out_of_order: 6, load: 7 },
            received_ns: 8,
            sent_ns: -1,
            ..Header::new(PathDatagramKind::Echo, 0x0102_0304_0506_0708, 9)
        };
        let mut bytes = [0xff; 50];
        assert_eq!(header.emit(&mut bytes), HEADER_LEN);
        assert_eq!(bytes[..8], [b'H', b'P', b't', b'h', 1, 5, 5, 0xb8]);
        assert_eq!(bytes[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[16..32], [0, 0, 0, 9, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 7]);
        assert_eq!((bytes[39], &bytes[40..48], bytes[48]), (8, &[0xff; 8][..], 0xff));
        assert_eq!(Header::parse(&bytes), Ok((header, &[0xff, 0xff][..])));
    }

    #[test]
    fn a_tally_reports_losses_by_its_flag() {
        let tally = Header::new(PathDatagramKind::Counts, 1, 0);
        assert_eq!(tally.losses(), None, "of a far end that does not know of them");
        let losses = FarEndHostLosses { limited: 3, dropped: 1 << 33 };
        let mut bytes = [0; HEADER_LEN];
        tally.with_losses(losses).emit(&mut bytes);
        assert_eq!((bytes[6], bytes[39], bytes[43]), (8, 3, 2));
        assert_eq!(Header::parse(&bytes).unwrap().0.losses(), Some(losses));
    }

    #[test]
    fn what_is_not_of_this_protocol_is_refused() {
        let mut bytes = [0; HEADER_LEN];
        Header::new(PathDatagramKind::Hello, 0, 1).emit(&mut bytes);
        for len in 0..HEADER_LEN {
            assert_eq!(Header::parse(&bytes[..len]), Err(ParseError::Truncated), "{len}");
        }
        for (at, value) in [(0, b'X'), (4, 2), (5, 0), (5, 9)] {
            let mut other = bytes;
            other[at] = value;
            assert_eq!(Header::parse(&other), Err(ParseError::Version), "{at}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_that_are_read_are_written_again(bytes: [u8; HEADER_LEN], kind in 1_u8..9) {
            let mut bytes = bytes;
            bytes[..6].copy_from_slice(&[b'H', b'P', b't', b'h', 1, kind]);
            let (header, _) = Header::parse(&bytes).unwrap();
            let mut written = [0; HEADER_LEN];
            header.emit(&mut written);
            prop_assert_eq!(written, bytes);
        }
    }
}
