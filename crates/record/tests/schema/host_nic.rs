//! The result of a look at a network card against its golden file, and any that the types allow.

use horolog_record::{
    HOST_NIC_SCHEMA, HostNicResult, NicAdvice, NicCoalescing, NicDrops, NicInterrupt, NicOffload,
    NicQueues, NicRings, NicRss, NicTimestamps, NicUnavailable, NicXdp, NicXdpMode,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::choices::{NIC_PURPOSES, NIC_XDP_ABILITIES, NIC_XDP_MODES};
use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::strategies::{chosen, finding, host};

const NIC: &str = include_str!("host_nic.json");

pub(crate) fn result() -> impl Strategy<Value = HostNicResult> {
    let facts = (any::<[String; 2]>(), vec(any::<String>(), 0..3), host());
    let texts: [_; 4] = std::array::from_fn(|_| option::of(any::<String>()));
    let numbers = (option::of(any::<u32>()), any::<u32>(), option::of(any::<u32>()));
    let link = (texts, numbers, any::<bool>(), option::of(any::<bool>()));
    let queues = (queues(), option::of(spreading()), vec(interrupt(), 0..3));
    let packets = (option::of(rings()), option::of(coalescing()), vec(offload(), 0..3));
    let rest = (xdp(), option::of(timestamps()), drops());
    let conclusions = (vec(untold(), 0..3), vec(advice(), 0..3), vec(finding(), 0..3));
    (facts, link, queues, packets, rest, conclusions).prop_map(
        |(facts, link, queues, packets, rest, conclusions)| {
            let ([started, interface], command, host) = facts;
            let (texts, numbers, operational, full_duplex) = link;
            let [kind, driver, firmware, bus] = texts;
            let (numa_node, mtu, speed_mbit_s) = numbers;
            let ((queues, spreading, interrupts), (rings, coalescing, offloads)) =
                (queues, packets);
            let ((xdp, timestamps, drops), (untold, advice, findings)) = (rest, conclusions);
            HostNicResult {
                schema: HOST_NIC_SCHEMA.to_owned(),
                started,
                command,
                host,
                interface,
                kind,
                driver,
                firmware,
                bus,
                numa_node,
                operational,
                mtu,
                speed_mbit_s,
                full_duplex,
                queues,
                rss: spreading,
                interrupts,
                rings,
                coalescing,
                offloads,
                xdp,
                timestamps,
                drops,
                unavailable: untold,
                advice,
                findings,
            }
        },
    )
}

fn queues() -> impl Strategy<Value = NicQueues> {
    (any::<[u32; 4]>(), any::<bool>()).prop_map(|([rx, tx, rx_max, tx_max], combined)| NicQueues {
        rx,
        tx,
        rx_max,
        tx_max,
        combined,
    })
}

fn spreading() -> impl Strategy<Value = NicRss> {
    (any::<usize>(), vec(any::<u64>(), 0..3), any::<u32>()).prop_map(
        |(entries, entries_of_queues, key_bytes)| NicRss { entries, entries_of_queues, key_bytes },
    )
}

fn interrupt() -> impl Strategy<Value = NicInterrupt> {
    let cores = (option::of(any::<String>()), option::of(any::<String>()));
    (any::<u32>(), any::<String>(), any::<u64>(), cores).prop_map(
        |(number, name, count, (allowed_cores, effective_cores))| NicInterrupt {
            number,
            name,
            count,
            allowed_cores,
            effective_cores,
        },
    )
}

fn rings() -> impl Strategy<Value = NicRings> {
    any::<[u32; 4]>().prop_map(|[rx, tx, rx_max, tx_max]| NicRings { rx, tx, rx_max, tx_max })
}

fn coalescing() -> impl Strategy<Value = NicCoalescing> {
    (any::<[u64; 2]>(), any::<[u32; 2]>(), any::<[bool; 2]>()).prop_map(
        |([rx_ns, tx_ns], [rx_frames, tx_frames], [adaptive_rx, adaptive_tx])| NicCoalescing {
            rx_ns,
            rx_frames,
            tx_ns,
            tx_frames,
            adaptive_rx,
            adaptive_tx,
        },
    )
}

fn offload() -> impl Strategy<Value = NicOffload> {
    (any::<String>(), any::<[bool; 2]>()).prop_map(|(name, [on, changeable])| NicOffload {
        name,
        on,
        changeable,
    })
}

fn xdp() -> impl Strategy<Value = NicXdp> {
    let can = option::of(vec(chosen(NIC_XDP_ABILITIES), 0..3));
    (option::of(chosen(NIC_XDP_MODES)), can)
        .prop_map(|(attached, can)| NicXdp { attached, supported: can })
}

fn timestamps() -> impl Strategy<Value = NicTimestamps> {
    let lists = (vec(any::<String>(), 0..3), vec(any::<String>(), 0..3));
    (any::<[bool; 4]>(), option::of(any::<String>()), lists).prop_map(
        |(takers, clock, (transmit_types, receive_filters))| {
            let [software_rx, software_tx, hardware_rx, hardware_tx] = takers;
            NicTimestamps {
                software_rx,
                software_tx,
                hardware_rx,
                hardware_tx,
                clock,
                transmit_types,
                receive_filters,
            }
        },
    )
}

fn drops() -> impl Strategy<Value = NicDrops> {
    any::<[u64; 5]>().prop_map(|[rx_dropped, rx_missed, rx_errors, tx_dropped, tx_errors]| {
        NicDrops { rx_dropped, rx_missed, rx_errors, tx_dropped, tx_errors }
    })
}

fn untold() -> impl Strategy<Value = NicUnavailable> {
    any::<[String; 2]>().prop_map(|[what, why]| NicUnavailable { item: what, reason: why })
}

fn advice() -> impl Strategy<Value = NicAdvice> {
    (chosen(NIC_PURPOSES), any::<String>(), option::of(any::<String>()))
        .prop_map(|(purpose, text, command)| NicAdvice { purpose, text, command })
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: HostNicResult = read(NIC);
    assert_eq!(written(&result), NIC);
    assert_eq!(result.schema, HOST_NIC_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: HostNicResult = read(NIC);
    assert_eq!((result.queues.rx, result.queues.rx_max), (4, 8));
    assert_eq!(result.xdp.attached, Some(NicXdpMode::Native));
    assert_eq!((result.drops.rx_missed, result.drops.tx_errors), (2, 5));
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(NIC);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<HostNicResult>(file).unwrap(), read(NIC));
}

proptest! {
    #[test]
    fn any_result_is_the_same_after_it_was_written_and_read(result in result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<HostNicResult>(&text).unwrap(), result);
    }

    /// A field that is new is put into the golden file, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_file(result in result()) {
        prop_assert_eq!(new_names(&result, NIC), Vec::<String>::new());
    }
}
