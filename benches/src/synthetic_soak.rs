//! Result of a ten-minute load without the load, of the same size: as many latencies as the load
//! would measure are drawn at random and recorded as a generator records them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use horolog_record::{
    Distribution, Host, LOAD_SCHEMA, LoadEngineKind, LoadResult, LoadSeriesPoint, LoadTarget,
    LoadTimeSeries, LossLocation, Percentiles, ReplyKindCounts, RequestMode, RequestSpacing, Trial,
    rfc3339_now,
};
use horolog_stats::Histogram;
use horolog_time::SplitMix64;

/// Number of trials.
pub(crate) const TRIALS: usize = 10;
/// Duration of a trial in seconds, with a point for each second.
pub(crate) const TRIAL_S: usize = 60;
/// Requests per second.
pub(crate) const RATE: usize = 1_000;

/// Random latencies like those of a busy server: most of them short, with a long tail.
struct RandomLatencies(SplitMix64);

impl RandomLatencies {
    fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn next_ns(&mut self) -> u64 {
        let tail = if self.uniform() < 0.01 { 20.0 } else { 1.0 };
        (30_000.0 - 40_000.0 * tail * (1.0 - self.uniform()).ln()) as u64
    }

    fn draw_histogram(&mut self, count: usize) -> Histogram {
        let mut histogram = Histogram::new();
        for _ in 0..count {
            histogram.record(self.next_ns());
        }
        histogram
    }
}

fn trial(latencies: &mut RandomLatencies) -> Trial {
    let sent = (RATE * TRIAL_S) as u64;
    let mut distribution =
        || Distribution::from_histogram(&latencies.draw_histogram(RATE * TRIAL_S));
    Trial {
        phase: None,
        intended_rate: RATE as f64,
        achieved_rate: RATE as f64,
        duration_s: TRIAL_S as f64,
        clients: 1_024,
        sent,
        received: sent,
        lost: 0,
        duplicate: 0,
        late: 0,
        unsynchronised: 0,
        invalid: BTreeMap::new(),
        responses: ReplyKindCounts { basic: sent, ..ReplyKindCounts::default() },
        authenticated: None,
        cookies_reused: None,
        fairness: None,
        compliant_clients: None,
        rtt_ns: distribution(),
        response_time_ns: distribution(),
        tx_offset_ns: None,
        timestamped: Some(sent),
        lateness_ns: distribution(),
        lost_at: BTreeMap::from([(LossLocation::Unknown, 0)]),
        parts: Vec::new(),
    }
}

fn point(second: usize, latencies: &mut RandomLatencies) -> LoadSeriesPoint {
    let distribution = Distribution::from_histogram(&latencies.draw_histogram(RATE));
    LoadSeriesPoint {
        at_s: second as f64,
        trial: second / TRIAL_S,
        intended_rate: RATE as f64,
        sent: RATE as u64,
        received: RATE as u64,
        lost: 0,
        late: 0,
        invalid: 0,
        unsynchronised: 0,
        rtt_ns: distribution.map(|distribution| Percentiles {
            p50: distribution.p50,
            p90: distribution.p90,
            p99: distribution.p99,
            p99_9: distribution.p99_9,
            max: distribution.max,
        }),
    }
}

/// Returns the result of a run with the latencies of the given seed.
pub(crate) fn record(seed: u64, host: &Host) -> LoadResult {
    let mut latencies = RandomLatencies(SplitMix64::new(seed));
    let trials = (0..TRIALS).map(|_| trial(&mut latencies)).collect();
    let points = (0..TRIALS * TRIAL_S).map(|second| point(second, &mut latencies)).collect();
    LoadResult {
        schema: LOAD_SCHEMA.to_owned(),
        started: rfc3339_now(),
        command: vec!["horolog".to_owned(), "load".to_owned(), "ntp".to_owned()],
        host: host.clone(),
        target: LoadTarget {
            address: Ipv4Addr::new(192, 0, 2, 1).into(),
            port: 123,
            name: None,
            interface: None,
            mac: None,
            source_network: None,
        },
        mode: RequestMode::NtpBasic,
        engine: LoadEngineKind::Packet,
        threads: 2,
        spacing: RequestSpacing::Constant,
        reply_timeout_ns: 1_000_000_000,
        offset: None,
        trials,
        search: None,
        series: Some(LoadTimeSeries { interval_s: 1.0, points }),
        outages: Vec::new(),
        overload: None,
        limits: Vec::new(),
        findings: Vec::new(),
    }
}
