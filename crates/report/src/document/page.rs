//! Document as an HTML page, or as a part of one.

use serde::Serialize;

use super::{Content, Document, DocumentBlock, Headline, RunFacts, Table};
use crate::facts::FactGroup;
use crate::html::PageTemplate;
use crate::html::data;
use crate::html::escape::{each, text};
use crate::html::latency::{PlotTarget, histogram, tail};
use crate::html::plot::Plot;
use crate::html::sections::{
    columns, command_line, facts, findings, host_facts, limits, paragraph, section, verdict,
};
use crate::limits::failed;
use crate::units::ABSENT;

/// Returns the page; `result` is embedded as JSON.
pub(super) fn page(document: &Document<'_>, result: &(impl Serialize + ?Sized)) -> String {
    let (sections, plots) = sections(document);
    let run = &document.run;
    let main = each(sections, |(heading, markup)| section(heading, &markup));
    PageTemplate {
        kind: document.kind,
        failed: failed(document.limits),
        heading: document.heading.clone(),
        lead: document.lead.clone(),
        verdict: headline(&document.headline),
        main: main + &section(run.heading, &run_facts(run)),
        note: note(document),
        schema: run.schema,
        plots,
        result,
    }
    .render()
}

/// Returns the document as one section of a page, with its plots, which are the page's.
pub(super) fn part(document: &Document<'_>, heading: &str) -> (String, Vec<Plot>) {
    let (sections, plots) = sections(document);
    (crate::html::sections::as_part(heading, &sections), plots)
}

/// Returns the definitions at the end of a page.
fn note(document: &Document<'_>) -> &'static str {
    let note = |block: &DocumentBlock<'_>| match block.content {
        Content::PageNote(note) => Some(note),
        _ => None,
    };
    document.blocks.iter().find_map(note).unwrap_or(document.method)
}

/// Returns the command with its conditions, and the host.
fn run_facts(run: &RunFacts<'_>) -> String {
    let command =
        [("Command", Some(command_line(run.command))), ("Started", Some(run.started.to_owned()))];
    let own = [&run.before[..], &command, &run.after].concat();
    let second = if run.second_list.is_empty() { String::new() } else { facts(&run.second_list) };
    columns(&[facts(&own), second, host_facts(run.host)])
}

fn headline(headline: &Headline) -> String {
    let value = headline.value.as_deref().unwrap_or(ABSENT);
    verdict(&headline.name, value, &headline.sentence, &[])
}

/// Returns headings and markup, and all plots that have something to show.
fn sections(document: &Document<'_>) -> (Vec<(&'static str, String)>, Vec<Plot>) {
    let (first, others): (Vec<_>, Vec<_>) =
        document.blocks.iter().partition(|block| block.is_first_on_page);
    let judged = [("Limits", limits(document.limits)), ("Findings", findings(document.findings))];
    let mut plots = Vec::new();
    let mut described = |blocks: Vec<&DocumentBlock<'_>>| {
        let mut sections: Vec<(&'static str, String)> = Vec::new();
        for block in blocks {
            let markup = markup(&block.content, &mut plots);
            match sections.last_mut() {
                Some((heading, above)) if *heading == block.heading => above.push_str(&markup),
                _ => sections.push((block.heading, markup)),
            }
        }
        sections
    };
    let (first, others) = (described(first), described(others));
    (first.into_iter().chain(judged).chain(others).collect(), plots)
}

fn markup(content: &Content<'_>, plots: &mut Vec<Plot>) -> String {
    match content {
        Content::Table(one) => table(one),
        Content::Summary(sentences) | Content::Remarks(sentences) | Content::Details(sentences) => {
            each(sentences, |text| paragraph(text))
        }
        Content::Distributions(all) => {
            let target = |(id, title)| PlotTarget { id, title, described_by: all.described_by };
            let histogram = all.histogram.map(|one| histogram(&target(one), &all.entries));
            let percentiles = all.percentiles.map(|one| tail(&target(one), &all.entries));
            each(histogram.into_iter().chain(percentiles), |plot| draw(plot, "", plots))
        }
        Content::Plot(plot, below) => draw(plot.clone(), below, plots),
        Content::Facts(group) => fact_table(group),
        Content::Custom(_, markup) | Content::Markup(markup) => markup.clone(),
        Content::PageNote(_)
        | Content::Title(_)
        | Content::Introduction(_)
        | Content::Shape(_)
        | Content::Judgement => String::new(),
    }
}

/// Returns the figure of a plot and adds that to the page's, if it has something to show.
fn draw(plot: Plot, below: &str, plots: &mut Vec<Plot>) -> String {
    if plot.is_empty() {
        return String::new();
    }
    let figure = plot.figure(below);
    plots.push(plot);
    figure
}

fn table(table: &Table) -> String {
    let titles: Vec<_> = table.columns.iter().map(|(title, _)| title.as_ref()).collect();
    let rows = each(&table.rows, |row| {
        let name = (table.names.on_page)(&row.name);
        match &row.cells {
            Ok(cells) => data::row(&name, cells.clone()),
            Err(text) => data::row(&name, [text.clone()]),
        }
    });
    match table.names.page_title {
        Some(name) => data::headed(table.id, table.label, (name, &titles), &rows),
        None => data::table(table.id, table.label, &titles, &rows),
    }
}

/// Returns facts with their values and meanings.
fn fact_table(group: &FactGroup) -> String {
    let rows = each(&group.facts, |fact| {
        let cells = each([&fact.value, &fact.meaning], |cell| {
            format!("<td class=\"words\">{}</td>", text(cell))
        });
        format!("<tr><th scope=\"row\" class=\"words\">{}</th>{cells}</tr>\n", text(&fact.name))
    });
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\">\n<table \
         class=\"data\">\n<thead><tr><td></td><th scope=\"col\" class=\"words\">value</th><th \
         scope=\"col\" class=\"words\">meaning</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n\
         </div>\n",
        title = text(group.title)
    )
}
