//! Comparable metrics of a result: distributions of times, ratios of events to trials, rates,
//! single times, and offsets with their error bounds. Time series and samples are not compared,
//! since these metrics summarise them; of a query's samples, the delays are a distribution.

use std::collections::BTreeMap;

use horolog_stats::Histogram;
use serde_json::{Map, Value};

use super::paths::{
    ResultObject, as_distribution, generic_path, is_time_series, objects_with_paths,
};

type JsonFields = Map<String, Value>;

/// Fields with a single time in ns: suffix of the path without list indices, and the names of the
/// fields.
const TIME_FIELDS: [(&str, &[&str]); 12] = [
    ("methods[].error_ns", &["rms"]),
    ("clocks[]", &["cost_ns"]),
    ("steps[]", &["per_switch_ns"]),
    ("exchanges[]", &["per_switch_ns"]),
    ("capacities[]", &["cpu_ns_per_reply"]),
    ("engines[]", &["tree_ns", "mean_ns"]),
    ("tasks[].safe", &["response_ns"]),
    ("tasks[].as_published", &["response_ns"]),
    ("faults[]", &["recovered_after_ns"]),
    ("faults[].detected", &["after_ns"]),
    ("repetitions[].half_rate", &["cpu_ns_per_copy"]),
    ("", &["system_call_ns"]),
];

/// Values that are absent if an attempt failed: path without list indices, name of the field that
/// is then absent, and name of the metric.
const ATTEMPTS: [[&str; 3]; 6] = [
    ["run.faults[]", "recovered_after_ns", "recovered_after_ns"],
    ["run.faults[]", "detected", "detected.after_ns"],
    ["methods[]", "error_ns", "error_ns.rms"],
    ["servers[]", "best", "offset_ns"],
    ["tasks[]", "safe", "safe.response_ns"],
    ["tasks[]", "as_published", "as_published.response_ns"],
];

/// Ratios of events to trials: names of the fields with the number of events and of trials.
const EVENT_RATIOS: [[&str; 2]; 10] = [
    ["lost", "sent"],
    ["unsynchronised", "received"],
    ["late", "sent"],
    ["refused", "sent"],
    ["reordered", "received"],
    ["missed", "periods"],
    ["failed", "periods"],
    ["overrun", "periods"],
    ["unreleased", "planned"],
    ["stalled", "exchanges"],
];

/// Distributions that describe the measuring side instead of the measured object: suffixes of their
/// paths without list indices.
const MEASURING_SIDE_SUFFIXES: [&str; 6] = [
    "trials[].lateness_ns",
    "trial.lateness_ns",
    "rows[].send_late_ns",
    "rows[].host_send_ns",
    "rows[].host_receive_ns",
    "sources[].lateness_ns",
];

/// Metric with a single value.
#[derive(Clone, Copy)]
pub(super) struct SingleValue {
    pub(super) value: f64,
    /// Bounds found by a search, 0 and infinity if it found none; `None` if the value is not from a
    /// search.
    pub(super) bounds: Option<[f64; 2]>,
}

impl SingleValue {
    /// Returns a value found by a search; bounds in the wrong order are ignored.
    fn from_search(value: f64, lower: Option<f64>, upper: Option<f64>) -> Self {
        let bounds = [lower.unwrap_or(0.0), upper.unwrap_or(f64::INFINITY)];
        let bounds = if bounds[0] <= bounds[1] { bounds } else { [0.0, f64::INFINITY] };
        Self { value, bounds: Some(bounds) }
    }

    const fn from_reading(figure: f64) -> Self {
        Self { value: figure, bounds: None }
    }
}

/// Value of a metric.
pub(super) enum MeasuredValue {
    Times(Box<Histogram>),
    /// Numbers of events and of trials.
    Share([u64; 2]),
    /// Rate; larger is better.
    Rate(SingleValue),
    /// Time in ns; larger is worse.
    Time(SingleValue),
    /// Offset and its error bound, in ns.
    Offset(f64, f64),
    /// Attempt that failed, so that there is no value.
    Failed,
}

impl MeasuredValue {
    pub(super) fn times(&self) -> Option<&Histogram> {
        if let Self::Times(times) = self { Some(times) } else { None }
    }

    pub(super) fn share(&self) -> Option<[u64; 2]> {
        if let Self::Share(share) = self { Some(*share) } else { None }
    }

    pub(super) fn rate(&self) -> Option<SingleValue> {
        if let Self::Rate(rate) = self { Some(*rate) } else { None }
    }

    pub(super) fn time(&self) -> Option<SingleValue> {
        if let Self::Time(time) = self { Some(*time) } else { None }
    }

    pub(super) const fn is_failed(&self) -> bool {
        matches!(self, Self::Failed)
    }

    pub(super) fn offset(&self) -> Option<(f64, f64)> {
        if let Self::Offset(offset, error_bound) = self {
            Some((*offset, *error_bound))
        } else {
            None
        }
    }
}

/// Returns true if a metric describes the measuring side, not the measured object.
pub(super) fn is_informational(path: &str) -> bool {
    let kind = generic_path(path);
    MEASURING_SIDE_SUFFIXES.iter().any(|end| kind.ends_with(end))
}

/// Returns the metrics of a result, by path: all but those of time series, of single samples, of
/// trials above the rate that a search found, and of damaged histograms.
pub(super) fn metrics_by_path(result: &Value) -> BTreeMap<String, MeasuredValue> {
    let mut all = BTreeMap::new();
    let paths = objects_with_paths(result);
    let found_rates = search_rates(&paths);
    let mut skipped_trial: Option<&str> = None;
    for path in &paths {
        let (name, fields, kind) = (&path.name, path.fields, generic_path(&path.name));
        if is_time_series(&kind) || skipped_trial.is_some_and(|trial| is_within(name, trial)) {
            continue;
        }
        if is_above_search_rate(path, &found_rates) {
            skipped_trial = Some(name);
            continue;
        }
        let mut add = |field: &str, measured| {
            let dot = if name.is_empty() || field.is_empty() { "" } else { "." };
            all.insert(format!("{name}{dot}{field}"), measured);
        };
        if let Some(times) = as_distribution(fields) {
            if let Ok(times) = times.decode() {
                add("", MeasuredValue::Times(Box::new(times)));
            }
            continue;
        }
        add_shares(fields, &mut add);
        for (_, names) in TIME_FIELDS.iter().filter(|(end, _)| ends_with(&kind, end)) {
            for field in *names {
                if let Some(value) = number(fields, field).filter(|time| *time > 0.0) {
                    add(field, MeasuredValue::Time(SingleValue::from_reading(value)));
                }
            }
        }
        // A fault that was never injected is no attempt.
        let is_tried = count(fields, "injected") != Some(0);
        for [_, field, figure] in ATTEMPTS.iter().filter(|[of, ..]| is_tried && *of == kind) {
            if fields.get(*field).is_none_or(Value::is_null) {
                add(figure, MeasuredValue::Failed);
            }
        }
        if let Some(rate) = find_rate(name, &kind, fields) {
            add("", MeasuredValue::Rate(rate));
        }
        if let Some((offset, error_bound)) = find_offset(&kind, fields) {
            add("offset_ns", MeasuredValue::Offset(offset, error_bound));
        }
        if let Some(delays) = sample_delays(&kind, fields) {
            add("delay_ns", MeasuredValue::Times(Box::new(delays)));
        }
    }
    all
}

/// Returns for each search the path prefix of its trials and its lower bound; searches without one
/// are omitted.
fn search_rates(paths: &[ResultObject<'_>]) -> Vec<(String, f64)> {
    let searches = paths.iter().filter_map(|path| {
        let prefix = path.name.strip_suffix("search")?;
        Some((format!("{prefix}trials["), number(path.fields, "lower")?))
    });
    searches.collect()
}

/// Returns true if the object is a trial above the rate that its search found. The outcome of such
/// a trial is random, and the rate found already expresses the overload.
fn is_above_search_rate(path: &ResultObject<'_>, found_rates: &[(String, f64)]) -> bool {
    let Some(rate) = number(path.fields, "intended_rate") else { return false };
    let is_of = |trials: &str| {
        let rest = path.name.strip_prefix(trials);
        rest.is_some_and(|rest| rest.ends_with(']') && !rest.contains("]."))
    };
    found_rates.iter().any(|(trials, found)| is_of(trials) && rate > *found)
}

/// Returns true if a path lies within another.
fn is_within(path: &str, other: &str) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.starts_with(['.', '[']))
}

/// Returns true if a kind of path has this suffix; the empty suffix means the result itself.
fn ends_with(kind: &str, end: &str) -> bool {
    if end.is_empty() { kind.is_empty() } else { kind.ends_with(end) }
}

fn number(fields: &JsonFields, name: &str) -> Option<f64> {
    fields.get(name).and_then(Value::as_f64)
}

fn count(fields: &JsonFields, name: &str) -> Option<u64> {
    match fields.get(name)? {
        // Counts by reason.
        Value::Object(counts) => {
            let all = counts.values().filter_map(Value::as_u64);
            Some(all.fold(0, u64::saturating_add))
        }
        value => value.as_u64(),
    }
}

fn add_shares(fields: &JsonFields, add: &mut impl FnMut(&str, MeasuredValue)) {
    let mut share = |name: &str, events: Option<u64>, of: Option<u64>| {
        let both = events.zip(of).filter(|(events, of)| *of > 0 && events <= of);
        if let Some((events, of)) = both {
            add(name, MeasuredValue::Share([events, of]));
        }
    };
    for [events, of] in EVENT_RATIOS {
        share(events, count(fields, events), count(fields, of));
    }
    // Only in objects with a loss count: elsewhere `invalid` has other meanings.
    if fields.contains_key("lost") {
        share("invalid", count(fields, "invalid"), count(fields, "sent"));
    }
    // Retransmitted segments of a transfer.
    if let Some(tcp) = fields.get("tcp").and_then(Value::as_object) {
        let segments = number(fields, "received_bytes").zip(number(tcp, "mss_bytes"));
        let segments = segments.filter(|(_, size)| *size > 0.0).map(|(bytes, size)| bytes / size);
        let segments = segments.map(|segments| segments.ceil() as u64);
        share("tcp.retransmitted", count(tcp, "retransmitted"), segments);
    }
}

/// Returns the value of a numeric field in the item identity in a path, such as 4 for `children` in
/// `cells[children=4]`.
fn item_number(path: &str, field: &str) -> Option<f64> {
    let (_, rest) = path.split_once(&format!("{field}="))?;
    rest.split([',', ']']).next()?.parse().ok()
}

/// Returns the rate that a search found (0 if it ended without one), the rate of a transfer, or
/// the reply rate of an overload or of a repetition of `bench cores`; larger is better. `None` for
/// other objects.
fn find_rate(name: &str, kind: &str, fields: &JsonFields) -> Option<SingleValue> {
    let is_search = kind == "search" || kind.ends_with(".search");
    if is_search {
        let (lower, upper) = (number(fields, "lower"), number(fields, "upper"));
        // A search that ended without a passed rate found a rate of 0.
        let zero_if_ended = || fields.contains_key("end").then_some(0.0);
        let rate = number(fields, "rate").or(lower).or_else(zero_if_ended)?;
        return Some(SingleValue::from_search(rate, lower, upper));
    }
    if kind == "cells[].repetitions[]" {
        // The bounds are of packets, each of which becomes one copy per child.
        let children = item_number(name, "children")?;
        let bound = |bound: &str| Some(number(fields, bound)? * children);
        return Some(SingleValue::from_search(
            number(fields, "copies_per_s")?,
            bound("lower"),
            bound("upper"),
        ));
    }
    let single = match kind {
        "bandwidth[]" => number(fields, "rate"),
        "overload" => number(fields, "answered_rate"),
        "columns[].points[].runs[]" => number(fields, "responses_per_s"),
        _ => None,
    };
    single.filter(|rate| *rate >= 0.0).map(SingleValue::from_reading)
}

/// Returns the offset between two clocks and its error bound, in ns, of a server, clock or trial;
/// `None` for other objects.
fn find_offset(kind: &str, fields: &JsonFields) -> Option<(f64, f64)> {
    let nested_number = |name: &str, figure: &str| number(fields.get(name)?.as_object()?, figure);
    if kind == "servers[]" {
        return Some((nested_number("best", "offset_ns")?, nested_number("best", "bound_ns")?));
    }
    if kind == "clocks[]" {
        return Some((nested_number("offset_ns", "p50")?, nested_number("error_bound_ns", "p50")?));
    }
    if matches!(kind.rsplit('.').next(), Some("trials[]" | "trial")) {
        // The timestamp may have been taken at either end of the reply's round trip.
        return Some((
            nested_number("tx_offset_ns", "p50")?,
            nested_number("rtt_ns", "p50")? / 2.0,
        ));
    }
    None
}

/// Returns the delays of a server's samples, in ns; `None` for other objects, without samples, or
/// if a delay is missing or negative.
fn sample_delays(kind: &str, fields: &JsonFields) -> Option<Histogram> {
    let samples = (kind == "servers[]").then(|| fields.get("samples")?.as_array()).flatten()?;
    let mut histogram = Histogram::new();
    for sample in samples {
        histogram.record(u64::try_from(sample.get("delay_ns")?.as_i64()?).ok()?);
    }
    (histogram.count() > 0).then_some(histogram)
}
