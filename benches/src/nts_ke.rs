//! Rate of NTS-KE exchanges, each with a full TLS handshake, that a server completes while its
//! clients request again immediately after each response.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use horolog_lab::{Lab, LabConfig};
use horolog_load::nts::{KE_PORT, TrustAnchors};
use horolog_load::nts_ke::{self, NtsKeLoadOptions, NtsKeLoadProcedure};
use horolog_load::target::TargetName;

use crate::figure::{Figure, Goal};
use crate::servers::{self, NAME, Server};

const SERVERS: [Server; 2] = [Server::ChronydNts, Server::SocketsNts];

/// Number of clients; every server has room for all their connections at a time.
const CLIENTS: usize = 16;

/// Duration of the load; short enough that the ports of one client's address suffice.
const DURATION: Duration = Duration::from_secs(4);

/// Measures both servers `rounds` times, alternating.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let mut rates = [Vec::new(), Vec::new()];
    for round in 1..=rounds {
        for (server, rates) in SERVERS.into_iter().zip(&mut rates) {
            let rate = exchange_rate(server, binary)?;
            eprintln!("round {round} of {rounds}: NTS-KE: {}: {rate:.0}/s", server.name());
            rates.push(rate);
        }
    }
    let figure = |index: usize| {
        let name = format!("NTS-KE exchanges: {}", SERVERS[index].name());
        Figure::new(name, "/s", rates[index].clone())
    };
    let (chronyd, sockets) = (figure(0), figure(1));
    let ratio = Figure::ratio("NTS-KE exchanges: sockets to chronyd", &sockets, &chronyd)
        .with(Goal::AtLeast(2.0));
    Ok(vec![chronyd, sockets, ratio])
}

fn exchange_rate(server: Server, binary: &Path) -> Result<f64> {
    let lab = Lab::new(&LabConfig::default())?;
    let started = servers::start(server, lab.server(), binary)?;
    let options = NtsKeLoadOptions {
        target: TargetName::parse(&lab.server().first_interface().ipv4.to_string(), KE_PORT)?,
        family: None,
        name: Some(NAME.to_owned()),
        i_own_this_target: false,
        trust: TrustAnchors::from_pem_file(Some(&started.certificate))?,
        connections: CLIENTS,
        job: NtsKeLoadProcedure::ClosedLoop(DURATION),
        timeout: Duration::from_secs(5),
        limits: Vec::new(),
        command: Vec::new(),
    };
    let result = lab.client().run(|| nts_ke::run(&options, &|| false, &mut ()))??;
    let trial = result.trials.first().context("the result has no trial")?;
    for finding in &result.findings {
        eprintln!("{}: {}", server.name(), finding.message);
    }
    Ok(trial.achieved_rate)
}
