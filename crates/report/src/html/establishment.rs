//! The page of a load on a server for NTS key establishment: what it completes in a second, how
//! long each takes, and why others came to nothing.

use horolog_record::{Distribution, EstablishmentResult, EstablishmentTrial};

use super::data::{headed, row};
use super::escape::each;
use super::latency::{Place, histogram};
use super::plot::{Axis, Choice, Mark, Plot, Scale, Series, Unit};
use super::sections::{drawn, findings, limits, machine, paragraph, section, verdict};
use super::{Page, series, trials};
use crate::limits::failed;
use crate::table::establishment::failures;
use crate::units::{ABSENT, amount, full_count, human_ns, human_rate, percent_of};
use crate::verdict::search_sentence;

const TABLE: &str = "trials";
const TITLES: [&str; 9] =
    ["planned", "begun", "clients", "asked", "failed", "p50", "p90", "p99", "max"];

const HISTOGRAM: Place = Place {
    id: "rtt-histogram",
    title: "Time of an establishment, how often",
    described_by: "rtt-figures",
};

/// Takes one time out of a distribution.
type Figure = fn(&Distribution) -> u64;

const FIGURES: [(&str, Figure); 4] =
    [("p50", |d| d.p50), ("p90", |d| d.p90), ("p99", |d| d.p99), ("max", |d| d.max)];

/// The page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn establishment(result: &EstablishmentResult) -> String {
    let times = times(result);
    let percentiles =
        series::percentiles("rtt", "Time of an establishment by percentile", &times, "rtt-figures");
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
        section("What failed", &each(failures(&result.trials), |line| paragraph(&line))),
        section("Trials", &headed(TABLE, "All trials", ("trial", &TITLES), &rows)),
        section("Run and machine", &machine(&result.command, &result.started, &result.host)),
    ];
    let target = &result.target;
    let socket = std::net::SocketAddr::new(target.address, target.port).to_string();
    Page {
        kind: "load",
        failed: failed(&result.limits),
        heading: target.name.as_ref().map_or(socket.clone(), |name| format!("{name} ({socket})")),
        lead: format!("NTS key establishment, started {}", result.started),
        verdict: top(result),
        main: main.concat(),
        note: "Times are from the beginning of the connection, or from when it was due where a \
               rate was planned, to the keys.",
        schema: &result.schema,
        plots,
        result,
    }
    .render()
}

fn top(result: &EstablishmentResult) -> String {
    if let Some(search) = &result.search {
        let held = search.lower.map_or_else(|| ABSENT.to_owned(), human_rate);
        return verdict("Highest rate found", &held, &search_sentence(search), &[]);
    }
    let last = result.trials.last();
    let said = last.map_or_else(
        || "No trial was run.".to_owned(),
        |trial| {
            let [lost, sent, clients] = [trial.lost, trial.sent, trial.clients].map(full_count);
            format!("By {clients} clients; {lost} of {sent} failed.")
        },
    );
    let rate = last.and_then(|trial| amount(trial.achieved_rate));
    let figure = rate.map_or_else(|| "not measured".to_owned(), human_rate);
    let times = last.and_then(|trial| trial.handshake_ns.as_ref());
    verdict("Establishments", &figure, &said, &FIGURES.map(|(name, of)| (name, times.map(of))))
}

fn cells(trial: &EstablishmentTrial) -> [String; 9] {
    let rate = |rate: Option<f64>| rate.and_then(amount).map_or(ABSENT.to_owned(), human_rate);
    let times = trial.handshake_ns.as_ref();
    let [p50, p90, p99, max] =
        FIGURES.map(|(_, of)| times.map_or_else(|| ABSENT.to_owned(), |one| human_ns(of(one))));
    [
        rate(trial.offered_rate),
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

/// The times of the first trial and of the last.
fn times(result: &EstablishmentResult) -> Vec<(String, &Distribution)> {
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

const RATE: Axis = Axis {
    label: "establishments begun per second",
    short: "rate",
    unit: Unit::Rate,
    scale: Scale::Linear,
};

fn loss(result: &EstablishmentResult) -> Plot {
    let points = result.trials.iter().filter(|trial| trial.sent > 0);
    let points = points.map(|trial| (trial.achieved_rate, trial.lost as f64 / trial.sent as f64));
    Plot {
        id: "loss",
        title: "Failures by rate",
        hint: "Share of establishments that gave no keys. The scale is logarithmic above 0.01%.",
        described_by: TABLE,
        x: RATE,
        y: series::loss_axis(),
        points: true,
        bars: false,
        marks: held(result),
        shown: Choice::one([Series::new("failed".to_owned(), points.collect())]),
    }
}

fn latency(result: &EstablishmentResult) -> Plot {
    let series = FIGURES.map(|(name, of)| {
        let point = |trial: &EstablishmentTrial| {
            // A logarithmic axis has no place for 0.
            Some((trial.achieved_rate, of(trial.handshake_ns.as_ref()?).max(1) as f64))
        };
        Series::new(name.to_owned(), result.trials.iter().filter_map(point).collect())
    });
    Plot {
        id: "latency",
        title: "Time of an establishment by rate",
        hint: "Counted from when it was due, so that waiting at the client is not hidden.",
        described_by: TABLE,
        x: RATE,
        y: super::latency::time_axis(),
        points: true,
        bars: false,
        marks: held(result),
        shown: Choice::one(series),
    }
}

/// The rate that a search found.
fn held(result: &EstablishmentResult) -> Vec<Mark> {
    let at = result.search.as_ref().and_then(|search| search.lower).and_then(amount);
    at.map(|at| Mark { axis: "x", at, label: format!("held: {}", human_rate(at)) })
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::main_of;
    use crate::table::establishment::tests::{result, trial};

    #[test]
    fn a_search_is_drawn_by_rate_and_a_single_trial_is_not() {
        let page = establishment(&result(vec![trial(Some(1240.0)), trial(Some(2480.0))], true));
        let main = main_of(&page);
        assert!(main.contains("plot-loss") && main.contains("12 too late"), "{main}");
        let page = establishment(&result(vec![trial(None)], false));
        assert!(main_of(&page).contains("1.23 k/s") && !main_of(&page).contains("plot-loss"));
        let page = establishment(&result(Vec::new(), false));
        assert!(main_of(&page).contains("No trial was run"));
    }
}
