//! Engines, which send the copies that were decided upon. The two socket engines are defined here;
//! they pass each copy to a socket, never wait, and try no copy twice.
//!
//! The XDP engine is another implementation of the same decision ([`crate::decide()`]): it receives
//! the table with its lists, limits and children, leaves unsupported packets to the socket engines,
//! and keeps counters of the same kinds.

mod sendmmsg;

use std::os::fd::AsFd;

use horolog_sys::datagram::send_to;
use horolog_sys::socket::DatagramSocket;
use sendmmsg::SendmmsgEngine;

use crate::{CopyDrop, GroupChild};

/// Copy to send.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingCopy<'a> {
    /// Payload of the copy.
    pub bytes: &'a [u8],
    /// Receiver of the copy, with the counters for its outcome.
    pub child: &'a GroupChild,
}

/// Sender of copies.
pub trait CopySender: std::fmt::Debug + std::marker::Send {
    /// Sends all `copies` in their order by a socket, without waiting, and counts the outcome of
    /// each in its child's counters. A copy that cannot be sent delays none of the others.
    fn send<'a>(
        &mut self,
        socket: &DatagramSocket,
        copies: &mut (dyn Iterator<Item = OutgoingCopy<'a>> + '_),
    );
}

/// System call by which a socket engine sends copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketEngineKind {
    /// One sendto(2) for each copy, as usual for host-based multicast.
    Send,
    /// One sendmmsg(2) for many copies.
    Sendmmsg,
}

impl SocketEngineKind {
    /// Returns the engine's name: that of its system call, `send` for sendto(2).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Sendmmsg => "sendmmsg",
        }
    }

    pub(crate) fn create_sender(self) -> Box<dyn CopySender> {
        match self {
            Self::Send => Box::new(SendtoEngine),
            Self::Sendmmsg => Box::new(SendmmsgEngine::new()),
        }
    }
}

#[derive(Debug)]
pub(super) struct SendtoEngine;

impl CopySender for SendtoEngine {
    fn send<'a>(
        &mut self,
        socket: &DatagramSocket,
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
