//! Engine with up to [`SLOTS`] copies in one sendmmsg(2), of several packets if these have few
//! children. It saves system calls; the kernel's work for each copy is the same.

use std::os::fd::AsFd;

use horolog_sys::message::{MmsghdrTable, OutgoingDatagram};
use horolog_sys::socket::DatagramSocket;

use super::{CopySender, OutgoingCopy};
use crate::CopyDrop;

/// Maximum number of copies in one call; more gain nothing measurable.
const SLOTS: usize = 64;

#[derive(Debug)]
pub(super) struct SendmmsgEngine(MmsghdrTable);

impl SendmmsgEngine {
    pub(super) fn new() -> Self {
        Self(MmsghdrTable::new(SLOTS))
    }

    /// Sends the copies of one call. The kernel stops at a copy that it refuses, and returns the
    /// reason if that is the first one.
    fn send_slots(&mut self, socket: &DatagramSocket, mut copies: &[Option<OutgoingCopy<'_>>]) {
        while let [Some(first), ..] = copies {
            let messages = copies.iter().flatten().map(|copy| OutgoingDatagram {
                bytes: copy.bytes,
                remote: Some(copy.child.address),
                local: None,
                transmit_timestamp: None,
            });
            let remaining = match self.0.send(socket.as_fd(), messages) {
                // The kernel never returns 0 here; a loop without an end would be worse.
                Ok(0) => break,
                Ok(sent) => {
                    let (gone, left) = copies.split_at(sent.min(copies.len()));
                    gone.iter()
                        .flatten()
                        .for_each(|copy| copy.child.counters.count_sent(copy.bytes.len()));
                    left
                }
                Err(error) => {
                    first.child.counters.count_dropped(CopyDrop::from_error(&error));
                    &copies[1..]
                }
            };
            copies = remaining;
        }
    }
}

impl CopySender for SendmmsgEngine {
    fn send<'a>(
        &mut self,
        socket: &DatagramSocket,
        copies: &mut (dyn Iterator<Item = OutgoingCopy<'a>> + '_),
    ) {
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
