//! A PTP grandmaster (IEEE 1588-2019), as a state machine for each port: what a [`Port`] hears and
//! what is due become messages in an [`Outbox`]. It reads no clock and opens no socket; the
//! instant, the state of the clock and the receive timestamps come with each call.
//!
//! A port is the master, or silent while it listens, while its clock is unusable, and while a
//! better master is there; it is never a slave. What it remembers of others has its size from the
//! start: five foreign masters and a number of grants.
//!
//! No reply is longer than its request, with the exceptions that the protocol leaves no choice in:
//! a `Delay_Resp` has ten bytes more than its `Delay_Req` (clause 13.8), and a grant two more than
//! its request (clause 16.1.4.2). What has much more, NetSync Monitor and answers of management,
//! goes to clients on the link or on the list only.

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

pub use clock_state::{ClockState, PortState, accuracy};
pub use config::{PtpConfig, PtpConfigError};
pub use counts::Counts;
pub use delay::{Asked, DelayAnswer, FastPort};
pub use foreign::{FOREIGN_MASTERS_MAX, Foreign};
pub use io::{Announced, PtpPortStatus, PtpStartError, PtpStatus, ptp_at};
pub(crate) use io::{OpenPtp, PtpThreads};
pub use port::{Port, PortView};
pub use refusal::Refusal;
pub use settings::{
    ClockSettings, DelayMechanism, PortSettings, Profile, Transport, UnicastSettings,
    UnknownProfile,
};

/// The minor version of the messages that are sent: that of 2019.
pub const MINOR_VERSION: u8 = 1;

/// The address of another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Address {
    /// Over UDP.
    Ip {
        /// Its own address.
        peer: IpAddr,
        /// The address of ours that it speaks to; unspecified where that is none in particular.
        own: IpAddr,
    },
    /// Over Ethernet.
    Mac(MacAddress),
}

impl Address {
    /// Whether it is the same peer's, whichever of our addresses that speaks to.
    fn is_same_peer(self, other: Self) -> bool {
        self.least_of_peer() == other.least_of_peer()
    }

    /// The first in their order of the addresses of its peer.
    fn least_of_peer(self) -> Self {
        match self {
            Self::Ip { peer, .. } => Self::Ip { peer, own: Ipv4Addr::UNSPECIFIED.into() },
            mac @ Self::Mac(_) => mac,
        }
    }
}

/// Where a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// To the group of all ports.
    Group,
    /// To the group of the ports on this link.
    PeerGroup,
    /// To one port.
    To(Address),
}

/// A message as it came.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The payload of the datagram or frame, with whatever follows the message in it.
    pub bytes: &'a [u8],
    /// Who sent it.
    pub from: Address,
    /// It was sent to a group.
    pub group: bool,
    /// It came by the port of event messages; over Ethernet, whether it is one.
    pub event: bool,
    /// When it came, in the timescale that is served. It is looked at for event messages only.
    pub received: PtpTimestamp,
    /// Who sent it is on the same link, so it may be told more than it sent.
    pub on_link: bool,
    /// Who sent it may be granted messages: it is on the same link or on the list.
    pub admitted: bool,
}

/// Takes what a port sends.
pub trait Outbox {
    /// Sends a message. One that is an `event` goes by the port of event messages; one that is to
    /// be `stamp`ed is given to [`Port::sent`] with the instant at which it left.
    ///
    /// Over UDP and IPv6 the two bytes behind a message (annex D.5) are the sender's to append.
    fn send(&mut self, to: Destination, event: bool, stamp: bool, message: &[u8]);

    /// About when a message leaves that is sent now, in the timescale that is served.
    fn now_ptp(&mut self) -> PtpTimestamp;
}

#[cfg(test)]
mod tests;
