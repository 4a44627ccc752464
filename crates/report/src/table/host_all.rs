//! Terminal text of `host all`: main metric of each part, verdict, and worst findings with advice.

use horolog_record::{HostAllResult, HostMeasurementOutcome, HostVerdict, RankedFinding, Severity};

use super::TableStyle;
use super::grid::CellTone;
use super::summary::{limit_lines, wrapped};
use crate::findings::severity_name;
use crate::host_all::{
    headline, origin, part_name, shortfall, state_name, verdict_name, verdict_sentence,
};
use crate::units::human_ns;

const NAME_WIDTH: usize = 14;

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn host_all(result: &HostAllResult, style: &TableStyle) -> String {
    let mut lines: Vec<_> = result.parts.iter().flat_map(|one| part(result, one, style)).collect();
    lines.push(String::new());
    let tone = match result.verdict {
        HostVerdict::Fit => CellTone::Strong,
        HostVerdict::Marginal | HostVerdict::Unjudged => CellTone::Warning,
        HostVerdict::Unfit => CellTone::Bad,
    };
    lines.push(tone.paint(verdict_name(result.verdict), style.colour));
    lines.extend(wrapped(verdict_sentence(result.verdict), "  ", "  ", style));
    lines.extend(result.worst_findings.iter().flat_map(|one| worst(one, style)));
    lines.extend(limit_lines(&result.limits, style));
    lines.join("\n")
}

/// Returns the outcome of a part, in one line.
#[must_use]
pub fn host_part(outcome: &HostMeasurementOutcome) -> String {
    let (name, state) = (part_name(outcome), state_name(outcome.state));
    match outcome.duration_ns {
        0 => format!("{name}: {state}"),
        took_ns => format!("{name}: {state}, {}", human_ns(took_ns)),
    }
}

/// Returns the main metric of a part, and its unmet prerequisites.
fn part(
    result: &HostAllResult,
    outcome: &HostMeasurementOutcome,
    style: &TableStyle,
) -> Vec<String> {
    let name = format!("{:<NAME_WIDTH$}", part_name(outcome));
    let indent = " ".repeat(NAME_WIDTH);
    let texts: Vec<_> =
        [headline(result, outcome), shortfall(outcome)].into_iter().flatten().collect();
    let firsts = std::iter::once(&name).chain(std::iter::repeat(&indent));
    texts
        .iter()
        .zip(firsts)
        .flat_map(|(text, first)| wrapped(text, first, &indent, style))
        .collect()
}

fn worst(worst: &RankedFinding, style: &TableStyle) -> Vec<String> {
    let finding = &worst.finding;
    let tone = match finding.severity {
        Severity::Error => CellTone::Bad,
        Severity::Warning => CellTone::Warning,
        Severity::Note => CellTone::Plain,
    };
    let name = severity_name(finding.severity);
    let text = format!("{name} ({}): {}", origin(worst), finding.message);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 100 };
        let text = host_all(&fixture::host_all(), &style);
        assert_eq!(text, include_str!("host_all.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn a_narrow_terminal_keeps_all_of_it() {
        let style = TableStyle { colour: false, width: 60 };
        let text = host_all(&fixture::host_all(), &style);
        assert!(text.contains("not fit") && text.contains("nic eth0"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    }

    #[test]
    fn a_part_that_is_done_is_a_line() {
        let mut timer = fixture::host_all().parts[2].clone();
        assert_eq!(host_part(&timer), "timer: partly measured, 10.1 s");
        (timer.state, timer.duration_ns) = (horolog_record::HostMeasurementState::Skipped, 0);
        assert_eq!(host_part(&timer), "timer: skipped");
    }
}
