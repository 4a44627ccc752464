//! A controller's program: what it is told, what it gives back, and why it may not.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use super::conduct::Controller;
use super::step::Step;
use crate::nats::{Broker, NatsError};
use crate::order::{AgentState, Outcome};
use crate::place::{PlaceFault, Placement};
use crate::plan::Plan;
use crate::{AgentName, CampaignId, Fault, JobId};

/// What is to be run, and how patiently.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// Where the agents are.
    pub broker: Broker,
    /// This version of horolog.
    pub version: String,
    /// What to run.
    pub what: What,
    /// How long before the instant agents are told of it.
    pub lead: Duration,
    /// How long jobs may take to end and to deliver, behind their deadline.
    pub grace: Duration,
    /// How long an agent may be gone, when all others are done, before it counts as lost.
    pub lost_after: Duration,
    /// How long the broker may be gone, before the result is of what has come.
    pub broker_patience: Duration,
    /// By how much this controller's clock is set wrong on purpose, in ns.
    pub clock_injected_ns: i64,
}

/// What a controller is to run.
#[derive(Clone, Debug)]
pub enum What {
    /// A plan, with values for its parameters.
    Plan(String, Vec<(String, String)>),
    /// A campaign that another controller began.
    Resume(CampaignId),
}

/// What came of a campaign.
#[derive(Clone, Debug)]
pub struct Collected {
    /// What it is known by.
    pub campaign: CampaignId,
    /// What was planned.
    pub plan: Plan,
    /// Where its roles were placed.
    pub placement: Placement,
    /// What the agents said of themselves when it began.
    pub agents: Vec<AgentState>,
    /// Those that were there and could not be used, and why.
    pub unusable: Vec<(String, String)>,
    /// The instant, UTC in ns since 1970; absent where none was named.
    pub at_ns: Option<i64>,
    /// What became of the jobs, as far as it was told.
    pub outcomes: BTreeMap<JobId, Outcome>,
    /// The agents that did not tell all in time.
    pub lost: BTreeSet<AgentName>,
    /// Why nothing more could come, where the broker was gone for too long.
    pub broker_gone: Option<String>,
    /// Whether it was given up before its end.
    pub abandoned: bool,
    /// Outcomes that came again, and were not counted.
    pub twice: u64,
    /// Reports of strangers, or of jobs that nobody was given.
    pub strange: u64,
    /// Messages that no report could be read from.
    pub unreadable: u64,
}

/// Why a campaign is not run, or not to its end; one line.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// The plan is wrong.
    #[error("{0}")]
    Plan(Fault),
    /// The plan cannot be placed.
    #[error("{fault}{}", excluded(.fault, .unusable))]
    Place {
        /// Why.
        fault: PlaceFault,
        /// Who was not counted, and why.
        unusable: Vec<(String, String)>,
    },
    /// The broker cannot be used.
    #[error(transparent)]
    Nats(#[from] NatsError),
    /// Agents do not do what they were ordered; nothing was measured.
    #[error("nothing was started: {0}")]
    NotStarted(String),
    /// There is no such campaign.
    #[error("there is no campaign {0} that is not over; 'horolog campaign list' shows those")]
    Unknown(CampaignId),
    /// It cannot be gone on with.
    #[error("campaign {0} was begun by horolog {1}; resume it with that version")]
    Version(CampaignId, String),
    /// Another controller has it.
    #[error("another controller goes on with campaign {0}; this one ends")]
    TakenOver(CampaignId),
    /// The broker was gone for too long.
    #[error(
        "{error}; what agents have measured is kept by them: when the server is back, run \
         'horolog campaign run --resume {campaign}'"
    )]
    BrokerGone {
        /// The campaign.
        campaign: CampaignId,
        /// What the last request came to.
        error: NatsError,
    },
    /// The system gives no random number, thread or timer.
    #[error("the system refuses what a campaign needs: {0}")]
    System(#[from] io::Error),
}

impl CampaignError {
    /// The same, where the plan is called so: its name stands before the line.
    #[must_use]
    pub fn of_plan(&self, name: &str) -> String {
        match self {
            Self::Plan(fault) => fault.of_file(name),
            Self::Place { fault, unusable } => fault.of_file(name) + &excluded(fault, unusable),
            other => other.to_string(),
        }
    }
}

/// Why there are no more agents than those that were counted.
fn excluded(fault: &PlaceFault, unusable: &[(String, String)]) -> String {
    let told: Vec<_> = unusable.iter().map(|(name, why)| format!("{name} ({why})")).collect();
    if !told.is_empty() {
        format!("; not counted: {}", told.join(", "))
    } else if fault.is_empty {
        "; no agent says at the NATS server that it is there: start 'horolog campaign agent' on \
         each machine that is to take part"
            .to_owned()
    } else {
        String::new()
    }
}

/// Runs a campaign to its end, and gives what came of it to `keep`; where that says that it is
/// kept and nothing is lacking, the campaign is forgotten at the broker. Otherwise it can be
/// resumed to collect what is delivered later, for as long as the broker keeps it. `tell` hears how
/// it is coming along; `flow` says when to give it up.
///
/// # Errors
///
/// Nothing was started, or it can be resumed; see [`CampaignError`].
pub fn run<T>(
    options: ControllerOptions,
    tell: &dyn Fn(&Step<'_>),
    flow: &dyn Fn() -> ControlFlow<()>,
    keep: impl FnOnce(Collected) -> (T, bool),
) -> Result<T, CampaignError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut controller = Box::pin(Controller::begin(options, tell, flow)).await?;
        let collected = Box::pin(controller.conduct()).await?;
        let is_whole = collected.lost.is_empty() && collected.broker_gone.is_none();
        let (kept, is_kept) = keep(collected);
        if is_kept && is_whole {
            controller.forget().await;
        }
        Ok(kept)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_lacking_is_told_with_the_name_of_the_plan() {
        let text = "schema = \"horolog.plan/1\"\nname = \"p\"\n[[role]]\nname = \"t\"\n\
                    kind = \"host-timer\"\n";
        let plan = Plan::parse(text, &[]).unwrap();
        let told = |unusable: &[(&str, &str)]| {
            let fault = crate::place::place(&plan, &[]).unwrap_err();
            let unusable = unusable.iter().map(|(name, why)| ((*name).into(), (*why).into()));
            CampaignError::Place { fault, unusable: unusable.collect() }.of_plan("a.toml")
        };
        let lacks = "a.toml:4: role 't' needs an agent that may run host-timer, and there is none";
        assert_eq!(told(&[("n1", "why")]), format!("{lacks}; not counted: n1 (why)"));
        let none = told(&[]);
        assert!(none.starts_with(&format!("{lacks}; no agent says at the NATS server")), "{none}");
    }
}
