//! HTML report of a load run.

use horolog_record::{Distribution, LoadResult};

use super::latency::{PlotLabels, histogram};
use super::losses::losses;
use super::sections::{
    clients, columns, drawn, findings, host_facts, limits, mode_name, parts, run_facts, section,
    target_name, times_at_lower_bound, verdict,
};
use super::{LOAD_NOTE, PageTemplate, intervals, offsets, series, trials};
use crate::limits::failed;
use crate::units::{human_rate, percent_of};
use crate::verdict::{BestRate, LossTotals, goal_name, lower_bound_trial, sentence};

/// Number of plots over time, which precede the plots over the rate.
const OVER_TIME: usize = 3;
const HISTOGRAM: PlotLabels = PlotLabels {
    id: "rtt-histogram",
    title: "Histogram of round trips",
    described_by: "rtt-figures",
};

/// Returns the page as HTML, with the result as JSON in the element `result`; the intervals of a
/// very long run are omitted there.
#[must_use]
pub fn load(result: &LoadResult) -> String {
    let run = [("lost", result)];
    let chosen = chosen_trials(result);
    let (rtt, response) = (chosen_rtt(result, &chosen), chosen_response(result));
    let mut plots = vec![
        (series::rate_over_time(result, "intervals"), String::new()),
        (series::loss_over_time(result, "intervals"), String::new()),
        (series::latency_over_time(result, "intervals"), String::new()),
        (
            series::percentiles("rtt", "Round trip by percentile", &rtt, "rtt-figures"),
            trials::distributions(&rtt, "rtt-figures"),
        ),
        (histogram(&HISTOGRAM, &rtt), String::new()),
        (
            series::percentiles(
                "response",
                "Server's response time by percentile",
                &response,
                "response-figures",
            ),
            trials::distributions(&response, "response-figures"),
        ),
        (offsets::plot(result), offsets::table(result)),
    ];
    // A single rate makes no line.
    if result.trials.len() > 1 {
        let by_rate = [series::loss(&run, "trials"), series::latency(&run, "trials")];
        plots.splice(OVER_TIME..OVER_TIME, by_rate.map(|plot| (plot, String::new())));
    }
    let (figures, plots) = drawn(plots);
    let embedded = intervals::embedded_result(result);
    let main = [
        section("Limits", &limits(&result.limits)),
        section("Findings", &findings(&result.findings)),
        section("Rate, loss and latency", &figures),
        section("Request kinds", &parts(result)),
        section("Clients", &clients(result)),
        section("Loss locations", &losses(result)),
        section("Trials", &trials::trials(result, "trials")),
        section("Intervals", &intervals::intervals(result, &embedded, "intervals")),
        section("Run and host", &machine(result)),
    ];
    PageTemplate {
        kind: "load",
        failed: failed(&result.limits),
        heading: target_name(result),
        lead: format!(
            "{}, {} with the {} engine, started {}",
            mode_name(result.mode),
            match result.trials.len() {
                1 => "1 trial".to_owned(),
                count => format!("{count} trials"),
            },
            result.engine.name(),
            result.started
        ),
        verdict: top(result),
        main: main.concat(),
        note: LOAD_NOTE,
        schema: &result.schema,
        plots,
        result: &*embedded,
    }
    .render()
}

fn top(result: &LoadResult) -> String {
    if result.series.is_some() && result.search.is_none() {
        let losses = LossTotals::of(&result.trials);
        let lost = percent_of(losses.lost, losses.sent);
        return verdict("Requests lost", &lost, &sentence(result), &[]);
    }
    let name =
        result.search.as_ref().map_or("Highest rate without loss", |search| goal_name(search.kind));
    verdict(name, &BestRate::of(result).text(), &sentence(result), &times_at_lower_bound(result))
}

/// Returns the trials whose distributions are shown: the slowest, the one that represents the run,
/// and the fastest, as far as these differ.
fn chosen_trials(result: &LoadResult) -> Vec<usize> {
    let rates = || {
        let trials = result.trials.iter().enumerate().filter(|(_, trial)| trial.rtt_ns.is_some());
        trials.map(|(index, trial)| (index, trial.achieved_rate))
    };
    let slowest = rates().min_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index);
    let fastest = rates().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index);
    let mut chosen: Vec<_> =
        [slowest, lower_bound_trial(result), fastest].into_iter().flatten().collect();
    chosen.dedup();
    chosen
}

fn chosen_rtt<'a>(result: &'a LoadResult, chosen: &[usize]) -> Vec<(String, &'a Distribution)> {
    chosen
        .iter()
        .filter_map(|index| Some((label(result, *index), result.trials[*index].rtt_ns.as_ref()?)))
        .collect()
}

/// Returns the distribution of the server's response time at the rate that it sustained.
fn chosen_response(result: &LoadResult) -> Vec<(String, &Distribution)> {
    lower_bound_trial(result)
        .and_then(|index| {
            let times = result.trials[index].response_time_ns.as_ref();
            // A server whose receive and transmit timestamps are equal has no response times to
            // show.
            Some((label(result, index), times.filter(|times| times.max > 0)?))
        })
        .into_iter()
        .collect()
}

fn label(result: &LoadResult, index: usize) -> String {
    let rate = human_rate(result.trials[index].achieved_rate);
    let held = if lower_bound_trial(result) == Some(index) { ", best" } else { "" };
    format!("{rate} (trial {}{held})", index + 1)
}

fn machine(result: &LoadResult) -> String {
    columns(&[run_facts(result), host_facts(&result.host)])
}

#[cfg(test)]
mod tests {
    use horolog_record::{LimitResult, LimitUnit};

    use super::*;
    use crate::fixture;

    #[test]
    fn the_chosen_trials_are_slowest_held_and_fastest() {
        let result = fixture::load();
        assert_eq!(chosen_trials(&result), [0, 7, 9]);
        assert!(chosen_trials(&fixture::empty()).is_empty());
        assert_eq!(label(&result, 7), "3.81 M/s (trial 8, best)");
    }

    #[test]
    fn a_series_is_headed_by_its_loss() {
        let mut result = fixture::load();
        (result.search, result.series) = (None, Some(fixture::series()));
        let page = load(&result);
        assert!(page.contains("<p class=\"name\">Requests lost</p>"));
        assert!(page.contains("id=\"plot-loss-over-time\"") && page.contains("id=\"intervals\""));
    }

    #[test]
    fn a_broken_limit_stands_in_the_title_and_in_the_verdict() {
        let mut result = fixture::load();
        result.limits = [true, false]
            .map(|failed| LimitResult {
                expression: "loss>1%".to_owned(),
                unit: LimitUnit::Ratio,
                bound: 0.01,
                value: Some(0.5),
                trial: None,
                scope: None,
                failed,
            })
            .into();
        let expected = "failed: 1 of 2 limits not met";
        let page = load(&result);
        assert!(page.contains(&format!("<title>{expected} – ")), "{expected}");
        assert!(page.contains(&format!("<p class=\"failed\">{expected}</p>")), "{expected}");
    }

    #[test]
    fn the_verdict_stands_above_the_findings_and_these_above_the_plots() {
        let page = load(&fixture::load());
        let at = |needle: &str| page.find(needle).unwrap();
        assert!(at("<p class=\"figure\">3.81 M/s</p>") < at("class=\"findings\">"));
        assert!(at("class=\"findings\">") < at("id=\"plot-loss\""));
    }
}
