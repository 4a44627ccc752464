//! Cost of authentication: three lines for each number of threads, one column for each share of
//! authenticated requests.

use horolog_record::{BenchNtsResult, NtsCapacity};

use super::TableStyle;
use super::grid::{self, CellTone, GridCell, GridColumn, GridColumnGroup};
use super::shapes::{TextBar, bars, put};
use super::summary::finding_lines;
use crate::units::{ABSENT, human_ns};
use crate::verdict::BestRate;

/// Width of a cell, enough for `≥ 3.98 M/s`.
const WIDTH: usize = 11;

/// Returns the table and the findings about the experiment, without a newline at the end. Ratios
/// are relative to the first column of a row. `≥` marks a rate whose search ended before the
/// server's limit was reached. Findings about single searches are omitted.
#[must_use]
pub fn bench_nts(result: &BenchNtsResult, style: &TableStyle) -> String {
    let threads = distinct(result, |one| one.threads);
    let shares = distinct(result, |one| one.authenticated_percent);
    let groups = groups(&shares);
    let mut lines = header(&groups, &shares, style);
    for threads in threads {
        let row: Vec<_> = shares
            .iter()
            .map(|share| {
                let belongs = |one: &&NtsCapacity| {
                    (one.threads, one.authenticated_percent) == (threads, *share)
                };
                result.capacities.iter().find(belongs)
            })
            .collect();
        lines.extend(cells(threads, &shares, &row).map(|cells| {
            let line = grid::row(&groups, &cells, style.colour);
            line.trim_end().to_owned()
        }));
    }
    put(&mut lines, drawn(result, style));
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n").trim_end().to_owned()
}

/// Returns sparklines of the sustained rate over the share, one per number of threads.
fn drawn(result: &BenchNtsResult, style: &TableStyle) -> Vec<String> {
    let bar = |one: &NtsCapacity| {
        let highest = BestRate::of(&one.load);
        let s = if one.threads == 1 { "" } else { "s" };
        let name = format!("{} thread{s}, {}%", one.threads, one.authenticated_percent);
        TextBar::plain(name, highest.held(), highest.text())
    };
    bars(
        "lossless, by authenticated share",
        &result.capacities.iter().map(bar).collect::<Vec<_>>(),
        style,
    )
}

/// Returns distinct values in order of first appearance.
pub(crate) fn distinct<T: PartialEq>(
    result: &BenchNtsResult,
    value: impl Fn(&NtsCapacity) -> T,
) -> Vec<T> {
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
fn cells(threads: usize, shares: &[u8], row: &[Option<&NtsCapacity>]) -> [Vec<GridCell>; 3] {
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

pub(crate) fn cpu(one: Option<&NtsCapacity>) -> String {
    let ns = one.and_then(|one| one.cpu_ns_per_reply).filter(|ns| ns.is_finite() && *ns >= 0.0);
    ns.map_or_else(|| ABSENT.to_owned(), |ns| human_ns(ns.round() as u64))
}

#[cfg(test)]
pub(crate) mod tests {
    use horolog_record::BENCH_NTS_SCHEMA;

    use super::*;
    use crate::fixture;

    pub(crate) fn result() -> BenchNtsResult {
        let demo = fixture::demo();
        let capacity = |(index, threads, percent): (usize, usize, u8)| NtsCapacity {
            threads,
            authenticated_percent: percent,
            server_command: Vec::new(),
            cpu_ns_per_reply: (index > 0).then_some(1_234.5 * index as f64),
            load: demo.candidates[index].load.clone(),
        };
        let combinations = [(4, 1, 0), (2, 1, 100), (3, 2, 0), (1, 2, 100), (0, 3, 0)];
        BenchNtsResult {
            schema: BENCH_NTS_SCHEMA.to_owned(),
            started: demo.started.clone(),
            command: Vec::new(),
            host: demo.host.clone(),
            capacities: combinations.map(capacity).to_vec(),
            findings: demo.findings.clone(),
        }
    }

    #[test]
    fn output_matches_the_expected_text() {
        let text = bench_nts(&result(), &TableStyle { colour: false, width: 80 });
        assert_eq!(text, include_str!("bench_nts_table.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn what_is_no_time_is_not_shown_as_one() {
        let mut result = result();
        result.capacities[0].cpu_ns_per_reply = Some(f64::NAN);
        result.capacities[1].cpu_ns_per_reply = Some(-1.0);
        let text = bench_nts(&result, &TableStyle::default());
        let line = text.lines().find(|line| line.contains("CPU per reply")).unwrap();
        assert!(line.contains("-           -"), "{line}");
        result.capacities.clear();
        result.findings.clear();
        assert_eq!(bench_nts(&result, &TableStyle::default()).lines().count(), 2);
    }
}
