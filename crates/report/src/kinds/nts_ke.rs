//! Document of a load on an NTS-KE server: completed exchanges per second, their times, and the
//! reasons of failures.

use std::collections::BTreeMap;

use horolog_record::{Distribution, NtsKeFailureReason, NtsKeLoadResult, NtsKeTrial};

use crate::document::{BlockContent, DescribeResult, HeadlineMetric, ResultDocument, run_of};
use crate::html::data::{headed, row};
use crate::html::escape::each;
use crate::html::latency::{PlotIdsAndTitle, histogram, time_axis};
use crate::html::plot::{AxisScale, Plot, PlotAxis, PlotMark, PlotSeries, PlotUnit, PlotViews};
use crate::html::sections::target_name;
use crate::html::{series, trials};
use crate::kinds::load::{found_capacity, is_above_capacity};
use crate::metrics::{Metric, NamedItems, of_items};
use crate::table::grid::CellTone;
use crate::table::shapes::{PlottedTrials, distribution, trials as trial_shapes};
use crate::table::summary::wrapped;
use crate::table::{TableStyle, nts_ke_header, nts_ke_row};
use crate::units::{ABSENT, amount, full_count, full_rate, human_ns, human_rate, percent_of};
use crate::verdict::search_sentence;

const METHOD: &str = "Times are from the start of the connection, or from its intended start in a \
                      trial with a rate, to the keys.";

const TABLE: &str = "trials";
const TITLES: [&str; 9] =
    ["intended", "started", "clients", "attempts", "failed", "p50", "p90", "p99", "max"];

const HISTOGRAM: PlotIdsAndTitle = PlotIdsAndTitle {
    id: "rtt-histogram",
    title: "Histogram of NTS-KE exchange times",
    described_by: "rtt-figures",
};

/// Function that returns one value of a distribution, such as a percentile.
type HandshakeTimeStatisticSelector = fn(&Distribution) -> u64;

const FIGURES: [(&str, HandshakeTimeStatisticSelector); 4] =
    [("p50", |d| d.p50), ("p90", |d| d.p90), ("p99", |d| d.p99), ("max", |d| d.max)];

impl DescribeResult for NtsKeLoadResult {
    fn document(&self) -> ResultDocument<'_> {
        let custom = BlockContent::Custom;
        let mut blocks = vec![
            BlockContent::LiveRows(Box::new(|style| rows(self, style))).under(""),
            custom(Box::new(|style| below_rows(self, style)), String::new()).under(""),
        ];
        let plotted = plots(self).into_iter();
        blocks.extend(plotted.map(|(plot, below)| {
            BlockContent::Plot(plot, below).under("Rate, failures and times")
        }));
        blocks.extend([
            BlockContent::Details(failures(&self.trials).into_iter().collect()).under("Failures"),
            BlockContent::Markup(Box::new(|| table(self))).under("Trials"),
            BlockContent::PageNote(METHOD).under(""),
        ]);
        if self.search.is_none() {
            let last = self.trials.last().and_then(|trial| trial.handshake_ns.as_ref());
            let times = FIGURES.map(|(name, of)| (name, last.map(of)));
            blocks.push(BlockContent::TimesAtRate(times.to_vec()).under(""));
        }
        ResultDocument {
            kind: "load",
            heading: target_name(&self.target),
            lead: format!("NTS-KE exchanges, started {}", self.started),
            headline: headline(self),
            blocks,
            method: "",
            limits: &self.limits,
            findings: &self.findings,
            run: run_of!(self),
        }
    }

    fn metrics() -> Vec<Metric<Self>> {
        let trials = [
            Metric::ratio("loss", |trial: &NtsKeTrial| Some([trial.lost, trial.sent])),
            Metric::times("handshake", |trial| trial.handshake_ns.as_ref()),
        ];
        let capacity =
            Metric::value("capacity", |result: &Self| found_capacity(result.search.as_ref()));
        of_items(judged_trials, trials).chain([capacity]).collect()
    }
}

/// Returns the trials, without those above the rate that the search found.
fn judged_trials(result: &NtsKeLoadResult) -> NamedItems<'_, NtsKeTrial> {
    let name = |trial: &NtsKeTrial| {
        let Some(rate) = trial.intended_rate else { return Some(String::new()) };
        (!is_above_capacity(rate, result.search.as_ref())).then(|| full_rate(rate))
    };
    result.trials.iter().filter_map(|trial| Some((name(trial)?, trial))).collect()
}

fn headline(result: &NtsKeLoadResult) -> HeadlineMetric {
    if let Some(search) = &result.search {
        return HeadlineMetric {
            name: "Highest rate found".to_owned(),
            value: search.lower.map(human_rate),
            sentence: search_sentence(search),
        };
    }
    let last = result.trials.last();
    let sentence = last.map_or_else(
        || "No trials were run.".to_owned(),
        |trial| {
            let [lost, sent, clients] = [trial.lost, trial.sent, trial.clients].map(full_count);
            format!("By {clients} clients; {lost} of {sent} failed.")
        },
    );
    HeadlineMetric {
        name: "NTS-KE exchanges".to_owned(),
        value: last.and_then(|trial| amount(trial.achieved_rate)).map(human_rate),
        sentence,
    }
}

/// Returns the rows of a search for a terminal, under their titles.
fn rows(result: &NtsKeLoadResult, style: &TableStyle) -> Vec<String> {
    let header = result.search.iter().map(|_| nts_ke_header(style));
    let trials = result.trials.iter().filter(|_| result.search.is_some());
    header.chain(trials.map(|trial| nts_ke_row(trial, style))).collect()
}

/// Returns the lines for a terminal below the rows: the result of the search or of the single
/// trial, failures, and graphs.
fn below_rows(result: &NtsKeLoadResult, style: &TableStyle) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(search) = &result.search {
        let sentence = wrapped(&search_sentence(search), "", "  ", style);
        lines.extend(sentence.iter().map(|line| CellTone::Strong.paint(line, style.colour)));
    }
    for trial in result.trials.iter().filter(|trial| trial.intended_rate.is_none()) {
        let line = format!(
            "NTS-KE exchanges: {} by {} clients; {} of {} failed.",
            human_rate(trial.achieved_rate),
            full_count(trial.clients),
            full_count(trial.lost),
            full_count(trial.sent)
        );
        lines.push(CellTone::Strong.paint(&line, style.colour));
        lines.extend(trial.handshake_ns.as_ref().map(|times| {
            let [p50, p90, p99, max] = [times.p50, times.p90, times.p99, times.max].map(human_ns);
            format!("From connection start to keys: p50 {p50}, p90 {p90}, p99 {p99}, max {max}.")
        }));
    }
    lines.extend(failures(&result.trials));
    lines.extend(drawn(result, style));
    lines
}

/// Returns failures and times by rate, and the distribution of times at the highest rate without a
/// failure, or in the first trial if all have failures.
fn drawn(result: &NtsKeLoadResult, style: &TableStyle) -> Vec<String> {
    let sent = || result.trials.iter().filter(|trial| trial.sent > 0);
    let share = |trial: &NtsKeTrial| trial.lost as f64 / trial.sent as f64;
    let all = sent().map(|one| (one.achieved_rate, share(one), one.handshake_ns.as_ref()));
    let mut lines = trial_shapes(PlottedTrials { all: all.collect(), lost: "failed" }, style);
    let rate = |a: &&NtsKeTrial, b: &&NtsKeTrial| a.achieved_rate.total_cmp(&b.achieved_rate);
    let whole = sent().filter(|trial| trial.lost == 0).max_by(rate).or_else(|| sent().next());
    if let Some((trial, times)) = whole.and_then(|one| Some((one, one.handshake_ns.as_ref()?))) {
        let (rate, count) = (human_rate(trial.achieved_rate), full_count(times.count));
        let title = format!("from connection start to keys at {rate}, {count} values, from");
        lines.extend(distribution(&title, times, style));
    }
    lines
}

/// Returns a line with the failures of all trials by reason; `None` without failures.
fn failures(trials: &[NtsKeTrial]) -> Option<String> {
    let mut sum = BTreeMap::<NtsKeFailureReason, u64>::new();
    for (reason, count) in trials.iter().flat_map(|trial| &trial.failures) {
        *sum.entry(*reason).or_default() += count;
    }
    let phrase = |(reason, count): (&NtsKeFailureReason, &u64)| {
        let why = match reason {
            NtsKeFailureReason::Connection => "connection failed",
            NtsKeFailureReason::Timeout => "timed out",
            NtsKeFailureReason::Tls => "TLS error",
            NtsKeFailureReason::Response => "incomplete response",
            NtsKeFailureReason::Refused => "refused",
        };
        format!("{} {why}", full_count(*count))
    };
    let phrases: Vec<_> = sum.iter().map(phrase).collect();
    (!phrases.is_empty()).then(|| format!("Failed: {}.", phrases.join(", ")))
}

fn table(result: &NtsKeLoadResult) -> String {
    let rows = result.trials.iter().enumerate();
    let rows = each(rows, |(index, trial)| row(&(index + 1).to_string(), cells(trial)));
    headed(TABLE, "All trials", ("trial", &TITLES), &rows)
}

/// Returns the plots by rate and of distributions, each with the markup below it.
fn plots(result: &NtsKeLoadResult) -> Vec<(Plot, String)> {
    const FIGURES: &str = "rtt-figures";
    let times = times(result);
    // A single rate makes no line.
    let by_rate = (result.trials.len() > 1).then(|| [loss(result), latency(result)]);
    let by_rate = by_rate.into_iter().flatten().map(|plot| (plot, String::new()));
    let percentiles =
        series::percentiles("rtt", "NTS-KE exchange time by percentile", &times, FIGURES);
    let distributions = [
        (percentiles, trials::distributions(&times, FIGURES)),
        (histogram(&HISTOGRAM, &times), String::new()),
    ];
    by_rate.chain(distributions).collect()
}

fn cells(trial: &NtsKeTrial) -> [String; 9] {
    let rate = |rate: Option<f64>| rate.and_then(amount).map_or(ABSENT.to_owned(), human_rate);
    let times = trial.handshake_ns.as_ref();
    let [p50, p90, p99, max] =
        FIGURES.map(|(_, of)| times.map_or_else(|| ABSENT.to_owned(), |one| human_ns(of(one))));
    [
        rate(trial.intended_rate),
        rate(Some(trial.achieved_rate)),
        full_count(trial.clients),
        full_count(trial.sent),
        percent_of(trial.lost, trial.sent),
        p50,
        p90,
        p99,
        max,
    ]
}

/// Returns the distributions of durations in the first and the last trial.
fn times(result: &NtsKeLoadResult) -> Vec<(String, &Distribution)> {
    let known = result.trials.iter().enumerate();
    let known = known.filter_map(|(index, trial)| {
        let rate = human_rate(trial.achieved_rate);
        Some((format!("{rate} (trial {})", index + 1), trial.handshake_ns.as_ref()?))
    });
    let mut known: Vec<_> = known.collect();
    if known.len() > 2 {
        known.drain(1..known.len() - 1);
    }
    known
}

const RATE: PlotAxis = PlotAxis {
    label: "NTS-KE exchanges started per second",
    short: "rate",
    unit: PlotUnit::Rate,
    scale: AxisScale::Linear,
};

fn loss(result: &NtsKeLoadResult) -> Plot {
    let points = result.trials.iter().filter(|trial| trial.sent > 0);
    let points = points.map(|trial| (trial.achieved_rate, trial.lost as f64 / trial.sent as f64));
    Plot {
        id: "loss",
        title: "Failures by rate",
        hint: "Share of exchanges without keys. The scale is logarithmic above 0.01%.",
        described_by: TABLE,
        x: RATE,
        y: series::loss_axis(),
        points: true,
        bars: false,
        marks: held(result),
        shown: PlotViews::one([PlotSeries::new("failed".to_owned(), points.collect())]),
    }
}

fn latency(result: &NtsKeLoadResult) -> Plot {
    let series = FIGURES.map(|(name, of)| {
        let point = |trial: &NtsKeTrial| {
            // A logarithmic axis has no position for 0.
            Some((trial.achieved_rate, of(trial.handshake_ns.as_ref()?).max(1) as f64))
        };
        PlotSeries::new(name.to_owned(), result.trials.iter().filter_map(point).collect())
    });
    Plot {
        id: "latency",
        title: "NTS-KE exchange time by rate",
        hint: "From the intended start, so that queueing at the client is included.",
        described_by: TABLE,
        x: RATE,
        y: time_axis(),
        points: true,
        bars: false,
        marks: held(result),
        shown: PlotViews::one(series),
    }
}

/// Returns the mark of the rate that a search found.
fn held(result: &NtsKeLoadResult) -> Vec<PlotMark> {
    let at = result.search.as_ref().and_then(|search| search.lower).and_then(amount);
    at.map(|at| PlotMark { axis: "x", at, label: format!("best: {}", human_rate(at)) })
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use horolog_record::{LOAD_SCHEMA, RequestMode};

    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;
    use crate::html::main_of;

    fn trial(intended_rate: Option<f64>) -> NtsKeTrial {
        NtsKeTrial {
            intended_rate,
            achieved_rate: 1234.5,
            duration_s: 2.0,
            clients: 32,
            sent: 2_475,
            received: 2_468,
            lost: 7,
            failures: BTreeMap::from([
                (NtsKeFailureReason::Timeout, 6),
                (NtsKeFailureReason::Tls, 1),
            ]),
            handshake_ns: None,
        }
    }

    fn result(trials: Vec<NtsKeTrial>, searched: bool) -> NtsKeLoadResult {
        let load = fixture::load();
        NtsKeLoadResult {
            schema: LOAD_SCHEMA.to_owned(),
            started: load.started,
            command: Vec::new(),
            host: load.host,
            target: load.target,
            mode: RequestMode::NtsKe,
            trials,
            search: load.search.filter(|_| searched),
            limits: Vec::new(),
            findings: Vec::new(),
        }
    }

    fn text(trials: Vec<NtsKeTrial>, searched: bool) -> String {
        result(trials, searched).text(&TableStyle::default())
    }

    #[test]
    fn output_matches_the_expected_text() {
        assert_eq!(
            text(vec![trial(None)], false),
            "NTS-KE exchanges: 1.23 k/s by 32 clients; 7 of 2,475 failed.\nFailed: 6 timed out, \
             1 TLS error."
        );
    }

    #[test]
    fn a_search_has_a_row_for_each_trial_and_a_sentence() {
        let expected = "      NTS-KE exchanges       |         |     from the intended start\n\
                        intended/s started/s clients |  failed |     p50     p90     p99     max\n      \
                        1240      1234      32 |   0.28% |       -       -       -       -";
        let result = result(vec![trial(Some(1240.0)), trial(Some(2480.0))], true);
        let text = result.text(&TableStyle::default());
        assert!(text.starts_with(expected) && text.contains("\nNon-drop rate"), "{text}");
        let text = result.summary(&TableStyle::default());
        assert!(text.starts_with("Non-drop rate") && !text.contains("by 32 clients"), "{text}");
        assert!(text.contains("\nFailed: 12 timed out, 2 TLS error."), "{text}");
        assert!(text.ends_with("\n  failed |##| 0.28% throughout"), "{text}");
    }

    #[test]
    fn a_search_is_drawn_by_rate_and_a_single_trial_is_not() {
        let page = result(vec![trial(Some(1240.0)), trial(Some(2480.0))], true).page();
        let main = main_of(&page);
        assert!(main.contains("plot-loss") && main.contains("12 timed out"), "{main}");
        let page = result(vec![trial(None)], false).page();
        assert!(main_of(&page).contains("1.23 k/s") && !main_of(&page).contains("plot-loss"));
        let page = result(Vec::new(), false).page();
        assert!(main_of(&page).contains("No trials were run"));
    }
}
