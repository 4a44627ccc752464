//! What follows from bounds, and what they rest on: tasks that are not in time, cores with more
//! work than there is time, costs that are not known, conditions that nobody has seen to.

use std::collections::BTreeSet;

use horolog_record::{
    Code, CyclePredictCostKind as Kind, CyclePredictTask, CyclePredictVerdict as Verdict, Finding,
    Severity,
};

use super::bound::{Plan, Row};
use super::cost::Costs;
use crate::task::{Policy, Step, Work};

/// All of them, the gravest first.
pub(super) fn of(plan: &Plan<'_>, tasks: &[CyclePredictTask], costs: &Costs) -> Vec<Finding> {
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

fn finding(code: Code, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}

fn late(task: &CyclePredictTask) -> Option<Finding> {
    let name = &task.name;
    let why = task.why.as_deref().unwrap_or("the bound is longer than the deadline");
    match task.verdict {
        Verdict::Schedulable => None,
        Verdict::Unschedulable => Some(finding(
            Code::TaskUnschedulable,
            Severity::Error,
            match &task.safe {
                Some(safe) => format!(
                    "task '{name}' is not schedulable: at worst it takes {} us, its deadline is {} \
                     us.",
                    safe.response_ns / 1_000,
                    task.deadline_ns / 1_000
                ),
                None => format!("task '{name}' is not schedulable: {why}."),
            },
            "Give it less to do, a longer period or a higher priority; see which term is largest.",
        )),
        Verdict::Unknown => Some(finding(
            Code::CostAbsent,
            Severity::Error,
            format!("nothing can be said of task '{name}': {why}."),
            "Give a result of 'path udp' between the nodes with --costs.",
        )),
    }
}

/// Cores that tasks tied to them want more of than there is, and all cores together.
fn overloaded(plan: &Plan<'_>, costs: &Costs) -> Vec<Finding> {
    // What other threads take from ordinary tasks, these can win back.
    let beside = |row: &Row<'_>| {
        let there = costs.of(row.task.schedule.core, false);
        there.between().map(|one| one.share()).sum::<f64>()
    };
    let mut found = Vec::new();
    let mut judge = |place: String, rows: &[&Row<'_>], cores: usize| {
        let wanted: f64 = rows.iter().map(|row| row.share()).sum();
        let taken = rows.iter().map(|row| beside(row)).fold(0.0, f64::max);
        let there = cores as f64 * (1.0 - taken).max(0.0);
        if wanted > there {
            found.push(finding(
                Code::CoreOverloaded,
                Severity::Error,
                format!(
                    "tasks want {:.1}% of {place}, of which {:.1}% are left by interrupts and the \
                     scheduler.",
                    wanted * 100.0,
                    there * 100.0
                ),
                "No order of these tasks is in time for ever; give them less to do, or more cores.",
            ));
        }
    };
    for core in cores(plan) {
        let tied = |row: &&Row<'_>| row.task.schedule.core == Some(core);
        judge(format!("core {core}"), &plan.rows.iter().filter(tied).collect::<Vec<_>>(), 1);
    }
    let all: Vec<&Row<'_>> = plan.rows.iter().collect();
    if all.iter().any(|row| row.task.schedule.core.is_none()) {
        let cores = plan.machine.cores.max(1);
        judge(format!("{cores} cores"), &all, cores);
    }
    found
}

fn cores(plan: &Plan<'_>) -> BTreeSet<usize> {
    plan.rows.iter().filter_map(|row| row.task.schedule.core).collect()
}

/// Kinds of costs of which there is no figure at all: the bound has them as nothing.
fn absent(plan: &Plan<'_>, costs: &Costs) -> Vec<Finding> {
    let kinds = [
        (Kind::Switch, "how long a switch takes", "'host switch'"),
        (Kind::Release, "how late tasks begin", "'host timer'"),
        (Kind::Interrupt, "what interrupts take", "'host interrupt'"),
        (Kind::Scheduler, "what the scheduler's tick takes", "'host interrupt' and 'host clock'"),
    ];
    // Gaps that were looked for and not found are a figure, and ticks are among gaps.
    let is_known = |kind: Kind| match kind {
        Kind::Interrupt => costs.has(kind) || costs.has(Kind::Scheduler),
        _ => costs.has(kind),
    };
    let missing = kinds.into_iter().filter(|(kind, ..)| !is_known(*kind) && !plan.rows.is_empty());
    let told = |(kind, what, from): (Kind, &str, &str)| {
        let is_in_gaps = kind == Kind::Scheduler && costs.has(Kind::Interrupt);
        let (severity, counted) = if is_in_gaps {
            (Severity::Note, "it is counted among interrupts")
        } else {
            (Severity::Warning, "bounds count nothing for it, and are not safe")
        };
        let message = format!("{what} is not known; {counted}.");
        let advice = format!("Give a result of {from} with --costs, or use --measure.");
        finding(Code::CostAbsent, severity, message, &advice)
    };
    missing.map(told).collect()
}

/// Cores that tasks are tied to and that no measurement is of.
fn unmeasured(plan: &Plan<'_>, costs: &Costs) -> Option<Finding> {
    let is_unmeasured = |core: &usize| {
        [Kind::Release, Kind::Interrupt]
            .into_iter()
            .any(|kind| costs.has(kind) && !costs.covers(kind, *core))
    };
    let cores: Vec<String> =
        cores(plan).into_iter().filter(is_unmeasured).map(|core| core.to_string()).collect();
    (!cores.is_empty()).then(|| {
        finding(
            Code::CostDoubtful,
            Severity::Warning,
            format!(
                "core {} was not measured in all; the worst of other cores is taken for it.",
                cores.join(", ")
            ),
            "Measure the cores that tasks are tied to.",
        )
    })
}

/// Real-time tasks that want more of a core than the kernel lets them have.
fn throttled(plan: &Plan<'_>) -> Option<Finding> {
    let share = plan.machine.real_time_share?;
    let real_time = || plan.rows.iter().filter(|row| row.task.schedule.policy.has_priority());
    let wanted_by = |core: Option<usize>| {
        let there = real_time().filter(|row| {
            let tied = row.task.schedule.core;
            core.is_none() || tied.is_none() || tied == core
        });
        there.map(Row::share).sum::<f64>()
    };
    let places = cores(plan).into_iter().map(Some).chain([None]);
    let most = places.map(wanted_by).fold(0.0, f64::max);
    (most > share).then(|| {
        finding(
            Code::RealTimeThrottled,
            Severity::Warning,
            format!(
                "real-time tasks that can meet on one core want {:.1}% of it; the kernel takes it \
                 away from them after {:.1}%, which no bound counts.",
                most * 100.0,
                share * 100.0
            ),
            "Give them less to do, or raise /proc/sys/kernel/sched_rt_runtime_us.",
        )
    })
}

fn ordinary(plan: &Plan<'_>) -> Option<Finding> {
    let is_ordinary = |row: &&Row<'_>| row.task.schedule.policy == Policy::Other;
    let names: Vec<&str> =
        plan.rows.iter().filter(is_ordinary).map(|row| row.task.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        finding(
            Code::BoundConditional,
            Severity::Warning,
            format!(
                "{} under policy other: the bound has all work of other tasks of the set before \
                 theirs, and holds only where no ordinary thread beside the set takes more than was \
                 seen.",
                names.join(", ")
            ),
            "A fair share has no bound by itself; use policy fifo where a deadline matters.",
        )
    })
}

fn free(plan: &Plan<'_>) -> Option<Finding> {
    let is_free = |row: &&Row<'_>| row.task.schedule.core.is_none();
    let names: Vec<&str> =
        plan.rows.iter().filter(is_free).map(|row| row.task.name.as_str()).collect();
    (!names.is_empty() && plan.machine.cores > 1).then(|| {
        finding(
            Code::BoundConditional,
            Severity::Note,
            format!(
                "{} may run on any of {} cores: the bounds have them meet all tasks, as on one \
                 core.",
                names.join(", "),
                plan.machine.cores
            ),
            "Tie tasks to cores for closer bounds.",
        )
    })
}

/// Messages that are longer than any that was measured.
fn long_messages(plan: &Plan<'_>, costs: &Costs) -> Option<Finding> {
    let measured = costs.longest_message()?;
    let steps = |row: &Row<'_>| match &row.task.work {
        Work::Steps(steps) if row.task.worst_ns.is_none() => steps.clone(),
        _ => Vec::new(),
    };
    let bytes = |step: Step| step.message.map(|message| message.bytes);
    let longest = plan.rows.iter().flat_map(steps).filter_map(bytes).max()?;
    (longest > measured && plan.machine.nodes > 1).then(|| {
        finding(
            Code::CostDoubtful,
            Severity::Warning,
            format!(
                "a message has {longest} bytes, the longest that was measured {measured}; it is \
                 counted as several of these, one behind the other."
            ),
            "Measure the path with messages as long (path udp --sizes).",
        )
    })
}
