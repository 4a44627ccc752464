//! What a run comes to, in one figure and one sentence, and which of its trials stand for it.
//! The table and the page both say it with these words; no layout here.

use std::collections::BTreeMap;

use horolog_record::{
    LoadResult, Overload, Place, Point, SearchEnd, SearchKind, SearchResult, Series, Trial,
};

use crate::clock::since_begin;
use crate::units::{ABSENT, amount, full_count, human_ns, human_rate, percent, percent_of};

/// Bounds of a search that lie within this factor of one another are one figure.
const CLOSE: f64 = 1.02;

/// The highest rate within the goal, as far as the run could tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Highest {
    /// Found, with a rate above it that failed or as close as the search went.
    Exactly(f64),
    /// It held this; the run ended for another reason than the server's limit.
    AtLeast(f64),
    /// Not even this, the lowest rate tried, held.
    Below(f64),
    /// Nothing can be said.
    Nothing,
}

impl Highest {
    /// Reads it from the search, or from the trials alone where there was none.
    pub(crate) fn of(result: &LoadResult) -> Self {
        result.search.as_ref().map_or_else(|| Self::of_trials(&result.trials), Self::of_search)
    }

    fn of_search(search: &SearchResult) -> Self {
        let is_close = |rate| search.upper.is_some_and(|upper| upper <= rate * CLOSE);
        match (search.lower.and_then(amount), search.end) {
            (Some(rate), SearchEnd::Converged | SearchEnd::BelowMin) => Self::Exactly(rate),
            (Some(rate), SearchEnd::BudgetSpent) if is_close(rate) => Self::Exactly(rate),
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

    /// The rate that was held, where one was.
    pub(crate) const fn held(self) -> Option<f64> {
        match self {
            Self::Exactly(rate) | Self::AtLeast(rate) => Some(rate),
            Self::Below(_) | Self::Nothing => None,
        }
    }

    /// For a cell: `3.98 M/s`, `≥ 3.98 M/s`, `< 1.00 k/s` or `-`.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Exactly(rate) => human_rate(rate),
            Self::AtLeast(rate) => format!("≥ {}", human_rate(rate)),
            Self::Below(rate) => format!("< {}", human_rate(rate)),
            Self::Nothing => ABSENT.to_owned(),
        }
    }

    /// How many times `base` this is: `4.87×`, with `≥` where this is a lower bound, `≤` where the
    /// base is one, and `-` where that leaves nothing to be said.
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

/// The highest rate within the goal for a line: with `≥` or `<` where it is only known to be that.
#[must_use]
pub fn highest(result: &LoadResult) -> String {
    Highest::of(result).text()
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

/// What the run found, in one sentence.
pub(crate) fn sentence(result: &LoadResult) -> String {
    match (&result.search, &result.series) {
        (Some(search), _) => {
            let overload = result.overload.as_ref().map(overload_sentence);
            [Some(search_sentence(search)), overload]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(" ")
        }
        (None, Some(series)) => course_sentence(result, series),
        (None, None) => ramp_sentence(&result.trials),
    }
}

/// How long a course was, what it lost, and in which interval most of it; and how the server came
/// out of an overload.
fn course_sentence(result: &LoadResult, series: &Series) -> String {
    let losses = Losses::of(&result.trials);
    let sent_s: f64 = result.trials.iter().map(|trial| trial.duration_s).sum();
    let length = format!("{:.1} s", amount(sent_s).unwrap_or_default());
    let lost = percent_of(losses.lost, losses.sent);
    // The first of those that are alike, which is the last from behind.
    let by_loss = |a: &&Point, b: &&Point| a.loss_ratio().total_cmp(&b.loss_ratio());
    let worst = series.points.iter().rev().max_by(by_loss);
    let worst = worst.filter(|point| point.lost > 0).map_or_else(String::new, |point| {
        let most = percent(point.loss_ratio());
        format!("; at most {most} in one interval, that from {}", since_begin(point.at_s))
    });
    let sent = full_count(losses.sent);
    let course = format!("In {length} {lost} of {sent} requests were lost{worst}.");
    match &result.overload {
        None => course,
        Some(overload) => format!("{course} {}", overload_sentence(overload)),
    }
}

/// How a server came out of an overload.
fn overload_sentence(overload: &Overload) -> String {
    let resolution = human_ns((overload.resolution_ms.max(0.0) * 1e6) as u64);
    let recovery = match overload.recovery_ms {
        None => "it was not as before until the end".to_owned(),
        Some(ms) if ms > 0.0 => {
            format!("{} after that it was as before", human_ns((ms * 1e6) as u64))
        }
        Some(_) => format!("within {resolution} after that it was as before"),
    };
    format!(
        "Of {} the server answered {}; {recovery}.",
        human_rate(overload.overload_rate),
        // Both are rates of the same time, to the length of an interval.
        human_rate(overload.answered_rate.min(overload.overload_rate))
    )
}

/// The goal by its name: `No-drop rate` or `Partial-drop rate`.
pub(crate) const fn goal_name(kind: SearchKind) -> &'static str {
    match kind {
        SearchKind::Ndr => "No-drop rate",
        SearchKind::Pdr => "Partial-drop rate",
    }
}

/// What a search found.
pub(crate) fn search_sentence(search: &SearchResult) -> String {
    let goal = if search.goal_loss_ratio > 0.0 {
        format!("loss of at most {}", percent(search.goal_loss_ratio))
    } else {
        "no loss at all".to_owned()
    };
    let name = goal_name(search.kind);
    let held = match (search.lower, search.upper) {
        (Some(lower), Some(upper)) => format!(
            "{} held with {} lost, {} did not hold",
            human_rate(lower),
            percent(search.loss_ratio),
            human_rate(upper)
        ),
        (Some(lower), None) => {
            format!("{} held with {} lost", human_rate(lower), percent(search.loss_ratio))
        }
        (None, Some(upper)) => format!("{} did not hold", human_rate(upper)),
        (None, None) => "no rate was decided".to_owned(),
    };
    format!("{name} ({goal}): {held}; {}.", end_reason(search.end))
}

/// Why a search ended, to follow a semicolon.
pub(crate) const fn end_reason(end: SearchEnd) -> &'static str {
    match end {
        SearchEnd::Converged => "the bounds are as close as was asked",
        SearchEnd::CappedAtMax => "the highest rate allowed held, so the limit lies at or above it",
        SearchEnd::BelowMin => "not even the lowest rate allowed held",
        SearchEnd::GeneratorLimit => {
            "the generator could not send more, so the limit lies at or above it"
        }
        SearchEnd::BudgetSpent => {
            "the search's time or trials were used up before the bounds were close"
        }
    }
}

fn ramp_sentence(trials: &[Trial]) -> String {
    match highest_within(trials, 0.0) {
        None if trials.is_empty() => "No trial was run.".to_owned(),
        None => "No trial was without loss.".to_owned(),
        Some(held) => {
            let rate = human_rate(held.achieved_rate);
            let failed = trials
                .iter()
                .filter(|trial| trial.lost > 0 && trial.achieved_rate > held.achieved_rate)
                .min_by(|a, b| a.achieved_rate.total_cmp(&b.achieved_rate));
            let said = match failed {
                Some(failed) => format!(
                    "Highest trial without loss: {rate}; the next, at {}, lost {}.",
                    human_rate(failed.achieved_rate),
                    percent(failed.loss_ratio())
                ),
                None => format!("Highest trial without loss: {rate}; none above it lost any."),
            };
            let below = |trial: &&Trial| trial.lost > 0 && trial.achieved_rate < held.achieved_rate;
            match trials.iter().filter(below).count() {
                0 => said,
                1 => format!("{said} One trial below it lost some."),
                count => format!("{said} {count} trials below it lost some."),
            }
        }
    }
}

/// The index of the trial that stands for the run: the one at the search's lower bound, or the
/// highest without loss where there was no search.
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

/// Requests sent and lost in all trials together, and where the lost ones went, most first.
pub(crate) struct Losses {
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) places: Vec<(Place, u64)>,
}

impl Losses {
    /// Adds up the trials.
    pub(crate) fn of(trials: &[Trial]) -> Self {
        let mut by_place = BTreeMap::<Place, u64>::new();
        for (place, count) in trials.iter().flat_map(|trial| &trial.lost_at) {
            let sum = by_place.entry(*place).or_default();
            *sum = sum.saturating_add(*count);
        }
        let mut places: Vec<_> = by_place.into_iter().filter(|(_, count)| *count > 0).collect();
        places.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let sum =
            |field: fn(&Trial) -> u64| trials.iter().map(field).fold(0_u64, u64::saturating_add);
        Self { sent: sum(|trial| trial.sent), lost: sum(|trial| trial.lost), places }
    }
}

/// A place's name in a sentence.
pub(crate) const fn place_name(place: Place) -> &'static str {
    match place {
        Place::Generator => "generator",
        Place::OwnRing => "own receive ring",
        Place::Link => "link",
        Place::Interface => "server's interface",
        Place::Socket => "server's socket",
        Place::Server => "server",
        Place::Late => "nowhere, but too late",
        Place::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_course_is_told_by_its_loss_and_its_worst_interval() {
        let mut result = fixture::load();
        (result.search, result.series) = (None, Some(fixture::series()));
        result.trials =
            vec![Trial { sent: 300, lost: 150, duration_s: 1.5, ..fixture::silent_trial() }];
        let course = "In 1.5 s 50.00% of 300 requests were lost; at most 100.00% in one interval, \
                      that from 1.00 s.";
        assert_eq!(sentence(&result), course);
        let points = &mut result.series.as_mut().unwrap().points;
        points.extend_from_within(2..);
        points[3].at_s = 1.5;
        assert_eq!(sentence(&result), course, "the first of several that are alike");
        let overload = Overload {
            base_rate: 5e3,
            overload_rate: 30e3,
            overload_s: 2.0,
            answered_rate: 9e3,
            recovery_ms: Some(200.0),
            resolution_ms: 100.0,
        };
        let told = |overload| sentence(&LoadResult { overload: Some(overload), ..result.clone() });
        let late = told(overload.clone());
        assert!(
            late.ends_with(
                "Of 30.0 k/s the server answered 9.00 k/s; 200 ms after that it was as before."
            ),
            "{late}"
        );
        let at_once = told(Overload { recovery_ms: Some(0.0), ..overload.clone() });
        assert!(at_once.ends_with("within 100 ms after that it was as before."), "{at_once}");
        let never = told(Overload { recovery_ms: None, ..overload });
        assert!(never.ends_with("it was not as before until the end."), "{never}");
    }

    #[test]
    fn the_sign_says_why_the_search_ended() {
        let mut result = fixture::load();
        let search = result.search.as_mut().unwrap();
        (search.lower, search.upper) = (Some(3_980_000.0), Some(4_010_000.0));
        let cases = [
            (SearchEnd::Converged, Some(3.98e6), Some(4.01e6), "3.98 M/s"),
            (SearchEnd::BudgetSpent, Some(3.98e6), Some(4.01e6), "3.98 M/s"),
            (SearchEnd::BudgetSpent, Some(3.98e6), Some(8e6), "≥ 3.98 M/s"),
            (SearchEnd::BudgetSpent, Some(3.98e6), None, "≥ 3.98 M/s"),
            (SearchEnd::GeneratorLimit, Some(3.98e6), None, "≥ 3.98 M/s"),
            (SearchEnd::CappedAtMax, Some(3.98e6), None, "≥ 3.98 M/s"),
            (SearchEnd::BelowMin, None, Some(1000.0), "< 1.00 k/s"),
            (SearchEnd::BelowMin, None, None, "-"),
        ];
        for (end, lower, upper, text) in cases {
            let search = result.search.as_mut().unwrap();
            (search.end, search.lower, search.upper) = (end, lower, upper);
            assert_eq!(Highest::of(&result).text(), text, "{end:?}");
        }
    }

    #[test]
    fn ratios_keep_the_doubts_of_both_sides() {
        use Highest::{AtLeast, Below, Exactly, Nothing};
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
            "No-drop rate (loss of at most 0.01%): 3.81 M/s held with 0.00% lost, 3.98 M/s did not \
             hold; the bounds are as close as was asked."
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
        assert_eq!(Highest::of(&result).text(), "≥ 3.81 M/s");
        result.trials.clear();
        assert_eq!(sentence(&result), "No trial was run.");
        assert_eq!(Highest::of(&result), Highest::Nothing);
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
        let losses = Losses::of(&result.trials);
        assert!(losses.lost > 0);
        assert_eq!(losses.places.iter().map(|(_, count)| count).sum::<u64>(), losses.lost);
        assert!(losses.places.is_sorted_by(|a, b| a.1 >= b.1));
    }
}
