//! Tree of relays: its nodes with their delays, the gain of the second engine, and the conclusions.

use std::collections::BTreeMap;

use horolog_record::{
    AlternativeTreeKind, Distribution, LimitUnit, RegularTreeAssumption, RelayTreeEngineDelays,
    RelayTreeGain, RelayTreeMeasurement, RelayTreeNode, RelayTreeResult,
};

use crate::document::{
    BlockContent, DescribeResult, DistributionSet, HeadlineMetric, NameColumn, NamedRow,
    NamedRowTable, ResultDocument, run_of,
};
use crate::html::plot::{AxisScale, Plot, PlotAxis, PlotSeries, PlotUnit, PlotViews};
use crate::html::relay_tree_gain::gains;
use crate::metrics::{Metric, NamedItems, judged_by_fields, of_items};
use crate::table::TableStyle;
use crate::table::shapes::{TextBar, bars};
use crate::units::{ABSENT, full_count, human_ns, mean_ns, sentence, signed_mean_ns};

impl DescribeResult for RelayTreeResult {
    fn document(&self) -> ResultDocument<'_> {
        let mut blocks = vec![
            BlockContent::Title(heading(self)).under(""),
            BlockContent::Summary(sentences(self)).under("Summary"),
            BlockContent::Plot(by_delay(self), String::new()).under("Delays"),
            BlockContent::Distributions(last_leaves(self, true)).under("Delays"),
        ];
        blocks.extend(gains(self).map(|content| content.under("Gain")));
        let title = |title: &'static str| (title.into(), WIDTH);
        blocks.extend([
            BlockContent::Table(NamedRowTable {
                id: TABLE,
                label: "Nodes",
                names: NameColumn::words("node", 24).or("node", 14),
                columns: titles(self).into_iter().map(title).collect(),
                rows: NamedRow::list(rows(self)),
            })
            .under("Nodes"),
            BlockContent::Shape(Box::new(|style| drawn(self, style))).under("Nodes"),
            BlockContent::Distributions(last_leaves(self, false)).under("Nodes"),
        ]);
        if !self.shapes.is_empty() {
            let table = NamedRowTable {
                id: "shapes",
                label: "Trees over the same nodes",
                names: NameColumn::words("tree", 24).or("tree", 14).titled("tree"),
                columns: SHAPE_TITLES.map(title).to_vec(),
                rows: NamedRow::list(shapes(self)),
            };
            blocks.push(BlockContent::Table(table).under("Compared"));
        }
        blocks.push(BlockContent::Remarks(method(self).into_iter().collect()).under("Method"));
        ResultDocument {
            kind: "relay tree",
            heading: heading(self),
            lead: format!("started {}", self.started),
            headline: headline(self),
            blocks,
            method: METHOD,
            limits: &self.limits,
            findings: &self.findings,
            run: run_of!(self),
        }
    }

    fn metrics() -> Vec<Metric<Self>> {
        let engines = [
            Metric::time("tree", |engine: &RelayTreeEngineDelays| Some(engine.tree_ns))
                .limited(LimitUnit::Ns),
            Metric::time("mean", |engine: &RelayTreeEngineDelays| Some(engine.mean_ns))
                .limited(LimitUnit::Ns),
            Metric::number("p50", LimitUnit::Ns, |engine| node_max(engine, |node| node.p50)),
            Metric::number("p99", LimitUnit::Ns, |engine| node_max(engine, |node| node.p99)),
            Metric::times("last-leaf", |engine| engine.measured.as_ref()?.last_leaf_ns.as_ref()),
        ];
        let node = Metric::times("delay", |node: &Option<Distribution>| node.as_ref());
        of_items(engines_by_name, engines).chain(of_items(measured_nodes, [node])).collect()
    }
}

judged_by_fields!(RelayTreeResult);

fn engines_by_name(result: &RelayTreeResult) -> NamedItems<'_, RelayTreeEngineDelays> {
    result.engines.iter().map(|engine| (engine.name.clone(), engine)).collect()
}

fn measured_nodes(result: &RelayTreeResult) -> NamedItems<'_, Option<Distribution>> {
    let mut all = Vec::new();
    for engine in &result.engines {
        let nodes = engine.measured.iter().flat_map(|measured| &measured.nodes).enumerate();
        all.extend(nodes.map(|(at, one)| (format!("{}, {}", engine.name, name(result, at)), one)));
    }
    all
}

/// Returns the largest of a statistic of the nodes' delays; `None` unless all were measured.
fn node_max(engine: &RelayTreeEngineDelays, statistic: fn(&Distribution) -> u64) -> Option<f64> {
    let nodes = engine.measured.as_ref()?.nodes.iter();
    let all: Option<Vec<u64>> = nodes.map(|node| node.as_ref().map(statistic)).collect();
    all?.into_iter().max().map(|ns| ns as f64)
}

/// Returns the delay of the last node by the model of the first engine, and the gain of the second.
fn headline(result: &RelayTreeResult) -> HeadlineMetric {
    let first = result.engines.first();
    let gain = result.engines.get(1).zip(first).map_or_else(String::new, |(other, first)| {
        let gain = signed_mean_ns(first.tree_ns - other.tree_ns);
        format!(" With {} instead of {}, it gains {gain}.", other.name, first.name)
    });
    let name = first.map_or_else(
        || "Delay of the last node".to_owned(),
        |engine| format!("Delay of the last node, model of {}", engine.name),
    );
    HeadlineMetric {
        name,
        value: first.map(|engine| mean_ns(engine.tree_ns)),
        sentence: format!("{}.{gain}", sentence(&heading(result)).trim_end_matches('.')),
    }
}

/// Returns the measured arrivals at the last leaf, for a page or for a terminal.
fn last_leaves(result: &RelayTreeResult, on_page: bool) -> DistributionSet<'_> {
    let engines = result.engines.iter();
    let entries = engines
        .filter_map(|one| Some((one.name.clone(), one.measured.as_ref()?.last_leaf_ns.as_ref()?)));
    DistributionSet {
        quantity: if on_page { "" } else { "last leaf" },
        entries: entries.collect(),
        histogram: None,
        percentiles: on_page.then_some(("last-leaf-tail", "Arrival at the last leaf")),
        described_by: TABLE,
    }
}

const WIDTH: usize = 9;

/// Returns bars of the delay of each node except the root by the model, with both engines if there
/// are two.
fn drawn(result: &RelayTreeResult, style: &TableStyle) -> Vec<String> {
    let delay = |engine: Option<&RelayTreeEngineDelays>, at| engine?.delays_ns.get(at).copied();
    let (first, second) = (result.engines.first(), result.engines.get(1));
    let nodes = result.nodes.iter().enumerate().filter(|(_, node)| node.parent.is_some());
    let bar = |(at, node): (usize, &RelayTreeNode)| {
        let (own, other) = (delay(first, at), delay(second, at));
        let delay_text = |ns: Option<f64>| ns.map_or_else(|| ABSENT.to_owned(), mean_ns);
        let name = node.name.clone();
        match second {
            None => TextBar::plain(name, own, delay_text(own)),
            Some(second) => {
                let value_text =
                    format!("{}, {} {}", delay_text(own), second.name, delay_text(other));
                TextBar { name, size: other, tail: own, value_text }
            }
        }
    };
    let all: Vec<_> = nodes.map(bar).collect();
    let title = match (first, second) {
        (Some(first), Some(second)) => {
            format!("delay of nodes by the model, # with {}, - with {}", second.name, first.name)
        }
        _ => "delay of nodes by the model".to_owned(),
    };
    bars(&title, &all, style)
}

pub(crate) const TABLE: &str = "nodes";
/// Maximum number of nodes that have a point of their own; of more, every second, third and so on
/// is shown.
const POINTS_MAX: usize = 2_000;

/// Axis of the nodes.
pub(crate) const NODE: PlotAxis =
    PlotAxis { label: "node", short: "node", unit: PlotUnit::Count, scale: AxisScale::Linear };

/// Returns the plot of the delay of each node, by the model and as measured, the nodes in the order
/// in which the model has them reached with the first engine.
fn by_delay(result: &RelayTreeResult) -> Plot {
    let shown = ranked(result);
    let series = |label: String, of: &dyn Fn(usize) -> Option<f64>| line(&shown, label, of);
    let mut all = Vec::new();
    for engine in &result.engines {
        let name = &engine.name;
        all.push(series(format!("{name}, model"), &|at| engine.delays_ns.get(at).copied()));
        if engine.measured.is_some() {
            all.push(series(format!("{name}, p50"), &|at| {
                Some(node_times(engine, at)?.p50 as f64)
            }));
            all.push(series(format!("{name}, p99"), &|at| {
                Some(node_times(engine, at)?.p99 as f64)
            }));
        }
    }
    Plot {
        id: "nodes-by-delay",
        title: "Nodes by their delay",
        hint: "Each node from the root on, in the order of the model with the first engine.",
        described_by: TABLE,
        x: NODE,
        y: PlotAxis { label: "delay", short: "delay", unit: PlotUnit::Ns, scale: AxisScale::Zero },
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews::one(all),
    }
}

/// Returns pairs (rank, node index) of the nodes that are drawn, at most [`POINTS_MAX`], ranked by
/// delay in the model of the first engine.
pub(crate) fn ranked(result: &RelayTreeResult) -> Vec<(usize, usize)> {
    let mut order: Vec<usize> = (0..result.nodes.len()).collect();
    if let Some(first) = result.engines.first() {
        let delay = |at: &usize| first.delays_ns.get(*at).copied().unwrap_or(0.0);
        order.sort_by(|a, b| delay(a).total_cmp(&delay(b)));
    }
    let step = order.len().div_ceil(POINTS_MAX).max(1);
    order.into_iter().enumerate().step_by(step).collect()
}

/// Returns the line of a figure of these nodes.
pub(crate) fn line(
    ranked: &[(usize, usize)],
    label: String,
    of: &dyn Fn(usize) -> Option<f64>,
) -> PlotSeries {
    let points = ranked.iter().filter_map(|(rank, at)| Some((*rank as f64, of(*at)?)));
    PlotSeries::new(label, points.collect())
}

fn node_times(engine: &RelayTreeEngineDelays, at: usize) -> Option<&Distribution> {
    engine.measured.as_ref()?.nodes.get(at)?.as_ref()
}

/// Maximum number of nodes shown one by one; larger trees are shown level by level.
const NODES_SHOWN: usize = 128;

/// Explanation of the method.
pub(crate) const METHOD: &str = "The delay of a node is the sum along the path from the root: \
     the processing of each node but the last, and the transmission delay c of each edge (Cao, Su \
     and Lu 2008, section 2.1). A node serves its children in sequence, so its processing is \
     longer for later children. D is the delay of the slowest leaf; the mean is over all nodes \
     but the root.";

const MEASURING: &str = "Measured delays start when the root has a packet and end with the \
     kernel timestamp at the node's interface; all hosts share one clock. Each level was measured \
     separately, with the tree cut below it, to timestamp arrivals at relaying nodes. Lab links \
     have no delay of their own: forwarding is work of the sender, and part of its processing.";

/// Metric of nodes: its title, and the function that returns it in ns for a node's index.
pub(crate) type NodeMetric = (&'static str, fn(&RelayTreeResult, usize) -> Option<f64>);

/// Returns the titles of the figures that a result has of its nodes.
pub(crate) fn titles(result: &RelayTreeResult) -> Vec<&'static str> {
    figures(result).into_iter().map(|(title, _)| title).collect()
}

/// Returns a row for each node, or for each level of a tree with many: then it has the largest of
/// each figure.
pub(crate) fn rows(result: &RelayTreeResult) -> Vec<(String, Vec<String>)> {
    rows_of(result, &figures(result))
}

/// Returns the rows with these figures.
pub(crate) fn rows_of(
    result: &RelayTreeResult,
    figures: &[NodeMetric],
) -> Vec<(String, Vec<String>)> {
    let cell = |value: Option<f64>| value.map_or_else(|| ABSENT.to_owned(), signless);
    if result.nodes.len() <= NODES_SHOWN {
        let row = |at: usize| {
            let node = &result.nodes[at];
            let name = format!("{}{}", "  ".repeat(node.depth.min(NODES_SHOWN)), node.name);
            (name, figures.iter().map(|(_, of)| cell(of(result, at))).collect())
        };
        return in_order(result).into_iter().map(row).collect();
    }
    let mut levels: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, node) in result.nodes.iter().enumerate() {
        levels.entry(node.depth).or_default().push(at);
    }
    let row = |(depth, nodes): (usize, Vec<usize>)| {
        let largest = |(_, of): &NodeMetric| {
            let all = nodes.iter().filter_map(|at| of(result, *at));
            cell(all.reduce(f64::max))
        };
        let name = format!("level {depth}, {} nodes", full_count(nodes.len() as u64));
        (name, figures.iter().map(largest).collect())
    };
    levels.into_iter().map(row).collect()
}

fn figures(result: &RelayTreeResult) -> Vec<NodeMetric> {
    let engine = |result: &RelayTreeResult, index: usize| -> Option<RelayTreeMeasurement> {
        result.engines.get(index)?.measured.clone()
    };
    let mut figures: Vec<NodeMetric> = vec![("c", |result, at| {
        let node = result.nodes.get(at)?;
        node.parent.map(|_| node.delay_ns)
    })];
    let of_engine: [[NodeMetric; 3]; 2] = [
        [
            ("model 1", |result, at| model(result, 0, at)),
            ("p50 1", |result, at| Some(measured(result, 0, at)?.p50 as f64)),
            ("p99 1", |result, at| Some(measured(result, 0, at)?.p99 as f64)),
        ],
        [
            ("model 2", |result, at| model(result, 1, at)),
            ("p50 2", |result, at| Some(measured(result, 1, at)?.p50 as f64)),
            ("p99 2", |result, at| Some(measured(result, 1, at)?.p99 as f64)),
        ],
    ];
    for (index, of_engine) in of_engine.into_iter().enumerate().take(result.engines.len()) {
        let metric_count = if engine(result, index).is_some() { 3 } else { 1 };
        figures.extend(of_engine.into_iter().take(metric_count));
    }
    if result.gain.is_some() {
        figures.push(("ΔD alone", |result, at| gained(result, at).map(|gain| gain.tree_ns)));
        figures.push(("Δmean", |result, at| gained(result, at).map(|gain| gain.mean_ns)));
    }
    figures
}

pub(crate) fn model(result: &RelayTreeResult, engine: usize, at: usize) -> Option<f64> {
    result.engines.get(engine)?.delays_ns.get(at).copied()
}

pub(crate) fn measured(
    result: &RelayTreeResult,
    engine: usize,
    at: usize,
) -> Option<&horolog_record::Distribution> {
    result.engines.get(engine)?.measured.as_ref()?.nodes.get(at)?.as_ref()
}

/// Returns the gain by an inner node alone; `None` for a leaf, which has no engine to be replaced,
/// and if no gain was computed.
pub(crate) fn gained(
    result: &RelayTreeResult,
    at: usize,
) -> Option<&horolog_record::RelayTreeNodeGain> {
    // Nodes are ordered level by level, so their parents rise.
    let is_inner = result.nodes.binary_search_by(|node| node.parent.cmp(&Some(at))).is_ok();
    result.gain.as_ref()?.nodes.get(at).filter(|_| is_inner)
}

/// Returns the nodes, each after its parent and before its parent's next child.
fn in_order(result: &RelayTreeResult) -> Vec<usize> {
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); result.nodes.len()];
    let mut open: Vec<usize> = Vec::new();
    for (at, node) in result.nodes.iter().enumerate() {
        match node.parent.filter(|parent| *parent < at) {
            Some(parent) => below[parent].push(at),
            None => open.push(at),
        }
    }
    open.reverse();
    let mut order = Vec::with_capacity(result.nodes.len());
    while let Some(at) = open.pop() {
        order.push(at);
        open.extend(below[at].iter().rev());
    }
    order
}

/// Formats a time, with its sign only if it is negative.
fn signless(ns: f64) -> String {
    if ns < 0.0 { signed_mean_ns(ns) } else { mean_ns(ns) }
}

/// Returns the conclusions, a sentence or a few each.
pub(crate) fn sentences(result: &RelayTreeResult) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (index, engine) in result.engines.iter().enumerate() {
        lines.push(of_engine(result, index, engine));
        lines.extend(engine.measured.as_ref().map(|measured| of_measured(engine, measured)));
    }
    if let (Some(gain), [before, after]) = (&result.gain, &result.engines[..]) {
        lines.extend(of_gain(result, gain, &before.name, &after.name));
    }
    lines
}

/// Returns the measuring method, if it was measured.
pub(crate) fn method(result: &RelayTreeResult) -> Option<String> {
    let method = result.method.as_ref()?;
    let idle = if method.idle_states_held { "disabled" } else { "unrestricted" };
    Some(format!(
        "{MEASURING} {} packets of {} bytes each, one every {}, in {} rounds over all levels and \
         one node alone; the first {} of each do not count. Idle states {idle}.",
        full_count(method.packets),
        method.payload,
        human_ns(method.interval_ns),
        full_count(method.repetitions),
        full_count(method.warm_up)
    ))
}

fn name(result: &RelayTreeResult, at: usize) -> &str {
    result.nodes.get(at).map_or(ABSENT, |node| &node.name)
}

fn of_engine(result: &RelayTreeResult, index: usize, engine: &RelayTreeEngineDelays) -> String {
    let takes = match &engine.processing[..] {
        [first, others @ ..] if others.iter().all(|other| other == first) => format!(
            "a node takes {} to the first copy and {} between copies",
            mean_ns(first.first_ns),
            mean_ns(first.next_ns)
        ),
        _ => "nodes have different processing times".to_owned(),
    };
    let leaves = result.leaves_mean_ns(engine);
    let leaves = leaves.map_or_else(String::new, |ns| format!(", of the leaves {}", mean_ns(ns)));
    format!(
        "Engine {}, {}: {takes}. D = {} (to {}), mean {}{}.",
        index + 1,
        engine.name,
        mean_ns(engine.tree_ns),
        name(result, engine.slowest),
        mean_ns(engine.mean_ns),
        leaves
    )
}

fn of_measured(engine: &RelayTreeEngineDelays, measured: &RelayTreeMeasurement) -> String {
    let with_ratio = |value: Option<f64>, model: f64| match value {
        Some(value) if model > 0.0 => {
            format!("{} ({:.2} × the model)", mean_ns(value), value / model)
        }
        Some(value) => mean_ns(value),
        None => "not measured".to_owned(),
    };
    let last = measured.last_leaf_ns.as_ref().map_or_else(String::new, |last| {
        let (p50, p99) = (human_ns(last.p50), human_ns(last.p99));
        format!(" Delay of the last leaf: {p50} (p50), {p99} (p99).")
    });
    let copies: Vec<String> =
        measured.calibration.copies_ns.iter().map(|ns| signless(*ns)).collect();
    let reversed = if measured.calibration.reversed {
        " It serves the last entry of its table first, so its tables were reversed."
    } else {
        ""
    };
    format!(
        "Measured with {}: D = {}, mean {}; {} copies lost.{last} One node alone: copies to the \
         children after {}.{reversed}",
        engine.name,
        with_ratio(measured.tree_ns, engine.tree_ns),
        with_ratio(measured.mean_ns, engine.mean_ns),
        full_count(measured.lost),
        copies.join(", ")
    )
}

fn of_gain(
    result: &RelayTreeResult,
    gain: &RelayTreeGain,
    before: &str,
    after: &str,
) -> Vec<String> {
    let measured = |value: Option<f64>| {
        value.map_or_else(String::new, |value| format!(" (measured {})", signed_mean_ns(value)))
    };
    let path = if gain.same_path {
        "the same leaf is the slowest with both engines, so it equals ΔD"
    } else {
        "another leaf is the slowest afterwards, so it differs from ΔD"
    };
    vec![
        format!(
            "{after} instead of {before} at all nodes: ΔD = {}{} by (1) and (2), mean {}{} by \
             (5) and (6).",
            signed_mean_ns(gain.tree_ns),
            measured(gain.measured_tree_ns),
            signed_mean_ns(gain.mean_ns),
            measured(gain.measured_mean_ns)
        ),
        format!(
            "(3), sum of the gains on the path to the slowest leaf: {}; {path}.",
            signed_mean_ns(gain.along_path_ns)
        ),
        equation_4(result, gain),
        format!(
            "(7) as published: {}. It omits the root, unlike (5) and (6), and weights each node \
             once, whereas (5) and (6) count each copy once for every node that it reaches.",
            signed_mean_ns(gain.published_mean_ns)
        ),
    ]
}

fn equation_4(result: &RelayTreeResult, gain: &RelayTreeGain) -> String {
    let regular = &gain.regular;
    if !regular.broken.is_empty() {
        let why: Vec<&str> = regular.broken.iter().map(|one| assumption(*one)).collect();
        return format!("(4) does not apply: {}.", why.join("; "));
    }
    let leaves = leaves(result);
    let shown = |value: Option<f64>| value.map_or_else(|| ABSENT.to_owned(), signed_mean_ns);
    format!(
        "(4), (log_m n) ΔTP with m = {} and ΔTP = {}: {} with n = {} leaves, which is exact; {} \
         as published with n = {} nodes, which counts more nodes than are on the path. Premises: \
         equal processing times, m children per inner node, equal depth of the leaves.",
        regular.degree,
        signed_mean_ns(regular.processing_ns),
        shown(regular.leaves_ns),
        full_count(leaves as u64),
        shown(regular.all_nodes_ns),
        full_count(result.nodes.len() as u64)
    )
}

fn leaves(result: &RelayTreeResult) -> usize {
    let mut is_inner = vec![false; result.nodes.len()];
    for parent in result.nodes.iter().filter_map(|node| node.parent) {
        if let Some(inner) = is_inner.get_mut(parent) {
            *inner = true;
        }
    }
    is_inner.iter().filter(|inner| !**inner).count()
}

const fn assumption(assumption: RegularTreeAssumption) -> &'static str {
    match assumption {
        RegularTreeAssumption::SameDegree => {
            "inner nodes do not all have the same number (at least two) of children"
        }
        RegularTreeAssumption::SameDepth => "leaves have different depths",
        RegularTreeAssumption::SameNodes => "nodes have different processing times",
        RegularTreeAssumption::SamePath => "another leaf is the slowest with the other engine",
        RegularTreeAssumption::SameIndex => {
            "nodes on the path to the slowest leaf serve it at different positions"
        }
    }
}

/// Titles of [`shapes`].
pub(crate) const SHAPE_TITLES: [&str; 4] = ["children", "depth", "D", "mean"];

/// Returns a row for each tree that was compared: the most children, the depth, D and the mean.
pub(crate) fn shapes(result: &RelayTreeResult) -> Vec<(String, Vec<String>)> {
    let row = |shape: &horolog_record::AlternativeTree| {
        let cells = [
            full_count(shape.degree_max as u64),
            full_count(shape.depth as u64),
            mean_ns(shape.tree_ns),
            mean_ns(shape.mean_ns),
        ];
        (shape_name(shape.kind).to_owned(), cells.to_vec())
    };
    result.shapes.iter().map(row).collect()
}

/// Returns the name of a kind of trees.
pub(crate) const fn shape_name(kind: AlternativeTreeKind) -> &'static str {
    match kind {
        AlternativeTreeKind::Compact => "compact tree",
        AlternativeTreeKind::Star => "star",
        AlternativeTreeKind::Chain => "chain",
    }
}

/// Returns the description of the tree.
pub(crate) fn heading(result: &RelayTreeResult) -> String {
    let depth = result.nodes.iter().map(|node| node.depth).max().unwrap_or(0);
    let degree = result
        .nodes
        .iter()
        .filter(|node| node.parent.is_some())
        .map(|node| node.child_index.saturating_add(1));
    format!(
        "tree of {} nodes, {} leaves, depth {depth}, at most {} children",
        full_count(result.nodes.len() as u64),
        full_count(leaves(result) as u64),
        full_count(degree.max().unwrap_or(0) as u64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;
    use crate::html::main_of;

    #[test]
    fn many_nodes_are_shown_by_level_and_none_at_all_is_no_error() {
        let mut result: RelayTreeResult = fixture::sample("relay_tree");
        let leaf = result.nodes[4].clone();
        result.nodes.extend(std::iter::repeat_n(leaf, 1_000));
        let text = result.text(&TableStyle::default());
        assert!(text.contains("level 2, 1,004 nodes"), "{text}");
        result.nodes.clear();
        result.engines.clear();
        result.gain = None;
        assert!(result.text(&TableStyle::default()).starts_with("tree of 0 nodes"));
    }

    #[test]
    fn what_does_not_apply_is_reported() {
        let mut result: RelayTreeResult = fixture::sample("relay_tree");
        let gain = result.gain.as_mut().unwrap();
        gain.same_path = false;
        gain.regular.broken = vec![horolog_record::RegularTreeAssumption::SameDepth];
        let text = result.text(&TableStyle::default());
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("(4) does not apply: leaves have different depths."));
        assert!(text.contains("another leaf is the slowest afterwards"));
    }

    #[test]
    fn one_engine_has_plain_bars() {
        let mut result: RelayTreeResult = fixture::sample("relay_tree");
        result.engines.truncate(1);
        result.engines[0].delays_ns.truncate(4);
        let lines = drawn(&result, &TableStyle { colour: false, width: 80 });
        assert_eq!(lines[0], "delay of nodes by the model:");
        assert!(lines[1].ends_with("| 23.0 µs") && !lines[1].contains('-'), "{lines:?}");
        assert!(lines[6].ends_with("| -"), "{lines:?}");
    }

    #[test]
    fn all_is_shown_and_no_text_becomes_markup() {
        let mut result: RelayTreeResult = fixture::sample("relay_tree");
        result.nodes[1].name = "<img src=x>".to_owned();
        result.engines[0].name = "<b>".to_owned();
        let page = result.page();
        assert!(!main_of(&page).contains("<img") && !main_of(&page).contains("<b>"));
        assert!(page.contains("plot-nodes-by-delay") && page.contains("plot-last-leaf-tail"));
        assert!(page.contains("compact tree") && page.contains("(7) as published"));
    }

    #[test]
    fn a_result_without_figures_still_makes_a_page() {
        let mut result: RelayTreeResult = fixture::sample("relay_tree");
        result.engines.clear();
        result.gain = None;
        result.nodes.clear();
        let page = result.page();
        assert!(!main_of(&page).contains("NaN") && !main_of(&page).contains("plot-"));
    }
}
