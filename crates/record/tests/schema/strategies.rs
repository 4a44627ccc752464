//! Any result that the types allow, for tests over all of them. Numbers are finite, as JSON's are.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::IpAddr;

use horolog_record::{
    BENCH_CORES_SCHEMA, BENCH_NTS_SCHEMA, BenchCoresResult, BenchNtsResult, CaptureCheck,
    ClassCounts, CompliantClients, CoresColumn, CoresPoint, CoresRepetition, DEMO_SCHEMA,
    DemoCandidate, DemoResult, Distribution, Fairness, Finding, Host, LOAD_SCHEMA, LimitResult,
    LoadResult, MixPartResult, NtsCapacity, OffsetMethod, Outage, Overload, Percentiles, Point,
    Responses, SearchResult, Series, SignedDistribution, Target, Trial,
};
use proptest::collection::{btree_map, vec};
use proptest::num::f64::{NEGATIVE, NORMAL, POSITIVE, SUBNORMAL, ZERO};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::choices::{
    CODES, Choices, ENGINES, LIMIT_UNITS, LOSS_LOCATIONS, MODES, REASONS, SEARCH_ENDS,
    SEARCH_KINDS, SEVERITIES, SPACINGS,
};

pub(crate) fn load_result() -> impl Strategy<Value = LoadResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host(), target());
    let settings = (chosen(MODES), chosen(ENGINES), any::<usize>(), chosen(SPACINGS), any::<u64>());
    let outcome = (option::of(search()), vec(limit(), 0..3), vec(finding(), 0..3));
    let outcome = (option::of(offset()), vec(trial(), 0..3), outcome);
    let timeline = (option::of(series()), vec(outage(), 0..3), option::of(overload()));
    (facts, settings, outcome, timeline).prop_map(|(facts, settings, outcome, timeline)| {
        let (started, command, host, target) = facts;
        let (mode, engine, threads, spacing, reply_timeout_ns) = settings;
        let (offset, trials, (search, limits, findings)) = outcome;
        let (series, outages, overload) = timeline;
        LoadResult {
            schema: LOAD_SCHEMA.to_owned(),
            started,
            command,
            host,
            target,
            mode,
            engine,
            threads,
            spacing,
            reply_timeout_ns,
            offset,
            trials,
            search,
            series,
            outages,
            overload,
            limits,
            findings,
        }
    })
}

pub(crate) fn demo_result() -> impl Strategy<Value = DemoResult> {
    let candidate = (any::<String>(), vec(any::<String>(), 0..3), load_result())
        .prop_map(|(label, server_command, load)| DemoCandidate { label, server_command, load });
    let command = vec(any::<String>(), 0..3);
    (any::<String>(), command, host(), vec(candidate, 0..3), vec(finding(), 0..3)).prop_map(
        |(started, command, host, candidates, findings)| DemoResult {
            schema: DEMO_SCHEMA.to_owned(),
            started,
            command,
            host,
            candidates,
            findings,
        },
    )
}

pub(crate) fn bench_nts_result() -> impl Strategy<Value = BenchNtsResult> {
    let server = (any::<usize>(), any::<u8>(), vec(any::<String>(), 0..3), option::of(number()));
    let capacity = (server, load_result()).prop_map(|(server, load)| {
        let (threads, authenticated_percent, server_command, cpu_ns_per_reply) = server;
        NtsCapacity { threads, authenticated_percent, server_command, cpu_ns_per_reply, load }
    });
    let command = vec(any::<String>(), 0..3);
    (any::<String>(), command, host(), vec(capacity, 0..3), vec(finding(), 0..3)).prop_map(
        |(started, command, host, capacities, findings)| BenchNtsResult {
            schema: BENCH_NTS_SCHEMA.to_owned(),
            started,
            command,
            host,
            capacities,
            findings,
        },
    )
}

pub(crate) fn bench_cores_result() -> impl Strategy<Value = BenchCoresResult> {
    let run = (any::<[u64; 2]>(), number(), number()).prop_map(
        |([sent, received], achieved_rate, responses_per_s)| CoresRepetition {
            sent,
            achieved_rate,
            received,
            responses_per_s,
        },
    );
    let point = (number(), any::<bool>(), vec(run, 0..3))
        .prop_map(|(rate, saturated, runs)| CoresPoint { rate, saturated, runs });
    let column = (any::<usize>(), vec(any::<String>(), 0..3), vec(point, 0..3))
        .prop_map(|(cores, server_command, points)| CoresColumn { cores, server_command, points });
    let capture =
        option::of(any::<[u64; 3]>().prop_map(|[counted, captured, dropped]| CaptureCheck {
            counted,
            captured,
            dropped,
        }));
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host());
    let outcome = (vec(column, 0..3), capture, vec(finding(), 0..3));
    (facts, option::of(chosen(ENGINES)), number(), outcome).prop_map(
        |((started, command, host), engine, required_rate, (columns, capture, findings))| {
            BenchCoresResult {
                schema: BENCH_CORES_SCHEMA.to_owned(),
                started,
                command,
                host,
                engine,
                required_rate,
                columns,
                capture,
                findings,
            }
        },
    )
}

/// Trials without parts, or with one or two that have none.
pub(crate) fn trial() -> impl Strategy<Value = Trial> {
    let part = (any::<String>(), chosen(MODES), number(), whole_trial())
        .prop_map(|(name, mode, share, trial)| MixPartResult { name, mode, share, trial });
    let parts = vec(part, 0..3);
    (whole_trial(), parts).prop_map(|(trial, parts)| Trial { parts, ..trial })
}

fn whole_trial() -> impl Strategy<Value = Trial> {
    let rates = (number(), number(), number());
    let counts: [_; 16] = std::array::from_fn(|_| any::<u64>());
    let distributions: [_; 3] = std::array::from_fn(|_| option::of(distribution()));
    let distributions = (distributions, option::of(signed()), option::of(any::<u64>()));
    let maps = (counted(REASONS), counted(LOSS_LOCATIONS));
    let apart = (option::of(any::<String>()), option::of(fairness()), option::of(well_behaved()));
    (rates, counts, maps, distributions, apart).prop_map(|(rates, counts, maps, all, apart)| {
        let (phase, fairness, well_behaved) = apart;
        let (intended_rate, achieved_rate, duration_s) = rates;
        let [
            clients,
            sent,
            received,
            lost,
            duplicate,
            late,
            basic,
            interleaved,
            nts,
            unsynchronised,
            ..,
        ] = counts;
        let [.., delay, sync_follow_up, grant, denial, cancellation, granted_messages] = counts;
        let (invalid, lost_at) = maps;
        let ([rtt_ns, response_time_ns, lateness_ns], tx_offset_ns, timestamped) = all;
        Trial {
            phase,
            intended_rate,
            achieved_rate,
            duration_s,
            clients,
            sent,
            received,
            lost,
            duplicate,
            late,
            unsynchronised,
            invalid,
            responses: Responses {
                basic,
                interleaved,
                nts,
                delay,
                sync_follow_up,
                grant,
                denial,
                cancellation,
                granted_messages,
            },
            authenticated: (nts % 2 == 0).then_some(ClassCounts { sent, received, lost }),
            cookies_reused: (late % 2 == 0).then_some(late),
            fairness,
            compliant_clients: well_behaved,
            rtt_ns,
            response_time_ns,
            tx_offset_ns,
            timestamped,
            lateness_ns,
            lost_at,
            parts: Vec::new(),
        }
    })
}

pub(crate) fn distribution() -> impl Strategy<Value = Distribution> {
    let numbers: [_; 8] = std::array::from_fn(|_| any::<u64>());
    (numbers, number(), number(), any::<String>()).prop_map(|(numbers, mean, stddev, histogram)| {
        let [count, min, p50, p90, p99, p99_9, p99_99, max] = numbers;
        Distribution { count, min, mean, stddev, p50, p90, p99, p99_9, p99_99, max, histogram }
    })
}

pub(crate) fn signed() -> impl Strategy<Value = SignedDistribution> {
    let numbers: [_; 7] = std::array::from_fn(|_| any::<i64>());
    let rest = (any::<u64>(), number(), number(), any::<String>(), any::<String>());
    (numbers, rest).prop_map(|(numbers, rest)| {
        let [min, p50, p90, p99, p99_9, p99_99, max] = numbers;
        let (count, mean, stddev, histogram, histogram_negative) = rest;
        SignedDistribution {
            count,
            min,
            mean,
            stddev,
            p50,
            p90,
            p99,
            p99_9,
            p99_99,
            max,
            histogram,
            histogram_negative,
        }
    })
}

fn offset() -> impl Strategy<Value = OffsetMethod> {
    (any::<i64>(), any::<bool>(), any::<bool>()).prop_map(
        |(correction_ns, mean_of_server, hardware)| OffsetMethod {
            correction_ns,
            mean_of_server,
            hardware,
        },
    )
}

/// A count for some of the choices.
pub(crate) fn counted<T: Ord + Clone + Debug + 'static, const N: usize>(
    choices: Choices<T, N>,
) -> impl Strategy<Value = BTreeMap<T, u64>> {
    btree_map(chosen(choices), any::<u64>(), 0..=N)
}

fn search() -> impl Strategy<Value = SearchResult> {
    let bounds = (option::of(number()), option::of(number()));
    let end = chosen(SEARCH_ENDS);
    (chosen(SEARCH_KINDS), number(), number(), bounds, number(), end).prop_map(
        |(kind, goal_loss_ratio, rate, (lower, upper), loss_ratio, end)| SearchResult {
            kind,
            goal_loss_ratio,
            rate,
            lower,
            upper,
            loss_ratio,
            end,
        },
    )
}

fn fairness() -> impl Strategy<Value = Fairness> {
    let shares = (number(), number(), number(), option::of(number()));
    (any::<u64>(), any::<u64>(), shares).prop_map(|(clients, unanswered, shares)| {
        let (share_min, share_median, share_max, jain_index) = shares;
        Fairness { clients, unanswered, share_min, share_median, share_max, jain_index }
    })
}

fn well_behaved() -> impl Strategy<Value = CompliantClients> {
    let counts: [_; 7] = std::array::from_fn(|_| any::<u64>());
    (counts, number(), any::<u32>(), option::of(distribution())).prop_map(
        |(counts, interval_s, burst, rtt_ns)| {
            let [clients, sent, received, lost, invalid, clients_active, clients_affected] = counts;
            CompliantClients {
                clients,
                interval_s,
                burst,
                sent,
                received,
                lost,
                invalid,
                clients_active,
                clients_affected,
                rtt_ns,
            }
        },
    )
}

fn series() -> impl Strategy<Value = Series> {
    (number(), vec(point(), 0..3)).prop_map(|(interval_s, points)| Series { interval_s, points })
}

fn point() -> impl Strategy<Value = Point> {
    let counts: [_; 6] = std::array::from_fn(|_| any::<u64>());
    let figures: [_; 5] = std::array::from_fn(|_| any::<u64>());
    (number(), any::<usize>(), number(), counts, option::of(figures)).prop_map(
        |(at_s, trial, intended_rate, counts, figures)| {
            let [sent, received, lost, late, unsynchronised, invalid] = counts;
            let rtt_ns = figures.map(|[p50, p90, p99, p99_9, max]| Percentiles {
                p50,
                p90,
                p99,
                p99_9,
                max,
            });
            Point {
                at_s,
                trial,
                intended_rate,
                sent,
                received,
                lost,
                late,
                unsynchronised,
                invalid,
                rtt_ns,
            }
        },
    )
}

fn outage() -> impl Strategy<Value = Outage> {
    let times = (number(), number(), option::of(number()));
    (any::<usize>(), times, any::<bool>()).prop_map(
        |(trial, (from_s, to_s, recovery_ms), ended)| Outage {
            trial,
            from_s,
            to_s,
            ended,
            recovery_ms,
        },
    )
}

fn overload() -> impl Strategy<Value = Overload> {
    let rates = (number(), number(), number(), number());
    (rates, option::of(number()), number()).prop_map(|(rates, recovery_ms, resolution_ms)| {
        let (base_rate, overload_rate, overload_s, answered_rate) = rates;
        Overload { base_rate, overload_rate, overload_s, answered_rate, recovery_ms, resolution_ms }
    })
}

pub(crate) fn limit() -> impl Strategy<Value = LimitResult> {
    let figures = (number(), option::of(number()));
    let subject = (option::of(any::<usize>()), option::of(any::<String>()));
    (any::<String>(), chosen(LIMIT_UNITS), figures, subject, any::<bool>()).prop_map(
        |(expression, unit, (bound, value), (trial, of), failed)| LimitResult {
            expression,
            unit,
            bound,
            value,
            trial,
            scope: of,
            failed,
        },
    )
}

pub(crate) fn finding() -> impl Strategy<Value = Finding> {
    (
        chosen(CODES),
        chosen(SEVERITIES),
        any::<String>(),
        any::<String>(),
        option::of(any::<usize>()),
    )
        .prop_map(|(code, severity, message, advice, trial)| Finding {
            code,
            severity,
            message,
            advice,
            trial,
        })
}

pub(crate) fn host() -> impl Strategy<Value = Host> {
    let texts: [_; 4] = std::array::from_fn(|_| option::of(any::<String>()));
    (texts, any::<usize>(), option::of(any::<bool>())).prop_map(|(texts, cores, virtualised)| {
        let [kernel, cpu, clocksource, governor] = texts;
        Host { kernel, cpu, cores, clocksource, governor, virtualised }
    })
}

fn target() -> impl Strategy<Value = Target> {
    let texts: [_; 4] = std::array::from_fn(|_| option::of(any::<String>()));
    (any::<IpAddr>(), any::<u16>(), texts).prop_map(|(address, port, texts)| {
        let [name, interface, mac, source_network] = texts;
        Target { address, port, name, interface, mac, source_network }
    })
}

pub(crate) fn number() -> impl Strategy<Value = f64> {
    POSITIVE | NEGATIVE | NORMAL | SUBNORMAL | ZERO
}

/// Any of the choices.
pub(crate) fn chosen<T: Clone + Debug + 'static, const N: usize>(
    choices: Choices<T, N>,
) -> impl Strategy<Value = T> {
    select(choices.map(|(choice, _)| choice).to_vec())
}
