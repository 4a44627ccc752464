//! The page of periodic tasks: bars and course of execution to period, lateness and response, and
//! all figures.

use horolog_record::{CycleResult, Distribution};

use super::course::Course;
use super::data::{headed, row};
use super::escape::each;
use super::latency::{Place, histogram, tail};
use super::plot::{Axis, Choice, Plot, Scale, Unit};
use super::sections::{Body, drawn_alone, findings, limits, machine, paragraph, section};
use super::{Page, top};
use crate::cycle::{
    EXTRA, EXTRA_MEANING, FIGURES, MEANING, Row, extra, facts, figures, is_parallel, rows, together,
};
use crate::limits::failed;
use crate::units::human_ns;

const TABLE: &str = "tasks";
const LATENESS: Place =
    Place { id: "lateness", title: "Histogram of lateness", described_by: TABLE };
const RESPONSE: Place = Place { id: "response", title: "Response by rarity", described_by: TABLE };

/// The page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn cycle(result: &CycleResult) -> String {
    let rows = rows(result);
    let body = body(result, &rows);
    let periods: u64 = rows.iter().map(|row| row.task.periods).sum();
    let missed: u64 = rows.iter().map(|row| row.task.missed).sum();
    let period_ns = rows.first().map_or(0, |row| row.task.period_ns);
    Page {
        kind: "cycle",
        failed: failed(&result.limits),
        heading: format!("periodic tasks every {}", human_ns(period_ns)),
        lead: format!("{missed} of {periods} deadlines missed, started {}", result.started),
        verdict: top::cycle(result),
        main: body.sections()
            + &section("Run and machine", &machine(&result.command, &result.started, &result.host)),
        note: MEANING,
        schema: &result.schema,
        plots: body.plots,
        result,
    }
    .render()
}

fn body(result: &CycleResult, rows: &[Row<'_>]) -> Body {
    let of = |figure: fn(&Row<'_>) -> Option<Distribution>| -> Vec<(String, Distribution)> {
        let named = |row: &Row<'_>| Some((row.name(result), figure(row)?));
        rows.iter().filter_map(named).collect()
    };
    let (late, response) =
        (of(|row| row.task.lateness_ns.clone()), of(|row| row.task.response_ns.clone()));
    let plots = vec![
        course(result, rows),
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
        ("Course and distribution", plotted),
    ];
    if is_parallel(result) {
        let cells = each(rows, |one| row(&one.name(result), extra(one.task)));
        let extra = headed("extra", "Extra cost of parallel work", ("task", &EXTRA), &cells);
        sections.push(("Several nodes", extra + &paragraph(EXTRA_MEANING)));
    }
    let told: Vec<_> = together(result).into_iter().chain(facts(result)).collect();
    sections.push(("How it was", each(told, |line| paragraph(&line))));
    Body { sections, plots }
}

fn borrowed(named: &[(String, Distribution)]) -> Vec<(String, &Distribution)> {
    named.iter().map(|(name, one)| (name.clone(), one)).collect()
}

/// A bar for each task of each node: execution to period, in the mean and at most.
fn bars(result: &CycleResult, rows: &[Row<'_>]) -> String {
    each(rows, |one| {
        let (mean, most) = (one.ratio().unwrap_or(0.0), one.ratio_max().unwrap_or(0.0));
        let name = super::escape::text(&one.name(result));
        // As in Fig. 1 of Hao, Xue and Qin: the period is the whole width.
        format!(
            "<p><label>{name} <meter min=\"0\" max=\"1\" low=\"0.7\" high=\"0.999\" optimum=\"0\" \
             value=\"{:.4}\">{:.1}%</meter> {:.1}% of the period, {:.1}% at most</label></p>\n",
            mean.min(1.0),
            mean * 100.0,
            mean * 100.0,
            most * 100.0
        )
    })
}

fn course(result: &CycleResult, rows: &[Row<'_>]) -> Plot {
    let series = |one: &Row<'_>| {
        let points = one.task.series.iter().map(|stretch| (stretch.at_s, stretch.ratio_max));
        Course::EVEN.line(one.name(result), points.collect())
    };
    Plot {
        id: "ratio",
        title: "Execution to period",
        hint: "The largest of each stretch of periods; above 100% the next period begins late.",
        described_by: TABLE,
        x: Axis { label: "time", short: "time", unit: Unit::Seconds, scale: Scale::Linear },
        y: Axis {
            label: "execution to period",
            short: "ratio",
            unit: Unit::Share,
            scale: Scale::Zero,
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
