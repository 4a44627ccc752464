//! Result of `horolog campaign run`: measurements on many hosts with a common start time, each with
//! its own result, and their merged results.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Distribution, Finding, Host, PathRequestCounts, SignedDistribution, Trial};

/// The schema's name and version.
pub const CAMPAIGN_SCHEMA: &str = "horolog.campaign/2";

/// Result of one campaign.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignResult {
    /// [`CAMPAIGN_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host of the controller.
    pub host: Host,
    /// Identifier of the campaign run.
    pub campaign: String,
    /// Plan of the campaign.
    pub plan: CampaignPlan,
    /// True if all agents were lab hosts on one host.
    pub local: bool,
    /// True if the campaign ended before completion.
    pub interrupted: bool,
    /// Agreement of the starts; absent if nothing was started at the start time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartAccuracy>,
    /// Agents and reports that are not part of the results below; absent if the agents did not
    /// report over a network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<CampaignExclusions>,
    /// Merged measurements of each role, in the order of the plan.
    pub roles: Vec<CampaignRoleResult>,
    /// Role instances, in the order of the plan.
    pub parts: Vec<CampaignInstanceResult>,
    /// Findings about the result, including missing data.
    pub findings: Vec<Finding>,
}

impl CampaignResult {
    /// Returns a copy of the result with `parts` as its instances; merged results are unchanged.
    #[must_use]
    pub fn with_instances(&self, parts: Vec<CampaignInstanceResult>) -> Self {
        Self {
            schema: self.schema.clone(),
            started: self.started.clone(),
            command: self.command.clone(),
            host: self.host.clone(),
            campaign: self.campaign.clone(),
            plan: self.plan.clone(),
            local: self.local,
            interrupted: self.interrupted,
            start: self.start.clone(),
            delivery: self.delivery.clone(),
            roles: self.roles.clone(),
            parts,
            findings: self.findings.clone(),
        }
    }
}

/// Plan of the campaign, as it was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignPlan {
    /// Name of the plan.
    pub name: String,
    /// Purpose of the plan.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Hash of the plan's text and parameters.
    pub hash: String,
    /// Parameters with their effective values.
    pub parameters: BTreeMap<String, String>,
    /// Text of the plan as written.
    pub text: String,
}

/// Accuracy of the common start: deviations of the process starts from the start time and from each
/// other. Services, which start earlier, are excluded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StartAccuracy {
    /// Start time, UTC in ns since 1970.
    pub instant_ns: i64,
    /// Start latency of each prepared process, in ns: delay from the start time until it began to
    /// measure, by its host's clock and corrected by the offset of that clock if known.
    pub late_ns: SignedDistribution,
    /// From the first start to the last, in ns.
    pub spread_ns: u64,
    /// Largest error bound of these values due to the hosts' clocks (±), in ns; absent if a host
    /// does not know the error bound of its clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_ns: Option<u64>,
}

/// Agents, results and reports that reached the controller but are not part of any value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignExclusions {
    /// Agents that were available but unusable, so that nothing was assigned to them.
    pub unusable: Vec<UnusableAgent>,
    /// Results that were delivered more than once; each is counted once.
    pub duplicate_outcomes: u64,
    /// Reports from agents outside the campaign, or about jobs that were not assigned to the agent.
    pub unexpected_reports: u64,
    /// Messages that could not be parsed as a report.
    pub unreadable_messages: u64,
}

/// Agent that could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnusableAgent {
    /// Name of the agent.
    pub agent: String,
    /// Reason why it could not be used.
    pub reason: String,
}

/// Measurements of one role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignRoleResult {
    /// Name of the role.
    pub role: String,
    /// Kind of work.
    pub kind: String,
    /// Planned number of instances.
    pub instances: u64,
    /// Number of instances with a result.
    pub results: u64,
    /// Combined results of the instances; findings name those that could not be combined.
    pub merged: MergedResults,
}

/// Combined results of one kind. Counts are sums; distributions cover all values recorded anywhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MergedResults {
    /// Results of NTP or PTP load: trials with the same index and intended rate are merged.
    Load {
        /// Merged trials, by index and then by intended rate.
        trials: Vec<CampaignTrial>,
        /// Capacity found by trials at rising rates; absent unless all generators took part in at
        /// least two trials and the intended rate rose from each to the next.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        capacity: Option<CampaignCapacity>,
    },
    /// Results of UDP paths.
    Paths {
        /// Rows of each pair of agents.
        pairs: Vec<CampaignPathPairRow>,
        /// Merged rows over all paths, one per datagram length and load.
        rows: Vec<CampaignPathRow>,
    },
    /// Results of relays.
    Relays {
        /// Counts of each relay.
        relays: Vec<CampaignRelayCounts>,
        /// Packets received by all relays.
        packets: u64,
        /// Copies sent by all relays.
        copies: u64,
        /// Copies not sent, by reason.
        dropped: BTreeMap<String, u64>,
    },
    /// Results of periodic tasks on several nodes. Joining nodes write no record: their results are
    /// in the record of the first node, and here.
    Cycles {
        /// Tasks of each run, merged over all nodes.
        tasks: Vec<CampaignTaskResult>,
        /// Each task of each run, by node.
        nodes: Vec<CampaignNodeTaskResult>,
    },
    /// Results of all other kinds: distributions at the same path in several results are merged.
    /// Counts, signed distributions, and distributions without a histogram are omitted.
    Distributions {
        /// Merged distributions, by path; at most 256.
        distributions: Vec<MergedDistribution>,
    },
}

/// Simultaneous trials of several generators, merged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignTrial {
    /// Index of the trial among each generator's trials, from 0.
    pub index: usize,
    /// Number of generators that ran this trial.
    pub generators: u64,
    /// Combined trial of all generators: rates, clients and counts are sums, and the duration is
    /// the longest. Fairness, compliant clients and timestamp offsets are absent, and there are no
    /// results by kind of request.
    pub trial: Trial,
}

/// Capacity: highest total rate of all generators that the servers answered, found by trials at
/// rising rates. Its resolution is the distance between these rates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignCapacity {
    /// Largest loss ratio at which a rate counts as answered.
    pub loss_max: f64,
    /// Achieved rate, in requests per second, of the last trial before the first one at a limit;
    /// absent if the first trial was at a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_rate: Option<f64>,
    /// First rate at which a limit was reached; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitingRate>,
}

/// First of the rising rates at which the servers or the generators reached their limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitingRate {
    /// Side that reached its limit.
    pub limited_by: LimitingSide,
    /// Intended rate of all generators together, in requests per second.
    pub intended_rate: f64,
    /// Achieved rate, in requests per second.
    pub sent_rate: f64,
    /// Loss ratio of the requests.
    pub loss: f64,
}

/// Sides that can reach their limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitingSide {
    /// Servers, or the path to them: too many requests were lost.
    Servers,
    /// Generators: the achieved rate was below the intended rate.
    Generators,
}

/// Row of a path between two agents: one datagram length and load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignPathPairRow {
    /// Agent that measured.
    pub from: String,
    /// Agent of the far end, or its address if the plan names no agent.
    pub to: String,
    /// Bytes of UDP payload.
    pub length: u64,
    /// R: intended load ratio.
    pub load_ratio: f64,
    /// Outcomes of the requests.
    pub counts: PathRequestCounts,
    /// Round trip, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
}

/// Row merged over all paths: one datagram length and load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignPathRow {
    /// Bytes of UDP payload.
    pub length: u64,
    /// R: intended load ratio.
    pub load_ratio: f64,
    /// Number of paths.
    pub paths: u64,
    /// Outcomes of the requests.
    pub counts: PathRequestCounts,
    /// Round trip, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
}

/// Counts of one relay of the campaign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignRelayCounts {
    /// Agent that ran it.
    pub agent: String,
    /// Job of the relay.
    pub job: String,
    /// Packets received.
    pub packets: u64,
    /// Packets refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Packets dropped by the relay's socket because its buffer was full; absent if the kernel does
    /// not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_dropped: Option<u64>,
    /// Counts of copies to each child.
    pub children: Vec<CampaignRelayChildCounts>,
}

/// Counts of the copies from a relay to one of its children.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignRelayChildCounts {
    /// Address of the child.
    pub address: SocketAddr,
    /// Job of the campaign's relay that listens on that address; absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Copies sent.
    pub sent: u64,
    /// Copies not sent, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets received by the child; present only if it is a relay of the campaign with no other
    /// parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
}

/// Task that several nodes ran in parallel, merged over the nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignTaskResult {
    /// Job of the node that controlled the run.
    pub leader: String,
    /// Index of the run, from 0.
    pub run: usize,
    /// Name of the task.
    pub task: String,
    /// Number of nodes.
    pub nodes: u64,
    /// Counted periods of all nodes.
    pub periods: u64,
    /// Periods of these that missed their deadline.
    pub missed: u64,
    /// Mean time from the first node's first instruction to the last node's end of work, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span_ns: Option<f64>,
    /// Difference between the most advanced and the most delayed clock of the nodes, as measured
    /// before the run, in ns: by as much do their period starts differ.
    pub skew_ns: u64,
    /// Error bound of the skew (±), in ns.
    pub skew_error_ns: u64,
    /// From release to the node's first instruction (start latency).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_latency_ns: Option<Distribution>,
    /// From release to the end of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Distribution>,
}

/// Task on one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignNodeTaskResult {
    /// Job of the node that controlled the run.
    pub leader: String,
    /// Index of the run, from 0.
    pub run: usize,
    /// Name of the node.
    pub node: String,
    /// Job of the node; absent if it does not belong to the campaign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Agent that ran the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Name of the task.
    pub task: String,
    /// Counted periods.
    pub periods: u64,
    /// Periods of these that missed their deadline.
    pub missed: u64,
    /// Number of periods in which the node was the straggler, for which the others waited; absent
    /// if nodes do not wait for each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub straggler_periods: Option<u64>,
    /// Offset of its clock from the first node's before the run, in ns, positive if ahead; absent
    /// for the first node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead_ns: Option<i64>,
    /// From release to its first instruction (start latency).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_latency_ns: Option<Distribution>,
    /// From release to the end of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Distribution>,
}

/// Merged distribution of the values at the same path in several results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MergedDistribution {
    /// Path of the value, such as `cores[0].latency_ns`.
    pub path: String,
    /// Number of results that have it.
    pub results: u64,
    /// Merged distribution of all these results.
    pub distribution: Distribution,
}

/// Instance of a role, with its own result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignInstanceResult {
    /// Role and number of the instance, such as `load.2`.
    pub job: String,
    /// Role of the instance.
    pub role: String,
    /// Kind of work.
    pub kind: String,
    /// True if it is a service, which starts before the start time.
    pub service: bool,
    /// Agent that ran it.
    pub agent: String,
    /// Address of that agent.
    pub address: IpAddr,
    /// Agent at the far end; absent unless the instance exists for a pair of agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// End of the instance.
    pub end: CampaignInstanceOutcome,
    /// Exit status of its process; absent unless it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// Reason for an unsuccessful end; absent after success, a timeout, abandonment, or loss of
    /// contact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Time at which it began to measure (a service: at which it was started), by its host's clock,
    /// in ns since 1970 (UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ns: Option<i64>,
    /// Duration, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// State of its host's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<InstanceClockOffset>,
    /// Last output on standard error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub errors: String,
    /// Result of the instance as JSON; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
}

impl CampaignInstanceResult {
    /// Returns a copy without the instance's own result.
    #[must_use]
    pub fn without_result(&self) -> Self {
        Self {
            job: self.job.clone(),
            role: self.role.clone(),
            kind: self.kind.clone(),
            service: self.service,
            agent: self.agent.clone(),
            address: self.address,
            to: self.to.clone(),
            end: self.end,
            status: self.status,
            message: self.message.clone(),
            started_ns: self.started_ns,
            duration_s: self.duration_s,
            clock: self.clock.clone(),
            errors: self.errors.clone(),
            result: None,
        }
    }
}

/// End of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CampaignInstanceOutcome {
    /// Its process ended successfully.
    Done,
    /// Its process ended with a failure status.
    Failed,
    /// A signal ended its process that the campaign did not send.
    Signalled,
    /// It was terminated because its time was over.
    TimedOut,
    /// Termination because the campaign was abandoned.
    Abandoned,
    /// The agent refused to start it.
    Refused,
    /// Its agent ended before it did.
    Interrupted,
    /// Its agent reported no outcome, as after a loss of contact.
    Lost,
}

/// Offset of the clock of an instance's host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceClockOffset {
    /// Offset of the clock in ns, positive if ahead.
    pub offset_ns: i64,
    /// Error bound of the offset (±), in ns.
    pub error_ns: u64,
    /// Source of the offset.
    pub source: String,
}
