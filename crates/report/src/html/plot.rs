//! A plot as data, as `assets/page.js` takes it, and the place on the page where it is drawn.
//! Which points it shows is for [`super::series`].

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

use super::escape::text;
use crate::clock::since_begin;
use crate::units::{human_rate, mean_ns, percent, signed_mean_ns, times};

/// One plot; `page.js` draws it into the element `plot-` + `id`.
#[derive(Debug, Serialize)]
pub(super) struct Plot {
    pub(super) id: &'static str,
    #[serde(skip)]
    pub(super) title: &'static str,
    /// What there is to see, for below the title.
    #[serde(skip)]
    pub(super) hint: &'static str,
    /// The `id` of the table with the same figures.
    #[serde(skip)]
    pub(super) described_by: &'static str,
    pub(super) x: Axis,
    pub(super) y: Axis,
    /// Whether to mark the points themselves.
    pub(super) points: bool,
    /// Whether each point is the left edge of a bar, which goes to the next point or gap.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) bars: bool,
    pub(super) marks: Vec<Mark>,
    #[serde(flatten)]
    pub(super) shown: Choice,
}

/// What a plot shows: one view, or several to choose from.
#[derive(Debug, Serialize)]
pub(super) struct Choice {
    /// What the views differ in.
    pub(super) chooser: &'static str,
    /// The view that is shown at first.
    pub(super) view: usize,
    pub(super) views: Vec<View>,
}

impl Choice {
    /// Nothing to choose from.
    pub(super) fn one(series: impl IntoIterator<Item = Series>) -> Self {
        let series = series.into_iter().collect();
        Self { chooser: "", view: 0, views: vec![View { label: "".into(), series }] }
    }
}

/// An axis: its label, its label in the legend, the unit of its values and how they are spread.
#[derive(Debug, Serialize)]
pub(super) struct Axis {
    pub(super) label: &'static str,
    pub(super) short: &'static str,
    pub(super) unit: Unit,
    #[serde(flatten)]
    pub(super) scale: Scale,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Unit {
    /// A plain number.
    Count,
    /// Requests or replies per second.
    Rate,
    /// A share from 0 to 1.
    Share,
    /// How many times as much.
    Times,
    /// Nanoseconds.
    Ns,
    /// One in this many is beyond.
    Tail,
    /// Nanoseconds with a sign.
    Signed,
    /// Seconds.
    Seconds,
    /// A number without a unit, far from 1.
    Scientific,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase", tag = "scale")]
pub(super) enum Scale {
    /// Equal differences are equal distances.
    Linear,
    /// The same from 0 on, for what is read by its height.
    Zero,
    /// Equal ratios are equal distances; values are positive.
    Log,
    /// Linear up to `knee`, logarithmic beyond: it has a place for 0.
    Knee { knee: f64 },
}

/// A line across the plot with a label.
#[derive(Debug, Serialize)]
pub(super) struct Mark {
    /// The axis on which `at` lies.
    pub(super) axis: &'static str,
    pub(super) at: f64,
    pub(super) label: String,
}

/// Series that are shown together.
#[derive(Debug, Serialize)]
pub(super) struct View {
    pub(super) label: Cow<'static, str>,
    pub(super) series: Vec<Series>,
}

/// One line: points by rising x, no x twice.
#[derive(Debug, Serialize)]
pub(super) struct Series {
    pub(super) label: String,
    pub(super) points: Vec<(f64, f64)>,
    /// Where the line is interrupted, and where a bar ends beside which there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) gaps: Vec<f64>,
}

impl Series {
    /// A series from points in any order. Where two share their x, the higher y is kept: the plots
    /// show losses and delays, and it is the worse one that must not go unseen.
    pub(super) fn new(label: String, mut points: Vec<(f64, f64)>) -> Self {
        points.retain(|(x, y)| x.is_finite() && y.is_finite());
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        points.dedup_by(|later, earlier| later.0.total_cmp(&earlier.0).is_eq());
        Self { label, points, gaps: Vec::new() }
    }
}

impl Plot {
    /// Whether there is anything to draw.
    pub(super) fn is_empty(&self) -> bool {
        self.shown
            .views
            .iter()
            .all(|view| view.series.iter().all(|series| series.points.is_empty()))
    }

    /// The figure on the page, with whatever markup belongs below it.
    pub(super) fn figure(&self, below: &str) -> String {
        let said = self.said();
        format!(
            "<figure class=\"plot\">\n<figcaption><h3>{title}</h3><p class=\"hint\">{hint}\
             <span class=\"drag\"> Drag to zoom in, double-click to zoom out.</span></p></figcaption>\n\
             <div class=\"chart\" id=\"plot-{id}\" role=\"group\" aria-label=\"Plot: {title}. The \
             same figures are in a table on this page.\" aria-describedby=\"plot-{id}-said\" \
             aria-details=\"{table}\"></div>\n<p class=\"aloud\" id=\"plot-{id}-said\">{said}</p>\n\
             {below}</figure>\n",
            title = text(self.title),
            hint = text(self.hint),
            id = self.id,
            table = self.described_by,
            said = text(&said),
        )
    }

    /// What there is to see, for those who hear it: the lines, and how far they go.
    fn said(&self) -> String {
        let Some(view) = self.shown.views.get(self.shown.view) else { return String::new() };
        let lines: Vec<_> = view.series.iter().map(|one| one.label.as_str()).collect();
        let lines = match lines.len() {
            1 => format!("One line: {}.", lines[0]),
            count => format!("{count} lines: {}.", lines.join("; ")),
        };
        let points = || view.series.iter().flat_map(|one| &one.points);
        let reach = |axis: &Axis, of: fn(&(f64, f64)) -> f64| {
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

impl Axis {
    /// A value of it in words.
    fn shown(&self, value: f64) -> String {
        match self.unit {
            Unit::Count => Number(value).to_string(),
            Unit::Rate => human_rate(value),
            Unit::Share => percent(value),
            Unit::Times => times(value),
            Unit::Ns => mean_ns(value),
            Unit::Tail => format!("{}%", Number(100.0 - 100.0 / value)),
            Unit::Signed => signed_mean_ns(value),
            Unit::Seconds => since_begin(value),
            Unit::Scientific => format!("{value:.1e}"),
        }
    }
}

/// A number without more digits than there are.
struct Number(f64);

impl fmt::Display for Number {
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
        assert_eq!(Series::new(String::new(), points).points, [(1.0, 0.0), (3.0, 2.0)]);
    }

    #[test]
    fn a_plot_is_told_in_words() {
        let axis = |label, unit| Axis { label, short: label, unit, scale: Scale::Linear };
        let points = vec![(0.0, 1_500.0), (900.0, 2_500.0)];
        let plot = Plot {
            id: "p",
            title: "t",
            hint: "",
            described_by: "figures",
            x: axis("time", Unit::Seconds),
            y: axis("delay", Unit::Ns),
            points: false,
            bars: false,
            marks: Vec::new(),
            shown: Choice::one([Series::new("<a>".to_owned(), points)]),
        };
        let markup = plot.figure("");
        let said = "One line: &lt;a&gt;. time: 0.00 s to 15 min. delay: 1.50 µs to 2.50 µs. The \
                    arrow keys go from point to point.";
        assert!(markup.contains(&format!("id=\"plot-p-said\">{said}</p>")), "{markup}");
    }

    #[test]
    fn a_scale_is_written_as_the_script_reads_it() {
        let axis = Axis {
            label: "lost",
            short: "lost",
            unit: Unit::Share,
            scale: Scale::Knee { knee: 0.5 },
        };
        let json = serde_json::to_value(&axis).unwrap();
        assert_eq!(json["unit"], "share");
        assert_eq!((&json["scale"], &json["knee"]), (&"knee".into(), &0.5.into()));
    }
}
