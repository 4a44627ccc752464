//! Engine with one sendto(2) for each child: host-based multicast as it is usually done.

use std::os::fd::AsFd;

use horolog_sys::datagram::send_to;
use horolog_sys::socket::Socket;

use super::{CopySender, OutgoingCopy};
use crate::CopyDrop;

#[derive(Debug)]
pub(super) struct SendtoEngine;

impl CopySender for SendtoEngine {
    fn send<'a>(
        &mut self,
        socket: &Socket,
        copies: &mut (dyn Iterator<Item = OutgoingCopy<'a>> + '_),
    ) {
        for OutgoingCopy { bytes, child } in copies {
            match send_to(socket.as_fd(), bytes, child.address) {
                Ok(()) => child.counters.count_sent(bytes.len()),
                Err(error) => child.counters.count_dropped(CopyDrop::from_error(&error)),
            }
        }
    }
}
