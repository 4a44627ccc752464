//! Statistics of one clock's readings, and detection of system clock steps. Pure.

use std::io;
use std::time::Duration;

use horolog_record::{ClockSample, ClockStep, ComparedClock, ExactSummary};
use horolog_sys::clock::ClockOffset;

use super::name::ClockName;
use super::reader::OffsetReading;
use crate::stability;

/// Maximum number of reported steps.
const STEPS_MAX: usize = 1_000;

/// Zero point of a clock's offsets: its first offset if the clock has its own epoch, otherwise UTC.
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

/// Readings of one clock, and the error of its latest failed reading.
#[derive(Debug, Default)]
pub(super) struct ClockStats {
    samples: Vec<ClockSample>,
    error: Option<String>,
}

impl ClockStats {
    pub(super) fn add_reading(&mut self, reading: io::Result<Option<ClockSample>>) {
        match reading {
            Ok(sample) => self.samples.extend(sample),
            Err(error) => self.error = Some(error.to_string()),
        }
    }

    /// Returns the record of the clock `name` after `count` slots, `interval` apart; `from_first`
    /// is true for a clock with its own epoch.
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
        // Relative to the first offset, since a double would lose digits of a large one.
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
            drift: stability::fit_drift(&points),
            allan: stability::allan_deviations(&phase_s, interval),
            samples: self.samples,
        }
    }
}

/// Detector of system clock steps: changes of `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, which is
/// slewed with it but never stepped.
#[derive(Debug, Default)]
pub(super) struct StepDetector {
    latest: Option<ClockOffset>,
    steps: Vec<ClockStep>,
}

impl StepDetector {
    /// Adds a reading of `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`; records a step if it disagrees
    /// with the earlier ones, up to [`STEPS_MAX`] steps.
    pub(super) fn add_offset(&mut self, slot: u64, now: ClockOffset) {
        let held = *self.latest.get_or_insert(now);
        if !held.agrees(now) && self.steps.len() < STEPS_MAX {
            self.steps.push(ClockStep { slot, step_ns: (now.offset - held.offset).as_ns() });
        }
        self.latest = Some(held.latest_or_tighter(now));
    }

    pub(super) fn into_steps(self) -> Vec<ClockStep> {
        self.steps
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
            steps.add_offset(slot as u64, offset(ns));
        }
        let step = |slot, step_ns| ClockStep { slot, step_ns };
        assert_eq!(steps.into_steps(), [step(3, 500_000), step(5, -500_000)]);
    }
}
