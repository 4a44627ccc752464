//! Merge of periodic tasks. The first node has received the reports of all others during the run,
//! and its record holds every period; nodes that joined write none. So nothing is summed twice: the
//! first node's record is read, and its nodes are identified by their jobs and agents.

use horolog_record::{
    CampaignNodeTask, CampaignTask, CycleNode, CycleResult, CycleRun, CycleTask, Distribution,
    MergedResults,
};
use serde::Deserialize;

use super::{MergeFailures, MergedPart};
use crate::role::RoleKind;

pub(super) fn merge(
    own: &[&MergedPart<'_>],
    parts: &[MergedPart<'_>],
    unmerged: &mut MergeFailures<'_>,
) -> MergedResults {
    let (mut tasks, mut nodes) = (Vec::new(), Vec::new());
    for part in own {
        let Some(result) = part.read::<CycleResult>(unmerged) else { continue };
        let cluster = Cluster { lead: part, parts };
        for (run, of_run) in result.runs.iter().enumerate() {
            nodes.extend(cluster.nodes(run, of_run));
            tasks.extend(cluster.tasks(run, of_run, unmerged));
        }
    }
    MergedResults::Cycles { tasks, nodes }
}

/// Returns the location of the node named in a message of its leader, as a sentence; empty if it
/// names none.
pub(super) fn location_text(
    lead: &MergedPart<'_>,
    parts: &[MergedPart<'_>],
    message: &str,
) -> String {
    let result = lead.result().map(CycleResult::deserialize);
    let Some(Ok(result)) = result else { return String::new() };
    Cluster { lead, parts }.located(message, &result).unwrap_or_default()
}

/// Nodes of one leader.
struct Cluster<'a> {
    lead: &'a MergedPart<'a>,
    parts: &'a [MergedPart<'a>],
}

impl Cluster<'_> {
    fn leader(&self) -> String {
        self.lead.placed.job.id.to_string()
    }

    /// Returns the part of a node: the first is the leader; the others have the configured names
    /// and join where the leader listens.
    fn part(&self, index: usize, node: &str) -> Option<&MergedPart<'_>> {
        if index == 0 {
            return Some(self.lead);
        }
        let first = |part: &MergedPart<'_>, option: &str| {
            part.placed.job.options.get(option).and_then(|values| values.first().cloned())
        };
        let listen = first(self.lead, "listen");
        self.parts.iter().find(|part| {
            part.placed.job.kind == RoleKind::CycleJoin
                && first(part, "name").is_some_and(|name| name == node)
                && first(part, "target") == listen
        })
    }

    fn nodes(&self, run: usize, of_run: &CycleRun) -> Vec<CampaignNodeTask> {
        let all = of_run.nodes.iter().enumerate();
        all.flat_map(|(index, node)| {
            let part = self.part(index, &node.name);
            node.tasks.iter().map(move |task| CampaignNodeTask {
                leader: self.leader(),
                run,
                node: node.name.clone(),
                job: part.map(|part| part.placed.job.id.to_string()),
                agent: part.map(|part| part.placed.agent.to_string()),
                task: task.name.clone(),
                periods: task.periods,
                missed: task.missed,
                straggler_periods: awaited(of_run, &task.name, index),
                ahead_ns: node.clocks.first().map(|clock| clock.ahead_ns),
                start_latency_ns: task.start_latency_ns.clone(),
                response_ns: task.response_ns.clone(),
            })
        })
        .collect()
    }

    fn tasks(
        &self,
        run: usize,
        of_run: &CycleRun,
        unmerged: &mut MergeFailures<'_>,
    ) -> Vec<CampaignTask> {
        let (skew_ns, skew_error_ns) = skew(&of_run.nodes);
        let names = of_run.nodes.first().into_iter().flat_map(|node| &node.tasks);
        let together = |(index, first): (usize, &CycleTask)| {
            let all: Vec<_> =
                of_run.nodes.iter().filter_map(|node| node.tasks.get(index)).collect();
            let sum = |count: fn(&CycleTask) -> u64| {
                all.iter().fold(0_u64, |sum, task| sum.saturating_add(count(task)))
            };
            let mut distribution = |of: fn(&CycleTask) -> Option<&Distribution>| {
                unmerged.distribution(&all.iter().filter_map(|task| of(task)).collect::<Vec<_>>())
            };
            let shared = of_run.shared.iter().find(|shared| shared.task == first.name);
            CampaignTask {
                leader: self.leader(),
                run,
                task: first.name.clone(),
                nodes: all.len() as u64,
                periods: sum(|task| task.periods),
                missed: sum(|task| task.missed),
                span_ns: shared.map(|shared| shared.span_ns),
                skew_ns,
                skew_error_ns,
                start_latency_ns: distribution(|task| task.start_latency_ns.as_ref()),
                response_ns: distribution(|task| task.response_ns.as_ref()),
            }
        };
        names.enumerate().map(together).collect()
    }

    /// Returns the location of the named node.
    fn located(&self, message: &str, result: &CycleResult) -> Option<String> {
        let nodes = result.runs.iter().flat_map(|run| run.nodes.iter().enumerate());
        // A name may be the prefix of another one.
        let is_named = |name: &str| {
            let mut words = message.split(|c: char| !(c.is_alphanumeric() || "-_.".contains(c)));
            words.any(|word| word.trim_end_matches('.') == name)
        };
        nodes.filter(|(_, node)| is_named(&node.name)).find_map(|(index, node)| {
            let part = self.part(index, &node.name)?;
            Some(format!(" {} is {} on {}.", node.name, part.placed.job.id, part.placed.agent))
        })
    }
}

fn awaited(run: &CycleRun, task: &str, node: usize) -> Option<u64> {
    run.shared.iter().find(|shared| shared.task == task)?.straggler_periods.get(node).copied()
}

/// Returns the largest difference between the clocks of nodes, and its error bound. The first
/// node's clock is the reference of the others.
fn skew(nodes: &[CycleNode]) -> (u64, u64) {
    let clocks = || nodes.iter().filter_map(|node| node.clocks.first());
    let ahead = || clocks().map(|clock| clock.ahead_ns).chain([0]);
    let (most, least) = (ahead().max().unwrap_or(0), ahead().min().unwrap_or(0));
    // Both ends have an error.
    let error_ns = clocks().map(|clock| clock.error_ns).max().unwrap_or(0);
    (most.abs_diff(least), error_ns.saturating_mul(2))
}
