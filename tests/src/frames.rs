//! Frames for both engines of the server: requests of every form that they answer, and frames of
//! every form that they pass. Each kind states the expected outcome if the kind alone determines
//! it; otherwise only the agreement of the engines is checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use horolog_server::ListenAddressSet;
use horolog_sys::netlink::VlanId;
use horolog_wire::ethernet::{HEADER_LEN as LINK_LEN, MacAddress, TYPE_SERVICE_VLAN, TYPE_VLAN};
use horolog_wire::ethernet::{VLAN_TAG_LEN, VlanTag};
use horolog_wire::frame::UdpFrameBuilder;
use horolog_wire::ipv4;
use horolog_wire::ntp::{HEADER_LEN, PORT};
use horolog_wire::prefix::Prefix;
use horolog_xdp::{Responder, StationAddress, XdpError};

use crate::mutated_frames::{
    add_vlan_tag, extension_header, fragment, no_udp_checksum, other_header_fields, other_protocol,
    partial_udp_checksum, unanswerable_source, update_ipv4_checksum, with_options,
    wrong_ipv4_checksum, wrong_length, wrong_udp_checksum,
};
use crate::random::Random;

/// Addresses and port on which the server listens.
pub(crate) const LISTEN: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), PORT),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)), PORT),
];

/// Broadcast address of the server's IPv4 network.
pub(crate) const BROADCAST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 255);
/// MAC address of the server, equal in all VLANs.
pub(crate) const MAC: MacAddress = MacAddress([2, 0, 192, 0, 2, 2]);
/// VLAN of the server's interfaces, with either kind of tag.
const VLAN: u16 = 0x123;
const VLANS: [Option<VlanId>; 3] = [
    None,
    Some(VlanId { protocol: TYPE_VLAN, identifier: VLAN }),
    Some(VlanId { protocol: TYPE_SERVICE_VLAN, identifier: VLAN }),
];
/// Interface of the frames of a test run.
const LOOPBACK: u32 = 1;

/// Returns the addresses of the server for the model.
pub(crate) fn listen_set() -> ListenAddressSet {
    let network = Prefix::new(LISTEN[0].ip(), 24);
    ListenAddressSet::resolve(&LISTEN, &LISTEN.map(|at| at.ip()))
        .with_networks(&network.into_iter().collect::<Vec<_>>())
        .with_stations(&VLANS.map(|vlan| (vlan, MAC)))
}

/// Configures the addresses of the server in the program.
pub(crate) fn listen_by(responder: &Responder) -> Result<(), XdpError> {
    responder.set_broadcast(BROADCAST, true)?;
    serve_stations(responder)?;
    LISTEN.iter().try_for_each(|&address| responder.answer_at(address))
}

/// Configures the MAC addresses of the server in the program.
pub(crate) fn serve_stations(responder: &Responder) -> Result<(), XdpError> {
    VLANS.into_iter().try_for_each(|vlan| {
        responder.set_station(StationAddress { interface: LOOPBACK, vlan, mac: MAC.0 }, true)
    })
}

/// Expected outcome for all frames of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExpectedOutcome {
    /// Answered by the engine.
    Answered,
    /// Passed to the network stack.
    Passed,
    /// Answered or passed; over many frames, both.
    Either,
}

/// Kind of frames.
pub(crate) struct FrameKind {
    /// Description of the kind.
    pub(crate) name: &'static str,
    /// Expected outcome.
    pub(crate) expected: ExpectedOutcome,
    /// Function that makes a random frame of the kind.
    pub(crate) make: fn(&mut Random) -> Vec<u8>,
}

/// Creates a kind.
pub(crate) const fn frame_kind(
    name: &'static str,
    expected: ExpectedOutcome,
    make: fn(&mut Random) -> Vec<u8>,
) -> FrameKind {
    FrameKind { name, expected, make }
}

/// Kinds of frames, the last of which modifies frames of the others.
pub(crate) const KINDS: [FrameKind; 31] = [
    frame_kind("IPv4 requests", ExpectedOutcome::Answered, |random| plain(random, true)),
    frame_kind("IPv6 requests", ExpectedOutcome::Answered, |random| plain(random, false)),
    frame_kind("any version and mode", ExpectedOutcome::Either, any_version_and_mode),
    frame_kind("a VLAN of this host", ExpectedOutcome::Answered, one_tag),
    frame_kind("another VLAN", ExpectedOutcome::Passed, other_tag),
    frame_kind("two VLAN tags", ExpectedOutcome::Passed, |random| {
        add_vlan_tag(one_tag(random), random)
    }),
    frame_kind("IPv4 options", ExpectedOutcome::Answered, options),
    frame_kind("other header fields", ExpectedOutcome::Answered, |r| {
        other_header_fields(any_plain(r), r)
    }),
    frame_kind("wrong UDP checksum", ExpectedOutcome::Passed, |r| {
        wrong_udp_checksum(any_plain(r), r)
    }),
    frame_kind("pseudo-header checksum", ExpectedOutcome::Answered, |r| {
        partial_udp_checksum(any_plain(r))
    }),
    frame_kind("IPv4 without UDP checksum", ExpectedOutcome::Answered, |r| {
        no_udp_checksum(plain(r, true))
    }),
    frame_kind("IPv6 without UDP checksum", ExpectedOutcome::Passed, |r| {
        no_udp_checksum(plain(r, false))
    }),
    frame_kind("IPv4 fragments", ExpectedOutcome::Passed, |r| fragment(plain(r, true), r)),
    frame_kind("IPv6 extension headers", ExpectedOutcome::Passed, |r| {
        extension_header(plain(r, false), r)
    }),
    frame_kind("other protocols", ExpectedOutcome::Passed, |r| other_protocol(any_plain(r), r)),
    frame_kind("wrong lengths", ExpectedOutcome::Passed, |r| wrong_length(any_plain(r), r)),
    frame_kind("trailing bytes", ExpectedOutcome::Passed, trailing_bytes),
    frame_kind("wrong IPv4 checksum", ExpectedOutcome::Passed, |r| {
        wrong_ipv4_checksum(plain(r, true), r)
    }),
    frame_kind("other ports", ExpectedOutcome::Passed, other_port),
    frame_kind("other addresses", ExpectedOutcome::Passed, other_address),
    frame_kind("group MAC addresses", ExpectedOutcome::Passed, group_mac),
    frame_kind("MAC addresses of other hosts", ExpectedOutcome::Passed, other_mac),
    frame_kind("impossible sources", ExpectedOutcome::Passed, impossible_source),
    frame_kind("broadcast sources", ExpectedOutcome::Passed, broadcast_source),
    frame_kind("source port 0", ExpectedOutcome::Passed, source_port_0),
    frame_kind("longer payloads", ExpectedOutcome::Passed, longer_payload),
    frame_kind("truncated", ExpectedOutcome::Passed, truncated),
    frame_kind("random bytes", ExpectedOutcome::Passed, random_bytes),
    frame_kind("one byte changed", ExpectedOutcome::Either, one_byte_changed),
    frame_kind(
        "IP header changed, checksum right",
        ExpectedOutcome::Either,
        header_changed_and_mended,
    ),
    frame_kind("mixture, tagged or truncated", ExpectedOutcome::Either, mixture),
];

fn source_address(random: &mut Random, ipv4: bool) -> IpAddr {
    if ipv4 {
        Ipv4Addr::from_bits(random.within(0x0a00_0000..=0x0aff_ffff) as u32).into()
    } else {
        Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(random.next())).into()
    }
}

fn builder(random: &mut Random, ipv4: bool) -> UdpFrameBuilder {
    let port = random.within(1..=65_535) as u16;
    UdpFrameBuilder {
        destination_mac: MAC,
        source_mac: MacAddress([2, 0, 192, 0, 2, 1]),
        vlan: None,
        source: SocketAddr::new(source_address(random, ipv4), port),
        destination: LISTEN[usize::from(!ipv4)],
    }
}

fn any_builder(random: &mut Random) -> UdpFrameBuilder {
    let ipv4 = random.pick(&[true, false]);
    builder(random, ipv4)
}

pub(crate) fn build(builder: &UdpFrameBuilder, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; builder.headers_len() + payload.len()];
    builder.emit(payload, &mut frame);
    frame
}

/// Returns an NTP header of a request in client mode or sometimes in symmetric active mode, random
/// in all other fields.
pub(crate) fn request(random: &mut Random) -> Vec<u8> {
    let mut payload = random.bytes(HEADER_LEN);
    let mode = random.pick(&[1, 3, 3, 3]);
    payload[0] = payload[0] & 0xc0 | (random.within(1..=4) as u8) << 3 | mode;
    payload
}

fn plain(random: &mut Random, ipv4: bool) -> Vec<u8> {
    build(&builder(random, ipv4), &request(random))
}

fn any_plain(random: &mut Random) -> Vec<u8> {
    build(&any_builder(random), &request(random))
}

fn any_version_and_mode(random: &mut Random) -> Vec<u8> {
    // Version 1 has no mode field; only a source port other than 123 marks a client.
    let mut builder = any_builder(random);
    if random.pick(&[true, false]) {
        builder.source.set_port(PORT);
    }
    build(&builder, &random.bytes(HEADER_LEN))
}

fn one_tag(random: &mut Random) -> Vec<u8> {
    let protocol = random.pick(&[TYPE_VLAN, TYPE_SERVICE_VLAN]);
    // Any priority, and VLAN identifier 0 or that of a VLAN of this host.
    let identifier = random.pick(&[0, VLAN]);
    let control = random.next() as u16 & 0xf000 | identifier;
    let vlan = Some(VlanTag { protocol, control });
    build(&UdpFrameBuilder { vlan, ..any_builder(random) }, &request(random))
}

fn other_tag(random: &mut Random) -> Vec<u8> {
    let protocol = random.pick(&[TYPE_VLAN, TYPE_SERVICE_VLAN]);
    let identifier = VLAN ^ 1 << random.within(0..=11);
    let control = random.next() as u16 & 0xf000 | identifier;
    let vlan = Some(VlanTag { protocol, control });
    build(&UdpFrameBuilder { vlan, ..any_builder(random) }, &request(random))
}

fn broadcast_source(random: &mut Random) -> Vec<u8> {
    let mut builder = builder(random, true);
    builder.source.set_ip(IpAddr::V4(BROADCAST));
    build(&builder, &request(random))
}

/// Returns a request with 4 to 40 random bytes of IPv4 options.
fn options(random: &mut Random) -> Vec<u8> {
    let words = random.within(1..=10) as usize;
    let options = random.bytes(words * 4);
    with_options(&plain(random, true), &options)
}

fn trailing_bytes(random: &mut Random) -> Vec<u8> {
    let mut frame = any_plain(random);
    let count = random.within(1..=20) as usize;
    frame.extend(random.bytes(count));
    frame
}

fn other_port(random: &mut Random) -> Vec<u8> {
    let mut builder = any_builder(random);
    let port = random.pick(&[PORT - 1, PORT + 1, PORT << 8, 0, u16::MAX]);
    builder.destination.set_port(port);
    build(&builder, &request(random))
}

fn other_address(random: &mut Random) -> Vec<u8> {
    let mut builder = any_builder(random);
    let ip = match builder.destination.ip() {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits() ^ (1 << random.within(0..=31))).into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() ^ (1 << random.within(0..=127))).into(),
    };
    builder.destination.set_ip(ip);
    build(&builder, &request(random))
}

fn group_mac(random: &mut Random) -> Vec<u8> {
    let group = random.pick(&[[0xff; 6], [1, 0, 0x5e, 0, 1, 1], [0x33, 0x33, 0, 0, 1, 1]]);
    let mut builder = any_builder(random);
    match random.within(0..=2) {
        0 => builder.destination_mac = MacAddress(group),
        1 => builder.source_mac = MacAddress(group),
        _ => {
            (builder.destination_mac, builder.source_mac) = (MacAddress(group), MacAddress(group));
        }
    }
    build(&builder, &request(random))
}

fn other_mac(random: &mut Random) -> Vec<u8> {
    let mut builder = any_builder(random);
    builder.destination_mac.0[random.within(0..=5) as usize] ^= 1 << random.within(1..=7);
    build(&builder, &request(random))
}

fn impossible_source(random: &mut Random) -> Vec<u8> {
    let mut builder = any_builder(random);
    builder.source.set_ip(unanswerable_source(builder.destination.ip(), random));
    build(&builder, &request(random))
}

fn source_port_0(random: &mut Random) -> Vec<u8> {
    let mut builder = any_builder(random);
    builder.source.set_port(0);
    build(&builder, &request(random))
}

fn longer_payload(random: &mut Random) -> Vec<u8> {
    let mut payload = request(random);
    let count = random.within(1..=1_400) as usize;
    payload.extend(random.bytes(count));
    build(&any_builder(random), &payload)
}

fn truncated(random: &mut Random) -> Vec<u8> {
    let make = random.pick(&[any_plain as fn(&mut Random) -> Vec<u8>, one_tag, options]);
    let mut frame = make(random);
    let length = random.within(0..=frame.len() as u64 - 1) as usize;
    frame.truncate(length);
    frame
}

fn random_bytes(random: &mut Random) -> Vec<u8> {
    let count = random.within(0..=200) as usize;
    random.bytes(count)
}

fn one_byte_changed(random: &mut Random) -> Vec<u8> {
    let make = random.pick(&[any_plain as fn(&mut Random) -> Vec<u8>, one_tag, options]);
    let mut frame = make(random);
    let at = random.within(0..=frame.len() as u64 - 1) as usize;
    frame[at] ^= random.within(1..=255) as u8;
    frame
}

/// Returns a request with one changed byte in the IP header and a correct checksum, so that only
/// the changed field decides.
fn header_changed_and_mended(random: &mut Random) -> Vec<u8> {
    let make = random.pick(&[any_plain as fn(&mut Random) -> Vec<u8>, options]);
    let mut frame = make(random);
    let is_ipv4 = frame[LINK_LEN] >> 4 == 4;
    let length = if is_ipv4 { ipv4::HEADER_LEN } else { 40 };
    let at = LINK_LEN + random.within(0..=length as u64 - 1) as usize;
    frame[at] ^= random.within(1..=255) as u8;
    if is_ipv4 {
        update_ipv4_checksum(&mut frame);
    }
    frame
}

fn mixture(random: &mut Random) -> Vec<u8> {
    let others = KINDS.len() as u64 - 1;
    let mut frame = (KINDS[random.within(0..=others - 1) as usize].make)(random);
    if frame.len() > LINK_LEN && random.pick(&[true, false]) {
        let tag = [0x81, 0, random.next() as u8, random.next() as u8];
        frame.splice(12..12, tag);
    }
    if frame.len() > LINK_LEN + VLAN_TAG_LEN && random.within(0..=7) == 0 {
        let cut = random.within(1..=4) as usize;
        frame.truncate(frame.len() - cut);
    }
    frame
}
