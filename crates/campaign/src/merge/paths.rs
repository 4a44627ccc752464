//! Paths together: a row of each, and all paths' rows of one length and load as one.

use std::collections::BTreeMap;

use horolog_record::{
    CampaignFigures, CampaignPair, CampaignPathRow, Distribution, PathCounts, PathRow,
    PathUdpResult,
};

use super::{Part, Unmerged};
use crate::place::Beside;

/// Rows of one length and load. The load is 0 or more and no NaN, so its bits are ordered as it is.
type Place = (u64, u64);

pub(super) fn merge(
    own: &[&Part<'_>],
    parts: &[Part<'_>],
    unmerged: &mut Unmerged<'_>,
) -> CampaignFigures {
    let mut pairs = Vec::new();
    let mut by_place: BTreeMap<Place, Vec<PathRow>> = BTreeMap::new();
    for part in own {
        let Some(result) = part.read::<PathUdpResult>(unmerged) else { continue };
        let to = far_end(part, parts, &result);
        for row in result.rows {
            pairs.push(CampaignPair {
                from: part.placed.agent.to_string(),
                to: to.clone(),
                length: row.length,
                load_ratio: row.load.planned_ratio,
                counts: row.counts,
                rtt_ns: row.rtt_ns.clone(),
            });
            let load = row.load.planned_ratio.max(0.0).to_bits();
            by_place.entry((row.length, load)).or_default().push(row);
        }
    }
    let rows = by_place.into_iter().map(|((length, load), rows)| {
        let all: Vec<&Distribution> = rows.iter().filter_map(|row| row.rtt_ns.as_ref()).collect();
        CampaignPathRow {
            length,
            load_ratio: f64::from_bits(load),
            paths: rows.len() as u64,
            counts: rows.iter().map(|row| row.counts).fold(PathCounts::default(), sum),
            rtt_ns: unmerged.distribution(&all),
        }
    });
    CampaignFigures::Paths { rows: rows.collect(), pairs }
}

/// The agent of the far end: of a pair the other; else whoever has its address.
fn far_end(part: &Part<'_>, parts: &[Part<'_>], result: &PathUdpResult) -> String {
    let is_far = |other: &&Part<'_>| match &part.placed.beside {
        Beside::Pair(_, to) => other.placed.job.id == *to,
        Beside::Nobody | Beside::One(_) => other.placed.address == result.target.address,
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
