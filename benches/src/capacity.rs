//! How much each server takes: the same search by the same generator against one after the other,
//! in turn, so that a slow minute of the machine meets them all.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use horolog_lab::{Lab, LabConfig};
use horolog_load::ptp::{PtpLoadTransport, PtpRequestKind, PtpRequestOptions};
use horolog_load::ramp::Ramp;
use horolog_load::{LoadObserver, LoadOptions, LoadProcedure, LoadRun};
use horolog_record::{CapacitySearchGoal, LoadEngineKind, LoadResult, SearchEndReason, Trial};
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

/// A trial with at most one lost request in ten thousand counts as lossless.
pub(crate) const LOSS: f64 = 1e-4;

const SERVERS: [Server; 4] = [Server::Chronyd, Server::Sockets, Server::Xdp, Server::Reflector];

/// Nobody who follows a run.
pub(crate) struct NullObserver;

impl LoadObserver for NullObserver {
    fn trial_ended(&mut self, _: usize, _: &Trial) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

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
        let position = SERVERS.iter().position(|one| *one == server).unwrap_or(0);
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

/// What XDP and the bare reflectors turn around when they are flooded, in turn. It takes less than
/// a search, and shows what a packet costs, also of PTP.
pub(crate) fn flood(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let servers = [Server::Xdp, Server::Reflector, Server::PtpReflector, Server::MonitorReflector];
    let mut runs = servers.map(|_| Vec::new());
    for _ in 0..rounds {
        for (server, runs) in servers.into_iter().zip(&mut runs) {
            runs.push(flooded(server, binary)?);
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

/// The search that every server is put to.
pub(crate) fn search() -> Result<LoadProcedure> {
    let mut config = SearchConfig::new(GoalLossRatio::new(LOSS)?, 1e3, 20e6);
    config.final_duration = Duration::from_millis(500);
    config.duration_sum = Duration::from_millis(1500);
    Ok(LoadProcedure::Search { kind: CapacitySearchGoal::Ndr, config })
}

fn capacity(server: Server, binary: &Path) -> Result<f64> {
    let result = load(server, binary, search()?, |_| ())?;
    let search = result.search.context("the search did not end")?;
    let is_own =
        matches!(search.end, SearchEndReason::GeneratorLimit | SearchEndReason::CappedAtMax);
    if is_own {
        eprintln!("{}: the generator's limit, not the server's", server.name());
    }
    Ok(search.rate)
}

fn flooded(server: Server, binary: &Path) -> Result<f64> {
    flooded_by(server, binary, None, Duration::from_millis(500))
}

/// Clients of a flood that is to meet many buckets.
pub(crate) const CLIENTS: u32 = 65_536;

/// What a server turns around when it is flooded by so many clients for so long.
pub(crate) fn flooded_by(
    server: Server,
    binary: &Path,
    clients: Option<u32>,
    duration: Duration,
) -> Result<f64> {
    // More than any processor sends, so that the generator never waits.
    let min = 20e6;
    let ramp = Ramp { min, max: min, multiplier: 2.0, duration };
    let result = load(server, binary, LoadProcedure::Ramp(ramp), |options| {
        options.clients = clients.or(options.clients);
    })?;
    let trial = result.trials.first().context("there was no trial")?;
    Ok(trial.achieved_rate * (1.0 - trial.loss_ratio()))
}

/// Loads a server in a lab of its own by the in-kernel engine; `change` has the last word on how.
/// Metrics that it has are read once a second meanwhile.
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
    options.echo = server == Server::Reflector;
    options.ptp = match server {
        Server::PtpReflector => Some(PTP_DELAY),
        Server::MonitorReflector => Some(PTP_MONITOR),
        _ => None,
    };
    options.namespaces = vec![lab.server().netns.clone()];
    change(&mut options);
    let result = lab.client().run(|| LoadRun::prepare(options)?.run(&mut NullObserver))??;
    reader.map_or(Ok(()), MetricsReader::finish)?;
    Ok(result)
}
