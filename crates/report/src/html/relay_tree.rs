//! HTML report of a tree of relays: its nodes by their delays, the arrival at the last leaf, and
//! all figures.

use horolog_record::{Distribution, RelayTreeEngine, RelayTreeResult};

use super::data::{row, table, table_unless_empty};
use super::escape::each;
use super::latency::{PlotTarget, tail};
use super::plot::{Axis, AxisScale, Choice, Plot, PlotSeries, PlotUnit};
use super::relay_tree_gain::gain;
use super::sections::{PageBody, drawn_alone, findings, limits, machine, paragraph, section};
use super::{PageTemplate, headline};
use crate::limits::failed;
use crate::relay_tree::{METHOD, SHAPE_TITLES, heading, method, rows, sentences, shapes, titles};

pub(super) const TABLE: &str = "nodes";
const TAIL: PlotTarget =
    PlotTarget { id: "last-leaf-tail", title: "Arrival at the last leaf", described_by: TABLE };
/// Maximum number of nodes that have a point of their own; of more, every second, third and so on
/// is shown.
const POINTS_MAX: usize = 2_000;

/// Axis of the nodes.
pub(super) const NODE: Axis =
    Axis { label: "node", short: "node", unit: PlotUnit::Count, scale: AxisScale::Linear };

/// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn relay_tree(result: &RelayTreeResult) -> String {
    let last: Vec<(String, &Distribution)> = result
        .engines
        .iter()
        .filter_map(|one| Some((one.name.clone(), one.measured.as_ref()?.last_leaf_ns.as_ref()?)))
        .collect();
    let (plotted, mut plots) = drawn_alone(vec![by_delay(result), tail(&TAIL, &last)]);
    let (gained, of_gain) = gain(result);
    plots.extend(of_gain);
    let nodes = each(rows(result), |(name, cells)| row(&name, cells));
    let others = table_unless_empty(
        "shapes",
        "Trees over the same nodes",
        ("tree", &SHAPE_TITLES),
        shapes(result),
    );
    let sections = vec![
        ("Limits", limits(&result.limits)),
        ("Findings", findings(&result.findings)),
        ("Summary", each(sentences(result), |line| paragraph(&line))),
        ("Delays", plotted),
        ("Gain", gained),
        ("Nodes", table(TABLE, "Nodes", &titles(result), &nodes)),
        ("Compared", others),
        ("Method", each(method(result), |line| paragraph(&line))),
    ];
    let body = PageBody { sections, plots };
    let run = machine(&result.command, &result.started, &result.host);
    PageTemplate {
        kind: "relay tree",
        failed: failed(&result.limits),
        heading: heading(result),
        lead: format!("started {}", result.started),
        verdict: headline::relay_tree(result),
        main: body.sections() + &section("Run and host", &run),
        note: METHOD,
        schema: &result.schema,
        plots: body.plots,
        result,
    }
    .render()
}

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
            all.push(series(format!("{name}, p50"), &|at| Some(measured(engine, at)?.p50 as f64)));
            all.push(series(format!("{name}, p99"), &|at| Some(measured(engine, at)?.p99 as f64)));
        }
    }
    Plot {
        id: "nodes-by-delay",
        title: "Nodes by their delay",
        hint: "Each node from the root on, in the order of the model with the first engine.",
        described_by: TABLE,
        x: NODE,
        y: Axis { label: "delay", short: "delay", unit: PlotUnit::Ns, scale: AxisScale::Zero },
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: Choice::one(all),
    }
}

/// Returns the nodes that are drawn, each after its rank in the order of the model with the first
/// engine.
pub(super) fn ranked(result: &RelayTreeResult) -> Vec<(usize, usize)> {
    let mut order: Vec<usize> = (0..result.nodes.len()).collect();
    if let Some(first) = result.engines.first() {
        let delay = |at: &usize| first.delays_ns.get(*at).copied().unwrap_or(0.0);
        order.sort_by(|a, b| delay(a).total_cmp(&delay(b)));
    }
    let step = order.len().div_ceil(POINTS_MAX).max(1);
    order.into_iter().enumerate().step_by(step).collect()
}

/// Returns the line of a figure of these nodes.
pub(super) fn line(
    ranked: &[(usize, usize)],
    label: String,
    of: &dyn Fn(usize) -> Option<f64>,
) -> PlotSeries {
    let points = ranked.iter().filter_map(|(rank, at)| Some((*rank as f64, of(*at)?)));
    PlotSeries::new(label, points.collect())
}

fn measured(engine: &RelayTreeEngine, at: usize) -> Option<&Distribution> {
    engine.measured.as_ref()?.nodes.get(at)?.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::html::main_of;

    #[test]
    fn all_is_shown_and_no_text_becomes_markup() {
        let mut result = fixture::relay_tree();
        result.nodes[1].name = "<img src=x>".to_owned();
        result.engines[0].name = "<b>".to_owned();
        let page = relay_tree(&result);
        assert!(!main_of(&page).contains("<img") && !main_of(&page).contains("<b>"));
        assert!(page.contains("plot-nodes-by-delay") && page.contains("plot-last-leaf-tail"));
        assert!(page.contains("compact tree") && page.contains("(7) as published"));
    }

    #[test]
    fn a_result_without_figures_still_makes_a_page() {
        let mut result = fixture::relay_tree();
        result.engines.clear();
        result.gain = None;
        result.nodes.clear();
        let page = relay_tree(&result);
        assert!(!main_of(&page).contains("NaN") && !main_of(&page).contains("plot-"));
    }
}
