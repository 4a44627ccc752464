//! Classification of one rate by its trials: load classification (RFC 9971, Appendix A) and
//! conditional throughput (Appendix B).

use super::{ACHIEVED_SHARE_MIN, TrialOutcome};
use crate::loss::loss_ratio;

/// Number of shortfalls from which a rate counts as out of the generator's reach; fewer can be
/// transient.
const SHORTFALLS_MIN: usize = 3;

/// Share of the final trial duration from which a trial counts as full-length, since sending may
/// stop slightly early.
const FULL_LENGTH_MIN: f64 = 0.99;

/// Search goal of RFC 9971, without its width.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SearchGoal {
    pub(super) loss_ratio: f64,
    pub(super) exceed_ratio: f64,
    /// Goal Final Trial Duration, in seconds.
    pub(super) trial_s: f64,
    /// Goal Duration Sum, in seconds.
    pub(super) sum_s: f64,
}

/// Class of a load (RFC 9971, Appendix A).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadClass {
    /// Lower bound: the goal holds, whatever the outcome of the missing trials.
    Lower,
    /// Upper bound: the goal fails, whatever the outcome of the missing trials.
    Upper,
    Undecided,
}

/// Trial at one rate: its outcome, as the search uses it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RateTrial {
    pub(super) duration_s: f64,
    pub(super) loss_ratio: f64,
    pub(super) sent: u64,
    pub(super) lost: u64,
    /// Achieved rate, in requests per second.
    pub(super) achieved_rate: f64,
}

impl RateTrial {
    /// Converts an outcome. A trial that sent nothing has rate 0 and loss ratio 0.
    pub(super) fn from_outcome(outcome: &TrialOutcome) -> Self {
        let ratio = loss_ratio(outcome.sent, outcome.lost);
        let achieved = outcome.achieved_rate;
        let is_measured = ratio.is_some() && achieved.is_finite() && achieved > 0.0;
        Self {
            duration_s: outcome.duration.as_secs_f64(),
            loss_ratio: ratio.unwrap_or(0.0),
            sent: outcome.sent,
            lost: outcome.lost,
            achieved_rate: if is_measured { achieved } else { 0.0 },
        }
    }

    /// Returns the duration with which this trial counts as full-length, in seconds; `None` if it
    /// is too short.
    fn full_length_s(&self, goal: &SearchGoal) -> Option<f64> {
        (self.duration_s >= FULL_LENGTH_MIN * goal.trial_s)
            .then(|| self.duration_s.max(goal.trial_s))
    }

    fn is_high_loss(&self, goal: &SearchGoal) -> bool {
        self.loss_ratio > goal.loss_ratio
    }
}

/// One rate and the trials at it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RateTrials {
    /// Intended rate, in requests per second.
    pub(super) rate: f64,
    /// Trials that count for this rate.
    trials: Vec<RateTrial>,
    /// Achieved rates of the shortfalls, in requests per second.
    shortfalls: Vec<f64>,
}

impl RateTrials {
    pub(super) fn new(rate: f64) -> Self {
        Self { rate, trials: Vec::new(), shortfalls: Vec::new() }
    }

    /// Adds a trial. It is a shortfall if it sent too little and did not lose too much.
    pub(super) fn add(&mut self, trial: &RateTrial, goal: &SearchGoal) {
        if trial.achieved_rate >= ACHIEVED_SHARE_MIN * self.rate || trial.is_high_loss(goal) {
            self.trials.push(*trial);
        } else {
            self.shortfalls.push(trial.achieved_rate);
        }
    }

    /// Returns the highest rate that the generator can send, the median of the shortfalls' achieved
    /// rates, if this rate is out of its reach; otherwise `None`.
    pub(super) fn generator_limit(&self) -> Option<f64> {
        let short = self.shortfalls.len();
        (short >= SHORTFALLS_MIN && short > self.trials.len()).then(|| {
            let mut achieved = self.shortfalls.clone();
            achieved.sort_by(f64::total_cmp);
            achieved[short / 2]
        })
    }

    /// Classifies the load by RFC 9971, Appendix A.
    pub(super) fn classify(&self, goal: &SearchGoal) -> LoadClass {
        let [mut full_low_s, mut full_high_s, mut short_low_s, mut short_high_s] = [0.0; 4];
        for trial in &self.trials {
            let (sum, seconds) = match (trial.full_length_s(goal), trial.is_high_loss(goal)) {
                (Some(seconds), false) => (&mut full_low_s, seconds),
                (Some(seconds), true) => (&mut full_high_s, seconds),
                (None, false) => (&mut short_low_s, trial.duration_s),
                (None, true) => (&mut short_high_s, trial.duration_s),
            };
            *sum += seconds;
        }
        let balancing_s = short_low_s * goal.exceed_ratio / (1.0 - goal.exceed_ratio);
        let high_s = full_high_s + f64::max(0.0, short_high_s - balancing_s);
        let total_s = f64::max(full_low_s + high_s, goal.sum_s);
        let allowed_s = total_s * goal.exceed_ratio;
        if total_s - full_low_s <= allowed_s {
            LoadClass::Lower
        } else if high_s > allowed_s {
            LoadClass::Upper
        } else {
            LoadClass::Undecided
        }
    }

    fn full_length(&self, goal: &SearchGoal) -> impl Iterator<Item = (f64, &RateTrial)> {
        self.trials.iter().filter_map(|trial| Some((trial.full_length_s(goal)?, trial)))
    }

    /// Returns the requests sent and lost in the full-length trials.
    pub(super) fn totals(&self, goal: &SearchGoal) -> (u64, u64) {
        self.full_length(goal)
            .fold((0, 0), |(sent, lost), (_, trial)| (sent + trial.sent, lost + trial.lost))
    }

    /// Returns the conditional throughput (RFC 9971, Appendix B) in replies per second, computed
    /// from the achieved instead of the intended rate, because up to 0.5% of the requests may not
    /// have been sent.
    pub(super) fn conditional_throughput(&self, goal: &SearchGoal) -> f64 {
        let mut trials: Vec<_> = self.full_length(goal).collect();
        trials.sort_by(|(_, a), (_, b)| a.loss_ratio.total_cmp(&b.loss_ratio));
        let measured_s: f64 = trials.iter().map(|(seconds, _)| seconds).sum();
        let mut remaining_s = measured_s.max(goal.sum_s) * (1.0 - goal.exceed_ratio);
        let mut throughput = 0.0;
        for (seconds, trial) in trials {
            if remaining_s <= 0.0 {
                return throughput;
            }
            throughput = trial.achieved_rate.min(self.rate) * (1.0 - trial.loss_ratio);
            remaining_s -= seconds;
        }
        // Time without trials counts as lost.
        if remaining_s > 0.0 { 0.0 } else { throughput }
    }
}

#[cfg(test)]
mod tests {
    use super::LoadClass::{Lower, Undecided, Upper};
    use super::*;

    const RATE: f64 = 1e6;

    fn goal(trial_s: f64, sum_s: f64, loss_ratio: f64, exceed_ratio: f64) -> SearchGoal {
        SearchGoal { loss_ratio, exceed_ratio, trial_s, sum_s }
    }

    /// The four goals of RFC 9971, Appendix C: RFC2544, TST009, 1s final, 20% exceed.
    fn example_goals() -> [SearchGoal; 4] {
        [
            goal(60.0, 60.0, 0.0, 0.0),
            goal(60.0, 120.0, 0.0, 0.5),
            goal(1.0, 120.0, 0.005, 0.5),
            goal(60.0, 60.0, 0.005, 0.2),
        ]
    }

    fn add(load: &mut RateTrials, times: usize, duration_s: f64, loss_ratio: f64) {
        let sent = (RATE * duration_s) as u64;
        let lost = (sent as f64 * loss_ratio) as u64;
        let trial = RateTrial { duration_s, loss_ratio, sent, lost, achieved_rate: RATE };
        load.trials.extend(std::iter::repeat_n(trial, times));
    }

    #[test]
    fn example_search_of_rfc_9971_appendix_c() {
        let points = [
            ((59, 1.0, 0.0), [Undecided, Undecided, Undecided, Undecided]),
            ((1, 1.0, 0.01), [Upper, Undecided, Undecided, Undecided]),
            ((59, 1.0, 0.01), [Upper, Undecided, Undecided, Upper]),
            ((1, 1.0, 0.0), [Upper, Undecided, Lower, Upper]),
            // The example calls the last goal's load a lower bound from here on, against its own
            // exceed ratios of 42.9% and 27.3% where 20% are allowed; Appendix A's code does not.
            ((1, 60.0, 0.001), [Upper, Undecided, Lower, Upper]),
            ((1, 60.0, 0.0), [Upper, Lower, Lower, Upper]),
        ];
        let mut load = RateTrials::new(RATE);
        for (point, ((times, duration_s, loss), expected)) in points.into_iter().enumerate() {
            add(&mut load, times, duration_s, loss);
            let found = example_goals().map(|goal| load.classify(&goal));
            assert_eq!(found, expected, "point {}", point + 1);
        }
        let throughput =
            example_goals().map(|goal| load.conditional_throughput(&goal).round() as u64);
        assert_eq!(throughput[1..], [1_000_000, 1_000_000, 999_000]);
    }

    #[test]
    fn untried_load_is_undecided() {
        for goal in example_goals() {
            assert_eq!(RateTrials::new(RATE).classify(&goal), Undecided);
        }
    }

    #[test]
    fn conditional_throughput_counts_unmeasured_time_as_lost() {
        let mut load = RateTrials::new(RATE);
        add(&mut load, 1, 1.0, 0.0);
        assert!(load.conditional_throughput(&goal(1.0, 3.0, 0.0, 0.5)).abs() < 1e-9);
        assert!((load.conditional_throughput(&goal(1.0, 2.0, 0.0, 0.5)) - RATE).abs() < 1e-9);
    }

    #[test]
    fn a_trial_cut_a_little_short_is_full_length() {
        let mut load = RateTrials::new(RATE);
        add(&mut load, 2, 0.995, 0.0);
        assert_eq!(load.classify(&goal(1.0, 3.0, 0.0, 0.5)), Lower);
        let mut load = RateTrials::new(RATE);
        add(&mut load, 9, 0.9, 0.0);
        assert_eq!(load.classify(&goal(1.0, 3.0, 0.0, 0.5)), Undecided);
    }

    fn sent_at(achieved_rate: f64, loss_ratio: f64) -> RateTrial {
        RateTrial { duration_s: 1.0, loss_ratio, sent: 1, lost: 0, achieved_rate }
    }

    #[test]
    fn shortfalls_set_a_ceiling_only_when_they_prevail() {
        let goal = goal(1.0, 3.0, 0.0, 0.5);
        let mut load = RateTrials::new(RATE);
        load.add(&sent_at(0.8 * RATE, 0.0), &goal);
        load.add(&sent_at(0.9 * RATE, 0.0), &goal);
        assert_eq!(load.generator_limit(), None);
        load.add(&sent_at(0.85 * RATE, 0.0), &goal);
        assert_eq!(load.generator_limit(), Some(0.85 * RATE));
        assert_eq!(load.classify(&goal), Undecided);
        for _ in 0..3 {
            load.add(&sent_at(RATE, 0.0), &goal);
        }
        assert_eq!(load.generator_limit(), None);
    }

    #[test]
    fn a_shortfall_that_loses_counts_against_the_load() {
        let goal = goal(1.0, 3.0, 0.0, 0.5);
        let mut load = RateTrials::new(RATE);
        for _ in 0..3 {
            load.add(&sent_at(0.8 * RATE, 0.1), &goal);
        }
        assert_eq!((load.generator_limit(), load.classify(&goal)), (None, Upper));
    }

    #[test]
    fn what_was_not_sent_is_not_credited() {
        let goal = goal(1.0, 2.0, 0.0, 0.5);
        let mut load = RateTrials::new(RATE);
        load.add(&sent_at(0.997 * RATE, 0.0), &goal);
        assert!((load.conditional_throughput(&goal) - 0.997 * RATE).abs() < 1e-6);
    }
}
