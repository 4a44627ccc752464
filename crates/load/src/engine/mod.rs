//! Engines: implementations that send requests on schedule and receive the replies. All use the
//! same schedule, tokens and counters, so their results are comparable. They differ in the layers
//! of the network stack that a request passes through.
//!
//! An engine is opened from a [`RunPlan`] and runs one trial after another. It evaluates and prints
//! nothing.

mod drain;
pub mod ethernet;
mod intervals;
mod lane;
mod membership;
mod mix;
mod nic_clock;
pub mod packet;
#[cfg(test)]
mod simulation;
mod threads;
pub mod udp;
pub mod udp_ptp;
pub mod xdp;

use horolog_sys::explain::explain;
use std::io;
use std::ops::ControlFlow;

use horolog_io::{PacketSocketError, UdpDeviceError};
use horolog_record::LoadEngineKind as Kind;
use horolog_stats::duplicate_window::WindowTooLarge;
use horolog_xdp::XdpError;
use thiserror::Error;

use crate::nts::NtsError;
use crate::plan::{RunPlan, TrialPlan};
use crate::request_tracker::TrialCounts;

pub use intervals::IntervalSink;
use intervals::WholeTrialSink;

/// Sends requests on schedule and accounts for the replies.
pub trait LoadEngine: Send {
    /// Returns the kind of this engine.
    fn kind(&self) -> Kind;

    /// Returns a message on a feature that is unavailable on this host, and its effect; `None` if
    /// all features are available.
    fn missing_feature(&self) -> Option<String> {
        None
    }

    /// Runs one trial to its end: sends, waits for the last replies, and delivers the counts to
    /// `intervals`, in their order.
    fn run(
        &mut self,
        plan: &TrialPlan,
        intervals: &mut dyn IntervalSink,
    ) -> Result<(), EngineError>;

    /// Runs one trial that is counted as a whole. `flow` is called several times a second and
    /// decides whether the trial continues.
    fn run_trial(
        &mut self,
        plan: &TrialPlan,
        flow: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<TrialCounts, EngineError> {
        let mut sink = WholeTrialSink { counts: TrialCounts::default(), flow };
        self.run(plan, &mut sink)?;
        Ok(sink.counts)
    }
}

/// Reason for which an engine could not be opened or a trial could not be run.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The engine does not support the target or an option, or is unavailable here.
    #[error("engine '{}' is unavailable: {reason}; {remedy}", engine.name())]
    Unavailable {
        /// Engine that was requested or tried.
        engine: Kind,
        /// Reason, as a clause.
        reason: String,
        /// Remedy, which follows the reason after a semicolon.
        remedy: String,
    },
    /// A UDP socket could not be opened.
    #[error(transparent)]
    Udp(#[from] UdpDeviceError),
    /// A packet socket could not be opened.
    #[error(transparent)]
    Packet(#[from] PacketSocketError),
    /// A BPF program could not be loaded, attached or run.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// The udp engine needs a file descriptor for each client, and the limit is too low.
    #[error(
        "{clients} clients need as many sockets, more than this process may open; raise 'ulimit \
         -n', reduce --clients, or choose an engine that simulates clients"
    )]
    Descriptors {
        /// Clients requested.
        clients: u32,
    },
    /// No schedule has this rate and duration.
    #[error("{rate:e} requests/s over {duration_s} s cannot be scheduled; choose another rate")]
    Rate {
        /// Rate, in requests per second.
        rate: f64,
        /// Duration of the trial, in seconds.
        duration_s: f64,
    },
    /// The NTS sessions of a lane cannot be set up.
    #[error(transparent)]
    Nts(#[from] NtsError),
    /// The duplicate window would be too large.
    #[error(transparent)]
    Window(#[from] WindowTooLarge),
    /// The kernel refused an operation.
    #[error("cannot {action}: {why}", why = explain(.source))]
    System {
        /// Attempted operation, as a verb phrase.
        action: String,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl EngineError {
    /// Returns a function that describes an I/O error by the attempted operation.
    pub fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action: action.into(), source }
    }
}

/// Returns the error that `engine` is unavailable for this reason.
pub(crate) fn unavailable_error(engine: Kind, reason: String, remedy: &str) -> EngineError {
    EngineError::Unavailable { engine, reason, remedy: remedy.to_owned() }
}

/// Opens the engine `kind` for a run: for one kind of requests, or for each in `plans`.
pub fn open(kind: Kind, plans: &[RunPlan]) -> Result<Box<dyn LoadEngine>, EngineError> {
    if kind == Kind::Xdp {
        return Ok(Box::new(xdp::XdpEngine::open(plans)?));
    }
    let engines = plans.iter().map(|plan| plan.requests.behaviour().open_engine(kind, plan));
    let mut engines = engines.collect::<Result<Vec<_>, _>>()?;
    Ok(match engines.len() {
        1 => engines.remove(0),
        _ => Box::new(mix::MixEngine::new(kind, engines)),
    })
}
