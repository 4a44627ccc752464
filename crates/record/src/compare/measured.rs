//! Comparable metrics of a result: times with their histograms, shares with their counts, rates,
//! single times, and offsets with their error bounds. Time series and samples of a result are
//! contained in these and are not compared separately.

use std::collections::BTreeMap;

use horolog_stats::Histogram;
use serde_json::{Map, Value};

use super::paths::{ValuePath, distribution, is_time_series, kind_of, objects};

type JsonFields = Map<String, Value>;

/// Single times in ns: suffix of the kind of path, and the fields there.
const TIMES: [(&str, &[&str]); 12] = [
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

/// Values that are absent if an attempt did not succeed: the kind of path, the field there, and the
/// name of the metric it would have.
const TRIED: [[&str; 3]; 6] = [
    ["run.faults[]", "recovered_after_ns", "recovered_after_ns"],
    ["run.faults[]", "detected", "detected.after_ns"],
    ["methods[]", "error_ns", "error_ns.rms"],
    ["servers[]", "best", "offset_ns"],
    ["tasks[]", "safe", "safe.response_ns"],
    ["tasks[]", "as_published", "as_published.response_ns"],
];

/// Events and their number of trials: the fields of both.
const SHARES: [[&str; 2]; 10] = [
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

/// Distributions that describe the measuring side, by the suffixes of their kinds of path.
const OF_MEASURER: [&str; 6] = [
    "trials[].lateness_ns",
    "trial.lateness_ns",
    "rows[].send_late_ns",
    "rows[].host_send_ns",
    "rows[].host_receive_ns",
    "sources[].lateness_ns",
];

/// Single metric.
#[derive(Clone, Copy)]
pub(super) struct SingleValue {
    pub(super) figure: f64,
    /// Bounds, if it comes from a search: 0 and infinity if the search did not find them.
    pub(super) bounds: Option<[f64; 2]>,
}

impl SingleValue {
    /// Returns a searched value; inverted bounds count as none.
    fn searched(figure: f64, lower: Option<f64>, upper: Option<f64>) -> Self {
        let bounds = [lower.unwrap_or(0.0), upper.unwrap_or(f64::INFINITY)];
        let bounds = if bounds[0] <= bounds[1] { bounds } else { [0.0, f64::INFINITY] };
        Self { figure, bounds: Some(bounds) }
    }

    const fn read(figure: f64) -> Self {
        Self { figure, bounds: None }
    }
}

/// Value at a path.
pub(super) enum MeasuredValue {
    Times(Box<Histogram>),
    /// Events, and the number of trials.
    Share([u64; 2]),
    /// Rate; larger is better.
    Rate(SingleValue),
    /// Time in ns; larger is worse.
    Time(SingleValue),
    /// Offset and its error bound, in ns.
    Offset(f64, f64),
    /// Unsuccessful attempt.
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
    let kind = kind_of(path);
    OF_MEASURER.iter().any(|end| kind.ends_with(end))
}

/// Returns all metrics of a result, by path.
pub(super) fn measured(result: &Value) -> BTreeMap<String, MeasuredValue> {
    let mut all = BTreeMap::new();
    let paths = objects(result);
    let held = held(&paths);
    let mut beyond: Option<&str> = None;
    for path in &paths {
        let (name, fields, kind) = (&path.name, path.fields, kind_of(&path.name));
        if is_time_series(&kind) || beyond.is_some_and(|trial| is_within(name, trial)) {
            continue;
        }
        if is_beyond(path, &held) {
            beyond = Some(name);
            continue;
        }
        let mut add = |field: &str, measured| {
            let dot = if name.is_empty() || field.is_empty() { "" } else { "." };
            all.insert(format!("{name}{dot}{field}"), measured);
        };
        if let Some(times) = distribution(fields) {
            if let Ok(times) = times.decode() {
                add("", MeasuredValue::Times(Box::new(times)));
            }
            continue;
        }
        shares(fields, &mut add);
        for (_, names) in TIMES.iter().filter(|(end, _)| ends_with(&kind, end)) {
            for field in *names {
                if let Some(figure) = number(fields, field).filter(|time| *time > 0.0) {
                    add(field, MeasuredValue::Time(SingleValue::read(figure)));
                }
            }
        }
        // A fault that was never injected is no attempt.
        let is_tried = count(fields, "injected") != Some(0);
        for [_, field, figure] in TRIED.iter().filter(|[of, ..]| is_tried && *of == kind) {
            if fields.get(*field).is_none_or(Value::is_null) {
                add(figure, MeasuredValue::Failed);
            }
        }
        if let Some(rate) = rate(name, &kind, fields) {
            add("", MeasuredValue::Rate(rate));
        }
        if let Some((offset, error_bound)) = offset(&kind, fields) {
            add("offset_ns", MeasuredValue::Offset(offset, error_bound));
        }
        if let Some(delays) = delays(&kind, fields) {
            add("delay_ns", MeasuredValue::Times(Box::new(delays)));
        }
    }
    all
}

/// Returns the path of the trials and the rate found, for each search.
fn held(paths: &[ValuePath<'_>]) -> Vec<(String, f64)> {
    let searches = paths.iter().filter_map(|path| {
        let prefix = path.name.strip_suffix("search")?;
        Some((format!("{prefix}trials["), number(path.fields, "lower")?))
    });
    searches.collect()
}

/// Returns true if it is a trial at a rate above the one that its search found: its outcome is
/// chance, and the rate already expresses the overload.
fn is_beyond(path: &ValuePath<'_>, held: &[(String, f64)]) -> bool {
    let Some(rate) = number(path.fields, "intended_rate") else { return false };
    let is_of = |trials: &str| {
        let rest = path.name.strip_prefix(trials);
        rest.is_some_and(|rest| rest.ends_with(']') && !rest.contains("]."))
    };
    held.iter().any(|(trials, found)| is_of(trials) && rate > *found)
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

fn shares(fields: &JsonFields, add: &mut impl FnMut(&str, MeasuredValue)) {
    let mut share = |name: &str, events: Option<u64>, of: Option<u64>| {
        let both = events.zip(of).filter(|(events, of)| *of > 0 && events <= of);
        if let Some((events, of)) = both {
            add(name, MeasuredValue::Share([events, of]));
        }
    };
    for [events, of] in SHARES {
        share(events, count(fields, events), count(fields, of));
    }
    // Only beside a loss count: elsewhere the word means other things.
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

/// Returns the number by which a path identifies one of its items.
fn identity_of(path: &str, what: &str) -> Option<f64> {
    let (_, rest) = path.split_once(&format!("{what}="))?;
    rest.split([',', ']']).next()?.parse().ok()
}

/// Returns the rate that a search found, or the rate of a transfer; larger is better.
fn rate(name: &str, kind: &str, fields: &JsonFields) -> Option<SingleValue> {
    let is_search = kind == "search" || kind.ends_with(".search");
    if is_search {
        let (lower, upper) = (number(fields, "lower"), number(fields, "upper"));
        // A search in which no rate held found a rate of 0.
        let nothing = || fields.contains_key("end").then_some(0.0);
        let figure = number(fields, "rate").or(lower).or_else(nothing)?;
        return Some(SingleValue::searched(figure, lower, upper));
    }
    if kind == "cells[].repetitions[]" {
        // The bounds are of packets, each of which becomes one copy per child.
        let children = identity_of(name, "children")?;
        let bound = |bound: &str| Some(number(fields, bound)? * children);
        return Some(SingleValue::searched(
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
    single.filter(|rate| *rate >= 0.0).map(SingleValue::read)
}

/// Returns the offset between clocks and its error bound.
fn offset(kind: &str, fields: &JsonFields) -> Option<(f64, f64)> {
    let of = |name: &str, figure: &str| number(fields.get(name)?.as_object()?, figure);
    if kind == "servers[]" {
        return Some((of("best", "offset_ns")?, of("best", "bound_ns")?));
    }
    if kind == "clocks[]" {
        return Some((of("offset_ns", "p50")?, of("error_bound_ns", "p50")?));
    }
    if matches!(kind.rsplit('.').next(), Some("trials[]" | "trial")) {
        // The timestamp may have been taken at either end of the reply's round trip.
        return Some((of("tx_offset_ns", "p50")?, of("rtt_ns", "p50")? / 2.0));
    }
    None
}

/// Returns the delays of a server's samples.
fn delays(kind: &str, fields: &JsonFields) -> Option<Histogram> {
    let samples = (kind == "servers[]").then(|| fields.get("samples")?.as_array()).flatten()?;
    let mut histogram = Histogram::new();
    for sample in samples {
        histogram.record(u64::try_from(sample.get("delay_ns")?.as_i64()?).ok()?);
    }
    (histogram.count() > 0).then_some(histogram)
}
