//! Engines: how copies that were decided upon leave. The host's own two stand here, which hand each
//! copy to a socket; neither ever waits, and neither tries a copy twice.
//!
//! An engine below the host is another body of the same decision ([`crate::decide`]): it is given
//! the table with its lists, limits and children, leaves what it does not know to these, and keeps
//! books of the same kinds.

mod send;
mod sendmmsg;

use horolog_sys::socket::Socket;

use crate::Child;
use send::Send;
use sendmmsg::Sendmmsg;

/// A copy to send.
#[derive(Clone, Copy, Debug)]
pub struct Outbound<'a> {
    /// Its payload.
    pub bytes: &'a [u8],
    /// Who gets it, and the book in which that is noted.
    pub child: &'a Child,
}

/// Sends copies.
pub trait Engine: std::fmt::Debug + std::marker::Send {
    /// Sends all `copies` in their order by a socket, without waiting, and notes in each child's
    /// book what became of its copy. A copy that cannot leave holds up none of the others.
    fn send<'a>(&mut self, socket: &Socket, copies: &mut (dyn Iterator<Item = Outbound<'a>> + '_));
}

/// Which engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineKind {
    /// One system call for each child, as host-based multicast is done.
    Send,
    /// One system call for many copies.
    Sendmmsg,
}

impl EngineKind {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Sendmmsg => "sendmmsg",
        }
    }

    pub(crate) fn make(self) -> Box<dyn Engine> {
        match self {
            Self::Send => Box::new(Send),
            Self::Sendmmsg => Box::new(Sendmmsg::new()),
        }
    }
}
