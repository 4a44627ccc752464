//! HTML report of periodic tasks: bars and time series of execution to period, start latency and
//! response time, and all figures.

use horolog_record::{CycleResult, Distribution};

use super::data::{headed, row};
use super::escape::each;
use super::latency::{PlotTarget, histogram, tail};
use super::plot::{Axis, AxisScale, Choice, Plot, PlotUnit};
use super::sections::{PageBody, drawn_alone, findings, limits, machine, paragraph, section};
use super::time_series::TimeSeriesSettings;
use super::{PageTemplate, headline};
use crate::cycle::{
    EXTRA, EXTRA_MEANING, FIGURES, MEANING, TaskRow, cross_node_sentences, extra, facts, figures,
    is_parallel, rows,
};
use crate::limits::failed;
use crate::units::human_ns;

const TABLE: &str = "tasks";
const LATENESS: PlotTarget =
    PlotTarget { id: "lateness", title: "Histogram of start latency", described_by: TABLE };
const RESPONSE: PlotTarget =
    PlotTarget { id: "response", title: "Response time percentiles", described_by: TABLE };

/// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn cycle(result: &CycleResult) -> String {
    let rows = rows(result);
    let body = body(result, &rows);
    let periods: u64 = rows.iter().map(|row| row.task.periods).sum();
    let missed: u64 = rows.iter().map(|row| row.task.missed).sum();
    let period_ns = rows.first().map_or(0, |row| row.task.period_ns);
    PageTemplate {
        kind: "cycle",
        failed: failed(&result.limits),
        heading: format!("periodic tasks every {}", human_ns(period_ns)),
        lead: format!("{missed} of {periods} deadlines missed, started {}", result.started),
        verdict: headline::cycle(result),
        main: body.sections()
            + &section("Run and host", &machine(&result.command, &result.started, &result.host)),
        note: MEANING,
        schema: &result.schema,
        plots: body.plots,
        result,
    }
    .render()
}

fn body(result: &CycleResult, rows: &[TaskRow<'_>]) -> PageBody {
    let of = |figure: fn(&TaskRow<'_>) -> Option<Distribution>| -> Vec<(String, Distribution)> {
        let named = |row: &TaskRow<'_>| Some((row.name(result), figure(row)?));
        rows.iter().filter_map(named).collect()
    };
    let (late, response) =
        (of(|row| row.task.start_latency_ns.clone()), of(|row| row.task.response_ns.clone()));
    let plots = vec![
        ratio_plot(result, rows),
        histogram(&LATENESS, &borrowed(&late)),
        tail(&RESPONSE, &borrowed(&response)),
    ];
    let (plotted, plots) = drawn_alone(plots);
    let cells = each(rows, |one| row(&one.name(result), figures(one)));
    let mut sections = vec![
        ("Limits", limits(&result.limits)),
        ("Findings", findings(&result.findings)),
        (
            "Tasks",
            bars(result, rows) + &headed(TABLE, "Periodic tasks", ("task", &FIGURES), &cells),
        ),
        ("Time series and distribution", plotted),
    ];
    if is_parallel(result) {
        let cells = each(rows, |one| row(&one.name(result), extra(one.task)));
        let extra = headed("extra", "Extra cost of parallel work", ("task", &EXTRA), &cells);
        sections.push(("Several nodes", extra + &paragraph(EXTRA_MEANING)));
    }
    let conditions: Vec<_> =
        cross_node_sentences(result).into_iter().chain(facts(result)).collect();
    sections.push(("Conditions", each(conditions, |line| paragraph(&line))));
    PageBody { sections, plots }
}

fn borrowed(named: &[(String, Distribution)]) -> Vec<(String, &Distribution)> {
    named.iter().map(|(name, one)| (name.clone(), one)).collect()
}

/// Returns a bar for each task of each node: execution to period, in the mean and at most.
fn bars(result: &CycleResult, rows: &[TaskRow<'_>]) -> String {
    each(rows, |one| {
        let (mean, most) = (one.ratio().unwrap_or(0.0), one.ratio_max().unwrap_or(0.0));
        let name = super::escape::text(&one.name(result));
        // As in Fig. 1 of Hao, Xue and Qin: the period is the whole width.
        format!(
            "<p><label>{name} <meter min=\"0\" max=\"1\" low=\"0.7\" high=\"0.999\" \
             optimum=\"0\" value=\"{:.4}\">{:.1}%</meter> {:.1}% of the period, {:.1}% \
             max</label></p>\n",
            mean.min(1.0),
            mean * 100.0,
            mean * 100.0,
            most * 100.0
        )
    })
}

fn ratio_plot(result: &CycleResult, rows: &[TaskRow<'_>]) -> Plot {
    let series = |one: &TaskRow<'_>| {
        let points = one.task.series.iter().map(|stretch| (stretch.at_s, stretch.ratio_max));
        TimeSeriesSettings::EVEN.line(one.name(result), points.collect())
    };
    Plot {
        id: "ratio",
        title: "Execution to period",
        hint: "Maximum of each group of periods; above 100% the next period starts late.",
        described_by: TABLE,
        x: Axis { label: "time", short: "time", unit: PlotUnit::Seconds, scale: AxisScale::Linear },
        y: Axis {
            label: "execution to period",
            short: "ratio",
            unit: PlotUnit::Share,
            scale: AxisScale::Zero,
        },
        points: false,
        bars: false,
        marks: Vec::new(),
        shown: Choice::one(rows.iter().map(series)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn each_node_is_shown_and_no_text_becomes_markup() {
        let mut result = fixture::cycle();
        result.findings[0].message = "<img src=x>".to_owned();
        result.runs[0].nodes[0].name = "<img src=y>".to_owned();
        let page = cycle(&result);
        assert!(!page.contains("<img"));
        assert!(page.contains("<th scope=\"col\" class=\"words\">task</th>"));
        assert!(!page.contains("<thead><tr><td></td>"));
        assert!(page.contains("node2") && page.contains("plot-ratio") && page.contains("<meter"));
    }
}
