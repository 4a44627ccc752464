//! The open connections of one thread, each in a slot whose number is its token, and ordered by
//! age.

use std::collections::BTreeSet;
use std::time::Instant;

use super::connection::KeConnection;

#[derive(Default)]
pub(crate) struct ConnectionTable {
    slots: Vec<Option<KeConnection>>,
    free: Vec<usize>,
    by_age: BTreeSet<(Instant, usize)>,
}

impl ConnectionTable {
    pub(crate) fn insert(&mut self, connection: KeConnection) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.by_age.insert((connection.opened, slot));
        self.slots[slot] = Some(connection);
        slot
    }

    /// The connection in a slot; `None` if it was closed after its token was reported.
    pub(crate) fn get(&mut self, slot: usize) -> Option<&mut KeConnection> {
        self.slots.get_mut(slot)?.as_mut()
    }

    pub(crate) fn remove(&mut self, slot: usize) -> Option<KeConnection> {
        let connection = self.slots.get_mut(slot)?.take()?;
        self.by_age.remove(&(connection.opened, slot));
        self.free.push(slot);
        Some(connection)
    }

    /// Start of the oldest connection, and its slot.
    pub(crate) fn oldest(&self) -> Option<(Instant, usize)> {
        self.by_age.first().copied()
    }
}
