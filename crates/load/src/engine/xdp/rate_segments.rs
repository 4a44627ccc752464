//! Conversion of a load profile to the rate segments that the XDP engine executes, computed for
//! each lane before the trial. A ramp becomes steps of equal length and constant rate. Does no I/O.

use horolog_time::Span;
use horolog_xdp::{RATE_SEGMENTS_MAX, RateSegment};

use crate::engine::lane::PHASE_GRACE;
use crate::load_profile::{LoadPhase, LoadProfile, UNITS_PER_SECOND};
use crate::schedule::{self, FRACTION_BITS};

/// Largest number of steps of a ramp.
const STEPS_MAX: usize = 1000;

/// End of the last phase, in ns: later than any trial.
const NEVER: u64 = 1 << 62;

/// Part of a phase with a constant rate: begin and end in 2^-16 ns from the start, and rate of all
/// lanes in requests per second.
struct PhaseSegment {
    begin: u64,
    end: u64,
    rate: f64,
}

impl PhaseSegment {
    /// Returns the number of requests of one of `lanes` lanes in this step.
    fn requests(&self, lanes: usize) -> f64 {
        (self.end - self.begin) as f64 * self.rate / lanes as f64 / UNITS_PER_SECOND
    }
}

/// Returns the rate segments of lane `lane` of `lanes`; `None` if a rate is too low for a schedule.
pub(super) fn rate_segments(
    profile: &LoadProfile,
    (lane, lanes): (usize, usize),
) -> Option<Vec<RateSegment>> {
    let phases = profile.phases();
    let ramps = phases.iter().filter(|phase| !is_steady(phase)).count();
    let steps_max = ((RATE_SEGMENTS_MAX - phases.len()) / ramps.max(1)).clamp(1, STEPS_MAX);
    let mut segments = Vec::new();
    let mut begin = 0;
    // Share of an interval until this lane's next request, from 0 to 1.
    let mut requests_to_next = lane as f64 / lanes as f64;
    for (number, phase) in phases.iter().enumerate() {
        let end = begin + ((phase.duration.as_nanos() as u64) << FRACTION_BITS);
        let count = if is_steady(phase) { 1 } else { steps_max };
        let steps: Vec<_> =
            (0..count).map(|step| ramp_step(phase, (begin, end), (step, count))).collect();
        let is_last = number + 1 == phases.len();
        let over = Span::from_ns((end >> FRACTION_BITS) as i64) + PHASE_GRACE;
        let next_phase = (segments.len() + count) as u32;
        let mut requests_left: f64 = steps.iter().map(|step| step.requests(lanes)).sum();
        for step in &steps {
            let interval = schedule::interval(step.rate, lanes)?;
            requests_left -= step.requests(lanes);
            let first =
                step.begin.saturating_add((requests_to_next * interval as f64).ceil() as u64);
            requests_to_next = if first < step.end {
                let last = step.end - 1 - (step.end - 1 - first) % interval;
                (1.0 - (step.end - last) as f64 / interval as f64).max(0.0)
            } else {
                (requests_to_next - step.requests(lanes)).max(0.0)
            };
            segments.push(RateSegment {
                begin: step.begin,
                end: step.end,
                first: first.min(step.end),
                interval,
                phase_over_ns: if is_last { NEVER } else { over.as_ns() as u64 },
                remaining_requests: requests_left.round().max(0.0) as u64,
                next_phase,
                reserved: 0,
            });
        }
        begin = end;
    }
    Some(segments)
}

fn is_steady(phase: &LoadPhase) -> bool {
    phase.from.total_cmp(&phase.to).is_eq()
}

/// Returns step `step` of `count` of a phase, at the rate of its middle.
fn ramp_step(
    phase: &LoadPhase,
    (begin, end): (u64, u64),
    (step, count): (usize, usize),
) -> PhaseSegment {
    let at = |step: usize| begin + (u128::from(end - begin) * step as u128 / count as u128) as u64;
    let share = (step as f64 + 0.5) / count as f64;
    PhaseSegment {
        begin: at(step),
        end: at(step + 1),
        rate: (phase.to - phase.from).mul_add(share, phase.from),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::load_profile::LoadProfileSendTimes;

    const SECOND: Duration = Duration::from_secs(1);

    /// The instants of a lane, as the program steps through its legs.
    fn stepped(legs: &[RateSegment]) -> Vec<u64> {
        let instants = |leg: &RateSegment| (leg.first..leg.end).step_by(leg.interval as usize);
        legs.iter().flat_map(instants).collect()
    }

    fn profile_of(rates: &[(f64, f64)]) -> LoadProfile {
        let phase =
            |&(from, to)| LoadPhase { from, to, ..LoadPhase::constant("phase", from, SECOND) };
        LoadProfile::new(SECOND, rates.iter().map(phase).collect()).unwrap()
    }

    fn planned(profile: &LoadProfile, lane: (usize, usize)) -> Vec<u64> {
        let end = (profile.duration().as_nanos() as u64) << FRACTION_BITS;
        let mut instants = LoadProfileSendTimes::new(profile, lane.1);
        let mut at = instants.instant_after(0, lane.0 as f64 / lane.1 as f64);
        let mut all = Vec::new();
        while at < end {
            all.push(at);
            at = instants.instant_after(at, 1.0);
        }
        all
    }

    #[test]
    fn a_slow_phase_does_not_reach_into_a_fast_one() {
        let legs = rate_segments(&profile_of(&[(0.5, 0.5), (1000.0, 1000.0)]), (0, 1)).unwrap();
        let second = stepped(&legs)[1] as f64 / UNITS_PER_SECOND;
        assert!((second - 1.0005).abs() < 1e-6, "{second}");
    }

    #[test]
    fn what_is_behind_a_leg_is_of_its_phase() {
        let legs = rate_segments(&profile_of(&[(100.0, 300.0), (50.0, 50.0)]), (0, 2)).unwrap();
        assert_eq!((legs.len(), legs[0].next_phase, legs[1000].next_phase), (1001, 1000, 1001));
        assert_eq!(
            (
                legs[0].remaining_requests,
                legs[499].remaining_requests,
                legs[999].remaining_requests
            ),
            (100, 63, 0)
        );
        let grace = PHASE_GRACE.as_ns() as u64;
        assert_eq!(legs[0].phase_over_ns, 1_000_000_000 + grace);
        assert_eq!((legs[1000].remaining_requests, legs[1000].phase_over_ns), (0, NEVER));
    }

    #[test]
    fn segments_have_room_whatever_the_profile() {
        let rates = [(1.0, 2.0); crate::load_profile::PHASES_MAX];
        let legs = rate_segments(&profile_of(&rates), (0, 1)).unwrap();
        assert!(
            legs.len() <= RATE_SEGMENTS_MAX && legs.len() > RATE_SEGMENTS_MAX / 2,
            "{}",
            legs.len()
        );
        assert!(legs.windows(2).all(|pair| pair[0].end == pair[1].begin));
    }

    proptest! {
        #[test]
        fn a_lane_steps_as_its_schedule_does(
            rates in prop::collection::vec((1.0..3000.0f64, 0.3..3.0f64, any::<bool>()), 1..5),
            lane in 0usize..3,
        ) {
            let rates: Vec<_> = rates
                .iter()
                .map(|&(from, factor, ramp)| (from, if ramp { from * factor } else { from }))
                .collect();
            let course = profile_of(&rates);
            let legs = rate_segments(&course, (lane, 3)).unwrap();
            let (stepped, planned) = (stepped(&legs), planned(&course, (lane, 3)));
            prop_assert!(stepped.len().abs_diff(planned.len()) <= 2, "{} {}", stepped.len(), planned.len());
            prop_assert!(stepped.is_sorted_by(|a, b| a < b));
            // A step offers as many requests as the ramp does meanwhile, so nothing adds up.
            for (one, other) in stepped.iter().zip(&planned) {
                let rate = course.rate_at(Span::from_ns((other >> FRACTION_BITS) as i64));
                let interval = 3.0 * UNITS_PER_SECOND / rate;
                prop_assert!((one.abs_diff(*other)) as f64 <= 0.02 * interval, "{} {}", one, other);
            }
        }
    }
}
