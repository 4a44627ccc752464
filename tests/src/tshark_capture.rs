//! Scenarios of `load --pcap` with Wireshark: `tshark` finds every packet, in order and within the
//! time of the run, dissects it as the right protocol, and reports no fault.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_record::LoadResult;
use tempfile::TempDir;

use crate::load_command::{TIMEOUT, only_trial, parse};
use crate::process::{Engine, Server, binary, run_to_end, server_address, write_secret};
use crate::ptp4l::{Ptp4l, Transport};
use crate::scenario::{Need, Scenario};
use crate::{scenarios, tshark_capture};

pub(crate) fn all() -> Vec<Scenario> {
    let ntp = &[Need::Root, Need::Ipv6, Need::Peer("tshark")];
    let mut all = Vec::from(scenarios!(ntp, tshark_capture: ntp_is_dissected));
    let ptp = &[
        Need::Root,
        Need::Peer("tshark"),
        Need::Peer("ptp4l"),
        Need::Peer("pmc"),
        Need::Peer("setpriv"),
    ];
    all.extend(scenarios!(ptp, tshark_capture: ptp_is_dissected));
    all
}

/// Runs a load of 0.2 s that is captured to `file`.
fn load_with_capture(host: &LabHost, arguments: &[&str], file: &Path) -> Result<LoadResult> {
    let mut command = host.command(binary()?);
    command.arg("load").args(arguments).args(["-r", "500", "-t", "0.2", "--json", "-"]);
    let output = run_to_end(command.arg("--pcap").arg(file), TIMEOUT)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    parse(&output.stdout)
}

/// Returns these fields of every packet of a file that matches `filter`.
fn dissect(file: &Path, filter: &str, fields: &[&str]) -> Result<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(file).args(["-Y", filter, "-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = run_to_end(&mut command, TIMEOUT * 3)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

fn now_s() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

/// Filter of faults that Wireshark reports, except for chats (0x200000): it may take a client's
/// port for one of traceroute.
const FAULT_FILTER: &str = "_ws.malformed || _ws.short || _ws.expert.severity > 0x200000";

/// Largest decrease of the time between two packets of a capture, in seconds. The kernel takes the
/// timestamp before it takes the lock of the capture socket, so packets of two cores can change
/// places, by as long as the host of a virtual machine takes a core away.
const REORDERING_MAX_S: f64 = 0.05;

/// Checks that all packets are of `protocol`, in order, not before `begun_s`, and without faults.
fn check_capture(file: &Path, protocol: &str, begun_s: f64, context: &str) -> Result<()> {
    let faults = dissect(file, FAULT_FILTER, &["frame.number", "_ws.expert"])?;
    ensure!(faults.is_empty(), "{context}: {faults:?}");
    let all = dissect(file, "frame", &["frame.time_epoch", "frame.protocols"])?;
    let mut before = begun_s;
    for packet in &all {
        let [at, protocols] = packet.as_slice() else { anyhow::bail!("{packet:?}") };
        let at: f64 = at.parse()?;
        ensure!(protocols.ends_with(protocol), "{context}: {protocols}");
        ensure!(
            at >= begun_s && at >= before - REORDERING_MAX_S && at <= now_s()?,
            "{context}: {at} after {before}, begun at {begun_s}"
        );
        before = at;
    }
    Ok(())
}

/// Requests and replies are dissected: over IPv4 and IPv6, with extension fields, MACs and NTS.
pub(crate) fn ntp_is_dissected() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let files = TempDir::new()?;
    let path = |name: &str| files.path().join(name);
    let (keys, pcap) = (path("ntp.keys"), path("load.pcapng"));
    write_secret(&keys, "7 SHA256 HEX:000102030405060708090a0b0c0d0e0f\n")?;
    let keys = keys.display().to_string();
    let [v4, v6] = [server_address(&lab, false)?, server_address(&lab, true)?];
    let paths = crate::server_nts::write_certificate(v4.ip(), files.path())?;
    let [certificate, key] = paths.map(|path| path.display().to_string());
    let nts = ["--nts-cert", &certificate, "--nts-key", &key, "--keys", &keys];
    let _server = Server::start(lab.server(), Engine::Socket, &[v4, v6], &nts)?;
    let [v4, v6] = [v4, v6].map(|at| at.ip().to_string());
    let modes: [&[&str]; 6] = [
        &[&v4, "--engine", "packet"],
        &[&v6, "--engine", "udp", "--interleaved"],
        &[&v6, "--engine", "packet", "--ntp-version", "1"],
        &[&v4, "--key", "7", "--keys", &keys],
        &[&v4, "--extension", "0x2005:0102"],
        &[&v4, "--nts", "--ca", &certificate],
    ];
    for mode in modes {
        let (begun, context) = (now_s()?, format!("{mode:?}"));
        let result = load_with_capture(lab.client(), &[&["ntp"], mode].concat(), &pcap)?;
        check_capture(&pcap, "ntp", begun, &context)?;
        let trial = only_trial(&result)?;
        let count = |mode: u8| {
            let packets = dissect(&pcap, &format!("ntp.flags.mode == {mode}"), &["frame.number"])?;
            Ok::<_, anyhow::Error>(packets.len() as u64)
        };
        let counts = (count(3)?, count(4)?);
        ensure!(counts == (trial.sent, trial.received), "{context}: {counts:?} of {trial:?}");
    }
    Ok(())
}

/// Delay requests and NetSync Monitor are dissected, over UDP and Ethernet.
pub(crate) fn ptp_is_dissected() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let files = TempDir::new()?;
    let pcap = files.path().join("load.pcapng");
    let target = server_address(&lab, false)?.ip().to_string();
    for (transport, more) in
        [(Transport::Ipv4, ["--engine", "packet"]), (Transport::Ethernet, ["--transport", "l2"])]
    {
        let _ptp4l = Ptp4l::start(lab.server(), transport, 0)?;
        for mode in ["delay", "nsm"] {
            let (begun, context) = (now_s()?, format!("{transport:?}, {mode}"));
            let arguments = [&["ptp", mode, &target], &more[..]].concat();
            let result = load_with_capture(lab.client(), &arguments, &pcap)?;
            check_capture(&pcap, "ptp", begun, &context)?;
            let trial = only_trial(&result)?;
            // IEEE 1588-2019, table 36: Delay_Req and Delay_Resp.
            let [requests, responses] = [1, 9].map(|kind| {
                let filter = format!("ptp.v2.messagetype == {kind}");
                dissect(&pcap, &filter, &["frame.number"]).map(|packets| packets.len() as u64)
            });
            let counts = (requests?, responses.context("responses")?);
            let expected = (trial.sent, trial.responses.delay);
            ensure!(counts == expected, "{context}: {counts:?} of {trial:?}");
        }
    }
    Ok(())
}
