//! Query of NTP servers: offsets of their clocks from this host's clock, once or over a long run,
//! several servers concurrently.
//!
//! Offset and delay are pure arithmetic ([`offset_and_delay`]). [`NtpClient`] builds requests and
//! classifies replies without I/O. Sockets, timestamps and PHCs are separate from both.

mod client;
mod differences;
mod error;
mod exchange;
mod figures;
mod findings;
mod nic_clock;
mod options;
mod packet_timestamp;
mod poller;
mod reply;
mod run;
mod server_stats;
mod session;

pub use client::{DatagramClass, NtpClient, NtpExchange};
pub use error::QueryError;
pub use exchange::{ExchangeTimestampPrecisions, OffsetAndDelay, offset_and_delay};
pub use options::{
    COUNT, COUNT_MAX, INTERVAL_POLITE, INTERVAL_PRIVATE, QueryNtsOptions, QueryOptions, TARGETS_MAX,
};
pub use packet_timestamp::PacketTimestamp;
pub use reply::{QueryReply, ReplyMatchFields, ReplyVerdict, judge_reply};
pub use run::PreparedQuery;

pub use horolog_ke::{PORT as KE_PORT, TrustAnchors};
pub use horolog_nts::AeadAlgorithm;
