//! Sending end of a stream.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use zerocopy::{FromZeros, IntoBytes};

use super::abi::{HEADERS, RawStreamConfig, STREAM_MARK_LEN, StreamLane};
use crate::XdpError;
use crate::attach::{Attachment, Interface};
use crate::map::SharedArray;
use crate::object::{self, LoadedObject, possible_processors};
use crate::test_run;

const NAME: &str = "stream_source";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stream_source.o"));
/// Offset of the UDP checksum in a frame over IPv4.
const CHECKSUM: usize = HEADERS - 2;

/// Frame that all packets of a stream are made of: a whole one, over IPv4 without options, with the
/// checksums that are right while the mark at the start of its payload is zero.
#[derive(Clone, Debug)]
pub struct StreamFrame(Vec<u8>);

impl StreamFrame {
    /// Takes a frame that has room for the mark; `None` if it has not, or if it has no checksum.
    #[must_use]
    pub fn new(frame: Vec<u8>) -> Option<Self> {
        let is_whole = frame.len() >= HEADERS + STREAM_MARK_LEN
            && frame[CHECKSUM..HEADERS] != [0, 0]
            && frame[HEADERS..HEADERS + STREAM_MARK_LEN].iter().all(|&byte| byte == 0);
        is_whole.then_some(Self(frame))
    }

    fn config(&self, interface: u32) -> RawStreamConfig {
        let mut headers = [0; CHECKSUM];
        headers.copy_from_slice(&self.0[..CHECKSUM]);
        let checksum = u16::from_ne_bytes([self.0[CHECKSUM], self.0[CHECKSUM + 1]]);
        RawStreamConfig { udp_sum: u64::from(!checksum), headers, interface, reserved: 0 }
    }
}

/// A program attached to the interface that it sends by.
pub struct StreamSource {
    _attachment: Attachment,
    lanes: SharedArray<StreamLane>,
    frame: StreamFrame,
    loaded: LoadedObject,
}

impl StreamSource {
    /// Loads the program for such packets and attaches it in native mode to the interface. Packets
    /// that come in there are passed to the network stack.
    pub fn attach(interface: &Interface, frame: StreamFrame) -> Result<Self, XdpError> {
        let processors = possible_processors();
        let config = frame.config(interface.index);
        let loaded = LoadedObject::load(NAME, OBJECT, |open| {
            object::set_constants(open, NAME, config.as_bytes())?;
            object::size_map(open, NAME, "lanes", processors)
        })?;
        let lanes = SharedArray::map(loaded.map("lanes")?.as_fd(), processors)?;
        (0..processors).for_each(|at| lanes.write(at, &StreamLane::new_zeroed()));
        let attachment = Attachment::of_sender(loaded.program("send")?, interface)?;
        Ok(Self { _attachment: attachment, lanes, frame, loaded })
    }

    /// Sets the lane of a CPU. Nothing may be sending there.
    pub fn set_lane(&self, processor: u32, lane: &StreamLane) {
        self.lanes.write(processor, lane);
    }

    /// Ends the schedule of a CPU's lane, which may be sending.
    pub fn end_lane(&self, processor: u32) {
        self.lanes.atomic(processor, std::mem::offset_of!(StreamLane, end)).store(0, Relaxed);
    }

    /// Returns the state of a CPU's lane.
    #[must_use]
    pub fn lane(&self, processor: u32) -> StreamLane {
        self.lanes.read(processor)
    }

    /// Sends from the CPU that this thread is pinned to until a signal reaches the thread; the lane
    /// records when it is over. Packets leave in batches of up to `batch`.
    pub fn send(&self, batch: u32) -> Result<(), XdpError> {
        test_run::live(self.loaded.program("send")?, &self.frame.0, i32::MAX, batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_room_for_the_mark_and_a_checksum() {
        let frame = |len: usize, checksum: u8, mark: u8| {
            let mut frame = vec![0; len];
            frame[CHECKSUM] = checksum;
            *frame.last_mut().unwrap() = mark;
            StreamFrame::new(frame)
        };
        let least = HEADERS + STREAM_MARK_LEN;
        assert!(frame(least, 1, 0).is_some());
        assert!(frame(least - 1, 1, 0).is_none());
        assert!(frame(least, 0, 0).is_none());
        assert!(frame(least, 1, 1).is_none());
        assert!(frame(least + 1, 1, 1).is_some());
    }
}
