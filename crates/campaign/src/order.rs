//! Messages between controllers and agents: orders, order commands and events, outcomes, and the
//! state of an agent. An order never contains a command line: it names kinds of roles and options
//! of known types. Whether an agent may execute it is decided by [`crate::policy`].
//!
//! Messages with unknown fields are refused. This is possible because both ends must have the same
//! version, which is compared first ([`PROTOCOL`], and the version in each message).

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::id::{AgentName, CampaignId, JobId};
use crate::role::RoleKind;

/// Version of the protocol between controllers and agents.
pub const PROTOCOL: u32 = 1;
/// Largest number of jobs in one order.
pub const JOBS_MAX: usize = 1_024;
/// Largest number of values of one option.
pub const VALUES_MAX: usize = 1_024;
/// Largest size of one value, in bytes.
pub const VALUE_BYTES_MAX: usize = 4_096;
/// Largest number of characters of a received name or version in a message.
pub(crate) const SHOWN_MAX: usize = 40;
/// Longest accepted time from the receipt of a start time to the start time, in ns: an hour.
pub const LEAD_NS_MAX: i64 = 3_600 * 1_000_000_000;
/// Longest duration of a job, in ns: a week.
pub const DEADLINE_NS_MAX: u64 = 7 * 24 * 3_600 * 1_000_000_000;

/// Order of one agent in a campaign.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Version of the protocol, [`PROTOCOL`].
    pub protocol: u32,
    /// Version of horolog of the controller.
    pub version: String,
    /// Campaign.
    pub campaign: CampaignId,
    /// Agent that executes it.
    pub agent: AgentName,
    /// Hash of the plan's text, in hexadecimal: equal in all orders of a campaign.
    pub plan_hash: String,
    /// Longest duration of each job from the start time, in ns; a service ends on command, at the
    /// latest a minute after that.
    pub deadline_ns: u64,
    /// Jobs.
    pub jobs: Vec<Job>,
}

/// One process that an agent runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Job identifier.
    pub id: JobId,
    /// Kind of role.
    pub kind: RoleKind,
    /// Options by their names in plans, with all references resolved. Repeatable options have
    /// several values.
    pub options: BTreeMap<String, Vec<String>>,
    /// True if it is started before the start time and runs until it is terminated.
    pub service: bool,
}

/// Reason why an agent rejects an order before its policy is consulted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OrderError {
    /// The order uses another version of the protocol.
    #[error("the order uses protocol {0}, and this agent protocol {PROTOCOL}; install one version")]
    Protocol(u32),
    /// The order was written by another version of horolog.
    #[error("the order is of horolog {order}, and this agent is {own}; install one version")]
    Version {
        /// Version of the controller.
        order: String,
        /// Version of the agent.
        own: String,
    },
    /// The order is for another agent.
    #[error("the order is for agent {0}")]
    Agent(AgentName),
    /// The order has no jobs, or too many.
    #[error("the order has {0} jobs; 1 to {JOBS_MAX} are supported")]
    Jobs(usize),
    /// A job occurs twice.
    #[error("the order has job {0} twice")]
    DuplicateJob(JobId),
    /// The deadline is zero or too long.
    #[error("the order's deadline is {0} ns; 1 to {DEADLINE_NS_MAX} are supported")]
    Deadline(u64),
    /// An option has too many values, or one that is too long or holds a zero byte.
    #[error(
        "job {job}: option '{option}' is too large: up to {VALUES_MAX} values of {VALUE_BYTES_MAX} \
         bytes without zero bytes are supported"
    )]
    Option {
        /// Job.
        job: JobId,
        /// Option.
        option: String,
    },
}

impl Order {
    /// Checks that the order is for this agent, of its version, and of an acceptable size.
    ///
    /// # Errors
    ///
    /// The first violation.
    pub fn check(&self, agent_name: &AgentName, version: &str) -> Result<(), OrderError> {
        if self.protocol != PROTOCOL {
            return Err(OrderError::Protocol(self.protocol));
        }
        if self.version != version {
            let order = self.version.chars().take(SHOWN_MAX).collect();
            return Err(OrderError::Version { order, own: version.to_owned() });
        }
        if self.agent != *agent_name {
            return Err(OrderError::Agent(self.agent.clone()));
        }
        if !(1..=JOBS_MAX).contains(&self.jobs.len()) {
            return Err(OrderError::Jobs(self.jobs.len()));
        }
        if !(1..=DEADLINE_NS_MAX).contains(&self.deadline_ns) {
            return Err(OrderError::Deadline(self.deadline_ns));
        }
        let mut visited = std::collections::BTreeSet::new();
        if let Some(job) = self.jobs.iter().find(|job| !visited.insert(&job.id)) {
            return Err(OrderError::DuplicateJob(job.id.clone()));
        }
        self.jobs.iter().try_for_each(Job::check)
    }
}

impl Job {
    fn check(&self) -> Result<(), OrderError> {
        let fits = |value: &String| value.len() <= VALUE_BYTES_MAX && !value.contains('\0');
        let is_wrong = |values: &Vec<String>| values.len() > VALUES_MAX || !values.iter().all(fits);
        let wrong = self.options.iter().find(|(name, values)| !fits(name) || is_wrong(values));
        wrong.map_or(Ok(()), |(option, _)| {
            let option = option.chars().take(SHOWN_MAX).collect();
            Err(OrderError::Option { job: self.id.clone(), option })
        })
    }
}

/// Command of a controller for an order that it sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case", tag = "word")]
pub enum OrderCommand {
    /// Start the jobs that are not services at this time.
    Start {
        /// Start time, UTC in ns since 1970.
        at_ns: i64,
    },
    /// Terminate the services: all other jobs have ended.
    Finish,
    /// Terminate all jobs, with their results so far.
    Abandon,
}

/// Event of an agent during the execution of an order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "news")]
pub enum OrderEvent {
    /// The order is valid and allowed; services are being started.
    Accepted {
        /// Time of the acceptance by the agent's clock: UTC, in ns since 1970. The controller
        /// compares it with its own clock.
        at_ns: i64,
    },
    /// The order is invalid or not allowed; nothing was started.
    Refused {
        /// Reason, in one line.
        reason: String,
    },
    /// All services are ready, and the agent waits for the start time.
    Ready,
    /// A service is not ready in time; all started jobs are terminated.
    NotReady {
        /// Service.
        job: JobId,
        /// Reason, in one line.
        reason: String,
    },
    /// A measurement has passed its start gate, or a service was started.
    Started {
        /// Job.
        job: JobId,
        /// Time of the start by the agent's clock: UTC, in ns since 1970.
        at_ns: i64,
    },
    /// A job printed a line of progress.
    Progress {
        /// Job.
        job: JobId,
        /// Line.
        text: String,
    },
    /// A job has ended; its outcome is sent separately.
    Ended {
        /// Job.
        job: JobId,
    },
}

/// End of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "how")]
pub enum JobEnd {
    /// The job exited by itself or on command, with status 0, or 1 if the measurement is outside
    /// its limits.
    Done {
        /// Exit status.
        status: i32,
    },
    /// The job exited with another status, or could not be started.
    Failed {
        /// Exit status; if the job could not be started, the one that a shell would report.
        status: i32,
        /// Reason, in one line.
        message: String,
    },
    /// The job was terminated by a signal that the agent did not send.
    Signalled {
        /// Signal number.
        signal: i32,
    },
    /// The job was terminated at its deadline; its result covers the time until then.
    TimedOut,
    /// The job was terminated because the campaign was abandoned; its result covers the time until
    /// then.
    Abandoned,
    /// The job was not started.
    Refused {
        /// Reason, in one line.
        reason: String,
    },
    /// The agent stopped before the job had an outcome.
    Interrupted {
        /// Cause, in one line.
        reason: String,
    },
}

/// Outcome of one job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobOutcome {
    /// Campaign.
    pub campaign: CampaignId,
    /// Agent that ran it.
    pub agent: AgentName,
    /// Job.
    pub job: JobId,
    /// End of the job.
    pub ending: JobEnd,
    /// Intended start time, UTC in ns since 1970; `None` for services and for jobs without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intended_ns: Option<i64>,
    /// Actual start time by the agent's clock, UTC in ns since 1970: passage of the start gate, or
    /// creation of a service's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ns: Option<i64>,
    /// Time of the end of the process by the agent's clock, UTC in ns since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<i64>,
    /// Offset of the agent's clock at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<AgentClockOffset>,
    /// Result written by the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// Last lines of the job's standard error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr_tail: String,
}

impl JobOutcome {
    /// Creates an outcome that holds only the end of the job.
    #[must_use]
    pub const fn new(campaign: CampaignId, agent: AgentName, job: JobId, ending: JobEnd) -> Self {
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

/// Offset of an agent's clock from true time, with its error bound and its source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentClockOffset {
    /// Offset of the clock from true time, in ns; positive if it is ahead.
    pub offset_ns: i64,
    /// Error bound of the offset, in ns.
    pub error_ns: u64,
    /// Source of the offset, such as `kernel` or a time server.
    pub source: String,
}

/// State that an agent publishes every few seconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentState {
    /// Version of the protocol, [`PROTOCOL`].
    pub protocol: u32,
    /// Version of horolog.
    pub version: String,
    /// Agent name.
    pub name: AgentName,
    /// Incarnation: a number that is greater at each start. Of two agents with the same name, the
    /// one with the greater incarnation is valid.
    pub incarnation: u64,
    /// Labels set by the operator.
    pub labels: BTreeMap<String, String>,
    /// Addresses at which the jobs of other agents reach its host, preferred one first.
    pub addresses: Vec<IpAddr>,
    /// Capabilities of the agent.
    pub abilities: AgentCapabilities,
    /// Offset of the agent's clock; `None` if its error bound is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<AgentClockOffset>,
    /// Campaign of the agent's current order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<CampaignId>,
    /// Reading of the agent's clock at publication: UTC, in ns since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ns: Option<i64>,
}

impl AgentState {
    /// Parses the published state of an agent; `None` if it cannot be read.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

/// Capabilities of an agent.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentCapabilities {
    /// True if the agent has root privileges.
    pub root: bool,
    /// Number of CPUs that the agent may use.
    pub cores: u32,
    /// Kinds of roles that its policy allows.
    pub kinds: Vec<RoleKind>,
}

#[cfg(test)]
mod tests;
