//! Verdict on a load run: one value and one sentence, and the trials that represent the run. Shared
//! by the terminal and the HTML report.

use std::collections::BTreeMap;

use horolog_record::{
    CapacitySearchGoal, CapacitySearchResult, LoadResult, LoadSeriesPoint, LoadTimeSeries,
    LossLocation, OverloadResult, SearchEndReason, Trial,
};

use crate::units::since_begin;
use crate::units::{ABSENT, amount, full_count, human_ns, human_rate, percent, percent_of};

/// Ratio of the bounds of a search up to which they are shown as one value.
const CLOSE: f64 = 1.02;

/// Highest rate within the goal, as precisely as the run determined it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum BestRate {
    /// Rate found: the bounds of the search are close enough, or a trial at a higher rate had
    /// losses.
    Exactly(f64),
    /// Sustained rate; the run ended for another reason than the server's limit.
    AtLeast(f64),
    /// Upper bound: the lowest rate tried did not meet the goal.
    Below(f64),
    /// No rate is known.
    Nothing,
}

impl BestRate {
    /// Returns the best rate of a run, from its search or, without one, from its trials.
    pub(crate) fn of(result: &LoadResult) -> Self {
        result.search.as_ref().map_or_else(|| Self::of_trials(&result.trials), Self::of_search)
    }

    fn of_search(search: &CapacitySearchResult) -> Self {
        let is_close = |rate| search.upper.is_some_and(|upper| upper <= rate * CLOSE);
        match (search.lower.and_then(amount), search.end) {
            (Some(rate), SearchEndReason::Converged | SearchEndReason::BelowMin) => {
                Self::Exactly(rate)
            }
            (Some(rate), SearchEndReason::BudgetSpent) if is_close(rate) => Self::Exactly(rate),
            (Some(rate), _) => Self::AtLeast(rate),
            (None, _) => match search.upper.and_then(amount) {
                Some(rate) => Self::Below(rate),
                None => Self::Nothing,
            },
        }
    }

    fn of_trials(trials: &[Trial]) -> Self {
        let Some(held) = highest_within(trials, 0.0) else {
            return lowest_rate(trials).map_or(Self::Nothing, Self::Below);
        };
        let failed_above =
            trials.iter().any(|trial| trial.lost > 0 && trial.achieved_rate > held.achieved_rate);
        if failed_above {
            Self::Exactly(held.achieved_rate)
        } else {
            Self::AtLeast(held.achieved_rate)
        }
    }

    /// Returns the sustained rate; `None` if there is none.
    pub(crate) const fn held(self) -> Option<f64> {
        match self {
            Self::Exactly(rate) | Self::AtLeast(rate) => Some(rate),
            Self::Below(_) | Self::Nothing => None,
        }
    }

    /// Returns the text of a cell: `3.98 M/s`, `≥ 3.98 M/s`, `< 1.00 k/s` or `-`.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Exactly(rate) => human_rate(rate),
            Self::AtLeast(rate) => format!("≥ {}", human_rate(rate)),
            Self::Below(rate) => format!("< {}", human_rate(rate)),
            Self::Nothing => ABSENT.to_owned(),
        }
    }

    /// Returns the ratio to `base`: `4.87×`, with `≥` if this is a lower bound, `≤` if the base is
    /// one, and `-` if that leaves no conclusion.
    pub(crate) fn ratio_to(self, base: Self) -> String {
        let (sign, rate, base) = match (self, base) {
            (Self::Exactly(rate), Self::Exactly(base)) => ("", rate, base),
            (Self::AtLeast(rate), Self::Exactly(base)) => ("≥ ", rate, base),
            (Self::Exactly(rate), Self::AtLeast(base)) => ("≤ ", rate, base),
            _ => return ABSENT.to_owned(),
        };
        if base > 0.0 { format!("{sign}{}×", times(rate / base)) } else { ABSENT.to_owned() }
    }
}

/// Returns the highest rate within the goal in words, with `≥` or `<` if it is only a bound.
#[must_use]
pub fn highest(result: &LoadResult) -> String {
    BestRate::of(result).text()
}

fn times(ratio: f64) -> String {
    if ratio < 9.995 {
        format!("{ratio:.2}")
    } else if ratio < 99.95 {
        format!("{ratio:.1}")
    } else if ratio < 1e6 {
        format!("{ratio:.0}")
    } else {
        format!("{ratio:.1e}")
    }
}

/// Returns the result of the run, in one sentence.
pub(crate) fn sentence(result: &LoadResult) -> String {
    match (&result.search, &result.series) {
        (Some(search), _) => {
            let overload = result
                .overload
                .as_ref()
                .map(|overload| overload_sentence(overload, &result.trials));
            [Some(search_sentence(search)), overload]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(" ")
        }
        (None, Some(series)) => series_sentence(result, series),
        (None, None) => ramp_sentence(&result.trials),
    }
}

/// Returns a sentence on the length of a run with a load profile, its losses, the interval with
/// most of them, and the recovery from an overload.
fn series_sentence(result: &LoadResult, series: &LoadTimeSeries) -> String {
    let losses = LossTotals::of(&result.trials);
    let sent_s: f64 = result.trials.iter().map(|trial| trial.duration_s).sum();
    let length = format!("{:.1} s", amount(sent_s).unwrap_or_default());
    let lost = percent_of(losses.lost, losses.sent);
    // Of equal intervals, the first.
    let by_loss =
        |a: &&LoadSeriesPoint, b: &&LoadSeriesPoint| a.loss_ratio().total_cmp(&b.loss_ratio());
    let worst = series.points.iter().rev().max_by(by_loss);
    let worst = worst.filter(|point| point.lost > 0).map_or_else(String::new, |point| {
        let most = percent(point.loss_ratio());
        format!("; at most {most} in one interval, at {}", since_begin(point.at_s))
    });
    let sent = full_count(losses.sent);
    let loss_sentence = format!("{lost} of {sent} requests lost in {length}{worst}.");
    match &result.overload {
        None => loss_sentence,
        Some(overload) => {
            format!("{loss_sentence} {}", overload_sentence(overload, &result.trials))
        }
    }
}

/// Returns the recovery of a server from an overload.
fn overload_sentence(overload: &OverloadResult, trials: &[Trial]) -> String {
    // The three phases of an overload are the last trials.
    let base = trials.len().checked_sub(3).and_then(|base| trials.get(base));
    let resolution = human_ns((overload.resolution_ms.max(0.0) * 1e6) as u64);
    let recovery = match overload.recovery_ms {
        None if base.is_some_and(|base| base.received == 0) => {
            "no reply before the overload to compare with".to_owned()
        }
        None => "not recovered by the end of the run".to_owned(),
        Some(ms) if ms > 0.0 => {
            format!("recovered after {}", human_ns((ms * 1e6) as u64))
        }
        Some(_) => format!("recovered within {resolution}"),
    };
    format!(
        "Overload {}: {} answered; {recovery}.",
        human_rate(overload.overload_rate),
        // Both rates refer to the same time only to the length of an interval.
        human_rate(overload.answered_rate.min(overload.overload_rate))
    )
}

/// Returns the name of a search goal: `Non-drop rate` or `Partial drop rate`.
pub(crate) const fn goal_name(kind: CapacitySearchGoal) -> &'static str {
    match kind {
        CapacitySearchGoal::Ndr => "Non-drop rate",
        CapacitySearchGoal::Pdr => "Partial drop rate",
    }
}

/// Returns the result of a search, in one sentence: goal, bounds and reason of the end.
pub(crate) fn search_sentence(search: &CapacitySearchResult) -> String {
    let goal = if search.goal_loss_ratio > 0.0 {
        format!("loss of at most {}", percent(search.goal_loss_ratio))
    } else {
        "zero loss".to_owned()
    };
    let name = goal_name(search.kind);
    let held = match (search.lower, search.upper) {
        (Some(lower), Some(upper)) => format!(
            "{} passed with {} loss, {} failed",
            human_rate(lower),
            percent(search.loss_ratio),
            human_rate(upper)
        ),
        (Some(lower), None) => {
            format!("{} passed with {} loss", human_rate(lower), percent(search.loss_ratio))
        }
        (None, Some(upper)) => format!("{} failed", human_rate(upper)),
        (None, None) => "no rate was classified".to_owned(),
    };
    format!("{name} ({goal}): {held}; {}.", end_reason(search.end))
}

/// Returns the reason for which a search ended, to follow a semicolon.
pub(crate) const fn end_reason(end: SearchEndReason) -> &'static str {
    match end {
        SearchEndReason::Converged => "search width reached",
        SearchEndReason::CappedAtMax => "the maximum rate passed, so the limit is at or above it",
        SearchEndReason::BelowMin => "the minimum rate failed",
        SearchEndReason::GeneratorLimit => {
            "the generator could not send faster, so the limit is at or above it"
        }
        SearchEndReason::BudgetSpent => {
            "search time or trials exhausted before the search width was reached"
        }
    }
}

fn ramp_sentence(trials: &[Trial]) -> String {
    match highest_within(trials, 0.0) {
        None if trials.is_empty() => "No trials were run.".to_owned(),
        None => "Every trial had loss.".to_owned(),
        Some(held) => {
            let rate = human_rate(held.achieved_rate);
            let failed = trials
                .iter()
                .filter(|trial| trial.lost > 0 && trial.achieved_rate > held.achieved_rate)
                .min_by(|a, b| a.achieved_rate.total_cmp(&b.achieved_rate));
            let summary = match failed {
                Some(failed) => format!(
                    "Highest trial without loss: {rate}; the next, at {}, lost {}.",
                    human_rate(failed.achieved_rate),
                    percent(failed.loss_ratio())
                ),
                None => format!("Highest trial without loss: {rate}, the highest rate tried."),
            };
            let below = |trial: &&Trial| trial.lost > 0 && trial.achieved_rate < held.achieved_rate;
            match trials.iter().filter(below).count() {
                0 => summary,
                1 => format!("{summary} One lower trial had loss."),
                count => format!("{summary} {count} lower trials had loss."),
            }
        }
    }
}

/// Returns the index of the trial that represents the run: the one at the search's lower bound, or
/// the highest without loss if there was no search.
pub(crate) fn lower_bound_trial(result: &LoadResult) -> Option<usize> {
    let (goal, rate) = match &result.search {
        Some(search) => (search.goal_loss_ratio, search.lower?),
        None => (0.0, highest_within(&result.trials, 0.0)?.achieved_rate),
    };
    let distance = |trial: &Trial| (trial.achieved_rate - rate).abs();
    let trials = result.trials.iter().enumerate();
    trials
        .filter(|(_, trial)| trial.sent > 0 && trial.loss_ratio() <= goal)
        .min_by(|(_, a), (_, b)| distance(a).total_cmp(&distance(b)))
        .map(|(index, _)| index)
}

fn highest_within(trials: &[Trial], goal: f64) -> Option<&Trial> {
    trials
        .iter()
        .filter(|trial| {
            trial.sent > 0 && trial.loss_ratio() <= goal && amount(trial.achieved_rate).is_some()
        })
        .max_by(|a, b| a.achieved_rate.total_cmp(&b.achieved_rate))
}

fn lowest_rate(trials: &[Trial]) -> Option<f64> {
    trials
        .iter()
        .filter(|trial| trial.sent > 0)
        .filter_map(|trial| amount(trial.achieved_rate))
        .min_by(f64::total_cmp)
}

/// Requests sent and lost in all trials together, and the loss locations, most first.
pub(crate) struct LossTotals {
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) by_location: Vec<(LossLocation, u64)>,
}

impl LossTotals {
    /// Sums requests, losses and loss locations over all trials; locations without losses are
    /// omitted.
    pub(crate) fn of(trials: &[Trial]) -> Self {
        let mut by_location = BTreeMap::<LossLocation, u64>::new();
        for (location, count) in trials.iter().flat_map(|trial| &trial.lost_at) {
            let sum = by_location.entry(*location).or_default();
            *sum = sum.saturating_add(*count);
        }
        let mut locations: Vec<_> =
            by_location.into_iter().filter(|(_, count)| *count > 0).collect();
        locations.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let sum =
            |field: fn(&Trial) -> u64| trials.iter().map(field).fold(0_u64, u64::saturating_add);
        Self {
            sent: sum(|trial| trial.sent),
            lost: sum(|trial| trial.lost),
            by_location: locations,
        }
    }
}

/// Returns the name of a loss location for a sentence.
#[must_use]
pub const fn location_name(location: LossLocation) -> &'static str {
    match location {
        LossLocation::Generator => "generator",
        LossLocation::OwnRing => "generator RX ring",
        LossLocation::Link => "link",
        LossLocation::Interface => "server's interface",
        LossLocation::Socket => "server's socket",
        LossLocation::Server => "server",
        LossLocation::Late => "late reply",
        LossLocation::Invalid => "invalid reply",
        LossLocation::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_series_is_summarised_by_its_loss_and_its_worst_interval() {
        let mut result = fixture::load();
        (result.search, result.series) = (None, Some(fixture::series()));
        result.trials = vec![Trial {
            sent: 300,
            lost: 150,
            duration_s: 1.5,
            ..fixture::trial_without_requests()
        }];
        let expected = "50.00% of 300 requests lost in 1.5 s; at most 100.00% in one interval, \
                      at 1.00 s.";
        assert_eq!(sentence(&result), expected);
        let points = &mut result.series.as_mut().unwrap().points;
        points.extend_from_within(2..);
        points[3].at_s = 1.5;
        assert_eq!(sentence(&result), expected, "the first of several that are alike");
        let overload = OverloadResult {
            base_rate: 5e3,
            overload_rate: 30e3,
            overload_s: 2.0,
            answered_rate: 9e3,
            recovery_ms: Some(200.0),
            resolution_ms: 100.0,
        };
        let with_overload =
            |overload| sentence(&LoadResult { overload: Some(overload), ..result.clone() });
        let late = with_overload(overload.clone());
        assert!(
            late.ends_with("Overload 30.0 k/s: 9.00 k/s answered; recovered after 200 ms."),
            "{late}"
        );
        let at_once = with_overload(OverloadResult { recovery_ms: Some(0.0), ..overload.clone() });
        assert!(at_once.ends_with("recovered within 100 ms."), "{at_once}");
        let overload = OverloadResult { recovery_ms: None, ..overload };
        let never = with_overload(overload.clone());
        assert!(never.ends_with("not recovered by the end of the run."), "{never}");
        result.trials = vec![fixture::trial_without_requests(); 3];
        let unknown = sentence(&LoadResult { overload: Some(overload), ..result });
        assert!(unknown.ends_with("no reply before the overload to compare with."), "{unknown}");
    }

    #[test]
    fn the_sign_shows_why_the_search_ended() {
        let mut result = fixture::load();
        let search = result.search.as_mut().unwrap();
        (search.lower, search.upper) = (Some(3_980_000.0), Some(4_010_000.0));
        let cases = [
            (SearchEndReason::Converged, Some(3.98e6), Some(4.01e6), "3.98 M/s"),
            (SearchEndReason::BudgetSpent, Some(3.98e6), Some(4.01e6), "3.98 M/s"),
            (SearchEndReason::BudgetSpent, Some(3.98e6), Some(8e6), "≥ 3.98 M/s"),
            (SearchEndReason::BudgetSpent, Some(3.98e6), None, "≥ 3.98 M/s"),
            (SearchEndReason::GeneratorLimit, Some(3.98e6), None, "≥ 3.98 M/s"),
            (SearchEndReason::CappedAtMax, Some(3.98e6), None, "≥ 3.98 M/s"),
            (SearchEndReason::BelowMin, None, Some(1000.0), "< 1.00 k/s"),
            (SearchEndReason::BelowMin, None, None, "-"),
        ];
        for (end, lower, upper, text) in cases {
            let search = result.search.as_mut().unwrap();
            (search.end, search.lower, search.upper) = (end, lower, upper);
            assert_eq!(BestRate::of(&result).text(), text, "{end:?}");
        }
    }

    #[test]
    fn ratios_keep_the_bounds_of_both_sides() {
        use BestRate::{AtLeast, Below, Exactly, Nothing};
        assert_eq!(Exactly(88.0).ratio_to(Exactly(2.0)), "44.0×");
        assert_eq!(AtLeast(88.0).ratio_to(Exactly(2.0)), "≥ 44.0×");
        assert_eq!(Exactly(88.0).ratio_to(AtLeast(2.0)), "≤ 44.0×");
        assert_eq!(AtLeast(88.0).ratio_to(AtLeast(2.0)), "-");
        assert_eq!(Exactly(88.0).ratio_to(Exactly(0.0)), "-");
        assert_eq!(Below(1.0).ratio_to(Exactly(2.0)), "-");
        assert_eq!(Exactly(1.0).ratio_to(Nothing), "-");
    }

    #[test]
    fn a_sentence_for_a_search() {
        assert_eq!(
            sentence(&fixture::load()),
            "Non-drop rate (loss of at most 0.01%): 3.81 M/s passed with 0.00% loss, 3.98 M/s \
             failed; search width reached."
        );
    }

    #[test]
    fn a_ramp_without_a_search() {
        let mut result = fixture::load();
        result.search = None;
        assert!(
            sentence(&result).starts_with("Highest trial without loss: 3.81 M/s; the next, at")
        );
        result.trials.retain(|trial| trial.lost == 0);
        assert_eq!(BestRate::of(&result).text(), "≥ 3.81 M/s");
        let highest = "Highest trial without loss: 3.81 M/s, the highest rate tried.";
        assert_eq!(sentence(&result), highest);
        result.trials.clear();
        assert_eq!(sentence(&result), "No trials were run.");
        assert_eq!(BestRate::of(&result), BestRate::Nothing);
    }

    #[test]
    fn the_lower_bound_s_trial_held_the_goal() {
        let result = fixture::load();
        let trial = &result.trials[lower_bound_trial(&result).unwrap()];
        assert!((trial.achieved_rate - result.search.unwrap().lower.unwrap()).abs() < 1.0);
        assert_eq!(trial.lost, 0);
    }

    #[test]
    fn losses_add_up_over_the_trials() {
        let result = fixture::load();
        let losses = LossTotals::of(&result.trials);
        assert!(losses.lost > 0);
        assert_eq!(losses.by_location.iter().map(|(_, count)| count).sum::<u64>(), losses.lost);
        assert!(losses.by_location.is_sorted_by(|a, b| a.1 >= b.1));
    }
}
