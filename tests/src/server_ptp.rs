//! Scenarios of the PTP grandmaster with linuxptp's programs: ptp4l follows it over every
//! transport and measures what it adds to the time, pmc reads its data sets, and it yields to a
//! better master.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::load_ptp::load;
use crate::process::{Engine, Server, server_address};
use crate::ptp_slave::{Measured, PtpSlave, manage, number};
use crate::ptp4l::Transport;
use crate::random::Random;
use crate::scenario::{Need, scenario};
use crate::server_sources::Unit;
use crate::{scenarios, server_ptp, server_ptp_monitor};

/// A unit of shared memory that nobody else uses.
const UNIT: u8 = 77;

pub(crate) const NEEDS: &[Need] = &[
    Need::Root,
    Need::Ipv6,
    Need::Peer("ptp4l"),
    Need::Peer("pmc"),
    Need::Peer("setpriv"),
    Need::Peer("unshare"),
];
/// How far the server's time is ahead, and how far what is measured may be from that: much less
/// than it is ahead, and much more than a busy machine's delays differ on two ways.
pub(crate) const AHEAD_NS: f64 = 40e6;
pub(crate) const TOLERANCE_NS: f64 = 4e6;
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Those that wait for peers.
pub(crate) fn all() -> Vec<Trial> {
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
        a_better_master_is_yielded_to,
        an_interface_that_goes_down_makes_the_port_faulty,
        hostile_messages_are_counted_and_change_nothing,
        invalid_ptp_options_are_named,
        an_unknown_time_is_not_announced,
    ));
    all.extend(scenarios!(&[Need::Root, Need::Ipv6], server_ptp_monitor:
        monitor_requests_need_admission,
    ));
    all
}

/// Those that load the server.
pub(crate) fn under_load() -> Vec<Trial> {
    scenarios!(NEEDS, server_ptp:
        ptp4l_follows_under_load,
        the_load_generator_accepts_every_response,
    )
    .into()
}

/// A server whose time is ahead, on the lab's link.
pub(crate) fn start(lab: &Lab, engine: Engine, arguments: &[&str]) -> Result<Server> {
    let at = server_address(lab, false)?;
    let ahead = (AHEAD_NS as i64).to_string();
    let ptp = ["--ptp", &lab.server().first_interface().name, "--ptp-announce-interval", "-2"];
    let time = ["--stratum", "1", "--tai-offset", "37", "--test-offset", &ahead];
    Server::start(lab.server(), engine, &[at], &[&ptp[..], &time, arguments].concat())
}

pub(crate) fn is_right(measured: &Measured) -> bool {
    (measured.offset_ns + AHEAD_NS).abs() < TOLERANCE_NS
}

pub(crate) fn port(server: &Server) -> Result<Value> {
    Ok(server.status()?["ptp"]["ports"][0].clone())
}

/// Waits until the first port is in a state.
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
    let server = start(&lab, engine, &["--ptp-transport", name])?;
    let slave = PtpSlave::by_multicast(lab.client(), transport, "")?;
    slave.await_measured(is_right)?;
    let status = server.status()?;
    let port = &status["ptp"]["ports"][0];
    ensure!(port["state"] == "master" && port["sent"]["sync"].as_u64() > Some(0), "{port}");
    ensure!(port["without_departure"].as_u64() <= Some(1), "{port}");
    let by_xdp = status["xdp_counters"]["answered_ptp"].as_u64();
    let by_socket = port["sent"]["delay_resp"].as_u64();
    let expected = match engine {
        // A virtual link copies a short frame to where it has no room to grow.
        Engine::Xdp if transport == Transport::Ethernet => by_xdp.max(by_socket) > Some(0),
        Engine::Xdp => by_xdp > Some(0),
        Engine::Socket => by_socket > Some(0) && by_xdp.is_none(),
    };
    ensure!(expected, "{by_xdp:?} {by_socket:?}");
    Ok(())
}

/// With the profile of unicast alone everything that a client gets it has asked for.
fn ptp4l_is_granted_unicast_messages() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let server = start(&lab, Engine::Xdp, &["--ptp-profile", "g8275.2"])?;
    let (master, own) =
        (lab.server().first_interface().ipv4, lab.client().first_interface().name.clone());
    let sections = format!(
        "[unicast_master_table]\ntable_id 1\nlogQueryInterval 0\nUDPv4 {master}\n\
         [{own}]\nunicast_master_table 1\n"
    );
    let slave = PtpSlave::start(lab.client(), Transport::Ipv4, 44, "", &sections)?;
    slave.await_measured(is_right)?;
    let port = port(&server)?;
    ensure!(port["grants"].as_u64() == Some(3), "{port}");
    Ok(())
}

/// With the profile of peer delay.
fn ptp4l_measures_the_peer_delay() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let server = start(&lab, Engine::Socket, &["--ptp-profile", "default-p2p"])?;
    let lines = "delay_mechanism P2P\nlogMinPdelayReqInterval -3\n";
    let slave = PtpSlave::by_multicast(lab.client(), Transport::Ipv4, lines)?;
    // The data set of the others has the delay to the master, which is not measured here.
    let started = Instant::now();
    loop {
        let offset = number(&slave.query("TIME_STATUS_NP")?, "master_offset").unwrap_or(0.0);
        if (offset + AHEAD_NS).abs() < TOLERANCE_NS {
            break;
        }
        ensure!(started.elapsed() < TIMEOUT, "{offset}: {}", port(&server)?);
        thread::sleep(Duration::from_millis(200));
    }
    let port = port(&server)?;
    ensure!(port["sent"]["pdelay_resp_follow_up"].as_u64() > Some(0), "{port}");
    Ok(())
}

/// pmc finds what was configured, over each transport that it speaks.
fn pmc_reads_the_data_sets() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let options = ["--ptp-transport", "udp4,udp6,l2", "--ptp-priority1", "77", "--ptp-domain", "5"];
    let server = start(&lab, Engine::Xdp, &options)?;
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

/// A master with a better rank makes ours fall silent, and its end makes ours speak again.
fn a_better_master_is_yielded_to() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let server = start(&lab, Engine::Xdp, &[])?;
    await_state(&server, "master")?;
    let lines = "masterOnly 1\npriority1 100\n";
    let better = PtpSlave::by_multicast(lab.client(), Transport::Ipv4, &better_lines(lines))?;
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
    ensure!(by_xdp(&server)? == answered, "XDP answers for a port that yields");
    ensure!(port(&server)?["sent"]["sync"] == sent_syncs, "{sent_syncs}: {}", port(&server)?);
    drop(better);
    await_state(&server, "master")
}

/// A port whose interface goes down is told as faulty and announces nothing; when the interface is
/// back it is the master again, and is followed.
fn an_interface_that_goes_down_makes_the_port_faulty() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let server = start(&lab, Engine::Xdp, &[])?;
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
    let slave = PtpSlave::by_multicast(lab.client(), Transport::Ipv4, "")?;
    slave.await_measured(is_right)?;
    Ok(())
}

/// What makes a client one that is a master.
fn better_lines(lines: &str) -> String {
    format!("slaveOnly 0\nlogSyncInterval 0\n{lines}")
}

/// It measures the same while its master answers a hundred thousand others a second.
fn ptp4l_follows_under_load() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let server = start(&lab, Engine::Xdp, &[])?;
    let slave = PtpSlave::by_multicast(lab.client(), Transport::Ipv4, "")?;
    slave.await_measured(is_right)?;
    let target = lab.server().first_interface().ipv4.to_string();
    let arguments = ["delay", &target, "-r", "100k", "-t", "5", "-c", "1000"];
    let (loaded, measured) = thread::scope(|scope| {
        let loading = scope.spawn(|| load(lab.client(), &arguments));
        let mut measured = Vec::new();
        while !loading.is_finished() {
            measured.push(slave.measured()?);
            thread::sleep(Duration::from_millis(500));
        }
        Ok::<_, anyhow::Error>((loading.join(), measured))
    })?;
    let (status, result, stderr) = loaded.map_err(|_| anyhow::anyhow!("the load panicked"))??;
    ensure!(status == Some(0), "{stderr}");
    let received = result.trials.iter().map(|trial| trial.received).sum::<u64>();
    ensure!(received > 0, "nothing was answered");
    let all_right = measured.iter().all(|measured| measured.as_ref().is_some_and(is_right));
    ensure!(measured.len() >= 5 && all_right, "{measured:?}");
    ensure!(port(&server)?["state"] == "master", "{}", port(&server)?);
    Ok(())
}

/// Our own load generator, which verifies every answer, has nothing against any of them.
fn the_load_generator_accepts_every_response() -> Result<()> {
    for engine in Engine::ALL {
        let lab = Lab::new(&LabConfig::default())?;
        let options =
            ["--ptp-transport", "udp4,udp6,l2", "--ptp-netsync-monitor", "--ptp-unicast-allow"];
        let ours = ["10.64.0.0/10", "--ptp-unicast-allow", "192.0.2.0/24"];
        let allow = [&ours[..], &["--ptp-unicast-allow", "::/0"]].concat();
        let server = start(&lab, engine, &[&options[..], &allow].concat())?;
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
                load(lab.client(), &[way, &["-r", "1000", "-t", "0.5"]].concat())?;
            let trial = result.trials.first();
            let fits = trial.is_some_and(|trial| {
                trial.received > 0 && trial.invalid.is_empty() && trial.duplicate == 0
            });
            ensure!(status == Some(0) && fits, "{engine:?} {way:?}: {trial:?} {stderr}");
            let by_xdp = answered_by_xdp()? - before;
            let is_its = engine == Engine::Xdp && way[0] == "nsm";
            ensure!((by_xdp > 0) == is_its, "{engine:?} {way:?}: {by_xdp} answered by XDP");
        }
    }
    Ok(())
}

/// A message with this type, of this clock and domain, with a body of zeroes.
fn message(kind: u8, version: u8, domain: u8, clock: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[0] = kind;
    bytes[1] = version;
    bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    bytes[4] = domain;
    bytes[20..28].copy_from_slice(&clock.to_be_bytes());
    bytes[29] = 1;
    bytes
}

/// What is wrong is counted by its reason, and the port goes on as before.
fn hostile_messages_are_counted_and_change_nothing() -> Result<()> {
    const FOREIGN_MASTER: u64 = 0x0200_5eff_fe10_0099;
    const GENERAL: u16 = 320;
    let lab = Lab::new(&LabConfig::default())?;
    let server = start(&lab, Engine::Xdp, &[])?;
    await_state(&server, "master")?;
    let identity =
        server.status()?["ptp"]["clock_identity"].as_str().context("no identity")?.to_owned();
    let own = u64::from_str_radix(&identity.replace('.', ""), 16)?;
    let mut announce = message(0xb, 0x12, 0, FOREIGN_MASTER, 64);
    announce[61..63].copy_from_slice(&255_u16.to_be_bytes()); // steps removed
    let mut broken = message(0xc, 0x12, 0, FOREIGN_MASTER, 48);
    broken[44..48].copy_from_slice(&[0, 4, 0, 200]);
    let mut long = message(0xb, 0x12, 0, FOREIGN_MASTER, 64);
    long[2..4].copy_from_slice(&4_000_u16.to_be_bytes());
    let wrong = [
        ("version", message(0xb, 0x01, 0, FOREIGN_MASTER, 64)),
        ("domain", message(0xb, 0x12, 1, FOREIGN_MASTER, 64)),
        ("type", message(0x4, 0x12, 0, FOREIGN_MASTER, 64)),
        ("own", message(0xb, 0x12, 0, own, 64)),
        ("channel", message(0x0, 0x12, 0, FOREIGN_MASTER, 44)),
        ("unqualified", announce),
        ("length", broken),
        ("length", long),
        ("length", vec![0xb; 7]),
    ];
    let group = (horolog_wire::ptp::MULTICAST_IPV4, GENERAL);
    let own_address = lab.client().first_interface().ipv4;
    lab.client().run(|| -> Result<()> {
        let socket = UdpSocket::bind((own_address, 0))?;
        let mut random = Random::new(7);
        for (_, bytes) in &wrong {
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
        let missing = wrong.iter().find(|(reason, _)| port["refused"][reason].as_u64() < Some(1));
        match missing {
            None => break,
            Some((reason, _)) => ensure!(started.elapsed() < TIMEOUT, "no {reason}: {port}"),
        }
        thread::sleep(Duration::from_millis(100));
    }
    await_state(&server, "master")?;
    let slave = PtpSlave::by_multicast(lab.client(), Transport::Ipv4, "")?;
    slave.await_measured(is_right).map(drop)
}

/// What cannot be is told in one line, before anything is served.
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
            anyhow::bail!("{arguments:?} is taken");
        };
        let text = error.to_string();
        ensure!(
            text.contains(expected) && text.trim().lines().count() == 1,
            "{arguments:?}: {text}"
        );
    }
    let _first = start(&lab, Engine::Socket, &[])?;
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

/// While nobody says that the time is right, the port is silent.
fn an_unknown_time_is_not_announced() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let interface = lab.server().first_interface().name.clone();
    let unit = Unit(UNIT);
    let source = format!("shm:{}", unit.0);
    let arguments = ["--ptp", &interface, "--ptp-announce-interval", "-3", "--source", &source];
    let server = Server::start_as(lab.server(), Engine::Xdp, &[at], &arguments)?;
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
    ensure!(received == 0, "{received} requests were answered");
    Ok(())
}
