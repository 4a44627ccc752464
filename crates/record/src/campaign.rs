//! The result of `horolog campaign run`: measurements on many machines at one instant, each with
//! its own record, and what they are together.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Distribution, Finding, Host, PathCounts, SignedDistribution, Trial};

/// The schema's name and version.
pub const CAMPAIGN_SCHEMA: &str = "horolog.campaign/1";

/// A whole campaign.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignResult {
    /// [`CAMPAIGN_SCHEMA`].
    pub schema: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine of the controller.
    pub host: Host,
    /// What this run is known by.
    pub campaign: String,
    /// What was planned.
    pub plan: CampaignPlan,
    /// Whether all agents were private hosts of one machine.
    pub local: bool,
    /// Whether it was ended before it was through.
    pub interrupted: bool,
    /// How the starts agreed; absent where nothing was started at the instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<CampaignStart>,
    /// What came beside the results that are below; absent where there was no network between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<CampaignDelivery>,
    /// What each role measured, all its instances together, in the plan's order.
    pub roles: Vec<CampaignRole>,
    /// The instances, in the plan's order.
    pub parts: Vec<CampaignPart>,
    /// Doubts about the figures, and what they lack.
    pub findings: Vec<Finding>,
}

impl CampaignResult {
    /// A copy with other parts.
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

/// A plan as it was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignPlan {
    /// What it is called.
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// What its text and parameters hash to.
    pub hash: String,
    /// Its parameters with the values that were in force.
    pub parameters: BTreeMap<String, String>,
    /// As it was written.
    pub text: String,
}

/// How the starts of processes agreed with the instant and with one another. Services, which are
/// started before, are not among them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignStart {
    /// The instant, UTC in ns since 1970.
    pub instant_ns: i64,
    /// How long after it each process went on to what it measures, made and loaded before, by its
    /// machine's clock, less what that clock was ahead where this is known.
    pub late_ns: SignedDistribution,
    /// From the first start to the last, in ns.
    pub spread_ns: u64,
    /// The most that any of these may be wrong because of clocks, either way, in ns; absent where a
    /// machine does not know how right its clock is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_ns: Option<u64>,
}

/// What came to the controller and is in no figure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignDelivery {
    /// Agents that were there and were given nothing to do, since they could not be used.
    pub unusable: Vec<CampaignUnusable>,
    /// Results that came again, each counted once.
    pub outcomes_twice: u64,
    /// Reports by agents that had no part in it, or of jobs that they were not given.
    pub reports_strange: u64,
    /// Messages that no report could be read from.
    pub messages_unreadable: u64,
}

/// An agent that could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignUnusable {
    /// Its name.
    pub agent: String,
    /// Why not.
    pub reason: String,
}

/// What a role measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignRole {
    /// Its name.
    pub role: String,
    /// What it does.
    pub kind: String,
    /// How many instances there were to be.
    pub instances: u64,
    /// How many of them gave a result.
    pub results: u64,
    /// All of them together.
    pub figures: CampaignFigures,
}

/// What results of one kind are together. Counts are sums, and distributions are those of all
/// values that were recorded anywhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CampaignFigures {
    /// Of load: trials of one place and planned rate.
    Load {
        /// In the order in which they ran.
        trials: Vec<CampaignTrial>,
        /// Up to where all was well, of rates that rose.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        capacity: Option<CampaignCapacity>,
    },
    /// Of datagrams over paths.
    Paths {
        /// Each path's rows.
        pairs: Vec<CampaignPair>,
        /// All paths together, a row for each length and load.
        rows: Vec<CampaignPathRow>,
    },
    /// Of relays.
    Relays {
        /// Each of them.
        relays: Vec<CampaignRelay>,
        /// Packets that all of them received.
        packets: u64,
        /// Copies that all of them sent.
        copies: u64,
        /// Copies that were not sent, by reason.
        dropped: BTreeMap<String, u64>,
    },
    /// Of periodic tasks on several nodes. Nodes that join write no record: what they did stands in
    /// that of the first node, and here.
    Cycles {
        /// Each task of each run, all nodes together.
        tasks: Vec<CampaignTask>,
        /// The same of each node.
        nodes: Vec<CampaignNode>,
    },
    /// Of everything else: distributions that stand at the same place of several records.
    Distributions {
        /// By their places.
        distributions: Vec<CampaignDistribution>,
    },
}

/// Trials of several generators that ran at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignTrial {
    /// The place of it among each generator's trials, from 0 on.
    pub index: usize,
    /// How many generators it is of.
    pub generators: u64,
    /// All of them together: rates, clients and counts are sums, and the duration is the longest.
    pub trial: Trial,
}

/// Up to which rate the servers answered what all generators together sent. Trials at rising rates
/// bracket it, and find it no nearer than from one rate to the next.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignCapacity {
    /// The largest share of requests that may be lost at a rate that counts as answered.
    pub loss_max: f64,
    /// The highest rate, as it was sent, below the first that was not answered; absent where the
    /// first one was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_rate: Option<f64>,
    /// The first that was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<CampaignLimit>,
}

/// The first of rising rates at which something gave way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignLimit {
    /// Who gave way.
    pub of: CampaignLimitOf,
    /// The rate that was planned, of all generators together, in requests per second.
    pub planned_rate: f64,
    /// The rate that was sent.
    pub sent_rate: f64,
    /// The share of requests that were lost.
    pub loss: f64,
}

/// Who can give way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CampaignLimitOf {
    /// The servers, or what is on the way to them: too many requests were lost.
    Servers,
    /// The generators sent less than they were to.
    Generators,
}

/// One row of one path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignPair {
    /// The agent that measured.
    pub from: String,
    /// The agent of the far end, where the plan says which that is, otherwise its address.
    pub to: String,
    /// Bytes of UDP payload.
    pub length: u64,
    /// R, as it was asked for.
    pub load_ratio: f64,
    /// What became of the requests.
    pub counts: PathCounts,
    /// The round trip, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
}

/// A row of all paths together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignPathRow {
    /// Bytes of UDP payload.
    pub length: u64,
    /// R, as it was asked for.
    pub load_ratio: f64,
    /// How many paths it is of.
    pub paths: u64,
    /// What became of the requests.
    pub counts: PathCounts,
    /// The round trip, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
}

/// One relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignRelay {
    /// The agent that ran it.
    pub agent: String,
    /// The job.
    pub job: String,
    /// Packets that it received.
    pub packets: u64,
    /// Packets that it refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Packets lost at its full socket, where the kernel tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_dropped: Option<u64>,
    /// What it sent to each child.
    pub children: Vec<CampaignChild>,
}

/// What a relay sent to one child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignChild {
    /// Where to.
    pub address: SocketAddr,
    /// The relay of the campaign that listens there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Copies sent.
    pub sent: u64,
    /// Copies not sent, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// What the child received, where it is a relay of the campaign and has no other parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
}

/// A task that several nodes ran in step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignTask {
    /// The job that led them.
    pub leader: String,
    /// Which of its runs, from 0 on.
    pub run: usize,
    /// The task.
    pub task: String,
    /// How many nodes.
    pub nodes: u64,
    /// Periods that are counted, of all nodes.
    pub periods: u64,
    /// Of those, how many were not done by their deadline.
    pub missed: u64,
    /// From the first node's beginning to the last one's end, in the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span_ns: Option<f64>,
    /// How far apart nodes began a period because their clocks are, as these were measured before
    /// the run: the furthest ahead to the furthest behind.
    pub skew_ns: u64,
    /// By how much that may be wrong, either way.
    pub skew_error_ns: u64,
    /// From a release to the node's first own instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_ns: Option<Distribution>,
    /// From a release to the end of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Distribution>,
}

/// A task on one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignNode {
    /// The job that led it.
    pub leader: String,
    /// Which of its runs, from 0 on.
    pub run: usize,
    /// The node.
    pub node: String,
    /// The job that it was, where it was one of the campaign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The agent that ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The task.
    pub task: String,
    /// Periods that are counted.
    pub periods: u64,
    /// Of those, how many were not done by their deadline.
    pub missed: u64,
    /// In how many periods the others waited for it; absent where nodes do not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaited: Option<u64>,
    /// How far its clock was ahead of the first node's before the run; absent for that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead_ns: Option<i64>,
    /// From a release to its first own instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_ns: Option<Distribution>,
    /// From a release to the end of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Distribution>,
}

/// A distribution that stands at the same place of several records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignDistribution {
    /// Where it stands, such as `cores[0].latency_ns`.
    pub place: String,
    /// In how many records.
    pub results: u64,
    /// All of them together.
    pub distribution: Distribution,
}

/// One instance of a role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignPart {
    /// Its role and number, such as `load.2`.
    pub job: String,
    /// Its role.
    pub role: String,
    /// What it did.
    pub kind: String,
    /// Whether it was a service, started before the instant.
    pub service: bool,
    /// The agent that ran it.
    pub agent: String,
    /// That agent's address.
    pub address: IpAddr,
    /// The agent of the other end, where it was for a pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// How it ended.
    pub end: CampaignEnd,
    /// Its exit status, where it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// Why it did not end well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it went on to what it measures, or a service was started, by its machine's clock, UTC
    /// in ns since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ns: Option<i64>,
    /// How long it ran, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// What was known of its machine's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<CampaignClock>,
    /// The last that it said on standard error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub errors: String,
    /// Its record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
}

impl CampaignPart {
    /// A copy without its record.
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

/// How a part ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CampaignEnd {
    /// As it should.
    Done,
    /// With an exit status that says that it could not do what it was asked.
    Failed,
    /// By a signal that nobody of the campaign sent.
    Signalled,
    /// Its time was over, and it was ended.
    TimedOut,
    /// The campaign was given up, and it was ended.
    Abandoned,
    /// It was not started.
    Refused,
    /// Its agent ended before it.
    Interrupted,
    /// Nothing was heard of it any more.
    Lost,
}

/// What was known of a machine's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignClock {
    /// How far it was ahead, in ns.
    pub offset_ns: i64,
    /// How far that may be wrong, either way, in ns.
    pub error_ns: u64,
    /// Who says so.
    pub source: String,
}
