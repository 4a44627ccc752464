//! Table of the intervals of a run, as text alternative of the plots over time. For a long run it
//! contains the worst intervals, and a summary of all intervals merged into longer ones.

use horolog_record::{LoadResult, LoadSeriesPoint, LoadTimeSeries};

use crate::html::data::{headed, row};
use crate::html::escape::each;
use crate::html::sections::paragraph;
use crate::json::to_compact_json;
use crate::units::{ABSENT, full_count, human_ns, percent_of};
use crate::units::{long_time, since_begin};

/// Column: title, and function that returns its cell.
type IntervalColumn = (&'static str, fn(&LoadSeriesPoint) -> String);

const COLUMNS: [IntervalColumn; 12] = [
    ("trial", |point| point.trial.saturating_add(1).to_string()),
    ("sent", |point| full_count(point.sent)),
    ("answered", |point| full_count(point.received)),
    ("lost", |point| full_count(point.lost)),
    ("loss ratio", |point| percent_of(point.lost, point.sent)),
    ("late", |point| full_count(point.late)),
    ("unsynchronised", |point| full_count(point.unsynchronised)),
    ("invalid", |point| full_count(point.invalid)),
    ("p50", |point| time(point.rtt_ns.map(|rtt| rtt.p50))),
    ("p99", |point| time(point.rtt_ns.map(|rtt| rtt.p99))),
    ("p99.9", |point| time(point.rtt_ns.map(|rtt| rtt.p99_9))),
    ("max", |point| time(point.rtt_ns.map(|rtt| rtt.max))),
];
/// Maximum number of intervals that are shown one by one.
const ROWS_MAX: usize = 600;
/// Number of worst intervals shown of a longer run.
const WORST: usize = 20;
/// Maximum number of longer intervals of the summary.
const LONGER_MAX: f64 = 120.0;
/// Lengths of the longer intervals, in seconds.
const LENGTHS_S: [f64; 14] =
    [1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 10_800.0];
/// Maximum size of the embedded JSON with all intervals, in bytes.
const BYTES_MAX: usize = 740_000;

fn time(ns: Option<u64>) -> String {
    ns.map_or_else(|| ABSENT.to_owned(), human_ns)
}

/// Returns the result without its intervals; `None` if it is small enough with them.
pub(super) fn without_intervals(result: &LoadResult) -> Option<LoadResult> {
    let mut small = is_too_large(result).then(|| result.clone())?;
    small.series.iter_mut().for_each(|series| series.points.clear());
    Some(small)
}

/// Returns true if the intervals of a result are too many to be embedded.
fn is_too_large(result: &LoadResult) -> bool {
    result.series.as_ref().is_some_and(|series| series.points.len() > ROWS_MAX)
        && to_compact_json(result).len() > BYTES_MAX
}

/// Returns the table of intervals; nothing for a run without any.
pub(super) fn intervals(result: &LoadResult, id: &str) -> String {
    let Some(series) = &result.series else { return String::new() };
    let (count, interval_s) = (series.points.len(), series.interval_s);
    if count <= ROWS_MAX {
        let table = one_by_one(&series.points, (id, "Intervals"));
        return format!(
            "<details><summary>{count} intervals of {interval_s} s</summary>\n{table}</details>\n"
        );
    }
    let length_s = longer_s(series);
    let (longer, worst) = (longer(series, length_s), worst(&series.points));
    let left_out = if is_too_large(result) {
        paragraph("The result in this page does not contain them; the one written by --json does.")
    } else {
        String::new()
    };
    let sentence = format!(
        "Of {} intervals of {interval_s} s, the {} with the most loss or, if equal, the highest \
         latency.",
        full_count(count as u64),
        worst.len()
    );
    let worst = one_by_one(worst, ("intervals-worst", "The worst intervals"));
    format!(
        "{}{left_out}{}<details id=\"{id}\"><summary>All of them by {}</summary>\n{}</details>\n",
        paragraph(&sentence),
        worst,
        long_time(length_s as u64),
        summed_up(&longer, &format!("{id}-longer")),
    )
}

fn one_by_one<'p>(
    points: impl IntoIterator<Item = &'p LoadSeriesPoint>,
    (id, label): (&str, &str),
) -> String {
    let rows =
        each(points, |point| row(&since_begin(point.at_s), COLUMNS.map(|(_, cell)| cell(point))));
    headed(id, label, ("from", &COLUMNS.map(|(title, _)| title)), &rows)
}

/// Returns the intervals with the highest loss ratios and the longest latencies, in their order.
fn worst(points: &[LoadSeriesPoint]) -> Vec<&LoadSeriesPoint> {
    let longest = |point: &LoadSeriesPoint| point.rtt_ns.map_or(0, |rtt| rtt.max);
    let mut worst: Vec<_> = points.iter().collect();
    worst.sort_by(|a, b| {
        b.loss_ratio().total_cmp(&a.loss_ratio()).then(longest(b).cmp(&longest(a)))
    });
    worst.truncate(WORST);
    worst.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    worst
}

/// Returns the length of merged intervals, in seconds.
fn longer_s(series: &LoadTimeSeries) -> f64 {
    let all_s = series.points.len() as f64 * series.interval_s;
    let few = |length_s: &&f64| all_s / **length_s <= LONGER_MAX;
    LENGTHS_S.iter().find(few).copied().unwrap_or(all_s)
}

/// Counts of several intervals merged into one.
#[derive(Default)]
struct MergedInterval {
    at_s: f64,
    sent: u64,
    received: u64,
    lost: u64,
    late: u64,
    unsynchronised: u64,
    invalid: u64,
    /// Highest median of the merged intervals.
    p50: Option<u64>,
    p99: Option<u64>,
    max: Option<u64>,
}

fn longer(series: &LoadTimeSeries, length_s: f64) -> Vec<MergedInterval> {
    // The start of an interval is rounded.
    let interval_index =
        |point: &LoadSeriesPoint| ((point.at_s + series.interval_s / 2.0) / length_s).floor();
    let of = |points: &[LoadSeriesPoint]| {
        let begin_s = points.first().map_or(0.0, |point| interval_index(point) * length_s);
        let mut sum = MergedInterval { at_s: begin_s, ..MergedInterval::default() };
        for point in points {
            for (sum, count) in [
                (&mut sum.sent, point.sent),
                (&mut sum.received, point.received),
                (&mut sum.lost, point.lost),
                (&mut sum.late, point.late),
                (&mut sum.unsynchronised, point.unsynchronised),
                (&mut sum.invalid, point.invalid),
            ] {
                *sum = sum.saturating_add(count);
            }
            sum.p50 = sum.p50.max(point.rtt_ns.map(|rtt| rtt.p50));
            sum.p99 = sum.p99.max(point.rtt_ns.map(|rtt| rtt.p99));
            sum.max = sum.max.max(point.rtt_ns.map(|rtt| rtt.max));
        }
        sum
    };
    series
        .points
        .chunk_by(|a, b| interval_index(a).total_cmp(&interval_index(b)).is_eq())
        .map(of)
        .collect()
}

fn summed_up(longer: &[MergedInterval], id: &str) -> String {
    const TITLES: [&str; 10] = [
        "sent",
        "answered",
        "lost",
        "loss ratio",
        "late",
        "unsynchronised",
        "invalid",
        "highest p50",
        "highest p99",
        "max",
    ];
    let rows = each(longer, |one| {
        let cells = [
            full_count(one.sent),
            full_count(one.received),
            full_count(one.lost),
            percent_of(one.lost, one.sent),
            full_count(one.late),
            full_count(one.unsynchronised),
            full_count(one.invalid),
            time(one.p50),
            time(one.p99),
            time(one.max),
        ];
        row(&long_time(one.at_s as u64), cells)
    });
    headed(id, "Longer intervals", ("from", &TITLES), &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;

    #[test]
    fn every_interval_has_a_row() {
        let mut result = fixture::load();
        assert_eq!(intervals(&result, "i"), "");
        result.series = Some(fixture::series());
        let markup = intervals(&result, "i");
        assert_eq!(markup.matches("scope=\"row\"").count(), 3);
        assert!(markup.contains("<td>50.00%</td>") && markup.contains("<td>-</td>"), "{markup}");
    }

    /// Of so many intervals of a second, of which one was lost.
    fn long(count: usize) -> LoadResult {
        let mut series = fixture::series();
        let point = series.points[0].clone();
        let points = (0..count).map(|at| LoadSeriesPoint { at_s: at as f64, ..point.clone() });
        (series.points, series.interval_s) = (points.collect(), 1.0);
        let lost = &mut series.points[count / 2];
        (lost.lost, lost.received, lost.rtt_ns) = (lost.sent, 0, None);
        LoadResult { series: Some(series), search: None, ..fixture::load() }
    }

    #[test]
    fn a_long_series_is_aggregated() {
        let result = long(3_600);
        let markup = intervals(&result, "i");
        assert_eq!(markup.matches("scope=\"row\"").count(), 120 + WORST);
        assert!(markup.contains("All of them by 30 s") && markup.contains(">30 min<"));
        let longer = longer(result.series.as_ref().unwrap(), 30.0);
        assert!(longer.iter().all(|one| one.sent == 3_000 && one.p50 == Some(3_000)));
        assert_eq!(longer.iter().map(|one| one.lost).sum::<u64>(), 100);
        assert!((longer[60].at_s - 1_800.0).abs() < 1e-9 && longer[60].lost == 100);
    }

    #[test]
    fn a_page_embeds_an_hour_and_reports_omitted_intervals() {
        let left_out = "does not contain them";
        let hour = long(3_600);
        assert!(!intervals(&hour, "i").contains(left_out) && without_intervals(&hour).is_none());
        let longest = long(10_000);
        assert!(intervals(&longest, "i").contains(left_out));
        assert!(without_intervals(&longest).unwrap().series.as_ref().unwrap().points.is_empty());
        for result in [hour, longest] {
            let bytes = result.page().len();
            assert!(bytes < 1_000_000, "{bytes}");
        }
    }
}
