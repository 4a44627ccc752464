//! HTML report of a demonstration: capacity of each server, curves of all servers in shared plots,
//! and the trials of each.

use horolog_record::{DemoCandidate, DemoResult, Distribution, SearchKind, Trial};

use super::escape::{each, text};
use super::losses::{candidates, losses};
use super::sections::{
    command_line, drawn, findings, machine, section, times_at_lower_bound, verdict,
};
use super::{LOAD_NOTE, PageTemplate, series, trials};
use crate::findings::of_demo;
use crate::verdict::{BestRate, lower_bound_trial, sentence};

/// Returns the page as HTML, with the result as JSON in the element `result`. Histograms are
/// included only for the trials at the servers' lower bounds; all of them would make the page
/// several times as large.
#[must_use]
pub fn demo(result: &DemoResult) -> String {
    let runs: Vec<_> =
        result.candidates.iter().map(|one| (one.label.as_str(), &one.load)).collect();
    let rtt = at_lower_bound(result, |trial| trial.rtt_ns.as_ref());
    let response = at_lower_bound(result, |trial| trial.response_time_ns.as_ref());
    let plots = vec![
        (series::loss(&runs, "servers"), String::new()),
        (series::latency(&runs, "servers"), String::new()),
        (
            series::percentiles(
                "rtt",
                "Round trip by percentile, at the best rate of each server",
                &rtt,
                "rtt-figures",
            ),
            trials::distributions(&rtt, "rtt-figures"),
        ),
        (
            series::percentiles(
                "response",
                "Server's response time by percentile, at its best rate",
                &response,
                "response-figures",
            ),
            trials::distributions(&response, "response-figures"),
        ),
    ];
    let (figures, plots) = drawn(plots);
    let servers = each(result.candidates.iter().enumerate(), server);
    let main = [
        section("Findings", &findings(&of_demo(result))),
        section(rate_title(result), &candidates(&result.candidates, "requests per second")),
        section("Rate, loss and latency", &figures),
        section("Servers and their trials", &format!("<div id=\"servers\">\n{servers}</div>\n")),
        section("Run and host", &machine(&result.command, &result.started, &result.host)),
    ];
    PageTemplate {
        kind: "demo",
        failed: None,
        heading: "Maximum request rate of each server".to_owned(),
        lead: format!(
            "{} servers under the same search, started {}",
            result.candidates.len(),
            result.started
        ),
        verdict: top(result),
        main: main.concat(),
        note: LOAD_NOTE,
        schema: &result.schema,
        plots,
        result: &without_most_histograms(result),
    }
    .render()
}

pub(super) fn without_most_histograms(result: &DemoResult) -> DemoResult {
    let mut result = result.clone();
    for candidate in &mut result.candidates {
        let retained = lower_bound_trial(&candidate.load);
        let trials = candidate.load.trials.iter_mut().enumerate();
        for (_, trial) in trials.filter(|(index, _)| Some(*index) != retained) {
            let Trial { rtt_ns, response_time_ns, lateness_ns, .. } = trial;
            for distribution in [rtt_ns, response_time_ns, lateness_ns].into_iter().flatten() {
                distribution.histogram.clear();
            }
        }
    }
    result
}

fn rate_title(result: &DemoResult) -> &'static str {
    let partial = |candidate: &DemoCandidate| {
        candidate.load.search.as_ref().is_some_and(|search| search.kind == SearchKind::Pdr)
    };
    if result.candidates.iter().any(partial) {
        "Highest rate within the loss goal"
    } else {
        "Highest rate without loss"
    }
}

/// Returns the best server, compared with the first one.
fn top(result: &DemoResult) -> String {
    let rate = |candidate: &DemoCandidate| BestRate::of(&candidate.load).held().unwrap_or(-1.0);
    let best = result.candidates.iter().max_by(|a, b| rate(a).total_cmp(&rate(b)));
    let (Some(best), Some(first)) = (best, result.candidates.first()) else {
        return verdict(rate_title(result), "-", "No servers were tested.", &[]);
    };
    let highest = BestRate::of(&best.load);
    let ratio = highest.ratio_to(BestRate::of(&first.load));
    let against = if std::ptr::eq(best, first) || ratio == "-" {
        String::new()
    } else {
        format!(", {ratio} the rate of {}", first.label)
    };
    let figure = highest.text();
    let summary = format!("{}: {figure}{against}.", best.label);
    verdict(rate_title(result), &figure, &summary, &times_at_lower_bound(&best.load))
}

fn at_lower_bound(
    result: &DemoResult,
    figure: fn(&Trial) -> Option<&Distribution>,
) -> Vec<(String, &Distribution)> {
    result
        .candidates
        .iter()
        .filter_map(|candidate| {
            let trial = &candidate.load.trials[lower_bound_trial(&candidate.load)?];
            Some((candidate.label.clone(), figure(trial)?))
        })
        .collect()
}

fn server((index, candidate): (usize, &DemoCandidate)) -> String {
    let load = &candidate.load;
    let found = findings(&load.findings);
    let found = if found.is_empty() { found } else { format!("<h3>Findings</h3>\n{found}") };
    let lost = losses(load);
    let lost = if lost.is_empty() { lost } else { format!("<h3>Loss locations</h3>\n{lost}") };
    format!(
        "<details class=\"server\">\n<summary><span class=\"label\">{}</span> \
         <span class=\"figure\">{}</span></summary>\n<p class=\"sentence\">{}</p>\n\
         <p><code>{}</code></p>\n{found}{lost}<h3>Trials</h3>\n{}</details>\n",
        text(&candidate.label),
        text(&BestRate::of(load).text()),
        text(&sentence(load)),
        text(&command_line(&candidate.server_command)),
        trials::trials(load, &format!("trials-{index}")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn the_best_server_is_named_against_the_first() {
        let markup = top(&fixture::demo());
        assert!(markup.contains("XDP: ≥ 3.83 M/s, ≥ 86.7× the rate of chronyd 4.3."), "{markup}");
    }

    #[test]
    fn every_server_has_its_trials() {
        let page = demo(&fixture::demo());
        assert_eq!(page.matches("<details class=\"server\">").count(), 5);
        assert!(page.contains("id=\"trials-4\""));
    }

    #[test]
    fn findings_about_servers_stand_above_the_plots() {
        let mut result = fixture::demo();
        let mut finding = fixture::load().findings[0].clone();
        finding.code = horolog_record::FindingCode::TrialsInconsistent;
        finding.message = "one of its trials lost more".to_owned();
        result.candidates[3].load.findings = vec![finding];
        let page = demo(&result);
        let at = |needle: &str| page.find(needle).unwrap();
        assert!(at("one of its trials lost more") < at("id=\"plot-loss\""));
    }
}
