//! The open connections of one thread, each in a slot whose number is its token, and in the order
//! of their age.

use std::collections::BTreeSet;
use std::time::Instant;

use super::connection::Connection;

#[derive(Default)]
pub(crate) struct Table {
    slots: Vec<Option<Connection>>,
    free: Vec<usize>,
    by_age: BTreeSet<(Instant, usize)>,
}

impl Table {
    pub(crate) fn insert(&mut self, connection: Connection) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.by_age.insert((connection.opened, slot));
        self.slots[slot] = Some(connection);
        slot
    }

    /// None if it has been closed since its token was reported.
    pub(crate) fn get(&mut self, slot: usize) -> Option<&mut Connection> {
        self.slots.get_mut(slot)?.as_mut()
    }

    pub(crate) fn remove(&mut self, slot: usize) -> Option<Connection> {
        let connection = self.slots.get_mut(slot)?.take()?;
        self.by_age.remove(&(connection.opened, slot));
        self.free.push(slot);
        Some(connection)
    }

    /// When the oldest was opened, and its slot.
    pub(crate) fn oldest(&self) -> Option<(Instant, usize)> {
        self.by_age.first().copied()
    }
}
