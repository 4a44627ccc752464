//! The doubts about a run, from its record and how it ended.

use horolog_conditions::{self as conditions, REAL_TIME_ADVICE, finding};
use horolog_record::{
    Code, CycleNode, CycleResult, CycleRun, CycleShared, CycleSignal, CycleTask, Finding, Severity,
    TaskPolicy,
};

use super::one::{Ending, Lacking};

pub(super) mod clocks;

/// A node is named as the one that others wait for when it was so in this share of the periods.
const AWAITED_SHARE: f64 = 0.75;
/// And when they waited for it for this share of what a period's work took, in the mean, or of the
/// period where work took longer: nobody is waited for beyond the next release, so that of a node
/// that falls further and further behind it would be less and less.
const WAITED_SHARE: f64 = 0.1;

pub(super) fn findings(
    result: &CycleResult,
    (endings, lacking): (&[Ending], &[Lacking]),
    planned: usize,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let all = || result.runs.iter().flat_map(|run| &run.nodes);
    refused(result, &mut findings);
    if let Some(node) = all().next() {
        findings.extend(conditions::findings(&node.conditions, &[]));
    }
    let most = result.runs.iter().map(|run| run.nodes.len()).max().unwrap_or(0);
    if most > result.host.cores {
        findings.push(finding(
            Code::SharedMachine,
            Severity::Warning,
            format!(
                "{most} nodes shared {} processors: they waited for each other's cores, not only \
                 for each other.",
                result.host.cores
            ),
            "Run nodes on machines of their own, or no more of them than there are processors.",
        ));
    }
    missed(result, &mut findings);
    uncounted(result, &mut findings);
    unreleased(result, &mut findings);
    unmet(result, &mut findings);
    failed(result, &mut findings);
    for run in &result.runs {
        awaited(run, result.signal, &mut findings);
    }
    for ending in endings {
        ended(ending, &mut findings);
    }
    // Who ends a run knows that some are not run.
    if !endings.contains(&Ending::Called) {
        findings.extend(lacking.iter().map(unrun));
    }
    if endings.len() < planned && !endings.contains(&Ending::Called) {
        findings.push(finding(
            Code::Interrupted,
            Severity::Note,
            format!("Of {planned} runs {} were made before it was to end.", endings.len()),
            "",
        ));
    }
    findings
}

/// All tasks of all nodes and runs, each with where it ran: the node, and where there are several
/// runs, of how many and under which policy.
pub fn tasks(result: &CycleResult) -> impl Iterator<Item = (String, &CycleTask)> {
    let counts = || result.runs.iter().map(|run| run.nodes.len());
    let counts_differ = counts().min() != counts().max();
    result.runs.iter().flat_map(move |run| {
        run.nodes.iter().flat_map(move |node| {
            let of = if counts_differ { format!(" of {}", run.nodes.len()) } else { String::new() };
            let under = |policy: TaskPolicy| format!(" under {}", policy.name());
            let place = format!("{}{of}{}", node.name, run.policy.map_or_else(String::new, under));
            node.tasks.iter().map(move |task| (place.clone(), task))
        })
    })
}

fn refused(result: &CycleResult, findings: &mut Vec<Finding>) {
    let mut told = Vec::new();
    for (_, task) in tasks(result) {
        let Some(error) = &task.scheduling.error else { continue };
        let asked = task.scheduling.asked;
        if told.contains(&asked) {
            continue;
        }
        told.push(asked);
        findings.push(finding(
            Code::RealTimeRefused,
            Severity::Warning,
            format!(
                "Policy {} was refused ({error}): task '{}' ran as an ordinary one.",
                asked.name(),
                task.name
            ),
            REAL_TIME_ADVICE,
        ));
    }
}

fn missed(result: &CycleResult, findings: &mut Vec<Finding>) {
    let missing: Vec<_> = tasks(result).filter(|(_, task)| task.missed > 0).collect();
    let Some((node, worst)) = missing.iter().max_by_key(|(_, task)| task.missed) else { return };
    let sum: u64 = missing.iter().map(|(_, task)| task.missed).sum();
    let periods: u64 = tasks(result).map(|(_, task)| task.periods).sum();
    findings.push(finding(
        Code::DeadlinesMissed,
        Severity::Warning,
        format!(
            "{sum} of {periods} periods were not done by their deadline, most of them of task \
             '{}' on {node} ({} of {}).",
            worst.name, worst.missed, worst.periods
        ),
        "See whether lateness of release or execution is what was too long.",
    ));
}

fn uncounted(result: &CycleResult, findings: &mut Vec<Finding>) {
    let lost: u64 = tasks(result).map(|(_, task)| task.uncounted).sum();
    if lost > 0 {
        findings.push(finding(
            Code::PeriodsUncounted,
            Severity::Warning,
            format!(
                "{lost} entries, of periods, steps and events, are not in the figures: nobody took \
                 them in time."
            ),
            "Leave the collector a core, or some time on one.",
        ));
    }
}

fn unreleased(result: &CycleResult, findings: &mut Vec<Finding>) {
    for (node, task) in tasks(result).filter(|(_, task)| task.unreleased > 0) {
        findings.push(finding(
            Code::SignalLost,
            Severity::Error,
            format!(
                "Of {} packets that were to release task '{}' on {node}, {} did not come: these \
                 periods were not run.",
                task.planned, task.name, task.unreleased
            ),
            "See what loses them: 'horolog path udp' to that node; or have clocks tell the releases.",
        ));
    }
}

/// What was waited for in vain: messages, and nodes at barriers.
fn unmet(result: &CycleResult, findings: &mut Vec<Finding>) {
    let advice = "See which node was late (lateness and execution of each) or gone, and what loses \
                  packets between them ('horolog path udp'); a longer period gives them more time.";
    let mut told = |code, what: &str, of: fn(&CycleTask) -> u64| {
        let all: Vec<_> = tasks(result).filter(|(_, task)| of(task) > 0).collect();
        let Some((node, worst)) = all.iter().max_by_key(|(_, task)| of(task)) else { return };
        let sum: u64 = all.iter().map(|(_, task)| of(task)).sum();
        let most = match &all[..] {
            [_] => format!("by task '{}' on {node}", worst.name),
            _ => format!("most of them by task '{}' on {node} ({})", worst.name, of(worst)),
        };
        let message = format!("{sum} {what}, {most}.");
        findings.push(finding(code, Severity::Warning, message, advice));
    };
    let missing = "messages of other nodes were waited for until the next release and did not come";
    told(Code::MessagesMissing, missing, |task| task.messages_missing);
    let broken = "waits at a barrier were given up, since not all nodes came there in time";
    told(Code::BarriersBroken, broken, |task| task.barriers_broken);
}

/// Periods that were planned and of which nothing is known.
fn unrun(lacking: &Lacking) -> Finding {
    let Lacking { node, task, planned, lacks } = lacking;
    finding(
        Code::PeriodsNotRun,
        Severity::Error,
        format!("Of {planned} periods of task '{task}' on {node}, {lacks} were not run."),
        "",
    )
}

fn failed(result: &CycleResult, findings: &mut Vec<Finding>) {
    for (node, task) in tasks(result).filter(|(_, task)| task.failed > 0) {
        findings.push(finding(
            Code::TaskFailed,
            Severity::Error,
            format!(
                "Task '{}' on {node} failed in {} of {} periods (of {} planned){}.",
                task.name,
                task.failed,
                task.periods,
                task.planned,
                why(task)
            ),
            match &task.fault {
                Some(_) => "Run it by hand, and see what it says and when it ends.",
                None => {
                    "Run what it starts by hand; it must end with status 0, and within --timeout."
                }
            },
        ));
    }
}

/// Why it failed, the last time where there were several.
fn why(task: &CycleTask) -> String {
    let Some(fault) = &task.fault else { return String::new() };
    let last = if task.failed > 1 { "the last time " } else { "" };
    format!(": {last}{fault}")
}

/// Names the node that the others wait for.
fn awaited(run: &CycleRun, signal: CycleSignal, findings: &mut Vec<Finding>) {
    for shared in &run.shared {
        let most = (0..).zip(&shared.awaited).max_by_key(|(_, times)| **times);
        let Some((node, times)) = most else { continue };
        let share = *times as f64 / shared.periods as f64;
        let Some(name) = run.nodes.get(node).map(|node| &node.name) else { continue };
        let period_ns = period_ns(run, &shared.task).unwrap_or(f64::INFINITY);
        let waited = shared.waited_ns / shared.span_ns.min(period_ns);
        let whole =
            if shared.span_ns > period_ns { "a period" } else { "what a period's work takes" };
        if share >= AWAITED_SHARE && waited >= WAITED_SHARE {
            let by_clock = (signal != CycleSignal::Packet).then(|| behind(run, node, shared));
            let known = by_clock.flatten().or_else(|| shares_core(run, node, &shared.task));
            let (cause, advice) = known.unwrap_or_else(|| {
                let usual = "Give it less to do, or a faster processor; see what else runs there.";
                (String::new(), usual)
            });
            findings.push(finding(
                Code::NodeAwaited,
                Severity::Warning,
                format!(
                    "The others wait for {name}: it was the last in {:.0}% of the periods of task \
                     '{}', and {:.0}% of {whole} is waiting for it.{cause}",
                    share * 100.0,
                    shared.task,
                    waited * 100.0
                ),
                advice,
            ));
        }
    }
}

/// The period of a task.
fn period_ns(run: &CycleRun, task: &str) -> Option<f64> {
    let mut tasks = run.nodes.iter().flat_map(|node| &node.tasks);
    tasks.find(|one| one.name == task).map(|one| one.period_ns as f64)
}

/// Whether a clock that is behind others' explains half of what they wait, or more: each node
/// begins when its own clock says so.
fn behind(run: &CycleRun, awaited: usize, shared: &CycleShared) -> Option<(String, &'static str)> {
    let ahead_ns = |node: &CycleNode| {
        let last = node.clocks.last().map(|clock| clock.ahead_ns);
        last.or(node.clock_injected_ns).unwrap_or(0)
    };
    let own_ns = ahead_ns(run.nodes.get(awaited)?);
    let most_ns = run.nodes.iter().map(ahead_ns).max()?;
    let behind_ns = most_ns.saturating_sub(own_ns);
    (behind_ns > 0 && behind_ns as f64 * 2.0 >= shared.waited_ns).then(|| {
        let behind_us = behind_ns / 1_000;
        let cause = format!(" Its clock is {behind_us} us behind another's, so it begins later.");
        (cause, "Synchronise the clocks, or have packets release the periods (--signal udp).")
    })
}

/// Whether nodes of one machine have one core for a task.
fn shares_core(run: &CycleRun, awaited: usize, task: &str) -> Option<(String, &'static str)> {
    let core = |node: &CycleNode| {
        let task = node.tasks.iter().find(|one| one.name == task)?;
        task.scheduling.core.filter(|_| node.host.is_none())
    };
    let own = core(run.nodes.get(awaited)?)?;
    let sharing = run.nodes.iter().filter(|node| core(node) == Some(own)).count();
    (sharing > 1).then(|| {
        let cause = format!(" {sharing} nodes are tied to core {own} and run one after the other.");
        let advice = "Give each node a core of its own (--core 0,1), leave core out of the file, \
                      or run nodes on machines of their own.";
        (cause, advice)
    })
}

fn ended(ending: &Ending, findings: &mut Vec<Finding>) {
    let told = match ending {
        Ending::Done => return,
        Ending::Called => finding(
            Code::Interrupted,
            Severity::Note,
            "The run was ended before it was through.".to_owned(),
            "",
        ),
        Ending::Died { node, how } => finding(
            Code::NodeLost,
            Severity::Error,
            format!("The process of {node} ended {how}; what it had handed over is counted."),
            "See what ended it: memory (dmesg), a limit, or somebody.",
        ),
        Ending::GaveUp { node, task } => finding(
            Code::NodeLost,
            Severity::Error,
            format!(
                "Task '{task}' on {node} ended before all its periods were over, and the run with it."
            ),
            "See whether it failed, took longer than --timeout, or its node was ended.",
        ),
        Ending::NotBegun(why) => finding(
            Code::NodeLost,
            Severity::Error,
            format!("The run behind those that are told here could not begin: {why}."),
            "",
        ),
        Ending::Stuck { node, task } => finding(
            Code::NodeLost,
            Severity::Error,
            format!("Task '{task}' on {node} did not come to its end, and was ended."),
            "Give it a longer period or less to do.",
        ),
    };
    findings.push(told);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_several_runs_are_told_apart() {
        let golden = include_str!("../../../record/tests/schema/cycle.json");
        let mut result: CycleResult = serde_json::from_str(golden).unwrap();
        result.runs.truncate(1);
        result.runs[0].policy = None;
        let nodes = result.runs[0].nodes.len();
        let places =
            |result: &CycleResult| tasks(result).map(|(place, _)| place).collect::<Vec<_>>();
        let name = result.runs[0].nodes[0].name.clone();
        assert_eq!(places(&result)[0], name);
        let mut other = result.runs[0].clone();
        (other.policy, result.runs[0].policy) = (Some(TaskPolicy::Rr), Some(TaskPolicy::Fifo));
        result.runs.push(other);
        assert_eq!(places(&result)[0], format!("{name} under fifo"));
        result.runs[1].nodes.truncate(1);
        assert_eq!(places(&result)[0], format!("{name} of {nodes} under fifo"));
        assert_eq!(places(&result).last(), Some(&format!("{name} of 1 under rr")));
    }

    #[test]
    fn why_a_node_is_awaited_is_told_where_that_is_known() {
        let golden = include_str!("../../../record/tests/schema/cycle.json");
        let result: CycleResult = serde_json::from_str(golden).unwrap();
        let mut run = result.runs[0].clone();
        let mut node = run.nodes[0].clone();
        (node.clock_injected_ns, node.host) = (None, None);
        node.clocks.clear();
        node.tasks.truncate(1);
        node.tasks[0].scheduling.core = None;
        run.nodes = vec![node.clone(), CycleNode { name: "last".to_owned(), ..node }];
        run.shared.truncate(1);
        let shared = &mut run.shared[0];
        shared.task = run.nodes[0].tasks[0].name.clone();
        (shared.periods, shared.awaited) = (100, vec![1, 99]);
        (shared.waited_ns, shared.span_ns) = (4e6, 9e6);
        let told = |run: &CycleRun, signal| {
            let mut findings = Vec::new();
            awaited(run, signal, &mut findings);
            let one = findings.pop().unwrap();
            assert!(one.message.contains("wait for last"), "{}", one.message);
            one.message + &one.advice
        };
        assert!(told(&run, CycleSignal::Monotonic).contains("Give it less to do"));
        run.nodes[0].clock_injected_ns = Some(3_000_000);
        assert!(told(&run, CycleSignal::Monotonic).contains("clock is 3000 us behind"));
        assert!(told(&run, CycleSignal::Packet).contains("Give it less to do"));
        run.nodes[0].clock_injected_ns = Some(1_000_000);
        assert!(told(&run, CycleSignal::Monotonic).contains("Give it less to do"));
        run.nodes[1].tasks[0].scheduling.core = Some(1);
        assert!(told(&run, CycleSignal::Monotonic).contains("Give it less to do"));
        run.nodes[0].tasks[0].scheduling.core = Some(1);
        assert!(told(&run, CycleSignal::Monotonic).contains("2 nodes are tied to core 1"));
        // One that falls behind by periods is waited for up to the next release alone.
        let period_ns = run.nodes[0].tasks[0].period_ns as f64;
        let shared = &mut run.shared[0];
        (shared.waited_ns, shared.span_ns) = (period_ns * 0.9, period_ns * 100.0);
        assert!(told(&run, CycleSignal::Packet).contains("90% of a period is waiting for it"));
    }

    #[test]
    fn messages_and_barriers_that_were_given_up_are_told_with_who_waited_most() {
        let golden = include_str!("../../../record/tests/schema/cycle.json");
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
            unmet(result, &mut findings);
            findings.into_iter().map(|one| (one.code, one.message)).collect::<Vec<_>>()
        };
        assert!(all(&mut result, [(0, 0), (0, 0)]).is_empty());
        let told = all(&mut result, [(3, 0), (5, 2)]);
        assert_eq!(told[0].0, Code::MessagesMissing);
        assert!(told[0].1.starts_with("8 messages of other nodes"), "{told:?}");
        assert!(told[0].1.ends_with("task 'control' on node5 (5)."), "{told:?}");
        assert_eq!(told[1].0, Code::BarriersBroken);
        assert!(told[1].1.starts_with("2 waits") && told[1].1.contains(", by task"), "{told:?}");
    }
}
