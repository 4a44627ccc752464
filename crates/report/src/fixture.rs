//! Results for the tests: samples, and results shaped like real ones: a server with
//! a capacity, trials below and above it, latencies with a long tail. All figures of these follow
//! from the formulas here, so no test depends on chance.

mod checks;
mod query;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use horolog_record::{
    BENCH_NTS_SCHEMA, BenchNtsResult, CapacitySearchGoal, CapacitySearchResult, DEMO_SCHEMA,
    DemoCandidateResult, DemoResult, Distribution, Finding, FindingCode, Host, InvalidReplyReason,
    LOAD_SCHEMA, LoadEngineKind, LoadResult, LoadSeriesPoint, LoadTarget, LoadTimeSeries,
    LossLocation, NtsMixCapacity, Percentiles, ReplyKindCounts, RequestMode, RequestSpacing,
    SearchEndReason, Severity, SignedDistribution, Trial,
};
use horolog_stats::Histogram;
use serde::de::DeserializeOwned;

pub(crate) use checks::checks;
pub(crate) use query::query;

const DURATION_S: f64 = 2.0;

/// Reads a sample result.
pub(crate) fn sample<T: DeserializeOwned>(kind: &str) -> T {
    let path = format!("{}crates/record/samples/{kind}.json", env!("HOROLOG_REPOSITORY"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A search against a server that takes 3.9 million requests per second.
pub(crate) fn load() -> LoadResult {
    let rates = [
        10_000.0,
        100_000.0,
        1_000_000.0,
        2_000_000.0,
        4_000_000.0,
        3_000_000.0,
        3_500_000.0,
        3_810_000.0,
        3_980_000.0,
        5_000_000.0,
    ];
    server(3.9e6, 3_000.0, &rates)
}

/// Several servers, the last one ended by the generator.
pub(crate) fn demo() -> DemoResult {
    let around = |capacity: f64| {
        [0.05, 0.25, 0.5, 1.0, 0.75, 0.9, 0.98, 1.02, 1.3, 2.0].map(|part| part * capacity * 1.001)
    };
    let candidate = |label: &str, capacity: f64, base_ns: f64| DemoCandidateResult {
        label: label.to_owned(),
        server_command: ["horolog", "serve", "--threads", "2"].map(str::to_owned).to_vec(),
        load: server(capacity, base_ns, &around(capacity)),
    };
    let mut xdp = candidate("XDP", 3.9e6, 3_000.0);
    if let Some(search) = &mut xdp.load.search {
        search.end = SearchEndReason::GeneratorLimit;
        search.upper = None;
    }
    DemoResult {
        schema: DEMO_SCHEMA.to_owned(),
        started: "2026-01-02T03:04:05.678Z".to_owned(),
        command: ["horolog", "demo"].map(str::to_owned).to_vec(),
        host: host(),
        candidates: vec![
            candidate("chronyd 4.3", 45_000.0, 18_000.0),
            candidate("shared lock, 2 threads", 62_000.0, 21_000.0),
            candidate("socket, 1 thread", 121_000.0, 14_000.0),
            candidate("socket, 2 threads", 219_000.0, 12_000.0),
            xdp,
        ],
        findings: vec![finding(
            FindingCode::SharedMachine,
            Severity::Note,
            "Generator and server shared the 2 processors of this machine.",
            "Compare the rows with one another; for absolute figures load from another machine.",
            None,
        )],
    }
}

/// Searches with one, two and three threads; with three, without authenticated requests only.
pub(crate) fn bench_nts() -> BenchNtsResult {
    let demo = demo();
    let capacity = |(index, threads, percent): (usize, usize, u8)| NtsMixCapacity {
        threads,
        authenticated_percent: percent,
        server_command: Vec::new(),
        cpu_ns_per_reply: (index > 0).then_some(1_234.5 * index as f64),
        load: demo.candidates[index].load.clone(),
    };
    let combinations = [(4, 1, 0), (2, 1, 100), (3, 2, 0), (1, 2, 100), (0, 3, 0)];
    BenchNtsResult {
        schema: BENCH_NTS_SCHEMA.to_owned(),
        started: demo.started.clone(),
        command: Vec::new(),
        host: demo.host.clone(),
        capacities: combinations.map(capacity).to_vec(),
        findings: demo.findings.clone(),
    }
}

/// Three intervals, the last two of them of the second trial: nothing lost, half, and all.
pub(crate) fn series() -> LoadTimeSeries {
    let point = |(index, lost): (usize, u64)| LoadSeriesPoint {
        at_s: index as f64 * 0.5,
        trial: index.min(1),
        intended_rate: 200.0,
        sent: 100,
        received: 100 - lost,
        lost,
        late: 0,
        unsynchronised: 0,
        invalid: 0,
        rtt_ns: (lost < 100).then_some(Percentiles {
            p50: 3_000,
            p90: 5_000,
            p99: 9_000,
            p99_9: 20_000,
            max: 1_000_000,
        }),
    };
    LoadTimeSeries {
        interval_s: 0.5,
        points: [0, 50, 100].into_iter().enumerate().map(point).collect(),
    }
}

/// A run without a trial, a search or a finding.
pub(crate) fn empty() -> LoadResult {
    let mut result = load();
    result.trials.clear();
    result.findings.clear();
    result.search = None;
    result
}

/// A trial in which nothing was sent.
pub(crate) fn trial_without_requests() -> Trial {
    Trial {
        phase: None,
        intended_rate: 0.0,
        achieved_rate: f64::NAN,
        duration_s: 0.0,
        clients: 0,
        sent: 0,
        received: 0,
        lost: 0,
        duplicate: 0,
        late: 0,
        unsynchronised: 0,
        invalid: BTreeMap::new(),
        responses: ReplyKindCounts::default(),
        authenticated: None,
        cookies_reused: None,
        fairness: None,
        compliant_clients: None,
        parts: Vec::new(),
        rtt_ns: None,
        response_time_ns: None,
        tx_offset_ns: None,
        timestamped: None,
        lateness_ns: None,
        lost_at: BTreeMap::new(),
    }
}

/// A trial whose every figure is as large as its type allows.
pub(crate) fn extreme_trial() -> Trial {
    let distribution = distribution(1e18, 1.0);
    Trial {
        phase: None,
        intended_rate: 1e30,
        achieved_rate: f64::MAX,
        duration_s: f64::INFINITY,
        clients: u64::MAX,
        sent: u64::MAX,
        received: u64::MAX,
        lost: u64::MAX,
        duplicate: u64::MAX,
        late: u64::MAX,
        unsynchronised: u64::MAX,
        invalid: BTreeMap::from([(InvalidReplyReason::Origin, u64::MAX)]),
        responses: ReplyKindCounts {
            basic: u64::MAX,
            interleaved: u64::MAX,
            nts: u64::MAX,
            delay: u64::MAX,
            sync_follow_up: u64::MAX,
            grant: u64::MAX,
            denial: u64::MAX,
            cancellation: u64::MAX,
            granted_messages: u64::MAX,
        },
        authenticated: None,
        cookies_reused: None,
        fairness: None,
        compliant_clients: None,
        parts: Vec::new(),
        rtt_ns: distribution.clone(),
        response_time_ns: distribution.clone(),
        tx_offset_ns: Some(extreme_offsets()),
        timestamped: Some(u64::MAX),
        lateness_ns: distribution,
        lost_at: BTreeMap::from([(LossLocation::Unknown, u64::MAX)]),
    }
}

fn extreme_offsets() -> SignedDistribution {
    SignedDistribution {
        count: u64::MAX,
        min: i64::MIN,
        mean: f64::MIN,
        stddev: f64::INFINITY,
        p50: i64::MIN,
        p90: 0,
        p99: i64::MAX,
        p99_9: i64::MAX,
        p99_99: i64::MAX,
        max: i64::MAX,
        histogram: String::new(),
        histogram_negative: String::new(),
    }
}

pub(crate) fn finding(
    code: FindingCode,
    severity: Severity,
    message: &str,
    advice: &str,
    trial: Option<usize>,
) -> Finding {
    Finding { code, severity, message: message.to_owned(), advice: advice.to_owned(), trial }
}

fn host() -> Host {
    Host {
        kernel: Some("6.18.5".to_owned()),
        cpu: Some("Intel(R) Xeon(R) Processor @ 2.00GHz".to_owned()),
        cores: 2,
        clocksource: Some("tsc".to_owned()),
        governor: None,
        virtualised: Some(true),
    }
}

fn server(capacity: f64, base_ns: f64, rates: &[f64]) -> LoadResult {
    let trials: Vec<_> = rates.iter().map(|rate| trial(*rate, capacity, base_ns)).collect();
    let achieved =
        |held: bool| trials.iter().filter(move |t| (t.lost == 0) == held).map(|t| t.achieved_rate);
    let lower = achieved(true).reduce(f64::max);
    let upper = achieved(false).reduce(f64::min);
    LoadResult {
        schema: LOAD_SCHEMA.to_owned(),
        started: "2026-01-02T03:04:05.678Z".to_owned(),
        command: ["horolog", "load", "ntp", "10.0.0.1", "--search", "ndr"]
            .map(str::to_owned)
            .to_vec(),
        host: host(),
        target: LoadTarget {
            address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
            port: 123,
            name: None,
            interface: Some("horo0".to_owned()),
            mac: Some("02:00:00:00:00:01".to_owned()),
            source_network: Some("172.18.0.0/16".to_owned()),
        },
        mode: RequestMode::NtpBasic,
        engine: LoadEngineKind::Xdp,
        threads: 2,
        spacing: RequestSpacing::Constant,
        reply_timeout_ns: 1_000_000_000,
        offset: None,
        search: Some(CapacitySearchResult {
            kind: CapacitySearchGoal::Ndr,
            goal_loss_ratio: 0.0001,
            rate: lower.unwrap_or_default(),
            lower,
            upper,
            loss_ratio: 0.0,
            end: SearchEndReason::Converged,
        }),
        series: None,
        outages: Vec::new(),
        overload: None,
        limits: Vec::new(),
        findings: vec![
            finding(
                FindingCode::SharedMachine,
                Severity::Note,
                "Generator and server shared the 2 processors of this machine.",
                "For absolute figures load from another machine.",
                None,
            ),
            finding(
                FindingCode::GeneratorBehind,
                Severity::Warning,
                "The generator sent 2.0% less than was planned.",
                "Give it more threads, or read the rate that was sent.",
                Some(rates.len() - 1),
            ),
        ],
        trials,
    }
}

fn trial(intended_rate: f64, capacity: f64, base_ns: f64) -> Trial {
    let behind = if intended_rate > 1.25 * capacity { 0.98 } else { 1.0 };
    let achieved_rate = intended_rate * behind;
    let sent = (achieved_rate * DURATION_S) as u64;
    let load = achieved_rate / capacity;
    let lost = if load > 1.0 { (sent as f64 * (1.0 - 1.0 / load)) as u64 } else { 0 };
    let at_interface = lost * 4 / 5;
    let mut lost_at = BTreeMap::new();
    if lost > 0 {
        lost_at.insert(LossLocation::Interface, at_interface);
        lost_at.insert(LossLocation::Server, (lost - at_interface) / 2);
        lost_at.insert(LossLocation::Unknown, lost - at_interface - (lost - at_interface) / 2);
    }
    let queue = 1.0 + 0.4 / (1.02 - load.min(1.0)) / 10.0;
    Trial {
        phase: None,
        intended_rate,
        achieved_rate,
        duration_s: DURATION_S,
        clients: 16_384,
        sent,
        received: sent - lost,
        lost,
        duplicate: 0,
        late: 0,
        unsynchronised: 0,
        invalid: BTreeMap::new(),
        responses: ReplyKindCounts { basic: sent - lost, ..ReplyKindCounts::default() },
        authenticated: None,
        cookies_reused: None,
        fairness: None,
        compliant_clients: None,
        parts: Vec::new(),
        rtt_ns: distribution(base_ns * queue, 0.3 + load.min(1.0)),
        response_time_ns: distribution(base_ns / 40.0, 0.2),
        tx_offset_ns: None,
        timestamped: None,
        lateness_ns: distribution(400.0, 0.4),
        lost_at,
    }
}

/// A distribution with a median near `base_ns` and a tail that grows with `tail`.
fn distribution(base_ns: f64, tail: f64) -> Option<Distribution> {
    const VALUES: usize = 20_000;
    let mut histogram = Histogram::new();
    for index in 0..VALUES {
        let share = (index as f64 + 0.5) / VALUES as f64;
        histogram.record((base_ns * (0.8 + 0.3 * share + 0.02 * tail / (1.0 - share))) as u64);
    }
    Distribution::from_histogram(&histogram)
}
