//! Results of which it is known what is better and worse in them.

use horolog_stats::Histogram;
use horolog_time::SplitMix64;
use serde_json::json;

use super::*;
use crate::Distribution;

const THRESHOLD: f64 = 0.1;

/// Times between `scale` and twice that.
fn times(seed: u64, count: usize, scale: f64) -> Value {
    let mut random = SplitMix64::new(seed);
    let mut histogram = Histogram::new();
    (0..count).for_each(|_| histogram.record((scale * (1.0 + random.next_f64())) as u64));
    serde_json::to_value(Distribution::from_histogram(&histogram).unwrap()).unwrap()
}

fn load(trials: &[(f64, Value, [u64; 2])]) -> Value {
    let trial = |(rate, times, [lost, sent]): &(f64, Value, [u64; 2])| json!({ "intended_rate": rate, "rtt_ns": times, "lost": lost, "sent": sent });
    json!({
        "schema": "horolog.load/2",
        "command": ["horolog", "load", "ntp", "--json", "a"],
        "host": { "cores": 2, "kernel": "6.18" },
        "trials": trials.iter().map(trial).collect::<Vec<_>>(),
    })
}

fn verdicts(comparison: &ResultComparison) -> Vec<(ComparedMetricKind, CompareVerdict)> {
    comparison.metrics.iter().map(|one| (one.metric, one.verdict)).collect()
}

#[test]
fn the_same_is_the_same() {
    let one = load(&[(1e3, times(1, 50_000, 1e6), [3, 50_000])]);
    let other = load(&[(1e3, times(2, 50_000, 1e6), [5, 50_000])]);
    let comparison = ResultComparison::compare(&[&one], &[&other], THRESHOLD);
    assert!(comparison.metrics.len() == 4, "{comparison:?}");
    assert!(comparison.metrics.iter().all(|one| one.verdict == CompareVerdict::Same));
    assert_eq!(comparison.conditions, []);
}

#[test]
fn what_is_slower_and_loses_more_is_worse() {
    let one = load(&[(1e3, times(1, 50_000, 1e6), [3, 50_000])]);
    let other = load(&[(1e3, times(2, 50_000, 1.3e6), [500, 50_000])]);
    let worse = ResultComparison::compare(&[&one], &[&other], THRESHOLD);
    assert!(worse.metrics.iter().all(|one| one.verdict == CompareVerdict::Worse), "{worse:?}");
    let better = ResultComparison::compare(&[&other], &[&one], THRESHOLD);
    assert!(better.metrics.iter().all(|one| one.verdict == CompareVerdict::Better), "{better:?}");
    // What is not beyond the threshold is no regression.
    let lenient = ResultComparison::compare(&[&one], &[&other], 0.5);
    assert!(lenient.metrics.iter().all(|figure| figure.metric == ComparedMetricKind::Loss
        || figure.verdict == CompareVerdict::Same));
}

#[test]
fn few_values_are_not_enough() {
    let [one, other] = [1, 2].map(|seed| load(&[(1e3, times(seed, 200, 1e6), [0, 5])]));
    let comparison = ResultComparison::compare(&[&one], &[&other], THRESHOLD);
    let of = |kind| verdicts(&comparison).into_iter().find(|(one, _)| *one == kind).unwrap().1;
    assert_ne!(of(ComparedMetricKind::P50), CompareVerdict::NotEnough);
    for kind in [ComparedMetricKind::P99, ComparedMetricKind::P999, ComparedMetricKind::Loss] {
        assert_eq!(of(kind), CompareVerdict::NotEnough, "{kind:?}");
    }
}

/// Trials are those of the same rate, wherever they stand.
#[test]
fn items_are_the_same_by_what_they_are_of() {
    let trial = |rate: f64, scale| (rate, times(1, 2_000, scale), [0, 2_000]);
    let one = load(&[trial(1e3, 1e6), trial(2e3, 5e6)]);
    let other = load(&[trial(2e3, 5e6), trial(3e3, 9e6)]);
    let comparison = ResultComparison::compare(&[&one], &[&other], THRESHOLD);
    let paths: std::collections::BTreeSet<_> =
        comparison.metrics.iter().map(|one| one.path.as_str()).collect();
    let expected = ["trials[intended_rate=2000].lost", "trials[intended_rate=2000].rtt_ns"];
    assert_eq!(paths.into_iter().collect::<Vec<_>>(), expected);
    assert_eq!(
        comparison.only_earlier,
        ["trials[intended_rate=1000].lost", "trials[intended_rate=1000].rtt_ns"]
    );
    assert_eq!(comparison.only_later.len(), 2);
}

#[test]
fn rates_are_judged_by_their_bounds() {
    let search = |lower: f64, upper: Option<f64>| json!({ "search": { "rate": lower, "lower": lower, "upper": upper } });
    let of = |one: &Value, other: &Value| {
        let comparison = ResultComparison::compare(&[one], &[other], THRESHOLD);
        let [(ComparedMetricKind::Rate, verdict)] = verdicts(&comparison)[..] else {
            panic!("{comparison:?}")
        };
        verdict
    };
    let base = search(100e3, Some(102e3));
    assert_eq!(of(&base, &search(101e3, Some(103e3))), CompareVerdict::Same);
    assert_eq!(of(&base, &search(70e3, Some(80e3))), CompareVerdict::Worse);
    assert_eq!(of(&base, &search(120e3, Some(130e3))), CompareVerdict::Better);
    assert_eq!(of(&base, &search(80e3, Some(100e3))), CompareVerdict::Unclear);
    // One that ended at the top of what it tried, and one that held nothing.
    let (capped, nothing) = (
        search(2e6, None),
        json!({ "search": { "lower": null, "upper": 500.0, "end": "below-min" } }),
    );
    assert_eq!(of(&base, &search(80e3, None)), CompareVerdict::Unclear);
    assert_eq!(of(&capped, &base), CompareVerdict::Worse);
    assert_eq!(of(&base, &capped), CompareVerdict::Better);
    assert_eq!(of(&capped, &capped), CompareVerdict::Same);
    assert_eq!(of(&base, &nothing), CompareVerdict::Worse);
    assert_eq!(of(&nothing, &base), CompareVerdict::Better);
    let comparison = ResultComparison::compare(&[&base], &[&capped], THRESHOLD);
    let [figure] = &comparison.metrics[..] else { panic!("{comparison:?}") };
    assert!(figure.low.is_some_and(|low| low > 18.0) && figure.high.is_none(), "{figure:?}");
}

/// As single runs are, though the figures alone would tell them apart.
#[test]
fn several_open_ended_searches_are_unclear_on_that_side() {
    let of = |rate: f64, upper: Option<f64>| json!({ "search": { "rate": rate, "lower": rate, "upper": upper } });
    let (capped, slower) = (vec![of(2e6, None); 3], vec![of(1e6, None); 3]);
    let verdict = |one: &[Value], other: &[Value]| {
        ResultComparison::compare(&refs(one), &refs(other), THRESHOLD).metrics[0].verdict
    };
    assert_eq!(verdict(&capped, &slower), CompareVerdict::Unclear);
    let found = vec![of(1e6, Some(1.01e6)); 3];
    assert_eq!(verdict(&capped, &found), CompareVerdict::Worse);
    assert_eq!(verdict(&found, &capped), CompareVerdict::Better);
}

#[test]
fn trials_above_what_a_search_found_decide_nothing() {
    let of = |seed, scale: f64, found: f64| {
        let trials =
            [1e3, 2e3, 3e3].map(|rate| (rate, times(seed, 2_000, scale * rate), [0, 2_000]));
        let mut result = load(&trials);
        result["search"] = json!({ "rate": found, "lower": found, "upper": found + 10.0 });
        result
    };
    let comparison =
        ResultComparison::compare(&[&of(1, 1e3, 1_990.0)], &[&of(2, 1e3, 2_005.0)], THRESHOLD);
    let has = |rate: &str| {
        let trial = format!("trials[intended_rate={rate}]");
        comparison.metrics.iter().any(|one| one.path.starts_with(&trial))
    };
    assert!(has("1000") && !has("2000"), "{comparison:?}");
    assert!(!comparison.only_later.iter().any(|path| path.contains("3000")), "{comparison:?}");
}

#[test]
fn a_failed_attempt_is_worse_than_a_successful_one() {
    let fault = |recovered: Option<u64>| json!({ "run": { "faults": [{ "kind": "stop", "detected": null, "recovered_after_ns": recovered }] } });
    let path = "run.faults[kind=stop].recovered_after_ns".to_owned();
    let found = verdicts_by_path(&fault(Some(5)), &fault(None));
    assert_eq!(found, [(path.clone(), CompareVerdict::Worse)]);
    assert_eq!(verdicts_by_path(&fault(None), &fault(Some(5))), [(path, CompareVerdict::Better)]);
    let server = |best: Value| json!({ "servers": [{ "name": "a", "best": best }] });
    let answered = server(json!({ "offset_ns": 2_000, "bound_ns": 1_000 }));
    let expected = [("servers[name=a].offset_ns".to_owned(), CompareVerdict::Worse)];
    assert_eq!(verdicts_by_path(&answered, &server(Value::Null)), expected);
    let mut not_injected = fault(None);
    not_injected["run"]["faults"][0]["injected"] = json!(0);
    assert_eq!(verdicts_by_path(&fault(Some(5)), &not_injected), []);
    // What never came to anything is no figure.
    assert_eq!(verdicts_by_path(&fault(None), &fault(None)), []);
    let several = ResultComparison::compare(
        &[&fault(Some(5)), &fault(None)],
        &[&fault(None), &fault(Some(7))],
        THRESHOLD,
    );
    assert_eq!(verdicts(&several), [(ComparedMetricKind::Time, CompareVerdict::Unclear)]);
    let transfer = |rate: f64| json!({ "bandwidth": [{ "size_bytes": 1, "rate": rate }] });
    assert_eq!(verdicts_by_path(&transfer(1e6), &transfer(0.0))[0].1, CompareVerdict::Worse);
    assert_eq!(verdicts_by_path(&transfer(0.0), &transfer(1e6))[0].1, CompareVerdict::Better);
    assert_eq!(verdicts_by_path(&transfer(0.0), &transfer(0.0))[0].1, CompareVerdict::Same);
}

#[test]
fn offsets_of_several_runs_are_judged_by_how_far_they_are_from_0() {
    let of = |offset: i64| json!({ "servers": [{ "name": "a", "best": { "offset_ns": offset, "bound_ns": 1_000 } }] });
    let side = |offsets: &[i64]| offsets.iter().map(|offset| of(*offset)).collect::<Vec<_>>();
    let judged = |one: &[i64], other: &[i64]| {
        let (one, other) = (side(one), side(other));
        ResultComparison::compare(&refs(&one), &refs(&other), THRESHOLD).metrics[0].clone()
    };
    let jumps = judged(&[2_000; 4], &[5_000_000, -5_000_000, 5_000_000, -5_000_000]);
    assert_eq!((jumps.verdict, jumps.later), (CompareVerdict::Worse, Some(5e6)));
    // What differs from run to run of itself is within the bounds.
    let (one, other) = ([0, 100_000, 0, 100_000, 0], [100_000, 0, 100_000, 0, 100_000]);
    assert_eq!(judged(&one, &other).verdict, CompareVerdict::Unclear);
}

#[test]
fn copies_of_a_relay_and_responses_of_cores_are_rates() {
    let relay = |copies: f64| {
        json!({ "cells": [{ "engine": "xdp", "children": 16, "repetitions": [{
        "copies_per_s": copies, "lower": copies / 16.0, "upper": copies / 15.9, "end": "converged",
        "half_rate": { "cpu_ns_per_copy": 200.0 } }] }] })
    };
    let found = verdicts_by_path(&relay(6e6), &relay(600.0));
    assert_eq!(found[0].1, CompareVerdict::Worse);
    assert_eq!(found[1].1, CompareVerdict::Same);
    let nothing = json!({ "cells": [{ "engine": "xdp", "children": 16, "repetitions": [{
        "copies_per_s": 0.0, "lower": null, "upper": 10.0, "end": "below-min" }] }] });
    assert_eq!(verdicts_by_path(&relay(6e6), &nothing)[0].1, CompareVerdict::Worse);
    let cores = |rate: f64| {
        json!({ "columns": [{ "cores": 2, "points": [{ "rate": 45e3,
        "runs": [{ "responses_per_s": rate }] }] }] })
    };
    let found = verdicts_by_path(&cores(44e3), &cores(30e3));
    assert_eq!(found, [("columns[cores=2].points[0].runs[0]".to_owned(), CompareVerdict::Worse)]);
}

#[test]
fn lists_of_numbers_are_numbers_and_damaged_histograms_are_named() {
    let result = json!({ "engines": [{ "label": "xdp", "delays_ns": [1, 2.5], "names": ["a"] }],
        "series": { "points": [1, 2] } });
    let expected =
        [("engines[label=xdp].delays_ns[0]", 1.0), ("engines[label=xdp].delays_ns[1]", 2.5)];
    assert_eq!(numeric_values(&result), expected.map(|(path, value)| (path.to_owned(), value)));
    let mut result = load(&[(1e3, times(1, 100, 1e6), [0, 100])]);
    assert_eq!(find_damaged_histogram(&result), None);
    result["trials"][0]["rtt_ns"]["histogram"] = json!("AAAA");
    let (path, _) = find_damaged_histogram(&result).unwrap();
    assert_eq!(path, "trials[intended_rate=1000].rtt_ns");
}

#[test]
fn conditions_that_differ_are_named() {
    let one = load(&[]);
    let mut other = load(&[]);
    other["host"]["kernel"] = json!("6.19");
    other["command"] = json!(["/usr/bin/horolog", "load", "ntp", "--json=b", "--rate", "1k"]);
    let comparison = ResultComparison::compare(&[&one], &[&other], THRESHOLD);
    let paths: Vec<_> = comparison.conditions.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(paths, ["command", "host.kernel"]);
    assert_eq!(comparison.conditions[0].later, "load ntp --rate 1k");
}

#[test]
fn conditions_stated_by_a_result_are_named_if_they_differ() {
    let of = |engine: &str, address: &str| json!({ "engine": engine, "target": { "address": address, "port": 123 }, "took": 3, "started": engine });
    let comparison =
        ResultComparison::compare(&[&of("udp", "192.0.2.1")], &[&of("xdp", "192.0.2.2")], 0.1);
    let paths: Vec<_> = comparison.conditions.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(paths, ["engine", "target.address"]);
}

/// The verdict of each figure, by its place.
fn verdicts_by_path(one: &Value, other: &Value) -> Vec<(String, CompareVerdict)> {
    let comparison = ResultComparison::compare(&[one], &[other], THRESHOLD);
    comparison.metrics.into_iter().map(|one| (one.path, one.verdict)).collect()
}

#[test]
fn metrics_of_the_measuring_side_decide_nothing() {
    let of = |seed, scale| {
        let mut result = load(&[(1e3, times(seed, 50_000, 1e6), [0, 50_000])]);
        result["trials"][0]["lateness_ns"] = times(seed, 50_000, scale);
        result
    };
    let comparison = ResultComparison::compare(&[&of(1, 1e3)], &[&of(2, 9e3)], THRESHOLD);
    let (own, measured): (Vec<_>, Vec<_>) =
        comparison.metrics.iter().partition(|one| one.informational);
    assert!(own.iter().all(|one| one.verdict == CompareVerdict::Worse) && own.len() == 3);
    assert!(measured.iter().all(|one| one.verdict == CompareVerdict::Same), "{measured:?}");
}

#[test]
fn one_second_of_a_long_run_is_no_figure() {
    let of = |lost: u64| {
        json!({
            "trials": [{ "intended_rate": 1e3, "sent": 1_000_000, "lost": lost }],
            "series": { "points": [{ "intended_rate": 1e3, "sent": 1_000, "lost": lost }] },
        })
    };
    let found = verdicts_by_path(&of(0), &of(20));
    assert_eq!(found, [("trials[intended_rate=1000].lost".to_owned(), CompareVerdict::Same)]);
}

#[test]
fn rows_of_other_sizes_are_other_rows_and_single_readings_are_judged() {
    let of = |size: u64, rate: f64, again: u64| {
        json!({
            "latency": [{ "size_bytes": size, "rtt_ns": times(1, 1_000, 1e5) }],
            "bandwidth": [{
                "size_bytes": 65_536, "direction": "forward", "rate": rate, "received_bytes": 1e9,
                "tcp": { "mss_bytes": 1448, "retransmitted": again },
            }],
        })
    };
    let comparison =
        ResultComparison::compare(&[&of(64, 4e9, 2)], &[&of(65_536, 1e9, 9_000)], THRESHOLD);
    assert_eq!(comparison.only_earlier, ["latency[size_bytes=64].rtt_ns"]);
    let row = "bandwidth[size_bytes=65536, direction=forward]";
    let worse = CompareVerdict::Worse;
    let found = verdicts_by_path(&of(64, 4e9, 2), &of(65_536, 1e9, 9_000));
    assert_eq!(found, [(row.to_owned(), worse), (format!("{row}.tcp.retransmitted"), worse)]);
    assert_eq!(verdicts_by_path(&of(1, 4e9, 2), &of(2, 3.9e9, 2))[0].1, CompareVerdict::Same);
}

#[test]
fn what_was_missed_invalid_or_late_is_compared() {
    let task = |missed: u64| {
        json!({ "runs": [{ "nodes": [{ "name": "node1", "tasks": [{
            "name": "task", "periods": 300, "missed": missed, "failed": 0 }] }] }] })
    };
    let found = verdicts_by_path(&task(0), &task(150));
    let path = "runs[0].nodes[name=node1].tasks[name=task]";
    assert_eq!(found[1], (format!("{path}.missed"), CompareVerdict::Worse));
    let trial = |late: u64, origin: u64| {
        json!({ "trials": [{ "intended_rate": 1e3, "sent": 10_000, "lost": 0, "late": late,
            "invalid": { "origin": origin, "mode": 1 } }] })
    };
    let found = verdicts_by_path(&trial(0, 0), &trial(3_000, 5_000));
    let verdicts: Vec<_> = found.iter().map(|(_, verdict)| *verdict).collect();
    assert_eq!(verdicts, [CompareVerdict::Worse, CompareVerdict::Worse, CompareVerdict::Same]);
}

#[test]
fn a_server_that_is_further_off_is_worse() {
    let of = |offset: i64, delay: u64| {
        let samples: Vec<_> =
            (0..50).map(|at| json!({ "offset_ns": offset, "delay_ns": delay + at })).collect();
        let best = json!({ "offset_ns": offset, "bound_ns": 5_000 });
        json!({ "servers": [{ "name": "a", "best": best, "samples": samples }] })
    };
    let found = verdicts_by_path(&of(-3_000, 10_000), &of(5_000_000, 20_000));
    let expected = [("servers[name=a].delay_ns", 1), ("servers[name=a].offset_ns", 1)];
    for (path, count) in expected {
        let worse =
            |one: &&(String, CompareVerdict)| one.0 == path && one.1 == CompareVerdict::Worse;
        assert_eq!(found.iter().filter(worse).count(), count, "{found:?}");
    }
    let found = verdicts_by_path(&of(-3_000, 10_000), &of(4_000, 10_000));
    assert!(found.iter().all(|(_, verdict)| *verdict != CompareVerdict::Worse), "{found:?}");
}

fn refs(runs: &[Value]) -> Vec<&Value> {
    runs.iter().collect()
}

#[test]
fn several_runs_that_differ_among_themselves_are_unclear() {
    let of = |seed: u64, scale: f64| load(&[(1e3, times(seed, 50_000, scale), [0, 50_000])]);
    let side = |seed: u64, scale: f64| -> Vec<Value> {
        [1.0, 1.3, 0.8, 1.1].iter().zip(seed..).map(|(by, seed)| of(seed, scale * by)).collect()
    };
    let [one, other, slower] = [side(1, 1e6), side(10, 1e6), side(20, 2e6)];
    let median = |comparison: &ResultComparison| {
        let is = |one: &&ComparedMetric| one.metric == ComparedMetricKind::P50;
        comparison.metrics.iter().find(is).unwrap().verdict
    };
    let single = ResultComparison::compare(&[&one[0]], &[&other[1]], THRESHOLD);
    assert_eq!(median(&single), CompareVerdict::Worse);
    let several = ResultComparison::compare(&refs(&one), &refs(&other), THRESHOLD);
    assert_eq!(median(&several), CompareVerdict::Unclear);
    let several = ResultComparison::compare(&refs(&one), &refs(&slower), THRESHOLD);
    assert_eq!(median(&several), CompareVerdict::Worse);
    // What one of them lacks cannot be compared.
    let lacking = load(&[]);
    let several = ResultComparison::compare(&[&one[0], &lacking], &[&other[0]], THRESHOLD);
    assert!(several.metrics.is_empty() && several.only_later.len() == 2, "{several:?}");
}

#[test]
fn anything_can_be_compared() {
    let most = json!({ "lost": 0, "sent": u64::MAX, "invalid": { "mode": u64::MAX, "origin": 1 } });
    let found = verdicts_by_path(&json!({ "trials": [most] }), &json!({ "trials": [most] }));
    assert!(found.iter().all(|(_, verdict)| *verdict == CompareVerdict::Same), "{found:?}");
    let search = json!({ "search": { "rate": 2.0, "lower": 3.0, "upper": 1.0 } });
    let nothing = json!({ "search": { "lower": null, "upper": null, "end": "budget-spent" } });
    for unknown in [search, nothing] {
        assert_eq!(verdicts_by_path(&unknown, &unknown)[0].1, CompareVerdict::Unclear);
    }
    for strange in
        [json!(null), json!([]), json!({ "trials": 7 }), json!({ "host": [], "command": {} })]
    {
        let comparison = ResultComparison::compare(&[&strange], &[&load(&[])], THRESHOLD);
        assert_eq!(comparison.metrics, []);
    }
}

/// Values of a distribution with two humps and a long tail, as latencies have, each so many times
/// as long.
fn latencies(seed: u64, scale: f64) -> Value {
    let mut random = SplitMix64::new(seed);
    let mut histogram = Histogram::new();
    for _ in 0..VALUES {
        let hump = if random.next_f64() < 0.3 { 2.0 } else { 1.0 };
        let tail = -(1.0 - random.next_f64()).ln();
        histogram.record((scale * 1e5 * (hump + 0.4 * tail * tail)) as u64);
    }
    serde_json::to_value(Distribution::from_histogram(&histogram).unwrap()).unwrap()
}

/// How many pairs of runs are compared.
const PAIRS: usize = 40;
/// How many values each run has.
const VALUES: u64 = 15_000;

/// What is said of each pair of runs of which the later one's times are so many times as long.
fn judged(scale: f64, threshold: f64) -> Vec<Vec<(ComparedMetricKind, CompareVerdict)>> {
    let compared = |seed| {
        let one = load(&[(1e3, latencies(seed, 1.0), [0, VALUES])]);
        let other = load(&[(1e3, latencies(seed + 1_000, scale), [0, VALUES])]);
        verdicts(&ResultComparison::compare(&[&one], &[&other], threshold))
    };
    (0..PAIRS as u64).map(compared).collect()
}

fn count(
    pairs: &[Vec<(ComparedMetricKind, CompareVerdict)>],
    figure: ComparedMetricKind,
    verdict: CompareVerdict,
) -> usize {
    pairs.iter().filter(|verdicts| verdicts.contains(&(figure, verdict))).count()
}

#[test]
fn runs_of_the_same_are_rarely_called_worse() {
    let (with, without) = (judged(1.0, THRESHOLD), judged(1.0, 0.0));
    for figure in [ComparedMetricKind::P50, ComparedMetricKind::P99] {
        assert_eq!(count(&with, figure, CompareVerdict::Worse), 0, "{figure:?}");
        // Without a threshold it is the confidence that keeps them the same: one in forty.
        let wrong = count(&without, figure, CompareVerdict::Worse);
        assert!(wrong <= 4, "{figure:?}: {wrong}");
    }
}

#[test]
fn a_fifth_more_is_found() {
    let pairs = judged(1.2, THRESHOLD);
    let found = count(&pairs, ComparedMetricKind::P50, CompareVerdict::Worse);
    assert!(found >= 38, "{found}");
    // The tail has too few values to be sure, and is not said to be the same either.
    let same = count(&pairs, ComparedMetricKind::P99, CompareVerdict::Same);
    assert!(same <= 2, "{same}");
}
