//! Source selection (RFC 5905, section 11.2.1): the sources that are right if the majority is. It
//! never averages sources that contradict one another, and selects none without a majority. Pure.
//!
//! Unlike in the RFC, only the intervals count and not their midpoints: a source that is right to a
//! microsecond and one that is right to 20 ms agree if the first lies anywhere within the 20 ms of
//! the second.

use horolog_time::{Monotonic, Timestamp};

use crate::SourceEstimate;

/// Candidate of the selection: a source that reports to be synchronised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SelectionCandidate<'a> {
    /// Name of the source.
    pub name: &'a str,
    /// Estimate of the source.
    pub report: SourceEstimate,
}

/// Result of a selection.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SelectionResult {
    /// Index of the selected candidate; `None` without a majority.
    pub selected: Option<usize>,
    /// Indices of the candidates that agree with the majority.
    pub truechimers: Vec<usize>,
    /// Names of the candidates that contradict the majority; empty without a majority.
    pub falsetickers: Vec<String>,
}

/// Closed interval of offsets, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OffsetInterval {
    low: i64,
    high: i64,
}

impl OffsetInterval {
    fn overlaps(self, other: Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}

/// Selects among the candidates at `now`. The candidate named `current` remains selected while it
/// is a truechimer with at most twice the smallest root distance, so that the served time does not
/// alternate between equal sources.
#[must_use]
pub fn select(
    candidates: &[SelectionCandidate<'_>],
    current: Option<&str>,
    now: Timestamp<Monotonic>,
) -> SelectionResult {
    let intervals: Vec<_> =
        candidates.iter().map(|candidate| offset_interval(&candidate.report, now)).collect();
    let regions = densest_regions(&intervals);
    let depth = regions.first().map_or(0, |region| overlap_count(&intervals, region.low));
    if 2 * depth <= candidates.len() {
        return SelectionResult::default();
    }
    // If several regions overlap equally often, true time may lie in any of them, so a truechimer
    // must overlap all of them. There always is one, because two majorities share a member.
    let is_right = |&index: &usize| regions.iter().all(|region| region.overlaps(intervals[index]));
    let (truechimers, false_indices): (Vec<_>, Vec<_>) = (0..candidates.len()).partition(is_right);
    let falsetickers = false_indices.into_iter().map(|index| candidates[index].name.to_owned());
    let selected = best_truechimer(candidates, &truechimers, current, now);
    SelectionResult { selected, falsetickers: falsetickers.collect(), truechimers }
}

fn offset_interval(report: &SourceEstimate, now: Timestamp<Monotonic>) -> OffsetInterval {
    let (offset, distance) = (report.offset_at(now), report.root_distance_at(now));
    OffsetInterval { low: (offset - distance).as_ns(), high: (offset + distance).as_ns() }
}

fn overlap_count(intervals: &[OffsetInterval], at: i64) -> usize {
    intervals.iter().filter(|one| (one.low..=one.high).contains(&at)).count()
}

/// Returns the regions in which the most intervals overlap. Each starts where an interval starts,
/// and ends at the first end of the intervals that cover its start.
fn densest_regions(intervals: &[OffsetInterval]) -> Vec<OffsetInterval> {
    let starts = intervals.iter().map(|one| (overlap_count(intervals, one.low), one.low));
    let depth_max = starts.clone().map(|(depth, _)| depth).max().unwrap_or(0);
    let region = |(_, low): (usize, i64)| {
        let covering = intervals.iter().filter(|one| one.low <= low && one.high >= low);
        let high = covering.map(|one| one.high).min().unwrap_or(low);
        OffsetInterval { low, high }
    };
    let mut regions: Vec<_> = starts.filter(|(depth, _)| *depth == depth_max).map(region).collect();
    regions.sort_by_key(|region| region.low);
    regions.dedup();
    regions
}

fn best_truechimer(
    candidates: &[SelectionCandidate<'_>],
    truechimers: &[usize],
    current: Option<&str>,
    now: Timestamp<Monotonic>,
) -> Option<usize> {
    let distance = |index: usize| candidates[index].report.root_distance_at(now).as_ns();
    let nearest = truechimers.iter().copied().min_by_key(|&index| distance(index))?;
    let is_near_enough = |&index: &usize| {
        Some(candidates[index].name) == current && distance(index) / 2 <= distance(nearest)
    };
    Some(truechimers.iter().copied().find(is_near_enough).unwrap_or(nearest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::tests::report;
    use horolog_time::Span;

    const NOW: Timestamp<Monotonic> = Timestamp::from_ns(0);
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

    fn ballot(of: &[(i64, i64)]) -> SelectionResult {
        vote_keeping(of, None)
    }

    fn vote_keeping(of: &[(i64, i64)], current: Option<&str>) -> SelectionResult {
        let candidates: Vec<_> = std::iter::zip(NAMES, of)
            .map(|(name, &(offset, width))| SelectionCandidate {
                name,
                report: report(offset, width),
            })
            .collect();
        select(&candidates, current, NOW)
    }

    #[test]
    fn no_candidate_selects_none_and_a_single_one_is_selected() {
        assert_eq!(ballot(&[]), SelectionResult::default());
        assert_eq!(ballot(&[(5, 1)]).selected, Some(0));
    }

    #[test]
    fn a_precise_source_within_a_vague_one_is_selected() {
        let vote = ballot(&[(0, 20_000), (15_000, 10)]);
        assert_eq!((vote.selected, vote.truechimers), (Some(1), vec![0, 1]));
    }

    #[test]
    fn equals_do_not_take_turns() {
        let of = [(0, 100), (0, 60), (0, 200)];
        assert_eq!(ballot(&of).selected, Some(1));
        assert_eq!(vote_keeping(&of, Some("a")).selected, Some(0));
        assert_eq!(vote_keeping(&of, Some("c")).selected, Some(1), "more than twice as wide");
    }

    #[test]
    fn between_two_majorities_only_their_common_member_is_right() {
        let vote = ballot(&[(0, 100), (-150, 60), (150, 60)]);
        assert_eq!((vote.selected, vote.truechimers), (Some(0), vec![0]));
        assert_eq!(vote.falsetickers, ["b", "c"]);
    }

    #[test]
    fn two_against_two_select_none() {
        assert_eq!(ballot(&[(0, 10), (1, 10), (500, 10), (501, 10)]), SelectionResult::default());
    }

    #[test]
    fn age_widens_the_interval() {
        let old = SelectionCandidate { name: "a", report: report(0, 10) };
        let at = Timestamp::from_ns(1_000_000_000);
        let fresh =
            SelectionCandidate { name: "b", report: SourceEstimate { at, ..report(10_000, 10) } };
        assert_eq!(select(&[old, fresh], None, NOW).selected, None);
        assert_eq!(select(&[old, fresh], None, at).selected, Some(1), "15 us in a second");
    }

    proptest! {
        #[test]
        fn a_single_liar_among_three_is_always_voted_out(
            errors in proptest::array::uniform2(-1_000i64..1_000),
            slack in proptest::array::uniform2(0i64..1_000),
            lie in 10_000i64..1 << 60,
            sign in proptest::bool::ANY,
            width in 0i64..1_000,
            liar in 0usize..3,
        ) {
            let lie = if sign { lie } else { -lie };
            // The honest ones contain the truth, which is 0.
            let mut of: Vec<_> =
                std::iter::zip(errors, slack).map(|(e, s)| (e, e.abs() + s)).collect();
            of.insert(liar, (lie, width));
            let vote = ballot(&of);
            prop_assert_eq!(vote.falsetickers, [NAMES[liar].to_owned()]);
            prop_assert!(vote.selected.is_some_and(|selected| selected != liar));
        }

        #[test]
        fn two_that_disagree_elect_nobody(offset in -1i64 << 60..1 << 60, widths in proptest::array::uniform2(0i64..1 << 40), apart in 1i64..1 << 40) {
            let other = offset + widths[0] + widths[1] + apart;
            prop_assert_eq!(ballot(&[(offset, widths[0]), (other, widths[1])]), SelectionResult::default());
        }

        #[test]
        fn a_majority_is_always_found(
            honest in proptest::collection::vec((-1_000i64..1_000, 0i64..1_000), 3),
            liars in proptest::collection::vec((-5_000i64..5_000, 0i64..5_000), 0..=2),
        ) {
            let of: Vec<_> = honest.iter().map(|&(e, s)| (e, e.abs() + s)).chain(liars).collect();
            let vote = ballot(&of);
            prop_assert!(vote.selected.is_some());
            prop_assert!(vote.truechimers.len() + vote.falsetickers.len() == of.len());
        }

        #[test]
        fn the_order_of_candidates_does_not_matter(of in proptest::collection::vec((-100i64..100, 0i64..50), 0..5)) {
            let distance = |of: &[(i64, i64)]| ballot(of).selected.map(|selected| of[selected].1);
            let backwards: Vec<_> = of.iter().rev().copied().collect();
            prop_assert_eq!(distance(&of), distance(&backwards));
        }

        #[test]
        fn extremes_do_not_overflow(of in proptest::collection::vec((any::<i64>(), 0i64..), 0..5)) {
            let now = Timestamp::from_ns(i64::MAX);
            let candidates: Vec<_> = of.iter().map(|&(offset, width)| {
                let report = SourceEstimate { frequency_ppb: i64::MAX, root_delay: Span::from_ns(width), ..report(offset, width) };
                SelectionCandidate { name: "x", report }
            }).collect();
            let _ = select(&candidates, Some("x"), now);
        }
    }
}
