//! Sink of a stream: counts the copies that arrive.

use std::mem::offset_of;
use std::os::fd::AsFd;

use super::{
    IN_FLIGHT_PACKETS_MAX, RawStreamChildCounts, RawStreamDelays, RawStreamTrialExpectation,
};
use crate::XdpError;
use crate::abi::RawHistogram;
use crate::attach::{AttachMode, Attachment, Interface};
use crate::map::MappedArrayMap;
use crate::object::{self, LoadedBpfObject, possible_processors};

const NAME: &str = "stream_sink";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stream_sink.o"));

/// Expectation of the sink for a trial: the packets to count.
#[derive(Clone, Copy, Debug)]
pub struct StreamTrialExpectation {
    /// Number of the trial; packets of other trials are dropped.
    pub number: u32,
    /// Number of lanes of the source; packets of higher lanes are dropped.
    pub lanes: u32,
    /// Number of children, which have consecutive UDP ports.
    pub children: u32,
    /// UDP port of the first child.
    pub first_port: u16,
    /// Length of the UDP payload, in bytes.
    pub payload_len: u32,
    /// True if delays are measured, which adds to the cost of receiving each copy.
    pub timed: bool,
}

/// Counts of the packets for one child from one lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamChildCounts {
    /// Number of packets, including disordered and damaged ones.
    pub packets: u64,
    /// Bytes of UDP payload of these packets.
    pub bytes: u64,
    /// Packets whose number was not above the highest before it on the same CPU.
    pub disordered: u64,
    /// Packets of another length than [`StreamTrialExpectation::payload_len`], part of `packets`.
    pub damaged: u64,
    sum: u64,
    squares: u64,
}

impl StreamChildCounts {
    /// Returns true if the packets 0 to `sent` - 1 arrived exactly once each, judged by count, sum
    /// and sum of squares of their numbers.
    #[must_use]
    pub fn has_each_once(&self, sent: u64) -> bool {
        (self.packets, self.sum, self.squares) == (sent, number_sum(sent), square_sum(sent))
    }
}

/// Returns 0 + 1 + ... + (count - 1), modulo 2^64.
fn number_sum(count: u64) -> u64 {
    let count = u128::from(count);
    (count * count.saturating_sub(1) / 2) as u64
}

/// Returns 0² + 1² + ... + (count - 1)², modulo 2^64. No step overflows for counts below 2^40.
fn square_sum(count: u64) -> u64 {
    let count = u128::from(count);
    let last = count.saturating_sub(1);
    (last * count * (last + count) / 6) as u64
}

/// Loaded sink program; it counts on the interfaces to which it is attached.
pub struct StreamSink {
    expected: MappedArrayMap<RawStreamTrialExpectation>,
    counts: MappedArrayMap<RawStreamChildCounts>,
    delays: MappedArrayMap<RawStreamDelays>,
    processors: u32,
    loaded: LoadedBpfObject,
}

impl StreamSink {
    /// Loads the program for at most this many lanes and children. It takes 64 bytes of memory for
    /// each child of each lane on each CPU, and 512 KiB for each lane, besides the histograms of
    /// the delays.
    pub fn load(lanes: u32, children: u32) -> Result<Self, XdpError> {
        let processors = possible_processors();
        let counts = processors * lanes * children;
        let loaded = LoadedBpfObject::load(NAME, OBJECT, |open| {
            object::set_map_entries(open, NAME, "counts", counts)?;
            object::set_map_entries(open, NAME, "in_flight", lanes * IN_FLIGHT_PACKETS_MAX)?;
            object::set_map_entries(open, NAME, "delays", processors)
        })?;
        Ok(Self {
            expected: MappedArrayMap::map(loaded.map("expected")?.as_fd(), 1)?,
            counts: MappedArrayMap::map(loaded.map("counts")?.as_fd(), counts)?,
            delays: MappedArrayMap::map(loaded.map("delays")?.as_fd(), processors)?,
            processors,
            loaded,
        })
    }

    /// Attaches the program in native mode to an ingress interface of copies. Other packets are
    /// passed to the network stack.
    pub fn attach(&self, interface: &Interface) -> Result<Attachment, XdpError> {
        Attachment::new(self.loaded.program("receive")?, interface, AttachMode::Native)
    }

    /// Clears the counts and starts to expect another trial. No packet of that trial may be in
    /// flight yet.
    ///
    /// # Panics
    ///
    /// Panics if the trial has more combinations of a lane and a child than the program was loaded
    /// for.
    pub fn begin_trial(&self, trial: &StreamTrialExpectation) {
        let entries = self.processors * trial.lanes * trial.children;
        // Packets of the previous trial still in flight belong to no trial from here on.
        self.expected.write(0, &RawStreamTrialExpectation::default());
        (0..entries).for_each(|entry| self.counts.clear(entry));
        for processor in 0..self.processors {
            self.delays.clear(processor);
            for histogram in [offset_of!(RawStreamDelays, first), offset_of!(RawStreamDelays, last)]
            {
                let min = histogram + offset_of!(RawHistogram, min);
                self.delays.write_part(processor, min, &u64::MAX);
            }
        }
        let expected = RawStreamTrialExpectation {
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

    /// Returns the counts of the packets received for a child from a lane, over all CPUs.
    #[must_use]
    pub fn child_counts(&self, lane: u32, child: u32) -> StreamChildCounts {
        let RawStreamTrialExpectation { lanes, children, .. } = self.expected.read(0);
        let mut total = StreamChildCounts::default();
        for processor in 0..self.processors {
            let count = self.counts.read((processor * lanes + lane) * children + child);
            total.packets += count.packets;
            total.bytes += count.bytes;
            total.disordered += count.disordered;
            total.damaged += count.damaged;
            total.sum = total.sum.wrapping_add(count.sum);
            total.squares = total.squares.wrapping_add(count.squares);
        }
        total
    }

    /// Returns the histograms of the delays of the first and of the last copy of each packet since
    /// the packet was sent, in ns, as one pair for each CPU; empty unless the trial is timed.
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

    fn received(numbers: impl Iterator<Item = u64>) -> StreamChildCounts {
        numbers.fold(StreamChildCounts::default(), |all, number| StreamChildCounts {
            packets: all.packets + 1,
            sum: all.sum.wrapping_add(number),
            squares: all.squares.wrapping_add(number.wrapping_mul(number)),
            ..all
        })
    }

    #[test]
    fn each_once_is_distinguished_from_one_lost_and_one_twice() {
        for sent in [0, 1, 2, 1_000, 100_000] {
            assert!(received(0..sent).has_each_once(sent), "{sent}");
        }
        assert!(received((0..1_000).rev()).has_each_once(1_000), "in any order");
        assert!(!received(0..999).has_each_once(1_000));
        assert!(!received((0..1_000).map(|n| if n == 7 { 8 } else { n })).has_each_once(1_000));
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
        assert!(!received((0..1_000).map(swapped)).has_each_once(1_000));
    }

    #[test]
    fn sums_of_long_trials_do_not_overflow() {
        let sent = 10_000_000_000;
        assert_eq!(number_sum(sent + 1), number_sum(sent).wrapping_add(sent));
        assert_eq!(square_sum(sent + 1), square_sum(sent).wrapping_add(sent.wrapping_mul(sent)));
    }
}
