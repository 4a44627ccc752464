//! Progress events of a campaign for observers; each is formatted as one line.

use std::fmt::{self, Display, Formatter};

use crate::file_error::{count_text, sanitised};
use crate::nats::NatsError;
use crate::order::{JobEnd, JobOutcome, OrderEvent};
use crate::placement::Placement;
use crate::{AgentName, CampaignId, JobId};

/// Progress event of a campaign.
#[derive(Debug)]
pub enum CampaignProgressEvent<'a> {
    /// The campaign has its identifier and its placement.
    Begun(&'a CampaignId, &'a Placement),
    /// An agent reports an event of its order.
    AgentEvent(&'a AgentName, &'a OrderEvent),
    /// A job reports progress.
    Progress(&'a AgentName, &'a JobId, &'a str),
    /// The start time is set: UTC, in ns since 1970.
    StartTime(i64),
    /// A job has an outcome; the number is that of the jobs without one.
    Outcome(&'a JobOutcome, usize),
    /// The campaign is being abandoned.
    Abandoned,
    /// Not all results of an agent were reported in time.
    Lost(&'a AgentName),
    /// The broker is unreachable.
    BrokerGone(&'a NatsError),
}

impl Display for CampaignProgressEvent<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begun(id, placement) => {
                let (jobs, agents) = (placement.jobs.len(), placement.agents().len());
                let (jobs, agents) = (count_text(jobs, "job"), count_text(agents, "agent"));
                write!(f, "campaign {id}: {jobs} on {agents}")
            }
            Self::AgentEvent(agent, event) => write_event(f, agent, event),
            Self::Progress(agent, job, text) => {
                write!(f, "{agent}: {job}: {}", sanitised(text, SHOWN_MAX))
            }
            Self::StartTime(at_ns) => {
                let (s, ms) = (at_ns.div_euclid(1_000_000_000), at_ns.rem_euclid(1_000_000_000));
                write!(f, "all are ready; start time @{s}.{:03}", ms / 1_000_000)
            }
            Self::Outcome(outcome, left) => {
                write!(f, "{}: {}: ", outcome.agent, outcome.job)?;
                write_ending(f, &outcome.ending)?;
                write!(f, "; {} left", count_text(*left, "job"))
            }
            Self::Abandoned => f.write_str("abandoned; agents terminate their jobs"),
            Self::Lost(agent) => {
                write!(f, "{agent}: lost: not all results were reported before the timeout")
            }
            Self::BrokerGone(error) => write!(f, "{error}; waiting for it"),
        }
    }
}

/// Largest number of characters shown of an agent's text.
const SHOWN_MAX: usize = 200;

fn write_event(f: &mut Formatter<'_>, agent: &AgentName, event: &OrderEvent) -> fmt::Result {
    match event {
        OrderEvent::Accepted { .. } => write!(f, "{agent}: accepted"),
        OrderEvent::Refused { reason } => {
            write!(f, "{agent}: refused: {}", sanitised(reason, SHOWN_MAX))
        }
        OrderEvent::Ready => write!(f, "{agent}: ready"),
        OrderEvent::NotReady { job, reason } => {
            write!(f, "{agent}: {job}: not ready: {}", sanitised(reason, SHOWN_MAX))
        }
        OrderEvent::Started { job, .. } => write!(f, "{agent}: {job}: started"),
        OrderEvent::Progress { job, text } => {
            write!(f, "{agent}: {job}: {}", sanitised(text, SHOWN_MAX))
        }
        OrderEvent::Ended { job } => write!(f, "{agent}: {job}: ended"),
    }
}

fn write_ending(f: &mut Formatter<'_>, ending: &JobEnd) -> fmt::Result {
    match ending {
        JobEnd::Done { status } => write!(f, "done with status {status}"),
        JobEnd::Failed { status, message } => {
            write!(f, "failed with status {status}: {}", sanitised(message, SHOWN_MAX))
        }
        JobEnd::Signalled { signal } => write!(f, "terminated by signal {signal}"),
        JobEnd::TimedOut => f.write_str("terminated at its deadline"),
        JobEnd::Abandoned => f.write_str("ended early"),
        JobEnd::Refused { reason } => write!(f, "not started: {}", sanitised(reason, SHOWN_MAX)),
        JobEnd::Interrupted { reason } => {
            write!(f, "interrupted: {}", sanitised(reason, SHOWN_MAX))
        }
    }
}
