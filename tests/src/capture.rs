//! Scenarios of `load --pcap`: the file contains the counted packets of both directions, each reply
//! with its request, also if only a share is captured; and it is complete however the run ends.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use horolog_io::CaptureDirection;
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_record::{FindingCode, LoadEngineKind, LoadResult, Trial};
use horolog_wire::ethernet;
use horolog_wire::frame::UdpFrame;
use horolog_wire::ntp::Header;
use horolog_wire::ptp::{self, EVENT_PORT, GENERAL_PORT, Message, PortIdentity, PtpMessageBody};
use tempfile::TempDir;

use crate::load_command::{
    StartedProgram, TIMEOUT, UnprivilegedCopy, check_sums, has_finding, load, only_trial, parse,
    result_of,
};
use crate::process::{self, Server, binary, run_to_end, server_address};
use crate::ptp_master::Master;
use crate::ptp4l::{Ptp4l, Transport};
use crate::scenario::{Need, Scenario};
use crate::usage_error::{ENVIRONMENT, USAGE, check_refusal};
use crate::{ROOT, ROOT_AND_IPV6, capture, scenarios};

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT_AND_IPV6, capture: every_counted_packet_is_captured));
    all.extend(scenarios!(ROOT, capture:
        sampled_requests_are_captured_with_their_replies,
        packets_beyond_the_maximum_are_reported_as_omitted,
        packets_on_loopback_are_captured_once,
        an_interrupted_capture_is_complete,
        impossible_captures_are_refused,
        sampled_negotiations_are_captured_with_their_grants,
    ));
    let ptp4l =
        &[Need::Root, Need::Ipv6, Need::Peer("ptp4l"), Need::Peer("pmc"), Need::Peer("setpriv")];
    all.extend(scenarios!(ptp4l, capture:
        ptp_is_captured,
        sampled_ptp_requests_are_captured_with_their_responses,
    ));
    all
}

/// Block types (draft-ietf-opsawg-pcapng).
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

/// Packet of a file.
struct Packet {
    at_ns: u64,
    is_request: bool,
    /// Identifier that a request and its reply share; `None` in other PTP messages.
    token: Option<u64>,
}

/// Contents of a complete file: packets, and the captured and missed counts of its last block.
struct Capture {
    packets: Vec<Packet>,
    captured_total: u64,
    missed: u64,
}

impl Capture {
    fn read(path: &Path) -> Result<Self> {
        let file = fs::read(path)?;
        let (mut rest, mut packets, mut kinds) = (&file[..], Vec::new(), Vec::new());
        let (mut captured_total, mut missed) = (0, 0);
        while !rest.is_empty() {
            let kind = word(rest, 0)?;
            let length = word(rest, 4)? as usize;
            let block = rest.get(..length).context("truncated block")?;
            ensure!(word(block, length - 4)? as usize == length, "the lengths of a block differ");
            kinds.push(kind);
            match kind {
                PACKET => packets.push(Packet::read(block)?),
                STATISTICS => (captured_total, missed) = (number(block, 24)?, number(block, 36)?),
                _ => {}
            }
            rest = &rest[length..];
        }
        let ends = (kinds.first(), kinds.get(1), kinds.last());
        let whole = (Some(&SECTION_HEADER), Some(&INTERFACE), Some(&STATISTICS));
        ensure!(ends == whole, "incomplete file: {ends:?}");
        Ok(Self { packets, captured_total, missed })
    }

    fn tokens(&self, is_request: bool) -> Vec<u64> {
        let of_direction = self.packets.iter().filter(|packet| packet.is_request == is_request);
        of_direction.filter_map(|packet| packet.token).collect()
    }

    /// Checks that all requests and replies of the trials are there, late ones too, and that every
    /// reply has its request. A busy server may reply even after the trial.
    fn check(&self, trials: &[Trial]) -> Result<()> {
        let requests: u64 = trials.iter().map(|trial| trial.sent).sum();
        let replies: u64 = trials.iter().map(counted_replies).sum();
        let [sent, received] = [true, false].map(|is_request| self.tokens(is_request));
        let counts = (sent.len() as u64, received.len() as u64);
        let is_complete = counts.0 == requests && (replies..=requests).contains(&counts.1);
        ensure!(is_complete, "{counts:?} instead of {requests}, {replies}");
        let known: HashSet<u64> = sent.iter().copied().collect();
        ensure!(known.len() == sent.len(), "duplicate request");
        ensure!(received.iter().all(|token| known.contains(token)), "a reply without request");
        ensure!(
            (self.captured_total, self.missed) == (counts.0 + counts.1, 0),
            "{} captured",
            self.captured_total
        );
        let first = self.packets.first().context("no packet")?;
        let spread = self.packets.iter().map(|packet| packet.at_ns.abs_diff(first.at_ns)).max();
        ensure!(spread > Some(0) && spread < Some(60_000_000_000), "{spread:?} ns");
        Ok(())
    }
}

impl Packet {
    fn read(block: &[u8]) -> Result<Self> {
        let length = word(block, 20)? as usize;
        let frame = block.get(28..28 + length).context("truncated packet")?;
        let flags = word(block, 28 + length.next_multiple_of(4) + 4)?;
        let is_request = flags == CaptureDirection::Outbound as u32;
        ensure!(is_request || flags == CaptureDirection::Inbound as u32, "flags {flags}");
        let token = token(frame, is_request)?;
        let at_ns = u64::from(word(block, 12)?) << 32 | u64::from(word(block, 16)?);
        Ok(Self { at_ns, is_request, token })
    }
}

fn token(frame: &[u8], is_request: bool) -> Result<Option<u64>> {
    let malformed = |error| anyhow::anyhow!("{error:?}");
    let (link, payload) = ethernet::Header::parse(frame).map_err(malformed)?;
    if link.ether_type == ptp::ETHER_TYPE {
        return ptp_token(payload);
    }
    let frame = UdpFrame::parse(frame).map_err(|error| anyhow::anyhow!("{error:?}"))?;
    let port = if is_request { frame.destination } else { frame.source }.port();
    if matches!(port, EVENT_PORT | GENERAL_PORT) {
        return ptp_token(frame.payload);
    }
    let (header, _) = Header::parse(frame.payload).map_err(malformed)?;
    Ok(Some(if is_request { header.transmit } else { header.origin }.to_bits()))
}

/// Returns the clock identity of the requester, which differs in every request.
fn ptp_token(payload: &[u8]) -> Result<Option<u64>> {
    let (message, _) = Message::parse(payload).map_err(|error| anyhow::anyhow!("{error:?}"))?;
    Ok(match message.body {
        PtpMessageBody::DelayReq(_) | PtpMessageBody::Signaling(PortIdentity::ALL) => {
            Some(message.header.source.clock)
        }
        PtpMessageBody::DelayResp { requesting, .. } => Some(requesting.clock),
        PtpMessageBody::Signaling(target) => Some(target.clock),
        _ => None,
    })
}

fn counted_replies(trial: &Trial) -> u64 {
    trial.received + trial.late
}

fn word(bytes: &[u8], at: usize) -> Result<u32> {
    let four = bytes.get(at..at + 4).context("truncated file")?;
    Ok(u32::from_le_bytes(four.try_into()?))
}

fn number(bytes: &[u8], at: usize) -> Result<u64> {
    Ok(u64::from(word(bytes, at + 4)?) << 32 | u64::from(word(bytes, at)?))
}

/// Runs a load with a capture.
fn load_with_capture(host: &LabHost, arguments: &[&str]) -> Result<(LoadResult, Capture)> {
    run_with_capture(arguments, |all| result_of(host, all))
}

/// Runs a load on a PTP master with a capture.
fn load_ptp_with_capture(host: &LabHost, arguments: &[&str]) -> Result<(LoadResult, Capture)> {
    run_with_capture(arguments, |all| {
        let mut command = host.command(binary()?);
        command.args(["load", "ptp"]).args(all).args(["--json", "-"]);
        let output = run_to_end(&mut command, TIMEOUT)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        parse(&output.stdout)
    })
}

fn run_with_capture(
    arguments: &[&str],
    run: impl Fn(&[&str]) -> Result<LoadResult>,
) -> Result<(LoadResult, Capture)> {
    let directory = TempDir::new()?;
    let path = directory.path().join("load.pcapng");
    let file = path.display().to_string();
    let result = run(&[arguments, &["--pcap", &file]].concat())?;
    result.trials.iter().try_for_each(check_sums)?;
    Ok((result, Capture::read(&path)?))
}

/// Checks that every request and every reply is captured, by either engine and IP version, without
/// a finding; `auto` selects an engine that can capture.
pub(crate) fn every_counted_packet_is_captured() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let addresses = [server_address(&lab, false)?, server_address(&lab, true)?];
    let _server = Server::start(lab.server(), process::Engine::Socket, &addresses, &[])?;
    for address in addresses.map(|address| address.ip().to_string()) {
        for engine in ["udp", "packet", "auto"] {
            let run = [&address, "--engine", engine, "-r", "2k-4k", "-x", "2", "-t", "0.2"];
            let (result, capture) = load_with_capture(lab.client(), &run)?;
            // With `auto` another engine is tried first, before the capture begins.
            capture.check(&result.trials).with_context(|| format!("{engine} to {address}"))?;
            ensure!(!has_finding(&result, FindingCode::CaptureIncomplete), "{:?}", result.findings);
            ensure!(
                engine != "auto" || result.engine == LoadEngineKind::Packet,
                "{:?}",
                result.engine
            );
            ensure!(engine != "auto" || has_finding(&result, FindingCode::EngineFallback));
        }
    }
    Ok(())
}

/// Checks that of 40,000 requests per second a quarter is captured, each with its reply.
pub(crate) fn sampled_requests_are_captured_with_their_replies() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), process::Engine::Xdp, &[at], &[])?;
    let target = at.ip().to_string();
    for more in [&[][..], &["--interleaved", "-c", "64"]] {
        let run = [&[&*target, "--engine", "packet", "-r", "40k", "-t", "0.4"], more].concat();
        let (result, capture) = load_with_capture(lab.client(), &run)?;
        let trial = only_trial(&result)?;
        let requests = capture.tokens(true).len() as u64;
        ensure!(requests.abs_diff(trial.sent / 4) <= 4, "{requests} of {}", trial.sent);
        let finding = result.findings.iter().find(|one| one.code == FindingCode::CaptureIncomplete);
        ensure!(finding.is_some_and(|one| one.message.contains("one request in 4")));
        // In interleaved mode a reply returns the other of the request's two timestamps.
        let tokens = |is_request| -> HashSet<u64> {
            capture.tokens(is_request).into_iter().map(|token| token | 1).collect()
        };
        let (sent, received) = (tokens(true), tokens(false));
        ensure!(received.is_subset(&sent), "replies without requests");
        let unanswered = (sent.len() - received.len()) as u64;
        ensure!(unanswered <= trial.lost && capture.missed == 0, "{unanswered} unanswered");
    }
    Ok(())
}

/// Checks the capture of PTP requests and responses, over UDP and Ethernet, to the master's address
/// and to the group.
pub(crate) fn ptp_is_captured() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let ethernet = ["--transport", "l2"];
    let modes: [(Transport, &[&str], &[&str]); 8] = [
        (Transport::Ipv4, &["delay"], &["--engine", "packet"]),
        (Transport::Ipv4, &["delay", "--multicast"], &["--engine", "packet"]),
        (Transport::Ipv4, &["delay"], &["--engine", "udp"]),
        (Transport::Ipv4, &["nsm"], &["--engine", "packet"]),
        (Transport::Ipv6, &["delay", "--multicast"], &["--engine", "udp"]),
        (Transport::Ethernet, &["delay"], &ethernet),
        (Transport::Ethernet, &["delay", "--multicast"], &ethernet),
        (Transport::Ethernet, &["nsm"], &ethernet),
    ];
    for (transport, mode, more) in modes {
        let _ptp4l = Ptp4l::start(lab.server(), transport, 0)?;
        let target = server_address(&lab, transport == Transport::Ipv6)?.ip().to_string();
        let run = [&[mode[0], &target, "-r", "1000", "-t", "0.2"], &mode[1..], more].concat();
        let (result, capture) = load_ptp_with_capture(lab.client(), &run)?;
        let trial = only_trial(&result)?;
        let [sent, received] = [true, false].map(|is_request| capture.tokens(is_request));
        let counts = (sent.len() as u64, received.len() as u64);
        ensure!(counts == (trial.sent, trial.responses.delay), "{counts:?} of {trial:?}, {run:?}");
        let known: HashSet<u64> = sent.iter().copied().collect();
        ensure!(known.len() == sent.len(), "duplicate request, {run:?}");
        ensure!(received.iter().all(|token| known.contains(token)), "unknown reply, {run:?}");
        // Other messages are Sync and Follow_Up of each NetSync Monitor answer, and multicast
        // messages.
        let others = (capture.packets.len() - sent.len() - received.len()) as u64;
        let owed = if mode[0] == "nsm" { 2 * trial.received } else { 0 };
        ensure!(others >= owed && capture.missed == 0, "{others} others, {run:?}");
    }
    Ok(())
}

/// Checks that of 20,000 PTP requests per second one in two is captured, each with its response.
pub(crate) fn sampled_ptp_requests_are_captured_with_their_responses() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    for (transport, more) in
        [(Transport::Ipv4, ["--engine", "packet"]), (Transport::Ethernet, ["--transport", "l2"])]
    {
        let _ptp4l = Ptp4l::start(lab.server(), transport, 0)?;
        let target = server_address(&lab, false)?.ip().to_string();
        let run = [&["delay", &target, "-r", "20k", "-t", "0.2"], &more[..]].concat();
        let (result, capture) = load_ptp_with_capture(lab.client(), &run)?;
        let trial = only_trial(&result)?;
        let tokens =
            |is_request| -> HashSet<u64> { capture.tokens(is_request).into_iter().collect() };
        let (sent, received) = (tokens(true), tokens(false));
        ensure!((sent.len() as u64).abs_diff(trial.sent / 2) <= 4, "{} of {trial:?}", sent.len());
        ensure!(!received.is_empty() && received.is_subset(&sent), "responses without requests");
        let unanswered = (sent.len() - received.len()) as u64;
        ensure!(unanswered <= trial.lost && capture.missed == 0, "{unanswered} of {trial:?}");
    }
    Ok(())
}

/// Checks that of 20,000 unicast requests per second one in two is captured, each with its grant,
/// although only the identity of the requester links them.
pub(crate) fn sampled_negotiations_are_captured_with_their_grants() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?.ip();
    let _master = Master::start(&lab, at, |_, _| true)?;
    let target = at.to_string();
    let run = ["unicast", &target, "-r", "20k", "-t", "0.2", "--engine", "packet"];
    let (result, capture) = load_ptp_with_capture(lab.client(), &run)?;
    let trial = only_trial(&result)?;
    let tokens = |is_request| -> HashSet<u64> { capture.tokens(is_request).into_iter().collect() };
    let (sent, received) = (tokens(true), tokens(false));
    ensure!((sent.len() as u64).abs_diff(trial.sent / 2) <= 4, "{} of {trial:?}", sent.len());
    ensure!(!received.is_empty() && received.is_subset(&sent), "grants without requests");
    let unanswered = (sent.len() - received.len()) as u64;
    ensure!(unanswered <= trial.lost && capture.missed == 0, "{unanswered} of {trial:?}");
    Ok(())
}

/// Checks that packets beyond `--pcap-max` are left out, with a finding.
pub(crate) fn packets_beyond_the_maximum_are_reported_as_omitted() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), process::Engine::Socket, &[at], &[])?;
    let target = at.ip().to_string();
    let run = [&target, "--engine", "udp", "-r", "2000", "-t", "0.2", "--pcap-max", "100"];
    let (result, capture) = load_with_capture(lab.client(), &run)?;
    let trial = only_trial(&result)?;
    ensure!(capture.packets.len() == 100, "{} packets", capture.packets.len());
    let captured = trial.sent + counted_replies(trial)..=2 * trial.sent;
    ensure!(captured.contains(&capture.captured_total), "{} of {trial:?}", capture.captured_total);
    ensure!(has_finding(&result, FindingCode::CaptureIncomplete), "{:?}", result.findings);
    Ok(())
}

/// Checks that a packet on loopback, which both leaves and enters by one interface, is captured
/// once.
pub(crate) fn packets_on_loopback_are_captured_once() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), process::Engine::Socket, &[at], &[])?;
    let target = at.ip().to_string();
    let (result, capture) = load_with_capture(lab.server(), &[&target, "-r", "2000", "-t", "0.2"])?;
    capture.check(&result.trials)
}

/// Checks that SIGINT ends a run after its trial, with a complete result and a complete file.
pub(crate) fn an_interrupted_capture_is_complete() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), process::Engine::Socket, &[at], &[])?;
    let directory = TempDir::new()?;
    let [file, out] = ["load.pcapng", "result.json"].map(|name| directory.path().join(name));
    let target = at.ip().to_string();
    let run = [&target, "--engine", "packet", "-r", "1k-8k", "-t", "0.7"];
    let mut command = load(lab.client(), &run)?;
    command.arg("--pcap").arg(&file).arg("--json").arg(&out);
    let mut run = StartedProgram::start(&mut command)?;
    run.wait_until(|_, stderr| stderr.contains("horolog: loading"))?;
    run.signal("INT")?;
    let (status, _) = run.end()?;
    ensure!(status.success(), "{status}: {}", run.read("stderr")?);
    let result: LoadResult = parse(&fs::read(out)?)?;
    ensure!(has_finding(&result, FindingCode::Interrupted), "{:?}", result.findings);
    only_trial(&result)?;
    Capture::read(&file)?.check(&result.trials)
}

/// Checks that a capture without a usable tap, without privilege, or with invalid options is
/// refused before anything is sent.
pub(crate) fn impossible_captures_are_refused() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let target = server_address(&lab, false)?.ip().to_string();
    let directory = TempDir::new()?;
    let file = directory.path().join("load.pcapng").display().to_string();
    let cases: [(&[&str], i32, &[&str]); 4] = [
        (&["--engine", "xdp", "--pcap", &file], ENVIRONMENT, &["'xdp'", "tap", "--engine packet"]),
        (&["--engine", "udp", "--pcap", "/nowhere/x"], ENVIRONMENT, &["/nowhere/x", "--pcap"]),
        (&["--pcap", &file, "--pcap-max", "0"], USAGE, &["--pcap-max", "'0'"]),
        (&["--pcap-max", "9"], USAGE, &["--pcap"]),
    ];
    for (arguments, status, named) in cases {
        let mut command = load(lab.client(), &[&[&*target], arguments].concat())?;
        check_refusal(&run_to_end(&mut command, TIMEOUT)?, status, named)
            .with_context(|| format!("{arguments:?}"))?;
    }
    let user = UnprivilegedCopy::new()?;
    let mut command = user.command(lab.client().command("setpriv"));
    command.args(["load", "ntp", &target, "--engine", "udp", "--pcap", "mine.pcapng"]);
    check_refusal(&run_to_end(&mut command, TIMEOUT)?, ENVIRONMENT, &["CAP_NET_RAW", "--pcap"])?;
    ensure!(!user.path("mine.pcapng").exists(), "the refused run left a file");
    Ok(())
}
