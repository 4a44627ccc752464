//! NTP and PTP server: decides on replies ([`decide()`], pure) and serves them by sockets and XDP
//! ([`Server`]); also the reference model of the XDP program ([`decide_frame`]), and the clock
//! pages that a thread updates.
//!
//! The state stored for clients (rate limits, timestamps of the last interleaved reply) has a fixed
//! size, whatever the number of clients. No time is served from an expired clock page, and an
//! unsynchronised clock is announced as such.

mod clock;
mod config;
mod nts;
mod operation;
mod periodic;
mod reply;
mod server;
mod sockets;
mod start_error;
mod xdp;

pub use clock::leap_file::{LeapFile, LeapFileError};
pub use clock::leap_notice::LeapNotice;
pub use clock::thread::{ClockThreadStatus, STEP_MIN};
pub use config::{
    ClockTrust, ConfigError, DEFAULT_STRATUM, DRIFT_MAX_PPB, EngineSelection, InterleavedConfig,
    InterleavedEngineSelection, LeapConfig, LimitsConfig, MetricsAndPrivilegesConfig, NtsConfig,
    NtsConfigError, OFFSET_MAX, PAGE_LIVES, PAGE_UPDATE_INTERVAL, PlausibilityConfig, SMEARS,
    STRATA, SandboxMode, ServerConfig, ServerLivePageConfig, SocketSharingMode, SourceConfig,
    SystemLeapBehaviour, THREADS_MAX, TimestampsConfig, TimestampsConfigError, XdpTransmitMethod,
};
pub use nts::nts_ke::NtsKeStatus;
pub use nts::secrets::SecretsError;
pub use operation::check::{ConfigCheckError, check};
pub use operation::confine::{ConfineError, ConfinementStatus};
pub use operation::metrics::{MetricsError, metric_names};
pub use operation::reload::{ReloadError, ReloadOutcome, ReloadStatus};
pub use operation::server_status::{ServerStatus, StatusFormatError, StoredClientCounts};
pub use operation::status;
pub use operation::web::ServerLivePageError;
pub use reply::address_hash::AddressHashKey;
pub use reply::decide::{IgnoreReason, PreparedReply, ReplyTimestampMode, RequestVerdict, decide};
pub use reply::frame::{
    FrameDecisionInputs, FrameInterleavedHandling, FrameTimes, FrameVerdict, decide_frame,
};
pub use reply::interleaved::{
    INTERLEAVED_BYTES_PER_CLIENT, InterleavedTable, as_receive, as_transmit, may_be_interleaved,
};
pub use reply::limits::{
    Admission, DropReason, KissCode, LIMIT_BYTES_PER_CLIENT, Limiter, RequestLengthClass,
    responder_settings,
};
pub use server::Server;
pub use sockets::counters::{IgnoredCounts, SocketEngineCounts, WorkerCounters};
pub use sockets::hardware::HardwareTimestampingError;
pub use sockets::listen::ListenAddressSet;
pub use sockets::listeners::WorkerStatus;
pub use sockets::response_time::ResponseTimeHistogram;
pub use start_error::StartError;
pub use xdp::clock_page_sink::clock_update;
pub use xdp::counts::{XdpCounts, XdpDropCounts, XdpInterfaceStatus, XdpKissCounts, XdpPassCounts};
pub use xdp::engine::XdpEngineError;
