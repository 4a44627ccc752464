//! Merge for kinds of roles without a merge of their own: distributions at the same JSON path are
//! merged into one. Counts are not merged, because their meaning is unknown here.

use std::collections::BTreeMap;

use horolog_record::{Distribution, MergedDistribution, MergedResults};
use serde::Deserialize;
use serde_json::Value;

use super::{InstanceOutcome, MergeFailureCollector};

/// Largest number of JSON paths with a merged distribution.
const PATHS_MAX: usize = 256;
/// Largest depth of the search in a record.
const DEPTH_MAX: usize = 12;

pub(super) fn merge(
    role_parts: &[&InstanceOutcome<'_>],
    failures: &mut MergeFailureCollector<'_>,
) -> MergedResults {
    let mut by_path: BTreeMap<String, Vec<Distribution>> = BTreeMap::new();
    for result in role_parts.iter().filter_map(|part| part.result()) {
        find_distributions(result, String::new(), DEPTH_MAX, &mut |path, distribution| {
            by_path.entry(path).or_default().push(distribution);
        });
    }
    let left = by_path.len().saturating_sub(PATHS_MAX);
    if left > 0 {
        failures.add_finding(&format!(
            "{left} distributions beyond the limit of {PATHS_MAX} remain in their parts only"
        ));
    }
    let merge_at_path = |(path, all): (String, Vec<Distribution>)| {
        let distribution = failures.merge_distributions(&all.iter().collect::<Vec<_>>())?;
        Some(MergedDistribution { path, results: all.len() as u64, distribution })
    };
    let distributions = by_path.into_iter().take(PATHS_MAX).filter_map(merge_at_path).collect();
    MergedResults::Distributions { distributions }
}

/// Calls `found` for each distribution in a result that can be merged, with its JSON path. Signed
/// distributions are skipped.
fn find_distributions(
    value: &Value,
    path: String,
    depth: usize,
    found: &mut impl FnMut(String, Distribution),
) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match value {
        Value::Object(fields) => {
            let has_all = fields.contains_key("p99_99") && fields.contains_key("histogram");
            let is_signed = fields.contains_key("histogram_negative");
            if has_all && !is_signed {
                if let Ok(distribution) = Distribution::deserialize(value)
                    && !distribution.histogram.is_empty()
                {
                    found(path, distribution);
                }
                return;
            }
            for (name, field) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                find_distributions(field, format!("{path}{dot}{name}"), depth, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                find_distributions(item, format!("{path}[{index}]"), depth, found);
            }
        }
        _ => {}
    }
}
