//! Settings and capabilities of a NIC, with advice for serving or generating time traffic. All is
//! read from kernel and driver in the network namespace of the calling thread; nothing is set.

mod advice;
mod interrupts;

use std::fs;
use std::path::Path;

use horolog_record::{
    HOST_NIC_SCHEMA, Host, HostNicResult, NicCoalescing, NicDrops, NicOffload, NicQueues, NicRings,
    NicRssTable, NicTimestamps, NicXdpFacts, NicXdpFeature, NicXdpMode, UnavailableNicFact,
    rfc3339_now,
};
use horolog_sys::ethtool::{EthtoolError, NicQueueCounts, channels};
use horolog_sys::netlink::{Link, Netlink, NetlinkError, XdpAttachmentMode, xdp_features};
use horolog_sys::nic;

/// Offloads that affect time packets, by their ethtool names.
const OFFLOADS: [&str; 10] = [
    "rx-gro",
    "rx-gro-hw",
    "rx-gro-list",
    "rx-udp-gro-forwarding",
    "rx-lro",
    "tx-generic-segmentation",
    "tx-udp-segmentation",
    "tx-checksum-ip-generic",
    "rx-checksum",
    "rx-hashing",
];
/// Bits of `SOF_TIMESTAMPING_*`.
const TX_HARDWARE: u32 = 1 << 0;
const TX_SOFTWARE: u32 = 1 << 1;
const RX_HARDWARE: u32 = 1 << 2;
const RX_SOFTWARE: u32 = 1 << 3;
/// Names of the `HWTSTAMP_TX_*` and `HWTSTAMP_FILTER_*` values, in numerical order
/// (`linux/net_tstamp.h`).
const TRANSMIT_TYPES: [&str; 4] = ["off", "on", "onestep-sync", "onestep-p2p"];
const RECEIVE_FILTERS: [&str; 16] = [
    "none",
    "all",
    "some",
    "ptpv1-l4-event",
    "ptpv1-l4-sync",
    "ptpv1-l4-delay-req",
    "ptpv2-l4-event",
    "ptpv2-l4-sync",
    "ptpv2-l4-delay-req",
    "ptpv2-l2-event",
    "ptpv2-l2-sync",
    "ptpv2-l2-delay-req",
    "ptpv2-event",
    "ptpv2-sync",
    "ptpv2-delay-req",
    "ntp-all",
];
/// Bit numbers of `netdev_xdp_act` and the features that they stand for.
const XDP_FEATURE_BITS: [(u32, NicXdpFeature); 6] = [
    (0, NicXdpFeature::Native),
    (1, NicXdpFeature::Redirect),
    (2, NicXdpFeature::RedirectTarget),
    (3, NicXdpFeature::ZeroCopy),
    (4, NicXdpFeature::Offload),
    (5, NicXdpFeature::Fragments),
];

const QUEUES_MAX: u32 = 4_096;

/// Inspects an interface and returns its record, with the facts that could not be read and why.
///
/// # Errors
///
/// If there is no interface of this name, or the kernel cannot be queried.
pub fn inspect(interface: &str, command: Vec<String>) -> Result<HostNicResult, NetlinkError> {
    let mut netlink = Netlink::open()?;
    let link = netlink.link_by_name(interface)?;
    let mut result = empty_result(interface.to_owned(), command);
    set_link_facts(&mut result, &link);
    set_driver_facts(&mut result, interface);
    set_queue_facts(&mut result, interface, &link);
    let mut unavailable = Vec::new();
    let mut collector = UnavailableNicFactCollector(&mut unavailable);
    result.rings = collector.value_or_record("rings", nic::rings(interface)).map(|rings| {
        NicRings { rx: rings.rx, tx: rings.tx, rx_max: rings.rx_max, tx_max: rings.tx_max }
    });
    result.coalescing =
        collector.value_or_record("coalescing", nic::coalescing(interface)).map(nic_coalescing);
    let rss_table = match nic::rss_table(interface) {
        Ok(spreading) if spreading.table.is_empty() => Err("no table".to_owned()),
        spreading => spreading.map_err(|error| error.to_string()),
    };
    result.rss =
        collector.value_or_record("distribution (RSS)", rss_table).as_ref().map(nic_rss_table);
    result.timestamps = collector
        .value_or_record("timestamps", nic::timestamp_capability_bits(interface))
        .map(nic_timestamps);
    let features =
        collector.value_or_record("offloads", nic::features(interface)).unwrap_or_default();
    let matters = |feature: &nic::NicFeature| OFFLOADS.contains(&feature.name.as_str());
    let offloads = features.into_iter().filter(matters);
    result.offloads = offloads
        .map(|one| NicOffload { name: one.name, on: one.on, changeable: one.changeable })
        .collect();
    let attached = netlink.xdp_attachment(link.index);
    let can = collector.value_or_record("XDP features", xdp_features(link.index));
    result.xdp = NicXdpFacts {
        attached: attached.ok().flatten().map(xdp_mode),
        supported: can.map(nic_xdp_features),
    };
    result.unavailable.extend(unavailable);
    result.advice = advice::all_advice(&result);
    result.findings = advice::findings(&result);
    Ok(result)
}

/// Returns a result for an interface in which nothing has been read yet.
fn empty_result(interface: String, command: Vec<String>) -> HostNicResult {
    HostNicResult {
        schema: HOST_NIC_SCHEMA.to_owned(),
        started: rfc3339_now(),
        command,
        host: Host::read(),
        interface,
        kind: None,
        driver: None,
        firmware: None,
        bus: None,
        numa_node: None,
        operational: false,
        mtu: 0,
        speed_mbit_s: None,
        full_duplex: None,
        queues: NicQueues::default(),
        rss: None,
        interrupts: Vec::new(),
        rings: None,
        coalescing: None,
        offloads: Vec::new(),
        xdp: NicXdpFacts::default(),
        timestamps: None,
        drops: NicDrops::default(),
        unavailable: Vec::new(),
        advice: Vec::new(),
        findings: Vec::new(),
    }
}

/// Collector of the facts that could not be read.
struct UnavailableNicFactCollector<'a>(&'a mut Vec<UnavailableNicFact>);

impl UnavailableNicFactCollector<'_> {
    fn value_or_record<T, E: ToString>(&mut self, what: &str, result: Result<T, E>) -> Option<T> {
        result
            .map_err(|error| {
                self.0
                    .push(UnavailableNicFact { item: what.to_owned(), reason: error.to_string() });
            })
            .ok()
    }
}

fn set_link_facts(result: &mut HostNicResult, link: &Link) {
    result.kind.clone_from(&link.kind);
    result.operational = link.operational;
    result.mtu = link.mtu;
    let counters = link.counters;
    result.drops = NicDrops {
        rx_dropped: counters.rx_dropped,
        rx_missed: counters.rx_missed,
        rx_errors: counters.rx_errors,
        tx_dropped: counters.tx_dropped,
        tx_errors: counters.tx_errors,
    };
}

fn set_driver_facts(result: &mut HostNicResult, interface: &str) {
    let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let driver = nic::driver(interface).ok();
    if let Some(driver) = &driver {
        result.driver = filled(&driver.name);
        result.firmware = filled(&driver.firmware);
        result.bus = filled(&driver.bus);
    }
    let device = device_name(interface, result.bus.as_deref());
    if let Some(device) = &device {
        let node = Path::new("/sys/class/net").join(interface).join("device/numa_node");
        result.numa_node = read_number(&node);
        result.interrupts = interrupts::nic_interrupts(&[
            interface.to_owned(),
            device.clone(),
            result.bus.clone().unwrap_or_default(),
        ]);
    } else {
        let why = "no device of its own, or /sys shows another network namespace";
        result
            .unavailable
            .push(UnavailableNicFact { item: "interrupts".to_owned(), reason: why.to_owned() });
    }
    if let Ok(speed) = nic::speed(interface) {
        (result.speed_mbit_s, result.full_duplex) = (speed.mbit_s, speed.full_duplex);
    }
}

/// Returns the name of the interface's device in `/sys`, such as `virtio2`. `None` if its bus
/// address differs from `bus`: `/sys` may show an equally named interface of another network
/// namespace.
fn device_name(interface: &str, bus: Option<&str>) -> Option<String> {
    let bus = bus?;
    let link = fs::canonicalize(Path::new("/sys/class/net").join(interface).join("device")).ok()?;
    let is_of_bus = link.components().any(|part| part.as_os_str().to_str() == Some(bus));
    is_of_bus.then(|| link.file_name()?.to_str().map(str::to_owned)).flatten()
}

fn read_number(path: &Path) -> Option<u32> {
    // `None` for -1, which a host with one NUMA node reports.
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn set_queue_facts(result: &mut HostNicResult, interface: &str, link: &Link) {
    let allocated = NicQueues {
        rx: link.num_rx_queues,
        tx: link.num_tx_queues,
        rx_max: link.num_rx_queues,
        tx_max: link.num_tx_queues,
        combined: false,
    };
    result.queues = match channels(interface) {
        Ok(channels) => nic_queues(channels),
        Err(error) => {
            let unsupported = matches!(error, EthtoolError::Unsupported { .. });
            let why = if unsupported {
                "its driver does not report them; showing those that the kernel created".to_owned()
            } else {
                error.to_string()
            };
            result
                .unavailable
                .push(UnavailableNicFact { item: "queues in use".to_owned(), reason: why });
            allocated
        }
    };
}

const fn nic_queues(channels: NicQueueCounts) -> NicQueues {
    NicQueues {
        rx: channels.rx + channels.combined,
        tx: channels.tx + channels.combined,
        rx_max: channels.rx_max + channels.combined_max,
        tx_max: channels.tx_max + channels.combined_max,
        combined: channels.combined_max > 0,
    }
}

fn nic_coalescing(set: nic::InterruptCoalescing) -> NicCoalescing {
    NicCoalescing {
        rx_ns: u64::from(set.rx_us) * 1_000,
        rx_frames: set.rx_frames,
        tx_ns: u64::from(set.tx_us) * 1_000,
        tx_frames: set.tx_frames,
        adaptive_rx: set.adaptive_rx,
        adaptive_tx: set.adaptive_tx,
    }
}

fn nic_rss_table(spreading: &nic::RssTable) -> NicRssTable {
    // No driver has [`QUEUES_MAX`] queues; an entry with such a number or a higher one is corrupt.
    let possible = |queue: &&u32| **queue < QUEUES_MAX;
    let used = spreading.table.iter().filter(possible).max().map_or(0, |last| last + 1);
    let queues = used.max(spreading.queues.min(QUEUES_MAX));
    let of_queue = |queue: u32| spreading.table.iter().filter(|one| **one == queue).count() as u64;
    NicRssTable {
        entries: spreading.table.len(),
        entries_of_queues: (0..queues).map(of_queue).collect(),
        key_bytes: spreading.key_bytes,
    }
}

fn names_of_bits(bits: u32, names: &[&str]) -> Vec<String> {
    let is_set = |(bit, _): &(usize, &&str)| bits >> bit & 1 == 1;
    names.iter().enumerate().filter(is_set).map(|(_, name)| (*name).to_owned()).collect()
}

fn nic_timestamps(stamping: nic::TimestampCapabilityBits) -> NicTimestamps {
    let has = |bit| stamping.kinds & bit != 0;
    NicTimestamps {
        software_rx: has(RX_SOFTWARE),
        software_tx: has(TX_SOFTWARE),
        hardware_rx: has(RX_HARDWARE),
        hardware_tx: has(TX_HARDWARE),
        clock: stamping.clock.map(|number| format!("/dev/ptp{number}")),
        transmit_types: names_of_bits(stamping.transmit_types, &TRANSMIT_TYPES),
        receive_filters: names_of_bits(stamping.receive_filters, &RECEIVE_FILTERS),
    }
}

const fn xdp_mode(attachment: XdpAttachmentMode) -> NicXdpMode {
    match attachment {
        XdpAttachmentMode::Driver => NicXdpMode::Native,
        XdpAttachmentMode::Generic => NicXdpMode::Generic,
        XdpAttachmentMode::Hardware => NicXdpMode::Offloaded,
        XdpAttachmentMode::Several => NicXdpMode::Several,
    }
}

fn nic_xdp_features(features: horolog_sys::netlink::XdpFeatures) -> Vec<NicXdpFeature> {
    let able = XDP_FEATURE_BITS.iter().filter(|(bit, _)| features.acts >> bit & 1 == 1);
    let metadata = (features.metadata & 1 == 1).then_some(NicXdpFeature::TimestampMetadata);
    able.map(|(_, ability)| *ability).chain(metadata).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_reported_without_advice() {
        let result = inspect("lo", vec!["x".to_owned()]).unwrap();
        assert!(result.advice.is_empty() && result.interrupts.is_empty());
        let untold: Vec<_> = result.unavailable.iter().map(|one| one.item.as_str()).collect();
        for what in ["rings", "coalescing", "interrupts"] {
            assert!(untold.contains(&what), "{untold:?}");
        }
        let timestamps = result.timestamps.unwrap();
        assert!(timestamps.software_rx && !timestamps.hardware_tx && timestamps.clock.is_none());
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let error = inspect("no-such-if", Vec::new()).unwrap_err();
        assert!(error.to_string().contains("no-such-if"), "{error}");
    }

    #[test]
    fn bits_have_names() {
        assert_eq!(names_of_bits(0b110, &TRANSMIT_TYPES), ["on", "onestep-sync"]);
        assert_eq!(names_of_bits(1 << 15 | 1, &RECEIVE_FILTERS), ["none", "ntp-all"]);
    }

    #[test]
    fn a_table_is_counted_by_queue() {
        let table = vec![0, 1, 0, 3];
        let spreading = nic_rss_table(&nic::RssTable { queues: 2, table, key_bytes: 40 });
        assert_eq!((spreading.entries, spreading.entries_of_queues), (4, vec![2, 1, 0, 1]));
        let none = nic_rss_table(&nic::RssTable { queues: 1, table: Vec::new(), key_bytes: 0 });
        assert_eq!(none.entries_of_queues, [0]);
    }
}
