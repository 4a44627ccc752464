//! Metrics of a running measurement in the `OpenMetrics` text format. Quantities that only increase
//! are counters; the others are gauges from the latest snapshot. Requests count as lost only after
//! their part has ended.

use std::fmt;

use horolog_record::{
    Finding, LiveRun, LiveRunStatus, LossLocation, Percentiles, RequestValues, Severity, Snapshot,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::findings::severity_name;

/// Returns a run of `horolog load` as `OpenMetrics` text.
#[must_use]
pub fn load_metrics(run: &LiveRun) -> String {
    let mut registry = Registry::with_prefix("horolog_load");
    registry.register_collector(Box::new(LiveRunCollector(run.clone())));
    let mut text = String::new();
    // Writing to memory does not fail.
    let _ = text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct LiveRunCollector(LiveRun);

/// Writer of metric families of the `OpenMetrics` format.
struct MetricFamilyWriter<'a>(DescriptorEncoder<'a>);

impl MetricFamilyWriter<'_> {
    /// Writes one counter.
    fn count(&mut self, name: &str, help: &str, count: u64) -> fmt::Result {
        let counter = ConstCounter::new(count);
        counter.encode(self.0.encode_descriptor(name, help, None, MetricType::Counter)?)
    }

    /// Writes one gauge.
    fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let gauge = ConstGauge::new(value);
        gauge.encode(self.0.encode_descriptor(name, help, None, MetricType::Gauge)?)
    }

    /// Writes counters that differ in a label; nothing if there are none.
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

    /// Writes times as gauges in seconds, one for each quantile.
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

impl Collector for LiveRunCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (run, mut to) = (&self.0, MetricFamilyWriter(encoder));
        let none = Snapshot::default();
        let snapshot = run.snapshots.last().unwrap_or(&none);
        counted(&mut to, &snapshot.values)?;
        to.count("lost", "Requests lost in finished trials", run.lost)?;
        let locations =
            run.lost_at.iter().map(|(location, lost)| (location_name(*location), *lost));
        let locations_help = "Requests lost in finished trials, by location if it is known";
        to.counts(("lost_at", locations_help, "location"), locations)?;
        to.count("trials", "Finished trials and phases", run.ended.next())?;
        rates(&mut to, snapshot)?;
        let running = u8::from(run.state == LiveRunStatus::Running);
        to.gauge("running", "1 while the run is in progress", running.into())?;
        findings(&mut to, &run.findings)
    }
}

fn counted(to: &mut MetricFamilyWriter<'_>, values: &RequestValues) -> fmt::Result {
    let counts = &values.counts;
    to.count("sent", "Requests sent", counts.sent)?;
    to.count("replies", "Valid replies within the timeout", counts.received)?;
    to.count("late", "Valid replies after the timeout", counts.late)?;
    to.count("duplicates", "Further valid replies to an answered request", counts.duplicate)?;
    let unsynchronised = "Replies of a server that reports itself as unsynchronised";
    to.count("unsynchronised", unsynchronised, counts.unsynchronised)?;
    to.count("invalid", "Invalid replies", counts.invalid)?;
    to.count("refused", "Requests that could not be sent", counts.refused)?;
    let dropped = "Replies dropped because a receive ring or socket of the generator was full";
    to.count("dropped", dropped, counts.dropped)?;
    let unanswered = counts.unanswered() as f64;
    to.gauge("unanswered", "Requests lost or in flight", unanswered)
}

fn rates(
    to: &mut MetricFamilyWriter<'_>,
    Snapshot { at_s, part, values }: &Snapshot,
) -> fmt::Result {
    let intended = values.intended_rate.unwrap_or(0.0);
    to.gauge("intended_requests_per_second", "Intended rate", intended)?;
    to.gauge("sent_requests_per_second", "Requests sent", values.sent_rate)?;
    to.gauge("replies_per_second", "Valid replies per second", values.received_rate)?;
    let share = "Unanswered share of the requests since the last snapshot";
    to.gauge("unanswered_ratio", share, values.unanswered_ratio)?;
    to.gauge("elapsed_seconds", "Time since the run was ready to start", *at_s)?;
    to.gauge("trial_index", "Index of the trial or phase, from 0", part.index as f64)?;
    to.gauge("trial_elapsed_seconds", "Time since its start", part.elapsed_s)?;
    let planned = part.duration_s.unwrap_or(0.0);
    to.gauge("trial_duration_seconds", "Intended duration", planned)?;
    let latency = "Time from the intended send instant to the reply, in this trial or interval";
    to.quantiles("latency_seconds", latency, values.latency_ns.as_ref())?;
    let lateness = "Time from the intended to the actual send instant, in this trial or interval";
    to.quantiles("lateness_seconds", lateness, values.lateness_ns.as_ref())
}

fn findings(to: &mut MetricFamilyWriter<'_>, findings: &[Finding]) -> fmt::Result {
    let mut family = to.0.encode_descriptor(
        "findings",
        "Findings so far, by severity",
        None,
        MetricType::Gauge,
    )?;
    for severity in [Severity::Note, Severity::Warning, Severity::Error] {
        let count = findings.iter().filter(|finding| finding.severity == severity).count();
        let labels = [("severity", severity_name(severity))];
        ConstGauge::new(count as f64).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Returns the name of a loss location in results.
fn location_name(location: LossLocation) -> String {
    let name = serde_json::to_value(location).ok();
    name.and_then(|name| name.as_str().map(ToOwned::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use horolog_record::{FindingCode, LiveCounts, LivePartSummary};

    use super::*;

    #[test]
    fn counts_are_exported_in_base_units() {
        let mut run = LiveRun::new("load", "a server".to_owned(), "trial");
        let counts = LiveCounts { sent: 10, received: 7, late: 1, ..LiveCounts::default() };
        let percentiles = Percentiles { p50: 1_000, p90: 2_000, p99: 3_000, p99_9: 4, max: 9 };
        let latency_ns = Some(percentiles);
        let values =
            RequestValues { counts, latency_ns, sent_rate: 5.5, ..RequestValues::default() };
        run.snapshots.push(Snapshot { values, ..Snapshot::default() });
        let lost_at = [(LossLocation::OwnRing, 2)].into();
        run.end_part(LivePartSummary { lost: 2, lost_at, ..LivePartSummary::default() });
        run.findings.push(Finding {
            code: FindingCode::SharedMachine,
            severity: Severity::Note,
            message: String::new(),
            advice: String::new(),
            trial: None,
        });
        let text = load_metrics(&run);
        for line in [
            "horolog_load_sent_total 10",
            "horolog_load_replies_total 7",
            "horolog_load_unanswered 3.0",
            "horolog_load_lost_total 2",
            "horolog_load_lost_at_total{location=\"own_ring\"} 2",
            "horolog_load_trials_total 1",
            "horolog_load_sent_requests_per_second 5.5",
            "horolog_load_latency_seconds{quantile=\"0.99\"} 0.000003",
            "horolog_load_findings{severity=\"note\"} 1.0",
            "horolog_load_running 1.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
        run.state = LiveRunStatus::Ended;
        assert!(load_metrics(&run).contains("horolog_load_running 0.0\n"));
    }

    #[test]
    fn a_run_that_has_not_begun_has_metrics() {
        let text = load_metrics(&LiveRun::new("load", String::new(), "trial"));
        assert!(text.contains("horolog_load_sent_total 0\n") && text.ends_with("# EOF\n"));
    }
}
