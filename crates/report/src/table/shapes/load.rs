//! Graphs of a load: loss and p99 latency over the rate or over time as sparklines, and the
//! distribution of the round trip as bars. Shared by loads of requests and of NTS-KE exchanges.

use horolog_record::{Distribution, LoadResult};

use super::{SparklineGroup, SparklineRow, SparklineScale, SparklineUnit, distribution};
use crate::table::TableStyle;
use crate::units::{full_count, human_rate};
use crate::verdict::lower_bound_trial;

/// Values of the trials to draw: rate, loss ratio, and distribution of latency.
pub(crate) struct PlottedTrials<'a> {
    pub(crate) all: Vec<(f64, f64, Option<&'a Distribution>)>,
    /// Label of the row of loss ratios, such as `lost`.
    pub(crate) lost: &'static str,
}

/// Returns the graphs of a load; nothing if it has too few values.
pub(crate) fn load(result: &LoadResult, style: &TableStyle) -> Vec<String> {
    let mut lines = over_time(result).map_or_else(
        || {
            let sent = result.trials.iter().filter(|trial| trial.sent > 0);
            let all = sent
                .map(|one| (one.achieved_rate, one.loss_ratio(), one.rtt_ns.as_ref()))
                .collect();
            trials(PlottedTrials { all, lost: "lost" }, style)
        },
        |sparklines| sparklines.lines(style),
    );
    lines.extend(round_trips(result, style));
    lines
}

/// Returns sparklines of loss and p99 latency over time; `None` without a time series.
fn over_time(result: &LoadResult) -> Option<SparklineGroup> {
    let points = &result.series.as_ref()?.points;
    let loss = |point: &horolog_record::LoadSeriesPoint| {
        (point.sent > 0).then(|| (point.at_s, point.loss_ratio()))
    };
    let tail = |point: &horolog_record::LoadSeriesPoint| {
        Some((point.at_s, point.rtt_ns.as_ref()?.p99 as f64))
    };
    let losses = points.iter().filter_map(loss).collect();
    let tails = points.iter().filter_map(tail).collect();
    Some(SparklineGroup::over_time(
        "over time",
        vec![
            SparklineRow {
                name: "lost".into(),
                points: losses,
                scale: SparklineScale::Zero,
                unit: SparklineUnit::Share,
            },
            SparklineRow {
                name: "p99".into(),
                points: tails,
                scale: SparklineScale::Log,
                unit: SparklineUnit::Time,
            },
        ],
    ))
}

/// Returns sparklines of the loss ratio and the p99 latency of the trials, ordered by rate.
pub(crate) fn trials(trials: PlottedTrials<'_>, style: &TableStyle) -> Vec<String> {
    let PlottedTrials { mut all, lost } = trials;
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return Vec::new() };
    let title = format!("by rate, {} to {}", human_rate(first.0), human_rate(last.0));
    let losses = all.iter().map(|(_, loss, _)| Some(*loss));
    let tails = all.iter().map(|(.., times)| times.map(|times| times.p99 as f64));
    let rows = vec![
        SparklineRow::in_order(lost.to_owned(), losses, SparklineScale::Zero, SparklineUnit::Share),
        SparklineRow::in_order("p99".to_owned(), tails, SparklineScale::Log, SparklineUnit::Time),
    ];
    SparklineGroup::in_order(title, all.len(), rows).lines(style)
}

/// Returns the round trips of the trial that represents the run, or of the last one.
fn round_trips(result: &LoadResult, style: &TableStyle) -> Vec<String> {
    let known = |index: &usize| result.trials[*index].rtt_ns.is_some();
    let last = (0..result.trials.len()).rev().find(known);
    let Some(index) = lower_bound_trial(result).filter(known).or(last) else { return Vec::new() };
    let trial = &result.trials[index];
    let Some(rtt) = &trial.rtt_ns else { return Vec::new() };
    let title = format!(
        "round trip of trial {} ({}), {} replies, from",
        index + 1,
        human_rate(trial.achieved_rate),
        full_count(rtt.count)
    );
    distribution(&title, rtt, style)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn drawn(result: &LoadResult, width: usize) -> String {
        load(result, &TableStyle { colour: false, width }).join("\n")
    }

    #[test]
    fn output_matches_the_expected_text() {
        let text = drawn(&fixture::load(), 100);
        assert_eq!(text, include_str!("load.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn a_series_is_drawn_over_time_and_nothing_is_no_line() {
        let mut result = fixture::load();
        result.series = Some(fixture::series());
        assert!(drawn(&result, 100).starts_with("over time, 0 s to 1 s:\n  lost |"), "{result:?}");
        assert_eq!(drawn(&fixture::empty(), 100), "");
        let mut degenerate = fixture::empty();
        degenerate.trials = vec![fixture::trial_without_requests(), fixture::extreme_trial()];
        for width in [0, 40, usize::MAX] {
            let text = drawn(&degenerate, width);
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
            assert!(drawn(&fixture::load(), width).lines().all(|line| line.len() < 110));
        }
    }
}
