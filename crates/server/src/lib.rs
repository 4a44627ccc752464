//! The NTP server: what it answers ([`decide`], pure), over sockets and in XDP ([`Server`]), as a
//! model that the XDP program is held against ([`decide_frame`]), from a clock page that a thread
//! renews.
//!
//! It keeps nothing about its clients, and it answers nothing that it would not bet on: from an
//! expired page nothing is served, and an unsynchronised clock is announced as one.

mod clock;
mod config;
mod counters;
mod course;
mod decide;
mod engine;
mod frame;
mod leap_file;
mod leap_notice;
mod listen;
mod page;
mod precision;
mod renewal;
mod server;
pub mod status;
mod worker;
mod xdp;

pub use clock::ClockHealth;
pub use config::{
    ConfigError, DEFAULT_STRATUM, DRIFT_MAX_PPB, Dispatch, Engine, InterleavedConfig, LeapConfig,
    LeapSystem, LimitsConfig, NtsConfig, OFFSET_MAX, OperationConfig, PAGE_LIVES, RENEWAL, SMEARS,
    STRATA, ServerConfig, SourceConfig, THREADS_MAX, Trust, XdpReply,
};
pub use counters::{Counters, Ignored, Totals};
pub use decide::{Reason, Verdict, decide};
pub use frame::{FrameVerdict, decide_frame};
pub use leap_file::{LeapFile, LeapFileError};
pub use leap_notice::LeapNotice;
pub use listen::ListenSet;
pub use page::{Page, PageReader, PageSink, PageWriter, Pages, SystemVariables, shared};
pub use server::{Server, StartError, Status};
pub use xdp::{BodyError, Passed, XdpPlace, XdpTotals};
