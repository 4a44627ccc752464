//! HTML report of a prediction for tasks: bars of the terms of each bound, in relation to its
//! deadline, and all figures.

use horolog_record::{
    CyclePredictBound, CyclePredictResult, CyclePredictTask, CyclePredictTermKind as Term,
};

use super::data::{headed, row, table_unless_empty};
use super::escape::each;
use super::sections::{PageBody, findings, limits, machine, paragraph, section};
use super::{PageTemplate, bars, headline};
use crate::cycle_predict::{
    COST_TITLES, METHOD, bounds, cost_rows, heading, rows, sentences, term_rows, terms, titles,
};
use crate::limits::failed;
use crate::units::{human_ns, percent};

/// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn cycle_predict(result: &CyclePredictResult) -> String {
    let tasks = each(rows(result), |(name, cells)| row(&name, cells));
    let sections = vec![
        ("Limits", limits(&result.limits)),
        ("Findings", findings(&result.findings)),
        ("Summary", each(sentences(result), |line| paragraph(&line))),
        ("Bounds relative to deadlines", bars(result)),
        ("Tasks", headed("tasks", "Tasks", ("task", &titles(result)), &tasks)),
        ("Bound components", made_of(result)),
        (
            "Host costs",
            table_unless_empty("costs", "Costs", ("cost", &COST_TITLES), cost_rows(result)),
        ),
    ];
    let body = PageBody { sections, plots: Vec::new() };
    let run = machine(&result.command, &result.started, &result.host);
    PageTemplate {
        kind: "cycle predict",
        failed: failed(&result.limits),
        heading: heading(result),
        lead: format!("started {}", result.started),
        verdict: headline::cycle_predict(result),
        main: body.sections() + &section("Run and host", &run),
        note: METHOD,
        schema: &result.schema,
        plots: body.plots,
        result,
    }
    .render()
}

fn made_of(result: &CyclePredictResult) -> String {
    let titles: Vec<&str> = terms(result).into_iter().map(Term::name).collect();
    table_unless_empty("terms", "Bound components", ("bound", &titles), term_rows(result))
}

/// Returns a bar for each bound, of its terms one after the other; all bars are shares of their
/// deadlines, and as wide as the longest needs.
fn bars(result: &CyclePredictResult) -> String {
    let all = bounds(result);
    if all.is_empty() {
        return String::new();
    }
    let used = |task: &CyclePredictTask, bound: &CyclePredictBound| {
        bound.response_ns as f64 / task.deadline_ns.max(1) as f64
    };
    let longest = all.iter().map(|(_, task, bound)| used(task, bound)).fold(1.0, f64::max);
    let legend = each(terms(result), |term| {
        format!("<li><span class=\"swatch\" style=\"{}\"></span>{}</li>", colour(term), term.name())
    });
    let rows = each(all, |(name, task, bound)| {
        let numbers = [&human_ns(bound.response_ns)[..], &percent(used(task, bound))];
        let stack = format!(
            "<span class=\"stack\">{}<span class=\"deadline\" style=\"left:{:.2}%\"></span></span>",
            parts(task, bound, longest),
            100.0 / longest,
        );
        bars::row(&name, numbers, &stack)
    });
    format!(
        "<p class=\"hint\">The line is the deadline; the values are in the tables \
         below.</p>\n<ul class=\"legend\">{legend}</ul>\n{}",
        bars::table(["bound", "response", "deadline share", ""], &rows)
    )
}

fn parts(task: &CyclePredictTask, bound: &CyclePredictBound, longest: f64) -> String {
    each(&bound.terms, |term| {
        let width = 100.0 * term.ns as f64 / task.deadline_ns.max(1) as f64 / longest;
        format!(
            "<span class=\"term\" style=\"width:{width:.2}%;{}\" title=\"{}: {}\"></span>",
            colour(term.kind),
            term.kind.name(),
            human_ns(term.ns)
        )
    })
}

/// Returns one of the colours of plots, of which there is one less than terms.
fn colour(term: Term) -> String {
    match term {
        Term::Interrupts => "background:var(--muted)".to_owned(),
        _ => format!("background:var(--series-{})", term as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::html::main_of;

    #[test]
    fn all_is_shown_and_no_text_becomes_markup() {
        let mut result = fixture::cycle_predict();
        result.tasks[0].name = "<img src=x>".to_owned();
        result.costs[0].source = "<b>".to_owned();
        result.tasks[1].reason = Some("<i>".to_owned());
        let page = cycle_predict(&result);
        let main = main_of(&page);
        assert!(!main.contains("<img") && !main.contains("<b>") && !main.contains("<i>"));
        assert!(main.contains("class=\"term\"") && main.contains("interference"));
        for colour in Term::ALL.map(colour) {
            let name = colour.trim_start_matches("background:var(").trim_end_matches(')');
            assert!(page.contains(&format!("{name}: #")), "{name}");
        }
    }

    /// Each bar is as wide as its bound is long.
    #[test]
    fn bars_end_where_bounds_do() {
        let result = fixture::cycle_predict();
        let main = bars(&result);
        let widths = main.split("width:").skip(1);
        let sum: f64 =
            widths.map(|rest| rest.split('%').next().unwrap().parse::<f64>().unwrap()).sum();
        let used = bounds(&result)
            .into_iter()
            .map(|(_, task, bound)| 100.0 * bound.response_ns as f64 / task.deadline_ns as f64);
        let longest = 1.25;
        assert!((sum - used.sum::<f64>() / longest).abs() < 0.1, "{sum}");
    }

    #[test]
    fn a_result_without_figures_still_makes_a_page() {
        let mut result = fixture::cycle_predict();
        result.tasks.clear();
        result.costs.clear();
        let page = cycle_predict(&result);
        assert!(!main_of(&page).contains("NaN") && !main_of(&page).contains("class=\"bars\""));
    }
}
