//! Checks as Markdown, for job summaries of GitHub Actions and other CI systems: the verdict, one
//! row per check, the findings, and the result as text.

use std::fmt::Write as _;

use crate::checks::{CaseOutcome, CheckCase, CommandChecks};

/// Maximum number of rows of checks. Checks beyond it, failed ones last, are only counted; a
/// comparison may have thousands.
const ROWS_MAX: usize = 50;

/// Returns the Markdown text. It ends with an empty line, so that further text may follow.
#[must_use]
pub fn summary(checks: &CommandChecks) -> String {
    let failed = checks.count(&CaseOutcome::Failed) + checks.count(&CaseOutcome::Error);
    let verdict = match failed {
        0 => "passed".to_owned(),
        failed => format!("{failed} of {} checks failed", checks.cases.len()),
    };
    let mut lines = vec![format!("## {}: {verdict}", escaped(&checks.title)), String::new()];
    if let Some(started) = &checks.started {
        lines.push(format!("Started {}, duration {:.1} s.", escaped(started), checks.seconds));
        lines.push(String::new());
    }
    lines.extend(["| check | measured | verdict |", "|---|---|---|"].map(str::to_owned));
    let (rows, left_out) = shown(&checks.cases);
    lines.extend(rows.into_iter().map(row));
    lines.push(String::new());
    if left_out > 0 {
        let hidden = failed.saturating_sub(ROWS_MAX);
        let more = match hidden {
            0 => format!("{left_out} more passed or are undetermined."),
            hidden => format!("{left_out} more are not shown; {hidden} of them failed."),
        };
        lines.extend([more, String::new()]);
    }
    let findings = checks.finding_lines();
    lines.extend(findings.iter().map(|finding| format!("- {}", escaped(finding))));
    if !findings.is_empty() {
        lines.push(String::new());
    }
    if let Some(text) = &checks.text {
        lines.extend(block(text));
    }
    lines.join("\n") + "\n"
}

/// Returns the checks to show, failed ones first, and the number of omitted ones.
fn shown(cases: &[CheckCase]) -> (Vec<&CheckCase>, usize) {
    let is_wrong =
        |case: &&CheckCase| matches!(case.outcome, CaseOutcome::Failed | CaseOutcome::Error);
    let others = cases.iter().filter(|case| !is_wrong(case));
    let mut rows: Vec<_> = cases.iter().filter(is_wrong).chain(others).collect();
    let left_out = rows.len().saturating_sub(ROWS_MAX);
    rows.truncate(ROWS_MAX);
    (rows, left_out)
}

fn row(case: &CheckCase) -> String {
    let verdict = match case.outcome {
        CaseOutcome::Passed => "passed",
        CaseOutcome::Failed => "**failed**",
        CaseOutcome::Error => "**not measured**",
        CaseOutcome::Skipped => "undetermined",
    };
    format!("| {} | {} | {verdict} |", escaped(&case.name), escaped(&case.detail))
}

/// Returns a text as a collapsed code block; its fence is longer than any fence in the text.
fn block(text: &str) -> Vec<String> {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let text: String = text.chars().filter(|c| *c == '\n' || !c.is_control()).collect();
    let around = ["<details><summary>The result</summary>", "", &*fence];
    let mut lines = around.map(str::to_owned).to_vec();
    lines.extend([text, fence.clone(), String::new(), "</details>".to_owned(), String::new()]);
    lines
}

/// Escapes text as plain text on one line: each character that Markdown or HTML may give a meaning
/// to is written as a reference.
fn escaped(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    for character in raw.chars() {
        match character {
            '&' | '<' | '>' | '|' | '`' | '*' | '_' | '[' | ']' | '\\' | '~' | '#' | '!' | '@'
            | '$' | '"' => {
                // Writing to memory cannot fail.
                let _ = write!(text, "&#{};", u32::from(character));
            }
            control if control.is_control() => text.push(' '),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::checks::CommandOutcome;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let text = summary(&fixture::checks());
        assert_eq!(text, include_str!("summary.md"), "\n{text}");
    }

    #[test]
    fn what_failed_is_shown_before_what_passed() {
        let case = |outcome: CaseOutcome, count: usize| {
            vec![CheckCase { name: "n".to_owned(), outcome, detail: "t".to_owned() }; count]
        };
        let cases = [case(CaseOutcome::Passed, 60), case(CaseOutcome::Failed, 2)].concat();
        let (rows, left_out) = shown(&cases);
        assert_eq!((rows.len(), left_out), (ROWS_MAX, 12));
        assert!(rows[..2].iter().all(|case| case.outcome == CaseOutcome::Failed));
    }

    proptest! {
        /// No name of a server adds a row, a link, a mention or markup.
        #[test]
        fn hostile_texts_break_nothing(raw in r"[\x00-\x7f]{0,40}|[|`<>*\[\]()@#\n\r-]{0,40}") {
            let message = format!("{raw}|`</details>\n| x | y | z |");
            let result = json!({
                "schema": "horolog.new/1",
                "started": message,
                "limits": [
                    { "expression": message, "unit": "ns", "bound": 1.0, "scope": raw, "failed": true },
                ],
                "findings": [
                    { "code": "trials-inconsistent", "severity": "warning", "message": message, "advice": raw },
                ],
            });
            let text = summary(&CommandChecks::of(&[], Some(&result), &CommandOutcome::Done, 1.0));
            prop_assert_eq!(text.lines().filter(|line| line.starts_with('|')).count(), 4);
            prop_assert!(!text.contains(['<', '`', '@', '[', '\r']), "{text}");
        }

        #[test]
        fn a_fence_is_longer_than_any_in_the_text(raw in "[`a\n]{0,40}") {
            let lines = block(&raw);
            let fence = &lines[2];
            prop_assert!(fence.len() > 2 && !raw.contains(&**fence));
        }
    }
}
