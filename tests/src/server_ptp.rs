//! Scenarios of the PTP grandmaster with the programs of linuxptp: ptp4l follows it over every
//! transport and measures the offset of its time, pmc reads its data sets, and a better master
//! makes it passive.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use serde_json::Value;

use crate::load_ptp::load;
use crate::process::{Engine, Server, server_address};
use crate::ptp_slave::{PtpMeasurement, PtpSlave, manage, number};
use crate::ptp4l::Transport;
use crate::random::Random;
use crate::scenario::{Need, Queue, Scenario, scenario};
use crate::server_sources::ShmUnit;
use crate::{scenarios, server_ptp, server_ptp_monitor};

/// Unit of shared memory that no other program uses.
const SHM_UNIT: u8 = 77;

pub(crate) const NEEDS: &[Need] = &[
    Need::Root,
    Need::Ipv6,
    Need::Peer("ptp4l"),
    Need::Peer("pmc"),
    Need::Peer("setpriv"),
    Need::Peer("unshare"),
];
/// Offset of the server's time.
pub(crate) const SERVER_OFFSET_NS: f64 = 40e6;
/// Tolerance of a measured offset: far below the offset, and far above the asymmetry of delays on a
/// busy host.
pub(crate) const TOLERANCE_NS: f64 = 4e6;
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn all() -> Vec<Scenario> {
    let transports =
        [("udp4", Transport::Ipv4), ("udp6", Transport::Ipv6), ("l2", Transport::Ethernet)];
    let mut all = Vec::new();
    for engine in Engine::ALL {
        for (name, transport) in transports {
            let title = format!("server_ptp::ptp4l_follows::{name}::{}", engine.name());
            all.push(scenario(title, NEEDS, move || ptp4l_follows(name, transport, engine)));
        }
    }
    all.extend(scenarios!(NEEDS, server_ptp:
        ptp4l_is_granted_unicast_messages,
        ptp4l_measures_the_peer_delay,
        pmc_reads_the_data_sets,
        a_better_master_makes_the_port_passive,
        an_interface_that_goes_down_makes_the_port_faulty,
        hostile_messages_are_counted_and_change_nothing,
        invalid_ptp_options_are_named,
        an_unknown_time_is_not_announced,
    ));
    let measuring = scenarios!(NEEDS, server_ptp:
        ptp4l_follows_under_load,
        the_load_generator_accepts_every_response,
    );
    all.extend(measuring.map(|scenario| scenario.in_queue(Queue::Measuring)));
    all.extend(scenarios!(&[Need::Root, Need::Ipv6], server_ptp_monitor:
        monitor_requests_need_admission,
    ));
    all
}

/// Starts a server whose time has an offset, on the lab's link.
pub(crate) fn start_grandmaster(lab: &Lab, engine: Engine, arguments: &[&str]) -> Result<Server> {
    let at = server_address(lab, false)?;
    let ahead = (SERVER_OFFSET_NS as i64).to_string();
    let ptp = ["--ptp", &lab.server().first_interface().name, "--ptp-announce-interval", "-2"];
    let time = ["--stratum", "1", "--tai-offset", "37", "--test-offset", &ahead];
    Server::start(lab.server(), engine, &[at], &[&ptp[..], &time, arguments].concat())
}

pub(crate) fn has_server_offset(measured: &PtpMeasurement) -> bool {
    (measured.offset_ns + SERVER_OFFSET_NS).abs() < TOLERANCE_NS
}

pub(crate) fn port(server: &Server) -> Result<Value> {
    Ok(server.status()?["ptp"]["ports"][0].clone())
}

/// Waits until the first port is in `state`.
pub(crate) fn await_state(server: &Server, state: &str) -> Result<()> {
    let started = Instant::now();
    while port(server)?["state"] != state {
        ensure!(started.elapsed() < TIMEOUT, "not {state}: {}", port(server)?);
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn ptp4l_follows(name: &str, transport: Transport, engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let server = start_grandmaster(&lab, engine, &["--ptp-transport", name])?;
    let slave = PtpSlave::start_multicast(lab.client(), transport, "")?;
    slave.await_measurement(has_server_offset)?;
    let status = server.status()?;
    let port = &status["ptp"]["ports"][0];
    ensure!(port["state"] == "master" && port["sent"]["sync"].as_u64() > Some(0), "{port}");
    ensure!(port["without_departure"].as_u64() <= Some(1), "{port}");
    let by_xdp = status["xdp_counters"]["answered_ptp"].as_u64();
    let by_socket = port["sent"]["delay_resp"].as_u64();
    let expected = match engine {
        // XDP cannot extend a short frame that a veth link has copied: the copy has no tailroom.
        Engine::Xdp if transport == Transport::Ethernet => by_xdp.max(by_socket) > Some(0),
        Engine::Xdp => by_xdp > Some(0),
        Engine::Socket => by_socket > Some(0) && by_xdp.is_none(),
    };
    ensure!(expected, "{by_xdp:?} {by_socket:?}");
    Ok(())
}

/// With a unicast profile, ptp4l receives only messages that it was granted.
fn ptp4l_is_granted_unicast_messages() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let server = start_grandmaster(&lab, Engine::Xdp, &["--ptp-profile", "g8275.2"])?;
    let (master, own) =
        (lab.server().first_interface().ipv4, lab.client().first_interface().name.clone());
    let sections = format!(
        "[unicast_master_table]\ntable_id 1\nlogQueryInterval 0\nUDPv4 {master}\n\
         [{own}]\nunicast_master_table 1\n"
    );
    let slave = PtpSlave::start(lab.client(), Transport::Ipv4, 44, "", &sections)?;
    slave.await_measurement(has_server_offset)?;
    let port = port(&server)?;
    ensure!(port["grants"].as_u64() == Some(3), "{port}");
    Ok(())
}

/// ptp4l follows with the profile of peer delay.
fn ptp4l_measures_the_peer_delay() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let server = start_grandmaster(&lab, Engine::Socket, &["--ptp-profile", "default-p2p"])?;
    let lines = "delay_mechanism P2P\nlogMinPdelayReqInterval -3\n";
    let slave = PtpSlave::start_multicast(lab.client(), Transport::Ipv4, lines)?;
    // CURRENT_DATA_SET requires the delay to the master, which is not measured here.
    let started = Instant::now();
    loop {
        let offset = number(&slave.query("TIME_STATUS_NP")?, "master_offset").unwrap_or(0.0);
        if (offset + SERVER_OFFSET_NS).abs() < TOLERANCE_NS {
            break;
        }
        ensure!(started.elapsed() < TIMEOUT, "{offset}: {}", port(&server)?);
        thread::sleep(Duration::from_millis(200));
    }
    let port = port(&server)?;
    ensure!(port["sent"]["pdelay_resp_follow_up"].as_u64() > Some(0), "{port}");
    Ok(())
}

/// pmc reads the configured values over each of its transports.
fn pmc_reads_the_data_sets() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let options = ["--ptp-transport", "udp4,udp6,l2", "--ptp-priority1", "77", "--ptp-domain", "5"];
    let server = start_grandmaster(&lab, Engine::Xdp, &options)?;
    await_state(&server, "master")?;
    let expected: [(&str, &[(&str, &str)]); 6] = [
        ("DEFAULT_DATA_SET", &[("priority1", "77"), ("domainNumber", "5"), ("numberPorts", "3")]),
        ("CURRENT_DATA_SET", &[("stepsRemoved", "0"), ("offsetFromMaster", "0.0")]),
        ("PARENT_DATA_SET", &[("grandmasterPriority1", "77"), ("gm.ClockClass", "248")]),
        ("TIME_PROPERTIES_DATA_SET", &[("currentUtcOffset", "37"), ("ptpTimescale", "1")]),
        ("PORT_DATA_SET", &[("portState", "MASTER"), ("logAnnounceInterval", "-2")]),
        ("CLOCK_DESCRIPTION", &[("clockType", "0x8000")]),
    ];
    for transport in ["-4", "-6", "-2"] {
        for (set, values) in expected {
            let response = manage(lab.client(), transport, 5, &format!("GET {set}"))?;
            for (name, value) in values {
                let has = response.lines().any(|line| {
                    let mut words = line.split_whitespace();
                    (words.next(), words.next()) == (Some(name), Some(value))
                });
                ensure!(has, "{transport} {set}: no {name} {value}: {response}");
            }
        }
    }
    let response = manage(lab.client(), "-4", 5, "SET PRIORITY1 1")?;
    ensure!(response.contains("MANAGEMENT_ERROR_STATUS"), "{response}");
    Ok(())
}

/// A better master makes the server passive; the end of that master makes it master again.
fn a_better_master_makes_the_port_passive() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let server = start_grandmaster(&lab, Engine::Xdp, &[])?;
    await_state(&server, "master")?;
    let lines = "masterOnly 1\npriority1 100\n";
    let better = PtpSlave::start_multicast(lab.client(), Transport::Ipv4, &master_lines(lines))?;
    await_state(&server, "passive")?;
    let yielding = port(&server)?;
    ensure!(yielding["better"]["priority1"] == 100, "{yielding}");
    let sent_syncs = port(&server)?["sent"]["sync"].clone();
    thread::sleep(Duration::from_secs(2));
    let by_xdp = |server: &Server| {
        Ok::<_, anyhow::Error>(server.status()?["xdp_counters"]["answered_ptp"].clone())
    };
    let answered = by_xdp(&server)?;
    let target = lab.server().first_interface().ipv4.to_string();
    load(lab.client(), &["delay", &target, "--engine", "packet", "-r", "100", "-t", "0.5"])?;
    ensure!(by_xdp(&server)? == answered, "XDP sends responses for a passive port");
    ensure!(port(&server)?["sent"]["sync"] == sent_syncs, "{sent_syncs}: {}", port(&server)?);
    drop(better);
    await_state(&server, "master")
}

/// A port whose interface goes down is faulty and announces nothing; when the interface is up
/// again, the port is master and ptp4l follows it.
fn an_interface_that_goes_down_makes_the_port_faulty() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let server = start_grandmaster(&lab, Engine::Xdp, &[])?;
    await_state(&server, "master")?;
    let announced = port(&server)?["announces"].take();
    ensure!(announced["utc_offset_s"] == 37 && announced["ptp_timescale"] == true, "{announced}");
    let interface = &lab.server().first_interface().name;
    for (to, state) in [("down", "faulty"), ("up", "master")] {
        let arguments = ["link", "set", interface, to];
        let set = lab.server().command("ip").args(arguments).status()?;
        ensure!(set.success(), "ip {arguments:?}: {set}");
        await_state(&server, state)?;
        let is_announcing = port(&server)?.get("announces").is_some();
        ensure!(is_announcing == (state == "master"), "{}", port(&server)?);
    }
    let slave = PtpSlave::start_multicast(lab.client(), Transport::Ipv4, "")?;
    slave.await_measurement(has_server_offset)?;
    Ok(())
}

/// Returns `lines` with the options that let a client become master.
fn master_lines(lines: &str) -> String {
    format!("slaveOnly 0\nlogSyncInterval 0\n{lines}")
}

/// ptp4l measures the same offset while the server receives 100,000 other requests per second.
fn ptp4l_follows_under_load() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let server = start_grandmaster(&lab, Engine::Xdp, &[])?;
    let slave = PtpSlave::start_multicast(lab.client(), Transport::Ipv4, "")?;
    slave.await_measurement(has_server_offset)?;
    let target = lab.server().first_interface().ipv4.to_string();
    let arguments = ["delay", &target, "-r", "100k", "-t", "5", "-c", "1000"];
    let (loaded, measured) = thread::scope(|scope| {
        let loading = scope.spawn(|| load(lab.client(), &arguments));
        let mut measured = Vec::new();
        while !loading.is_finished() {
            measured.push(slave.measurement()?);
            thread::sleep(Duration::from_millis(500));
        }
        Ok::<_, anyhow::Error>((loading.join(), measured))
    })?;
    let (status, result, stderr) = loaded.map_err(|_| anyhow::anyhow!("the load panicked"))??;
    ensure!(status == Some(0), "{stderr}");
    let received = result.trials.iter().map(|trial| trial.received).sum::<u64>();
    ensure!(received > 0, "no response to the load");
    let all_right =
        measured.iter().all(|measured| measured.as_ref().is_some_and(has_server_offset));
    ensure!(measured.len() >= 5 && all_right, "{measured:?}");
    ensure!(port(&server)?["state"] == "master", "{}", port(&server)?);
    Ok(())
}

/// Horolog's load generator, which verifies every response, accepts all of them.
fn the_load_generator_accepts_every_response() -> Result<()> {
    for engine in Engine::ALL {
        let lab = Lab::new(&LabConfig::default())?;
        let options =
            ["--ptp-transport", "udp4,udp6,l2", "--ptp-netsync-monitor", "--ptp-unicast-allow"];
        let ours = ["10.64.0.0/10", "--ptp-unicast-allow", "192.0.2.0/24"];
        let allow = [&ours[..], &["--ptp-unicast-allow", "::/0"]].concat();
        let server = start_grandmaster(&lab, engine, &[&options[..], &allow].concat())?;
        await_state(&server, "master")?;
        let (ipv4, ipv6) = (
            lab.server().first_interface().ipv4.to_string(),
            server_address(&lab, true)?.ip().to_string(),
        );
        let ways: [&[&str]; 8] = [
            &["delay", &ipv4],
            &["delay", &ipv4, "--multicast"],
            &["delay", &ipv6],
            &["delay", &ipv4, "--transport", "l2"],
            &["nsm", &ipv4],
            &["nsm", &ipv6],
            &["nsm", &ipv4, "--transport", "l2"],
            &["unicast", &ipv4],
        ];
        let answered_by_xdp = || -> Result<u64> {
            Ok(server.status()?["xdp_counters"]["answered_ptp_monitor"].as_u64().unwrap_or(0))
        };
        for way in ways {
            let before = answered_by_xdp()?;
            let (status, result, stderr) =
                load(lab.client(), &[way, &["-r", "1000", "-t", "0.2"]].concat())?;
            let trial = result.trials.first();
            let is_valid = trial.is_some_and(|trial| {
                trial.received > 0 && trial.invalid.is_empty() && trial.duplicate == 0
            });
            ensure!(status == Some(0) && is_valid, "{engine:?} {way:?}: {trial:?} {stderr}");
            let by_xdp = answered_by_xdp()? - before;
            let expects_xdp = engine == Engine::Xdp && way[0] == "nsm";
            ensure!((by_xdp > 0) == expects_xdp, "{engine:?} {way:?}: {by_xdp} responses by XDP");
        }
    }
    Ok(())
}

/// Returns a message of this type, clock and domain, with a body of zeroes.
fn zeroed_message(kind: u8, version: u8, domain: u8, clock: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[0] = kind;
    bytes[1] = version;
    bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    bytes[4] = domain;
    bytes[20..28].copy_from_slice(&clock.to_be_bytes());
    bytes[29] = 1;
    bytes
}

/// Invalid messages are counted by reason and do not change the state of the port.
fn hostile_messages_are_counted_and_change_nothing() -> Result<()> {
    const FOREIGN_MASTER: u64 = 0x0200_5eff_fe10_0099;
    const GENERAL: u16 = 320;
    let lab = Lab::new(&LabConfig::default())?;
    let server = start_grandmaster(&lab, Engine::Xdp, &[])?;
    await_state(&server, "master")?;
    let identity =
        server.status()?["ptp"]["clock_identity"].as_str().context("no identity")?.to_owned();
    let own = u64::from_str_radix(&identity.replace('.', ""), 16)?;
    let mut announce = zeroed_message(0xb, 0x12, 0, FOREIGN_MASTER, 64);
    announce[61..63].copy_from_slice(&255_u16.to_be_bytes()); // steps removed
    let mut invalid_tlv = zeroed_message(0xc, 0x12, 0, FOREIGN_MASTER, 48);
    invalid_tlv[44..48].copy_from_slice(&[0, 4, 0, 200]);
    let mut overlong = zeroed_message(0xb, 0x12, 0, FOREIGN_MASTER, 64);
    overlong[2..4].copy_from_slice(&4_000_u16.to_be_bytes());
    let invalid = [
        ("version", zeroed_message(0xb, 0x01, 0, FOREIGN_MASTER, 64)),
        ("domain", zeroed_message(0xb, 0x12, 1, FOREIGN_MASTER, 64)),
        ("type", zeroed_message(0x4, 0x12, 0, FOREIGN_MASTER, 64)),
        ("own", zeroed_message(0xb, 0x12, 0, own, 64)),
        ("channel", zeroed_message(0x0, 0x12, 0, FOREIGN_MASTER, 44)),
        ("unqualified", announce),
        ("length", invalid_tlv),
        ("length", overlong),
        ("length", vec![0xb; 7]),
    ];
    let group = (horolog_wire::ptp::MULTICAST_IPV4, GENERAL);
    let own_address = lab.client().first_interface().ipv4;
    lab.client().run(|| -> Result<()> {
        let socket = UdpSocket::bind((own_address, 0))?;
        let mut random = Random::new(7);
        for (_, bytes) in &invalid {
            socket.send_to(bytes, group)?;
        }
        for _ in 0..2_000 {
            let len = random.within(0..=200) as usize;
            socket.send_to(&random.bytes(len), group)?;
        }
        Ok(())
    })??;
    let started = Instant::now();
    loop {
        let port = port(&server)?;
        let missing = invalid.iter().find(|(reason, _)| port["refused"][reason].as_u64() < Some(1));
        match missing {
            None => break,
            Some((reason, _)) => ensure!(started.elapsed() < TIMEOUT, "no {reason}: {port}"),
        }
        thread::sleep(Duration::from_millis(100));
    }
    await_state(&server, "master")?;
    let slave = PtpSlave::start_multicast(lab.client(), Transport::Ipv4, "")?;
    slave.await_measurement(has_server_offset).map(drop)
}

/// Invalid options are named in one line before the server starts.
fn invalid_ptp_options_are_named() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let interface = lab.server().first_interface().name.clone();
    let cases: [(&[&str], &str); 7] = [
        (&["--ptp", "there-is-none"], "there-is-none"),
        (&["--ptp", "lo"], "not an Ethernet interface"),
        (&["--ptp", &interface, "--ptp-profile", "g8275.1"], "unknown profile 'g8275.1'"),
        (&["--ptp", &interface, "--ptp-domain", "200"], "domains 0 to 127"),
        (&["--ptp", &interface, "--ptp-sync-interval", "9"], "--ptp-sync-interval 9"),
        (&["--ptp", &interface, "--ptp-one-step"], "--timestamps"),
        (&["--ptp", &interface, "--ptp", &interface], "specified twice"),
    ];
    for (arguments, expected) in cases {
        let Err(error) = Server::start(lab.server(), Engine::Socket, &[at], arguments) else {
            anyhow::bail!("{arguments:?} are accepted");
        };
        let text = error.to_string();
        ensure!(
            text.contains(expected) && text.trim().lines().count() == 1,
            "{arguments:?}: {text}"
        );
    }
    let _first = start_grandmaster(&lab, Engine::Socket, &[])?;
    let second = Server::start(
        lab.server(),
        Engine::Socket,
        &[(at.ip(), 1123).into()],
        &["--ptp", &interface],
    );
    let text = second.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(text.contains("319") && text.contains("another program"), "{text}");
    Ok(())
}

/// The port sends nothing while no source provides the time.
fn an_unknown_time_is_not_announced() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let interface = lab.server().first_interface().name.clone();
    let unit = ShmUnit(SHM_UNIT);
    let source = format!("shm:{}", unit.0);
    let arguments = ["--ptp", &interface, "--ptp-announce-interval", "-3", "--source", &source];
    let server = Server::start_without_local(lab.server(), Engine::Xdp, &[at], &arguments)?;
    thread::sleep(Duration::from_secs(3));
    let port = port(&server)?;
    ensure!(
        port["state"] == "listening"
            && port["sent"].as_object().is_some_and(serde_json::Map::is_empty),
        "{port}"
    );
    let target = lab.server().first_interface().ipv4.to_string();
    let (_, result, _) = load(lab.client(), &["delay", &target, "-r", "100", "-t", "0.5"])?;
    let received: u64 = result.trials.iter().map(|trial| trial.received).sum();
    ensure!(received == 0, "{received} responses");
    Ok(())
}
