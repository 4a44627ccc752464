//! Findings about bounds and their basis: tasks that miss deadlines, overloaded cores, unknown
//! costs, and conditions on which bounds depend.

use std::collections::BTreeSet;

use horolog_record::{
    CyclePredictCostKind as Kind, CyclePredictTaskResult, CyclePredictVerdict as Verdict, Finding,
    FindingCode, Severity,
};

use super::bound::{AnalysedTaskSet, TaskDemand};
use super::cost::HostCosts;
use crate::task::{Policy, Superstep, TaskWork};

/// Returns all findings, the most severe first.
pub(super) fn prediction_findings(
    plan: &AnalysedTaskSet<'_>,
    tasks: &[CyclePredictTaskResult],
    costs: &HostCosts,
) -> Vec<Finding> {
    let mut all: Vec<Finding> = tasks.iter().filter_map(verdict_finding).collect();
    all.extend(overload_findings(plan, costs));
    all.extend(missing_cost_findings(plan, costs));
    all.extend(unmeasured_core_finding(plan, costs));
    all.extend(throttling_finding(plan));
    all.extend(sched_other_finding(plan));
    all.extend(unpinned_finding(plan));
    all.extend(long_message_finding(plan, costs));
    all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    all
}

fn finding(code: FindingCode, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}

fn verdict_finding(task: &CyclePredictTaskResult) -> Option<Finding> {
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

/// Returns a finding for each core on which pinned tasks demand more than is available, and one if
/// all tasks demand more than all cores offer and one of them is not pinned.
fn overload_findings(plan: &AnalysedTaskSet<'_>, costs: &HostCosts) -> Vec<Finding> {
    // The time that other threads take from sched-other tasks is not counted: it can be regained.
    let interference_share = |row: &TaskDemand<'_>| {
        let core_costs = costs.core_costs(row.task.schedule.core, false);
        core_costs.non_task_work().map(|one| one.utilisation()).sum::<f64>()
    };
    let mut found = Vec::new();
    let mut check = |label: String, rows: &[&TaskDemand<'_>], cores: usize| {
        let demanded: f64 = rows.iter().map(|row| row.utilisation()).sum();
        let taken = rows.iter().map(|row| interference_share(row)).fold(0.0, f64::max);
        let available = cores as f64 * (1.0 - taken).max(0.0);
        if demanded > available {
            found.push(finding(
                FindingCode::CoreOverloaded,
                Severity::Error,
                format!(
                    "tasks demand {:.1}% of {label}, of which interrupts and the scheduler leave \
                     {:.1}%.",
                    demanded * 100.0,
                    available * 100.0
                ),
                "No schedule of these tasks is feasible; reduce their work, or use more cores.",
            ));
        }
    };
    for core in pinned_cores(plan) {
        let is_pinned = |row: &&TaskDemand<'_>| row.task.schedule.core == Some(core);
        check(
            format!("core {core}"),
            &plan.task_demands.iter().filter(is_pinned).collect::<Vec<_>>(),
            1,
        );
    }
    let all: Vec<&TaskDemand<'_>> = plan.task_demands.iter().collect();
    if all.iter().any(|row| row.task.schedule.core.is_none()) {
        let cores = plan.host.cores.max(1);
        check(format!("{cores} cores"), &all, cores);
    }
    found
}

fn pinned_cores(plan: &AnalysedTaskSet<'_>) -> BTreeSet<usize> {
    plan.task_demands.iter().filter_map(|row| row.task.schedule.core).collect()
}

/// Returns findings about kinds of costs without any value, which the bounds count as 0.
fn missing_cost_findings(plan: &AnalysedTaskSet<'_>, costs: &HostCosts) -> Vec<Finding> {
    let kinds = [
        (Kind::Switch, "switch time", "'host switch'"),
        (Kind::Release, "start latency", "'host timer'"),
        (Kind::Interrupt, "interrupt time", "'host interrupt'"),
        (Kind::Scheduler, "time of the scheduler's tick", "'host interrupt' and 'host clock'"),
    ];
    // A measurement without gaps is a value too, and ticks are counted as gaps.
    let is_known = |kind: Kind| match kind {
        Kind::Interrupt => costs.has(kind) || costs.has(Kind::Scheduler),
        _ => costs.has(kind),
    };
    let missing =
        kinds.into_iter().filter(|(kind, ..)| !is_known(*kind) && !plan.task_demands.is_empty());
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

/// Returns the finding about cores that have pinned tasks but were not measured.
fn unmeasured_core_finding(plan: &AnalysedTaskSet<'_>, costs: &HostCosts) -> Option<Finding> {
    let is_unmeasured = |core: &usize| {
        [Kind::Release, Kind::Interrupt]
            .into_iter()
            .any(|kind| costs.has(kind) && !costs.has_measurement(kind, *core))
    };
    let cores: Vec<String> =
        pinned_cores(plan).into_iter().filter(is_unmeasured).map(|core| core.to_string()).collect();
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

/// Returns the finding about real-time tasks that demand more of a core than the kernel permits.
fn throttling_finding(plan: &AnalysedTaskSet<'_>) -> Option<Finding> {
    let share = plan.host.real_time_share?;
    let real_time =
        || plan.task_demands.iter().filter(|row| row.task.schedule.policy.has_priority());
    let demanded_share = |core: Option<usize>| {
        let sharing = real_time().filter(|row| {
            let pinned_core = row.task.schedule.core;
            core.is_none() || pinned_core.is_none() || pinned_core == core
        });
        sharing.map(TaskDemand::utilisation).sum::<f64>()
    };
    let pinnings = pinned_cores(plan).into_iter().map(Some).chain([None]);
    let most = pinnings.map(demanded_share).fold(0.0, f64::max);
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

fn sched_other_finding(plan: &AnalysedTaskSet<'_>) -> Option<Finding> {
    let is_sched_other = |row: &&TaskDemand<'_>| row.task.schedule.policy == Policy::Other;
    let names: Vec<&str> =
        plan.task_demands.iter().filter(is_sched_other).map(|row| row.task.name.as_str()).collect();
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

fn unpinned_finding(plan: &AnalysedTaskSet<'_>) -> Option<Finding> {
    let is_unpinned = |row: &&TaskDemand<'_>| row.task.schedule.core.is_none();
    let names: Vec<&str> =
        plan.task_demands.iter().filter(is_unpinned).map(|row| row.task.name.as_str()).collect();
    (!names.is_empty() && plan.host.cores > 1).then(|| {
        finding(
            FindingCode::BoundConditional,
            Severity::Note,
            format!(
                "{} may run on any of {} cores: the bounds assume interference by all tasks, as on \
                 one core.",
                names.join(", "),
                plan.host.cores
            ),
            "Pin tasks to cores for tighter bounds.",
        )
    })
}

/// Returns the finding about messages longer than any measured one.
fn long_message_finding(plan: &AnalysedTaskSet<'_>, costs: &HostCosts) -> Option<Finding> {
    let measured = costs.longest_message()?;
    let steps = |row: &TaskDemand<'_>| match &row.task.work {
        TaskWork::Steps(steps) if row.task.worst_ns.is_none() => steps.clone(),
        _ => Vec::new(),
    };
    let bytes = |step: Superstep| step.message.map(|message| message.bytes);
    let longest = plan.task_demands.iter().flat_map(steps).filter_map(bytes).max()?;
    (longest > measured && plan.host.nodes > 1).then(|| {
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
