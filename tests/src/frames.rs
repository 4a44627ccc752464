//! Frames for both engines of the server: requests of every shape that they should recognise,
//! and of every shape that they should pass. It says what is to become of each kind where that
//! follows from the kind alone; the rest is for the engines to agree upon.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use horolog_server::ListenAddressSet;
use horolog_sys::netlink::{Prefix, VlanId};
use horolog_wire::ethernet::{HEADER_LEN as LINK_LEN, MacAddress, TYPE_SERVICE_VLAN, TYPE_VLAN};
use horolog_wire::ethernet::{VLAN_TAG_LEN, VlanTag};
use horolog_wire::frame::UdpFrameBuilder;
use horolog_wire::ipv4;
use horolog_wire::ntp::{HEADER_LEN, PORT};
use horolog_xdp::{Responder, StationAddress, XdpError};

use crate::mutated_frames::{
    extension_header, fragment, mend, no_udp_checksum, other_header_fields, other_protocol,
    partial_udp_checksum, tagged, unanswerable, with_options, wrong_ipv4_checksum, wrong_length,
    wrong_udp_checksum,
};
use crate::random::Random;

/// Where the server of these frames answers.
pub(crate) const LISTEN: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), PORT),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)), PORT),
];

/// The broadcast address of that server's network of IPv4.
pub(crate) const BROADCAST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 255);
/// Its MAC address, which is the same in each VLAN.
pub(crate) const MAC: MacAddress = MacAddress([2, 0, 192, 0, 2, 2]);
/// The VLAN that it has interfaces in, by either kind of tag.
const VLAN: u16 = 0x123;
const VLANS: [Option<VlanId>; 3] = [
    None,
    Some(VlanId { protocol: TYPE_VLAN, identifier: VLAN }),
    Some(VlanId { protocol: TYPE_SERVICE_VLAN, identifier: VLAN }),
];
/// A test run's frames come in by the loopback interface.
const LOOPBACK: u32 = 1;

/// That server as the model knows it.
pub(crate) fn listen_set() -> ListenAddressSet {
    let network = Prefix::new(LISTEN[0].ip(), 24);
    ListenAddressSet::resolve(&LISTEN, &LISTEN.map(|at| at.ip()))
        .with_networks(&network.into_iter().collect::<Vec<_>>())
        .with_stations(&VLANS.map(|vlan| (vlan, MAC)))
}

/// The same for the program.
pub(crate) fn listen_by(responder: &Responder) -> Result<(), XdpError> {
    responder.set_broadcast(BROADCAST, true)?;
    serve_stations(responder)?;
    LISTEN.iter().try_for_each(|&address| responder.answer_at(address))
}

/// Lets the program answer at that server's MAC address.
pub(crate) fn serve_stations(responder: &Responder) -> Result<(), XdpError> {
    VLANS.into_iter().try_for_each(|vlan| {
        responder.set_station(StationAddress { interface: LOOPBACK, vlan, mac: MAC.0 }, true)
    })
}

/// What is to become of every frame of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expected {
    /// It is answered.
    Answered,
    /// It is passed up.
    Passed,
    /// One or the other; over many frames, both.
    Either,
}

/// A kind of frames.
pub(crate) struct Kind {
    /// What it is.
    pub(crate) name: &'static str,
    /// What is to become of it.
    pub(crate) expected: Expected,
    /// Makes one.
    pub(crate) make: fn(&mut Random) -> Vec<u8>,
}

/// A kind of this name.
pub(crate) const fn kind(
    name: &'static str,
    expected: Expected,
    make: fn(&mut Random) -> Vec<u8>,
) -> Kind {
    Kind { name, expected, make }
}

/// All kinds.
pub(crate) const KINDS: [Kind; 31] = [
    kind("IPv4 requests", Expected::Answered, |random| plain(random, true)),
    kind("IPv6 requests", Expected::Answered, |random| plain(random, false)),
    kind("any version and mode", Expected::Either, any_version_and_mode),
    kind("a VLAN of this host", Expected::Answered, one_tag),
    kind("another VLAN", Expected::Passed, other_tag),
    kind("two VLAN tags", Expected::Passed, |random| tagged(one_tag(random), random)),
    kind("IPv4 options", Expected::Answered, options),
    kind("other header fields", Expected::Answered, |r| other_header_fields(any_plain(r), r)),
    kind("wrong UDP checksum", Expected::Passed, |r| wrong_udp_checksum(any_plain(r), r)),
    kind("pseudo-header checksum", Expected::Answered, |r| partial_udp_checksum(any_plain(r))),
    kind("IPv4 without UDP checksum", Expected::Answered, |r| no_udp_checksum(plain(r, true))),
    kind("IPv6 without UDP checksum", Expected::Passed, |r| no_udp_checksum(plain(r, false))),
    kind("IPv4 fragments", Expected::Passed, |r| fragment(plain(r, true), r)),
    kind("IPv6 extension headers", Expected::Passed, |r| extension_header(plain(r, false), r)),
    kind("other protocols", Expected::Passed, |r| other_protocol(any_plain(r), r)),
    kind("wrong lengths", Expected::Passed, |r| wrong_length(any_plain(r), r)),
    kind("trailing bytes", Expected::Passed, trailing_bytes),
    kind("wrong IPv4 checksum", Expected::Passed, |r| wrong_ipv4_checksum(plain(r, true), r)),
    kind("other ports", Expected::Passed, other_port),
    kind("other addresses", Expected::Passed, other_address),
    kind("group MAC addresses", Expected::Passed, group_mac),
    kind("MAC addresses of other hosts", Expected::Passed, other_mac),
    kind("sources that no link has", Expected::Passed, impossible_source),
    kind("broadcast sources", Expected::Passed, broadcast_source),
    kind("source port 0", Expected::Passed, source_port_0),
    kind("longer payloads", Expected::Passed, longer_payload),
    kind("truncated", Expected::Passed, truncated),
    kind("random bytes", Expected::Passed, random_bytes),
    kind("one byte changed", Expected::Either, one_byte_changed),
    kind("IP header changed and mended", Expected::Either, header_changed_and_mended),
    kind("anything of this, tagged or cut", Expected::Either, mixture),
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

/// A header of a request, of a client or now and then in symmetric active mode, that is random in
/// every field that says nothing of the kind.
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
    // Port 123 matters to version 1.
    let mut builder = any_builder(random);
    if random.pick(&[true, false]) {
        builder.source.set_port(PORT);
    }
    build(&builder, &random.bytes(HEADER_LEN))
}

fn one_tag(random: &mut Random) -> Vec<u8> {
    let protocol = random.pick(&[TYPE_VLAN, TYPE_SERVICE_VLAN]);
    // Any priority; no identifier, or one of this host's VLANs.
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

/// A request behind 4 to 40 bytes of IPv4 options, which are random.
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
    builder.source.set_ip(unanswerable(builder.destination.ip(), random));
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

/// One byte of the IP header is another, and its checksum is right again, so that only the byte
/// itself tells.
fn header_changed_and_mended(random: &mut Random) -> Vec<u8> {
    let make = random.pick(&[any_plain as fn(&mut Random) -> Vec<u8>, options]);
    let mut frame = make(random);
    let is_ipv4 = frame[LINK_LEN] >> 4 == 4;
    let length = if is_ipv4 { ipv4::HEADER_LEN } else { 40 };
    let at = LINK_LEN + random.within(0..=length as u64 - 1) as usize;
    frame[at] ^= random.within(1..=255) as u8;
    if is_ipv4 {
        mend(&mut frame);
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
