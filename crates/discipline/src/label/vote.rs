//! Sentences in a row that name the same count of seconds.

use super::count::Count;
use horolog_time::Span;

/// What the last sentences named, and how many in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vote {
    pub(super) count: Count,
    pub(super) votes: u32,
}

impl Vote {
    /// Takes what a sentence named for a pulse; another count than that of the one before begins
    /// anew.
    pub(super) fn take(vote: &mut Option<Self>, named: Count, tolerance: Span) -> Self {
        let before = vote.filter(|vote| {
            let (expected, beside) = vote.count.nearest(named.at);
            // Seconds may be missing in between, over which a clock that is off drifts.
            let seconds = 1 + (named.at - vote.count.at).as_seconds().abs() as i64;
            expected.second == named.second && beside.as_ns().abs() <= tolerance.as_ns() * seconds
        });
        let votes = before.map_or(1, |before| before.votes.saturating_add(1));
        *vote.insert(Self { count: named, votes })
    }
}
