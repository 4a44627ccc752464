//! Scenario of hostile messages at a running PTP grandmaster: valid and mutated ones of every type,
//! in valid and mutated frames, from many addresses, over every transport, while ptp4l follows.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_io::{Batch, BatchDevice, FrameSelection, PacketSocketDevice, PacketSocketOptions};
use horolog_lab::{Lab, LabConfig};
use horolog_wire::ethernet::{Header, MacAddress};
use horolog_wire::frame::UdpFrameBuilder;
use horolog_wire::ptp::management::{ManagementTlv, data::id};
use horolog_wire::ptp::message::{
    ANNOUNCE_LEN, DELAY_RESP_LEN, MANAGEMENT_LEN, PDELAY_LEN, SIGNALING_LEN, TIMESTAMP_MESSAGE_LEN,
};
use horolog_wire::ptp::monitor::REQUEST_TLV;
use horolog_wire::ptp::tlv::{UNICAST_LEN_MAX, UnicastNegotiationTlv};
use horolog_wire::ptp::{
    ETHER_TYPE, EVENT_PORT, GENERAL_PORT, IPV6_PADDING_LEN, MULTICAST_IPV4, MULTICAST_IPV6,
    MULTICAST_MAC, MessageType, VERSION,
};

use crate::frames::build;
use crate::mutated_frames::{
    add_vlan_tag, extension_header, fragment, other_header_fields, other_protocol,
    wrong_ipv4_checksum, wrong_length, wrong_udp_checksum,
};
use crate::process::{Engine, Server};
use crate::ptp_slave::{PtpMeasurement, PtpSlave};
use crate::ptp4l::Transport;
use crate::random::Random;
use crate::scenario::{Scenario, scenario};
use crate::server_ptp::{NEEDS, await_state, has_server_offset, start_grandmaster};

const SEED: u64 = 0x7074_705f_686f_7374;
/// Duration of the flood, which sends `BURST` frames per `PAUSE`.
const FLOOD_DURATION: Duration = Duration::from_secs(4);
const BURST: usize = 64;
const PAUSE: Duration = Duration::from_millis(2);
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// Longer than any frame of the flood, in bytes.
const FRAME_MAX: usize = 1_024;
/// Far below what the flood would occupy if the server stored any of it.
const GROWTH_BYTES_MAX: u64 = 8 << 20;
/// Number of foreign masters that a port stores.
const FOREIGN_MASTERS_MAX: usize = 5;
/// Number of grants that the server may hold; the flood requests more.
const GRANTS_MAX: u64 = 100;

pub(crate) fn all() -> Vec<Scenario> {
    let of = |engine: Engine| {
        let title = format!("server_ptp_hostile::a_client_is_not_misled::{}", engine.name());
        scenario(title, NEEDS, move || a_client_is_not_misled(engine))
    };
    Engine::ALL.map(of).into()
}

/// Offset of priority1 in Announce, in bytes from the start of the message.
const PRIORITY1_OFFSET: usize = 47;
/// Target port identity of Signaling and Management, after the header.
const TARGET: std::ops::Range<usize> = 34..44;
const ACTION_OFFSET: usize = 46;

/// Returns a valid message with random contents.
fn valid_message(random: &mut Random) -> Vec<u8> {
    let kind = random.pick(&MessageType::ALL);
    let len = match kind {
        MessageType::Sync | MessageType::DelayReq | MessageType::FollowUp => TIMESTAMP_MESSAGE_LEN,
        MessageType::DelayResp => DELAY_RESP_LEN,
        MessageType::PdelayReq | MessageType::PdelayResp | MessageType::PdelayRespFollowUp => {
            PDELAY_LEN
        }
        MessageType::Announce => ANNOUNCE_LEN,
        MessageType::Signaling => SIGNALING_LEN,
        MessageType::Management => MANAGEMENT_LEN,
    };
    let mut bytes = random.bytes(len);
    if len > SIGNALING_LEN - 1 && random.within(0..=3) > 0 {
        bytes[TARGET].fill(0xff);
    }
    match kind {
        MessageType::DelayReq if random.within(0..=1) == 0 => bytes.extend(REQUEST_TLV),
        MessageType::Signaling => {
            let request = UnicastNegotiationTlv::Request {
                kind: random.pick(&[
                    MessageType::Announce,
                    MessageType::Sync,
                    MessageType::DelayResp,
                ]),
                log_interval: random.next() as i8 % 8,
                duration_s: random.within(0..=2_000) as u32,
            };
            let mut tlv = [0; UNICAST_LEN_MAX];
            let length = request.emit(&mut tlv);
            bytes.extend(&tlv[..length]);
        }
        MessageType::Management => {
            bytes[ACTION_OFFSET] = random.within(0..=4) as u8;
            let any = random.next() as u16;
            let ids = [id::DEFAULT_DATA_SET, id::CLOCK_DESCRIPTION, id::PORT_DATA_SET, any];
            let data = random.bytes(2);
            let managed = ManagementTlv { id: random.pick(&ids), data: &data };
            let mut tlv = vec![0; managed.tlv_len()];
            managed.emit(&mut tlv);
            bytes.extend(tlv);
        }
        _ => {}
    }
    let length = bytes.len() as u16;
    bytes[0] = kind as u8;
    bytes[1] = VERSION;
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    bytes[4..6].fill(0); // domain and minorSdoId
    bytes
}

/// Returns a valid message with up to three mutations.
fn mutated_message(random: &mut Random) -> Vec<u8> {
    let mut bytes = valid_message(random);
    for _ in 0..random.within(0..=3) {
        let at = random.within(0..=bytes.len().saturating_sub(1) as u64) as usize;
        match random.within(0..=4) {
            0 => bytes.truncate(at),
            1 => {
                let count = random.within(1..=300) as usize;
                bytes.extend(random.bytes(count));
            }
            2 if bytes.len() > 3 => random.fill(&mut bytes[2..4]),
            _ if !bytes.is_empty() => bytes[at] = random.next() as u8,
            _ => {}
        }
    }
    // Lowest rank: a higher one would rightly make the port passive.
    if let Some(priority1) = bytes.get_mut(PRIORITY1_OFFSET) {
        *priority1 = u8::MAX;
    }
    bytes
}

/// Returns a frame with the message to the lab's server, which may be mutated.
fn frame_with(lab: &Lab, random: &mut Random, message: &[u8]) -> Result<Vec<u8>> {
    let (client, server) = (lab.client().first_interface(), lab.server().first_interface());
    let transport = random.pick(&[Transport::Ipv4, Transport::Ipv6, Transport::Ethernet]);
    let to_group = random.within(0..=1) == 0;
    let own: IpAddr = match transport {
        Transport::Ipv6 => server.ipv6.context("no IPv6 address")?.into(),
        _ => server.ipv4.into(),
    };
    let group: IpAddr = if own.is_ipv6() { MULTICAST_IPV6.into() } else { MULTICAST_IPV4.into() };
    let low = random.within(0..=0x003f_ffff) as u32;
    let source: IpAddr = match own {
        IpAddr::V4(_) => Ipv4Addr::from_bits(0x0a40_0000 | low).into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(low)).into(),
    };
    let port = random.pick(&[EVENT_PORT, GENERAL_PORT]);
    let (own_mac, source_mac) = (MacAddress(server.mac), MacAddress(client.mac));
    if transport == Transport::Ethernet {
        let destination = if to_group { MULTICAST_MAC } else { own_mac };
        let header = Header { destination, source: source_mac, vlan: None, ether_type: ETHER_TYPE };
        let mut frame = vec![0; header.len()];
        header.emit(&mut frame);
        frame.extend_from_slice(message);
        return Ok(frame);
    }
    let builder = UdpFrameBuilder {
        destination_mac: if to_group { MacAddress::of_group(group) } else { own_mac },
        source_mac,
        vlan: None,
        source: SocketAddr::new(source, port),
        destination: SocketAddr::new(if to_group { group } else { own }, port),
    };
    let padding = if own.is_ipv6() { IPV6_PADDING_LEN } else { 0 };
    let frame = build(&builder, &[message, &vec![0; padding]].concat());
    Ok(match random.within(0..=19) {
        0 => add_vlan_tag(frame, random),
        1 => other_header_fields(frame, random),
        2 => wrong_udp_checksum(frame, random),
        3 => other_protocol(frame, random),
        4 => wrong_length(frame, random),
        5 if own.is_ipv4() => fragment(frame, random),
        6 if own.is_ipv4() => wrong_ipv4_checksum(frame, random),
        7 if own.is_ipv6() => extension_header(frame, random),
        _ => frame,
    })
}

/// Sends hostile frames for `FLOOD_DURATION` and returns their number.
fn flood(lab: &Lab) -> Result<usize> {
    let client = lab.client();
    let options = PacketSocketOptions {
        selection: FrameSelection::NoFrames,
        ..PacketSocketOptions::default()
    };
    let mut device =
        client.run(|| PacketSocketDevice::open(&client.first_interface().name, &options))??;
    let mut random = Random::new(SEED);
    let mut batch = Batch::new(BURST, FRAME_MAX);
    let (started, mut sent) = (Instant::now(), 0);
    while started.elapsed() < FLOOD_DURATION {
        batch.clear();
        while !batch.is_full() {
            let message = mutated_message(&mut random);
            let frame = frame_with(lab, &mut random, &message)?;
            ensure!(batch.push((), &frame), "the frame does not fit");
        }
        sent += device.send(&mut batch)?;
        thread::sleep(PAUSE);
    }
    Ok(sent)
}

/// Returns the measurements of a client until `is_over`.
fn measure_until(
    slave: &PtpSlave,
    is_over: impl Fn() -> bool,
) -> Result<Vec<Option<PtpMeasurement>>> {
    let mut measured = Vec::new();
    while !is_over() {
        measured.push(slave.measurement()?);
        thread::sleep(POLL_INTERVAL);
    }
    Ok(measured)
}

/// Checks that the server is still master, stores nothing of the flood, and has counted refusals by
/// reason.
fn check_server(server: &Server, resident_before: u64, sent: usize) -> Result<()> {
    let status = server.status()?;
    let ports = status["ptp"]["ports"].as_array().context("no ports")?;
    ensure!(ports.len() == 3, "{} ports", ports.len());
    let mut received = 0;
    for port in ports {
        let count = |what: &str| {
            let counts = port[what].as_object();
            counts.map_or(0, |counts| counts.values().filter_map(serde_json::Value::as_u64).sum())
        };
        received += count("received");
        let foreign = port["foreign_masters"].as_array().map_or(0, Vec::len);
        ensure!(port["state"] == "master" && foreign <= FOREIGN_MASTERS_MAX, "{port}");
        ensure!(port["grants"].as_u64() <= Some(GRANTS_MAX), "{port}");
        for reason in ["length", "version", "domain", "unwanted"] {
            ensure!(port["refused"][reason].as_u64() > Some(0), "no {reason}: {port}");
        }
    }
    let sent = sent as u64;
    ensure!(received > sent / 10, "{received} of {sent} messages were received: {status}");
    let grown = server.resident_bytes()?.saturating_sub(resident_before);
    ensure!(grown < GROWTH_BYTES_MAX, "{grown} bytes more after {sent} messages");
    Ok(())
}

/// A client measures the same offset before, during and after a flood of hostile messages.
fn a_client_is_not_misled(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let grants = GRANTS_MAX.to_string();
    let options = ["--ptp-transport", "udp4,udp6,l2", "--ptp-netsync-monitor"];
    let allow = ["--ptp-unicast-allow", "10.64.0.0/10", "--ptp-unicast-allow", "fd00::/8"];
    let bound = ["--ptp-unicast-grants", &grants];
    let server = start_grandmaster(&lab, engine, &[&options[..], &allow, &bound].concat())?;
    await_state(&server, "master")?;
    let slave = PtpSlave::start_multicast(lab.client(), Transport::Ipv4, "")?;
    slave.await_measurement(has_server_offset)?;
    let before = server.resident_bytes()?;
    let (flooded, measured) = thread::scope(|scope| {
        let flooding = scope.spawn(|| flood(&lab));
        let measured = measure_until(&slave, || flooding.is_finished());
        (flooding.join(), measured)
    });
    let sent = flooded.map_err(|_| anyhow::anyhow!("the flood panicked"))??;
    let measured = measured?;
    let all_right =
        measured.iter().all(|measured| measured.as_ref().is_some_and(has_server_offset));
    ensure!(measured.len() >= 5 && all_right, "{measured:?}");
    check_server(&server, before, sent)?;
    slave.await_measurement(has_server_offset)?;
    Ok(())
}
