//! The NTP server: what it answers ([`decide`], pure), over sockets and in XDP ([`Server`]), as a
//! model that the XDP program is held against ([`decide_frame`]), from a clock page that a thread
//! renews.
//!
//! What it remembers of clients (their limits, their last interleaved reply) has its size from the
//! start, however many ask. It answers nothing that it would not bet on: from an expired page
//! nothing is served, and an unsynchronised clock is announced as one.

mod address_hash;
mod authenticate;
mod calibrated;
mod check;
mod clock;
mod config;
mod confine;
mod counters;
mod course;
mod decide;
mod engine;
mod establish;
mod frame;
mod hand_over;
mod hardware;
mod interleaved;
mod leap_file;
mod leap_notice;
mod limits;
mod listen;
mod listening;
mod metrics;
mod page;
mod periodic;
mod precedence;
pub mod ptp;
mod reload;
mod reloads;
mod renewal;
mod response;
mod secrets;
mod server;
mod sources;
mod start_error;
pub mod status;
mod tai;
mod transmit;
mod web;
mod worker;
mod xdp;

pub use address_hash::HashKey;
pub use check::{CheckError, check};
pub use clock::{ClockHealth, STEP_MIN};
pub use config::{
    ConfigError, DEFAULT_STRATUM, DRIFT_MAX_PPB, Dispatch, Engine, InterleavedBody,
    InterleavedConfig, LeapConfig, LeapSystem, LimitsConfig, NtsConfig, NtsConfigError, OFFSET_MAX,
    OperationConfig, PAGE_LIVES, RENEWAL, SMEARS, STRATA, Sandbox, ServerConfig, SourceConfig,
    THREADS_MAX, TimestampsConfig, TimestampsConfigError, Trust, WebConfig, XdpReply,
};
pub use confine::{ConfineError, Confinement};
pub use counters::{Counters, Ignored, Totals};
pub use decide::{Reason, Reply, ReplyKind, Verdict, decide};
pub use establish::KeStatus;
pub use frame::{Arrival, FrameInterleaved, FrameServer, FrameVerdict, decide_frame};
pub use hardware::HardwareStartError;
pub use horolog_ke::KeLimits;
pub use horolog_source::{
    CalibrationConfig, CalibrationStatus, Edge, ErrorLogConfig, PulseSpec, SentenceInput,
};
pub use horolog_source::{SourceSpec, SourceState, Standing};
pub use interleaved::{
    INTERLEAVED_BYTES_PER_CLIENT, InterleavedTable, as_receive, as_transmit, looks_interleaved,
};
pub use leap_file::{LeapFile, LeapFileError};
pub use leap_notice::LeapNotice;
pub use limits::{
    Admission, Class, KissCode, LIMIT_BYTES_PER_CLIENT, Limiter, Why, responder_settings,
};
pub use listen::ListenSet;
pub use listening::WorkerStatus;
pub use metrics::MetricsError;
pub use page::{Page, PageReader, PageSink, PageWriter, Pages, SystemVariables, shared};
pub use ptp::{
    Announced as PtpAnnounced, Profile as PtpProfile, PtpConfig, PtpConfigError, PtpPortStatus,
    PtpStartError, PtpStatus, Transport as PtpTransport,
};
pub use reload::{ReloadError, ReloadHealth, ReloadReport};
pub use response::ResponseTimes;
pub use secrets::SecretsError;
pub use server::{Clients, Server, Status};
pub use start_error::StartError;
pub use web::WebError;
pub use xdp::{BodyError, Dropped, Kisses, Passed, XdpPlace, XdpTotals, edition};
