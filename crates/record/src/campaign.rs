//! Result of `horolog campaign run`: measurements on many hosts with a common start time, each with
//! its own record, and their combined results.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Distribution, Finding, Host, PathCounts, SignedDistribution, Trial};

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
    /// True if it ended before completion.
    pub interrupted: bool,
    /// Agreement of the starts; absent if nothing was started at the start time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<CampaignStart>,
    /// Deliveries that are not among the results below; absent if no network lay between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<CampaignDelivery>,
    /// Combined measurements of each role's instances, in the plan's order.
    pub roles: Vec<CampaignRole>,
    /// Instances, in the plan's order.
    pub parts: Vec<CampaignPart>,
    /// Findings about the result, including what is missing from it.
    pub findings: Vec<Finding>,
}

impl CampaignResult {
    /// Returns a copy with other parts.
    #[must_use]
    pub fn with_parts(&self, parts: Vec<CampaignPart>) -> Self {
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

/// Plan as it was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignPlan {
    /// Name of the plan.
    pub name: String,
    /// Purpose of the plan.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Hash of its text and parameters.
    pub hash: String,
    /// Parameters with their effective values.
    pub parameters: BTreeMap<String, String>,
    /// Text of the plan as written.
    pub text: String,
}

/// Agreement of process starts with the start time and with one another. Services, which start
/// earlier, are not included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignStart {
    /// Start time, UTC in ns since 1970.
    pub instant_ns: i64,
    /// Delay after the start time at which each process, already created and loaded, began to
    /// measure, by its host's clock, corrected for the offset of that clock if known.
    pub late_ns: SignedDistribution,
    /// From the first start to the last, in ns.
    pub spread_ns: u64,
    /// Largest error of any of these because of clocks, in either direction, in ns; absent if a
    /// host does not know the error bound of its clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_ns: Option<u64>,
}

/// Agents, results and reports that reached the controller but are not part of any value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignDelivery {
    /// Available agents that were assigned nothing because they were unusable.
    pub unusable: Vec<CampaignUnusableAgent>,
    /// Repeated results; each is counted once.
    pub duplicate_outcomes: u64,
    /// Reports from agents without a part in the campaign, or about jobs not assigned to them.
    pub unexpected_reports: u64,
    /// Messages that could not be parsed as a report.
    pub unreadable_messages: u64,
}

/// Agent that could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignUnusableAgent {
    /// Name of the agent.
    pub agent: String,
    /// Reason.
    pub reason: String,
}

/// Measurements of one role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignRole {
    /// Name of the role.
    pub role: String,
    /// Kind of work.
    pub kind: String,
    /// Planned number of instances.
    pub instances: u64,
    /// Number of instances with a result.
    pub results: u64,
    /// Combined results of all instances.
    pub merged: MergedResults,
}

/// Combined results of one kind. Counts are sums; distributions cover all values recorded anywhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MergedResults {
    /// Results of load: trials of one index and intended rate.
    Load {
        /// Trials, in the order in which they ran.
        trials: Vec<CampaignTrial>,
        /// Capacity found by rising rates.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        capacity: Option<CampaignCapacity>,
    },
    /// Results of datagrams over paths.
    Paths {
        /// Rows of each path.
        pairs: Vec<CampaignPair>,
        /// All paths together, one row per length and load.
        rows: Vec<CampaignPathRow>,
    },
    /// Results of relays.
    Relays {
        /// The relays.
        relays: Vec<CampaignRelay>,
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
        /// Each task of each run, all nodes together.
        tasks: Vec<CampaignTask>,
        /// Each task of each run, by node.
        nodes: Vec<CampaignNode>,
    },
    /// Results of all other kinds: distributions at the same path of several records.
    Distributions {
        /// Distributions by path.
        distributions: Vec<CampaignDistribution>,
    },
}

/// Trials of several generators that ran at the same time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignTrial {
    /// Index of the trial among each generator's trials, from 0.
    pub index: usize,
    /// Number of generators.
    pub generators: u64,
    /// Combined trial of all generators: rates, clients and counts are sums, and the duration is
    /// the longest.
    pub trial: Trial,
}

/// Highest rate of all generators together that the servers answered. Trials at rising rates
/// bracket it no closer than the distance between two rates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignCapacity {
    /// Largest loss ratio of a rate that counts as answered.
    pub loss_max: f64,
    /// Highest rate, as sent, below the first unanswered one; absent if the first rate was not
    /// answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_rate: Option<f64>,
    /// First rate that was not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<CampaignLimit>,
}

/// First of the rising rates at which a limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignLimit {
    /// Side that reached its limit.
    pub limited_by: CampaignLimitOf,
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
pub enum CampaignLimitOf {
    /// Servers, or the path to them: too many requests were lost.
    Servers,
    /// Generators: they sent less than intended.
    Generators,
}

/// One row of one path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignPair {
    /// Agent that measured.
    pub from: String,
    /// Agent of the far end if the plan names it, otherwise its address.
    pub to: String,
    /// Bytes of UDP payload.
    pub length: u64,
    /// R: intended load ratio.
    pub load_ratio: f64,
    /// Outcomes of the requests.
    pub counts: PathCounts,
    /// Round trip, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
}

/// One row of all paths together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignPathRow {
    /// Bytes of UDP payload.
    pub length: u64,
    /// R: intended load ratio.
    pub load_ratio: f64,
    /// Number of paths.
    pub paths: u64,
    /// Outcomes of the requests.
    pub counts: PathCounts,
    /// Round trip, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
}

/// One relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignRelay {
    /// Agent that ran it.
    pub agent: String,
    /// Job of the relay.
    pub job: String,
    /// Packets received.
    pub packets: u64,
    /// Packets refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Packets lost at its full socket, if the kernel reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_dropped: Option<u64>,
    /// Counts of copies to each child.
    pub children: Vec<CampaignChild>,
}

/// Copies that a relay sent to one child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignChild {
    /// Address of the child.
    pub address: SocketAddr,
    /// Relay of the campaign that listens at that address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Copies sent.
    pub sent: u64,
    /// Copies not sent, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets received by the child, if it is a relay of the campaign without another parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
}

/// Task that several nodes ran in step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignTask {
    /// Job that led the nodes.
    pub leader: String,
    /// Index of the run, from 0.
    pub run: usize,
    /// The task.
    pub task: String,
    /// Number of nodes.
    pub nodes: u64,
    /// Counted periods of all nodes.
    pub periods: u64,
    /// Periods of these that missed their deadline.
    pub missed: u64,
    /// Mean time from the first node's beginning to the last node's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span_ns: Option<f64>,
    /// Spread of the nodes' period starts due to their clocks, from the furthest ahead to the
    /// furthest behind, as measured before the run.
    pub skew_ns: u64,
    /// Error bound of the skew, in either direction.
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
pub struct CampaignNode {
    /// Job that led the node.
    pub leader: String,
    /// Index of the run, from 0.
    pub run: usize,
    /// The node.
    pub node: String,
    /// Job of the node, if it belonged to the campaign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Agent that ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The task.
    pub task: String,
    /// Counted periods.
    pub periods: u64,
    /// Periods of these that missed their deadline.
    pub missed: u64,
    /// Number of periods in which the others waited for it; absent if nodes do not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub straggler_periods: Option<u64>,
    /// Offset of its clock from the first node's before the run, positive if ahead; absent for the
    /// first node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead_ns: Option<i64>,
    /// From release to its first instruction (start latency).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_latency_ns: Option<Distribution>,
    /// From release to the end of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Distribution>,
}

/// Distribution at the same path of several records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignDistribution {
    /// Path of the value, such as `cores[0].latency_ns`.
    pub path: String,
    /// Number of records.
    pub results: u64,
    /// Combined distribution of all records.
    pub distribution: Distribution,
}

/// One instance of a role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignPart {
    /// Role and number of the instance, such as `load.2`.
    pub job: String,
    /// Role of the instance.
    pub role: String,
    /// Kind of work.
    pub kind: String,
    /// True if it was a service, started before the start time.
    pub service: bool,
    /// Agent that ran it.
    pub agent: String,
    /// Address of that agent.
    pub address: IpAddr,
    /// Agent of the far end, if the instance measured a pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// End of the instance.
    pub end: CampaignEnd,
    /// Exit status, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// Reason for an unsuccessful end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Time at which it began to measure, or a service was started, by its host's clock, UTC in ns
    /// since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ns: Option<i64>,
    /// Duration, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// State of its host's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<CampaignClock>,
    /// Last output on standard error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub errors: String,
    /// Record of the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
}

impl CampaignPart {
    /// Returns a copy without its record.
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
pub enum CampaignEnd {
    /// Success.
    Done,
    /// Exit status of failure.
    Failed,
    /// Signal that did not come from the campaign.
    Signalled,
    /// Termination because its time was over.
    TimedOut,
    /// Termination because the campaign was abandoned.
    Abandoned,
    /// Refusal to start it.
    Refused,
    /// End of its agent before it.
    Interrupted,
    /// Loss of contact.
    Lost,
}

/// State of a host's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignClock {
    /// Offset, positive if ahead, in ns.
    pub offset_ns: i64,
    /// Error bound of the offset, in either direction, in ns.
    pub error_ns: u64,
    /// Source of the offset.
    pub source: String,
}
