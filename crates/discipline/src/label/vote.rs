//! Sentences in a row that name the same count of seconds.

use super::count::CountAnchor;
use horolog_time::Span;

/// Count named by the last sentences, and the number of consecutive sentences that named it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LabelVote {
    pub(super) count: CountAnchor,
    pub(super) votes: u32,
}

impl LabelVote {
    /// Adds the vote of a sentence and returns the result. A count other than that of the previous
    /// sentence starts again with one vote.
    pub(super) fn update(vote: &mut Option<Self>, named: CountAnchor, tolerance: Span) -> Self {
        let previous = vote.filter(|vote| {
            let (expected, distance) = vote.count.nearest_count(named.at);
            // Sentences may be missing in between; the clock may drift by the tolerance in every
            // second.
            let seconds = 1 + (named.at - vote.count.at).as_seconds().abs() as i64;
            expected.second == named.second && distance.as_ns().abs() <= tolerance.as_ns() * seconds
        });
        let votes = previous.map_or(1, |before| before.votes.saturating_add(1));
        *vote.insert(Self { count: named, votes })
    }
}
