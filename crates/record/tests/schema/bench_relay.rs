//! The result of the experiment with a relay against its golden file, and any that the types allow.

use horolog_record::{
    BENCH_RELAY_SCHEMA, BenchRelayResult, RelayCell, RelayDirect, RelayEngine, RelayHalfRate,
    RelayRepetition,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::choices::{RELAY_ENGINES, SEARCH_ENDS};
use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::strategies::{chosen, distribution, finding, host, number};

const BENCH_RELAY: &str = include_str!("bench_relay.json");

fn result() -> impl Strategy<Value = BenchRelayResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host());
    let settings = (any::<u32>(), number(), any::<usize>());
    let measured = (vec(direct(), 0..3), vec(cell(), 0..3), vec(finding(), 0..3));
    (facts, settings, measured).prop_map(|(facts, settings, measured)| {
        let ((started, command, host), (rounds, loss_ratio, receivers)) = (facts, settings);
        let (direct, cells, findings) = measured;
        BenchRelayResult {
            schema: BENCH_RELAY_SCHEMA.to_owned(),
            started,
            command,
            host,
            repetitions: rounds,
            loss_ratio,
            receivers,
            direct,
            cells,
            findings,
        }
    })
}

fn direct() -> impl Strategy<Value = RelayDirect> {
    let costs = (option::of(number()), option::of(number()));
    (any::<[usize; 2]>(), number(), costs).prop_map(
        |([size_bytes, source_threads], rate, costs)| {
            let (receiving_frame_ns, receiving_socket_ns) = costs;
            RelayDirect {
                size_bytes,
                source_threads,
                rate,
                receiving_frame_ns,
                receiving_socket_ns,
            }
        },
    )
}

fn cell() -> impl Strategy<Value = RelayCell> {
    let what = (any::<[usize; 3]>(), chosen(RELAY_ENGINES), any::<u32>());
    let times = [(); 3].map(|()| option::of(distribution()));
    let measured = (vec(round(), 0..3), times);
    (what, vec(any::<String>(), 0..3), measured).prop_map(|(what, relay_command, measured)| {
        let ([size_bytes, children, source_threads], engine, batch) = what;
        let (rounds, [first_copy_ns, last_copy_ns, direct_ns]) = measured;
        RelayCell {
            size_bytes,
            children,
            engine,
            source_threads,
            batch,
            relay_command,
            repetitions: rounds,
            first_copy_ns,
            last_copy_ns,
            direct_ns,
        }
    })
}

fn round() -> impl Strategy<Value = RelayRepetition> {
    let half = (number(), any::<[u64; 2]>(), option::of(number()), option::of(number())).prop_map(
        |(rate, [copies, lost], cpu_ns_per_copy, receiving_ns_per_copy)| RelayHalfRate {
            rate,
            copies,
            lost,
            cpu_ns_per_copy,
            receiving_ns_per_copy,
        },
    );
    let rates = (number(), option::of(number()), option::of(number()));
    (rates, chosen(SEARCH_ENDS), any::<usize>(), any::<u64>(), option::of(half)).prop_map(
        |((copies_per_s, lower, upper), end, trials, disordered, half)| RelayRepetition {
            copies_per_s,
            lower,
            upper,
            end,
            trials,
            disordered,
            half_rate: half,
        },
    )
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: BenchRelayResult = read(BENCH_RELAY);
    assert_eq!(written(&result), BENCH_RELAY);
    assert_eq!(result.schema, BENCH_RELAY_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: BenchRelayResult = read(BENCH_RELAY);
    let cell = result.cell(64, 16, RelayEngine::Xdp).unwrap();
    assert_eq!(cell.copies_per_s(), Some(6_000_000.5));
    assert_eq!((cell.cpu_ns_per_copy(), cell.relay_ns_per_copy()), (Some(200.5), Some(140.5)));
    assert_eq!(cell.first_copy_ns.as_ref().unwrap().p50, 3_615);
    assert_eq!(result.direct[0].receiving_socket_ns, Some(250.5));
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(BENCH_RELAY);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<BenchRelayResult>(file).unwrap(), read(BENCH_RELAY));
}

proptest! {
    #[test]
    fn any_result_is_the_same_after_it_was_written_and_read(result in result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<BenchRelayResult>(&text).unwrap(), result);
    }

    /// A field that is new is put into the golden file, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_file(result in result()) {
        prop_assert_eq!(new_names(&result, BENCH_RELAY), Vec::<String>::new());
    }
}
