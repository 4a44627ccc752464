//! Comparison of a demonstration: one row for each server, ratios to the first one.

use horolog_record::{DemoCandidate, DemoResult, Distribution, SearchKind, Trial};

use super::TableStyle;
use super::grid::{self, CellTone, GridCell, GridColumn, GridColumnGroup};
use super::shapes::{TextBar, bars, put};
use super::summary::finding_lines;
use crate::findings::of_demo;
use crate::units::{ABSENT, human_ns};
use crate::verdict::{BestRate, lower_bound_trial};

/// Longest label that is shown in full.
const LABEL_MAX: usize = 32;

/// Returns the table and all findings, without a newline at the end. `≥` marks a rate whose search
/// ended before the server's limit was reached. Latencies are those of the trial at the lower bound
/// of the search. The response time is omitted on a narrow terminal.
#[must_use]
pub fn demo(result: &DemoResult, style: &TableStyle) -> String {
    let mut groups = groups(result);
    if grid::width(&groups) > style.width {
        groups.pop();
    }
    let base =
        result.candidates.first().map_or(BestRate::Nothing, |first| BestRate::of(&first.load));
    let mut lines = vec![grid::header(&groups, style.colour)];
    lines.extend(result.candidates.iter().map(|candidate| {
        let row = grid::row(&groups, &cells(candidate, base), style.colour);
        row.trim_end().to_owned()
    }));
    let bar = |candidate: &DemoCandidate| {
        let highest = BestRate::of(&candidate.load);
        TextBar::plain(shortened(&candidate.label), highest.held(), highest.text())
    };
    let all: Vec<_> = result.candidates.iter().map(bar).collect();
    put(&mut lines, bars(bars_title(result), &all, style));
    lines.extend(finding_lines(&of_demo(result), style));
    lines.join("\n").trim_end().to_owned()
}

fn groups(result: &DemoResult) -> Vec<GridColumnGroup<'static>> {
    let longest = result.candidates.iter().map(|candidate| candidate.label.chars().count()).max();
    let label_width = longest.unwrap_or(0).clamp("server".len(), LABEL_MAX);
    let servers = vec![
        GridColumn::left("server", label_width),
        GridColumn::right(rate_title(result), 13),
        GridColumn::right("ratio", 9),
    ];
    let times = || vec![GridColumn::right("p50", 7), GridColumn::right("p99", 7)];
    vec![
        GridColumnGroup { title: "", columns: servers },
        GridColumnGroup { title: "round trip", columns: times() },
        GridColumnGroup { title: "response time", columns: times() },
    ]
}

fn bars_title(result: &DemoResult) -> &'static str {
    if rate_title(result) == "lossless" { "lossless rate" } else { "rate within goal" }
}

/// Returns the title of the rate column: the search goal if all servers have the same.
fn rate_title(result: &DemoResult) -> &'static str {
    let partial = |candidate: &DemoCandidate| {
        candidate.load.search.as_ref().is_some_and(|search| search.kind == SearchKind::Pdr)
    };
    if result.candidates.iter().any(partial) { "within goal" } else { "lossless" }
}

fn cells(candidate: &DemoCandidate, base: BestRate) -> Vec<GridCell> {
    let highest = BestRate::of(&candidate.load);
    let trial = lower_bound_trial(&candidate.load).map(|index| &candidate.load.trials[index]);
    let rtt = trial.and_then(|trial: &Trial| trial.rtt_ns.as_ref());
    let response = trial.and_then(|trial: &Trial| trial.response_time_ns.as_ref());
    let time = |distribution: Option<&Distribution>, figure: fn(&Distribution) -> u64| {
        GridCell::plain(distribution.map_or_else(|| ABSENT.to_owned(), |d| human_ns(figure(d))))
    };
    vec![
        GridCell::plain(shortened(&candidate.label)),
        GridCell { text: highest.text(), tone: CellTone::Strong },
        GridCell::plain(highest.ratio_to(base)),
        time(rtt, |d| d.p50),
        time(rtt, |d| d.p99),
        time(response, |d| d.p50),
        time(response, |d| d.p99),
    ]
}

fn shortened(label: &str) -> String {
    if label.chars().count() <= LABEL_MAX {
        return label.to_owned();
    }
    let prefix: String = label.chars().take(LABEL_MAX - 1).collect();
    format!("{prefix}…")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let text = demo(&fixture::demo(), &TableStyle { colour: false, width: 90 });
        assert_eq!(text, include_str!("demo_table.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn lines_up_whatever_the_candidates_are() {
        let mut result = fixture::demo();
        result.candidates[1].label =
            "a label that is far longer than any column is wide".to_owned();
        result.candidates[2].load = fixture::empty();
        result.candidates[3].load.trials = vec![fixture::extreme_trial()];
        result.findings.clear();
        let text = demo(&result, &TableStyle::default());
        let bars = |line: &str| line.chars().position(|c| c == '|');
        let expected = bars(text.lines().nth(1).unwrap());
        let table = text.lines().skip(1).take_while(|line| !line.is_empty());
        assert!(table.clone().count() == 6 && table.into_iter().all(|line| bars(line) == expected));
        assert!(!text.contains("NaN"));
    }

    #[test]
    fn a_finding_about_one_server_is_reported() {
        let mut result = fixture::demo();
        let mut finding = result.candidates[0].load.findings[0].clone();
        finding.code = horolog_record::FindingCode::TrialsInconsistent;
        finding.message = "one of its trials lost more".to_owned();
        result.candidates[1].load.findings = vec![finding];
        let text = demo(&result, &TableStyle { colour: false, width: 100 });
        assert!(text.contains("one of its trials lost more"), "{text}");
    }

    #[test]
    fn no_candidate_is_a_table_without_rows() {
        let mut result = fixture::demo();
        result.candidates.clear();
        result.findings.clear();
        assert_eq!(demo(&result, &TableStyle::default()).lines().count(), 2);
    }
}
