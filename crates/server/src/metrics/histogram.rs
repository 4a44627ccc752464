//! Histogram metric of the response times in a server's status.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use serde_json::Value;

use crate::ResponseTimes;
use crate::response::BOUNDS_NS;

/// Name of the metric, without the common prefix.
pub(super) const NAME: &str = "response_seconds";
const HELP: &str = "From the receive to the transmit timestamp of replies of the socket engine";

/// Response times in seconds.
#[derive(Debug)]
pub(super) struct ResponseSeconds(ResponseTimes);

impl ResponseSeconds {
    /// Returns the response times of a status, if present.
    pub(super) fn from_status(status: &Value) -> Option<Self> {
        ResponseTimes::from_status(status).map(Self)
    }
}

impl Collector for ResponseSeconds {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let times = &self.0;
        let bounds = BOUNDS_NS.into_iter().map(|ns| ns as f64 / 1e9).chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(times.counts).collect();
        let sum = times.sum_ns as f64 / 1e9;
        let mut metric = encoder.encode_descriptor(NAME, HELP, None, MetricType::Histogram)?;
        metric.encode_histogram::<NoLabelSet>(sum, times.total(), &buckets, None)
    }
}

#[cfg(test)]
mod tests {
    use horolog_time::Span;
    use serde_json::json;

    use crate::ResponseTimes;
    use crate::metrics::render;

    #[test]
    fn buckets_hold_all_that_is_not_longer() {
        let mut times = ResponseTimes::default();
        for ns in [700, 1_500, 1_800, 2_500_000_000] {
            times.count(Span::from_ns(ns));
        }
        let text = render::render_status(&json!({ "counters": { "response_times": times } }));
        for line in [
            "# TYPE horolog_response_seconds histogram",
            "horolog_response_seconds_sum 2.500004",
            "horolog_response_seconds_count 4",
            "horolog_response_seconds_bucket{le=\"0.000001\"} 1",
            "horolog_response_seconds_bucket{le=\"0.000002\"} 3",
            "horolog_response_seconds_bucket{le=\"1.0\"} 3",
            "horolog_response_seconds_bucket{le=\"+Inf\"} 4",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not there:\n{text}");
        }
        assert!(!text.contains("response_times"), "{text}");
        assert!(!render::render_status(&json!({})).contains("response"));
    }
}
