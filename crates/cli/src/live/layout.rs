//! Layout of the live view of a run: header, progress of the current part, the blocks of its kind
//! (lines, tables and sparklines over time), and findings. Pure.

use horolog_record::{LiveRun, LiveRunStatus, PartProgress, Snapshot};
use horolog_report::severity_name;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::sparkline::{bar, sparkline};

/// Width of a bar that stands for 100%, in columns.
pub(crate) const BAR: usize = 30;

/// Values of one kind of measurement as the live view shows them.
pub(crate) trait LiveViewValues: Sized {
    /// Returns what follows the progress of the current part.
    fn progress_note(&self) -> String {
        String::new()
    }

    /// Returns the blocks of the view in reading order; `self` are the latest values of `run`.
    fn blocks(&self, run: &LiveRun<Self>) -> Vec<LiveBlock>;
}

/// Block of a live view; an empty one is not shown.
pub(crate) enum LiveBlock {
    Lines(Vec<String>),
    Table {
        header: String,
        rows: Vec<String>,
    },
    /// Sparklines: each with its label and one value per snapshot, `None` for a gap.
    Series {
        title: String,
        lines: Vec<(String, Vec<Option<f64>>)>,
    },
}

impl LiveBlock {
    fn lines(self, columns: usize) -> Vec<Line<'static>> {
        let (header, rows) = match self {
            Self::Lines(lines) => (None, lines),
            Self::Table { header, rows } => {
                let reversed = Style::new().add_modifier(Modifier::REVERSED);
                (Some(Line::styled(header, reversed)), rows)
            }
            Self::Series { title, lines } => {
                let line = |(label, values): (String, Vec<_>)| {
                    let space = if label.is_empty() { "" } else { " " };
                    let width = columns.saturating_sub(label.chars().count() + space.len()).max(1);
                    format!("{label}{space}{}", sparkline(&values, width))
                };
                let header = (!title.is_empty()).then(|| Line::from(title));
                (header, lines.into_iter().map(line).collect())
            }
        };
        let header = header.filter(|_| !rows.is_empty());
        header.into_iter().chain(rows.into_iter().map(Line::from)).collect()
    }
}

/// Returns the lines of the live view of a run, for a terminal of this number of columns.
pub(crate) fn layout<V: LiveViewValues>(run: &LiveRun<V>, columns: usize) -> Vec<Line<'static>> {
    let title = format!("{}  {}", run.kind, run.title);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut lines = vec![Line::styled(title.trim_end().to_owned(), bold)];
    let Some(snapshot) = run.snapshots.last() else {
        lines.push(Line::from(run.initial_state.clone()));
        return lines;
    };
    lines.push(Line::from(progress(run, snapshot)));
    let findings = run.findings.iter().map(|finding| {
        let severity = severity_name(finding.severity);
        format!("{severity}: {}", finding.message)
    });
    let mut blocks = snapshot.values.blocks(run);
    blocks.push(LiveBlock::Lines(findings.collect()));
    for block in blocks {
        let block_lines = block.lines(columns);
        if !block_lines.is_empty() {
            lines.push(Line::default());
            lines.extend(block_lines);
        }
    }
    lines
}

/// Returns the number and the name of a part, such as `trial 2 of 3 (overload): `.
pub(crate) fn part_label(part_kind: &str, part: &PartProgress) -> String {
    let total = part.count.map(|count| format!(" of {count}")).unwrap_or_default();
    match (part_kind, &*part.name) {
        ("", "") => String::new(),
        ("", name) => format!("{name}: "),
        (kind, "") => format!("{kind} {}{total}: ", part.index + 1),
        (kind, name) => format!("{kind} {}{total} ({name}): ", part.index + 1),
    }
}

/// Returns the line on the progress of the current part: its number, elapsed and planned time.
fn progress<V: LiveViewValues>(run: &LiveRun<V>, snapshot: &Snapshot<V>) -> String {
    let (part, label) = (&snapshot.part, part_label(run.part_kind, &snapshot.part));
    if run.state == LiveRunStatus::Ended {
        return format!("{label}finished after {:.1} s", snapshot.at_s);
    }
    let (elapsed, note) = (part.elapsed_s, snapshot.values.progress_note());
    match part.duration_s.filter(|duration| *duration > 0.0) {
        None => format!("{label}{elapsed:.1} s{note}"),
        Some(duration) => {
            let done = bar(elapsed / duration, BAR);
            format!("{label}{elapsed:.1} of {duration:.1} s  {done:BAR$}|{note}")
        }
    }
}

/// Returns a value of each snapshot of the current part, computed from the values before it, if
/// there are any, and its own.
pub(crate) fn part_series<V>(
    run: &LiveRun<V>,
    value_of: impl Fn(Option<&V>, &V) -> Option<f64>,
) -> Vec<Option<f64>> {
    let part_of = |snapshot: &Snapshot<V>| (snapshot.part.index, snapshot.part.name.clone());
    let current = run.snapshots.last().map(part_of);
    let (mut before, mut values) = (None, Vec::new());
    for snapshot in run.snapshots.since(0).1 {
        if current.as_ref().is_some_and(|(index, name)| {
            (snapshot.part.index, &snapshot.part.name) == (*index, name)
        }) {
            values.push(value_of(before, &snapshot.values));
            before = Some(&snapshot.values);
        }
    }
    values
}

/// Returns the live view of a run as text.
#[cfg(test)]
pub(crate) fn drawn<V: LiveViewValues>(run: &LiveRun<V>, columns: usize) -> String {
    layout(run, columns).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
