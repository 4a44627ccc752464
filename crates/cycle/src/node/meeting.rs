//! How a node met the others in a step, and what of it stands in the step's entry. Pure.

use crate::entry::Entry;

/// How an exchange of messages, or a barrier, went.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Meeting {
    /// Sending, and what the last that came took on its way.
    pub(crate) on_the_way_ns: u64,
    /// Waiting for it before it was sent.
    pub(crate) idle_ns: u64,
    /// Nodes that did not come.
    pub(crate) missing: u16,
    /// The node that was waited for last.
    pub(crate) awaited: Option<u16>,
}

impl Meeting {
    /// Tells it of the messages of a step.
    pub(crate) fn of_messages(self, entry: &mut Entry) {
        entry.communicate_ns = self.on_the_way_ns;
        entry.idle_ns = self.idle_ns;
        entry.missing = self.missing;
        entry.awaited = self.awaited;
    }

    /// Tells it of the barrier of a step, behind its messages.
    pub(crate) fn of_barrier(self, entry: &mut Entry) {
        entry.barrier_ns = self.on_the_way_ns;
        entry.idle_ns += self.idle_ns;
        entry.is_broken = self.missing > 0;
        entry.awaited = self.awaited.or(entry.awaited);
    }
}
