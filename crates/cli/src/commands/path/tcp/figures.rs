//! What `--fail-if` of `path tcp` can limit: latency and bandwidth. Pure.

use horolog_record::{LimitUnit, PathTcpResult, TcpDirection};

use crate::limit::{Limit, TimeOf, times};

/// A figure of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Figure {
    /// Of the latency, half the round trip.
    Latency(TimeOf),
    Bandwidth,
}

pub(super) fn limit(text: &str) -> Result<Limit<Figure>, String> {
    let bandwidth = ("bandwidth", LimitUnit::BytesPerSecond, Figure::Bandwidth);
    Limit::parse(text, times(Figure::Latency).into_iter().chain([bandwidth]))
}

impl Figure {
    /// That of each row that has it, with the row's name; `None` for one that was not measured.
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
                        TcpDirection::Out => "out",
                        TcpDirection::Back => "back",
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
