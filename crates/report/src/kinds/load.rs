//! Document of a load: its trials, loss and latency by rate or over time, distributions, loss
//! locations, intervals, and offsets of transmit timestamps.

mod clients;
mod intervals;
mod mix_parts;
mod offsets;

use horolog_record::{
    CapacitySearchResult, Distribution, LoadResult, RequestMode, RequestSpacing, Trial,
};

use crate::document::{
    BlockContent, DescribeResult, DocumentBlock, HeadlineMetric, NamedFacts, ResultDocument,
    RunFacts, run_of,
};
use crate::html::LOAD_NOTE;
use crate::html::latency::{PlotIdsAndTitle, histogram};
use crate::html::losses::losses;
use crate::html::sections::{mode_name, target_name, times_at_lower_bound};
use crate::html::{series, trials};
use crate::metrics::{Metric, MetricValue, NamedItems, joined, known, of_items};
use crate::table::shapes::load as shapes;
use crate::table::summary::wrapped;
use crate::table::{LoadTableOptions, TableStyle, behind_label, header, labelled, row};
use crate::units::{full_count, full_rate, human_ns, human_rate, percent_of};
use crate::verdict::{BestRate, LossTotals, goal_name, location_name, lower_bound_trial, sentence};

const HISTOGRAM: PlotIdsAndTitle = PlotIdsAndTitle {
    id: "rtt-histogram",
    title: "Histogram of round trips",
    described_by: "rtt-figures",
};

impl DescribeResult for LoadResult {
    fn document(&self) -> ResultDocument<'_> {
        let text =
            BlockContent::Custom(Box::new(|style| below_sentence(self, style)), String::new());
        let mut blocks = vec![
            BlockContent::LiveRows(Box::new(|style| rows(self, style))).under(""),
            BlockContent::Title(sentence(self)).under(""),
            text.under(""),
        ];
        blocks.extend(plots(self));
        blocks.extend([
            BlockContent::Details(mix_parts::line(self).into_iter().collect())
                .under("Request kinds"),
            BlockContent::Details(clients::lines(self)).under("Clients"),
            BlockContent::Markup(Box::new(|| losses(self))).under("Loss locations"),
            BlockContent::Markup(Box::new(|| trials::trials(self, "trials"))).under("Trials"),
            BlockContent::Markup(Box::new(|| intervals::intervals(self, "intervals")))
                .under("Intervals"),
            BlockContent::PageNote(LOAD_NOTE).under(""),
        ]);
        let count = match self.trials.len() {
            1 => "1 trial".to_owned(),
            count => format!("{count} trials"),
        };
        let (mode, engine) = (mode_name(self.mode), self.engine.name());
        if !is_series(self) {
            blocks.push(BlockContent::TimesAtRate(times_at_lower_bound(self).to_vec()).under(""));
        }
        ResultDocument {
            kind: "load",
            heading: target_name(&self.target),
            lead: format!("{mode}, {count} with the {engine} engine, started {}", self.started),
            headline: headline(self),
            blocks,
            method: "",
            limits: &self.limits,
            findings: &self.findings,
            run: RunFacts { after: conditions(self), ..run_of!(self) },
        }
    }

    /// Returns the result without its intervals if they make it too large.
    fn embedded(&self) -> Option<Self> {
        intervals::without_intervals(self)
    }

    fn metrics() -> Vec<Metric<Self>> {
        let capacity =
            Metric::value("capacity", |result: &Self| found_capacity(result.search.as_ref()));
        let overload = Metric::value("overload-replies", |result: &Self| {
            known(result.overload.as_ref(), |one| MetricValue::rate(one.answered_rate))
        });
        of_items(judged_trials, trial_metrics()).chain([capacity, overload]).collect()
    }
}

/// Returns the rate that a search found.
pub(crate) fn found_capacity(search: Option<&CapacitySearchResult>) -> MetricValue<'static> {
    known(search, |found| MetricValue::found_rate(found.rate, found.lower, found.upper))
}

/// Returns true if a trial is above the rate that the search found. The outcome of such a trial is
/// random, and the rate found already expresses the overload.
pub(crate) fn is_above_capacity(rate: f64, search: Option<&CapacitySearchResult>) -> bool {
    search.and_then(|search| search.lower).is_some_and(|lower| rate > lower)
}

/// Returns the trials, without those above the rate that the search found.
fn judged_trials(result: &LoadResult) -> NamedItems<'_, Trial> {
    let is_judged =
        |trial: &&Trial| !is_above_capacity(trial.intended_rate, result.search.as_ref());
    trials_with_parts(result.trials.iter().filter(is_judged))
}

/// Returns trials by their intended rates, and those of the kinds of requests in a mix.
pub(crate) fn trials_with_parts<'a>(
    trials: impl Iterator<Item = &'a Trial>,
) -> NamedItems<'a, Trial> {
    let mut all: Vec<_> = trials.map(|trial| (full_rate(trial.intended_rate), trial)).collect();
    let mut next = 0;
    while let Some((name, trial)) = all.get(next).cloned() {
        all.extend(trial.parts.iter().map(|part| (joined(&name, &part.name), &part.trial)));
        next += 1;
    }
    all
}

/// Returns the metrics of a trial.
pub(crate) fn trial_metrics() -> Vec<Metric<Trial>> {
    vec![
        Metric::ratio("loss", |trial: &Trial| Some([trial.lost, trial.sent])),
        Metric::ratio("unsynchronised", |trial| Some([trial.unsynchronised, trial.received])),
        Metric::ratio("late", |trial| Some([trial.late, trial.sent])),
        Metric::ratio("invalid", |trial| Some([trial.invalid_total(), trial.sent])),
        Metric::ratio("authenticated-loss", |trial| {
            trial.authenticated.as_ref().map(|counts| [counts.lost, counts.sent])
        }),
        Metric::ratio("compliant-loss", |trial| {
            trial.compliant_clients.as_ref().map(|clients| [clients.lost, clients.sent])
        }),
        Metric::ratio("compliant-invalid", |trial| {
            trial.compliant_clients.as_ref().map(|clients| [clients.invalid, clients.sent])
        }),
        Metric::times("compliant-rtt", |trial| trial.compliant_clients.as_ref()?.rtt_ns.as_ref()),
        Metric::times("rtt", |trial| trial.rtt_ns.as_ref()),
        Metric::times("response", |trial| trial.response_time_ns.as_ref()),
        Metric::times("lateness", |trial: &Trial| trial.lateness_ns.as_ref()).informational(),
        // The timestamp may have been taken at either end of the reply's round trip.
        Metric::value("offset", |trial: &Trial| {
            known(trial.tx_offset_ns.as_ref().zip(trial.rtt_ns.as_ref()), |(offset, rtt)| {
                MetricValue::Offset(offset.p50 as f64, rtt.p50 as f64 / 2.0)
            })
        }),
    ]
}

/// Returns true if the run is described by its time series rather than by a rate.
const fn is_series(result: &LoadResult) -> bool {
    result.series.is_some() && result.search.is_none()
}

fn headline(result: &LoadResult) -> HeadlineMetric {
    let losses = LossTotals::of(&result.trials);
    let (name, value) = match &result.search {
        None if is_series(result) => ("Requests lost", percent_of(losses.lost, losses.sent)),
        None => ("Highest rate without loss", BestRate::of(result).text()),
        Some(search) => (goal_name(search.kind), BestRate::of(result).text()),
    };
    HeadlineMetric { name: name.to_owned(), value: Some(value), sentence: sentence(result) }
}

/// Returns the target and the conditions of the load.
fn conditions(result: &LoadResult) -> NamedFacts {
    let target = &result.target;
    let spacing = match result.spacing {
        RequestSpacing::Constant => "constant",
        RequestSpacing::Exponential => "exponential",
    };
    vec![
        ("Target", Some(target_name(target))),
        ("Interface", target.interface.clone()),
        ("Link-layer address", target.mac.clone()),
        ("Clients' network", target.source_network.clone()),
        ("Requests", Some(mode_name(result.mode).to_owned())),
        ("Engine", Some(result.engine.name().to_owned())),
        ("Sending threads", Some(result.threads.to_string())),
        ("Spacing", Some(spacing.to_owned())),
        ("Reply timeout", Some(human_ns(result.reply_timeout_ns))),
    ]
}

/// Returns the rows of the trials for a terminal, under their titles.
fn rows(result: &LoadResult, style: &TableStyle) -> Vec<String> {
    let shown = LoadTableOptions { mode: result.mode, offsets: result.offset.is_some() };
    let of_phases = result.trials.iter().any(|trial| trial.phase.is_some());
    let has_labels = of_phases || result.mode == RequestMode::Mix;
    let inner = if has_labels { behind_label(style) } else { *style };
    let line = |label: &str, lines: &str| {
        if has_labels { labelled(label, lines) } else { lines.to_owned() }
    };
    let title = if of_phases { "phase" } else { "requests" };
    let mut lines = vec![line(title, &header(shown, &inner))];
    for trial in &result.trials {
        lines.push(line(trial.phase.as_deref().unwrap_or("all"), &row(trial, shown, &inner)));
        let parts = trial.parts.iter();
        lines.extend(parts.map(|part| line(&part.name, &row(&part.trial, shown, &inner))));
    }
    lines
}

/// Returns the lines for a terminal below the sentence on the result: losses, and graphs.
fn below_sentence(result: &LoadResult, style: &TableStyle) -> Vec<String> {
    let texts = losses_line(result).into_iter().chain(mix_parts::line(result));
    let texts = texts.chain(clients::lines(result));
    let mut lines: Vec<_> = texts.flat_map(|text| wrapped(&text, "", "  ", style)).collect();
    lines.extend(shapes(result, style));
    lines
}

fn losses_line(result: &LoadResult) -> Option<String> {
    let losses = LossTotals::of(&result.trials);
    if losses.sent == 0 {
        return None;
    }
    let sent = full_count(losses.sent);
    if losses.lost == 0 {
        return Some(format!("Lost in all trials: 0 of {sent} requests."));
    }
    let locations: Vec<_> = losses
        .by_location
        .iter()
        .map(|(location, count)| {
            format!("{} {}", location_name(*location), percent_of(*count, losses.lost))
        })
        .collect();
    let of_all = percent_of(losses.lost, losses.sent);
    let lost = full_count(losses.lost);
    let line = format!("Lost in all trials: {lost} of {sent} requests ({of_all})");
    Some(if locations.is_empty() {
        format!("{line}.")
    } else {
        format!("{line}; by location: {}.", locations.join(", "))
    })
}

/// Returns the plots over time and over the rate, and of distributions.
fn plots(result: &LoadResult) -> impl Iterator<Item = DocumentBlock<'_>> {
    const INTERVALS: &str = "intervals";
    let run = [("lost", result)];
    let chosen = chosen_trials(result);
    let (rtt, response) = (chosen_rtt(result, &chosen), chosen_response(result));
    let over_time = [
        series::rate_over_time(result, INTERVALS),
        series::loss_over_time(result, INTERVALS),
        series::latency_over_time(result, INTERVALS),
    ];
    // A single rate makes no line.
    let by_rate = (result.trials.len() > 1)
        .then(|| [series::loss(&run, "trials"), series::latency(&run, "trials")]);
    let plain = over_time.into_iter().chain(by_rate.into_iter().flatten());
    let percentiles = |id, title, table, entries: &[(String, &Distribution)]| {
        (series::percentiles(id, title, entries, table), trials::distributions(entries, table))
    };
    let response_title = "Server's response time by percentile";
    let described = [
        percentiles("rtt", "Round trip by percentile", "rtt-figures", &rtt),
        (histogram(&HISTOGRAM, &rtt), String::new()),
        percentiles("response", response_title, "response-figures", &response),
        (offsets::plot(result), offsets::table(result)),
    ];
    plain
        .map(|plot| (plot, String::new()))
        .chain(described)
        .map(|(plot, below)| BlockContent::Plot(plot, below).under("Rate, loss and latency"))
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

#[cfg(test)]
mod tests {
    use horolog_record::{LimitResult, LimitUnit};

    use super::*;
    use crate::document::RenderableResult;
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
        let page = result.page();
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
        let page = result.page();
        assert!(page.contains(&format!("<title>{expected} – ")), "{expected}");
        assert!(page.contains(&format!("<p class=\"failed\">{expected}</p>")), "{expected}");
    }

    #[test]
    fn the_verdict_stands_above_the_findings_and_these_above_the_plots() {
        let page = fixture::load().page();
        let at = |needle: &str| page.find(needle).unwrap();
        assert!(at("<p class=\"figure\">3.81 M/s</p>") < at("class=\"findings\">"));
        assert!(at("class=\"findings\">") < at("id=\"plot-loss\""));
    }

    #[test]
    fn an_empty_run_is_reported_as_such() {
        assert_eq!(fixture::empty().summary(&TableStyle::default()), "No trials were run.");
    }
}
