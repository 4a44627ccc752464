//! Sparklines: a value over time, or from one row of a table to the next.

use horolog_record::AllanDeviation;

use super::{MARKS_MAX, line, mark, room, titled, top_indices};
use crate::table::TableStyle;
use crate::units::long_time;
use crate::units::{ABSENT, human_ns, mean_ns, percent, scientific, signed_mean_ns};

/// Scale of the heights. If there are more values than columns, one value per column is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SparklineScale {
    /// Linear from 0; the highest value of each column is drawn.
    Zero,
    /// Logarithmic; the highest value of each column is drawn.
    Log,
    /// From the lowest to the highest value; of each group the one farthest from the median of all.
    Range,
}

/// Unit in which the values of a row are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SparklineUnit {
    /// Time in ns.
    Time,
    /// Signed time in ns.
    Offset,
    /// Frequency in parts per billion.
    Ppb,
    /// Share from 0 to 1.
    Share,
    /// Number without a unit.
    Number,
}

impl SparklineUnit {
    fn text(self, value: f64) -> String {
        match self {
            Self::Time => human_ns(value as u64),
            Self::Offset => signed_mean_ns(value),
            Self::Ppb if value.abs() < 1e6 => format!("{value:+.1} ppb"),
            Self::Ppb => format!("{value:+.1e} ppb"),
            Self::Share => percent(value),
            Self::Number => scientific(value),
        }
    }

    /// Formats the difference of two values.
    fn distance(self, value: f64) -> String {
        match self {
            Self::Offset => mean_ns(value),
            other => other.text(value).trim_start_matches('+').to_owned(),
        }
    }
}

/// Sparkline to draw: name, points, scale and unit.
#[derive(Clone, Debug)]
pub(crate) struct SparklineRow {
    pub(crate) name: String,
    /// Points (position, value); missing values leave gaps.
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) scale: SparklineScale,
    pub(crate) unit: SparklineUnit,
}

impl SparklineRow {
    /// Creates a row from values at equal distances.
    pub(crate) fn in_order(
        name: String,
        values: impl IntoIterator<Item = Option<f64>>,
        scale: SparklineScale,
        unit: SparklineUnit,
    ) -> Self {
        let numbered = values.into_iter().enumerate();
        let points = numbered.filter_map(|(at, value)| Some((at as f64, value?))).collect();
        Self { name, points, scale, unit }
    }
}

/// Group of sparklines under one title.
#[derive(Clone, Debug)]
pub(crate) struct SparklineGroup {
    /// Quantity and its range of positions.
    title: String,
    /// Positions at the left and right end.
    ends: (f64, f64),
    /// Number of values of a row, including missing ones.
    row_len: usize,
    rows: Vec<SparklineRow>,
}

impl SparklineGroup {
    /// Creates a group whose positions are times in seconds.
    pub(crate) fn over_time(about: &str, rows: Vec<SparklineRow>) -> Self {
        let row_len = rows.iter().map(|row| row.points.len()).max().unwrap_or(0);
        let times = || rows.iter().flat_map(|row| &row.points).map(|(at_s, _)| *at_s);
        let known = || times().filter(|at_s| at_s.is_finite());
        let from = known().reduce(f64::min).unwrap_or(0.0);
        let to = known().reduce(f64::max).unwrap_or(0.0);
        let title = format!("{about}, {} to {}", elapsed(from), elapsed(to));
        Self { title, ends: (from, to), row_len, rows }
    }

    /// Creates a group whose positions are interval numbers, for the planned number of intervals.
    pub(crate) fn over_intervals(
        about: &str,
        planned: u64,
        interval_ns: u64,
        rows: Vec<SparklineRow>,
    ) -> Self {
        let last = planned.saturating_sub(1) as f64;
        let title = format!("{about}, 0 s to {}", elapsed(last * (interval_ns as f64 / 1e9)));
        let row_len = usize::try_from(planned).unwrap_or(usize::MAX);
        Self { title, ends: (0.0, last), row_len, rows }
    }

    /// Creates a group of rows with `row_len` values each, from [`SparklineRow::in_order`].
    pub(crate) fn in_order(title: String, row_len: usize, rows: Vec<SparklineRow>) -> Self {
        Self { title, ends: (0.0, row_len.saturating_sub(1) as f64), row_len, rows }
    }

    /// Returns the lines; none if no row has two values.
    pub(crate) fn lines(self, style: &TableStyle) -> Vec<String> {
        let is_log = self.rows.iter().all(|row| row.scale == SparklineScale::Log);
        let drawn = self.rows.iter().filter_map(|row| DrawableSparkline::of(row, is_log));
        let mut drawn: Vec<_> = drawn.collect();
        if self.row_len < 2 || drawn.is_empty() {
            return Vec::new();
        }
        let worth: Vec<_> = drawn.iter().map(DrawableSparkline::worth).collect();
        let (indices, left) = top_indices(&worth);
        drawn = indices.into_iter().map(|at| drawn[at].clone()).collect();
        let texts = drawn.iter().map(|one| (&*one.row.name, &*one.value_text));
        let (width, columns) = room(texts, MARKS_MAX.min(self.row_len), style);
        let columns = columns.min(self.row_len);
        let scale = if is_log { ", log scale" } else { "" };
        let title = format!("{}{scale}:", self.title);
        let mut lines = Vec::new();
        lines.extend(drawn.iter().map(|one| {
            let marks = one.marks(self.ends, columns);
            line(&one.row.name, width, &marks, &one.value_text)
        }));
        let lower = if is_log { "none higher" } else { "none with more variation" };
        lines.extend((left > 0).then(|| format!("  and {left} more, {lower}")));
        titled(&title, lines, style)
    }
}

/// Row with at least two values, prepared for drawing.
#[derive(Clone, Debug)]
struct DrawableSparkline<'a> {
    row: &'a SparklineRow,
    least: f64,
    most: f64,
    /// Median of the values.
    middle: f64,
    /// True if all values are drawn alike: the lowest and the highest have the same text or, with
    /// [`SparklineScale::Range`], are equal.
    is_flat: bool,
    value_text: String,
}

impl<'a> DrawableSparkline<'a> {
    fn of(row: &'a SparklineRow, is_log: bool) -> Option<Self> {
        let known = row.points.iter().map(|(_, value)| *value).filter(|value| value.is_finite());
        let mut known: Vec<f64> = known.collect();
        if known.len() < 2 {
            return None;
        }
        let half = known.len() / 2;
        let middle = *known.select_nth_unstable_by(half, f64::total_cmp).1;
        let (least, most) =
            known.iter().fold((middle, middle), |(a, b), value| (a.min(*value), b.max(*value)));
        let [low, high] = [least, most].map(|value| row.unit.text(value));
        let is_flat = match row.scale {
            SparklineScale::Range => most <= least,
            SparklineScale::Zero | SparklineScale::Log => low == high,
        };
        let value_text = match row.scale {
            _ if is_flat => format!("{low} throughout"),
            SparklineScale::Range if (most - least).is_finite() => {
                format!("{low} to {high}, range {}", row.unit.distance(most - least))
            }
            SparklineScale::Log if !is_log => format!("{low} to {high}, log scale"),
            _ => format!("{low} to {high}"),
        };
        Some(Self { row, least, most, middle, is_flat, value_text })
    }

    fn worth(&self) -> f64 {
        match self.row.scale {
            SparklineScale::Range => self.most - self.least,
            SparklineScale::Zero | SparklineScale::Log => self.most,
        }
    }

    /// Returns one character per column, blank where there is no value.
    fn marks(&self, (from, to): (f64, f64), columns: usize) -> String {
        let mut shown: Vec<Option<f64>> = vec![None; columns];
        // NaN positions go to the left end.
        let column = |at: f64| ((at - from) / (to - from)).clamp(0.0, 1.0) * columns as f64;
        for (at, value) in self.row.points.iter().filter(|(_, value)| value.is_finite()) {
            let column = (column(*at) as usize).min(columns.saturating_sub(1));
            if let Some(shown) = shown.get_mut(column) {
                *shown = Some(shown.map_or(*value, |other| self.rather(other, *value)));
            }
        }
        shown.iter().map(|value| value.map_or(' ', |value| mark(self.share(value)))).collect()
    }

    /// Returns the one of two values of a column that is drawn.
    fn rather(&self, a: f64, b: f64) -> f64 {
        let is_further = || (b - self.middle).abs() > (a - self.middle).abs();
        match self.row.scale {
            SparklineScale::Range if is_further() => b,
            SparklineScale::Range => a,
            SparklineScale::Zero | SparklineScale::Log => a.max(b),
        }
    }

    fn share(&self, value: f64) -> f64 {
        let Self { least, most, .. } = *self;
        match self.row.scale {
            SparklineScale::Zero if most > 0.0 => value / most,
            _ if self.is_flat => 0.0,
            // A logarithmic scale has no position for 0; such values are drawn at its lower end.
            SparklineScale::Log => {
                let least = if least > 0.0 { least } else { most.min(1.0) };
                (value.max(least) / least).ln() / (most / least).ln()
            }
            SparklineScale::Zero => 0.0,
            // By halves, so that no difference overflows.
            SparklineScale::Range => (value / 2.0 - least / 2.0) / (most / 2.0 - least / 2.0),
        }
    }
}

/// Returns sparklines of the Allan deviations of clocks, from one averaging time to the next.
pub(crate) fn allan(clocks: &[(&str, &[AllanDeviation])], style: &TableStyle) -> Vec<String> {
    let longest = clocks.iter().map(|(_, points)| *points).max_by_key(|points| points.len());
    let Some([first, .., last]) = longest else { return Vec::new() };
    let row = |(name, points): &(&str, &[AllanDeviation])| {
        let deviation = |point: &AllanDeviation| Some(point.deviation).filter(|value| *value > 0.0);
        let values = points.iter().map(deviation);
        SparklineRow::in_order(
            (*name).to_owned(),
            values,
            SparklineScale::Log,
            SparklineUnit::Number,
        )
    };
    let ends = [first, last].map(|point| elapsed(point.tau_s));
    let title = format!("Allan deviation, {} to {}", ends[0], ends[1]);
    let row_len = clocks.iter().map(|(_, points)| points.len()).max().unwrap_or(0);
    SparklineGroup::in_order(title, row_len, clocks.iter().map(row).collect()).lines(style)
}

/// Formats a time since the start of a run, which is given in seconds; [`ABSENT`] if it is negative
/// or not below 10^15.
fn elapsed(seconds: f64) -> String {
    match seconds {
        _ if !(0.0..1e15).contains(&seconds) => ABSENT.to_owned(),
        999.5.. => long_time(seconds as u64),
        _ if seconds.fract() > 0.0 => human_ns((seconds * 1e9).round() as u64),
        _ => format!("{seconds:.0} s"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STYLE: TableStyle = TableStyle { colour: false, width: 80 };

    fn row(
        name: &str,
        values: &[Option<f64>],
        scale: SparklineScale,
        unit: SparklineUnit,
    ) -> SparklineRow {
        SparklineRow::in_order(name.to_owned(), values.iter().copied(), scale, unit)
    }

    fn drawn(
        values: &[Option<f64>],
        scale: SparklineScale,
        unit: SparklineUnit,
        width: usize,
    ) -> Vec<String> {
        let rows = vec![row("it", values, scale, unit)];
        let style = TableStyle { colour: false, width };
        SparklineGroup::in_order("by row".to_owned(), values.len(), rows).lines(&style)
    }

    fn all(values: &[f64]) -> Vec<Option<f64>> {
        values.iter().copied().map(Some).collect()
    }

    #[test]
    fn marks_rise_with_the_values_and_keep_the_highest_of_a_stretch() {
        let values: Vec<_> = (0..7).map(|value| Some(f64::from(value) / 10.0)).collect();
        let lines = drawn(&values, SparklineScale::Zero, SparklineUnit::Share, 80);
        assert_eq!(lines, ["by row:", "  it |_.-=+*#| 0.00% to 60.00%"]);
        let many: Vec<_> = (0..70).map(|value| Some(f64::from(value / 10) / 10.0)).collect();
        let lines = drawn(&many, SparklineScale::Zero, SparklineUnit::Share, 33);
        assert_eq!(lines[1], "  it |_.--=++*##| 0.00% to 60.00%");
    }

    #[test]
    fn a_log_scale_is_labelled_and_a_missing_value_is_a_gap() {
        let gap = [Some(1e3), None, Some(1e9)];
        let lines = drawn(&gap, SparklineScale::Log, SparklineUnit::Time, 80);
        assert_eq!(lines, ["by row, log scale:", "  it |_ #| 1.00 µs to 1.00 s"]);
        let rows = vec![
            row("lost", &all(&[0.0, 0.5]), SparklineScale::Zero, SparklineUnit::Share),
            row("p99", &all(&[1e3, 1e6]), SparklineScale::Log, SparklineUnit::Time),
        ];
        let lines = SparklineGroup::in_order("by row".to_owned(), 2, rows).lines(&STYLE);
        assert_eq!(lines[2], "  p99  |_#| 1.00 µs to 1.00 ms, log scale");
        let zero = drawn(&all(&[0.0, 1e3, 1e6]), SparklineScale::Log, SparklineUnit::Time, 80);
        assert_eq!(zero[1], "  it |_=#| 0 ns to 1.00 ms");
    }

    #[test]
    fn offsets_go_from_the_lowest_to_the_highest_and_outliers_stay_either_way() {
        let mut values: Vec<_> = (0..600).map(|at| f64::from(at % 3) - 12_345_678.0).collect();
        values[35] = -12_345_978.0;
        values[215] = -12_345_378.0;
        let lines = drawn(&all(&values), SparklineScale::Range, SparklineUnit::Offset, 80);
        let marks: Vec<_> = lines[1].split('|').nth(1).unwrap().chars().collect();
        assert_eq!((marks.iter().filter(|mark| **mark == '=').count()), marks.len() - 2);
        assert!(marks.contains(&'_') && marks.contains(&'#'), "{lines:?}");
        assert!(lines[1].ends_with("| -12.3 ms to -12.3 ms, range 600 ns"), "{lines:?}");
    }

    #[test]
    fn constant_values_are_labelled_and_one_value_is_no_shape() {
        let lines = drawn(&all(&[8.701e6, 8.704e6]), SparklineScale::Log, SparklineUnit::Time, 80);
        assert_eq!(lines[1], "  it |__| 8.70 ms throughout");
        let lines = drawn(&all(&[0.0, 0.0]), SparklineScale::Zero, SparklineUnit::Share, 80);
        assert_eq!(lines[1], "  it |__| 0.00% throughout");
        assert!(
            drawn(&[Some(1.0), None, Some(f64::NAN)], SparklineScale::Log, SparklineUnit::Time, 80)
                .is_empty()
        );
        assert!(drawn(&[], SparklineScale::Log, SparklineUnit::Time, 80).is_empty());
        let far = drawn(&all(&[f64::MIN, f64::MAX]), SparklineScale::Range, SparklineUnit::Ppb, 80);
        assert_eq!(far[1], "  it |_#| -1.8e308 ppb to +1.8e308 ppb");
    }

    #[test]
    fn points_stand_at_their_times() {
        let points = [0.0, 1.0, 2.0, 3.0, 8.0, 9.0].map(|at| (at, at + 1.0)).to_vec();
        let whole = (0..10).map(|at| (f64::from(at), 5.0)).collect();
        let named = |name: &str, points| SparklineRow {
            name: name.to_owned(),
            points,
            scale: SparklineScale::Range,
            unit: SparklineUnit::Ppb,
        };
        let sparklines =
            SparklineGroup::over_time("frequency", vec![named("a", points), named("b", whole)]);
        let expected = [
            "frequency, 0 s to 9 s:",
            "  a |_..-    *#| +1.0 ppb to +10.0 ppb, range 9.0 ppb",
            "  b |__________| +5.0 ppb throughout",
        ];
        assert_eq!(sparklines.lines(&STYLE), expected);
    }

    #[test]
    fn seconds_have_the_unit_that_fits() {
        let shown = [0.0, 0.1, 12.0, 99.9, 3_600.0, f64::NAN, -1.0].map(elapsed);
        assert_eq!(shown, ["0 s", "100 ms", "12 s", "99.9 s", "1 h", "-", "-"]);
    }

    #[test]
    fn of_many_rows_the_highest_are_shown() {
        let rows = (0..40).map(|at| {
            let name = format!("core {at}");
            row(&name, &all(&[1e3, 1e4 + f64::from(at)]), SparklineScale::Log, SparklineUnit::Time)
        });
        let lines = SparklineGroup::in_order("by core".to_owned(), 2, rows.collect()).lines(&STYLE);
        assert_eq!(lines.len(), 18);
        assert!(lines[1].starts_with("  core 24 |_#|"), "{lines:?}");
        assert_eq!(lines[17], "  and 24 more, none higher");
    }

    #[test]
    fn a_clock_without_deviations_is_no_row() {
        let of = |tau_s, deviation| AllanDeviation { tau_s, deviation, terms: 1 };
        let mut points: Vec<_> =
            (0..5).map(|at| of(f64::from(1 << at), 1e-6 / 10_f64.powi(at))).collect();
        // Of none at all there is no logarithm.
        points[2].deviation = 0.0;
        let lines = allan(&[("raw", &points), ("none", &[])], &STYLE);
        let expected =
            ["Allan deviation, 1 s to 16 s, log scale:", "  raw |#+ -_| 1.00e-10 to 1.00e-6"];
        assert_eq!(lines, expected);
        assert!(allan(&[("raw", &points[..1])], &STYLE).is_empty());
    }

    proptest! {
        #[test]
        fn lines_are_as_wide_whatever_the_values_are(
            values in prop::collection::vec(prop::option::of(any::<f64>()), 0..200),
            times in prop::collection::vec(any::<(f64, u64)>(), 0..200),
            width in 0_usize..140,
            scale in prop::sample::select(vec![SparklineScale::Zero, SparklineScale::Log, SparklineScale::Range]),
        ) {
            let style = TableStyle { colour: false, width };
            for unit in [SparklineUnit::Time, SparklineUnit::Offset, SparklineUnit::Ppb, SparklineUnit::Share, SparklineUnit::Number] {
                let points = times.iter().map(|(at, value)| (*at, *value as f64)).collect();
                let timed = SparklineRow { name: "b".into(), points, scale, unit };
                let ordered = row("a", &values, scale, unit);
                let courses = [
                    SparklineGroup::over_time("over time", vec![timed]).lines(&style),
                    SparklineGroup::in_order("in order".into(), values.len(), vec![ordered]).lines(&style),
                ];
                for lines in courses {
                    for line in lines.iter().filter(|line| line.contains('|')) {
                        let marks = line.split('|').nth(1).unwrap();
                        prop_assert!((2..=MARKS_MAX).contains(&marks.chars().count()), "{line}");
                        prop_assert!(!line.contains("NaN") && !line.contains("inf"), "{line}");
                        prop_assert!(line.chars().count() <= width.min(100), "{line}");
                    }
                }
            }
        }
    }
}
