//! Document of a result of `horolog after`: one row per dependency, and the outcome of the wait.

use horolog_record::{AfterDependencyKind, AfterDependencyResult, AfterOutcome, AfterResult};

use crate::document::{BlockContent, DescribeResult, HeadlineMetric, ResultDocument, run_of};
use crate::html::data::{headed, row};
use crate::html::escape::each;
use crate::table::TableStyle;
use crate::table::grid::{self, CellTone, GridCell, GridColumn, GridColumnGroup};
use crate::table::summary::wrapped;
use crate::units::{ABSENT, full_count, human_ns};

const KIND_WIDTH: usize = 7;
const TARGET_WIDTH: usize = 30;
/// Time from which on [`human_ns`] shows only a bound, in ns.
const LONG_NS: u64 = 999_500_000_000;

impl DescribeResult for AfterResult {
    fn document(&self) -> ResultDocument<'_> {
        let name = match self.end {
            AfterOutcome::Held => "All met after",
            AfterOutcome::Deadline => "Deadline passed after",
            AfterOutcome::Interrupted => "Ended by a signal after",
        };
        let heading = if self.program.is_empty() {
            "a wait".to_owned()
        } else {
            format!("{} after a wait", self.program.join(" "))
        };
        ResultDocument {
            kind: "after",
            heading,
            lead: format!("started {}", self.started),
            headline: HeadlineMetric {
                name: name.to_owned(),
                value: Some(time(self.waited_ns)),
                sentence: end(self),
            },
            blocks: vec![
                BlockContent::Custom(Box::new(|style| lines(self, style)), table(self))
                    .under("Conditions"),
                BlockContent::PageNote("Times count from the start of the wait.").under(""),
            ],
            method: "",
            limits: &[],
            findings: &self.findings,
            run: run_of!(self),
        }
    }
}

/// Returns the conditions and the end, for a terminal.
fn lines(result: &AfterResult, style: &TableStyle) -> Vec<String> {
    let columns = vec![
        GridColumn::left("kind", KIND_WIDTH),
        GridColumn::left("target", TARGET_WIDTH),
        GridColumn::right("met after", 10),
        GridColumn::right("tries", 7),
        GridColumn::right("lost", 5),
        GridColumn::left("last check", 0),
    ];
    let group = [GridColumnGroup { title: "", columns }];
    let header = grid::header(&group, style.colour);
    let mut lines: Vec<_> = header.lines().skip(1).map(str::to_owned).collect();
    for dependency in &result.dependencies {
        let tone = if dependency.held { CellTone::Plain } else { CellTone::Bad };
        let [kind, met, tries, lost, last_check] = cells(dependency);
        let met = GridCell { text: met, tone };
        let plain = [kind, dependency.target.clone(), tries, lost, last_check].map(GridCell::plain);
        let [kind, target, tries, lost, last_check] = plain;
        let cells = [kind, target, met, tries, lost, last_check];
        lines.push(grid::row(&group, &cells, style.colour).trim_end().to_owned());
    }
    lines.extend(wrapped(&end(result), "", "  ", style));
    lines
}

/// Returns the conditions for a page.
fn table(result: &AfterResult) -> String {
    const TITLES: [&str; 5] = ["kind", "met after", "tries", "lost", "last check"];
    let rows = each(&result.dependencies, |one| row(&one.target, cells(one)));
    headed("waits", "Conditions", ("target", &TITLES), &rows)
}

fn cells(one: &AfterDependencyResult) -> [String; 5] {
    [
        kind_name(one.kind).to_owned(),
        one.satisfied_after_ns.map_or_else(|| ABSENT.to_owned(), time),
        full_count(one.tries),
        full_count(one.lost),
        one.last_check.clone().unwrap_or_else(|| "first try not finished".to_owned()),
    ]
}

/// Returns a sentence on the outcome of the wait.
fn end(result: &AfterResult) -> String {
    let missing = result.dependencies.iter().filter(|dependency| !dependency.held).count();
    let all = result.dependencies.len();
    let waited = time(result.waited_ns);
    match result.end {
        AfterOutcome::Held if all == 1 => format!("Condition met after {waited}."),
        AfterOutcome::Held => format!("All {all} conditions met after {waited}."),
        AfterOutcome::Deadline => {
            let deadline = result.deadline_ns.map_or_else(|| waited.clone(), time);
            format!("Deadline of {deadline} passed: {missing} of {all} conditions not met.")
        }
        AfterOutcome::Interrupted => {
            format!("Ended by a signal after {waited}: {missing} of {all} conditions not met.")
        }
    }
}

/// Returns the kind of a dependency, in a word.
const fn kind_name(kind: AfterDependencyKind) -> &'static str {
    match kind {
        AfterDependencyKind::Delay => "delay",
        AfterDependencyKind::Tcp => "tcp",
        AfterDependencyKind::Udp => "udp",
        AfterDependencyKind::File => "file",
        AfterDependencyKind::Mount => "mount",
        AfterDependencyKind::Dns => "dns",
        AfterDependencyKind::Clock => "clock",
        AfterDependencyKind::Command => "command",
    }
}

/// Returns a dependency in words.
#[must_use]
pub fn dependency_name(dependency: &AfterDependencyResult) -> String {
    format!("{} {}", kind_name(dependency.kind), dependency.target)
}

/// Returns a line on a dependency that has just become satisfied, or ceased to be.
#[must_use]
pub fn after_line(dependency: &AfterDependencyResult) -> String {
    let name = dependency_name(dependency);
    let last_check = dependency.last_check.as_deref().unwrap_or_default();
    match dependency.satisfied_after_ns {
        Some(ns) => {
            let tries = dependency.tries;
            let s = if tries == 1 { "y" } else { "ies" };
            format!("{name} met after {}, {} tr{s}: {last_check}", time(ns), full_count(tries))
        }
        None => format!("{name} no longer met: {last_check}"),
    }
}

/// Formats a time in ns; from [`LONG_NS`] on in whole seconds.
fn time(ns: u64) -> String {
    if ns < LONG_NS {
        return human_ns(ns);
    }
    format!("{} s", full_count(ns / 1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn each_end_is_described() {
        let mut result: AfterResult = fixture::sample("after");
        result.end = AfterOutcome::Interrupted;
        assert!(end(&result).contains("signal after 180 s"), "{}", end(&result));
        result.end = AfterOutcome::Held;
        result.waited_ns = 3_600_000_000_000;
        assert_eq!(end(&result), "All 3 conditions met after 3,600 s.");
        let lines: Vec<_> = result.dependencies.iter().map(after_line).collect();
        assert!(lines[0].contains("tcp 192.168.1.13:2049 met after 12.3 s, 8 tries"), "{lines:?}");
        assert!(lines[1].contains("no longer met"), "{lines:?}");
    }
}
