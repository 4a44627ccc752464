//! Outcome of a comparison of clocks: a row for each clock, the wander of each, the steps of the
//! system clock.

use horolog_record::{ClockCompareResult, ClockSample, ComparedClock};

use super::TableStyle;
use super::grid::{self, Column};
use super::query::{figure_texts, scientific, seconds};
use super::shapes::{self, SparklineGroup, SparklineRow, SparklineScale, SparklineUnit, put};
use super::summary::{finding_lines, limit_lines, wrapped};
use crate::units::{ABSENT, full_count, human_ns, signed_ns};

/// Columns and their widths.
const COLUMNS: [(&str, usize); 7] = [
    ("mean", 10),
    ("deviation", 9),
    ("min", 10),
    ("max", 10),
    ("frequency", 14),
    ("± bound", 8),
    ("readings", 9),
];
const NAME_WIDTH: usize = 23;
/// Minimum width of names if the table is wider than the terminal.
const NAME_WIDTH_MIN: usize = 9;
/// Maximum number of steps that are listed one by one.
const STEPS_SHOWN: usize = 5;

/// Explanation of the offsets.
pub(crate) const OFFSETS: &str = "Offset: lead of the system clock over the clock; for \
                                  CLOCK_MONOTONIC_RAW and CLOCK_MONOTONIC, since the first \
                                  reading. Frequency: rate of that lead. Bound: error bound, half \
                                  of a reading's duration (median).";

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn clock_compare(result: &ClockCompareResult, style: &TableStyle) -> String {
    let columns = COLUMNS.map(|(title, width)| Column::right(title, width));
    let row = |clock: &ComparedClock| (clock.name.clone(), figures(clock).to_vec());
    let rows: Vec<_> = result.clocks.iter().map(row).collect();
    let names = [("system clock versus", NAME_WIDTH), ("versus", NAME_WIDTH_MIN)];
    let names = names.map(|(title, width)| Column::left(title, width));
    let mut lines = grid::blocks(names, &columns, &rows, style);
    put(&mut lines, shapes(result, style));
    let mut push_wrapped = |text: &str| lines.extend(wrapped(text, "  ", "    ", style));
    result.clocks.iter().filter_map(allan).for_each(|text| push_wrapped(&text));
    if let Some(text) = steps(result) {
        push_wrapped(&text);
    }
    push_wrapped(OFFSETS);
    lines.extend(limit_lines(&result.limits, style));
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

/// Returns the figures of a clock, in the order of [`COLUMNS`].
pub(crate) fn figures(clock: &ComparedClock) -> [String; 7] {
    let absent = || ABSENT.to_owned();
    let [mean, deviation, _, min, .., max] = clock
        .offset_ns
        .map_or_else(|| std::array::from_fn(|_| absent()), |figures| figure_texts(&figures, true));
    let frequency = clock.drift.filter(|drift| drift.ppm.is_finite());
    let error_bound = clock.error_bound_ns.map(|figures| human_ns(figures.p50.unsigned_abs()));
    [
        mean,
        deviation,
        min,
        max,
        frequency.map_or_else(absent, |drift| format!("{:+.4} ppm", drift.ppm)),
        error_bound.unwrap_or_else(absent),
        full_count(clock.samples.len() as u64),
    ]
}

/// Returns the offset of each clock over time, and its stability.
fn shapes(result: &ClockCompareResult, style: &TableStyle) -> Vec<String> {
    let row = |clock: &ComparedClock| {
        let point = |sample: &ClockSample| (sample.slot as f64, sample.offset_ns as f64);
        let points = clock.samples.iter().map(point).collect();
        SparklineRow {
            name: clock.name.clone(),
            points,
            scale: SparklineScale::Range,
            unit: SparklineUnit::Offset,
        }
    };
    let rows = result.clocks.iter().map(row).collect();
    let last = result.clocks.iter().flat_map(|clock| &clock.samples).map(|one| one.slot).max();
    let planned = last.map_or(0, |last| last.saturating_add(1).max(result.count));
    let interval_ns = result.interval_ns;
    let sparklines = SparklineGroup::over_intervals("offset over time", planned, interval_ns, rows);
    let mut lines = sparklines.lines(style);
    let allan = result.clocks.iter().map(|one| (&*one.name, &one.allan[..]));
    lines.extend(shapes::allan(&allan.collect::<Vec<_>>(), style));
    lines
}

fn allan(clock: &ComparedClock) -> Option<String> {
    let point = |point: &horolog_record::AllanDeviation| {
        format!("{} at {}", scientific(point.deviation), seconds(point.tau_s))
    };
    let points: Vec<_> = clock.allan.iter().map(point).collect();
    (!points.is_empty()).then(|| format!("Allan deviation, {}: {}", clock.name, points.join(", ")))
}

/// Returns the steps of the system clock; `None` if there were none.
pub(crate) fn steps(result: &ClockCompareResult) -> Option<String> {
    let step = |step: &horolog_record::ClockStep| {
        let at_s = step.slot as f64 * (result.interval_ns as f64 / 1e9);
        format!("{} at {}", signed_ns(step.step_ns), seconds(at_s))
    };
    let shown: Vec<_> = result.steps.iter().take(STEPS_SHOWN).map(step).collect();
    let more = match result.steps.len().saturating_sub(STEPS_SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!shown.is_empty()).then(|| format!("Steps of the system clock: {}{more}", shown.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 100 };
        let text = clock_compare(&fixture::clock_compare(), &style);
        assert_eq!(text, include_str!("clock_compare.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn a_narrow_terminal_keeps_every_figure() {
        let text =
            clock_compare(&fixture::clock_compare(), &TableStyle { colour: false, width: 60 });
        for (title, _) in COLUMNS {
            assert!(text.contains(&format!(" {title}")), "{title}: {text}");
        }
        let tables = text.lines().take_while(|line| !line.starts_with("offset over"));
        assert!(tables.clone().count() == 10, "two blocks: {text}");
        assert!(tables.into_iter().all(|line| line.chars().count() <= 60), "{text}");
    }

    #[test]
    fn readings_that_failed_are_a_gap() {
        let mut result = fixture::clock_compare();
        result.clocks.truncate(1);
        result.clocks[0].samples.retain(|sample| !(20..40).contains(&sample.slot));
        let lines = shapes(&result, &TableStyle { colour: false, width: 100 });
        let marks = lines[1].split('|').nth(1).unwrap();
        let gap = marks.len() - marks.replace(' ', "").len();
        assert!((14..=20).contains(&gap) && marks.ends_with('#'), "{lines:?}");
        result.clocks[0].samples.truncate(1);
        assert!(!shapes(&result, &TableStyle::default())[0].starts_with("offset"));
    }
}
