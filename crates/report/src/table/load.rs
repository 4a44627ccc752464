//! The rows of a load run. Each column is defined once, with the cell that it takes from a trial
//! and the rank by which it goes when the terminal is narrow.

use horolog_record::{Distribution, LoadResult, Mode, SignedDistribution, Trial};

use super::TableStyle;
use super::grid::{self, Cell, Column, Group, Tone};
use super::series::{behind_label, labelled};
use super::summary::summary;
use crate::units::{ABSENT, amount, human_ns, percent_of};

/// Share by which the rate sent may differ from the planned one before both are shown.
const RATE_TOLERANCE: f64 = 0.001;

/// What a run's table shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown {
    /// What was asked of the server.
    pub mode: Mode,
    /// Whether offsets of its transmit timestamps were taken.
    pub offsets: bool,
}

impl From<Mode> for Shown {
    fn from(mode: Mode) -> Self {
        Self { mode, offsets: false }
    }
}

/// The whole table of a run that has ended, with what is told below it, without a newline at the
/// end.
#[must_use]
pub fn load(result: &LoadResult, style: &TableStyle) -> String {
    let shown = Shown { mode: result.mode, offsets: result.offset.is_some() };
    let of_phases = result.trials.iter().any(|trial| trial.phase.is_some());
    let has_labels = of_phases || result.mode == Mode::Mix;
    let inner = if has_labels { behind_label(style) } else { *style };
    let line = |label: &str, lines: &str| {
        if has_labels { labelled(label, lines) } else { lines.to_owned() }
    };
    let title = if of_phases { "phase" } else { "requests" };
    let mut lines = vec![line(title, &header(shown, &inner))];
    for trial in &result.trials {
        lines.push(line(trial.phase.as_deref().unwrap_or("all"), &row(trial, shown, &inner)));
        let parts = trial.parts.iter();
        lines.extend(parts.map(|part| line(&part.name, &row(&part.trial, shown, &inner))));
    }
    lines.push(summary(result, style));
    lines.join("\n")
}

/// A column of the load table.
struct Field {
    group: Block,
    column: Column,
    /// 0 stays always; otherwise the highest goes first.
    rank: u8,
    cell: fn(&Trial) -> Cell,
    /// The only modes in which it says something; none where it always does.
    only: &'static [Mode],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    Load,
    Replies,
    RoundTrip,
    ResponseTime,
    TxOffset,
}

impl Block {
    const ALL: [Self; 5] =
        [Self::Load, Self::Replies, Self::RoundTrip, Self::ResponseTime, Self::TxOffset];

    const fn title(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Replies => "share of requests",
            Self::RoundTrip => "round trip",
            Self::ResponseTime => "response time",
            Self::TxOffset => "transmit timestamp offset",
        }
    }
}

/// The modes in which NTP is asked for.
const NTP: [Mode; 4] = [Mode::NtpBasic, Mode::NtpInterleaved, Mode::NtpNts, Mode::Echo];

const FIELDS: [Field; 22] = [
    field(Block::Load, "rate/s", 9, 0, |trial| rate(trial.achieved_rate, Tone::Plain)),
    field(Block::Load, "planned/s", 9, 2, planned),
    field(Block::Load, "clients", 8, 6, |trial| Cell::plain(whole(trial.clients as f64))),
    field(Block::Replies, "lost", 7, 0, |trial| share(trial.lost, trial, Tone::Bad)),
    field(Block::Replies, "invalid", 7, 1, |trial| {
        share(trial.invalid_total(), trial, Tone::Doubt)
    }),
    Field {
        only: &NTP,
        ..field(Block::Replies, "basic", 7, 3, |trial| {
            share(trial.responses.basic, trial, Tone::Plain)
        })
    },
    Field {
        only: &[Mode::PtpDelay, Mode::PtpNsm],
        ..field(Block::Replies, "delay", 7, 3, |trial| {
            share(trial.responses.delay, trial, Tone::Plain)
        })
    },
    Field {
        only: &[Mode::PtpDelay, Mode::PtpNsm],
        ..field(Block::Replies, "sync/fw", 7, 3, |trial| {
            share(trial.responses.sync_follow_up, trial, Tone::Plain)
        })
    },
    Field {
        only: &[Mode::NtpInterleaved],
        ..field(Block::Replies, "interl.", 7, 2, |trial| {
            share(trial.responses.interleaved, trial, Tone::Plain)
        })
    },
    Field {
        only: &[Mode::NtpNts],
        ..field(Block::Replies, "nts", 7, 2, |trial| share(trial.responses.nts, trial, Tone::Plain))
    },
    Field {
        only: &[Mode::NtpNts],
        ..field(Block::Replies, "nts lost", 8, 3, |trial| {
            let class = trial.authenticated.unwrap_or_default();
            let tone = if class.lost > 0 { Tone::Bad } else { Tone::Plain };
            Cell { text: percent_of(class.lost, class.sent), tone }
        })
    },
    Field {
        only: &[Mode::PtpUnicast],
        ..field(Block::Replies, "granted", 7, 3, |trial| {
            share(trial.responses.grant, trial, Tone::Plain)
        })
    },
    Field {
        only: &[Mode::PtpUnicast],
        ..field(Block::Replies, "denied", 7, 3, |trial| {
            share(trial.responses.denial, trial, Tone::Doubt)
        })
    },
    field(Block::RoundTrip, "p50", 7, 0, |trial| time(trial.rtt_ns.as_ref(), |d| d.p50)),
    field(Block::RoundTrip, "p90", 7, 7, |trial| time(trial.rtt_ns.as_ref(), |d| d.p90)),
    field(Block::RoundTrip, "p99", 7, 0, |trial| time(trial.rtt_ns.as_ref(), |d| d.p99)),
    field(Block::RoundTrip, "p99.9", 7, 4, |trial| time(trial.rtt_ns.as_ref(), |d| d.p99_9)),
    field(Block::RoundTrip, "max", 7, 5, |trial| time(trial.rtt_ns.as_ref(), |d| d.max)),
    field(Block::ResponseTime, "p50", 7, 8, |t| time(t.response_time_ns.as_ref(), |d| d.p50)),
    field(Block::ResponseTime, "p99", 7, 9, |t| time(t.response_time_ns.as_ref(), |d| d.p99)),
    field(Block::ResponseTime, "p99.9", 7, 11, |t| time(t.response_time_ns.as_ref(), |d| d.p99_9)),
    field(Block::ResponseTime, "max", 7, 10, |t| time(t.response_time_ns.as_ref(), |d| d.max)),
];

/// Shown where offsets were taken, which is what the run is about then.
const OFFSET_FIELDS: [Field; 7] = [
    field(Block::TxOffset, "min", 8, 0, |trial| offset(trial, |d| d.min)),
    field(Block::TxOffset, "mean", 8, 0, |trial| offset(trial, |d| d.mean.round() as i64)),
    field(Block::TxOffset, "max", 8, 0, |trial| offset(trial, |d| d.max)),
    field(Block::TxOffset, "stddev", 7, 1, |trial| {
        let stddev = trial.tx_offset_ns.as_ref().and_then(|d| amount(d.stddev));
        Cell::plain(stddev.map_or_else(|| ABSENT.to_owned(), |ns| human_ns(ns.round() as u64)))
    }),
    field(Block::TxOffset, "p50", 8, 2, |trial| offset(trial, |d| d.p50)),
    field(Block::TxOffset, "p99", 8, 2, |trial| offset(trial, |d| d.p99)),
    field(Block::TxOffset, "stamped", 7, 3, |trial| {
        let stamped = trial.stamped.unwrap_or_default();
        let tone = if stamped < trial.received { Tone::Doubt } else { Tone::Plain };
        Cell { text: percent_of(stamped, trial.received), tone }
    }),
];

const fn field(
    group: Block,
    title: &'static str,
    width: usize,
    rank: u8,
    cell: fn(&Trial) -> Cell,
) -> Field {
    Field { group, column: Column::right(title, width), rank, cell, only: &[] }
}

/// The two lines above the rows of a run, without a newline at the end.
#[must_use]
pub fn header(shown: impl Into<Shown>, style: &TableStyle) -> String {
    grid::header(&groups(&fitting(shown.into(), style.width)), style.colour)
}

/// One trial of a run, without a newline at the end.
#[must_use]
pub fn row(trial: &Trial, shown: impl Into<Shown>, style: &TableStyle) -> String {
    let fields = fitting(shown.into(), style.width);
    let cells: Vec<_> = fields.iter().map(|field| (field.cell)(trial)).collect();
    grid::row(&groups(&fields), &cells, style.colour)
}

/// The columns that fit into a width, those of the lowest rank first.
fn fitting(shown: Shown, width: usize) -> Vec<&'static Field> {
    let belongs = |field: &&Field| field.only.is_empty() || field.only.contains(&shown.mode);
    let offsets: &[Field] = if shown.offsets { &OFFSET_FIELDS } else { &[] };
    let fields = FIELDS.iter().filter(belongs).chain(offsets).collect();
    grid::fitting(fields, |fields| grid::width(&groups(fields)), |field| field.rank, width)
}

fn groups(fields: &[&Field]) -> Vec<Group> {
    let columns = |block| {
        let of_block = fields.iter().filter(move |field| field.group == block);
        of_block.map(|field| field.column.clone()).collect::<Vec<_>>()
    };
    Block::ALL
        .into_iter()
        .map(|block| Group { title: block.title(), columns: columns(block) })
        .filter(|group| !group.columns.is_empty())
        .collect()
}

fn rate(rate: f64, tone: Tone) -> Cell {
    Cell { text: amount(rate).map_or_else(|| ABSENT.to_owned(), whole), tone }
}

/// The planned rate, where it is not the one that was sent.
fn planned(trial: &Trial) -> Cell {
    let difference = (trial.achieved_rate - trial.offered_rate).abs();
    if difference <= trial.offered_rate.abs() * RATE_TOLERANCE {
        Cell::plain(String::new())
    } else {
        rate(trial.offered_rate, Tone::Doubt)
    }
}

/// A whole number of at most eight digits, beyond that one with an exponent.
fn whole(value: f64) -> String {
    if value < 99_999_999.5 { format!("{value:.0}") } else { format!("{value:.2e}") }
}

/// A share of the requests sent, toned where it is not 0.
fn share(part: u64, trial: &Trial, tone: Tone) -> Cell {
    let tone = if part > 0 { tone } else { Tone::Plain };
    Cell { text: percent_of(part, trial.sent), tone }
}

fn time(distribution: Option<&Distribution>, figure: fn(&Distribution) -> u64) -> Cell {
    Cell::plain(distribution.map_or_else(|| ABSENT.to_owned(), |d| human_ns(figure(d))))
}

fn offset(trial: &Trial, figure: fn(&SignedDistribution) -> i64) -> Cell {
    let offset = trial.tx_offset_ns.as_ref();
    Cell::plain(offset.map_or_else(|| ABSENT.to_owned(), |d| narrow(figure(d))))
}

/// A signed time that fits into its column, however far off a clock is.
fn narrow(ns: i64) -> String {
    format!("{}{}", if ns < 0 { '-' } else { '+' }, human_ns(ns.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn bars(line: &str) -> Vec<usize> {
        line.chars().enumerate().filter(|(_, c)| *c == '|').map(|(at, _)| at).collect()
    }

    #[test]
    fn looks_like_this() {
        let style = TableStyle { colour: false, width: 100 };
        let result = fixture::load();
        let rows: Vec<_> =
            [0, 4, 9].map(|index| row(&result.trials[index], Mode::NtpBasic, &style)).to_vec();
        let table = format!("{}\n{}", header(Mode::NtpBasic, &style), rows.join("\n"));
        assert_eq!(table, include_str!("load_table.txt").trim_end(), "\n{table}");
    }

    #[test]
    fn rows_line_up_with_the_header_at_every_width() {
        let mut trials = fixture::load().trials;
        trials.extend([fixture::silent_trial(), fixture::extreme_trial()]);
        let widths = [0, 40, 60, 79, 80, 100, 120, 132, usize::MAX];
        let modes =
            [Mode::NtpBasic, Mode::NtpInterleaved, Mode::NtpNts, Mode::PtpNsm, Mode::PtpUnicast];
        let shown = modes.map(Shown::from).into_iter().chain(modes.map(|mode| {
            // What a narrow terminal is left with is wider then.
            Shown { mode, offsets: true }
        }));
        let shown: Vec<_> = shown.collect();
        let all = widths.into_iter().flat_map(|width| shown.iter().map(move |it| (width, *it)));
        for (width, mode) in all {
            let style = TableStyle { colour: false, width };
            let header = header(mode, &style);
            let titles = header.lines().nth(1).unwrap();
            for trial in &trials {
                let row = row(trial, mode, &style);
                assert_eq!(bars(&row), bars(titles), "width {width}\n{header}\n{row}");
                assert_eq!(row.chars().count(), titles.chars().count(), "{header}\n{row}");
                let least = if mode.offsets { 79 } else { 40 };
                assert!(width < least || row.chars().count() <= width);
                assert!(!row.contains("NaN") && !row.contains("inf"), "{row}");
            }
        }
    }

    #[test]
    fn interleaved_replies_are_shown_where_they_were_asked_for() {
        let shown = |mode| header(mode, &TableStyle::default()).contains("interl.");
        assert!(shown(Mode::NtpInterleaved) && !shown(Mode::NtpBasic) && !shown(Mode::Echo));
    }

    #[test]
    fn ptp_has_columns_of_its_own() {
        let titles = |mode| header(mode, &TableStyle::default());
        for (title, of_ptp) in [("delay", true), ("sync/fw", true), ("basic", false)] {
            assert_eq!(titles(Mode::PtpDelay).contains(title), of_ptp, "{title}");
            assert_eq!(titles(Mode::NtpBasic).contains(title), !of_ptp, "{title}");
        }
    }

    #[test]
    fn nothing_sent_is_no_share_of_anything() {
        let row = row(&fixture::silent_trial(), Mode::NtpBasic, &TableStyle::default());
        assert!(!row.contains('%'));
        assert!(row.trim_start().starts_with('-'));
    }

    #[test]
    fn colour_changes_no_character_of_the_text() {
        let trial = &fixture::load().trials[9];
        let plain = row(trial, Mode::NtpBasic, &TableStyle { colour: false, width: 120 });
        let coloured = row(trial, Mode::NtpBasic, &TableStyle { colour: true, width: 120 });
        assert!(coloured.contains("\x1b[1;31m"), "lost packets are marked");
        let stripped: String = coloured
            .split('\x1b')
            .enumerate()
            .map(|(index, part)| if index == 0 { part } else { part.split_once('m').unwrap().1 })
            .collect();
        assert_eq!(stripped, plain);
        assert!(!plain.contains('\x1b'));
    }

    #[test]
    fn the_planned_rate_stands_beside_the_sent_one_only_where_they_differ() {
        let result = fixture::load();
        assert_eq!(planned(&result.trials[0]).text, "");
        assert_eq!(planned(&result.trials[9]).text, "5000000");
    }
}
