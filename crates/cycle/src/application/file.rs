//! Test file in TOML. Times are written with their units.

#[cfg(test)]
mod tests;

use horolog_record::{CycleTestFaultKind as FaultKind, TaskSchedulingPolicy};
use horolog_time::text::{self, Size};
use serde::Deserialize;
use toml::Spanned;

use super::plan::{
    ApplicationTestPlan, ArrivalProfile, DEADLINE_POLICY_ERROR, FaultSpec, MessageDestination,
    PipelineStage, PlannedRunState, ReportDeliveryMode, ReportLengthDistribution, SimulatedSource,
};
use crate::task::{DEFAULT_PRIORITY, TaskSetError as Wrong, check_name};

/// Largest size of a test file that is read, in bytes.
pub const FILE_MAX: u64 = 1 << 20;
/// Required value of `schema` in a file: name and version of the format.
const SCHEMA: &str = "horolog.test/2";
/// Longest name of a test or a state, in characters.
const LABEL_MAX: usize = 40;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawTestPlan {
    schema: Spanned<String>,
    name: Spanned<String>,
    nodes: Option<u16>,
    time: Spanned<String>,
    period: Spanned<String>,
    deadline: Option<Spanned<String>>,
    policy: Option<Spanned<String>>,
    priority: Option<u8>,
    #[serde(default)]
    cores: Vec<usize>,
    budget: Option<u32>,
    steady: Option<u32>,
    node_timeout: Option<u32>,
    response_limit: Option<Spanned<String>>,
    seed: Option<u64>,
    #[serde(default, rename = "stage")]
    stages: Vec<Spanned<RawStage>>,
    #[serde(default, rename = "source")]
    sources: Vec<Spanned<RawSimulatedSource>>,
    #[serde(default, rename = "fault")]
    faults: Vec<Spanned<RawFault>>,
    #[serde(default, rename = "state")]
    states: Vec<Spanned<RawRunState>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawStage {
    name: Spanned<String>,
    intake: Option<bool>,
    compute: Option<Spanned<String>>,
    per_report: Option<Spanned<String>>,
    per_byte: Option<Spanned<String>>,
    message: Option<u64>,
    to: Option<Spanned<String>>,
    late_after: Option<Spanned<String>>,
    barrier: Option<bool>,
    wait: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawSimulatedSource {
    name: Spanned<String>,
    rate: f64,
    profile: Option<Spanned<String>>,
    burst: Option<u32>,
    ramp_to: Option<f64>,
    size: Spanned<RawReportLength>,
    #[serde(default)]
    nodes: Vec<u16>,
    to: Option<Spanned<String>>,
    late_after: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawReportLength {
    Single(u64),
    Range(String),
    List(Vec<u64>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawFault {
    kind: Spanned<String>,
    at: Spanned<String>,
    #[serde(rename = "for")]
    duration: Option<Spanned<String>>,
    source: Option<Spanned<String>>,
    node: Option<u16>,
    share: Option<f64>,
    factor: Option<f64>,
    delay: Option<Spanned<String>>,
    state: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawRunState {
    name: Spanned<String>,
    from: Spanned<String>,
    to: Spanned<String>,
}

impl ApplicationTestPlan {
    /// Parses a test file.
    ///
    /// # Errors
    ///
    /// The file is invalid; the error names the line, unless it concerns the plan as a whole.
    pub fn parse(text: &str) -> Result<Self, Wrong> {
        Self::parse_with(text, None, None)
    }

    /// Parses a test file; `nodes` and `time_ns` replace the values of the file if present.
    ///
    /// # Errors
    ///
    /// The file is invalid; the error names the line, unless it concerns the plan as a whole.
    pub fn parse_with(text: &str, nodes: Option<u16>, time_ns: Option<u64>) -> Result<Self, Wrong> {
        let raw: RawTestPlan = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let reason = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            Wrong::at_byte(text, at, reason)
        })?;
        let reader = TestPlanReader { text };
        let mut plan = reader.parse_header(&raw)?;
        plan.nodes = nodes.unwrap_or(plan.nodes);
        plan.time_ns = time_ns.unwrap_or(plan.time_ns);
        for stage in &raw.stages {
            let read = reader.stage(stage.get_ref(), &plan)?;
            read.check().map_err(|reason| reader.error_at(stage, reason))?;
            plan.stages.push(read);
        }
        for source in &raw.sources {
            plan.sources.push(reader.source(source, &plan)?);
        }
        for fault in &raw.faults {
            let read = reader.fault(fault, &plan.sources)?;
            plan.faults.push(read);
        }
        for state in &raw.states {
            plan.states.push(reader.state(state, &plan.states)?);
        }
        // Errors of the whole plan refer to the file, errors of a source or fault to its line.
        plan.check_plan().map_err(Wrong::for_set)?;
        for (source, read) in raw.sources.iter().zip(&plan.sources) {
            plan.check_source(read).map_err(|reason| reader.error_at(source, reason))?;
        }
        for (fault, read) in raw.faults.iter().zip(&plan.faults) {
            plan.check_fault(read).map_err(|reason| reader.error_at(fault, reason))?;
        }
        Ok(plan)
    }
}

/// Converter of the parsed tables of a file to a plan. Its errors name the line.
struct TestPlanReader<'a> {
    text: &'a str,
}

impl TestPlanReader<'_> {
    fn error_at<T>(&self, at: &Spanned<T>, reason: impl std::fmt::Display) -> Wrong {
        Wrong::at_byte(self.text, at.span().start, reason)
    }

    fn parse_header(&self, raw: &RawTestPlan) -> Result<ApplicationTestPlan, Wrong> {
        if raw.schema.get_ref() != SCHEMA {
            let reason = format!("unsupported schema; this version reads schema = \"{SCHEMA}\"");
            return Err(self.error_at(&raw.schema, reason));
        }
        let policy = match &raw.policy {
            None => TaskSchedulingPolicy::Fifo,
            Some(name) => match TaskSchedulingPolicy::parse(name.get_ref()) {
                Ok(TaskSchedulingPolicy::Deadline) => {
                    return Err(self.error_at(name, DEADLINE_POLICY_ERROR));
                }
                read => read.map_err(|why| self.error_at(name, why))?,
            },
        };
        let period_ns = self.time_ns(&raw.period)?;
        if period_ns == 0 {
            return Err(self.error_at(&raw.period, "a period is 1ms to 1h long"));
        }
        let deadline_ns = self.time_or(raw.deadline.as_ref(), period_ns)?;
        Ok(ApplicationTestPlan {
            name: self.label(&raw.name)?,
            nodes: raw.nodes.unwrap_or(2),
            time_ns: self.time_ns(&raw.time)?,
            period_ns,
            deadline_ns,
            policy,
            priority: raw.priority.unwrap_or(if policy.has_priority() {
                DEFAULT_PRIORITY
            } else {
                0
            }),
            cores: raw.cores.clone(),
            budget: raw.budget.unwrap_or(1_000),
            steady: raw.steady.unwrap_or(5),
            node_timeout: raw.node_timeout.unwrap_or(3),
            response_limit_ns: self.time_or(raw.response_limit.as_ref(), deadline_ns / 4)?,
            seed: raw.seed.unwrap_or(1),
            stages: Vec::new(),
            sources: Vec::new(),
            faults: Vec::new(),
            states: Vec::new(),
        })
    }

    fn stage(&self, raw: &RawStage, plan: &ApplicationTestPlan) -> Result<PipelineStage, Wrong> {
        let to = match &raw.to {
            None => MessageDestination::All,
            Some(to) => match to.get_ref().as_str() {
                "all" => MessageDestination::All,
                "next" => MessageDestination::Next,
                _ => return Err(self.error_at(to, "write all or next")),
            },
        };
        let needless = [raw.to.as_ref(), raw.late_after.as_ref()].into_iter().flatten().next();
        if let (Some(needless), None) = (needless, raw.message) {
            return Err(self.error_at(needless, "no message to apply this to"));
        }
        let communicates = raw.message.is_some() || raw.barrier == Some(true);
        if let (Some(wait), false) = (&raw.wait, communicates) {
            return Err(self.error_at(wait, "no message or barrier to wait for"));
        }
        let fraction_ns =
            |time: &Spanned<String>| text::ns(time.get_ref()).map_err(|_| self.invalid_time(time));
        Ok(PipelineStage {
            name: self.name(&raw.name)?,
            intake: raw.intake.unwrap_or(false),
            compute_ns: self.time_or(raw.compute.as_ref(), 0)?,
            per_report_ns: self.time_or(raw.per_report.as_ref(), 0)?,
            per_byte_ns: raw.per_byte.as_ref().map(fraction_ns).transpose()?.unwrap_or(0.0),
            message: raw.message,
            to,
            late_after_ns: self.time_or(raw.late_after.as_ref(), plan.deadline_ns / 4)?,
            barrier: raw.barrier.unwrap_or(false),
            wait_ns: raw.wait.as_ref().map(|wait| self.time_ns(wait)).transpose()?,
        })
    }

    fn source(
        &self,
        spanned: &Spanned<RawSimulatedSource>,
        plan: &ApplicationTestPlan,
    ) -> Result<SimulatedSource, Wrong> {
        let raw = spanned.get_ref();
        let name = self.name(&raw.name)?;
        if plan.sources.iter().any(|other| other.name == name) {
            return Err(self.error_at(&raw.name, "another source has this name"));
        }
        let profile = match raw.profile.as_ref().map(|name| name.get_ref().as_str()) {
            None | Some("constant") => ArrivalProfile::Constant,
            Some("poisson") => ArrivalProfile::Poisson,
            Some("burst") => ArrivalProfile::Burst(raw.burst.unwrap_or(10)),
            Some("ramp") => match raw.ramp_to {
                Some(rate) => ArrivalProfile::Ramp(rate),
                None => return Err(self.error_at(spanned, "a ramp needs an end; add ramp-to")),
            },
            Some(_) => {
                let reason = "write constant, poisson, burst or ramp";
                return Err(raw
                    .profile
                    .as_ref()
                    .map_or_else(|| Wrong::for_set(reason), |at| self.error_at(at, reason)));
            }
        };
        let needless = [
            (raw.burst.is_some() && !matches!(profile, ArrivalProfile::Burst(_)), "burst"),
            (raw.ramp_to.is_some() && !matches!(profile, ArrivalProfile::Ramp(_)), "ramp-to"),
        ];
        if let Some((_, key)) = needless.into_iter().find(|(is_needless, _)| *is_needless) {
            return Err(self.error_at(spanned, format!("the profile of the source lacks {key}")));
        }
        let to = match raw.to.as_ref().map(|to| (to, to.get_ref().as_str())) {
            None | Some((_, "turn")) => ReportDeliveryMode::Turn,
            Some((_, "all")) => ReportDeliveryMode::All,
            Some((to, _)) => return Err(self.error_at(to, "write turn or all")),
        };
        Ok(SimulatedSource {
            name,
            rate: raw.rate,
            profile,
            size: self.size(&raw.size)?,
            nodes: raw
                .nodes
                .iter()
                .map(|node| node.checked_sub(1))
                .collect::<Option<_>>()
                .ok_or_else(|| self.error_at(spanned, "node numbers start at 1"))?,
            to,
            late_after_ns: self
                .time_or(raw.late_after.as_ref(), plan.period_ns.saturating_mul(3))?,
        })
    }

    fn size(&self, size: &Spanned<RawReportLength>) -> Result<ReportLengthDistribution, Wrong> {
        match size.get_ref() {
            RawReportLength::Single(size) => Ok(ReportLengthDistribution::OneOf(vec![*size])),
            RawReportLength::List(sizes) => Ok(ReportLengthDistribution::OneOf(sizes.clone())),
            RawReportLength::Range(text) => {
                let bounds = text.split_once("..").and_then(|(least, most)| {
                    Some((least.parse::<Size>().ok()?.bytes(), most.parse::<Size>().ok()?.bytes()))
                });
                let form = "write a size in bytes such as 200, several such as [64, 256], or any \
                            between two such as \"100..1400\"";
                bounds
                    .map(|(least, most)| ReportLengthDistribution::Between(least, most))
                    .ok_or_else(|| self.error_at(size, form))
            }
        }
    }

    fn fault(
        &self,
        spanned: &Spanned<RawFault>,
        sources: &[SimulatedSource],
    ) -> Result<FaultSpec, Wrong> {
        let raw = spanned.get_ref();
        let named = FaultKind::ALL.into_iter().find(|kind| kind.name() == raw.kind.get_ref());
        let Some(kind) = named else {
            let names = FaultKind::ALL.map(FaultKind::name).join(", ");
            return Err(self.error_at(&raw.kind, format!("write one of {names}")));
        };
        self.check_fields(spanned, kind)?;
        let source = match &raw.source {
            None => None,
            Some(name) => {
                let index = sources.iter().position(|source| source.name == *name.get_ref());
                let missing = || self.error_at(name, "no source has this name");
                Some(index.ok_or_else(missing)? as u16)
            }
        };
        let node = match raw.node {
            Some(0) => return Err(self.error_at(spanned, "node numbers start at 1")),
            node => node.map(|node| node - 1),
        };
        let share = raw.share.unwrap_or(1.0);
        if !(share > 0.0 && share <= 1.0) {
            return Err(self.error_at(spanned, "a share is above 0 and 1 at most"));
        }
        let factor = raw.factor.unwrap_or(1.0);
        if !(0.01..=100.0).contains(&factor) {
            return Err(self.error_at(spanned, "a factor is 0.01 to 100"));
        }
        let duration_ns = raw.duration.as_ref().map(|time| self.time_ns(time)).transpose()?;
        if duration_ns == Some(0) {
            return Err(self.error_at(spanned, "a fault lasts longer than 0"));
        }
        Ok(FaultSpec {
            kind,
            at_ns: self.time_ns(&raw.at)?,
            for_ns: duration_ns.unwrap_or(0),
            source,
            node,
            share,
            factor,
            delay_ns: self.time_or(raw.delay.as_ref(), 0)?,
            state: raw.state.as_ref().map(|state| self.label(state)).transpose()?,
        })
    }

    /// Checks that a fault has all fields that its kind requires, and only those that it supports.
    fn check_fields(&self, spanned: &Spanned<RawFault>, kind: FaultKind) -> Result<(), Wrong> {
        use FaultKind::{DataError, End, Late, LateMessage, Lost, LostMessage, Slow, Stop};
        let raw = spanned.get_ref();
        let of_reports = matches!(kind, DataError | Lost | Late);
        let of_messages = matches!(kind, LostMessage | LateMessage);
        let keys = [
            ("for", raw.duration.is_some(), kind != End, kind != End),
            ("source", raw.source.is_some(), of_reports, false),
            ("node", raw.node.is_some(), !of_reports, matches!(kind, Stop | End | Slow)),
            ("share", raw.share.is_some(), of_reports || of_messages, false),
            ("factor", raw.factor.is_some(), kind == Slow, kind == Slow),
            (
                "delay",
                raw.delay.is_some(),
                matches!(kind, Late | LateMessage),
                matches!(kind, Late | LateMessage),
            ),
            ("state", raw.state.is_some(), kind != End, false),
        ];
        for (key, is_present, is_allowed, is_required) in keys {
            let name = kind.name();
            if is_present && !is_allowed {
                return Err(self
                    .error_at(spanned, format!("a fault of kind {name} does not support {key}")));
            }
            if is_required && !is_present {
                return Err(self.error_at(spanned, format!("a fault of kind {name} needs {key}")));
            }
        }
        Ok(())
    }

    fn state(
        &self,
        spanned: &Spanned<RawRunState>,
        before: &[PlannedRunState],
    ) -> Result<PlannedRunState, Wrong> {
        let raw = spanned.get_ref();
        let state = PlannedRunState {
            name: self.label(&raw.name)?,
            from_ns: self.time_ns(&raw.from)?,
            to_ns: self.time_ns(&raw.to)?,
        };
        if state.from_ns >= state.to_ns {
            return Err(self.error_at(spanned, "a state begins before it ends"));
        }
        let overlaps =
            |other: &&PlannedRunState| other.from_ns < state.to_ns && state.from_ns < other.to_ns;
        if let Some(other) = before.iter().find(overlaps) {
            let reason = format!("the state '{}' overlaps in time", other.name);
            return Err(self.error_at(spanned, reason));
        }
        Ok(state)
    }

    /// Returns a name, after the check that tables and messages need.
    fn name(&self, name: &Spanned<String>) -> Result<String, Wrong> {
        check_name(name.get_ref()).map_err(|why| self.error_at(name, why))?;
        Ok(name.get_ref().clone())
    }

    /// Returns a label if it has 1 to [`LABEL_MAX`] characters, not only spaces and without control
    /// characters.
    fn label(&self, label: &Spanned<String>) -> Result<String, Wrong> {
        let text = label.get_ref();
        let is_plain = !text.trim().is_empty() && !text.chars().any(char::is_control);
        if is_plain && text.chars().count() <= LABEL_MAX {
            return Ok(text.clone());
        }
        Err(self.error_at(label, format!("write 1 to {LABEL_MAX} characters in one line")))
    }

    fn time_or(&self, time: Option<&Spanned<String>>, default_ns: u64) -> Result<u64, Wrong> {
        time.map_or(Ok(default_ns), |time| self.time_ns(time))
    }

    fn time_ns(&self, time: &Spanned<String>) -> Result<u64, Wrong> {
        // 50 years, so that sums of a few times do not overflow.
        const MAX_NS: u64 = 50 * 365 * 86_400 * 1_000_000_000;
        let read = text::duration(time.get_ref());
        let ns = read.ok().and_then(|time| u64::try_from(time.as_nanos()).ok());
        ns.filter(|ns| *ns <= MAX_NS).ok_or_else(|| self.invalid_time(time))
    }

    fn invalid_time(&self, time: &Spanned<String>) -> Wrong {
        self.error_at(time, "write a time such as \"10ms\", \"250us\" or \"1s\"")
    }
}
