//! Cost of limits, lists and metrics: XDP flooded by 65,536 clients, plain and with all three,
//! alternating. The metrics are read once a second meanwhile. If the table has room for every
//! client, all requests but the first of each are from a known client; if it has less, some are
//! from new clients all the time, which costs more.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::capacity::{self, CLIENTS};
use crate::figure::{Figure, Goal};
use crate::servers::Server;

/// Duration of a flood; long enough for a scrape of the metrics.
const FLOOD: Duration = Duration::from_secs(2);

const SERVERS: [Server; 3] = [Server::Xdp, Server::XdpLimited, Server::XdpTableFull];

/// Floods all servers `rounds` times and compares them.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let mut runs = SERVERS.map(|_| Vec::new());
    for _ in 0..rounds {
        for (server, runs) in SERVERS.into_iter().zip(&mut runs) {
            runs.push(capacity::flood_rate_with(server, binary, Some(CLIENTS), FLOOD)?);
        }
    }
    let [plain, limited, crowded] = runs;
    let figure = |server: Server, runs| {
        Figure::new(format!("flooded by {CLIENTS} clients: {}", server.name()), "/s", runs)
    };
    let plain = figure(Server::Xdp, plain);
    let limited = figure(Server::XdpLimited, limited);
    let crowded = figure(Server::XdpTableFull, crowded);
    let ratio = Figure::ratio("limits, lists and metrics to plain", &limited, &plain);
    let with_new_clients =
        Figure::ratio("limits, a fifth of the clients new, to plain", &crowded, &plain);
    Ok(vec![plain, limited, crowded, ratio.with(Goal::AtLeast(0.65)), with_new_clients])
}
