//! The result of a run over a path against its golden file, and any that the types allow.

use std::net::IpAddr;

use horolog_record::{
    PATH_UDP_SCHEMA, PathCost, PathCounts, PathDirection, PathHostLosses, PathLoad, PathMode,
    PathProtocol, PathRow, PathTarget, PathUdpResult, RowEnd,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::choices::{PATH_MODES, PATH_PROTOCOLS, ROW_ENDS, TIMESTAMP_SOURCES};
use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::strategies::{chosen, distribution, finding, host, limit, number, signed};

const PATH: &str = include_str!("path_udp.json");

fn path_udp() -> impl Strategy<Value = PathUdpResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host(), target());
    let modes = (chosen(PATH_PROTOCOLS), chosen(PATH_MODES), chosen(TIMESTAMP_SOURCES));
    let settings = (any::<[u64; 4]>(), any::<[bool; 2]>(), any::<u8>(), [number(), number()]);
    let outcome = (vec(row(), 0..3), vec(limit(), 0..3), vec(finding(), 0..3));
    (facts, modes, settings, outcome).prop_map(|(facts, modes, settings, outcome)| {
        let (started, command, host, target) = facts;
        let (protocol, mode, timestamps) = modes;
        let ([flows, warm_up, reply_timeout_ns, load_length], flags, dscp, costs) = settings;
        let ([busy_polling, load_broadcast], [clock_reading_ns, bookkeeping_ns]) = (flags, costs);
        let (rows, limits, findings) = outcome;
        PathUdpResult {
            schema: PATH_UDP_SCHEMA.to_owned(),
            started,
            command,
            host,
            target,
            protocol,
            mode,
            flows,
            busy_polling,
            timestamps,
            dscp,
            warm_up,
            reply_timeout_ns,
            load_length,
            load_broadcast,
            cost: PathCost { clock_reading_ns, bookkeeping_ns },
            rows,
            limits,
            findings,
        }
    })
}

fn target() -> impl Strategy<Value = PathTarget> {
    (any::<String>(), any::<IpAddr>(), any::<u16>(), any::<(u64, bool)>(), option::of(any::<u64>()))
        .prop_map(|(name, address, port, (mtu, same_clock), clock_error_ns)| PathTarget {
            name,
            address,
            port,
            mtu,
            same_clock,
            clock_error_ns,
        })
}

fn row() -> impl Strategy<Value = PathRow> {
    let plan = (any::<[u64; 2]>(), [number(), number()], option::of(number()), load());
    let ways = (
        counts(),
        option::of(direction()),
        option::of(direction()),
        option::of(any::<[Option<u64>; 3]>()),
    );
    let times = (
        [option::of(distribution()), option::of(distribution()), option::of(distribution())],
        [option::of(distribution()), option::of(distribution()), option::of(distribution())],
        option::of(distribution()),
        [option::of(signed()), option::of(signed())],
    );
    let rest = (any::<[Option<u8>; 2]>(), option::of(chosen(ROW_ENDS)));
    (plan, ways, times, rest).prop_map(|(plan, ways, times, rest)| {
        let ([length, fragments], [duration_s, achieved_rate], planned_rate, load) = plan;
        let (counts, forward, backward, hosts) = ways;
        let host_losses = hosts.map(|[far_limited, far_dropped, near_dropped]| PathHostLosses {
            far_limited,
            far_dropped,
            near_dropped,
        });
        let (
            [rtt_ns, delay_ns, send_late_ns],
            [far_ns, host_send_ns, host_receive_ns],
            wire_ns,
            way,
        ) = times;
        let ([forward_ns, backward_ns], ([dscp_there, dscp_back], ended)) = (way, rest);
        PathRow {
            length,
            fragments,
            duration_s,
            intended_rate: planned_rate,
            achieved_rate,
            load,
            counts,
            forward,
            backward,
            host_losses,
            rtt_ns,
            delay_ns,
            send_late_ns,
            forward_ns,
            backward_ns,
            far_ns,
            host_send_ns,
            host_receive_ns,
            wire_ns,
            dscp_forward: dscp_there,
            dscp_backward: dscp_back,
            ended,
        }
    })
}

fn load() -> impl Strategy<Value = PathLoad> {
    ([number(), number()], any::<[u64; 2]>(), option::of(any::<u64>())).prop_map(
        |([planned_ratio, ratio], [sent, sent_in_all], arrived)| PathLoad {
            planned_ratio,
            ratio,
            sent,
            sent_in_all,
            arrived,
        },
    )
}

fn counts() -> impl Strategy<Value = PathCounts> {
    any::<[u64; 8]>().prop_map(
        |[sent, received, lost, late, duplicate, reordered, invalid, refused]| PathCounts {
            sent,
            received,
            lost,
            late,
            duplicate,
            reordered,
            invalid,
            refused,
        },
    )
}

fn direction() -> impl Strategy<Value = PathDirection> {
    any::<[u64; 3]>().prop_map(|[lost, duplicate, reordered]| PathDirection {
        lost,
        duplicate,
        reordered,
    })
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: PathUdpResult = read(PATH);
    assert_eq!(written(&result), PATH);
    assert_eq!(result.schema, PATH_UDP_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: PathUdpResult = read(PATH);
    assert_eq!((result.mode, result.protocol), (PathMode::OpenLoop, PathProtocol::Horolog));
    let row = &result.rows[0];
    assert_eq!((row.length, row.fragments, row.ended), (2_000, 2, Some(RowEnd::Vanished)));
    assert!((row.loss_ratio() - 0.01).abs() < 1e-12);
    assert!((row.order_ratio().unwrap() - (1.0 - 3.0 / 990.0)).abs() < 1e-12);
    let losses = row.losses().unwrap();
    assert_eq!((losses.far_limit, losses.far_socket, losses.path_forward), (3, 2, 2));
    assert_eq!((losses.near_socket, losses.path_backward), (1, 0), "no more than were lost");
    let empty = PathRow { counts: PathCounts::default(), ..row.clone() };
    assert_eq!((empty.loss_ratio(), empty.order_ratio()), (0.0, None));
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(PATH);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<PathUdpResult>(file).unwrap(), read(PATH));
}

proptest! {
    #[test]
    fn any_result_is_the_same_after_it_was_written_and_read(result in path_udp()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<PathUdpResult>(&text).unwrap(), result);
    }

    /// A field that is new is put into the golden file, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_file(result in path_udp()) {
        prop_assert_eq!(new_names(&result, PATH), Vec::<String>::new());
    }

    #[test]
    fn shares_never_fail(result in path_udp()) {
        for row in &result.rows {
            let shares = [Some(row.loss_ratio()), row.order_ratio()];
            prop_assert!(shares.into_iter().flatten().all(|share| (0.0..=1.0).contains(&share)));
        }
    }
}
