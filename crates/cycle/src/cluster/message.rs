//! Messages between the leader of a run and its members on other hosts: one line of JSON each, over
//! TCP.

use serde::{Deserialize, Serialize};

use crate::entry::{ENTRY_WORDS, PeriodEntry};
use crate::node::{FAILURE_WORDS, LINE_MAX, NodeOrder, NodeReady, NodeStartCommand};

/// Version of the protocol; leader and members must have the same.
pub(crate) const PROTOCOL_VERSION: u32 = 4;
/// Longest line of a member, in bytes: [`ENTRIES_MAX`] entries of the largest numbers, and a
/// margin.
pub(crate) const MEMBER_LINE_MAX: u64 = 1 << 19;
/// Largest number of entries in one message.
pub(crate) const ENTRIES_MAX: usize = 2_000;

/// Message from a member to the leader.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum MemberMessage {
    /// First message after the connection.
    Hello {
        /// Version of the member, [`PROTOCOL_VERSION`].
        protocol: u32,
        /// Requested name of the node.
        name: String,
        /// The member's host.
        host: horolog_record::Host,
    },
    /// Reply of the node to its order.
    Answer(NodeReply),
    /// Offset of the member's clock.
    Clock(NodeClockOffset),
    /// The member's clock could not be measured; the text is the reason.
    ClockUnknown(String),
    /// Entries of a task.
    Entries {
        /// Index of the task.
        task: usize,
        /// Encoded entries.
        words: Vec<[u64; ENTRY_WORDS]>,
    },
    /// Heartbeat, with the state of the tasks that entries do not carry.
    State {
        /// State of each task.
        tasks: Vec<TaskStatus>,
        /// Exit reason of the node's process, if it has exited.
        ended: Option<String>,
    },
}

/// Reply of a node to its order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum NodeReply {
    /// All tasks are ready to start.
    Ready(NodeReady),
    /// The node failed; the text is the reason.
    Failed(String),
}

/// State of a task in the shared memory of its node: values that entries do not carry.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub(crate) struct TaskStatus {
    pub(crate) is_over: bool,
    pub(crate) lost: u64,
    /// Number of lost entries that were of periods.
    pub(crate) lost_periods: u64,
    pub(crate) latency_ns: Option<u64>,
    /// Words of the failure of the task's command or program; all 0 if there is none.
    pub(crate) fault: [u64; FAILURE_WORDS],
    /// Number of detected steps of the system clock.
    pub(crate) clock_sets: u64,
}

/// Message from the leader to a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum LeaderMessage {
    /// Order for a run.
    Order(NodeOrder),
    /// Refusal of the member, with the reason.
    Refused(String),
    /// Start of the run.
    Go(NodeStartCommand),
    /// Cancellation of the start, with the reason; the leader then ends.
    CalledOff(String),
    /// Early end of the run.
    Stop,
}

/// Offset of a node's clock from the leader's, in ns, with its error bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeClockOffset {
    /// Offset in ns, positive if the node's clock is ahead.
    pub ahead_ns: i64,
    /// Error bound in either direction, in ns.
    pub error_ns: u64,
}

/// Parses a line as a message; `None` if it is too long or not a message.
pub(crate) fn parse_line<T: serde::de::DeserializeOwned>(line: &str) -> Option<T> {
    (line.len() as u64 <= LINE_MAX).then(|| serde_json::from_str(line).ok()).flatten()
}

/// Encodes entries for [`MemberMessage::Entries`].
pub(crate) fn encode_entries(entries: &[PeriodEntry]) -> Vec<[u64; ENTRY_WORDS]> {
    entries.iter().map(|entry| entry.to_words()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_message_of_a_member_is_read() {
        let words = vec![[u64::MAX; ENTRY_WORDS]; ENTRIES_MAX];
        let line = serde_json::to_string(&MemberMessage::Entries { task: 63, words }).unwrap();
        assert!((line.len() as u64) < MEMBER_LINE_MAX, "{}", line.len());
        assert!(matches!(parse_line(&line), Some(MemberMessage::Entries { task: 63, .. })));
    }
}
