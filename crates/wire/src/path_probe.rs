//! The datagrams by which a path is measured between two ends of Horolog: a near one that asks and
//! a far one that answers. The format is this project's own; for others' far ends there is
//! [`crate::stamp`].
//!
//! A near end first says hello and is told a session, which only who receives at the address that
//! it sends from can know. Probes that bear it are echoed; nothing else is. No answer is longer
//! than what it answers, and no answer is itself answered.
//!
//! | bytes | field |
//! |---|---|
//! | 0–3 | `HPth` |
//! | 4 | version, 1 |
//! | 5 | kind |
//! | 6 | flags |
//! | 7 | of an echo: the traffic class with which the probe came |
//! | 8–15 | session; 0 in a hello |
//! | 16–19 | sequence number of a probe and its echo; of a hello a number that comes back |
//! | 20–47 | by the kind, zero where that has nothing to tell |
//!
//! A *welcome* tells in bytes 32–39 by which kernel the far end's clock runs (a hash of the boot
//! and of the hello's number, so that two ends of one kernel know that their clocks are the same)
//! and in 40–47 the most that this clock may be off, −1 where it is not synchronised. An *echo* and
//! a *tally* tell how many counted probes of the session came (20–23), how many of them behind a
//! later one (24–27), and how many datagrams of load (28–31); an echo also when the probe came
//! (32–39) and when the echo left (40–47), in ns since 1970 by the far end's clock. A tally with
//! the flag 8 tells what the far end's host had of the session and lost: counted probes that its
//! limit left without an echo (32–39), and all datagrams that its socket dropped meanwhile (40–47).

use zerocopy::byteorder::network_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Malformed;

/// Length of the header, in bytes; what follows is padding.
pub const HEADER_LEN: usize = 48;
/// Length of a hello, in bytes.
pub const HELLO_LEN: usize = 64;
/// The port of the far end, UDP and TCP, unless told otherwise.
pub const PORT: u16 = 8625;

const MAGIC: [u8; 4] = *b"HPth";
const VERSION: u8 = 1;

/// In a hello: the far end's kernel is to take the time at which probes come.
pub const FLAG_KERNEL_TIME: u8 = 1;
/// In a hello: echoes are to tell with which traffic class probes came, and to leave with it.
pub const FLAG_TRAFFIC_CLASS: u8 = 2;
/// In a probe: it warms up, and is not counted.
pub const FLAG_WARM_UP: u8 = 4;
/// In a tally: it tells what the far end's host lost.
pub const FLAG_LOSSES: u8 = 8;

/// What a datagram is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Asks for a session.
    Hello = 1,
    /// Gives it.
    Welcome = 2,
    /// Says that there is no room for a session now.
    Full = 3,
    /// Asks for an echo.
    Probe = 4,
    /// Is one.
    Echo = 5,
    /// Loads the path, and is never answered.
    Load = 6,
    /// Ends a session, and asks what was counted.
    End = 7,
    /// Tells that.
    Tally = 8,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Hello,
        Self::Welcome,
        Self::Full,
        Self::Probe,
        Self::Echo,
        Self::Load,
        Self::End,
        Self::Tally,
    ];
}

/// What the far end counted in a session.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counted {
    /// Probes, those that came twice too.
    pub arrivals: u32,
    /// Probes that came behind one of a higher number, or again.
    pub behind: u32,
    /// Datagrams of load.
    pub load: u32,
}

/// What came to the far end's host while a session lasted, and got no further.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Losses {
    /// Counted probes of the session that the far end's limit left without an echo.
    pub limited: u64,
    /// Datagrams of anybody that its socket dropped because its buffer was full.
    pub dropped: u64,
}

/// The header of any of these datagrams. What its kind has no use for is zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What it is for.
    pub kind: Kind,
    /// The sum of what is asked for.
    pub flags: u8,
    /// Of an echo: the traffic class with which the probe came.
    pub traffic_class: u8,
    /// The session.
    pub session: u64,
    /// The sequence number.
    pub sequence: u32,
    /// Of an echo and a tally: what the far end counted.
    pub counted: Counted,
    /// Of an echo: when the probe came. Of a welcome: the hash of the kernel. Of a tally: what was
    /// limited.
    pub received_ns: i64,
    /// Of an echo: when it left. Of a welcome: how far the clock may be off, or −1. Of a tally:
    /// what was dropped.
    pub sent_ns: i64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
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

const _: () = assert!(size_of::<Layout>() == HEADER_LEN);

impl Header {
    /// A header that tells nothing but its kind, session and number.
    #[must_use]
    pub const fn new(kind: Kind, session: u64, sequence: u32) -> Self {
        Self {
            kind,
            flags: 0,
            traffic_class: 0,
            session,
            sequence,
            counted: Counted { arrivals: 0, behind: 0, load: 0 },
            received_ns: 0,
            sent_ns: 0,
        }
    }

    /// The header with what a tally tells of losses.
    #[must_use]
    pub fn with_losses(self, losses: Losses) -> Self {
        Self {
            flags: self.flags | FLAG_LOSSES,
            received_ns: losses.limited.cast_signed(),
            sent_ns: losses.dropped.cast_signed(),
            ..self
        }
    }

    /// What a tally tells of losses; `None` of a far end that tells nothing of them.
    #[must_use]
    pub fn losses(&self) -> Option<Losses> {
        let (limited, dropped) = (self.received_ns.cast_unsigned(), self.sent_ns.cast_unsigned());
        (self.flags & FLAG_LOSSES != 0).then_some(Losses { limited, dropped })
    }

    /// Reads the header; what follows it is padding and comes with it.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (layout, rest) = Layout::ref_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
        if layout.magic != MAGIC || layout.version != VERSION {
            return Err(Malformed::Version);
        }
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == layout.kind);
        let header = Self {
            kind: kind.ok_or(Malformed::Version)?,
            flags: layout.flags,
            traffic_class: layout.traffic_class,
            session: layout.session.get(),
            sequence: layout.sequence.get(),
            counted: Counted {
                arrivals: layout.arrivals.get(),
                behind: layout.behind.get(),
                load: layout.load.get(),
            },
            received_ns: layout.received_ns.get(),
            sent_ns: layout.sent_ns.get(),
        };
        Ok((header, rest))
    }

    /// Writes it to the front of `buffer`; how long it is.
    ///
    /// # Panics
    ///
    /// When the buffer is shorter than [`HEADER_LEN`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let layout = Layout {
            magic: MAGIC,
            version: VERSION,
            kind: self.kind as u8,
            flags: self.flags,
            traffic_class: self.traffic_class,
            session: U64::new(self.session),
            sequence: U32::new(self.sequence),
            arrivals: U32::new(self.counted.arrivals),
            behind: U32::new(self.counted.behind),
            load: U32::new(self.counted.load),
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
    fn the_fields_stand_where_the_table_says() {
        let header = Header {
            flags: FLAG_KERNEL_TIME | FLAG_WARM_UP,
            traffic_class: 0xb8,
            counted: Counted { arrivals: 5, behind: 6, load: 7 },
            received_ns: 8,
            sent_ns: -1,
            ..Header::new(Kind::Echo, 0x0102_0304_0506_0708, 9)
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
    fn a_tally_tells_of_losses_by_its_flag() {
        let tally = Header::new(Kind::Tally, 1, 0);
        assert_eq!(tally.losses(), None, "of a far end that does not know of them");
        let losses = Losses { limited: 3, dropped: 1 << 33 };
        let mut bytes = [0; HEADER_LEN];
        tally.with_losses(losses).emit(&mut bytes);
        assert_eq!((bytes[6], bytes[39], bytes[43]), (8, 3, 2));
        assert_eq!(Header::parse(&bytes).unwrap().0.losses(), Some(losses));
    }

    #[test]
    fn what_is_not_of_this_protocol_is_refused() {
        let mut bytes = [0; HEADER_LEN];
        Header::new(Kind::Hello, 0, 1).emit(&mut bytes);
        for kept in 0..HEADER_LEN {
            assert_eq!(Header::parse(&bytes[..kept]), Err(Malformed::Truncated), "{kept}");
        }
        for (at, value) in [(0, b'X'), (4, 2), (5, 0), (5, 9)] {
            let mut other = bytes;
            other[at] = value;
            assert_eq!(Header::parse(&other), Err(Malformed::Version), "{at}");
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
