//! Gains in a tree of relays: bars of whole trees, and plots of nodes.

use horolog_record::RelayTreeResult;

use super::bars;
use super::data::{row, table};
use super::escape::each;
use super::plot::{AxisScale, Plot, PlotAxis, PlotSeries, PlotUnit, PlotViews};
use crate::document::BlockContent;
use crate::kinds::relay_tree::{NODE, TABLE, gained, line, ranked, rows_of};
use crate::relay_tree_gain::{exchange, of_nodes, of_trees};
use crate::units::{ABSENT, percent, signed_mean_ns};

const GAINS: &str = "gains";

/// Returns the gains of whole trees, of each node, and of each node alone.
pub(crate) fn gains(result: &RelayTreeResult) -> [BlockContent<'_>; 3] {
    [
        BlockContent::Markup(Box::new(|| trees(result))),
        BlockContent::Plot(by_node(result), nodes(result)),
        BlockContent::Plot(alone(result), String::new()),
    ]
}

/// Returns bars of the reduction of the tree delay.
fn trees(result: &RelayTreeResult) -> String {
    let all = of_trees(result);
    if all.is_empty() {
        return String::new();
    }
    let rows = each(&all, |one| {
        let share = one.share();
        let numbers = [signed_mean_ns(one.ns), share.map_or(ABSENT.to_owned(), signed_percent)];
        let bar = bars::bar(share.filter(|share| *share > 0.0));
        bars::row(&one.name, numbers.each_ref().map(String::as_str), &bar)
    });
    format!(
        "<p class=\"hint\">Reduction of the delay of the last node, and its share of D \
         before.</p>\n{}",
        bars::table(["change", "gain", "of D", ""], &rows)
    )
}

/// Formats a share as a percentage; negative for an increase of the delay.
fn signed_percent(share: f64) -> String {
    if share < 0.0 { format!("-{}", percent(-share)) } else { percent(share) }
}

/// Returns the plot of the reduction of each node's delay, with the nodes in order of their delay.
fn by_node(result: &RelayTreeResult) -> Plot {
    let (shown, name) = (ranked(result), exchange(result).unwrap_or_default());
    let series = of_nodes(result)
        .into_iter()
        .map(|(title, of)| line(&shown, format!("{name}, {title}"), &|at| of(result, at)));
    Plot {
        id: "gain-by-node",
        title: "Gain of each node",
        hint: "Reduction of the delay with the second engine at all nodes; in the order of the \
               model with the first engine.",
        described_by: GAINS,
        ..plot(series.collect())
    }
}

/// Returns the plot of the reduction of the tree delay if only one node's engine is replaced.
fn alone(result: &RelayTreeResult) -> Plot {
    let shown = ranked(result);
    let delay = |at: usize| Some(gained(result, at)?.tree_ns);
    let mean = |at: usize| Some(gained(result, at)?.mean_ns);
    let all =
        [line(&shown, "ΔD alone".to_owned(), &delay), line(&shown, "Δmean".to_owned(), &mean)];
    Plot {
        id: "gain-alone",
        title: "Gain by one node alone",
        hint: "Reduction of the delay of the last node, and of the mean of all nodes, with the \
               second engine at that node alone; in the same order.",
        described_by: TABLE,
        ..plot(all.into())
    }
}

/// Returns a plot of gains of nodes; the caller sets its title.
fn plot(series: Vec<PlotSeries>) -> Plot {
    // The axis starts at 0, so that heights can be compared, unless some gains are negative.
    let is_loss = series.iter().flat_map(|one| &one.points).any(|(_, ns)| *ns < 0.0);
    let scale = if is_loss { AxisScale::Linear } else { AxisScale::Zero };
    Plot {
        id: "",
        title: "",
        hint: "",
        described_by: "",
        x: NODE,
        y: PlotAxis { label: "gain", short: "gain", unit: PlotUnit::Signed, scale },
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews::one(series),
    }
}

/// Returns the table of [`by_node`].
fn nodes(result: &RelayTreeResult) -> String {
    let figures = of_nodes(result);
    let titles: Vec<_> = figures.iter().map(|(title, _)| *title).collect();
    let rows = each(rows_of(result, &figures), |(name, cells)| row(&name, cells));
    table(GAINS, "Gain of each node", &titles, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;

    fn is_zero_based(plot: &Plot) -> bool {
        matches!(plot.y.scale, AxisScale::Zero)
    }

    #[test]
    fn all_gains_are_drawn_with_their_tables() {
        let mut result: RelayTreeResult = fixture::sample("relay_tree");
        result.engines[1].name = "<b>".to_owned();
        let page = result.page();
        let markup = crate::html::main_of(&page);
        let plots = [by_node(&result), alone(&result)];
        let ids: Vec<_> = plots.iter().map(|plot| plot.id).collect();
        assert_eq!(ids, ["gain-by-node", "gain-alone"]);
        assert!(markup.contains("id=\"gains\"") && !markup.contains("<b>"), "{markup}");
        assert!(markup.contains("&lt;b&gt; instead of send, model"), "{markup}");
        let [by_node, alone] = [&plots[0], &plots[1]];
        assert_eq!(by_node.shown.views[0].series[0].points.len(), 6, "all but the root");
        assert_eq!(alone.shown.views[0].series[0].points.len(), 3, "all but the leaves");
        assert!(is_zero_based(by_node) && is_zero_based(alone));
    }

    #[test]
    fn a_loss_has_its_sign_and_no_bar() {
        let mut result: RelayTreeResult = fixture::sample("relay_tree");
        result.engines.reverse();
        let markup = trees(&result);
        let (_, star) = markup.split_once("instead of star").unwrap();
        assert!(star.contains("-5.00 µs") && star.contains("-9.43%"), "{star}");
        assert!(!star.contains("width:"), "{star}");
        assert!(!is_zero_based(&by_node(&result)));
    }

    #[test]
    fn one_engine_gains_nothing() {
        let mut result: RelayTreeResult = fixture::sample("relay_tree");
        result.engines.truncate(1);
        result.gain = None;
        result.shapes.clear();
        assert!(trees(&result).is_empty());
        assert!(by_node(&result).is_empty() && alone(&result).is_empty());
    }
}
