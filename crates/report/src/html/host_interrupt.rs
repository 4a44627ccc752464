//! HTML report of a run of expiries and a spin: histograms and tails of delays and gaps, and all
//! figures.

use horolog_record::{Distribution, HostInterruptResult, OsNoiseGap};

use super::data::{row, table};
use super::escape::each;
use super::host_timer::paragraph;
use super::latency::{PlotTarget, histogram, tail};
use super::sections::{
    PageBody, command_line, drawn_alone, facts, findings, host_facts, limits, section,
};
use super::{PageTemplate, headline};
use crate::host::{LATENCY_TITLES, latency_figures};
use crate::limits::failed;
use crate::table::host_interrupt::{
    METHOD, facts as sentences, handler_name, repetitions, stolen_cells, stolen_facts,
    stolen_titles,
};
use crate::units::{full_count, human_ns};

const DELAYS: &str = "delays";
const STOLEN: &str = "stolen";
const HISTOGRAM: PlotTarget =
    PlotTarget { id: "handlers-histogram", title: "Histogram of delays", described_by: DELAYS };
const TAIL: PlotTarget =
    PlotTarget { id: "handlers-tail", title: "Delay percentiles", described_by: DELAYS };
const GAPS: PlotTarget =
    PlotTarget { id: "gaps", title: "Histogram of gaps", described_by: STOLEN };

/// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn host_interrupt(result: &HostInterruptResult) -> String {
    let body = body(result);
    PageTemplate {
        kind: "host interrupt",
        failed: failed(&result.limits),
        heading: "handler delays and OS noise".to_owned(),
        lead: format!(
            "{} expiries per repetition, started {}",
            full_count(result.expiries),
            result.started
        ),
        verdict: headline::host_interrupt(result),
        main: body.sections() + &section("Run and host", &machine(result)),
        note: METHOD,
        schema: &result.schema,
        plots: body.plots,
        result,
    }
    .render()
}

/// Returns the content for the result.
pub(super) fn body(result: &HostInterruptResult) -> PageBody {
    let (delays, gaps) = (delays(result), gaps(result));
    let plots = vec![histogram(&HISTOGRAM, &delays), tail(&TAIL, &delays), histogram(&GAPS, &gaps)];
    let (plotted, plots) = drawn_alone(plots);
    let handlers = each(&result.handlers, |one| {
        row(&handler_name(one), latency_figures(one.delay_ns.as_ref()))
    });
    let means = each(result.handlers.iter().filter_map(repetitions), |line| paragraph(&line));
    let sections = vec![
        ("Limits", limits(&result.limits)),
        ("Findings", findings(&result.findings)),
        ("Handlers", table(DELAYS, "Delays of handlers", &LATENCY_TITLES, &handlers) + &means),
        ("OS noise", stolen(result)),
        ("Distributions", plotted),
        ("Method", each(sentences(result), |line| paragraph(&line))),
    ];
    PageBody { sections, plots }
}

fn stolen(result: &HostInterruptResult) -> String {
    if result.os_noise.is_empty() {
        return String::new();
    }
    let rows =
        each(&result.os_noise, |core| row(&format!("core {}", core.core), stolen_cells(core)));
    let facts = each(&result.os_noise, |core| paragraph(&stolen_facts(core)));
    let longest = each(&result.os_noise, |core| {
        let gap = |gap: &OsNoiseGap| {
            let whose = if gap.by_threads { "a thread" } else { "no thread" };
            format!("{} at {:.6} s ({whose})", human_ns(gap.length_ns), gap.at_s)
        };
        let gaps: Vec<_> = core.longest.iter().map(gap).collect();
        if gaps.is_empty() {
            return String::new();
        }
        paragraph(&format!("Longest gaps of core {}: {}.", core.core, gaps.join(", ")))
    });
    table(STOLEN, "OS noise by core", &stolen_titles(), &rows) + &facts + &longest
}

fn delays(result: &HostInterruptResult) -> Vec<(String, &Distribution)> {
    let handlers = result.handlers.iter();
    handlers.filter_map(|one| Some((handler_name(one), one.delay_ns.as_ref()?))).collect()
}

fn gaps(result: &HostInterruptResult) -> Vec<(String, &Distribution)> {
    let cores = result.os_noise.iter();
    cores.filter_map(|one| Some((format!("core {}", one.core), one.gap_ns.as_ref()?))).collect()
}

fn machine(result: &HostInterruptResult) -> String {
    let run = facts(&[
        ("Command", Some(command_line(&result.command))),
        ("Started", Some(result.started.clone())),
    ]);
    format!("<div class=\"columns\">\n{run}{}</div>\n", host_facts(&result.host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn handlers_and_gaps_are_shown_and_no_text_becomes_markup() {
        let mut result = fixture::host_interrupt();
        result.findings[0].message = "<img src=x>".to_owned();
        let page = host_interrupt(&result);
        assert!(!page.contains("<img"));
        assert!(page.contains("timerfd, core 0") && page.contains("plot-gaps"));
        assert!(page.contains("2.00 ms at 0.250000 s (a thread)"));
    }

    #[test]
    fn a_run_without_figures_still_makes_a_page() {
        let mut result = fixture::host_interrupt();
        result.handlers.truncate(1);
        result.os_noise.clear();
        let page = host_interrupt(&result);
        let (_, rest) = page.split_once("<main>").unwrap();
        let (main, _) = rest.split_once("</main>").unwrap();
        assert!(!main.contains("NaN") && !main.contains("plot-"), "{main}");
    }
}
