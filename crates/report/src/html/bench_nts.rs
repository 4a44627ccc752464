//! The page of `bench nts`: what servers hold by threads and by the share of requests that are
//! authenticated, and what a reply costs them.

use horolog_record::{BenchNtsResult, NtsCapacity};

use super::Page;
use super::data::{headed, row};
use super::escape::each;
use super::plot::{Axis, Choice, Plot, Scale, Series, Unit};
use super::sections::{drawn_alone, findings, machine, section, verdict};
use crate::table::bench_nts::{cpu, distinct};
use crate::verdict::Highest;

const TABLE: &str = "capacities";
const TITLES: [&str; 3] = ["lossless", "to the first", "CPU per reply"];

/// The page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn bench_nts(result: &BenchNtsResult) -> String {
    let (plotted, plots) = drawn_alone(vec![held(result), cost(result)]);
    let main = [
        section("Findings", &findings(&result.findings)),
        section("By share of authenticated requests", &plotted),
        section("Figures", &headed(TABLE, "Capacities", ("server", &TITLES), &rows(result))),
        section("Run and machine", &machine(&result.command, &result.started, &result.host)),
    ];
    Page {
        kind: "bench nts",
        failed: None,
        heading: "What authentication costs a server".to_owned(),
        lead: format!("{} searches, started {}", result.capacities.len(), result.started),
        verdict: top(result),
        main: main.concat(),
        note: "A rate is the highest without loss; ≥ where the search ended before the server's \
               limit was met. Processor time is that of the server's own threads.",
        schema: &result.schema,
        plots,
        result,
    }
    .render()
}

fn threads_name(threads: usize) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

/// What the most threads hold of the most authenticated requests.
fn top(result: &BenchNtsResult) -> String {
    let most = result.capacities.iter().max_by_key(|one| (one.authenticated_percent, one.threads));
    let said = most.map_or_else(
        || "No search was run.".to_owned(),
        |one| {
            let share = one.authenticated_percent;
            format!("{} with {share}% of requests authenticated.", threads_name(one.threads))
        },
    );
    let figure = most.map_or(Highest::Nothing, |one| Highest::of(&one.load)).text();
    verdict("Highest rate without loss", &figure, &said, &[])
}

fn rows(result: &BenchNtsResult) -> String {
    each(&result.capacities, |one| {
        let same = result.capacities.iter().find(|first| first.threads == one.threads);
        let base = same.map_or(Highest::Nothing, |first| Highest::of(&first.load));
        let name =
            format!("{}, {}% authenticated", threads_name(one.threads), one.authenticated_percent);
        let highest = Highest::of(&one.load);
        row(&name, [highest.text(), highest.ratio_to(base), cpu(Some(one))])
    })
}

fn held(result: &BenchNtsResult) -> Plot {
    let y =
        Axis { label: "requests per second", short: "rate", unit: Unit::Rate, scale: Scale::Zero };
    plot(result, ("held", "Highest rate without loss"), y, |one| Highest::of(&one.load).held())
}

fn cost(result: &BenchNtsResult) -> Plot {
    let y = Axis { label: "processor time", short: "time", unit: Unit::Ns, scale: Scale::Zero };
    plot(result, ("cost", "Processor time of a reply"), y, |one| one.cpu_ns_per_reply)
}

/// A figure over the share, a line for each number of threads.
fn plot(
    result: &BenchNtsResult,
    (id, title): (&'static str, &'static str),
    y: Axis,
    figure: fn(&NtsCapacity) -> Option<f64>,
) -> Plot {
    let series = distinct(result, |one| one.threads).into_iter().map(|threads| {
        let of = result.capacities.iter().filter(|one| one.threads == threads);
        let point = |one: &NtsCapacity| {
            let value = figure(one).filter(|value| *value >= 0.0)?;
            Some((f64::from(one.authenticated_percent) / 100.0, value))
        };
        Series::new(threads_name(threads), of.filter_map(point).collect())
    });
    Plot {
        id,
        title,
        hint: "A line for each number of the server's threads.",
        described_by: TABLE,
        x: Axis {
            label: "share of requests that are authenticated",
            short: "authenticated",
            unit: Unit::Share,
            scale: Scale::Linear,
        },
        y,
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: Choice::one(series),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::main_of;
    use crate::table::bench_nts::tests::result;

    #[test]
    fn every_search_has_a_row_and_every_number_of_threads_a_line() {
        let page = bench_nts(&result());
        let main = main_of(&page);
        assert!(main.contains("2 threads, 100% authenticated") && main.contains("plot-held"));
        assert_eq!(held(&result()).shown.views[0].series.len(), 3);
        let mut nothing = result();
        nothing.capacities.clear();
        assert!(main_of(&bench_nts(&nothing)).contains("No search was run"));
    }
}
