//! Load profile of a run whose rate changes over time: phases, each with a constant or linearly
//! changing rate, and equal intervals with separate counts. Plans only; runs nothing.

use std::time::Duration;

use horolog_time::Span;
use thiserror::Error;

use crate::schedule::FRACTION_BITS;

/// Largest number of intervals that a result and an HTML report support.
pub const INTERVALS_MAX: u64 = 10_000;

/// Largest number of phases.
pub const PHASES_MAX: usize = 1000;

/// Longest profile: schedules count in 2^-16 ns, of which 64 bits hold 78 hours.
pub const DURATION_MAX: Duration = Duration::from_hours(72);

/// Shortest interval: in a shorter one a scheduling delay of this host would look like an outage of
/// the server.
pub const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Largest number of intervals of a soak test with the default interval.
const SOAK_INTERVALS: u64 = 3600;

/// Reason for which a profile is invalid.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum LoadProfileError {
    /// No phases, or too many.
    #[error("a load profile has 1 to {PHASES_MAX} phases, not {0}")]
    Phases(usize),
    /// A rate that is not positive.
    #[error("phase '{phase}' has the invalid rate {rate}; choose a positive number")]
    Rate {
        /// Name of the phase.
        phase: String,
        /// Rate in requests per second.
        rate: f64,
    },
    /// An interval below the minimum.
    #[error("an interval must be at least {}, not {}", Span::from(INTERVAL_MIN), Span::from(*.0))]
    Interval(Duration),
    /// A phase whose duration is 0 or not a multiple of the interval.
    #[error(
        "phase '{phase}' lasts {}, which is not a multiple of the interval of {}; change one of \
         them",
        Span::from(*.duration),
        Span::from(*.interval)
    )]
    Uneven {
        /// Name of the phase.
        phase: String,
        /// Duration of the phase.
        duration: Duration,
        /// Length of an interval.
        interval: Duration,
    },
    /// More intervals than a result can hold.
    #[error(
        "{intervals} intervals exceed the {INTERVALS_MAX} of a result; choose intervals of at \
         least {}",
        Span::from(*.least)
    )]
    TooMany {
        /// Number of intervals.
        intervals: u64,
        /// Shortest interval with which the profile fits.
        least: Duration,
    },
    /// Longer than a schedule can be.
    #[error("a load profile lasts {} at most, not {}", Span::from(DURATION_MAX), Span::from(*.0))]
    TooLong(Duration),
}

/// One phase of a load profile.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadPhase {
    /// Name in the result.
    pub name: String,
    /// Rate at the start, in requests per second.
    pub from: f64,
    /// Rate at the end, in requests per second.
    pub to: f64,
    /// Duration of the phase.
    pub duration: Duration,
}

impl LoadPhase {
    /// Returns a phase with a constant rate.
    #[must_use]
    pub fn constant(name: &str, rate: f64, duration: Duration) -> Self {
        Self { name: name.to_owned(), from: rate, to: rate, duration }
    }

    /// Returns the constant rate that gives the same number of requests.
    #[must_use]
    pub const fn mean_rate(&self) -> f64 {
        f64::midpoint(self.from, self.to)
    }
}

/// Phases in their order, counted in equal intervals; each phase is a whole number of them.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadProfile {
    interval: Duration,
    phases: Vec<LoadPhase>,
}

impl LoadProfile {
    /// Checks that the profile can be run and counted.
    pub fn new(interval: Duration, phases: Vec<LoadPhase>) -> Result<Self, LoadProfileError> {
        if !(1..=PHASES_MAX).contains(&phases.len()) {
            return Err(LoadProfileError::Phases(phases.len()));
        }
        if interval < INTERVAL_MIN {
            return Err(LoadProfileError::Interval(interval));
        }
        for LoadPhase { name, from, to, duration } in &phases {
            // Written so that NaN fails as well.
            let wrong = [*from, *to].into_iter().find(|rate| !(*rate > 0.0 && rate.is_finite()));
            if let Some(rate) = wrong {
                return Err(LoadProfileError::Rate { phase: name.clone(), rate });
            }
            if duration.is_zero() || duration.as_nanos() % interval.as_nanos() != 0 {
                let (phase, duration) = (name.clone(), *duration);
                return Err(LoadProfileError::Uneven { phase, duration, interval });
            }
        }
        let total = phases.iter().fold(Duration::ZERO, |sum, one| sum.saturating_add(one.duration));
        if total > DURATION_MAX {
            return Err(LoadProfileError::TooLong(total));
        }
        let profile = Self { interval, phases };
        let intervals = profile.interval_count();
        if intervals > INTERVALS_MAX {
            let least = Duration::from_secs_f64(total.as_secs_f64() / INTERVALS_MAX as f64);
            return Err(LoadProfileError::TooMany { intervals, least });
        }
        Ok(profile)
    }

    /// Returns a profile of one rate (soak test). The default interval is 1 s, or the smallest
    /// number of whole seconds that gives at most [`SOAK_INTERVALS`] intervals, but not more than
    /// `duration`; then an incomplete last interval is omitted.
    pub fn soak(
        rate: f64,
        duration: Duration,
        interval: Option<Duration>,
    ) -> Result<Self, LoadProfileError> {
        let default_interval = || {
            let seconds = duration.as_secs().div_ceil(SOAK_INTERVALS).max(1);
            Duration::from_secs(seconds).min(duration)
        };
        let is_explicit = interval.is_some();
        let interval = interval.unwrap_or_else(default_interval);
        // With the default interval, an incomplete last interval is omitted.
        let whole_intervals = duration.as_nanos().checked_div(interval.as_nanos()).unwrap_or(0);
        let duration =
            if is_explicit { duration } else { interval.saturating_mul(whole_intervals as u32) };
        Self::new(interval, vec![LoadPhase::constant("soak", rate, duration)])
    }

    /// Returns the profile with all rates multiplied by `share`.
    #[must_use]
    pub fn scaled(&self, share: f64) -> Self {
        let scaled = |phase: &LoadPhase| LoadPhase {
            from: phase.from * share,
            to: phase.to * share,
            ..phase.clone()
        };
        Self { interval: self.interval, phases: self.phases.iter().map(scaled).collect() }
    }

    /// Returns the length of an interval.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns the phases, at least one.
    #[must_use]
    pub fn phases(&self) -> &[LoadPhase] {
        &self.phases
    }

    /// Returns true if the rate is constant from start to end.
    #[must_use]
    pub fn has_constant_rate(&self) -> bool {
        matches!(&self.phases[..], [only] if only.from.total_cmp(&only.to).is_eq())
    }

    /// Returns the total duration.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.phases.iter().map(|phase| phase.duration).sum()
    }

    /// Returns the highest intended rate.
    #[must_use]
    pub fn rate_max(&self) -> f64 {
        self.phases.iter().map(|phase| phase.from.max(phase.to)).fold(0.0, f64::max)
    }

    /// Returns the lowest intended rate.
    #[must_use]
    pub fn rate_min(&self) -> f64 {
        self.phases.iter().map(|phase| phase.from.min(phase.to)).fold(f64::INFINITY, f64::min)
    }

    /// Returns the number of intervals.
    #[must_use]
    pub fn interval_count(&self) -> u64 {
        self.intervals_in(self.duration())
    }

    fn intervals_in(&self, duration: Duration) -> u64 {
        (duration.as_nanos() / self.interval.as_nanos()) as u64
    }

    /// Returns the number of the interval at which each phase ends (exclusive).
    #[must_use]
    pub fn phase_ends(&self) -> Vec<u64> {
        let mut end = 0;
        let phases = self.phases.iter();
        phases
            .map(|phase| {
                end += self.intervals_in(phase.duration);
                end
            })
            .collect()
    }

    /// Returns the phase at an offset from the start, and the position in it from 0 to 1; the end
    /// of the last phase for a later offset.
    fn phase_at(&self, offset: Span) -> (&LoadPhase, f64) {
        let mut remaining_s = offset.as_seconds().max(0.0);
        for phase in &self.phases {
            let duration_s = phase.duration.as_secs_f64();
            if remaining_s < duration_s {
                return (phase, remaining_s / duration_s);
            }
            remaining_s -= duration_s;
        }
        (&self.phases[self.phases.len() - 1], 1.0)
    }

    /// Returns the rate at an offset from the start, in requests per second.
    #[must_use]
    pub fn rate_at(&self, offset: Span) -> f64 {
        let (phase, share) = self.phase_at(offset);
        phase.from + (phase.to - phase.from) * share
    }
}

/// Intended send times of one lane on a profile, in 2^-16 ns from its start. Between two requests
/// the integral of the rate is 1, across changes of phase too.
#[derive(Clone, Debug)]
pub(crate) struct LoadProfileSendTimes {
    phases: Vec<LanePhase>,
    current: usize,
}

/// Phase of a profile for one lane: begin and end in 2^-16 ns, rate at its begin in requests per
/// 2^-16 ns.
#[derive(Clone, Copy, Debug)]
struct LanePhase {
    begin: u64,
    end: u64,
    rate: f64,
    /// Change of the rate per 2^-16 ns.
    slope: f64,
}

/// Number of 2^-16 ns in a second.
pub(crate) const UNITS_PER_SECOND: f64 = 1e9 * (1_u64 << FRACTION_BITS) as f64;

impl LoadProfileSendTimes {
    pub(crate) fn new(profile: &LoadProfile, lanes: usize) -> Self {
        let mut begin = 0;
        let lane_phase = |phase: &LoadPhase| {
            let duration = (phase.duration.as_nanos() as u64) << FRACTION_BITS;
            let lane_rate = |rate: f64| rate / lanes as f64 / UNITS_PER_SECOND;
            let slope = (lane_rate(phase.to) - lane_rate(phase.from)) / duration as f64;
            let phase =
                LanePhase { begin, end: begin + duration, rate: lane_rate(phase.from), slope };
            begin += duration;
            phase
        };
        Self { phases: profile.phases.iter().map(lane_phase).collect(), current: 0 }
    }

    /// Returns the instant at which `requests` more requests are due after `at`; `u64::MAX` beyond
    /// the end of the profile. Calls must have rising `at`.
    pub(crate) fn instant_after(&mut self, mut at: u64, mut requests: f64) -> u64 {
        while let Some(phase) = self.phases.get(self.current) {
            if at >= phase.end {
                self.current += 1;
                continue;
            }
            let rate = phase.rate + phase.slope * (at - phase.begin) as f64;
            // Solves the area of a trapezium for its width, in a form without cancellation. NaN if
            // a falling rate ends before.
            let root = 2.0_f64.mul_add(phase.slope * requests, rate * rate).sqrt();
            let width = (2.0 * requests / (rate + root)).ceil();
            let remaining = (phase.end - at) as f64;
            if width <= remaining {
                return at + width as u64;
            }
            requests -= remaining * 0.5_f64.mul_add(phase.slope * remaining, rate);
            at = phase.end;
        }
        // No request is due after the end.
        u64::MAX
    }

    /// Returns the end of the phase that contains `at`; `None` in the last phase.
    pub(crate) fn phase_end(&self, at: u64) -> Option<u64> {
        let (_, all_but_last) = self.phases.split_last()?;
        let rest = all_but_last.get(self.current..)?;
        rest.iter().map(|phase| phase.end).find(|end| *end > at)
    }

    /// Returns the lane's number of requests due between `at` and the end of the profile, rounded.
    pub(crate) fn requests_after(&self, at: u64) -> u64 {
        self.phases.iter().map(|phase| phase.requests_after(at)).sum::<f64>().round() as u64
    }
}

impl LanePhase {
    /// Returns the requests between `at` and the end of the phase.
    fn requests_after(&self, at: u64) -> f64 {
        let from = at.clamp(self.begin, self.end);
        let rate = self.slope.mul_add((from - self.begin) as f64, self.rate);
        let width = (self.end - from) as f64;
        width * 0.5_f64.mul_add(self.slope * width, rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ramp(from: f64, to: f64, seconds: u64) -> LoadPhase {
        LoadPhase { from, to, ..LoadPhase::constant("ramp", from, SECOND * seconds as u32) }
    }

    fn instants(phases: Vec<LoadPhase>, lanes: usize) -> Vec<u64> {
        let profile = LoadProfile::new(SECOND, phases).unwrap();
        let end = (profile.duration().as_nanos() as u64) << FRACTION_BITS;
        let mut instants = LoadProfileSendTimes::new(&profile, lanes);
        let mut all = Vec::new();
        let mut at = 0;
        while at < end {
            all.push(at);
            at = instants.instant_after(at, 1.0);
        }
        all
    }

    #[test]
    fn an_invalid_profile_is_refused_with_its_own_error() {
        let new = |interval, phases| LoadProfile::new(interval, phases).unwrap_err();
        assert_eq!(new(SECOND, Vec::new()), LoadProfileError::Phases(0));
        assert!(matches!(new(SECOND, vec![ramp(0.0, 5.0, 1)]), LoadProfileError::Rate { .. }));
        assert!(matches!(new(SECOND, vec![ramp(1.0, f64::NAN, 1)]), LoadProfileError::Rate { .. }));
        assert!(matches!(
            new(SECOND * 2, vec![ramp(1.0, 1.0, 3)]),
            LoadProfileError::Uneven { .. }
        ));
        assert!(matches!(
            new(Duration::ZERO, vec![ramp(1.0, 1.0, 3)]),
            LoadProfileError::Interval(_)
        ));
        assert!(matches!(
            new(SECOND, vec![ramp(1.0, 1.0, 86_400)]),
            LoadProfileError::TooMany { .. }
        ));
        let long = vec![ramp(1.0, 1.0, 86_400 * 4)];
        assert!(matches!(new(SECOND * 60, long), LoadProfileError::TooLong(_)));
    }

    #[test]
    fn a_soak_is_cut_into_seconds_or_into_few_enough() {
        let soak = |seconds, interval| LoadProfile::soak(10.0, SECOND * seconds, interval).unwrap();
        assert_eq!((soak(60, None).interval(), soak(60, None).interval_count()), (SECOND, 60));
        assert_eq!(soak(86_400, None).interval(), SECOND * 24);
        let short = LoadProfile::soak(10.0, Duration::from_millis(300), None).unwrap();
        assert_eq!((short.interval_count(), short.duration()), (1, Duration::from_millis(300)));
        let odd = LoadProfile::soak(10.0, Duration::from_millis(2300), None).unwrap();
        assert_eq!(odd.duration(), SECOND * 2);
        let explicit = LoadProfile::soak(10.0, SECOND, Some(Duration::from_millis(300)));
        assert!(matches!(explicit, Err(LoadProfileError::Uneven { .. })));
        assert!(matches!(
            LoadProfile::soak(10.0, SECOND, Some(Duration::ZERO)),
            Err(LoadProfileError::Interval(_))
        ));
    }

    #[test]
    fn rates_follow_the_phases() {
        let phases = vec![LoadPhase::constant("a", 10.0, SECOND), ramp(10.0, 30.0, 2)];
        let profile = LoadProfile::new(SECOND, phases).unwrap();
        for (ms, rate) in [(0, 10.0), (999, 10.0), (1000, 10.0), (2000, 20.0), (9000, 30.0)] {
            assert!((profile.rate_at(Span::from_ms(ms)) - rate).abs() < 1e-9, "{ms} ms");
        }
        assert_eq!((profile.phase_ends(), profile.interval_count()), (vec![1, 3], 3));
        assert!(
            (profile.rate_max() - 30.0).abs() < 1e-9 && (profile.rate_min() - 10.0).abs() < 1e-9
        );
    }

    #[test]
    fn a_slow_phase_does_not_reach_into_a_fast_one() {
        let all = instants(
            vec![
                LoadPhase::constant("slow", 0.5, SECOND),
                LoadPhase::constant("fast", 1000.0, SECOND),
            ],
            1,
        );
        // Half a request was due when the fast one began, the other half takes it 0.5 ms.
        let second = all[1] as f64 / UNITS_PER_SECOND;
        assert!((second - 1.0005).abs() < 1e-6, "{second}");
        assert_eq!(all.len(), 1001);
    }

    proptest! {
        #[test]
        fn as_many_requests_as_the_area_under_the_rates(
            rates in prop::collection::vec((1.0..3000.0f64, 1.0..3000.0f64), 1..6),
            lanes in 1usize..4,
        ) {
            let phases: Vec<_> = rates.iter().map(|&(from, to)| ramp(from, to, 1)).collect();
            let wanted: f64 = phases.iter().map(LoadPhase::mean_rate).sum::<f64>() / lanes as f64;
            let course = LoadProfile::new(SECOND, phases.clone()).unwrap();
            prop_assert!((LoadProfileSendTimes::new(&course, lanes).requests_after(0) as f64 - wanted).abs() <= 1.0);
            let all = instants(phases, lanes);
            prop_assert!((all.len() as f64 - wanted).abs() <= 1.5, "{} of {}", all.len(), wanted);
            prop_assert!(all.is_sorted_by(|a, b| a < b));
        }
    }
}
