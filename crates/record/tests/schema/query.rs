//! The result of a query against its golden file, and any that the types allow.

use std::net::IpAddr;

use horolog_record::{
    AllanDeviation, BestSample, Difference, Drift, ExactSummary, ExchangeSample, HardwareClock,
    NtsUse, QUERY_SCHEMA, QueryCounts, QueryEnd, QueryResult, ServerResult, ServerState,
    TimestampCounts,
};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::choices::{LEAP_STATES, QUERY_ENDS, REASONS, TIMESTAMP_SOURCES};
use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::strategies::{chosen, counted, finding, host, limit, number};

const QUERY: &str = include_str!("query.json");

fn query_result() -> impl Strategy<Value = QueryResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host());
    let settings = (any::<u8>(), any::<bool>(), any::<[u64; 3]>());
    let outcome = (vec(server(), 0..3), vec(difference(), 0..3));
    let judged = (vec(limit(), 0..3), vec(finding(), 0..3));
    (facts, settings, outcome, judged).prop_map(|(facts, settings, outcome, judged)| {
        let (started, command, host) = facts;
        let (ntp_version, interleaved, [count, interval_ns, reply_timeout_ns]) = settings;
        let ((servers, differences), (limits, findings)) = (outcome, judged);
        QueryResult {
            schema: QUERY_SCHEMA.to_owned(),
            started,
            command,
            host,
            ntp_version,
            interleaved,
            count,
            interval_ns,
            reply_timeout_ns,
            servers,
            differences,
            limits,
            findings,
        }
    })
}

fn server() -> impl Strategy<Value = ServerResult> {
    let named = (any::<String>(), option::of(any::<IpAddr>()), any::<u16>());
    let ways = (option::of(nts()), option::of(clock()), option::of(state()), option::of(end()));
    let counts = (counts(), timestamp_counts(), timestamp_counts());
    let figures = (option::of(figures()), option::of(figures()), option::of(figures()));
    let rest = (
        option::of(best()),
        option::of(number()),
        option::of(drift()),
        vec(allan(), 0..3),
        vec(sample(), 0..3),
    );
    (named, ways, counts, figures, rest).prop_map(|(named, ways, counts, figures, rest)| {
        let (name, address, port) = named;
        let (nts, hardware_clock, server_state, ended) = ways;
        let (counts, transmit_timestamps, receive_timestamps) = counts;
        let (offset_ns, delay_ns, dispersion_ns) = figures;
        let (best, jitter_ns, drift, allan, samples) = rest;
        ServerResult {
            name,
            address,
            port,
            nts,
            hardware_clock,
            server_state,
            counts,
            ended,
            transmit_timestamps,
            receive_timestamps,
            offset_ns,
            delay_ns,
            dispersion_ns,
            best,
            jitter_ns,
            drift,
            allan,
            samples,
        }
    })
}

fn timestamp_counts() -> impl Strategy<Value = TimestampCounts> {
    any::<[u64; 3]>().prop_map(|[hardware, kernel, user]| TimestampCounts {
        hardware,
        kernel,
        user,
    })
}

fn nts() -> impl Strategy<Value = NtsUse> {
    let texts = (any::<String>(), any::<String>(), any::<[Option<String>; 2]>());
    (texts, any::<[u64; 3]>()).prop_map(|((ke_server, algorithm, named), counts)| {
        let ([server, abandoned_algorithm], [ke_exchanges, renewals, renewals_failed]) =
            (named, counts);
        NtsUse {
            ke_server,
            algorithm,
            ke_exchanges,
            server,
            renewals,
            renewals_failed,
            abandoned_algorithm,
        }
    })
}

fn clock() -> impl Strategy<Value = HardwareClock> {
    (any::<String>(), any::<u32>(), any::<u64>()).prop_map(
        |(interface, clock, conversion_uncertainty_ns)| HardwareClock {
            interface,
            clock,
            conversion_uncertainty_ns,
        },
    )
}

fn state() -> impl Strategy<Value = ServerState> {
    let numbers = (any::<[u8; 2]>(), any::<[u64; 2]>(), any::<i8>());
    (chosen(LEAP_STATES), any::<String>(), numbers).prop_map(
        |(
            leap,
            reference_id,
            ([version, stratum], [root_delay_ns, root_dispersion_ns], precision),
        )| {
            ServerState {
                leap,
                version,
                stratum,
                reference_id,
                root_delay_ns,
                root_dispersion_ns,
                precision,
            }
        },
    )
}

fn end() -> impl Strategy<Value = QueryEnd> {
    (chosen(QUERY_ENDS), any::<String>()).prop_map(|(reason, message)| QueryEnd { reason, message })
}

fn counts() -> impl Strategy<Value = QueryCounts> {
    let kisses = btree_map(any::<String>(), any::<u64>(), 0..3);
    (any::<[u64; 9]>(), counted(REASONS), kisses).prop_map(|(counts, invalid, kisses)| {
        let [sent, received, lost, interleaved, unsynchronised, ..] = counts;
        let [.., duplicate, late, unreachable, refused] = counts;
        QueryCounts {
            sent,
            received,
            lost,
            interleaved,
            unsynchronised,
            duplicate,
            late,
            invalid,
            kisses,
            unreachable,
            refused,
        }
    })
}

pub(crate) fn figures() -> impl Strategy<Value = ExactSummary> {
    (any::<u64>(), [number(), number(), number()], any::<[i64; 7]>()).prop_map(
        |(count, [mean, stddev, rms], [min, p1, p5, p50, p95, p99, max])| ExactSummary {
            count,
            mean,
            stddev,
            rms,
            min,
            p1,
            p5,
            p50,
            p95,
            p99,
            max,
        },
    )
}

fn best() -> impl Strategy<Value = BestSample> {
    (any::<[i64; 2]>(), any::<[u64; 2]>()).prop_map(
        |([offset_ns, delay_ns], [dispersion_ns, bound_ns])| BestSample {
            offset_ns,
            delay_ns,
            dispersion_ns,
            bound_ns,
        },
    )
}

pub(crate) fn drift() -> impl Strategy<Value = Drift> {
    [number(), number(), number()].prop_map(|[ppm, error_ppm, residual_ns]| Drift {
        ppm,
        error_ppm,
        residual_ns,
    })
}

pub(crate) fn allan() -> impl Strategy<Value = AllanDeviation> {
    (number(), number(), any::<u64>()).prop_map(|(tau_s, deviation, terms)| AllanDeviation {
        tau_s,
        deviation,
        terms,
    })
}

fn sample() -> impl Strategy<Value = ExchangeSample> {
    let numbers = (any::<[u64; 2]>(), any::<[i64; 6]>());
    let kinds = (chosen(TIMESTAMP_SOURCES), chosen(TIMESTAMP_SOURCES), any::<bool>());
    (numbers, kinds).prop_map(|((whole, signed), (transmit, receive, interleaved))| {
        let [sequence, dispersion_ns] = whole;
        let [t1_ns, t2_ns, t3_ns, t4_ns, offset_ns, delay_ns] = signed;
        ExchangeSample {
            sequence,
            t1_ns,
            t2_ns,
            t3_ns,
            t4_ns,
            offset_ns,
            delay_ns,
            dispersion_ns,
            transmit,
            receive,
            interleaved,
        }
    })
}

fn difference() -> impl Strategy<Value = Difference> {
    let compared = (any::<usize>(), any::<usize>(), any::<bool>());
    (compared, any::<[u64; 2]>(), any::<i64>(), number()).prop_map(
        |((first, second, contradiction), [pairs, bound_ns], offset_ns, mean_ns)| Difference {
            first,
            second,
            pairs,
            offset_ns,
            bound_ns,
            mean_ns,
            contradiction,
        },
    )
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: QueryResult = read(QUERY);
    assert_eq!(written(&result), QUERY);
    assert_eq!(result.schema, QUERY_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: QueryResult = read(QUERY);
    let server = &result.servers[0];
    assert_eq!((server.counts.sent, server.counts.received, server.counts.lost), (12, 9, 3));
    let sample = &server.samples[0];
    assert_eq!((sample.t1_ns, sample.t2_ns), (1_000, 1_300));
    assert_eq!((sample.t3_ns, sample.t4_ns), (1_310, 1_100));
    // Equations (6) and (7).
    assert_eq!(sample.offset_ns, i64::midpoint(300, 210));
    assert_eq!((sample.delay_ns, sample.bound_ns()), (90, 51));
    let offset = server.offset_ns.unwrap();
    assert_eq!((offset.min, offset.p1, offset.p5, offset.p50), (240, 241, 243, 255));
    assert_eq!((offset.p95, offset.p99, offset.max), (270, 274, 276));
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(QUERY);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<QueryResult>(file).unwrap(), read(QUERY));
}

proptest! {
    #[test]
    fn any_result_is_the_same_after_it_was_written_and_read(result in query_result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<QueryResult>(&text).unwrap(), result);
    }

    /// A field that is new is put into the golden file, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_file(result in query_result()) {
        let new = new_names(&result, QUERY);
        // Kisses are named by whoever sends them.
        prop_assert!(new.iter().all(|name| name.starts_with(".servers.counts.kisses.")), "{:?}", new);
    }

    #[test]
    fn a_bound_never_fails(sample in sample()) {
        prop_assert!(sample.bound_ns() >= sample.dispersion_ns);
    }
}
