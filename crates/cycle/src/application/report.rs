//! Reports of sources: a header of 44 bytes, followed by data. All numbers are big-endian.
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 3 | `HRPT` |
//! | 4 | kind: 0 a report, 1 the end of the source's reports |
//! | 5 | 0 |
//! | 6, 7 | source |
//! | 8 to 15 | number, counted by each source for each node from 0 |
//! | 16 to 23 | intended send time, in ns of `CLOCK_MONOTONIC` |
//! | 24 to 31 | actual send time, in ns of `CLOCK_MONOTONIC` |
//! | 32 to 35 | length of the datagram |
//! | 36 to 39 | 0 |
//! | 40 to 43 | CRC-32 (IEEE 802.3) of the datagram with these four bytes 0 |

/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 44;
const MAGIC: [u8; 4] = *b"HRPT";
const CHECKSUM_OFFSET: usize = 40;

/// Header of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimulatedReportHeader {
    /// True if no further report follows; `number` is then that of the next report.
    pub is_end: bool,
    /// Index of the source.
    pub source: u16,
    /// Number of the report, counted by its source for each node from 0.
    pub number: u64,
    /// Intended send time, in ns of `CLOCK_MONOTONIC`.
    pub due_ns: i64,
    /// Actual send time, in ns of `CLOCK_MONOTONIC`.
    pub sent_ns: i64,
}

/// Reason for which a datagram is not a valid report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportDatagramError {
    /// The checksum is wrong.
    Damaged,
    /// The datagram is shorter than a header, or its header is invalid with a correct checksum.
    Foreign,
}

impl SimulatedReportHeader {
    /// Writes the header into the first bytes of a datagram that contains the data after them. A
    /// datagram shorter than a header is left unchanged.
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
        datagram[CHECKSUM_OFFSET..HEADER_LEN].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Parses and verifies a datagram.
    ///
    /// # Errors
    ///
    /// The datagram is damaged, or not a report.
    pub fn parse(datagram: &[u8]) -> Result<Self, ReportDatagramError> {
        let bytes = datagram.first_chunk::<HEADER_LEN>().ok_or(ReportDatagramError::Foreign)?;
        let long = |at: usize| bytes[at..].first_chunk().copied().unwrap_or_default();
        let word =
            |at: usize| u32::from_be_bytes(bytes[at..].first_chunk().copied().unwrap_or_default());
        if word(CHECKSUM_OFFSET) != checksum(datagram) {
            return Err(ReportDatagramError::Damaged);
        }
        let is_valid = bytes[..4] == MAGIC
            && bytes[4] <= 1
            && bytes[5] == 0
            && word(32) as usize == datagram.len()
            && word(36) == 0;
        if !is_valid {
            return Err(ReportDatagramError::Foreign);
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

/// Returns the CRC-32 of a datagram with the checksum field taken as 0.
fn checksum(datagram: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&datagram[..CHECKSUM_OFFSET.min(datagram.len())]);
    crc.update(&[0; HEADER_LEN - CHECKSUM_OFFSET]);
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
        ) -> SimulatedReportHeader {
            SimulatedReportHeader { is_end, source, number, due_ns, sent_ns }
        }
    }

    fn written(report: SimulatedReportHeader, data: &[u8]) -> Vec<u8> {
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
            prop_assert_eq!(SimulatedReportHeader::parse(&written(report, &data)), Ok(report));
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
            prop_assert_eq!(SimulatedReportHeader::parse(&bytes), Err(ReportDatagramError::Damaged));
        }

        #[test]
        fn whatever_comes_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..90)) {
            let _ = SimulatedReportHeader::parse(&bytes);
        }
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        assert_eq!(SimulatedReportHeader::parse(b"hello"), Err(ReportDatagramError::Foreign));
        let report =
            SimulatedReportHeader { is_end: false, source: 1, number: 2, due_ns: 3, sent_ns: 4 };
        let cut = &written(report, &[7; 9])[..50];
        assert_eq!(SimulatedReportHeader::parse(cut), Err(ReportDatagramError::Damaged));
        // Whole by its checksum, and of another kind.
        let mut other = written(report, &[]);
        other[4] = 7;
        let right = checksum(&other);
        other[CHECKSUM_OFFSET..].copy_from_slice(&right.to_be_bytes());
        assert_eq!(SimulatedReportHeader::parse(&other), Err(ReportDatagramError::Foreign));
    }
}
