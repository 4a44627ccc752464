//! HTML report of a host's clocks: facts with their meaning, the clocks' figures, and the cost of
//! each reading as a plot.

use horolog_record::HostClockResult;

use super::data::{row, table};
use super::escape::{each, text};
use super::sections::{PageBody, command_line, facts, findings, host_facts, section};
use super::{PageTemplate, headline};
use crate::facts::FactGroup;
use crate::host_clock::{CLOCK_TITLES, CLOCKS_NOTE, figures, groups};
use crate::units::human_ns;

/// Returns the page as HTML. It holds the result as JSON in the element `result`.
#[must_use]
pub fn host_clock(result: &HostClockResult) -> String {
    let body = body(result);
    let run = facts(&[
        ("Command", Some(command_line(&result.command))),
        ("Started", Some(result.started.clone())),
    ]);
    let machine = format!("<div class=\"columns\">\n{run}{}</div>\n", host_facts(&result.host));
    PageTemplate {
        kind: "host clock",
        failed: None,
        heading: "clocks of this host".to_owned(),
        lead: format!("observed for {}, started {}", human_ns(result.observed_ns), result.started),
        verdict: headline::host_clock(result),
        main: body.sections() + &section("Run and host", &machine),
        note: CLOCKS_NOTE,
        schema: &result.schema,
        plots: body.plots,
        result,
    }
    .render()
}

/// Returns the content for the result.
pub(super) fn body(result: &HostClockResult) -> PageBody {
    let rows = each(&result.clocks, |clock| match &clock.error {
        Some(error) => row(&clock.name, [error.clone()]),
        None => row(&clock.name, figures(clock)),
    });
    let mut sections = vec![("Findings", findings(&result.findings))];
    sections.extend(fact_sections(&groups(result)));
    sections.push(("Clocks", table("clocks", "Clocks", &CLOCK_TITLES, &rows)));
    PageBody { sections, plots: Vec::new() }
}

/// Returns a section for each group: name, value, meaning.
pub(super) fn fact_sections(groups: &[FactGroup]) -> Vec<(&'static str, String)> {
    let of = |group: &FactGroup| {
        let rows = each(&group.facts, |fact| {
            format!(
                "<tr><th scope=\"row\" class=\"words\">{}</th><td class=\"words\">{}</td>\
                 <td class=\"words\">{}</td></tr>\n",
                text(&fact.name),
                text(&fact.value),
                text(&fact.meaning)
            )
        });
        let table = format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
             aria-label=\"{title}\">\n<table class=\"data\">\n<thead><tr><td></td><th \
             scope=\"col\" class=\"words\">value</th><th scope=\"col\" \
             class=\"words\">meaning</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n",
            title = text(group.title)
        );
        (group.title, table)
    };
    groups.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn all_facts_are_on_the_page_and_no_text_becomes_markup() {
        let mut result = fixture::host_clock();
        result.clocksource.current = Some("<img src=x>".to_owned());
        result.waking.hypervisor = Some("<script>".to_owned());
        let page = host_clock(&result);
        assert!(!page.contains("<img") && page.contains("&lt;img src=x&gt;"));
        assert!(page.contains("wrap at 32 bit") && page.contains("MONOTONIC_COARSE"));
        assert!(!page.contains("NaN") && !page.contains("{{"));
    }
}
