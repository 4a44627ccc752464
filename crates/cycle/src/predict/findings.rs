//! Findings about bounds and their basis: tasks that miss deadlines, overloaded cores, unknown
//! costs, conditions that were not established.

use std::collections::BTreeSet;

use horolog_record::{
    CyclePredictCostKind as Kind, CyclePredictTask, CyclePredictVerdict as Verdict, Finding,
    FindingCode, Severity,
};

use super::bound::{AnalysisSet, TaskDemand};
use super::cost::Costs;
use crate::task::{Policy, Superstep, TaskWork};

/// Returns all findings, the most severe first.
pub(super) fn of(
    plan: &AnalysisSet<'_>,
    tasks: &[CyclePredictTask],
    costs: &Costs,
) -> Vec<Finding> {
    let mut all: Vec<Finding> = tasks.iter().filter_map(late).collect();
    all.extend(overloaded(plan, costs));
    all.extend(absent(plan, costs));
    all.extend(unmeasured(plan, costs));
    all.extend(throttled(plan));
    all.extend(ordinary(plan));
    all.extend(free(plan));
    all.extend(long_messages(plan, costs));
    all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    all
}

fn finding(code: FindingCode, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}

fn late(task: &CyclePredictTask) -> Option<Finding> {
    let name = &task.name;
    let why = task.reason.as_deref().unwrap_or("the bound is longer than the deadline");
    match task.verdict {
        Verdict::Schedulable => None,
        Verdict::Unschedulable => Some(finding(
            FindingCode::TaskUnschedulable,
            Severity::Error,
            match &task.safe {
                Some(safe) => format!(
                    "task '{name}' is not schedulable: its worst response time is {} us, its \
                     deadline is {} us.",
                    safe.response_ns / 1_000,
                    task.deadline_ns / 1_000
                ),
                None => format!("task '{name}' is not schedulable: {why}."),
            },
            "Reduce its work, or use a longer period or a higher priority; see the largest term.",
        )),
        Verdict::Unknown => Some(finding(
            FindingCode::CostMissing,
            Severity::Error,
            format!("task '{name}' cannot be judged: {why}."),
            "Add a result of 'path udp' between the nodes with --costs.",
        )),
    }
}

/// Returns the findings about cores whose pinned tasks need more time than there is, and about all
/// cores together.
fn overloaded(plan: &AnalysisSet<'_>, costs: &Costs) -> Vec<Finding> {
    // Time that other threads take from sched-other tasks can be regained.
    let interference_share = |row: &TaskDemand<'_>| {
        let there = costs.of(row.task.schedule.core, false);
        there.between().map(|one| one.share()).sum::<f64>()
    };
    let mut found = Vec::new();
    let mut judge = |label: String, rows: &[&TaskDemand<'_>], cores: usize| {
        let wanted: f64 = rows.iter().map(|row| row.share()).sum();
        let taken = rows.iter().map(|row| interference_share(row)).fold(0.0, f64::max);
        let there = cores as f64 * (1.0 - taken).max(0.0);
        if wanted > there {
            found.push(finding(
                FindingCode::CoreOverloaded,
                Severity::Error,
                format!(
                    "tasks demand {:.1}% of {label}, of which interrupts and the scheduler leave \
                     {:.1}%.",
                    wanted * 100.0,
                    there * 100.0
                ),
                "No schedule of these tasks is feasible; reduce their work, or use more cores.",
            ));
        }
    };
    for core in cores(plan) {
        let tied = |row: &&TaskDemand<'_>| row.task.schedule.core == Some(core);
        judge(format!("core {core}"), &plan.rows.iter().filter(tied).collect::<Vec<_>>(), 1);
    }
    let all: Vec<&TaskDemand<'_>> = plan.rows.iter().collect();
    if all.iter().any(|row| row.task.schedule.core.is_none()) {
        let cores = plan.machine.cores.max(1);
        judge(format!("{cores} cores"), &all, cores);
    }
    found
}

fn cores(plan: &AnalysisSet<'_>) -> BTreeSet<usize> {
    plan.rows.iter().filter_map(|row| row.task.schedule.core).collect()
}

/// Returns the findings about kinds of costs without any value: the bound counts them as 0.
fn absent(plan: &AnalysisSet<'_>, costs: &Costs) -> Vec<Finding> {
    let kinds = [
        (Kind::Switch, "switch time", "'host switch'"),
        (Kind::Release, "start latency", "'host timer'"),
        (Kind::Interrupt, "interrupt time", "'host interrupt'"),
        (Kind::Scheduler, "time of the scheduler's tick", "'host interrupt' and 'host clock'"),
    ];
    // No gaps found is a value too, and ticks are among gaps.
    let is_known = |kind: Kind| match kind {
        Kind::Interrupt => costs.has(kind) || costs.has(Kind::Scheduler),
        _ => costs.has(kind),
    };
    let missing = kinds.into_iter().filter(|(kind, ..)| !is_known(*kind) && !plan.rows.is_empty());
    let missing_finding = |(kind, what, from): (Kind, &str, &str)| {
        let is_in_gaps = kind == Kind::Scheduler && costs.has(Kind::Interrupt);
        let (severity, counted) = if is_in_gaps {
            (Severity::Note, "it is included in interrupts")
        } else {
            (Severity::Warning, "bounds omit it and are unsafe")
        };
        let message = format!("{what} is unknown; {counted}.");
        let advice = format!("Add a result of {from} with --costs, or use --measure.");
        finding(FindingCode::CostMissing, severity, message, &advice)
    };
    missing.map(missing_finding).collect()
}

/// Returns the finding about cores with pinned tasks but without a measurement.
fn unmeasured(plan: &AnalysisSet<'_>, costs: &Costs) -> Option<Finding> {
    let is_unmeasured = |core: &usize| {
        [Kind::Release, Kind::Interrupt]
            .into_iter()
            .any(|kind| costs.has(kind) && !costs.covers(kind, *core))
    };
    let cores: Vec<String> =
        cores(plan).into_iter().filter(is_unmeasured).map(|core| core.to_string()).collect();
    (!cores.is_empty()).then(|| {
        finding(
            FindingCode::CostUncertain,
            Severity::Warning,
            format!(
                "core {} was not measured completely; the worst value of other cores is used.",
                cores.join(", ")
            ),
            "Measure the cores that tasks are pinned to.",
        )
    })
}

/// Returns the finding about real-time tasks that need more of a core than the kernel permits.
fn throttled(plan: &AnalysisSet<'_>) -> Option<Finding> {
    let share = plan.machine.real_time_share?;
    let real_time = || plan.rows.iter().filter(|row| row.task.schedule.policy.has_priority());
    let wanted_by = |core: Option<usize>| {
        let there = real_time().filter(|row| {
            let tied = row.task.schedule.core;
            core.is_none() || tied.is_none() || tied == core
        });
        there.map(TaskDemand::share).sum::<f64>()
    };
    let pinnings = cores(plan).into_iter().map(Some).chain([None]);
    let most = pinnings.map(wanted_by).fold(0.0, f64::max);
    (most > share).then(|| {
        finding(
            FindingCode::RealTimeThrottled,
            Severity::Warning,
            format!(
                "real-time tasks that can meet on one core demand {:.1}% of it; the kernel \
                 throttles them above {:.1}%, which bounds omit.",
                most * 100.0,
                share * 100.0
            ),
            "Reduce their work, or raise /proc/sys/kernel/sched_rt_runtime_us.",
        )
    })
}

fn ordinary(plan: &AnalysisSet<'_>) -> Option<Finding> {
    let is_ordinary = |row: &&TaskDemand<'_>| row.task.schedule.policy == Policy::Other;
    let names: Vec<&str> =
        plan.rows.iter().filter(is_ordinary).map(|row| row.task.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        finding(
            FindingCode::BoundConditional,
            Severity::Warning,
            format!(
                "{} under policy other: the bound puts all work of other tasks of the set before \
                 theirs, and holds only if other sched-other threads take no more than was \
                 measured.",
                names.join(", ")
            ),
            "SCHED_OTHER has no bound by itself; use policy fifo if a deadline matters.",
        )
    })
}

fn free(plan: &AnalysisSet<'_>) -> Option<Finding> {
    let is_free = |row: &&TaskDemand<'_>| row.task.schedule.core.is_none();
    let names: Vec<&str> =
        plan.rows.iter().filter(is_free).map(|row| row.task.name.as_str()).collect();
    (!names.is_empty() && plan.machine.cores > 1).then(|| {
        finding(
            FindingCode::BoundConditional,
            Severity::Note,
            format!(
                "{} may run on any of {} cores: the bounds assume interference by all tasks, as on \
                 one core.",
                names.join(", "),
                plan.machine.cores
            ),
            "Pin tasks to cores for tighter bounds.",
        )
    })
}

/// Returns the finding about messages longer than any that was measured.
fn long_messages(plan: &AnalysisSet<'_>, costs: &Costs) -> Option<Finding> {
    let measured = costs.longest_message()?;
    let steps = |row: &TaskDemand<'_>| match &row.task.work {
        TaskWork::Steps(steps) if row.task.worst_ns.is_none() => steps.clone(),
        _ => Vec::new(),
    };
    let bytes = |step: Superstep| step.message.map(|message| message.bytes);
    let longest = plan.rows.iter().flat_map(steps).filter_map(bytes).max()?;
    (longest > measured && plan.machine.nodes > 1).then(|| {
        finding(
            FindingCode::CostUncertain,
            Severity::Warning,
            format!(
                "a message has {longest} bytes, the longest measured one {measured}; it counts as \
                 several of these in sequence."
            ),
            "Measure the path with messages of this length (path udp --sizes).",
        )
    })
}
