//! Metrics of time servers for `--fail-if`: their offsets, the error bounds, and the share of
//! missing replies. Pure.

use horolog_record::{ExactSummary, LimitResult, LimitUnit, QueryResult, ServerResult};

use crate::limit::{Limit, LimitedMetric};

/// A metric of a server; `None` if it has too few samples.
pub(super) type QueryMetric = fn(&ServerResult) -> Option<f64>;

const FIGURES: [LimitedMetric<QueryMetric>; 9] = [
    ("offset", LimitUnit::Ns, |server| Some(size(server.best?.offset_ns))),
    ("bound", LimitUnit::Ns, |server| Some(server.best?.bound_ns as f64)),
    ("delay", LimitUnit::Ns, |server| Some(size(server.best?.delay_ns))),
    ("jitter", LimitUnit::Ns, |server| server.jitter_ns),
    ("mean", LimitUnit::Ns, |server| Some(server.offset_ns?.mean.abs())),
    ("rms", LimitUnit::Ns, |server| Some(server.offset_ns?.rms)),
    ("max", LimitUnit::Ns, |server| server.offset_ns.as_ref().map(largest)),
    ("loss", LimitUnit::Ratio, |server| share(server.counts.lost, server)),
    ("unsynchronised", LimitUnit::Ratio, |server| share(server.counts.unsynchronised, server)),
];

fn size(ns: i64) -> f64 {
    ns.unsigned_abs() as f64
}

/// The offset with the greatest absolute value.
fn largest(offsets: &ExactSummary) -> f64 {
    size(offsets.min).max(size(offsets.max))
}

/// The share of the requests; `None` if none were sent.
fn share(of: u64, server: &ServerResult) -> Option<f64> {
    let sent = server.counts.sent;
    (sent > 0).then(|| of as f64 / sent as f64)
}

/// Reads a limit.
pub(super) fn limit(text: &str) -> Result<Limit<QueryMetric>, String> {
    Limit::parse(text, FIGURES)
}

/// Evaluates a limit on every server; reports the worst one.
pub(super) fn judge(limit: &Limit<QueryMetric>, result: &QueryResult) -> LimitResult {
    let figure = |server: &ServerResult| (server.name.clone(), (limit.metric)(server));
    limit.judge_named(result.servers.iter().map(figure))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A result of another program's making: the golden one, whose server is ahead by 255 ns.
    fn result() -> QueryResult {
        let text =
            include_str!(concat!(env!("HOROLOG_REPOSITORY"), "crates/record/samples/query.json"));
        serde_json::from_str(text).unwrap()
    }

    fn judged(text: &str, result: &QueryResult) -> (Option<f64>, bool) {
        let judged = judge(&limit(text).unwrap(), result);
        (judged.value, judged.failed)
    }

    #[test]
    fn each_figure_is_the_server_s() {
        let result = result();
        for (text, value, failed) in [
            ("offset>255ns", 255.0, false),
            ("offset>254ns", 255.0, true),
            ("bound>50ns", 51.0, true),
            ("delay>1us", 90.0, false),
            ("jitter>12ns", 13.0, true),
            ("mean>1us", 256.75, false),
            ("rms>256ns", 256.9, true),
            ("max>275ns", 276.0, true),
            ("loss>24%", 0.25, true),
            ("loss>25%", 0.25, false),
            ("unsynchronised>50%", 7.0 / 12.0, true),
        ] {
            let (of, is_broken) = judged(text, &result);
            let near = of.is_some_and(|of| (of - value).abs() < 0.6);
            assert!(near && is_broken == failed, "{text}: {of:?}, {is_broken}");
        }
    }

    #[test]
    fn offsets_count_either_way() {
        let mut result = result();
        result.servers[0].best.as_mut().unwrap().offset_ns = i64::MIN;
        let offsets = result.servers[0].offset_ns.as_mut().unwrap();
        (offsets.min, offsets.mean) = (-9_000, -400.0);
        assert_eq!(judged("offset>60s", &result), (Some(9_223_372_036_854_775_808.0), true));
        assert_eq!(judged("max>8us", &result), (Some(9_000.0), true));
        assert_eq!(judged("mean>400ns", &result), (Some(400.0), false));
    }

    #[test]
    fn worst_server_is_named_and_one_without_replies_fails_every_limit() {
        let mut result = result();
        let mut other = result.servers[0].clone();
        other.name = "other.example".to_owned();
        other.best.as_mut().unwrap().offset_ns = -4_000;
        result.servers.push(other.clone());
        let worst = judge(&limit("offset>1s").unwrap(), &result);
        assert_eq!((worst.scope.as_deref(), worst.failed), (Some("other.example"), false));
        (other.best, other.offset_ns, other.jitter_ns) = (None, None, None);
        other.counts = horolog_record::QueryCounts::default();
        result.servers[1] = other;
        for (name, unit, _) in FIGURES {
            let bound = if unit == LimitUnit::Ratio { "99%" } else { "60s" };
            let broken = judge(&limit(&format!("{name}>{bound}")).unwrap(), &result);
            assert_eq!((broken.scope.as_deref(), broken.value), (Some("other.example"), None));
            assert!(broken.failed, "{name}");
        }
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        for wrong in ["", "offset", "offset<1us", "p99>1us", "offset>", "offset>1", "loss>1us"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
