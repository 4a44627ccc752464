//! What a port sends and receives by: two UDP sockets or a packet socket, behind one trait.

use std::io;
use std::net::{IpAddr, SocketAddr};
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

impl From<UdpError> for LinkError {
    fn from(error: UdpError) -> Self {
        match error {
            UdpError::Privilege(address) => Self::Ports(address),
            other => Self::Udp(other),
        }
    }
}

impl From<PacketError> for LinkError {
    fn from(error: PacketError) -> Self {
        match error {
            PacketError::Privilege(interface) => Self::Frames(interface),
            other => Self::Packet(other),
        }
    }
}

/// Why the way of a port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A UDP socket.
    #[error(transparent)]
    Udp(UdpError),
    /// A packet socket.
    #[error(transparent)]
    Packet(PacketError),
    /// PTP's ports are not for this user.
    #[error(
        "cannot use {0}: PTP's ports need root or CAP_NET_BIND_SERVICE; run as root or with that \
         right, for the standard has no others"
    )]
    Ports(SocketAddr),
    /// Frames are not for this user.
    #[error(
        "cannot send frames on '{0}': that needs root or CAP_NET_RAW; run as root or with that \
         right, or choose --ptp-transport udp4"
    )]
    Frames(String),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_may_not_do_is_said_in_ptp_s_terms() {
        let address = SocketAddr::from(([0, 0, 0, 0], 319));
        let text = LinkError::from(UdpError::Privilege(address)).to_string();
        assert!(text.contains("CAP_NET_BIND_SERVICE") && !text.contains("1024"), "{text}");
        let text = LinkError::from(PacketError::Privilege("eth0".into())).to_string();
        assert!(text.contains("--ptp-transport udp4"), "{text}");
    }
}
