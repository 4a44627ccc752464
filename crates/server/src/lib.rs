//! NTP server: the decision on replies ([`decide()`], pure), served over sockets and in XDP
//! ([`Server`]), the model with which the XDP program is compared ([`decide_frame`]), and the clock
//! page that a thread updates.
//!
//! The stored state of clients (their limits, their last interleaved reply) has a fixed size,
//! however many clients send requests. Nothing is served from an expired page, and an
//! unsynchronised clock is announced as such.

mod address_hash;
mod af_xdp;
mod authenticate;
mod calibration;
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
mod page;
mod page_builder;
mod periodic;
mod priority_sockets;
pub mod ptp;
mod reload;
mod reload_parts;
mod response;
mod secrets;
mod server;
mod sources;
mod start_error;
pub mod status;
mod tai;
mod transmitted_reply;
mod web;
mod worker;
mod xdp;

pub use address_hash::HashKey;
pub use check::{CheckError, check};
pub use clock::{ClockHealth, STEP_MIN};
pub use config::{
    ClockTrust, ConfigError, DEFAULT_STRATUM, DRIFT_MAX_PPB, Dispatch, EngineSelection,
    InterleavedConfig, InterleavedEngine, LeapConfig, LeapSystem, LimitsConfig, NtsConfig,
    NtsConfigError, OFFSET_MAX, OperationConfig, PAGE_LIVES, PAGE_UPDATE_INTERVAL,
    PlausibilityConfig, SMEARS, STRATA, Sandbox, ServerConfig, SourceConfig, THREADS_MAX,
    TimestampsConfig, TimestampsConfigError, WebConfig, XdpReply,
};
pub use confine::{ConfineError, Confinement};
pub use counters::{Counters, Ignored, SocketCounts};
pub use decide::{IgnoreReason, Reply, ReplyKind, RequestVerdict, decide};
pub use frame::{FrameInterleaved, FrameServer, FrameTimes, FrameVerdict, decide_frame};
pub use hardware::HardwareStartError;
pub use horolog_ke::KeLimits;
pub use horolog_source::{
    CalibrationConfig, CalibrationStatus, Edge, ErrorLogConfig, PlausibilityRules, PulseSpec,
    SentenceInput,
};
pub use horolog_source::{SelectionState, SourceSpec, SourceState};
pub use interleaved::{
    INTERLEAVED_BYTES_PER_CLIENT, InterleavedTable, as_receive, as_transmit, may_be_interleaved,
};
pub use leap_file::{LeapFile, LeapFileError};
pub use leap_notice::LeapNotice;
pub use limits::{
    Admission, DropReason, KissCode, LIMIT_BYTES_PER_CLIENT, Limiter, RequestClass,
    responder_settings,
};
pub use listen::ListenSet;
pub use listeners::WorkerStatus;
pub use metrics::{MetricsError, metric_names};
pub use nts_ke::NtsKeStatus;
pub use page::{ClockPage, PageReader, PageSink, PageWriter, Pages, SystemVariables, shared};
pub use ptp::{
    Announced as PtpAnnounced, PtpConfig, PtpConfigError, PtpPortStatus,
    PtpPortTransport as PtpTransport, PtpProfile, PtpStartError, PtpStatus,
};
pub use reload::{ReloadError, ReloadHealth, ReloadReport};
pub use response::ResponseTimes;
pub use secrets::SecretsError;
pub use server::{Clients, Server, Status};
pub use start_error::StartError;
pub use web::WebError;
pub use xdp::{Dropped, Kisses, Passed, XdpCounts, XdpEngineError, XdpInterface, clock_update};
