//! Merge of path results: lists the rows of each path, and merges the rows of all paths that have
//! the same payload length and load.

use std::collections::BTreeMap;

use horolog_record::{
    CampaignPathPairRow, CampaignPathRow, Distribution, MergedResults, PathRequestCounts,
    PathUdpResult, PathUdpRow,
};

use super::{InstanceOutcome, MergeFailureCollector};
use crate::placement::ColocationTarget;

/// Key of rows that are merged: payload length in bytes, and bits of the load ratio. The bits of
/// non-negative floating-point numbers sort like the numbers.
type LengthAndLoadKey = (u64, u64);

pub(super) fn merge(
    role_parts: &[&InstanceOutcome<'_>],
    parts: &[InstanceOutcome<'_>],
    failures: &mut MergeFailureCollector<'_>,
) -> MergedResults {
    let mut pairs = Vec::new();
    let mut by_key: BTreeMap<LengthAndLoadKey, Vec<PathUdpRow>> = BTreeMap::new();
    for part in role_parts {
        let Some(result) = part.parse_result::<PathUdpResult>(failures) else { continue };
        let to = far_end_agent(part, parts, &result);
        for row in result.rows {
            pairs.push(CampaignPathPairRow {
                from: part.placed.agent.to_string(),
                to: to.clone(),
                length: row.length,
                load_ratio: row.load.planned_ratio,
                counts: row.counts,
                rtt_ns: row.rtt_ns.clone(),
            });
            let load = row.load.planned_ratio.max(0.0).to_bits();
            by_key.entry((row.length, load)).or_default().push(row);
        }
    }
    let rows = by_key.into_iter().map(|((length, load), rows)| {
        let all: Vec<&Distribution> = rows.iter().filter_map(|row| row.rtt_ns.as_ref()).collect();
        CampaignPathRow {
            length,
            load_ratio: f64::from_bits(load),
            paths: rows.len() as u64,
            counts: rows
                .iter()
                .map(|row| row.counts)
                .fold(PathRequestCounts::default(), add_counts),
            rtt_ns: failures.merge_distributions(&all),
        }
    });
    MergedResults::Paths { rows: rows.collect(), pairs }
}

/// Returns the agent at the far end: the other agent of a pair, or the one with the target's
/// address; the address itself if no agent has it.
fn far_end_agent(
    part: &InstanceOutcome<'_>,
    parts: &[InstanceOutcome<'_>],
    result: &PathUdpResult,
) -> String {
    let is_far = |other: &&InstanceOutcome<'_>| match &part.placed.colocation {
        ColocationTarget::Pair(_, to) => other.placed.job.id == *to,
        ColocationTarget::None | ColocationTarget::With(_) => {
            other.placed.address == result.target.address
        }
    };
    let far = parts.iter().find(is_far);
    far.map_or_else(|| result.target.address.to_string(), |far| far.placed.agent.to_string())
}

fn add_counts(sum: PathRequestCounts, one: PathRequestCounts) -> PathRequestCounts {
    PathRequestCounts {
        sent: sum.sent.saturating_add(one.sent),
        received: sum.received.saturating_add(one.received),
        lost: sum.lost.saturating_add(one.lost),
        late: sum.late.saturating_add(one.late),
        duplicate: sum.duplicate.saturating_add(one.duplicate),
        reordered: sum.reordered.saturating_add(one.reordered),
        invalid: sum.invalid.saturating_add(one.invalid),
        refused: sum.refused.saturating_add(one.refused),
    }
}
