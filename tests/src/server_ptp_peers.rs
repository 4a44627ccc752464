//! Scenarios of the PTP grandmaster with further programs and modes of linuxptp: nsm measures the
//! server without following it, ptp4l in hybrid mode requests the delay by unicast, its
//! measurements are served by an NTP server, and requests of pmc that are not supported are
//! refused.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_io::{Batch, BatchDevice, FrameSelection, PacketSocketDevice, PacketSocketOptions};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_time::{NS_PER_S, Span};
use horolog_wire::ethernet::{Header, MacAddress};
use horolog_wire::ptp::{MULTICAST_IPV4, PtpMessageBody};

use crate::process::{Engine, Server, run_to_end, wait_until};
use crate::ptp_slave::{PtpSlave, manage, number};
use crate::ptp4l::Transport;
use crate::scenario::{Need, Scenario, scenario};
use crate::server_ptp::{
    NEEDS, SERVER_OFFSET_NS, TIMEOUT, TOLERANCE_NS, await_state, has_server_offset, port,
    start_grandmaster,
};
use crate::server_ptp_monitor::parse_message;
use crate::server_sources::is_unsynchronised;
use crate::{client, scenarios, server_ptp_peers};

const NSM: &[Need] = &[Need::Root, Need::Ipv6, Need::Peer("nsm")];
const PTP4L_WITH_SHM: &[Need] = &[
    Need::Root,
    Need::Ipv6,
    Need::Peer("ptp4l"),
    Need::Peer("pmc"),
    Need::Peer("setpriv"),
    Need::Peer("unshare"),
    Need::Peer("nsenter"),
];
/// TAI minus UTC of the servers here.
const TAI_OFFSET_S: i64 = 37;
/// Longest wait for a batch of frames.
const BATCH_WAIT: Duration = Duration::from_millis(50);
const FRAME_BYTES: usize = 2_048;
/// Delay responses that suffice to see how they are sent.
const RESPONSES: usize = 8;
/// Unit of shared memory that no daemon uses by default.
const SHM_UNIT: &str = "5";

pub(crate) fn all() -> Vec<Scenario> {
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
    all.extend(scenarios!(PTP4L_WITH_SHM, server_ptp_peers: measurements_of_ptp4l_are_served));
    all.extend(scenarios!(NEEDS, server_ptp_peers: unsupported_management_is_refused));
    all
}

/// Returns the output of nsm about a clock.
fn nsm_output(host: &LabHost, transport: Transport, target: &str) -> Result<String> {
    // nsm ends soon after its input, which is therefore kept open for 0.5 s.
    const SCRIPT: &str = "{ echo \"NSM $1\"; sleep 0.5; } | \
                          nsm -i \"$2\" --network_transport=\"$3\" --time_stamping=software";
    let mut command = host.command("sh");
    command.args(["-c", SCRIPT, "nsm", target, &host.first_interface().name, transport.name()]);
    let output = run_to_end(&mut command, TIMEOUT)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// nsm reads the data sets of the server and measures its offset, in TAI, if NetSync Monitor is
/// enabled.
fn nsm_measures_without_following(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let transports = ["--ptp-transport", "udp4,l2"];
    let mac = lab.server().first_interface().mac.map(|byte| format!("{byte:02x}")).join(":");
    let targets = [
        (Transport::Ipv4, lab.server().first_interface().ipv4.to_string(), 0),
        (Transport::Ethernet, mac, 1),
    ];
    let without_monitor = start_grandmaster(&lab, engine, &transports)?;
    await_state(&without_monitor, "master")?;
    for (transport, target, _) in &targets {
        let output = nsm_output(lab.client(), *transport, target)?;
        ensure!(!output.contains("COMPLETE"), "{transport:?}: {output}");
    }
    drop(without_monitor);
    let server =
        start_grandmaster(&lab, engine, &[&transports[..], &["--ptp-netsync-monitor"]].concat())?;
    await_state(&server, "master")?;
    for (transport, target, number_of_port) in targets {
        let mut output = String::new();
        wait_until("nsm gets its responses", || {
            output = nsm_output(lab.client(), transport, &target)?;
            Ok(output.contains("NSM MEASUREMENT COMPLETE"))
        })?;
        let off_ns =
            number(&output, "offset ")? + SERVER_OFFSET_NS + (TAI_OFFSET_S * NS_PER_S) as f64;
        ensure!(off_ns.abs() < TOLERANCE_NS, "{transport:?}: wrong by {off_ns} ns: {output}");
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
        let is_expected = match engine {
            // XDP cannot always extend a frame that a veth link has copied.
            Engine::Xdp => by_xdp > 0 || by_socket > Some(0),
            Engine::Socket => by_xdp == 0 && by_socket > Some(0),
        };
        ensure!(is_expected, "{transport:?}: {by_xdp} by XDP, {by_socket:?} by sockets");
    }
    Ok(())
}

/// Returns true for each of the next delay responses at the host's interface that was sent to a
/// group.
fn responses_to_group(host: &LabHost) -> Result<Vec<bool>> {
    let options = PacketSocketOptions {
        selection: FrameSelection::Program(Vec::new()),
        groups: vec![MacAddress::of_group(MULTICAST_IPV4.into())],
        ..PacketSocketOptions::default()
    };
    let mut device =
        host.run(|| PacketSocketDevice::open(&host.first_interface().name, &options))??;
    let mut batch: Batch<()> = Batch::new(64, FRAME_BYTES);
    let (started, mut responses) = (Instant::now(), Vec::new());
    while responses.len() < RESPONSES {
        ensure!(started.elapsed() < TIMEOUT, "only {} responses", responses.len());
        device.receive(&mut batch, BATCH_WAIT)?;
        for packet in batch.iter() {
            let Ok((message, _)) = parse_message(packet.bytes) else { continue };
            let Ok((link, _)) = Header::parse(packet.bytes) else { continue };
            if let PtpMessageBody::DelayResp { .. } = message.body {
                responses.push(link.destination.is_group());
            }
        }
    }
    Ok(responses)
}

/// A client that follows by multicast and requests the delay by unicast gets unicast responses;
/// other clients get them at the group.
fn a_hybrid_client_is_answered_by_unicast(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _server = start_grandmaster(&lab, engine, &[])?;
    for (lines, to_group) in [("hybrid_e2e 1\n", false), ("", true)] {
        let slave = PtpSlave::start_multicast(lab.client(), Transport::Ipv4, lines)?;
        slave.await_measurement(has_server_offset)?;
        let answers = responses_to_group(lab.client())?;
        ensure!(answers.iter().all(|&group| group == to_group), "{lines:?}: {answers:?}");
        slave.await_measurement(has_server_offset)?;
    }
    Ok(())
}

/// ptp4l writes its measurements to shared memory, and a server that reads them there serves the
/// master's time: its own clock is behind by the master's offset.
fn measurements_of_ptp4l_are_served() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _master = start_grandmaster(&lab, Engine::Xdp, &[])?;
    // The servo ntpshm sets no clock, and ptp4l has no privilege to.
    let lines = format!("free_running 0\nclock_servo ntpshm\nntpshm_segment {SHM_UNIT}\n");
    let slave = PtpSlave::start_multicast(lab.client(), Transport::Ipv4, &lines)?;
    slave.await_measurement(has_server_offset)?;

    let at = (lab.client().first_interface().ipv4, 123).into();
    let source = format!("shm:{SHM_UNIT}");
    let command = slave.command_in_ipc(lab.client());
    let server = Server::start_through(command, Engine::Socket, &[at], &["--source", &source])?;
    await_master_time(&lab, at).with_context(|| format!("{:?}", server.status()))
}

/// Waits until an NTP server on the client's host serves the master's time.
fn await_master_time(lab: &Lab, at: SocketAddr) -> Result<()> {
    let ahead = Span::from_ns(SERVER_OFFSET_NS as i64);
    let tolerance = Span::from_ns(TOLERANCE_NS as i64);
    let mut last = None;
    wait_until("the slave's measurements are served", || {
        // The server may not listen yet.
        let Ok(reply) = client::query_from(lab.server(), at) else { return Ok(false) };
        last = Some(reply);
        Ok(!is_unsynchronised(&reply.header) && reply.has_offset(ahead, tolerance))
    })
    .with_context(|| format!("{last:?}"))
}

/// Identifiers that pmc knows and the server does not support are refused as the standard requires,
/// and so is every change.
fn unsupported_management_is_refused() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let server = start_grandmaster(&lab, Engine::Xdp, &[])?;
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
    let queries = supported.map(|id| (format!("GET {id}"), true)).into_iter();
    let refusals = refused.map(|id| (format!("GET {id}"), false)).into_iter();
    let changes = ["SET PRIORITY2 1", "SET PRIORITY1 1"].map(|change| (change.to_owned(), false));
    for (question, is_supported) in queries.chain(refusals).chain(changes) {
        let id = question.split(' ').nth(1).unwrap_or_default();
        let expected = if is_supported {
            format!("MANAGEMENT {id}")
        } else {
            "MANAGEMENT_ERROR_STATUS".to_owned()
        };
        let mut answer = String::new();
        // pmc waits only 0.1 s for its response.
        wait_until("pmc gets a response", || {
            answer = manage(lab.client(), "-4", 0, &question)?;
            Ok(answer.contains(" RESPONSE "))
        })?;
        let is_right = answer.contains(&format!(" RESPONSE {expected} "));
        ensure!(is_right, "{question}: no {expected}: {answer}");
    }
    ensure!(port(&server)?["state"] == "master", "{}", port(&server)?);
    Ok(())
}
