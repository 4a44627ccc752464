//! Table in the format of ntpperf, column for column, for scripts that parse it: no colours, no
//! units, unlimited width.

use horolog_record::{InvalidReplyReason, ReplyKindCounts, Trial};

use crate::units::ABSENT;

/// Columns after the shares of the replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NtpperfColumnGroup {
    /// Response time of the server: its transmit minus its receive timestamp.
    ResponseTime,
    /// Offset of the server's transmit timestamps.
    Offset,
}

impl NtpperfColumnGroup {
    const fn title(self) -> &'static str {
        match self {
            Self::ResponseTime => "        response time (ns)",
            Self::Offset => "     TX timestamp offset (ns)",
        }
    }

    fn cells(self, trial: &Trial) -> String {
        let [min, mean, max, stddev] = self.figures(trial).map_or_else(
            || [ABSENT; 4].map(str::to_owned),
            |[min, mean, max, stddev]| {
                let [min, mean, max] = [min, mean, max].map(|ns| format!("{ns:+}"));
                [min, mean, max, stddev.to_string()]
            },
        );
        format!("  {min:>7} {mean:>7} {max:>7} {stddev:>6}")
    }

    /// Returns minimum, mean, maximum and standard deviation, in ns; `None` if not measured.
    fn figures(self, trial: &Trial) -> Option<[i128; 4]> {
        let whole = |value: f64| value.round() as i128;
        match self {
            Self::ResponseTime => trial.response_time_ns.as_ref().map(|times| {
                [times.min.into(), whole(times.mean), times.max.into(), whole(times.stddev)]
            }),
            Self::Offset => trial.tx_offset_ns.as_ref().map(|offsets| {
                [offsets.min.into(), whole(offsets.mean), offsets.max.into(), whole(offsets.stddev)]
            }),
        }
    }
}

/// Selection of the columns for a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NtpperfTableOptions {
    /// True for a PTP master, whose responses are delay responses and Syncs with their follow-ups;
    /// false for an NTP server, which replies in basic or interleaved mode.
    pub ptp: bool,
    /// Columns after the shares; `None` for none.
    pub panel: Option<NtpperfColumnGroup>,
}

impl NtpperfTableOptions {
    /// Returns the two lines above the rows, without a newline at the end.
    #[must_use]
    pub fn header(&self) -> String {
        let kinds = if self.ptp { "  delay sync/fw" } else { "  basic  xleave" };
        let above = self.panel.map_or("", NtpperfColumnGroup::title);
        let figures = self.panel.map_or("", |_| "    min    mean     max stddev");
        format!(
            "               |          responses            |{above}\n\
             rate   clients |  lost invalid {kinds} |{figures}"
        )
    }

    /// Returns the row of a trial, without a newline at the end. The rate is the intended one;
    /// shares refer to the requests really sent. A request is lost if any expected reply is
    /// missing, so that the share is between 0% and 100% even if two replies are expected. Missing
    /// values are [`ABSENT`]. NTP replies are valid if ntpperf would accept them.
    #[must_use]
    pub fn row(&self, trial: &Trial) -> String {
        let share = |count: u64| {
            let ratio = if trial.sent == 0 { 0.0 } else { count as f64 / trial.sent as f64 };
            format!("{:>7.2}%", ratio * 100.0)
        };
        let counts = if self.ptp { ptp_counts(trial) } else { ntp_counts(trial) };
        let shares = counts.map(share).concat();
        let panel = self.panel.map_or_else(String::new, |panel| panel.cells(trial));
        let (rate, clients) = (trial.intended_rate, trial.clients);
        format!("{rate:<9.0}{clients:>5}{shares}{panel}")
    }
}

/// Returns lost, invalid, delay responses, and Syncs with their follow-ups.
fn ptp_counts(trial: &Trial) -> [u64; 4] {
    let ReplyKindCounts { delay, sync_follow_up, .. } = trial.responses;
    [trial.lost, trial.invalid_total(), delay, sync_follow_up]
}

/// Returns the numbers of lost requests, invalid replies, and basic and interleaved replies.
/// Authenticated replies, and invalid ones that ntpperf accepts, count as basic. An invalid reply
/// is a reply, so that its request is not lost.
fn ntp_counts(trial: &Trial) -> [u64; 4] {
    let ReplyKindCounts { basic, nts, interleaved, .. } = trial.responses;
    let count = |(_, count): (&InvalidReplyReason, &u64)| *count;
    let passed = trial.invalid.iter().filter(|(reason, _)| is_valid_in_ntpperf(**reason));
    let passed = passed.map(count).fold(0, u64::saturating_add).min(trial.lost);
    let invalid = trial.invalid.iter().filter(|(reason, _)| !is_valid_in_ntpperf(**reason));
    let invalid = invalid.map(count).fold(0, u64::saturating_add);
    let lost = trial.lost.saturating_sub(passed).saturating_sub(invalid);
    [lost, invalid, basic.saturating_add(nts).saturating_add(passed), interleaved]
}

/// Returns true if ntpperf accepts a reply that is invalid for this reason: it checks only the
/// mode, the origin timestamp and a length of at least 48 bytes. A reply of another length is
/// nearly always longer.
const fn is_valid_in_ntpperf(reason: InvalidReplyReason) -> bool {
    use InvalidReplyReason::{
        KissDeny, KissOther, KissRate, KissRstr, Leap, Length, Stratum, Timestamp, Version,
    };
    matches!(
        reason,
        Length | Version | Stratum | Leap | Timestamp | KissRate | KissDeny | KissRstr | KissOther
    )
}

#[cfg(test)]
mod tests {
    use horolog_record::{Distribution, SignedDistribution};

    use super::*;
    use crate::fixture;

    /// ntpperf's published tables, empty lines between them.
    const TABLES: &str = include_str!("ntpperf_tables.txt");
    /// Shares in the tables have so many digits.
    const SENT: u64 = 10_000;
    /// More than everything cannot be lost. Of what is owed to a request there, a delay response
    /// and a Sync, both were there for 15.63% at most.
    const IMPOSSIBLE: (&str, &str) = ("168.41%", " 84.37%");

    fn offsets([min, mean, max, stddev]: [i64; 4]) -> SignedDistribution {
        SignedDistribution {
            count: SENT,
            min,
            mean: mean as f64,
            stddev: stddev as f64,
            p50: mean,
            p90: mean,
            p99: mean,
            p99_9: mean,
            p99_99: mean,
            max,
            histogram: String::new(),
            histogram_negative: String::new(),
        }
    }

    fn times([min, mean, max, stddev]: [i64; 4]) -> Distribution {
        let [min, p50, max] = [min, mean, max].map(i64::cast_unsigned);
        Distribution {
            count: SENT,
            min,
            mean: mean as f64,
            stddev: stddev as f64,
            p50,
            p90: p50,
            p99: p50,
            p99_9: p50,
            p99_99: p50,
            max,
            histogram: String::new(),
        }
    }

    /// Returns the trial that a line of a table describes.
    fn trial(line: &str, table: NtpperfTableOptions) -> Trial {
        let mut words = line.split_whitespace();
        let rate = words.next().unwrap().parse().unwrap();
        let clients = words.next().unwrap().parse().unwrap();
        let mut share = || {
            let percent: f64 = words.next().unwrap().strip_suffix('%').unwrap().parse().unwrap();
            (percent * SENT as f64 / 100.0).round() as u64
        };
        let [lost, invalid, first, second] = std::array::from_fn(|_| share());
        let responses = if table.ptp {
            ReplyKindCounts { delay: first, sync_follow_up: second, ..ReplyKindCounts::default() }
        } else {
            ReplyKindCounts { basic: first, interleaved: second, ..ReplyKindCounts::default() }
        };
        let mut trial = Trial {
            intended_rate: rate,
            clients,
            sent: SENT,
            // A result counts invalid replies as lost too.
            lost: if table.ptp { lost } else { lost + invalid },
            invalid: [(InvalidReplyReason::Origin, invalid)].into(),
            responses,
            ..fixture::trial_without_requests()
        };
        let mut figures = || std::array::from_fn(|_| words.next().unwrap().parse().unwrap());
        match table.panel {
            None => {}
            Some(NtpperfColumnGroup::ResponseTime) => {
                trial.response_time_ns = Some(times(figures()));
            }
            Some(NtpperfColumnGroup::Offset) => trial.tx_offset_ns = Some(offsets(figures())),
        }
        assert_eq!(words.next(), None);
        trial
    }

    #[test]
    fn the_published_tables_are_reproduced_byte_for_byte() {
        let mut rows = Vec::new();
        for text in TABLES.split("\n\n") {
            let mut lines = text.lines();
            let head = [lines.next().unwrap(), lines.next().unwrap()].join("\n");
            let panel = match () {
                () if head.contains("offset") => Some(NtpperfColumnGroup::Offset),
                () if head.contains("time") => Some(NtpperfColumnGroup::ResponseTime),
                () => None,
            };
            let table = NtpperfTableOptions { ptp: head.contains("delay"), panel };
            assert_eq!(table.header(), head);
            let lines = lines.map(|line| line.replace(IMPOSSIBLE.0, IMPOSSIBLE.1));
            let same = |line: String| assert_eq!(table.row(&trial(&line, table)), line);
            rows.push(lines.map(same).count());
        }
        assert_eq!(rows, [17, 14, 16, 16, 12]);
    }

    const RESPONSE: NtpperfTableOptions =
        NtpperfTableOptions { ptp: false, panel: Some(NtpperfColumnGroup::ResponseTime) };

    #[test]
    fn authenticated_replies_are_basic_ones() {
        let responses = ReplyKindCounts { basic: 1, nts: 3, ..ReplyKindCounts::default() };
        let trial = Trial { sent: 8, lost: 4, responses, ..fixture::trial_without_requests() };
        assert_eq!(
            RESPONSE.row(&trial),
            "0            0  50.00%   0.00%  50.00%   0.00%        -       -       -      -"
        );
    }

    #[test]
    fn replies_are_valid_as_they_are_in_ntpperf() {
        let shares = |reason, invalid| {
            let basic = ReplyKindCounts { basic: 1, ..ReplyKindCounts::default() };
            let invalid = [(reason, invalid)].into();
            let trial = Trial {
                sent: 8,
                lost: 7,
                invalid,
                responses: basic,
                ..fixture::trial_without_requests()
            };
            let row = RESPONSE.row(&trial);
            row.split_whitespace().skip(2).take(3).map(str::to_owned).collect::<Vec<_>>()
        };
        for reason in
            [InvalidReplyReason::Version, InvalidReplyReason::Length, InvalidReplyReason::KissRate]
        {
            assert_eq!(shares(reason, 7), ["0.00%", "0.00%", "100.00%"], "{reason}");
        }
        assert_eq!(shares(InvalidReplyReason::Origin, 7), ["0.00%", "87.50%", "12.50%"]);
        assert_eq!(shares(InvalidReplyReason::Origin, 3), ["50.00%", "37.50%", "12.50%"]);
        assert_eq!(shares(InvalidReplyReason::Version, 70), ["0.00%", "0.00%", "100.00%"]);
    }

    #[test]
    fn columns_stay_apart_whatever_the_figures_are() {
        for trial in [fixture::extreme_trial(), fixture::trial_without_requests()] {
            let offset =
                NtpperfTableOptions { panel: Some(NtpperfColumnGroup::Offset), ..RESPONSE };
            for table in [RESPONSE, offset, NtpperfTableOptions { ptp: true, panel: None }] {
                let row = table.row(&trial);
                let least = if table.panel.is_some() { 9 } else { 5 };
                assert!(row.split_whitespace().count() >= least, "{row}");
                assert!(!row.contains("NaN") && !row.contains("inf"), "{row}");
            }
        }
    }
}
