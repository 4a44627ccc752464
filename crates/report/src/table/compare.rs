//! Terminal text of a comparison: summary sentence, one row per metric that differs, and the
//! metrics that could not be compared.

use horolog_record::{
    CompareResult, CompareVerdict, ComparedMetric, ComparedMetricKind, ComparedRun,
};

use super::TableStyle;
use super::grid::{self, GridColumn};
use super::summary::{footer, wrapped};
use crate::units::{ABSENT, human_rate, mean_ns, percent, signed_mean_ns};

const COLUMNS: [(&str, usize); 4] =
    [("earlier", 11), ("later", 11), ("change", 19), ("verdict", 10)];
const NAME_WIDTH: usize = 44;
/// Minimum width of names if the table is wider than the terminal.
const NAME_WIDTH_MIN: usize = 20;
/// Maximum number of listed paths that only one of both has, and of listed conditions.
const NAMED_MAX: usize = 4;

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn compare(result: &CompareResult, style: &TableStyle) -> String {
    let mut lines = wrapped(&sentence(result), "", "  ", style);
    let is_shown = |figure: &&ComparedMetric| {
        !matches!(figure.verdict, CompareVerdict::Same | CompareVerdict::NotEnough)
    };
    let shown = result.metrics.iter().filter(is_shown);
    let rows: Vec<_> = shown.map(|figure| (name(figure), cells(figure).to_vec())).collect();
    if !rows.is_empty() {
        let columns = COLUMNS.map(|(title, width)| GridColumn::right(title, width));
        let names = [NAME_WIDTH, NAME_WIDTH_MIN].map(|width| GridColumn::left("metric", width));
        lines.extend(grid::blocks(names, &columns, &rows, style));
    }
    let only = [("earlier", &result.only_earlier), ("later", &result.only_later)];
    let only = only.into_iter().filter(|(_, paths)| !paths.is_empty()).map(|(which, paths)| {
        format!("Only the {which} run has {}.", some(paths.iter().cloned(), paths.len()))
    });
    let conditions = result.conditions.iter().map(|one| {
        let shown =
            |text: &str| if text.is_empty() { ABSENT.to_owned() } else { format!("'{text}'") };
        format!("{}: was {}, is {}.", one.path, shown(&one.earlier), shown(&one.later))
    });
    let method = (!result.metrics.is_empty()).then(|| method(result));
    let own = result.metrics.iter().any(|figure| is_shown(&figure) && figure.informational);
    let sentences = own.then(|| BRACKETS.to_owned()).into_iter().chain(only).chain(conditions);
    lines.extend(footer(sentences, method, (&[], &result.findings), style));
    lines.join("\n")
}

/// Explanation of verdicts in brackets.
pub(crate) const BRACKETS: &str =
    "In parentheses: informational, about the measuring host; not part of the verdict.";

/// Returns the explanation of the bounds and their limits.
pub(crate) fn method(result: &CompareResult) -> String {
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
pub(crate) fn sentence(result: &CompareResult) -> String {
    let count = |verdict| result.deciding_metrics().filter(|one| one.verdict == verdict).count();
    let words = [
        (CompareVerdict::Worse, "worse"),
        (CompareVerdict::Better, "better"),
        (CompareVerdict::Unclear, "unclear"),
        (CompareVerdict::Same, "same"),
        (CompareVerdict::NotEnough, "with too few values"),
    ];
    let phrases = words.into_iter().filter_map(|(verdict, word)| {
        let count = count(verdict);
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

fn some(names: impl Iterator<Item = String>, count: usize) -> String {
    let named: Vec<_> = names.take(NAMED_MAX).collect();
    match count.saturating_sub(NAMED_MAX) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Returns the name of a metric: its path, followed by its kind if the path does not contain it.
#[must_use]
pub fn name(figure: &ComparedMetric) -> String {
    let kind = match figure.metric {
        ComparedMetricKind::P50 => "p50",
        ComparedMetricKind::P99 => "p99",
        ComparedMetricKind::P999 => "p99.9",
        // The path already contains the kind.
        ComparedMetricKind::Loss | ComparedMetricKind::Time | ComparedMetricKind::Offset => {
            return figure.path.clone();
        }
        ComparedMetricKind::Rate => "rate",
    };
    format!("{} {kind}", figure.path)
}

/// Returns the name of a metric, its change in words, and the verdict.
pub(crate) fn compared_figure(figure: &ComparedMetric) -> (String, String, CompareVerdict) {
    let [earlier, later, change, verdict] = cells(figure);
    let detail = format!("{verdict}: was {earlier}, is {later}, change {change}");
    (name(figure), detail, figure.verdict)
}

/// Returns the cells of a metric, in the order of [`COLUMNS`].
pub(crate) fn cells(figure: &ComparedMetric) -> [String; 4] {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 100 };
        assert_eq!(compare(&fixture::compare(), &style), include_str!("compare.txt").trim_end());
    }

    #[test]
    fn nothing_in_common_is_reported() {
        let mut result = fixture::compare();
        result.metrics.clear();
        let text = compare(&result, &TableStyle::default());
        assert!(text.contains("no common metrics") && !text.contains("bootstrap"), "{text}");
    }
}
