//! Comparisons of results of which it is known what is better and worse in them.

use std::slice;

use horolog_record::{CompareVerdict, ComparedMetricKind, Distribution};
use horolog_stats::Histogram;
use horolog_time::SplitMix64;
use serde_json::json;

use super::*;
use crate::fixture;
use crate::kinds::compared_name;

const THRESHOLD: f64 = 0.1;

/// Times between `scale` and twice that.
fn times(seed: u64, count: usize, scale: f64) -> Value {
    let mut random = SplitMix64::new(seed);
    let mut histogram = Histogram::new();
    (0..count).for_each(|_| histogram.record((scale * (1.0 + random.next_f64())) as u64));
    serde_json::to_value(Distribution::from_histogram(&histogram).unwrap()).unwrap()
}

fn sample(kind: &str) -> Value {
    fixture::sample(kind)
}

/// A load with trials of a rate, round trips, and requests lost and sent, and nothing else.
fn load(trials: &[(f64, Value, [u64; 2])]) -> Value {
    let mut result = sample("load");
    let mut base = result["trials"][1].take();
    base["parts"] = json!([]);
    let trial = |(rate, times, [lost, sent]): &(f64, Value, [u64; 2])| {
        let mut trial = base.clone();
        trial["intended_rate"] = json!(rate);
        trial["rtt_ns"] = times.clone();
        (trial["lost"], trial["sent"]) = (json!(lost), json!(sent));
        trial
    };
    result["trials"] = trials.iter().map(trial).collect();
    for part in ["search", "overload", "series"] {
        result[part] = Value::Null;
    }
    result
}

fn compare(earlier: &[Value], later: &[Value], threshold: f64) -> ResultComparison {
    let [earlier, later] = [earlier, later].map(|side| {
        side.iter().map(|one| ComparableResult::read(one).unwrap()).collect::<Vec<_>>()
    });
    ResultComparison::compare(&earlier, &later, threshold)
}

/// The comparison of two loads, without what these tests do not change.
fn compare_loads(earlier: &[Value], later: &[Value], threshold: f64) -> ResultComparison {
    let mut comparison = compare(earlier, later, threshold);
    comparison.metrics.retain(|one| ["rtt", "loss"].contains(&one.name.as_str()));
    comparison
}

fn verdicts(comparison: &ResultComparison) -> Vec<(ComparedMetricKind, CompareVerdict)> {
    comparison.metrics.iter().map(|one| (one.metric, one.verdict)).collect()
}

/// Returns the verdict on a metric.
fn verdict_on(one: &Value, other: &Value, name: &str) -> Option<CompareVerdict> {
    let comparison = compare(slice::from_ref(one), slice::from_ref(other), THRESHOLD);
    let found = comparison.metrics.iter().find(|metric| compared_name(metric) == name);
    found.map(|metric| metric.verdict)
}

/// The comparison of a metric with these values in the runs of each side.
fn compare_values(
    earlier: Vec<MetricValue<'static>>,
    later: Vec<MetricValue<'static>>,
) -> Vec<ComparedMetric> {
    compare_values_by(earlier, later, THRESHOLD)
}

fn compare_values_by(
    earlier: Vec<MetricValue<'static>>,
    later: Vec<MetricValue<'static>>,
    threshold: f64,
) -> Vec<ComparedMetric> {
    let run = |value| -> ComparedValues {
        let value = ComparedValue { is_informational: false, value };
        [(("metric".to_owned(), String::new()), value)].into()
    };
    let sides = [earlier, later].map(|side| side.into_iter().map(run).collect::<Vec<_>>());
    metrics::compare(&sides.each_ref().map(|side| side.iter().collect()), threshold).0
}

fn judged(one: MetricValue<'static>, other: MetricValue<'static>) -> Option<CompareVerdict> {
    compare_values(vec![one], vec![other]).first().map(|metric| metric.verdict)
}

#[test]
fn the_same_is_the_same() {
    let one = load(&[(1e3, times(1, 50_000, 1e6), [3, 50_000])]);
    let other = load(&[(1e3, times(2, 50_000, 1e6), [5, 50_000])]);
    let comparison = compare_loads(&[one], &[other], THRESHOLD);
    assert!(comparison.metrics.len() == 4, "{comparison:?}");
    assert!(comparison.metrics.iter().all(|one| one.verdict == CompareVerdict::Same));
    assert_eq!(comparison.conditions, []);
}

#[test]
fn what_is_slower_and_loses_more_is_worse() {
    let one = [load(&[(1e3, times(1, 50_000, 1e6), [3, 50_000])])];
    let other = [load(&[(1e3, times(2, 50_000, 1.3e6), [500, 50_000])])];
    let worse = compare_loads(&one, &other, THRESHOLD);
    assert!(worse.metrics.iter().all(|one| one.verdict == CompareVerdict::Worse), "{worse:?}");
    let better = compare_loads(&other, &one, THRESHOLD);
    assert!(better.metrics.iter().all(|one| one.verdict == CompareVerdict::Better), "{better:?}");
    // What is not beyond the threshold is no regression.
    let lenient = compare_loads(&one, &other, 0.5);
    assert!(lenient.metrics.iter().all(|figure| figure.metric == ComparedMetricKind::Loss
        || figure.verdict == CompareVerdict::Same));
}

#[test]
fn few_values_are_not_enough() {
    let [one, other] = [1, 2].map(|seed| load(&[(1e3, times(seed, 200, 1e6), [0, 5])]));
    let comparison = compare_loads(&[one], &[other], THRESHOLD);
    let of = |kind| verdicts(&comparison).into_iter().find(|(one, _)| *one == kind).unwrap().1;
    assert_ne!(of(ComparedMetricKind::P50), CompareVerdict::NotEnough);
    for kind in [ComparedMetricKind::P99, ComparedMetricKind::P999, ComparedMetricKind::Loss] {
        assert_eq!(of(kind), CompareVerdict::NotEnough, "{kind:?}");
    }
}

/// Trials are those of the same rate, wherever they stand; at one rate they are numbered.
#[test]
fn items_are_the_same_by_what_they_are_of() {
    let trial = |rate: f64, scale| (rate, times(1, 2_000, scale), [0, 2_000]);
    let one = load(&[trial(1e3, 1e6), trial(2e3, 5e6)]);
    let other = load(&[trial(2e3, 5e6), trial(3e3, 9e6), trial(2e3, 5e6)]);
    let comparison = compare_loads(&[one], &[other], THRESHOLD);
    let names: std::collections::BTreeSet<_> =
        comparison.metrics.iter().map(compared_name).collect();
    let expected = ["loss of 2,000/s", "rtt p50 of 2,000/s", "rtt p99 of 2,000/s"];
    assert!(expected.iter().all(|name| names.contains(*name)) && names.len() == 4, "{names:?}");
    assert!(comparison.only_earlier.contains(&"rtt of 1,000/s".to_owned()));
    let added = ["rtt of 3,000/s", "rtt of 2,000/s, 2"].map(str::to_owned);
    assert!(added.iter().all(|name| comparison.only_later.contains(name)), "{comparison:?}");
}

#[test]
fn rates_are_judged_by_their_bounds() {
    let search =
        |lower: f64, upper: Option<f64>| MetricValue::found_rate(lower, Some(lower), upper);
    let base = || search(100e3, Some(102e3));
    assert_eq!(judged(base(), search(101e3, Some(103e3))), Some(CompareVerdict::Same));
    assert_eq!(judged(base(), search(70e3, Some(80e3))), Some(CompareVerdict::Worse));
    assert_eq!(judged(base(), search(120e3, Some(130e3))), Some(CompareVerdict::Better));
    assert_eq!(judged(base(), search(80e3, Some(100e3))), Some(CompareVerdict::Unclear));
    // One that ended at the top of what it tried, and one that held nothing.
    let capped = || search(2e6, None);
    let nothing = || MetricValue::found_rate(0.0, None, Some(500.0));
    assert_eq!(judged(base(), search(80e3, None)), Some(CompareVerdict::Unclear));
    assert_eq!(judged(capped(), base()), Some(CompareVerdict::Worse));
    assert_eq!(judged(base(), capped()), Some(CompareVerdict::Better));
    assert_eq!(judged(capped(), capped()), Some(CompareVerdict::Same));
    assert_eq!(judged(base(), nothing()), Some(CompareVerdict::Worse));
    assert_eq!(judged(nothing(), base()), Some(CompareVerdict::Better));
    let figure = &compare_values(vec![base()], vec![capped()])[0];
    assert!(figure.low.is_some_and(|low| low > 18.0) && figure.high.is_none(), "{figure:?}");
    // Bounds in the wrong order, and none at all.
    for unknown in [[Some(3.0), Some(1.0)], [None, None]] {
        let search = || MetricValue::found_rate(2.0, unknown[0], unknown[1]);
        assert_eq!(judged(search(), search()), Some(CompareVerdict::Unclear));
    }
}

/// As single runs are, though the figures alone would tell them apart.
#[test]
fn several_open_ended_searches_are_unclear_on_that_side() {
    let runs = |rate, upper| vec![MetricValue::found_rate(rate, Some(rate), upper); 3];
    let (capped, slower) = (runs(2e6, None), runs(1e6, None));
    let found = runs(1e6, Some(1.01e6));
    let verdict =
        |one: &Vec<_>, other: &Vec<_>| compare_values(one.clone(), other.clone())[0].verdict;
    assert_eq!(verdict(&capped, &slower), CompareVerdict::Unclear);
    assert_eq!(verdict(&capped, &found), CompareVerdict::Worse);
    assert_eq!(verdict(&found, &capped), CompareVerdict::Better);
}

#[test]
fn trials_above_what_a_search_found_decide_nothing() {
    let of = |seed, found: f64| {
        let trials = [1e3, 2e3, 3e3].map(|rate| (rate, times(seed, 2_000, 1e3 * rate), [0, 2_000]));
        let mut result = load(&trials);
        result["search"] = sample("load")["search"].clone();
        for (bound, value) in [("rate", found), ("lower", found), ("upper", found + 10.0)] {
            result["search"][bound] = json!(value);
        }
        result
    };
    let comparison = compare(&[of(1, 1_990.0)], &[of(2, 2_005.0)], THRESHOLD);
    let has = |rate: &str| comparison.metrics.iter().any(|one| one.item.as_deref() == Some(rate));
    assert!(has("1,000/s") && !has("2,000/s"), "{comparison:?}");
    assert!(!comparison.only_later.iter().any(|name| name.contains("3,000")), "{comparison:?}");
}

#[test]
fn a_failed_attempt_is_worse_than_a_successful_one() {
    let of = |ns: Option<f64>| MetricValue::attempt(ns);
    assert_eq!(judged(of(Some(5.0)), of(None)), Some(CompareVerdict::Worse));
    assert_eq!(judged(of(None), of(Some(5.0))), Some(CompareVerdict::Better));
    assert_eq!(judged(MetricValue::Offset(2e3, 1e3), of(None)), Some(CompareVerdict::Worse));
    // What never came to anything is no figure.
    assert_eq!(judged(of(None), of(None)), None);
    let several = compare_values(vec![of(Some(5.0)), of(None)], vec![of(None), of(Some(7.0))]);
    assert_eq!(several[0].metric, ComparedMetricKind::Time);
    assert_eq!(several[0].verdict, CompareVerdict::Unclear);
    let [some, none] = [1e6, 0.0].map(|rate| move || MetricValue::rate(rate));
    assert_eq!(judged(some(), none()), Some(CompareVerdict::Worse));
    assert_eq!(judged(none(), some()), Some(CompareVerdict::Better));
    assert_eq!(judged(none(), none()), Some(CompareVerdict::Same));
    // A fault that was not injected is no attempt.
    let test = sample("cycle_test");
    let mut unrecovered = test.clone();
    unrecovered["run"]["faults"][0]["recovered_after_ns"] = Value::Null;
    let name = "recovery of fault lost of radar";
    assert_eq!(verdict_on(&test, &unrecovered, name), Some(CompareVerdict::Worse));
    unrecovered["run"]["faults"][0]["injected"] = json!(0);
    assert_eq!(verdict_on(&test, &unrecovered, name), None);
}

#[test]
fn offsets_of_several_runs_are_judged_by_how_far_they_are_from_0() {
    let side = |offsets: &[f64]| offsets.iter().map(|one| MetricValue::Offset(*one, 1e3)).collect();
    let judged = |one: &[f64], other: &[f64]| compare_values(side(one), side(other))[0].clone();
    let jumps = judged(&[2e3; 4], &[5e6, -5e6, 5e6, -5e6]);
    assert_eq!((jumps.verdict, jumps.later), (CompareVerdict::Worse, Some(5e6)));
    // What differs from run to run of itself is within the bounds.
    let (one, other) = ([0.0, 1e5, 0.0, 1e5, 0.0], [1e5, 0.0, 1e5, 0.0, 1e5]);
    assert_eq!(judged(&one, &other).verdict, CompareVerdict::Unclear);
}

#[test]
fn bounds_of_copies_are_those_of_packets_to_each_child() {
    let relay = |copies: f64, lower: Value| {
        let mut result = sample("bench_relay");
        result["cells"] = json!([result["cells"][0]]);
        let cell = &mut result["cells"][0];
        cell["children"] = json!(16);
        cell["repetitions"] = json!([cell["repetitions"][0]]);
        let one = &mut cell["repetitions"][0];
        one["copies_per_s"] = json!(copies);
        (one["lower"], one["upper"]) = (lower, json!(copies.max(10.0) / 15.9));
        result
    };
    let fast = relay(6e6, json!(6e6 / 16.0));
    let verdict = |later: &Value| {
        let comparison = compare(slice::from_ref(&fast), slice::from_ref(later), THRESHOLD);
        comparison.metrics.into_iter().find(|one| one.name == "copies").unwrap().verdict
    };
    assert_eq!(verdict(&fast), CompareVerdict::Same);
    assert_eq!(verdict(&relay(600.0, json!(600.0 / 16.0))), CompareVerdict::Worse);
    assert_eq!(verdict(&relay(0.0, Value::Null)), CompareVerdict::Worse);
}

#[test]
fn damaged_histograms_are_named() {
    let mut result = load(&[(1e3, times(1, 100, 1e6), [0, 100])]);
    result["trials"][0]["rtt_ns"]["histogram"] = json!("AAAA");
    let error = ComparableResult::read(&result).unwrap_err().to_string();
    assert!(error.contains("the histogram of rtt of 1,000/s is damaged: "), "{error}");
    let mut campaign = sample("campaign");
    campaign["parts"][2]["result"] = result;
    let error = ComparableResult::read(&campaign).unwrap_err().to_string();
    assert!(error.contains(": load.2: ") && error.contains("rtt of 1,000/s"), "{error}");
}

#[test]
fn results_in_results_are_compared_by_their_parts() {
    let campaign = |scale| {
        let mut result = sample("campaign");
        let trial = (1e3, times(1, 2_000, scale), [0, 2_000]);
        result["parts"][2]["result"] = load(&[trial]);
        result
    };
    let name = "rtt p50 of load.2, 1,000/s";
    assert_eq!(verdict_on(&campaign(1e5), &campaign(9e5), name), Some(CompareVerdict::Worse));
}

#[test]
fn conditions_that_differ_are_named() {
    let one = load(&[]);
    let mut other = one.clone();
    other["host"]["kernel"] = json!("6.19");
    other["command"] = json!(["/usr/bin/horolog", "load", "ntp", "--json=b", "--rate", "1k"]);
    (other["engine"], other["target"]["address"]) = (json!("udp"), json!("192.0.2.2"));
    other["threads"] = json!(7);
    let comparison = compare(&[one], &[other], THRESHOLD);
    let paths: Vec<_> = comparison.conditions.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(paths, ["command", "engine", "host.kernel", "target.address"]);
    assert_eq!(comparison.conditions[0].later, "load ntp --rate 1k");
}

#[test]
fn metrics_of_the_measuring_side_decide_nothing() {
    let of = |seed, scale| {
        let mut result = load(&[(1e3, times(seed, 50_000, 1e6), [0, 50_000])]);
        result["trials"][0]["lateness_ns"] = times(seed, 50_000, scale);
        result
    };
    let comparison = compare(&[of(1, 1e3)], &[of(2, 9e3)], THRESHOLD);
    let (own, measured): (Vec<_>, Vec<_>) =
        comparison.metrics.iter().partition(|one| one.informational);
    assert!(own.iter().all(|one| one.verdict == CompareVerdict::Worse) && own.len() == 3);
    assert!(measured.iter().all(|one| one.verdict == CompareVerdict::Same), "{measured:?}");
}

#[test]
fn rows_of_other_sizes_are_other_rows_and_single_readings_are_judged() {
    let of = |size: u64, rate: f64, again: u64| {
        let mut result = sample("path_tcp");
        result["latency"] = json!([result["latency"][0]]);
        result["latency"][0]["size_bytes"] = json!(size);
        let row = &mut result["bandwidth"][1];
        (row["rate"], row["received_bytes"]) = (json!(rate), json!(1_000_000_000));
        row["tcp"]["retransmitted"] = json!(again);
        result
    };
    let comparison = compare(&[of(64, 4e9, 2)], &[of(65_536, 1e9, 9_000)], THRESHOLD);
    assert_eq!(comparison.only_earlier, ["rtt of latency of 64 bytes"]);
    for name in ["bandwidth", "retransmitted"] {
        let name = format!("{name} of writes of 65536 bytes, forward");
        let verdict = verdict_on(&of(64, 4e9, 2), &of(64, 1e9, 9_000), &name);
        assert_eq!(verdict, Some(CompareVerdict::Worse), "{name}");
        let verdict = verdict_on(&of(64, 4e9, 2), &of(64, 3.9e9, 2), &name);
        assert_eq!(verdict, Some(CompareVerdict::Same), "{name}");
    }
}

#[test]
fn what_was_missed_invalid_or_late_is_compared() {
    let task = |missed: u64| {
        let mut result = sample("cycle");
        result["runs"][0]["nodes"][0]["tasks"][0]["missed"] = json!(missed);
        result
    };
    let name = "missed of task 'control' on node1 under fifo";
    assert_eq!(verdict_on(&task(0), &task(150), name), Some(CompareVerdict::Worse));
    let trial = |late: u64, origin: u64| {
        let mut result = load(&[(1e3, Value::Null, [0, 10_000])]);
        result["trials"][0]["late"] = json!(late);
        result["trials"][0]["invalid"] = json!({ "origin": origin, "mode": 1 });
        result
    };
    for (name, expected) in [
        ("invalid", CompareVerdict::Worse),
        ("late", CompareVerdict::Worse),
        ("loss", CompareVerdict::Same),
    ] {
        let name = format!("{name} of 1,000/s");
        assert_eq!(verdict_on(&trial(0, 0), &trial(3_000, 5_000), &name), Some(expected));
    }
    let most = trial(u64::MAX, u64::MAX);
    let same = compare(slice::from_ref(&most), slice::from_ref(&most), THRESHOLD);
    assert!(same.metrics.iter().all(|one| one.verdict == CompareVerdict::Same), "{same:?}");
}

#[test]
fn a_server_that_is_further_off_is_worse() {
    let of = |offset: i64, delay: i64| {
        let mut query = fixture::query(50);
        query.servers.truncate(1);
        let server = &mut query.servers[0];
        server.name = "a".to_owned();
        for (at, sample) in server.samples.iter_mut().enumerate() {
            sample.delay_ns = delay + at as i64;
        }
        let best = server.best.as_mut().unwrap();
        (best.offset_ns, best.bound_ns) = (offset, 5_000);
        serde_json::to_value(query).unwrap()
    };
    let (near, far) = (of(-3_000, 10_000), of(5_000_000, 20_000));
    for name in ["offset of a", "delay p50 of a"] {
        assert_eq!(verdict_on(&near, &far, name), Some(CompareVerdict::Worse), "{name}");
    }
    let found = compare(&[near], &[of(4_000, 10_000)], THRESHOLD);
    assert!(found.metrics.iter().all(|one| one.verdict != CompareVerdict::Worse), "{found:?}");
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
    let single = compare_loads(&one[..1], &other[1..2], THRESHOLD);
    assert_eq!(median(&single), CompareVerdict::Worse);
    let several = compare_loads(&one, &other, THRESHOLD);
    assert_eq!(median(&several), CompareVerdict::Unclear);
    let several = compare_loads(&one, &slower, THRESHOLD);
    assert_eq!(median(&several), CompareVerdict::Worse);
    // What one of them lacks cannot be compared.
    let several = compare_loads(&[one[0].clone(), load(&[])], &other[..1], THRESHOLD);
    assert!(several.metrics.is_empty(), "{several:?}");
    assert!(several.only_later.contains(&"rtt of 1,000/s".to_owned()), "{several:?}");
}

/// Values of a distribution with two humps and a long tail, as latencies have, each so many times
/// as long.
fn latencies(seed: u64, scale: f64) -> Histogram {
    let mut random = SplitMix64::new(seed);
    let mut histogram = Histogram::new();
    for _ in 0..VALUES {
        let hump = if random.next_f64() < 0.3 { 2.0 } else { 1.0 };
        let tail = -(1.0 - random.next_f64()).ln();
        histogram.record((scale * 1e5 * (hump + 0.4 * tail * tail)) as u64);
    }
    histogram
}

/// Number of pairs of runs that are compared.
const PAIRS: u64 = 40;
/// Number of values of each run.
const VALUES: u64 = 15_000;

/// The verdicts on pairs of runs of which the second one's times are so many times as long.
fn judged_pairs(scale: f64, threshold: f64) -> Vec<Vec<(ComparedMetricKind, CompareVerdict)>> {
    let of_pair = |seed: u64| {
        let [one, other] = [(seed, 1.0), (seed + 1_000, scale)]
            .map(|(seed, scale)| vec![MetricValue::Histogram(Box::new(latencies(seed, scale)))]);
        let changes = compare_values_by(one, other, threshold);
        changes.into_iter().map(|one| (one.metric, one.verdict)).collect()
    };
    (0..PAIRS).map(of_pair).collect()
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
    let (with, without) = (judged_pairs(1.0, THRESHOLD), judged_pairs(1.0, 0.0));
    for figure in [ComparedMetricKind::P50, ComparedMetricKind::P99] {
        assert_eq!(count(&with, figure, CompareVerdict::Worse), 0, "{figure:?}");
        // Without a threshold it is the confidence that keeps them the same: one in forty.
        let wrong = count(&without, figure, CompareVerdict::Worse);
        assert!(wrong <= 4, "{figure:?}: {wrong}");
    }
}

#[test]
fn a_fifth_more_is_found() {
    let pairs = judged_pairs(1.2, THRESHOLD);
    let found = count(&pairs, ComparedMetricKind::P50, CompareVerdict::Worse);
    assert!(found >= 38, "{found}");
    // The tail has too few values to be sure, and is not said to be the same either.
    let same = count(&pairs, ComparedMetricKind::P99, CompareVerdict::Same);
    assert!(same <= 2, "{same}");
}
