//! Metrics of time servers for `--fail-if`: offset, error bound, delay, jitter, and shares of lost
//! and unsynchronised replies. Pure.

use horolog_record::{ExactSummary, LimitResult, LimitUnit, QueryResult, ServerResult};

use crate::limit::{Limit, LimitedMetric};

/// Function that returns a metric of one server; `None` if it has too few samples.
pub(super) type QueryMetric = fn(&ServerResult) -> Option<f64>;

const METRICS: [LimitedMetric<QueryMetric>; 9] = [
    ("offset", LimitUnit::Ns, |server| Some(magnitude(server.best?.offset_ns))),
    ("bound", LimitUnit::Ns, |server| Some(server.best?.bound_ns as f64)),
    ("delay", LimitUnit::Ns, |server| Some(magnitude(server.best?.delay_ns))),
    ("jitter", LimitUnit::Ns, |server| server.jitter_ns),
    ("mean", LimitUnit::Ns, |server| Some(server.offset_ns?.mean.abs())),
    ("rms", LimitUnit::Ns, |server| Some(server.offset_ns?.rms)),
    ("max", LimitUnit::Ns, |server| server.offset_ns.as_ref().map(offset_abs_max)),
    ("loss", LimitUnit::Ratio, |server| share(server.counts.lost, server)),
    ("unsynchronised", LimitUnit::Ratio, |server| share(server.counts.unsynchronised, server)),
];

fn magnitude(ns: i64) -> f64 {
    ns.unsigned_abs() as f64
}

/// Returns the greatest absolute value of the offsets, in ns.
fn offset_abs_max(offsets: &ExactSummary) -> f64 {
    magnitude(offsets.min).max(magnitude(offsets.max))
}

/// Returns `count` as a share of the requests sent; `None` if none were sent.
fn share(count: u64, server: &ServerResult) -> Option<f64> {
    let sent = server.counts.sent;
    (sent > 0).then(|| count as f64 / sent as f64)
}

/// Parses an expression of `--fail-if`.
pub(super) fn parse_limit(text: &str) -> Result<Limit<QueryMetric>, String> {
    Limit::parse(text, METRICS)
}

/// Evaluates a limit on all servers, and returns the result for the server with the worst value.
pub(super) fn judge(limit: &Limit<QueryMetric>, result: &QueryResult) -> LimitResult {
    let named_value = |server: &ServerResult| (server.name.clone(), (limit.metric)(server));
    limit.evaluate_named(result.servers.iter().map(named_value))
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
        let judged = judge(&parse_limit(text).unwrap(), result);
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
        let worst = judge(&parse_limit("offset>1s").unwrap(), &result);
        assert_eq!((worst.scope.as_deref(), worst.failed), (Some("other.example"), false));
        (other.best, other.offset_ns, other.jitter_ns) = (None, None, None);
        other.counts = horolog_record::QueryCounts::default();
        result.servers[1] = other;
        for (name, unit, _) in METRICS {
            let bound = if unit == LimitUnit::Ratio { "99%" } else { "60s" };
            let broken = judge(&parse_limit(&format!("{name}>{bound}")).unwrap(), &result);
            assert_eq!((broken.scope.as_deref(), broken.value), (Some("other.example"), None));
            assert!(broken.failed, "{name}");
        }
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        for wrong in ["", "offset", "offset<1us", "p99>1us", "offset>", "offset>1", "loss>1us"] {
            assert!(parse_limit(wrong).is_err(), "{wrong}");
        }
    }
}
