//! HTML report of a run over a path: all rows, T by percentile and by length, and the findings.

use horolog_record::{Distribution, PathRow, PathUdpResult};

use super::PageTemplate;
use super::data::{row, table};
use super::escape::each;
use super::plot::{Axis, AxisScale, Choice, Plot, PlotSeries, PlotUnit};
use super::sections::{
    columns, command_line, drawn, facts, findings, host_facts, limits, paragraph, section,
};
use super::{headline, series, trials};
use crate::limits::failed;
use crate::path_udp::{COLUMNS, NOTE, cost, details, title};
use crate::units::{full_count, human_ns};

/// Selector of one time of a row.
type PathQuantile = fn(&Distribution) -> f64;

/// Returns the page as HTML, with the whole result in the element `result`.
#[must_use]
pub fn path_udp(result: &PathUdpResult) -> String {
    let rtt = round_trips(result);
    let by_percentile = series::percentiles("rtt", "Round trip by percentile", &rtt, "rtt-figures");
    let (plotted, plots) = drawn(vec![
        (by_percentile, trials::distributions(&rtt, "rtt-figures")),
        (by_length(result), String::new()),
    ]);
    let titles = COLUMNS.map(|(title, ..)| title);
    let numbered = result.rows.iter().enumerate();
    let rows = each(numbered, |(index, one)| {
        row(&format!("{}", index + 1), COLUMNS.map(|(.., cell)| cell(one)))
    });
    let numbered = result.rows.iter().enumerate();
    let lines = numbered.flat_map(|(index, row)| details(result, index, row));
    let paragraphs = each(lines.chain([cost(result)]), |line| paragraph(&line));
    let main = [
        section("Limits", &limits(&result.limits)),
        section("Findings", &findings(&result.findings)),
        section("Rows", &(table("rows", "Rows", &titles, &rows) + &paragraphs)),
        section("Round trip", &plotted),
        section("Run and host", &machine(result)),
    ];
    PageTemplate {
        kind: "path udp",
        failed: failed(&result.limits),
        heading: result.target.name.clone(),
        lead: format!("{}, started {}", title(result), result.started),
        verdict: headline::path_udp(result),
        main: main.concat(),
        note: NOTE,
        schema: &result.schema,
        plots,
        result,
    }
    .render()
}

fn round_trips(result: &PathUdpResult) -> Vec<(String, &Distribution)> {
    let one = |(index, row): (usize, &'_ PathRow)| {
        format!("{}. {} bytes, R {}", index + 1, row.length, row.load.planned_ratio)
    };
    let numbered = result.rows.iter().enumerate();
    numbered.filter_map(|(index, row)| Some((one((index, row)), row.rtt_ns.as_ref()?))).collect()
}

/// Returns the plot of T over the length, if rows of one load differ in it.
fn by_length(result: &PathUdpResult) -> Plot {
    const FIGURES: [(&str, PathQuantile); 3] =
        [("mean", |d| d.mean), ("p50", |d| d.p50 as f64), ("p99", |d| d.p99 as f64)];
    let is_plain = |row: &&PathRow| row.load.planned_ratio == 0.0;
    let series = |(name, figure): (&str, PathQuantile)| {
        let plain = result.rows.iter().filter(is_plain);
        let points =
            plain.filter_map(|row| Some((row.length as f64, figure(row.delay_ns.as_ref()?))));
        PlotSeries::new(name.to_owned(), points.collect())
    };
    Plot {
        id: "length",
        title: "T by length",
        hint: "Half the round trip, rows without load.",
        described_by: "rows",
        x: Axis { label: "bytes", short: "bytes", unit: PlotUnit::Count, scale: AxisScale::Linear },
        y: Axis { label: "T", short: "T", unit: PlotUnit::Ns, scale: AxisScale::Zero },
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: Choice::one(FIGURES.map(series)),
    }
}

fn machine(result: &PathUdpResult) -> String {
    let target = &result.target;
    let yes = |yes: bool| Some(if yes { "yes" } else { "no" }.to_owned());
    let run = facts(&[
        ("Command", Some(command_line(&result.command))),
        ("Started", Some(result.started.clone())),
        ("Far end", Some(format!("{} port {}", target.address, target.port))),
        ("MTU of the path", Some(full_count(target.mtu))),
        ("Far end on this kernel", yes(target.same_clock)),
        ("Clock difference, max", target.clock_error_ns.map(human_ns)),
        ("Reply timeout", Some(human_ns(result.reply_timeout_ns))),
        ("Warm-up of each row and flow", Some(full_count(result.warm_up))),
        ("DSCP", Some(result.dscp.to_string())),
        ("Load by broadcast", yes(result.load_broadcast)),
    ]);
    columns(&[run, host_facts(&result.host)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn every_row_is_there_and_lengths_are_compared() {
        let page = path_udp(&fixture::path_udp());
        assert!(page.contains("id=\"plot-rtt\"") && page.contains("id=\"plot-length\""));
        assert_eq!(page.matches("<th scope=\"row\" class=\"words\">2</th>").count(), 1);
    }

    #[test]
    fn no_text_of_a_result_becomes_markup() {
        let mut result = fixture::path_udp();
        result.target.name = "</script><img src=x>".to_owned();
        result.findings[0].message = "<script>alert(1)</script>".to_owned();
        let page = path_udp(&result);
        assert!(!page.contains("<img") && !page.contains("<script>alert"));
    }
}
