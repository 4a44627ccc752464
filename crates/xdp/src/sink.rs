//! The counting sink: every IPv4 datagram for one UDP port is counted and dropped, for benchmarks
//! to count what a sender sends without the cost of an answer.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use crate::XdpError;
use crate::abi::SinkCount;
use crate::attach::{AttachMode, Attachment, Interface};
use crate::map::SharedArray;
use crate::object::{self, Loaded, possible_processors};

const NAME: &str = "sink";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sink.o"));

/// The program, in place on an interface; dropping it takes it off.
pub struct Sink {
    _attachment: Attachment,
    counts: SharedArray<SinkCount>,
    _loaded: Loaded,
}

impl Sink {
    /// Loads the program for `port` and attaches it in native mode to the interface.
    pub fn attach(interface: &Interface, port: u16) -> Result<Self, XdpError> {
        let processors = possible_processors();
        let loaded = Loaded::load(NAME, OBJECT, |open| {
            object::set_constants(open, NAME, &port.to_be_bytes())?;
            object::size_map(open, NAME, "counts", processors)
        })?;
        let counts = SharedArray::map(loaded.map("counts")?.as_fd(), processors)?;
        let attachment = Attachment::new(loaded.program("count")?, interface, AttachMode::Native)?;
        Ok(Self { _attachment: attachment, counts, _loaded: loaded })
    }

    /// Frames that were counted since the program was loaded.
    #[must_use]
    pub fn frames(&self) -> u64 {
        (0..self.counts.entries()).map(|at| self.counts.atomic(at, 0).load(Relaxed)).sum()
    }
}
