//! A tree of relays: its nodes with their delays, and what they come to.

use horolog_record::RelayTreeResult;

use super::TableStyle;
use super::grid::{Column, Tone, blocks};
use super::summary::told_below;
use crate::relay_tree::{METHOD, SHAPE_TITLES, heading, method, rows, sentences, shapes, titles};

const NAMES: [Column; 2] = [Column::left("node", 24), Column::left("node", 14)];
const SHAPES: [Column; 2] = [Column::left("tree", 24), Column::left("tree", 14)];
const WIDTH: usize = 9;

/// The lines for the terminal, without a newline at the end.
#[must_use]
pub fn relay_tree(result: &RelayTreeResult, style: &TableStyle) -> String {
    let column = |title| Column::right(title, WIDTH);
    let columns: Vec<Column> = titles(result).into_iter().map(column).collect();
    let mut lines = vec![Tone::Strong.paint(&heading(result), style.colour), String::new()];
    lines.extend(blocks(NAMES, &columns, &rows(result), style));
    lines.push(String::new());
    if !result.shapes.is_empty() {
        let columns = SHAPE_TITLES.map(column);
        lines.extend(blocks(SHAPES, &columns, &shapes(result), style));
        lines.push(String::new());
    }
    let method = [METHOD.to_owned()].into_iter().chain(method(result));
    let doubts = (&result.limits[..], &result.findings[..]);
    lines.extend(told_below(sentences(result), method, doubts, style));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn looks_like_this() {
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
    fn what_does_not_apply_is_said() {
        let mut result = fixture::relay_tree();
        let gain = result.gain.as_mut().unwrap();
        gain.same_path = false;
        gain.regular.broken = vec![horolog_record::RelayTreeAssumption::SameDepth];
        let text = relay_tree(&result, &TableStyle::default());
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("(4) does not apply: leaves are not all as far from the root."));
        assert!(text.contains("another leaf is the slowest afterwards"));
    }
}
