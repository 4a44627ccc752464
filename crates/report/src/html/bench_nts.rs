//! HTML report of `bench nts`: the capacity of servers by threads and by the share of authenticated
//! requests, and the cost of a reply.

use horolog_record::{BenchNtsResult, NtsCapacity};

use super::PageTemplate;
use super::data::{headed, row};
use super::escape::each;
use super::plot::{AxisScale, Plot, PlotAxis, PlotSeries, PlotUnit, PlotViews};
use super::sections::{drawn_alone, findings, machine, section, verdict};
use crate::table::bench_nts::{cpu, distinct};
use crate::verdict::BestRate;

const TABLE: &str = "capacities";
const TITLES: [&str; 3] = ["lossless", "vs first", "CPU per reply"];

/// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn bench_nts(result: &BenchNtsResult) -> String {
    let (plotted, plots) = drawn_alone(vec![held(result), cost(result)]);
    let main = [
        section("Findings", &findings(&result.findings)),
        section("By share of authenticated requests", &plotted),
        section("Capacities", &headed(TABLE, "Capacities", ("server", &TITLES), &rows(result))),
        section("Run and host", &machine(&result.command, &result.started, &result.host)),
    ];
    PageTemplate {
        kind: "bench nts",
        failed: None,
        heading: "Server cost of authentication".to_owned(),
        lead: format!("{} searches, started {}", result.capacities.len(), result.started),
        verdict: top(result),
        main: main.concat(),
        note: "Rates are the highest without loss; ≥ if the search ended before the server's \
               limit. CPU time is that of the server's threads.",
        schema: &result.schema,
        plots,
        result,
    }
    .render()
}

fn threads_name(threads: usize) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

/// Returns the capacity of the most threads with the most authenticated requests.
fn top(result: &BenchNtsResult) -> String {
    let most = result.capacities.iter().max_by_key(|one| (one.authenticated_percent, one.threads));
    let sentence = most.map_or_else(
        || "No searches were run.".to_owned(),
        |one| {
            let share = one.authenticated_percent;
            format!("{} with {share}% of requests authenticated.", threads_name(one.threads))
        },
    );
    let figure = most.map_or(BestRate::Nothing, |one| BestRate::of(&one.load)).text();
    verdict("Highest rate without loss", &figure, &sentence, &[])
}

fn rows(result: &BenchNtsResult) -> String {
    each(&result.capacities, |one| {
        let same = result.capacities.iter().find(|first| first.threads == one.threads);
        let base = same.map_or(BestRate::Nothing, |first| BestRate::of(&first.load));
        let name =
            format!("{}, {}% authenticated", threads_name(one.threads), one.authenticated_percent);
        let highest = BestRate::of(&one.load);
        row(&name, [highest.text(), highest.ratio_to(base), cpu(Some(one))])
    })
}

fn held(result: &BenchNtsResult) -> Plot {
    let y = PlotAxis {
        label: "requests per second",
        short: "rate",
        unit: PlotUnit::Rate,
        scale: AxisScale::Zero,
    };
    plot(result, ("lossless", "Highest rate without loss"), y, |one| BestRate::of(&one.load).held())
}

fn cost(result: &BenchNtsResult) -> Plot {
    let y =
        PlotAxis { label: "CPU time", short: "time", unit: PlotUnit::Ns, scale: AxisScale::Zero };
    plot(result, ("cost", "CPU time per reply"), y, |one| one.cpu_ns_per_reply)
}

/// Returns the plot of a metric over the share of authenticated requests, one line per number of
/// threads.
fn plot(
    result: &BenchNtsResult,
    (id, title): (&'static str, &'static str),
    y: PlotAxis,
    figure: fn(&NtsCapacity) -> Option<f64>,
) -> Plot {
    let series = distinct(result, |one| one.threads).into_iter().map(|threads| {
        let of = result.capacities.iter().filter(|one| one.threads == threads);
        let point = |one: &NtsCapacity| {
            let value = figure(one).filter(|value| *value >= 0.0)?;
            Some((f64::from(one.authenticated_percent) / 100.0, value))
        };
        PlotSeries::new(threads_name(threads), of.filter_map(point).collect())
    });
    Plot {
        id,
        title,
        hint: "One line for each number of server threads.",
        described_by: TABLE,
        x: PlotAxis {
            label: "share of authenticated requests",
            short: "authenticated",
            unit: PlotUnit::Share,
            scale: AxisScale::Linear,
        },
        y,
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews::one(series),
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
        assert!(main.contains("2 threads, 100% authenticated") && main.contains("plot-lossless"));
        assert_eq!(held(&result()).shown.views[0].series.len(), 3);
        let mut nothing = result();
        nothing.capacities.clear();
        assert!(main_of(&bench_nts(&nothing)).contains("No searches were run"));
    }
}
