//! Terminal list of stored runs, one line each.

use horolog_record::{StoredRun, StoredRunList};

use super::TableStyle;
use super::grid::{self, CellTone, GridCell, GridColumn, GridColumnGroup};
use crate::units::full_count;

/// Minimum width of the column of commands, unless all are shorter.
const COMMAND_MIN: usize = 16;
/// Length in characters of an instant such as `2026-01-01T00:00:00`.
const INSTANT: usize = 19;

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn run_list(list: &StoredRunList, style: &TableStyle) -> String {
    if list.runs.is_empty() {
        return format!("No matching run in {}.", list.store);
    }
    let widest = |width: fn(&StoredRun) -> usize, title: &str| {
        list.runs.iter().map(width).max().unwrap_or(0).max(title.len())
    };
    let id = widest(|run| run.id.to_string().len(), "run");
    let name = widest(|run| run.name.as_ref().map_or(0, String::len), "name");
    let kind = widest(|run| kind(run).chars().count(), "kind");
    let findings = widest(|run| findings_text(run).len(), "findings");
    let before = id + name + kind + findings + INSTANT + 5;
    // Without a terminal, the width is unlimited.
    let longest = widest(|run| run.command.chars().count(), "command");
    let command = style.width.saturating_sub(before).max(COMMAND_MIN).min(longest);
    let columns = vec![
        GridColumn::right("run", id),
        GridColumn::left("started (UTC)", INSTANT),
        GridColumn::left("kind", kind),
        GridColumn::left("findings", findings),
        GridColumn::left("name", name),
        GridColumn::left("command", command),
    ];
    let groups = [GridColumnGroup { title: "", columns }];
    let title = grid::header(&groups, style.colour);
    let mut lines: Vec<_> = title.lines().skip(1).map(str::to_owned).collect();
    lines.extend(list.runs.iter().map(|run| row(run, command, &groups, style)));
    lines.join("\n")
}

fn row(
    run: &StoredRun,
    command: usize,
    groups: &[GridColumnGroup<'_>],
    style: &TableStyle,
) -> String {
    let tone = match (run.errors.saturating_add(run.broken_limits), run.warnings) {
        (0, 0) => CellTone::Plain,
        (0, _) => CellTone::Warning,
        _ => CellTone::Bad,
    };
    let cells = [
        GridCell::plain(run.id.to_string()),
        GridCell::plain(run.started.chars().take(INSTANT).map(|c| plain(c, 'T')).collect()),
        GridCell::plain(kind(run)),
        GridCell { text: findings_text(run), tone },
        GridCell::plain(run.name.clone().unwrap_or_default()),
        GridCell::plain(cut(&run.command, command)),
    ];
    grid::row(groups, &cells, style.colour).trim_end().to_owned()
}

/// Replaces the letter between date and time, and characters that move a terminal's cursor.
fn plain(c: char, between: char) -> char {
    if c == between || c.is_control() { ' ' } else { c }
}

/// Returns the kind of a run: its schema without `horolog.` and version.
fn kind(run: &StoredRun) -> String {
    let kind = run.kind.strip_prefix("horolog.").unwrap_or(&run.kind);
    kind.split('/').next().unwrap_or_default().chars().filter(|c| !c.is_control()).collect()
}

fn findings_text(run: &StoredRun) -> String {
    let phrase = |count: u64, one: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{} {one}s", full_count(count))),
    };
    let phrases = [
        phrase(run.broken_limits, "failed limit"),
        phrase(run.errors, "error"),
        phrase(run.warnings, "warning"),
    ];
    phrases.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns the command without its first word, the program, cut to `width` characters.
fn cut(command: &str, width: usize) -> String {
    let words = command.split_once(' ').map_or("", |(_, words)| words);
    let text: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().count() <= width {
        return text;
    }
    let prefix: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{prefix}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> StoredRunList {
        let run = |id, name: Option<&str>, [errors, warnings]: [u64; 2], command: &str| StoredRun {
            id,
            key: "00ff00ff00ff00ff".to_owned(),
            name: name.map(str::to_owned),
            kind: "horolog.load/2".to_owned(),
            started: "2026-01-01T00:00:00.123456789Z".to_owned(),
            command: command.to_owned(),
            errors,
            warnings,
            broken_limits: u64::from(id == 11),
            bytes: 1_000,
        };
        let runs = vec![
            run(9, None, [0, 0], "/usr/bin/horolog load ntp 192.0.2.1"),
            run(
                10,
                Some("main"),
                [1, 2],
                "horolog load ntp 192.0.2.1 --rate 1k-100k --json a-file",
            ),
            run(11, None, [0, 1], "horolog \u{1b}[2J"),
        ];
        StoredRunList { schema: "horolog.runs/1".to_owned(), store: "runs.sqlite".to_owned(), runs }
    }

    #[test]
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 90 };
        assert_eq!(run_list(&list(), &style), include_str!("run_list.txt").trim_end());
    }

    #[test]
    fn lines_are_no_wider_than_the_terminal() {
        for width in [80, 100, 200, usize::MAX] {
            let text = run_list(&list(), &TableStyle { colour: false, width });
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
        }
    }

    #[test]
    fn a_command_of_any_length_is_shown() {
        let mut list = list();
        list.runs[0].command = format!("horolog {}", "x".repeat(100_000));
        let text = run_list(&list, &TableStyle { colour: false, width: usize::MAX });
        assert!(text.lines().any(|line| line.ends_with(&"x".repeat(100_000))));
    }

    #[test]
    fn no_run_is_a_sentence() {
        let text = run_list(&StoredRunList { runs: Vec::new(), ..list() }, &TableStyle::default());
        assert!(text.contains("No matching run in runs.sqlite"));
    }
}
