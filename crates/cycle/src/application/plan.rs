//! Plan of a test: the application, its sources, and the faults and states of both. Every value of
//! this type can be run.

use horolog_record::{CycleTestFaultKind as FaultKind, TaskPolicy};
use serde::{Deserialize, Serialize};

pub use crate::task::Audience;
use crate::task::{MESSAGE_MAX, PERIOD_MAX_NS, STEPS_MAX};

/// Nodes of a test, at most.
pub const NODES_MAX: u16 = 64;
/// Sources, faults and states, at most of each.
pub(super) const ITEMS_MAX: usize = 64;
/// Longest test: an hour.
pub const TIME_MAX_NS: u64 = 3_600_000_000_000;
/// Shortest period: the outcome of each is stored in memory.
const PERIOD_MIN_NS: u64 = 1_000_000;
/// Reports a second of a source, at most.
const RATE_MAX: f64 = 100_000.0;
/// Longest report, in bytes: one datagram.
pub(super) const REPORT_MAX: u64 = 60_000;
/// Longest computation.
const COMPUTE_MAX_NS: u64 = 10_000_000_000;
/// Error text for policy deadline, which is not supported here.
pub(super) const NO_DEADLINE: &str = "write policy fifo, rr or other: execution times depend on \
                                      the input, so policy deadline has no runtime to reserve \
                                      ('cycle run' supports it)";
/// State of periods that are in no other.
pub(super) const PLAIN: &str = "plain";

/// Test of an application.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TestPlan {
    /// Name of the application.
    pub name: String,
    /// Nodes that run it.
    pub nodes: u16,
    /// Duration of the test.
    pub time_ns: u64,
    /// Time from one release to the next.
    pub period_ns: u64,
    /// Time from a release to the deadline of the period's work.
    pub deadline_ns: u64,
    /// Scheduling policy of the nodes.
    pub policy: TaskPolicy,
    /// Real-time priority; 0 under `other`.
    pub priority: u8,
    /// Cores to which nodes are pinned, in turn; empty for any.
    pub cores: Vec<usize>,
    /// Reports that a node takes in a period, at most.
    pub budget: u32,
    /// Periods in a row without any disturbance that count as recovered.
    pub steady: u32,
    /// Periods without a message from a node after which it is not waited for.
    pub node_timeout: u32,
    /// Shortest wait for another node that is reported as a detection.
    pub response_limit_ns: u64,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Stages of a period, in their order.
    pub stages: Vec<Stage>,
    /// Sources of reports.
    pub sources: Vec<ReportSource>,
    /// Injected faults.
    pub faults: Vec<FaultSpec>,
    /// States of the run, with their times.
    pub states: Vec<StateSpec>,
}

/// Stage of a period: reports, computation, then a message, then a barrier.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// True if it takes the reports that have arrived.
    pub intake: bool,
    /// Computation in any case; grows with the load.
    pub compute_ns: u64,
    /// Computation for each report of the period.
    pub per_report_ns: u64,
    /// Computation for each byte of the reports.
    pub per_byte_ns: f64,
    /// Length of its message.
    pub message: Option<u64>,
    /// Receivers of the message.
    pub to: Audience,
    /// Longest transit time of a message that is not a detection.
    pub late_after_ns: u64,
    /// True if all nodes wait for the last of them.
    pub barrier: bool,
    /// Timeout of the wait for other nodes; if absent, until the next release.
    pub wait_ns: Option<u64>,
}

/// Source of reports.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReportSource {
    /// Its name.
    pub name: String,
    /// Reports a second, on average.
    pub rate: f64,
    /// Distribution of the reports in time.
    pub profile: ArrivalProfile,
    /// Length of the reports, with their headers.
    pub size: Size,
    /// Nodes that receive them, counted from 0; empty for all.
    pub nodes: Vec<u16>,
    /// Distribution of the reports among these nodes.
    pub to: Delivery,
    /// Age beyond which a report is too late when it is taken.
    pub late_after_ns: u64,
}

/// Distribution of reports in time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalProfile {
    /// At equal intervals.
    Constant,
    /// At random, with exponentially distributed times between them.
    Poisson,
    /// This number at once.
    Burst(u32),
    /// At a rate that changes linearly to this one until the end.
    Ramp(f64),
}

/// Length of reports.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Size {
    /// Uniformly distributed between two lengths.
    Between(u64, u64),
    /// One of these lengths, each with equal probability.
    OneOf(Vec<u64>),
}

/// Distribution of reports among nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// One node after the other.
    Turn,
    /// One copy to each node.
    All,
}

/// Fault to be injected.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FaultSpec {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Its beginning, in ns of the run.
    pub at_ns: u64,
    /// Its duration.
    pub for_ns: u64,
    /// The source, counted from 0; all if absent.
    pub source: Option<u16>,
    /// The node, counted from 0; all if absent.
    pub node: Option<u16>,
    /// Share of the reports or messages that is affected, above 0 and 1 at most.
    pub share: f64,
    /// Multiplier of a slow node's computation.
    pub factor: f64,
    /// Delay of late reports or messages.
    pub delay_ns: u64,
    /// State of the periods during the fault, if it differs.
    pub state: Option<String>,
}

/// State of the run for a while.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StateSpec {
    /// Its label.
    pub name: String,
    /// Its beginning, in ns of the run.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
}

impl TestPlan {
    /// Returns the periods of each node.
    #[must_use]
    pub const fn cycles(&self) -> u64 {
        let cycles = self.time_ns / self.period_ns;
        if cycles == 0 { 1 } else { cycles }
    }

    /// Returns the same plan with this number of nodes.
    ///
    /// # Errors
    ///
    /// If a fault refers to a node that does not exist.
    pub fn on(mut self, nodes: u16) -> Result<Self, String> {
        self.nodes = nodes;
        self.check_head()?;
        self.sources.iter().try_for_each(|source| self.check_source(source))?;
        self.faults.iter().try_for_each(|fault| self.check_fault(fault))?;
        Ok(self)
    }

    /// Returns the same plan with this duration and without faults: for the runs of a search.
    #[must_use]
    pub fn bare(&self, time_ns: u64) -> Self {
        let time_ns = time_ns.max(self.period_ns);
        Self { time_ns, faults: Vec::new(), states: Vec::new(), ..self.clone() }
    }

    /// Checks the constraints of a plan as a whole.
    pub(super) fn check_head(&self) -> Result<(), String> {
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
        if self.policy == TaskPolicy::Deadline {
            return Err(NO_DEADLINE.to_owned());
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

    pub(super) fn check_source(&self, source: &ReportSource) -> Result<(), String> {
        let sane = |rate: f64| rate > 0.0 && rate <= RATE_MAX;
        let rates = [Some(source.rate), source.profile.last_rate()];
        if !rates.into_iter().flatten().all(sane) {
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
            return Err(self.no_node(*node));
        }
        Ok(())
    }

    fn no_node(&self, node: u16) -> String {
        format!("node {} does not exist; nodes are 1 to {}", u32::from(node) + 1, self.nodes)
    }

    pub(super) fn check_fault(&self, fault: &FaultSpec) -> Result<(), String> {
        if let Some(node) = fault.node.filter(|node| *node >= self.nodes) {
            return Err(self.no_node(node));
        }
        if self.nodes < 2 && fault.is_of_messages() {
            return Err("a single node sends no messages; use at least two".to_owned());
        }
        let room_ns = u64::from(self.steady).saturating_add(3).saturating_mul(self.period_ns);
        let end_ns = |fault: &FaultSpec| fault.until_ns().saturating_add(fault.delay_ns);
        let until_ns = end_ns(fault);
        if until_ns.saturating_add(room_ns) > self.time_ns {
            // Long enough for all faults.
            let last_ns = self.faults.iter().map(end_ns).fold(until_ns, u64::max);
            let ms = |ns: u64| ns / 1_000_000;
            return Err(format!(
                "the fault '{}' at {} ms ends {} ms after the test begins, and its recovery takes \
                 up to {} ms more, while the test takes {} ms; move the fault, or use a longer \
                 time (--time {}ms)",
                fault.kind.name(),
                ms(fault.at_ns),
                ms(until_ns),
                ms(room_ns),
                ms(self.time_ns),
                last_ns.saturating_add(room_ns).div_ceil(1_000_000)
            ));
        }
        Ok(())
    }

    /// Returns the state of a period with this release.
    pub(super) fn state_at(&self, due_ns: u64) -> &str {
        let mut faults = self.faults.iter().filter(|fault| fault.is_at(due_ns));
        let of_fault = faults.find_map(|fault| fault.state.as_deref());
        let holds = |state: &&StateSpec| (state.from_ns..state.to_ns).contains(&due_ns);
        let of_run = self.states.iter().find(holds).map(|state| state.name.as_str());
        of_fault.or(of_run).unwrap_or(PLAIN)
    }

    /// Returns the possible states, in the order of their labels in the plan.
    pub(super) fn state_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.states.iter().map(|state| state.name.as_str()).collect();
        names.extend(self.faults.iter().filter_map(|fault| fault.state.as_deref()));
        names.push(PLAIN);
        let mut known = std::collections::BTreeSet::new();
        names.retain(|name| known.insert(*name));
        names
    }
}

impl Stage {
    pub(super) fn check(&self) -> Result<(), String> {
        let long = [self.compute_ns, self.per_report_ns, self.per_byte_ns as u64];
        if long.iter().any(|ns| *ns > COMPUTE_MAX_NS) {
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

impl Size {
    /// Returns the shortest and the longest length.
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
    /// Returns its end, in ns of the run.
    #[must_use]
    pub const fn until_ns(&self) -> u64 {
        self.at_ns.saturating_add(self.for_ns)
    }

    /// Returns true if it is active at this instant.
    #[must_use]
    pub const fn is_at(&self, ns: u64) -> bool {
        self.at_ns <= ns && ns < self.until_ns()
    }

    /// Returns true if the generator injects it.
    pub(super) const fn is_of_reports(&self) -> bool {
        matches!(self.kind, FaultKind::DataError | FaultKind::Lost | FaultKind::Late)
    }

    /// Returns true if the sending node injects it.
    pub(super) const fn is_of_messages(&self) -> bool {
        matches!(self.kind, FaultKind::LostMessage | FaultKind::LateMessage)
    }
}
