//! Cost of authentication: highest rate without loss and CPU time per reply, by number of server
//! threads and share of authenticated requests.

use horolog_record::{BenchNtsResult, LoadResult, NtsMixCapacity};

use crate::document::{BlockContent, DescribeResult, HeadlineMetric, ResultDocument, run_of};
use crate::html::data::{headed, row};
use crate::html::escape::each;
use crate::html::plot::{AxisScale, Plot, PlotAxis, PlotSeries, PlotUnit, PlotViews};
use crate::metrics::{Metric, NamedItems, of_items};
use crate::table::TableStyle;
use crate::table::grid::{self, CellTone, GridCell, GridColumn, GridColumnGroup};
use crate::table::shapes::{TextBar, bars};
use crate::units::{ABSENT, human_ns};
use crate::verdict::BestRate;

const TABLE: &str = "capacities";
const TITLES: [&str; 3] = ["lossless", "vs first", "CPU per reply"];
/// Width of a cell, enough for `≥ 3.98 M/s`.
const WIDTH: usize = 11;

impl DescribeResult for BenchNtsResult {
    fn document(&self) -> ResultDocument<'_> {
        const PLOTS: &str = "By share of authenticated requests";
        const CAPACITIES: &str = "Capacities";
        let lines = |style: &TableStyle| lines(self, style);
        ResultDocument {
            kind: "bench nts",
            heading: "Server cost of authentication".to_owned(),
            lead: format!("{} searches, started {}", self.capacities.len(), self.started),
            headline: headline(self),
            blocks: vec![
                BlockContent::Plot(highest_rate(self), String::new()).under(PLOTS),
                BlockContent::Plot(cost(self), String::new()).under(PLOTS),
                BlockContent::Custom(Box::new(lines), page_table(self)).under(CAPACITIES),
                BlockContent::Shape(Box::new(|style| rate_bars(self, style))).under(CAPACITIES),
                BlockContent::PageNote(
                    "Rates are the highest without loss; ≥ if the search ended before the \
                     server's limit. CPU time is that of the server's threads.",
                )
                .under(""),
            ],
            method: "",
            limits: &[],
            // Findings about single searches are omitted.
            findings: &self.findings,
            run: run_of!(self),
        }
    }

    fn metrics() -> Vec<Metric<Self>> {
        let cpu_time = Metric::time("cpu-per-reply", |one: &NtsMixCapacity| one.cpu_ns_per_reply);
        of_items(capacities, [cpu_time]).chain(of_items(loads, LoadResult::metrics())).collect()
    }
}

fn capacities(result: &BenchNtsResult) -> NamedItems<'_, NtsMixCapacity> {
    let name = |one: &NtsMixCapacity| {
        format!("{}, {}% authenticated", threads_name(one.threads), one.authenticated_percent)
    };
    result.capacities.iter().map(|one| (name(one), one)).collect()
}

fn loads(result: &BenchNtsResult) -> NamedItems<'_, LoadResult> {
    capacities(result).into_iter().map(|(name, one)| (name, &one.load)).collect()
}

/// Returns the capacity with the highest share of authenticated requests, of the most threads with
/// that share.
fn headline(result: &BenchNtsResult) -> HeadlineMetric {
    let most = result.capacities.iter().max_by_key(|one| (one.authenticated_percent, one.threads));
    HeadlineMetric {
        name: "Highest rate without loss".to_owned(),
        value: most.map(|one| BestRate::of(&one.load).text()),
        sentence: most.map_or_else(
            || "No searches were run.".to_owned(),
            |one| {
                let share = one.authenticated_percent;
                format!("{} with {share}% of requests authenticated.", threads_name(one.threads))
            },
        ),
    }
}

fn threads_name(threads: usize) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

/// Returns three lines for each number of threads, with one column for each share of authenticated
/// requests. Ratios are relative to the first column of a row. `≥` marks a rate whose search ended
/// before the server's limit was reached.
fn lines(result: &BenchNtsResult, style: &TableStyle) -> Vec<String> {
    let shares = distinct(result, |one| one.authenticated_percent);
    let groups = groups(&shares);
    let mut lines = header(&groups, &shares, style);
    for threads in distinct(result, |one| one.threads) {
        let cell = |share: &u8| {
            let is_at = |one: &&NtsMixCapacity| {
                (one.threads, one.authenticated_percent) == (threads, *share)
            };
            result.capacities.iter().find(is_at)
        };
        let row: Vec<_> = shares.iter().map(cell).collect();
        lines.extend(cells(threads, &shares, &row).map(|cells| {
            let line = grid::row(&groups, &cells, style.colour);
            line.trim_end().to_owned()
        }));
    }
    lines
}

/// Returns bars of the highest rate without loss, one per search.
fn rate_bars(result: &BenchNtsResult, style: &TableStyle) -> Vec<String> {
    let bar = |one: &NtsMixCapacity| {
        let highest = BestRate::of(&one.load);
        let name = format!("{}, {}%", threads_name(one.threads), one.authenticated_percent);
        TextBar::plain(name, highest.held(), highest.text())
    };
    let all: Vec<_> = result.capacities.iter().map(bar).collect();
    bars("lossless, by authenticated share", &all, style)
}

/// Returns distinct values in order of first appearance.
fn distinct<T: PartialEq>(result: &BenchNtsResult, value: impl Fn(&NtsMixCapacity) -> T) -> Vec<T> {
    let mut values = Vec::new();
    for value in result.capacities.iter().map(value) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

fn groups(shares: &[u8]) -> Vec<GridColumnGroup<'static>> {
    let of_share = |_: &u8| GridColumn::right("", WIDTH);
    vec![
        GridColumnGroup {
            title: "",
            columns: vec![GridColumn::right("", 7), GridColumn::left("", 13)],
        },
        GridColumnGroup { title: "authenticated", columns: shares.iter().map(of_share).collect() },
    ]
}

/// Returns the titles of the column groups, and of the columns below them, one per share.
fn header(groups: &[GridColumnGroup<'_>], shares: &[u8], style: &TableStyle) -> Vec<String> {
    let title = |text: String| GridCell { text, tone: CellTone::Strong };
    let mut titles = vec![title("threads".to_owned()), title(String::new())];
    titles.extend(shares.iter().map(|share| title(format!("{share}%"))));
    let above = grid::header(groups, style.colour);
    let above = above.lines().next().unwrap_or_default().to_owned();
    vec![above, grid::row(groups, &titles, style.colour)]
}

/// Returns the three lines of a number of threads.
fn cells(threads: usize, shares: &[u8], row: &[Option<&NtsMixCapacity>]) -> [Vec<GridCell>; 3] {
    let highest: Vec<_> = row
        .iter()
        .map(|one| one.map_or(BestRate::Nothing, |one| BestRate::of(&one.load)))
        .collect();
    let base = highest.first().copied().unwrap_or(BestRate::Nothing);
    let line = |number: String, name: String, cells: Vec<GridCell>| {
        let mut line = vec![GridCell::plain(number), GridCell::plain(name)];
        line.extend(cells);
        line
    };
    let rate = |highest: &BestRate| GridCell { text: highest.text(), tone: CellTone::Strong };
    let rates = highest.iter().map(rate).collect();
    let ratio = |highest: &BestRate| GridCell::plain(highest.ratio_to(base));
    let ratios = highest.iter().map(ratio).collect();
    let costs = row.iter().map(|one| GridCell::plain(cpu(*one))).collect();
    let against = shares.first().map_or_else(String::new, |share| format!("vs {share}%"));
    [
        line(threads.to_string(), "lossless".to_owned(), rates),
        line(String::new(), against, ratios),
        line(String::new(), "CPU per reply".to_owned(), costs),
    ]
}

fn cpu(one: Option<&NtsMixCapacity>) -> String {
    let ns = one.and_then(|one| one.cpu_ns_per_reply).filter(|ns| ns.is_finite() && *ns >= 0.0);
    ns.map_or_else(|| ABSENT.to_owned(), |ns| human_ns(ns.round() as u64))
}

/// Returns the table for a page, a row for each search; ratios are relative to the first one with
/// as many threads.
fn page_table(result: &BenchNtsResult) -> String {
    let rows = each(&result.capacities, |one| {
        let same = result.capacities.iter().find(|first| first.threads == one.threads);
        let base = same.map_or(BestRate::Nothing, |first| BestRate::of(&first.load));
        let name =
            format!("{}, {}% authenticated", threads_name(one.threads), one.authenticated_percent);
        let highest = BestRate::of(&one.load);
        row(&name, [highest.text(), highest.ratio_to(base), cpu(Some(one))])
    });
    headed(TABLE, "Capacities", ("server", &TITLES), &rows)
}

fn highest_rate(result: &BenchNtsResult) -> Plot {
    let y = PlotAxis {
        label: "requests per second",
        short: "rate",
        unit: PlotUnit::Rate,
        scale: AxisScale::Zero,
    };
    plot(result, ("lossless", "Highest rate without loss"), y, |one| BestRate::of(&one.load).held())
}

fn cost(result: &BenchNtsResult) -> Plot {
    let y =
        PlotAxis { label: "CPU time", short: "time", unit: PlotUnit::Ns, scale: AxisScale::Zero };
    plot(result, ("cost", "CPU time per reply"), y, |one| one.cpu_ns_per_reply)
}

/// Returns the plot of a metric over the share of authenticated requests, one line per number of
/// threads.
fn plot(
    result: &BenchNtsResult,
    (id, title): (&'static str, &'static str),
    y: PlotAxis,
    figure: fn(&NtsMixCapacity) -> Option<f64>,
) -> Plot {
    let series = distinct(result, |one| one.threads).into_iter().map(|threads| {
        let of = result.capacities.iter().filter(|one| one.threads == threads);
        let point = |one: &NtsMixCapacity| {
            let value = figure(one).filter(|value| *value >= 0.0)?;
            Some((f64::from(one.authenticated_percent) / 100.0, value))
        };
        PlotSeries::new(threads_name(threads), of.filter_map(point).collect())
    });
    Plot {
        id,
        title,
        hint: "One line for each number of server threads.",
        described_by: TABLE,
        x: PlotAxis {
            label: "share of authenticated requests",
            short: "authenticated",
            unit: PlotUnit::Share,
            scale: AxisScale::Linear,
        },
        y,
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews::one(series),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;

    #[test]
    fn what_is_no_time_is_not_shown_as_one() {
        let mut result = fixture::bench_nts();
        result.capacities[0].cpu_ns_per_reply = Some(f64::NAN);
        result.capacities[1].cpu_ns_per_reply = Some(-1.0);
        let text = result.text(&TableStyle::default());
        let line = text.lines().find(|line| line.contains("CPU per reply")).unwrap();
        assert!(line.contains("-           -"), "{line}");
    }

    #[test]
    fn every_number_of_threads_is_a_line_and_no_search_none() {
        let mut result = fixture::bench_nts();
        assert_eq!(highest_rate(&result).shown.views[0].series.len(), 3);
        result.capacities.clear();
        result.findings.clear();
        assert_eq!(result.text(&TableStyle::default()).lines().count(), 2);
        assert!(result.page().contains("No searches were run"));
    }
}
