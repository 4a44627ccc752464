//! Interface of a controller: options, results and errors.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use super::driver::Controller;
use super::event::CampaignProgressEvent;
use crate::nats::{BrokerOptions, NatsError};
use crate::order::{AgentState, JobOutcome};
use crate::placement::{Placement, PlacementError};
use crate::plan::Plan;
use crate::{AgentName, CampaignId, FileContentError, JobId};

/// Options of a controller.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// Broker of the agents.
    pub broker: BrokerOptions,
    /// Version of horolog.
    pub version: String,
    /// Campaign to run or resume.
    pub source: NewOrResumedCampaign,
    /// Time from the announcement of the start time to the start time.
    pub lead: Duration,
    /// Grace period after the deadline of the jobs, in which they end and deliver their results.
    pub grace: Duration,
    /// Longest time for which an agent may be missing before it counts as lost.
    pub agent_timeout: Duration,
    /// Longest time for which the broker may be unreachable; then the controller gives up, with the
    /// results received so far.
    pub broker_timeout: Duration,
    /// Offset added to this controller's clock as an injected fault, in ns.
    pub injected_offset_ns: i64,
}

/// Campaign that a controller begins or resumes.
#[derive(Clone, Debug)]
pub enum NewOrResumedCampaign {
    /// Plan, with values of its parameters.
    Plan(String, Vec<(String, String)>),
    /// Campaign that another controller began.
    Resume(CampaignId),
}

/// Results of a campaign.
#[derive(Clone, Debug)]
pub struct CollectedResults {
    /// Campaign identifier.
    pub campaign: CampaignId,
    /// Plan.
    pub plan: Plan,
    /// Placement of the plan's roles.
    pub placement: Placement,
    /// States of the agents at placement.
    pub agents: Vec<AgentState>,
    /// Present agents that could not be used, and the reasons.
    pub unusable: Vec<(String, String)>,
    /// Start time, UTC in ns since 1970; absent if none was set.
    pub at_ns: Option<i64>,
    /// Outcomes of the jobs, as far as reported.
    pub outcomes: BTreeMap<JobId, JobOutcome>,
    /// Agents whose results were not all reported in time.
    pub lost: BTreeSet<AgentName>,
    /// Reason why no more results could arrive, if the broker was unreachable for too long.
    pub broker_gone: Option<String>,
    /// True if the campaign was abandoned.
    pub abandoned: bool,
    /// Repeated outcomes that were not counted.
    pub duplicate_outcomes: u64,
    /// Reports of unknown agents, or of jobs that were not assigned.
    pub unexpected_reports: u64,
    /// Messages that could not be read as reports.
    pub unreadable: u64,
}

/// Reason why a campaign cannot be started, resumed or completed; formatted as one line.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// The plan is invalid.
    #[error("{0}")]
    Plan(FileContentError),
    /// The plan cannot be placed.
    #[error("{fault}{}", excluded(.fault, .unusable))]
    Placement {
        /// Reason.
        fault: PlacementError,
        /// Agents that were not counted, and the reasons.
        unusable: Vec<(String, String)>,
    },
    /// The broker cannot be used.
    #[error(transparent)]
    Nats(#[from] NatsError),
    /// Agents do not execute their orders; nothing was measured.
    #[error("nothing was started: {0}")]
    NotStarted(String),
    /// The campaign does not exist.
    #[error(
        "campaign {0} is unknown or finished; 'horolog campaign list' lists the unfinished \
             ones"
    )]
    Unknown(CampaignId),
    /// The campaign cannot be resumed by this version.
    #[error("campaign {0} was started by horolog {1}; resume it with that version")]
    Version(CampaignId, String),
    /// Another controller has taken over.
    #[error("another controller took over campaign {0}; this one stops")]
    TakenOver(CampaignId),
    /// The broker was unreachable for too long.
    #[error(
        "{error}; agents retain their results: when the server is back, run 'horolog campaign run \
         --resume {campaign}'"
    )]
    BrokerGone {
        /// Campaign.
        campaign: CampaignId,
        /// Error of the last request.
        error: NatsError,
    },
    /// A system call failed, such as the one for random bytes.
    #[error("a system call of the campaign failed: {0}")]
    System(#[from] io::Error),
}

impl CampaignError {
    /// Formats the error; an error in the plan is preceded by the plan's file name and line number.
    #[must_use]
    pub fn in_file(&self, name: &str) -> String {
        match self {
            Self::Plan(fault) => fault.in_file(name),
            Self::Placement { fault, unusable } => fault.in_file(name) + &excluded(fault, unusable),
            other => other.to_string(),
        }
    }
}

/// Returns the part of the message that names the agents excluded from placement, and the reasons.
fn excluded(fault: &PlacementError, unusable: &[(String, String)]) -> String {
    let exclusions: Vec<_> = unusable.iter().map(|(name, why)| format!("{name} ({why})")).collect();
    if !exclusions.is_empty() {
        format!("; not counted: {}", exclusions.join(", "))
    } else if fault.is_empty {
        "; no agent is registered at the NATS server: start 'horolog campaign agent' on each \
         participating host"
            .to_owned()
    } else {
        String::new()
    }
}

/// Runs a campaign to its end and passes its results to `store_results`, which returns its output
/// and whether the results were stored. If they were stored and are complete, the campaign is
/// deleted at the broker. Otherwise it can be resumed to collect results delivered later, for as
/// long as the broker stores it. `event_sink` receives progress events; the campaign is abandoned
/// when `flow` returns `Break`.
///
/// # Errors
///
/// Nothing was started, or the campaign can be resumed; see [`CampaignError`].
pub fn run<T>(
    options: ControllerOptions,
    event_sink: &dyn Fn(&CampaignProgressEvent<'_>),
    flow: &dyn Fn() -> ControlFlow<()>,
    store_results: impl FnOnce(CollectedResults) -> (T, bool),
) -> Result<T, CampaignError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut controller = Box::pin(Controller::begin(options, event_sink, flow)).await?;
        let collected = Box::pin(controller.drive()).await?;
        let is_complete = collected.lost.is_empty() && collected.broker_gone.is_none();
        let (output, is_stored) = store_results(collected);
        if is_stored && is_complete {
            controller.remove_from_broker().await;
        }
        Ok(output)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_agents_are_named_with_the_plan_file() {
        let text = "schema = \"horolog.plan/2\"\nname = \"p\"\n[[role]]\nname = \"t\"\n\
                    kind = \"host-timer\"\n";
        let plan = Plan::parse(text, &[]).unwrap();
        let error_text = |unusable: &[(&str, &str)]| {
            let fault = crate::placement::assign_roles(&plan, &[]).unwrap_err();
            let unusable = unusable.iter().map(|(name, why)| ((*name).into(), (*why).into()));
            CampaignError::Placement { fault, unusable: unusable.collect() }.in_file("a.toml")
        };
        let lacks = "a.toml:4: role 't' needs an agent that may run host-timer, and there is none";
        assert_eq!(error_text(&[("n1", "why")]), format!("{lacks}; not counted: n1 (why)"));
        let none = error_text(&[]);
        assert!(
            none.starts_with(&format!("{lacks}; no agent is registered at the NATS server")),
            "{none}"
        );
    }
}
