//! Tables of a load run: all trials, and selected distributions. They are the text alternative of
//! the plots.

use horolog_record::{Distribution, InvalidReplyReason, LoadResult, Trial};

use super::data;
use super::escape::{each, text};
use crate::units::{ABSENT, amount, full_count, human_ns, mean_ns, percent_of};
use crate::verdict::{location_name, lower_bound_trial};

/// Column of the table of trials: title of its group, title, and function that returns its cell.
type TrialColumn = (&'static str, &'static str, fn(&Trial) -> String);

/// Column with text: title, and function that returns its cell.
type TrialTextColumn = (&'static str, fn(&Trial) -> String);

/// Column of the table of distributions: title, and function that returns its cell.
type DistributionColumn = (&'static str, fn(&Distribution) -> String);

const COUNTS: [TrialColumn; 21] = [
    ("requests per second", "sent", |t| rate(t.achieved_rate)),
    ("requests per second", "intended", |t| rate(t.intended_rate)),
    ("load", "time", |t| seconds(t.duration_s)),
    ("load", "clients", |t| full_count(t.clients)),
    ("requests", "sent", |t| full_count(t.sent)),
    ("requests", "answered", |t| full_count(t.received)),
    ("requests", "unsynchronised", |t| full_count(t.unsynchronised)),
    ("requests", "interleaved", |t| full_count(t.responses.interleaved)),
    ("requests", "delay", |t| full_count(t.responses.delay)),
    ("requests", "sync", |t| full_count(t.responses.sync_follow_up)),
    ("requests", "granted", |t| full_count(t.responses.grant)),
    ("requests", "denied", |t| full_count(t.responses.denial)),
    ("requests", "cancelled", |t| full_count(t.responses.cancellation)),
    ("requests", "granted messages", |t| full_count(t.responses.granted_messages)),
    ("requests", "authenticated", |t| full_count(t.authenticated.map_or(0, |one| one.sent))),
    ("requests", "authenticated lost", |t| full_count(t.authenticated.map_or(0, |one| one.lost))),
    ("requests", "lost", |t| full_count(t.lost)),
    ("requests", "loss ratio", |t| percent_of(t.lost, t.sent)),
    ("other replies", "invalid", |t| full_count(t.invalid_total())),
    ("other replies", "late", |t| full_count(t.late)),
    ("other replies", "duplicate", |t| full_count(t.duplicate)),
];

const TIMES: [TrialColumn; 13] = [
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
    ("send lateness", "p50", |t| time(t.lateness_ns.as_ref(), |d| d.p50)),
    ("send lateness", "p99", |t| time(t.lateness_ns.as_ref(), |d| d.p99)),
    ("send lateness", "max", |t| time(t.lateness_ns.as_ref(), |d| d.max)),
];

/// Returns two tables of all trials in the order in which they ran: outcomes of the requests, and
/// latencies. Each part of a mix has a row below its trial. Columns that contain only 0 are
/// omitted, except those in [`ALWAYS`] and [`ALWAYS_TITLES`].
pub(crate) fn trials(result: &LoadResult, id: &str) -> String {
    let bound = lower_bound_trial(result);
    let rows: Vec<_> = result
        .trials
        .iter()
        .enumerate()
        .flat_map(|(index, trial)| {
            let own =
                TrialRow { label: label(index, trial), trial, is_bound: bound == Some(index) };
            let parts = trial.parts.iter().map(move |part| TrialRow {
                label: format!("{} {}", index + 1, part.name),
                trial: &part.trial,
                is_bound: false,
            });
            std::iter::once(own).chain(parts)
        })
        .collect();
    if rows.is_empty() {
        return format!("<p id=\"{id}\">No trials were run.</p>\n");
    }
    let counts = table(&rows, &COUNTS, &WORDS, (id, "All trials"));
    let times = table(&rows, &TIMES, &[], (&format!("{id}-times"), "Times of all trials"));
    format!("{counts}{times}")
}

/// Trial shown in a row.
struct TrialRow<'a> {
    label: String,
    trial: &'a Trial,
    is_bound: bool,
}

/// Columns with text, which come last.
const WORDS: [TrialTextColumn; 2] = [
    ("loss location", |trial| {
        listed(trial.lost_at.iter().map(|(location, count)| (location_name(*location), *count)))
    }),
    ("invalid by reason", |trial| {
        listed(trial.invalid.iter().map(|(reason, count)| (reason_name(*reason), *count)))
    }),
];

fn listed(all: impl Iterator<Item = (&'static str, u64)>) -> String {
    let some = all.filter(|(_, count)| *count > 0);
    some.map(|(name, count)| format!("{name} {}", full_count(count))).collect::<Vec<_>>().join(", ")
}

/// Columns that are shown even if they contain only 0, by title of the group and title.
const ALWAYS: [&str; 5] =
    ["requests per second", "load", "round trip", "response time", "send lateness"];
const ALWAYS_TITLES: [&str; 4] = ["sent", "answered", "lost", "loss ratio"];

fn is_shown((group, title, cell): &TrialColumn, rows: &[TrialRow<'_>]) -> bool {
    let is_something = |row: &TrialRow<'_>| !matches!(cell(row.trial).as_str(), "0" | "" | ABSENT);
    ALWAYS.contains(group) || ALWAYS_TITLES.contains(title) || rows.iter().any(is_something)
}

fn table(
    rows: &[TrialRow<'_>],
    columns: &[TrialColumn],
    words: &[TrialTextColumn],
    (id, label): (&str, &str),
) -> String {
    let columns: Vec<_> = columns.iter().filter(|column| is_shown(column, rows)).collect();
    let has_text =
        |(_, cell): &&TrialTextColumn| rows.iter().any(|row| !cell(row.trial).is_empty());
    let words: Vec<_> = words.iter().filter(has_text).collect();
    let groups = columns.chunk_by(|a, b| a.0 == b.0);
    let names = each(groups.clone(), |columns| {
        let (count, name) = (columns.len(), columns[0].0);
        format!("<th class=\"first\" colspan=\"{count}\" scope=\"colgroup\">{name}</th>")
    });
    let indexed_columns: Vec<_> = groups.flat_map(|columns| columns.iter().enumerate()).collect();
    let titles = each(&indexed_columns, |(index, column)| {
        format!("<th scope=\"col\"{}>{}</th>", class(*index == 0, false), column.1)
    });
    let text_titles = each(&words, |(title, _)| {
        format!("<th class=\"first words\" rowspan=\"2\" scope=\"col\">{title}</th>")
    });
    let rows = each(rows, |row| {
        let cells = each(&indexed_columns, |(index, (_, title, cell))| {
            let lossy = *title == "loss ratio" && row.trial.lost > 0;
            format!("<td{}>{}</td>", class(*index == 0, lossy), text(&cell(row.trial)))
        });
        let text_cells = each(&words, |(_, cell)| {
            format!("<td class=\"first words\">{}</td>", text(&cell(row.trial)))
        });
        let (row_class, tag) = if row.is_bound {
            (" class=\"bound\"", "<span class=\"tag\">best</span> ")
        } else {
            ("", "")
        };
        let label = text(&row.label);
        format!("<tr{row_class}><th scope=\"row\">{tag}{label}</th>{cells}{text_cells}</tr>\n")
    });
    format!(
        "<div class=\"scroll\" id=\"{id}\" tabindex=\"0\" role=\"region\" aria-label=\"{label}\">\n\
         <table class=\"data wide\">\n<thead>\n<tr><td></td>{names}{text_titles}</tr>\n<tr><th scope=\"col\">\
         trial</th>{titles}</tr>\n</thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n"
    )
}

/// Returns the number of a trial, and the name of its phase.
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

/// Returns chosen distributions, one in a row.
pub(crate) fn distributions(rows: &[(String, &Distribution)], id: &str) -> String {
    const FIGURES: [DistributionColumn; 10] = [
        ("replies", |d| full_count(d.count)),
        ("min", |d| human_ns(d.min)),
        ("mean", |d| mean_ns(d.mean)),
        ("deviation", |d| mean_ns(d.stddev)),
        ("p50", |d| human_ns(d.p50)),
        ("p90", |d| human_ns(d.p90)),
        ("p99", |d| human_ns(d.p99)),
        ("p99.9", |d| human_ns(d.p99_9)),
        ("p99.99", |d| human_ns(d.p99_99)),
        ("max", |d| human_ns(d.max)),
    ];
    let rows = each(rows, |(label, distribution)| {
        data::row(label, FIGURES.map(|(_, figure)| figure(distribution)))
    });
    data::table(id, "Distributions", &FIGURES.map(|(title, _)| title), &rows)
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

const fn reason_name(reason: InvalidReplyReason) -> &'static str {
    match reason {
        InvalidReplyReason::Length => "length",
        InvalidReplyReason::Mode => "mode",
        InvalidReplyReason::Version => "version",
        InvalidReplyReason::Origin => "origin timestamp",
        InvalidReplyReason::Client => "client",
        InvalidReplyReason::Stratum => "stratum",
        InvalidReplyReason::Leap => "leap indicator",
        InvalidReplyReason::Nts => "not authentic",
        InvalidReplyReason::Mac => "wrong MAC",
        InvalidReplyReason::Timestamp => "timestamps",
        InvalidReplyReason::Domain => "domain",
        InvalidReplyReason::Flags => "flags",
        InvalidReplyReason::Sequence => "sequence number",
        InvalidReplyReason::Source => "source port",
        InvalidReplyReason::Monitor => "no NetSync Monitor",
        InvalidReplyReason::UnicastTerms => "wrong unicast terms",
        InvalidReplyReason::KissRate => "kiss of death RATE",
        InvalidReplyReason::KissDeny => "kiss of death DENY",
        InvalidReplyReason::KissRstr => "kiss of death RSTR",
        InvalidReplyReason::KissNtsn => "kiss of death NTSN",
        InvalidReplyReason::KissOther => "kiss of death",
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
        result.trials.extend([fixture::trial_without_requests(), fixture::extreme_trial()]);
        let markup = trials(&result, "trials");
        let (counts, times) = markup.split_once("id=\"trials-times\"").unwrap();
        for (markup, columns_most) in [(counts, COUNTS.len() + 3), (times, TIMES.len() + 1)] {
            let rows: Vec<_> =
                markup.lines().filter(|line| line.contains("scope=\"row\"")).collect();
            assert_eq!(rows.len(), result.trials.len());
            let count = columns(rows[0]);
            assert!(count <= columns_most && rows.iter().all(|row| columns(row) == count));
            assert_eq!(markup.matches("class=\"bound\"").count(), 1);
        }
        assert!(!markup.contains("NaN") && !markup.contains(">inf"));
    }

    #[test]
    fn columns_of_nothing_are_left_out() {
        let mut result = fixture::load();
        let has = |result: &LoadResult, title: &str| {
            trials(result, "trials").contains(&format!(">{title}</th>"))
        };
        for (title, expected) in
            [("interleaved", false), ("granted", false), ("answered", true), ("loss ratio", true)]
        {
            assert_eq!(has(&result, title), expected, "{title}");
        }
        result.trials[2].responses.interleaved = 1;
        assert!(has(&result, "interleaved"));
    }

    #[test]
    fn locations_and_reasons_are_named() {
        let result = LoadResult { trials: vec![fixture::extreme_trial()], ..fixture::load() };
        let markup = trials(&result, "trials");
        assert!(markup.contains("unknown 18,446,744,073,709,551,615"));
        assert!(markup.contains("origin timestamp 18,446,744,073,709,551,615"));
    }
}
