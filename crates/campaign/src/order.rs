//! What controllers and agents say to one another, as data: orders, words that follow them, news,
//! outcomes, and what an agent says of itself. An order never carries a command line: it names a
//! kind of role and options of known types. Nothing here sends or judges; [`Order::check`] looks
//! only at whether an order can be understood and is of a size that is worth a look.
//!
//! What is input from the network refuses fields that it does not know: both ends are of one
//! version, which is checked before ([`PROTOCOL`], and the version in each message).

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::id::{AgentName, CampaignId, JobId};
use crate::role::RoleKind;

/// The version of this protocol.
pub const PROTOCOL: u32 = 1;
/// Jobs of one order, at most.
pub const JOBS_MAX: usize = 1_024;
/// Values of one option, at most.
pub const VALUES_MAX: usize = 1_024;
/// Bytes of one value, at most.
pub const VALUE_BYTES_MAX: usize = 4_096;
/// Characters of what others say of themselves that are shown.
pub(crate) const SHOWN_MAX: usize = 40;
/// How far ahead an instant may be when an agent is told of it, in ns: an hour.
pub const LEAD_NS_MAX: i64 = 3_600 * 1_000_000_000;
/// The longest that a job may take, in ns: a week.
pub const DEADLINE_NS_MAX: u64 = 7 * 24 * 3_600 * 1_000_000_000;

/// What one agent is to do in a campaign.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The controller's version of horolog.
    pub version: String,
    /// The campaign.
    pub campaign: CampaignId,
    /// Who is to do it.
    pub agent: AgentName,
    /// What the plan's text hashes to, in hexadecimal: the same for all orders of a campaign.
    pub plan_hash: String,
    /// How long each job may take from the instant on, in ns; a service ends earlier, when it is
    /// told to.
    pub deadline_ns: u64,
    /// The jobs.
    pub jobs: Vec<Job>,
}

/// One process that an agent is to run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// What it is known by.
    pub id: JobId,
    /// What it does.
    pub kind: RoleKind,
    /// Its options by their names in plans, with all references resolved. Those that may be given
    /// several times have several values.
    pub options: BTreeMap<String, Vec<String>>,
    /// Whether it is started before the instant and runs until it is told to end.
    pub service: bool,
}

/// Why an order is not looked at any further.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OrderFault {
    /// Another protocol.
    #[error("the order is of protocol {0}, and this agent speaks {PROTOCOL}; install one version")]
    Protocol(u32),
    /// Another version.
    #[error("the order is of horolog {order}, and this agent is {own}; install one version")]
    Version {
        /// The controller's.
        order: String,
        /// The agent's.
        own: String,
    },
    /// It is for somebody else.
    #[error("the order is for agent {0}")]
    Agent(AgentName),
    /// Nothing to do, or too much.
    #[error("the order has {0} jobs; 1 to {JOBS_MAX} are possible")]
    Jobs(usize),
    /// A job is there twice.
    #[error("the order has job {0} twice")]
    Twice(JobId),
    /// It may take too long, or no time at all.
    #[error("the order's deadline is {0} ns; 1 to {DEADLINE_NS_MAX} are possible")]
    Deadline(u64),
    /// An option has too many values, or one that is too long or holds a zero byte.
    #[error(
        "job {job}: option '{option}' is too large: up to {VALUES_MAX} values of {VALUE_BYTES_MAX} \
         bytes without zero bytes are possible"
    )]
    Option {
        /// The job.
        job: JobId,
        /// The option.
        option: String,
    },
}

impl Order {
    /// Whether it is for this agent, of its version, and of a possible size.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with it.
    pub fn check(&self, own: &AgentName, version: &str) -> Result<(), OrderFault> {
        if self.protocol != PROTOCOL {
            return Err(OrderFault::Protocol(self.protocol));
        }
        if self.version != version {
            let order = self.version.chars().take(SHOWN_MAX).collect();
            return Err(OrderFault::Version { order, own: version.to_owned() });
        }
        if self.agent != *own {
            return Err(OrderFault::Agent(self.agent.clone()));
        }
        if !(1..=JOBS_MAX).contains(&self.jobs.len()) {
            return Err(OrderFault::Jobs(self.jobs.len()));
        }
        if !(1..=DEADLINE_NS_MAX).contains(&self.deadline_ns) {
            return Err(OrderFault::Deadline(self.deadline_ns));
        }
        let mut seen = std::collections::BTreeSet::new();
        if let Some(job) = self.jobs.iter().find(|job| !seen.insert(&job.id)) {
            return Err(OrderFault::Twice(job.id.clone()));
        }
        self.jobs.iter().try_for_each(Job::check)
    }
}

impl Job {
    fn check(&self) -> Result<(), OrderFault> {
        let fits = |value: &String| value.len() <= VALUE_BYTES_MAX && !value.contains('\0');
        let is_wrong = |values: &Vec<String>| values.len() > VALUES_MAX || !values.iter().all(fits);
        let wrong = self.options.iter().find(|(name, values)| !fits(name) || is_wrong(values));
        wrong.map_or(Ok(()), |(option, _)| {
            let option = option.chars().take(SHOWN_MAX).collect();
            Err(OrderFault::Option { job: self.id.clone(), option })
        })
    }
}

/// What a controller says of an order that it sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case", tag = "word")]
pub enum Word {
    /// Start the jobs that are no services at this instant.
    Start {
        /// UTC, in ns since 1970.
        at_ns: i64,
    },
    /// End the services: all is done.
    Finish,
    /// End everything, with the results so far.
    Abandon,
}

/// What an agent says of an order while it carries it out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "news")]
pub enum News {
    /// The order can and may be carried out; services are being started.
    Accepted {
        /// When, by this agent's clock: UTC, in ns since 1970. A controller knows by it whether
        /// its own clock and this one can name the same instant.
        at_ns: i64,
    },
    /// It cannot or may not; nothing was started.
    Refused {
        /// Why, in one line.
        reason: String,
    },
    /// All services are ready, and the agent waits for the instant.
    Ready,
    /// A service is not there in time; those that were started have been ended.
    NotReady {
        /// Which.
        job: JobId,
        /// Why, in one line.
        reason: String,
    },
    /// A job's process was started.
    Started {
        /// Which.
        job: JobId,
        /// When, by this agent's clock: UTC, in ns since 1970.
        at_ns: i64,
    },
    /// What a job said last.
    Progress {
        /// Which.
        job: JobId,
        /// A line.
        text: String,
    },
    /// A job is over; its outcome comes by its own way.
    Ended {
        /// Which.
        job: JobId,
    },
}

/// How a job ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "how")]
pub enum Ending {
    /// By itself or because it was told to, with an exit status of 0, or of 1 where what was
    /// measured is not what it should be.
    Done {
        /// The exit status.
        status: i32,
    },
    /// With another status, or it could not be started.
    Failed {
        /// The exit status; as shells have it where it could not be started.
        status: i32,
        /// Why, in one line.
        message: String,
    },
    /// A signal that nobody here sent ended it.
    Signalled {
        /// Its number.
        signal: i32,
    },
    /// Its deadline passed, and it was ended; the result is what there was by then.
    TimedOut,
    /// The campaign was given up, and it was ended; the result is what there was by then.
    Abandoned,
    /// It was never started.
    Refused {
        /// Why, in one line.
        reason: String,
    },
    /// Its agent ended before it did.
    Interrupted {
        /// How, in one line.
        reason: String,
    },
}

/// What became of one job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// The campaign.
    pub campaign: CampaignId,
    /// Who ran it.
    pub agent: AgentName,
    /// Which.
    pub job: JobId,
    /// How it ended.
    pub ending: Ending,
    /// The instant at which it was to start, UTC in ns since 1970; absent for services and for what
    /// was never given one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intended_ns: Option<i64>,
    /// When its process went on to what it measures, or a service was started, by the agent's
    /// clock, UTC in ns since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ns: Option<i64>,
    /// When it had ended, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<i64>,
    /// What the agent knew of its clock at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockState>,
    /// The record that the job wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// The last that it said on standard error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr_tail: String,
}

impl Outcome {
    /// Of a job of which nothing is known but how it ended.
    #[must_use]
    pub const fn new(campaign: CampaignId, agent: AgentName, job: JobId, ending: Ending) -> Self {
        Self {
            campaign,
            agent,
            job,
            ending,
            intended_ns: None,
            started_ns: None,
            ended_ns: None,
            clock: None,
            result: None,
            stderr_tail: String::new(),
        }
    }
}

/// What an agent knows of its clock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockState {
    /// How far it is ahead of the true time, in ns.
    pub offset_ns: i64,
    /// How far that may be wrong, either way, in ns.
    pub error_ns: u64,
    /// Who says so.
    pub source: String,
}

/// What an agent says of itself, every few seconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentState {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Its version of horolog.
    pub version: String,
    /// Its name.
    pub name: AgentName,
    /// A number that is greater after each start: of two agents of one name, the later is right.
    pub incarnation: u64,
    /// What its owner says of it.
    pub labels: BTreeMap<String, String>,
    /// Where others reach it, the best address first.
    pub addresses: Vec<IpAddr>,
    /// What it can do.
    pub abilities: Abilities,
    /// What it knows of its clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockState>,
    /// The campaign that it works for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<CampaignId>,
    /// What its clock showed when it said so: UTC, in ns since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ns: Option<i64>,
}

impl AgentState {
    /// From what an agent says of itself; none where that cannot be read.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

/// What an agent can do.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Abilities {
    /// Whether it has root's rights.
    pub root: bool,
    /// Processors that it may use.
    pub cores: u32,
    /// The kinds of roles that its policy allows.
    pub kinds: Vec<RoleKind>,
}

#[cfg(test)]
mod tests;
