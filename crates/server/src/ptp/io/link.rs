//! What a port sends and receives by: two UDP sockets or a packet socket, behind one trait.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use horolog_io::{PacketError, UdpError};
use horolog_time::{Monotonic, Timestamp};
use horolog_wire::ptp::PtpTimestamp;

use super::served::Served;
use crate::hardware::By;
use crate::ptp::{Address, Destination};

/// A message that came in.
pub(super) struct Incoming<'a> {
    /// The message, with what follows it in its datagram or frame.
    pub(super) bytes: &'a [u8],
    /// Who sent it.
    pub(super) from: Address,
    /// Whether it was sent to a group.
    pub(super) to_group: bool,
    /// Whether it came by the way of event messages.
    pub(super) event: bool,
    /// When it came in, and by whose clock; `None` where that cannot be told.
    pub(super) stamp: Option<(PtpTimestamp, By)>,
}

/// A message that had been sent and came back with the time when it left.
pub(super) struct Returned<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) to: Destination,
    pub(super) stamp: (PtpTimestamp, By),
}

/// The way of one port.
pub(super) trait Link: Send {
    /// Waits up to `wait` until there is something to receive or something came back.
    fn wait(&mut self, wait: Duration) -> io::Result<()>;

    /// Hands over what has come in, at most a batch of each kind; returns how many those were.
    fn receive(
        &mut self,
        served: &Served<'_>,
        now: &dyn Fn() -> Timestamp<Monotonic>,
        each: &mut dyn FnMut(&Incoming<'_>),
    ) -> io::Result<usize>;

    /// Hands over what came back, of what was to be timestamped.
    fn returned(
        &mut self,
        served: &Served<'_>,
        now: &dyn Fn() -> Timestamp<Monotonic>,
        each: &mut dyn FnMut(&Returned<'_>),
    ) -> io::Result<usize>;

    /// Puts a message with those that [`Link::flush`] sends; sends them first where there is no
    /// room. `stamp`: it is to come back.
    fn push(&mut self, message: &Outgoing<'_>);

    /// Sends; what the kernel refuses is counted.
    fn flush(&mut self);

    /// Messages that the kernel refused to send.
    fn refused(&self) -> u64;

    /// Messages that the kernel dropped, because nobody took them in time.
    fn dropped(&mut self) -> u64;
}

/// A message to send.
pub(super) struct Outgoing<'a> {
    pub(super) to: Destination,
    pub(super) event: bool,
    pub(super) stamp: bool,
    pub(super) bytes: &'a [u8],
}

/// Why the way of a port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A UDP socket.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// A packet socket.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// A group.
    #[error("cannot join {group} on '{interface}': {source}; see ip-maddress(8)")]
    Join {
        /// The group.
        group: IpAddr,
        /// The interface.
        interface: String,
        /// Why.
        source: io::Error,
    },
}
