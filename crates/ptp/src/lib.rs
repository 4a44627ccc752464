//! PTP grandmaster (IEEE 1588-2019): one state machine per port, the [`ClockPort`], which turns
//! received messages and timers into messages to an [`Outbox`]. It reads no clock and opens no
//! socket: each call is passed the instant, the state of the clock and the receive timestamp. The
//! sockets and threads of the ports ([`OpenPtpPorts`]) call it.
//!
//! A port is the master, or does not send: while it listens, while its clock is unusable, and while
//! there is a better master. It is never a slave. The stored state has a fixed size: five foreign
//! masters and a maximum number of grants.
//!
//! No response is longer than its request, with the exceptions that the protocol requires: a
//! `Delay_Resp` is ten bytes longer than its `Delay_Req` (clause 13.8), and a grant two bytes
//! longer than its request (clause 16.1.4.2). The much longer responses of NetSync Monitor and
//! management are only sent to clients on the link or in a listed prefix.

mod address;
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

pub use address::{PtpAddress, PtpDestination};
pub use clock_state::{PortState, PtpClockProperties, accuracy};
pub use compose::MINOR_VERSION;
pub use config::{PtpConfig, PtpConfigError};
pub use delay::{DelayReqClassification, DelayResponder, DelayResponse};
pub use foreign::{FOREIGN_MASTERS_MAX, ForeignMasterRecord};
pub use io::{
    AnnouncedClock, OpenPtpPorts, PtpPortStatus, PtpStartError, PtpStatus, PtpThreads,
    ptp_time_of_page,
};
pub use port::{ClockPort, ClockPortStatus, Outbox, PtpPortCounts, ReceivedPtpMessage};
pub use refusal::PtpRefusal;
pub use settings::{
    ClockSettings, DelayMechanism, PortSettings, PtpPortTransport, PtpProfile, UnicastGrantLimits,
    UnknownProfile,
};

#[cfg(test)]
mod tests;
