//! What the terminal and the page say alike of a network card: each fact with one line on what it
//! means, and what to change.

use horolog_record::{
    HostNicResult, NicAdvice, NicCoalescing, NicInterrupt, NicPurpose, NicTimestamps, NicXdp,
    NicXdpAbility, NicXdpMode,
};

use crate::facts::{Fact, FactGroup, UNKNOWN, fact, listed};
use crate::units::{full_count, human_ns};

/// What stands above the changes, and above what no command changes.
const CHANGES: &str = "What to change";
const REMARKS: &str = "What to know";

/// The changes, and what no command changes, each with what stands above it.
pub(crate) fn advice(result: &HostNicResult) -> [(&'static str, Vec<&NicAdvice>); 2] {
    let (changes, remarks) = result.advice.iter().partition(|one| one.command.is_some());
    [(CHANGES, changes), (REMARKS, remarks)]
}

/// All facts.
pub(crate) fn groups(result: &HostNicResult) -> Vec<FactGroup> {
    let mut groups = vec![
        FactGroup { title: "Card", facts: card(result) },
        FactGroup { title: "Queues and interrupts", facts: queues(result) },
        FactGroup { title: "Packets on their way", facts: packets(result) },
        FactGroup { title: "Timestamps", facts: timestamps(result.timestamps.as_ref()) },
    ];
    let untold = result.untold.iter();
    let untold: Vec<_> = untold.map(|one| fact(&*one.what, "not told", &*one.why)).collect();
    groups.push(FactGroup { title: "Not told", facts: untold });
    groups.retain(|group| !group.facts.is_empty());
    groups
}

fn or_unknown(text: Option<&String>) -> String {
    text.cloned().unwrap_or_else(|| UNKNOWN.to_owned())
}

fn card(result: &HostNicResult) -> Vec<Fact> {
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
        fact("driver", driver, "what it can do follows from this"),
        fact(
            "device",
            or_unknown(result.bus.as_ref()),
            "where the card is; virtual ones are nowhere",
        ),
        fact("firmware", or_unknown(result.firmware.as_ref()), "the card's own program"),
        fact("link", if result.operational { "up" } else { "down" }, "whether packets pass now"),
        fact("speed", speed, "at 1000 Mbit/s a packet of 90 bytes takes 0.9 µs on the wire"),
        fact("MTU", result.mtu.to_string(), "longer packets are fragmented"),
        fact("memory node", node, "threads on its cores reach the card's memory fastest"),
    ]
}

fn queues(result: &HostNicResult) -> Vec<Fact> {
    let queues = result.queues;
    let kind = if queues.combined { "combined" } else { "separate" };
    let mut facts = vec![fact(
        "queues",
        format!(
            "{} of {} to receive, {} of {} to send, {kind}",
            queues.rx, queues.rx_max, queues.tx, queues.tx_max
        ),
        "each is served by one core at a time: with one queue one core does all",
    )];
    if let Some(spreading) = &result.spreading {
        let shares: Vec<_> = spreading.entries_of_queues.iter().map(u64::to_string).collect();
        facts.push(fact(
            "spreading (RSS)",
            format!("{} entries, by queue {}", spreading.entries, listed(&shares, "none")),
            format!(
                "a hash of addresses and ports chooses the entry (key of {} bytes): one client stays \
                 on one queue, many spread",
                spreading.key_bytes
            ),
        ));
    }
    facts.extend(result.interrupts.iter().map(interrupt));
    facts
}

fn interrupt(interrupt: &NicInterrupt) -> Fact {
    let allowed = or_unknown(interrupt.allowed_cores.as_ref());
    let effective = interrupt.effective_cores.clone().unwrap_or_else(|| allowed.clone());
    fact(
        format!("interrupt {}", interrupt.number),
        format!(
            "{} to core {effective}, came {} times",
            interrupt.name,
            full_count(interrupt.count)
        ),
        format!("may go to cores {allowed}; {}", errand(&interrupt.name)),
    )
}

/// What is done where an interrupt goes, as far as drivers' names tell: `virtio2-input.0`,
/// `eth0-rx-1`, `eth0-TxRx-0`, `virtio2-output.0`, `virtio2-config`.
fn errand(name: &str) -> &'static str {
    let name = name.to_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if has(&["config", "mgmt", "async", "misc", "adminq"]) {
        "by it the card tells of its own state"
    } else if has(&["rx", "input", "comp"]) {
        "where it goes, packets are received"
    } else if has(&["tx", "output"]) {
        "where it goes, buffers of sent packets are freed"
    } else {
        "where it goes, the card's work is done"
    }
}

fn packets(result: &HostNicResult) -> Vec<Fact> {
    let mut facts = Vec::new();
    if let Some(rings) = result.rings {
        facts.push(fact(
            "rings",
            format!(
                "{} of {} to receive, {} of {} to send",
                rings.rx, rings.rx_max, rings.tx, rings.tx_max
            ),
            "packets that wait in the card; what finds the ring full is lost",
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
        "merging (gro, lro) spares work on bulk data and may hold a packet back; packets of time \
         are too short to gain",
    ));
    facts.extend(xdp(&result.xdp));
    let drops = result.drops;
    facts.push(fact(
        "dropped",
        format!(
            "{} received, of these {} for a full ring; {} bad; {} to send",
            full_count(drops.rx_dropped.saturating_add(drops.rx_missed)),
            full_count(drops.rx_missed),
            full_count(drops.rx_errors),
            full_count(drops.tx_dropped.saturating_add(drops.tx_errors))
        ),
        "since the interface was made",
    ));
    facts
}

fn coalescing(set: NicCoalescing) -> Fact {
    let one = |name, ns, frames, is_adaptive| {
        let adaptive = if is_adaptive { ", adaptive" } else { "" };
        format!("{name} {} or {frames} packets{adaptive}", human_ns(ns))
    };
    fact(
        "interrupts wait",
        format!(
            "{}; {}",
            one("received", set.rx_ns, set.rx_frames, set.adaptive_rx),
            one("sent", set.tx_ns, set.tx_frames, set.adaptive_tx)
        ),
        "fewer interrupts for many packets, against timestamps of the kernel that are late by as \
         much",
    )
}

fn xdp(xdp: &NicXdp) -> [Fact; 2] {
    let attached = match xdp.attached {
        None => "none",
        Some(NicXdpMode::Native) => "in the driver (native)",
        Some(NicXdpMode::Generic) => "behind the driver (generic)",
        Some(NicXdpMode::Offloaded) => "in the card",
        Some(NicXdpMode::Several) => "at several places",
    };
    let name = |ability: &NicXdpAbility| {
        match ability {
            NicXdpAbility::Native => "native programs",
            NicXdpAbility::Redirect => "redirecting",
            NicXdpAbility::RedirectTarget => "taking redirected packets",
            NicXdpAbility::ZeroCopy => "AF_XDP without copies",
            NicXdpAbility::Offload => "programs in the card",
            NicXdpAbility::Fragments => "packets in several buffers",
            NicXdpAbility::TimestampMetadata => "hardware timestamps in programs",
        }
        .to_owned()
    };
    let can = xdp.can.as_ref().map(|can| can.iter().map(name).collect::<Vec<_>>());
    [
        fact("XDP program", attached, "what 'horolog serve' attaches answers before the stack"),
        fact(
            "XDP abilities",
            can.map_or_else(|| UNKNOWN.to_owned(), |can| listed(&can, "none")),
            "without native programs the server answers by sockets",
        ),
    ]
}

fn timestamps(stamps: Option<&NicTimestamps>) -> Vec<Fact> {
    let Some(stamps) = stamps else { return Vec::new() };
    let who = |software, hardware| match (software, hardware) {
        (_, true) => "card",
        (true, false) => "kernel",
        (false, false) => "nobody",
    };
    vec![
        fact(
            "who stamps",
            format!(
                "received: {}; sent: {}",
                who(stamps.software_rx, stamps.hardware_rx),
                who(stamps.software_tx, stamps.hardware_tx)
            ),
            "the card at the wire, the kernel after the interrupt and before the driver",
        ),
        fact(
            "card's clock",
            stamps.clock.clone().unwrap_or_else(|| "none".to_owned()),
            "hardware timestamps are by this clock, not by the system's",
        ),
        fact(
            "stamps of sent",
            listed(&stamps.transmit_types, "none"),
            "what the card can stamp; onestep-sync writes the time into a PTP Sync",
        ),
        fact(
            "stamps of received",
            listed(&stamps.receive_filters, "none"),
            "'all' serves NTP too; ptp ones stamp PTP's packets alone",
        ),
    ]
}

/// A change in words.
pub(crate) fn change(advice: &NicAdvice) -> String {
    let purpose = match advice.purpose {
        NicPurpose::Serving => "for serving",
        NicPurpose::Loading => "for loading",
        NicPurpose::Accuracy => "for accuracy",
    };
    format!("{purpose}: {}", advice.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_for_what_their_names_say() {
        for (name, word) in [
            ("virtio2-input.0", "received"),
            ("eth0-TxRx-0", "received"),
            ("mlx5_comp3@pci:0000:03:00.0", "received"),
            ("virtio2-output.0", "freed"),
            ("virtio2-config", "state"),
            ("eth0", "work"),
        ] {
            assert!(errand(name).contains(word), "{name}: {}", errand(name));
        }
    }
}
