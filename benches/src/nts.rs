//! Cost of authenticated replies: the reply rate of each server, by the same search, and the CPU
//! time of a reply at a rate that both servers sustain.
//!
//! The generator encrypts and decrypts in user space on one of the two cores, or on both, where it
//! competes with the server. Every server is searched both ways and its higher rate counts, because
//! the better choice differs between servers.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_load::mix::RequestMix;
use horolog_load::nts::{
    AeadAlgorithm, KE_PORT, NtsOptions, SESSIONS_DEFAULT, SessionCount, TrustAnchors,
};
use horolog_load::ramp::Ramp;
use horolog_load::request_kind::NtsSessionSource;
use horolog_load::{LoadOptions, LoadProcedure, LoadRun};
use horolog_record::{LoadEngineKind, LoadResult};

use crate::capacity;
use crate::figure::{Figure, Goal};
use crate::servers::{self, NAME, Server};

const SERVERS: [Server; 3] = [Server::ChronydNts, Server::SocketsNts, Server::XdpNts];

/// Load at which the CPU time of a server is measured, as a share of its own capacity: the server
/// is busy but loses nothing.
const LOAD_SHARE: f64 = 0.9;

/// Duration of a load, long against 10 ms, the resolution of the kernel's CPU times.
const DURATION: Duration = Duration::from_secs(5);

/// Measures all servers `rounds` times, alternating.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let mut rates: [Vec<f64>; 3] = Default::default();
    let (mut busy, mut same) = (rates.clone(), rates.clone());
    for round in 1..=rounds {
        for (index, server) in SERVERS.into_iter().enumerate() {
            let one = search_rate(server, binary, 1)?;
            let both = search_rate(server, binary, 2)?;
            let rate = one.max(both);
            rates[index].push(rate);
            let threads = if both > one { 2 } else { 1 };
            busy[index].push(cost_us(server, binary, rate * LOAD_SHARE, threads)?);
            let chronyd_rate = rates[0].last().map_or(0.0, |rate| rate * LOAD_SHARE);
            same[index].push(cost_us(server, binary, chronyd_rate, 1)?);
            eprintln!(
                "round {round} of {rounds}: NTS: {}: {one:.0}/s and {both:.0}/s, {:.2} us, {:.2} us at \
                 {chronyd_rate:.0}/s",
                server.name(),
                busy[index][round - 1],
                same[index][round - 1]
            );
        }
    }
    let rates = compare_servers("authenticated replies", "/s", rates, Goal::AtLeast(3.0));
    let busy = compare_servers("process time of a reply when busy", "us", busy, Goal::Below(0.2));
    let what = "process time of a reply at chronyd's rate";
    let same = compare_servers(what, "us", same, Goal::Below(0.2));
    Ok(rates.into_iter().chain(busy).chain(same).collect())
}

/// Returns the capacity in replies per second of a server under a generator with `threads` threads.
fn search_rate(server: Server, binary: &Path, threads: usize) -> Result<f64> {
    let (result, _) = load(server, binary, capacity::search()?, threads)?;
    Ok(result.search.context("the search has no result")?.rate)
}

/// Returns the metric of every server, and its ratio to that of chronyd.
fn compare_servers(what: &str, unit: &'static str, runs: [Vec<f64>; 3], goal: Goal) -> Vec<Figure> {
    let names = SERVERS.map(Server::name);
    let mut figures: Vec<Figure> = names
        .iter()
        .zip(runs)
        .map(|(name, runs)| Figure::new(format!("NTS, {what}: {name}"), unit, runs))
        .collect();
    let ratio = |index: usize| {
        let name = format!("NTS, {what}: {} to chronyd", names[index]);
        Figure::ratio(name, &figures[index], &figures[0])
    };
    let ratios = [ratio(1), ratio(2).with(goal)];
    figures.extend(ratios);
    figures
}

/// Returns the CPU time of the server's process for each authentic reply, in µs. The work of XDP in
/// interrupts is charged to no process; `horolog bench nts` includes it.
fn cost_us(server: Server, binary: &Path, rate: f64, threads: usize) -> Result<f64> {
    let ramp = Ramp { min: rate, max: rate, multiplier: 2.0, duration: DURATION };
    let (result, processor_s) = load(server, binary, LoadProcedure::Ramp(ramp), threads)?;
    let trial = result.trials.first().context("the result has no trial")?;
    let replies = trial.responses.nts;
    ensure!(replies * 10 > trial.sent * 9, "{} lost over 10% at {rate:.0}/s", server.name());
    Ok(processor_s / replies as f64 * 1e6)
}

/// Loads a server in its own lab, and returns the result and the CPU time of the server meanwhile,
/// in seconds.
fn load(
    server: Server,
    binary: &Path,
    job: LoadProcedure,
    threads: usize,
) -> Result<(LoadResult, f64)> {
    let lab = Lab::new(&LabConfig { queues: 2, ..LabConfig::default() })?;
    let started = servers::start(server, lab.server(), binary)?;
    let host = lab.server().first_interface().ipv4;
    let mut options = LoadOptions::new(format!("{host}:123").parse()?, job);
    options.engine = Some(LoadEngineKind::Packet);
    options.threads = Some(threads);
    options.namespaces = vec![lab.server().netns.clone()];
    options.requests = RequestMix::only(NtsSessionSource::Exchanges(NtsOptions {
        ke_server: options.target.with_port(KE_PORT),
        name: Some(NAME.to_owned()),
        trust: TrustAnchors::from_pem_file(Some(&started.certificate))?,
        algorithms: vec![AeadAlgorithm::AesSivCmac256],
        sessions: SessionCount::Shared(SESSIONS_DEFAULT),
        share: 100,
    }));
    lab.client().run(|| {
        let load = LoadRun::prepare(options)?;
        let before = started.cpu_time_s()?;
        let result = load.run(&mut ())?;
        Ok((result, started.cpu_time_s()? - before))
    })?
}
