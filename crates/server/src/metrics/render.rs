//! A server's state as metrics: pure. Every number of the state becomes a sample; [`KNOWN`] gives
//! the names, units and kinds of those that are known here, and any other is exported under the
//! name that it has in the state, so that nothing is left out. Response times alone are a
//! histogram.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serde_json::Value;

use super::histogram::ResponseSeconds;

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

/// A metric: what it is, and which numbers of the state it is made of.
struct Known {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    of: Of,
}

/// Where the numbers of a metric stand in the state.
enum Of {
    /// One number, or all that stand under this.
    Path(&'static str),
    /// Several numbers in one object, told apart by a label: its name, the object, and each number
    /// with its value of the label.
    Labelled(&'static str, &'static str, &'static [(&'static str, &'static str)]),
}

impl Known {
    /// The metric of a number of the state, and its label if it has one.
    fn find(path: &str) -> Option<(&'static Self, Option<(&'static str, &'static str)>)> {
        KNOWN.iter().find_map(|known| match known.of {
            Of::Path(of) => (of == path).then_some((known, None)),
            Of::Labelled(label, object, numbers) => {
                let key = path.strip_prefix(object)?.strip_prefix('/')?;
                let (_, value) = numbers.iter().find(|(number, _)| *number == key)?;
                Some((known, Some((label, *value))))
            }
        })
    }
}

const fn counter(name: &'static str, path: &'static str, help: &'static str) -> Known {
    Known { name, kind: Kind::Counter, help, of: Of::Path(path) }
}

const fn gauge(name: &'static str, path: &'static str, help: &'static str) -> Known {
    Known { name, kind: Kind::Gauge, help, of: Of::Path(path) }
}

const fn seconds(name: &'static str, path: &'static str, help: &'static str) -> Known {
    Known { name, kind: Kind::Seconds, help, of: Of::Path(path) }
}

const fn left(path: &'static str) -> Known {
    Known { name: "", kind: Kind::Left, help: "", of: Of::Path(path) }
}

const fn labelled(
    name: &'static str,
    label: &'static str,
    object: &'static str,
    numbers: &'static [(&'static str, &'static str)],
    help: &'static str,
) -> Known {
    Known { name, kind: Kind::Counter, help, of: Of::Labelled(label, object, numbers) }
}

const REPLIES: &str = "Replies sent, by the body that made them";
const KINDS: &str = "Replies that were not plain, by kind";

const KNOWN: [Known; 55] = [
    labelled("replies", "engine", "/counters", &[("answered", "socket")], REPLIES),
    labelled(
        "replies",
        "engine",
        "/xdp_counters",
        &[("answered_ipv4", "xdp-ipv4"), ("answered_ipv6", "xdp-ipv6")],
        REPLIES,
    ),
    labelled(
        "kinds",
        "kind",
        "/counters",
        &[
            ("interleaved", "interleaved"),
            ("mac", "mac"),
            ("nts", "nts"),
            ("nts_kisses", "nts-kiss"),
        ],
        KINDS,
    ),
    labelled(
        "kinds",
        "kind",
        "/xdp_counters",
        &[("answered_interleaved", "xdp-interleaved")],
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
        "Requests that got no reply though they might have, by reason",
    ),
    labelled(
        "stamps",
        "of",
        "/counters",
        &[
            ("receive_kernel_stamps", "receive-kernel"),
            ("receive_hardware_stamps", "receive-hardware"),
            ("transmit_stamps_wanted", "transmit-wanted"),
            ("transmit_kernel_stamps", "transmit-kernel"),
            ("transmit_hardware_stamps", "transmit-hardware"),
        ],
        "Timestamps by whom took them, beside those that were wanted",
    ),
    counter("received", "/counters/received", "Datagrams taken from the sockets"),
    counter("receive_errors", "/counters/receive_errors", "Receive calls that failed"),
    counter("ignored", "/counters/ignored", "Datagrams ignored on purpose, by reason"),
    counter(
        "xdp_dropped",
        "/xdp_counters/dropped",
        "Requests dropped by limits and lists in XDP, by reason",
    ),
    counter("xdp_kisses", "/xdp_counters/kisses", "Kisses sent by XDP, by code"),
    counter("xdp_admitted", "/xdp_counters/admitted", "Requests let through by limits"),
    counter(
        "xdp_handed_over",
        "/xdp_counters/handed_over",
        "Requests that XDP gave to threads past the network stack",
    ),
    counter("xdp_passed", "/xdp_counters/passed", "Frames that XDP left to the sockets, by reason"),
    counter("thread_received", "/workers/received", "Datagrams taken by each thread"),
    counter("thread_replies", "/workers/answered", "Replies sent by each thread"),
    counter("xdp_core_replies", "/xdp_answered_by_core", "XDP's replies by core"),
    counter(
        "nts_ke",
        "/nts_ke/counters",
        "Connections for key establishment, by what became of them",
    ),
    gauge("nts_ke_open", "/nts_ke/counters/open", "Connections for key establishment at present"),
    gauge("uptime_seconds", "/uptime_s", "Time since the start"),
    gauge("threads_per_address", "/threads", "Socket threads for each address"),
    gauge("leap_indicator", "/leap", "Leap indicator; 3 is unsynchronised"),
    gauge("stratum", "/stratum", "Stratum; 16 is unsynchronised"),
    gauge("precision_log2_seconds", "/precision", "Precision, log2 of seconds"),
    seconds("root_delay_seconds", "/root_delay_ns", "Delay to the reference clock"),
    seconds(
        "root_dispersion_seconds",
        "/root_dispersion_ns",
        "Dispersion to the reference clock: the bound of the clock's error",
    ),
    seconds("test_offset_seconds", "/test_offset_ns", "Offset served on purpose"),
    gauge("test_drift_ppb", "/test_drift_ppb", "Drift served on purpose"),
    gauge("synchronised", "/synchronised", "Whether the served time may be used"),
    seconds("page_age_seconds", "/page_age_ns", "Age of the clock page"),
    gauge("page_expired", "/page_expired", "Whether nothing is answered"),
    counter("clock_renewals", "/clock/renewals", "Clock pages made"),
    counter("clock_publish_errors", "/clock/publish_errors", "Pages not taken"),
    seconds(
        "clock_gap_max_seconds",
        "/clock/gap_max_ns",
        "The longest time between two clock pages",
    ),
    gauge("clock_real_time", "/clock/real_time", "Whether the clock thread goes first"),
    counter("clock_steps", "/clock/steps", "Steps of the system clock"),
    seconds("clock_last_step_seconds", "/clock/last_step_ns", "The last step"),
    counter("reloads", "/reload/done", "Reloads that were done"),
    counter("reloads_refused", "/reload/failed", "Reloads that were refused"),
    seconds(
        "calibration_offset_seconds",
        "/calibration/offset_ns",
        "How far the system clock is ahead of UTC by the receiver",
    ),
    seconds(
        "calibration_uncertainty_seconds",
        "/calibration/uncertainty_ns",
        "Standard deviation of that, or without a pulse its bound",
    ),
    gauge(
        "calibration_frequency_ppb",
        "/calibration/frequency_ppb",
        "Frequency of the system clock without corrections",
    ),
    seconds("calibration_noise_seconds", "/calibration/noise_ns", "Noise of the pulses"),
    gauge(
        "calibration_allan_deviation_ppb",
        "/calibration/allan/deviation_ppb",
        "Allan deviation of the system clock, by averaging time",
    ),
    counter("calibration_pulses", "/calibration/pulses", "Pulses, by what became of them"),
    counter("calibration_sentences", "/calibration/sentences", "Sentences, likewise"),
    counter("calibration_steps", "/calibration/steps", "Steps that the calibration has made"),
    gauge("resident_bytes", "/resident_bytes", "Memory resident"),
    // Of `super::histogram`.
    left("/counters/response_times/bounds_ns"),
    left("/counters/response_times/counts"),
    left("/counters/response_times/sum_ns"),
    left("/pid"),
    // An identifier, not a quantity.
    left("/reference_id"),
    left("/schema"),
];

/// Objects whose keys are values of a label, but for those that are a metric of their own.
const KEYED: [(&str, &str); 7] = [
    ("/calibration/pulses", "verdict"),
    ("/calibration/sentences", "verdict"),
    ("/counters/ignored", "reason"),
    ("/xdp_counters/passed", "reason"),
    ("/xdp_counters/dropped", "reason"),
    ("/xdp_counters/kisses", "code"),
    ("/nts_ke/counters", "end"),
];
/// Lists whose indices are values of a label with a name of its own.
const INDEXED: [(&str, &str); 1] = [("/xdp_answered_by_core", "core")];
/// Numbers in lists of objects that tell the objects apart.
const DISTINGUISHING: [&str; 3] = ["thread", "core", "tau_s"];

/// The state as `OpenMetrics` text.
pub(super) fn text(status: &Value) -> String {
    let mut families = Families::default();
    families.walk("", status, &Vec::new());
    let mut registry = Registry::with_prefix("horolog");
    registry.register_collector(Box::new(families));
    if let Some(histogram) = ResponseSeconds::of(status) {
        registry.register_collector(Box::new(histogram));
    }
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
                    let inner = format!("{path}/{key}");
                    match keyed.filter(|_| Known::find(&inner).is_none()) {
                        Some((_, label)) => self.walk(path, value, &with(labels, label, key)),
                        None => self.walk(&inner, value, labels),
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
        let (name, kind, help, label) = match Known::find(path) {
            Some((Known { kind: Kind::Left, .. }, _)) => return,
            Some((known, label)) => (known.name.to_owned(), known.kind, known.help, label),
            None => (of_path(path), Kind::Gauge, "See this field of horolog status", None),
        };
        let labels = label.map_or_else(|| labels.clone(), |(key, value)| with(labels, key, value));
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
            "counters": { "answered": 5, "dropped": 1, "nts": 3, "ignored": { "mode": 3, "length": 0 } },
            "xdp_counters": {
                "answered_ipv4": 9, "answered_ipv6": 1, "answered_ptp": 3, "passed": { "length": 4 },
                "dropped": { "newcomers": 8 }, "kisses": { "rate": 2 },
            },
            "nts_ke": { "counters": { "established": 6, "open": 1 } },
            "workers": [{ "listen": "1.2.3.4:123", "thread": 0, "core": 1, "answered": 5 }],
            "xdp_answered_by_core": [6, 4],
            "calibration": {
                "offset_ns": -250, "state": "locked", "pulses": { "accepted": 7 },
                "allan": [{ "tau_s": 8, "deviation_ppb": 0.5 }],
            },
        }));
        for line in [
            "# TYPE horolog_replies counter",
            "horolog_replies_total{engine=\"socket\"} 5",
            "horolog_replies_total{engine=\"xdp-ipv4\"} 9",
            "horolog_ptp_replies_total{kind=\"delay\"} 3",
            "horolog_unanswered_total{reason=\"dropped\"} 1",
            "horolog_ignored_total{reason=\"mode\"} 3",
            "horolog_xdp_passed_total{reason=\"length\"} 4",
            "horolog_xdp_dropped_total{reason=\"newcomers\"} 8",
            "horolog_xdp_kisses_total{code=\"rate\"} 2",
            "horolog_kinds_total{kind=\"nts\"} 3",
            "horolog_nts_ke_total{end=\"established\"} 6",
            "horolog_nts_ke_open 1.0",
            "horolog_thread_replies_total{core=\"1\",listen=\"1.2.3.4:123\",thread=\"0\"} 5",
            "horolog_xdp_core_replies_total{core=\"1\"} 4",
            "horolog_root_delay_seconds 0.0015",
            "horolog_calibration_offset_seconds -2.5e-7",
            "horolog_calibration_pulses_total{verdict=\"accepted\"} 7",
            "horolog_calibration_allan_deviation_ppb{tau_s=\"8\"} 0.5",
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
