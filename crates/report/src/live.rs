//! A measurement that is under way as `OpenMetrics` text. What a scrape can add up are counters;
//! the rest is as it was at the last look. No request is called lost before its part is over.

use std::fmt;

use horolog_record::{Finding, Look, LookState, Looks, Percentiles, Place, Severity};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::findings::severity_name;

/// A run of `horolog load` as `OpenMetrics` text.
#[must_use]
pub fn load_metrics(looks: &Looks) -> String {
    let mut registry = Registry::with_prefix("horolog_load");
    registry.register_collector(Box::new(Families(looks.clone())));
    let mut text = String::new();
    // Writing to memory does not fail.
    let _ = text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Families(Looks);

/// Where a family is written to.
struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    /// One counter.
    fn count(&mut self, name: &str, help: &str, count: u64) -> fmt::Result {
        let counter = ConstCounter::new(count);
        counter.encode(self.0.encode_descriptor(name, help, None, MetricType::Counter)?)
    }

    /// One gauge.
    fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let gauge = ConstGauge::new(value);
        gauge.encode(self.0.encode_descriptor(name, help, None, MetricType::Gauge)?)
    }

    /// Counters that a label tells apart; nothing where there are none.
    fn counts(
        &mut self,
        (name, help, label): (&str, &str, &str),
        samples: impl Iterator<Item = (String, u64)>,
    ) -> fmt::Result {
        let mut samples = samples.peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (value, count) in samples {
            let labels = [(label, value)];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Times as gauges in seconds, one for each quantile.
    fn quantiles(&mut self, name: &str, help: &str, of: Option<&Percentiles>) -> fmt::Result {
        let Some(of) = of else { return Ok(()) };
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        let quantiles = [
            ("0.5", of.p50),
            ("0.9", of.p90),
            ("0.99", of.p99),
            ("0.999", of.p99_9),
            ("1", of.max),
        ];
        for (quantile, ns) in quantiles {
            let labels = [("quantile", quantile)];
            ConstGauge::new(ns as f64 / 1e9).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl Collector for Families {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (looks, mut to) = (&self.0, Writer(encoder));
        let none = Look::default();
        let look = looks.looks.last().unwrap_or(&none);
        counted(&mut to, look)?;
        to.count("lost", "Requests lost in trials that are over", looks.lost)?;
        let places = looks.lost_at.iter().map(|(place, lost)| (place_name(*place), *lost));
        let places_help = "Requests lost in trials that are over, by place as far as it is known";
        to.counts(("lost_at", places_help, "place"), places)?;
        to.count("trials", "Trials and phases that are over", looks.ended.next())?;
        rates(&mut to, look)?;
        let running = u8::from(looks.state == LookState::Running);
        to.gauge("running", "Whether the run goes on", running.into())?;
        findings(&mut to, &looks.findings)
    }
}

fn counted(to: &mut Writer<'_>, look: &Look) -> fmt::Result {
    let counts = &look.counts;
    to.count("sent", "Requests that left", counts.sent)?;
    to.count("replies", "Valid replies within the time allowed", counts.received)?;
    to.count("late", "Valid replies after it", counts.late)?;
    to.count("duplicates", "Further valid replies to answered requests", counts.duplicate)?;
    to.count("invalid", "Replies that were not valid", counts.invalid)?;
    to.count("refused", "Requests that the own sending path refused", counts.refused)?;
    to.count("dropped", "Replies that own rings or sockets had no room for", counts.dropped)?;
    let unanswered = counts.unanswered() as f64;
    to.gauge("unanswered", "Requests that are lost or on their way", unanswered)
}

fn rates(to: &mut Writer<'_>, look: &Look) -> fmt::Result {
    let offered = look.offered_rate.unwrap_or(0.0);
    to.gauge("offered_requests_per_second", "Planned rate", offered)?;
    to.gauge("sent_requests_per_second", "Requests that left", look.sent_rate)?;
    to.gauge("replies_per_second", "Valid replies", look.received_rate)?;
    let share = "Unanswered share of what left since the last look";
    to.gauge("unanswered_ratio", share, look.unanswered_ratio)?;
    to.gauge("elapsed_seconds", "Time since the run was ready to begin", look.at_s)?;
    to.gauge("trial_index", "The trial or phase, from 0 on", look.part.index as f64)?;
    to.gauge("trial_elapsed_seconds", "How long it has gone on", look.part.elapsed_s)?;
    let planned = look.part.duration_s.unwrap_or(0.0);
    to.gauge("trial_duration_seconds", "How long it is to go on", planned)?;
    let latency = "From the intended send instant to the reply, of the trial or the last interval";
    to.quantiles("latency_seconds", latency, look.latency_ns.as_ref())?;
    let lateness = "From the intended to the real send instant, likewise";
    to.quantiles("lateness_seconds", lateness, look.lateness_ns.as_ref())
}

fn findings(to: &mut Writer<'_>, findings: &[Finding]) -> fmt::Result {
    let mut family =
        to.0.encode_descriptor("findings", "Doubts so far", None, MetricType::Gauge)?;
    for severity in [Severity::Note, Severity::Warning, Severity::Error] {
        let count = findings.iter().filter(|finding| finding.severity == severity).count();
        let labels = [("severity", severity_name(severity))];
        ConstGauge::new(count as f64).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// A place as a result calls it.
fn place_name(place: Place) -> String {
    let name = serde_json::to_value(place).ok();
    name.and_then(|name| name.as_str().map(ToOwned::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use horolog_record::{Code, LookCounts, LookEnded};

    use super::*;

    #[test]
    fn what_was_counted_is_told_in_base_units() {
        let mut looks = Looks::new("load", "a server".to_owned(), "trial");
        let counts = LookCounts { sent: 10, received: 7, late: 1, ..LookCounts::default() };
        let percentiles = Percentiles { p50: 1_000, p90: 2_000, p99: 3_000, p99_9: 4, max: 9 };
        let latency_ns = Some(percentiles);
        looks.looks.push(Look { counts, latency_ns, sent_rate: 5.5, ..Look::default() });
        let lost_at = [(Place::OwnRing, 2)].into();
        looks.end_part(LookEnded { lost: 2, lost_at, ..LookEnded::default() });
        looks.findings.push(Finding {
            code: Code::SharedMachine,
            severity: Severity::Note,
            message: String::new(),
            advice: String::new(),
            trial: None,
        });
        let text = load_metrics(&looks);
        for line in [
            "horolog_load_sent_total 10",
            "horolog_load_replies_total 7",
            "horolog_load_unanswered 3.0",
            "horolog_load_lost_total 2",
            "horolog_load_lost_at_total{place=\"own_ring\"} 2",
            "horolog_load_trials_total 1",
            "horolog_load_sent_requests_per_second 5.5",
            "horolog_load_latency_seconds{quantile=\"0.99\"} 0.000003",
            "horolog_load_findings{severity=\"note\"} 1.0",
            "horolog_load_running 1.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
        looks.state = LookState::Ended;
        assert!(load_metrics(&looks).contains("horolog_load_running 0.0\n"));
    }

    #[test]
    fn a_run_that_has_not_begun_has_metrics() {
        let text = load_metrics(&Looks::new("load", String::new(), "trial"));
        assert!(text.contains("horolog_load_sent_total 0\n") && text.ends_with("# EOF\n"));
    }
}
