//! The table of the intervals of a course: the text alternative of the plots over time.

use horolog_record::{LoadResult, Point};

use super::escape::{each, text};
use crate::units::{ABSENT, full_count, human_ns, percent_of};

/// A column: its title, its cells.
type Column = (&'static str, fn(&Point) -> String);

const COLUMNS: [Column; 11] = [
    ("trial", |point| point.trial.saturating_add(1).to_string()),
    ("sent", |point| full_count(point.sent)),
    ("answered", |point| full_count(point.received)),
    ("lost", |point| full_count(point.lost)),
    ("share lost", |point| percent_of(point.lost, point.sent)),
    ("late", |point| full_count(point.late)),
    ("invalid", |point| full_count(point.invalid)),
    ("p50", |point| time(point.rtt_ns.map(|rtt| rtt.p50))),
    ("p99", |point| time(point.rtt_ns.map(|rtt| rtt.p99))),
    ("p99.9", |point| time(point.rtt_ns.map(|rtt| rtt.p99_9))),
    ("max", |point| time(point.rtt_ns.map(|rtt| rtt.max))),
];

fn time(ns: Option<u64>) -> String {
    ns.map_or_else(|| ABSENT.to_owned(), human_ns)
}

/// All intervals of a course; nothing where the run had none.
pub(super) fn intervals(result: &LoadResult, id: &str) -> String {
    let Some(series) = &result.series else { return String::new() };
    let titles = each(COLUMNS, |(title, _)| format!("<th scope=\"col\">{title}</th>"));
    let rows = each(&series.points, |point| {
        let cells = each(COLUMNS, |(_, cell)| format!("<td>{}</td>", text(&cell(point))));
        format!("<tr><th scope=\"row\">{:.2} s</th>{cells}</tr>\n", point.at_s)
    });
    format!(
        "<details><summary>{} intervals of {} s</summary>\n<div class=\"scroll\" id=\"{id}\" \
         tabindex=\"0\" role=\"region\" aria-label=\"Intervals\">\n<table class=\"data\">\n\
         <thead><tr><th scope=\"col\">from</th>{titles}</tr></thead>\n<tbody>\n{rows}</tbody>\n\
         </table>\n</div>\n</details>\n",
        series.points.len(),
        series.interval_s,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn every_interval_has_a_row() {
        let mut result = fixture::load();
        assert_eq!(intervals(&result, "i"), "");
        result.series = Some(fixture::series());
        let markup = intervals(&result, "i");
        assert_eq!(markup.matches("scope=\"row\"").count(), 3);
        assert!(markup.contains("<td>50.00%</td>") && markup.contains("<td>-</td>"), "{markup}");
    }
}
