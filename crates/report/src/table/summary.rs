//! Lines below tables: conclusions, limits and findings, and wrapped text.

use horolog_record::{Finding, LimitResult, Severity};

use super::TableStyle;
use super::grid::CellTone;
use crate::findings::{FindingGroup, grouped, severity_name, trial_label};
use crate::limits;

/// Maximum length of a line of running text, whatever the width of the terminal.
const LINE_MAX: usize = 100;

/// Returns the limits of the run, in the order of the command line.
pub(crate) fn limit_lines(limits: &[LimitResult], style: &TableStyle) -> Vec<String> {
    let tone = |limit: &LimitResult| if limit.failed { CellTone::Bad } else { CellTone::Plain };
    let painted = |limit| tone(limit).paint(&limits::line(limit), style.colour);
    limits.iter().map(painted).collect()
}

/// Returns the findings, the worst first.
pub(crate) fn finding_lines(findings: &[Finding], style: &TableStyle) -> Vec<String> {
    grouped(findings).iter().flat_map(|group| group_lines(group, style)).collect()
}

fn group_lines(group: &FindingGroup<'_>, style: &TableStyle) -> Vec<String> {
    let first = group.first;
    let others = others(group);
    let message = match &*others {
        "" => &*first.message,
        _ => first.message.trim_end_matches('.'),
    };
    finding(first, trial_label(first), &format!("{message}{others}"), style)
}

/// Returns a finding with this message and its advice; `label` names its origin.
pub(crate) fn finding(
    finding: &Finding,
    label: Option<String>,
    message: &str,
    style: &TableStyle,
) -> Vec<String> {
    let tone = match finding.severity {
        Severity::Error => CellTone::Bad,
        Severity::Warning => CellTone::Warning,
        Severity::Note => CellTone::Plain,
    };
    let name = severity_name(finding.severity);
    let label = label.map_or_else(String::new, |label| format!(" ({label})"));
    let text = format!("{name}{label}: {message}");
    let mut lines = wrapped(&text, "", "  ", style);
    if let Some(line) = lines.first_mut()
        && let Some(rest) = line.strip_prefix(name)
    {
        *line = format!("{}{rest}", tone.paint(name, style.colour));
    }
    if !finding.advice.is_empty() {
        lines.extend(wrapped(&finding.advice, "  → ", "    ", style));
    }
    lines
}

/// Returns the number of further findings of a group, and their trials: `; and 2 more of this kind,
/// in trials 3, 5`. Empty without further findings.
fn others(group: &FindingGroup<'_>) -> String {
    let trials: Vec<_> = group
        .others
        .iter()
        .filter_map(|finding| finding.trial)
        .map(|index| index.saturating_add(1).to_string())
        .collect();
    match (group.others.len(), trials.is_empty()) {
        (0, _) => String::new(),
        (count, true) => format!("; and {count} more of this kind"),
        (count, false) => {
            format!("; and {count} more of this kind, in trials {}", trials.join(", "))
        }
    }
}

/// Wraps a text in lines of at most the style's width, but between 20 and [`LINE_MAX`] columns: the
/// first begins with `first`, the others with `rest`. Longer words are not broken.
pub(crate) fn wrapped(text: &str, first: &str, rest: &str, style: &TableStyle) -> Vec<String> {
    let width = style.width.clamp(20, LINE_MAX);
    let mut lines = Vec::new();
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, rest.to_owned()));
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use horolog_record::FindingCode;

    use super::*;
    use crate::fixture;

    const STYLE: TableStyle = TableStyle { colour: false, width: 80 };

    #[test]
    fn findings_of_many_trials_are_reported_once() {
        let mut result = fixture::load();
        result.findings = (0..3)
            .map(|trial| {
                let (code, severity) = (FindingCode::GeneratorBehind, Severity::Warning);
                fixture::finding(code, severity, "It fell behind.", "Wait.", Some(trial))
            })
            .collect();
        let text = finding_lines(&result.findings, &STYLE).join("\n");
        assert_eq!(text.matches("It fell behind").count(), 1);
        assert!(text.contains("It fell behind; and 2 more of this kind, in trials 2, 3"), "{text}");
    }

    #[test]
    fn the_severity_is_a_word_before_it_is_a_colour() {
        let findings = fixture::load().findings;
        let text = |colour| finding_lines(&findings, &TableStyle { colour, ..STYLE }).join("\n");
        assert!(text(false).contains("warning (trial 10): The generator"));
        let coloured = text(true);
        assert!(coloured.contains("\x1b[33mwarning\x1b[0m (trial 10)"));
    }

    #[test]
    fn a_narrow_terminal_cuts_no_word() {
        let style = TableStyle { colour: false, width: 24 };
        let lines = wrapped("a word and averyverylongwordthatfitsnowhere b", "", "  ", &style);
        assert_eq!(lines, ["a word and", "  averyverylongwordthatfitsnowhere", "  b"]);
    }
}
