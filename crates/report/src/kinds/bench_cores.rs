//! Responses by the number of cores: reply rates and capacities, with the values published for the
//! same experiment, the responses over the rate, and every single run at saturation.

use horolog_record::{
    BenchCoresResult, CoreCountResult, CoresRateResult, CoresRepetition, ReplyRateSpread,
};

use crate::document::{
    BlockContent, DescribeResult, HeadlineMetric, ResultDocument, RunFacts, run_of,
};
use crate::html::escape::{each, text};
use crate::html::plot::{AxisScale, Plot, PlotAxis, PlotMark, PlotSeries, PlotUnit, PlotViews};
use crate::metrics::{Metric, MetricValue, NamedItems, of_items};
use crate::table::TableStyle;
use crate::table::grid::CellTone;
use crate::table::shapes::{TextBar, bars};
use crate::table::summary::wrapped;
use crate::units::{ABSENT, amount, full_count, full_rate, human_rate};

impl DescribeResult for BenchCoresResult {
    fn document(&self) -> ResultDocument<'_> {
        const TABLES: &str = "Responses and cores";
        const PLOTS: &str = "By rate and by run";
        let tables = page_table(&responses(self), "responses")
            + &page_table(&capacities(self), "capacities");
        let engine = self.engine.map(|engine| engine.name().to_owned());
        ResultDocument {
            kind: "bench cores",
            heading: "Responses by the number of cores".to_owned(),
            lead: match self.columns.len() {
                1 => format!("one number of cores, started {}", self.started),
                count => format!("{count} numbers of cores, started {}", self.started),
            },
            headline: headline(self),
            blocks: vec![
                BlockContent::Details(sentences(self).split_off(1)).under(TABLES),
                BlockContent::Custom(Box::new(|style| lines(self, style)), tables).under(TABLES),
                BlockContent::Plot(by_rate(self), String::new()).under(PLOTS),
                BlockContent::Plot(single_runs(self), String::new()).under(PLOTS),
                BlockContent::PageNote(
                    "Responses are valid replies within the timeout, per second of sending.",
                )
                .under(""),
            ],
            method: "",
            limits: &[],
            findings: &self.findings,
            run: RunFacts { after: vec![("Engine", engine)], ..run_of!(self) },
        }
    }

    fn metrics() -> Vec<Metric<Self>> {
        let rate = Metric::value("responses", |one: &CoresRepetition| {
            MetricValue::rate(one.responses_per_s)
        });
        of_items(repetitions, [rate]).collect()
    }
}

fn repetitions(result: &BenchCoresResult) -> NamedItems<'_, CoresRepetition> {
    let mut all = Vec::new();
    for column in &result.columns {
        for point in &column.points {
            let name = format!("{} cores at {}", column.cores, full_rate(point.rate));
            all.extend(point.runs.iter().map(|one| (name.clone(), one)));
        }
    }
    all
}

/// Returns the number of cores that fully answer the required rate; the sentence is the first
/// conclusion.
fn headline(result: &BenchCoresResult) -> HeadlineMetric {
    HeadlineMetric {
        name: format!("Enough for {}", human_rate(result.required_rate)),
        value: match result.cores_required() {
            Some(count) => Some(cores(count)),
            None => result.is_decided().then(|| "none".to_owned()),
        },
        sentence: sentences(result).swap_remove(0),
    }
}

/// Returns both tables, the capacities as bars, and the conclusions, for a terminal.
fn lines(result: &BenchCoresResult, style: &TableStyle) -> Vec<String> {
    let mut lines = Vec::new();
    let tables = [responses(result), capacities(result)].map(|table| table_lines(&table, style));
    for block in tables.into_iter().chain([capacity_bars(result, style)]) {
        if !block.is_empty() {
            lines.extend(block);
            lines.push(String::new());
        }
    }
    let conclusions = sentences(result).into_iter();
    lines.extend(conclusions.flat_map(|sentence| wrapped(&sentence, "", "  ", style)));
    lines
}

/// Figures of Liu, Wu and Wang, "Design of NTP server based on multi-core processor", Journal of
/// Time and Frequency 43 (2020), 1, 18-28: a Raspberry Pi 3B (ARM Cortex-A53, four cores, 1.2 GHz).
mod published {
    /// Numbers of cores that were measured.
    pub(super) const CORES: [usize; 4] = [1, 2, 3, 4];
    /// Table 1: requests per second, and replies per second on one to four cores; `None` where the
    /// table has a dash.
    pub(super) const RESPONSES: [(u32, [Option<u32>; 4]); 10] = [
        (5_000, [Some(5_000); 4]),
        (10_000, [Some(10_000); 4]),
        (15_000, [Some(15_000); 4]),
        (20_000, [Some(20_000); 4]),
        (25_000, [Some(25_000); 4]),
        (30_000, [Some(26_272), Some(30_000), Some(30_000), Some(30_000)]),
        (35_000, [None, Some(35_000), Some(35_000), Some(35_000)]),
        (40_000, [None, Some(40_000), Some(40_000), Some(40_000)]),
        (45_000, [None, Some(44_102), Some(45_000), Some(45_000)]),
        (50_000, [None, Some(44_102), Some(46_027), Some(46_098)]),
    ];
    /// Table 2: lowest, highest and mean capacity on one to four cores, in replies per second.
    pub(super) const CAPACITY: [[u32; 3]; 4] = [
        [25_112, 27_259, 26_272],
        [43_401, 45_086, 44_102],
        [45_397, 47_059, 46_027],
        [45_401, 47_072, 46_098],
    ];
    /// Conditions of the published experiment that its tables do not show.
    pub(super) const NOTE: &str = "Published: Liu, Wu, Wang, Journal of Time and Frequency 43 \
        (2020), 1, on a Raspberry Pi 3B; its text gives 46,089 for four cores, its tables 46,098.";
}

/// Separator between measured and published figures.
const RULE: &str = " | ";
const PUBLISHED: &str = "published";

/// Cell for a rate that was not tried. A rate that was skipped because a lower one saturated the
/// server has a dash instead.
const NOT_TRIED: &str = "";

/// Table of measured and published values, with all cells as text.
#[derive(Debug, PartialEq, Eq)]
struct MeasuredAndPublishedTable {
    title: String,
    /// Titles of the columns; the first is that of the name column.
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Index of the first column with published values.
    published_at: usize,
}

/// Returns table 1: replies per second by rate and number of cores.
fn responses(result: &BenchCoresResult) -> MeasuredAndPublishedTable {
    let mut rates: Vec<f64> = result
        .columns
        .iter()
        .flat_map(|column| &column.points)
        .map(|point| point.rate)
        .chain(published::RESPONSES.iter().map(|(rate, _)| f64::from(*rate)))
        .filter(|rate| amount(*rate).is_some())
        .collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup_by(|a, b| a.total_cmp(b).is_eq());
    let names = result.columns.iter().map(|column| cores(column.cores));
    let published = published::CORES.iter().map(|count| cores(*count));
    MeasuredAndPublishedTable {
        title: "Responses per second, mean of all runs".to_owned(),
        columns: std::iter::once("requests/s".to_owned()).chain(names).chain(published).collect(),
        rows: rates.into_iter().map(|rate| response_row(result, rate)).collect(),
        published_at: 1 + result.columns.len(),
    }
}

fn response_row(result: &BenchCoresResult, rate: f64) -> Vec<String> {
    let ours = result.columns.iter().map(|column| {
        let saturated = column.points.iter().any(|point| point.saturated && point.rate < rate);
        let point = column.points.iter().find(|point| point.rate.total_cmp(&rate).is_eq());
        match point.and_then(CoresRateResult::spread) {
            Some(spread) => number(spread.mean),
            None if saturated => ABSENT.to_owned(),
            None => NOT_TRIED.to_owned(),
        }
    });
    let of_rate = |known: &&(u32, _)| f64::from(known.0).total_cmp(&rate).is_eq();
    let known = published::RESPONSES.iter().find(of_rate);
    let published = (0..published::CORES.len()).map(|index| match known {
        Some((_, figures)) => {
            figures[index].map_or_else(|| ABSENT.to_owned(), |figure| full_count(figure.into()))
        }
        None => NOT_TRIED.to_owned(),
    });
    std::iter::once(number(rate)).chain(ours).chain(published).collect()
}

/// Returns table 2: the capacity on each number of cores, and the gain of its mean over the number
/// before.
fn capacities(result: &BenchCoresResult) -> MeasuredAndPublishedTable {
    let titles = ["minimum", "maximum", "mean", "gain"];
    let columns = std::iter::once("cores").chain(titles).chain(titles);
    let mut rows = Vec::new();
    let mut before: Option<&CoreCountResult> = None;
    for column in &result.columns {
        let mean = |column: &CoreCountResult| column.capacity().map(|spread| spread.mean);
        let mut row = vec![cores(column.cores)];
        row.extend(capacity_cells(column, column.capacity()));
        row.push(gain(before.and_then(mean), mean(column)));
        row.extend(published_cells(column.cores, before.map(|before| before.cores)));
        rows.push(row);
        before = Some(column);
    }
    MeasuredAndPublishedTable {
        title: "Capacity: responses per second where the server is saturated".to_owned(),
        columns: columns.map(str::to_owned).collect(),
        rows,
        published_at: 1 + titles.len(),
    }
}

fn capacity_cells(column: &CoreCountResult, capacity: Option<ReplyRateSpread>) -> [String; 3] {
    match (capacity, column.full_answer_rate()) {
        (Some(ReplyRateSpread { min, max, mean }), _) => [min, max, mean].map(number),
        (None, Some(rate)) => [ABSENT.to_owned(), ABSENT.to_owned(), format!("≥ {}", number(rate))],
        (None, None) => [ABSENT; 3].map(str::to_owned),
    }
}

/// Returns the published values for a number of cores, and their gain over the number `before` with
/// which the measured gain is computed.
fn published_cells(cores: usize, before: Option<usize>) -> Vec<String> {
    let index_of = |cores: usize| published::CORES.iter().position(|known| *known == cores);
    let Some(index) = index_of(cores) else {
        return vec![ABSENT.to_owned(); 4];
    };
    let figures = published::CAPACITY[index];
    let mean = |index: usize| f64::from(published::CAPACITY[index][2]);
    let before = before.and_then(index_of).map(mean);
    let figures = figures.iter().map(|figure| full_count((*figure).into()));
    figures.chain([gain(before, Some(mean(index)))]).collect()
}

/// Formats the gain of `mean` over the previous value.
fn gain(before: Option<f64>, mean: Option<f64>) -> String {
    match before.zip(mean) {
        Some((before, mean)) if before > 0.0 && mean.is_finite() => {
            format!("{:+.1}%", (mean / before - 1.0) * 100.0)
        }
        _ => ABSENT.to_owned(),
    }
}

/// Returns the conclusions, in sentences.
fn sentences(result: &BenchCoresResult) -> Vec<String> {
    let wanted = human_rate(result.required_rate);
    let enough = match result.cores_required() {
        Some(count) => format!("{wanted} required: fully answered with {}.", cores(count)),
        None if result.is_decided() => {
            format!("{wanted} required: not fully answered with any number of cores.")
        }
        None => format!("{wanted} required: not measured with every number of cores."),
    };
    let capture = result.capture.map(|check| {
        let verdict = if check.has_equal_counts() { "agree" } else { "disagree" };
        format!(
            "Verified by one capture: {} replies, {} in the capture ({} dropped by it); they \
             {verdict}.",
            full_count(check.counted),
            full_count(check.captured),
            full_count(check.dropped)
        )
    });
    let note = published::NOTE.to_owned();
    std::iter::once(enough).chain(capture).chain([note]).collect()
}

/// Formats a number of cores, with its noun.
fn cores(count: usize) -> String {
    if count == 1 { "1 core".to_owned() } else { format!("{count} cores") }
}

fn number(value: f64) -> String {
    amount(value).map_or_else(|| ABSENT.to_owned(), |value| full_count(value.round() as u64))
}

/// Returns bars of the capacity on each number of cores.
fn capacity_bars(result: &BenchCoresResult, style: &TableStyle) -> Vec<String> {
    let bar = |column: &CoreCountResult| {
        let capacity = column.capacity();
        let rate = |rate: Option<f64>| rate.map_or_else(|| ABSENT.to_owned(), human_rate);
        let (min, max) = (capacity.map(|one| one.min), capacity.map(|one| one.max));
        TextBar {
            name: cores(column.cores),
            size: min,
            tail: max,
            value_text: format!("{} to {}", rate(min), rate(max)),
        }
    };
    let all: Vec<_> = result.columns.iter().map(bar).collect();
    bars("capacity, # to the minimum, - to the maximum", &all, style)
}

fn table_lines(table: &MeasuredAndPublishedTable, style: &TableStyle) -> Vec<String> {
    let widths: Vec<_> = (0..table.columns.len())
        .map(|index| {
            let cells = table.rows.iter().map(|row| &row[index]);
            cells.chain([&table.columns[index]]).map(|text| text.chars().count()).max()
        })
        .map(Option::unwrap_or_default)
        .collect();
    let line = |cells: &[String]| {
        let pad =
            |(index, text): (usize, &String)| format!("{text:>width$}", width = widths[index]);
        let cells: Vec<_> = cells.iter().enumerate().map(pad).collect();
        let (own, published) = cells.split_at(table.published_at);
        (own.join("  "), published.join("  "))
    };
    let joined = |(own, published): (String, String)| {
        format!("{own}{RULE}{published}").trim_end().to_owned()
    };
    let (own, published) = line(&table.columns);
    let above = format!("{:1$}{RULE}{PUBLISHED}", "", own.chars().count());
    let strong = |text: &str| CellTone::Strong.paint(text, style.colour);
    let head = [table.title.clone(), above, joined((own, published))];
    let rows = table.rows.iter().map(|row| joined(line(row)));
    head.iter().map(|text| strong(text)).chain(rows).collect()
}

fn page_table(table: &MeasuredAndPublishedTable, id: &str) -> String {
    let columns = table.columns.len();
    let (own, published) = (table.published_at, columns - table.published_at);
    let class = |index: usize| if index == table.published_at { " class=\"first\"" } else { "" };
    let titles = each(table.columns.iter().enumerate(), |(index, title)| {
        format!("<th scope=\"col\"{}>{}</th>", class(index), text(title))
    });
    let rows = each(&table.rows, |row| {
        let (name, cells) = row.split_first().map_or(("", &row[..]), |(a, b)| (a.as_str(), b));
        let cells = each(cells.iter().enumerate(), |(index, cell)| {
            format!("<td{}>{}</td>", class(index + 1), text(cell))
        });
        format!("<tr><th scope=\"row\">{}</th>{cells}</tr>\n", text(name))
    });
    let title = text(&table.title);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;

    #[test]
    fn the_published_tables_belong_together() {
        for (index, [min, max, mean]) in published::CAPACITY.into_iter().enumerate() {
            assert!(min < mean && mean < max);
            let last = published::RESPONSES.iter().rev().find_map(|(_, figures)| figures[index]);
            assert_eq!(last, Some(mean));
        }
        let gains: Vec<_> = published::CORES
            .iter()
            .map(|&count| published_cells(count, count.checked_sub(1))[3].clone())
            .collect();
        assert_eq!(gains, ["-", "+67.9%", "+4.4%", "+0.2%"]);
    }

    #[test]
    fn a_saturated_column_has_dashes_from_then_on() {
        let table = responses(&fixture::sample::<BenchCoresResult>("bench_cores"));
        assert_eq!(table.columns[..3], ["requests/s", "1 core", "2 cores"]);
        let row = |rate: &str| table.rows.iter().find(|row| row[0] == rate).unwrap().clone();
        assert_eq!(
            row("30,000")[1..],
            ["26,272", "30,000", "26,272", "30,000", "30,000", "30,000"]
        );
        assert_eq!(row("35,000")[1..4], ["-", "33,100", "-"]);
        assert_eq!(row("10,000")[1..4], ["", "", "10,000"]);
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
    }

    #[test]
    fn the_capacity_of_a_server_that_was_never_saturated_is_a_lower_bound() {
        let mut result: BenchCoresResult = fixture::sample("bench_cores");
        let table = capacities(&result);
        assert_eq!(table.rows[1][1..5], ["33,000", "33,200", "33,100", "+26.0%"]);
        result.columns[1].points.truncate(2);
        assert_eq!(capacities(&result).rows[1][1..5], ["-", "-", "≥ 30,000", "-"]);
        result.columns[1].points.clear();
        assert_eq!(capacities(&result).rows[1][1..5], ["-"; 4]);
    }

    #[test]
    fn sentences_state_the_number_of_cores_required() {
        let mut result: BenchCoresResult = fixture::sample("bench_cores");
        assert_eq!(sentences(&result)[0], "30.0 k/s required: fully answered with 2 cores.");
        assert!(sentences(&result)[1].ends_with("they agree."));
        result.required_rate = 50e3;
        assert!(sentences(&result)[0].contains("not fully answered"));
        result.columns[1].points.truncate(1);
        assert!(sentences(&result)[0].contains("not measured"));
    }
    #[test]
    fn an_experiment_that_was_ended_at_once_still_makes_a_table() {
        let mut result: BenchCoresResult = fixture::sample("bench_cores");
        result.columns.clear();
        let text = result.text(&TableStyle::default());
        assert!(text.contains("46,098") && text.contains("not measured"), "{text}");
    }

    #[test]
    fn a_server_that_was_never_saturated_has_no_bar() {
        let mut result: BenchCoresResult = fixture::sample("bench_cores");
        result.columns[1].points.pop();
        assert!(capacity_bars(&result, &TableStyle::default()).is_empty(), "one bar is none");
    }
}
