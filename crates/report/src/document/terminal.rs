//! Document as lines for a terminal.

use super::{BlockContent, DocumentBlock, NameColumn, NamedRowTable, ResultDocument};
use crate::facts::FactGroup;
use crate::table::TableStyle;
use crate::table::grid::{self, CellTone, GridColumn};
use crate::table::shapes::{distributions, put};
use crate::table::summary::{finding_lines, limit_lines, wrapped};

/// Returns the lines, without a newline at the end.
pub(super) fn text(document: &ResultDocument<'_>, style: &TableStyle) -> String {
    let mut lines = Vec::new();
    let mut shapes = Vec::new();
    for block in &document.blocks {
        match &block.content {
            BlockContent::Distributions(all) if !all.quantity.is_empty() => {
                shapes.extend(distributions(all.quantity, &all.entries, style));
            }
            BlockContent::Shape(shape) => shapes.extend(shape(style)),
            BlockContent::Markup(_)
            | BlockContent::Plot(..)
            | BlockContent::Details(_)
            | BlockContent::Part(..)
            | BlockContent::Distributions(_) => {}
            BlockContent::Judgement => lines.extend(judgement(document, style)),
            content => {
                put(&mut lines, shapes.drain(..));
                put_block(&mut lines, content, style);
            }
        }
    }
    put(&mut lines, shapes);
    let conclusions = document.blocks.iter().filter_map(|block| match &block.content {
        BlockContent::Summary(sentences) => Some(sentences),
        _ => None,
    });
    lines.extend(conclusions.flatten().flat_map(|text| wrapped(text, "", "  ", style)));
    lines.extend(remark(document.method, style));
    let is_judgement = |block: &DocumentBlock<'_>| matches!(block.content, BlockContent::Judgement);
    if !document.blocks.iter().any(is_judgement) {
        lines.extend(judgement(document, style));
    }
    grid::without_control_chars(lines.join("\n").trim_end(), style.colour)
}

fn judgement(document: &ResultDocument<'_>, style: &TableStyle) -> Vec<String> {
    let limits = limit_lines(document.limits, style).into_iter();
    limits.chain(finding_lines(document.findings, style)).collect()
}

fn remark(text: &str, style: &TableStyle) -> Vec<String> {
    if text.is_empty() { Vec::new() } else { wrapped(text, "  ", "    ", style) }
}

fn put_block(lines: &mut Vec<String>, content: &BlockContent<'_>, style: &TableStyle) {
    match content {
        BlockContent::Table(table) => {
            if lines.last().is_some_and(|last| !last.is_empty()) {
                lines.push(String::new());
            }
            lines.extend(rows(table, style));
        }
        BlockContent::Title(text) => {
            let title = wrapped(text, "", "  ", style);
            lines.extend(title.iter().map(|line| CellTone::Strong.paint(line, style.colour)));
        }
        BlockContent::Introduction(sentences) | BlockContent::Remarks(sentences) => {
            lines.extend(sentences.iter().flat_map(|text| remark(text, style)));
        }
        BlockContent::Facts(group) => lines.extend(facts(group, style)),
        BlockContent::Custom(text, _) | BlockContent::LiveRows(text) => lines.extend(text(style)),
        _ => {}
    }
}

/// Returns a group of facts under its heading, each with its meaning on the next line.
fn facts(group: &FactGroup, style: &TableStyle) -> Vec<String> {
    /// Width of a fact's name in columns.
    const NAME_WIDTH: usize = 22;
    let mut lines = vec![CellTone::Strong.paint(group.title, style.colour)];
    for fact in &group.facts {
        let name = format!("  {:<NAME_WIDTH$} ", fact.name);
        let rest = " ".repeat(NAME_WIDTH + 3);
        lines.extend(wrapped(&fact.value, &name, &rest, style));
        if !fact.meaning.is_empty() {
            lines.extend(wrapped(&fact.meaning, "      ", "      ", style));
        }
    }
    lines
}

/// Returns the titles and rows of a table; rows with a text in place of cells come last.
fn rows(table: &NamedRowTable, style: &TableStyle) -> Vec<String> {
    let NameColumn { title, width, narrow, right, .. } = table.names;
    let name = |(title, width)| {
        if right { GridColumn::right(title, width) } else { GridColumn::left(title, width) }
    };
    let columns = table.columns.iter().map(|(title, width)| GridColumn::right(title, *width));
    let columns: Vec<_> = columns.collect();
    let full =
        table.rows.iter().filter_map(|row| Some((row.name.clone(), row.cells.clone().ok()?)));
    let mut lines = grid::blocks(
        [name((title, width)), name(narrow)],
        &columns,
        &full.collect::<Vec<_>>(),
        style,
    );
    for row in &table.rows {
        if let Err(text) = &row.cells {
            lines.extend(wrapped(text, &format!("{:<width$} ", row.name), "    ", style));
        }
    }
    lines
}
