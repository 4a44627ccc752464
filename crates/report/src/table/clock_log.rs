//! Terminal text of the log of a clock's error: one row per clock, its pulses, and its state
//! changes.

use horolog_record::{ClockLogPoint, ClockLogResult, LoggedClock};

use super::TableStyle;
use super::grid::{self, CellTone, GridColumn};
use super::shapes::{SparklineGroup, SparklineRow, SparklineScale, SparklineUnit, put};
use super::summary::wrapped;
use crate::clock_log::{NOTE, clock_name, figures};
use crate::units::{full_count, seconds};

const TITLES: [&str; 6] = ["offsets", "mean", "deviation", "min", "max", "steps"];
/// Maximum number of state changes that are listed individually.
const STATES_SHOWN: usize = 12;

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn clock_log(result: &ClockLogResult, style: &TableStyle) -> String {
    let title = format!("{}: {} lines", result.file, full_count(result.lines));
    let mut lines = vec![CellTone::Strong.paint(&title, style.colour)];
    let columns = TITLES.map(|title| GridColumn::right(title, 10));
    let row = |clock: &LoggedClock| (clock_name(clock), figures(clock).to_vec());
    let rows: Vec<_> = result.clocks.iter().map(row).collect();
    let names = [("system clock versus", 24), ("versus", 12)];
    let names = names.map(|(title, width)| GridColumn::left(title, width));
    lines.extend(grid::blocks(names, &columns, &rows, style));
    put(&mut lines, shapes(result, style));
    let mut push_wrapped = |text: &str| lines.extend(wrapped(text, "  ", "    ", style));
    for clock in &result.clocks {
        let name = clock_name(clock);
        let counts = clock.verdicts.iter();
        let counts: Vec<_> =
            counts.map(|(verdict, count)| format!("{verdict} {}", full_count(*count))).collect();
        if !counts.is_empty() {
            push_wrapped(&format!("{name}: {}", counts.join(", ")));
        }
        let states = clock.states.iter().take(STATES_SHOWN);
        let states: Vec<_> =
            states.map(|one| format!("{} from {}", one.state, seconds(one.at_s))).collect();
        if !states.is_empty() {
            let more = match clock.states.len().saturating_sub(STATES_SHOWN) {
                0 => String::new(),
                more => format!(", and {more} more changes"),
            };
            push_wrapped(&format!("{name}: {}{more}", states.join(", ")));
        }
    }
    if result.restarts > 0 {
        push_wrapped(&format!("{} host restarts.", full_count(result.restarts)));
    }
    push_wrapped(NOTE);
    lines.join("\n")
}

/// Returns offset and frequency over time.
fn shapes(result: &ClockLogResult, style: &TableStyle) -> Vec<String> {
    let row = |name: String, points: &[ClockLogPoint], unit| {
        let points = points.iter().map(|point| (point.at_s, point.value)).collect();
        SparklineRow { name, points, scale: SparklineScale::Range, unit }
    };
    let offset = |clock| row(clock_name(clock), &clock.offsets, SparklineUnit::Offset);
    let offsets = result.clocks.iter().map(offset).collect();
    let frequencies = result.clocks.iter().flat_map(|clock| {
        let name = |what: &str| format!("{}, {what}", clock_name(clock));
        [
            row(name("frequency"), &clock.frequencies, SparklineUnit::Ppb),
            row(name("correction"), &clock.corrections, SparklineUnit::Ppb),
        ]
    });
    let mut lines = SparklineGroup::over_time("offset over time", offsets).lines(style);
    let frequencies = SparklineGroup::over_time("frequency over time", frequencies.collect());
    lines.extend(frequencies.lines(style));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 100 };
        let text = clock_log(&fixture::clock_log(), &style);
        assert_eq!(text, include_str!("clock_log.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn a_narrow_terminal_keeps_every_figure() {
        let text = clock_log(&fixture::clock_log(), &TableStyle { colour: false, width: 60 });
        assert!(text.contains("versus") && text.contains(" steps"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    }

    #[test]
    fn a_value_logged_once_is_no_series() {
        let mut result = fixture::clock_log();
        result.clocks[0].offsets.truncate(1);
        result.clocks[0].corrections.clear();
        let lines = shapes(&result, &TableStyle { colour: false, width: 80 });
        assert!(lines.len() == 2 && lines[1].starts_with("  pulses, frequency |"), "{lines:?}");
    }
}
