//! Counting sink for benchmarks: counts and drops every IPv4 datagram to one UDP port, so that a
//! sender is measured without the cost of replies.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use crate::XdpError;
use crate::abi::SinkFrameCount;
use crate::attach::{AttachMode, Attachment, Interface};
use crate::map::MappedArrayMap;
use crate::object::{self, LoadedBpfObject, possible_processors};

const NAME: &str = "sink";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sink.o"));

/// Counting program attached to an interface; dropping it detaches the program.
pub struct CountingSink {
    _attachment: Attachment,
    counts: MappedArrayMap<SinkFrameCount>,
    _loaded: LoadedBpfObject,
}

impl CountingSink {
    /// Loads the program for IPv4 datagrams to the UDP port `port` and attaches it in native mode
    /// to the interface.
    pub fn attach(interface: &Interface, port: u16) -> Result<Self, XdpError> {
        let processors = possible_processors();
        let loaded = LoadedBpfObject::load(NAME, OBJECT, |open| {
            object::set_constants(open, NAME, &port.to_be_bytes())?;
            object::set_map_entries(open, NAME, "counts", processors)
        })?;
        let counts = MappedArrayMap::map(loaded.map("counts")?.as_fd(), processors)?;
        let attachment = Attachment::new(loaded.program("count")?, interface, AttachMode::Native)?;
        Ok(Self { _attachment: attachment, counts, _loaded: loaded })
    }

    /// Returns the number of frames counted and dropped since the program was loaded.
    #[must_use]
    pub fn frames(&self) -> u64 {
        (0..self.counts.entries())
            .map(|processor| self.counts.atomic(processor, 0).load(Relaxed))
            .sum()
    }
}
