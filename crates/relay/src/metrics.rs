//! State of a relay as metrics, for `GET /metrics`: pure.

use std::collections::BTreeMap;
use std::fmt;

use horolog_http::HttpResponse;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;

use crate::RelayListing;
use crate::reason::{CopyDrop, PacketRefusal};

/// Returns the response to a request for `path`.
pub fn respond(path: &str, listing: impl FnOnce() -> RelayListing) -> HttpResponse {
    match path {
        "/metrics" => HttpResponse::open_metrics(render(&listing())),
        _ => HttpResponse::text(404, "not found: choose /metrics\n"),
    }
}

/// Renders the state as `OpenMetrics` text.
#[must_use]
pub fn render(listing: &RelayListing) -> String {
    let mut registry = Registry::with_prefix("horolog_relay");
    registry.register_collector(Box::new(RelayMetricFamilies::from_listing(listing)));
    let mut written = String::new();
    // Writing to memory does not fail.
    let _ = text::encode(&mut written, &registry);
    written
}

type Labels<'a> = &'a [(&'static str, &'a str)];

/// Samples of each counter, in the order of the counters' names.
#[derive(Debug, Default)]
struct RelayMetricFamilies(BTreeMap<&'static str, (&'static str, Vec<MetricSample>)>);

type MetricSample = (Vec<(&'static str, String)>, u64);

impl RelayMetricFamilies {
    fn from_listing(listing: &RelayListing) -> Self {
        let mut families = Self::default();
        families.add("receive_errors", "Failed receive calls", &[], listing.receive_errors);
        let refused = "Refused changes of the table";
        families.add("changes_refused", refused, &[], listing.changes_refused);
        for group in &listing.groups {
            let of_group = ("group", &*group.name);
            families.add("received", "Packets received", &[of_group], group.packets);
            families.add("received_bytes", "Payload bytes received", &[of_group], group.bytes);
            let dropped = group.socket_dropped.unwrap_or(0).into();
            let help = "Packets dropped at the full socket buffer";
            families.add("socket_dropped", help, &[of_group], dropped);
            // All reasons, also those at 0: the rise of a counter that begins with its first count
            // is invisible.
            for reason in PacketRefusal::ALL.map(PacketRefusal::name) {
                let count = group.refused.get(reason).copied().unwrap_or(0);
                let labels = [of_group, ("reason", reason)];
                families.add("refused", "Packets not relayed, by reason", &labels, count);
            }
            for child in &group.children {
                let address = child.address.to_string();
                let of_child = [of_group, ("child", &*address)];
                families.add("copies", "Copies sent", &of_child, child.packets);
                families.add(
                    "copied_bytes",
                    "Payload bytes of copies sent",
                    &of_child,
                    child.bytes,
                );
                for reason in CopyDrop::ALL.map(CopyDrop::name) {
                    let count = child.dropped.get(reason).copied().unwrap_or(0);
                    let labels = [of_group, ("child", &*address), ("reason", reason)];
                    families.add("dropped", "Copies not sent, by reason", &labels, count);
                }
            }
        }
        families
    }

    fn add(&mut self, name: &'static str, help: &'static str, labels: Labels<'_>, count: u64) {
        let labels = labels.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        self.0.entry(name).or_insert((help, Vec::new())).1.push((labels, count));
    }
}

impl Collector for RelayMetricFamilies {
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
