//! A scenario of NetSync Monitor at the grandmaster: who is answered, with XDP and without.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use horolog_io::{Batch, BatchDevice, FrameSelection, PacketSocketDevice, PacketSocketOptions};
use horolog_lab::{Lab, LabConfig};
use horolog_wire::ethernet::{HEADER_LEN as LINK_LEN, Header, MacAddress};
use horolog_wire::frame::{UdpFrame, UdpFrameBuilder};
use horolog_wire::ptp::message::TIMESTAMP_MESSAGE_LEN;
use horolog_wire::ptp::monitor::REQUEST_TLV;
use horolog_wire::ptp::{
    ETHER_TYPE, EVENT_PORT, Header as PtpHeader, IPV6_PADDING_LEN, MULTICAST_IPV4, Message,
    MessageType, PortIdentity, PtpMessageBody, PtpTimestamp,
};
use horolog_xdp::PtpTransport;

use crate::frames::build;
use crate::process::{Engine, Server, TIMEOUT, server_address};
use crate::server_ptp::start;

const MONITOR: [&str; 3] = ["--ptp-transport", "udp4,udp6,l2", "--ptp-netsync-monitor"];
/// Long enough for an answer that must not come to show itself.
const QUIET_PERIOD: Duration = Duration::from_millis(50);
const FRAME_BYTES: usize = 2_048;
/// What the answers to one request are, in their order.
const OWED: [MessageType; 3] = [MessageType::DelayResp, MessageType::Sync, MessageType::FollowUp];

/// A request with this number, in its frame.
fn request(lab: &Lab, transport: PtpTransport, to: Option<IpAddr>, number: u16) -> Result<Vec<u8>> {
    let header = PtpHeader {
        minor_version: 1,
        source: PortIdentity { clock: 0x0200_00ff_fe12_3456, port: 3 },
        sequence_id: number,
        log_interval: 0x7f,
        ..PtpHeader::default()
    };
    let body = PtpMessageBody::DelayReq(PtpTimestamp::ZERO);
    let mut message = [0; TIMESTAMP_MESSAGE_LEN + REQUEST_TLV.len() + IPV6_PADDING_LEN];
    let length = Message { header, body, suffix: &REQUEST_TLV }.emit(&mut message);
    let (client, server) = (lab.client().first_interface(), lab.server().first_interface());
    let (destination, source) = (MacAddress(server.mac), MacAddress(client.mac));
    if transport == PtpTransport::Ethernet {
        let header = Header { destination, source, vlan: None, ether_type: ETHER_TYPE };
        let mut frame = vec![0; LINK_LEN];
        header.emit(&mut frame);
        frame.extend_from_slice(&message[..length]);
        return Ok(frame);
    }
    let ipv6 = transport == PtpTransport::Ipv6;
    let own: IpAddr =
        if ipv6 { client.ipv6.context("no IPv6 address")?.into() } else { client.ipv4.into() };
    let to = to.map_or_else(|| server_address(lab, ipv6).map(|at| at.ip()), Ok)?;
    let builder = UdpFrameBuilder {
        destination_mac: if to.is_multicast() { MacAddress::of_group(to) } else { destination },
        source_mac: source,
        vlan: None,
        source: SocketAddr::new(own, EVENT_PORT),
        destination: SocketAddr::new(to, EVENT_PORT),
    };
    Ok(build(&builder, &message[..length + if ipv6 { IPV6_PADDING_LEN } else { 0 }]))
}

/// The message in a frame.
pub(crate) fn message(frame: &[u8]) -> Result<(Message<'_>, usize)> {
    let (link, rest) = Header::parse(frame).map_err(|error| anyhow!("{error:?}"))?;
    let bytes = if link.ether_type == ETHER_TYPE {
        rest
    } else {
        let datagram = UdpFrame::parse(frame).map_err(|error| anyhow!("no UDP: {error:?}"))?;
        datagram.payload
    };
    let at = frame.len() - bytes.len();
    let (message, _) = Message::parse(bytes).map_err(|error| anyhow!("{error:?}"))?;
    Ok((message, at))
}

/// The time that a message tells.
fn time(message: &Message<'_>) -> Result<PtpTimestamp> {
    match message.body {
        PtpMessageBody::Sync(at)
        | PtpMessageBody::FollowUp(at)
        | PtpMessageBody::DelayResp { receive: at, .. } => Ok(at),
        other => anyhow::bail!("{other:?} tells no time"),
    }
}

/// Sends requests and returns the frames that answer them, until there are `wanted` or nothing
/// comes any more.
fn exchange(lab: &Lab, requests: &[Vec<u8>], wanted: usize) -> Result<Vec<Vec<u8>>> {
    let client = lab.client();
    let is_answer = |frame: &[u8]| {
        let own = Header::parse(frame)
            .is_ok_and(|(link, _)| link.destination.0 == client.first_interface().mac);
        own && message(frame).is_ok_and(|(message, _)| time(&message).is_ok())
    };
    let options = PacketSocketOptions {
        selection: FrameSelection::Program(Vec::new()),
        ..PacketSocketOptions::default()
    };
    let mut device =
        client.run(|| PacketSocketDevice::open(&client.first_interface().name, &options))??;
    let mut batch = Batch::new(64, FRAME_BYTES);
    for frame in requests {
        ensure!(batch.push((), frame), "the frame does not fit");
    }
    let sent = device.send(&mut batch)?;
    ensure!(sent == requests.len(), "{sent} frames were sent");
    let (started, mut answers) = (Instant::now(), Vec::new());
    let timeout = if wanted == 0 { QUIET_PERIOD } else { TIMEOUT };
    while started.elapsed() < timeout && (wanted == 0 || answers.len() < wanted) {
        device.receive(&mut batch, QUIET_PERIOD)?;
        let frames = batch.iter().map(|packet| packet.bytes);
        answers.extend(frames.filter(|frame| is_answer(frame)).map(<[u8]>::to_vec));
    }
    Ok(answers)
}

/// Waits until all ports are masters.
fn await_masters(server: &Server) -> Result<()> {
    let started = Instant::now();
    let are_masters = || -> Result<bool> {
        let status = server.status()?;
        let ports = status["ptp"]["ports"].as_array().context("no ports")?;
        Ok(ports.iter().all(|port| port["state"] == "master"))
    };
    while !are_masters()? {
        ensure!(started.elapsed() < 3 * TIMEOUT, "{}", server.status()?["ptp"]);
        std::thread::sleep(QUIET_PERIOD);
    }
    Ok(())
}

fn by_xdp(server: &Server) -> Result<Option<u64>> {
    Ok(server.status()?["xdp_counters"]["answered_ptp_monitor"].as_u64())
}

/// The answers to one request, in the order in which they are owed.
fn answers_of(lab: &Lab, transport: PtpTransport) -> Result<Vec<Vec<u8>>> {
    let mut answers = exchange(lab, &[request(lab, transport, None, 7)?], OWED.len())?;
    let position = |frame: &Vec<u8>| {
        let kind = message(frame).map_or(0, |(message, _)| message.body.type_bits());
        OWED.iter().position(|&owed| owed as u8 == kind)
    };
    answers.sort_by_key(position);
    let kinds: Vec<_> = answers.iter().map(position).collect();
    ensure!(kinds == [Some(0), Some(1), Some(2)], "{transport:?}: {kinds:?}");
    Ok(answers)
}

/// Who is not admitted gets nothing, whoever asks the group gets a delay response alone, and none
/// of them is answered by XDP.
pub(crate) fn monitor_requests_need_admission() -> Result<()> {
    for engine in Engine::ALL {
        let lab = Lab::new(&LabConfig::default())?;
        let others = ["--ptp-unicast-allow", "203.0.113.0/24", "--ptp-unicast-allow", "::/0"];
        let server = start(&lab, engine, &[&MONITOR[..], &others].concat())?;
        await_masters(&server)?;
        let refused = exchange(&lab, &[request(&lab, PtpTransport::Ipv4, None, 1)?], 0)?;
        ensure!(refused.is_empty(), "{engine:?}: {} answers", refused.len());
        // The ports tell twice a second.
        let started = Instant::now();
        let counted = || -> Result<bool> {
            Ok(server.status()?["ptp"]["ports"][0]["refused"]["not_admitted"] == 1)
        };
        while !counted()? {
            ensure!(started.elapsed() < TIMEOUT, "{engine:?}: {}", server.status()?["ptp"]);
        }
        let group = request(&lab, PtpTransport::Ipv4, Some(MULTICAST_IPV4.into()), 2)?;
        let answers = exchange_with_group(&lab, &group)?;
        ensure!(answers == 1, "{engine:?}: {answers} answers to the group");
        ensure!(by_xdp(&server)?.unwrap_or(0) == 0, "{engine:?}: answered by XDP");
        // The list has all addresses of the other family.
        let admitted = answers_of(&lab, PtpTransport::Ipv6)?;
        ensure!(admitted.len() == OWED.len(), "{engine:?}");
    }
    Ok(())
}

/// How many delay responses a request to the group is answered with.
fn exchange_with_group(lab: &Lab, request: &[u8]) -> Result<usize> {
    let client = lab.client();
    let options = PacketSocketOptions {
        selection: FrameSelection::Program(Vec::new()),
        groups: vec![MacAddress::of_group(MULTICAST_IPV4.into())],
        ..PacketSocketOptions::default()
    };
    let mut device =
        client.run(|| PacketSocketDevice::open(&client.first_interface().name, &options))??;
    let mut batch = Batch::new(64, FRAME_BYTES);
    ensure!(batch.push((), request) && device.send(&mut batch)? == 1, "not sent");
    let (started, mut count) = (Instant::now(), 0);
    while started.elapsed() < TIMEOUT && count == 0 {
        device.receive(&mut batch, QUIET_PERIOD)?;
        let frames = batch.iter().filter_map(|packet| message(packet.bytes).ok());
        let is_answer =
            |message: &Message<'_>| matches!(message.body, PtpMessageBody::DelayResp { .. });
        let answers: Vec<_> = frames.map(|(message, _)| message).filter(is_answer).collect();
        ensure!(answers.iter().all(|answer| answer.suffix.is_empty()), "with TLVs");
        count += answers.len();
    }
    Ok(count)
}
