//! Findings of a run, from its record and the way in which it ended.

use horolog_conditions::{self as conditions, REAL_TIME_ADVICE, finding};
use horolog_record::{
    CycleConfigurationResult, CycleNodeResult, CycleResult, CycleSharedTaskResult, CycleTaskResult,
    Finding, FindingCode, ReleaseSignal, Severity,
};

use super::single_run::{MissingPeriodCounts, RunEndReason};

pub(super) mod clocks;

/// Share of the periods in which a node must be the last to count as a straggler.
const STRAGGLER_SHARE: f64 = 0.75;
/// Smallest mean wait for a straggler, as a share of the execution of a period's work, or of the
/// period if that is shorter. No node is waited for beyond the next release, so the share of the
/// execution would shrink for a node that falls further and further behind.
const STRAGGLER_WAIT_SHARE: f64 = 0.1;

pub(super) fn findings(
    result: &CycleResult,
    (endings, missing_periods): (&[RunEndReason], &[MissingPeriodCounts]),
    planned: usize,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let all = || result.runs.iter().flat_map(|run| &run.nodes);
    add_refused_findings(result, &mut findings);
    if let Some(node) = all().next() {
        findings.extend(conditions::findings(&node.conditions, &[]));
    }
    let most = result.runs.iter().map(|run| run.nodes.len()).max().unwrap_or(0);
    if most > result.host.cores {
        findings.push(finding(
            FindingCode::SharedMachine,
            Severity::Warning,
            format!(
                "{most} nodes shared {} CPUs: they waited for each other's cores, not only for \
                 each other.",
                result.host.cores
            ),
            "Run nodes on separate hosts, or at most one node per CPU.",
        ));
    }
    add_missed_finding(result, &mut findings);
    add_lost_entries_finding(result, &mut findings);
    add_unreleased_findings(result, &mut findings);
    add_timeout_findings(result, &mut findings);
    add_failed_findings(result, &mut findings);
    for run in &result.runs {
        add_straggler_findings(run, result.signal, &mut findings);
    }
    for ending in endings {
        add_end_finding(ending, &mut findings);
    }
    // After an interruption, missing periods are expected.
    if !endings.contains(&RunEndReason::Interrupted) {
        findings.extend(missing_periods.iter().map(missing_periods_finding));
    }
    if endings.len() < planned && !endings.contains(&RunEndReason::Interrupted) {
        findings.push(finding(
            FindingCode::Interrupted,
            Severity::Note,
            format!("Of {planned} runs {} were completed before the interruption.", endings.len()),
            "",
        ));
    }
    findings
}

fn add_refused_findings(result: &CycleResult, findings: &mut Vec<Finding>) {
    let mut reported = Vec::new();
    for (_, task) in result.labelled_tasks() {
        let Some(error) = &task.scheduling.error else { continue };
        let requested = task.scheduling.requested;
        if reported.contains(&requested) {
            continue;
        }
        reported.push(requested);
        findings.push(finding(
            FindingCode::RealTimeRefused,
            Severity::Warning,
            format!(
                "Policy {} was refused ({error}): task '{}' ran under SCHED_OTHER.",
                requested.name(),
                task.name
            ),
            REAL_TIME_ADVICE,
        ));
    }
}

fn add_missed_finding(result: &CycleResult, findings: &mut Vec<Finding>) {
    let missing: Vec<_> = result.labelled_tasks().filter(|(_, task)| task.missed > 0).collect();
    let Some((node, worst)) = missing.iter().max_by_key(|(_, task)| task.missed) else { return };
    let sum: u64 = missing.iter().map(|(_, task)| task.missed).sum();
    let periods: u64 = result.labelled_tasks().map(|(_, task)| task.periods).sum();
    findings.push(finding(
        FindingCode::DeadlinesMissed,
        Severity::Warning,
        format!(
            "{sum} of {periods} periods missed their deadline, most of them of task '{}' on {node} \
             ({} of {}).",
            worst.name, worst.missed, worst.periods
        ),
        "Check whether start latency or execution is too long.",
    ));
}

fn add_lost_entries_finding(result: &CycleResult, findings: &mut Vec<Finding>) {
    let lost: u64 = result.labelled_tasks().map(|(_, task)| task.uncounted).sum();
    if lost > 0 {
        findings.push(finding(
            FindingCode::PeriodsNotRecorded,
            Severity::Warning,
            format!(
                "{lost} entries, of periods, steps and events, are missing from the results: the \
                 collector was too slow."
            ),
            "Reserve a core, or time on one, for the collector.",
        ));
    }
}

fn add_unreleased_findings(result: &CycleResult, findings: &mut Vec<Finding>) {
    for (node, task) in result.labelled_tasks().filter(|(_, task)| task.unreleased > 0) {
        findings.push(finding(
            FindingCode::ReleaseSignalLost,
            Severity::Error,
            format!(
                "Of {} release packets of task '{}' on {node}, {} did not arrive: these periods \
                 were not run.",
                task.planned, task.name, task.unreleased
            ),
            "Check the path with 'horolog path udp' to that node, or release by clocks.",
        ));
    }
}

/// Adds the findings about waits that timed out, for messages and at barriers.
fn add_timeout_findings(result: &CycleResult, findings: &mut Vec<Finding>) {
    let advice = "Find the node that was late (start latency and execution of each) or lost, and \
                  the packet loss between them ('horolog path udp'); a longer period allows them \
                  more time.";
    let mut add_finding = |code, what: &str, of: fn(&CycleTaskResult) -> u64| {
        let all: Vec<_> = result.labelled_tasks().filter(|(_, task)| of(task) > 0).collect();
        let Some((node, worst)) = all.iter().max_by_key(|(_, task)| of(task)) else { return };
        let sum: u64 = all.iter().map(|(_, task)| of(task)).sum();
        let most = match &all[..] {
            [_] => format!("by task '{}' on {node}", worst.name),
            _ => format!("most of them by task '{}' on {node} ({})", worst.name, of(worst)),
        };
        let message = format!("{sum} {what}, {most}.");
        findings.push(finding(code, Severity::Warning, message, advice));
    };
    let missing = "messages of other nodes did not arrive before the next release";
    add_finding(FindingCode::MessagesMissing, missing, |task| task.messages_missing);
    let broken = "barriers timed out, since not all nodes reached them in time";
    add_finding(FindingCode::BarriersBroken, broken, |task| task.barriers_broken);
}

/// Returns the finding about planned periods that were not run.
fn missing_periods_finding(missing_periods: &MissingPeriodCounts) -> Finding {
    let MissingPeriodCounts { node, task, planned, missing: lacks } = missing_periods;
    finding(
        FindingCode::PeriodsNotRun,
        Severity::Error,
        format!("Of {planned} periods of task '{task}' on {node}, {lacks} were not run."),
        "",
    )
}

fn add_failed_findings(result: &CycleResult, findings: &mut Vec<Finding>) {
    for (node, task) in result.labelled_tasks().filter(|(_, task)| task.failed > 0) {
        findings.push(finding(
            FindingCode::TaskFailed,
            Severity::Error,
            format!(
                "Task '{}' on {node} failed in {} of {} periods (of {} planned){}.",
                task.name,
                task.failed,
                task.periods,
                task.planned,
                failure_reason(task)
            ),
            match &task.failure {
                Some(_) => "Run it by hand, and check its marks and its end.",
                None => "Run its command by hand; it must exit with status 0, within --timeout.",
            },
        ));
    }
}

/// Returns the reason for a task's failure, the latest of several, as the end of a sentence.
fn failure_reason(task: &CycleTaskResult) -> String {
    let Some(fault) = &task.failure else { return String::new() };
    let before = if task.failed > 1 { ", most recently" } else { "" };
    format!("{before}: {fault}")
}

/// Adds a finding for each shared task with a straggler: the node that was the last in most
/// periods, if the others waited long for it.
fn add_straggler_findings(
    run: &CycleConfigurationResult,
    signal: ReleaseSignal,
    findings: &mut Vec<Finding>,
) {
    for shared in &run.shared {
        let most = (0..).zip(&shared.straggler_periods).max_by_key(|(_, times)| **times);
        let Some((node, times)) = most else { continue };
        let share = *times as f64 / shared.periods as f64;
        let Some(name) = run.nodes.get(node).map(|node| &node.name) else { continue };
        let period_ns = period_ns(run, &shared.task).unwrap_or(f64::INFINITY);
        let waited = shared.waited_ns / shared.span_ns.min(period_ns);
        let whole = if shared.span_ns > period_ns { "a period" } else { "the work of a period" };
        if share >= STRAGGLER_SHARE && waited >= STRAGGLER_WAIT_SHARE {
            let by_clock =
                (signal != ReleaseSignal::Packet).then(|| lagging_clock_cause(run, node, shared));
            let known = by_clock.flatten().or_else(|| shared_core_cause(run, node, &shared.task));
            let (cause, advice) = known.unwrap_or_else(|| {
                let usual = "Reduce its work, or use a faster CPU; check what else runs there.";
                (String::new(), usual)
            });
            findings.push(finding(
                FindingCode::StragglerNode,
                Severity::Warning,
                format!(
                    "The others wait for {name}: it was the last in {:.0}% of the periods of task \
                     '{}', and {:.0}% of {whole} is spent waiting for it.{cause}",
                    share * 100.0,
                    shared.task,
                    waited * 100.0
                ),
                advice,
            ));
        }
    }
}

/// Returns the period of a task, in ns; `None` if no node has the task.
fn period_ns(run: &CycleConfigurationResult, task: &str) -> Option<f64> {
    let mut tasks = run.nodes.iter().flat_map(|node| &node.tasks);
    tasks.find(|one| one.name == task).map(|one| one.period_ns as f64)
}

/// Returns the cause and the advice if the clock of the straggler is behind that of another node by
/// at least half of the wait: each node releases its periods by its own clock.
fn lagging_clock_cause(
    run: &CycleConfigurationResult,
    straggler: usize,
    shared: &CycleSharedTaskResult,
) -> Option<(String, &'static str)> {
    let ahead_ns = |node: &CycleNodeResult| {
        let last = node.clocks.last().map(|clock| clock.ahead_ns);
        last.or(node.injected_offset_ns).unwrap_or(0)
    };
    let own_ns = ahead_ns(run.nodes.get(straggler)?);
    let most_ns = run.nodes.iter().map(ahead_ns).max()?;
    let behind_ns = most_ns.saturating_sub(own_ns);
    (behind_ns > 0 && behind_ns as f64 * 2.0 >= shared.waited_ns).then(|| {
        let behind_us = behind_ns / 1_000;
        let cause = format!(" Its clock is {behind_us} us behind another's, so it begins later.");
        (
            cause,
            "Synchronise the clocks, or have packets release the periods (--release-signal udp).",
        )
    })
}

/// Returns the cause and the advice if the straggler and other nodes on this host are pinned to one
/// core for a task.
fn shared_core_cause(
    run: &CycleConfigurationResult,
    straggler: usize,
    task: &str,
) -> Option<(String, &'static str)> {
    let core = |node: &CycleNodeResult| {
        let task = node.tasks.iter().find(|one| one.name == task)?;
        task.scheduling.core.filter(|_| node.host.is_none())
    };
    let own = core(run.nodes.get(straggler)?)?;
    let sharing = run.nodes.iter().filter(|node| core(node) == Some(own)).count();
    (sharing > 1).then(|| {
        let cause =
            format!(" {sharing} nodes are pinned to core {own} and run one after the other.");
        let advice = "Use one core for each node (--core 0,1), omit core from the file, or run \
                      nodes on separate hosts.";
        (cause, advice)
    })
}

fn add_end_finding(ending: &RunEndReason, findings: &mut Vec<Finding>) {
    let end_finding = match ending {
        RunEndReason::Completed => return,
        RunEndReason::Interrupted => finding(
            FindingCode::Interrupted,
            Severity::Note,
            "The run was interrupted.".to_owned(),
            "",
        ),
        RunEndReason::NodeExited { node, how } => finding(
            FindingCode::NodeLost,
            Severity::Error,
            format!("The process of {node} ended {how}; entries received until then are counted."),
            "Find what terminated it: out of memory (dmesg), a limit, or a signal.",
        ),
        RunEndReason::TaskAbandoned { node, task } => finding(
            FindingCode::NodeLost,
            Severity::Error,
            format!("Task '{task}' on {node} ended before its last period, and the run with it."),
            "Check whether it failed, exceeded --timeout, or its node was terminated.",
        ),
        RunEndReason::NotStarted(why) => finding(
            FindingCode::NodeLost,
            Severity::Error,
            format!("The run after the reported ones could not begin: {why}."),
            "",
        ),
        RunEndReason::TaskStuck { node, task } => finding(
            FindingCode::NodeLost,
            Severity::Error,
            format!("Task '{task}' on {node} did not finish, and was terminated."),
            "Use a longer period or less work.",
        ),
    };
    findings.push(end_finding);
}

#[cfg(test)]
mod tests {
    use horolog_record::TaskSchedulingPolicy;

    use super::*;

    #[test]
    fn tasks_of_several_runs_are_distinguished() {
        let golden = include_str!("../../../record/samples/cycle.json");
        let mut result: CycleResult = serde_json::from_str(golden).unwrap();
        result.runs.truncate(1);
        result.runs[0].policy = None;
        let nodes = result.runs[0].nodes.len();
        let labels = |result: &CycleResult| {
            result.labelled_tasks().map(|(label, _)| label).collect::<Vec<_>>()
        };
        let name = result.runs[0].nodes[0].name.clone();
        assert_eq!(labels(&result)[0], name);
        let mut other = result.runs[0].clone();
        (other.policy, result.runs[0].policy) =
            (Some(TaskSchedulingPolicy::Rr), Some(TaskSchedulingPolicy::Fifo));
        result.runs.push(other);
        assert_eq!(labels(&result)[0], format!("{name} under fifo"));
        result.runs[1].nodes.truncate(1);
        assert_eq!(labels(&result)[0], format!("{name} of {nodes} under fifo"));
        assert_eq!(labels(&result).last(), Some(&format!("{name} of 1 under rr")));
    }

    #[test]
    fn the_reason_of_a_straggler_is_reported_if_known() {
        let golden = include_str!("../../../record/samples/cycle.json");
        let result: CycleResult = serde_json::from_str(golden).unwrap();
        let mut run = result.runs[0].clone();
        let mut node = run.nodes[0].clone();
        (node.injected_offset_ns, node.host) = (None, None);
        node.clocks.clear();
        node.tasks.truncate(1);
        node.tasks[0].scheduling.core = None;
        run.nodes = vec![node.clone(), CycleNodeResult { name: "last".to_owned(), ..node }];
        run.shared.truncate(1);
        let shared = &mut run.shared[0];
        shared.task = run.nodes[0].tasks[0].name.clone();
        (shared.periods, shared.straggler_periods) = (100, vec![1, 99]);
        (shared.waited_ns, shared.span_ns) = (4e6, 9e6);
        let finding_text = |run: &CycleConfigurationResult, signal| {
            let mut findings = Vec::new();
            add_straggler_findings(run, signal, &mut findings);
            let one = findings.pop().unwrap();
            assert!(one.message.contains("wait for last"), "{}", one.message);
            one.message + &one.advice
        };
        assert!(finding_text(&run, ReleaseSignal::Monotonic).contains("Reduce its work"));
        run.nodes[0].injected_offset_ns = Some(3_000_000);
        assert!(finding_text(&run, ReleaseSignal::Monotonic).contains("clock is 3000 us behind"));
        assert!(finding_text(&run, ReleaseSignal::Packet).contains("Reduce its work"));
        run.nodes[0].injected_offset_ns = Some(1_000_000);
        assert!(finding_text(&run, ReleaseSignal::Monotonic).contains("Reduce its work"));
        run.nodes[1].tasks[0].scheduling.core = Some(1);
        assert!(finding_text(&run, ReleaseSignal::Monotonic).contains("Reduce its work"));
        run.nodes[0].tasks[0].scheduling.core = Some(1);
        assert!(
            finding_text(&run, ReleaseSignal::Monotonic).contains("2 nodes are pinned to core 1")
        );
        // One that falls behind by periods is waited for up to the next release alone.
        let period_ns = run.nodes[0].tasks[0].period_ns as f64;
        let shared = &mut run.shared[0];
        (shared.waited_ns, shared.span_ns) = (period_ns * 0.9, period_ns * 100.0);
        assert!(
            finding_text(&run, ReleaseSignal::Packet)
                .contains("90% of a period is spent waiting for it")
        );
    }

    #[test]
    fn missing_messages_and_broken_barriers_are_reported_with_the_worst_task() {
        let golden = include_str!("../../../record/samples/cycle.json");
        let mut result: CycleResult = serde_json::from_str(golden).unwrap();
        let all = |result: &mut CycleResult, counts: [(u64, u64); 2]| {
            result.runs.truncate(1);
            result.runs[0].policy = None;
            let mut node = result.runs[0].nodes[0].clone();
            node.tasks.truncate(1);
            let of = |(missing, broken)| {
                let mut node = node.clone();
                node.name = format!("node{missing}");
                (node.tasks[0].messages_missing, node.tasks[0].barriers_broken) = (missing, broken);
                node
            };
            result.runs[0].nodes = counts.map(of).to_vec();
            let mut findings = Vec::new();
            add_timeout_findings(result, &mut findings);
            findings.into_iter().map(|one| (one.code, one.message)).collect::<Vec<_>>()
        };
        assert!(all(&mut result, [(0, 0), (0, 0)]).is_empty());
        let findings = all(&mut result, [(3, 0), (5, 2)]);
        assert_eq!(findings[0].0, FindingCode::MessagesMissing);
        assert!(findings[0].1.starts_with("8 messages of other nodes"), "{findings:?}");
        assert!(findings[0].1.ends_with("task 'control' on node5 (5)."), "{findings:?}");
        assert_eq!(findings[1].0, FindingCode::BarriersBroken);
        assert!(
            findings[1].1.starts_with("2 barriers timed out")
                && findings[1].1.contains(", by task"),
            "{findings:?}"
        );
    }
}
