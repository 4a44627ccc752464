//! Tree of relays: its nodes with their delays, and the conclusions.

use horolog_record::{RelayTreeEngine, RelayTreeNode, RelayTreeResult};

use super::TableStyle;
use super::grid::{Column, Tone, blocks};
use super::shapes::{Bar, bars, distributions};
use super::summary::footer;
use crate::relay_tree::{METHOD, SHAPE_TITLES, heading, method, rows, sentences, shapes, titles};
use crate::units::{ABSENT, mean_ns};

const NAMES: [Column<'static>; 2] = [Column::left("node", 24), Column::left("node", 14)];
const SHAPES: [Column<'static>; 2] = [Column::left("tree", 24), Column::left("tree", 14)];
const WIDTH: usize = 9;

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn relay_tree(result: &RelayTreeResult, style: &TableStyle) -> String {
    let column = |title| Column::right(title, WIDTH);
    let columns: Vec<Column<'static>> = titles(result).into_iter().map(column).collect();
    let mut lines = vec![Tone::Strong.paint(&heading(result), style.colour), String::new()];
    lines.extend(blocks(NAMES, &columns, &rows(result), style));
    lines.push(String::new());
    let drawn = drawn(result, style);
    if !drawn.is_empty() {
        lines.extend(drawn);
        lines.push(String::new());
    }
    if !result.shapes.is_empty() {
        let columns = SHAPE_TITLES.map(column);
        lines.extend(blocks(SHAPES, &columns, &shapes(result), style));
        lines.push(String::new());
    }
    let method = [METHOD.to_owned()].into_iter().chain(method(result));
    let limits_and_findings = (&result.limits[..], &result.findings[..]);
    lines.extend(footer(sentences(result), method, limits_and_findings, style));
    lines.join("\n")
}

/// Returns the delay of each node except the root by the model, and the arrival at the last leaf.
fn drawn(result: &RelayTreeResult, style: &TableStyle) -> Vec<String> {
    let delay = |engine: Option<&RelayTreeEngine>, at| engine?.delays_ns.get(at).copied();
    let (first, second) = (result.engines.first(), result.engines.get(1));
    let nodes = result.nodes.iter().enumerate().filter(|(_, node)| node.parent.is_some());
    let bar = |(at, node): (usize, &RelayTreeNode)| {
        let (own, other) = (delay(first, at), delay(second, at));
        let delay_text = |ns: Option<f64>| ns.map_or_else(|| ABSENT.to_owned(), mean_ns);
        let name = node.name.clone();
        match second {
            None => Bar::plain(name, own, delay_text(own)),
            Some(second) => {
                let value_text =
                    format!("{}, {} {}", delay_text(own), second.name, delay_text(other));
                Bar { name, size: other, tail: own, value_text }
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
    let mut lines = bars(&title, &all, style);
    let measured = result
        .engines
        .iter()
        .filter_map(|one| Some((one.name.clone(), one.measured.as_ref()?.last_leaf_ns.as_ref()?)));
    lines.extend(distributions("last leaf", &measured.collect::<Vec<_>>(), style));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 100 };
        let text = relay_tree(&fixture::relay_tree(), &style);
        assert_eq!(text, include_str!("relay_tree.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn many_nodes_are_shown_by_level_and_none_at_all_is_no_error() {
        let mut result = fixture::relay_tree();
        let leaf = result.nodes[4].clone();
        result.nodes.extend(std::iter::repeat_n(leaf, 1_000));
        let text = relay_tree(&result, &TableStyle::default());
        assert!(text.contains("level 2, 1,004 nodes"), "{text}");
        result.nodes.clear();
        result.engines.clear();
        result.gain = None;
        assert!(relay_tree(&result, &TableStyle::default()).starts_with("tree of 0 nodes"));
    }

    #[test]
    fn what_does_not_apply_is_reported() {
        let mut result = fixture::relay_tree();
        let gain = result.gain.as_mut().unwrap();
        gain.same_path = false;
        gain.regular.broken = vec![horolog_record::RelayTreeAssumption::SameDepth];
        let text = relay_tree(&result, &TableStyle::default());
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("(4) does not apply: leaves have different depths."));
        assert!(text.contains("another leaf is the slowest afterwards"));
    }

    #[test]
    fn one_engine_has_plain_bars() {
        let mut result = fixture::relay_tree();
        result.engines.truncate(1);
        result.engines[0].delays_ns.truncate(4);
        let lines = drawn(&result, &TableStyle { colour: false, width: 80 });
        assert_eq!(lines[0], "delay of nodes by the model:");
        assert!(lines[1].ends_with("| 23.0 µs") && !lines[1].contains('-'), "{lines:?}");
        assert!(lines[6].ends_with("| -"), "{lines:?}");
    }
}
