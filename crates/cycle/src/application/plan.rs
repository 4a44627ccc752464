//! What a test is: the application, its sources, and what is to happen to both. A plan that exists
//! is one that can be run.

use horolog_record::{CycleTestFaultKind as FaultKind, TaskPolicy};
use serde::{Deserialize, Serialize};

pub use crate::task::Audience;
use crate::task::{MESSAGE_MAX, PERIOD_MAX_NS, STEPS_MAX};

/// Nodes of a test, at most.
pub const NODES_MAX: u16 = 64;
/// Sources, faults and states, at most of each.
pub(super) const ITEMS_MAX: usize = 64;
/// The longest test: an hour.
pub const TIME_MAX_NS: u64 = 3_600_000_000_000;
/// The shortest period: what became of each is kept in memory.
const PERIOD_MIN_NS: u64 = 1_000_000;
/// Reports a second of a source, at most.
const RATE_MAX: f64 = 100_000.0;
/// The longest report, in bytes: one datagram.
pub(super) const REPORT_MAX: u64 = 60_000;
/// Times that computation may take, at most.
const COMPUTE_MAX_NS: u64 = 10_000_000_000;
/// Why there is no policy deadline here.
pub(super) const NO_DEADLINE: &str = "write policy fifo, rr or other: how long a period takes \
                                      depends on what comes, so there is no time that policy \
                                      deadline could reserve ('cycle run' has it)";
/// The state of periods that are in no other.
pub(super) const PLAIN: &str = "plain";

/// A test of an application.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// What the application is called.
    pub name: String,
    /// Nodes that run it.
    pub nodes: u16,
    /// How long it runs.
    pub time_ns: u64,
    /// From one release to the next.
    pub period_ns: u64,
    /// From a release to when a period's work is to be done.
    pub deadline_ns: u64,
    /// How nodes are scheduled.
    pub policy: TaskPolicy,
    /// The real-time priority; 0 under `other`.
    pub priority: u8,
    /// The cores that nodes are tied to, in turn; none for any.
    pub cores: Vec<usize>,
    /// Reports that a node takes in a period, at most.
    pub budget: u32,
    /// Periods in a row in which nothing is amiss, for all to be well again.
    pub steady: u32,
    /// Periods without a word of a node after which it is not waited for.
    pub silent_after: u32,
    /// Waiting for another node that is noticed.
    pub slow_after_ns: u64,
    /// What chance begins with.
    pub seed: u64,
    /// The stages of a period, in their order.
    pub stages: Vec<Stage>,
    /// Where reports come from.
    pub sources: Vec<Source>,
    /// What is injected.
    pub faults: Vec<Fault>,
    /// What the run is in when.
    pub states: Vec<State>,
}

/// A stage of a period: reports, computation, then a message, then a barrier.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// Whether it takes what has come from outside.
    pub intake: bool,
    /// What it computes in any case; grows with the load.
    pub compute_ns: u64,
    /// What it computes for each report of the period.
    pub per_report_ns: u64,
    /// What it computes for each byte of them.
    pub per_byte_ns: f64,
    /// The length of its message.
    pub message: Option<u64>,
    /// To whom that goes.
    pub to: Audience,
    /// How long a message may be on its way before that is noticed.
    pub late_after_ns: u64,
    /// Whether all nodes wait for the last of them.
    pub barrier: bool,
    /// How long others are waited for; until the next release where that is nothing.
    pub wait_ns: Option<u64>,
}

/// Where reports come from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// Reports a second, in the mean.
    pub rate: f64,
    /// How they come.
    pub profile: Profile,
    /// How long they are, with their headers.
    pub size: Size,
    /// The nodes that get them, counted from 0; all where there are none.
    pub nodes: Vec<u16>,
    /// Who of them gets which.
    pub to: Sharing,
    /// The age beyond which a report is too late when it is taken.
    pub late_after_ns: u64,
}

/// How reports come.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// At equal distances.
    Constant,
    /// At random: from one to the next it is an exponentially distributed time.
    Poisson,
    /// So many at once.
    Burst(u32),
    /// At a rate that goes evenly to this one until the end.
    Ramp(f64),
}

/// How long reports are.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Size {
    /// Any length from one to another, each as likely.
    Between(u64, u64),
    /// One of these, each as likely.
    OneOf(Vec<u64>),
}

/// Who gets a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// One node after the other.
    Turn,
    /// Each node one.
    All,
}

/// Something that goes wrong on purpose.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// From when on, in ns of the run.
    pub at_ns: u64,
    /// For how long.
    pub for_ns: u64,
    /// The source, counted from 0; all where there is none.
    pub source: Option<u16>,
    /// The node, counted from 0; all where there is none.
    pub node: Option<u16>,
    /// How much of it is hit, above 0 and 1 at most.
    pub share: f64,
    /// How many times as much a slow node computes.
    pub factor: f64,
    /// By how much something is late.
    pub delay_ns: u64,
    /// The state of the periods meanwhile, where it is another one.
    pub state: Option<String>,
}

/// What the run is in for a while.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct State {
    /// Its label.
    pub name: String,
    /// From when on, in ns of the run.
    pub from_ns: u64,
    /// Until when.
    pub to_ns: u64,
}

impl Plan {
    /// Periods of each node.
    #[must_use]
    pub const fn cycles(&self) -> u64 {
        let cycles = self.time_ns / self.period_ns;
        if cycles == 0 { 1 } else { cycles }
    }

    /// The same with so many nodes.
    ///
    /// # Errors
    ///
    /// Something is to happen to a node that is not there.
    pub fn on(mut self, nodes: u16) -> Result<Self, String> {
        self.nodes = nodes;
        self.check_head()?;
        self.sources.iter().try_for_each(|source| self.check_source(source))?;
        self.faults.iter().try_for_each(|fault| self.check_fault(fault))?;
        Ok(self)
    }

    /// The same for so long, without what is injected: for the runs of a search.
    #[must_use]
    pub fn bare(&self, time_ns: u64) -> Self {
        let time_ns = time_ns.max(self.period_ns);
        Self { time_ns, faults: Vec::new(), states: Vec::new(), ..self.clone() }
    }

    /// What holds of a plan beside its parts.
    pub(super) fn check_head(&self) -> Result<(), String> {
        if !(1..=NODES_MAX).contains(&self.nodes) {
            return Err(format!("there are {} nodes; give 1 to {NODES_MAX}", self.nodes));
        }
        if !(PERIOD_MIN_NS..=PERIOD_MAX_NS).contains(&self.period_ns) {
            return Err("a period is 1ms to 1h long".to_owned());
        }
        if self.deadline_ns == 0 || self.deadline_ns > self.period_ns {
            return Err("a deadline is longer than 0 and no longer than the period".to_owned());
        }
        if self.time_ns < self.period_ns || self.time_ns > TIME_MAX_NS {
            return Err("a test takes a period at least, and an hour at most".to_owned());
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
        if self.budget == 0 || self.steady == 0 || self.silent_after == 0 {
            return Err("budget, steady and silent-after are 1 at least".to_owned());
        }
        for (what, count, least) in [
            ("stages", self.stages.len(), 1),
            ("sources", self.sources.len(), 0),
            ("faults", self.faults.len(), 0),
            ("states", self.states.len(), 0),
        ] {
            let most = if what == "stages" { STEPS_MAX } else { ITEMS_MAX };
            if !(least..=most).contains(&count) {
                return Err(format!("there are {count} {what}; give {least} to {most}"));
            }
        }
        let intakes = self.stages.iter().filter(|stage| stage.intake).count();
        match (self.sources.is_empty(), intakes) {
            (true, 0) | (false, 1) => Ok(()),
            (true, _) => Err("a stage takes reports, and there is no source".to_owned()),
            (false, _) => {
                Err(format!("{intakes} stages take reports; give 'intake = true' to one of them"))
            }
        }
    }

    pub(super) fn check_source(&self, source: &Source) -> Result<(), String> {
        let sane = |rate: f64| rate > 0.0 && rate <= RATE_MAX;
        let rates = [Some(source.rate), source.profile.last_rate()];
        if !rates.into_iter().flatten().all(sane) {
            return Err(format!("a rate is above 0 and {RATE_MAX} a second at most"));
        }
        if let Profile::Burst(count) = source.profile
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
        format!("there is no node {}; they are 1 to {}", u32::from(node) + 1, self.nodes)
    }

    pub(super) fn check_fault(&self, fault: &Fault) -> Result<(), String> {
        if let Some(node) = fault.node.filter(|node| *node >= self.nodes) {
            return Err(self.no_node(node));
        }
        if self.nodes < 2 && fault.is_of_messages() {
            return Err("one node sends no messages; give two at least".to_owned());
        }
        let room_ns = u64::from(self.steady).saturating_add(3).saturating_mul(self.period_ns);
        let end_ns = |fault: &Fault| fault.until_ns().saturating_add(fault.delay_ns);
        let until_ns = end_ns(fault);
        if until_ns.saturating_add(room_ns) > self.time_ns {
            // Long enough for all faults.
            let last_ns = self.faults.iter().map(end_ns).fold(until_ns, u64::max);
            let ms = |ns: u64| ns / 1_000_000;
            return Err(format!(
                "the fault '{}' at {} ms ends {} ms after the test begins, and to see whether all \
                 is well again takes {} ms more, while the test takes {} ms; let the fault begin \
                 or end sooner, or give a longer time (--time {}ms)",
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

    /// The state that a period is in which is released then.
    pub(super) fn state_at(&self, due_ns: u64) -> &str {
        let mut faults = self.faults.iter().filter(|fault| fault.is_at(due_ns));
        let of_fault = faults.find_map(|fault| fault.state.as_deref());
        let holds = |state: &&State| (state.from_ns..state.to_ns).contains(&due_ns);
        let of_run = self.states.iter().find(holds).map(|state| state.name.as_str());
        of_fault.or(of_run).unwrap_or(PLAIN)
    }

    /// The states that there can be, in the order of their labels in the plan.
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
            return Err("others are waited for longer than 0".to_owned());
        }
        let computes = self.compute_ns > 0 || self.per_report_ns > 0 || self.per_byte_ns > 0.0;
        if !self.intake && !computes && self.message.is_none() && !self.barrier {
            return Err(
                "a stage does nothing; give it intake, compute, a message or a barrier".to_owned()
            );
        }
        Ok(())
    }
}

impl Profile {
    const fn last_rate(self) -> Option<f64> {
        match self {
            Self::Ramp(rate) => Some(rate),
            _ => None,
        }
    }
}

impl Size {
    /// The shortest and the longest.
    pub(super) fn bounds(&self) -> (u64, u64) {
        match self {
            Self::Between(least, most) => (*least, *most),
            Self::OneOf(sizes) => {
                (sizes.iter().min().copied().unwrap_or(0), sizes.iter().max().copied().unwrap_or(0))
            }
        }
    }
}

impl Fault {
    /// When it ends, in ns of the run.
    #[must_use]
    pub const fn until_ns(&self) -> u64 {
        self.at_ns.saturating_add(self.for_ns)
    }

    /// Whether it holds at this instant.
    #[must_use]
    pub const fn is_at(&self, ns: u64) -> bool {
        self.at_ns <= ns && ns < self.until_ns()
    }

    /// Whether it is made by the generator.
    pub(super) const fn is_of_reports(&self) -> bool {
        matches!(self.kind, FaultKind::DataError | FaultKind::Lost | FaultKind::Late)
    }

    /// Whether it is made by the node that sends.
    pub(super) const fn is_of_messages(&self) -> bool {
        matches!(self.kind, FaultKind::LostMessage | FaultKind::LateMessage)
    }
}
