//! Merge of paths: the rows of each, and the rows of all paths with one length and load as one.

use std::collections::BTreeMap;

use horolog_record::{
    CampaignPathPairRow, CampaignPathRow, Distribution, MergedResults, PathCounts, PathRow,
    PathUdpResult,
};

use super::{MergeFailures, MergedPart};
use crate::placement::Colocation;

/// Key of rows with one length and load. The load is at least 0 and no NaN, so the order of its
/// bits is its own.
type PathRowKey = (u64, u64);

pub(super) fn merge(
    own: &[&MergedPart<'_>],
    parts: &[MergedPart<'_>],
    unmerged: &mut MergeFailures<'_>,
) -> MergedResults {
    let mut pairs = Vec::new();
    let mut by_key: BTreeMap<PathRowKey, Vec<PathRow>> = BTreeMap::new();
    for part in own {
        let Some(result) = part.read::<PathUdpResult>(unmerged) else { continue };
        let to = far_end(part, parts, &result);
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
            counts: rows.iter().map(|row| row.counts).fold(PathCounts::default(), sum),
            rtt_ns: unmerged.distribution(&all),
        }
    });
    MergedResults::Paths { rows: rows.collect(), pairs }
}

/// Returns the agent of the far end: of a pair the other; otherwise the one that has its address.
fn far_end(part: &MergedPart<'_>, parts: &[MergedPart<'_>], result: &PathUdpResult) -> String {
    let is_far = |other: &&MergedPart<'_>| match &part.placed.colocation {
        Colocation::Pair(_, to) => other.placed.job.id == *to,
        Colocation::None | Colocation::With(_) => other.placed.address == result.target.address,
    };
    let far = parts.iter().find(is_far);
    far.map_or_else(|| result.target.address.to_string(), |far| far.placed.agent.to_string())
}

fn sum(sum: PathCounts, one: PathCounts) -> PathCounts {
    PathCounts {
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
