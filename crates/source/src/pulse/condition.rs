//! Conversion of edges to pulses: selection of the edge that marks the second, check of the pulse
//! width, and compensation of the delay of antenna, cable and receiver. Pure.

use horolog_time::Span;
use serde::Serialize;

use super::{PulseEdge, PulseEdgeKind};

/// Divisor of the pulse width that yields its tolerance.
const WIDTH_TOLERANCE_DIVISOR: i64 = 4;

/// Counts of pulses by treatment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct PulseCounts {
    /// Accepted pulses.
    pub taken: u64,
    /// Pulses of a wrong width.
    pub wrong_width: u64,
    /// Pulses that the device counted but that were not read; only counted without a width check.
    pub missed: u64,
}

/// Converter of edges to pulses.
#[derive(Clone, Debug)]
pub struct PulseConditioner {
    edge: PulseEdgeKind,
    delay: Span,
    width: Option<Span>,
    /// First edge of a pulse whose end has not arrived; `None` between pulses.
    first_edge: Option<PulseEdge>,
    last: Option<u32>,
    counts: PulseCounts,
}

impl PulseConditioner {
    /// Creates a converter: `edge` marks the beginning of a second `delay` earlier. If `width` is
    /// given, only pulses of that width are accepted.
    #[must_use]
    pub fn new(edge: PulseEdgeKind, delay: Span, width: Option<Span>) -> Self {
        Self { edge, delay, width, first_edge: None, last: None, counts: PulseCounts::default() }
    }

    /// Processes an edge; returns the pulse that it completes (the first edge does, or the second
    /// one if the width is checked), with the delay subtracted. `None` if it completes none, or one
    /// of a wrong width.
    pub fn push_edge(&mut self, edge: PulseEdge) -> Option<PulseEdge> {
        let Some(width) = self.width else {
            return (edge.edge == self.edge).then(|| self.complete_pulse(edge));
        };
        if edge.edge == self.edge {
            // A pulse whose end was not observed has an unknown width.
            self.counts.wrong_width += u64::from(self.first_edge.replace(edge).is_some());
            return None;
        }
        let first_edge = self.first_edge.take()?;
        let width_error = (edge.monotonic - first_edge.monotonic) - width;
        if width_error.as_ns().saturating_abs() > width.as_ns() / WIDTH_TOLERANCE_DIVISOR {
            self.counts.wrong_width += 1;
            return None;
        }
        Some(self.complete_pulse(first_edge))
    }

    fn complete_pulse(&mut self, edge: PulseEdge) -> PulseEdge {
        self.counts.taken += 1;
        let missed = |last: u32| edge.sequence.wrapping_sub(last).wrapping_sub(1);
        if self.width.is_none() {
            // A decrease of the sequence number is a reset of the device and not a loss.
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

    fn edge(ms: i64, edge: PulseEdgeKind) -> PulseEdge {
        let ns = ms * 1_000_000;
        let realtime = Timestamp::from_ns(1_700_000_000 * NS_PER_S + ns);
        PulseEdge { realtime, monotonic: Timestamp::from_ns(ns), sequence: 1, edge }
    }

    #[test]
    fn the_configured_edge_is_taken_and_its_delay_subtracted() {
        let mut clear = PulseConditioner::new(PulseEdgeKind::Clear, Span::from_ns(150), None);
        assert_eq!(clear.push_edge(edge(1_000, PulseEdgeKind::Assert)), None);
        let pulse = clear.push_edge(edge(1_100, PulseEdgeKind::Clear)).unwrap();
        assert_eq!(pulse.monotonic.as_ns(), 1_100_000_000 - 150);
        assert_eq!(pulse.realtime.to_timespec(), (1_700_000_001, 99_999_850));
        assert_eq!(clear.counts().taken, 1);
    }

    #[test]
    fn pulses_of_another_width_are_passed_over() {
        let mut pulses =
            PulseConditioner::new(PulseEdgeKind::Assert, Span::ZERO, Some(Span::from_ms(100)));
        let mut pulse = |begin: i64, end: i64| {
            assert_eq!(pulses.push_edge(edge(begin, PulseEdgeKind::Assert)), None);
            pulses
                .push_edge(edge(end, PulseEdgeKind::Clear))
                .map(|pulse| pulse.monotonic.as_ns() / 1_000_000)
        };
        assert_eq!(pulse(1_000, 1_101), Some(1_000));
        assert_eq!(pulse(2_000, 2_001), None, "a glitch");
        assert_eq!(pulse(3_000, 3_900), None, "the other polarity");
        assert_eq!(pulse(4_000, 4_080), Some(4_000));
        assert_eq!(
            pulses.push_edge(edge(5_000, PulseEdgeKind::Clear)),
            None,
            "an end without a beginning"
        );
        pulses.push_edge(edge(6_000, PulseEdgeKind::Assert));
        pulses.push_edge(edge(7_000, PulseEdgeKind::Assert));
        let expected = PulseCounts { taken: 2, wrong_width: 3, missed: 0 };
        assert_eq!(pulses.counts(), expected);
    }

    #[test]
    fn unread_pulses_are_counted_as_missed() {
        let mut pulses = PulseConditioner::new(PulseEdgeKind::Assert, Span::ZERO, None);
        let mut take =
            |sequence| pulses.push_edge(PulseEdge { sequence, ..edge(1, PulseEdgeKind::Assert) });
        for sequence in [u32::MAX, 0, 3, 2] {
            take(sequence);
        }
        assert_eq!(pulses.counts(), PulseCounts { taken: 4, wrong_width: 0, missed: 2 });
    }

    proptest! {
        #[test]
        fn any_edges_are_taken(edges in prop::collection::vec((any::<i64>(), any::<bool>(), any::<u32>()), 0..40), width in prop::option::of(0i64..)) {
            let mut pulses = PulseConditioner::new(PulseEdgeKind::Assert, Span::from_ns(5), width.map(Span::from_ns));
            for (ns, is_assert, sequence) in edges {
                let edge = if is_assert { PulseEdgeKind::Assert } else { PulseEdgeKind::Clear };
                let at = PulseEdge { realtime: Timestamp::from_ns(ns), monotonic: Timestamp::from_ns(ns), sequence, edge };
                let pulse = pulses.push_edge(at);
                prop_assert!(pulse.is_none_or(|pulse| pulse.edge == PulseEdgeKind::Assert));
            }
        }
    }
}
