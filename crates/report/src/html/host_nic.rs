//! The page of a network card: facts with what they mean, and what to change.

use horolog_record::HostNicResult;

use super::Page;
use super::escape::{each, text};
use super::host_clock::fact_sections;
use super::sections::{command_line, facts, findings, host_facts, section};
use crate::host_nic::{ADVICE, change, groups};

/// The page as HTML. It holds the result as JSON in the element `result`.
#[must_use]
pub fn host_nic(result: &HostNicResult) -> String {
    let run = facts(&[
        ("Command", Some(command_line(&result.command))),
        ("Started", Some(result.started.clone())),
    ]);
    let machine = format!("<div class=\"columns\">\n{run}{}</div>\n", host_facts(&result.host));
    let main = [
        section(ADVICE, &changes(result)),
        section("Findings", &findings(&result.findings)),
        fact_sections(&groups(result)),
        section("Run and machine", &machine),
    ];
    Page {
        kind: "host nic",
        heading: format!("interface {}", result.interface),
        lead: format!("as its driver and the kernel tell, {}", result.started),
        main: main.concat(),
        note: "Nothing was set.",
        schema: &result.schema,
        plots: Vec::new(),
        result,
    }
    .render()
}

fn changes(result: &HostNicResult) -> String {
    if result.advice.is_empty() {
        return String::new();
    }
    let items = each(&result.advice, |advice| {
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
        result.untold[0].why = "<script>".to_owned();
        let page = host_nic(&result);
        assert!(!page.contains("<img") && page.contains("&lt;img src=x&gt;"));
        assert!(page.contains("ethtool -G eth0 rx 4096") && page.contains("card&#39;s clock"));
        assert!(!page.contains("{{") && !page.contains("NaN"));
    }
}
