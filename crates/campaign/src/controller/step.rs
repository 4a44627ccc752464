//! How a campaign is coming along, for whoever watches; each as a line.

use std::fmt::{self, Display, Formatter};

use crate::fault::{counted, shown};
use crate::nats::NatsError;
use crate::order::{Ending, News, Outcome};
use crate::place::Placement;
use crate::{AgentName, CampaignId, JobId};

/// Something that has happened.
#[derive(Debug)]
pub enum Step<'a> {
    /// The campaign has its identifier and its places.
    Begun(&'a CampaignId, &'a Placement),
    /// An agent says how it is coming along.
    News(&'a AgentName, &'a News),
    /// What a job said last.
    Progress(&'a AgentName, &'a JobId, &'a str),
    /// The instant is named: UTC, in ns since 1970.
    Instant(i64),
    /// A job is over, and so many are not.
    Outcome(&'a Outcome, usize),
    /// It is being given up.
    Abandoned,
    /// An agent did not tell all in time.
    Lost(&'a AgentName),
    /// The broker does not answer.
    BrokerGone(&'a NatsError),
}

impl Display for Step<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begun(id, placement) => {
                let (jobs, agents) = (placement.jobs.len(), placement.agents().len());
                let (jobs, agents) = (counted(jobs, "job"), counted(agents, "agent"));
                write!(f, "campaign {id}: {jobs} on {agents}")
            }
            Self::News(agent, news) => news_line(f, agent, news),
            Self::Progress(agent, job, text) => {
                write!(f, "{agent}: {job}: {}", shown(text, SHOWN_MAX))
            }
            Self::Instant(at_ns) => {
                let (s, ms) = (at_ns.div_euclid(1_000_000_000), at_ns.rem_euclid(1_000_000_000));
                write!(f, "all are ready and start at @{s}.{:03}", ms / 1_000_000)
            }
            Self::Outcome(outcome, left) => {
                write!(f, "{}: {}: ", outcome.agent, outcome.job)?;
                ending(f, &outcome.ending)?;
                write!(f, "; {} to come", counted(*left, "job"))
            }
            Self::Abandoned => f.write_str("giving up; agents end what they run"),
            Self::Lost(agent) => write!(f, "{agent}: lost; it has not told all in time"),
            Self::BrokerGone(error) => write!(f, "{error}; waiting for it"),
        }
    }
}

/// Characters of what an agent says that are shown.
const SHOWN_MAX: usize = 200;

fn news_line(f: &mut Formatter<'_>, agent: &AgentName, news: &News) -> fmt::Result {
    match news {
        News::Accepted { .. } => write!(f, "{agent}: accepted"),
        News::Refused { reason } => write!(f, "{agent}: refused: {}", shown(reason, SHOWN_MAX)),
        News::Ready => write!(f, "{agent}: ready"),
        News::NotReady { job, reason } => {
            write!(f, "{agent}: {job}: not ready: {}", shown(reason, SHOWN_MAX))
        }
        News::Started { job, .. } => write!(f, "{agent}: {job}: started"),
        News::Progress { job, text } => write!(f, "{agent}: {job}: {}", shown(text, SHOWN_MAX)),
        News::Ended { job } => write!(f, "{agent}: {job}: ended"),
    }
}

fn ending(f: &mut Formatter<'_>, ending: &Ending) -> fmt::Result {
    match ending {
        Ending::Done { status } => write!(f, "done with status {status}"),
        Ending::Failed { status, message } => {
            write!(f, "failed with status {status}: {}", shown(message, SHOWN_MAX))
        }
        Ending::Signalled { signal } => write!(f, "ended by signal {signal}"),
        Ending::TimedOut => f.write_str("ended at its deadline"),
        Ending::Abandoned => f.write_str("ended early"),
        Ending::Refused { reason } => write!(f, "not started: {}", shown(reason, SHOWN_MAX)),
        Ending::Interrupted { reason } => write!(f, "interrupted: {}", shown(reason, SHOWN_MAX)),
    }
}
