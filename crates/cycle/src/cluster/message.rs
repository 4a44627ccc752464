//! What the leader of a run and its members on other machines say to each other: a line of JSON for
//! each message, over TCP.

use serde::{Deserialize, Serialize};

use crate::entry::{Entry, WORDS};
use crate::node::{Answer, FAULT_WORDS, Go, LINE_MAX, Order};

/// The version of these messages; both sides have the same.
pub(crate) const PROTOCOL: u32 = 4;
/// The longest line of a member, in bytes: so many entries of the largest numbers, and a little.
pub(crate) const MEMBER_LINE_MAX: u64 = 1 << 19;
/// Entries in one message, at most.
pub(crate) const ENTRIES_MAX: usize = 2_000;

/// From a member to the leader.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum FromMember {
    /// The first message.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// The name that the node is to have.
        name: String,
        /// The machine.
        host: horolog_record::Host,
    },
    /// Whether it can begin.
    Answer(Answer),
    /// How far its clock is off.
    Clock(Clock),
    /// Its clock cannot be told.
    ClockUnknown(String),
    /// What became of periods of a task.
    Entries {
        /// Its place.
        task: usize,
        /// The entries.
        words: Vec<[u64; WORDS]>,
    },
    /// It is there, and this is what is not told by entries.
    State {
        /// For each task.
        tasks: Vec<TaskState>,
        /// How its process ended, if it has.
        ended: Option<String>,
    },
}

/// What is not told by entries.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub(crate) struct TaskState {
    pub(crate) is_over: bool,
    pub(crate) lost: u64,
    /// Of those that were lost, the entries of periods.
    pub(crate) lost_periods: u64,
    pub(crate) latency_ns: Option<u64>,
    /// Why its command failed or its program was given up, as words; all 0 where nothing did.
    pub(crate) fault: [u64; FAULT_WORDS],
    /// How often the system clock was found to be set.
    pub(crate) clock_sets: u64,
}

/// From the leader to a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum FromLeader {
    /// What to do.
    Order(Order),
    /// It is not wanted, for this reason.
    Refused(String),
    /// Begin.
    Go(Go),
    /// Nothing begins, for this reason, and the leader is through.
    CalledOff(String),
    /// End early.
    Stop,
}

/// How far a node's clock is ahead of the leader's, in ns, and by how much that may be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Clock {
    /// Ahead where it is positive.
    pub ahead_ns: i64,
    /// Either way.
    pub error_ns: u64,
}

/// Reads a line; `None` where it is too long, or no message.
pub(crate) fn read<T: serde::de::DeserializeOwned>(line: &str) -> Option<T> {
    (line.len() as u64 <= LINE_MAX).then(|| serde_json::from_str(line).ok()).flatten()
}

/// Entries as words.
pub(crate) fn words(entries: &[Entry]) -> Vec<[u64; WORDS]> {
    entries.iter().map(|entry| entry.to_words()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_message_of_a_member_is_read() {
        let words = vec![[u64::MAX; WORDS]; ENTRIES_MAX];
        let line = serde_json::to_string(&FromMember::Entries { task: 63, words }).unwrap();
        assert!((line.len() as u64) < MEMBER_LINE_MAX, "{}", line.len());
        assert!(matches!(read(&line), Some(FromMember::Entries { task: 63, .. })));
    }
}
