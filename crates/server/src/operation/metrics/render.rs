//! Metrics from a server's status. Every number of the status becomes a sample, except those that
//! are skipped on purpose, so that none is forgotten: [`METRICS`] specifies name, kind and help of
//! the known ones, and any other is exported under its path in the status. The response times
//! become a histogram.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serde_json::Value;

use crate::operation::server_status::ServerStatus;
use crate::sockets::response_time::{BOUNDS_NS, ResponseTimeHistogram};

type Labels = Vec<(String, String)>;

/// Kind of a metric, by which its numbers are exported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MetricExportKind {
    Counter,
    Gauge,
    /// Gauge in seconds, from nanoseconds in the status.
    Seconds,
    /// Not exported.
    Skipped,
}

impl MetricExportKind {
    fn encode(self, value: f64, metric: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        match self {
            Self::Counter => ConstCounter::new(value as u64).encode(metric),
            Self::Seconds => ConstGauge::new(value / 1e9).encode(metric),
            Self::Gauge | Self::Skipped => ConstGauge::new(value).encode(metric),
        }
    }
}

/// Specification of a metric, and the numbers of the status that become its samples.
struct MetricSpec {
    name: &'static str,
    kind: MetricExportKind,
    help: &'static str,
    input: MetricStatusPath,
}

/// Location of a metric's numbers in the status.
enum MetricStatusPath {
    /// Number at this path, or the numbers of a list or of a label-keyed object there.
    Path(&'static str),
    /// Numbers of one object, distinguished by a label: name of the label, path of the object, and
    /// for each number its key and label value.
    Labelled(&'static str, &'static str, &'static [(&'static str, &'static str)]),
}

impl MetricSpec {
    /// Returns the metric to which the number at this path belongs, with its label if it has one.
    fn find(path: &str) -> Option<(&'static Self, Option<(&'static str, &'static str)>)> {
        METRICS.iter().find_map(|known| match known.input {
            MetricStatusPath::Path(of) => (of == path).then_some((known, None)),
            MetricStatusPath::Labelled(label, object, numbers) => {
                let key = path.strip_prefix(object)?.strip_prefix('/')?;
                let (_, value) = numbers.iter().find(|(number, _)| *number == key)?;
                Some((known, Some((label, *value))))
            }
        })
    }
}

const fn counter(name: &'static str, path: &'static str, help: &'static str) -> MetricSpec {
    MetricSpec { name, kind: MetricExportKind::Counter, help, input: MetricStatusPath::Path(path) }
}

const fn gauge(name: &'static str, path: &'static str, help: &'static str) -> MetricSpec {
    MetricSpec { name, kind: MetricExportKind::Gauge, help, input: MetricStatusPath::Path(path) }
}

const fn seconds(name: &'static str, path: &'static str, help: &'static str) -> MetricSpec {
    MetricSpec { name, kind: MetricExportKind::Seconds, help, input: MetricStatusPath::Path(path) }
}

const fn skipped(path: &'static str) -> MetricSpec {
    MetricSpec {
        name: "",
        kind: MetricExportKind::Skipped,
        help: "",
        input: MetricStatusPath::Path(path),
    }
}

const fn labelled(
    name: &'static str,
    label: &'static str,
    object: &'static str,
    numbers: &'static [(&'static str, &'static str)],
    help: &'static str,
) -> MetricSpec {
    MetricSpec {
        name,
        kind: MetricExportKind::Counter,
        help,
        input: MetricStatusPath::Labelled(label, object, numbers),
    }
}

const REPLIES: &str = "Replies sent, by engine";
const KINDS: &str = "Replies other than plain ones, by kind";

const METRICS: [MetricSpec; 56] = [
    labelled("replies", "engine", "/counters", &[("answered", "socket")], REPLIES),
    labelled(
        "replies",
        "engine",
        "/xdp_counters",
        &[("answered_ipv4", "xdp-ipv4"), ("answered_ipv6", "xdp-ipv6")],
        REPLIES,
    ),
    labelled(
        "replies_by_kind",
        "kind",
        "/counters",
        &[
            ("interleaved", "interleaved"),
            ("symmetric", "symmetric"),
            ("mac", "mac"),
            ("nts", "nts"),
            ("nts_kisses", "nts-kiss"),
        ],
        KINDS,
    ),
    labelled(
        "replies_by_kind",
        "kind",
        "/xdp_counters",
        &[("answered_interleaved", "xdp-interleaved"), ("answered_symmetric", "xdp-symmetric")],
        KINDS,
    ),
    labelled(
        "ptp_replies",
        "kind",
        "/xdp_counters",
        &[("answered_ptp", "delay"), ("answered_ptp_monitor", "monitor")],
        "PTP requests answered by XDP, by kind",
    ),
    labelled(
        "unanswered",
        "reason",
        "/counters",
        &[("expired", "expired"), ("refused", "refused"), ("dropped", "dropped")],
        "Requests for which no reply was sent, by reason",
    ),
    labelled(
        "timestamps",
        "kind",
        "/counters",
        &[
            ("receive_kernel_timestamps", "receive-kernel"),
            ("receive_hardware_timestamps", "receive-hardware"),
            ("transmit_timestamps_requested", "transmit-requested"),
            ("transmit_kernel_timestamps", "transmit-kernel"),
            ("transmit_hardware_timestamps", "transmit-hardware"),
        ],
        "Timestamps taken, by source, and transmit timestamps requested",
    ),
    counter("received", "/counters/received", "Datagrams received by the sockets"),
    counter("receive_errors", "/counters/receive_errors", "Failed receive calls"),
    counter("ignored", "/counters/ignored", "Datagrams ignored on purpose, by reason"),
    counter(
        "xdp_dropped",
        "/xdp_counters/dropped",
        "Requests dropped by limits and lists in XDP, by reason",
    ),
    counter("xdp_kisses", "/xdp_counters/kisses", "Kisses sent by XDP, by code"),
    counter("xdp_admitted", "/xdp_counters/admitted", "Requests admitted by limits"),
    counter("xdp_to_af_xdp", "/xdp_counters/to_af_xdp", "Requests redirected to AF_XDP sockets"),
    counter(
        "xdp_passed",
        "/xdp_counters/passed",
        "Frames passed on to the network stack, by reason",
    ),
    counter("thread_received", "/workers/received", "Datagrams received by each thread"),
    counter("thread_replies", "/workers/answered", "Replies sent by each thread"),
    counter("xdp_core_replies", "/xdp_answered_by_core", "Replies of XDP, by core"),
    counter("nts_ke", "/nts_ke/counters", "NTS-KE connections, by outcome"),
    gauge("nts_ke_open", "/nts_ke/counters/open", "Open NTS-KE connections"),
    gauge("uptime_seconds", "/uptime_s", "Time since the start"),
    gauge("threads_per_address", "/threads", "Socket threads for each address"),
    gauge("leap_indicator", "/leap", "Leap indicator; 3 is unsynchronised"),
    gauge("stratum", "/stratum", "Stratum; 16 is unsynchronised, which replies carry as 0"),
    gauge("precision_log2_seconds", "/precision", "Precision, log2 of seconds"),
    seconds("root_delay_seconds", "/root_delay_ns", "Delay to the reference clock"),
    seconds(
        "root_dispersion_seconds",
        "/root_dispersion_ns",
        "Dispersion to the reference clock: the bound of the clock's error",
    ),
    seconds("test_offset_seconds", "/test_offset_ns", "Offset injected into the served time"),
    gauge("test_drift_ppb", "/test_drift_ppb", "Drift injected into the served time"),
    gauge("synchronised", "/synchronised", "1 if the served time is synchronised"),
    seconds("clock_page_age_seconds", "/page_age_ns", "Age of the clock page in use"),
    gauge("clock_page_expired", "/page_expired", "1 while no request is answered"),
    counter("clock_page_updates", "/clock/page_updates", "Clock pages published"),
    counter(
        "clock_publish_errors",
        "/clock/publish_errors",
        "Clock pages that could not be published",
    ),
    seconds(
        "clock_page_gap_max_seconds",
        "/clock/gap_max_ns",
        "Longest time between two clock pages",
    ),
    gauge("clock_real_time", "/clock/real_time", "1 if the clock thread has a real-time priority"),
    counter("clock_steps", "/clock/steps", "Steps of the system clock"),
    seconds("clock_last_step_seconds", "/clock/last_step_ns", "Size of the last step"),
    counter("reloads", "/reload/done", "Reloads completed"),
    counter("reloads_refused", "/reload/failed", "Refused reloads"),
    seconds(
        "calibration_offset_seconds",
        "/calibration/offset_ns",
        "Offset of the system clock from the receiver's UTC",
    ),
    seconds(
        "calibration_uncertainty_seconds",
        "/calibration/uncertainty_ns",
        "Standard deviation of that offset; its bound without a pulse",
    ),
    gauge(
        "calibration_frequency_ppb",
        "/calibration/frequency_ppb",
        "Frequency error of the uncorrected system clock",
    ),
    seconds("calibration_noise_seconds", "/calibration/noise_ns", "Jitter of the pulses"),
    gauge(
        "calibration_allan_deviation_ppb",
        "/calibration/allan/deviation_ppb",
        "Allan deviation of the system clock, by averaging time",
    ),
    counter("calibration_pulses", "/calibration/pulses", "Pulses, by verdict"),
    counter("calibration_sentences", "/calibration/sentences", "Sentences, by verdict"),
    counter("calibration_steps", "/calibration/steps", "Steps made by the calibration"),
    counter("sources_rejected", "/sources/rejected", "Implausible times of sources, by reason"),
    gauge("resident_bytes", "/resident_bytes", "Resident memory"),
    // Exported as a histogram by `ResponseTimesInSeconds`.
    skipped("/counters/response_times/bounds_ns"),
    skipped("/counters/response_times/counts"),
    skipped("/counters/response_times/sum_ns"),
    skipped("/pid"),
    // Identifier, not a quantity.
    skipped("/reference_id"),
    skipped("/schema"),
];

/// Objects whose keys become label values, with the name of the label. Keys with a metric of their
/// own are excepted.
const LABEL_KEYED_OBJECTS: [(&str, &str); 8] = [
    ("/sources/rejected", "verdict"),
    ("/calibration/pulses", "verdict"),
    ("/calibration/sentences", "verdict"),
    ("/counters/ignored", "reason"),
    ("/xdp_counters/passed", "reason"),
    ("/xdp_counters/dropped", "reason"),
    ("/xdp_counters/kisses", "code"),
    ("/nts_ke/counters", "outcome"),
];
/// Lists of objects in which only these texts become labels, because the other texts change.
const STABLE_LABELS: [(&str, [&str; 2]); 1] = [("/sources/rejected", ["name", "verdict"])];
/// Lists whose indices become values of a label, with the name of the label. It is `index` for
/// other lists.
const INDEX_LABELLED_LISTS: [(&str, &str); 1] = [("/xdp_answered_by_core", "core")];
/// Numbers in lists of objects that identify the object, and so become labels.
const IDENTIFYING_NUMBERS: [&str; 3] = ["thread", "core", "tau_s"];

/// Returns the names of the exported metrics in [`METRICS`] and of the histogram, each with its
/// label if it has one. Labels made from the texts of lists are not included.
#[must_use]
pub fn metric_names() -> BTreeSet<String> {
    let exported = METRICS.iter().filter(|known| known.kind != MetricExportKind::Skipped);
    let names = exported.map(|known| {
        let label = match known.input {
            MetricStatusPath::Labelled(label, ..) => Some(label),
            MetricStatusPath::Path(of) => LABEL_KEYED_OBJECTS
                .iter()
                .chain(&INDEX_LABELLED_LISTS)
                .find(|(path, _)| *path == of)
                .map(|(_, label)| *label),
        };
        let total = if known.kind == MetricExportKind::Counter { "_total" } else { "" };
        let label = label.map_or_else(String::new, |label| format!("{{{label}}}"));
        format!("horolog_{}{total}{label}", known.name)
    });
    let histogram = ["bucket{le}", "count", "sum"];
    names.chain(histogram.map(|part| format!("horolog_{NAME}_{part}"))).collect()
}

/// Returns the metrics of a status as `OpenMetrics` text.
pub(super) fn render_status(status: &ServerStatus) -> String {
    render_json(&status.to_json(), status.counters.response_times)
}

fn render_json(status: &Value, times: ResponseTimeHistogram) -> String {
    let mut families = MetricFamilies::default();
    families.walk("", status, &Vec::new());
    let mut registry = Registry::with_prefix("horolog");
    registry.register_collector(Box::new(families));
    registry.register_collector(Box::new(ResponseTimesInSeconds(times)));
    let mut text = String::new();
    // Writing to memory cannot fail.
    let _ = text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct MetricFamily {
    kind: MetricExportKind,
    help: &'static str,
    samples: Vec<(Labels, f64)>,
}

#[derive(Debug, Default)]
struct MetricFamilies(BTreeMap<String, MetricFamily>);

impl MetricFamilies {
    fn walk(&mut self, path: &str, value: &Value, labels: &Labels) {
        match value {
            Value::Number(number) => {
                self.add_sample(path, number.as_f64().unwrap_or(f64::NAN), labels);
            }
            Value::Bool(yes) => self.add_sample(path, f64::from(u8::from(*yes)), labels),
            Value::Object(object) => {
                let keyed = LABEL_KEYED_OBJECTS.iter().find(|(keyed, _)| *keyed == path);
                for (key, value) in object {
                    let inner = format!("{path}/{key}");
                    match keyed.filter(|_| MetricSpec::find(&inner).is_none()) {
                        Some((_, label)) => self.walk(path, value, &with_label(labels, label, key)),
                        None => self.walk(&inner, value, labels),
                    }
                }
            }
            Value::Array(list) => {
                let name = INDEX_LABELLED_LISTS.iter().find(|(indexed, _)| *indexed == path);
                let name = name.map_or("index", |(_, name)| name);
                for (index, value) in list.iter().enumerate() {
                    match value {
                        Value::Object(object) => self.add_element(path, object, labels),
                        value => {
                            self.walk(path, value, &with_label(labels, name, &index.to_string()));
                        }
                    }
                }
            }
            Value::Null | Value::String(_) => {}
        }
    }

    /// Adds the numbers of an object in a list, with the object's texts as labels.
    fn add_element(
        &mut self,
        path: &str,
        object: &serde_json::Map<String, Value>,
        labels: &Labels,
    ) {
        let mut labels = labels.clone();
        let is_label =
            |key: &str, value: &Value| value.is_string() || IDENTIFYING_NUMBERS.contains(&key);
        for (key, value) in object.iter().filter(|(key, value)| is_label(key, value)) {
            let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            labels = with_label(&labels, key, &text);
        }
        for (key, value) in object.iter().filter(|(key, value)| !is_label(key, value)) {
            self.walk(&format!("{path}/{key}"), value, &labels);
        }
    }

    fn add_sample(&mut self, path: &str, value: f64, labels: &Labels) {
        let (name, kind, help, label) = match MetricSpec::find(path) {
            Some((MetricSpec { kind: MetricExportKind::Skipped, .. }, _)) => return,
            Some((known, label)) => (known.name.to_owned(), known.kind, known.help, label),
            None => {
                let (name, kind) = metric_of_path(path);
                (name, kind, "See this field of horolog status", None)
            }
        };
        let mut labels =
            label.map_or_else(|| labels.clone(), |(key, value)| with_label(labels, key, value));
        if let Some((_, lasting)) = STABLE_LABELS.iter().find(|(lasting, _)| *lasting == path) {
            labels.retain(|(key, _)| lasting.contains(&key.as_str()));
        }
        let family = self.0.entry(name).or_insert(MetricFamily { kind, help, samples: Vec::new() });
        family.samples.push((labels, value));
    }
}

fn with_label(labels: &Labels, key: &str, value: &str) -> Labels {
    let more = (key.to_owned(), value.to_owned());
    labels.iter().cloned().chain([more]).collect()
}

/// Returns name and kind of the metric for a path without specification: a gauge, in seconds if the
/// path ends in `_ns`.
fn metric_of_path(path: &str) -> (String, MetricExportKind) {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = path.trim_start_matches('/').chars().map(plain).collect();
    match name.strip_suffix("_ns") {
        Some(time) => (format!("{time}_seconds"), MetricExportKind::Seconds),
        None => (name, MetricExportKind::Gauge),
    }
}

impl Collector for MetricFamilies {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, family) in &self.0 {
            let kind = match family.kind {
                MetricExportKind::Counter => MetricType::Counter,
                _ => MetricType::Gauge,
            };
            let mut metric = encoder.encode_descriptor(name, family.help, None, kind)?;
            if let [(labels, value)] = &family.samples[..]
                && labels.is_empty()
            {
                family.kind.encode(*value, metric)?;
                continue;
            }
            for (labels, value) in &family.samples {
                family.kind.encode(*value, metric.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}

/// Name of the metric of response times, without the common prefix `horolog_`.
const NAME: &str = "response_seconds";
const HELP: &str = "From the receive to the transmit timestamp of replies of the socket engine";

/// Collector that exports response times as a histogram in seconds.
#[derive(Debug)]
struct ResponseTimesInSeconds(ResponseTimeHistogram);

impl Collector for ResponseTimesInSeconds {
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

    use super::*;
    use crate::operation::server_status::tests::sample;

    fn assert_lines(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|found| found == *line), "{line} is not there:\n{text}");
        }
    }

    #[test]
    fn names_have_their_labels() {
        let names = metric_names();
        for name in [
            "horolog_replies_total{engine}",
            "horolog_ignored_total{reason}",
            "horolog_xdp_core_replies_total{core}",
            "horolog_stratum",
            "horolog_response_seconds_bucket{le}",
        ] {
            assert!(names.contains(name), "{name}: {names:#?}");
        }
    }

    /// Returns true if the path names a value in the status; an element of a list has the path of
    /// the list.
    fn is_present(value: &Value, path: &str) -> bool {
        let (key, rest) = path.split_once('/').unwrap_or((path, ""));
        match value {
            Value::Array(list) => list.iter().any(|element| is_present(element, path)),
            value if path.is_empty() => !value.is_null(),
            value => value.get(key).is_some_and(|inner| is_present(inner, rest)),
        }
    }

    #[test]
    fn every_path_names_a_value_of_the_status() {
        let paths = METRICS.iter().flat_map(|known| match known.input {
            MetricStatusPath::Path(path) => vec![path.to_owned()],
            MetricStatusPath::Labelled(_, object, numbers) => {
                numbers.iter().map(|(key, _)| format!("{object}/{key}")).collect()
            }
        });
        let tables = LABEL_KEYED_OBJECTS.iter().chain(&INDEX_LABELLED_LISTS);
        let tables = tables.map(|(path, _)| *path).chain(STABLE_LABELS.map(|(path, _)| path));
        let status = sample().to_json();
        let unknown: Vec<_> = paths
            .chain(tables.map(str::to_owned))
            .filter(|path| !is_present(&status, &path[1..]))
            .collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn known_numbers_have_names_units_and_labels() {
        let text = render_status(&sample());
        let lines = [
            "# TYPE horolog_replies counter",
            "horolog_replies_total{engine=\"socket\"} 40",
            "horolog_replies_total{engine=\"xdp-ipv4\"} 100",
            "horolog_ptp_replies_total{kind=\"delay\"} 3",
            "horolog_unanswered_total{reason=\"dropped\"} 4",
            "horolog_ignored_total{reason=\"mode_control\"} 1",
            "horolog_xdp_passed_total{reason=\"length\"} 6",
            "horolog_xdp_dropped_total{reason=\"new_clients\"} 8",
            "horolog_xdp_kisses_total{code=\"rate\"} 2",
            "horolog_replies_by_kind_total{kind=\"nts\"} 3",
            "horolog_nts_ke_total{outcome=\"established\"} 6",
            "horolog_nts_ke_open 1.0",
            "horolog_thread_replies_total{core=\"1\",listen=\"192.0.2.1:123\",thread=\"0\"} 30",
            "horolog_xdp_core_replies_total{core=\"1\"} 70",
            "horolog_root_delay_seconds 5e-7",
            "horolog_sources_offset_seconds{name=\"gnss\",state=\"selected\"} 2.5e-7",
            "horolog_sources_rejected_total{name=\"phc\",verdict=\"apart\"} 2",
            "horolog_calibration_offset_seconds 2.5e-7",
            "horolog_calibration_pulses_total{verdict=\"accepted\"} 3600",
            "horolog_calibration_allan_deviation_ppb{tau_s=\"1\"} 141.0",
            "horolog_stratum 1.0",
            "horolog_synchronised 1.0",
            "# EOF",
        ];
        assert_lines(&text, &lines);
        assert_eq!(text.matches("# TYPE horolog_replies counter").count(), 1);
        assert!(!text.contains("pid") && !text.contains("reference_id"), "{text}");
    }

    #[test]
    fn what_is_not_known_here_is_exported_all_the_same() {
        let json = json!({ "nts": { "opened": 3 }, "labels": [{ "name": "a\"b\\c\nd", "n": 1 }] });
        let text = render_json(&json, ResponseTimeHistogram::default());
        assert_lines(&text, &["horolog_nts_opened 3.0"]);
        assert!(
            text.lines().all(|line| line.starts_with(['#', 'h'])),
            "a label breaks out:\n{text}"
        );
    }

    #[test]
    fn buckets_hold_all_that_is_not_longer() {
        let mut status = sample();
        status.counters.response_times = ResponseTimeHistogram::default();
        for ns in [700, 1_500, 1_800, 2_500_000_000] {
            status.counters.response_times.count(Span::from_ns(ns));
        }
        let text = render_status(&status);
        let lines = [
            "# TYPE horolog_response_seconds histogram",
            "horolog_response_seconds_sum 2.500004",
            "horolog_response_seconds_count 4",
            "horolog_response_seconds_bucket{le=\"0.000001\"} 1",
            "horolog_response_seconds_bucket{le=\"0.000002\"} 3",
            "horolog_response_seconds_bucket{le=\"1.0\"} 3",
            "horolog_response_seconds_bucket{le=\"+Inf\"} 4",
        ];
        assert_lines(&text, &lines);
        assert!(!text.contains("response_times"), "{text}");
    }
}
