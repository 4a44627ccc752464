//! Source of a stream: sends the packets.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use zerocopy::{FromZeros, IntoBytes};

use super::{HEADERS_LEN, RawStreamConfig, STREAM_MARK_LEN, StreamLane};
use crate::attach::{Attachment, Interface};
use crate::map::MappedArrayMap;
use crate::object::{self, LoadedBpfObject, possible_processors};
use crate::{XdpError, test_run};

const NAME: &str = "stream_source";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stream_source.o"));
/// Offset of the UDP checksum in a frame over IPv4.
const CHECKSUM_OFFSET: usize = HEADERS_LEN - 2;

/// Template of all packets of a stream: a complete Ethernet frame over IPv4 without options, whose
/// checksums are right while the mark at the start of the payload is zero.
#[derive(Clone, Debug)]
pub struct StreamFrameTemplate(Vec<u8>);

impl StreamFrameTemplate {
    /// Creates the template; `None` if there is no room for the mark, the mark is not zero, or the
    /// UDP checksum is missing.
    #[must_use]
    pub fn new(frame: Vec<u8>) -> Option<Self> {
        let is_valid = frame.len() >= HEADERS_LEN + STREAM_MARK_LEN
            && frame[CHECKSUM_OFFSET..HEADERS_LEN] != [0, 0]
            && frame[HEADERS_LEN..HEADERS_LEN + STREAM_MARK_LEN].iter().all(|&byte| byte == 0);
        is_valid.then_some(Self(frame))
    }

    fn config(&self, interface: u32) -> RawStreamConfig {
        let mut headers = [0; CHECKSUM_OFFSET];
        headers.copy_from_slice(&self.0[..CHECKSUM_OFFSET]);
        let checksum = u16::from_ne_bytes([self.0[CHECKSUM_OFFSET], self.0[CHECKSUM_OFFSET + 1]]);
        RawStreamConfig { udp_sum: u64::from(!checksum), headers, interface, reserved: 0 }
    }
}

/// Source program of a stream, attached to its egress interface; dropping it detaches the program.
pub struct StreamSource {
    _attachment: Attachment,
    lanes: MappedArrayMap<StreamLane>,
    frame: StreamFrameTemplate,
    loaded: LoadedBpfObject,
}

impl StreamSource {
    /// Loads the program for packets like `frame` and attaches it in native mode. Packets that
    /// arrive at the interface are passed to the network stack.
    pub fn attach(interface: &Interface, frame: StreamFrameTemplate) -> Result<Self, XdpError> {
        let processors = possible_processors();
        let config = frame.config(interface.index);
        let loaded = LoadedBpfObject::load(NAME, OBJECT, |open| {
            object::set_constants(open, NAME, config.as_bytes())?;
            object::set_map_entries(open, NAME, "lanes", processors)
        })?;
        let lanes = MappedArrayMap::map(loaded.map("lanes")?.as_fd(), processors)?;
        (0..processors).for_each(|processor| lanes.write(processor, &StreamLane::new_zeroed()));
        let attachment = Attachment::new_sender(loaded.program("send")?, interface)?;
        Ok(Self { _attachment: attachment, lanes, frame, loaded })
    }

    /// Sets the lane of a CPU, which must not be sending.
    pub fn set_lane(&self, processor: u32, lane: &StreamLane) {
        self.lanes.write(processor, lane);
    }

    /// Ends the schedule of a CPU's lane, which may be sending.
    pub fn end_lane(&self, processor: u32) {
        self.lanes.atomic(processor, std::mem::offset_of!(StreamLane, end)).store(0, Relaxed);
    }

    /// Returns the schedule and progress of a CPU's lane; it may be torn while the lane is sending.
    #[must_use]
    pub fn lane(&self, processor: u32) -> StreamLane {
        self.lanes.read(processor)
    }

    /// Sends from the CPU to which this thread is pinned until a signal reaches the thread, or the
    /// program has run 2^31 - 1 times. [`StreamLane::done`] is set at the end of the schedule.
    /// Packets leave in batches of up to `batch`.
    pub fn send(&self, batch: u32) -> Result<(), XdpError> {
        test_run::run_live(self.loaded.program("send")?, &self.frame.0, i32::MAX, batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_room_for_the_mark_and_a_checksum() {
        let frame = |len: usize, checksum: u8, mark: u8| {
            let mut frame = vec![0; len];
            frame[CHECKSUM_OFFSET] = checksum;
            *frame.last_mut().unwrap() = mark;
            StreamFrameTemplate::new(frame)
        };
        let least = HEADERS_LEN + STREAM_MARK_LEN;
        assert!(frame(least, 1, 0).is_some());
        assert!(frame(least - 1, 1, 0).is_none());
        assert!(frame(least, 0, 0).is_none());
        assert!(frame(least, 1, 1).is_none());
        assert!(frame(least + 1, 1, 1).is_some());
    }
}
