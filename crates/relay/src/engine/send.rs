//! Engine with one sendto(2) for each child: host-based multicast as it is usually done.

use std::os::fd::AsFd;

use horolog_sys::datagram::send_to;
use horolog_sys::socket::Socket;

use super::{CopySender, Outbound};
use crate::CopyDrop;

#[derive(Debug)]
pub(super) struct Send;

impl CopySender for Send {
    fn send<'a>(&mut self, socket: &Socket, copies: &mut (dyn Iterator<Item = Outbound<'a>> + '_)) {
        for Outbound { bytes, child } in copies {
            match send_to(socket.as_fd(), bytes, child.address) {
                Ok(()) => child.counters.sent(bytes.len()),
                Err(error) => child.counters.dropped(CopyDrop::of(&error)),
            }
        }
    }
}
