//! Horizontal bars from 0, to compare sizes.

use super::{BAR_MAX, ROWS_MAX, line, room, titled, top_indices};
use crate::table::TableStyle;
use crate::units::amount;

/// Bar with a name and a text.
#[derive(Clone, Debug)]
pub(crate) struct TextBar {
    pub(crate) name: String,
    /// Value at the end of the `#` part; `None` if there is no value.
    pub(crate) size: Option<f64>,
    /// Value at the end of the `-` part that follows, such as a percentile; `None` without such a
    /// part.
    pub(crate) tail: Option<f64>,
    pub(crate) value_text: String,
}

impl TextBar {
    /// Creates a bar of `#` alone.
    pub(crate) fn plain(name: String, size: Option<f64>, value_text: String) -> Self {
        Self { name, size, tail: None, value_text }
    }

    fn longest(&self) -> f64 {
        [self.size, self.tail].into_iter().flatten().filter_map(amount).fold(0.0, f64::max)
    }
}

/// Returns the bars, scaled to the longest; nothing unless at least two have a size and one is
/// longer than 0.
pub(crate) fn bars(title: &str, all: &[TextBar], style: &TableStyle) -> Vec<String> {
    let full = all.iter().map(TextBar::longest).fold(0.0, f64::max);
    bars_up_to(title, all, full, style)
}

/// Returns the bars, scaled to a full length of `full`; longer ones end in `>`. Nothing unless at
/// least two have a size and one is longer than 0.
pub(crate) fn bars_up_to(
    title: &str,
    all: &[TextBar],
    full: f64,
    style: &TableStyle,
) -> Vec<String> {
    let known = all.iter().filter(|bar| bar.size.and_then(amount).is_some()).count();
    if known < 2 || all.iter().all(|bar| bar.longest() <= 0.0) || full <= 0.0 {
        return Vec::new();
    }
    let worth: Vec<_> = all.iter().map(TextBar::longest).collect();
    let (indices, left) = top_indices(&worth);
    let shown: Vec<_> = indices.into_iter().map(|at| &all[at]).collect();
    let texts = shown.iter().map(|bar| (&*bar.name, &*bar.value_text));
    let (width, columns) = room(texts, BAR_MAX, style);
    let mut lines = Vec::new();
    lines.extend(
        shown.iter().map(|bar| line(&bar.name, width, &bar.drawn(full, columns), &bar.value_text)),
    );
    lines.extend((left > 0).then(|| format!("  and {left} more, none longer")));
    titled(&format!("{title}:"), lines, style)
}

/// Returns bars that are sorted with the worst first, whatever their length.
pub(crate) fn worst_first(
    title: &str,
    all: &[TextBar],
    full: f64,
    style: &TableStyle,
) -> Vec<String> {
    let shown = &all[..all.len().min(ROWS_MAX)];
    let mut lines = bars_up_to(title, shown, full, style);
    let left = all.len() - shown.len();
    lines.extend((left > 0 && !lines.is_empty()).then(|| format!("  and {left} more were better")));
    lines
}

impl TextBar {
    fn drawn(&self, full: f64, width: usize) -> String {
        let columns = |size: Option<f64>| {
            let share = size.and_then(amount).map_or(0.0, |size| size / full);
            (share * width as f64).round() as usize
        };
        let (solid, end) = (columns(self.size), columns(self.tail));
        let solid_width = solid.min(width);
        let mut drawn =
            "#".repeat(solid_width) + &"-".repeat(end.min(width).saturating_sub(solid_width));
        if solid.max(end) > width {
            drawn.pop();
            drawn.push('>');
        } else if drawn.is_empty() && self.longest() > 0.0 {
            // A small value must be distinguishable from 0.
            drawn.push('.');
        }
        format!("{drawn:<width$}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STYLE: TableStyle = TableStyle { colour: false, width: 40 };

    fn bar(name: &str, size: Option<f64>, tail: Option<f64>) -> TextBar {
        TextBar { name: name.to_owned(), size, tail, value_text: "figure".to_owned() }
    }

    #[test]
    fn bars_match_the_expected_text() {
        let all = [
            bar("a", Some(50.0), Some(100.0)),
            bar("long name", Some(25.0), None),
            bar("little", Some(0.1), None),
            bar("none", Some(0.0), None),
            bar("unknown", None, None),
        ];
        let expected = [
            "sizes:",
            "  a         |##########---------| figure",
            "  long name |#####              | figure",
            "  little    |.                  | figure",
            "  none      |                   | figure",
            "  unknown   |                   | figure",
        ];
        assert_eq!(bars("sizes", &all, &STYLE), expected);
        let beyond = bars_up_to("sizes", &all[..2], 40.0, &STYLE);
        assert_eq!(beyond[1], "  a         |##################>| figure");
        assert_eq!(beyond[2], "  long name |############       | figure");
    }

    #[test]
    fn one_bar_is_no_shape_nor_are_some_of_no_size() {
        assert!(
            bars("sizes", &[bar("a", Some(1.0), None), bar("b", None, None)], &STYLE).is_empty()
        );
        let zero = bar("a", Some(0.0), None);
        assert!(bars("sizes", &[zero.clone(), zero], &STYLE).is_empty());
        assert!(bars("sizes", &[], &STYLE).is_empty());
    }

    #[test]
    fn of_many_bars_the_longest_are_shown() {
        let all: Vec<_> =
            (0..40).map(|at| bar(&at.to_string(), Some(f64::from(at)), None)).collect();
        let lines = bars("sizes", &all, &STYLE);
        assert!(lines.len() == 18 && lines[1].starts_with("  24 |"), "{lines:?}");
        assert_eq!(lines[17], "  and 24 more, none longer");
    }

    #[test]
    fn the_worst_need_not_be_the_longest() {
        let all: Vec<_> =
            (0..20).map(|at| bar(&at.to_string(), Some(f64::from(at)), None)).collect();
        let lines = worst_first("came", &all, 40.0, &STYLE);
        assert!(lines.len() == 18 && lines[1].starts_with("  0  | "), "{lines:?}");
        assert_eq!(lines[17], "  and 4 more were better");
        assert!(worst_first("came", &all[..1], 40.0, &STYLE).is_empty());
    }

    proptest! {
        #[test]
        fn bars_are_as_wide_whatever_their_sizes_are(
            sizes in prop::collection::vec(any::<[Option<f64>; 2]>(), 0..40),
            full in any::<f64>(), width in 0_usize..140,
        ) {
            let all: Vec<_> = sizes.iter().map(|[size, tail]| bar("a", *size, *tail)).collect();
            let style = TableStyle { colour: false, width };
            for lines in [bars("sizes", &all, &style), bars_up_to("sizes", &all, full, &style)] {
                prop_assert!(lines.iter().all(|line| line.chars().count() <= width));
                let drawn = lines.iter().skip(1).filter_map(|line| line.split('|').nth(1));
                let widths: Vec<_> = drawn.map(str::len).collect();
                prop_assert!(widths.iter().all(|one| *one == widths[0] && *one <= BAR_MAX));
            }
        }
    }
}
