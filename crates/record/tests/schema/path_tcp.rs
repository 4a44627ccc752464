//! The result of a measurement of TCP against its golden file, and any that the types allow.

use std::net::{IpAddr, SocketAddr};

use horolog_record::{
    PATH_TCP_SCHEMA, PathEnd, PathTcpResult, TcpBandwidth, TcpDirection, TcpFigures, TcpLatency,
    TcpSettings, TcpTarget, ZeroCopyCounts,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::choices::TCP_DIRECTIONS;
use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::strategies::{chosen, distribution, finding, host, limit, number};

const PATH_TCP: &str = include_str!("path_tcp.json");

fn result() -> impl Strategy<Value = PathTcpResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host(), target());
    let ends = (end(), option::of(end()), settings());
    let rows = (vec(latency(), 0..3), vec(bandwidth(), 0..3));
    let judged = (vec(limit(), 0..3), vec(finding(), 0..3));
    (facts, ends, rows, judged).prop_map(|(facts, ends, rows, judged)| {
        let ((started, command, host, target), (near, far, settings)) = (facts, ends);
        let ((latency, bandwidth), (limits, findings)) = (rows, judged);
        PathTcpResult {
            schema: PATH_TCP_SCHEMA.to_owned(),
            started,
            command,
            host,
            target,
            near,
            far,
            settings,
            latency,
            bandwidth,
            limits,
            findings,
        }
    })
}

pub(crate) fn target() -> impl Strategy<Value = TcpTarget> {
    (any::<IpAddr>(), any::<u16>(), option::of(any::<String>()))
        .prop_map(|(ip, port, name)| TcpTarget { address: SocketAddr::new(ip, port), name })
}

pub(crate) fn end() -> impl Strategy<Value = PathEnd> {
    let texts = proptest::array::uniform8(option::of(any::<String>()));
    (texts, any::<[Option<u64>; 2]>()).prop_map(|(texts, [cores, mtu])| {
        let [node, cpu, kernel, distribution, interface, nic, congestion_control, program] = texts;
        PathEnd {
            hostname: node,
            cpu,
            cores,
            kernel,
            distribution,
            interface,
            nic,
            mtu,
            congestion_control,
            program,
        }
    })
}

fn settings() -> impl Strategy<Value = TcpSettings> {
    any::<([bool; 4], u32, [u64; 2])>().prop_map(|(switches, connections, times)| {
        let ([no_delay, quick_ack, cork, zero_copy], [time_ns, warm_up_ns]) = (switches, times);
        TcpSettings { no_delay, quick_ack, cork, zero_copy, connections, time_ns, warm_up_ns }
    })
}

pub(crate) fn tcp() -> impl Strategy<Value = TcpFigures> {
    any::<[u64; 5]>().prop_map(|[cwnd, mss_bytes, rtt_ns, retransmitted, ato_ns]| TcpFigures {
        cwnd,
        mss_bytes,
        rtt_ns,
        retransmitted,
        ato_ns,
    })
}

fn latency() -> impl Strategy<Value = TcpLatency> {
    let measured = (option::of(distribution()), option::of(tcp()));
    (any::<[u64; 2]>(), measured).prop_map(|([size_bytes, round_trips], (rtt_ns, tcp))| {
        TcpLatency { size_bytes, round_trips, rtt_ns, tcp }
    })
}

fn bandwidth() -> impl Strategy<Value = TcpBandwidth> {
    let counts = any::<[u64; 2]>().prop_map(|[sends, copied]| ZeroCopyCounts { sends, copied });
    let kernel = (option::of(counts), option::of(tcp()));
    let rates = (number(), number());
    (any::<[u64; 3]>(), chosen(TCP_DIRECTIONS), rates, kernel).prop_map(
        |([size_bytes, received_bytes, duration_ns], direction, rates, (zero_copy, tcp))| {
            let (rate, message_rate) = rates;
            TcpBandwidth {
                size_bytes,
                direction,
                received_bytes,
                duration_ns,
                rate,
                message_rate,
                zero_copy,
                tcp,
            }
        },
    )
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: PathTcpResult = read(PATH_TCP);
    assert_eq!(written(&result), PATH_TCP);
    assert_eq!(result.schema, PATH_TCP_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: PathTcpResult = read(PATH_TCP);
    assert_eq!(result.latency[0].rtt_ns.as_ref().unwrap().p50, 3_615);
    assert_eq!(result.bandwidth[1].direction, TcpDirection::Backward);
    assert_eq!(result.bandwidth[0].zero_copy.unwrap().copied, 12);
    assert_eq!(result.target.address.port(), 8_625);
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(PATH_TCP);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<PathTcpResult>(file).unwrap(), read(PATH_TCP));
}

proptest! {
    #[test]
    fn any_result_is_the_same_after_it_was_written_and_read(result in result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<PathTcpResult>(&text).unwrap(), result);
    }

    /// A field that is new is put into the golden file, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_file(result in result()) {
        prop_assert_eq!(new_names(&result, PATH_TCP), Vec::<String>::new());
    }
}
