//! How much each server takes of clients in interleaved mode: the same search by the same generator
//! against one after the other, in turn. A run in which the server did not answer in that mode is
//! no run of this benchmark.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use horolog_record::{FindingCode, LoadResult, Trial};

use crate::capacity;
use crate::figure::{Figure, Goal};
use crate::servers::Server;

/// Clients, all of which every server has memory for.
const CLIENTS: u32 = 10_000;

/// The share of replies in interleaved mode, without which a run is none.
const SHARE_MIN: f64 = 0.9;

/// How far the rates of trials may lie apart that were planned to be the same.
const SAME_RATE: f64 = 0.01;

const SERVERS: [Server; 3] = [Server::ChronydInterleaved, Server::Sockets, Server::Xdp];

/// Result of one search.
#[derive(Clone, Copy)]
struct Run {
    /// Requests per second.
    rate: f64,
    /// The share of replies in interleaved mode in the trials that decided, from 0 to 1.
    interleaved: f64,
}

/// Searches for every server's capacity `rounds` times and compares them.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); SERVERS.len()];
    for round in 1..=rounds {
        for (server, runs) in SERVERS.into_iter().zip(&mut runs) {
            let run = search(server, binary)?;
            let (rate, share, name) = (run.rate, run.interleaved * 100.0, server.name());
            eprintln!("round {round} of {rounds}: {name}: {rate:.0}/s, {share:.1}% interleaved");
            runs.push(run);
        }
    }
    let figure = |what: &str, unit, index: usize, of: fn(&Run) -> f64| {
        let name = format!("interleaved{what}: {}", SERVERS[index].name());
        Figure::new(name, unit, runs[index].iter().map(of).collect())
    };
    let rates = [0, 1, 2].map(|index| figure("", "/s", index, |run| run.rate));
    let shares = [0, 1, 2].map(|index| {
        let share = figure(" share of replies", "", index, |run| run.interleaved);
        share.with(Goal::AtLeast(SHARE_MIN))
    });
    let [chronyd, sockets, xdp] = &rates;
    let ratios = [
        Figure::ratio("interleaved: sockets, 2 threads, to chronyd", sockets, chronyd)
            .with(Goal::AtLeast(3.0)),
        Figure::ratio("interleaved: XDP to chronyd", xdp, chronyd).with(Goal::AtLeast(20.0)),
    ];
    Ok(rates.into_iter().chain(shares).chain(ratios).collect())
}

fn search(server: Server, binary: &Path) -> Result<Run> {
    let result = capacity::load(server, binary, capacity::search()?, |options| {
        options.interleaved = true;
        options.clients = Some(CLIENTS);
    })?;
    let search = result.search.as_ref().context("the search did not end")?;
    let interleaved = share(&result, search.rate);
    let has_finding =
        result.findings.iter().any(|finding| finding.code == FindingCode::InterleavedNotUsed);
    // A rate of basic replies is no rate of this benchmark, nor one to be compared with.
    ensure!(
        !has_finding && interleaved >= SHARE_MIN,
        "{} answered {:.1}% in interleaved mode only",
        server.name(),
        interleaved * 100.0
    );
    Ok(Run { rate: search.rate, interleaved })
}

/// The share of interleaved replies in the trials at the rate found.
fn share(result: &LoadResult, rate: f64) -> f64 {
    let near = |trial: &&Trial| (trial.intended_rate / rate - 1.0).abs() < SAME_RATE;
    let decisive = result.trials.iter().filter(near);
    let (interleaved, received) = decisive.fold((0, 0), |(interleaved, received), trial| {
        (interleaved + trial.responses.interleaved, received + trial.received)
    });
    interleaved as f64 / f64::max(received as f64, 1.0)
}
