//! Two results beside each other: a sentence, a row for each figure that is not the same, and what
//! could not be compared.

use horolog_record::{
    CompareResult, CompareVerdict, ComparedFigure, ComparedFigureKind, ComparedRun,
};

use super::TableStyle;
use super::grid::{self, Column};
use super::summary::{told_below, wrapped};
use crate::units::{ABSENT, human_rate, mean_ns, percent, signed_mean_ns};

const COLUMNS: [(&str, usize); 4] =
    [("earlier", 11), ("later", 11), ("change", 19), ("verdict", 10)];
const NAME_WIDTH: usize = 44;
/// Where the table is wider than the terminal.
const NAME_WIDTH_MIN: usize = 20;
/// Places that only one of both has, and conditions, that are named.
const NAMED_MAX: usize = 4;

/// The lines for the terminal, without a newline at the end.
#[must_use]
pub fn compare(result: &CompareResult, style: &TableStyle) -> String {
    let mut lines = wrapped(&sentence(result), "", "  ", style);
    let is_shown = |figure: &&ComparedFigure| {
        !matches!(figure.verdict, CompareVerdict::Same | CompareVerdict::NotEnough)
    };
    let shown = result.figures.iter().filter(is_shown);
    let rows: Vec<_> = shown.map(|figure| (name(figure), cells(figure).to_vec())).collect();
    if !rows.is_empty() {
        let columns = COLUMNS.map(|(title, width)| Column::right(title, width));
        let names = [NAME_WIDTH, NAME_WIDTH_MIN].map(|width| Column::left("figure", width));
        lines.extend(grid::blocks(names, &columns, &rows, style));
    }
    let only = [("earlier", &result.only_earlier), ("later", &result.only_later)];
    let only = only.into_iter().filter(|(_, places)| !places.is_empty()).map(|(which, places)| {
        format!("Only the {which} run has {}.", some(places.iter().cloned(), places.len()))
    });
    let conditions = result.conditions.iter().map(|one| {
        let shown =
            |text: &str| if text.is_empty() { ABSENT.to_owned() } else { format!("'{text}'") };
        format!("{}: was {}, is {}.", one.place, shown(&one.earlier), shown(&one.later))
    });
    let method = (!result.figures.is_empty()).then(|| method(result));
    let own = result.figures.iter().any(|figure| is_shown(&figure) && figure.of_measurer);
    let told = own.then(|| BRACKETS.to_owned()).into_iter().chain(only).chain(conditions);
    lines.extend(told_below(told, method, (&[], &result.findings), style));
    lines.join("\n")
}

/// What brackets around a verdict say.
pub(crate) const BRACKETS: &str =
    "In brackets: what tells of whoever measured, and decides nothing.";

/// What the bounds are, and are not.
pub(crate) fn method(result: &CompareResult) -> String {
    let confidence = percent(result.confidence);
    let runs = [&result.earlier_repeats, &result.later_repeats].map(|repeats| 1 + repeats.len());
    let bounds = match runs {
        [1, 1] => format!(
            "Change: its bounds at {confidence} confidence, by the bootstrap over the values of each \
             run. What differs from run to run of itself is not in them; only more runs of each tell \
             of that."
        ),
        [earlier, later] => format!(
            "Change: its bounds at {confidence} confidence, by the bootstrap over {later} runs \
             against {earlier} and over the values of each; figures are the means of their runs."
        ),
    };
    format!("{bounds} A change without bounds is that of single readings.")
}

/// How many figures there are of each verdict.
pub(crate) fn sentence(result: &CompareResult) -> String {
    let count = |verdict| result.deciding().filter(|one| one.verdict == verdict).count();
    let told = [
        (CompareVerdict::Worse, "worse"),
        (CompareVerdict::Better, "better"),
        (CompareVerdict::Unclear, "unclear"),
        (CompareVerdict::Same, "the same"),
        (CompareVerdict::NotEnough, "of too few values to tell"),
    ];
    let told = told.into_iter().filter_map(|(verdict, word)| {
        let count = count(verdict);
        (count > 0).then(|| format!("{count} {word}"))
    });
    let told: Vec<_> = told.collect();
    let others = |repeats: &[ComparedRun]| match repeats.len() {
        0 => String::new(),
        1 => " and another".to_owned(),
        more => format!(" and {more} more"),
    };
    let told = if told.is_empty() { "no figure in common".to_owned() } else { told.join(", ") };
    format!(
        "{} ({}){} against {} ({}){}, within {}: {told}.",
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

/// What a figure is called: its place, and which of its times it is.
#[must_use]
pub fn name(figure: &ComparedFigure) -> String {
    let kind = match figure.figure {
        ComparedFigureKind::P50 => "p50",
        ComparedFigureKind::P99 => "p99",
        ComparedFigureKind::P999 => "p99.9",
        // Their place says it.
        ComparedFigureKind::Loss | ComparedFigureKind::Time | ComparedFigureKind::Offset => {
            return figure.place.clone();
        }
        ComparedFigureKind::Rate => "rate",
    };
    format!("{} {kind}", figure.place)
}

/// A figure by its name, what became of it in words, and the verdict.
pub(crate) fn compared_figure(figure: &ComparedFigure) -> (String, String, CompareVerdict) {
    let [earlier, later, change, verdict] = cells(figure);
    let told = format!("{verdict}: was {earlier}, is {later}, change {change}");
    (name(figure), told, figure.verdict)
}

/// In the order of [`COLUMNS`].
pub(crate) fn cells(figure: &ComparedFigure) -> [String; 4] {
    let value = |value: Option<f64>| match (value, figure.figure) {
        (None, _) => "none".to_owned(),
        (Some(value), ComparedFigureKind::Loss) => percent(value),
        (Some(value), ComparedFigureKind::Rate) => human_rate(value),
        (Some(value), ComparedFigureKind::Offset) => signed_mean_ns(value),
        (Some(value), _) => mean_ns(value),
    };
    let verdict = match figure.verdict {
        CompareVerdict::Same => "same",
        CompareVerdict::Better => "better",
        CompareVerdict::Worse => "worse",
        CompareVerdict::Unclear => "unclear",
        CompareVerdict::NotEnough => "not enough",
    };
    let verdict = if figure.of_measurer { format!("({verdict})") } else { verdict.to_owned() };
    [value(figure.earlier), value(figure.later), change(figure), verdict]
}

/// `+4.1% to +9.8%`, or one of them where the other is not known; of shares their difference, of
/// single readings `+4.1%`.
fn change(figure: &ComparedFigure) -> String {
    let bound = |bound: f64| match figure.figure {
        ComparedFigureKind::Offset => signed_mean_ns(bound),
        ComparedFigureKind::Loss => format!("{:+.3}%", bound * 100.0),
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
    fn looks_like_this() {
        let style = TableStyle { colour: false, width: 100 };
        assert_eq!(compare(&fixture::compare(), &style), include_str!("compare.txt").trim_end());
    }

    #[test]
    fn nothing_in_common_is_said() {
        let mut result = fixture::compare();
        result.figures.clear();
        let text = compare(&result, &TableStyle::default());
        assert!(text.contains("no figure in common") && !text.contains("bootstrap"), "{text}");
    }
}
