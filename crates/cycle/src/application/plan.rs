//! Plan of a test: the application, its sources, the injected faults, and the states of the run. A
//! checked plan can be run.

use horolog_record::{CycleTestFaultKind as FaultKind, TaskSchedulingPolicy};
use serde::{Deserialize, Serialize};

pub use crate::task::MessageDestination;
use crate::task::{MESSAGE_MAX, PERIOD_MAX_NS, STEPS_MAX};

/// Largest number of nodes of a test.
pub const NODES_MAX: u16 = 64;
/// Largest number each of sources, faults and states.
pub(super) const ITEMS_MAX: usize = 64;
/// Longest test, in ns: one hour.
pub const TIME_MAX_NS: u64 = 3_600_000_000_000;
/// Shortest period, in ns. The outcome of every period is stored in memory.
const PERIOD_MIN_NS: u64 = 1_000_000;
/// Largest rate of a source, in reports per second.
const RATE_MAX: f64 = 100_000.0;
/// Longest report, in bytes: one datagram.
pub(super) const REPORT_MAX: u64 = 60_000;
/// Upper limit of each of a stage's times of computation (fixed, per report, per byte), in ns.
const COMPUTE_MAX_NS: u64 = 10_000_000_000;
/// Error text for policy deadline, which tests do not support.
pub(super) const DEADLINE_POLICY_ERROR: &str = "write policy fifo, rr or other: execution times depend on \
                                      the input, so policy deadline has no runtime to reserve \
                                      ('cycle run' supports it)";
/// State of the periods for which the plan names none.
pub(super) const DEFAULT_STATE: &str = "plain";

/// Plan of an application test.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ApplicationTestPlan {
    /// Name of the application.
    pub name: String,
    /// Number of nodes.
    pub nodes: u16,
    /// Duration of the test, in ns.
    pub time_ns: u64,
    /// Time from one release to the next, in ns.
    pub period_ns: u64,
    /// Time from a release to the deadline of the period's work, in ns.
    pub deadline_ns: u64,
    /// Scheduling policy of the nodes.
    pub policy: TaskSchedulingPolicy,
    /// Real-time priority; 0 under `other`.
    pub priority: u8,
    /// Cores to which nodes are pinned, in turn; empty for no pinning.
    pub cores: Vec<usize>,
    /// Largest number of usable reports that a node takes in a period.
    pub budget: u32,
    /// Number of consecutive periods without any disturbance that count as recovery.
    pub steady: u32,
    /// Number of periods without a message or barrier arrival of a node beyond which it has timed
    /// out.
    pub node_timeout: u32,
    /// Wait for other nodes in a stage, in ns, above which the straggler is reported as a
    /// detection.
    pub response_limit_ns: u64,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Stages of a period, in their order.
    pub stages: Vec<PipelineStage>,
    /// Sources of reports.
    pub sources: Vec<SimulatedSource>,
    /// Injected faults.
    pub faults: Vec<FaultSpec>,
    /// Labelled intervals of the run.
    pub states: Vec<PlannedRunState>,
}

/// Stage of the pipeline in a period: receives reports, computes, exchanges a message, waits at a
/// barrier.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PipelineStage {
    /// Name of the stage.
    pub name: String,
    /// True if the stage receives the reports that have arrived.
    pub intake: bool,
    /// Fixed computation, in ns; multiplied by the load.
    pub compute_ns: u64,
    /// Additional computation for each report of the period, in ns.
    pub per_report_ns: u64,
    /// Additional computation for each byte of the reports, in ns.
    pub per_byte_ns: f64,
    /// Length of the message that each node sends, in bytes; `None` if the stage sends none.
    pub message: Option<u64>,
    /// Receivers of the message.
    pub to: MessageDestination,
    /// Transit time above which a message counts as late, in ns.
    pub late_after_ns: u64,
    /// True if all nodes wait for each other at the end.
    pub barrier: bool,
    /// Timeout of the wait for other nodes, in ns from the end of the computation, but not beyond
    /// the next release; `None` to wait until the next release.
    pub wait_ns: Option<u64>,
}

/// Simulated sender of application reports (messages to the nodes).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SimulatedSource {
    /// Name of the source.
    pub name: String,
    /// Mean rate, in reports per second; of a ramp, the rate at the start.
    pub rate: f64,
    /// Distribution of the reports over time.
    pub profile: ArrivalProfile,
    /// Length of the reports with their headers, in bytes.
    pub size: ReportLengthDistribution,
    /// Indices of the nodes that receive the reports, from 0; empty for all nodes.
    pub nodes: Vec<u16>,
    /// Distribution of the reports among these nodes.
    pub to: ReportDeliveryMode,
    /// Age above which a report counts as late when it is received, in ns.
    pub late_after_ns: u64,
}

/// Distribution over time of the messages (application reports) of a simulated source.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalProfile {
    /// At equal intervals.
    Constant,
    /// Poisson process, with the mean rate of the source.
    Poisson,
    /// In bursts of this number of reports.
    Burst(u32),
    /// At a rate that changes linearly over the run from that of the source to this one, in reports
    /// per second.
    Ramp(f64),
}

/// Distribution of the length of reports, in bytes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportLengthDistribution {
    /// Uniformly distributed between two lengths, inclusive.
    Between(u64, u64),
    /// One of these lengths, each with equal probability.
    OneOf(Vec<u64>),
}

/// Distribution of reports among nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportDeliveryMode {
    /// Each report to one node, in turn.
    Turn,
    /// A copy of each report to every node.
    All,
}

/// Fault of the plan, to be injected: its kind, time, target and extent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FaultSpec {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Start, in ns of the run.
    pub at_ns: u64,
    /// Duration, in ns; 0 for [`FaultKind::End`].
    pub for_ns: u64,
    /// Index of the affected source, from 0; `None` for all.
    pub source: Option<u16>,
    /// Index of the affected node, from 0; `None` for all.
    pub node: Option<u16>,
    /// Share of the reports or messages that is affected, above 0 and at most 1.
    pub share: f64,
    /// Factor of a slow node's computation.
    pub factor: f64,
    /// Delay of late reports or messages, in ns.
    pub delay_ns: u64,
    /// State of the periods during the fault; `None` for no change.
    pub state: Option<String>,
}

/// State of the run: a labelled interval of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlannedRunState {
    /// Label of the state.
    pub name: String,
    /// Start, in ns of the run.
    pub from_ns: u64,
    /// End, in ns of the run, exclusive.
    pub to_ns: u64,
}

impl ApplicationTestPlan {
    /// Returns the number of periods of each node: the whole periods in the duration, at least 1.
    #[must_use]
    pub const fn period_count(&self) -> u64 {
        let cycles = self.time_ns / self.period_ns;
        if cycles == 0 { 1 } else { cycles }
    }

    /// Returns this plan with another number of nodes.
    ///
    /// # Errors
    ///
    /// The plan is invalid with that number, for instance because a fault refers to a missing node.
    pub fn with_nodes(mut self, nodes: u16) -> Result<Self, String> {
        self.nodes = nodes;
        self.check_plan()?;
        self.sources.iter().try_for_each(|source| self.check_source(source))?;
        self.faults.iter().try_for_each(|fault| self.check_fault(fault))?;
        Ok(self)
    }

    /// Returns this plan without faults and states, for the trials of a search, with the duration
    /// `time_ns`, or one period if that is longer.
    #[must_use]
    pub fn without_faults(&self, time_ns: u64) -> Self {
        let time_ns = time_ns.max(self.period_ns);
        Self { time_ns, faults: Vec::new(), states: Vec::new(), ..self.clone() }
    }

    /// Checks the plan as a whole.
    pub(super) fn check_plan(&self) -> Result<(), String> {
        if !(1..=NODES_MAX).contains(&self.nodes) {
            return Err(format!("there are {} nodes; use 1 to {NODES_MAX}", self.nodes));
        }
        if !(PERIOD_MIN_NS..=PERIOD_MAX_NS).contains(&self.period_ns) {
            return Err("a period is 1ms to 1h long".to_owned());
        }
        if self.deadline_ns == 0 || self.deadline_ns > self.period_ns {
            return Err("a deadline is longer than 0 and no longer than the period".to_owned());
        }
        if self.time_ns < self.period_ns || self.time_ns > TIME_MAX_NS {
            return Err(
                "the duration of a test is at least a period, and at most an hour".to_owned()
            );
        }
        if self.policy == TaskSchedulingPolicy::Deadline {
            return Err(DEADLINE_POLICY_ERROR.to_owned());
        }
        match (self.policy.has_priority(), self.priority) {
            (true, 1..=99) | (false, 0) => {}
            (true, _) => return Err("a real-time priority is 1 to 99".to_owned()),
            (false, _) => {
                return Err(format!("policy {} has no priority", self.policy.name()));
            }
        }
        if self.budget == 0 || self.steady == 0 || self.node_timeout == 0 {
            return Err("budget, steady and node-timeout are at least 1".to_owned());
        }
        for (what, count, least) in [
            ("stages", self.stages.len(), 1),
            ("sources", self.sources.len(), 0),
            ("faults", self.faults.len(), 0),
            ("states", self.states.len(), 0),
        ] {
            let most = if what == "stages" { STEPS_MAX } else { ITEMS_MAX };
            if !(least..=most).contains(&count) {
                return Err(format!("there are {count} {what}; use {least} to {most}"));
            }
        }
        let intakes = self.stages.iter().filter(|stage| stage.intake).count();
        match (self.sources.is_empty(), intakes) {
            (true, 0) | (false, 1) => Ok(()),
            (true, _) => Err("a stage takes reports, but no source exists".to_owned()),
            (false, _) => {
                Err(format!("{intakes} stages take reports; set 'intake = true' on one of them"))
            }
        }
    }

    pub(super) fn check_source(&self, source: &SimulatedSource) -> Result<(), String> {
        let is_valid = |rate: f64| rate > 0.0 && rate <= RATE_MAX;
        let rates = [Some(source.rate), source.profile.last_rate()];
        if !rates.into_iter().flatten().all(is_valid) {
            return Err(format!("a rate is above 0 and {RATE_MAX} a second at most"));
        }
        if let ArrivalProfile::Burst(count) = source.profile
            && !(1..=10_000).contains(&count)
        {
            return Err("a burst has 1 to 10000 reports".to_owned());
        }
        let (least, most) = source.size.bounds();
        let header = super::report::HEADER_LEN as u64;
        if least < header || most > REPORT_MAX || least > most {
            return Err(format!(
                "a report has {header} to {REPORT_MAX} bytes, {header} of which are its header"
            ));
        }
        if let Some(node) = source.nodes.iter().find(|node| **node >= self.nodes) {
            return Err(self.missing_node(*node));
        }
        Ok(())
    }

    fn missing_node(&self, node: u16) -> String {
        format!("node {} does not exist; nodes are 1 to {}", u32::from(node) + 1, self.nodes)
    }

    pub(super) fn check_fault(&self, fault: &FaultSpec) -> Result<(), String> {
        if let Some(node) = fault.node.filter(|node| *node >= self.nodes) {
            return Err(self.missing_node(node));
        }
        if self.nodes < 2 && fault.is_message_fault() {
            return Err("a single node sends no messages; use at least two".to_owned());
        }
        let recovery_max_ns =
            u64::from(self.steady).saturating_add(3).saturating_mul(self.period_ns);
        let end_ns = |fault: &FaultSpec| fault.end_ns().saturating_add(fault.delay_ns);
        let until_ns = end_ns(fault);
        if until_ns.saturating_add(recovery_max_ns) > self.time_ns {
            // The suggested duration is long enough for all faults.
            let last_ns = self.faults.iter().map(end_ns).fold(until_ns, u64::max);
            let ms = |ns: u64| ns / 1_000_000;
            return Err(format!(
                "the fault '{}' at {} ms ends {} ms after the test begins, and its recovery takes \
                 up to {} ms more, while the test takes {} ms; move the fault, or use a longer \
                 time (--time {}ms)",
                fault.kind.name(),
                ms(fault.at_ns),
                ms(until_ns),
                ms(recovery_max_ns),
                ms(self.time_ns),
                last_ns.saturating_add(recovery_max_ns).div_ceil(1_000_000)
            ));
        }
        Ok(())
    }

    /// Returns the state of a period that is released at this time of the run.
    pub(super) fn state_at(&self, due_ns: u64) -> &str {
        let mut faults = self.faults.iter().filter(|fault| fault.is_active_at(due_ns));
        let of_fault = faults.find_map(|fault| fault.state.as_deref());
        let is_active = |state: &&PlannedRunState| (state.from_ns..state.to_ns).contains(&due_ns);
        let of_run = self.states.iter().find(is_active).map(|state| state.name.as_str());
        of_fault.or(of_run).unwrap_or(DEFAULT_STATE)
    }

    /// Returns the possible states in the order of the plan, the default state last.
    pub(super) fn state_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.states.iter().map(|state| state.name.as_str()).collect();
        names.extend(self.faults.iter().filter_map(|fault| fault.state.as_deref()));
        names.push(DEFAULT_STATE);
        let mut known = std::collections::BTreeSet::new();
        names.retain(|name| known.insert(*name));
        names
    }
}

impl PipelineStage {
    pub(super) fn check(&self) -> Result<(), String> {
        let durations = [self.compute_ns, self.per_report_ns, self.per_byte_ns as u64];
        if durations.iter().any(|ns| *ns > COMPUTE_MAX_NS) {
            return Err("it computes for longer than 10 s".to_owned());
        }
        if self.message.is_some_and(|bytes| !(1..=MESSAGE_MAX).contains(&bytes)) {
            return Err("a message has 1 byte to 1 MiB".to_owned());
        }
        if self.wait_ns == Some(0) {
            return Err("the timeout for other nodes is longer than 0".to_owned());
        }
        let computes = self.compute_ns > 0 || self.per_report_ns > 0 || self.per_byte_ns > 0.0;
        if !self.intake && !computes && self.message.is_none() && !self.barrier {
            return Err(
                "a stage has no work; add intake, compute, a message or a barrier".to_owned()
            );
        }
        Ok(())
    }
}

impl ArrivalProfile {
    const fn last_rate(self) -> Option<f64> {
        match self {
            Self::Ramp(rate) => Some(rate),
            _ => None,
        }
    }
}

impl ReportLengthDistribution {
    /// Returns the smallest and the largest length, in bytes.
    pub(super) fn bounds(&self) -> (u64, u64) {
        match self {
            Self::Between(least, most) => (*least, *most),
            Self::OneOf(sizes) => {
                (sizes.iter().min().copied().unwrap_or(0), sizes.iter().max().copied().unwrap_or(0))
            }
        }
    }
}

impl FaultSpec {
    /// Returns the end of the fault, in ns of the run.
    #[must_use]
    pub const fn end_ns(&self) -> u64 {
        self.at_ns.saturating_add(self.for_ns)
    }

    /// Returns true if the fault is active at this time, in ns of the run.
    #[must_use]
    pub const fn is_active_at(&self, ns: u64) -> bool {
        self.at_ns <= ns && ns < self.end_ns()
    }

    /// Returns true if the report generator injects the fault.
    pub(super) const fn is_report_fault(&self) -> bool {
        matches!(self.kind, FaultKind::DataError | FaultKind::Lost | FaultKind::Late)
    }

    /// Returns true if the sending nodes inject the fault.
    pub(super) const fn is_message_fault(&self) -> bool {
        matches!(self.kind, FaultKind::LostMessage | FaultKind::LateMessage)
    }
}
