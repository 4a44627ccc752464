//! What the readings of a clock come to, and the steps of the system clock. Pure.

use std::io;
use std::time::Duration;

use horolog_record::{ClockSample, ClockStep, ComparedClock, Figures};
use horolog_stats::Spread;
use horolog_sys::clock::ClockOffset;

use super::name::ClockName;
use super::reader::Reading;
use crate::stability;

/// Steps that are told; a clock that is set more often has no offset worth telling.
const STEPS_MAX: usize = 1_000;

/// What the offsets of a clock are counted from.
#[derive(Debug)]
pub(super) struct Origin {
    from_first: bool,
    base_ns: Option<i64>,
}

impl Origin {
    pub(super) const fn new(from_first: bool) -> Self {
        Self { from_first, base_ns: None }
    }

    pub(super) fn sample(&mut self, place: u64, reading: Reading) -> ClockSample {
        let first_ns = if self.from_first { reading.offset_ns } else { 0 };
        let base_ns = *self.base_ns.get_or_insert(first_ns);
        ClockSample {
            place,
            at_ns: reading.at_ns,
            offset_ns: reading.offset_ns.saturating_sub(base_ns),
            doubt_ns: reading.doubt_ns,
        }
    }
}

/// The readings of one clock.
#[derive(Debug, Default)]
pub(super) struct Account {
    samples: Vec<ClockSample>,
    error: Option<String>,
}

impl Account {
    pub(super) fn take(&mut self, reading: io::Result<Option<ClockSample>>) {
        match reading {
            Ok(sample) => self.samples.extend(sample),
            Err(error) => self.error = Some(error.to_string()),
        }
    }

    /// What all of `count` readings come to.
    pub(super) fn result(
        self,
        name: &ClockName,
        from_first: bool,
        count: u64,
        interval: Duration,
    ) -> ComparedClock {
        let doubts = self.samples.iter().filter_map(|sample| sample.doubt_ns);
        let doubts = doubts.map(|doubt| i64::try_from(doubt).unwrap_or(i64::MAX));
        let offsets = self.samples.iter().map(|sample| sample.offset_ns);
        let first = self.samples.first();
        let (first_at, first_offset) = first.map_or((0, 0), |one| (one.at_ns, one.offset_ns));
        // The offsets are taken off the first one, so that no digits are lost of large ones.
        let relative = |sample: &ClockSample| sample.offset_ns.saturating_sub(first_offset) as f64;
        let point = |sample: &ClockSample| {
            (sample.at_ns.saturating_sub(first_at) as f64 / 1e9, relative(sample))
        };
        let points: Vec<_> = self.samples.iter().map(point).collect();
        let mut phase_s = vec![None; usize::try_from(count).unwrap_or(0)];
        for sample in &self.samples {
            let place = usize::try_from(sample.place).ok();
            if let Some(phase) = place.and_then(|place| phase_s.get_mut(place)) {
                *phase = Some(relative(sample) / 1e9);
            }
        }
        ComparedClock {
            name: name.text.clone(),
            kind: name.kind(),
            from_first,
            missed: count.saturating_sub(self.samples.len() as u64),
            error: self.error,
            offset_ns: Spread::of(offsets).map(Figures::from),
            doubt_ns: Spread::of(doubts).map(Figures::from),
            drift: stability::drift(&points),
            allan: stability::allan(&phase_s, interval),
            samples: self.samples,
        }
    }
}

/// The steps of the system clock: `CLOCK_MONOTONIC` is slewed with it and never set.
#[derive(Debug, Default)]
pub(super) struct Steps {
    held: Option<ClockOffset>,
    found: Vec<ClockStep>,
}

impl Steps {
    /// Takes how far the system clock is ahead of the monotonic one.
    pub(super) fn take(&mut self, place: u64, now: ClockOffset) {
        let held = *self.held.get_or_insert(now);
        if !held.agrees(now) && self.found.len() < STEPS_MAX {
            self.found.push(ClockStep { place, step_ns: (now.offset - held.offset).as_ns() });
        }
        self.held = Some(held.follow(now));
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
    fn a_step_is_told_and_jitter_is_not() {
        let mut steps = Steps::default();
        let offset = |ns| ClockOffset { offset: Span::from_ns(ns), uncertainty: Span::from_ns(50) };
        for (place, ns) in [1_000, 1_040, 980, 501_000, 501_020, 1_000].into_iter().enumerate() {
            steps.take(place as u64, offset(ns));
        }
        let step = |place, step_ns| ClockStep { place, step_ns };
        assert_eq!(steps.found(), [step(3, 500_000), step(5, -500_000)]);
    }
}
