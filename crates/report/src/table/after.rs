//! The outcome of a wait: a row for each thing that was waited for, and how it ended.

use horolog_record::{AfterEnd, AfterResult, Dependency, DependencyKind};

use super::TableStyle;
use super::grid::{self, Cell, Column, Group, Tone};
use super::summary::{finding_lines, wrapped};
use crate::units::{ABSENT, full_count, human_ns};

const KIND_WIDTH: usize = 7;
const TARGET_WIDTH: usize = 30;
/// Where `human_ns` ends.
const LONG_NS: u64 = 999_500_000_000;

/// The lines for the terminal, without a newline at the end.
#[must_use]
pub fn after(result: &AfterResult, style: &TableStyle) -> String {
    let columns = vec![
        Column::left("waited", KIND_WIDTH),
        Column::left("for", TARGET_WIDTH),
        Column::right("held after", 10),
        Column::right("tries", 7),
        Column::right("lost", 5),
        Column::left("last seen", 0),
    ];
    let group = [Group { title: "", columns }];
    let header = grid::header(&group, style.colour);
    let mut lines: Vec<_> = header.lines().skip(1).map(str::to_owned).collect();
    for dependency in &result.dependencies {
        let cells = cells(dependency);
        lines.push(grid::row(&group, &cells, style.colour).trim_end().to_owned());
    }
    lines.extend(wrapped(&end(result), "", "  ", style));
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

fn cells(dependency: &Dependency) -> [Cell; 6] {
    let held = dependency.held_after_ns.map_or_else(|| ABSENT.to_owned(), time);
    let tone = if dependency.held { Tone::Plain } else { Tone::Bad };
    let seen = dependency.seen.clone().unwrap_or_else(|| "the first try has not ended".to_owned());
    [
        Cell::plain(kind_name(dependency.kind).to_owned()),
        Cell::plain(dependency.target.clone()),
        Cell { text: held, tone },
        Cell::plain(full_count(dependency.tries)),
        Cell::plain(full_count(dependency.lost)),
        Cell::plain(seen),
    ]
}

/// How it ended, in a sentence.
pub(crate) fn end(result: &AfterResult) -> String {
    let missing = result.dependencies.iter().filter(|dependency| !dependency.held).count();
    let all = result.dependencies.len();
    let waited = time(result.waited_ns);
    match result.end {
        AfterEnd::Held if all == 1 => format!("It holds after {waited}."),
        AfterEnd::Held => format!("All {all} hold after {waited}."),
        AfterEnd::Deadline => {
            let deadline = result.deadline_ns.map_or_else(|| waited.clone(), time);
            format!("The deadline of {deadline} passed: {missing} of {all} did not hold.")
        }
        AfterEnd::Interrupted => {
            format!("Ended by a signal after {waited}: {missing} of {all} did not hold.")
        }
    }
}

/// What kind of dependency it is, in a word.
pub(crate) const fn kind_name(kind: DependencyKind) -> &'static str {
    match kind {
        DependencyKind::Delay => "delay",
        DependencyKind::Tcp => "tcp",
        DependencyKind::Udp => "udp",
        DependencyKind::File => "file",
        DependencyKind::Mount => "mount",
        DependencyKind::Dns => "dns",
        DependencyKind::Clock => "clock",
        DependencyKind::Command => "command",
    }
}

/// What a dependency is, in words.
#[must_use]
pub fn dependency_name(dependency: &Dependency) -> String {
    format!("{} {}", kind_name(dependency.kind), dependency.target)
}

/// One line on a dependency that holds now, or does not any more.
#[must_use]
pub fn after_line(dependency: &Dependency) -> String {
    let name = dependency_name(dependency);
    let seen = dependency.seen.as_deref().unwrap_or_default();
    match dependency.held_after_ns {
        Some(ns) => {
            let tries = dependency.tries;
            let s = if tries == 1 { "y" } else { "ies" };
            format!("{name} holds after {}, {} tr{s}: {seen}", time(ns), full_count(tries))
        }
        None => format!("{name} does not hold any more: {seen}"),
    }
}

/// A time, which may be long.
pub(crate) fn time(ns: u64) -> String {
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
    fn looks_like_this() {
        let style = TableStyle { colour: false, width: 100 };
        let text = after(&fixture::after(), &style);
        assert_eq!(text, include_str!("after.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn each_end_is_told() {
        let mut result = fixture::after();
        result.end = AfterEnd::Interrupted;
        assert!(end(&result).contains("signal after 180 s"), "{}", end(&result));
        result.end = AfterEnd::Held;
        result.waited_ns = 3_600_000_000_000;
        assert_eq!(end(&result), "All 3 hold after 3,600 s.");
        let lines: Vec<_> = result.dependencies.iter().map(after_line).collect();
        assert!(
            lines[0].contains("tcp 192.168.1.13:2049 holds after 12.3 s, 8 tries"),
            "{lines:?}"
        );
        assert!(lines[1].contains("does not hold any more"), "{lines:?}");
    }
}
