//! What authenticated replies cost: how many a second each server gives, by the same search, and
//! how much processor time one takes at a rate that both hold.
//!
//! The generator seals and opens in user space on one core of the two, so the servers share that
//! core with it; both meet the same.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_load::nts::{Algorithm, KE_PORT, NtsOptions, SESSIONS, Trust};
use horolog_load::ramp::Ramp;
use horolog_load::{Job, Load, LoadOptions};
use horolog_record::{Engine, LoadResult};

use crate::capacity::{self, Silent};
use crate::figure::{Figure, Goal};
use crate::servers::{self, NAME, Server};

const SERVERS: [Server; 2] = [Server::ChronydNts, Server::SocketsNts];

/// The share of chronyd's capacity at which processor time is compared.
const SHARE: f64 = 0.5;

/// Long enough that a hundredth of a second, the unit of what the kernel tells, is little of it.
const DURATION: Duration = Duration::from_secs(5);

/// Measures `rounds` times, in turn.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let (mut rates, mut costs) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for round in 1..=rounds {
        for (server, rates) in SERVERS.into_iter().zip(&mut rates) {
            let (result, _) = load(server, binary, capacity::search()?)?;
            let rate = result.search.context("the search did not end")?.rate;
            eprintln!("round {round} of {rounds}: NTS: {}: {rate:.0}/s", server.name());
            rates.push(rate);
        }
        let rate = rates[0].last().map_or(0.0, |rate| rate * SHARE);
        for (server, costs) in SERVERS.into_iter().zip(&mut costs) {
            let cost = cost_us(server, binary, rate)?;
            eprintln!("round {round} of {rounds}: NTS: {}: {cost:.2} us", server.name());
            costs.push(cost);
        }
    }
    let figures = |what: &str, unit, [chronyd, sockets]: [Vec<f64>; 2]| {
        let name = |place: usize| format!("NTS, {what}: {}", SERVERS[place].name());
        [Figure::new(name(0), unit, chronyd), Figure::new(name(1), unit, sockets)]
    };
    let [chronyd, sockets] = figures("authenticated replies", "/s", rates);
    let rate = Figure::ratio("NTS: sockets, 2 threads, to chronyd", &sockets, &chronyd)
        .with(Goal::AtLeast(3.0));
    let [chronyd_cost, sockets_cost] = figures("processor time of a reply", "us", costs);
    let cost =
        Figure::ratio("NTS: processor time, sockets to chronyd", &sockets_cost, &chronyd_cost)
            .with(Goal::Below(0.2));
    Ok(vec![chronyd, sockets, rate, chronyd_cost, sockets_cost, cost])
}

/// Processor time of the server for each authentic reply, in us.
fn cost_us(server: Server, binary: &Path, rate: f64) -> Result<f64> {
    let ramp = Ramp { min: rate, max: rate, multiplier: 2.0, duration: DURATION };
    let (result, processor_s) = load(server, binary, Job::Ramp(ramp))?;
    let trial = result.trials.first().context("there was no trial")?;
    let replies = trial.responses.nts;
    ensure!(replies * 10 > trial.sent * 9, "{} lost a tenth at {rate:.0}/s", server.name());
    Ok(processor_s / replies as f64 * 1e6)
}

/// Loads a server in a lab of its own, and tells how much processor time it took meanwhile.
fn load(server: Server, binary: &Path, job: Job) -> Result<(LoadResult, f64)> {
    let lab = Lab::new(&LabConfig { queues: 2, ..LabConfig::default() })?;
    let started = servers::start(server, lab.server(), binary)?;
    let host = lab.server().port().ipv4;
    let mut options = LoadOptions::new(format!("{host}:123").parse()?, job);
    options.engine = Some(Engine::Packet);
    options.threads = Some(1);
    options.namespaces = vec![lab.server().netns.clone()];
    options.nts = Some(NtsOptions {
        establishment: options.target.with_port(KE_PORT),
        name: Some(NAME.to_owned()),
        trust: Trust::from_pem_file(Some(&started.certificate))?,
        algorithms: vec![Algorithm::AesSivCmac256],
        sessions: SESSIONS,
        share: 100,
    });
    lab.client().run(|| {
        let load = Load::prepare(options)?;
        let before = started.processor_s()?;
        let result = load.run(&mut Silent)?;
        Ok((result, started.processor_s()? - before))
    })?
}
