//! NIC: facts with their meaning, and recommended changes with their commands.

use horolog_record::{
    HostNicResult, NicCoalescing, NicInterrupt, NicRecommendation, NicTimestamps, NicUse,
    NicXdpFacts, NicXdpFeature, NicXdpMode,
};

use super::host_all::nic;
use crate::document::{
    BlockContent, DescribeResult, DocumentBlock, HeadlineMetric, ResultDocument, run_of,
};
use crate::facts::{FactGroup, HostFact, UNKNOWN, fact, listed};
use crate::html::escape::{each, text};
use crate::table::TableStyle;
use crate::table::grid::CellTone;
use crate::table::summary::wrapped;
use crate::units::{full_count, human_ns, sentence};

impl DescribeResult for HostNicResult {
    fn document(&self) -> ResultDocument<'_> {
        let (changes, remarks): (Vec<_>, Vec<_>) =
            self.advice.iter().partition(|one| one.command.is_some());
        let name = |style: &TableStyle| vec![CellTone::Strong.paint(&self.interface, style.colour)];
        let name = BlockContent::Custom(Box::new(name), String::new()).under("");
        let facts = groups(self).into_iter().map(|group| {
            let title = group.title;
            BlockContent::Facts(group).under(title)
        });
        ResultDocument {
            kind: "host nic",
            heading: format!("interface {}", self.interface),
            lead: format!("as reported by the driver and the kernel, {}", self.started),
            headline: HeadlineMetric {
                name: "Settings to change".to_owned(),
                value: Some(full_count(changes.len() as u64)),
                sentence: sentence(&nic(self)),
            },
            blocks: std::iter::once(name)
                .chain(facts)
                .chain([advice("Advice", changes), advice("Notes", remarks)])
                .collect(),
            method: "No settings were changed.",
            limits: &[],
            findings: &self.findings,
            run: run_of!(self),
        }
    }
}

/// Returns a block of recommendations, which a page shows before the facts.
fn advice<'a>(heading: &'static str, all: Vec<&'a NicRecommendation>) -> DocumentBlock<'a> {
    let items = each(&all, |one| {
        let command = each(&one.command, |command| {
            format!("<p class=\"advice\"><code>{}</code></p>", text(command))
        });
        format!("<li class=\"note\"><p>{}</p>{command}</li>\n", text(&change(one)))
    });
    let markup = if all.is_empty() {
        String::new()
    } else {
        format!("<ul class=\"findings\">\n{items}</ul>\n")
    };
    let lines = move |style: &TableStyle| {
        let heading = (!all.is_empty()).then(|| CellTone::Strong.paint(heading, style.colour));
        let changes = all.iter().flat_map(|one| {
            let mut lines = wrapped(&change(one), "  ", "    ", style);
            // Commands are not wrapped, so that they can be copied.
            lines.extend(one.command.iter().map(|command| format!("      {command}")));
            lines
        });
        heading.into_iter().chain(changes).collect()
    };
    BlockContent::Custom(Box::new(lines), markup).under(heading).first_on_page()
}

/// Returns all facts in groups, without empty groups.
fn groups(result: &HostNicResult) -> Vec<FactGroup> {
    let mut groups = vec![
        FactGroup { title: "NIC", facts: nic_facts(result) },
        FactGroup { title: "Queues and interrupts", facts: queues(result) },
        FactGroup { title: "Packet processing", facts: packets(result) },
        FactGroup { title: "Timestamps", facts: timestamps(result.timestamps.as_ref()) },
    ];
    let untold = result.unavailable.iter();
    let untold: Vec<_> = untold.map(|one| fact(&*one.item, "unavailable", &*one.reason)).collect();
    groups.push(FactGroup { title: "Unavailable", facts: untold });
    groups.retain(|group| !group.facts.is_empty());
    groups
}

fn or_unknown(text: Option<&String>) -> String {
    text.cloned().unwrap_or_else(|| UNKNOWN.to_owned())
}

fn nic_facts(result: &HostNicResult) -> Vec<HostFact> {
    let driver = match (&result.driver, &result.kind) {
        (Some(driver), Some(kind)) if driver != kind => format!("{driver} ({kind})"),
        (Some(driver), _) => driver.clone(),
        (None, Some(kind)) => kind.clone(),
        (None, None) => UNKNOWN.to_owned(),
    };
    let speed = result.speed_mbit_s.map_or_else(
        || UNKNOWN.to_owned(),
        |speed| {
            let duplex = if result.full_duplex == Some(false) { ", half duplex" } else { "" };
            format!("{} Mbit/s{duplex}", full_count(speed.into()))
        },
    );
    let node =
        result.numa_node.map_or_else(|| "one or unknown".to_owned(), |node| node.to_string());
    vec![
        fact("driver", driver, "determines the features"),
        fact("device", or_unknown(result.bus.as_ref()), "bus address; none if virtual"),
        fact("firmware", or_unknown(result.firmware.as_ref()), "firmware version"),
        fact("link", if result.operational { "up" } else { "down" }, "operational state"),
        fact("speed", speed, "at 1000 Mbit/s a packet of 90 bytes takes 0.9 µs on the wire"),
        fact("MTU", result.mtu.to_string(), "longer packets are fragmented"),
        fact("NUMA node", node, "its cores have the shortest path to the NIC"),
    ]
}

fn queues(result: &HostNicResult) -> Vec<HostFact> {
    let queues = result.queues;
    let kind = if queues.combined { "combined" } else { "separate" };
    let mut facts = vec![fact(
        "queues",
        format!(
            "RX {} of {}, TX {} of {}, {kind}",
            queues.rx, queues.rx_max, queues.tx, queues.tx_max
        ),
        "each queue is served by one core at a time: one queue uses one core",
    )];
    if let Some(spreading) = &result.rss {
        let shares: Vec<_> = spreading.entries_of_queues.iter().map(u64::to_string).collect();
        facts.push(fact(
            "RSS",
            format!("{} entries, by queue {}", spreading.entries, listed(&shares, "none")),
            format!(
                "a hash of addresses and ports selects the entry (key of {} bytes): a client \
                 stays on one queue, many clients are distributed",
                spreading.key_bytes
            ),
        ));
    }
    facts.extend(result.interrupts.iter().map(interrupt));
    facts
}

fn interrupt(interrupt: &NicInterrupt) -> HostFact {
    let allowed = or_unknown(interrupt.allowed_cores.as_ref());
    let effective = interrupt.effective_cores.clone().unwrap_or_else(|| allowed.clone());
    fact(
        format!("interrupt {}", interrupt.number),
        format!("{} to core {effective}, {} times", interrupt.name, full_count(interrupt.count)),
        format!("allowed cores {allowed}; {}", errand(&interrupt.name)),
    )
}

/// Returns the purpose of an interrupt, derived from its name: `virtio2-input.0`, `eth0-rx-1`,
/// `eth0-TxRx-0`, `virtio2-output.0`, `virtio2-config`.
fn errand(name: &str) -> &'static str {
    let name = name.to_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if has(&["config", "mgmt", "async", "misc", "adminq"]) {
        "reports the NIC state"
    } else if has(&["rx", "input", "comp"]) {
        "RX packets are received on its core"
    } else if has(&["tx", "output"]) {
        "transmit buffers are freed on its core"
    } else {
        "the work of the NIC is done on its core"
    }
}

fn packets(result: &HostNicResult) -> Vec<HostFact> {
    let mut facts = Vec::new();
    if let Some(rings) = result.rings {
        facts.push(fact(
            "rings",
            format!("RX {} of {}, TX {} of {}", rings.rx, rings.rx_max, rings.tx, rings.tx_max),
            "packets queued in the NIC; packets that find the ring full are lost",
        ));
    }
    facts.extend(result.coalescing.map(coalescing));
    let offload = |one: &horolog_record::NicOffload| {
        let fixed = if one.changeable { "" } else { " (fixed)" };
        format!("{} {}{fixed}", one.name, if one.on { "on" } else { "off" })
    };
    let offloads: Vec<_> = result.offloads.iter().map(offload).collect();
    facts.push(fact(
        "offloads",
        listed(&offloads, UNKNOWN),
        "aggregation (gro, lro) saves CPU on bulk data and can delay a packet; time packets are \
         too short to benefit",
    ));
    facts.extend(xdp(&result.xdp));
    let drops = result.drops;
    facts.push(fact(
        "dropped",
        format!(
            "RX {} ({} ring full), {} RX errors; TX {}",
            full_count(drops.rx_dropped.saturating_add(drops.rx_missed)),
            full_count(drops.rx_missed),
            full_count(drops.rx_errors),
            full_count(drops.tx_dropped.saturating_add(drops.tx_errors))
        ),
        "since the interface was created",
    ));
    facts
}

fn coalescing(set: NicCoalescing) -> HostFact {
    let one = |name, ns, frames, is_adaptive| {
        let adaptive = if is_adaptive { ", adaptive" } else { "" };
        format!("{name} {} or {frames} packets{adaptive}", human_ns(ns))
    };
    fact(
        "coalescing",
        format!(
            "{}; {}",
            one("RX", set.rx_ns, set.rx_frames, set.adaptive_rx),
            one("TX", set.tx_ns, set.tx_frames, set.adaptive_tx)
        ),
        "fewer interrupts at high packet rates, but kernel timestamps are late by up to this \
         time",
    )
}

fn xdp(xdp: &NicXdpFacts) -> [HostFact; 2] {
    let attached = match xdp.attached {
        None => "none",
        Some(NicXdpMode::Native) => "native (driver)",
        Some(NicXdpMode::Generic) => "generic (network stack)",
        Some(NicXdpMode::Offloaded) => "offloaded (NIC)",
        Some(NicXdpMode::Several) => "multiple modes",
    };
    let name = |ability: &NicXdpFeature| {
        match ability {
            NicXdpFeature::Native => "native programs",
            NicXdpFeature::Redirect => "redirect",
            NicXdpFeature::RedirectTarget => "redirect target",
            NicXdpFeature::ZeroCopy => "AF_XDP zero-copy",
            NicXdpFeature::Offload => "hardware offload",
            NicXdpFeature::Fragments => "multi-buffer",
            NicXdpFeature::TimestampMetadata => "hardware timestamps",
        }
        .to_owned()
    };
    let can = xdp.supported.as_ref().map(|can| can.iter().map(name).collect::<Vec<_>>());
    [
        fact(
            "XDP program",
            attached,
            "the program of 'horolog serve' answers before the network \
            stack",
        ),
        fact(
            "XDP features",
            can.map_or_else(|| UNKNOWN.to_owned(), |can| listed(&can, "none")),
            "without native programs the server uses the socket engine",
        ),
    ]
}

fn timestamps(timestamps: Option<&NicTimestamps>) -> Vec<HostFact> {
    let Some(timestamps) = timestamps else { return Vec::new() };
    let who = |software, hardware| match (software, hardware) {
        (_, true) => "NIC",
        (true, false) => "kernel",
        (false, false) => "none",
    };
    vec![
        fact(
            "timestamp source",
            format!(
                "RX: {}; TX: {}",
                who(timestamps.software_rx, timestamps.hardware_rx),
                who(timestamps.software_tx, timestamps.hardware_tx)
            ),
            "NIC: at the wire; kernel: after the RX interrupt and before the TX driver",
        ),
        fact(
            "PHC",
            timestamps.clock.clone().unwrap_or_else(|| "none".to_owned()),
            "hardware timestamps are by this clock, not the system clock",
        ),
        fact(
            "TX timestamps",
            listed(&timestamps.transmit_types, "none"),
            "supported types; onestep-sync writes the time into a PTP Sync",
        ),
        fact(
            "RX filters",
            listed(&timestamps.receive_filters, "none"),
            "'all' includes NTP; ptp filters timestamp only PTP packets",
        ),
    ]
}

/// Returns a change in words.
fn change(advice: &NicRecommendation) -> String {
    let purpose = match advice.purpose {
        NicUse::Serving => "for serving",
        NicUse::Loading => "for loading",
        NicUse::Accuracy => "for accuracy",
    };
    format!("{purpose}: {}", advice.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupt_purposes_follow_from_their_names() {
        for (name, word) in [
            ("virtio2-input.0", "RX"),
            ("eth0-TxRx-0", "RX"),
            ("mlx5_comp3@pci:0000:03:00.0", "RX"),
            ("virtio2-output.0", "freed"),
            ("virtio2-config", "state"),
            ("eth0", "work"),
        ] {
            assert!(errand(name).contains(word), "{name}: {}", errand(name));
        }
    }
}
