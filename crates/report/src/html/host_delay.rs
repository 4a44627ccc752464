//! HTML report of a host's delays: overshoot over the requested delay, all values, and the tested
//! claims.

use horolog_record::{DelayClaimVerdict, Distribution, HostDelayResult, WaitFunction};

use super::data::{row, table};
use super::escape::{each, text};
use super::plot::{AxisScale, Plot, PlotAxis, PlotSeries, PlotUnit, PlotView, PlotViews};
use super::sections::{
    PageBody, command_line, drawn_alone, facts, findings, host_facts, limits, section,
};
use super::{PageTemplate, headline};
use crate::host_delay::{
    CLAIMS, INTERRUPTED_TITLES, NOTE, SLACK, cells_of, interrupted, is_measured, resumption,
    setting, setting_name, tally, verdict,
};
use crate::limits::failed;
use crate::units::{ABSENT, full_count, human_ns, mean_ns};

const TITLES: [&str; 9] = ["requested", "waits", "early", "min", "p50", "p90", "p99", "max", "CPU"];

/// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn host_delay(result: &HostDelayResult) -> String {
    let body = body(result);
    PageTemplate {
        kind: "host delay",
        failed: failed(&result.limits),
        heading: "delays of this host".to_owned(),
        lead: format!("{} settings, started {}", result.settings.len(), result.started),
        verdict: headline::host_delay(result),
        main: body.sections() + &section("Run and host", &machine(result)),
        note: NOTE,
        schema: &result.schema,
        plots: body.plots,
        result,
    }
    .render()
}

/// Returns sections and plots of the result.
pub(super) fn body(result: &HostDelayResult) -> PageBody {
    let plots = vec![
        plot(result, "median", "Median overshoot", |one| one.p50),
        plot(result, "tail", "99th percentile of the overshoot", |one| one.p99),
    ];
    let (plotted, plots) = drawn_alone(plots);
    let sections = vec![
        ("Limits", limits(&result.limits)),
        ("Findings", findings(&result.findings)),
        ("Overshoot", plotted),
        ("Statistics", figures(result)),
        ("Interrupted by signals", signals(result)),
        (CLAIMS, claims(result)),
    ];
    PageBody { sections, plots }
}

fn plot(
    result: &HostDelayResult,
    id: &'static str,
    title: &'static str,
    of: fn(&Distribution) -> u64,
) -> Plot {
    let view = |index: usize| {
        let line = |kind: WaitFunction| {
            let cells = cells_of(result, index).filter(|cell| cell.function == kind);
            // A logarithmic axis has no position for values that are not positive.
            let point = |cell: &horolog_record::DelayMeasurement| {
                Some((cell.requested_ns as f64, of(cell.overshoot_ns.as_ref()?).max(1) as f64))
            };
            PlotSeries::new(kind.name().to_owned(), cells.filter_map(point).collect())
        };
        let series = WaitFunction::ALL.into_iter().map(line);
        PlotView {
            label: setting_name(&result.settings[index]).into(),
            series: series.filter(|series| !series.points.is_empty()).collect(),
        }
    };
    let measured = (0..result.settings.len()).filter(|at| is_measured(result, *at));
    Plot {
        id,
        title,
        hint: SLACK,
        described_by: "figures",
        x: PlotAxis {
            label: "requested delay",
            short: "requested",
            unit: PlotUnit::Ns,
            scale: AxisScale::Log,
        },
        y: PlotAxis {
            label: "overshoot",
            short: "overshoot",
            unit: PlotUnit::Ns,
            scale: AxisScale::Log,
        },
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews { chooser: "Setting", view: 0, views: measured.map(view).collect() },
    }
}

fn figures(result: &HostDelayResult) -> String {
    let rows = each(0..result.settings.len(), |index| {
        let head = format!(
            "<tr><th scope=\"rowgroup\" class=\"words\" colspan=\"{}\">{}</th></tr>\n",
            TITLES.len() + 1,
            text(&setting(result, index))
        );
        let rows = each(cells_of(result, index), |cell| row(cell.function.name(), of_cell(cell)));
        head + &rows
    });
    table("figures", "Overshoots", &TITLES, &rows)
}

fn of_cell(cell: &horolog_record::DelayMeasurement) -> [String; 9] {
    let of = |of: fn(&Distribution) -> u64| {
        cell.overshoot_ns.as_ref().map_or_else(|| ABSENT.to_owned(), |one| human_ns(of(one)))
    };
    [
        human_ns(cell.requested_ns),
        full_count(cell.overshoot_ns.as_ref().map_or(0, |one| one.count)),
        full_count(cell.early),
        of(|one| one.min),
        of(|one| one.p50),
        of(|one| one.p90),
        of(|one| one.p99),
        of(|one| one.max),
        cell.error.clone().or_else(|| cell.processor_ns.map(mean_ns)).unwrap_or(ABSENT.to_owned()),
    ]
}

fn signals(result: &HostDelayResult) -> String {
    if result.interrupted.is_empty() {
        return String::new();
    }
    let rows = each(&result.interrupted, |one| row(resumption(one.resumption), interrupted(one)));
    table("signals", "nanosleep under signals", &INTERRUPTED_TITLES, &rows)
}

fn claims(result: &HostDelayResult) -> String {
    if result.claims.is_empty() {
        return String::new();
    }
    let items = each(&result.claims, |claim| {
        let class = if claim.verdict == DelayClaimVerdict::Fails { "warning" } else { "note" };
        format!(
            "<li class=\"{class}\"><span class=\"severity\">{}</span><p>{}</p>\
             <p class=\"advice\">{}</p></li>\n",
            verdict(claim.verdict),
            text(&claim.statement),
            text(&claim.evidence)
        )
    });
    format!("<p>{}</p>\n<ul class=\"findings\">\n{items}</ul>\n", text(&tally(result)))
}

fn machine(result: &HostDelayResult) -> String {
    let run = facts(&[
        ("Command", Some(command_line(&result.command))),
        ("Started", Some(result.started.clone())),
        ("HZ", result.tick.hz.map(|hz| hz.to_string())),
        ("Measurement overhead", Some(human_ns(result.own_cost_ns))),
    ]);
    format!("<div class=\"columns\">\n{run}{}</div>\n", host_facts(&result.host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn each_measured_setting_is_a_view_and_no_text_becomes_markup() {
        let mut result = fixture::host_delay();
        result.claims[0].evidence = "<img src=x>".to_owned();
        result.cells[0].error = Some("<script>".to_owned());
        let page = host_delay(&result);
        assert!(!page.contains("<img") && page.contains("&lt;img src=x&gt;"));
        assert!(page.contains("plot-median") && page.contains("plot-tail"));
        assert!(page.contains("SCHED_OTHER, minimal slack"));
        assert!(page.contains("not measured (Operation not permitted)"));
    }

    #[test]
    fn a_run_without_figures_still_makes_a_page() {
        let mut result = fixture::host_delay();
        result.cells.clear();
        result.claims.clear();
        result.interrupted.clear();
        let page = host_delay(&result);
        let (_, rest) = page.split_once("<main>").unwrap();
        let (main, _) = rest.split_once("</main>").unwrap();
        assert!(!main.contains("NaN") && !main.contains("plot-"), "{main}");
    }
}
