//! Capacity of each server for clients in interleaved mode: the same search by the same generator
//! against each in turn. A run in which the server did not reply in that mode is an error.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use horolog_load::mix::RequestMix;
use horolog_load::request_kind::NtpRequestOptions;
use horolog_record::{LoadResult, Trial};

use crate::capacity;
use crate::figure::{Figure, Goal};
use crate::servers::Server;

/// Number of clients; every server has memory for all of them.
const CLIENTS: u32 = 10_000;

/// Minimum share of replies in interleaved mode, from 0 to 1.
const SHARE_MIN: f64 = 0.9;

/// Maximum relative deviation of the intended rate of a trial that counts as one at the rate found.
const RATE_DEVIATION_MAX: f64 = 0.01;

const SERVERS: [Server; 3] = [Server::ChronydInterleaved, Server::Sockets, Server::Xdp];

/// Result of one search.
#[derive(Clone, Copy)]
struct InterleavedRun {
    /// Requests per second.
    rate: f64,
    /// Share of replies in interleaved mode in the trials at the rate found, from 0 to 1.
    interleaved: f64,
}

/// Searches for every server's capacity `rounds` times and compares them.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let mut runs: Vec<Vec<InterleavedRun>> = vec![Vec::new(); SERVERS.len()];
    for round in 1..=rounds {
        for (server, runs) in SERVERS.into_iter().zip(&mut runs) {
            let run = search(server, binary)?;
            let (rate, share, name) = (run.rate, run.interleaved * 100.0, server.name());
            eprintln!("round {round} of {rounds}: {name}: {rate:.0}/s, {share:.1}% interleaved");
            runs.push(run);
        }
    }
    let figure = |what: &str, unit, index: usize, of: fn(&InterleavedRun) -> f64| {
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

fn search(server: Server, binary: &Path) -> Result<InterleavedRun> {
    let result = capacity::load(server, binary, capacity::search()?, |options| {
        options.requests = RequestMix::only(NtpRequestOptions::interleaved());
        options.clients = Some(CLIENTS);
    })?;
    let search = result.search.as_ref().context("the search has no result")?;
    let interleaved = interleaved_share(&result, search.rate);
    // A rate of basic replies is not comparable. The finding on unused interleaved mode is no
    // criterion: it may be about a trial at another rate.
    ensure!(
        interleaved >= SHARE_MIN,
        "{} sent only {:.1}% of its replies in interleaved mode",
        server.name(),
        interleaved * 100.0
    );
    Ok(InterleavedRun { rate: search.rate, interleaved })
}

/// Returns the share of interleaved replies in the trials at `rate`.
fn interleaved_share(result: &LoadResult, rate: f64) -> f64 {
    let near = |trial: &&Trial| (trial.intended_rate / rate - 1.0).abs() < RATE_DEVIATION_MAX;
    let decisive = result.trials.iter().filter(near);
    let (interleaved, received) = decisive.fold((0, 0), |(interleaved, received), trial| {
        (interleaved + trial.responses.interleaved, received + trial.received)
    });
    interleaved as f64 / f64::max(received as f64, 1.0)
}
