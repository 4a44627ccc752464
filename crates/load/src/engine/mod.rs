//! The engines: ways to send requests on schedule and to receive the replies. All of them keep the
//! same schedule, the same tokens and the same books, so their results can be compared; they differ
//! in what a request passes through on its way to the wire.
//!
//! An engine is opened from a [`RunPlan`] and runs one trial after another. It judges nothing and
//! prints nothing.

mod card;
mod drain;
pub mod ethernet;
mod intervals;
mod lane;
mod membership;
pub(crate) mod mix;
pub mod packet;
#[cfg(test)]
mod simulation;
mod so_far;
mod threads;
pub mod udp;
pub mod udp_ptp;
pub mod xdp;

use std::io;
use std::ops::ControlFlow;

use horolog_io::{PacketError, UdpError};
use horolog_record::Engine as Kind;
use horolog_stats::window::WindowTooLarge;
use horolog_xdp::XdpError;
use thiserror::Error;

use crate::account::TrialCounts;
use crate::nts::NtsError;
use crate::plan::{RunPlan, TrialPlan};
use crate::ptp::Transport;

pub use intervals::Intervals;
use intervals::Whole;

/// Something that can send requests on schedule and account for the replies.
pub trait Engine: Send {
    /// Which one it is.
    fn kind(&self) -> Kind;

    /// What it has to do without here, and what that means; `None` where it has all.
    fn shortfall(&self) -> Option<String> {
        None
    }

    /// Runs one trial to its end: sends, waits for the last replies, and hands what was counted to
    /// `intervals`, in their order.
    fn run(&mut self, plan: &TrialPlan, intervals: &mut dyn Intervals) -> Result<(), EngineError>;

    /// The same for a trial that is counted as a whole. `flow` is asked several times a second
    /// whether it is to go on.
    fn trial(
        &mut self,
        plan: &TrialPlan,
        flow: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<TrialCounts, EngineError> {
        let mut whole = Whole { counts: TrialCounts::default(), flow };
        self.run(plan, &mut whole)?;
        Ok(whole.counts)
    }
}

/// Why an engine could not be opened or a trial could not be run.
#[derive(Debug, Error)]
pub enum EngineError {
    /// This engine cannot reach such a target.
    #[error("engine '{}' cannot be used: {reason}; {remedy}", engine.name())]
    Unfit {
        /// The engine.
        engine: Kind,
        /// What stands against it.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// A UDP socket could not be opened.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// A packet socket could not be opened.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// A BPF program could not be loaded, attached or run.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// Each client of the udp engine takes a file descriptor, and there are too few.
    #[error(
        "{clients} clients need as many sockets, and this process may not open so many files; \
         raise 'ulimit -n', ask for fewer clients, or use an engine that simulates them"
    )]
    Descriptors {
        /// Clients that were asked for.
        clients: u32,
    },
    /// No schedule has this rate and duration.
    #[error(
        "a rate of {rate:e} requests/s over {duration_s} s cannot be planned; take another rate"
    )]
    Rate {
        /// Requests per second.
        rate: f64,
        /// Seconds.
        duration_s: f64,
    },
    /// Requests cannot be authenticated.
    #[error(transparent)]
    Nts(#[from] NtsError),
    /// Duplicates could not be told apart.
    #[error(transparent)]
    Window(#[from] WindowTooLarge),
    /// The kernel refused something on the way.
    #[error("cannot {action}: {source}")]
    System {
        /// What was attempted, as a verb phrase.
        action: String,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl EngineError {
    /// Describes an I/O error by what was attempted.
    pub fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action: action.into(), source }
    }
}

/// Says that `engine` cannot do what is asked of it.
pub(crate) fn unfit(engine: Kind, reason: String, remedy: &str) -> EngineError {
    EngineError::Unfit { engine, reason, remedy: remedy.to_owned() }
}

/// Opens the engine `kind` for a run.
pub fn open(kind: Kind, plan: &RunPlan) -> Result<Box<dyn Engine>, EngineError> {
    if plan.echo && kind != Kind::Xdp {
        let reason = "it takes time servers' replies only".to_owned();
        return Err(unfit(kind, reason, "use --engine xdp for a reflector"));
    }
    if plan.ptp.is_some_and(|ptp| ptp.transport == Transport::Ethernet) {
        return match kind {
            Kind::Xdp => Ok(Box::new(xdp::XdpEngine::open(plan)?)),
            Kind::Packet => Ok(Box::new(ethernet::EthernetEngine::open(plan)?)),
            Kind::Udp => {
                let reason = "it sends no frames without IP".to_owned();
                Err(unfit(kind, reason, "use --engine packet or xdp over Ethernet"))
            }
        };
    }
    match kind {
        Kind::Udp if plan.ptp.is_some() => Ok(Box::new(udp_ptp::PtpUdpEngine::open(plan)?)),
        Kind::Udp => Ok(Box::new(udp::UdpEngine::open(plan)?)),
        Kind::Packet => Ok(Box::new(packet::PacketEngine::open(plan)?)),
        Kind::Xdp => Ok(Box::new(xdp::XdpEngine::open(plan)?)),
    }
}
