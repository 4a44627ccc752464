//! Messages between the leader of a run and its members on other hosts: a line of JSON each, over
//! TCP.

use serde::{Deserialize, Serialize};

use crate::entry::{PeriodEntry, WORDS};
use crate::node::{FAILURE_WORDS, LINE_MAX, NodeOrder, NodeReply, NodeStart};

/// Version of these messages; both sides must have the same.
pub(crate) const PROTOCOL: u32 = 4;
/// Longest line of a member, in bytes: the most entries with the largest numbers, and a margin.
pub(crate) const MEMBER_LINE_MAX: u64 = 1 << 19;
/// Entries in one message, at most.
pub(crate) const ENTRIES_MAX: usize = 2_000;

/// Message from a member to the leader.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum MemberMessage {
    /// The first message.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// Name that the node is to have.
        name: String,
        /// The member's host.
        host: horolog_record::Host,
    },
    /// Reply to an order: ready or not.
    Answer(NodeReply),
    /// Offset of its clock.
    Clock(NodeClockOffset),
    /// Reason for which its clock could not be measured.
    ClockUnknown(String),
    /// Outcomes of a task's periods.
    Entries {
        /// Index of the task.
        task: usize,
        /// The entries.
        words: Vec<[u64; WORDS]>,
    },
    /// Sign of life, with the state that entries do not carry.
    State {
        /// For each task.
        tasks: Vec<TaskState>,
        /// Exit reason of its process, if it has ended.
        ended: Option<String>,
    },
}

/// State of a task that entries do not carry.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub(crate) struct TaskState {
    pub(crate) is_over: bool,
    pub(crate) lost: u64,
    /// Entries of periods among the lost ones.
    pub(crate) lost_periods: u64,
    pub(crate) latency_ns: Option<u64>,
    /// Reason for which its command failed or its program was abandoned, as words; all 0 if none.
    pub(crate) fault: [u64; FAILURE_WORDS],
    /// Number of detected steps of the system clock.
    pub(crate) clock_sets: u64,
}

/// Message from the leader to a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum LeaderMessage {
    /// Order for a run.
    Order(NodeOrder),
    /// The member is refused, for this reason.
    Refused(String),
    /// Begin.
    Go(NodeStart),
    /// The start is cancelled, for this reason, and the leader ends.
    CalledOff(String),
    /// End early.
    Stop,
}

/// Lead of a node's clock over the leader's, in ns, with its error bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeClockOffset {
    /// Positive if the node's clock is ahead.
    pub ahead_ns: i64,
    /// Error bound in either direction.
    pub error_ns: u64,
}

/// Parses a line; `None` if it is too long, or not a message.
pub(crate) fn read<T: serde::de::DeserializeOwned>(line: &str) -> Option<T> {
    (line.len() as u64 <= LINE_MAX).then(|| serde_json::from_str(line).ok()).flatten()
}

/// Encodes entries as words.
pub(crate) fn words(entries: &[PeriodEntry]) -> Vec<[u64; WORDS]> {
    entries.iter().map(|entry| entry.to_words()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_message_of_a_member_is_read() {
        let words = vec![[u64::MAX; WORDS]; ENTRIES_MAX];
        let line = serde_json::to_string(&MemberMessage::Entries { task: 63, words }).unwrap();
        assert!((line.len() as u64) < MEMBER_LINE_MAX, "{}", line.len());
        assert!(matches!(read(&line), Some(MemberMessage::Entries { task: 63, .. })));
    }
}
