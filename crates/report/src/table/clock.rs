//! Outcome of a clock's simulation: the figures of both methods side by side, outages, Allan
//! deviations and counts.

use horolog_record::{ClockBucket, ClockMethod, ClockResult};

use super::TableStyle;
use super::grid::{self, Column, Tone};
use super::query::{figure_texts, scientific, seconds};
use super::shapes::{self, SparklineGroup, SparklineRow, SparklineScale, SparklineUnit};
use super::summary::{finding_lines, wrapped};
use crate::clock::{DEFINITION, LITERATURE, conditions, counts, long_time, method_name, outage};
use crate::limits;
use crate::units::ABSENT;

/// Columns, the most important first.
const TITLES: [&str; 10] =
    ["deviation", "mean", "max", "min", "RMS", "p50", "p99", "p1", "p95", "p5"];
/// Index of each of them in [`figure_texts`].
const FIGURE_INDICES: [usize; 10] = [1, 0, 9, 3, 2, 6, 8, 4, 7, 5];
const NAME_WIDTH: usize = 17;
const FIGURE_WIDTH: usize = 9;

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn clock(result: &ClockResult, style: &TableStyle) -> String {
    let lock = result.locked_after_s.map_or_else(
        || "never locked".to_owned(),
        |seconds| format!("locked after {}", long_time(seconds)),
    );
    let title = format!(
        "{}, {} simulated, seed {}: {lock}",
        result.oscillator.name,
        long_time(result.duration_s),
        result.seed
    );
    let mut lines = vec![Tone::Strong.paint(&title, style.colour)];
    let mut push_wrapped = |text: &str| lines.extend(wrapped(text, "  ", "    ", style));
    push_wrapped(&conditions(result));
    lines.push(String::new());
    lines.extend(figures(result, style));
    lines.push(String::new());
    let shapes = shapes(result, style);
    if !shapes.is_empty() {
        lines.extend(shapes);
        lines.push(String::new());
    }
    let mut push_wrapped = |text: &str| lines.extend(wrapped(text, "  ", "    ", style));
    for method in &result.methods {
        for one in &method.outages {
            push_wrapped(&outage(method, one, result.duration_s));
        }
    }
    for method in &result.methods {
        push_wrapped(&allan(method));
    }
    for text in counts(result) {
        push_wrapped(&text);
    }
    push_wrapped(DEFINITION);
    push_wrapped(LITERATURE);
    for limit in &result.limits {
        push_wrapped(&limits::line(limit));
    }
    if !result.findings.is_empty() {
        lines.push(String::new());
        lines.extend(finding_lines(&result.findings, style));
    }
    lines.join("\n")
}

/// Returns the error of each method over time, and its stability.
fn shapes(result: &ClockResult, style: &TableStyle) -> Vec<String> {
    // Before its first step a clock may be off by any time, which would hide everything else.
    let locked_s = result.locked_after_s.unwrap_or(0);
    let row = |method: &ClockMethod| {
        let worst = |one: &ClockBucket| one.min_ns.unsigned_abs().max(one.max_ns.unsigned_abs());
        let shown = method.series.iter().filter(|one| one.begin_s >= locked_s);
        let points = shown.map(|one| (one.begin_s as f64, worst(one) as f64));
        let name = method_name(method.kind).to_owned();
        SparklineRow {
            name,
            points: points.collect(),
            scale: SparklineScale::Log,
            unit: SparklineUnit::Time,
        }
    };
    let rows = result.methods.iter().map(row).collect();
    let mut lines =
        SparklineGroup::over_time("largest absolute error once locked", rows).lines(style);
    let allan = result.methods.iter().map(|one| (method_name(one.kind), &one.allan[..]));
    lines.extend(shapes::allan(&allan.collect::<Vec<_>>(), style));
    lines
}

fn figures(result: &ClockResult, style: &TableStyle) -> Vec<String> {
    let columns = TITLES.map(|title| Column::right(title, FIGURE_WIDTH));
    let row = |method: &ClockMethod| {
        let texts = method.error_ns.map(|figures| figure_texts(&figures, true));
        let figure = |index: usize| fitted(texts.as_ref().map_or(ABSENT, |texts| &texts[index]));
        (format!("  {}", method_name(method.kind)), FIGURE_INDICES.map(figure).to_vec())
    };
    let rows: Vec<_> = result.methods.iter().map(row).collect();
    let name = Column::left("  error", NAME_WIDTH + 2);
    grid::blocks([name.clone(), name], &columns, &rows, style)
}

/// Shortens a text: a clock that followed a wrong sentence may be years off, for which there is no
/// room in seconds.
fn fitted(text: &str) -> String {
    const DAY_S: i64 = 86_400;
    let seconds = || text.strip_suffix(" s")?.replace(',', "").parse::<i64>().ok();
    match seconds() {
        Some(seconds) if text.chars().count() > FIGURE_WIDTH => {
            let sign = if seconds > 0 && text.starts_with('+') { "+" } else { "" };
            format!("{sign}{} d", seconds / DAY_S)
        }
        _ => text.to_owned(),
    }
}

fn allan(method: &ClockMethod) -> String {
    let point = |point: &horolog_record::AllanDeviation| {
        format!("{} at {}", scientific(point.deviation), seconds(point.tau_s))
    };
    let points: Vec<_> = method.allan.iter().map(point).collect();
    let points = if points.is_empty() { ABSENT.to_owned() } else { points.join(", ") };
    format!("Allan deviation, {}: {points}", method_name(method.kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let text = clock(&fixture::clock(), &TableStyle { colour: false, width: 100 });
        assert_eq!(text, include_str!("clock.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn a_clock_that_was_never_locked_has_no_figures() {
        let mut result = fixture::clock();
        result.locked_after_s = None;
        for method in &mut result.methods {
            (method.error_ns, method.allan, method.outages) = (None, Vec::new(), Vec::new());
        }
        let text = clock(&result, &TableStyle::default());
        assert!(text.contains("never locked") && !text.contains("NaN"), "{text}");
    }

    #[test]
    fn a_clock_that_is_years_off_stays_in_its_columns() {
        assert_eq!(fitted("+619,315,200 s"), "+7168 d");
        assert_eq!(fitted("-9,223,372,036 s"), "-106751 d");
        assert_eq!(fitted("619,315,200 s"), "7168 d");
        assert_eq!(fitted("-34,667 s"), "-34,667 s");
    }

    #[test]
    fn a_narrow_terminal_keeps_every_figure() {
        let style = TableStyle { colour: false, width: 60 };
        let text = clock(&fixture::clock(), &style);
        for title in TITLES {
            assert!(text.contains(&format!(" {title}")), "{title}: {text}");
        }
        assert!(figures(&fixture::clock(), &style).iter().all(|line| line.chars().count() <= 60));
    }

    #[test]
    fn a_method_without_a_series_is_not_drawn() {
        let mut result = fixture::clock();
        result.methods[0].series.clear();
        result.methods[1].series[7].min_ns = i64::MIN;
        let style = TableStyle { colour: false, width: 80 };
        let lines = shapes(&result, &style);
        assert!(lines[1].starts_with("  set at each pulse |__#___"), "{lines:?}");
        assert!(lines[1].ends_with("to >999 s") && lines[2].starts_with("Allan"), "{lines:?}");
        result.locked_after_s = Some(result.methods[1].series[8].begin_s);
        let lines = shapes(&result, &style);
        assert!(
            lines[0].contains(", 1 h 55 min 12 s to ") && !lines[1].contains(">9"),
            "{lines:?}"
        );
        result.methods.clear();
        assert!(shapes(&result, &style).is_empty());
    }
}
