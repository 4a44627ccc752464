//! Live view of a measurement that sends requests or bytes: rates, latency and counts, sparklines,
//! losses and finished parts.

use horolog_record::{LivePartSummary, LiveRun, Percentiles, RequestValues};
use horolog_report::location_name;
use horolog_report::units::{ABSENT, full_count, human_ns, human_rate, percent};

use super::{BAR, LiveBlock, LiveViewValues, bar};

/// Width of the name before a value or sparkline, in columns.
const NAME: usize = 12;
/// Width of the longest name of a loss location, in columns.
const LOCATION: usize = 21;
/// Largest number of finished parts shown.
const PARTS_MAX: usize = 12;

impl LiveViewValues for RequestValues {
    fn blocks(&self, run: &LiveRun) -> Vec<LiveBlock> {
        vec![
            LiveBlock::Lines(value_lines(self)),
            series(run),
            LiveBlock::Lines(loss_bars(run)),
            ended_parts(run),
        ]
    }
}

fn value_lines(values: &RequestValues) -> Vec<String> {
    let counts = &values.counts;
    let named = |name: &str, text: &str| format!("{name:<NAME$} {text}");
    let byte_count = format!("bytes {}", full_count(counts.bytes));
    if let Some(rate) = values.byte_rate {
        // A bulk transfer has no requests and replies to count.
        return vec![named("bytes", &human_rate(rate)), named("total", &byte_count)];
    }
    let rate = |rate: Option<f64>| rate.map_or_else(|| ABSENT.to_owned(), human_rate);
    let mut lines = vec![
        named(
            "rate",
            &format!(
                "intended {}   sent {}   answered {}   unanswered {}",
                rate(values.intended_rate),
                human_rate(values.sent_rate),
                human_rate(values.received_rate),
                percent(values.unanswered_ratio),
            ),
        ),
        named("latency", &percentiles_text(values.latency_ns.as_ref())),
    ];
    if values.lateness_ns.is_some() {
        lines.push(named("lateness", &percentiles_text(values.lateness_ns.as_ref())));
    }
    let counted = [
        ("sent", counts.sent),
        ("answered", counts.received),
        ("unanswered", counts.unanswered()),
        ("late", counts.late),
        ("duplicate", counts.duplicate),
        ("unsynchronised", counts.unsynchronised),
        ("invalid", counts.invalid),
    ];
    let counted =
        counted.into_iter().filter(|(name, count)| *name != "unsynchronised" || *count > 0);
    let counted: Vec<_> =
        counted.map(|(name, count)| format!("{name} {}", full_count(count))).collect();
    lines.push(named("total", &counted.join("   ")));
    lines
}

fn percentiles_text(percentiles: Option<&Percentiles>) -> String {
    let Some(percentiles) = percentiles else { return ABSENT.to_owned() };
    let values = [
        ("50%", percentiles.p50),
        ("90%", percentiles.p90),
        ("99%", percentiles.p99),
        ("99.9%", percentiles.p99_9),
    ];
    let values = values.map(|(name, ns)| format!("{name} {}", human_ns(ns)));
    format!("{}   max {}", values.join("   "), human_ns(percentiles.max))
}

/// Returns sparklines of all snapshots; values that none of them has are left out.
fn series(run: &LiveRun) -> LiveBlock {
    let line = |name: &str, value_of: fn(&RequestValues) -> Option<f64>| {
        let (_, snapshots) = run.snapshots.since(0);
        let values: Vec<_> = snapshots.map(|snapshot| value_of(&snapshot.values)).collect();
        values.iter().any(Option::is_some).then(|| (format!("{name:<NAME$}"), values))
    };
    let lines = [
        line("intended", |values| values.intended_rate),
        line("answered", |values| values.byte_rate.is_none().then_some(values.received_rate)),
        line("bytes", |values| values.byte_rate),
        line("unanswered", |values| values.byte_rate.is_none().then_some(values.unanswered_ratio)),
        line("latency 99%", |values| values.latency_ns.map(|times| times.p99 as f64)),
    ];
    LiveBlock::Series { title: String::new(), lines: lines.into_iter().flatten().collect() }
}

/// Returns a bar for each loss location: its share of all losses in the finished parts.
fn loss_bars(run: &LiveRun) -> Vec<String> {
    if run.lost == 0 || run.lost_at.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!("lost in finished parts: {}", full_count(run.lost))];
    for (location, lost) in &run.lost_at {
        let name = location_name(*location);
        let share = *lost as f64 / run.lost as f64;
        let count_text = format!("{} ({})", full_count(*lost), percent(share));
        lines.push(format!("{name:<LOCATION$} {:BAR$} {count_text}", bar(share, BAR)));
    }
    lines
}

/// Function that formats a value of a finished part; `None` if the part does not have it.
type PartColumnFormatter = fn(&LivePartSummary) -> Option<String>;

/// Optional columns of the table of finished parts, shown if at least one part has the value.
const OPTIONAL_COLUMNS: [(&str, PartColumnFormatter); 2] = [
    ("bytes", |part| part.byte_rate.map(human_rate)),
    ("retrans", |part| part.retransmitted.map(full_count)),
];

fn row(cells: [String; 6], optional_cells: impl Iterator<Item = String>) -> String {
    let [name, intended, sent, lost, median, tail] = cells;
    let optional_text =
        optional_cells.map(|text| format!(" {text:>10}")).collect::<Vec<_>>().concat();
    format!(
        "{name:<20.20} {intended:>10} {sent:>10} {lost:>9} {median:>10} {tail:>10}{optional_text}"
    )
}

fn cells(part: &LivePartSummary) -> [String; 6] {
    let absent = || ABSENT.to_owned();
    let name = if part.name.is_empty() { String::new() } else { format!(" {}", part.name) };
    let lost = (part.sent > 0).then(|| percent(part.lost as f64 / part.sent as f64));
    let time = |percentile: fn(&Percentiles) -> u64| {
        part.latency_ns.as_ref().map_or_else(absent, |times| human_ns(percentile(times)))
    };
    [
        format!("{}{name}", part.index + 1),
        part.intended_rate.map_or_else(absent, human_rate),
        human_rate(part.achieved_rate),
        lost.unwrap_or_else(absent),
        time(|times| times.p50),
        time(|times| times.p99),
    ]
}

/// Returns the table of finished parts, the latest first.
fn ended_parts(run: &LiveRun) -> LiveBlock {
    let (_, parts) = run.ended.since(0);
    let parts: Vec<&LivePartSummary> = parts.collect();
    let columns =
        OPTIONAL_COLUMNS.into_iter().filter(|(_, of)| parts.iter().any(|part| of(part).is_some()));
    let columns: Vec<_> = columns.collect();
    let header = [run.part_kind, "intended", "sent", "lost", "50%", "99%"].map(ToOwned::to_owned);
    let names = columns.iter().map(|(name, _)| (*name).to_owned());
    let part_row = |part: &&LivePartSummary| {
        let optional_cells =
            columns.iter().map(|(_, of)| of(part).unwrap_or_else(|| ABSENT.to_owned()));
        row(cells(part), optional_cells)
    };
    let mut rows: Vec<_> = parts.iter().rev().take(PARTS_MAX).map(part_row).collect();
    let hidden = parts.len().saturating_sub(PARTS_MAX);
    rows.extend((hidden > 0).then(|| format!("and {hidden} earlier")));
    LiveBlock::Table { header: row(header, names), rows }
}

#[cfg(test)]
mod tests {
    use horolog_record::{
        Finding, FindingCode, LiveCounts, LiveRunStatus, LossLocation, PartProgress, Severity,
        Snapshot,
    };

    use super::*;
    use crate::live::layout::drawn;

    fn example_run() -> LiveRun {
        let mut run = LiveRun::new("load", "192.0.2.1 port 123".to_owned(), "trial");
        let percentiles =
            Percentiles { p50: 10_000, p90: 20_000, p99: 30_000, p99_9: 40_000, max: 50_000 };
        for number in 1..=10 {
            let part = PartProgress {
                index: 1,
                name: "overload".to_owned(),
                elapsed_s: 1.0,
                duration_s: Some(2.0),
                ..PartProgress::default()
            };
            let values = RequestValues {
                intended_rate: Some(1e5),
                sent_rate: 1e4 * f64::from(number),
                received_rate: 1e4 * f64::from(number),
                counts: LiveCounts { sent: 12_345, received: 12_000, ..LiveCounts::default() },
                latency_ns: Some(percentiles),
                lateness_ns: Some(percentiles),
                ..RequestValues::default()
            };
            run.snapshots.push(Snapshot { part, values, ..Snapshot::default() });
        }
        let lost_at = [(LossLocation::Server, 3), (LossLocation::Unknown, 1)].into();
        let part = LivePartSummary { sent: 100, lost: 4, lost_at, ..LivePartSummary::default() };
        (0..15).for_each(|index| run.end_part(LivePartSummary { index, ..part.clone() }));
        run.findings.push(Finding {
            code: FindingCode::SharedMachine,
            severity: Severity::Note,
            message: "they share processors".to_owned(),
            advice: String::new(),
            trial: None,
        });
        run
    }

    #[test]
    fn all_known_values_are_drawn() {
        let screen = drawn(&example_run(), 100);
        for text in [
            "load  192.0.2.1 port 123",
            "trial 2 (overload): 1.0 of 2.0 s  ███████████████ ",
            "intended 100 k/s   sent 100 k/s",
            "50% 10.0 µs",
            "max 50.0 µs",
            "sent 12,345   answered 12,000   unanswered 345",
            "answered     ▁▂▃▄▄▅▆▇█",
            "lost in finished parts: 60",
            "server                ██████████████████████▌",
            "15 ",
            "and 3 earlier",
            "note: they share processors",
        ] {
            assert!(screen.contains(text), "{text}: {screen}");
        }
    }

    #[test]
    fn a_transfer_has_bytes_and_no_replies() {
        let mut run = LiveRun::new("path tcp", "192.0.2.1".to_owned(), "row");
        for number in 1..=4 {
            let counts = LiveCounts { bytes: 5_000_000, ..LiveCounts::default() };
            let byte_rate = Some(2e6 * f64::from(number));
            let values = RequestValues { byte_rate, counts, ..RequestValues::default() };
            run.snapshots.push(Snapshot { values, ..Snapshot::default() });
        }
        assert!(!drawn(&run, 100).contains("retrans"), "nothing is over");
        run.end_part(LivePartSummary { sent: 10, ..LivePartSummary::default() });
        let (byte_rate, retransmitted) = (Some(1.5e6), Some(7));
        run.end_part(LivePartSummary {
            index: 1,
            byte_rate,
            retransmitted,
            ..LivePartSummary::default()
        });
        let screen = drawn(&run, 100);
        for text in ["bytes        8.00 M/s", "total        bytes 5,000,000", "▂▄▆█", "retrans"]
        {
            assert!(screen.contains(text), "{text}: {screen}");
        }
        assert!(!screen.contains("answered"), "{screen}");
        assert!(screen.contains("1.50 M/s          7"), "{screen}");
    }

    #[test]
    fn any_size_and_any_state_can_be_drawn() {
        let mut all = [LiveRun::new("load", String::new(), "trial"), example_run(), example_run()];
        all[2].state = LiveRunStatus::Ended;
        for run in &all {
            for columns in [0, 1, 10, 80, 500] {
                drawn(run, columns);
            }
        }
        assert!(drawn(&all[2], 80).contains("finished after"));
    }
}
