//! Sparklines and bars of Unicode block elements, with a resolution of one eighth of a character.
//! Pure.

/// Lower blocks of one to eight eighths of the height.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Left blocks of one to seven eighths of the width.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
/// Character for a missing value.
const GAP: char = ' ';

/// Renders the latest values as a sparkline, one column per value. Heights are relative to the
/// highest visible value; values that are missing, negative or not finite are blank.
pub(super) fn sparkline(values: &[Option<f64>], columns: usize) -> String {
    let visible = &values[values.len().saturating_sub(columns)..];
    let is_drawable = |value: &f64| value.is_finite() && *value >= 0.0;
    let highest = visible.iter().flatten().copied().filter(is_drawable).fold(0.0, f64::max);
    let mark = |value: &Option<f64>| match value.filter(is_drawable) {
        None => GAP,
        Some(_) if highest <= 0.0 => HEIGHTS[0],
        Some(value) => HEIGHTS[((value / highest * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    visible.iter().map(mark).collect()
}

/// Renders a share from 0 to 1 as a bar; `columns` is the length for 1. A share above 0 has at
/// least one eighth of a column.
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
