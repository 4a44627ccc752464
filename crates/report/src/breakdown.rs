//! Breakdown of a campaign's results by generator, path, node, child or job, the worst first, to
//! show which one differs from the others. The terminal and the HTML report draw bars of it.

use horolog_record::{
    CampaignInstanceResult, CampaignNodeTaskResult, CampaignPathPairRow, CampaignRelayCounts,
    CampaignResult, CampaignRoleResult, MergedResults, PathRequestCounts,
};
use serde::Deserialize;
use serde_json::Value;

use crate::kinds::campaign::length;
use crate::units::{full_count, human_ns, human_rate, percent_of};

/// Row of a ranking: a bar, with the numbers next to it.
pub(crate) struct RoleRankingRow {
    pub(crate) name: String,
    /// Value that determines the length of the bar.
    pub(crate) size: f64,
    pub(crate) numbers: [String; 2],
}

/// Ranking of the generators, paths, children, nodes or jobs of one role by one value, for bars.
pub(crate) struct RoleRanking {
    /// Description of the quantity that the bars show.
    pub(crate) about: String,
    /// Titles of the names and of the numbers.
    pub(crate) titles: [&'static str; 3],
    /// Bars, the worst first.
    pub(crate) all: Vec<RoleRankingRow>,
    /// Value of a bar of full length.
    pub(crate) full: f64,
}

/// Returns the ranking of each role that has several rows.
pub(crate) fn breakdowns(result: &CampaignResult) -> impl Iterator<Item = RoleRanking> + '_ {
    let all = result.roles.iter().filter_map(|role| of_role(role, &result.parts));
    all.filter(|breakdown| breakdown.all.len() > 1)
}

fn of_role(role: &CampaignRoleResult, parts: &[CampaignInstanceResult]) -> Option<RoleRanking> {
    let parts = || parts.iter().filter(|part| part.role == role.role);
    let (what, titles, rows): (String, _, Vec<_>) = match &role.merged {
        MergedResults::Load { trials, .. } => {
            let last = trials.last()?;
            let what = format!(
                "round trip, p99, in the trial at {}",
                human_rate(last.trial.intended_rate)
            );
            let breakdown_row = |part| of_generator(part, last.index);
            (what, ["generator", "p99", "lost"], parts().filter_map(breakdown_row).collect())
        }
        MergedResults::Paths { pairs, .. } => {
            let last = pairs.last()?;
            let row = |pair: &CampaignPathPairRow| length(pair.length, pair.load_ratio);
            let same = pairs.iter().filter(|pair| row(pair) == row(last));
            let breakdown_row = |pair: &CampaignPathPairRow| {
                let name = format!("{} to {}", pair.from, pair.to);
                Some(timed(name, pair.rtt_ns.as_ref()?.p99, lost(&pair.counts)))
            };
            let what = format!("round trip at {} bytes, p99", row(last));
            (what, ["path", "p99", "lost"], same.filter_map(breakdown_row).collect())
        }
        MergedResults::Relays { relays, .. } => return Some(of_relays(&role.role, relays)),
        MergedResults::Cycles { nodes, .. } => {
            let breakdown_row = |node: &CampaignNodeTaskResult| {
                let name = format!("{}, {}", node.node, node.task);
                let missed = percent_of(node.missed, node.periods);
                Some(timed(name, node.response_ns.as_ref()?.p99, missed))
            };
            let what = "response time, p99".to_owned();
            (what, ["node", "p99", "missed"], nodes.iter().filter_map(breakdown_row).collect())
        }
        MergedResults::Distributions { distributions } => {
            let first = distributions.iter().rev().max_by_key(|one| one.results)?;
            let breakdown_row = |part: &CampaignInstanceResult| {
                let times = InstanceDistributionFields::deserialize(at(
                    part.result.as_ref()?,
                    &first.path,
                )?)
                .ok()?;
                Some(timed(on(part), times.p99, human_ns(times.max)))
            };
            let what = format!("{}, p99", first.path);
            (what, ["part", "p99", "max"], parts().filter_map(breakdown_row).collect())
        }
    };
    let mut rows = rows;
    rows.sort_by(|a, b| b.size.total_cmp(&a.size));
    let full = rows.first().map_or(0.0, |worst| worst.size);
    Some(RoleRanking { about: format!("{}: {what}.", role.role), titles, all: rows, full })
}

fn timed(name: String, ns: u64, second_number: String) -> RoleRankingRow {
    RoleRankingRow { name, size: ns as f64, numbers: [human_ns(ns), second_number] }
}

fn on(part: &CampaignInstanceResult) -> String {
    format!("{} on {}", part.job, part.agent)
}

fn lost(counts: &PathRequestCounts) -> String {
    percent_of(counts.lost, counts.sent)
}

/// Fields of a distribution that are read from the result of an instance.
#[derive(Deserialize)]
struct InstanceDistributionFields {
    p99: u64,
    max: u64,
}

/// Fields of a trial that are read from the result of an instance.
#[derive(Deserialize)]
struct InstanceTrialFields {
    sent: u64,
    lost: u64,
    rtt_ns: InstanceDistributionFields,
}

fn of_generator(part: &CampaignInstanceResult, trial: usize) -> Option<RoleRankingRow> {
    let trial = part.result.as_ref()?.get("trials")?.get(trial)?;
    let trial = InstanceTrialFields::deserialize(trial).ok()?;
    Some(timed(on(part), trial.rtt_ns.p99, percent_of(trial.lost, trial.sent)))
}

/// Returns the value at a path in a result, such as `cores[0].latency_ns`; `None` if there is none.
fn at<'a>(result: &'a Value, path: &str) -> Option<&'a Value> {
    result.pointer(&format!("/{}", path.replace(['.', '['], "/").replace(']', "")))
}

/// Returns a bar for each child: the share of its relay's received packets that reached it, lowest
/// first; if the delivery is unknown, the share of copies sent. Relays without packets are omitted.
fn of_relays(role: &str, relays: &[CampaignRelayCounts]) -> RoleRanking {
    let mut rows = Vec::new();
    for relay in relays.iter().filter(|relay| relay.packets > 0) {
        for child in &relay.children {
            let to = child.job.clone().unwrap_or_else(|| child.address.to_string());
            let delivered = child.received.unwrap_or(child.sent);
            rows.push(RoleRankingRow {
                name: format!("{} on {} to {to}", relay.job, relay.agent),
                size: delivered as f64 / relay.packets as f64,
                numbers: [percent_of(delivered, relay.packets), full_count(delivered)],
            });
        }
    }
    rows.sort_by(|a, b| a.size.total_cmp(&b.size));
    let about = format!("{role}: share of the relay's packets delivered to each child.");
    RoleRanking { about, titles: ["child", "share", "packets"], all: rows, full: 1.0 }
}
