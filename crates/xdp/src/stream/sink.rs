//! Receiving end of a stream.

use std::mem::offset_of;
use std::os::fd::AsFd;

use super::abi::{RawStreamCount, RawStreamDelays, RawStreamExpected, WINDOW};
use crate::XdpError;
use crate::abi::RawHistogram;
use crate::attach::{AttachMode, Attachment, Interface};
use crate::map::SharedArray;
use crate::object::{self, LoadedObject, possible_processors};

const NAME: &str = "stream_sink";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stream_sink.o"));

/// Packets expected in a trial.
#[derive(Clone, Copy, Debug)]
pub struct StreamTrial {
    /// Number of the trial; packets of others are dropped.
    pub number: u32,
    /// Lanes of the source.
    pub lanes: u32,
    /// Children, which are consecutive UDP ports ...
    pub children: u32,
    /// ... from this one on.
    pub first_port: u16,
    /// Bytes of UDP payload.
    pub payload_len: u32,
    /// True if latencies are measured, which makes each copy cost more.
    pub timed: bool,
}

/// Packets received for a child from one lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamChild {
    /// Packets.
    pub packets: u64,
    /// Bytes of UDP payload.
    pub bytes: u64,
    /// Packets whose number was not above that of the one before on the same CPU.
    pub disordered: u64,
    /// Packets of another length.
    pub damaged: u64,
    sum: u64,
    squares: u64,
}

impl StreamChild {
    /// Returns true if these are the packets 0 to `sent` - 1, each of them once.
    #[must_use]
    pub fn is_each_once(&self, sent: u64) -> bool {
        (self.packets, self.sum, self.squares) == (sent, sum(sent), squares(sent))
    }
}

/// Returns 0 + 1 + ... + (count - 1), modulo 2^64.
fn sum(count: u64) -> u64 {
    let count = u128::from(count);
    (count * count.saturating_sub(1) / 2) as u64
}

/// Returns the sum of the squares of these numbers, modulo 2^64. For counts below 2^40 no step
/// overflows.
fn squares(count: u64) -> u64 {
    let count = u128::from(count);
    let below = count.saturating_sub(1);
    (below * count * (below + count) / 6) as u64
}

/// A loaded program; it counts where it is attached.
pub struct StreamSink {
    expected: SharedArray<RawStreamExpected>,
    counts: SharedArray<RawStreamCount>,
    delays: SharedArray<RawStreamDelays>,
    processors: u32,
    loaded: LoadedObject,
}

impl StreamSink {
    /// Loads the program for at most this number of lanes and children: 64 bytes of memory for each
    /// child of each lane on each CPU, and 512 KiB for each lane.
    pub fn load(lanes: u32, children: u32) -> Result<Self, XdpError> {
        let processors = possible_processors();
        let counts = processors * lanes * children;
        let loaded = LoadedObject::load(NAME, OBJECT, |open| {
            object::size_map(open, NAME, "counts", counts)?;
            object::size_map(open, NAME, "in_flight", lanes * WINDOW)?;
            object::size_map(open, NAME, "delays", processors)
        })?;
        Ok(Self {
            expected: SharedArray::map(loaded.map("expected")?.as_fd(), 1)?,
            counts: SharedArray::map(loaded.map("counts")?.as_fd(), counts)?,
            delays: SharedArray::map(loaded.map("delays")?.as_fd(), processors)?,
            processors,
            loaded,
        })
    }

    /// Attaches the program in native mode to an ingress interface of copies. Other packets are
    /// passed to the network stack.
    pub fn attach(&self, interface: &Interface) -> Result<Attachment, XdpError> {
        Attachment::new(self.loaded.program("receive")?, interface, AttachMode::Native)
    }

    /// Clears the counts and expects another trial, of which no packet may be in flight yet.
    ///
    /// # Panics
    ///
    /// A trial with more lanes and children than the program was loaded for.
    pub fn expect(&self, trial: &StreamTrial) {
        let entries = self.processors * trial.lanes * trial.children;
        // Packets of the previous trial still in flight belong to no trial from here on.
        self.expected.write(0, &RawStreamExpected::default());
        (0..entries).for_each(|entry| self.counts.clear(entry));
        for processor in 0..self.processors {
            self.delays.clear(processor);
            for histogram in [offset_of!(RawStreamDelays, first), offset_of!(RawStreamDelays, last)]
            {
                let min = histogram + offset_of!(RawHistogram, min);
                self.delays.write_part(processor, min, &u64::MAX);
            }
        }
        let expected = RawStreamExpected {
            trial: trial.number,
            children: trial.children,
            lanes: trial.lanes,
            payload_len: trial.payload_len,
            first_port: trial.first_port,
            timed: trial.timed.into(),
            reserved: 0,
        };
        self.expected.write(0, &expected);
    }

    /// Returns the packets received for a child from a lane, on all CPUs.
    #[must_use]
    pub fn child(&self, lane: u32, child: u32) -> StreamChild {
        let RawStreamExpected { lanes, children, .. } = self.expected.read(0);
        let mut all = StreamChild::default();
        for processor in 0..self.processors {
            let count = self.counts.read((processor * lanes + lane) * children + child);
            all.packets += count.packets;
            all.bytes += count.bytes;
            all.disordered += count.disordered;
            all.damaged += count.damaged;
            all.sum = all.sum.wrapping_add(count.sum);
            all.squares = all.squares.wrapping_add(count.squares);
        }
        all
    }

    /// Returns the delays of the first and the last copies of packets, in ns from when the packet
    /// was sent, as measured by each CPU.
    pub fn delays(&self) -> impl Iterator<Item = (Box<RawHistogram>, Box<RawHistogram>)> + '_ {
        (0..self.processors).map(|processor| {
            let RawStreamDelays { first, last } = *self.delays.read_boxed(processor);
            (Box::new(first), Box::new(last))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(numbers: impl Iterator<Item = u64>) -> StreamChild {
        numbers.fold(StreamChild::default(), |all, number| StreamChild {
            packets: all.packets + 1,
            sum: all.sum.wrapping_add(number),
            squares: all.squares.wrapping_add(number.wrapping_mul(number)),
            ..all
        })
    }

    #[test]
    fn each_once_is_distinguished_from_one_lost_and_one_twice() {
        for sent in [0, 1, 2, 1_000, 100_000] {
            assert!(received(0..sent).is_each_once(sent), "{sent}");
        }
        assert!(received((0..1_000).rev()).is_each_once(1_000), "in any order");
        assert!(!received(0..999).is_each_once(1_000));
        assert!(!received((0..1_000).map(|n| if n == 7 { 8 } else { n })).is_each_once(1_000));
        // The same sum.
        let swapped = |n| {
            if n == 7 {
                8
            } else if n == 20 {
                19
            } else {
                n
            }
        };
        assert!(!received((0..1_000).map(swapped)).is_each_once(1_000));
    }

    #[test]
    fn sums_of_long_trials_do_not_overflow() {
        let sent = 10_000_000_000;
        assert_eq!(sum(sent + 1), sum(sent).wrapping_add(sent));
        assert_eq!(squares(sent + 1), squares(sent).wrapping_add(sent.wrapping_mul(sent)));
    }
}
