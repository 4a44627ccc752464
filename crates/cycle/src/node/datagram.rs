//! Datagrams between nodes: a header of 32 bytes, optionally followed by a fragment of a message.
//! All numbers are big-endian.
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 3 | `HCYC` |
//! | 4 | kind: 0 message fragment, 1 arrival at a barrier, 2 ping, 3 pong, 4 release of a period,
//!   5 end of releases |
//! | 5 | 0 |
//! | 6, 7 | sending node |
//! | 8, 9 | superstep |
//! | 10, 11 | index of the fragment, from 0 |
//! | 12, 13 | number of fragments |
//! | 14, 15 | 0 |
//! | 16 to 23 | period |
//! | 24 to 31 | send time, in ns since 1970; in a ping and its pong, a number chosen by the sender;
//!   in a release, the token of the run |

/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 32;
const MAGIC: [u8; 4] = *b"HCYC";

/// Kind of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramKind {
    /// Fragment of a message.
    Fragment {
        /// Index of the fragment, from 0; less than `count`.
        index: u16,
        /// Number of fragments of the message.
        count: u16,
    },
    /// Arrival of the sender at a barrier.
    BarrierArrival,
    /// Round-trip probe, which the receiver returns as a [`DatagramKind::Pong`].
    Ping,
    /// Returned ping.
    Pong,
    /// Release of a period.
    Release,
    /// End of the run's releases.
    EndOfReleases,
}

/// Header of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramHeader {
    /// Kind of the datagram.
    pub kind: DatagramKind,
    /// Sending node.
    pub node: u16,
    /// Period, from 0.
    pub period: u64,
    /// Superstep within the period, from 0.
    pub superstep: u16,
    /// Send time, in ns since 1970; in a ping and its pong, a number chosen by the sender of the
    /// ping; in a release, the token of the run.
    pub sent_ns: i64,
}

impl DatagramHeader {
    /// Encodes the header as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let (kind, index, count) = match self.kind {
            DatagramKind::Fragment { index: part, count: of } => (0, part, of),
            DatagramKind::BarrierArrival => (1, 0, 0),
            DatagramKind::Ping => (2, 0, 0),
            DatagramKind::Pong => (3, 0, 0),
            DatagramKind::Release => (4, 0, 0),
            DatagramKind::EndOfReleases => (5, 0, 0),
        };
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = kind;
        bytes[6..8].copy_from_slice(&self.node.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.superstep.to_be_bytes());
        bytes[10..12].copy_from_slice(&index.to_be_bytes());
        bytes[12..14].copy_from_slice(&count.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.period.to_be_bytes());
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
            (0, part, of) if part < of => DatagramKind::Fragment { index: part, count: of },
            (1, 0, 0) => DatagramKind::BarrierArrival,
            (2, 0, 0) => DatagramKind::Ping,
            (3, 0, 0) => DatagramKind::Pong,
            (4, 0, 0) => DatagramKind::Release,
            (5, 0, 0) => DatagramKind::EndOfReleases,
            _ => return None,
        };
        let header = Self {
            kind,
            node: short(6),
            period: u64::from_be_bytes(long(16)),
            superstep: short(8),
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
                .prop_map(|(index, count)| DatagramKind::Fragment { index: index % count, count }),
            Just(DatagramKind::BarrierArrival),
            Just(DatagramKind::Ping),
            Just(DatagramKind::Pong),
            Just(DatagramKind::Release),
            Just(DatagramKind::EndOfReleases),
        ]
    }

    proptest! {
        #[test]
        fn a_header_is_read_as_it_was_written(
            kind in kind(),
            (node, superstep) in any::<(u16, u16)>(),
            period in any::<u64>(),
            sent_ns in any::<i64>(),
            behind in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let header = DatagramHeader { kind, node, period, superstep, sent_ns };
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
        let good = DatagramHeader {
            kind: DatagramKind::BarrierArrival,
            node: 1,
            period: 2,
            superstep: 3,
            sent_ns: 4,
        }
        .to_bytes();
        assert!(DatagramHeader::from_bytes(&good).is_some());
        assert_eq!(DatagramHeader::from_bytes(&good[..31]), None);
        for (at, value) in [(0, b'X'), (4, 6), (5, 1), (10, 1), (14, 1)] {
            let mut bad = good;
            bad[at] = value;
            assert_eq!(DatagramHeader::from_bytes(&bad), None, "byte {at}");
        }
        let part = DatagramHeader {
            kind: DatagramKind::Fragment { index: 2, count: 3 },
            ..DatagramHeader::from_bytes(&good).unwrap()
        };
        let mut bad = part.to_bytes();
        bad[11] = 3;
        assert_eq!(DatagramHeader::from_bytes(&bad), None, "the third part of three is number 2");
    }
}
