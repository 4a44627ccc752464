//! The figures of a result that can be held against another's: times with their histograms, shares
//! with their counts, rates, single times, and offsets with the doubt about them. What a result has
//! of its course, second by second or sample by sample, is in these and is not compared by itself.

use std::collections::BTreeMap;

use horolog_stats::Histogram;
use serde_json::{Map, Value};

use super::places::{Place, distribution, is_of_course, kind_of, objects};

type Fields = Map<String, Value>;

/// Single times in ns: the end of the kind of place, and the fields there.
const TIMES: [(&str, &[&str]); 12] = [
    ("methods[].error_ns", &["rms"]),
    ("clocks[]", &["cost_ns"]),
    ("steps[]", &["per_switch_ns"]),
    ("exchanges[]", &["per_switch_ns"]),
    ("capacities[]", &["cpu_ns_per_reply"]),
    ("engines[]", &["tree_ns", "mean_ns"]),
    ("tasks[].safe", &["response_ns"]),
    ("tasks[].printed", &["response_ns"]),
    ("faults[]", &["recovered_after_ns"]),
    ("faults[].detected", &["after_ns"]),
    ("rounds[].half", &["cpu_ns_per_copy"]),
    ("", &["system_call_ns"]),
];

/// What is absent where something was tried and did not come to pass: the kind of place, the field
/// there, and the name of the figure that there would be.
const TRIED: [[&str; 3]; 6] = [
    ["run.faults[]", "recovered_after_ns", "recovered_after_ns"],
    ["run.faults[]", "detected", "detected.after_ns"],
    ["methods[]", "error_ns", "error_ns.rms"],
    ["servers[]", "best", "offset_ns"],
    ["tasks[]", "safe", "safe.response_ns"],
    ["tasks[]", "printed", "printed.response_ns"],
];

/// Events of so many trials: the fields of both.
const SHARES: [[&str; 2]; 9] = [
    ["lost", "sent"],
    ["late", "sent"],
    ["refused", "sent"],
    ["reordered", "received"],
    ["missed", "periods"],
    ["failed", "periods"],
    ["overrun", "periods"],
    ["unreleased", "planned"],
    ["stalled", "exchanges"],
];

/// Distributions of whoever measured, by the ends of their kinds of place.
const OF_MEASURER: [&str; 6] = [
    "trials[].lateness_ns",
    "trial.lateness_ns",
    "rows[].send_late_ns",
    "rows[].host_send_ns",
    "rows[].host_receive_ns",
    "sources[].lateness_ns",
];

/// A figure by itself.
#[derive(Clone, Copy)]
pub(super) struct Single {
    pub(super) figure: f64,
    /// Between which it is, where it is of a search: 0 and infinity where that did not find them.
    pub(super) bounds: Option<[f64; 2]>,
}

impl Single {
    /// Of a search, whose bounds are none where they are the wrong way round.
    fn searched(figure: f64, lower: Option<f64>, upper: Option<f64>) -> Self {
        let bounds = [lower.unwrap_or(0.0), upper.unwrap_or(f64::INFINITY)];
        let bounds = if bounds[0] <= bounds[1] { bounds } else { [0.0, f64::INFINITY] };
        Self { figure, bounds: Some(bounds) }
    }

    const fn read(figure: f64) -> Self {
        Self { figure, bounds: None }
    }
}

/// What stands at a place.
pub(super) enum Measured {
    Times(Box<Histogram>),
    /// Events, and of how many.
    Share([u64; 2]),
    /// What is larger is better.
    Rate(Single),
    /// In ns; what is larger is worse.
    Time(Single),
    /// In ns, and the doubt about it.
    Offset(f64, f64),
    /// Something was tried and did not come to pass.
    Failed,
}

impl Measured {
    pub(super) fn times(&self) -> Option<&Histogram> {
        if let Self::Times(times) = self { Some(times) } else { None }
    }

    pub(super) fn share(&self) -> Option<[u64; 2]> {
        if let Self::Share(share) = self { Some(*share) } else { None }
    }

    pub(super) fn rate(&self) -> Option<Single> {
        if let Self::Rate(rate) = self { Some(*rate) } else { None }
    }

    pub(super) fn time(&self) -> Option<Single> {
        if let Self::Time(time) = self { Some(*time) } else { None }
    }

    pub(super) const fn is_failed(&self) -> bool {
        matches!(self, Self::Failed)
    }

    pub(super) fn offset(&self) -> Option<(f64, f64)> {
        if let Self::Offset(offset, doubt) = self { Some((*offset, *doubt)) } else { None }
    }
}

/// Whether a figure tells of whoever measured, not of what was measured.
pub(super) fn is_of_measurer(place: &str) -> bool {
    let kind = kind_of(place);
    OF_MEASURER.iter().any(|end| kind.ends_with(end))
}

/// All figures of a result, by their places.
pub(super) fn measured(result: &Value) -> BTreeMap<String, Measured> {
    let mut all = BTreeMap::new();
    let places = objects(result);
    let held = held(&places);
    let mut beyond: Option<&str> = None;
    for place in &places {
        let (name, fields, kind) = (&place.name, place.fields, kind_of(&place.name));
        if is_of_course(&kind) || beyond.is_some_and(|trial| is_within(name, trial)) {
            continue;
        }
        if is_beyond(place, &held) {
            beyond = Some(name);
            continue;
        }
        let mut add = |field: &str, measured| {
            let dot = if name.is_empty() || field.is_empty() { "" } else { "." };
            all.insert(format!("{name}{dot}{field}"), measured);
        };
        if let Some(times) = distribution(fields) {
            if let Ok(times) = times.decode() {
                add("", Measured::Times(Box::new(times)));
            }
            continue;
        }
        shares(fields, &mut add);
        for (_, names) in TIMES.iter().filter(|(end, _)| ends_with(&kind, end)) {
            for field in *names {
                if let Some(figure) = number(fields, field).filter(|time| *time > 0.0) {
                    add(field, Measured::Time(Single::read(figure)));
                }
            }
        }
        // A fault that nobody put there was no try.
        let is_tried = count(fields, "injected") != Some(0);
        for [_, field, figure] in TRIED.iter().filter(|[of, ..]| is_tried && *of == kind) {
            if fields.get(*field).is_none_or(Value::is_null) {
                add(figure, Measured::Failed);
            }
        }
        if let Some(rate) = rate(name, &kind, fields) {
            add("", Measured::Rate(rate));
        }
        if let Some((offset, doubt)) = offset(&kind, fields) {
            add("offset_ns", Measured::Offset(offset, doubt));
        }
        if let Some(delays) = delays(&kind, fields) {
            add("delay_ns", Measured::Times(Box::new(delays)));
        }
    }
    all
}

/// What each search found: where its trials stand, and the rate.
fn held(places: &[Place<'_>]) -> Vec<(String, f64)> {
    let searches = places.iter().filter_map(|place| {
        let beside = place.name.strip_suffix("search")?;
        Some((format!("{beside}trials["), number(place.fields, "lower")?))
    });
    searches.collect()
}

/// Whether it is a trial at a rate above the one that its search found: what became of it there is
/// chance, and the rate says that it was too much.
fn is_beyond(place: &Place<'_>, held: &[(String, f64)]) -> bool {
    let Some(rate) = number(place.fields, "offered_rate") else { return false };
    let is_of = |trials: &str| {
        let rest = place.name.strip_prefix(trials);
        rest.is_some_and(|rest| rest.ends_with(']') && !rest.contains("]."))
    };
    held.iter().any(|(trials, found)| is_of(trials) && rate > *found)
}

/// Whether a place is in another.
fn is_within(place: &str, other: &str) -> bool {
    place.strip_prefix(other).is_some_and(|rest| rest.starts_with(['.', '[']))
}

/// Whether a kind of place ends so; the empty end is the result itself.
fn ends_with(kind: &str, end: &str) -> bool {
    if end.is_empty() { kind.is_empty() } else { kind.ends_with(end) }
}

fn number(fields: &Fields, name: &str) -> Option<f64> {
    fields.get(name).and_then(Value::as_f64)
}

fn count(fields: &Fields, name: &str) -> Option<u64> {
    match fields.get(name)? {
        // By their reasons.
        Value::Object(counts) => {
            let all = counts.values().filter_map(Value::as_u64);
            Some(all.fold(0, u64::saturating_add))
        }
        value => value.as_u64(),
    }
}

fn shares(fields: &Fields, add: &mut impl FnMut(&str, Measured)) {
    let mut share = |name: &str, events: Option<u64>, of: Option<u64>| {
        let both = events.zip(of).filter(|(events, of)| *of > 0 && events <= of);
        if let Some((events, of)) = both {
            add(name, Measured::Share([events, of]));
        }
    };
    for [events, of] in SHARES {
        share(events, count(fields, events), count(fields, of));
    }
    // Beside what was lost only: elsewhere the word means other things.
    if fields.contains_key("lost") {
        share("invalid", count(fields, "invalid"), count(fields, "sent"));
    }
    // Segments of a transfer that were sent again.
    if let Some(tcp) = fields.get("tcp").and_then(Value::as_object) {
        let segments = number(fields, "received_bytes").zip(number(tcp, "mss_bytes"));
        let segments = segments.filter(|(_, size)| *size > 0.0).map(|(bytes, size)| bytes / size);
        let segments = segments.map(|segments| segments.ceil() as u64);
        share("tcp.retransmitted", count(tcp, "retransmitted"), segments);
    }
}

/// The number by which a place tells one of its items from the others.
fn identity_of(place: &str, what: &str) -> Option<f64> {
    let (_, rest) = place.split_once(&format!("{what}="))?;
    rest.split([',', ']']).next()?.parse().ok()
}

/// A rate that a search found, or with which a transfer went; what is larger is better.
fn rate(name: &str, kind: &str, fields: &Fields) -> Option<Single> {
    let is_search = kind == "search" || kind.ends_with(".search");
    if is_search {
        let (lower, upper) = (number(fields, "lower"), number(fields, "upper"));
        // One that held nothing found a rate of 0.
        let nothing = || fields.contains_key("end").then_some(0.0);
        let figure = number(fields, "rate").or(lower).or_else(nothing)?;
        return Some(Single::searched(figure, lower, upper));
    }
    if kind == "cells[].rounds[]" {
        // The bounds are of packets, each of which becomes a copy for each child.
        let children = identity_of(name, "children")?;
        let bound = |bound: &str| Some(number(fields, bound)? * children);
        return Some(Single::searched(
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
    single.filter(|rate| *rate >= 0.0).map(Single::read)
}

/// How far a clock is from another, and the doubt about that.
fn offset(kind: &str, fields: &Fields) -> Option<(f64, f64)> {
    let of = |name: &str, figure: &str| number(fields.get(name)?.as_object()?, figure);
    if kind == "servers[]" {
        return Some((of("best", "offset_ns")?, of("best", "bound_ns")?));
    }
    if kind == "clocks[]" {
        return Some((of("offset_ns", "p50")?, of("doubt_ns", "p50")?));
    }
    if matches!(kind.rsplit('.').next(), Some("trials[]" | "trial")) {
        // A reply that took so long may have been stamped at either end of that.
        return Some((of("tx_offset_ns", "p50")?, of("rtt_ns", "p50")? / 2.0));
    }
    None
}

/// The delays of a server's samples.
fn delays(kind: &str, fields: &Fields) -> Option<Histogram> {
    let samples = (kind == "servers[]").then(|| fields.get("samples")?.as_array()).flatten()?;
    let mut histogram = Histogram::new();
    for sample in samples {
        histogram.record(u64::try_from(sample.get("delay_ns")?.as_i64()?).ok()?);
    }
    (histogram.count() > 0).then_some(histogram)
}
