//! Exchange of a node with its peers in a step, and its values in the step's entry. Pure.

use crate::entry::PeriodEntry;

/// Outcome of an exchange of messages, or of a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct StepExchange {
    /// Sending, and the transit time of the last arrival.
    pub(crate) transit_ns: u64,
    /// Waiting for it before it was sent.
    pub(crate) idle_ns: u64,
    /// Nodes that did not arrive.
    pub(crate) missing: u16,
    /// Node that was waited for last.
    pub(crate) awaited: Option<u16>,
}

impl StepExchange {
    /// Records the messages of a step in its entry.
    pub(crate) fn of_messages(self, entry: &mut PeriodEntry) {
        entry.communicate_ns = self.transit_ns;
        entry.idle_ns = self.idle_ns;
        entry.missing = self.missing;
        entry.straggler = self.awaited;
    }

    /// Records the barrier of a step in its entry, after its messages.
    pub(crate) fn of_barrier(self, entry: &mut PeriodEntry) {
        entry.barrier_ns = self.transit_ns;
        entry.idle_ns += self.idle_ns;
        entry.is_broken = self.missing > 0;
        entry.straggler = self.awaited.or(entry.straggler);
    }
}
