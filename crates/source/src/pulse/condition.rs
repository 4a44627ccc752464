//! Conditioning of edges into pulses: the edge that marks the second, the check of the pulse width,
//! and the delay of cable, antenna and receiver. Pure.

use horolog_time::Span;
use serde::Serialize;

use super::{Edge, PulseEdge};

/// Tolerance of the pulse width: a share of it, one in this number.
const WIDTH_TOLERANCE: i64 = 4;

/// Counts of edges by treatment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct PulseCounts {
    /// Pulses that were taken.
    pub taken: u64,
    /// Pulses that were too short or too long.
    pub wrong_width: u64,
    /// Pulses that the device counted and that were not read.
    pub missed: u64,
}

/// Converter of edges to pulses.
#[derive(Clone, Debug)]
pub struct Conditioner {
    edge: Edge,
    delay: Span,
    width: Option<Span>,
    /// Edge that began a pulse whose end is awaited.
    begun: Option<PulseEdge>,
    last: Option<u32>,
    counts: PulseCounts,
}

impl Conditioner {
    /// Uses this kind of edges as the beginning of a second, which was `delay` earlier; of pulses
    /// of this width only, if there is one.
    #[must_use]
    pub fn new(edge: Edge, delay: Span, width: Option<Span>) -> Self {
        Self { edge, delay, width, begun: None, last: None, counts: PulseCounts::default() }
    }

    /// Takes an edge and returns the pulse that it completes, if any: at its first edge, or at its
    /// second one if the width is checked.
    pub fn take(&mut self, edge: PulseEdge) -> Option<PulseEdge> {
        let Some(width) = self.width else {
            return (edge.edge == self.edge).then(|| self.give(edge));
        };
        if edge.edge == self.edge {
            // A pulse without an observed end has no width.
            self.counts.wrong_width += u64::from(self.begun.replace(edge).is_some());
            return None;
        }
        let begun = self.begun.take()?;
        let off = (edge.monotonic - begun.monotonic) - width;
        if off.as_ns().saturating_abs() > width.as_ns() / WIDTH_TOLERANCE {
            self.counts.wrong_width += 1;
            return None;
        }
        Some(self.give(begun))
    }

    fn give(&mut self, edge: PulseEdge) -> PulseEdge {
        self.counts.taken += 1;
        let missed = |last: u32| edge.sequence.wrapping_sub(last).wrapping_sub(1);
        if self.width.is_none() {
            // A device that was reset begins anew; it has not missed that many.
            let missed = self.last.map(missed).filter(|missed| *missed < u32::MAX / 2);
            self.counts.missed += u64::from(missed.unwrap_or(0));
            self.last = Some(edge.sequence);
        }
        PulseEdge {
            realtime: edge.realtime - self.delay,
            monotonic: edge.monotonic - self.delay,
            ..edge
        }
    }

    /// Returns the counts so far.
    #[must_use]
    pub const fn counts(&self) -> PulseCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use horolog_time::{NS_PER_S, Timestamp};
    use proptest::prelude::*;

    use super::*;

    fn edge(ms: i64, edge: Edge) -> PulseEdge {
        let ns = ms * 1_000_000;
        let realtime = Timestamp::from_ns(1_700_000_000 * NS_PER_S + ns);
        PulseEdge { realtime, monotonic: Timestamp::from_ns(ns), sequence: 1, edge }
    }

    #[test]
    fn the_configured_edge_is_taken_and_its_delay_subtracted() {
        let mut clear = Conditioner::new(Edge::Clear, Span::from_ns(150), None);
        assert_eq!(clear.take(edge(1_000, Edge::Assert)), None);
        let pulse = clear.take(edge(1_100, Edge::Clear)).unwrap();
        assert_eq!(pulse.monotonic.as_ns(), 1_100_000_000 - 150);
        assert_eq!(pulse.realtime.to_timespec(), (1_700_000_001, 99_999_850));
        assert_eq!(clear.counts().taken, 1);
    }

    #[test]
    fn pulses_of_another_width_are_passed_over() {
        let mut pulses = Conditioner::new(Edge::Assert, Span::ZERO, Some(Span::from_ms(100)));
        let mut pulse = |begin: i64, end: i64| {
            assert_eq!(pulses.take(edge(begin, Edge::Assert)), None);
            pulses.take(edge(end, Edge::Clear)).map(|pulse| pulse.monotonic.as_ns() / 1_000_000)
        };
        assert_eq!(pulse(1_000, 1_101), Some(1_000));
        assert_eq!(pulse(2_000, 2_001), None, "a glitch");
        assert_eq!(pulse(3_000, 3_900), None, "the other polarity");
        assert_eq!(pulse(4_000, 4_080), Some(4_000));
        assert_eq!(pulses.take(edge(5_000, Edge::Clear)), None, "an end without a beginning");
        pulses.take(edge(6_000, Edge::Assert));
        pulses.take(edge(7_000, Edge::Assert));
        let expected = PulseCounts { taken: 2, wrong_width: 3, missed: 0 };
        assert_eq!(pulses.counts(), expected);
    }

    #[test]
    fn unread_pulses_are_counted_as_missed() {
        let mut pulses = Conditioner::new(Edge::Assert, Span::ZERO, None);
        let mut take = |sequence| pulses.take(PulseEdge { sequence, ..edge(1, Edge::Assert) });
        for sequence in [u32::MAX, 0, 3, 2] {
            take(sequence);
        }
        assert_eq!(pulses.counts(), PulseCounts { taken: 4, wrong_width: 0, missed: 2 });
    }

    proptest! {
        #[test]
        fn any_edges_are_taken(edges in prop::collection::vec((any::<i64>(), any::<bool>(), any::<u32>()), 0..40), width in prop::option::of(0i64..)) {
            let mut pulses = Conditioner::new(Edge::Assert, Span::from_ns(5), width.map(Span::from_ns));
            for (ns, is_assert, sequence) in edges {
                let edge = if is_assert { Edge::Assert } else { Edge::Clear };
                let at = PulseEdge { realtime: Timestamp::from_ns(ns), monotonic: Timestamp::from_ns(ns), sequence, edge };
                let pulse = pulses.take(at);
                prop_assert!(pulse.is_none_or(|pulse| pulse.edge == Edge::Assert));
            }
        }
    }
}
