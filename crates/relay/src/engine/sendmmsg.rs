//! Up to [`SLOTS`] copies by one sendmmsg(2), of several packets where those have few children. It
//! saves the entry into the kernel, and nothing of the way from there.

use std::os::fd::AsFd;

use horolog_sys::message::{MessageTable, Outgoing};
use horolog_sys::socket::Socket;

use super::{Engine, Outbound};
use crate::Drop;

/// More in one call gain nothing that can be measured.
const SLOTS: usize = 64;

#[derive(Debug)]
pub(super) struct Sendmmsg(MessageTable);

impl Sendmmsg {
    pub(super) fn new() -> Self {
        Self(MessageTable::new(SLOTS))
    }

    /// Sends a call's worth. The kernel stops at one that it refuses, and says why when that one is
    /// the first.
    fn send_slots(&mut self, socket: &Socket, mut copies: &[Option<Outbound<'_>>]) {
        while let [Some(first), ..] = copies {
            let messages = copies.iter().flatten().map(|copy| Outgoing {
                bytes: copy.bytes,
                remote: Some(copy.child.address),
                local: None,
                stamp: None,
            });
            let left = match self.0.send(socket.as_fd(), messages) {
                // It never says so of what it was given; a loop without an end would be worse.
                Ok(0) => break,
                Ok(sent) => {
                    let (gone, left) = copies.split_at(sent.min(copies.len()));
                    gone.iter().flatten().for_each(|copy| copy.child.book.sent(copy.bytes.len()));
                    left
                }
                Err(error) => {
                    first.child.book.dropped(Drop::of(&error));
                    &copies[1..]
                }
            };
            copies = left;
        }
    }
}

impl Engine for Sendmmsg {
    fn send<'a>(&mut self, socket: &Socket, copies: &mut (dyn Iterator<Item = Outbound<'a>> + '_)) {
        loop {
            let mut slots = [None; SLOTS];
            let mut count = 0;
            for (slot, copy) in slots.iter_mut().zip(&mut *copies) {
                *slot = Some(copy);
                count += 1;
            }
            self.send_slots(socket, &slots[..count]);
            if count < SLOTS {
                return;
            }
        }
    }
}
