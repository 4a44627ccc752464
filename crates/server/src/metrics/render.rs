//! A server's state as metrics: pure. Every number of the state becomes a sample; [`KNOWN`] gives
//! the names, units and kinds of those that are known here, and any other is exported under the
//! name that it has in the state, so that nothing is left out.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serde_json::Value;

type Labels = Vec<(String, String)>;

/// What a sample is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Counter,
    Gauge,
    /// In nanoseconds in the state, and in seconds as a metric, whose base unit that is.
    Seconds,
    /// Not a metric.
    Left,
}

impl Kind {
    fn encode(self, value: f64, metric: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        match self {
            Self::Counter => ConstCounter::new(value as u64).encode(metric),
            Self::Seconds => ConstGauge::new(value / 1e9).encode(metric),
            Self::Gauge | Self::Left => ConstGauge::new(value).encode(metric),
        }
    }
}

/// One number of the state: where it stands there, and what it is as a metric.
struct Known {
    path: &'static str,
    name: &'static str,
    kind: Kind,
    label: Option<(&'static str, &'static str)>,
    help: &'static str,
}

const fn known(path: &'static str, name: &'static str, kind: Kind, help: &'static str) -> Known {
    Known { path, name, kind, label: None, help }
}

const fn labelled(
    path: &'static str,
    name: &'static str,
    label: (&'static str, &'static str),
    help: &'static str,
) -> Known {
    Known { path, name, kind: Kind::Counter, label: Some(label), help }
}

const REPLIES: &str = "Replies sent, by the body that made them";
const UNANSWERED: &str = "Requests that got no reply though they might have, by reason";

const KINDS: &str = "Replies that were not plain, by kind";
const STAMPS: &str = "Timestamps by whom took them, beside those that were wanted";

const KNOWN: [Known; 52] = [
    labelled("/counters/interleaved", "kinds", ("kind", "interleaved"), KINDS),
    labelled("/counters/mac", "kinds", ("kind", "mac"), KINDS),
    labelled("/counters/nts", "kinds", ("kind", "nts"), KINDS),
    labelled("/counters/nts_kisses", "kinds", ("kind", "nts-kiss"), KINDS),
    labelled("/xdp_counters/answered_interleaved", "kinds", ("kind", "xdp-interleaved"), KINDS),
    known(
        "/xdp_counters/dropped",
        "xdp_dropped",
        Kind::Counter,
        "Requests dropped by limits and lists in XDP, by reason",
    ),
    known("/xdp_counters/kisses", "xdp_kisses", Kind::Counter, "Kisses sent by XDP, by code"),
    known(
        "/xdp_counters/admitted",
        "xdp_admitted",
        Kind::Counter,
        "Requests let through by limits",
    ),
    known(
        "/xdp_counters/handed_over",
        "xdp_handed_over",
        Kind::Counter,
        "Requests that XDP gave to threads past the network stack",
    ),
    labelled("/counters/receive_kernel_stamps", "stamps", ("of", "receive-kernel"), STAMPS),
    labelled("/counters/receive_hardware_stamps", "stamps", ("of", "receive-hardware"), STAMPS),
    labelled("/counters/transmit_stamps_wanted", "stamps", ("of", "transmit-wanted"), STAMPS),
    labelled("/counters/transmit_kernel_stamps", "stamps", ("of", "transmit-kernel"), STAMPS),
    labelled("/counters/transmit_hardware_stamps", "stamps", ("of", "transmit-hardware"), STAMPS),
    known(
        "/nts_ke/counters",
        "nts_ke",
        Kind::Counter,
        "Connections for key establishment, by what became of them",
    ),
    labelled("/counters/answered", "replies", ("engine", "socket"), REPLIES),
    labelled("/xdp_counters/answered_ipv4", "replies", ("engine", "xdp-ipv4"), REPLIES),
    labelled("/xdp_counters/answered_ipv6", "replies", ("engine", "xdp-ipv6"), REPLIES),
    known("/counters/received", "received", Kind::Counter, "Datagrams taken from the sockets"),
    labelled("/counters/expired", "unanswered", ("reason", "expired"), UNANSWERED),
    labelled("/counters/refused", "unanswered", ("reason", "refused"), UNANSWERED),
    labelled("/counters/dropped", "unanswered", ("reason", "dropped"), UNANSWERED),
    known("/counters/receive_errors", "receive_errors", Kind::Counter, "Receive calls that failed"),
    known("/counters/ignored", "ignored", Kind::Counter, "Datagrams ignored on purpose, by reason"),
    known(
        "/xdp_counters/passed",
        "xdp_passed",
        Kind::Counter,
        "Frames that XDP left to the sockets, by reason",
    ),
    known("/workers/received", "thread_received", Kind::Counter, "Datagrams taken by each thread"),
    known("/workers/answered", "thread_replies", Kind::Counter, "Replies sent by each thread"),
    known("/xdp_answered_by_core", "xdp_core_replies", Kind::Counter, "XDP's replies by core"),
    known("/uptime_s", "uptime_seconds", Kind::Gauge, "Time since the start"),
    known("/threads", "threads_per_address", Kind::Gauge, "Socket threads for each address"),
    known("/leap", "leap_indicator", Kind::Gauge, "Leap indicator; 3 is unsynchronised"),
    known("/stratum", "stratum", Kind::Gauge, "Stratum; 16 is unsynchronised"),
    known("/precision", "precision_log2_seconds", Kind::Gauge, "Precision, log2 of seconds"),
    known("/root_delay_ns", "root_delay_seconds", Kind::Seconds, "Delay to the reference clock"),
    known(
        "/root_dispersion_ns",
        "root_dispersion_seconds",
        Kind::Seconds,
        "Dispersion to the reference clock: the bound of the clock's error",
    ),
    known("/test_offset_ns", "test_offset_seconds", Kind::Seconds, "Offset served on purpose"),
    known("/test_drift_ppb", "test_drift_ppb", Kind::Gauge, "Drift served on purpose"),
    known("/synchronised", "synchronised", Kind::Gauge, "Whether the served time may be used"),
    known("/page_age_ns", "page_age_seconds", Kind::Seconds, "Age of the clock page"),
    known("/page_expired", "page_expired", Kind::Gauge, "Whether nothing is answered"),
    known("/clock/renewals", "clock_renewals", Kind::Counter, "Clock pages made"),
    known("/clock/publish_errors", "clock_publish_errors", Kind::Counter, "Pages not taken"),
    known(
        "/clock/gap_max_ns",
        "clock_gap_max_seconds",
        Kind::Seconds,
        "The longest time between two clock pages",
    ),
    known(
        "/clock/real_time",
        "clock_real_time",
        Kind::Gauge,
        "Whether the clock thread goes first",
    ),
    known("/clock/steps", "clock_steps", Kind::Counter, "Steps of the system clock"),
    known("/clock/last_step_ns", "clock_last_step_seconds", Kind::Seconds, "The last step"),
    known("/reload/done", "reloads", Kind::Counter, "Reloads that were done"),
    known("/reload/failed", "reloads_refused", Kind::Counter, "Reloads that were refused"),
    known("/resident_bytes", "resident_bytes", Kind::Gauge, "Memory resident"),
    known("/pid", "", Kind::Left, ""),
    // An identifier, not a quantity.
    known("/reference_id", "", Kind::Left, ""),
    known("/schema", "", Kind::Left, ""),
];

/// Objects whose keys are values of a label.
const KEYED: [(&str, &str); 2] =
    [("/counters/ignored", "reason"), ("/xdp_counters/passed", "reason")];
/// Lists whose indices are values of a label with a name of its own.
const INDEXED: [(&str, &str); 1] = [("/xdp_answered_by_core", "core")];
/// Numbers in lists of objects that tell the objects apart.
const DISTINGUISHING: [&str; 2] = ["thread", "core"];

/// The state as `OpenMetrics` text.
pub(super) fn text(status: &Value) -> String {
    let mut families = Families::default();
    families.walk("", status, &Vec::new());
    let mut registry = Registry::with_prefix("horolog");
    registry.register_collector(Box::new(families));
    let mut text = String::new();
    // Writing to memory does not fail.
    let _ = text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Family {
    kind: Kind,
    help: &'static str,
    samples: Vec<(Labels, f64)>,
}

#[derive(Debug, Default)]
struct Families(BTreeMap<String, Family>);

impl Families {
    fn walk(&mut self, path: &str, value: &Value, labels: &Labels) {
        match value {
            Value::Number(number) => self.sample(path, number.as_f64().unwrap_or(f64::NAN), labels),
            Value::Bool(yes) => self.sample(path, f64::from(u8::from(*yes)), labels),
            Value::Object(object) => {
                let keyed = KEYED.iter().find(|(keyed, _)| *keyed == path);
                for (key, value) in object {
                    match keyed {
                        Some((_, label)) => self.walk(path, value, &with(labels, label, key)),
                        None => self.walk(&format!("{path}/{key}"), value, labels),
                    }
                }
            }
            Value::Array(list) => {
                let name = INDEXED.iter().find(|(indexed, _)| *indexed == path);
                let name = name.map_or("index", |(_, name)| name);
                for (index, value) in list.iter().enumerate() {
                    match value {
                        Value::Object(object) => self.element(path, object, labels),
                        value => self.walk(path, value, &with(labels, name, &index.to_string())),
                    }
                }
            }
            Value::Null | Value::String(_) => {}
        }
    }

    /// One object of a list: its texts tell it apart from the others.
    fn element(&mut self, path: &str, object: &serde_json::Map<String, Value>, labels: &Labels) {
        let mut labels = labels.clone();
        let is_label =
            |key: &str, value: &Value| value.is_string() || DISTINGUISHING.contains(&key);
        for (key, value) in object.iter().filter(|(key, value)| is_label(key, value)) {
            let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            labels = with(&labels, key, &text);
        }
        for (key, value) in object.iter().filter(|(key, value)| !is_label(key, value)) {
            self.walk(&format!("{path}/{key}"), value, &labels);
        }
    }

    fn sample(&mut self, path: &str, value: f64, labels: &Labels) {
        let known = KNOWN.iter().find(|known| known.path == path);
        let (name, kind, help) = match known {
            Some(Known { kind: Kind::Left, .. }) => return,
            Some(known) => (known.name.to_owned(), known.kind, known.help),
            None => (of_path(path), Kind::Gauge, "See this field of horolog status"),
        };
        let mut labels = labels.clone();
        if let Some((key, value)) = known.and_then(|known| known.label) {
            labels = with(&labels, key, value);
        }
        let family = self.0.entry(name).or_insert(Family { kind, help, samples: Vec::new() });
        family.samples.push((labels, value));
    }
}

fn with(labels: &Labels, key: &str, value: &str) -> Labels {
    let more = (key.to_owned(), value.to_owned());
    labels.iter().cloned().chain([more]).collect()
}

/// A name of what the state calls it.
fn of_path(path: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    path.trim_start_matches('/').chars().map(plain).collect()
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, family) in &self.0 {
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn known_numbers_have_names_units_and_labels() {
        let text = text(&json!({
            "schema": "x", "pid": 7, "stratum": 2, "synchronised": true, "root_delay_ns": 1_500_000,
            "reference_id": [1, 2, 3, 4],
            "counters": { "answered": 5, "dropped": 1, "ignored": { "mode": 3, "length": 0 } },
            "xdp_counters": { "answered_ipv4": 9, "answered_ipv6": 1, "passed": { "length": 4 } },
            "workers": [{ "listen": "1.2.3.4:123", "thread": 0, "core": 1, "answered": 5 }],
            "xdp_answered_by_core": [6, 4],
        }));
        for line in [
            "# TYPE horolog_replies counter",
            "horolog_replies_total{engine=\"socket\"} 5",
            "horolog_replies_total{engine=\"xdp-ipv4\"} 9",
            "horolog_unanswered_total{reason=\"dropped\"} 1",
            "horolog_ignored_total{reason=\"mode\"} 3",
            "horolog_xdp_passed_total{reason=\"length\"} 4",
            "horolog_thread_replies_total{core=\"1\",listen=\"1.2.3.4:123\",thread=\"0\"} 5",
            "horolog_xdp_core_replies_total{core=\"1\"} 4",
            "horolog_root_delay_seconds 0.0015",
            "horolog_stratum 2.0",
            "horolog_synchronised 1.0",
            "# EOF",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not there:\n{text}");
        }
        assert_eq!(text.matches("# TYPE horolog_replies counter").count(), 1);
        assert!(!text.contains("pid") && !text.contains("reference_id"), "{text}");
    }

    #[test]
    fn what_is_not_known_here_is_exported_all_the_same() {
        let text = text(&json!({
            "nts": { "opened": 3 },
            "sources": [{ "name": "phc0", "offset_ns": -5 }],
            "labels": [{ "name": "a\"b\\c\nd", "n": 1 }],
        }));
        assert!(text.contains("\nhorolog_nts_opened 3.0\n"), "{text}");
        assert!(text.contains("horolog_sources_offset_ns{name=\"phc0\"} -5.0\n"), "{text}");
        assert!(
            text.lines().all(|line| line.starts_with(['#', 'h'])),
            "a label breaks out:\n{text}"
        );
    }
}
