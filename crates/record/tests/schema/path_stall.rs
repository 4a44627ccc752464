//! The result of a search for stalls against its golden file, and any that the types allow.

use horolog_record::{
    AckDelays, DelayedAck, HoldSamples, Mechanism, PATH_STALL_SCHEMA, PathStallResult, StallCell,
    StallClaim, StallKernel, StallPattern, StallWatch, WatchedConnection, WindowStep,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::choices::{MECHANISMS, SOCKET_OPTIONS, STALL_EVIDENCE, STALL_PATTERNS};
use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::path_tcp::{end, target, tcp};
use crate::strategies::{chosen, distribution, finding, host, limit};

const PATH_STALL: &str = include_str!("path_stall.json");

fn result() -> impl Strategy<Value = PathStallResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host(), option::of(target()));
    let ends = (end(), option::of(end()), kernel(), chosen(STALL_EVIDENCE), any::<u64>());
    let found = (vec(cell(), 0..3), vec(window(), 0..3), vec(claim(), 0..3), option::of(watched()));
    let judged = (vec(limit(), 0..3), vec(finding(), 0..3));
    (facts, ends, found, judged).prop_map(|(facts, ends, found, judged)| {
        let (started, command, host, target) = facts;
        let (near, far, kernel, evidence, stall_min_ns) = ends;
        let ((cells, window, claims, watched), (limits, findings)) = (found, judged);
        PathStallResult {
            schema: PATH_STALL_SCHEMA.to_owned(),
            started,
            command,
            host,
            target,
            near,
            far,
            kernel,
            evidence,
            stall_min_ns,
            cells,
            window,
            claims,
            watched,
            limits,
            findings,
        }
    })
}

fn kernel() -> impl Strategy<Value = StallKernel> {
    any::<([Option<u64>; 7], [Option<bool>; 3])>().prop_map(|(numbers, switches)| {
        let [hz, delayed_ack_min_ns, tcp_delack_min, delayed_ack_max_ns, pingpong_thresh, ..] =
            numbers;
        let [.., route_rto_min_ns, route_initial_cwnd] = numbers;
        let [slow_start_after_idle, autocorking, route_quick_ack] = switches;
        StallKernel {
            hz,
            delayed_ack_min_ns,
            tcp_delack_min,
            delayed_ack_max_ns,
            slow_start_after_idle,
            pingpong_thresh,
            autocorking,
            route_rto_min_ns,
            route_quick_ack,
            route_initial_cwnd,
        }
    })
}

fn cell() -> impl Strategy<Value = StallCell> {
    let what = (chosen(STALL_PATTERNS), chosen(SOCKET_OPTIONS), any::<u32>(), any::<[u64; 4]>());
    let times = (any::<[Option<u64>; 2]>(), option::of(distribution()), any::<Option<u32>>());
    let held = (option::of(chosen(MECHANISMS)), any::<[u64; 4]>());
    let tcp_facts = (option::of(tcp()), option::of(tcp()), option::of(acks()));
    (what, times, held, tcp_facts).prop_map(|(what, times, held, tcp_facts)| {
        let (pattern, option, writes, [write_bytes, exchanges, stalled, in_band]) = what;
        let ([first_ns, service_max_ns], exchange_ns, stalled_read) = times;
        let (mechanism, [nagle, window, cork, delivered]) = held;
        let (near_tcp, far_tcp, acks) = tcp_facts;
        StallCell {
            pattern,
            writes,
            write_bytes,
            option,
            exchanges,
            first_ns,
            exchange_ns,
            stalled,
            in_band,
            stalled_read,
            mechanism,
            held: HoldSamples { nagle, window, cork, delivered },
            service_max_ns,
            near_tcp,
            far_tcp,
            acks,
        }
    })
}

fn acks() -> impl Strategy<Value = AckDelays> {
    let delay = any::<[u64; 3]>().prop_map(|[min, p50, max]| DelayedAck { min, p50, max });
    (any::<[u64; 3]>(), option::of(delay)).prop_map(|([pure, delayed, released], delay_ns)| {
        AckDelays { pure, delayed, delay_ns, released }
    })
}

fn window() -> impl Strategy<Value = WindowStep> {
    any::<([u64; 3], bool)>().prop_map(|([sent_bytes, cwnd, exchange_ns], after_pause)| {
        WindowStep { sent_bytes, after_pause, cwnd, exchange_ns }
    })
}

fn claim() -> impl Strategy<Value = StallClaim> {
    any::<([String; 3], Option<bool>)>().prop_map(|([id, statement, figure], held)| StallClaim {
        id,
        statement,
        holds: held,
        evidence: figure,
    })
}

fn watched() -> impl Strategy<Value = StallWatch> {
    (any::<(u16, [u64; 3])>(), vec(connection(), 0..3)).prop_map(|((port, counts), connections)| {
        let [duration_ns, connections_missed, packets_dropped] = counts;
        StallWatch {
            port,
            duration_ns,
            connections,
            connections_untracked: connections_missed,
            packets_dropped,
        }
    })
}

fn connection() -> impl Strategy<Value = WatchedConnection> {
    let counts = any::<([String; 2], Option<u64>, [u64; 3])>();
    let stalls = (option::of(distribution()), option::of(chosen(MECHANISMS)), option::of(acks()));
    (counts, stalls).prop_map(|(([server, client], answers, counts), stalls)| {
        let ([client_stalls, server_stalls, in_band], (stall_ns, mechanism, acks)) =
            (counts, stalls);
        WatchedConnection {
            server,
            client,
            answers,
            client_stalls,
            server_stalls,
            stall_ns,
            in_band,
            mechanism,
            acks,
        }
    })
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: PathStallResult = read(PATH_STALL);
    assert_eq!(written(&result), PATH_STALL);
    assert_eq!(result.schema, PATH_STALL_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: PathStallResult = read(PATH_STALL);
    let cell = &result.cells[0];
    assert_eq!((cell.pattern, cell.writes, cell.stalled), (StallPattern::Batch, 3, 9));
    assert_eq!(cell.mechanism, Some(Mechanism::NagleDelayedAck));
    assert_eq!((cell.held.nagle, cell.acks.as_ref().unwrap().released), (80, 9));
    assert_eq!(result.claims[1].holds, None);
    assert_eq!(result.watched.unwrap().connections[0].client_stalls, 40);
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(PATH_STALL);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<PathStallResult>(file).unwrap(), read(PATH_STALL));
}

proptest! {
    #[test]
    fn any_result_is_the_same_after_it_was_written_and_read(result in result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<PathStallResult>(&text).unwrap(), result);
    }

    /// A field that is new is put into the golden file, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_file(result in result()) {
        prop_assert_eq!(new_names(&result, PATH_STALL), Vec::<String>::new());
    }
}
