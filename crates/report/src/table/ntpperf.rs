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

/// The two lines above the rows, without a newline at the end.
#[must_use]
pub fn ntpperf_header(panel: NtpperfPanel) -> String {
    format!(
        "               |          responses            |{}\n\
         rate   clients |  lost invalid   basic  xleave |    min    mean     max stddev",
        panel.title()
    )
}

/// One trial, without a newline at the end. The rate is the one that was planned; the shares are of
/// the requests that were really sent, and what is lost is what is missing of them, so it is never
/// less than nothing. [`ABSENT`] stands for figures that there are none of.
#[must_use]
pub fn ntpperf_row(trial: &Trial, panel: NtpperfPanel) -> String {
    let share = |count: u64| {
        let ratio = if trial.sent == 0 { 0.0 } else { count as f64 / trial.sent as f64 };
        format!("{:>7.2}%", ratio * 100.0)
    };
    let responses = trial.responses;
    let replies = [
        trial.lost,
        trial.invalid_total(),
        // An authenticated reply is in basic mode as well.
        responses.basic.saturating_add(responses.nts),
        responses.interleaved,
    ];
    let shares: String = replies.map(share).concat();
    let figures = panel.figures(trial).map_or_else(
        || [ABSENT; 4].map(str::to_owned),
        |[min, mean, max, stddev]| {
            let [min, mean, max] = [min, mean, max].map(|ns| format!("{ns:+}"));
            [min, mean, max, stddev.to_string()]
        },
    );
    let [min, mean, max, stddev] = figures;
    let (rate, clients) = (trial.offered_rate, trial.clients);
    format!("{rate:<9.0}{clients:>5}{shares}  {min:>7} {mean:>7} {max:>7} {stddev:>6}")
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
    fn trial(line: &str, panel: NtpperfPanel) -> Trial {
        let mut words = line.split_whitespace();
        let rate = words.next().unwrap().parse().unwrap();
        let clients = words.next().unwrap().parse().unwrap();
        let mut share = || {
            let percent: f64 = words.next().unwrap().strip_suffix('%').unwrap().parse().unwrap();
            (percent * SENT as f64 / 100.0).round() as u64
        };
        let [lost, invalid, basic, interleaved] = std::array::from_fn(|_| share());
        let figures = std::array::from_fn(|_| words.next().unwrap().parse().unwrap());
        assert_eq!(words.next(), None);
        let mut trial = Trial {
            offered_rate: rate,
            clients,
            sent: SENT,
            lost,
            invalid: [(InvalidReason::Origin, invalid)].into(),
            responses: Responses { basic, interleaved, ..Responses::default() },
            ..fixture::silent_trial()
        };
        match panel {
            NtpperfPanel::ResponseTime => trial.response_time_ns = Some(times(figures)),
            NtpperfPanel::Offset => trial.tx_offset_ns = Some(offsets(figures)),
        }
        trial
    }

    #[test]
    fn the_published_tables_are_reproduced_byte_for_byte() {
        let mut rows = 0;
        for table in TABLES.split("\n\n") {
            let mut lines = table.lines();
            let head = [lines.next().unwrap(), lines.next().unwrap()].join("\n");
            let panel = if head.contains("offset") {
                NtpperfPanel::Offset
            } else {
                NtpperfPanel::ResponseTime
            };
            assert_eq!(ntpperf_header(panel), head);
            for line in lines {
                assert_eq!(ntpperf_row(&trial(line, panel), panel), line);
                rows += 1;
            }
        }
        assert_eq!(rows, 17 + 14 + 16);
    }

    #[test]
    fn authenticated_replies_are_basic_ones() {
        let responses = Responses { basic: 1, nts: 3, ..Responses::default() };
        let trial = Trial { sent: 8, lost: 4, responses, ..fixture::silent_trial() };
        let row = ntpperf_row(&trial, NtpperfPanel::ResponseTime);
        assert_eq!(
            row,
            "0            0  50.00%   0.00%  50.00%   0.00%        -       -       -      -"
        );
    }

    #[test]
    fn columns_stay_apart_whatever_the_figures_are() {
        for trial in [fixture::extreme_trial(), fixture::silent_trial()] {
            for panel in [NtpperfPanel::ResponseTime, NtpperfPanel::Offset] {
                let row = ntpperf_row(&trial, panel);
                assert!(row.split_whitespace().count() >= 9, "{row}");
                assert!(!row.contains("NaN") && !row.contains("inf"), "{row}");
            }
        }
    }
}
