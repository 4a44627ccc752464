//! Plot as data for `assets/page.js`, and the element of the page into which the script draws it.
//! The points of load plots come from [`super::series`].

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

use super::escape::text;
use crate::units::since_begin;
use crate::units::{human_rate, mean_ns, percent, signed_mean_ns, times};

/// Plot that `page.js` draws into the element `plot-` + `id`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plot {
    pub(crate) id: &'static str,
    #[serde(skip)]
    pub(crate) title: &'static str,
    /// Description below the title.
    #[serde(skip)]
    pub(crate) hint: &'static str,
    /// Element `id` of the table with the same values.
    #[serde(skip)]
    pub(crate) described_by: &'static str,
    pub(crate) x: PlotAxis,
    pub(crate) y: PlotAxis,
    /// True to mark the points of the lines.
    pub(crate) points: bool,
    /// True if each point is the left edge of a bar, which extends to the next point or gap.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) bars: bool,
    pub(crate) marks: Vec<PlotMark>,
    #[serde(flatten)]
    pub(crate) shown: PlotViews,
}

/// Views of a plot: one, or several to choose from.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PlotViews {
    /// Label of the choice between the views.
    pub(crate) chooser: &'static str,
    /// Index of the view that is shown at first.
    pub(crate) view: usize,
    pub(crate) views: Vec<PlotView>,
}

impl PlotViews {
    /// Creates a single view.
    pub(crate) fn one(series: impl IntoIterator<Item = PlotSeries>) -> Self {
        let series = series.into_iter().collect();
        Self { chooser: "", view: 0, views: vec![PlotView { label: "".into(), series }] }
    }
}

/// Axis of a plot: label, label in the legend, unit and scale.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PlotAxis {
    pub(crate) label: &'static str,
    pub(crate) short: &'static str,
    pub(crate) unit: PlotUnit,
    #[serde(flatten)]
    pub(crate) scale: AxisScale,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PlotUnit {
    /// A plain number.
    Count,
    /// Requests or replies per second.
    Rate,
    /// A share from 0 to 1.
    Share,
    /// Ratio of two values, shown with `×`.
    Times,
    /// Nanoseconds.
    Ns,
    /// 1 / (share of larger values), for the tail of a distribution.
    Tail,
    /// Signed time in ns.
    Signed,
    /// Seconds.
    Seconds,
    /// Number in scientific notation, without a unit.
    Scientific,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase", tag = "scale")]
pub(crate) enum AxisScale {
    /// Linear scale.
    Linear,
    /// Linear scale that starts at 0.
    Zero,
    /// Logarithmic, for values above 0.
    Log,
    /// Linear from 0 to `knee`, logarithmic beyond.
    Knee { knee: f64 },
}

/// Line across the plot with a label.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PlotMark {
    /// Axis to which `at` refers: `x` or `y`.
    pub(crate) axis: &'static str,
    pub(crate) at: f64,
    pub(crate) label: String,
}

/// Series that one view shows together.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PlotView {
    pub(crate) label: Cow<'static, str>,
    pub(crate) series: Vec<PlotSeries>,
}

/// Line of a plot: points in ascending order of x, without duplicates of x.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PlotSeries {
    pub(crate) label: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// Positions at which the line is interrupted, or a bar without a right neighbour ends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) gaps: Vec<f64>,
}

impl PlotSeries {
    /// Creates a series from points in any order; those that are not finite are omitted. If two
    /// share their x, the higher y is kept: the plots show losses and delays, and the worse one
    /// must stay visible.
    pub(crate) fn new(label: String, mut points: Vec<(f64, f64)>) -> Self {
        points.retain(|(x, y)| x.is_finite() && y.is_finite());
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        points.dedup_by(|later, earlier| later.0.total_cmp(&earlier.0).is_eq());
        Self { label, points, gaps: Vec::new() }
    }
}

impl Plot {
    /// Returns true if there is nothing to draw.
    pub(crate) fn is_empty(&self) -> bool {
        self.shown
            .views
            .iter()
            .all(|view| view.series.iter().all(|series| series.points.is_empty()))
    }

    /// Returns the figure element of the plot, with the given markup below it.
    pub(crate) fn figure(&self, below: &str) -> String {
        let description = self.text_alternative();
        format!(
            "<figure class=\"plot\">\n<figcaption><h3>{title}</h3><p class=\"hint\">{hint}<span \
             class=\"drag\"> Drag to zoom in, double-click to zoom \
             out.</span></p></figcaption>\n<div class=\"chart\" id=\"plot-{id}\" role=\"group\" \
             aria-label=\"Plot: {title}. The same values are in a table on this page.\" \
             aria-describedby=\"plot-{id}-description\" aria-details=\"{table}\"></div>\n<p \
             class=\"aloud\" id=\"plot-{id}-description\">{description}</p>\n{below}</figure>\n",
            title = text(self.title),
            hint = text(self.hint),
            id = self.id,
            table = self.described_by,
            description = text(&description),
        )
    }

    /// Returns the text alternative for screen readers: the lines, and their ranges.
    fn text_alternative(&self) -> String {
        let Some(view) = self.shown.views.get(self.shown.view) else { return String::new() };
        let lines: Vec<_> = view.series.iter().map(|one| one.label.as_str()).collect();
        let lines = match lines.len() {
            1 => format!("One line: {}.", lines[0]),
            count => format!("{count} lines: {}.", lines.join("; ")),
        };
        let points = || view.series.iter().flat_map(|one| &one.points);
        let reach = |axis: &PlotAxis, of: fn(&(f64, f64)) -> f64| {
            let lowest = points().map(of).reduce(f64::min)?;
            let highest = points().map(of).reduce(f64::max)?;
            Some(format!(" {}: {} to {}.", axis.label, axis.shown(lowest), axis.shown(highest)))
        };
        let across = reach(&self.x, |point| point.0).unwrap_or_default();
        let up = reach(&self.y, |point| point.1).unwrap_or_default();
        let others: Vec<_> = self.shown.views.iter().map(|view| view.label.as_ref()).collect();
        let choice = match others.len() {
            0 | 1 => String::new(),
            _ => format!(" {}: {} of {}.", self.shown.chooser, view.label, others.join(", ")),
        };
        let marks = self.marks.iter().map(|mark| mark.label.as_str()).collect::<Vec<_>>();
        let marks =
            if marks.is_empty() { String::new() } else { format!(" Marks: {}.", marks.join("; ")) };
        format!("{lines}{across}{up}{choice}{marks} The arrow keys go from point to point.")
    }
}

impl PlotAxis {
    /// Axis of the time since the beginning, in seconds.
    pub(crate) const ELAPSED: Self =
        Self { label: "time", short: "time", unit: PlotUnit::Seconds, scale: AxisScale::Linear };

    /// Formats a value of the axis.
    fn shown(&self, value: f64) -> String {
        match self.unit {
            PlotUnit::Count => NumberWithoutTrailingZeros(value).to_string(),
            PlotUnit::Rate => human_rate(value),
            PlotUnit::Share => percent(value),
            PlotUnit::Times => times(value),
            PlotUnit::Ns => mean_ns(value),
            PlotUnit::Tail => format!("{}%", NumberWithoutTrailingZeros(100.0 - 100.0 / value)),
            PlotUnit::Signed => signed_mean_ns(value),
            PlotUnit::Seconds => since_begin(value),
            PlotUnit::Scientific => format!("{value:.1e}"),
        }
    }
}

/// Number displayed without trailing zeros.
struct NumberWithoutTrailingZeros(f64);

impl fmt::Display for NumberWithoutTrailingZeros {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}", (self.0 * 1e6).round() / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_in_order_and_the_worse_of_two_stays() {
        let points =
            vec![(3.0, 1.0), (1.0, 0.0), (3.0, 2.0), (f64::NAN, 1.0), (2.0, f64::INFINITY)];
        assert_eq!(PlotSeries::new(String::new(), points).points, [(1.0, 0.0), (3.0, 2.0)]);
    }

    #[test]
    fn a_plot_has_a_text_alternative() {
        let axis = |label, unit| PlotAxis { label, short: label, unit, scale: AxisScale::Linear };
        let points = vec![(0.0, 1_500.0), (900.0, 2_500.0)];
        let plot = Plot {
            id: "p",
            title: "t",
            hint: "",
            described_by: "figures",
            x: axis("time", PlotUnit::Seconds),
            y: axis("delay", PlotUnit::Ns),
            points: false,
            bars: false,
            marks: Vec::new(),
            shown: PlotViews::one([PlotSeries::new("<a>".to_owned(), points)]),
        };
        let markup = plot.figure("");
        let description = "One line: &lt;a&gt;. time: 0.00 s to 15 min. delay: 1.50 µs to 2.50 µs. The \
                    arrow keys go from point to point.";
        assert!(
            markup.contains(&format!("id=\"plot-p-description\">{description}</p>")),
            "{markup}"
        );
    }

    #[test]
    fn a_scale_is_written_as_the_script_reads_it() {
        let axis = PlotAxis {
            label: "lost",
            short: "lost",
            unit: PlotUnit::Share,
            scale: AxisScale::Knee { knee: 0.5 },
        };
        let json = serde_json::to_value(&axis).unwrap();
        assert_eq!(json["unit"], "share");
        assert_eq!((&json["scale"], &json["knee"]), (&"knee".into(), &0.5.into()));
    }
}
