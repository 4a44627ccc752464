//! Document as an HTML page, or as a part of one.

use horolog_record::Host;
use serde::Serialize;

use super::{BlockContent, DocumentBlock, HeadlineMetric, NamedRowTable, ResultDocument, RunFacts};
use crate::facts::FactGroup;
use crate::html::PageTemplateValues;
use crate::html::data;
use crate::html::escape::{each, text};
use crate::html::latency::{PlotIdsAndTitle, histogram, tail};
use crate::html::plot::Plot;
use crate::html::sections::{
    columns, command_line, facts, findings, host_facts, limits, paragraph, section, verdict,
};
use crate::limits::failed;
use crate::units::ABSENT;

/// Returns the page; `result` is embedded as JSON.
pub(super) fn page(document: &ResultDocument<'_>, result: &(impl Serialize + ?Sized)) -> String {
    let (sections, plots) = sections(document);
    let run = &document.run;
    let main = each(sections, |(heading, markup)| match heading {
        "" => markup,
        heading => section(heading, &markup),
    });
    PageTemplateValues {
        kind: document.kind,
        failed: failure(document),
        heading: document.heading.clone(),
        lead: document.lead.clone(),
        verdict: headline(document),
        main: main
            + &section(
                run.heading,
                &run.host.map_or_else(String::new, |host| run_facts(run, host)),
            ),
        note: note(document),
        schema: run.schema,
        plots,
        result,
    }
    .render()
}

/// Returns the document as one section of a page with several results, and adds its plots to
/// `plots`.
fn part(heading: &str, document: &ResultDocument<'_>, plots: &mut Vec<Plot>) -> String {
    let (sections, drawn) = sections(document);
    plots.extend(drawn);
    let shown = sections.iter().filter(|(_, markup)| !markup.is_empty());
    let parts = each(shown, |(heading, markup)| {
        format!("<section>\n<h3>{}</h3>\n{markup}</section>\n", text(heading))
    });
    format!("<section class=\"part\">\n<h2>{}</h2>\n{parts}</section>\n", text(heading))
}

/// Returns the failure in words, if any.
fn failure(document: &ResultDocument<'_>) -> Option<String> {
    let failure = |block: &DocumentBlock<'_>| match &block.content {
        BlockContent::Failure(failure) => Some(failure.clone()),
        _ => None,
    };
    document.blocks.iter().find_map(failure).or_else(|| failed(document.limits))
}

/// Returns the definitions at the end of a page.
fn note(document: &ResultDocument<'_>) -> &'static str {
    let note = |block: &DocumentBlock<'_>| match block.content {
        BlockContent::PageNote(note) => Some(note),
        _ => None,
    };
    document.blocks.iter().find_map(note).unwrap_or(document.method)
}

/// Returns the facts about the run and its host as markup.
fn run_facts(run: &RunFacts<'_>, host: &Host) -> String {
    let command =
        [("Command", Some(command_line(run.command))), ("Started", Some(run.started.to_owned()))];
    let own = [&run.before[..], &command, &run.after].concat();
    let lists = [own].iter().chain(&run.other_lists).map(|list| facts(list)).collect::<String>();
    columns(&[lists, host_facts(host)])
}

fn headline(document: &ResultDocument<'_>) -> String {
    let HeadlineMetric { name, value, sentence } = &document.headline;
    let times = document.blocks.iter().find_map(|block| match &block.content {
        BlockContent::TimesAtRate(times) => Some(&times[..]),
        _ => None,
    });
    verdict(name, value.as_deref().unwrap_or(ABSENT), sentence, times.unwrap_or_default())
}

/// Returns headings and markup, and all plots that have something to show.
fn sections(document: &ResultDocument<'_>) -> (Vec<(&'static str, String)>, Vec<Plot>) {
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

fn markup(content: &BlockContent<'_>, plots: &mut Vec<Plot>) -> String {
    match content {
        BlockContent::Table(one) => table(one),
        BlockContent::Summary(sentences)
        | BlockContent::Remarks(sentences)
        | BlockContent::Details(sentences) => each(sentences, |text| paragraph(text)),
        BlockContent::Distributions(all) => {
            let target =
                |(id, title)| PlotIdsAndTitle { id, title, described_by: all.described_by };
            let histogram = all.histogram.map(|one| histogram(&target(one), &all.entries));
            let percentiles = all.percentiles.map(|one| tail(&target(one), &all.entries));
            each(histogram.into_iter().chain(percentiles), |plot| draw(plot, "", plots))
        }
        BlockContent::Plot(plot, below) => draw(plot.clone(), below, plots),
        BlockContent::Facts(group) => fact_table(group),
        BlockContent::Part(heading, document) => part(heading, document, plots),
        BlockContent::Markup(markup) => markup(),
        BlockContent::Custom(_, markup) => markup.clone(),
        BlockContent::PageNote(_)
        | BlockContent::Failure(_)
        | BlockContent::LiveRows(_)
        | BlockContent::TimesAtRate(_)
        | BlockContent::Title(_)
        | BlockContent::Introduction(_)
        | BlockContent::Shape(_)
        | BlockContent::Judgement => String::new(),
    }
}

/// Returns the element of a plot and adds the plot to `plots`; nothing if it is empty.
fn draw(plot: Plot, below: &str, plots: &mut Vec<Plot>) -> String {
    if plot.is_empty() {
        return String::new();
    }
    let figure = plot.figure(below);
    plots.push(plot);
    figure
}

fn table(table: &NamedRowTable) -> String {
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
