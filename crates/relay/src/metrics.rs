//! The state of a relay as metrics, for `GET /metrics`: pure.

use std::collections::BTreeMap;
use std::fmt;

use horolog_http::Answer;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;

use crate::Listing;
use crate::reason::{Drop, Refusal};

/// What is answered to a request for `path`.
pub fn answer(path: &str, listing: impl FnOnce() -> Listing) -> Answer {
    match path {
        "/metrics" => Answer::open_metrics(render(&listing())),
        _ => Answer::text(404, "there is /metrics\n"),
    }
}

/// The state as `OpenMetrics` text.
#[must_use]
pub fn render(listing: &Listing) -> String {
    let mut registry = Registry::with_prefix("horolog_relay");
    registry.register_collector(Box::new(Families::of(listing)));
    let mut written = String::new();
    // Writing to memory does not fail.
    let _ = text::encode(&mut written, &registry);
    written
}

type Labels<'a> = &'a [(&'static str, &'a str)];

/// The samples of each counter, in the order of the counters' names.
#[derive(Debug, Default)]
struct Families(BTreeMap<&'static str, (&'static str, Vec<Sample>)>);

type Sample = (Vec<(&'static str, String)>, u64);

impl Families {
    fn of(listing: &Listing) -> Self {
        let mut all = Self::default();
        all.add("receive_errors", "Receive calls that failed", &[], listing.receive_errors);
        let refused = "Changes of the table that were refused";
        all.add("changes_refused", refused, &[], listing.changes_refused);
        for group in &listing.groups {
            let of_group = ("group", &*group.name);
            all.add("received", "Packets received", &[of_group], group.packets);
            all.add("received_bytes", "Payload of these", &[of_group], group.bytes);
            let dropped = group.socket_dropped.unwrap_or(0).into();
            let full = "Packets that the kernel dropped before, for want of room";
            all.add("socket_dropped", full, &[of_group], dropped);
            // Of all reasons, those without any too: nobody can see the rise of a counter that
            // begins with its first count.
            for reason in Refusal::ALL.map(Refusal::name) {
                let count = group.refused.get(reason).copied().unwrap_or(0);
                let labels = [of_group, ("reason", reason)];
                all.add("refused", "Packets not relayed, by reason", &labels, count);
            }
            for child in &group.children {
                let address = child.address.to_string();
                let of_child = [of_group, ("child", &*address)];
                all.add("copies", "Copies sent", &of_child, child.packets);
                all.add("copied_bytes", "Payload of these", &of_child, child.bytes);
                for reason in Drop::ALL.map(Drop::name) {
                    let count = child.dropped.get(reason).copied().unwrap_or(0);
                    let labels = [of_group, ("child", &*address), ("reason", reason)];
                    all.add("dropped", "Copies not sent, by reason", &labels, count);
                }
            }
        }
        all
    }

    fn add(&mut self, name: &'static str, help: &'static str, labels: Labels<'_>, count: u64) {
        let labels = labels.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        self.0.entry(name).or_insert((help, Vec::new())).1.push((labels, count));
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, (help, samples)) in &self.0 {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (labels, count) in samples {
                let count = ConstCounter::new(*count);
                if labels.is_empty() {
                    count.encode(metric)?;
                    break;
                }
                count.encode(metric.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}
