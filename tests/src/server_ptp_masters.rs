//! Scenarios of several masters on a link: a worse one becomes slave, an equal one is passive until
//! the other ends, and a restarted one returns to its state.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};

use crate::process::{Engine, Server, wait_until};
use crate::ptp_slave::PtpSlave;
use crate::ptp4l::Transport;
use crate::scenario::{Need, Scenario, scenario};
use crate::server_ptp::{NEEDS, await_state, has_server_offset, port, start_grandmaster};
use crate::{scenarios, server_ptp_masters};

const NO_PEERS: &[Need] = &[Need::Root, Need::Ipv6];
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Several intervals of Announce and Sync.
const OBSERVATION_TIME: Duration = Duration::from_secs(2);

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(NEEDS, server_ptp_masters: a_worse_master_follows));
    for transport in ["udp4", "udp6", "l2"] {
        let title = format!("server_ptp_masters::one_of_two_equals_serves::{transport}");
        all.push(scenario(title, NO_PEERS, move || one_of_two_equals_serves(transport)));
    }
    all
}

/// ptp4l with a lower rank than the server is its slave, becomes master when the server ends, and
/// is slave again when the server is back.
fn a_worse_master_follows() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let server = start_grandmaster(&lab, Engine::Xdp, &[])?;
    await_state(&server, "master")?;
    let lines = "slaveOnly 0\npriority1 200\nlogSyncInterval -2\n";
    let worse = PtpSlave::start_multicast(lab.client(), Transport::Ipv4, lines)?;
    worse.await_measurement(has_server_offset)?;
    ensure!(port(&server)?["state"] == "master", "{}", port(&server)?);
    drop(server);
    wait_until("ptp4l becomes master", || Ok(worse.query("PORT_DATA_SET")?.contains(" MASTER")))?;
    let server = start_grandmaster(&lab, Engine::Xdp, &[])?;
    await_state(&server, "master")?;
    worse.await_measurement(has_server_offset)?;
    let port = port(&server)?;
    ensure!(port["better"].is_null() && port["state"] == "master", "{port}");
    Ok(())
}

/// Starts a server that differs from others only in its identity.
fn start_equal(host: &LabHost, transport: &str) -> Result<Server> {
    let at = (host.first_interface().ipv4, 123).into();
    let ptp = ["--ptp", &host.first_interface().name, "--ptp-announce-interval", "-2"];
    let same = ["--stratum", "1", "--tai-offset", "37", "--ptp-transport", transport];
    Server::start(host, Engine::Xdp, &[at], &[&ptp[..], &same].concat())
}

/// Waits until `master` is the only master, and checks that it stays so.
fn await_only_master(master: &Server, passive: &Server) -> Result<()> {
    await_state(passive, "passive")?;
    await_state(master, "master")?;
    let sent_syncs = port(passive)?["sent"]["sync"].clone();
    let started = Instant::now();
    while started.elapsed() < OBSERVATION_TIME {
        for (server, state) in [(master, "master"), (passive, "passive")] {
            let port = port(server)?;
            ensure!(port["state"] == state, "not {state} any more: {port}");
        }
        thread::sleep(POLL_INTERVAL);
    }
    let (spoken, sent) = (port(passive)?["sent"]["sync"].clone(), port(master)?);
    ensure!(spoken == sent_syncs, "the passive port sent Syncs: {sent_syncs}, {spoken}");
    ensure!(sent["sent"]["sync"].as_u64() > Some(0), "{sent}");
    let better = port(passive)?["better"]["grandmaster"].clone();
    ensure!(better == master.status()?["ptp"]["clock_identity"], "{better}");
    Ok(())
}

/// Of two servers with the same priorities and quality, the one with the lower identity is master.
/// The other one becomes master when that one is killed, and passive when it is back.
fn one_of_two_equals_serves(transport: &str) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    // A clock identity is made from the MAC address, and that of this host is the lower one.
    let first = start_equal(lab.client(), transport)?;
    let second = start_equal(lab.server(), transport)?;
    await_only_master(&first, &second)?;
    first.end("KILL")?;
    await_state(&second, "master")?;
    let before = port(&second)?["sent"]["sync"].as_u64();
    wait_until("the second server sends Syncs", || {
        Ok(port(&second)?["sent"]["sync"].as_u64() > before)
    })?;
    let first = start_equal(lab.client(), transport)?;
    await_only_master(&first, &second)
}
