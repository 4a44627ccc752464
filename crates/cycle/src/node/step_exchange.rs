//! Exchange of a node with its peers in a superstep, and its fields in the step's entry. Pure.

use crate::entry::PeriodEntry;

/// Outcome of an exchange of messages or of a barrier. Times are in ns.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct StepExchange {
    /// Time of sending, plus the transit time of the last arrival.
    pub(crate) transit_ns: u64,
    /// Waiting time until the last arrival was sent.
    pub(crate) idle_ns: u64,
    /// Number of nodes that did not arrive by the deadline.
    pub(crate) missing: u16,
    /// Node that was waited for last.
    pub(crate) straggler: Option<u16>,
}

impl StepExchange {
    /// Records an exchange of messages in the entry of the step.
    pub(crate) fn record_messages(self, entry: &mut PeriodEntry) {
        entry.communicate_ns = self.transit_ns;
        entry.idle_ns = self.idle_ns;
        entry.missing = self.missing;
        entry.straggler = self.straggler;
    }

    /// Records a barrier, which follows the messages, in the entry of the step.
    pub(crate) fn record_barrier(self, entry: &mut PeriodEntry) {
        entry.barrier_ns = self.transit_ns;
        entry.idle_ns += self.idle_ns;
        entry.is_broken = self.missing > 0;
        entry.straggler = self.straggler.or(entry.straggler);
    }
}
