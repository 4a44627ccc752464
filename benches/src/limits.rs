//! What limits, lists and metrics cost: XDP flooded by 65,536 clients, plain and with all of them,
//! in turn. The metrics are read once a second meanwhile. Where there is room for every client, all
//! but its first request are of one that is known; where there is less, some are newcomers all the
//! time, which costs more.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::capacity::{self, CLIENTS};
use crate::figure::{Figure, Goal};
use crate::servers::Server;

/// Long enough for the metrics to be read during each flood.
const FLOOD: Duration = Duration::from_secs(2);

const SERVERS: [Server; 3] = [Server::Xdp, Server::XdpLimited, Server::XdpCrowded];

/// Floods all `rounds` times and compares them.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let mut runs = SERVERS.map(|_| Vec::new());
    for _ in 0..rounds {
        for (server, runs) in SERVERS.into_iter().zip(&mut runs) {
            runs.push(capacity::flooded_by(server, binary, Some(CLIENTS), FLOOD)?);
        }
    }
    let [plain, limited, crowded] = runs;
    let figure = |server: Server, runs| {
        Figure::new(format!("flooded by {CLIENTS} clients: {}", server.name()), "/s", runs)
    };
    let plain = figure(Server::Xdp, plain);
    let limited = figure(Server::XdpLimited, limited);
    let crowded = figure(Server::XdpCrowded, crowded);
    let ratio = Figure::ratio("limits, lists and metrics to plain", &limited, &plain);
    let with_new_clients =
        Figure::ratio("the same, a fifth of the clients newcomers", &crowded, &plain);
    Ok(vec![plain, limited, crowded, ratio.with(Goal::AtLeast(0.65)), with_new_clients])
}
