//! HTML report of a load on an NTS-KE server: completed exchanges per second, their times, and the
//! reasons of failures.

use horolog_record::{Distribution, NtsKeResult, NtsKeTrial};

use super::data::{headed, row};
use super::escape::each;
use super::latency::{PlotLabels, histogram};
use super::plot::{AxisScale, Plot, PlotAxis, PlotMark, PlotSeries, PlotUnit, PlotViews};
use super::sections::{drawn, findings, limits, machine, paragraph, section, verdict};
use super::{PageTemplate, series, trials};
use crate::limits::failed;
use crate::table::nts_ke::failures;
use crate::units::{ABSENT, amount, full_count, human_ns, human_rate, percent_of};
use crate::verdict::search_sentence;

const TABLE: &str = "trials";
const TITLES: [&str; 9] =
    ["intended", "started", "clients", "attempts", "failed", "p50", "p90", "p99", "max"];

const HISTOGRAM: PlotLabels = PlotLabels {
    id: "rtt-histogram",
    title: "Histogram of NTS-KE exchange times",
    described_by: "rtt-figures",
};

/// Function that returns one value of a distribution, such as a percentile.
type HandshakeTimeSelector = fn(&Distribution) -> u64;

const FIGURES: [(&str, HandshakeTimeSelector); 4] =
    [("p50", |d| d.p50), ("p90", |d| d.p90), ("p99", |d| d.p99), ("max", |d| d.max)];

/// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn nts_ke(result: &NtsKeResult) -> String {
    let times = times(result);
    let percentiles =
        series::percentiles("rtt", "NTS-KE exchange time by percentile", &times, "rtt-figures");
    let mut plots = vec![
        (percentiles, trials::distributions(&times, "rtt-figures")),
        (histogram(&HISTOGRAM, &times), String::new()),
    ];
    // A single rate makes no line.
    if result.trials.len() > 1 {
        plots.splice(0..0, [loss(result), latency(result)].map(|plot| (plot, String::new())));
    }
    let (plotted, plots) = drawn(plots);
    let rows = result.trials.iter().enumerate();
    let rows = each(rows, |(index, trial)| row(&format!("{}", index + 1), cells(trial)));
    let main = [
        section("Limits", &limits(&result.limits)),
        section("Findings", &findings(&result.findings)),
        section("Rate, failures and times", &plotted),
        section("Failures", &each(failures(&result.trials), |line| paragraph(&line))),
        section("Trials", &headed(TABLE, "All trials", ("trial", &TITLES), &rows)),
        section("Run and host", &machine(&result.command, &result.started, &result.host)),
    ];
    let target = &result.target;
    let socket = std::net::SocketAddr::new(target.address, target.port).to_string();
    PageTemplate {
        kind: "load",
        failed: failed(&result.limits),
        heading: target.name.as_ref().map_or(socket.clone(), |name| format!("{name} ({socket})")),
        lead: format!("NTS-KE exchanges, started {}", result.started),
        verdict: top(result),
        main: main.concat(),
        note: "Times are from the start of the connection, or from its intended start in a \
               trial with a rate, to the keys.",
        schema: &result.schema,
        plots,
        result,
    }
    .render()
}

fn top(result: &NtsKeResult) -> String {
    if let Some(search) = &result.search {
        let held = search.lower.map_or_else(|| ABSENT.to_owned(), human_rate);
        return verdict("Highest rate found", &held, &search_sentence(search), &[]);
    }
    let last = result.trials.last();
    let sentence = last.map_or_else(
        || "No trials were run.".to_owned(),
        |trial| {
            let [lost, sent, clients] = [trial.lost, trial.sent, trial.clients].map(full_count);
            format!("By {clients} clients; {lost} of {sent} failed.")
        },
    );
    let rate = last.and_then(|trial| amount(trial.achieved_rate));
    let figure = rate.map_or_else(|| "not measured".to_owned(), human_rate);
    let times = last.and_then(|trial| trial.handshake_ns.as_ref());
    verdict(
        "NTS-KE exchanges",
        &figure,
        &sentence,
        &FIGURES.map(|(name, of)| (name, times.map(of))),
    )
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
fn times(result: &NtsKeResult) -> Vec<(String, &Distribution)> {
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

fn loss(result: &NtsKeResult) -> Plot {
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

fn latency(result: &NtsKeResult) -> Plot {
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
        y: super::latency::time_axis(),
        points: true,
        bars: false,
        marks: held(result),
        shown: PlotViews::one(series),
    }
}

/// Returns the mark of the rate that a search found.
fn held(result: &NtsKeResult) -> Vec<PlotMark> {
    let at = result.search.as_ref().and_then(|search| search.lower).and_then(amount);
    at.map(|at| PlotMark { axis: "x", at, label: format!("best: {}", human_rate(at)) })
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::main_of;
    use crate::table::nts_ke::tests::{result, trial};

    #[test]
    fn a_search_is_drawn_by_rate_and_a_single_trial_is_not() {
        let page = nts_ke(&result(vec![trial(Some(1240.0)), trial(Some(2480.0))], true));
        let main = main_of(&page);
        assert!(main.contains("plot-loss") && main.contains("12 timed out"), "{main}");
        let page = nts_ke(&result(vec![trial(None)], false));
        assert!(main_of(&page).contains("1.23 k/s") && !main_of(&page).contains("plot-loss"));
        let page = nts_ke(&result(Vec::new(), false));
        assert!(main_of(&page).contains("No trials were run"));
    }
}
