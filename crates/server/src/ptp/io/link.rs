//! Link by which a port sends and receives: two UDP sockets or a packet socket, behind one trait.

use horolog_sys::explain::explain;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use horolog_io::{PacketError, UdpError};
use horolog_time::{Monotonic, Timestamp};
use horolog_wire::ptp::PtpTimestamp;

use super::served::ServedTime;
use crate::hardware::TimestampSource;
use crate::ptp::{PtpAddress, PtpDestination};

/// Received message.
pub(super) struct IncomingPtpMessage<'a> {
    /// Message, with the bytes that follow it in its datagram or frame.
    pub(super) bytes: &'a [u8],
    /// Sender address.
    pub(super) from: PtpAddress,
    /// UDP source port; 0 over Ethernet.
    pub(super) from_port: u16,
    /// True if it was sent to a group.
    pub(super) to_group: bool,
    /// True if it was sent to an address that is neither only this port's nor a PTP group.
    pub(super) stray: bool,
    /// True if it was received on the channel of event messages.
    pub(super) event: bool,
    /// Receive time and its timestamp source; `None` if unknown.
    pub(super) timestamp: Option<(PtpTimestamp, TimestampSource)>,
}

/// Sent message that was returned with its transmit time.
pub(super) struct TransmittedMessage<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) to: PtpDestination,
    pub(super) timestamp: (PtpTimestamp, TimestampSource),
}

/// Link of one port.
pub(super) trait PortLink: Send {
    /// Waits up to `wait` for a received or returned message.
    fn wait(&mut self, wait: Duration) -> io::Result<()>;

    /// Passes the received messages to `each`, at most a batch of each kind; returns their number.
    fn receive(
        &mut self,
        served: &ServedTime<'_>,
        now: &dyn Fn() -> Timestamp<Monotonic>,
        each: &mut dyn FnMut(&IncomingPtpMessage<'_>),
    ) -> io::Result<usize>;

    /// Passes the returned messages, of those to be timestamped, to `each`.
    fn returned(
        &mut self,
        served: &ServedTime<'_>,
        now: &dyn Fn() -> Timestamp<Monotonic>,
        each: &mut dyn FnMut(&TransmittedMessage<'_>),
    ) -> io::Result<usize>;

    /// Queues a message for [`PortLink::flush`]; sends the queue first if it is full. With `stamp`,
    /// the message is returned with its transmit time.
    fn push(&mut self, message: &OutgoingPtpMessage<'_>);

    /// Sends the queue; messages that the kernel refuses are counted.
    fn flush(&mut self);

    /// Returns the number of messages that the kernel refused to send.
    fn refused(&self) -> u64;

    /// Returns the number of messages that the kernel dropped because they were not read in time.
    fn dropped(&mut self) -> u64;
}

/// Message to send.
pub(super) struct OutgoingPtpMessage<'a> {
    pub(super) to: PtpDestination,
    pub(super) event: bool,
    pub(super) needs_timestamp: bool,
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

/// Reason for which the link of a port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// UDP socket error.
    #[error(transparent)]
    Udp(UdpError),
    /// Packet socket error.
    #[error(transparent)]
    Packet(PacketError),
    /// Missing permission for PTP's ports.
    #[error(
        "cannot use {0}: the PTP ports need root or CAP_NET_BIND_SERVICE; run as root or with that \
         capability"
    )]
    Ports(SocketAddr),
    /// Missing permission to send frames.
    #[error(
        "cannot send frames on '{0}': root or CAP_NET_RAW is required; run as root or with that \
         capability, or choose --ptp-transport udp4"
    )]
    Frames(String),
    /// Failure to join a group.
    #[error("cannot join {group} on '{interface}': {why}; see ip-maddress(8)", why = explain(.source))]
    Join {
        /// Group address.
        group: IpAddr,
        /// Interface name.
        interface: String,
        /// Cause of the failure.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_privileges_are_reported_in_terms_of_ptp() {
        let address = SocketAddr::from(([0, 0, 0, 0], 319));
        let text = LinkError::from(UdpError::Privilege(address)).to_string();
        assert!(text.contains("CAP_NET_BIND_SERVICE") && !text.contains("1024"), "{text}");
        let text = LinkError::from(PacketError::Privilege("eth0".into())).to_string();
        assert!(text.contains("--ptp-transport udp4"), "{text}");
    }
}
