//! Records of any kind together: wherever several have a distribution at the same place, that of
//! all their values. Counts are left in their parts, since nobody knows here which of them may be
//! added.

use std::collections::BTreeMap;

use horolog_record::{CampaignDistribution, CampaignFigures, Distribution};
use serde::Deserialize;
use serde_json::Value;

use super::{Part, Unmerged};

/// Places that are told, at most.
const PLACES_MAX: usize = 256;
/// How deep a record is looked into.
const DEPTH_MAX: usize = 12;

pub(super) fn merge(own: &[&Part<'_>], unmerged: &mut Unmerged<'_>) -> CampaignFigures {
    let mut by_place: BTreeMap<String, Vec<Distribution>> = BTreeMap::new();
    for result in own.iter().filter_map(|part| part.result()) {
        look(result, String::new(), DEPTH_MAX, &mut |place, distribution| {
            by_place.entry(place).or_default().push(distribution);
        });
    }
    let left = by_place.len().saturating_sub(PLACES_MAX);
    if left > 0 {
        unmerged
            .say(&format!("{left} more distributions than {PLACES_MAX} are left in their parts"));
    }
    let together = |(place, all): (String, Vec<Distribution>)| {
        let distribution = unmerged.distribution(&all.iter().collect::<Vec<_>>())?;
        Some(CampaignDistribution { place, results: all.len() as u64, distribution })
    };
    let distributions = by_place.into_iter().take(PLACES_MAX).filter_map(together).collect();
    CampaignFigures::Distributions { distributions }
}

/// Finds the distributions of a record that can be merged, with their places.
fn look(value: &Value, place: String, depth: usize, found: &mut impl FnMut(String, Distribution)) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match value {
        Value::Object(fields) => {
            let has_all = fields.contains_key("p99_99") && fields.contains_key("histogram");
            let is_signed = fields.contains_key("histogram_negative");
            if has_all && !is_signed {
                if let Ok(distribution) = Distribution::deserialize(value)
                    && !distribution.histogram.is_empty()
                {
                    found(place, distribution);
                }
                return;
            }
            for (name, field) in fields {
                let dot = if place.is_empty() { "" } else { "." };
                look(field, format!("{place}{dot}{name}"), depth, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                look(item, format!("{place}[{index}]"), depth, found);
            }
        }
        _ => {}
    }
}
