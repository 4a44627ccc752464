//! Graphs of distributions of times: a single one as bars with shares, several as sparklines to
//! compare them.

use horolog_record::Distribution;
use horolog_stats::Histogram;

use super::{BAR_MAX, MARKS_MAX, line, mark, room, titled, top_indices};
use crate::table::TableStyle;
use crate::units::{full_count, human_ns, percent_of};

/// Bars per decade of time; the first of these that does not give too many bars is used.
const BARS_PER_DECADE: [f64; 5] = [4.0, 2.0, 1.0, 0.5, 0.25];
const BARS_MAX: usize = 9;
/// Maximum number of columns per decade of time: a histogram is no finer than a hundredth.
const COLUMNS_PER_DECADE: f64 = 20.0;

/// Returns a graph of the distributions with a readable histogram, one row each; of a single one,
/// as [`distribution`]. Nothing if no histogram is readable or there is too little room.
pub(crate) fn distributions(
    about: &str,
    all: &[(String, &Distribution)],
    style: &TableStyle,
) -> Vec<String> {
    let read = |(name, times): &(String, &Distribution)| {
        Some((name.clone(), LogScaleDistribution::of(times)?, human(times)))
    };
    let known: Vec<_> = all.iter().filter_map(read).collect();
    match (all, &known[..]) {
        (_, []) => return Vec::new(),
        ([(_, times)], _) => {
            let title = format!("{about}, {} values, from", full_count(times.count));
            return distribution(&title, times, style);
        }
        _ => {}
    }
    let worth: Vec<_> = known.iter().map(|(_, read, _)| read.p99 as f64).collect();
    let (indices, left) = top_indices(&worth);
    let shown: Vec<_> = indices.into_iter().map(|at| &known[at]).collect();
    let least = shown.iter().map(|(_, read, _)| read.least).min().unwrap_or(1);
    let most = shown.iter().map(|(_, read, _)| read.most).max().unwrap_or(1);
    let decades = (most as f64 / least as f64).log10();
    let finest = (decades * COLUMNS_PER_DECADE).ceil() as usize;
    let texts = shown.iter().map(|(name, _, value_text)| (&**name, &**value_text));
    let (width, columns) = room(texts, MARKS_MAX, style);
    let columns = columns.min(finest);
    if columns < 2 {
        return Vec::new();
    }
    let ends = [least, most].map(human_ns);
    let title = format!("{about}, histogram from {} to {}, log scales:", ends[0], ends[1]);
    let mut lines = Vec::new();
    lines.extend(shown.iter().map(|(name, read, value_text)| {
        line(name, width, &read.marks((least, most), columns), value_text)
    }));
    lines.extend((left > 0).then(|| format!("  and {left} more, none with a higher p99")));
    titled(&title, lines, style)
}

fn human(times: &Distribution) -> String {
    let [min, p50, max] = [times.min, times.p50, times.max].map(human_ns);
    format!("{min} to {max}, p50 {p50}")
}

/// Decoded histogram of a distribution, with 0 replaced by 1, because a logarithmic scale has no
/// position for 0.
struct LogScaleDistribution {
    values: Vec<(u64, u64)>,
    least: u64,
    most: u64,
    p99: u64,
}

impl LogScaleDistribution {
    fn of(times: &Distribution) -> Option<Self> {
        let histogram = Histogram::decode(&times.histogram).ok()?;
        let values: Vec<_> =
            histogram.non_empty_buckets().map(|(value, count)| (value.max(1), count)).collect();
        let (least, most) = (times.min.max(1), times.max.max(1));
        if values.is_empty() {
            return None;
        }
        Some(Self { values, least, most, p99: times.p99 })
    }

    /// Returns one character per column between both ends, blank where there are no values.
    fn marks(&self, (least, most): (u64, u64), columns: usize) -> String {
        let mut counts = vec![0_u64; columns];
        // The value of an outer bucket may lie slightly beyond the exact ends.
        let whole = (most as f64 / least as f64).ln();
        for (value, count) in &self.values {
            let share = (*value as f64 / least as f64).ln() / whole;
            let column = ((share * columns as f64) as usize).min(columns.saturating_sub(1));
            counts[column] = counts[column].saturating_add(*count);
        }
        let highest = counts.iter().copied().max().unwrap_or(0).max(2) as f64;
        let share = |count: u64| (count as f64).ln() / highest.ln();
        counts.iter().map(|count| if *count == 0 { ' ' } else { mark(share(*count)) }).collect()
    }
}

/// Returns a single distribution as bars with their shares; nothing if it has fewer than two bars
/// or too many.
pub(crate) fn distribution(title: &str, times: &Distribution, style: &TableStyle) -> Vec<String> {
    let all = BARS_PER_DECADE.iter().map(|per_decade| bars(times, *per_decade));
    let Some(bars) = all.into_iter().find(|bars| bars.len() <= BARS_MAX) else { return Vec::new() };
    if bars.len() < 2 {
        return Vec::new();
    }
    let most = bars.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    let texts: Vec<_> = bars
        .iter()
        .map(|(from, count)| (format!("{:>8}", human_ns(*from)), percent_of(*count, times.count)))
        .collect();
    let (name_width, width) = room(texts.iter().map(|(a, b)| (&**a, &**b)), BAR_MAX, style);
    let drawn = bars.iter().zip(&texts).map(|((_, count), (from, share))| {
        let length = (*count as f64 / most as f64 * width as f64).round() as usize;
        // A few values must be distinguishable from none.
        let bar = if length == 0 && *count > 0 { ".".to_owned() } else { "#".repeat(length) };
        line(from, name_width, &format!("{bar:<width$}"), share)
    });
    titled(&format!("{title}:"), drawn.collect(), style)
}

/// Returns lower bound and count of each bar in ascending order, including empty bars in between.
fn bars(times: &Distribution, per_decade: f64) -> Vec<(u64, u64)> {
    let Ok(histogram) = Histogram::decode(&times.histogram) else { return Vec::new() };
    let bucket_index = |value: u64| ((value.max(1) as f64).log10() * per_decade).floor() as i32;
    let mut bars: Vec<(i32, u64)> = Vec::new();
    for (value, count) in histogram.non_empty_buckets() {
        let at = bucket_index(value);
        // Bars are appended in ascending order.
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
    use proptest::prelude::*;

    use super::*;
    use crate::fixture;

    const STYLE: TableStyle = TableStyle { colour: false, width: 80 };

    fn times(values: &[(u64, u64)]) -> Distribution {
        let mut histogram = Histogram::new();
        for (value, count) in values {
            (0..*count).for_each(|_| histogram.record(*value));
        }
        Distribution::from_histogram(&histogram).unwrap()
    }

    #[test]
    fn every_reply_is_in_a_bar_and_no_bar_is_missing() {
        let result = fixture::load();
        let rtt = result.trials[7].rtt_ns.as_ref().unwrap();
        for per_decade in BARS_PER_DECADE {
            let bars = bars(rtt, per_decade);
            assert_eq!(bars.iter().map(|(_, count)| count).sum::<u64>(), rtt.count);
            assert!(bars.is_sorted_by(|a, b| a.0 < b.0), "{bars:?}");
        }
    }

    #[test]
    fn rows_have_one_scale_and_what_did_not_come_is_a_gap() {
        let quick = times(&[(1_000, 900), (10_000, 30), (1_000_000, 1)]);
        let slow = times(&[(100_000, 10), (1_000_000, 1_000)]);
        let all = [("quick".to_owned(), &quick), ("slow".to_owned(), &slow)];
        let lines = distributions("delay", &all, &TableStyle { colour: false, width: 60 });
        let expected = [
            "delay, histogram from 1.00 µs to 1.00 ms, log scales:",
            "  quick |#     =          _| 1.00 µs to 1.00 ms, p50 1.00 µs",
            "  slow  |            -    #| 100 µs to 1.00 ms, p50 1.00 ms",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn one_distribution_is_bars_with_shares() {
        let one = times(&[(1_000, 90), (1_000_000, 10)]);
        let lines = distributions("delay", &[("core 0".to_owned(), &one)], &STYLE);
        assert_eq!(lines[0], "delay, 100 values, from:");
        assert!(lines[1].starts_with("   1.00 µs |###") && lines[1].ends_with("| 90.00%"));
        assert!(lines.len() <= 1 + BARS_MAX && lines.last().unwrap().ends_with("| 10.00%"));
    }

    #[test]
    fn the_furthest_apart_that_can_be_have_few_lines() {
        let far = times(&[(0, 1), (1, 1), (u64::MAX, 1)]);
        assert!(distribution("delay", &far, &STYLE).len() <= 1 + BARS_MAX);
        let all = [("a".to_owned(), &far), ("b".to_owned(), &far)];
        let lines = distributions("delay", &all, &STYLE);
        assert!(lines.len() == 3 && lines.iter().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn what_cannot_be_read_or_does_not_vary_is_no_shape() {
        let flat = times(&[(5_000, 9)]);
        let mut unread = times(&[(1, 1), (1_000, 1)]);
        unread.histogram = "not base 64".to_owned();
        let named = |one| ("a".to_owned(), one);
        assert!(distributions("delay", &[], &STYLE).is_empty());
        assert!(distributions("delay", &[named(&flat)], &STYLE).is_empty());
        assert!(distributions("delay", &[named(&flat), named(&flat)], &STYLE).is_empty());
        assert!(distributions("delay", &[named(&unread), named(&unread)], &STYLE).is_empty());
    }

    #[test]
    fn of_many_the_slowest_are_shown() {
        let all: Vec<_> = (1..=20).map(|at| times(&[(1_000, 1), (10_000 * at, 9)])).collect();
        let named: Vec<_> =
            all.iter().enumerate().map(|(at, one)| (format!("core {at}"), one)).collect();
        let lines = distributions("delay", &named, &STYLE);
        assert!(lines.len() == 18 && lines[1].starts_with("  core 4 "), "{lines:?}");
        assert_eq!(lines[17], "  and 4 more, none with a higher p99");
    }

    proptest! {
        #[test]
        fn rows_are_as_wide_whatever_the_times_are(
            values in prop::collection::vec(prop::collection::vec((any::<u64>(), 1_u64..50), 1..9), 1..5),
            width in 0_usize..140,
        ) {
            let all: Vec<_> = values.iter().map(|values| times(values)).collect();
            let named: Vec<_> = all.iter().map(|one| ("one".to_owned(), one)).collect();
            let lines = distributions("delay", &named, &TableStyle { colour: false, width });
            let shapes = lines.iter().skip(1).filter_map(|line| line.split('|').nth(1));
            let widths: Vec<_> = shapes.map(str::len).collect();
            prop_assert!(widths.iter().all(|one| *one == widths[0]), "{lines:?}");
            prop_assert!(lines.iter().all(|line| line.chars().count() <= width.min(100)));
        }
    }
}
