//! Table of the open connections of one thread. A connection's slot number is its epoll token.

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

    /// Returns the connection in a slot; `None` if it was closed after its event was reported.
    pub(crate) fn get(&mut self, slot: usize) -> Option<&mut KeConnection> {
        self.slots.get_mut(slot)?.as_mut()
    }

    pub(crate) fn remove(&mut self, slot: usize) -> Option<KeConnection> {
        let connection = self.slots.get_mut(slot)?.take()?;
        self.by_age.remove(&(connection.opened, slot));
        self.free.push(slot);
        Some(connection)
    }

    /// Returns the start and the slot of the oldest connection.
    pub(crate) fn oldest(&self) -> Option<(Instant, usize)> {
        self.by_age.first().copied()
    }
}
