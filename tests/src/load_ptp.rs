//! Scenarios of loads on a PTP master: the counts of the generator and of the master agree, in
//! every mode, with every engine, over IPv4 and IPv6. Nothing is timed.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_record::{FindingCode, LoadEngineKind, LoadResult, ReplyKindCounts, RequestMode};

use crate::load_command::{ENGINES, UnprivilegedCopy, check_sums, has_finding, only_trial, parse};
use crate::process::{binary, run_to_end, server_address};
use crate::ptp4l::{Ptp4l, Transport, count_increase};
use crate::scenario::{Need, Scenario};
use crate::{load_ptp, scenarios};

const TIMEOUT: Duration = Duration::from_mins(1);
const RATE: &str = "1000";
const DURATION_S: &str = "0.2";

pub(crate) fn all() -> Vec<Scenario> {
    const PTP4L: &[Need] =
        &[Need::Root, Need::Ipv6, Need::Peer("ptp4l"), Need::Peer("pmc"), Need::Peer("setpriv")];
    scenarios!(PTP4L, load_ptp:
        ptp4l_answers_delay_requests,
        ptp4l_answers_netsync_monitor,
        ptp4l_answers_over_ethernet,
        ptp4l_grants_unicast_messages,
        a_master_of_another_domain_does_not_answer,
        impossible_ptp_loads_are_refused,
    )
    .into()
}

/// Runs `horolog load ptp`; returns its exit status, result and standard error.
pub(crate) fn load(
    host: &LabHost,
    arguments: &[&str],
) -> Result<(Option<i32>, LoadResult, String)> {
    let mut command = host.command(binary()?);
    command.args(["load", "ptp"]).args(arguments).args(["--json", "-"]);
    let output = run_to_end(&mut command, TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let result = parse(&output.stdout).with_context(|| format!("{arguments:?}: {stderr}"))?;
    Ok((output.status.code(), result, stderr))
}

/// Loads a master with further arguments, and compares the counts with the master's.
fn compare_counts(lab: &Lab, ptp4l: &Ptp4l, target: &str, arguments: &[&str]) -> Result<()> {
    let before = ptp4l.counts()?;
    let all = [&[arguments[0], target, "-r", RATE, "-t", DURATION_S], &arguments[1..]].concat();
    let (status, result, stderr) = load(lab.client(), &all)?;
    ensure!(status == Some(0), "status {status:?}: {stderr}");
    let after = ptp4l.counts()?;
    let trial = only_trial(&result)?;
    check_sums(trial)?;
    let ReplyKindCounts { delay, sync_follow_up, .. } = trial.responses;
    let is_nsm = result.mode == RequestMode::PtpNsm;
    ensure!(trial.invalid.is_empty() && trial.duplicate == 0, "{trial:?}");
    // The number of replies depends on the other load of the machine.
    ensure!(trial.received > 0, "{trial:?}");
    ensure!(trial.received <= delay && delay <= trial.sent, "{trial:?}");
    let counted = |name| count_increase(&before, &after, name);
    let (requests, answered) = (counted("rx_Delay_Req")?, counted("tx_Delay_Resp")?);
    ensure!(requests <= trial.sent && answered <= requests, "{requests}, {answered} of {trial:?}");
    let exact = trial.lost == 0;
    ensure!(
        !exact || (requests, answered) == (trial.sent, delay),
        "{requests}, {answered}: {trial:?}"
    );
    ensure!(delay <= answered, "{answered}: {trial:?}");
    if is_nsm {
        // The master also sends periodic Sync messages.
        let [syncs, follow_ups] = [counted("tx_Sync")?, counted("tx_Follow_Up")?];
        ensure!(sync_follow_up <= follow_ups.min(syncs), "{syncs}, {follow_ups}: {trial:?}");
        ensure!(!exact || syncs <= sync_follow_up + 2, "{syncs}: {trial:?}");
        ensure!(trial.received <= sync_follow_up, "{trial:?}");
        let timed = trial.response_time_ns.as_ref().map_or(0, |times| times.count);
        ensure!(timed == trial.received, "{timed} response times: {trial:?}");
        // The master runs free, and its messages report that.
        ensure!(has_finding(&result, FindingCode::ServerUnsynchronised), "{:?}", result.findings);
    } else {
        ensure!((delay, sync_follow_up) == (trial.received, 0), "{trial:?}");
        ensure!(trial.response_time_ns.is_none(), "{trial:?}");
    }
    Ok(())
}

/// Compares the counts in each of these modes, with every engine, over IPv4 and IPv6.
fn compare_all(modes: &[&[&str]]) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    for transport in [Transport::Ipv4, Transport::Ipv6] {
        let ptp4l = Ptp4l::start(lab.server(), transport, 0)?;
        let target = server_address(&lab, transport == Transport::Ipv6)?.ip().to_string();
        for engine in ENGINES {
            for mode in modes {
                let arguments = [*mode, &["--engine", engine.name()]].concat();
                compare_counts(&lab, &ptp4l, &target, &arguments)
                    .with_context(|| format!("{transport:?} {arguments:?}"))?;
            }
        }
    }
    Ok(())
}

/// ptp4l answers delay requests to its own address and to the multicast group.
fn ptp4l_answers_delay_requests() -> Result<()> {
    compare_all(&[&["delay"], &["delay", "--multicast"], &["delay", "--ptp-version", "2.1"]])
}

/// ptp4l answers each NetSync Monitor request by `Delay_Resp`, Sync and `Follow_Up`.
fn ptp4l_answers_netsync_monitor() -> Result<()> {
    compare_all(&[&["nsm"]])
}

/// ptp4l answers over Ethernet, at its own MAC address and at the group's.
fn ptp4l_answers_over_ethernet() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let ptp4l = Ptp4l::start(lab.server(), Transport::Ethernet, 0)?;
    let target = server_address(&lab, false)?.ip().to_string();
    for engine in [LoadEngineKind::Xdp, LoadEngineKind::Packet] {
        for mode in [&["delay"][..], &["delay", "--multicast"], &["nsm"]] {
            let arguments = [mode, &["--transport", "l2", "--engine", engine.name()]].concat();
            compare_counts(&lab, &ptp4l, &target, &arguments)
                .with_context(|| format!("{arguments:?}"))?;
        }
    }
    Ok(())
}

/// ptp4l grants every request for a message type that it supports, and sends the granted messages.
fn ptp4l_grants_unicast_messages() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let ptp4l = Ptp4l::start(lab.server(), Transport::Ipv4, 0)?;
    let target = server_address(&lab, false)?.ip().to_string();
    for engine in [LoadEngineKind::Udp, LoadEngineKind::Packet] {
        let before = ptp4l.counts()?;
        let arguments = ["unicast", &target, "-r", "200", "-t", "0.5", "--grant-duration", "1"];
        let all =
            [&arguments[..], &["--message-interval", "-3", "--engine", engine.name()]].concat();
        let (status, result, stderr) = load(lab.client(), &all)?;
        ensure!(
            status == Some(0) && result.mode == RequestMode::PtpUnicast,
            "{status:?}: {stderr}"
        );
        let trial = only_trial(&result)?;
        check_sums(trial)?;
        let ReplyKindCounts { grant, denial, granted_messages, .. } = trial.responses;
        ensure!(trial.invalid.is_empty() && trial.duplicate == 0, "{trial:?}");
        ensure!((grant, denial) == (trial.received, 0), "{trial:?}");
        ensure!(trial.received * 10 >= trial.sent * 9 && granted_messages > 0, "{trial:?}");
        let after = ptp4l.counts()?;
        let [requests, answered] = ["rx_Signaling", "tx_Signaling"];
        let counted = [
            count_increase(&before, &after, requests)?,
            count_increase(&before, &after, answered)?,
        ];
        ensure!(trial.lost > 0 || counted == [trial.sent, grant], "{counted:?}: {trial:?}");
    }
    Ok(())
}

/// Requests of another domain than the master's have no reply, and a run without replies fails.
fn a_master_of_another_domain_does_not_answer() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _ptp4l = Ptp4l::start(lab.server(), Transport::Ipv4, 9)?;
    let target = server_address(&lab, false)?.ip().to_string();
    for engine in ENGINES {
        for (domain, expected) in [("9", 0), ("8", 1)] {
            let arguments = ["delay", &target, "-r", RATE, "-t", "0.1", "--timeout", "100ms"];
            let more = ["--engine", engine.name(), "--domain", domain];
            let (status, result, stderr) = load(lab.client(), &[&arguments[..], &more].concat())?;
            let context = format!("{engine:?}, domain {domain}: {stderr}");
            ensure!(status == Some(expected), "{status:?}, {context}");
            ensure!(has_finding(&result, FindingCode::NoReplies) == (expected == 1), "{context}");
        }
    }
    Ok(())
}

/// Impossible PTP loads are refused with the cause and the remedy.
fn impossible_ptp_loads_are_refused() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let target = server_address(&lab, false)?.ip().to_string();
    let with_port = format!("{target}:319");
    let over_ethernet = ["--transport", "l2"];
    let with_udp = [&["delay", &target, "--engine", "udp"], &over_ethernet[..]].concat();
    let with_source = [&["delay", &target, "-s", "10.0.0.0/8"], &over_ethernet[..]].concat();
    let with_clients = [&["nsm", &target, "-c", "2"], &over_ethernet[..]].concat();
    let cases: [(&[&str], i32, &str); 10] = [
        (&with_udp, 3, "use --engine packet"),
        (&with_source, 2, "over Ethernet"),
        (&with_clients, 3, "one client"),
        (&["delay", &with_port], 2, "omit the target's port"),
        (&["delay", "224.0.1.129"], 2, "unicast"),
        (&["delay", &target, "--domain", "256"], 2, "'256'"),
        (&["nsm", &target, "--random-sources"], 2, "omit random sources"),
        (&["nsm", &target, "--multicast"], 2, "--multicast"),
        (&["delay", &target, "--engine", "udp", "-c", "2"], 3, "use --engine packet"),
        (&["delay", &target, "--engine", "udp", "--threads", "2"], 3, "use --engine packet"),
    ];
    for (arguments, status, words) in cases {
        let mut command = lab.client().command(binary()?);
        let output = run_to_end(command.args(["load", "ptp"]).args(arguments), TIMEOUT)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(status), "{arguments:?}: {stderr}");
        ensure!(stderr.contains(words), "{arguments:?}: {stderr}");
    }
    let unprivileged = UnprivilegedCopy::new()?;
    let mut command = unprivileged.command(lab.client().command("setpriv"));
    let output = run_to_end(command.args(["load", "ptp", "delay", &target]), TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(3), "{stderr}");
    ensure!(
        stderr.contains("CAP_NET_BIND_SERVICE") && stderr.trim_end().lines().count() == 1,
        "{stderr}"
    );
    Ok(())
}
