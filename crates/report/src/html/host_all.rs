//! HTML report of `host all`: verdict, worst findings, one row per part, and each part as in its
//! own report.

use horolog_record::{HostAllResult, HostMeasurementOutcome, RankedFinding};

use super::PageTemplate;
use super::escape::{each, text};
use super::plot::Plot;
use super::sections::{command_line, facts, findings, host_facts, limits, section, verdict};
use crate::document::DescribeResult;
use crate::findings::severity_name;
use crate::host_all::{
    headline, origin, part_name, shortfall, state_name, verdict_name, verdict_sentence,
};
use crate::limits::failed;
use crate::units::{ABSENT, human_ns};

const NOTE: &str = "Each part is measured by the command of the same name; see there for the \
    method.";

/// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn host_all(result: &HostAllResult) -> String {
    let parts = parts(result);
    let main = [
        section("Limits", &limits(&result.limits)),
        section("Worst findings", &worst(&result.worst_findings)),
        section("Parts", &overview(result)),
        section("Overall", &findings(&result.findings)),
        each(&parts, |(markup, _)| markup.clone()),
        section("Run and host", &machine(result)),
    ];
    PageTemplate {
        kind: "host all",
        failed: failed(&result.limits),
        heading: "host qualification".to_owned(),
        lead: format!("{} parts, started {}", parts.len(), result.started),
        verdict: verdict(
            "For measuring in microseconds",
            verdict_name(result.verdict),
            verdict_sentence(result.verdict),
            &[],
        ),
        main: main.concat(),
        note: NOTE,
        schema: &result.schema,
        plots: parts.into_iter().flat_map(|(_, plots)| plots).collect(),
        result,
    }
    .render()
}

/// Returns the sections of the parts that have a result, with their plots, in the order in which
/// they ran.
fn parts(result: &HostAllResult) -> Vec<(String, Vec<Plot>)> {
    let parts = [
        result.clock.as_ref().map(|one| one.part("Clocks")),
        result.delay.as_ref().map(|one| one.part("Delays")),
        result.timer.as_ref().map(|one| one.part("Wake-ups")),
        result.switch.as_ref().map(|one| one.part("Switches")),
        result.interrupt.as_ref().map(|one| one.part("Handlers and OS noise")),
    ];
    let nics = result.nics.iter().map(|one| one.part(&format!("Interface {}", one.interface)));
    parts.into_iter().flatten().chain(nics).collect()
}

fn worst(worst: &[RankedFinding]) -> String {
    if worst.is_empty() {
        return "<p>No findings.</p>\n".to_owned();
    }
    let items = each(worst, |one| {
        let severity = severity_name(one.finding.severity);
        format!(
            "<li class=\"{severity}\"><span class=\"severity\">{severity}</span><p>{} \
             <span class=\"trial\">({})</span></p><p class=\"advice\">{}</p></li>\n",
            text(&one.finding.message),
            text(&origin(one)),
            text(&one.finding.advice)
        )
    });
    format!("<ul class=\"findings\">\n{items}</ul>\n")
}

fn overview(result: &HostAllResult) -> String {
    let of = |outcome: &HostMeasurementOutcome| {
        let state = shortfall(outcome).unwrap_or_else(|| state_name(outcome.state).to_owned());
        let headline = headline(result, outcome).unwrap_or_else(|| ABSENT.to_owned());
        let words =
            each([headline, state], |cell| format!("<td class=\"words\">{}</td>", text(&cell)));
        let (name, took) = (part_name(outcome), human_ns(outcome.duration_ns));
        format!(
            "<tr><th scope=\"row\" class=\"words\">{}</th><td>{took}</td>{words}</tr>\n",
            text(&name)
        )
    };
    let rows = each(&result.parts, of);
    format!(
        "<div class=\"scroll\" id=\"parts\" tabindex=\"0\" role=\"region\" \
         aria-label=\"Parts\">\n<table class=\"data\">\n<thead><tr><td></td><th \
         scope=\"col\">duration</th><th scope=\"col\" class=\"words\">main result</th><th \
         scope=\"col\" \
         class=\"words\">state</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n"
    )
}

fn machine(result: &HostAllResult) -> String {
    let run = facts(&[
        ("Command", Some(command_line(&result.command))),
        ("Started", Some(result.started.clone())),
    ]);
    format!("<div class=\"columns\">\n{run}{}</div>\n", host_facts(&result.host))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::fixture;

    #[test]
    fn each_part_is_on_it_with_its_plots_and_no_text_becomes_markup() {
        let mut result = fixture::host_all();
        result.worst_findings[0].finding.message = "<img src=x>".to_owned();
        result.parts[0].reason = vec!["<script>".to_owned()];
        let page = host_all(&result);
        assert!(!page.contains("<img") && page.contains("&lt;img src=x&gt;"));
        for shown in ["not fit", "wrap at 32 bit", "plot-median", "plot-wake-ups-histogram"] {
            assert!(page.contains(shown), "{shown}");
        }
        for shown in ["plot-turns-tail", "plot-gaps", "Interface eth0", "ethtool -G eth0"] {
            assert!(page.contains(shown), "{shown}");
        }
        assert!(page.len() < 1_000_000 && !page.contains("NaN"), "{}", page.len());
    }

    #[test]
    fn no_two_elements_have_one_name() {
        let mut result = fixture::host_all();
        let second = horolog_record::HostNicResult {
            interface: "eth1".to_owned(),
            ..result.nics[0].clone()
        };
        result.nics.push(second);
        let page = host_all(&result);
        let (markup, _) = page.split_once("</main>").unwrap();
        let ids: Vec<_> =
            markup.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let once: BTreeSet<_> = ids.iter().collect();
        assert!(ids.len() > 10 && once.len() == ids.len(), "{ids:?}");
    }

    #[test]
    fn a_run_without_parts_still_makes_a_page() {
        let mut result = fixture::host_all();
        (result.clock, result.delay, result.timer) = (None, None, None);
        (result.switch, result.interrupt) = (None, None);
        result.nics.clear();
        result.worst_findings.clear();
        let page = host_all(&result);
        let (_, rest) = page.split_once("<main>").unwrap();
        let (main, _) = rest.split_once("</main>").unwrap();
        assert!(!main.contains("NaN") && !main.contains("plot-"), "{main}");
        assert!(main.contains("No findings."));
    }
}
