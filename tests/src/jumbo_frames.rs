//! Scenarios of links with an MTU of 9,000 bytes: the kernel answers and copies the same packets as
//! at 1,500 bytes, and passes frames in several buffers to the network stack.

use std::net::{SocketAddr, UdpSocket};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use serde_json::Value;
use tempfile::TempDir;

use crate::client;
use crate::load_ptp::load;
use crate::process::{Engine, Server, TIMEOUT, binary, run_to_end, server_address, wait_until};
use crate::relay::{PORT, Relay, bind, table};
use crate::scenario::Scenario;
use crate::server_nts::write_certificate;
use crate::{ROOT, scenarios};

const MTU: u32 = 9_000;
/// Length in bytes of a packet that exceeds a driver's buffer and a page.
const LONG_PACKET_LEN: usize = 8_000;

pub(crate) fn all() -> Vec<Scenario> {
    use crate::jumbo_frames;
    scenarios!(ROOT, jumbo_frames: a_server_answers_in_the_kernel, a_relay_copies_in_the_kernel)
        .into()
}

/// Creates a lab with this MTU on all links.
fn jumbo_lab() -> Result<Lab> {
    let lab = Lab::new(&LabConfig { hosts: 3, ..LabConfig::default() })?;
    for number in 0..3 {
        let host: &LabHost = lab.host(number);
        for port in &host.interfaces {
            host.netlink()?.set_link_mtu(port.index, MTU)?;
        }
    }
    Ok(lab)
}

fn count(server: &Server, pointer: &str) -> Result<u64> {
    let status = server.status()?;
    let value = status.pointer(pointer).and_then(Value::as_u64);
    value.with_context(|| format!("no {pointer}: {status}"))
}

/// XDP answers plain and PTP requests, and `AF_XDP` sockets authenticated ones; longer packets are
/// received by the sockets of the network stack.
fn a_server_answers_in_the_kernel() -> Result<()> {
    let lab = jumbo_lab()?;
    let (at, files) = (server_address(&lab, false)?, TempDir::new()?);
    let paths = write_certificate(at.ip(), files.path())?.map(|path| path.display().to_string());
    let interface = lab.server().first_interface().name.clone();
    let arguments = [
        ["--nts-cert", &paths[0], "--nts-key", &paths[1]],
        ["--ptp", &interface, "--ptp-announce-interval", "-2"],
        ["--stratum", "1", "--tai-offset", "37"],
    ];
    let server = Server::start(lab.server(), Engine::Xdp, &[at], arguments.as_flattened())?;
    wait_until("the port is master", || {
        Ok(server.status()?["ptp"]["ports"][0]["state"] == "master")
    })?;
    let target = at.ip().to_string();
    let plain = ["load", "ntp", &target, "--engine", "udp", "-r", "500", "-t", "0.2"];
    run_client(&lab, &plain)?;
    ensure!(count(&server, "/xdp_counters/answered_ipv4")? > 50, "{}", server.status()?);
    let nts = [&plain[..], &["--nts", "--ca", &paths[0]]].concat();
    run_client(&lab, &nts)?;
    ensure!(count(&server, "/xdp_counters/to_af_xdp")? > 50, "{}", server.status()?);
    ensure!(count(&server, "/counters/nts")? > 50, "{}", server.status()?);
    load(lab.client(), &["delay", &target, "-r", "500", "-t", "0.2"])?;
    ensure!(count(&server, "/xdp_counters/answered_ptp")? > 0, "{}", server.status()?);
    // Not redirected, because `AF_XDP` sockets have no room for them.
    let before = count(&server, "/counters/ignored/length")?;
    let socket = client::socket(lab.client(), at, TIMEOUT)?;
    for length in [2_000, LONG_PACKET_LEN] {
        let mut long = client::request(4, client::now()).to_vec();
        long.resize(length, 0);
        socket.send_to(&long, at)?;
    }
    wait_until("both are counted", || Ok(count(&server, "/counters/ignored/length")? >= before + 2))
}

fn run_client(lab: &Lab, arguments: &[&str]) -> Result<()> {
    let output = run_to_end(lab.client().command(binary()?).args(arguments), TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {stderr}");
    Ok(())
}

/// Short packets are copied in the kernel, long ones by sockets, without loss.
fn a_relay_copies_in_the_kernel() -> Result<()> {
    let lab = jumbo_lab()?;
    let at = SocketAddr::from((lab.client().interfaces[0].ipv4, PORT));
    let child = SocketAddr::from((lab.host(2).first_interface().ipv4, PORT));
    let receiver = bind(lab.host(2), child)?;
    let relay = Relay::start(lab.client(), &table(at, &[child]), &["--engine", "xdp"])?;
    let source = bind(lab.server(), SocketAddr::from((lab.server().first_interface().ipv4, 0)))?;
    let group = &relay.listing()?.groups[0];
    ensure!(group.engine == "xdp", "{group:?}");
    for length in [64, 1_472, 3_000, LONG_PACKET_LEN] {
        check_copy(&source, at, &receiver, length).with_context(|| format!("{length} bytes"))?;
    }
    Ok(())
}

fn check_copy(
    source: &UdpSocket,
    at: SocketAddr,
    receiver: &UdpSocket,
    length: usize,
) -> Result<()> {
    let sent: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
    source.send_to(&sent, at)?;
    let mut received = vec![0; MTU as usize];
    receiver.set_read_timeout(Some(TIMEOUT))?;
    let (len, _) = receiver.recv_from(&mut received)?;
    ensure!(received[..len] == sent, "received other data of {len} bytes");
    Ok(())
}
