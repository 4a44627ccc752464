//! Document of a result of `horolog runs compare`: verdict, one row per metric, the bounds of each
//! change, the metrics that could not be compared, and other differences between the runs.

use horolog_record::{
    CompareVerdict, ComparedMetric, ComparedMetricKind, ComparedRun, RunsCompareResult,
};

use crate::document::{BlockContent, DescribeResult, HeadlineMetric, ResultDocument, run_of};
use crate::html::bars;
use crate::html::data::table_unless_empty;
use crate::html::escape::each;
use crate::html::sections::paragraph;
use crate::metrics::metric_name;
use crate::table::TableStyle;
use crate::table::grid::{self, GridColumn};
use crate::table::summary::wrapped;
use crate::units::{ABSENT, human_rate, mean_ns, percent, signed_mean_ns};

/// Titles, and widths on a terminal.
const COLUMNS: [(&str, usize); 4] =
    [("earlier", 11), ("later", 11), ("change", 19), ("verdict", 10)];
const NAME_WIDTH: usize = 44;
/// Minimum width of names if the table is wider than the terminal.
const NAME_WIDTH_MIN: usize = 20;
/// Maximum number of paths that only one of both has, listed on a terminal.
const NAMED_MAX: usize = 4;
/// Maximum number of metrics whose change is plotted: those with the largest bounds.
const DRAWN_MAX: usize = 40;
/// Smallest change up to which the axis can be linear; it is logarithmic beyond the knee.
const KNEE_MIN: f64 = 1e-3;

/// Explanation of verdicts in brackets.
const BRACKETS: &str =
    "In parentheses: informational, about the measuring host; not part of the verdict.";

const NOTE: &str = "Larger times and losses are worse, as are smaller rates and offsets further \
                    from 0.";

impl DescribeResult for RunsCompareResult {
    fn document(&self) -> ResultDocument<'_> {
        let method = (!self.metrics.is_empty()).then(|| method(self));
        let blocks = [
            BlockContent::Custom(Box::new(|style| lines(self, style)), changes(self))
                .under("Changes"),
            BlockContent::Introduction(method.into_iter().collect()).under("Changes"),
            BlockContent::Markup(Box::new(|| metrics(self))).under("Metrics"),
            BlockContent::Details(only(self, usize::MAX)).under("Only in one run"),
            BlockContent::Markup(Box::new(|| conditions(self))).under("Other differences"),
            BlockContent::PageNote(NOTE).under(""),
        ];
        let failure = failure(self).map(|failure| BlockContent::Failure(failure).under(""));
        ResultDocument {
            kind: "runs compare",
            heading: format!("{} versus {}", self.later.reference, self.earlier.reference),
            lead: format!("results {}, compared {}", self.later.schema, self.started),
            headline: HeadlineMetric {
                name: format!("Within {}", percent(self.threshold)),
                value: Some(outcome(self).to_owned()),
                sentence: sentence(self),
            },
            blocks: blocks.into_iter().chain(failure).collect(),
            method: "",
            limits: &[],
            findings: &self.findings,
            run: run_of!(self),
        }
    }
}

fn count(result: &RunsCompareResult, verdict: CompareVerdict) -> usize {
    result.deciding_metrics().filter(|one| one.verdict == verdict).count()
}

/// Returns the number of metrics that became worse in words; `None` if none did.
fn failure(result: &RunsCompareResult) -> Option<String> {
    let (worse, all) = (count(result, CompareVerdict::Worse), result.deciding_metrics().count());
    (worse > 0).then(|| format!("failed: {worse} of {all} metrics worse"))
}

/// Returns the verdict on all metrics in words.
fn outcome(result: &RunsCompareResult) -> &'static str {
    let is = |verdict| count(result, verdict) > 0;
    match result.deciding_metrics().count() {
        0 => "no common metrics",
        _ if is(CompareVerdict::Worse) => "worse",
        all if count(result, CompareVerdict::NotEnough) == all => "not enough data",
        _ if is(CompareVerdict::Unclear) => "unclear",
        _ if is(CompareVerdict::Better) => "better",
        _ => "same",
    }
}

/// Returns the sentence, the metrics that differ and the other differences, for a terminal.
fn lines(result: &RunsCompareResult, style: &TableStyle) -> Vec<String> {
    let mut lines = wrapped(&sentence(result), "", "  ", style);
    let is_shown = |figure: &&ComparedMetric| {
        !matches!(figure.verdict, CompareVerdict::Same | CompareVerdict::NotEnough)
    };
    let shown = || result.metrics.iter().filter(is_shown);
    let rows: Vec<_> = shown().map(named_cells).collect();
    if !rows.is_empty() {
        let columns = COLUMNS.map(|(title, width)| GridColumn::right(title, width));
        let names = [NAME_WIDTH, NAME_WIDTH_MIN].map(|width| GridColumn::left("metric", width));
        lines.extend(grid::blocks(names, &columns, &rows, style));
    }
    let brackets = shown().any(|figure| figure.informational).then(|| BRACKETS.to_owned());
    let conditions = result.conditions.iter().map(|one| {
        let shown =
            |text: &str| if text.is_empty() { ABSENT.to_owned() } else { format!("'{text}'") };
        format!("{}: was {}, is {}.", one.path, shown(&one.earlier), shown(&one.later))
    });
    let sentences = brackets.into_iter().chain(only(result, NAMED_MAX)).chain(conditions);
    lines.extend(sentences.flat_map(|text| wrapped(&text, "", "  ", style)));
    lines
}

/// Returns the explanation of the bounds and their limits.
fn method(result: &RunsCompareResult) -> String {
    let confidence = percent(result.confidence);
    let runs = [&result.earlier_repeats, &result.later_repeats].map(|repeats| 1 + repeats.len());
    let bounds = match runs {
        [1, 1] => format!(
            "Change: bounds at {confidence} confidence, by bootstrap over the values of each \
             run. They do not include run-to-run variation, which takes several runs of each."
        ),
        [earlier, later] => format!(
            "Change: bounds at {confidence} confidence, by bootstrap over {later} runs versus \
             {earlier} and over the values of each; metrics are means over the runs."
        ),
    };
    format!("{bounds} A change without bounds is one of single readings.")
}

/// Returns a sentence with the number of metrics by verdict.
fn sentence(result: &RunsCompareResult) -> String {
    let words = [
        (CompareVerdict::Worse, "worse"),
        (CompareVerdict::Better, "better"),
        (CompareVerdict::Unclear, "unclear"),
        (CompareVerdict::Same, "same"),
        (CompareVerdict::NotEnough, "with too few values"),
    ];
    let phrases = words.into_iter().filter_map(|(verdict, word)| {
        let count = count(result, verdict);
        (count > 0).then(|| format!("{count} {word}"))
    });
    let phrases: Vec<_> = phrases.collect();
    let others = |repeats: &[ComparedRun]| match repeats.len() {
        0 => String::new(),
        1 => " and 1 more".to_owned(),
        more => format!(" and {more} more"),
    };
    let verdict_counts =
        if phrases.is_empty() { "no common metrics".to_owned() } else { phrases.join(", ") };
    format!(
        "{} ({}){} versus {} ({}){}, threshold {}: {verdict_counts}.",
        result.later.reference,
        result.later.started,
        others(&result.later_repeats),
        result.earlier.reference,
        result.earlier.started,
        others(&result.earlier_repeats),
        percent(result.threshold)
    )
}

/// Returns the metrics that only one of both runs has, at most `max` of each.
fn only(result: &RunsCompareResult, max: usize) -> Vec<String> {
    let sentence = |(which, paths): (&str, &Vec<String>)| {
        let named = paths[..paths.len().min(max)].join(", ");
        let more = match paths.len().saturating_sub(max) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!paths.is_empty()).then(|| format!("Only the {which} run has {named}{more}."))
    };
    let unmatched = [("earlier", &result.only_earlier), ("later", &result.only_later)];
    unmatched.into_iter().filter_map(sentence).collect()
}

/// Returns the name of a metric with its quantile, and its item, such as `rtt p99 of 1,000/s`.
#[must_use]
pub fn compared_name(figure: &ComparedMetric) -> String {
    let quantile = match figure.metric {
        ComparedMetricKind::P50 => " p50",
        ComparedMetricKind::P99 => " p99",
        ComparedMetricKind::P999 => " p99.9",
        _ => "",
    };
    metric_name(&format!("{}{quantile}", figure.name), figure.item.as_deref().unwrap_or_default())
}

/// Returns the name of a metric, its change in words, and the verdict.
pub(crate) fn compared_figure(figure: &ComparedMetric) -> (String, String, CompareVerdict) {
    let [earlier, later, change, verdict] = cells(figure);
    let detail = format!("{verdict}: was {earlier}, is {later}, change {change}");
    (compared_name(figure), detail, figure.verdict)
}

/// Returns the cells of a metric, in the order of [`COLUMNS`].
fn cells(figure: &ComparedMetric) -> [String; 4] {
    let value = |value: Option<f64>| match (value, figure.metric) {
        (None, _) => "none".to_owned(),
        (Some(value), ComparedMetricKind::Loss) => percent(value),
        (Some(value), ComparedMetricKind::Rate) => human_rate(value),
        (Some(value), ComparedMetricKind::Offset) => signed_mean_ns(value),
        (Some(value), _) => mean_ns(value),
    };
    let verdict = match figure.verdict {
        CompareVerdict::Same => "same",
        CompareVerdict::Better => "better",
        CompareVerdict::Worse => "worse",
        CompareVerdict::Unclear => "unclear",
        CompareVerdict::NotEnough => "not enough",
    };
    let verdict = if figure.informational { format!("({verdict})") } else { verdict.to_owned() };
    [value(figure.earlier), value(figure.later), change(figure), verdict]
}

/// Returns the name and the cells of a metric.
fn named_cells(figure: &ComparedMetric) -> (String, Vec<String>) {
    (compared_name(figure), cells(figure).to_vec())
}

/// Formats the bounds of a change, such as `+4.1% to +9.8%`, or the only known bound; for loss
/// ratios their difference, for single readings the change.
fn change(figure: &ComparedMetric) -> String {
    let bound = |bound: f64| match figure.metric {
        ComparedMetricKind::Offset => signed_mean_ns(bound),
        ComparedMetricKind::Loss => format!("{:+.3}%", bound * 100.0),
        _ => format!("{:+.1}%", bound * 100.0),
    };
    match (figure.low, figure.high) {
        (Some(low), Some(high)) => format!("{} to {}", bound(low), bound(high)),
        (Some(low), None) => format!("at least {}", bound(low)),
        (None, Some(high)) => format!("at most {}", bound(high)),
        (None, None) => {
            let change = figure.later.zip(figure.earlier).map(|(later, earlier)| later / earlier);
            let change = change.map(|ratio| ratio - 1.0).filter(|change| change.is_finite());
            let is_judged = figure.verdict != CompareVerdict::NotEnough;
            change.filter(|_| is_judged).map_or_else(|| ABSENT.to_owned(), bound)
        }
    }
}

/// Returns the table of all metrics for a page.
fn metrics(result: &RunsCompareResult) -> String {
    let titles = COLUMNS.map(|(title, _)| title);
    let rows = by_number(&result.metrics).into_iter().map(named_cells).collect();
    table_unless_empty("figures", "Metrics", ("metric", &titles), rows)
}

/// Returns the table of other differences for a page.
fn conditions(result: &RunsCompareResult) -> String {
    let conditions = result.conditions.iter();
    let rows =
        conditions.map(|one| (one.path.clone(), vec![one.earlier.clone(), one.later.clone()]));
    let titles = ("condition", &["earlier", "later"][..]);
    table_unless_empty("conditions", "Conditions", titles, rows.collect())
}

/// Returns the metrics by items, whose numbers ascend: trials at 5,000 requests per second come
/// before those at 10,000.
fn by_number(figures: &[ComparedMetric]) -> Vec<&ComparedMetric> {
    let of = |figure: &ComparedMetric| {
        let of = figure.item.as_deref().unwrap_or_default().replace(',', "");
        let words: String = of.chars().filter(|c| !c.is_ascii_digit()).collect();
        let numbers = of.split(|c: char| !c.is_ascii_digit());
        (words, numbers.filter_map(|number| number.parse().ok()).collect::<Vec<u64>>())
    };
    let mut kinds: Vec<String> = Vec::new();
    for figure in figures {
        let (words, _) = of(figure);
        if !kinds.contains(&words) {
            kinds.push(words);
        }
    }
    let mut ordered: Vec<_> = figures.iter().collect();
    ordered.sort_by_cached_key(|figure| {
        let (words, numbers) = of(figure);
        (kinds.iter().position(|kind| *kind == words), numbers)
    });
    ordered
}

/// Metric, and lower and upper end of the bar that represents its change.
type MetricChangeBar<'a> = (&'a ComparedMetric, f64, f64);

/// Returns bars from the lower to the upper bound of each change on one axis, largest first, with
/// the threshold on either side of no change. Offsets and changes without both bounds are omitted.
fn changes(result: &RunsCompareResult) -> String {
    let mut known: Vec<MetricChangeBar<'_>> = result
        .metrics
        .iter()
        .filter(|one| one.verdict != CompareVerdict::NotEnough)
        // Changes of offsets are in ns, all others are shares.
        .filter(|one| one.metric != ComparedMetricKind::Offset)
        .filter_map(|one| Some((one, one.low?, one.high?)))
        .filter(|(_, low, high)| low.is_finite() && high.is_finite())
        .collect();
    if known.is_empty() {
        return String::new();
    }
    let size = |(_, low, high): &MetricChangeBar<'_>| low.abs().max(high.abs());
    known.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let reach = known.iter().map(size).fold(result.threshold * 1.5, f64::max);
    // Linear up to the threshold and logarithmic beyond, so that one huge change hides no other.
    let knee = result.threshold.max(KNEE_MIN);
    let at = |change: f64| {
        50.0 + 50.0 * ((change / knee).asinh() / (reach / knee).asinh()).clamp(-1.0, 1.0)
    };
    let marks = each([-result.threshold, 0.0, result.threshold], |change| {
        format!("<span class=\"deadline\" style=\"left:{:.2}%\"></span>", at(change))
    });
    let rows = each(known.iter().take(DRAWN_MAX), |(figure, low, high)| {
        let [.., change, judged] = cells(figure);
        let class = match figure.verdict {
            CompareVerdict::Worse => "worse",
            CompareVerdict::Better => "better",
            CompareVerdict::Same => "same",
            CompareVerdict::Unclear | CompareVerdict::NotEnough => "unclear",
        };
        let stack = format!(
            "<span class=\"stack\"><span class=\"bar {class}\" style=\"position:absolute;left:{:.2}%;\
             width:{:.2}%\"></span>{marks}</span>",
            at(low.min(*high)),
            (at(*high) - at(*low)).abs(),
        );
        bars::path_row(&compared_name(figure), [&change, &judged], &stack)
    });
    let beyond = known.len().saturating_sub(DRAWN_MAX);
    let beyond = if beyond == 0 {
        String::new()
    } else {
        paragraph(&format!("{beyond} metrics with smaller changes are only in the table."))
    };
    format!(
        "{}{}{beyond}",
        paragraph(&format!(
            "{} {BRACKETS} The middle line is no change; the lines beside it are the threshold, \
             beyond which the scale is logarithmic. Solid bars are worse, striped bars better.",
            method(result)
        )),
        bars::table(["metric", "change", "verdict", ""], &rows),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;
    use crate::html::main_of;

    #[test]
    fn nothing_in_common_is_reported() {
        let mut result: RunsCompareResult = fixture::sample("compare");
        result.metrics.clear();
        let text = result.text(&TableStyle::default());
        assert!(text.contains("no common metrics") && !text.contains("bootstrap"), "{text}");
    }

    #[test]
    fn a_regression_is_the_verdict_and_its_bounds_are_drawn() {
        let result: RunsCompareResult = fixture::sample("compare");
        let page = result.page();
        let main = main_of(&page);
        assert!(main.contains("<p class=\"figure\">worse</p>"), "{main}");
        assert!(main.contains("class=\"bar worse\""), "{main}");
        let expected = format!("failed: 2 of {} metrics worse", result.deciding_metrics().count());
        assert!(
            page.contains(&format!("<title>{expected} – ")) && main.contains(&expected),
            "{main}"
        );
    }

    #[test]
    fn a_huge_change_hides_no_other() {
        let mut result: RunsCompareResult = fixture::sample("compare");
        result.metrics.truncate(2);
        for (figure, change) in result.metrics.iter_mut().zip([0.1, 48.0]) {
            (figure.low, figure.high) = (Some(0.0), Some(change));
            figure.verdict = CompareVerdict::Worse;
        }
        result.threshold = 0.05;
        let markup = changes(&result);
        let width = |markup: &str| -> f64 {
            let (_, rest) = markup.split_once("width:").unwrap();
            rest.split_once('%').unwrap().0.parse().unwrap()
        };
        let rows: Vec<_> = markup.split("<tr><th scope=\"row\">").collect();
        let [largest, other] = [rows[1], rows[2]];
        assert!((width(largest) - 50.0).abs() < 0.01 && width(other) > 5.0, "{markup}");
    }

    #[test]
    fn single_runs_have_no_variation() {
        let mut result: RunsCompareResult = fixture::sample("compare");
        (result.earlier_repeats, result.later_repeats) = (Vec::new(), Vec::new());
        let text = result.text(&TableStyle { colour: false, width: 100 });
        assert!(text.contains(") versus main ("), "{text}");
        assert!(text.contains("They do not include"), "{text}");
    }

    #[test]
    fn numbers_are_in_their_order() {
        let one = fixture::sample::<RunsCompareResult>("compare").metrics.remove(0);
        let names = [
            ("b", Some("10,000/s")),
            ("a", Some("10,000/s")),
            ("b", Some("1,000,000/s")),
            ("b", Some("5,000/s")),
            ("c", None),
            ("a", None),
        ];
        let figures = names.map(|(name, item)| ComparedMetric {
            name: name.to_owned(),
            item: item.map(str::to_owned),
            ..one.clone()
        });
        let ordered: Vec<_> = by_number(&figures)
            .iter()
            .map(|one| (one.name.as_str(), one.item.as_deref()))
            .collect();
        let expected = [3, 0, 1, 2, 4, 5].map(|index: usize| names[index]);
        assert_eq!(ordered, expected);
    }

    #[test]
    fn each_outcome_has_its_word() {
        let mut result: RunsCompareResult = fixture::sample("compare");
        for (verdict, expected) in [
            (CompareVerdict::Same, "same"),
            (CompareVerdict::Better, "better"),
            (CompareVerdict::Unclear, "unclear"),
            (CompareVerdict::NotEnough, "not enough data"),
        ] {
            result.metrics.iter_mut().for_each(|figure| figure.verdict = verdict);
            assert_eq!(outcome(&result), expected);
        }
        result.metrics.clear();
        assert_eq!(outcome(&result), "no common metrics");
    }
}
