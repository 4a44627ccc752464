//! Advice on NIC settings for serving or generating time traffic, from the record. Pure.

use horolog_record::{
    Finding, FindingCode, HostNicResult, NicRecommendation, NicUse, NicXdpFeature, NicXdpMode,
    Severity,
};

use crate::host::clock::finding;

/// Interrupt coalescing delay above which it is reported, in ns.
const COALESCING_DELAY_MAX_NS: u64 = 20_000;

/// Returns all recommendations; none for the loopback interface.
pub(super) fn all_advice(result: &HostNicResult) -> Vec<NicRecommendation> {
    if is_loopback(result) {
        return Vec::new();
    }
    let parts = [
        queue_advice(result),
        interrupt_advice(result),
        ring_advice(result),
        coalescing_advice(result),
    ];
    let more = [lro_advice(result), xdp_advice(result), timestamp_advice(result)];
    parts.into_iter().chain(more).flatten().collect()
}

pub(super) fn is_loopback(result: &HostNicResult) -> bool {
    result.interface == "lo"
}

fn recommendation(purpose: NicUse, text: String, command: Option<String>) -> NicRecommendation {
    NicRecommendation { purpose, text, command }
}

fn queue_advice(result: &HostNicResult) -> Option<NicRecommendation> {
    let (queues, cores) = (result.queues, u32::try_from(result.host.cores).unwrap_or(u32::MAX));
    let wanted = queues.rx_max.min(cores);
    let name = &result.interface;
    (queues.rx < wanted).then(|| {
        let count = if queues.combined {
            format!("combined {wanted}")
        } else {
            format!("rx {wanted} tx {}", queues.tx_max.min(cores))
        };
        recommendation(
            NicUse::Serving,
            format!(
                "Use {wanted} receive queues instead of {}, one for each core: a queue is served by \
                 one core at a time.",
                queues.rx
            ),
            Some(format!("ethtool -L {name} {count}")),
        )
    })
}

fn interrupt_advice(result: &HostNicResult) -> Option<NicRecommendation> {
    let busy: Vec<_> = result.interrupts.iter().filter(|one| one.count > 0).collect();
    let mut core_sets: Vec<_> =
        busy.iter().filter_map(|one| one.effective_cores.as_deref()).collect();
    let all = core_sets.len();
    core_sets.sort_unstable();
    core_sets.dedup();
    (all > 1 && core_sets.len() == 1 && result.host.cores > 1).then(|| {
        recommendation(
            NicUse::Serving,
            format!(
                "All {all} interrupts are handled by core {}: distribute them, one queue to a \
                 core, and exclude them from irqbalance.",
                core_sets[0]
            ),
            Some(format!("echo CORE >/proc/irq/{}/smp_affinity_list", busy[0].number)),
        )
    })
}

fn ring_advice(result: &HostNicResult) -> Option<NicRecommendation> {
    let rings = result.rings?;
    let lost = result.drops.rx_missed + result.drops.rx_dropped > 0;
    (rings.rx < rings.rx_max).then(|| {
        let why = if lost { "; packets have been dropped here" } else { "" };
        recommendation(
            NicUse::Serving,
            format!(
                "Set the receive ring to {} packets instead of {}, so that a burst is not \
                 lost{why}. Queued packets are delayed, not lost.",
                rings.rx_max, rings.rx
            ),
            Some(format!("ethtool -G {} rx {}", result.interface, rings.rx_max)),
        )
    })
}

fn coalescing_advice(result: &HostNicResult) -> Option<NicRecommendation> {
    let set = result.coalescing?;
    let waits = set.rx_ns > COALESCING_DELAY_MAX_NS || set.adaptive_rx;
    waits.then(|| {
        let adaptive = if set.adaptive_rx { " and adapts to the load" } else { "" };
        recommendation(
            NicUse::Accuracy,
            format!(
                "Interrupt delay is {} µs{adaptive}: kernel receive timestamps are late by as \
                 much. Disable coalescing for accurate timestamps; keep it for the highest request \
                 rate.",
                set.rx_ns / 1_000
            ),
            Some(format!("ethtool -C {} adaptive-rx off rx-usecs 0", result.interface)),
        )
    })
}

fn lro_advice(result: &HostNicResult) -> Option<NicRecommendation> {
    let lro = result.offloads.iter().find(|one| one.name == "rx-lro" && one.on && one.changeable);
    lro.map(|_| {
        recommendation(
            NicUse::Serving,
            "The NIC merges received packets (LRO): this prevents native XDP and delays packets."
                .to_owned(),
            Some(format!("ethtool -K {} lro off", result.interface)),
        )
    })
}

fn xdp_advice(result: &HostNicResult) -> Option<NicRecommendation> {
    if result.xdp.attached == Some(NicXdpMode::Generic) {
        return Some(recommendation(
            NicUse::Serving,
            "An XDP program is attached in generic mode, which costs a socket buffer for each \
             packet."
                .to_owned(),
            None,
        ));
    }
    let can = result.xdp.supported.as_ref()?;
    if can.contains(&NicXdpFeature::Native) {
        return None;
    }
    Some(recommendation(
        NicUse::Serving,
        "The driver does not support XDP: 'horolog serve' uses sockets here, and 'horolog load' \
         uses AF_PACKET."
            .to_owned(),
        None,
    ))
}

fn timestamp_advice(result: &HostNicResult) -> Option<NicRecommendation> {
    let supported = result.timestamps.as_ref()?;
    let (text, command) = if supported.hardware_rx && supported.hardware_tx {
        let receive = if supported.receive_filters.iter().any(|filter| filter == "all") {
            "of every packet"
        } else {
            "of PTP or NTP packets only"
        };
        let text = format!(
            "The NIC timestamps packets on transmission, and {receive} on reception: enable it in \
             server and client."
        );
        (text, Some("horolog serve --timestamps hardware".to_owned()))
    } else if supported.software_tx {
        let text = "No PHC on this interface: timestamps are the kernel's, late by interrupt and \
                    queueing delays. A NIC with a PHC takes tens of ns instead of µs.";
        (text.to_owned(), None)
    } else {
        let text = "The driver does not report transmission: transmit timestamps are taken in the \
                    send call.";
        (text.to_owned(), None)
    };
    Some(recommendation(NicUse::Accuracy, text, command))
}

/// Returns findings on dropped packets, link state and missing hardware timestamps.
pub(super) fn findings(result: &HostNicResult) -> Vec<Finding> {
    let mut findings = Vec::new();
    let drops = result.drops;
    if drops.rx_missed + drops.rx_dropped > 0 {
        findings.push(finding(
            FindingCode::NicDrops,
            Severity::Note,
            format!(
                "{} received packets were dropped since the interface was created ({} because its \
                 ring was full).",
                drops.rx_missed + drops.rx_dropped,
                drops.rx_missed
            ),
            "Check whether the count grows under load.",
        ));
    }
    if !result.operational && !is_loopback(result) {
        findings.push(finding(
            FindingCode::NicDown,
            Severity::Warning,
            format!("{} cannot pass packets: it is down or has no carrier.", result.interface),
            "Bring it up ('ip link set DEV up'); some drivers report less while it is down.",
        ));
    }
    let has_none = result.timestamps.as_ref().is_some_and(|one| !one.hardware_tx);
    if has_none {
        findings.push(finding(
            FindingCode::TimestampsMissing,
            Severity::Note,
            format!("{} has no hardware timestamps.", result.interface),
            "",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use horolog_record::{
        NicCoalescing, NicInterrupt, NicQueues, NicRings, NicTimestamps, NicXdpFacts,
    };

    use super::*;

    fn nic_result() -> HostNicResult {
        let mut result = super::super::empty_result("eth7".to_owned(), Vec::new());
        result.host.cores = 4;
        result.operational = true;
        result.queues = NicQueues { rx: 4, tx: 4, rx_max: 8, tx_max: 8, combined: true };
        result.rings = Some(NicRings { rx: 4_096, tx: 512, rx_max: 4_096, tx_max: 4_096 });
        result.xdp = NicXdpFacts { attached: None, supported: Some(vec![NicXdpFeature::Native]) };
        result
    }

    fn commands(result: &HostNicResult) -> Vec<String> {
        all_advice(result).into_iter().filter_map(|one| one.command).collect()
    }

    #[test]
    fn a_well_configured_nic_needs_no_change() {
        assert_eq!(all_advice(&nic_result()), []);
        assert_eq!(findings(&nic_result()), []);
    }

    #[test]
    fn a_setting_to_change_is_reported_with_its_command() {
        let mut result = nic_result();
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
    fn a_nic_with_a_phc_is_to_be_used() {
        let mut result = nic_result();
        let supported =
            NicTimestamps { hardware_rx: true, hardware_tx: true, ..Default::default() };
        result.timestamps =
            Some(NicTimestamps { receive_filters: vec!["all".into()], ..supported });
        assert_eq!(commands(&result), ["horolog serve --timestamps hardware"]);
        result.timestamps = Some(NicTimestamps { software_tx: true, ..Default::default() });
        assert!(all_advice(&result)[0].text.contains("No PHC"));
        assert_eq!(findings(&result)[0].code, FindingCode::TimestampsMissing);
    }

    #[test]
    fn drops_and_a_link_that_is_down_are_reported() {
        let mut result = nic_result();
        result.operational = false;
        result.drops.rx_missed = 3;
        let codes: Vec<_> = findings(&result).iter().map(|finding| finding.code).collect();
        assert_eq!(codes, [FindingCode::NicDrops, FindingCode::NicDown]);
    }
}
