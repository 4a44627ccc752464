//! Tables of figures: all trials of a run, and the distributions of chosen ones. They are the text
//! alternative of the plots.

use horolog_record::{Distribution, InvalidReason, LoadResult, Trial};

use super::escape::{each, text};
use crate::units::{ABSENT, amount, full_count, human_ns, percent_of};
use crate::verdict::{lower_bound_trial, place_name};

/// A column of the table of trials: its group, its title, its cells.
type Column = (&'static str, &'static str, fn(&Trial) -> String);

/// A figure of a distribution: its title, its cell.
type Figure = (&'static str, fn(&Distribution) -> String);

const COLUMNS: [Column; 33] = [
    ("requests per second", "sent", |t| rate(t.achieved_rate)),
    ("requests per second", "planned", |t| rate(t.offered_rate)),
    ("load", "time", |t| seconds(t.duration_s)),
    ("load", "clients", |t| full_count(t.clients)),
    ("requests", "sent", |t| full_count(t.sent)),
    ("requests", "answered", |t| full_count(t.received)),
    ("requests", "interleaved", |t| full_count(t.responses.interleaved)),
    ("requests", "delay", |t| full_count(t.responses.delay)),
    ("requests", "sync", |t| full_count(t.responses.sync_follow_up)),
    ("requests", "granted", |t| full_count(t.responses.grant)),
    ("requests", "denied", |t| full_count(t.responses.denial)),
    ("requests", "taken back", |t| full_count(t.responses.cancellation)),
    ("requests", "granted messages", |t| full_count(t.responses.granted_messages)),
    ("requests", "authenticated", |t| full_count(t.authenticated.map_or(0, |one| one.sent))),
    ("requests", "of these lost", |t| full_count(t.authenticated.map_or(0, |one| one.lost))),
    ("requests", "lost", |t| full_count(t.lost)),
    ("requests", "share lost", |t| percent_of(t.lost, t.sent)),
    ("other replies", "invalid", |t| full_count(t.invalid_total())),
    ("other replies", "late", |t| full_count(t.late)),
    ("other replies", "duplicate", |t| full_count(t.duplicate)),
    ("round trip", "min", |t| time(t.rtt_ns.as_ref(), |d| d.min)),
    ("round trip", "p50", |t| time(t.rtt_ns.as_ref(), |d| d.p50)),
    ("round trip", "p90", |t| time(t.rtt_ns.as_ref(), |d| d.p90)),
    ("round trip", "p99", |t| time(t.rtt_ns.as_ref(), |d| d.p99)),
    ("round trip", "p99.9", |t| time(t.rtt_ns.as_ref(), |d| d.p99_9)),
    ("round trip", "p99.99", |t| time(t.rtt_ns.as_ref(), |d| d.p99_99)),
    ("round trip", "max", |t| time(t.rtt_ns.as_ref(), |d| d.max)),
    ("response time", "p50", |t| time(t.response_time_ns.as_ref(), |d| d.p50)),
    ("response time", "p99", |t| time(t.response_time_ns.as_ref(), |d| d.p99)),
    ("response time", "max", |t| time(t.response_time_ns.as_ref(), |d| d.max)),
    ("sent late by", "p50", |t| time(t.lateness_ns.as_ref(), |d| d.p50)),
    ("sent late by", "p99", |t| time(t.lateness_ns.as_ref(), |d| d.p99)),
    ("sent late by", "max", |t| time(t.lateness_ns.as_ref(), |d| d.max)),
];

/// All trials of a run, in the order in which they ran.
pub(super) fn trials(result: &LoadResult, id: &str) -> String {
    let bound = lower_bound_trial(result);
    let rows = each(result.trials.iter().enumerate(), |(index, trial)| {
        let parts = each(&trial.parts, |part| {
            let label = format!("{} {}", index + 1, part.name);
            trial_row(&label, &part.trial, false)
        });
        format!("{}{parts}", trial_row(&label(index, trial), trial, bound == Some(index)))
    });
    if rows.is_empty() {
        return format!("<p id=\"{id}\">No trial was run.</p>\n");
    }
    let (groups, titles) = head();
    format!(
        "<div class=\"scroll\" id=\"{id}\" tabindex=\"0\" role=\"region\" aria-label=\"All trials\">\n\
         <table class=\"data wide\">\n<thead>\n<tr><td></td>{groups}<th class=\"first words\" rowspan=\"2\" \
         scope=\"col\">lost at</th><th class=\"first words\" rowspan=\"2\" scope=\"col\">invalid for\
         </th></tr>\n<tr><th scope=\"col\">trial</th>{titles}</tr>\n</thead>\n<tbody>\n{rows}</tbody>\n\
         </table>\n</div>\n"
    )
}

/// The groups' row and the titles' row.
fn head() -> (String, String) {
    let groups = || COLUMNS.chunk_by(|a, b| a.0 == b.0);
    let names = each(groups(), |columns| {
        let (count, name) = (columns.len(), columns[0].0);
        format!("<th class=\"first\" colspan=\"{count}\" scope=\"colgroup\">{name}</th>")
    });
    let titles =
        each(groups().flat_map(|columns| columns.iter().enumerate()), |(place, column)| {
            format!("<th scope=\"col\"{}>{}</th>", class(place == 0, false), column.1)
        });
    (names, titles)
}

fn trial_row(label: &str, trial: &Trial, is_bound: bool) -> String {
    let groups = COLUMNS.chunk_by(|a, b| a.0 == b.0);
    let cells = each(groups.flat_map(|columns| columns.iter().enumerate()), |(place, column)| {
        let (_, title, cell) = column;
        let lossy = *title == "share lost" && trial.lost > 0;
        format!("<td{}>{}</td>", class(place == 0, lossy), text(&cell(trial)))
    });
    let places: Vec<_> = trial
        .lost_at
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(place, count)| format!("{} {}", place_name(*place), full_count(*count)))
        .collect();
    let reasons: Vec<_> = trial
        .invalid
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(reason, count)| format!("{} {}", reason_name(*reason), full_count(*count)))
        .collect();
    let (row_class, tag) =
        if is_bound { (" class=\"bound\"", "<span class=\"tag\">held</span> ") } else { ("", "") };
    format!(
        "<tr{row_class}><th scope=\"row\">{tag}{}</th>{cells}<td class=\"first words\">{}</td>\
         <td class=\"first words\">{}</td></tr>\n",
        text(label),
        text(&places.join(", ")),
        text(&reasons.join(", ")),
    )
}

/// The number of a trial, and the name of the phase that it is.
fn label(index: usize, trial: &Trial) -> String {
    match &trial.phase {
        None => (index + 1).to_string(),
        Some(phase) => format!("{} {phase}", index + 1),
    }
}

const fn class(first: bool, lossy: bool) -> &'static str {
    match (first, lossy) {
        (true, _) => " class=\"first\"",
        (false, true) => " class=\"lossy\"",
        (false, false) => "",
    }
}

/// Chosen distributions, one in a row.
pub(super) fn distributions(rows: &[(String, &Distribution)], id: &str) -> String {
    const FIGURES: [Figure; 10] = [
        ("replies", |d| full_count(d.count)),
        ("min", |d| human_ns(d.min)),
        ("mean", |d| rounded_ns(d.mean)),
        ("deviation", |d| rounded_ns(d.stddev)),
        ("p50", |d| human_ns(d.p50)),
        ("p90", |d| human_ns(d.p90)),
        ("p99", |d| human_ns(d.p99)),
        ("p99.9", |d| human_ns(d.p99_9)),
        ("p99.99", |d| human_ns(d.p99_99)),
        ("max", |d| human_ns(d.max)),
    ];
    let titles = each(FIGURES, |(title, _)| format!("<th scope=\"col\">{title}</th>"));
    let body = each(rows, |(label, distribution)| {
        let cells =
            each(FIGURES, |(_, figure)| format!("<td>{}</td>", text(&figure(distribution))));
        let label = text(label);
        format!("<tr><th scope=\"row\" class=\"words\">{label}</th>{cells}</tr>\n")
    });
    format!(
        "<div class=\"scroll\" id=\"{id}\" tabindex=\"0\" role=\"region\" aria-label=\"Distributions\
         \">\n<table class=\"data\">\n<thead><tr><td></td>{titles}</tr></thead>\n<tbody>\n{body}\
         </tbody>\n</table>\n</div>\n"
    )
}

fn rate(rate: f64) -> String {
    match amount(rate) {
        Some(rate) if rate < u64::MAX as f64 => full_count(rate.round() as u64),
        Some(rate) => format!("{rate:.2e}"),
        None => ABSENT.to_owned(),
    }
}

fn seconds(seconds: f64) -> String {
    match amount(seconds) {
        Some(seconds) if seconds < 1e6 => format!("{seconds:.2} s"),
        Some(seconds) => format!("{seconds:.2e} s"),
        None => ABSENT.to_owned(),
    }
}

fn time(distribution: Option<&Distribution>, figure: fn(&Distribution) -> u64) -> String {
    distribution.map_or_else(|| ABSENT.to_owned(), |d| human_ns(figure(d)))
}

fn rounded_ns(ns: f64) -> String {
    amount(ns).map_or_else(|| ABSENT.to_owned(), |ns| human_ns(ns.round() as u64))
}

const fn reason_name(reason: InvalidReason) -> &'static str {
    match reason {
        InvalidReason::Length => "length",
        InvalidReason::Mode => "mode",
        InvalidReason::Version => "version",
        InvalidReason::Origin => "origin timestamp",
        InvalidReason::Client => "client",
        InvalidReason::Stratum => "stratum",
        InvalidReason::Leap => "leap indicator",
        InvalidReason::Nts => "not authentic",
        InvalidReason::Mac => "wrong MAC",
        InvalidReason::Timestamp => "timestamps",
        InvalidReason::Domain => "domain",
        InvalidReason::Flags => "flags",
        InvalidReason::Sequence => "sequence number",
        InvalidReason::Source => "answering port",
        InvalidReason::Monitor => "no NetSync Monitor",
        InvalidReason::Contract => "another contract",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn columns(line: &str) -> usize {
        line.matches("<td").count() + line.matches("<th").count()
    }

    #[test]
    fn every_row_has_as_many_cells_as_the_head() {
        let mut result = fixture::load();
        result.trials.extend([fixture::silent_trial(), fixture::extreme_trial()]);
        let markup = trials(&result, "trials");
        let rows: Vec<_> = markup.lines().filter(|line| line.contains("scope=\"row\"")).collect();
        assert_eq!(rows.len(), result.trials.len());
        assert!(rows.iter().all(|row| columns(row) == COLUMNS.len() + 3));
        assert_eq!(markup.matches("class=\"bound\"").count(), 1);
        assert!(!markup.contains("NaN") && !markup.contains(">inf"));
    }

    #[test]
    fn places_and_reasons_are_named() {
        let result = LoadResult { trials: vec![fixture::extreme_trial()], ..fixture::load() };
        let markup = trials(&result, "trials");
        assert!(markup.contains("unknown 18,446,744,073,709,551,615"));
        assert!(markup.contains("origin timestamp 18,446,744,073,709,551,615"));
    }
}
