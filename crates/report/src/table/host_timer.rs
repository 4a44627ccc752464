//! Wake-up latencies: a row for each core, and the host conditions.

use horolog_record::{HostTimerResult, TimerCore};

use super::TableStyle;
use super::grid::{self, Column};
use super::shapes::{
    SparklineGroup, SparklineRow, SparklineScale, SparklineUnit, distributions, put,
};
use super::summary::{finding_lines, limit_lines, wrapped};
use crate::host::{LATENCY_TITLES, conditions, latency_figures, scheduling};
use crate::units::{full_count, human_ns};

const CORE_WIDTH: usize = 4;
const MISSED_WIDTH: usize = 6;
const COUNT_WIDTH: usize = 10;
const TIME_WIDTH: usize = 9;

/// Explanation of latency.
pub(crate) const LATENCY: &str = "Latency: from the intended wake-up to the first clock reading \
     of the thread. Missed: periods that had ended before the thread waited for them; their \
     latency counts.";

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn host_timer(result: &HostTimerResult, style: &TableStyle) -> String {
    let name = Column::right("core", CORE_WIDTH);
    let rows: Vec<_> =
        result.cores.iter().map(|core| (core.core.to_string(), cells(core).to_vec())).collect();
    let mut lines = grid::blocks([name.clone(), name], &columns(), &rows, style);
    put(&mut lines, shapes(result, style));
    for text in facts(result).iter().map(String::as_str).chain([LATENCY]) {
        lines.extend(wrapped(text, "  ", "    ", style));
    }
    lines.extend(limit_lines(&result.limits, style));
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

/// Returns the distribution of latencies on each core, and the times of the largest.
fn shapes(result: &HostTimerResult, style: &TableStyle) -> Vec<String> {
    let name = |core: &TimerCore| format!("core {}", core.core);
    let all = result.cores.iter();
    let all: Vec<_> =
        all.filter_map(|core| Some((name(core), core.latency_ns.as_ref()?))).collect();
    let mut lines = distributions("latency", &all, style);
    let row = |core: &TimerCore| {
        let points = core.series.iter().map(|one| (one.at_s, one.max_ns as f64)).collect();
        SparklineRow {
            name: name(core),
            points,
            scale: SparklineScale::Log,
            unit: SparklineUnit::Time,
        }
    };
    let rows = result.cores.iter().map(row).collect();
    lines.extend(SparklineGroup::over_time("largest latency over time", rows).lines(style));
    lines
}

fn columns() -> Vec<Column> {
    let figures = LATENCY_TITLES.iter().enumerate().map(|(index, title)| {
        Column::right(title, if index == 0 { COUNT_WIDTH } else { TIME_WIDTH })
    });
    [Column::right("missed", MISSED_WIDTH)].into_iter().chain(figures).collect()
}

/// Returns one core's cells: missed periods, and [`LATENCY_TITLES`].
pub(crate) fn cells(core: &TimerCore) -> [String; 9] {
    let [count, min, mean, p50, p99, p99_9, max, deviation] =
        latency_figures(core.latency_ns.as_ref());
    let missed = full_count(core.missed);
    [missed, count, min, mean, p50, p99, p99_9, max, deviation]
}

/// Returns the conditions of the measurement, in sentences.
pub(crate) fn facts(result: &HostTimerResult) -> Vec<String> {
    let mut facts = Vec::new();
    if let Some(core) = result.cores.first() {
        facts.push(format!(
            "One thread per core, {}, period {}.",
            scheduling(&core.scheduling),
            human_ns(result.interval_ns)
        ));
    }
    facts.push(conditions(&result.conditions));
    facts.extend(result.cores.iter().map(|core| {
        let cost = &core.cost;
        let [clock, cycle, past] = [cost.clock_ns, cost.cycle_ns, cost.past_ns].map(human_ns);
        format!(
            "Overhead on core {}: {clock} for the clock reading in each latency, {cycle} per \
             period; a wait for a past time takes {past}.",
            core.core
        )
    }));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 100 };
        let text = host_timer(&fixture::host_timer(), &style);
        assert_eq!(text, include_str!("host_timer.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn a_narrow_terminal_has_the_rest_below() {
        let style = TableStyle { colour: false, width: 44 };
        let text = host_timer(&fixture::host_timer(), &style);
        assert!(text.contains("mean") && text.contains("deviation"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 44), "{text}");
    }

    #[test]
    fn one_core_has_bars_and_one_interval_is_no_series() {
        let mut result = fixture::host_timer();
        result.cores.truncate(1);
        result.cores[0].series.truncate(1);
        let text = host_timer(&result, &TableStyle { colour: false, width: 80 });
        assert!(text.contains("\nlatency, 20,000 values, from:\n   3.16 µs |#"), "{text}");
        assert!(!text.contains("over time"), "{text}");
    }
}
