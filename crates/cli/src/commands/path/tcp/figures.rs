//! Metrics of `path tcp` for `--fail-if`: latency and bandwidth. Pure.

use horolog_record::{LimitUnit, PathTcpResult, TcpDirection};

use crate::limit::{Limit, TimeOf, time_metrics};

/// A metric of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum TcpMetric {
    /// The latency, half the round trip.
    Latency(TimeOf),
    Bandwidth,
}

pub(super) fn limit(text: &str) -> Result<Limit<TcpMetric>, String> {
    let bandwidth = ("bandwidth", LimitUnit::BytesPerSecond, TcpMetric::Bandwidth);
    Limit::parse(text, time_metrics(TcpMetric::Latency).into_iter().chain([bandwidth]))
}

impl TcpMetric {
    /// The value of each row that has the metric, with the row's name; `None` if it was not
    /// measured.
    pub(super) fn of(self, result: &PathTcpResult) -> Vec<(String, Option<f64>)> {
        match self {
            Self::Latency(of) => result
                .latency
                .iter()
                .map(|row| {
                    let half = row.rtt_ns.as_ref().map(|rtt| of(rtt) / 2.0);
                    (format!("latency of {} bytes", row.size_bytes), half)
                })
                .collect(),
            Self::Bandwidth => result
                .bandwidth
                .iter()
                .map(|row| {
                    let way = match row.direction {
                        TcpDirection::Forward => "forward",
                        TcpDirection::Backward => "backward",
                    };
                    let name = format!("writes of {} bytes, {way}", row.size_bytes);
                    (name, (row.received_bytes > 0).then_some(row.rate))
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_can_be_too_little() {
        for text in ["p99>100us", "max > 1ms", "bandwidth < 1.5G", "bandwidth>45k"] {
            assert!(limit(text).is_ok(), "{text}");
        }
        for wrong in ["", "p99", "p98>1us", "p99>", "p99<1us", "bandwidth<fast", ">1us"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
