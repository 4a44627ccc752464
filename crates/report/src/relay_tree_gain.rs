//! Gains in a tree of relays for its page: by replacing the first engine by the second, at all
//! nodes or at a single one, and by the constructed tree over alternative trees. Gains that were
//! not computed are absent.

use horolog_record::{AlternativeTreeKind, RelayTreeResult};

use crate::kinds::relay_tree::{NodeMetric, measured, model, shape_name};

/// Reduction of the tree delay D, the largest delay from the root to a leaf.
pub(crate) struct TreeDelayGain {
    /// Names of the replacement and of what it replaces.
    pub(crate) name: String,
    /// Reduction in ns; negative if the delay increases.
    pub(crate) ns: f64,
    /// Tree delay D before the replacement, in ns; `None` if it is unknown.
    before_ns: Option<f64>,
}

impl TreeDelayGain {
    /// Returns the reduction as a share of the previous delay; `None` if that is unknown.
    pub(crate) fn share(&self) -> Option<f64> {
        self.before_ns.filter(|before| *before > 0.0).map(|before| self.ns / before)
    }
}

/// Returns the gains of the whole tree: by the second engine as predicted and as measured, and over
/// each alternative tree.
pub(crate) fn of_trees(result: &RelayTreeResult) -> Vec<TreeDelayGain> {
    let mut all = Vec::new();
    if let (Some(gain), Some(name), Some(before)) =
        (&result.gain, exchange(result), result.engines.first())
    {
        let of = |way: &str, ns, before_ns| TreeDelayGain {
            name: format!("{name}, {way}"),
            ns,
            before_ns,
        };
        all.push(of("model", gain.tree_ns, Some(before.tree_ns)));
        let before_ns = before.measured.as_ref().and_then(|measured| measured.tree_ns);
        all.extend(gain.measured_tree_ns.map(|ns| of("measured", ns, before_ns)));
    }
    let is_made = |kind| kind == AlternativeTreeKind::Compact;
    if let Some(made) = result.shapes.iter().find(|shape| is_made(shape.kind)) {
        let others = result.shapes.iter().filter(|shape| !is_made(shape.kind));
        all.extend(others.map(|other| TreeDelayGain {
            name: format!("{} instead of {}", shape_name(made.kind), shape_name(other.kind)),
            ns: other.tree_ns - made.tree_ns,
            before_ns: Some(other.tree_ns),
        }));
    }
    all
}

/// Returns the names of the new and the old engine; `None` unless there are two.
pub(crate) fn exchange(result: &RelayTreeResult) -> Option<String> {
    let [before, after] = &result.engines[..] else { return None };
    Some(format!("{} instead of {}", after.name, before.name))
}

/// Returns the per-node metrics for which the result has values; each is the time by which a packet
/// arrives earlier with the second engine.
pub(crate) fn of_nodes(result: &RelayTreeResult) -> Vec<NodeMetric> {
    let figures: [NodeMetric; 2] = [("model", by_model), ("p50", by_median)];
    let is_there =
        |(_, of): &NodeMetric| (0..result.nodes.len()).any(|at| of(result, at).is_some());
    figures.into_iter().filter(is_there).collect()
}

fn by_model(result: &RelayTreeResult, at: usize) -> Option<f64> {
    result.nodes.get(at)?.parent?;
    Some(model(result, 0, at)? - model(result, 1, at)?)
}

fn by_median(result: &RelayTreeResult, at: usize) -> Option<f64> {
    result.nodes.get(at)?.parent?;
    Some(measured(result, 0, at)?.p50 as f64 - measured(result, 1, at)?.p50 as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn trees_gain_by_engine_and_by_shape() {
        let mut result: RelayTreeResult = fixture::sample("relay_tree");
        let names = |result: &RelayTreeResult| {
            of_trees(result).into_iter().map(|one| one.name).collect::<Vec<_>>()
        };
        result.gain.as_mut().unwrap().measured_tree_ns = None;
        let (engine, shape) = ("xdp instead of send, model", "compact tree instead of star");
        assert_eq!(names(&result), [engine, shape]);
        let all = of_trees(&result);
        let share = result.gain.as_ref().unwrap().tree_ns / result.engines[0].tree_ns;
        assert_eq!((all[0].share(), all[1].ns), (Some(share), -5_000.0));
        result.gain.as_mut().unwrap().measured_tree_ns = Some(30_500.0);
        assert_eq!(of_trees(&result)[1].share(), Some(0.5));
        result.gain = None;
        result.shapes.remove(0);
        assert!(names(&result).is_empty());
    }

    #[test]
    fn nodes_gain_where_both_engines_were_measured() {
        let mut result: RelayTreeResult = fixture::sample("relay_tree");
        let titles = |result: &RelayTreeResult| {
            of_nodes(result).into_iter().map(|(title, _)| title).collect::<Vec<_>>()
        };
        assert_eq!(titles(&result), ["model"]);
        assert_eq!(by_model(&result, 0), None, "the root has nothing to gain");
        assert_eq!(by_model(&result, 2), Some(17_500.0));
        result.engines[1].measured = result.engines[0].measured.clone();
        result.engines[1].measured.as_mut().unwrap().nodes[2] = None;
        assert_eq!(titles(&result), ["model", "p50"]);
        assert_eq!((by_median(&result, 1), by_median(&result, 2)), (Some(0.0), None));
        result.engines.truncate(1);
        assert!(of_nodes(&result).is_empty());
    }
}
