//! Datagrams between nodes: a header of 32 bytes, optionally followed by a part of a message. All
//! numbers are big-endian.
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 3 | `HCYC` |
//! | 4 | kind: 0 part of a message, 1 arrival at a barrier, 2 ping, 3 its reply, 4 release of a
//!   period, 5 no other release |
//! | 5 | 0 |
//! | 6, 7 | node that sent it |
//! | 8, 9 | superstep |
//! | 10, 11 | index of the part, from 0 on |
//! | 12, 13 | number of parts |
//! | 14, 15 | 0 |
//! | 16 to 23 | period |
//! | 24 to 31 | time of sending, in ns since 1970; of a ping any number, which is returned; of a
//!   release the run's token |

/// Length of the header.
pub const HEADER_LEN: usize = 32;
const MAGIC: [u8; 4] = *b"HCYC";

/// Kinds of datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramKind {
    /// A part of a message.
    Part {
        /// Index of the part, from 0 on; below `of`.
        part: u16,
        /// Number of parts.
        of: u16,
    },
    /// The sender has arrived at a barrier.
    Arrival,
    /// The receiver returns it to the sender.
    Ping,
    /// A ping that is returned.
    Pong,
    /// A period is released.
    Release,
    /// No further release follows.
    Last,
}

/// Header of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramHeader {
    /// Kind of the datagram.
    pub kind: DatagramKind,
    /// Node that sent it.
    pub node: u16,
    /// The period.
    pub cycle: u64,
    /// The superstep.
    pub step: u16,
    /// Time of sending, in ns since 1970; of a release the run's token.
    pub sent_ns: i64,
}

impl DatagramHeader {
    /// Encodes the header as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let (kind, part, of) = match self.kind {
            DatagramKind::Part { part, of } => (0, part, of),
            DatagramKind::Arrival => (1, 0, 0),
            DatagramKind::Ping => (2, 0, 0),
            DatagramKind::Pong => (3, 0, 0),
            DatagramKind::Release => (4, 0, 0),
            DatagramKind::Last => (5, 0, 0),
        };
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = kind;
        bytes[6..8].copy_from_slice(&self.node.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.step.to_be_bytes());
        bytes[10..12].copy_from_slice(&part.to_be_bytes());
        bytes[12..14].copy_from_slice(&of.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.cycle.to_be_bytes());
        bytes[24..].copy_from_slice(&self.sent_ns.to_be_bytes());
        bytes
    }

    /// Parses the beginning of a datagram; `None` if it is not a datagram of a node.
    #[must_use]
    pub fn from_bytes(datagram: &[u8]) -> Option<Self> {
        let bytes = datagram.first_chunk::<HEADER_LEN>()?;
        let short = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let long = |at: usize| bytes[at..].first_chunk().copied().unwrap_or_default();
        let kind = match (bytes[4], short(10), short(12)) {
            (0, part, of) if part < of => DatagramKind::Part { part, of },
            (1, 0, 0) => DatagramKind::Arrival,
            (2, 0, 0) => DatagramKind::Ping,
            (3, 0, 0) => DatagramKind::Pong,
            (4, 0, 0) => DatagramKind::Release,
            (5, 0, 0) => DatagramKind::Last,
            _ => return None,
        };
        let header = Self {
            kind,
            node: short(6),
            cycle: u64::from_be_bytes(long(16)),
            step: short(8),
            sent_ns: i64::from_be_bytes(long(24)),
        };
        // Verifies the magic and the unused bytes.
        (header.to_bytes() == *bytes).then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kind() -> impl Strategy<Value = DatagramKind> {
        prop_oneof![
            (any::<u16>(), 1..=u16::MAX)
                .prop_map(|(part, of)| DatagramKind::Part { part: part % of, of }),
            Just(DatagramKind::Arrival),
            Just(DatagramKind::Ping),
            Just(DatagramKind::Pong),
            Just(DatagramKind::Release),
            Just(DatagramKind::Last),
        ]
    }

    proptest! {
        #[test]
        fn a_header_is_read_as_it_was_written(
            kind in kind(),
            (node, step) in any::<(u16, u16)>(),
            cycle in any::<u64>(),
            sent_ns in any::<i64>(),
            behind in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let header = DatagramHeader { kind, node, cycle, step, sent_ns };
            let mut bytes = header.to_bytes().to_vec();
            bytes.extend(behind);
            prop_assert_eq!(DatagramHeader::from_bytes(&bytes), Some(header));
        }

        #[test]
        fn whatever_comes_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = DatagramHeader::from_bytes(&bytes);
        }
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        let good =
            DatagramHeader { kind: DatagramKind::Arrival, node: 1, cycle: 2, step: 3, sent_ns: 4 }
                .to_bytes();
        assert!(DatagramHeader::from_bytes(&good).is_some());
        assert_eq!(DatagramHeader::from_bytes(&good[..31]), None);
        for (at, value) in [(0, b'X'), (4, 6), (5, 1), (10, 1), (14, 1)] {
            let mut bad = good;
            bad[at] = value;
            assert_eq!(DatagramHeader::from_bytes(&bad), None, "byte {at}");
        }
        let part = DatagramHeader {
            kind: DatagramKind::Part { part: 2, of: 3 },
            ..DatagramHeader::from_bytes(&good).unwrap()
        };
        let mut bad = part.to_bytes();
        bad[11] = 3;
        assert_eq!(DatagramHeader::from_bytes(&bad), None, "the third part of three is number 2");
    }
}
