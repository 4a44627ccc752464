//! What to change of a card for serving or loading time, from its record. Pure.

use horolog_record::{
    Code, Finding, HostNicResult, NicAdvice, NicPurpose, NicXdpAbility, NicXdpMode, Severity,
};

use crate::host::clock::finding;

/// Interrupts that wait longer are told.
const WAIT_MAX_NS: u64 = 20_000;

/// Everything that is worth changing; nothing for an interface without a wire.
pub(super) fn all(result: &HostNicResult) -> Vec<NicAdvice> {
    if is_loopback(result) {
        return Vec::new();
    }
    let parts = [queues(result), interrupts(result), rings(result), coalescing(result)];
    let more = [merging(result), xdp(result), timestamps(result)];
    parts.into_iter().chain(more).flatten().collect()
}

pub(super) fn is_loopback(result: &HostNicResult) -> bool {
    result.interface == "lo"
}

fn advice(purpose: NicPurpose, text: String, command: Option<String>) -> NicAdvice {
    NicAdvice { purpose, text, command }
}

fn queues(result: &HostNicResult) -> Option<NicAdvice> {
    let (queues, cores) = (result.queues, u32::try_from(result.host.cores).unwrap_or(u32::MAX));
    let wanted = queues.rx_max.min(cores);
    let name = &result.interface;
    (queues.rx < wanted).then(|| {
        let count = if queues.combined {
            format!("combined {wanted}")
        } else {
            format!("rx {wanted} tx {}", queues.tx_max.min(cores))
        };
        advice(
            NicPurpose::Serving,
            format!(
                "Use {wanted} receive queues instead of {}, one for each core: a queue is served by \
                 one core at a time.",
                queues.rx
            ),
            Some(format!("ethtool -L {name} {count}")),
        )
    })
}

fn interrupts(result: &HostNicResult) -> Option<NicAdvice> {
    let busy: Vec<_> = result.interrupts.iter().filter(|one| one.count > 0).collect();
    let mut places: Vec<_> = busy.iter().filter_map(|one| one.effective_cores.as_deref()).collect();
    let all = places.len();
    places.sort_unstable();
    places.dedup();
    (all > 1 && places.len() == 1 && result.host.cores > 1).then(|| {
        advice(
            NicPurpose::Serving,
            format!(
                "All {all} interrupts go to core {}: spread them, one queue to a core, and keep \
                 irqbalance from moving them.",
                places[0]
            ),
            Some(format!("echo CORE >/proc/irq/{}/smp_affinity_list", busy[0].number)),
        )
    })
}

fn rings(result: &HostNicResult) -> Option<NicAdvice> {
    let rings = result.rings?;
    let lost = result.drops.rx_missed + result.drops.rx_dropped > 0;
    (rings.rx < rings.rx_max).then(|| {
        let why = if lost { "; packets were dropped here before" } else { "" };
        advice(
            NicPurpose::Serving,
            format!(
                "Let {} received packets wait instead of {}, so that a burst is not lost{why}. What \
                 waits is late, not lost.",
                rings.rx_max, rings.rx
            ),
            Some(format!("ethtool -G {} rx {}", result.interface, rings.rx_max)),
        )
    })
}

fn coalescing(result: &HostNicResult) -> Option<NicAdvice> {
    let set = result.coalescing?;
    let waits = set.rx_ns > WAIT_MAX_NS || set.adaptive_rx;
    waits.then(|| {
        let adaptive = if set.adaptive_rx { " and are set by the load" } else { "" };
        advice(
            NicPurpose::Accuracy,
            format!(
                "Interrupts wait {} µs{adaptive}: the kernel's receive timestamps are late by as \
                 much. At once is right for timestamps; for the most requests a second leave it.",
                set.rx_ns / 1_000
            ),
            Some(format!("ethtool -C {} adaptive-rx off rx-usecs 0", result.interface)),
        )
    })
}

fn merging(result: &HostNicResult) -> Option<NicAdvice> {
    let lro = result.offloads.iter().find(|one| one.name == "rx-lro" && one.on && one.changeable);
    lro.map(|_| {
        advice(
            NicPurpose::Serving,
            "The card merges received packets (LRO): native XDP refuses that, and it holds packets \
             back."
                .to_owned(),
            Some(format!("ethtool -K {} lro off", result.interface)),
        )
    })
}

fn xdp(result: &HostNicResult) -> Option<NicAdvice> {
    if result.xdp.attached == Some(NicXdpMode::Generic) {
        return Some(advice(
            NicPurpose::Serving,
            "An XDP program is attached behind the driver (generic mode), which costs a socket \
             buffer for each packet."
                .to_owned(),
            None,
        ));
    }
    let can = result.xdp.can.as_ref()?;
    if can.contains(&NicXdpAbility::Native) {
        return None;
    }
    Some(advice(
        NicPurpose::Serving,
        "The driver runs no XDP programs: 'horolog serve' answers by sockets here, and 'horolog \
         load' generates by AF_PACKET."
            .to_owned(),
        None,
    ))
}

fn timestamps(result: &HostNicResult) -> Option<NicAdvice> {
    let stamps = result.timestamps.as_ref()?;
    let (text, command) = if stamps.hardware_rx && stamps.hardware_tx {
        let receive = if stamps.receive_filters.iter().any(|filter| filter == "all") {
            "of every packet"
        } else {
            "of PTP or NTP packets alone"
        };
        let text = format!(
            "The card stamps what is sent, and {receive} received: let server and client use it."
        );
        (text, Some("horolog serve --timestamps hardware".to_owned()))
    } else if stamps.software_tx {
        let text = "No card's clock here: timestamps are the kernel's, late by interrupt and queue. \
                    A card with a PTP clock would take tens of ns instead of µs.";
        (text.to_owned(), None)
    } else {
        let text = "The driver does not even say when a packet leaves: transmit timestamps are \
                    those of the call that sends it.";
        (text.to_owned(), None)
    };
    Some(advice(NicPurpose::Accuracy, text, command))
}

/// The doubts.
pub(super) fn findings(result: &HostNicResult) -> Vec<Finding> {
    let mut findings = Vec::new();
    let drops = result.drops;
    if drops.rx_missed + drops.rx_dropped > 0 {
        findings.push(finding(
            Code::NicDrops,
            Severity::Note,
            format!(
                "{} received packets were dropped since the interface was made ({} because its ring \
                 was full).",
                drops.rx_missed + drops.rx_dropped,
                drops.rx_missed
            ),
            "Look whether the number grows while it is loaded.",
        ));
    }
    if !result.operational && !is_loopback(result) {
        findings.push(finding(
            Code::NicDown,
            Severity::Warning,
            format!("{} cannot pass packets now: it is down or has no carrier.", result.interface),
            "Set it up ('ip link set DEV up'); some drivers tell less while it is down.",
        ));
    }
    let has_none = result.timestamps.as_ref().is_some_and(|one| !one.hardware_tx);
    if has_none {
        findings.push(finding(
            Code::StampsMissing,
            Severity::Note,
            format!("{} has no hardware timestamps.", result.interface),
            "",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use horolog_record::{NicCoalescing, NicInterrupt, NicQueues, NicRings, NicTimestamps, NicXdp};

    use super::*;

    fn card() -> HostNicResult {
        let mut result = super::super::empty("eth7".to_owned(), Vec::new());
        result.host.cores = 4;
        result.operational = true;
        result.queues = NicQueues { rx: 4, tx: 4, rx_max: 8, tx_max: 8, combined: true };
        result.rings = Some(NicRings { rx: 4_096, tx: 512, rx_max: 4_096, tx_max: 4_096 });
        result.xdp = NicXdp { attached: None, can: Some(vec![NicXdpAbility::Native]) };
        result
    }

    fn commands(result: &HostNicResult) -> Vec<String> {
        all(result).into_iter().filter_map(|one| one.command).collect()
    }

    #[test]
    fn a_card_that_is_well_set_has_nothing_to_change() {
        assert_eq!(all(&card()), []);
        assert_eq!(findings(&card()), []);
    }

    #[test]
    fn what_is_to_be_changed_is_told_with_its_command() {
        let mut result = card();
        result.queues.rx = 1;
        result.rings = Some(NicRings { rx: 256, tx: 512, rx_max: 4_096, tx_max: 4_096 });
        result.coalescing = Some(NicCoalescing {
            rx_ns: 50_000,
            rx_frames: 0,
            tx_ns: 0,
            tx_frames: 0,
            adaptive_rx: true,
            adaptive_tx: false,
        });
        let interrupt = |number| NicInterrupt {
            number,
            name: "eth7".to_owned(),
            count: 5,
            allowed_cores: None,
            effective_cores: Some("2".to_owned()),
        };
        result.interrupts = vec![interrupt(30), interrupt(31)];
        assert_eq!(
            commands(&result),
            [
                "ethtool -L eth7 combined 4",
                "echo CORE >/proc/irq/30/smp_affinity_list",
                "ethtool -G eth7 rx 4096",
                "ethtool -C eth7 adaptive-rx off rx-usecs 0"
            ]
        );
    }

    #[test]
    fn a_card_with_a_clock_is_to_be_used() {
        let mut result = card();
        let stamps = NicTimestamps { hardware_rx: true, hardware_tx: true, ..Default::default() };
        result.timestamps = Some(NicTimestamps { receive_filters: vec!["all".into()], ..stamps });
        assert_eq!(commands(&result), ["horolog serve --timestamps hardware"]);
        result.timestamps = Some(NicTimestamps { software_tx: true, ..Default::default() });
        assert!(all(&result)[0].text.contains("No card's clock"));
        assert_eq!(findings(&result)[0].code, Code::StampsMissing);
    }

    #[test]
    fn drops_and_a_link_that_is_down_are_told() {
        let mut result = card();
        result.operational = false;
        result.drops.rx_missed = 3;
        let codes: Vec<_> = findings(&result).iter().map(|finding| finding.code).collect();
        assert_eq!(codes, [Code::NicDrops, Code::NicDown]);
    }
}
