//! Classification of one rate by its trials: RFC 9971's load classification (Appendix A) and
//! conditional throughput (Appendix B). This module handles one load at a time; the search compares
//! them.

use super::{REACHED, TrialOutcome};
use crate::loss::loss_ratio;

/// Shortfalls that put a load out of the generator's reach. One or two can be transient.
const SHORTFALLS: usize = 3;

/// A trial this much shorter than full length still counts as full: sending stopped a little early.
const FULL_LENGTH: f64 = 0.99;

/// Search goal of RFC 9971, without its width.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Goal {
    pub(super) loss_ratio: f64,
    pub(super) exceed_ratio: f64,
    /// Goal Final Trial Duration, in seconds.
    pub(super) trial_s: f64,
    /// Goal Duration Sum, in seconds.
    pub(super) sum_s: f64,
}

/// Class of a load with respect to a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadClass {
    /// The goal is certain to hold, whatever the outcome of the missing trials.
    Lower,
    /// The goal is certain to fail.
    Upper,
    Undecided,
}

/// Data of one trial used by the search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TrialData {
    pub(super) duration_s: f64,
    pub(super) loss_ratio: f64,
    pub(super) sent: u64,
    pub(super) lost: u64,
    /// Rate really sent, per second.
    pub(super) achieved_rate: f64,
}

impl TrialData {
    /// Converts an outcome; a trial that sent nothing reached no rate and lost nothing.
    pub(super) fn from_outcome(outcome: &TrialOutcome) -> Self {
        let ratio = loss_ratio(outcome.sent, outcome.lost);
        let achieved = outcome.achieved_rate;
        let sane = ratio.is_some() && achieved.is_finite() && achieved > 0.0;
        Self {
            duration_s: outcome.duration.as_secs_f64(),
            loss_ratio: ratio.unwrap_or(0.0),
            sent: outcome.sent,
            lost: outcome.lost,
            achieved_rate: if sane { achieved } else { 0.0 },
        }
    }

    /// Returns the time for which this trial counts as full-length, if it does.
    fn full_length_s(&self, goal: &Goal) -> Option<f64> {
        (self.duration_s >= FULL_LENGTH * goal.trial_s).then(|| self.duration_s.max(goal.trial_s))
    }

    fn is_high_loss(&self, goal: &Goal) -> bool {
        self.loss_ratio > goal.loss_ratio
    }
}

/// One rate and all its trials.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RateTrials {
    /// Intended rate, in requests per second.
    pub(super) rate: f64,
    /// Trials that count for this rate.
    trials: Vec<TrialData>,
    /// Achieved rates of the trials that fell short of it.
    shortfalls: Vec<f64>,
}

impl RateTrials {
    pub(super) fn new(rate: f64) -> Self {
        Self { rate, trials: Vec::new(), shortfalls: Vec::new() }
    }

    /// Adds a trial, as a shortfall if it sent too little to count for this rate.
    pub(super) fn add(&mut self, trial: &TrialData, goal: &Goal) {
        if trial.achieved_rate >= REACHED * self.rate || trial.is_high_loss(goal) {
            self.trials.push(*trial);
        } else {
            self.shortfalls.push(trial.achieved_rate);
        }
    }

    /// Returns the rate that the generator can send instead, if it cannot reach this rate: the
    /// median of the achieved rates.
    pub(super) fn ceiling(&self) -> Option<f64> {
        let short = self.shortfalls.len();
        (short >= SHORTFALLS && short > self.trials.len()).then(|| {
            let mut achieved = self.shortfalls.clone();
            achieved.sort_by(f64::total_cmp);
            achieved[short / 2]
        })
    }

    /// Classifies the load by Appendix A of RFC 9971.
    pub(super) fn classify(&self, goal: &Goal) -> LoadClass {
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
        let whole_s = f64::max(full_low_s + high_s, goal.sum_s);
        let allowed_s = whole_s * goal.exceed_ratio;
        if whole_s - full_low_s <= allowed_s {
            LoadClass::Lower
        } else if high_s > allowed_s {
            LoadClass::Upper
        } else {
            LoadClass::Undecided
        }
    }

    fn full_length(&self, goal: &Goal) -> impl Iterator<Item = (f64, &TrialData)> {
        self.trials.iter().filter_map(|trial| Some((trial.full_length_s(goal)?, trial)))
    }

    /// Returns the requests sent and lost in the full-length trials.
    pub(super) fn totals(&self, goal: &Goal) -> (u64, u64) {
        self.full_length(goal)
            .fold((0, 0), |(sent, lost), (_, trial)| (sent + trial.sent, lost + trial.lost))
    }

    /// Returns the conditional throughput by Appendix B of RFC 9971, based on the achieved rate
    /// instead of the intended one: up to 0.5% fewer requests may have been sent, and no reply
    /// exists for an unsent request.
    pub(super) fn conditional_throughput(&self, goal: &Goal) -> f64 {
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
        // Time that was not measured counts as lost.
        if remaining_s > 0.0 { 0.0 } else { throughput }
    }
}

#[cfg(test)]
mod tests {
    use super::LoadClass::{Lower, Undecided, Upper};
    use super::*;

    const RATE: f64 = 1e6;

    fn goal(trial_s: f64, sum_s: f64, loss_ratio: f64, exceed_ratio: f64) -> Goal {
        Goal { loss_ratio, exceed_ratio, trial_s, sum_s }
    }

    /// The four goals of RFC 9971, Appendix C: RFC2544, TST009, 1s final, 20% exceed.
    fn example_goals() -> [Goal; 4] {
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
        let trial = TrialData { duration_s, loss_ratio, sent, lost, achieved_rate: RATE };
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

    fn sent_at(achieved_rate: f64, loss_ratio: f64) -> TrialData {
        TrialData { duration_s: 1.0, loss_ratio, sent: 1, lost: 0, achieved_rate }
    }

    #[test]
    fn shortfalls_set_a_ceiling_only_when_they_prevail() {
        let goal = goal(1.0, 3.0, 0.0, 0.5);
        let mut load = RateTrials::new(RATE);
        load.add(&sent_at(0.8 * RATE, 0.0), &goal);
        load.add(&sent_at(0.9 * RATE, 0.0), &goal);
        assert_eq!(load.ceiling(), None);
        load.add(&sent_at(0.85 * RATE, 0.0), &goal);
        assert_eq!(load.ceiling(), Some(0.85 * RATE));
        assert_eq!(load.classify(&goal), Undecided);
        for _ in 0..3 {
            load.add(&sent_at(RATE, 0.0), &goal);
        }
        assert_eq!(load.ceiling(), None);
    }

    #[test]
    fn a_shortfall_that_loses_counts_against_the_load() {
        let goal = goal(1.0, 3.0, 0.0, 0.5);
        let mut load = RateTrials::new(RATE);
        for _ in 0..3 {
            load.add(&sent_at(0.8 * RATE, 0.1), &goal);
        }
        assert_eq!((load.ceiling(), load.classify(&goal)), (None, Upper));
    }

    #[test]
    fn what_was_not_sent_is_not_credited() {
        let goal = goal(1.0, 2.0, 0.0, 0.5);
        let mut load = RateTrials::new(RATE);
        load.add(&sent_at(0.997 * RATE, 0.0), &goal);
        assert!((load.conditional_throughput(&goal) - 0.997 * RATE).abs() < 1e-6);
    }
}
