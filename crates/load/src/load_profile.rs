//! Load profile of a run whose rate changes over time: phases, each with a constant or linearly
//! changing rate, and equal intervals with separate counts. Plans only; runs nothing.

use std::time::Duration;

use horolog_time::Span;
use thiserror::Error;

use crate::schedule::FRACTION_BITS;

/// Most intervals: the capacity of a result and a page.
pub const INTERVALS_MAX: u64 = 10_000;

/// Most phases.
pub const PHASES_MAX: usize = 1000;

/// Longest profile: schedules count in 2^-16 ns, of which 64 bits hold 78 hours.
pub const DURATION_MAX: Duration = Duration::from_hours(72);

/// Shortest interval: in a shorter one a delayed local thread would appear as the server's fault.
pub const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Most intervals of a soak test, unless their length is given.
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
    /// A phase that ends within an interval.
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
        /// Shortest interval that is possible.
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
    pub fn steady(name: &str, rate: f64, duration: Duration) -> Self {
        Self { name: name.to_owned(), from: rate, to: rate, duration }
    }

    /// Returns the constant rate with the same number of requests in the same time.
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
        let intervals = profile.intervals();
        if intervals > INTERVALS_MAX {
            let least = Duration::from_secs_f64(total.as_secs_f64() / INTERVALS_MAX as f64);
            return Err(LoadProfileError::TooMany { intervals, least });
        }
        Ok(profile)
    }

    /// Returns one rate for a long time. The default interval is one second, or as many whole
    /// seconds as keep the result of a very long run short.
    pub fn soak(
        rate: f64,
        duration: Duration,
        interval: Option<Duration>,
    ) -> Result<Self, LoadProfileError> {
        let unasked = || {
            let seconds = duration.as_secs().div_ceil(SOAK_INTERVALS).max(1);
            Duration::from_secs(seconds).min(duration)
        };
        let is_explicit = interval.is_some();
        let interval = interval.unwrap_or_else(unasked);
        // With the default interval, the last interval may also be incomplete.
        let whole = duration.as_nanos().checked_div(interval.as_nanos()).unwrap_or(0);
        let duration = if is_explicit { duration } else { interval.saturating_mul(whole as u32) };
        Self::new(interval, vec![LoadPhase::steady("soak", rate, duration)])
    }

    /// Returns the same profile at this share of its rates.
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
    pub fn is_steady(&self) -> bool {
        matches!(&self.phases[..], [only] if only.from.total_cmp(&only.to).is_eq())
    }

    /// Returns the total duration.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.phases.iter().map(|phase| phase.duration).sum()
    }

    /// Returns the highest intended rate.
    #[must_use]
    pub fn highest(&self) -> f64 {
        self.phases.iter().map(|phase| phase.from.max(phase.to)).fold(0.0, f64::max)
    }

    /// Returns the lowest intended rate.
    #[must_use]
    pub fn lowest(&self) -> f64 {
        self.phases.iter().map(|phase| phase.from.min(phase.to)).fold(f64::INFINITY, f64::min)
    }

    /// Returns the number of intervals.
    #[must_use]
    pub fn intervals(&self) -> u64 {
        self.intervals_of(self.duration())
    }

    fn intervals_of(&self, duration: Duration) -> u64 {
        (duration.as_nanos() / self.interval.as_nanos()) as u64
    }

    /// Returns the intervals at which the phases end, including the last one.
    #[must_use]
    pub fn ends(&self) -> Vec<u64> {
        let mut end = 0;
        let phases = self.phases.iter();
        phases
            .map(|phase| {
                end += self.intervals_of(phase.duration);
                end
            })
            .collect()
    }

    /// Returns the phase at an offset from the start and the offset within it; for a later offset,
    /// the last phase's end.
    fn at(&self, offset: Span) -> (&LoadPhase, f64) {
        let mut left_s = offset.as_seconds().max(0.0);
        for phase in &self.phases {
            let lasts_s = phase.duration.as_secs_f64();
            if left_s < lasts_s {
                return (phase, left_s / lasts_s);
            }
            left_s -= lasts_s;
        }
        (&self.phases[self.phases.len() - 1], 1.0)
    }

    /// Returns the rate at an offset from the start, in requests per second.
    #[must_use]
    pub fn rate_at(&self, offset: Span) -> f64 {
        let (phase, share) = self.at(offset);
        phase.from + (phase.to - phase.from) * share
    }
}

/// Intended send times of one lane on a profile, as offsets from its start in 2^-16 ns: between two
/// requests the integral of the rate is 1. A phase that begins before a request is due shortens or
/// lengthens the time left until it.
#[derive(Clone, Debug)]
pub(crate) struct ProfileInstants {
    legs: Vec<LanePhase>,
    current: usize,
}

/// A phase with its requests per 2^-16 ns of one lane.
#[derive(Clone, Copy, Debug)]
struct LanePhase {
    begin: u64,
    end: u64,
    rate: f64,
    /// Increase of the rate in each 2^-16 ns.
    slope: f64,
}

/// Number of 2^-16 ns in a second.
pub(crate) const UNITS_PER_SECOND: f64 = 1e9 * (1_u64 << FRACTION_BITS) as f64;

impl ProfileInstants {
    pub(crate) fn new(profile: &LoadProfile, lanes: usize) -> Self {
        let mut begin = 0;
        let leg = |phase: &LoadPhase| {
            let lasts = (phase.duration.as_nanos() as u64) << FRACTION_BITS;
            let of = |rate: f64| rate / lanes as f64 / UNITS_PER_SECOND;
            let slope = (of(phase.to) - of(phase.from)) / lasts as f64;
            let leg = LanePhase { begin, end: begin + lasts, rate: of(phase.from), slope };
            begin += lasts;
            leg
        };
        Self { legs: profile.phases.iter().map(leg).collect(), current: 0 }
    }

    /// Returns the instant `requests` after `at`, which may lie after the profile's end. Instants
    /// must be requested in rising order.
    pub(crate) fn after(&mut self, mut at: u64, mut requests: f64) -> u64 {
        while let Some(leg) = self.legs.get(self.current) {
            if at >= leg.end {
                self.current += 1;
                continue;
            }
            let rate = leg.rate + leg.slope * (at - leg.begin) as f64;
            // Area of a trapezium, solved for its width without cancellation; NaN if a falling rate
            // never reaches it.
            let root = 2.0_f64.mul_add(leg.slope * requests, rate * rate).sqrt();
            let width = (2.0 * requests / (rate + root)).ceil();
            let left = (leg.end - at) as f64;
            if width <= left {
                return at + width as u64;
            }
            requests -= left * 0.5_f64.mul_add(leg.slope * left, rate);
            at = leg.end;
        }
        // Nothing is sent after the end.
        u64::MAX
    }

    /// Returns the end of the phase that contains `at`, unless it is the last one.
    pub(crate) fn phase_end(&self, at: u64) -> Option<u64> {
        let (_, all_but_last) = self.legs.split_last()?;
        let rest = all_but_last.get(self.current..)?;
        rest.iter().map(|leg| leg.end).find(|end| *end > at)
    }

    /// Returns the requests between `at` and the end.
    pub(crate) fn left(&self, at: u64) -> u64 {
        self.legs.iter().map(|leg| leg.left(at)).sum::<f64>().round() as u64
    }
}

impl LanePhase {
    /// Returns the requests between `at` and the end of the phase.
    fn left(&self, at: u64) -> f64 {
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
        LoadPhase { from, to, ..LoadPhase::steady("ramp", from, SECOND * seconds as u32) }
    }

    fn instants(phases: Vec<LoadPhase>, lanes: usize) -> Vec<u64> {
        let profile = LoadProfile::new(SECOND, phases).unwrap();
        let end = (profile.duration().as_nanos() as u64) << FRACTION_BITS;
        let mut instants = ProfileInstants::new(&profile, lanes);
        let mut all = Vec::new();
        let mut at = 0;
        while at < end {
            all.push(at);
            at = instants.after(at, 1.0);
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
        assert_eq!((soak(60, None).interval(), soak(60, None).intervals()), (SECOND, 60));
        assert_eq!(soak(86_400, None).interval(), SECOND * 24);
        let short = LoadProfile::soak(10.0, Duration::from_millis(300), None).unwrap();
        assert_eq!((short.intervals(), short.duration()), (1, Duration::from_millis(300)));
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
        let phases = vec![LoadPhase::steady("a", 10.0, SECOND), ramp(10.0, 30.0, 2)];
        let profile = LoadProfile::new(SECOND, phases).unwrap();
        for (ms, rate) in [(0, 10.0), (999, 10.0), (1000, 10.0), (2000, 20.0), (9000, 30.0)] {
            assert!((profile.rate_at(Span::from_ms(ms)) - rate).abs() < 1e-9, "{ms} ms");
        }
        assert_eq!((profile.ends(), profile.intervals()), (vec![1, 3], 3));
        assert!((profile.highest() - 30.0).abs() < 1e-9 && (profile.lowest() - 10.0).abs() < 1e-9);
    }

    #[test]
    fn a_slow_phase_does_not_reach_into_a_fast_one() {
        let all = instants(
            vec![LoadPhase::steady("slow", 0.5, SECOND), LoadPhase::steady("fast", 1000.0, SECOND)],
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
            prop_assert!((ProfileInstants::new(&course, lanes).left(0) as f64 - wanted).abs() <= 1.0);
            let all = instants(phases, lanes);
            prop_assert!((all.len() as f64 - wanted).abs() <= 1.5, "{} of {}", all.len(), wanted);
            prop_assert!(all.is_sorted_by(|a, b| a < b));
        }
    }
}
