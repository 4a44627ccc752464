//! What sources send: a header of 44 bytes, behind which data follow up to the length that it says.
//! All numbers are big-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 3 | `HRPT` |
//! | 4 | kind: 0 a report, 1 the end of all reports of the source |
//! | 5 | 0 |
//! | 6, 7 | source |
//! | 8 to 15 | number: each source counts for each node, from 0 on |
//! | 16 to 23 | when it was due, in ns of `CLOCK_MONOTONIC` |
//! | 24 to 31 | when it was sent, likewise |
//! | 32 to 35 | length of all, header included |
//! | 36 to 39 | 0 |
//! | 40 to 43 | CRC-32 (IEEE 802.3) of all of it with these four bytes 0 |

/// Length of the header.
pub const HEADER_LEN: usize = 44;
const MAGIC: [u8; 4] = *b"HRPT";
const CHECKSUM: usize = 40;

/// What the header of a report says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// Whether it says that no other will come, with the number that the next one would have.
    pub is_end: bool,
    /// The source.
    pub source: u16,
    /// Its number.
    pub number: u64,
    /// When it was due, in ns.
    pub due_ns: i64,
    /// When it was sent, in ns.
    pub sent_ns: i64,
}

/// Why bytes are no report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unread {
    /// It was one: something in it is not as it was sent.
    Damaged,
    /// It is none.
    Foreign,
}

impl Report {
    /// Writes the header into the first bytes of what is to be sent, whose other bytes are the
    /// data; what is shorter than a header stays as it is.
    pub fn write(&self, datagram: &mut [u8]) {
        let len = datagram.len() as u32;
        let Some(bytes) = datagram.first_chunk_mut::<HEADER_LEN>() else { return };
        *bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = u8::from(self.is_end);
        bytes[6..8].copy_from_slice(&self.source.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.due_ns.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.sent_ns.to_be_bytes());
        bytes[32..36].copy_from_slice(&len.to_be_bytes());
        let checksum = checksum(datagram);
        datagram[CHECKSUM..HEADER_LEN].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Reads what came, if all of it is as it was sent.
    ///
    /// # Errors
    ///
    /// It is damaged, or none.
    pub fn read(datagram: &[u8]) -> Result<Self, Unread> {
        let bytes = datagram.first_chunk::<HEADER_LEN>().ok_or(Unread::Foreign)?;
        let long = |at: usize| bytes[at..].first_chunk().copied().unwrap_or_default();
        let word =
            |at: usize| u32::from_be_bytes(bytes[at..].first_chunk().copied().unwrap_or_default());
        if word(CHECKSUM) != checksum(datagram) {
            return Err(Unread::Damaged);
        }
        let is_ours = bytes[..4] == MAGIC
            && bytes[4] <= 1
            && bytes[5] == 0
            && word(32) as usize == datagram.len()
            && word(36) == 0;
        if !is_ours {
            return Err(Unread::Foreign);
        }
        Ok(Self {
            is_end: bytes[4] == 1,
            source: u16::from_be_bytes([bytes[6], bytes[7]]),
            number: u64::from_be_bytes(long(8)),
            due_ns: i64::from_be_bytes(long(16)),
            sent_ns: i64::from_be_bytes(long(24)),
        })
    }
}

/// Of all bytes, those of the checksum taken for 0.
fn checksum(datagram: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&datagram[..CHECKSUM.min(datagram.len())]);
    crc.update(&[0; HEADER_LEN - CHECKSUM]);
    crc.update(datagram.get(HEADER_LEN..).unwrap_or_default());
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn report()(
            is_end in any::<bool>(),
            source in any::<u16>(),
            number in any::<u64>(),
            (due_ns, sent_ns) in any::<(i64, i64)>(),
        ) -> Report {
            Report { is_end, source, number, due_ns, sent_ns }
        }
    }

    fn written(report: Report, data: &[u8]) -> Vec<u8> {
        let mut bytes = [&[0; HEADER_LEN], data].concat();
        report.write(&mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn a_report_is_read_as_it_was_written(
            report in report(),
            data in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            prop_assert_eq!(Report::read(&written(report, &data)), Ok(report));
        }

        /// A CRC finds every single bit, wherever it is.
        #[test]
        fn no_bit_changes_unnoticed(
            report in report(),
            data in prop::collection::vec(any::<u8>(), 0..200),
            bit in any::<prop::sample::Index>(),
        ) {
            let mut bytes = written(report, &data);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Report::read(&bytes), Err(Unread::Damaged));
        }

        #[test]
        fn whatever_comes_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..90)) {
            let _ = Report::read(&bytes);
        }
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        assert_eq!(Report::read(b"hello"), Err(Unread::Foreign));
        let report = Report { is_end: false, source: 1, number: 2, due_ns: 3, sent_ns: 4 };
        let cut = &written(report, &[7; 9])[..50];
        assert_eq!(Report::read(cut), Err(Unread::Damaged));
        // Whole by its checksum, and of another kind.
        let mut other = written(report, &[]);
        other[4] = 7;
        let right = checksum(&other);
        other[CHECKSUM..].copy_from_slice(&right.to_be_bytes());
        assert_eq!(Report::read(&other), Err(Unread::Foreign));
    }
}
