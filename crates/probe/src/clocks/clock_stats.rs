//! Statistics of the readings of one clock, and detection of steps of the system clock. Pure.

use std::io;
use std::time::Duration;

use horolog_record::{ClockSample, ClockStep, ComparedClock, ExactSummary};
use horolog_sys::clock::ClockOffset;

use super::name::ClockName;
use super::reader::OffsetReading;
use crate::stability;

/// Steps reported at most; a clock that is stepped more often has no useful offset.
const STEPS_MAX: usize = 1_000;

/// Reference point of the offsets of a clock.
#[derive(Debug)]
pub(super) struct OffsetOrigin {
    from_first: bool,
    base_ns: Option<i64>,
}

impl OffsetOrigin {
    pub(super) const fn new(from_first: bool) -> Self {
        Self { from_first, base_ns: None }
    }

    pub(super) fn sample(&mut self, slot: u64, reading: OffsetReading) -> ClockSample {
        let first_ns = if self.from_first { reading.offset_ns } else { 0 };
        let base_ns = *self.base_ns.get_or_insert(first_ns);
        ClockSample {
            slot,
            at_ns: reading.at_ns,
            offset_ns: reading.offset_ns.saturating_sub(base_ns),
            error_bound_ns: reading.uncertainty_ns,
        }
    }
}

/// Accumulator of the readings of one clock.
#[derive(Debug, Default)]
pub(super) struct ClockStats {
    samples: Vec<ClockSample>,
    error: Option<String>,
}

impl ClockStats {
    pub(super) fn take(&mut self, reading: io::Result<Option<ClockSample>>) {
        match reading {
            Ok(sample) => self.samples.extend(sample),
            Err(error) => self.error = Some(error.to_string()),
        }
    }

    /// Returns the result of `count` readings.
    pub(super) fn result(
        self,
        name: &ClockName,
        from_first: bool,
        count: u64,
        interval: Duration,
    ) -> ComparedClock {
        let error_bounds_ns = self.samples.iter().filter_map(|sample| sample.error_bound_ns);
        let error_bounds_ns =
            error_bounds_ns.map(|error_bound_ns| i64::try_from(error_bound_ns).unwrap_or(i64::MAX));
        let offsets = self.samples.iter().map(|sample| sample.offset_ns);
        let first = self.samples.first();
        let (first_at, first_offset) = first.map_or((0, 0), |one| (one.at_ns, one.offset_ns));
        // Offsets are taken relative to the first one, so that large ones lose no digits.
        let relative = |sample: &ClockSample| sample.offset_ns.saturating_sub(first_offset) as f64;
        let point = |sample: &ClockSample| {
            (sample.at_ns.saturating_sub(first_at) as f64 / 1e9, relative(sample))
        };
        let points: Vec<_> = self.samples.iter().map(point).collect();
        let mut phase_s = vec![None; usize::try_from(count).unwrap_or(0)];
        for sample in &self.samples {
            let slot = usize::try_from(sample.slot).ok();
            if let Some(phase) = slot.and_then(|slot| phase_s.get_mut(slot)) {
                *phase = Some(relative(sample) / 1e9);
            }
        }
        ComparedClock {
            name: name.text.clone(),
            kind: name.kind(),
            from_first,
            missed: count.saturating_sub(self.samples.len() as u64),
            error: self.error,
            offset_ns: ExactSummary::from_values(offsets),
            error_bound_ns: ExactSummary::from_values(error_bounds_ns),
            drift: stability::drift(&points),
            allan: stability::allan(&phase_s, interval),
            samples: self.samples,
        }
    }
}

/// Detector of steps of the system clock: `CLOCK_MONOTONIC` is slewed with it and never stepped.
#[derive(Debug, Default)]
pub(super) struct StepDetector {
    held: Option<ClockOffset>,
    found: Vec<ClockStep>,
}

impl StepDetector {
    /// Takes the offset of the system clock from the monotonic one.
    pub(super) fn take(&mut self, slot: u64, now: ClockOffset) {
        let held = *self.held.get_or_insert(now);
        if !held.agrees(now) && self.found.len() < STEPS_MAX {
            self.found.push(ClockStep { slot, step_ns: (now.offset - held.offset).as_ns() });
        }
        self.held = Some(held.latest_or_tighter(now));
    }

    pub(super) fn found(self) -> Vec<ClockStep> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use horolog_time::Span;

    use super::*;

    #[test]
    fn a_step_is_reported_and_jitter_is_not() {
        let mut steps = StepDetector::default();
        let offset = |ns| ClockOffset { offset: Span::from_ns(ns), uncertainty: Span::from_ns(50) };
        for (slot, ns) in [1_000, 1_040, 980, 501_000, 501_020, 1_000].into_iter().enumerate() {
            steps.take(slot as u64, offset(ns));
        }
        let step = |slot, step_ns| ClockStep { slot, step_ns };
        assert_eq!(steps.found(), [step(3, 500_000), step(5, -500_000)]);
    }
}
