//! HTML report of a query: the offset of each server's clock, offset and delay over time, and the
//! Allan deviation.

use horolog_record::{AllanDeviation, ExactSummary, ExchangeSample, QueryResult, ServerResult};

use super::data::{row, table};
use super::escape::{each, text};
use super::plot::{AxisScale, Plot, PlotAxis, PlotUnit, PlotViews};
use super::sections::{
    columns, command_line, drawn_alone, facts, findings, host_facts, limits, section,
};
use super::stability::{allan_plot, allan_table};
use super::time_series::TimeSeriesSettings;
use super::{PageTemplate, headline};
use crate::limits::failed;
use crate::table::query::{
    difference_line, figure_texts, full_name, leap_name, odd_replies, timestamp_counts,
};
use crate::units::{ABSENT, full_count, human_ns, mean_ns, signed_ns};

/// Maximum number of samples per server that the embedded JSON contains.
const SAMPLES_MAX: usize = 1_000;

const NOTE: &str = "Statistics are exact, over all samples. Offset is equation (6), ((T2 − T1) + \
                    (T3 − T4)) / 2, and delay equation (7), (T4 − T1) − (T3 − T2), of Liu, Wu and \
                    Wang 2020 (RFC 5905, section 8); all are relative to the clock of the \
                    measuring host.";

const STABILITY: &str = "Overlapping, of the fractional frequency. Slope −1 indicates \
                         measurement noise; a rise indicates wander.";

/// Returns the page as HTML, with the result as JSON in the element `result`. Samples are omitted
/// there for servers with more than [`SAMPLES_MAX`]; the result file contains them.
#[must_use]
pub fn query(result: &QueryResult) -> String {
    let plots = vec![
        over_time(result, &OFFSETS, |sample| sample.offset_ns),
        over_time(result, &DELAYS, |sample| sample.delay_ns),
        allan_plot(STABILITY, &stability(result)),
    ];
    let (figures, plots) = drawn_alone(plots);
    let main = [
        section("Limits", &limits(&result.limits)),
        section("Findings", &findings(&result.findings)),
        section("Servers", &servers(result)),
        section("Between servers", &differences(result)),
        section("Offset, delay and stability", &figures),
        section("Statistics", &statistics(result)),
        section("Allan deviation", &allan_table(&stability(result))),
        section("Run and host", &machine(result)),
    ];
    let names: Vec<_> = result.servers.iter().map(|server| server.name.as_str()).collect();
    PageTemplate {
        kind: "query",
        failed: failed(&result.limits),
        heading: names.join(", "),
        lead: format!(
            "{} exchanges with each, one every {}, started {}",
            full_count(result.count),
            human_ns(result.interval_ns),
            result.started
        ),
        verdict: headline::query(result),
        main: main.concat(),
        note: NOTE,
        schema: &result.schema,
        plots,
        result: &without_many_samples(result),
    }
    .render()
}

/// Quantity plotted over time.
struct PlottedQuantity {
    id: &'static str,
    title: &'static str,
    hint: &'static str,
    unit: PlotUnit,
}

const OFFSETS: PlottedQuantity = PlottedQuantity {
    id: "offset",
    title: "Offset over time",
    hint: "Lead of the server's clock over the local clock. Many samples are thinned to the \
           minimum and maximum of each group.",
    unit: PlotUnit::Signed,
};

const DELAYS: PlottedQuantity = PlottedQuantity {
    id: "delay",
    title: "Delay over time",
    hint: "Round-trip delay without the server's response time. Many samples are thinned to the \
           minimum and maximum of each group.",
    unit: PlotUnit::Ns,
};

/// Formats a delay; it is negative only if a clock is wrong.
fn delay(ns: i64) -> String {
    u64::try_from(ns).map_or_else(|_| signed_ns(ns), human_ns)
}

fn without_many_samples(result: &QueryResult) -> QueryResult {
    let mut result = result.clone();
    for server in &mut result.servers {
        if server.samples.len() > SAMPLES_MAX {
            server.samples.clear();
        }
    }
    result
}

/// Returns the plot of a quantity of all servers over the time since the first sample.
fn over_time(
    result: &QueryResult,
    quantity: &PlottedQuantity,
    of: fn(&ExchangeSample) -> i64,
) -> Plot {
    let &PlottedQuantity { id, title, hint, unit } = quantity;
    let first = result.servers.iter().filter_map(|server| server.samples.first());
    let start_ns = first.map(|sample| sample.t1_ns).min().unwrap_or(0);
    let series = |server: &ServerResult| {
        let point = |sample: &ExchangeSample| {
            (sample.t1_ns.saturating_sub(start_ns) as f64 / 1e9, of(sample) as f64)
        };
        let points = server.samples.iter().map(point).collect();
        TimeSeriesSettings::of(result.interval_ns as f64 / 1e9).line(server.name.clone(), points)
    };
    let many = result.servers.iter().any(|server| server.samples.len() > 100);
    Plot {
        id,
        title,
        hint,
        described_by: "figures",
        x: PlotAxis::ELAPSED,
        y: PlotAxis { label: id, short: id, unit, scale: AxisScale::Linear },
        points: !many,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews::one(result.servers.iter().map(series)),
    }
}

/// Returns the servers with the Allan deviations of their offsets.
fn stability(result: &QueryResult) -> Vec<(&str, &[AllanDeviation])> {
    result.servers.iter().map(|one| (one.name.as_str(), one.allan.as_slice())).collect()
}

fn servers(result: &QueryResult) -> String {
    const TITLES: [&str; 11] = [
        "stratum",
        "reference",
        "leap",
        "root delay",
        "root dispersion",
        "offset",
        "± bound",
        "delay",
        "jitter",
        "replies",
        "other",
    ];
    let rows = each(&result.servers, |server| {
        let state_text = |of: fn(&horolog_record::ServerState) -> String| {
            server.server_state.as_ref().map_or_else(|| ABSENT.to_owned(), of)
        };
        let best = |of: fn(&horolog_record::BestSample) -> String| {
            server.best.as_ref().map_or_else(|| ABSENT.to_owned(), of)
        };
        let ended = server.ended.as_ref().map(|end| end.message.clone());
        let otherwise: Vec<_> = odd_replies(server)
            .map(|odd| odd.trim_start_matches("other: ").to_owned())
            .into_iter()
            .chain(ended)
            .collect();
        row(
            &full_name(server),
            [
                state_text(|state| state.stratum.to_string()),
                state_text(|state| state.reference_id.clone()),
                state_text(|state| leap_name(state.leap).to_owned()),
                state_text(|state| human_ns(state.root_delay_ns)),
                state_text(|state| human_ns(state.root_dispersion_ns)),
                best(|best| signed_ns(best.offset_ns)),
                best(|best| human_ns(best.bound_ns)),
                best(|best| delay(best.delay_ns)),
                server.jitter_ns.map_or_else(|| ABSENT.to_owned(), mean_ns),
                format!(
                    "{} of {}",
                    full_count(server.counts.received),
                    full_count(server.counts.sent)
                ),
                otherwise.join("; "),
            ],
        )
    });
    table("servers", "Servers", &TITLES, &rows)
}

fn differences(result: &QueryResult) -> String {
    if result.differences.is_empty() {
        return String::new();
    }
    let lines = each(&result.differences, |difference| {
        format!("<li>{}</li>\n", text(&difference_line(difference, result)))
    });
    format!("<ul>\n{lines}</ul>\n")
}

fn statistics(result: &QueryResult) -> String {
    const TITLES: [&str; 11] =
        ["samples", "mean", "deviation", "RMS", "min", "p1", "p5", "p50", "p95", "p99", "max"];
    let rows = each(&result.servers, |server| {
        let figures = |name: &str, figures: Option<ExactSummary>, signed| {
            figures.map_or_else(String::new, |figures| {
                let count = std::iter::once(full_count(figures.count));
                row(
                    &format!("{}: {name}", server.name),
                    count.chain(figure_texts(&figures, signed)),
                )
            })
        };
        [
            figures("offset", server.offset_ns, true),
            figures("delay", server.delay_ns, false),
            figures("dispersion", server.dispersion_ns, false),
        ]
        .concat()
    });
    table("figures", "Statistics of all samples", &TITLES, &rows)
}

fn machine(result: &QueryResult) -> String {
    let mode = if result.interleaved { "interleaved" } else { "basic" };
    let run = facts(&[
        ("Command", Some(command_line(&result.command))),
        ("Started", Some(result.started.clone())),
        ("NTP version", Some(result.ntp_version.to_string())),
        ("Mode", Some(mode.to_owned())),
        ("Reply timeout", Some(human_ns(result.reply_timeout_ns))),
    ]);
    let servers = each(&result.servers, |server| {
        let nts = server.nts.as_ref();
        let clock = server.hardware_clock.as_ref();
        facts(&[
            ("Server", Some(full_name(server))),
            ("Port", Some(server.port.to_string())),
            ("Timestamps of requests", Some(timestamp_counts(server.transmit_timestamps))),
            ("Timestamps of replies", Some(timestamp_counts(server.receive_timestamps))),
            ("PHC", clock.map(|one| format!("{}, /dev/ptp{}", one.interface, one.clock))),
            (
                "PHC conversion",
                clock.map(|one| format!("± {}", human_ns(one.conversion_uncertainty_ns))),
            ),
            ("Authenticated by", nts.map(|nts| format!("NTS, {}", nts.algorithm))),
            ("NTS-KE server", nts.map(|nts| nts.ke_server.clone())),
            (
                "NTS-KE repetitions",
                nts.filter(|nts| nts.renewals > 0).map(|nts| nts.renewals.to_string()),
            ),
            (
                "Drift",
                server.drift.map(|drift| format!("{:+.4} ± {:.4} ppm", drift.ppm, drift.error_ppm)),
            ),
        ])
    });
    columns(&[run, host_facts(&result.host), servers])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::html::main_of;

    #[test]
    fn every_server_has_its_figures() {
        let page = query(&fixture::query(100));
        assert!(page.contains("192.0.2.1: offset") && page.contains("time.example: dispersion"));
        assert!(page.contains("they are inconsistent"));
        assert!(page.contains("cannot resolve &#39;nowhere.example&#39;"), "why it is silent");
    }

    #[test]
    fn the_page_of_a_long_run_is_small() {
        assert!(query(&fixture::query(10_000)).len() < 1_000_000);
    }

    #[test]
    fn a_query_without_replies_still_makes_a_page() {
        let page = query(&fixture::query(0));
        let main = main_of(&page);
        assert!(
            !main.contains("NaN") && !main.contains(">inf") && !main.contains("plot-"),
            "{main}"
        );
    }
}
