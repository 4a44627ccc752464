//! Scenarios of the PTP grandmaster with more of linuxptp: nsm measures it without following it,
//! ptp4l asks it for the delay by unicast while it follows by multicast, hands what it measures on
//! to a daemon, and pmc is told what can be told and refused the rest.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_io::{Batch, BatchDevice, FrameSelection, PacketSocketDevice, PacketSocketOptions};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_time::{NS_PER_S, Span};
use horolog_wire::ethernet::{Header, MacAddress};
use horolog_wire::ptp::{MULTICAST_IPV4, PtpMessageBody};
use libtest_mimic::Trial;

use crate::process::{Engine, Server, run_to_end};
use crate::ptp_slave::{PtpSlave, manage, number};
use crate::ptp4l::Transport;
use crate::scenario::{Need, scenario};
use crate::server_ptp::{
    AHEAD_NS, NEEDS, TIMEOUT, TOLERANCE_NS, await_state, is_right, port, start,
};
use crate::server_ptp_monitor::message;
use crate::server_sources::{is_unsynchronised, wait_until};
use crate::{client, scenarios, server_ptp_peers};

const NSM: &[Need] = &[Need::Root, Need::Ipv6, Need::Peer("nsm")];
const WITH_MEMORY: &[Need] = &[
    Need::Root,
    Need::Ipv6,
    Need::Peer("ptp4l"),
    Need::Peer("pmc"),
    Need::Peer("setpriv"),
    Need::Peer("unshare"),
    Need::Peer("nsenter"),
];
/// TAI less UTC, as the servers here have it.
const TAI_OFFSET_S: i64 = 37;
/// Batches of frames are looked through this long.
const BATCH_WAIT: Duration = Duration::from_millis(50);
const FRAME_BYTES: usize = 2_048;
/// Answers to requests for the delay that say enough of how they are sent.
const ANSWERS: usize = 8;
/// A unit of shared memory that no daemon has by itself.
const SHM_UNIT: &str = "5";

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    let mut all = Vec::new();
    for engine in Engine::ALL {
        let title = |name: &str| format!("server_ptp_peers::{name}::{}", engine.name());
        all.push(scenario(title("nsm_measures_without_following"), NSM, move || {
            nsm_measures_without_following(engine)
        }));
        all.push(scenario(title("a_hybrid_client_is_answered_by_unicast"), NEEDS, move || {
            a_hybrid_client_is_answered_by_unicast(engine)
        }));
    }
    all.extend(scenarios!(WITH_MEMORY, server_ptp_peers: measurements_of_ptp4l_are_served));
    all.extend(scenarios!(NEEDS, server_ptp_peers: unsupported_management_is_refused));
    all
}

/// What nsm prints about a clock, until a moment after it asked.
fn monitor(host: &LabHost, transport: Transport, target: &str) -> Result<String> {
    // It ends a moment after its input.
    const SCRIPT: &str = "{ echo \"NSM $1\"; sleep 0.5; } | \
                          nsm -i \"$2\" --network_transport=\"$3\" --time_stamping=software";
    let mut command = host.command("sh");
    command.args(["-c", SCRIPT, "nsm", target, &host.first_interface().name, transport.name()]);
    let output = run_to_end(&mut command, TIMEOUT)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// nsm is told whose time it is and measures it, as TAI, where that is allowed.
fn nsm_measures_without_following(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let transports = ["--ptp-transport", "udp4,l2"];
    let mac = lab.server().first_interface().mac.map(|byte| format!("{byte:02x}")).join(":");
    let ways = [
        (Transport::Ipv4, lab.server().first_interface().ipv4.to_string(), 0),
        (Transport::Ethernet, mac, 1),
    ];
    let without_monitor = start(&lab, engine, &transports)?;
    await_state(&without_monitor, "master")?;
    for (transport, target, _) in &ways {
        let output = monitor(lab.client(), *transport, target)?;
        ensure!(!output.contains("COMPLETE"), "{transport:?}: {output}");
    }
    drop(without_monitor);
    let server = start(&lab, engine, &[&transports[..], &["--ptp-netsync-monitor"]].concat())?;
    await_state(&server, "master")?;
    for (transport, target, number_of_port) in ways {
        let mut output = String::new();
        wait_until("nsm gets its answers", || {
            output = monitor(lab.client(), transport, &target)?;
            Ok(output.contains("NSM MEASUREMENT COMPLETE"))
        })?;
        let off_ns = number(&output, "offset ")? + AHEAD_NS + (TAI_OFFSET_S * NS_PER_S) as f64;
        ensure!(off_ns.abs() < TOLERANCE_NS, "{transport:?}: {off_ns} ns off: {output}");
        let status = server.status()?;
        let identity = status["ptp"]["clock_identity"].as_str().unwrap_or("no identity");
        for expected in ["MASTER", identity] {
            ensure!(output.contains(expected), "{transport:?}: no {expected}: {output}");
        }
        for (name, value) in [("currentUtcOffset ", 37.0), ("ptpTimescale", 1.0)] {
            ensure!(
                (number(&output, name)? - value).abs() < 0.5,
                "{transport:?}: {name}: {output}"
            );
        }
        let by_xdp = status["xdp_counters"]["answered_ptp_monitor"].as_u64().unwrap_or(0);
        let by_socket = status["ptp"]["ports"][number_of_port]["sent"]["delay_resp"].as_u64();
        let is_its = match engine {
            // A virtual link copies what a socket sent to where it has little room to grow.
            Engine::Xdp => by_xdp > 0 || by_socket > Some(0),
            Engine::Socket => by_xdp == 0 && by_socket > Some(0),
        };
        ensure!(is_its, "{transport:?}: {by_xdp} by XDP, {by_socket:?} by sockets");
    }
    Ok(())
}

/// For each of the next answers to requests for the delay that come in at the client's interface,
/// whether it was sent to a group.
fn answers_to_group(host: &LabHost) -> Result<Vec<bool>> {
    let options = PacketSocketOptions {
        selection: FrameSelection::Program(Vec::new()),
        groups: vec![MacAddress::of_group(MULTICAST_IPV4.into())],
        ..PacketSocketOptions::default()
    };
    let mut device =
        host.run(|| PacketSocketDevice::open(&host.first_interface().name, &options))??;
    let mut batch: Batch<()> = Batch::new(64, FRAME_BYTES);
    let (started, mut answers) = (Instant::now(), Vec::new());
    while answers.len() < ANSWERS {
        ensure!(started.elapsed() < TIMEOUT, "{} answers", answers.len());
        device.receive(&mut batch, BATCH_WAIT)?;
        for packet in batch.iter() {
            let Ok((message, _)) = message(packet.bytes) else { continue };
            let Ok((link, _)) = Header::parse(packet.bytes) else { continue };
            if let PtpMessageBody::DelayResp { .. } = message.body {
                answers.push(link.destination.is_group());
            }
        }
    }
    Ok(answers)
}

/// A client that follows by multicast and asks the master alone is answered alone; others are
/// answered at the group.
fn a_hybrid_client_is_answered_by_unicast(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _server = start(&lab, engine, &[])?;
    for (lines, to_group) in [("hybrid_e2e 1\n", false), ("", true)] {
        let slave = PtpSlave::by_multicast(lab.client(), Transport::Ipv4, lines)?;
        slave.await_measured(is_right)?;
        let answers = answers_to_group(lab.client())?;
        ensure!(answers.iter().all(|&group| group == to_group), "{lines:?}: {answers:?}");
        slave.await_measured(is_right)?;
    }
    Ok(())
}

/// ptp4l writes what it measures to shared memory, and a server of ours that reads it there finds
/// the slave's clock as far behind as the master's is ahead: it serves the master's time.
fn measurements_of_ptp4l_are_served() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _master = start(&lab, Engine::Xdp, &[])?;
    // Its servo sets no clock, and it has not the right to.
    let lines = format!("free_running 0\nclock_servo ntpshm\nntpshm_segment {SHM_UNIT}\n");
    let slave = PtpSlave::by_multicast(lab.client(), Transport::Ipv4, &lines)?;
    slave.await_measured(is_right)?;

    let at = (lab.client().first_interface().ipv4, 123).into();
    let source = format!("shm:{SHM_UNIT}");
    let command = slave.command_in_ipc(lab.client());
    let server = Server::start_by(command, Engine::Socket, &[at], &["--source", &source])?;
    await_ahead(&lab, at).with_context(|| format!("{:?}", server.status()))
}

/// Waits until an NTP server on the client's host serves the master's time.
fn await_ahead(lab: &Lab, at: SocketAddr) -> Result<()> {
    let ahead = Span::from_ns(AHEAD_NS as i64);
    let tolerance = Span::from_ns(TOLERANCE_NS as i64);
    let mut last = None;
    wait_until("the slave's measurements are served", || {
        // It may not listen yet.
        let Ok(reply) = client::query_from(lab.server(), at) else { return Ok(false) };
        let off = reply.offset() - ahead;
        last = Some((reply.header, off));
        Ok(!is_unsynchronised(&reply.header) && (-tolerance..tolerance).contains(&off))
    })
    .with_context(|| format!("{last:?}"))
}

/// What pmc knows and this clock does not is refused in the way of the standard, and so is every
/// change.
fn unsupported_management_is_refused() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let server = start(&lab, Engine::Xdp, &[])?;
    await_state(&server, "master")?;
    let supported = [
        "CLOCK_DESCRIPTION",
        "USER_DESCRIPTION",
        "DEFAULT_DATA_SET",
        "CURRENT_DATA_SET",
        "PARENT_DATA_SET",
        "TIME_PROPERTIES_DATA_SET",
        "PORT_DATA_SET",
        "PRIORITY1",
        "PRIORITY2",
        "DOMAIN",
        "SLAVE_ONLY",
        "CLOCK_ACCURACY",
        "TRACEABILITY_PROPERTIES",
        "TIMESCALE_PROPERTIES",
        "LOG_ANNOUNCE_INTERVAL",
        "ANNOUNCE_RECEIPT_TIMEOUT",
        "LOG_SYNC_INTERVAL",
        "VERSION_NUMBER",
        "DELAY_MECHANISM",
        "LOG_MIN_PDELAY_REQ_INTERVAL",
    ];
    let refused = ["TIME_STATUS_NP", "GRANDMASTER_SETTINGS_NP", "PORT_DATA_SET_NP"];
    let questions = supported.map(|id| (format!("GET {id}"), true)).into_iter();
    let refusals = refused.map(|id| (format!("GET {id}"), false)).into_iter();
    let changes = ["SET PRIORITY2 1", "SET PRIORITY1 1"].map(|change| (change.to_owned(), false));
    for (question, is_supported) in questions.chain(refusals).chain(changes) {
        let id = question.split(' ').nth(1).unwrap_or_default();
        let expected = if is_supported {
            format!("MANAGEMENT {id}")
        } else {
            "MANAGEMENT_ERROR_STATUS".to_owned()
        };
        let mut answer = String::new();
        // It waits for a tenth of a second.
        wait_until("pmc is answered", || {
            answer = manage(lab.client(), "-4", 0, &question)?;
            Ok(answer.contains(" RESPONSE "))
        })?;
        let is_right = answer.contains(&format!(" RESPONSE {expected} "));
        ensure!(is_right, "{question}: no {expected}: {answer}");
    }
    ensure!(port(&server)?["state"] == "master", "{}", port(&server)?);
    Ok(())
}
