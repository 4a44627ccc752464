//! Scenario of NetSync Monitor at the grandmaster: admission of requests, with XDP and without.

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
use crate::server_ptp::start_grandmaster;

const MONITOR: [&str; 3] = ["--ptp-transport", "udp4,udp6,l2", "--ptp-netsync-monitor"];
/// Time in which an unexpected response would arrive.
const QUIET_PERIOD: Duration = Duration::from_millis(50);
const FRAME_BYTES: usize = 2_048;
/// Types of the responses to one request, in their order.
const RESPONSE_TYPES: [MessageType; 3] =
    [MessageType::DelayResp, MessageType::Sync, MessageType::FollowUp];

/// Returns a request with sequence number `number`, in its frame.
fn request_frame(
    lab: &Lab,
    transport: PtpTransport,
    to: Option<IpAddr>,
    number: u16,
) -> Result<Vec<u8>> {
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

/// Parses the message in a frame; returns it with its offset in bytes.
pub(crate) fn parse_message(frame: &[u8]) -> Result<(Message<'_>, usize)> {
    let (link, rest) = Header::parse(frame).map_err(|error| anyhow!("{error:?}"))?;
    let bytes = if link.ether_type == ETHER_TYPE {
        rest
    } else {
        let datagram =
            UdpFrame::parse(frame).map_err(|error| anyhow!("invalid frame: {error:?}"))?;
        datagram.payload
    };
    let at = frame.len() - bytes.len();
    let (message, _) = Message::parse(bytes).map_err(|error| anyhow!("{error:?}"))?;
    Ok((message, at))
}

/// Returns the timestamp in a message.
fn timestamp_of(message: &Message<'_>) -> Result<PtpTimestamp> {
    match message.body {
        PtpMessageBody::Sync(at)
        | PtpMessageBody::FollowUp(at)
        | PtpMessageBody::DelayResp { receive: at, .. } => Ok(at),
        other => anyhow::bail!("{other:?} has no timestamp"),
    }
}

/// Sends requests and returns the frames with responses: until there are `wanted`, or those of a
/// `QUIET_PERIOD` if `wanted` is 0.
fn exchange(lab: &Lab, requests: &[Vec<u8>], wanted: usize) -> Result<Vec<Vec<u8>>> {
    let client = lab.client();
    let is_response = |frame: &[u8]| {
        let own = Header::parse(frame)
            .is_ok_and(|(link, _)| link.destination.0 == client.first_interface().mac);
        own && parse_message(frame).is_ok_and(|(message, _)| timestamp_of(&message).is_ok())
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
    let (started, mut responses) = (Instant::now(), Vec::new());
    let timeout = if wanted == 0 { QUIET_PERIOD } else { TIMEOUT };
    while started.elapsed() < timeout && (wanted == 0 || responses.len() < wanted) {
        device.receive(&mut batch, QUIET_PERIOD)?;
        let frames = batch.iter().map(|packet| packet.bytes);
        responses.extend(frames.filter(|frame| is_response(frame)).map(<[u8]>::to_vec));
    }
    Ok(responses)
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

fn xdp_response_count(server: &Server) -> Result<Option<u64>> {
    Ok(server.status()?["xdp_counters"]["answered_ptp_monitor"].as_u64())
}

/// Returns the responses to one request, in the order of their types.
fn responses_to(lab: &Lab, transport: PtpTransport) -> Result<Vec<Vec<u8>>> {
    let mut responses =
        exchange(lab, &[request_frame(lab, transport, None, 7)?], RESPONSE_TYPES.len())?;
    let position = |frame: &Vec<u8>| {
        let kind = parse_message(frame).map_or(0, |(message, _)| message.body.type_bits());
        RESPONSE_TYPES.iter().position(|&owed| owed as u8 == kind)
    };
    responses.sort_by_key(position);
    let kinds: Vec<_> = responses.iter().map(position).collect();
    ensure!(kinds == [Some(0), Some(1), Some(2)], "{transport:?}: {kinds:?}");
    Ok(responses)
}

/// A client without admission gets no response, a request to the group gets only a delay response,
/// and XDP sends neither.
pub(crate) fn monitor_requests_need_admission() -> Result<()> {
    for engine in Engine::ALL {
        let lab = Lab::new(&LabConfig::default())?;
        let others = ["--ptp-unicast-allow", "203.0.113.0/24", "--ptp-unicast-allow", "::/0"];
        let server = start_grandmaster(&lab, engine, &[&MONITOR[..], &others].concat())?;
        await_masters(&server)?;
        let refused = exchange(&lab, &[request_frame(&lab, PtpTransport::Ipv4, None, 1)?], 0)?;
        ensure!(refused.is_empty(), "{engine:?}: {} responses", refused.len());
        // Ports publish their counts twice per second.
        let started = Instant::now();
        let counted = || -> Result<bool> {
            Ok(server.status()?["ptp"]["ports"][0]["refused"]["not_admitted"] == 1)
        };
        while !counted()? {
            ensure!(started.elapsed() < TIMEOUT, "{engine:?}: {}", server.status()?["ptp"]);
        }
        let group = request_frame(&lab, PtpTransport::Ipv4, Some(MULTICAST_IPV4.into()), 2)?;
        let answers = exchange_with_group(&lab, &group)?;
        ensure!(answers == 1, "{engine:?}: {answers} responses to the group");
        ensure!(xdp_response_count(&server)?.unwrap_or(0) == 0, "{engine:?}: responses by XDP");
        // All IPv6 addresses are admitted.
        let admitted = responses_to(&lab, PtpTransport::Ipv6)?;
        ensure!(admitted.len() == RESPONSE_TYPES.len(), "{engine:?}");
    }
    Ok(())
}

/// Returns the number of delay responses to a request to the group.
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
        let frames = batch.iter().filter_map(|packet| parse_message(packet.bytes).ok());
        let is_response =
            |message: &Message<'_>| matches!(message.body, PtpMessageBody::DelayResp { .. });
        let responses: Vec<_> = frames.map(|(message, _)| message).filter(is_response).collect();
        ensure!(responses.iter().all(|answer| answer.suffix.is_empty()), "a response with TLVs");
        count += responses.len();
    }
    Ok(count)
}
