//! Writer of pcapng files (draft-ietf-opsawg-pcapng, sections 4.1 to 4.6), the format of Wireshark:
//! one interface of Ethernet frames, timestamps in nanoseconds. Only whole blocks are written, so
//! that a truncated capture remains readable.

use std::io::{self, Write};

use horolog_time::{Timestamp, Utc};

/// Block types.
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// Byte-order magic.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// `LINKTYPE_ETHERNET`.
const ETHERNET: u16 = 1;
/// Option codes; their meaning depends on the type of block.
const OPTION_END: u16 = 0;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;
const STATISTICS_RECEIVED: u16 = 4;
const STATISTICS_DROPPED: u16 = 5;
/// Timestamp resolution: 10^-9 s.
const NANOSECONDS: u8 = 9;

/// Direction of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaptureDirection {
    /// Received.
    Inbound = 1,
    /// Sent.
    Outbound = 2,
}

/// Packet to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapturedPacket<'a> {
    /// Time of capture; written as 0 if before 1970.
    pub at: Timestamp<Utc>,
    /// Direction, as seen from this host.
    pub direction: CaptureDirection,
    /// Frame, possibly truncated.
    pub bytes: &'a [u8],
}

/// Writer of one pcapng file.
#[derive(Debug)]
pub struct PcapngWriter<W> {
    output: W,
    /// Complete blocks that are not written yet.
    blocks: Vec<u8>,
}

impl<W: Write> PcapngWriter<W> {
    /// Writes the headers of a file of packets of the interface with this name.
    pub fn new(output: W, interface: &str) -> io::Result<Self> {
        let mut writer = Self { output, blocks: Vec::new() };
        writer.append_block(SECTION_HEADER, |body| {
            body.extend(BYTE_ORDER.to_le_bytes());
            body.extend([1_u16, 0].map(u16::to_le_bytes).concat()); // version 1.0
            body.extend(u64::MAX.to_le_bytes()); // a section of unknown length
            append_option(body, SECTION_APPLICATION, b"horolog");
            append_option(body, OPTION_END, b"");
        });
        writer.append_block(INTERFACE, |body| {
            body.extend([ETHERNET, 0].map(u16::to_le_bytes).concat());
            body.extend(0_u32.to_le_bytes()); // no limit to the length of a packet
            append_option(body, INTERFACE_NAME, interface.as_bytes());
            append_option(body, INTERFACE_RESOLUTION, &[NANOSECONDS]);
            append_option(body, OPTION_END, b"");
        });
        writer.flush()?;
        Ok(writer)
    }

    /// Adds a packet, to be written with the next [`PcapngWriter::flush`].
    pub fn add_packet(&mut self, packet: &CapturedPacket<'_>) {
        self.append_block(PACKET, |body| {
            body.extend(0_u32.to_le_bytes()); // the first interface
            body.extend(timestamp_words(packet.at));
            let length = packet.bytes.len() as u32;
            body.extend([length, length].map(u32::to_le_bytes).concat());
            append_padded(body, packet.bytes);
            append_option(body, PACKET_FLAGS, &(packet.direction as u32).to_le_bytes());
            append_option(body, OPTION_END, b"");
        });
    }

    /// Writes the added packets; they are discarded even if writing fails.
    pub fn flush(&mut self) -> io::Result<()> {
        let written = self.output.write_all(&self.blocks);
        self.blocks.clear();
        written
    }

    /// Ends the file with the numbers of packets captured and dropped up to the time `at`, after
    /// the packets not yet written.
    pub fn finish(mut self, at: Timestamp<Utc>, captured: u64, dropped: u64) -> io::Result<()> {
        self.append_block(STATISTICS, |body| {
            body.extend(0_u32.to_le_bytes());
            body.extend(timestamp_words(at));
            append_option(body, STATISTICS_RECEIVED, &captured.to_le_bytes());
            append_option(body, STATISTICS_DROPPED, &dropped.to_le_bytes());
            append_option(body, OPTION_END, b"");
        });
        self.flush()?;
        self.output.flush()
    }

    /// Appends a block: its type, its length, its body, and its length again for backward readers.
    fn append_block(&mut self, kind: u32, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.blocks.len();
        self.blocks.extend(kind.to_le_bytes());
        self.blocks.extend([0; 4]);
        write(&mut self.blocks);
        let length = (self.blocks.len() - start + 4) as u32;
        self.blocks[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
        self.blocks.extend(length.to_le_bytes());
    }
}

/// Returns a timestamp in ns since 1970 as two 32-bit little-endian words, the upper one first; 0
/// for times before 1970.
fn timestamp_words(at: Timestamp<Utc>) -> [u8; 8] {
    let ns = at.as_ns().max(0) as u64;
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&((ns >> 32) as u32).to_le_bytes());
    bytes[4..].copy_from_slice(&(ns as u32).to_le_bytes());
    bytes
}

fn append_option(body: &mut Vec<u8>, number: u16, value: &[u8]) {
    // Values are short names and numbers, which fit the 16-bit length field.
    body.extend([number, value.len() as u16].map(u16::to_le_bytes).concat());
    append_padded(body, value);
}

/// Appends bytes, padded to 32-bit words.
fn append_padded(body: &mut Vec<u8>, bytes: &[u8]) {
    body.extend(bytes);
    body.extend(std::iter::repeat_n(0, bytes.len().next_multiple_of(4) - bytes.len()));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The types and bodies of all blocks of a file.
    fn blocks(mut file: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let word =
            |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let mut blocks = Vec::new();
        while !file.is_empty() {
            let length = word(file, 4) as usize;
            assert_eq!((word(file, length - 4) as usize, length % 4), (length, 0));
            blocks.push((word(file, 0), file[8..length - 4].to_vec()));
            file = &file[length..];
        }
        blocks
    }

    #[test]
    fn a_file_by_hand() {
        let mut file = Vec::new();
        let mut writer = PcapngWriter::new(&mut file, "eth0").unwrap();
        let at = Timestamp::from_ns(0x0011_2233_4455_6677);
        writer.add_packet(&CapturedPacket {
            at,
            direction: CaptureDirection::Outbound,
            bytes: &[1, 2, 3, 4, 5],
        });
        writer.finish(at, 7, 2).unwrap();
        let blocks = blocks(&file);
        let kinds: Vec<_> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [SECTION_HEADER, INTERFACE, PACKET, STATISTICS]);
        assert_eq!(file[8..16], [0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0]);
        let interface = b"\x01\0\0\0\0\0\0\0\x02\0\x04\0eth0\x09\0\x01\0\x09\0\0\0\0\0\0\0";
        assert_eq!(blocks[1].1, interface);
        let packet = b"\0\0\0\0\x33\x22\x11\0\x77\x66\x55\x44\x05\0\0\0\x05\0\0\0\
            \x01\x02\x03\x04\x05\0\0\0\x02\0\x04\0\x02\0\0\0\0\0\0\0";
        assert_eq!(blocks[2].1, packet);
        assert_eq!(blocks[3].1[12..24], *b"\x04\0\x08\0\x07\0\0\0\0\0\0\0");
    }

    proptest! {
        #[test]
        fn every_length_makes_whole_blocks(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..70), 0..5), name in "[a-z]{0,15}") {
            let mut file = Vec::new();
            let mut writer = PcapngWriter::new(&mut file, &name).unwrap();
            for bytes in &frames {
                let at = Timestamp::from_ns(1);
                writer.add_packet(&CapturedPacket { at, direction: CaptureDirection::Inbound, bytes });
            }
            writer.flush().unwrap();
            let packets = &blocks(&file)[2..];
            prop_assert_eq!(packets.len(), frames.len());
            for ((_, body), bytes) in packets.iter().zip(&frames) {
                prop_assert_eq!(&body[20..20 + bytes.len()], &bytes[..]);
            }
        }
    }
}
