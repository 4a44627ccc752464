//! Numbers as text marks: sparklines of eight heights, bars of eighths. Pure.

use std::collections::VecDeque;

/// From the lowest to the highest.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Eighths of a column, from one to seven.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
/// Mark of a missing value.
const GAP: char = ' ';
/// Greatest number of values that are stored; a terminal has no more columns.
const VALUES_MAX: usize = 500;

/// History of a value, at each update, the last ones only.
#[derive(Default)]
pub(crate) struct SparklineHistory(VecDeque<Option<f64>>);

impl SparklineHistory {
    pub(crate) fn push(&mut self, figure: Option<f64>) {
        if self.0.len() >= VALUES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(figure);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The [`sparkline`] of the last values, for this number of columns.
    pub(crate) fn line(&self, columns: usize) -> String {
        let figures: Vec<_> = self.0.iter().copied().collect();
        sparkline(&figures, columns)
    }
}

/// The last values, one for each column, as heights from 0 to the highest of them.
pub(super) fn sparkline(figures: &[Option<f64>], columns: usize) -> String {
    let shown = &figures[figures.len().saturating_sub(columns)..];
    let is_fit = |figure: &f64| figure.is_finite() && *figure >= 0.0;
    let highest = shown.iter().flatten().copied().filter(is_fit).fold(0.0, f64::max);
    let mark = |figure: &Option<f64>| match figure.filter(is_fit) {
        None => GAP,
        Some(_) if highest <= 0.0 => HEIGHTS[0],
        Some(figure) => HEIGHTS[((figure / highest * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    shown.iter().map(mark).collect()
}

/// A bar for a share from 0 to 1 of this number of columns. A share other than 0 is visible.
pub(crate) fn bar(share: f64, columns: usize) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let eighths = (share * columns as f64 * 8.0).round() as usize;
    let eighths = eighths.max(usize::from(share > 0.0 && columns > 0));
    let whole = HEIGHTS[7].to_string().repeat(eighths / 8);
    match eighths % 8 {
        0 => whole,
        part => format!("{whole}{}", EIGHTHS[part - 1]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_are_relative_to_the_highest_visible_value() {
        let figures = [Some(1000.0), Some(0.0), None, Some(1.0), Some(4.0), Some(8.0)];
        assert_eq!(sparkline(&figures, 5), "▁ ▁▄█");
        assert_eq!(sparkline(&figures, 2), "▄█");
        assert_eq!(sparkline(&[Some(0.0), Some(f64::NAN)], 10), "▁ ");
        assert_eq!(sparkline(&[], 10), "");
        assert_eq!(sparkline(&figures, 0), "");
    }

    #[test]
    fn history_is_bounded() {
        let mut history = SparklineHistory::default();
        assert!(history.is_empty());
        (0..=VALUES_MAX).for_each(|figure| history.push(Some(figure as f64)));
        assert_eq!(history.0.len(), VALUES_MAX);
        assert_eq!((history.0[0], &*history.line(1)), (Some(1.0), "█"));
    }

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        assert_eq!(bar(0.5, 4), "██");
        assert_eq!(bar(0.3, 4), "█▎");
        assert_eq!(bar(1e-9, 4), "▏");
        assert_eq!(bar(7.0, 3), "███");
        for none in [0.0, -1.0, f64::NAN] {
            assert_eq!(bar(none, 4), "");
        }
    }
}
