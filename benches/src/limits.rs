//! What limits and lists cost: XDP flooded by 65,536 clients, plain and with both, in turn.

use std::path::Path;

use anyhow::Result;

use crate::capacity::{self, CLIENTS};
use crate::figure::{Figure, Goal};
use crate::servers::Server;

/// Floods both `rounds` times and compares them.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let (mut plain, mut limited) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        plain.push(capacity::flooded_by(Server::Xdp, binary, Some(CLIENTS))?);
        limited.push(capacity::flooded_by(Server::XdpLimited, binary, Some(CLIENTS))?);
    }
    let figure = |server: Server, runs| {
        Figure::new(format!("flooded by {CLIENTS} clients: {}", server.name()), "/s", runs)
    };
    let (plain, limited) = (figure(Server::Xdp, plain), figure(Server::XdpLimited, limited));
    let ratio = Figure::ratio("limits and lists to plain", &limited, &plain);
    Ok(vec![plain, limited, ratio.with(Goal::AtLeast(0.65))])
}
