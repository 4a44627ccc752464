//! NIC: facts with their meaning, and recommended changes with their commands.

use horolog_record::HostNicResult;

use super::TableStyle;
use super::grid::Tone;
use super::host_clock::fact_lines;
use super::summary::{finding_lines, wrapped};
use crate::host_nic::{advice, change, groups};

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn host_nic(result: &HostNicResult, style: &TableStyle) -> String {
    let mut lines = vec![Tone::Strong.paint(&result.interface, style.colour)];
    lines.extend(fact_lines(&groups(result), style));
    for (title, advice) in advice(result) {
        if !advice.is_empty() {
            lines.push(Tone::Strong.paint(title, style.colour));
        }
        for one in advice {
            lines.extend(wrapped(&change(one), "  ", "    ", style));
            // Not wrapped, so that it can be copied.
            lines.extend(one.command.iter().map(|command| format!("      {command}")));
        }
    }
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 100 };
        let text = host_nic(&fixture::host_nic(), &style);
        assert_eq!(text, include_str!("host_nic.txt").trim_end(), "\n{text}");
    }
}
