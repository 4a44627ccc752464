//! Scenarios of more than one master on a link: a worse one follows, an equal one waits until the
//! other is gone, and whoever comes back finds its place again.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use libtest_mimic::Trial;

use crate::process::{Engine, Server};
use crate::ptp_slave::PtpSlave;
use crate::ptp4l::Transport;
use crate::scenario::{Need, scenario};
use crate::server_ptp::{NEEDS, await_state, is_right, port, start};
use crate::server_sources::wait_until;
use crate::{scenarios, server_ptp_masters};

const ALONE: &[Need] = &[Need::Root, Need::Ipv6];
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Several intervals of Announce and Sync.
const WHILE: Duration = Duration::from_secs(2);

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    let mut all = Vec::from(scenarios!(NEEDS, server_ptp_masters: a_worse_master_follows));
    for transport in ["udp4", "udp6", "l2"] {
        let title = format!("server_ptp_masters::one_of_two_equals_serves::{transport}");
        all.push(scenario(title, ALONE, move || one_of_two_equals_serves(transport)));
    }
    all
}

/// ptp4l that could be master as well, but ranks behind ours, is its slave; it takes over when ours
/// is gone, and gives way when it is back.
fn a_worse_master_follows() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let server = start(&lab, Engine::Xdp, &[])?;
    await_state(&server, "master")?;
    let lines = "slaveOnly 0\npriority1 200\nlogSyncInterval -2\n";
    let worse = PtpSlave::by_multicast(lab.client(), Transport::Ipv4, lines)?;
    worse.await_measured(is_right)?;
    ensure!(port(&server)?["state"] == "master", "{}", port(&server)?);
    drop(server);
    wait_until("the worse one takes over", || {
        Ok(worse.query("PORT_DATA_SET")?.contains(" MASTER"))
    })?;
    let server = start(&lab, Engine::Xdp, &[])?;
    await_state(&server, "master")?;
    worse.await_measured(is_right)?;
    let port = port(&server)?;
    ensure!(port["better"].is_null() && port["state"] == "master", "{port}");
    Ok(())
}

/// A server that differs from others in its identity alone.
fn equal(host: &LabHost, transport: &str) -> Result<Server> {
    let at = (host.first_interface().ipv4, 123).into();
    let ptp = ["--ptp", &host.first_interface().name, "--ptp-announce-interval", "-2"];
    let same = ["--stratum", "1", "--tai-offset", "37", "--ptp-transport", transport];
    Server::start(host, Engine::Xdp, &[at], &[&ptp[..], &same].concat())
}

/// Waits until one server is the only master, and sees it stay so.
fn await_only(master: &Server, passive: &Server) -> Result<()> {
    await_state(passive, "passive")?;
    await_state(master, "master")?;
    let sent_syncs = port(passive)?["sent"]["sync"].clone();
    let started = Instant::now();
    while started.elapsed() < WHILE {
        for (server, state) in [(master, "master"), (passive, "passive")] {
            let port = port(server)?;
            ensure!(port["state"] == state, "not {state} any more: {port}");
        }
        thread::sleep(POLL_INTERVAL);
    }
    let (spoken, sent) = (port(passive)?["sent"]["sync"].clone(), port(master)?);
    ensure!(spoken == sent_syncs, "the passive one sent: {sent_syncs}, {spoken}");
    ensure!(sent["sent"]["sync"].as_u64() > Some(0), "{sent}");
    let better = port(passive)?["better"]["grandmaster"].clone();
    ensure!(better == master.status()?["ptp"]["clock_identity"], "{better}");
    Ok(())
}

/// Of two servers with the same priorities and quality the one with the lower identity serves. The
/// other takes over when that one is killed, and gives way when it is back.
fn one_of_two_equals_serves(transport: &str) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    // Its identity is that of its interface, which is the lower one.
    let first = equal(lab.client(), transport)?;
    let second = equal(lab.server(), transport)?;
    await_only(&first, &second)?;
    first.end("KILL")?;
    await_state(&second, "master")?;
    let before = port(&second)?["sent"]["sync"].as_u64();
    wait_until("it sends Syncs", || Ok(port(&second)?["sent"]["sync"].as_u64() > before))?;
    let first = equal(lab.client(), transport)?;
    await_only(&first, &second)
}
