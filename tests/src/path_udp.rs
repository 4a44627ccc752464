//! Scenarios of `horolog path udp` and its far end: a path with known faults is measured, datagrams
//! are received by the scenario's own sockets, far ends vanish, and unknown senders have no reply.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost, RunningProgram};
use horolog_record::{FindingCode, PathUdpResult, PathUdpRow, UdpRowEndReason};
use horolog_sys::datagram::{MsghdrBuffers, WaitMode};
use horolog_sys::socket::DatagramSocket;
use horolog_wire::path_probe::{HEADER_LEN, HELLO_LEN, Header, PORT, PathDatagramKind, short};
use horolog_wire::stamp;

use crate::path_udp_forwarder::{Faults, Forwarder, is_affected};
use crate::process::{binary, run_to_end, signal_to};
use crate::scenario::Scenario;
use crate::{ROOT, ROOT_AND_IPV6, path_udp, path_udp_short, scenarios};

const TIMEOUT: Duration = Duration::from_secs(20);
/// Port of the forwarder with faults.
const FORWARDER_PORT: u16 = 9_000;
const STAMP_PORT: u16 = 9_862;

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT, path_udp:
        known_faults_are_measured_at_a_fixed_rate,
        known_faults_are_measured_in_ping_pong,
        traffic_classes_are_recorded_at_both_ends,
        the_load_ratio_is_applied,
        the_table_of_the_paper_is_measured,
        a_killed_far_end_is_reported,
        a_stopped_far_end_is_reported,
        a_reflector_and_a_sender_use_stamp,
        packets_omitted_by_a_limit_are_no_path_loss,
        drops_of_a_full_socket_are_no_path_loss,
        unknown_senders_get_no_reply,
        impossible_requests_are_reported,
    ));
    all.extend(scenarios!(ROOT_AND_IPV6, path_udp: long_datagrams_go_in_fragments));
    all.extend(path_udp_short::all());
    all
}

/// Lab with a far end on its server host.
pub(crate) struct PathTestbed {
    lab: Lab,
    far: RunningProgram,
    pub(crate) at: SocketAddr,
}

impl PathTestbed {
    pub(crate) fn new(ipv6: bool) -> Result<Self> {
        let lab = Lab::new(&LabConfig::default())?;
        let port = lab.server().first_interface();
        let at: SocketAddr = if ipv6 {
            (port.ipv6.context("no IPv6 address")?, PORT).into()
        } else {
            (port.ipv4, PORT).into()
        };
        let mut command = lab.server().command(binary()?);
        command.args(["path", "serve", "--stamp", "--stamp-listen"]);
        command.arg(SocketAddr::new(at.ip(), STAMP_PORT).to_string());
        let mut far = RunningProgram::start(&mut command)?;
        // The far end binds its STAMP port last.
        far.await_ready(TIMEOUT, || is_listening(lab.server(), STAMP_PORT))?;
        Ok(Self { lab, far, at })
    }

    fn start_forwarder(&self, there: Faults, back: Faults) -> Result<Forwarder> {
        Forwarder::start(self.lab.server(), self.address_at(FORWARDER_PORT), self.at, there, back)
    }

    fn address_at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.at.ip(), port)
    }

    fn output(&self, to: SocketAddr, arguments: &[&str]) -> Result<Output> {
        run_to_end(&mut path_command(self.lab.client(), to, arguments)?, TIMEOUT)
    }

    pub(crate) fn measure(&self, to: SocketAddr, arguments: &[&str]) -> Result<PathUdpResult> {
        let output = self.output(to, &[arguments, &["--json", "-"]].concat())?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// Returns true if a program on the host listens on a UDP port.
fn is_listening(host: &LabHost, port: u16) -> bool {
    let listed = || {
        let tables = ["udp", "udp6"].map(|name| format!("/proc/thread-self/net/{name}"));
        tables.iter().filter_map(|table| fs::read_to_string(table).ok()).collect::<String>()
    };
    host.run(listed).is_ok_and(|sockets| sockets.contains(&format!(":{port:04X} ")))
}

fn path_command(host: &LabHost, to: SocketAddr, arguments: &[&str]) -> Result<Command> {
    let mut command = host.command(binary()?);
    command.args(["path", "udp", &to.to_string()]).args(arguments);
    Ok(command)
}

fn only_row(result: &PathUdpResult) -> Result<&PathUdpRow> {
    ensure!(result.rows.len() == 1, "{result:?}");
    Ok(&result.rows[0])
}

fn has_finding(result: &PathUdpResult, code: FindingCode) -> bool {
    result.findings.iter().any(|finding| finding.code == code)
}

fn known_faults_are_measured_at_a_fixed_rate() -> Result<()> {
    let path = PathTestbed::new(false)?;
    ["64", "16"].iter().try_for_each(|size| check_known_faults(&path, size))
}

fn check_known_faults(path: &PathTestbed, size: &str) -> Result<()> {
    const COUNT: u32 = 600;
    let there = Faults {
        delay: Duration::from_millis(3),
        lost: Some((10, 9)),
        swapped: Some((8, 4)),
        ..Faults::default()
    };
    let back =
        Faults { delay: Duration::from_millis(1), duplicated: Some((7, 3)), ..Faults::default() };
    let _hop = path.start_forwarder(there, back)?;
    let count = COUNT.to_string();
    let arguments = ["-s", size, "-r", "2k", "-n", &count, "--warm-up", "0"];
    let result = path.measure(path.address_at(FORWARDER_PORT), &arguments)?;
    let row = only_row(&result)?;

    let passed = || (0..COUNT).filter(|one| !is_affected(*one, there.lost));
    let hit = |fault| passed().filter(|one| is_affected(*one, fault)).count() as u64;
    let lost = u64::from(COUNT) - passed().count() as u64;
    let (copied, swapped) = (hit(back.duplicated), hit(there.swapped));
    let counts = &row.counts;
    ensure!((counts.sent, counts.lost) == (u64::from(COUNT), lost), "{counts:?}");
    ensure!((counts.duplicate, counts.reordered) == (copied, swapped), "{counts:?}");
    let (forward, backward) = row.forward.zip(row.backward).context("no directions")?;
    ensure!((forward.lost, backward.lost) == (lost, 0), "{forward:?} {backward:?}");
    ensure!((forward.duplicate, backward.duplicate) == (0, copied), "{forward:?} {backward:?}");
    ensure!((forward.reordered, backward.reordered) == (swapped, 0), "{forward:?} {backward:?}");
    for code in [
        FindingCode::PathLoss,
        FindingCode::PathReordered,
        FindingCode::DuplicateReplies,
        FindingCode::SharedMachine,
    ] {
        ensure!(has_finding(&result, code), "{code:?}: {:?}", result.findings);
    }
    check_delays(row)
}

/// Checks delays of 3 ms forward and 1 ms backward, to which the forwarder adds its own time.
fn check_delays(row: &PathUdpRow) -> Result<()> {
    let (there, back) =
        row.forward_ns.as_ref().zip(row.backward_ns.as_ref()).context("no one-way times")?;
    ensure!(there.min >= 3_000_000 && back.min >= 1_000_000, "{there:?} {back:?}");
    ensure!(there.p50 - back.p50 > 1_000_000, "{there:?} {back:?}");
    let delay = row.delay_ns.as_ref().context("no delay")?;
    ensure!(delay.min >= 2_000_000 && delay.p50 < 20_000_000, "{delay:?}");
    Ok(())
}

fn known_faults_are_measured_in_ping_pong() -> Result<()> {
    let path = PathTestbed::new(false)?;
    let there = Faults { delay: Duration::from_millis(3), ..Faults::default() };
    let back = Faults {
        delay: Duration::from_millis(1),
        lost: Some((20, 19)),
        duplicated: Some((6, 2)),
        ..Faults::default()
    };
    let _hop = path.start_forwarder(there, back)?;
    let arguments = ["-n", "100", "--warm-up", "0", "--timeout", "60ms"];
    let result = path.measure(path.address_at(FORWARDER_PORT), &arguments)?;
    let row = only_row(&result)?;
    let (forward, backward) = row.forward.zip(row.backward).context("no directions")?;
    ensure!((row.counts.sent, row.counts.lost) == (100, 5), "{:?}", row.counts);
    ensure!((forward.lost, backward.lost) == (0, 5), "{forward:?} {backward:?}");
    let copied =
        (0..100).filter(|one| is_affected(*one, back.duplicated) && !is_affected(*one, back.lost));
    ensure!(row.counts.duplicate == copied.count() as u64, "{:?}", row.counts);
    check_delays(row)?;
    let limited = |limit| {
        path.output(
            path.address_at(FORWARDER_PORT),
            &[&arguments[..], &["--fail-if", limit]].concat(),
        )
    };
    let failed = limited("loss>4%")?;
    ensure!(failed.status.code() == Some(1), "{failed:?}");
    ensure!(limited("loss>6%")?.status.success(), "a limit failed that holds");
    Ok(())
}

/// Both ends report the traffic class, and a socket of the scenario receives it. A forwarder clears
/// it.
fn traffic_classes_are_recorded_at_both_ends() -> Result<()> {
    let path = PathTestbed::new(false)?;
    let arguments = ["--dscp", "ef", "-n", "200"];
    let result = path.measure(path.at, &arguments)?;
    let row = only_row(&result)?;
    ensure!((row.dscp_forward, row.dscp_backward) == (Some(46), Some(46)), "{row:?}");
    let _hop = path.start_forwarder(Faults::default(), Faults::default())?;
    let result = path.measure(path.address_at(FORWARDER_PORT), &arguments)?;
    let row = only_row(&result)?;
    ensure!((row.dscp_forward, row.dscp_backward) == (Some(0), Some(0)), "{row:?}");
    ensure!(has_finding(&result, FindingCode::DscpChanged), "{:?}", result.findings);

    let at = path.address_at(9_001);
    let listener = path.lab.server().run(|| -> Result<_> {
        let socket = DatagramSocket::udp(at)?;
        socket.bind(at)?;
        socket.set_receive_timeout(TIMEOUT)?;
        socket.enable_traffic_class(at, true)?;
        socket.enable_hop_limit(at)?;
        Ok(socket)
    })??;
    let receiving = thread::spawn(move || {
        MsghdrBuffers::new().receive(listener.as_fd(), &mut [0; 100], WaitMode::Blocking)
    });
    let options = ["--stamp", "--dscp", "af41", "-n", "2", "--warm-up", "0", "--timeout", "50ms"];
    let unanswered = path.output(at, &options)?;
    let control = receiving.join().ok().context("the listener panicked")??.control;
    ensure!(control.traffic_class == Some(34 << 2), "{control:?}");
    ensure!(control.hop_limit == Some(stamp::SENDER_HOP_LIMIT), "{control:?}");
    ensure!(unanswered.status.code() == Some(3), "wrong status without replies: {unanswered:?}");
    Ok(())
}

fn long_datagrams_go_in_fragments() -> Result<()> {
    for (ipv6, lengths, expected) in [
        (false, "1472,1473,5000,65507", [1, 2, 4, 45]),
        (true, "1452,1453,2889,5000", [1, 2, 3, 4]),
    ] {
        let path = PathTestbed::new(ipv6)?;
        let options = ["-n", "50", "--flows", "2", "--timestamps", "--warm-up", "4"];
        let result = path.measure(path.at, &[&["--sizes", lengths], &options[..]].concat())?;
        let fragments: Vec<_> = result.rows.iter().map(|row| row.fragments).collect();
        ensure!(fragments == expected, "{fragments:?}");
        for row in &result.rows {
            ensure!((row.counts.sent, row.counts.received) == (50, 50), "{row:?}");
            let parts = [&row.host_send_ns, &row.host_receive_ns, &row.wire_ns, &row.far_ns];
            let count = parts.map(|part| part.as_ref().map_or(0, |part| part.count));
            ensure!(count == [50; 4], "{count:?}");
        }
        let findings =
            result.findings.iter().filter(|finding| finding.code == FindingCode::Fragmented);
        let trials: Vec<_> = findings.map(|finding| finding.trial).collect();
        ensure!(trials == [Some(1), Some(2), Some(3)], "{trials:?}");
    }
    Ok(())
}

fn the_load_ratio_is_applied() -> Result<()> {
    let path = PathTestbed::new(false)?;
    for kind in ["unicast", "broadcast"] {
        let arguments = ["-R", "0,5", "-n", "200", "--load-destination", kind];
        let result = path.measure(path.at, &arguments)?;
        let [idle, loaded] = &result.rows[..] else { anyhow::bail!("{result:?}") };
        ensure!((idle.load.sent, idle.load.arrived) == (0, None), "{:?}", idle.load);
        let load = &loaded.load;
        ensure!((load.ratio - 5.0).abs() < 0.2 && load.sent >= 960, "{kind}: {load:?}");
        // The upper limit includes the warm-up.
        let arrived = load.arrived.unwrap_or(0);
        ensure!(arrived > 900 && arrived <= 1_505, "{kind}: {load:?}");
        ensure!(loaded.counts.received >= 190, "{kind}: {:?}", loaded.counts);
        ensure!(result.load_broadcast == (kind == "broadcast"), "{kind}");
    }
    Ok(())
}

fn the_table_of_the_paper_is_measured() -> Result<()> {
    let path = PathTestbed::new(false)?;
    let result = path.measure(path.at, &["--table4", "-n", "20", "--warm-up", "4"])?;
    let rows: Vec<_> =
        result.rows.iter().map(|row| (row.length, row.load.planned_ratio as u64)).collect();
    let expected = [
        (1_000, 0),
        (2_000, 0),
        (3_000, 50),
        (4_000, 50),
        (5_000, 100),
        (3_000, 100),
        (2_000, 50),
        (1_000, 100),
    ];
    ensure!(rows == expected, "{rows:?}");
    for row in &result.rows {
        let off = (row.load.ratio - row.load.planned_ratio).abs();
        ensure!(off <= row.load.planned_ratio * 0.1, "{:?}", row.load);
    }
    Ok(())
}

/// The host of a killed far end reports a closed port.
fn a_killed_far_end_is_reported() -> Result<()> {
    check_row_end("KILL", UdpRowEndReason::Closed)
}

/// A stopped far end does not reply.
fn a_stopped_far_end_is_reported() -> Result<()> {
    check_row_end("STOP", UdpRowEndReason::Vanished)
}

fn check_row_end(signal: &'static str, expected: UdpRowEndReason) -> Result<()> {
    let path = PathTestbed::new(false)?;
    let pid = path.far.pid();
    let ending = thread::spawn(move || {
        // Long enough for the first row to begin on a busy machine.
        thread::sleep(Duration::from_millis(2_500));
        signal_to(pid, signal)
    });
    let output = path.output(path.at, &["-t", "60s", "--timeout", "100ms", "--json", "-"])?;
    ending.join().ok().context("the thread panicked")??;
    let result: PathUdpResult = serde_json::from_slice(&output.stdout)?;
    ensure!(output.status.code() == Some(1), "{:?}", output.status);
    let row = only_row(&result)?;
    ensure!(row.ended == Some(expected) && row.counts.received > 0, "{row:?}");
    ensure!(has_finding(&result, FindingCode::FarEndUnreachable), "{:?}", result.findings);
    Ok(())
}

fn a_reflector_and_a_sender_use_stamp() -> Result<()> {
    let path = PathTestbed::new(false)?;
    let at = path.address_at(STAMP_PORT);
    let result = path.measure(at, &["--stamp", "--sizes", "44,200", "-n", "100"])?;
    for row in &result.rows {
        ensure!(row.counts.received == 100 && row.far_ns.is_some(), "{row:?}");
        ensure!(row.forward.is_none(), "counts of a stateless reflector: {row:?}");
    }
    // A packet written by hand (RFC 8762, figure 3), and its reply (figure 5).
    let answer = path.lab.client().run(|| -> Result<_> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_ttl(77)?;
        let mut packet = [0_u8; 50];
        packet[..4].copy_from_slice(&[0, 0, 1, 2]);
        packet[4..12].copy_from_slice(&[0xe9, 1, 2, 3, 4, 5, 6, 7]);
        packet[12..16].copy_from_slice(&[0x80, 0x01, 0x12, 0x34]);
        packet[44..].copy_from_slice(b"padded");
        socket.send_to(&packet, at)?;
        let mut answer = [0; 100];
        let len = socket.recv(&mut answer)?;
        Ok(answer[..len].to_vec())
    })??;
    ensure!(answer.len() == 50, "{} bytes", answer.len());
    ensure!(answer[..4] == [0, 0, 1, 2] && answer[14..16] == [0x12, 0x34], "{answer:?}");
    ensure!(answer[24..28] == [0, 0, 1, 2], "sequence number of the sender: {answer:?}");
    ensure!(answer[28..36] == [0xe9, 1, 2, 3, 4, 5, 6, 7], "timestamp of the sender: {answer:?}");
    ensure!(answer[36..38] == [0x80, 0x01] && answer[40] == 77, "{answer:?}");
    ensure!(&answer[44..] == b"padded", "{answer:?}");
    Ok(())
}

/// Packets omitted by `--max-rate` of the far end are counted there, and not as path loss.
fn packets_omitted_by_a_limit_are_no_path_loss() -> Result<()> {
    let path = PathTestbed::new(false)?;
    let at = path.address_at(9_700);
    let mut command = path.lab.server().command(binary()?);
    command.args(["path", "serve", "--max-rate", "500", "--listen", &at.to_string()]);
    let mut far = RunningProgram::start(&mut command)?;
    far.await_ready(TIMEOUT, || is_listening(path.lab.server(), at.port()))?;
    let result = path.measure(at, &["-r", "2k", "-n", "2000", "--flows", "2", "--warm-up", "0"])?;
    let row = only_row(&result)?;
    let (forward, losses) = row.forward.zip(row.loss_locations()).context("no loss locations")?;
    ensure!(losses.far_limit > 500 && losses.far_limit == forward.lost, "{forward:?} {losses:?}");
    ensure!((losses.far_socket, losses.path_forward) == (0, 0), "{losses:?}");
    let finding = result.findings.iter().find(|finding| finding.code == FindingCode::PathLoss);
    ensure!(finding.is_some_and(|finding| finding.advice.contains("--max-rate")), "{finding:?}");
    Ok(())
}

/// Packets dropped at the socket of a far end that is stopped for less than the timeout are counted
/// there, and not as path loss.
fn drops_of_a_full_socket_are_no_path_loss() -> Result<()> {
    let path = PathTestbed::new(false)?;
    let pid = path.far.pid();
    let stopping = thread::spawn(move || -> Result<()> {
        thread::sleep(Duration::from_millis(1_500));
        signal_to(pid, "STOP")?;
        thread::sleep(Duration::from_millis(700));
        signal_to(pid, "CONT")
    });
    let options = ["-s", "1472", "-r", "20k", "-n", "60000", "--warm-up", "0", "--timeout", "3s"];
    let measured = path.measure(path.at, &options);
    stopping.join().ok().context("the thread panicked")??;
    let result = measured?;
    let row = only_row(&result)?;
    let (forward, losses) = row.forward.zip(row.loss_locations()).context("no loss locations")?;
    ensure!(forward.lost > 100 && losses.far_socket == forward.lost, "{forward:?} {losses:?}");
    ensure!((losses.far_limit, losses.path_forward) == (0, 0), "{losses:?}");
    Ok(())
}

/// Only hellos and the probes of accepted sessions have a reply, which is no longer than they are.
fn unknown_senders_get_no_reply() -> Result<()> {
    let path = PathTestbed::new(false)?;
    let at = path.at;
    path.lab.client().run(move || -> Result<()> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(at)?;
        let answer = |bytes: &[u8], wait| -> Result<Option<Vec<u8>>> {
            socket.set_read_timeout(Some(wait))?;
            socket.send(bytes)?;
            let mut answer = vec![0; 70_000];
            Ok(socket.recv(&mut answer).ok().map(|len| answer[..len].to_vec()))
        };
        let written = |header: Header, len: usize| {
            let mut bytes = vec![0; len];
            header.emit(&mut bytes);
            bytes
        };
        let wait = Duration::from_millis(60);
        for kind in [
            PathDatagramKind::Probe,
            PathDatagramKind::Load,
            PathDatagramKind::End,
            PathDatagramKind::Welcome,
            PathDatagramKind::Echo,
            PathDatagramKind::Counts,
        ] {
            let got = answer(&written(Header::new(kind, 12_345, 1), 100), wait)?;
            ensure!(got.is_none(), "{kind:?}: {got:?}");
        }
        for noise in [&b""[..], b"\r\n", &[0xff; 64]] {
            ensure!(answer(noise, wait)?.is_none(), "{noise:?}");
        }
        let hello = Header::new(PathDatagramKind::Hello, 0, 5);
        ensure!(answer(&written(hello, HEADER_LEN), wait)?.is_none(), "reply to a short hello");
        let welcome = answer(&written(hello, HELLO_LEN), TIMEOUT)?.context("no welcome")?;
        ensure!(welcome.len() == HELLO_LEN, "{} bytes", welcome.len());
        let session =
            Header::parse(&welcome).map_err(|error| anyhow::anyhow!("{error}"))?.0.session;
        for len in [HEADER_LEN, 1_400, 9_000] {
            let probe = written(Header::new(PathDatagramKind::Probe, session, 1), len);
            let echo = answer(&probe, TIMEOUT)?.context("no echo")?;
            ensure!(echo.len() == len, "{} of {len} bytes", echo.len());
        }
        for len in [short::LEN, HEADER_LEN - 1] {
            let mut probe = vec![0; len];
            short::ShortProbe { warm_up: false, sequence: 1, session }.emit(&mut probe);
            let echo = answer(&probe, TIMEOUT)?.context("no echo")?;
            ensure!(echo.len() == len, "{} of {len} bytes", echo.len());
            ensure!(answer(&echo, wait)?.is_none(), "reply to an echo");
            short::ShortProbe { warm_up: false, sequence: 1, session: !session }.emit(&mut probe);
            ensure!(answer(&probe, wait)?.is_none(), "reply to an unknown session");
        }
        // A session is bound to its port.
        let other = UdpSocket::bind("0.0.0.0:0")?;
        other.set_read_timeout(Some(wait))?;
        other.send_to(&written(Header::new(PathDatagramKind::Probe, session, 1), 100), at)?;
        ensure!(other.recv(&mut [0; 100]).is_err(), "reply to another port");
        Ok(())
    })?
}

fn impossible_requests_are_reported() -> Result<()> {
    let path = PathTestbed::new(false)?;
    let closed = path.address_at(9_999);
    for (to, arguments, status, expected) in [
        (path.at, &["--sizes", "65508"][..], 2, "from 16 to 65507"),
        (path.at, &["--sizes", "64,15"], 2, "from 16 to 65507"),
        (path.at, &["--sizes", "43", "--stamp"], 2, "from 44 to 65507"),
        (path.at, &["--stamp", "-R", "5"], 2, "path serve"),
        (path.at, &["--flows", "65"], 2, "from 1 to 64"),
        (path.at, &["--dscp", "64"], 2, "DSCP from 0 to 63"),
        (path.at, &["--rate", "20M"], 2, "from 1 to 10M"),
        (path.at, &["--timeout", "61s"], 2, "60 s"),
        (path.at, &["-i", "nowhere0"], 3, "interface 'nowhere0' not found"),
        (path.at, &["--json", "/nowhere/at/all"], 3, "/nowhere/at/all"),
        (path.at, &["--fail-if", "speed>1"], 2, "loss>1%"),
        (closed, &[], 3, "no program listens"),
        (path.address_at(STAMP_PORT), &[], 3, "as a far end of this kind"),
    ] {
        let output = path.output(to, arguments)?;
        let stderr = String::from_utf8(output.stderr).context("no text")?;
        ensure!(output.status.code() == Some(status), "{arguments:?}: {stderr}");
        ensure!(stderr.contains(expected), "{arguments:?}: {stderr}");
        ensure!(stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    }
    let mut taken = path.lab.server().command(binary()?);
    taken.args(["path", "serve", "--listen", &path.at.to_string()]);
    let taken = run_to_end(&mut taken, TIMEOUT)?;
    let stderr = String::from_utf8(taken.stderr).context("no text")?;
    ensure!(
        taken.status.code() == Some(3) && stderr.contains("in use by another program"),
        "{stderr}"
    );
    Ok(())
}
