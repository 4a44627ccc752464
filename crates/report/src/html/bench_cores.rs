//! HTML report of `bench cores`: the two tables, the responses over the rate, and every single run
//! at saturation.

use horolog_record::{BenchCoresResult, CoresRateResult};

use super::PageTemplate;
use super::escape::{each, text};
use super::plot::{AxisScale, Plot, PlotAxis, PlotMark, PlotSeries, PlotUnit, PlotViews};
use super::sections::{
    columns, command_line, drawn, facts, findings, host_facts, paragraph, section, verdict,
};
use crate::cores::{TextTable, capacities, cores, responses, sentences};
use crate::units::human_rate;

/// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn bench_cores(result: &BenchCoresResult) -> String {
    let plots = vec![(by_rate(result), String::new()), (single_runs(result), String::new())];
    let (figures, plots) = drawn(plots);
    // The page shows the first conclusion at its top.
    let conclusions = sentences(result).into_iter().skip(1);
    let paragraphs = each(conclusions, |sentence| paragraph(&sentence));
    let tables = table(&responses(result), "responses") + &table(&capacities(result), "capacities");
    let main = [
        section("Findings", &findings(&result.findings)),
        section("Responses and cores", &(paragraphs + &tables)),
        section("By rate and by run", &figures),
        section("Run and host", &machine(result)),
    ];
    PageTemplate {
        kind: "bench cores",
        failed: None,
        heading: "Responses by the number of cores".to_owned(),
        lead: match result.columns.len() {
            1 => format!("one number of cores, started {}", result.started),
            count => format!("{count} numbers of cores, started {}", result.started),
        },
        verdict: top(result),
        main: main.concat(),
        schema: &result.schema,
        note: "Responses are valid replies within the timeout, per second of sending.",
        plots,
        result,
    }
    .render()
}

fn top(result: &BenchCoresResult) -> String {
    let figure = match result.cores_required() {
        Some(count) => cores(count),
        None if result.is_decided() => "none".to_owned(),
        None => "not measured".to_owned(),
    };
    let name = format!("Enough for {}", human_rate(result.required_rate));
    let conclusions = sentences(result);
    verdict(&name, &figure, conclusions.first().map_or("", String::as_str), &[])
}

fn table(sheet: &TextTable, id: &str) -> String {
    let columns = sheet.columns.len();
    let (own, published) = (sheet.published_at, columns - sheet.published_at);
    let class = |index: usize| if index == sheet.published_at { " class=\"first\"" } else { "" };
    let titles = each(sheet.columns.iter().enumerate(), |(index, title)| {
        format!("<th scope=\"col\"{}>{}</th>", class(index), text(title))
    });
    let rows = each(&sheet.rows, |row| {
        let (name, cells) = row.split_first().map_or(("", &row[..]), |(a, b)| (a.as_str(), b));
        let cells = each(cells.iter().enumerate(), |(index, cell)| {
            format!("<td{}>{}</td>", class(index + 1), text(cell))
        });
        format!("<tr><th scope=\"row\">{}</th>{cells}</tr>\n", text(name))
    });
    let title = text(&sheet.title);
    format!(
        "<div class=\"scroll\" id=\"{id}\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\">\n\
         <h3>{title}</h3>\n<table class=\"data\">\n<thead>\n<tr><td colspan=\"{own}\"></td>\
         <th class=\"first\" colspan=\"{published}\" scope=\"colgroup\">published</th></tr>\n\
         <tr>{titles}</tr>\n</thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n"
    )
}

/// Returns the plot of mean responses over the rate, one line for each number of cores.
fn by_rate(result: &BenchCoresResult) -> Plot {
    let series = result.columns.iter().map(|column| {
        let point = |point: &CoresRateResult| Some((point.rate, point.spread()?.mean));
        PlotSeries::new(cores(column.cores), column.points.iter().filter_map(point).collect())
    });
    Plot {
        id: "by-rate",
        title: "Responses by rate",
        hint: "Mean of all runs at each rate.",
        described_by: "responses",
        x: rate_axis("requests per second", "requests"),
        y: rate_axis("responses per second", "responses"),
        points: true,
        bars: false,
        marks: vec![PlotMark {
            axis: "x",
            at: result.required_rate,
            label: format!("required: {}", human_rate(result.required_rate)),
        }],
        shown: PlotViews::one(series),
    }
}

/// Returns the plot of each repetition at the rate that saturated the server, one line per number
/// of cores; servers that were never saturated are omitted.
fn single_runs(result: &BenchCoresResult) -> Plot {
    let series = result.columns.iter().filter_map(|column| {
        let point = column.points.iter().find(|point| point.saturated)?;
        let runs = (1_u32..).zip(&point.runs);
        let points = runs.map(|(number, run)| (f64::from(number), run.responses_per_s)).collect();
        let label = format!("{}, {} intended", cores(column.cores), human_rate(point.rate));
        Some(PlotSeries::new(label, points))
    });
    Plot {
        id: "runs",
        title: "Responses of every run at saturation",
        hint: "At the first rate that the server did not fully answer.",
        described_by: "capacities",
        x: PlotAxis { label: "run", short: "run", unit: PlotUnit::Count, scale: AxisScale::Linear },
        y: rate_axis("responses per second", "responses"),
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews::one(series),
    }
}

fn rate_axis(label: &'static str, short: &'static str) -> PlotAxis {
    PlotAxis { label, short, unit: PlotUnit::Rate, scale: AxisScale::Linear }
}

fn machine(result: &BenchCoresResult) -> String {
    let engine = result.engine.map(|engine| engine.name().to_owned());
    let command = Some(command_line(&result.command));
    let started = Some(result.started.clone());
    let run = facts(&[("Command", command), ("Started", started), ("Engine", engine)]);
    columns(&[run, host_facts(&result.host)])
}
