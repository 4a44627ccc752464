//! Checks as `JUnit` XML, which most CI systems read: one test suite with a test case per check,
//! and the findings as its output.

use std::fmt::Write as _;

use crate::checks::{CaseOutcome, CheckCase, CommandChecks};

/// Length in characters of `2026-01-31T12:00:00`: `JUnit` timestamps have neither fraction nor time
/// zone.
const INSTANT: usize = 19;

/// Returns the checks and findings as a `JUnit` XML document.
#[must_use]
pub fn junit(checks: &CommandChecks) -> String {
    let counts = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3}\"",
        checks.cases.len(),
        checks.count(&CaseOutcome::Failed),
        checks.count(&CaseOutcome::Error),
        checks.count(&CaseOutcome::Skipped),
        checks.seconds
    );
    let started = checks.started.as_deref().map_or_else(String::new, |started| {
        let instant: String = started.chars().take(INSTANT).collect();
        format!(" timestamp=\"{}\"", escaped(&instant))
    });
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  \
         <testsuite name=\"{}\" {counts}{started}>\n",
        escaped(&checks.title)
    );
    for one in &checks.cases {
        xml.push_str(&case(one, &checks.class));
    }
    let findings = checks.finding_lines();
    if !findings.is_empty() {
        // Writing to memory cannot fail.
        let _ = writeln!(xml, "    <system-out>{}</system-out>", escaped(&findings.join("\n")));
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

fn case(case: &CheckCase, class: &str) -> String {
    let detail = escaped(&case.detail);
    let inner = match case.outcome {
        CaseOutcome::Passed => format!("<system-out>{detail}</system-out>"),
        CaseOutcome::Failed => format!("<failure type=\"failed\" message=\"{detail}\"/>"),
        CaseOutcome::Error => format!("<error type=\"not measured\" message=\"{detail}\"/>"),
        CaseOutcome::Skipped => format!("<skipped message=\"{detail}\"/>"),
    };
    format!(
        "    <testcase classname=\"{}\" name=\"{}\" time=\"0\">\n      {inner}\n    </testcase>\n",
        escaped(class),
        escaped(&case.name)
    )
}

/// Escapes text for an element or an attribute; characters that XML 1.0 does not allow at all, not
/// even as a reference, become a replacement character.
fn escaped(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    for character in raw.chars() {
        match character {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            // Readers convert these to spaces in attributes, and a carriage return to a newline.
            '\n' => text.push_str("&#10;"),
            '\r' => text.push_str("&#13;"),
            '\t' => text.push_str("&#9;"),
            '\u{fffe}' | '\u{ffff}' => text.push(char::REPLACEMENT_CHARACTER),
            control if control < ' ' => text.push(char::REPLACEMENT_CHARACTER),
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
        let xml = junit(&fixture::checks());
        assert_eq!(xml, include_str!("junit.xml"), "\n{xml}");
    }

    /// Returns a text as an XML parser reads it.
    fn unescaped(text: &str) -> String {
        let parts = [
            ("&#10;", "\n"),
            ("&#13;", "\r"),
            ("&#9;", "\t"),
            ("&quot;", "\""),
            ("&gt;", ">"),
            ("&lt;", "<"),
            ("&amp;", "&"),
        ];
        parts.into_iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    proptest! {
        /// Any text from a server or a user leaves the file well-formed and is read back unchanged.
        #[test]
        fn hostile_texts_break_nothing(raw in r#"[\x00-\x7f\u{80}-\u{10ffff}]{0,40}|[<>&"'\]\x00-\x1f-]{0,40}"#) {
            let message = format!("]]><!--{raw}\"/></testsuite>&");
            let result = json!({
                "schema": format!("horolog.x{raw}/1"),
                "started": message,
                "limits": [
                    { "expression": message, "unit": "ns", "bound": 1.0, "value": 2.0, "scope": raw, "failed": true },
                ],
                "findings": [
                    { "code": "trials-inconsistent", "severity": "warning", "message": message, "advice": raw },
                ],
            });
            let xml = junit(&CommandChecks::of(&[String::new(), raw.clone()], Some(&result), &CommandOutcome::Done, 1.0));
            let names = ["testsuites", "testsuite", "testcase", "system-out", "failure", "?xml"];
            for tag in xml.split('<').skip(1) {
                let name = tag.trim_start_matches('/').split([' ', '>']).next().unwrap();
                prop_assert!(names.contains(&name), "{tag}");
                prop_assert_eq!(tag.matches('>').count(), 1, "{}", tag);
                prop_assert_eq!(tag.matches('"').count() % 2, 0, "{}", tag);
            }
            prop_assert_eq!(xml.matches("<testcase ").count(), 2);
            let is_allowed = |c| c == '\n' || c >= ' ' && !matches!(c, '\u{fffe}' | '\u{ffff}');
            prop_assert!(xml.chars().all(is_allowed));
        }

        #[test]
        fn a_text_is_what_it_was(raw in "[^\x00-\x08\x0b\x0c\x0e-\x1f\u{fffe}\u{ffff}]{0,40}") {
            prop_assert_eq!(unescaped(&escaped(&raw)), raw);
        }
    }
}
