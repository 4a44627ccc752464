//! Interface between a port and its sockets: two UDP sockets or a packet socket.

use horolog_sys::explain::explain;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use horolog_io::{
    Batch, BatchDevice, PacketSocketError, PacketTimestampSource, TransmitTimestampSource,
    UdpDeviceError,
};
use horolog_time::{Monotonic, Timestamp};
use horolog_wire::ptp::PtpTimestamp;

use super::served::ServedTime;
use crate::address::{PtpAddress, PtpDestination};

/// Received PTP message with its addresses and receive time.
pub(super) struct IncomingPtpMessage<'a> {
    /// Payload of the datagram or frame: the message, with any bytes after it.
    pub(super) bytes: &'a [u8],
    /// Sender address.
    pub(super) from: PtpAddress,
    /// UDP source port; 0 over Ethernet.
    pub(super) from_port: u16,
    /// True if the destination was a multicast group.
    pub(super) to_group: bool,
    /// True if the destination was multicast or broadcast, but not a PTP group.
    pub(super) stray: bool,
    /// True if the message was received as an event message: at the event port, or by its type.
    pub(super) event: bool,
    /// Receive time and its timestamp source; `None` if unknown.
    pub(super) timestamp: Option<(PtpTimestamp, PacketTimestampSource)>,
}

/// Sent message that the kernel looped back with its transmit time.
pub(super) struct TransmittedPtpMessage<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) to: PtpDestination,
    pub(super) timestamp: (PtpTimestamp, PacketTimestampSource),
}

/// Sockets of one PTP port, by which its thread receives and sends messages.
pub(super) trait PtpPortSockets: Send {
    /// Waits up to `wait` for an incoming message, or for a sent one that comes back with its
    /// transmit timestamp.
    fn wait(&mut self, wait: Duration) -> io::Result<()>;

    /// Calls `each` for every received PTP message, at most one batch per socket. Returns the
    /// number of received packets, which includes packets without a complete message for this port.
    fn receive(
        &mut self,
        served: &ServedTime<'_>,
        now: &dyn Fn() -> Timestamp<Monotonic>,
        each: &mut dyn FnMut(&IncomingPtpMessage<'_>),
    ) -> io::Result<usize>;

    /// Calls `each` for every sent message that was looped back with a plausible transmit time.
    /// Returns the number of looped-back packets.
    fn receive_transmitted(
        &mut self,
        served: &ServedTime<'_>,
        now: &dyn Fn() -> Timestamp<Monotonic>,
        each: &mut dyn FnMut(&TransmittedPtpMessage<'_>),
    ) -> io::Result<usize>;

    /// Queues a message for [`PtpPortSockets::flush`]; if the queue is full, it is sent first. A
    /// message to an address of another transport is ignored.
    fn push(&mut self, message: &OutgoingPtpMessage<'_>);

    /// Sends the queue. Messages that the kernel refuses are counted.
    fn flush(&mut self);

    /// Returns the number of messages that the kernel refused to send.
    fn refused(&self) -> u64;

    /// Returns the number of messages that the kernel dropped because they were not read in time.
    fn dropped(&mut self) -> u64;
}

/// Maximum number of messages per system call.
pub(super) const BATCH: usize = 32;
/// Receive buffer size, in bytes: enough for 0.1 s at 100,000 messages per second.
pub(super) const RECEIVE_BUFFER: usize = 8 << 20;
pub(super) const SEND_WAIT: Duration = Duration::from_millis(1);

/// Returns the source of transmit timestamps of a port, with hardware timestamps or without.
pub(super) const fn timestamp_source(hardware: bool) -> TransmitTimestampSource {
    if hardware { TransmitTimestampSource::Hardware } else { TransmitTimestampSource::Kernel }
}

/// Device of a port, with its batches.
pub(super) struct BatchedPtpDevice<D: BatchDevice> {
    pub(super) device: D,
    pub(super) received: Batch<D::Address>,
    outgoing: Batch<D::Address>,
    /// Number of messages that the kernel refused to send.
    pub(super) refused: u64,
}

impl<D: BatchDevice> BatchedPtpDevice<D> {
    /// Creates empty batches for packets of up to `packet_max` bytes.
    pub(super) fn new(device: D, packet_max: usize) -> Self {
        let batch = || Batch::new(BATCH, packet_max);
        Self { device, received: batch(), outgoing: batch(), refused: 0 }
    }

    /// Queues a message in a packet of `len` bytes, after the header that `emit_header` writes and
    /// whose length it returns; the rest is 0.
    pub(super) fn push(
        &mut self,
        to: D::Address,
        message: &OutgoingPtpMessage<'_>,
        len: usize,
        emit_header: impl FnOnce(&mut [u8]) -> usize,
    ) {
        if self.outgoing.is_full() {
            self.flush();
        }
        let slot = self.outgoing.len();
        let pushed = self.outgoing.push_with(to, |packet| {
            packet[..len].fill(0);
            let start = emit_header(packet);
            packet[start..start + message.bytes.len()].copy_from_slice(message.bytes);
            len
        });
        if pushed {
            *self.outgoing.packet_mut(slot).wants_timestamp = message.needs_timestamp;
        }
    }

    /// Sends the queue.
    pub(super) fn flush(&mut self) {
        let count = self.outgoing.len();
        if count > 0 {
            // A failure of the device is reported by the next receive call.
            let sent = self.device.send(&mut self.outgoing).unwrap_or(0);
            self.refused += (count - sent) as u64;
            self.outgoing.clear();
        }
    }
}

/// PTP message to send, with its destination.
pub(super) struct OutgoingPtpMessage<'a> {
    pub(super) to: PtpDestination,
    pub(super) event: bool,
    pub(super) needs_timestamp: bool,
    pub(super) bytes: &'a [u8],
}

impl From<UdpDeviceError> for PtpSocketError {
    fn from(error: UdpDeviceError) -> Self {
        match error {
            UdpDeviceError::Privilege(address) => Self::Ports(address),
            other => Self::Udp(other),
        }
    }
}

impl From<PacketSocketError> for PtpSocketError {
    fn from(error: PacketSocketError) -> Self {
        match error {
            PacketSocketError::Privilege(interface) => Self::Frames(interface),
            other => Self::Packet(other),
        }
    }
}

/// Failure to open the sockets of a port.
#[derive(Debug, thiserror::Error)]
pub enum PtpSocketError {
    /// UDP socket error.
    #[error(transparent)]
    Udp(UdpDeviceError),
    /// Packet socket error.
    #[error(transparent)]
    Packet(PacketSocketError),
    /// Missing permission to use the PTP ports.
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
    /// Failure to join a multicast group.
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
        let text = PtpSocketError::from(UdpDeviceError::Privilege(address)).to_string();
        assert!(text.contains("CAP_NET_BIND_SERVICE") && !text.contains("1024"), "{text}");
        let text = PtpSocketError::from(PacketSocketError::Privilege("eth0".into())).to_string();
        assert!(text.contains("--ptp-transport udp4"), "{text}");
    }
}
