//! The NTP server: what it answers ([`decide`], pure), over sockets and in XDP ([`Server`]), as a
//! model that the XDP program is held against ([`decide_frame`]), from a clock page that a thread
//! renews.
//!
//! It keeps nothing about its clients, and it answers nothing that it would not bet on: from an
//! expired page nothing is served, and an unsynchronised clock is announced as one.

mod check;
mod clock;
mod config;
mod confine;
mod counters;
mod decide;
mod engine;
mod frame;
mod listen;
mod listening;
mod metrics;
mod page;
mod precision;
mod reload;
mod renewal;
mod server;
pub mod status;
mod worker;
mod xdp;

pub use check::{CheckError, check};
pub use clock::{ClockHealth, STEP_MIN};
pub use config::{
    ConfigError, DEFAULT_STRATUM, DRIFT_MAX_PPB, Dispatch, Engine, InterleavedConfig, LeapConfig,
    LimitsConfig, NtsConfig, OFFSET_MAX, OperationConfig, PAGE_LIVES, RENEWAL, STRATA, Sandbox,
    ServerConfig, SourceConfig, THREADS_MAX, Trust, XdpReply,
};
pub use confine::{ConfineError, Confinement};
pub use counters::{Counters, Ignored, Totals};
pub use decide::{Reason, Verdict, decide};
pub use frame::{FrameVerdict, decide_frame};
pub use listen::ListenSet;
pub use listening::WorkerStatus;
pub use metrics::MetricsError;
pub use page::{Page, PageReader, PageSink, PageWriter, SystemVariables, shared};
pub use reload::{ReloadError, ReloadHealth, ReloadReport};
pub use server::{Server, StartError, Status};
pub use xdp::{BodyError, Passed, XdpPlace, XdpTotals};
