//! PTP grandmaster (IEEE 1588-2019): one state machine per port, the [`ClockPort`], which turns
//! received messages and timers into messages to an [`Outbox`]. No clock is read and no socket is
//! opened: each call is passed the instant, the state of the clock and the receive timestamp.
//!
//! A port is the master, or does not send: while it listens, while its clock is unusable, and while
//! there is a better master. It is never a slave. The stored state has a fixed size: five foreign
//! masters and a maximum number of grants.
//!
//! No response is longer than its request, with the exceptions that the protocol requires: a
//! `Delay_Resp` is ten bytes longer than its `Delay_Req` (clause 13.8), and a grant two bytes
//! longer than its request (clause 16.1.4.2). The much longer responses of NetSync Monitor and
//! management are only sent to clients on the link or in a listed prefix.

mod clock_state;
mod compose;
mod config;
mod decision;
mod delay;
mod foreign;
mod grants;
mod io;
mod management;
mod port;
mod refusal;
mod settings;
mod signaling;
mod streams;

use std::net::{IpAddr, Ipv4Addr};

use horolog_wire::ethernet::MacAddress;
use horolog_wire::ptp::PtpTimestamp;

pub use clock_state::{PortState, PtpClockProperties, accuracy};
pub use config::{PtpConfig, PtpConfigError};
pub use delay::{DelayReqClassification, DelayResponder, DelayResponse};
pub use foreign::{FOREIGN_MASTERS_MAX, ForeignMasterRecord};
pub use io::{AnnouncedClock, PtpPortStatus, PtpStartError, PtpStatus, ptp_time_of_page};
pub(crate) use io::{OpenPtpPorts, PtpThreads};
pub use port::{ClockPort, ClockPortStatus, PtpPortCounts};
pub use refusal::PtpRefusal;
pub use settings::{
    ClockSettings, DelayMechanism, PortSettings, PtpPortTransport, PtpProfile, UnicastGrantLimits,
    UnknownProfile,
};

/// Minor PTP version of sent messages: that of IEEE 1588-2019.
pub const MINOR_VERSION: u8 = 1;

/// Address of another clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PtpAddress {
    /// IP addresses of both hosts.
    Ip {
        /// IP address of the remote host.
        peer: IpAddr,
        /// IP address of this host to which the remote host sends; unspecified if unknown.
        local: IpAddr,
    },
    /// MAC address of the remote host.
    Mac(MacAddress),
}

impl PtpAddress {
    /// Returns true if both belong to the same remote host, whatever the address of this host.
    fn is_same_peer(self, other: Self) -> bool {
        self.with_local_unspecified() == other.with_local_unspecified()
    }

    /// Returns the address with an unspecified address of this host; it sorts before all others of
    /// the same remote host.
    fn with_local_unspecified(self) -> Self {
        match self {
            Self::Ip { peer, .. } => Self::Ip { peer, local: Ipv4Addr::UNSPECIFIED.into() },
            mac @ Self::Mac(_) => mac,
        }
    }
}

/// Destination of a PTP message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PtpDestination {
    /// Multicast group of all PTP messages except those of the peer delay mechanism.
    Group,
    /// Multicast group of the peer delay mechanism, limited to the link.
    PeerGroup,
    /// Single port.
    To(PtpAddress),
    /// Sender of a management request, which need not be a PTP port, with its UDP source port
    /// (annexes C.2 and D.2); the port is not used over Ethernet.
    Manager(PtpAddress, u16),
}

/// Received PTP message with its context.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Copy, Debug)]
pub struct ReceivedPtpMessage<'a> {
    /// Payload of the datagram or frame: the message, with any bytes after it.
    pub bytes: &'a [u8],
    /// Sender address.
    pub from: PtpAddress,
    /// UDP source port; 0 over Ethernet.
    pub from_port: u16,
    /// True if the destination was a multicast group.
    pub group: bool,
    /// True if the message arrived at the event port; over Ethernet, if it is an event message.
    pub event: bool,
    /// Receive time on the served timescale; used for event messages only.
    pub received: PtpTimestamp,
    /// True if the sender is on the same link, and may be sent more bytes than it sent.
    pub on_link: bool,
    /// True if the sender may get grants: it is in a configured prefix or, if there is none, on the
    /// link. Over Ethernet, every sender is on the link.
    pub admitted: bool,
}

/// Recipient of the messages that a port sends.
pub trait Outbox {
    /// Sends a message, by the event port if it is an `event` message. With `needs_timestamp`, the
    /// message is passed to [`ClockPort::process_transmitted`] with its transmit time.
    ///
    /// Over UDP and IPv6 the sender must append two bytes to the message (annex D.5).
    fn send(&mut self, to: PtpDestination, event: bool, needs_timestamp: bool, message: &[u8]);

    /// Returns the approximate transmit time of a message sent now, in the served timescale.
    fn now_ptp(&mut self) -> PtpTimestamp;
}

#[cfg(test)]
mod tests;
