//! Capacity of each server: the same search by the same generator against each in turn, so that a
//! slow minute of the host affects them all.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use horolog_lab::{Lab, LabConfig};
use horolog_load::mix::RequestMix;
use horolog_load::ptp::{PtpLoadTransport, PtpRequestKind, PtpRequestOptions};
use horolog_load::ramp::Ramp;
use horolog_load::request_kind::EchoRequests;
use horolog_load::{LoadOptions, LoadProcedure, LoadRun};
use horolog_record::{CapacitySearchGoal, LoadEngineKind, LoadResult, SearchEndReason};
use horolog_stats::{GoalLossRatio, SearchConfig};

use crate::figure::{Figure, Goal};
use crate::metrics::MetricsReader;
use crate::servers::{self, Server};

/// Requests for the delay of a PTP master.
pub(crate) const PTP_DELAY: PtpRequestOptions = PtpRequestOptions {
    kind: PtpRequestKind::Delay,
    domain: 0,
    minor_version: 0,
    multicast: false,
    transport: PtpLoadTransport::Udp,
};

/// Requests of NetSync Monitor.
pub(crate) const PTP_MONITOR: PtpRequestOptions =
    PtpRequestOptions { kind: PtpRequestKind::Nsm, ..PTP_DELAY };

/// Maximum loss ratio of a trial that counts as lossless.
pub(crate) const LOSS_RATIO_MAX: f64 = 1e-4;

const SERVERS: [Server; 4] = [Server::Chronyd, Server::Sockets, Server::Xdp, Server::Reflector];

/// Searches for every server's capacity `rounds` times and compares them.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let mut runs: Vec<Vec<f64>> = vec![Vec::new(); SERVERS.len()];
    for round in 1..=rounds {
        for (server, runs) in SERVERS.into_iter().zip(&mut runs) {
            let rate = capacity(server, binary)?;
            eprintln!("round {round} of {rounds}: {}: {rate:.0}/s", server.name());
            runs.push(rate);
        }
    }
    let of = |server: Server| {
        let position = SERVERS.iter().position(|other| *other == server).unwrap_or(0);
        Figure::new(format!("capacity: {}", server.name()), "/s", runs[position].clone())
    };
    let [chronyd, sockets, xdp, reflector] = SERVERS.map(of);
    let ratios = [
        Figure::ratio("XDP to chronyd", &xdp, &chronyd).with(Goal::AtLeast(60.0)),
        Figure::ratio("XDP to bare XDP reflector", &xdp, &reflector).with(Goal::AtLeast(0.85)),
        Figure::ratio("sockets, 2 threads, to chronyd", &sockets, &chronyd)
            .with(Goal::AtLeast(3.0)),
    ];
    Ok([chronyd, sockets, xdp, reflector].into_iter().chain(ratios).collect())
}

/// Measures the reply rates of XDP and the bare reflectors under a flood, alternating. A flood
/// takes less time than a search, and shows the cost of a packet, also for PTP.
pub(crate) fn flood(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let servers = [Server::Xdp, Server::Reflector, Server::PtpReflector, Server::MonitorReflector];
    let mut runs = servers.map(|_| Vec::new());
    for _ in 0..rounds {
        for (server, runs) in servers.into_iter().zip(&mut runs) {
            runs.push(flood_rate(server, binary)?);
        }
    }
    let mut names = servers.iter().map(|server| format!("flooded: {}", server.name()));
    let figures = runs.map(|runs| Figure::new(names.next().unwrap_or_default(), "/s", runs));
    let [xdp, reflector, ptp, _] = &figures;
    let ratios = [
        Figure::ratio("flooded: XDP to bare XDP reflector", xdp, reflector),
        Figure::ratio("flooded: reflector of PTP to that of NTP", ptp, reflector),
    ];
    Ok(figures.into_iter().chain(ratios).collect())
}

/// Returns the search that is run against every server.
pub(crate) fn search() -> Result<LoadProcedure> {
    let mut config = SearchConfig::new(GoalLossRatio::new(LOSS_RATIO_MAX)?, 1e3, 20e6);
    config.final_duration = Duration::from_millis(500);
    config.duration_sum = Duration::from_millis(1500);
    Ok(LoadProcedure::Search { kind: CapacitySearchGoal::Ndr, config })
}

fn capacity(server: Server, binary: &Path) -> Result<f64> {
    let result = load(server, binary, search()?, |_| ())?;
    let search = result.search.context("the search has no result")?;
    let is_generator_limit =
        matches!(search.end, SearchEndReason::GeneratorLimit | SearchEndReason::CappedAtMax);
    if is_generator_limit {
        eprintln!("{}: the search ended at the generator's limit", server.name());
    }
    Ok(search.rate)
}

fn flood_rate(server: Server, binary: &Path) -> Result<f64> {
    flood_rate_with(server, binary, None, Duration::from_millis(500))
}

/// Number of clients of a flood that is to use many buckets.
pub(crate) const CLIENTS: u32 = 65_536;

/// Returns the reply rate per second of a server that `clients` flood for `duration`.
pub(crate) fn flood_rate_with(
    server: Server,
    binary: &Path,
    clients: Option<u32>,
    duration: Duration,
) -> Result<f64> {
    // Exceeds the rate of any processor, so that the generator never waits.
    let min = 20e6;
    let ramp = Ramp { min, max: min, multiplier: 2.0, duration };
    let result = load(server, binary, LoadProcedure::Ramp(ramp), |options| {
        options.clients = clients.or(options.clients);
    })?;
    let trial = result.trials.first().context("the result has no trial")?;
    Ok(trial.achieved_rate * (1.0 - trial.loss_ratio()))
}

/// Loads a server in its own lab with the in-kernel engine; `change` adjusts the options last. The
/// metrics of a server that has them are read once a second meanwhile.
pub(crate) fn load(
    server: Server,
    binary: &Path,
    job: LoadProcedure,
    change: impl FnOnce(&mut LoadOptions),
) -> Result<LoadResult> {
    let lab = Lab::new(&LabConfig { queues: 2, ..LabConfig::default() })?;
    let started = servers::start(server, lab.server(), binary)?;
    let reader = started.metrics.map(|at| MetricsReader::start(lab.server(), at)).transpose()?;
    let target = lab.server().first_interface().ipv4.to_string().parse()?;
    let mut options = LoadOptions::new(target, job);
    options.engine = Some(LoadEngineKind::Xdp);
    options.requests = match server {
        Server::Reflector => RequestMix::only(EchoRequests),
        Server::PtpReflector => RequestMix::only(PTP_DELAY),
        Server::MonitorReflector => RequestMix::only(PTP_MONITOR),
        _ => RequestMix::default(),
    };
    options.namespaces = vec![lab.server().netns.clone()];
    change(&mut options);
    let result = lab.client().run(|| LoadRun::prepare(options)?.run(&mut ()))??;
    reader.map_or(Ok(()), MetricsReader::finish)?;
    Ok(result)
}
