//! Offsets of servers' clocks from this host's clock, once or over a long run, several servers at
//! once.
//!
//! The evaluation of an exchange is pure arithmetic ([`measure`]). An `NtpClient` builds requests
//! and validates replies; it reads no clock and opens nothing. Sockets, timestamps and the NIC's
//! clock are separate from both.

mod client;
mod differences;
mod error;
mod exchange;
mod figures;
mod findings;
mod nic_clock;
mod options;
mod pace;
mod packet_timestamp;
mod poller;
mod reply;
mod run;
mod server_stats;
mod session;

pub use client::{DatagramClass, NtpClient, NtpExchange};
pub use error::QueryError;
pub use exchange::{Measured, Precision, measure};
pub use options::{
    COUNT, COUNT_MAX, INTERVAL_POLITE, INTERVAL_PRIVATE, QueryNtsOptions, QueryOptions, TARGETS_MAX,
};
pub use packet_timestamp::PacketTimestamp;
pub use reply::{JudgedReply, QueryReply, SentRequest, judge};
pub use run::Query;

pub use horolog_ke::{PORT as KE_PORT, TrustAnchors};
pub use horolog_nts::Algorithm;
