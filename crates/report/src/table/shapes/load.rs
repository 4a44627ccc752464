//! The shape of a load in a few lines of a terminal: loss and tail over the rate or over time as
//! rows of marks, and the round trip's distribution as bars. The figures beside them say it in
//! numbers. The marks are ASCII, as all bars here are, so that they look the same in every locale.

use horolog_record::{Distribution, LoadResult};
use horolog_stats::Histogram;

use super::TableStyle;
use crate::units::{full_count, human_ns, human_rate, percent, percent_of};
use crate::verdict::lower_bound_trial;

/// From the least to the most.
const MARKS: [char; 7] = ['_', '.', '-', '=', '+', '*', '#'];
/// Columns of a row of marks or of a bar, at most, and what stands beside it.
const MARKS_MAX: usize = 60;
const BAR_MAX: usize = 40;
const BESIDE: usize = 40;
const COLUMNS_MIN: usize = 10;
/// Bars for each tenfold longer time; where that gives too many, half of them.
const BARS_PER_DECADE: f64 = 4.0;
const BARS_MAX: usize = 9;

/// How heights are spread.
#[derive(Clone, Copy)]
enum Spread {
    /// From 0 on.
    Zero,
    /// Equal ratios are equal steps.
    Log,
}

/// The lines; none of a load that has no shape.
pub(super) fn shapes(result: &LoadResult, style: &TableStyle) -> Vec<String> {
    let width = |most: usize| style.width.saturating_sub(BESIDE).clamp(COLUMNS_MIN, most);
    let mut lines = over(result, width(MARKS_MAX));
    lines.extend(distribution(result, width(BAR_MAX)));
    lines
}

/// Loss and tail over time, or over the rate where there were several.
fn over(result: &LoadResult, width: usize) -> Vec<String> {
    let (name, from, to, points) = if let Some(series) = &result.series {
        let points = series.points.iter().map(|point| {
            let loss = (point.sent > 0).then(|| point.loss_ratio());
            (loss, point.rtt_ns.map(|rtt| rtt.p99))
        });
        let end_s = series.points.last().map_or(0.0, |point| point.at_s);
        ("over time", "0 s".to_owned(), format!("{end_s:.0} s"), points.collect::<Vec<_>>())
    } else {
        let mut trials: Vec<_> = result.trials.iter().filter(|trial| trial.sent > 0).collect();
        trials.sort_by(|a, b| a.achieved_rate.total_cmp(&b.achieved_rate));
        let rate = |at: Option<&&horolog_record::Trial>| {
            at.map_or_else(String::new, |trial| human_rate(trial.achieved_rate))
        };
        let (from, to) = (rate(trials.first()), rate(trials.last()));
        let points = trials
            .iter()
            .map(|trial| (Some(trial.loss_ratio()), trial.rtt_ns.as_ref().map(|rtt| rtt.p99)));
        ("by rate", from, to, points.collect())
    };
    if points.len() < 2 {
        return Vec::new();
    }
    let losses: Vec<_> = points.iter().map(|(loss, _)| *loss).collect();
    let tails: Vec<_> = points.iter().map(|(_, tail)| tail.map(|ns| ns as f64)).collect();
    let loss = row("lost", &losses, Spread::Zero, width, percent);
    let tail = row("p99", &tails, Spread::Log, width, |ns| human_ns(ns as u64));
    std::iter::once(format!("{name}, {from} to {to}:")).chain(loss).chain(tail).collect()
}

/// A name, marks, and what the lowest and the highest of them stand for.
fn row(
    name: &str,
    values: &[Option<f64>],
    spread: Spread,
    width: usize,
    shown: impl Fn(f64) -> String,
) -> Option<String> {
    let known = || values.iter().copied().flatten().filter(|value| value.is_finite());
    let (least, most) = (known().reduce(f64::min)?, known().reduce(f64::max)?);
    let marks = marks(values, (least, most), spread, width);
    Some(format!("  {name:<5}|{marks}| {} to {}", shown(least), shown(most)))
}

/// A mark for each value; of more values than columns the highest of each stretch.
fn marks(
    values: &[Option<f64>],
    (least, most): (f64, f64),
    spread: Spread,
    width: usize,
) -> String {
    let share = |value: f64| match spread {
        Spread::Zero if most > 0.0 => value / most,
        Spread::Log if least > 0.0 && most > least => (value / least).ln() / (most / least).ln(),
        _ => 0.0,
    };
    let columns = values.len().min(width);
    let column = |at: usize| {
        let stretch = &values[at * values.len() / columns..(at + 1) * values.len() / columns];
        let highest = stretch.iter().copied().flatten().reduce(f64::max);
        let top = (MARKS.len() - 1) as f64;
        // A share that is no number is 0 as an index.
        highest.map_or(' ', |value| MARKS[(share(value).clamp(0.0, 1.0) * top).round() as usize])
    };
    (0..columns).map(column).collect()
}

/// The round trips of the trial that stands for the run, or of the last one.
fn distribution(result: &LoadResult, width: usize) -> Vec<String> {
    let known = |index: &usize| result.trials[*index].rtt_ns.is_some();
    let last = (0..result.trials.len()).rev().find(known);
    let Some(index) = lower_bound_trial(result).filter(known).or(last) else { return Vec::new() };
    let trial = &result.trials[index];
    let Some(rtt) = &trial.rtt_ns else { return Vec::new() };
    let bars = bars(rtt, BARS_PER_DECADE);
    let bars = if bars.len() > BARS_MAX { self::bars(rtt, BARS_PER_DECADE / 2.0) } else { bars };
    if bars.len() < 2 {
        return Vec::new();
    }
    let most = bars.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    let title = format!(
        "round trip of trial {} ({}), {} replies, from:",
        index + 1,
        human_rate(trial.achieved_rate),
        full_count(rtt.count)
    );
    let line = |(from, count): (u64, u64)| {
        let length = (count as f64 / most as f64 * width as f64).round() as usize;
        // A few are not nothing.
        let bar = if length == 0 && count > 0 { ".".to_owned() } else { "#".repeat(length) };
        format!("  {:>8} |{bar:<width$}| {}", human_ns(from), percent_of(count, rtt.count))
    };
    std::iter::once(title).chain(bars.into_iter().map(line)).collect()
}

/// The lower end of each bar and what it holds, from the shortest to the longest without a gap.
fn bars(rtt: &Distribution, per_decade: f64) -> Vec<(u64, u64)> {
    let Ok(histogram) = Histogram::decode(&rtt.histogram) else { return Vec::new() };
    let place = |value: u64| ((value.max(1) as f64).log10() * per_decade).floor() as i32;
    let mut bars: Vec<(i32, u64)> = Vec::new();
    for (value, count) in histogram.recorded() {
        let at = place(value);
        // Whoever has the bars so far has them in order.
        while let Some((last, _)) = bars.last().copied().filter(|(last, _)| *last < at) {
            bars.push((last + 1, 0));
        }
        match bars.last_mut() {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None => bars.push((at, count)),
        }
    }
    let from = |at: i32| 10_f64.powf(f64::from(at) / per_decade).round() as u64;
    bars.into_iter().map(|(at, count)| (from(at), count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn drawn(result: &LoadResult, width: usize) -> String {
        shapes(result, &TableStyle { colour: false, width }).join("\n")
    }

    #[test]
    fn looks_like_this() {
        let text = drawn(&fixture::load(), 100);
        assert_eq!(text, include_str!("shapes.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn every_reply_is_in_a_bar_and_no_bar_is_missing() {
        let result = fixture::load();
        let rtt = result.trials[7].rtt_ns.as_ref().unwrap();
        let bars = bars(rtt, BARS_PER_DECADE);
        assert_eq!(bars.iter().map(|(_, count)| count).sum::<u64>(), rtt.count);
        assert!(bars.is_sorted_by(|a, b| a.0 < b.0), "{bars:?}");
    }

    #[test]
    fn marks_rise_with_the_values_and_keep_the_highest_of_a_stretch() {
        let values: Vec<_> = (0..7).map(|value| Some(f64::from(value))).collect();
        assert_eq!(marks(&values, (0.0, 6.0), Spread::Zero, 60), "_.-=+*#");
        assert_eq!(marks(&values, (0.0, 6.0), Spread::Zero, 2), "-#");
        let gap = [Some(1.0), None, Some(100.0)];
        assert_eq!(marks(&gap, (1.0, 100.0), Spread::Log, 60), "_ #");
        let none = [Some(0.0), Some(f64::NAN)];
        assert_eq!(marks(&none, (0.0, 0.0), Spread::Zero, 60), "__");
    }

    #[test]
    fn a_course_is_drawn_over_time_and_nothing_is_no_line() {
        let mut result = fixture::load();
        result.series = Some(fixture::series());
        assert!(drawn(&result, 100).starts_with("over time, 0 s to 1 s:\n  lost "), "{result:?}");
        assert_eq!(drawn(&fixture::empty(), 100), "");
        let mut silent = fixture::empty();
        silent.trials = vec![fixture::silent_trial(), fixture::extreme_trial()];
        for width in [0, 40, usize::MAX] {
            let text = drawn(&silent, width);
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
            assert!(drawn(&fixture::load(), width).lines().all(|line| line.len() < 110));
        }
    }
}
