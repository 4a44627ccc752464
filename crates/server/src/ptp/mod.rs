//! PTP grandmaster (IEEE 1588-2019), as a state machine per port: messages received by a
//! [`ClockPort`] and due timers result in messages in an [`Outbox`]. It reads no clock and opens no
//! socket; the instant, the state of the clock and the receive timestamps are passed with each
//! call.
//!
//! A port is the master, or does not send while it listens, while its clock is unusable, and while
//! there is a better master; it is never a slave. Its stored state about other clocks has a fixed
//! size: five foreign masters and a number of grants.
//!
//! No reply is longer than its request, with the exceptions that the protocol requires: a
//! `Delay_Resp` has ten bytes more than its `Delay_Req` (clause 13.8), and a grant two more than
//! its request (clause 16.1.4.2). Much longer replies, of NetSync Monitor and management, are sent
//! to clients on the link or on the list only.

mod clock_state;
mod compose;
mod config;
mod counts;
mod decision;
mod delay;
mod foreign;
mod grants;
mod io;
mod management;
mod peer_delay;
mod port;
mod refusal;
mod settings;
mod signaling;
mod streams;

use std::net::{IpAddr, Ipv4Addr};

use horolog_wire::ethernet::MacAddress;
use horolog_wire::ptp::PtpTimestamp;

pub use clock_state::{PortState, PtpClockState, accuracy};
pub use config::{PtpConfig, PtpConfigError};
pub use counts::PtpPortCounts;
pub use delay::{DelayAnswer, DelayReqContext, FastPort};
pub use foreign::{FOREIGN_MASTERS_MAX, ForeignMasterRecord};
pub use io::{Announced, PtpPortStatus, PtpStartError, PtpStatus, ptp_at};
pub(crate) use io::{OpenPtp, PtpThreads};
pub use port::{ClockPort, PortView};
pub use refusal::PtpRefusal;
pub use settings::{
    ClockSettings, DelayMechanism, PortSettings, PtpPortTransport, PtpProfile, UnicastSettings,
    UnknownProfile,
};

/// Minor version of sent messages: that of 2019.
pub const MINOR_VERSION: u8 = 1;

/// Address of another clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PtpAddress {
    /// UDP address.
    Ip {
        /// Address of the remote host.
        peer: IpAddr,
        /// Address of this host that it sends to; unspecified if none in particular.
        own: IpAddr,
    },
    /// Ethernet address.
    Mac(MacAddress),
}

impl PtpAddress {
    /// Returns true if it belongs to the same remote host, whichever address of this host it sends
    /// to.
    fn is_same_peer(self, other: Self) -> bool {
        self.least_of_peer() == other.least_of_peer()
    }

    /// Returns the smallest address, in their order, of the same remote host.
    fn least_of_peer(self) -> Self {
        match self {
            Self::Ip { peer, .. } => Self::Ip { peer, own: Ipv4Addr::UNSPECIFIED.into() },
            mac @ Self::Mac(_) => mac,
        }
    }
}

/// Destination of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PtpDestination {
    /// Group of all ports.
    Group,
    /// Group of the ports on this link.
    PeerGroup,
    /// Single port.
    To(PtpAddress),
    /// Sender of a management request, which need not be a PTP port: over UDP the source port of
    /// the request (annexes C.2 and D.2), and over Ethernet as for any other destination.
    Manager(PtpAddress, u16),
}

/// Received message with its context.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Copy, Debug)]
pub struct PtpArrival<'a> {
    /// Payload of the datagram or frame, including bytes after the message.
    pub bytes: &'a [u8],
    /// Sender address.
    pub from: PtpAddress,
    /// UDP source port; 0 over Ethernet.
    pub from_port: u16,
    /// True if it was sent to a group.
    pub group: bool,
    /// True if it arrived at the port of event messages; over Ethernet, if it is one.
    pub event: bool,
    /// Receive time in the served timescale. It is used for event messages only.
    pub received: PtpTimestamp,
    /// True if the sender is on the same link, and may be sent more bytes than it sent.
    pub on_link: bool,
    /// True if the sender may be granted messages: it is on the same link or on the list.
    pub admitted: bool,
}

/// Receiver of the messages that a port sends.
pub trait Outbox {
    /// Sends a message. An `event` message goes by the port of event messages; one with `stamp` is
    /// passed to [`ClockPort::sent`] with its transmit time.
    ///
    /// Over UDP and IPv6 the sender must append the two bytes after a message (annex D.5).
    fn send(&mut self, to: PtpDestination, event: bool, stamp: bool, message: &[u8]);

    /// Returns the approximate transmit time of a message sent now, in the served timescale.
    fn now_ptp(&mut self) -> PtpTimestamp;
}

#[cfg(test)]
mod tests;
