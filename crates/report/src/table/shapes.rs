//! Graphs in a few terminal lines: sparklines, bars, and distributions of times. Values with units
//! accompany each, so that nothing need be estimated. They are drawn in ASCII only, so that they
//! look the same in every locale. A graph has at least two values.

mod bars;
mod distribution;
mod load;
mod sparkline;

pub(crate) use bars::{TextBar, bars, bars_up_to, worst_first};
pub(crate) use distribution::{distribution, distributions};
pub(crate) use load::{PlottedTrials, load, trials};
pub(crate) use sparkline::{SparklineGroup, SparklineRow, SparklineScale, SparklineUnit, allan};

use super::TableStyle;
use super::summary::wrapped;

/// Characters from the lowest to the highest value.
const MARKS: [char; 7] = ['_', '.', '-', '=', '+', '*', '#'];
/// Maximum and minimum width of a sparkline or of a bar, in columns.
const MARKS_MAX: usize = 60;
const BAR_MAX: usize = 40;
const COLUMNS_MIN: usize = 10;
/// Maximum length of a line, regardless of the terminal's width.
const LINE_MAX: usize = 100;
/// Maximum number of rows or bars of one shape.
const ROWS_MAX: usize = 16;
/// Maximum width of the names before rows, and their minimum width on a narrow terminal.
const NAME_MAX: usize = 36;
const NAME_MIN: usize = 12;
/// Columns taken by separators: `  name |shape| value`.
const AROUND: usize = 6;

/// Returns the character for a share of the highest value, from 0 to 1.
fn mark(share: f64) -> char {
    let top = (MARKS.len() - 1) as f64;
    // NaN becomes index 0.
    MARKS[(share.clamp(0.0, 1.0) * top).round() as usize]
}

/// Appends graphs to the lines, with an empty line before and after them.
pub(crate) fn put(lines: &mut Vec<String>, shapes: impl IntoIterator<Item = String>) {
    let shapes: Vec<_> = shapes.into_iter().collect();
    if !shapes.is_empty() {
        lines.push(String::new());
        lines.extend(shapes);
        lines.push(String::new());
    }
}

/// Returns the width of the names and the width that remains for the graph.
fn room<'a>(
    rows: impl Iterator<Item = (&'a str, &'a str)>,
    most: usize,
    style: &TableStyle,
) -> (usize, usize) {
    let (mut name, mut value_width) = (0, 0);
    for (one, other) in rows {
        name = name.max(one.chars().count());
        value_width = value_width.max(other.chars().count());
    }
    let left = style.width.min(LINE_MAX).saturating_sub(AROUND + value_width);
    let name = name.min(left.saturating_sub(COLUMNS_MIN).clamp(NAME_MIN, NAME_MAX));
    (name, left.saturating_sub(name).max(COLUMNS_MIN).min(most))
}

/// Returns a line of a shape.
fn line(name: &str, width: usize, shape: &str, value_text: &str) -> String {
    let is_long = name.chars().count() > width;
    let prefix_len = if is_long { width.saturating_sub(1) } else { width };
    let end = if is_long { "…" } else { "" };
    let name: String = name.chars().take(prefix_len).chain(end.chars()).collect();
    format!("  {name:<width$} |{shape}| {value_text}")
}

/// Returns a graph under its title; nothing if the terminal is too narrow.
fn titled(title: &str, shape: Vec<String>, style: &TableStyle) -> Vec<String> {
    let mut lines = wrapped(title, "", "  ", style);
    lines.extend(shape);
    if lines.iter().any(|line| line.chars().count() > style.width) { Vec::new() } else { lines }
}

/// Returns the indices of the highest values, if there are more than have room, and the number of
/// omitted ones.
fn top_indices(worth: &[f64]) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..worth.len()).collect();
    order.sort_by(|a, b| worth[*b].total_cmp(&worth[*a]));
    order.truncate(ROWS_MAX);
    order.sort_unstable();
    (order, worth.len().saturating_sub(ROWS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_higher_where_there_is_more() {
        let marks: String = (0..7).map(|step| mark(f64::from(step) / 6.0)).collect();
        assert_eq!(marks, "_.-=+*#");
        assert_eq!([mark(-1.0), mark(f64::NAN), mark(9.0)], ['_', '_', '#']);
    }

    #[test]
    fn the_worst_have_the_room_and_keep_their_order() {
        let worth: Vec<_> = (0..20).map(|one| f64::from((one + 10) % 20)).collect();
        let (indices, left) = top_indices(&worth);
        assert_eq!((indices, left), ((0..10).chain(14..20).collect(), 4));
        assert_eq!(top_indices(&[1.0, f64::NAN]), (vec![0, 1], 0));
    }

    #[test]
    fn a_long_name_is_cut_and_none_moves_its_shape() {
        let names = ["x".repeat(50), "y".to_owned()];
        for (width, name_width) in [(80, NAME_MAX), (46, 24), (30, NAME_MIN)] {
            let style = TableStyle { colour: false, width };
            let texts = names.iter().map(|name| (&**name, "1 to 2"));
            let (name, columns) = room(texts, 60, &style);
            assert_eq!(name, name_width, "{width}");
            assert_eq!(columns, (width - AROUND - name - 6).max(COLUMNS_MIN));
            let lines = names.each_ref().map(|one| line(one, name, "_#", "1 to 2"));
            assert!(lines[0].contains("xxx… |_#| 1 to 2"), "{lines:?}");
            assert_eq!(lines[0].chars().count(), lines[1].chars().count());
        }
    }

    #[test]
    fn a_terminal_that_is_too_narrow_has_no_shape() {
        let shape = || vec!["  it |______________| 1".to_owned()];
        let of_width = |width| titled("by rate:", shape(), &TableStyle { colour: false, width });
        assert_eq!((of_width(23).len(), of_width(22).len()), (2, 0));
    }

    #[test]
    fn room_is_left_around_what_is_there_alone() {
        let mut lines = vec!["table".to_owned()];
        put(&mut lines, Vec::new());
        assert_eq!(lines.len(), 1);
        put(&mut lines, vec!["shape".to_owned()]);
        assert_eq!(lines, ["table", "", "shape", ""]);
    }

    /// Returns true if the line is a sparkline or a bar.
    fn is_shape(line: &str) -> bool {
        let parts: Vec<_> = line.split('|').collect();
        let is_drawn =
            |part: &str| !part.is_empty() && part.chars().all(|c| " _.-=+*#>".contains(c));
        line.starts_with("  ")
            && parts.len() == 3
            && is_drawn(parts[1])
            && parts[2].starts_with(' ')
    }

    /// Returns a result of every kind, from the schema tests of `horolog-record`.
    fn results() -> Vec<(String, serde_json::Value)> {
        let directory = concat!(env!("HOROLOG_REPOSITORY"), "crates/record/samples");
        let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
        let mut all: Vec<_> = files
            .map(|path| {
                let result = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
                (path.file_stem().unwrap().to_str().unwrap().to_owned(), result)
            })
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    #[test]
    fn no_shape_is_wider_than_the_terminal_whatever_the_kind() {
        for (name, result) in results() {
            for width in [0, 40, 60, 80, 100, 200, usize::MAX] {
                let style = TableStyle { colour: false, width };
                let text = crate::parse_result(&result).unwrap().text(&style);
                let shapes = text.lines().filter(|line| is_shape(line));
                let widest = shapes.map(|line| line.chars().count()).max().unwrap_or(0);
                assert!(widest <= width.min(LINE_MAX), "{name}, {width}:\n{text}");
                assert!(!text.contains("\n\n\n") && !text.contains("NaN"), "{name}:\n{text}");
            }
        }
    }

    /// Replaces every number by another one.
    fn with_numbers(value: &mut serde_json::Value, number: &serde_json::Value) {
        match value {
            serde_json::Value::Number(_) => *value = number.clone(),
            serde_json::Value::Array(items) => {
                for item in items.iter_mut() {
                    with_numbers(item, number);
                }
            }
            serde_json::Value::Object(fields) => {
                for field in fields.values_mut() {
                    with_numbers(field, number);
                }
            }
            _ => {}
        }
    }

    #[test]
    fn a_result_of_extremes_is_shown() {
        for (name, result) in results() {
            for number in ["0", "1", "127", "255", "18446744073709551615", "1e300", "-1e300"] {
                let mut result = result.clone();
                with_numbers(&mut result, &number.parse().unwrap());
                // An invalid result may be refused.
                let Ok(result) = crate::parse_result(&result) else { continue };
                let text = result.text(&TableStyle::default());
                assert!(!text.contains("NaN"), "{name}, {number}:\n{text}");
            }
        }
    }
}
