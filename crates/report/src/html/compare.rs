//! HTML report of a comparison: verdict, bounds of each metric's change as plot and table, and
//! differing conditions of the runs.

use horolog_record::{CompareResult, CompareVerdict, ComparedMetric, ComparedMetricKind};

use super::PageTemplate;
use super::bars;
use super::data::{headed, row};
use super::escape::each;
use super::sections::{findings, machine, paragraph, section, verdict};
use crate::table::compare::{BRACKETS, cells, method, name, sentence};
use crate::units::percent;

const TITLES: [&str; 4] = ["earlier", "later", "change", "verdict"];
/// Maximum number of metrics whose change is plotted; the most significant are selected.
const DRAWN_MAX: usize = 40;
/// Smallest change up to which the axis can be linear; it is logarithmic beyond the knee.
const KNEE_MIN: f64 = 1e-3;

/// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn compare(result: &CompareResult) -> String {
    let rows = each(by_number(&result.metrics), |figure| row(&name(figure), cells(figure)));
    let main = [
        section("Findings", &findings(&result.findings)),
        section("Changes", &changes(result)),
        section("Metrics", &headed("figures", "Metrics", ("metric", &TITLES), &rows)),
        section("Only in one run", &only(result)),
        section("Other differences", &conditions(result)),
        section("Run and host", &machine(&result.command, &result.started, &result.host)),
    ];
    PageTemplate {
        kind: "runs compare",
        failed: failed(result),
        heading: format!("{} versus {}", result.later.reference, result.earlier.reference),
        lead: format!("results {}, compared {}", result.later.schema, result.started),
        verdict: top(result),
        main: main.concat(),
        note: "Larger times and losses are worse, as are smaller rates and offsets further from \
               0.",
        schema: &result.schema,
        plots: Vec::new(),
        result,
    }
    .render()
}

/// Returns the number of metrics that became worse in words, for title and verdict; `None` if none
/// did.
fn failed(result: &CompareResult) -> Option<String> {
    let is_worse = |one: &&ComparedMetric| one.verdict == CompareVerdict::Worse;
    match result.deciding_metrics().filter(is_worse).count() {
        0 => None,
        worse => {
            Some(format!("failed: {worse} of {} metrics worse", result.deciding_metrics().count()))
        }
    }
}

fn top(result: &CompareResult) -> String {
    let is = |wanted| result.deciding_metrics().filter(move |one| one.verdict == wanted).count();
    let figure = if result.deciding_metrics().next().is_none() {
        "no common metrics"
    } else if is(CompareVerdict::Worse) > 0 {
        "worse"
    } else if is(CompareVerdict::NotEnough) == result.deciding_metrics().count() {
        "not enough data"
    } else if is(CompareVerdict::Unclear) > 0 {
        "unclear"
    } else if is(CompareVerdict::Better) > 0 {
        "better"
    } else {
        "same"
    };
    let name = format!("Within {}", percent(result.threshold));
    verdict(&name, figure, &sentence(result), &[])
}

/// Returns the metrics in their order, but numbers within their paths ascend: trials at 5,000
/// requests per second come before those at 10,000.
fn by_number(figures: &[ComparedMetric]) -> Vec<&ComparedMetric> {
    let of = |figure: &ComparedMetric| {
        let of = figure.path.split_inclusive(']').next().unwrap_or_default();
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
type ChangeBounds<'a> = (&'a ComparedMetric, f64, f64);

/// Returns the bounds of each change on one axis, with the threshold on either side of no change.
fn changes(result: &CompareResult) -> String {
    let mut known: Vec<ChangeBounds<'_>> = result
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
    let size = |(_, low, high): &ChangeBounds<'_>| low.abs().max(high.abs());
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
        bars::path_row(&name(figure), [&change, &judged], &stack)
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

fn only(result: &CompareResult) -> String {
    let unmatched = [("earlier", &result.only_earlier), ("later", &result.only_later)];
    let unmatched = unmatched.into_iter().filter(|(_, paths)| !paths.is_empty());
    each(unmatched, |(which, paths)| {
        paragraph(&format!("Only the {which} run has {}.", paths.join(", ")))
    })
}

fn conditions(result: &CompareResult) -> String {
    if result.conditions.is_empty() {
        return String::new();
    }
    let rows =
        each(&result.conditions, |one| row(&one.path, [one.earlier.clone(), one.later.clone()]));
    headed("conditions", "Conditions", ("condition", &["earlier", "later"]), &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::html::main_of;

    #[test]
    fn a_regression_is_the_verdict_and_its_bounds_are_drawn() {
        let mut result = fixture::compare();
        result.earlier.reference = "<img src=x>".to_owned();
        let page = compare(&result);
        let main = main_of(&page);
        assert!(main.contains("<p class=\"figure\">worse</p>") && !main.contains("<img"), "{main}");
        assert!(main.contains("class=\"bar worse\""), "{main}");
        let expected = format!("failed: 2 of {} metrics worse", result.deciding_metrics().count());
        assert!(
            page.contains(&format!("<title>{expected} – ")) && main.contains(&expected),
            "{main}"
        );
    }

    #[test]
    fn a_huge_change_hides_no_other() {
        let mut result = fixture::compare();
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
    fn numbers_are_in_their_order() {
        let one = fixture::compare().metrics.remove(0);
        let paths = ["t[r=10000].b", "t[r=10000].a", "t[r=20000].b", "t[r=5000].b", "c", "a"];
        let figures = paths.map(|path| ComparedMetric { path: path.to_owned(), ..one.clone() });
        let ordered: Vec<_> = by_number(&figures).iter().map(|one| one.path.as_str()).collect();
        let expected = ["t[r=5000].b", "t[r=10000].b", "t[r=10000].a", "t[r=20000].b", "c", "a"];
        assert_eq!(ordered, expected);
    }

    #[test]
    fn each_outcome_has_its_word() {
        let mut result = fixture::compare();
        let word = |result: &CompareResult| {
            let page = compare(result);
            let (_, rest) = page.split_once("<p class=\"figure\">").unwrap();
            rest.split_once('<').unwrap().0.to_owned()
        };
        for (verdict, expected) in [
            (CompareVerdict::Same, "same"),
            (CompareVerdict::Better, "better"),
            (CompareVerdict::Unclear, "unclear"),
            (CompareVerdict::NotEnough, "not enough data"),
        ] {
            result.metrics.iter_mut().for_each(|figure| figure.verdict = verdict);
            assert_eq!(word(&result), expected);
        }
        result.metrics.clear();
        assert_eq!(word(&result), "no common metrics");
    }
}
