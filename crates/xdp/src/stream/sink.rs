//! The end of a stream that takes copies.

use std::mem::offset_of;
use std::os::fd::AsFd;

use super::abi::{Count, Delays, Expected, WINDOW};
use crate::XdpError;
use crate::abi::RawHistogram;
use crate::attach::{AttachMode, Attachment, Interface};
use crate::map::SharedArray;
use crate::object::{self, Loaded, possible_processors};

const NAME: &str = "stream_sink";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stream_sink.o"));

/// What comes in a trial.
#[derive(Clone, Copy, Debug)]
pub struct StreamTrial {
    /// Its number; packets of others are thrown away.
    pub number: u32,
    /// Lanes of the source.
    pub lanes: u32,
    /// Children, which are UDP ports that follow one another ...
    pub children: u32,
    /// ... from this one on.
    pub first_port: u16,
    /// Bytes of UDP payload.
    pub payload_len: u32,
    /// Whether to take latencies, which makes each copy cost more.
    pub timed: bool,
}

/// What came for a child from one lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamChild {
    /// Packets.
    pub packets: u64,
    /// Bytes of UDP payload.
    pub bytes: u64,
    /// Packets whose number was not above that of the one before on the same processor.
    pub disordered: u64,
    /// Packets of another length.
    pub damaged: u64,
    sum: u64,
    squares: u64,
}

impl StreamChild {
    /// Whether these are the packets 0 to `sent` - 1, each of them once.
    #[must_use]
    pub fn is_each_once(&self, sent: u64) -> bool {
        (self.packets, self.sum, self.squares) == (sent, sum(sent), squares(sent))
    }
}

/// 0 + 1 + ... + (count - 1), modulo 2^64.
fn sum(count: u64) -> u64 {
    let count = u128::from(count);
    (count * count.saturating_sub(1) / 2) as u64
}

/// The same of the squares. Of counts below 2^40 no step overflows.
fn squares(count: u64) -> u64 {
    let count = u128::from(count);
    let below = count.saturating_sub(1);
    (below * count * (below + count) / 6) as u64
}

/// The program, loaded; it counts where it is attached.
pub struct StreamSink {
    expected: SharedArray<Expected>,
    counts: SharedArray<Count>,
    delays: SharedArray<Delays>,
    processors: u32,
    loaded: Loaded,
}

impl StreamSink {
    /// Loads the program for at most so many lanes and children: 64 bytes of memory for each child
    /// of each lane on each processor, and 512 KiB for each lane.
    pub fn load(lanes: u32, children: u32) -> Result<Self, XdpError> {
        let processors = possible_processors();
        let counts = processors * lanes * children;
        let loaded = Loaded::load(NAME, OBJECT, |open| {
            object::size_map(open, NAME, "counts", counts)?;
            object::size_map(open, NAME, "under_way", lanes * WINDOW)?;
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

    /// Attaches the program in native mode to an interface that copies come in by. What is no copy
    /// goes on to the network stack.
    pub fn attach(&self, interface: &Interface) -> Result<Attachment, XdpError> {
        Attachment::new(self.loaded.program("take")?, interface, AttachMode::Native)
    }

    /// Forgets what was counted and expects another trial. Nothing of that may be on its way yet.
    ///
    /// # Panics
    ///
    /// When the trial has more lanes and children than the program was loaded for.
    pub fn expect(&self, trial: &StreamTrial) {
        let entries = self.processors * trial.lanes * trial.children;
        // What is still on its way of the trial before is of no trial from here on.
        self.expected.write(0, &Expected::default());
        (0..entries).for_each(|entry| self.counts.clear(entry));
        for processor in 0..self.processors {
            self.delays.clear(processor);
            for histogram in [offset_of!(Delays, first), offset_of!(Delays, last)] {
                let min = histogram + offset_of!(RawHistogram, min);
                self.delays.write_part(processor, min, &u64::MAX);
            }
        }
        let expected = Expected {
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

    /// What came for a child from a lane, on all processors.
    #[must_use]
    pub fn child(&self, lane: u32, child: u32) -> StreamChild {
        let Expected { lanes, children, .. } = self.expected.read(0);
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

    /// How long the first and the last copies of packets took, in ns from when the packet was sent,
    /// as each processor saw it.
    pub fn delays(&self) -> impl Iterator<Item = (Box<RawHistogram>, Box<RawHistogram>)> + '_ {
        (0..self.processors).map(|processor| {
            let Delays { first, last } = *self.delays.read_boxed(processor);
            (Box::new(first), Box::new(last))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came(numbers: impl Iterator<Item = u64>) -> StreamChild {
        numbers.fold(StreamChild::default(), |all, number| StreamChild {
            packets: all.packets + 1,
            sum: all.sum.wrapping_add(number),
            squares: all.squares.wrapping_add(number.wrapping_mul(number)),
            ..all
        })
    }

    #[test]
    fn each_once_is_told_from_one_lost_and_one_twice() {
        for sent in [0, 1, 2, 1_000, 100_000] {
            assert!(came(0..sent).is_each_once(sent), "{sent}");
        }
        assert!(came((0..1_000).rev()).is_each_once(1_000), "in any order");
        assert!(!came(0..999).is_each_once(1_000));
        assert!(!came((0..1_000).map(|n| if n == 7 { 8 } else { n })).is_each_once(1_000));
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
        assert!(!came((0..1_000).map(swapped)).is_each_once(1_000));
    }

    #[test]
    fn sums_of_long_trials_do_not_overflow() {
        let sent = 10_000_000_000;
        assert_eq!(sum(sent + 1), sum(sent).wrapping_add(sent));
        assert_eq!(squares(sent + 1), squares(sent).wrapping_add(sent.wrapping_mul(sent)));
    }
}
