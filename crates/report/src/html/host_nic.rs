//! HTML report of a NIC: facts with their meaning, and recommended changes.

use horolog_record::{HostNicResult, NicAdvice};

use super::escape::{each, text};
use super::host_clock::fact_sections;
use super::sections::{PageBody, command_line, facts, findings, host_facts, section};
use super::{PageTemplate, headline};
use crate::host_nic::{advice, change, groups};

/// Returns the page as HTML. It holds the result as JSON in the element `result`.
#[must_use]
pub fn host_nic(result: &HostNicResult) -> String {
    let body = body(result);
    let run = facts(&[
        ("Command", Some(command_line(&result.command))),
        ("Started", Some(result.started.clone())),
    ]);
    let machine = format!("<div class=\"columns\">\n{run}{}</div>\n", host_facts(&result.host));
    PageTemplate {
        kind: "host nic",
        failed: None,
        heading: format!("interface {}", result.interface),
        lead: format!("as reported by the driver and the kernel, {}", result.started),
        verdict: headline::host_nic(result),
        main: body.sections() + &section("Run and host", &machine),
        note: "No settings were changed.",
        schema: &result.schema,
        plots: body.plots,
        result,
    }
    .render()
}

/// Returns the content for the result.
pub(super) fn body(result: &HostNicResult) -> PageBody {
    let mut sections = advice(result).map(|(title, advice)| (title, list(&advice))).to_vec();
    sections.push(("Findings", findings(&result.findings)));
    sections.extend(fact_sections(&groups(result)));
    PageBody { sections, plots: Vec::new() }
}

fn list(advice: &[&NicAdvice]) -> String {
    if advice.is_empty() {
        return String::new();
    }
    let items = each(advice, |advice| {
        let command = each(&advice.command, |command| {
            format!("<p class=\"advice\"><code>{}</code></p>", text(command))
        });
        format!("<li class=\"note\"><p>{}</p>{command}</li>\n", text(&change(advice)))
    });
    format!("<ul class=\"findings\">\n{items}</ul>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn facts_and_changes_are_on_the_page_and_no_text_becomes_markup() {
        let mut result = fixture::host_nic();
        result.interface = "<img src=x>".to_owned();
        result.unavailable[0].reason = "<script>".to_owned();
        let page = host_nic(&result);
        assert!(!page.contains("<img") && page.contains("&lt;img src=x&gt;"));
        assert!(page.contains("ethtool -G eth0 rx 4096") && page.contains("PHC"));
        assert!(!page.contains("{{") && !page.contains("NaN"));
    }
}
