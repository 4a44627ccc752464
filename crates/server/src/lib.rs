//! NTP and PTP server: decides on replies ([`decide()`], pure) and serves them by sockets and XDP
//! ([`Server`]); also the reference model of the XDP program ([`decide_frame`]), and the clock
//! pages that a thread updates.
//!
//! The state stored for clients (rate limits, timestamps of the last interleaved reply) has a fixed
//! size, whatever the number of clients. No time is served from an expired clock page, and an
//! unsynchronised clock is announced as such.

mod address_hash;
mod authenticate;
mod check;
mod clock;
mod config;
mod confine;
mod counters;
mod decide;
mod engine;
mod frame;
mod hardware;
mod host_time;
mod interleaved;
mod leap_file;
mod leap_notice;
mod leap_transition;
mod limits;
mod listen;
mod listeners;
mod metrics;
mod nts_ke;
mod page_builder;
mod periodic;
mod preferred_sockets;
mod reload;
mod reload_parts;
mod response_time;
mod secrets;
mod server;
mod server_status;
mod sources;
mod start_error;
pub mod status;
mod tai;
mod transmitted_reply;
mod web;
mod worker;
mod xdp;

pub use address_hash::AddressHashKey;
pub use check::{ConfigCheckError, check};
pub use clock::{ClockThreadStatus, STEP_MIN};
pub use config::{
    ClockTrust, ConfigError, DEFAULT_STRATUM, DRIFT_MAX_PPB, EngineSelection, InterleavedConfig,
    InterleavedEngineSelection, LeapConfig, LimitsConfig, MetricsAndPrivilegesConfig, NtsConfig,
    NtsConfigError, OFFSET_MAX, PAGE_LIVES, PAGE_UPDATE_INTERVAL, PlausibilityConfig, SMEARS,
    STRATA, SandboxMode, ServerConfig, ServerLivePageConfig, SocketSharingMode, SourceConfig,
    SystemLeapBehaviour, THREADS_MAX, TimestampsConfig, TimestampsConfigError, XdpTransmitMethod,
};
pub use confine::{ConfineError, ConfinementStatus};
pub use counters::{IgnoredCounts, SocketEngineCounts, WorkerCounters};
pub use decide::{IgnoreReason, PreparedReply, ReplyTimestampMode, RequestVerdict, decide};
pub use frame::{
    FrameDecisionInputs, FrameInterleavedHandling, FrameTimes, FrameVerdict, decide_frame,
};
pub use hardware::HardwareTimestampingError;
pub use horolog_ke::NtsKeLimits;
pub use horolog_source::{
    CalibrationConfig, CalibrationStatus, ClockErrorLogConfig, PlausibilityRuleParameters,
    PulseEdgeKind, PulseSpec, SelectionState, SentenceInput, SourceSpec, SourceStatus,
};
pub use interleaved::{
    INTERLEAVED_BYTES_PER_CLIENT, InterleavedTable, as_receive, as_transmit, may_be_interleaved,
};
pub use leap_file::{LeapFile, LeapFileError};
pub use leap_notice::LeapNotice;
pub use limits::{
    Admission, DropReason, KissCode, LIMIT_BYTES_PER_CLIENT, Limiter, RequestLengthClass,
    responder_settings,
};
pub use listen::ListenAddressSet;
pub use listeners::WorkerStatus;
pub use metrics::{MetricsError, metric_names};
pub use nts_ke::NtsKeStatus;
pub use reload::{ReloadError, ReloadOutcome, ReloadStatus};
pub use response_time::ResponseTimeHistogram;
pub use secrets::SecretsError;
pub use server::Server;
pub use server_status::{ServerStatus, StatusFormatError, StoredClientCounts};
pub use start_error::StartError;
pub use web::ServerLivePageError;
pub use xdp::{
    XdpCounts, XdpDropCounts, XdpEngineError, XdpInterfaceStatus, XdpKissCounts, XdpPassCounts,
    clock_update,
};
