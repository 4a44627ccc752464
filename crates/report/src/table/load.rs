//! Terminal table of a load run. Each column is defined once, with the function that returns its
//! cell and the rank by which it is omitted on a narrow terminal.

use horolog_record::{Distribution, RequestMode, SignedDistribution, Trial};

use super::TableStyle;
use super::grid::{self, CellTone, GridCell, GridColumn, GridColumnGroup};
use crate::units::{ABSENT, amount, human_ns, percent_of};

/// Relative difference of achieved and intended rate above which both are shown.
const RATE_TOLERANCE: f64 = 0.001;

/// Options that determine the columns of a load table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadTableOptions {
    /// Kind of requests.
    pub mode: RequestMode,
    /// True if offsets of the server's transmit timestamps were measured.
    pub offsets: bool,
}

impl From<RequestMode> for LoadTableOptions {
    fn from(mode: RequestMode) -> Self {
        Self { mode, offsets: false }
    }
}

/// Column of the load table.
struct LoadColumn {
    group: LoadColumnGroup,
    column: GridColumn<'static>,
    /// Rank: columns of the highest rank are omitted first, those of rank 0 never.
    rank: u8,
    cell: fn(&Trial) -> GridCell,
    /// Kinds of requests for which the column is shown; empty for all.
    only: &'static [RequestMode],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LoadColumnGroup {
    Load,
    Replies,
    RoundTrip,
    ResponseTime,
    TxOffset,
}

impl LoadColumnGroup {
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

/// Modes with NTP requests, also those to a reflector.
const NTP: [RequestMode; 4] =
    [RequestMode::NtpBasic, RequestMode::NtpInterleaved, RequestMode::NtpNts, RequestMode::Echo];

const FIELDS: [LoadColumn; 22] = [
    field(LoadColumnGroup::Load, "rate/s", 9, 0, |trial| {
        rate(trial.achieved_rate, CellTone::Plain)
    }),
    field(LoadColumnGroup::Load, "intended/s", 10, 2, planned),
    field(LoadColumnGroup::Load, "clients", 8, 6, |trial| {
        GridCell::plain(whole(trial.clients as f64))
    }),
    field(LoadColumnGroup::Replies, "lost", 7, 0, |trial| share(trial.lost, trial, CellTone::Bad)),
    field(LoadColumnGroup::Replies, "invalid", 7, 1, |trial| {
        share(trial.invalid_total(), trial, CellTone::Warning)
    }),
    LoadColumn {
        only: &NTP,
        ..field(LoadColumnGroup::Replies, "basic", 7, 3, |trial| {
            share(trial.responses.basic, trial, CellTone::Plain)
        })
    },
    LoadColumn {
        only: &[RequestMode::PtpDelay, RequestMode::PtpNsm],
        ..field(LoadColumnGroup::Replies, "delay", 7, 3, |trial| {
            share(trial.responses.delay, trial, CellTone::Plain)
        })
    },
    LoadColumn {
        only: &[RequestMode::PtpDelay, RequestMode::PtpNsm],
        ..field(LoadColumnGroup::Replies, "sync/fw", 7, 3, |trial| {
            share(trial.responses.sync_follow_up, trial, CellTone::Plain)
        })
    },
    LoadColumn {
        only: &[RequestMode::NtpInterleaved],
        ..field(LoadColumnGroup::Replies, "interl.", 7, 2, |trial| {
            share(trial.responses.interleaved, trial, CellTone::Plain)
        })
    },
    LoadColumn {
        only: &[RequestMode::NtpNts],
        ..field(LoadColumnGroup::Replies, "nts", 7, 2, |trial| {
            share(trial.responses.nts, trial, CellTone::Plain)
        })
    },
    LoadColumn {
        only: &[RequestMode::NtpNts],
        ..field(LoadColumnGroup::Replies, "nts lost", 8, 3, |trial| {
            let class = trial.authenticated.unwrap_or_default();
            let tone = if class.lost > 0 { CellTone::Bad } else { CellTone::Plain };
            GridCell { text: percent_of(class.lost, class.sent), tone }
        })
    },
    LoadColumn {
        only: &[RequestMode::PtpUnicast],
        ..field(LoadColumnGroup::Replies, "granted", 7, 3, |trial| {
            share(trial.responses.grant, trial, CellTone::Plain)
        })
    },
    LoadColumn {
        only: &[RequestMode::PtpUnicast],
        ..field(LoadColumnGroup::Replies, "denied", 7, 3, |trial| {
            share(trial.responses.denial, trial, CellTone::Warning)
        })
    },
    field(LoadColumnGroup::RoundTrip, "p50", 7, 0, |trial| time(trial.rtt_ns.as_ref(), |d| d.p50)),
    field(LoadColumnGroup::RoundTrip, "p90", 7, 7, |trial| time(trial.rtt_ns.as_ref(), |d| d.p90)),
    field(LoadColumnGroup::RoundTrip, "p99", 7, 0, |trial| time(trial.rtt_ns.as_ref(), |d| d.p99)),
    field(LoadColumnGroup::RoundTrip, "p99.9", 7, 4, |trial| {
        time(trial.rtt_ns.as_ref(), |d| d.p99_9)
    }),
    field(LoadColumnGroup::RoundTrip, "max", 7, 5, |trial| time(trial.rtt_ns.as_ref(), |d| d.max)),
    field(LoadColumnGroup::ResponseTime, "p50", 7, 8, |t| {
        time(t.response_time_ns.as_ref(), |d| d.p50)
    }),
    field(LoadColumnGroup::ResponseTime, "p99", 7, 9, |t| {
        time(t.response_time_ns.as_ref(), |d| d.p99)
    }),
    field(LoadColumnGroup::ResponseTime, "p99.9", 7, 11, |t| {
        time(t.response_time_ns.as_ref(), |d| d.p99_9)
    }),
    field(LoadColumnGroup::ResponseTime, "max", 7, 10, |t| {
        time(t.response_time_ns.as_ref(), |d| d.max)
    }),
];

/// Additional columns of a run that measures offsets.
const OFFSET_FIELDS: [LoadColumn; 7] = [
    field(LoadColumnGroup::TxOffset, "min", 8, 0, |trial| offset(trial, |d| d.min)),
    field(LoadColumnGroup::TxOffset, "mean", 8, 0, |trial| {
        offset(trial, |d| d.mean.round() as i64)
    }),
    field(LoadColumnGroup::TxOffset, "max", 8, 0, |trial| offset(trial, |d| d.max)),
    field(LoadColumnGroup::TxOffset, "stddev", 7, 1, |trial| {
        let stddev = trial.tx_offset_ns.as_ref().and_then(|d| amount(d.stddev));
        GridCell::plain(stddev.map_or_else(|| ABSENT.to_owned(), |ns| human_ns(ns.round() as u64)))
    }),
    field(LoadColumnGroup::TxOffset, "p50", 8, 2, |trial| offset(trial, |d| d.p50)),
    field(LoadColumnGroup::TxOffset, "p99", 8, 2, |trial| offset(trial, |d| d.p99)),
    field(LoadColumnGroup::TxOffset, "timestamped", 11, 3, |trial| {
        let timestamped = trial.timestamped.unwrap_or_default();
        let tone = if timestamped < trial.received { CellTone::Warning } else { CellTone::Plain };
        GridCell { text: percent_of(timestamped, trial.received), tone }
    }),
];

const fn field(
    group: LoadColumnGroup,
    title: &'static str,
    width: usize,
    rank: u8,
    cell: fn(&Trial) -> GridCell,
) -> LoadColumn {
    LoadColumn { group, column: GridColumn::right(title, width), rank, cell, only: &[] }
}

/// Returns the two lines above the rows of a run, without a newline at the end.
#[must_use]
pub fn header(shown: impl Into<LoadTableOptions>, style: &TableStyle) -> String {
    grid::header(&groups(&fitting(shown.into(), style.width)), style.colour)
}

/// Returns one trial of a run, without a newline at the end.
#[must_use]
pub fn row(trial: &Trial, shown: impl Into<LoadTableOptions>, style: &TableStyle) -> String {
    let fields = fitting(shown.into(), style.width);
    let cells: Vec<_> = fields.iter().map(|field| (field.cell)(trial)).collect();
    grid::row(&groups(&fields), &cells, style.colour)
}

/// Returns the columns that fit into a width; those of the highest rank are omitted first.
fn fitting(shown: LoadTableOptions, width: usize) -> Vec<&'static LoadColumn> {
    let belongs = |field: &&LoadColumn| field.only.is_empty() || field.only.contains(&shown.mode);
    let offsets: &[LoadColumn] = if shown.offsets { &OFFSET_FIELDS } else { &[] };
    let fields = FIELDS.iter().filter(belongs).chain(offsets).collect();
    grid::fitting(fields, |fields| grid::width(&groups(fields)), |field| field.rank, width)
}

fn groups(fields: &[&LoadColumn]) -> Vec<GridColumnGroup<'static>> {
    let columns = |block| {
        let of_block = fields.iter().filter(move |field| field.group == block);
        of_block.map(|field| field.column.clone()).collect::<Vec<_>>()
    };
    LoadColumnGroup::ALL
        .into_iter()
        .map(|block| GridColumnGroup { title: block.title(), columns: columns(block) })
        .filter(|group| !group.columns.is_empty())
        .collect()
}

fn rate(rate: f64, tone: CellTone) -> GridCell {
    GridCell { text: amount(rate).map_or_else(|| ABSENT.to_owned(), whole), tone }
}

/// Returns the cell with the intended rate; empty if it does not differ from the achieved rate.
fn planned(trial: &Trial) -> GridCell {
    let difference = (trial.achieved_rate - trial.intended_rate).abs();
    if difference <= trial.intended_rate.abs() * RATE_TOLERANCE {
        GridCell::plain(String::new())
    } else {
        rate(trial.intended_rate, CellTone::Warning)
    }
}

/// Formats a number rounded to an integer of up to eight digits, a larger one with an exponent.
fn whole(value: f64) -> String {
    if value < 99_999_999.5 { format!("{value:.0}") } else { format!("{value:.2e}") }
}

/// Returns the cell with a share of the requests sent, emphasised if it is not 0.
fn share(part: u64, trial: &Trial, tone: CellTone) -> GridCell {
    let tone = if part > 0 { tone } else { CellTone::Plain };
    GridCell { text: percent_of(part, trial.sent), tone }
}

fn time(distribution: Option<&Distribution>, figure: fn(&Distribution) -> u64) -> GridCell {
    GridCell::plain(distribution.map_or_else(|| ABSENT.to_owned(), |d| human_ns(figure(d))))
}

fn offset(trial: &Trial, figure: fn(&SignedDistribution) -> i64) -> GridCell {
    let offset = trial.tx_offset_ns.as_ref();
    GridCell::plain(offset.map_or_else(|| ABSENT.to_owned(), |d| narrow(figure(d))))
}

/// Formats a signed time to fit into its column, whatever its size.
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
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 100 };
        let result = fixture::load();
        let rows: Vec<_> = [0, 4, 9]
            .map(|index| row(&result.trials[index], RequestMode::NtpBasic, &style))
            .to_vec();
        let table = format!("{}\n{}", header(RequestMode::NtpBasic, &style), rows.join("\n"));
        assert_eq!(table, include_str!("load_table.txt").trim_end(), "\n{table}");
    }

    #[test]
    fn rows_line_up_with_the_header_at_every_width() {
        let mut trials = fixture::load().trials;
        trials.extend([fixture::trial_without_requests(), fixture::extreme_trial()]);
        let widths = [0, 40, 60, 79, 80, 100, 120, 132, usize::MAX];
        let modes = [
            RequestMode::NtpBasic,
            RequestMode::NtpInterleaved,
            RequestMode::NtpNts,
            RequestMode::PtpNsm,
            RequestMode::PtpUnicast,
        ];
        let shown = modes.map(LoadTableOptions::from).into_iter().chain(modes.map(|mode| {
            // What a narrow terminal is left with is wider then.
            LoadTableOptions { mode, offsets: true }
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
    fn interleaved_replies_are_shown_where_they_were_requested() {
        let shown = |mode| header(mode, &TableStyle::default()).contains("interl.");
        assert!(
            shown(RequestMode::NtpInterleaved)
                && !shown(RequestMode::NtpBasic)
                && !shown(RequestMode::Echo)
        );
    }

    #[test]
    fn ptp_has_columns_of_its_own() {
        let titles = |mode| header(mode, &TableStyle::default());
        for (title, of_ptp) in [("delay", true), ("sync/fw", true), ("basic", false)] {
            assert_eq!(titles(RequestMode::PtpDelay).contains(title), of_ptp, "{title}");
            assert_eq!(titles(RequestMode::NtpBasic).contains(title), !of_ptp, "{title}");
        }
    }

    #[test]
    fn nothing_sent_is_no_share_of_anything() {
        let row =
            row(&fixture::trial_without_requests(), RequestMode::NtpBasic, &TableStyle::default());
        assert!(!row.contains('%'));
        assert!(row.trim_start().starts_with('-'));
    }

    #[test]
    fn colour_changes_no_character_of_the_text() {
        let trial = &fixture::load().trials[9];
        let plain = row(trial, RequestMode::NtpBasic, &TableStyle { colour: false, width: 120 });
        let coloured = row(trial, RequestMode::NtpBasic, &TableStyle { colour: true, width: 120 });
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
    fn the_intended_rate_is_shown_only_where_the_achieved_rate_differs() {
        let result = fixture::load();
        assert_eq!(planned(&result.trials[0]).text, "");
        assert_eq!(planned(&result.trials[9]).text, "5000000");
    }
}
