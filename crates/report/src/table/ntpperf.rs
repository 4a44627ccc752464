//! The table of ntpperf, column for column, for the scripts that read it. It has no colours, no
//! units and no width to keep to.

use horolog_record::Trial;

use crate::units::ABSENT;

/// What stands behind the shares of the replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NtpperfPanel {
    /// The server's response time: its transmit less its receive timestamp.
    ResponseTime,
    /// The offset of its transmit timestamps.
    Offset,
}

impl NtpperfPanel {
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

    /// Least, mean and greatest value, and the deviation, to the nanosecond.
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

/// The columns of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NtpperfTable {
    /// A PTP master is asked, whose answers are delay responses and Syncs with their follow-ups;
    /// otherwise an NTP server, which answers in basic or interleaved mode.
    pub ptp: bool,
    /// What stands behind the shares, if anything does.
    pub panel: Option<NtpperfPanel>,
}

impl NtpperfTable {
    /// The two lines above the rows, without a newline at the end.
    #[must_use]
    pub fn header(&self) -> String {
        let kinds = if self.ptp { "  delay sync/fw" } else { "  basic  xleave" };
        let above = self.panel.map_or("", NtpperfPanel::title);
        let figures = self.panel.map_or("", |_| "    min    mean     max stddev");
        format!(
            "               |          responses            |{above}\n\
             rate   clients |  lost invalid {kinds} |{figures}"
        )
    }

    /// One trial, without a newline at the end. The rate is the one that was planned; the shares
    /// are of the requests that were really sent. What is lost is what is missing of them, so it is
    /// from 0% to 100%, also where a request is owed two answers; [`ABSENT`] stands for figures
    /// that there are none of.
    #[must_use]
    pub fn row(&self, trial: &Trial) -> String {
        let share = |count: u64| {
            let ratio = if trial.sent == 0 { 0.0 } else { count as f64 / trial.sent as f64 };
            format!("{:>7.2}%", ratio * 100.0)
        };
        let replies = trial.responses;
        let kinds = if self.ptp {
            [replies.delay, replies.sync_follow_up]
        } else {
            // An authenticated reply is in basic mode as well.
            [replies.basic.saturating_add(replies.nts), replies.interleaved]
        };
        let shares = [trial.lost, trial.invalid_total(), kinds[0], kinds[1]].map(share).concat();
        let panel = self.panel.map_or_else(String::new, |panel| panel.cells(trial));
        let (rate, clients) = (trial.offered_rate, trial.clients);
        format!("{rate:<9.0}{clients:>5}{shares}{panel}")
    }
}

#[cfg(test)]
mod tests {
    use horolog_record::{Distribution, InvalidReason, Responses, SignedDistribution};

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

    /// The trial that a line of a table tells of.
    fn trial(line: &str, table: NtpperfTable) -> Trial {
        let mut words = line.split_whitespace();
        let rate = words.next().unwrap().parse().unwrap();
        let clients = words.next().unwrap().parse().unwrap();
        let mut share = || {
            let percent: f64 = words.next().unwrap().strip_suffix('%').unwrap().parse().unwrap();
            (percent * SENT as f64 / 100.0).round() as u64
        };
        let [lost, invalid, first, second] = std::array::from_fn(|_| share());
        let responses = if table.ptp {
            Responses { delay: first, sync_follow_up: second, ..Responses::default() }
        } else {
            Responses { basic: first, interleaved: second, ..Responses::default() }
        };
        let mut trial = Trial {
            offered_rate: rate,
            clients,
            sent: SENT,
            lost,
            invalid: [(InvalidReason::Origin, invalid)].into(),
            responses,
            ..fixture::silent_trial()
        };
        let mut figures = || std::array::from_fn(|_| words.next().unwrap().parse().unwrap());
        match table.panel {
            None => {}
            Some(NtpperfPanel::ResponseTime) => trial.response_time_ns = Some(times(figures())),
            Some(NtpperfPanel::Offset) => trial.tx_offset_ns = Some(offsets(figures())),
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
                () if head.contains("offset") => Some(NtpperfPanel::Offset),
                () if head.contains("time") => Some(NtpperfPanel::ResponseTime),
                () => None,
            };
            let table = NtpperfTable { ptp: head.contains("delay"), panel };
            assert_eq!(table.header(), head);
            let lines = lines.map(|line| line.replace(IMPOSSIBLE.0, IMPOSSIBLE.1));
            let same = |line: String| assert_eq!(table.row(&trial(&line, table)), line);
            rows.push(lines.map(same).count());
        }
        assert_eq!(rows, [17, 14, 16, 16, 12]);
    }

    const RESPONSE: NtpperfTable =
        NtpperfTable { ptp: false, panel: Some(NtpperfPanel::ResponseTime) };

    #[test]
    fn authenticated_replies_are_basic_ones() {
        let responses = Responses { basic: 1, nts: 3, ..Responses::default() };
        let trial = Trial { sent: 8, lost: 4, responses, ..fixture::silent_trial() };
        assert_eq!(
            RESPONSE.row(&trial),
            "0            0  50.00%   0.00%  50.00%   0.00%        -       -       -      -"
        );
    }

    #[test]
    fn columns_stay_apart_whatever_the_figures_are() {
        for trial in [fixture::extreme_trial(), fixture::silent_trial()] {
            let offset = NtpperfTable { panel: Some(NtpperfPanel::Offset), ..RESPONSE };
            for table in [RESPONSE, offset, NtpperfTable { ptp: true, panel: None }] {
                let row = table.row(&trial);
                let least = if table.panel.is_some() { 9 } else { 5 };
                assert!(row.split_whitespace().count() >= least, "{row}");
                assert!(!row.contains("NaN") && !row.contains("inf"), "{row}");
            }
        }
    }
}
