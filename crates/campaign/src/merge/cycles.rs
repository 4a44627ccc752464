//! Merge of the results of `cycle-lead` roles. The leader of a cluster receives the measurements of
//! all nodes during the run; its result holds them all, and the other nodes write none. The merge
//! maps each node of the result to its job and agent.

use horolog_record::{
    CampaignNodeTaskResult, CampaignTaskResult, CycleConfigurationResult, CycleNodeResult,
    CycleResult, CycleTaskResult, Distribution, MergedResults,
};
use serde::Deserialize;

use super::{InstanceOutcome, MergeFailureCollector};
use crate::role::RoleKind;

pub(super) fn merge(
    role_parts: &[&InstanceOutcome<'_>],
    parts: &[InstanceOutcome<'_>],
    failures: &mut MergeFailureCollector<'_>,
) -> MergedResults {
    let (mut tasks, mut nodes) = (Vec::new(), Vec::new());
    for part in role_parts {
        let Some(result) = part.parse_result::<CycleResult>(failures) else { continue };
        let cluster = CycleClusterOutcomes { leader_part: part, parts };
        for (run, run_result) in result.runs.iter().enumerate() {
            nodes.extend(cluster.nodes(run, run_result));
            tasks.extend(cluster.tasks(run, run_result, failures));
        }
    }
    MergedResults::Cycles { tasks, nodes }
}

/// Returns a sentence with the job and agent of the first node that a leader's message names; empty
/// if the message names none.
pub(super) fn location_text(
    lead: &InstanceOutcome<'_>,
    parts: &[InstanceOutcome<'_>],
    message: &str,
) -> String {
    let result = lead.result().map(CycleResult::deserialize);
    let Some(Ok(result)) = result else { return String::new() };
    CycleClusterOutcomes { leader_part: lead, parts }
        .location_sentence(message, &result)
        .unwrap_or_default()
}

/// Outcome of a cluster's leader, and of all instances of the campaign, among them the other nodes.
struct CycleClusterOutcomes<'a> {
    leader_part: &'a InstanceOutcome<'a>,
    parts: &'a [InstanceOutcome<'a>],
}

impl CycleClusterOutcomes<'_> {
    fn leader_id(&self) -> String {
        self.leader_part.placed.job.id.to_string()
    }

    /// Returns the part of a node: index 0 is the leader; another node is a `cycle-join` job with
    /// this name whose target is the leader's listen address.
    fn node_part(&self, index: usize, node: &str) -> Option<&InstanceOutcome<'_>> {
        if index == 0 {
            return Some(self.leader_part);
        }
        let first = |part: &InstanceOutcome<'_>, option: &str| {
            part.placed.job.options.get(option).and_then(|values| values.first().cloned())
        };
        let listen = first(self.leader_part, "listen");
        self.parts.iter().find(|part| {
            part.placed.job.kind == RoleKind::CycleJoin
                && first(part, "name").is_some_and(|name| name == node)
                && first(part, "target") == listen
        })
    }

    fn nodes(
        &self,
        run: usize,
        run_result: &CycleConfigurationResult,
    ) -> Vec<CampaignNodeTaskResult> {
        let all = run_result.nodes.iter().enumerate();
        all.flat_map(|(index, node)| {
            let part = self.node_part(index, &node.name);
            node.tasks.iter().map(move |task| CampaignNodeTaskResult {
                leader: self.leader_id(),
                run,
                node: node.name.clone(),
                job: part.map(|part| part.placed.job.id.to_string()),
                agent: part.map(|part| part.placed.agent.to_string()),
                task: task.name.clone(),
                periods: task.periods,
                missed: task.missed,
                straggler_periods: straggler_periods(run_result, &task.name, index),
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
        run_result: &CycleConfigurationResult,
        failures: &mut MergeFailureCollector<'_>,
    ) -> Vec<CampaignTaskResult> {
        let (skew_ns, skew_error_ns) = skew(&run_result.nodes);
        let names = run_result.nodes.first().into_iter().flat_map(|node| &node.tasks);
        let merge_task = |(index, first): (usize, &CycleTaskResult)| {
            let all: Vec<_> =
                run_result.nodes.iter().filter_map(|node| node.tasks.get(index)).collect();
            let sum = |count: fn(&CycleTaskResult) -> u64| {
                all.iter().fold(0_u64, |sum, task| sum.saturating_add(count(task)))
            };
            let mut distribution =
                |distribution_of: fn(&CycleTaskResult) -> Option<&Distribution>| {
                    failures.merge_distributions(
                        &all.iter().filter_map(|task| distribution_of(task)).collect::<Vec<_>>(),
                    )
                };
            let shared = run_result.shared.iter().find(|shared| shared.task == first.name);
            CampaignTaskResult {
                leader: self.leader_id(),
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
        names.enumerate().map(merge_task).collect()
    }

    /// Returns a sentence with the job and agent of the first node named in `message`.
    fn location_sentence(&self, message: &str, result: &CycleResult) -> Option<String> {
        let nodes = result.runs.iter().flat_map(|run| run.nodes.iter().enumerate());
        // Compared word by word: a name may be the prefix of another one.
        let is_named = |name: &str| {
            let mut words = message.split(|c: char| !(c.is_alphanumeric() || "-_.".contains(c)));
            words.any(|word| word.trim_end_matches('.') == name)
        };
        nodes.filter(|(_, node)| is_named(&node.name)).find_map(|(index, node)| {
            let part = self.node_part(index, &node.name)?;
            Some(format!(" {} is {} on {}.", node.name, part.placed.job.id, part.placed.agent))
        })
    }
}

fn straggler_periods(run: &CycleConfigurationResult, task: &str, node: usize) -> Option<u64> {
    run.shared.iter().find(|shared| shared.task == task)?.straggler_periods.get(node).copied()
}

/// Returns the largest offset between the clocks of two nodes and its error bound, in ns. The
/// reported offsets are relative to the first node's clock.
fn skew(nodes: &[CycleNodeResult]) -> (u64, u64) {
    let clocks = || nodes.iter().filter_map(|node| node.clocks.first());
    let ahead = || clocks().map(|clock| clock.ahead_ns).chain([0]);
    let (most, least) = (ahead().max().unwrap_or(0), ahead().min().unwrap_or(0));
    // Each of the two clocks has this error bound.
    let error_ns = clocks().map(|clock| clock.error_ns).max().unwrap_or(0);
    (most.abs_diff(least), error_ns.saturating_mul(2))
}
