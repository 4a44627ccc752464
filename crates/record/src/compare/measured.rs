//! The figures of a result that can be held against another's: times with their histograms, shares
//! with their counts, rates, single times, and offsets with the doubt about them. What a result has
//! of its course, second by second or sample by sample, is in these and is not compared by itself.

use std::collections::BTreeMap;

use horolog_stats::Histogram;
use serde_json::{Map, Value};

use super::places::{distribution, kind_of, objects};

type Fields = Map<String, Value>;

/// Single times in ns: the end of the kind of place, and the fields there.
const TIMES: [(&str, &[&str]); 11] = [
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
    ("", &["system_call_ns"]),
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
    /// Between which it is, where it is of a search; one of them may not have been found.
    pub(super) bounds: Option<[Option<f64>; 2]>,
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
    for place in objects(result) {
        let (name, fields, kind) = (&place.name, place.fields, kind_of(&place.name));
        if is_of_course(&kind) {
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
                    add(field, Measured::Time(Single { figure, bounds: None }));
                }
            }
        }
        if let Some(rate) = rate(&kind, fields) {
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

/// Whether it is part of the course of something.
fn is_of_course(kind: &str) -> bool {
    kind.split('.').any(|part| matches!(part.trim_end_matches("[]"), "series" | "samples"))
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

/// A rate that a search found, or with which a transfer went; what is larger is better.
fn rate(kind: &str, fields: &Fields) -> Option<Single> {
    let is_search = kind == "search" || kind.ends_with(".search");
    if is_search {
        let bounds = [number(fields, "lower"), number(fields, "upper")];
        let figure = number(fields, "rate").or(bounds[0])?;
        // Bounds the wrong way round are none.
        let is_sound = !matches!(bounds, [Some(lower), Some(upper)] if lower > upper);
        return Some(Single { figure, bounds: Some(if is_sound { bounds } else { [None; 2] }) });
    }
    let single = match kind {
        "bandwidth[]" => number(fields, "rate"),
        "overload" => number(fields, "answered_rate"),
        _ => None,
    };
    single.filter(|rate| *rate > 0.0).map(|figure| Single { figure, bounds: None })
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
