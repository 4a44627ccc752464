//! PTP frames for both engines of the server: delay requests over every
//! transport, to the port and to the group, and of every shape that the program should pass.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use horolog_wire::ethernet::{HEADER_LEN as LINK_LEN, Header, MacAddress};
use horolog_wire::frame::UdpFrameBuilder;
use horolog_wire::ptp::message::TIMESTAMP_MESSAGE_LEN;
use horolog_wire::ptp::{
    ETHER_TYPE, EVENT_PORT, IPV6_PADDING_LEN, MULTICAST_IPV4, MULTICAST_IPV6, MULTICAST_MAC,
    SOURCE_OFFSET, VERSION, monitor::REQUEST_TLV_TYPE as MONITOR,
};
use horolog_xdp::PtpTransport;

use crate::frames::{Expected, Kind, build, kind};
use crate::mutated_frames::{
    extension_header, fragment, no_udp_checksum, other_header_fields, other_protocol, tagged,
    unanswerable, with_options, wrong_ipv4_checksum, wrong_length, wrong_udp_checksum,
};
use crate::random::Random;

/// The clock that is asked.
pub(crate) const CLOCK: u64 = 0x0200_c0ff_fe00_0202;
/// Its domain.
pub(crate) const DOMAIN: u8 = 5;
/// Its profile.
pub(crate) const SDO_ID: u16 = 0x2c3;
/// Its address on the link.
pub(crate) const MAC: MacAddress = MacAddress([2, 0, 192, 0, 2, 2]);
/// Its addresses; the first of a family is where messages to the group come from.
pub(crate) const OWN: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 2)),
];
/// The least that a frame has beside its checksum (IEEE 802.3, clause 4.4.2).
const FRAME_MIN: usize = 60;
const FLAGS: [bool; 2] = [false, true];
const IP: [PtpTransport; 2] = [PtpTransport::Ipv4, PtpTransport::Ipv6];
const ALL: [PtpTransport; 3] = [PtpTransport::Ipv4, PtpTransport::Ipv6, PtpTransport::Ethernet];

/// All kinds, of which those to be answered are answered by a port that answers the group and
/// requests to itself.
pub(crate) const KINDS: [Kind; 34] = [
    kind("IPv4, to the port", Expected::Answered, |r| plain(r, PtpTransport::Ipv4, false)),
    kind("IPv4, to the group", Expected::Answered, |r| plain(r, PtpTransport::Ipv4, true)),
    kind("IPv6, to the port", Expected::Answered, |r| plain(r, PtpTransport::Ipv6, false)),
    kind("IPv6, to the group", Expected::Answered, |r| plain(r, PtpTransport::Ipv6, true)),
    kind("Ethernet, to the port", Expected::Answered, |r| plain(r, PtpTransport::Ethernet, false)),
    kind("Ethernet, to the group", Expected::Answered, |r| plain(r, PtpTransport::Ethernet, true)),
    kind("other header fields", Expected::Answered, |r| other_header_fields(any_ip(r), r)),
    kind("wrong UDP checksum", Expected::Passed, |r| wrong_udp_checksum(any_ip(r), r)),
    kind("IPv4 without UDP checksum", Expected::Answered, |r| no_udp_checksum(ipv4(r))),
    kind("IPv6 without UDP checksum", Expected::Passed, |r| no_udp_checksum(ipv6(r))),
    kind("the clock's own identity", Expected::Passed, own_identity),
    kind("other domains", Expected::Passed, |r| with_byte(r, 4, 0xff)),
    kind("other profiles, major", Expected::Passed, |r| with_byte(r, 0, 0xf0)),
    kind("other profiles, minor", Expected::Passed, |r| with_byte(r, 5, 0xff)),
    kind("other types", Expected::Passed, |r| with_byte(r, 0, 0x0f)),
    kind("other versions", Expected::Passed, |r| with_byte(r, 1, 0x0f)),
    kind("other lengths", Expected::Passed, other_length),
    kind("TLVs", Expected::Passed, with_tlv),
    kind("other padding over IP", Expected::Passed, other_padding),
    kind("bytes behind the packet", Expected::Passed, behind_the_packet),
    kind("IPv4 options", Expected::Passed, options),
    kind("IPv4 fragments", Expected::Passed, |r| fragment(ipv4(r), r)),
    kind("wrong IPv4 checksum", Expected::Passed, |r| wrong_ipv4_checksum(ipv4(r), r)),
    kind("IPv6 extension headers", Expected::Passed, |r| extension_header(ipv6(r), r)),
    kind("other protocols", Expected::Passed, |r| other_protocol(any_ip(r), r)),
    kind("wrong lengths of IP and UDP", Expected::Passed, |r| wrong_length(any_ip(r), r)),
    kind("VLAN tags", Expected::Passed, |r| tagged(any(r), r)),
    kind("other ports", Expected::Passed, other_port),
    kind("other addresses", Expected::Passed, other_address),
    kind("sources that no link has", Expected::Passed, impossible_source),
    kind("group MAC addresses", Expected::Passed, group_mac),
    kind("truncated", Expected::Passed, truncated),
    kind("one byte changed", Expected::Either, one_byte_changed),
    kind("anything of this, changed or cut", Expected::Either, mixture),
];

/// Whose requests of NetSync Monitor are answered: of the clients made here, some.
pub(crate) const ADMITTED: [(IpAddr, u8); 2] = [
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), 9),
    (IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0)), 16),
];

/// Requests of NetSync Monitor, and what is nearly one.
pub(crate) const MONITOR_KINDS: [Kind; 14] = [
    kind("monitor, IPv4", Expected::Either, |r| monitor(r, PtpTransport::Ipv4)),
    kind("monitor, IPv6", Expected::Either, |r| monitor(r, PtpTransport::Ipv6)),
    kind("monitor, Ethernet", Expected::Answered, |r| monitor(r, PtpTransport::Ethernet)),
    kind("monitor, to the group", Expected::Passed, monitor_to_group),
    kind("monitor, other TLVs", Expected::Passed, other_tlv),
    kind("monitor, other header fields", Expected::Either, |r| {
        other_header_fields(ip_monitor(r), r)
    }),
    kind("monitor, IPv4 fragments", Expected::Passed, |r| {
        fragment(monitor(r, PtpTransport::Ipv4), r)
    }),
    kind("monitor, wrong IPv4 checksum", Expected::Passed, |r| {
        wrong_ipv4_checksum(monitor(r, PtpTransport::Ipv4), r)
    }),
    kind("monitor, IPv6 without UDP checksum", Expected::Passed, |r| {
        no_udp_checksum(monitor(r, PtpTransport::Ipv6))
    }),
    kind("monitor, wrong lengths", Expected::Passed, |r| wrong_length(ip_monitor(r), r)),
    kind("monitor, other protocols", Expected::Passed, |r| other_protocol(ip_monitor(r), r)),
    kind("monitor, VLAN tags", Expected::Passed, |r| tagged(ip_monitor(r), r)),
    kind("monitor, more behind it", Expected::Passed, |r| {
        let count = r.within(1..=60) as usize;
        [ip_monitor(r), r.bytes(count)].concat()
    }),
    kind("monitor, one byte changed", Expected::Either, |r| {
        let mut frame = ip_monitor(r);
        let at = r.within(0..=frame.len() as u64 - 1) as usize;
        frame[at] ^= r.within(1..=255) as u8;
        frame
    }),
];

/// A request for the delay with a TLV of this number, which is empty.
fn request_with(random: &mut Random, number: u16) -> Vec<u8> {
    let mut message = request(random);
    message.extend(number.to_be_bytes());
    message.extend([0; 2]);
    let length = message.len() as u16;
    message[2..4].copy_from_slice(&length.to_be_bytes());
    message
}

fn monitor(random: &mut Random, transport: PtpTransport) -> Vec<u8> {
    let message = request_with(random, MONITOR);
    carry(random, transport, false, &message)
}

fn ip_monitor(random: &mut Random) -> Vec<u8> {
    let transport = random.pick(&IP);
    monitor(random, transport)
}

fn monitor_to_group(random: &mut Random) -> Vec<u8> {
    let message = request_with(random, MONITOR);
    let transport = random.pick(&ALL);
    carry(random, transport, true, &message)
}

/// Another TLV than that of NetSync Monitor, or one of its that is not empty.
fn other_tlv(random: &mut Random) -> Vec<u8> {
    let mut message = request_with(random, MONITOR);
    let at = TIMESTAMP_MESSAGE_LEN + random.within(0..=3) as usize;
    message[at] ^= random.within(1..=255) as u8;
    carry_anyhow(random, &ALL, &message)
}

/// A request for the delay that is random in every field that does not decide.
fn request(random: &mut Random) -> Vec<u8> {
    let mut message = random.bytes(TIMESTAMP_MESSAGE_LEN);
    message[0] = ((SDO_ID >> 8) as u8) << 4 | 1;
    message[1] = message[1] & 0xf0 | VERSION;
    message[2..4].copy_from_slice(&(TIMESTAMP_MESSAGE_LEN as u16).to_be_bytes());
    message[4] = DOMAIN;
    message[5] = SDO_ID as u8;
    message
}

fn builder(random: &mut Random, transport: PtpTransport, group: bool) -> UdpFrameBuilder {
    let (own, all, low) = match transport {
        PtpTransport::Ipv6 => (&OWN[2..], MULTICAST_IPV6.into(), u128::from(random.next())),
        _ => (&OWN[..2], MULTICAST_IPV4.into(), 0),
    };
    let own = random.pick(own);
    let source: IpAddr = match own {
        IpAddr::V4(_) => {
            Ipv4Addr::from_bits(random.within(0x0a00_0000..=0x0aff_ffff) as u32).into()
        }
        IpAddr::V6(_) => Ipv6Addr::from_bits(random.pick(&[0xfd00, 0xfe80]) << 112 | low).into(),
    };
    let destination = if group { all } else { own };
    UdpFrameBuilder {
        destination_mac: if group { MacAddress::of_group(all) } else { MAC },
        source_mac: MacAddress([2, 0, 192, 0, 2, 1]),
        vlan: None,
        source: SocketAddr::new(source, random.within(1..=65_535) as u16),
        destination: SocketAddr::new(destination, EVENT_PORT),
    }
}

/// A message in a frame as it should be: with what stands behind it over this transport.
pub(crate) fn carry(
    random: &mut Random,
    transport: PtpTransport,
    group: bool,
    message: &[u8],
) -> Vec<u8> {
    let builder = builder(random, transport, group);
    match transport {
        PtpTransport::Ipv4 => build(&builder, message),
        PtpTransport::Ipv6 => build(&builder, &[message, &[0; IPV6_PADDING_LEN]].concat()),
        PtpTransport::Ethernet => {
            let destination = if group { MULTICAST_MAC } else { MAC };
            let source = builder.source_mac;
            let header = Header { destination, source, vlan: None, ether_type: ETHER_TYPE };
            let mut frame = vec![0; header.len()];
            header.emit(&mut frame);
            frame.extend_from_slice(message);
            let least = FRAME_MIN.saturating_sub(frame.len());
            let behind = least + random.pick(&[0, 0, 4, 60]);
            frame.extend(random.bytes(behind));
            frame
        }
    }
}

fn carry_anyhow(random: &mut Random, transports: &[PtpTransport], message: &[u8]) -> Vec<u8> {
    let (transport, group) = (random.pick(transports), random.pick(&FLAGS));
    carry(random, transport, group, message)
}

fn plain(random: &mut Random, transport: PtpTransport, group: bool) -> Vec<u8> {
    let message = request(random);
    carry(random, transport, group, &message)
}

fn any_of(random: &mut Random, transports: &[PtpTransport]) -> Vec<u8> {
    let message = request(random);
    carry_anyhow(random, transports, &message)
}

fn any(random: &mut Random) -> Vec<u8> {
    any_of(random, &ALL)
}

fn any_ip(random: &mut Random) -> Vec<u8> {
    any_of(random, &IP)
}

fn ipv4(random: &mut Random) -> Vec<u8> {
    any_of(random, &[PtpTransport::Ipv4])
}

fn ipv6(random: &mut Random) -> Vec<u8> {
    any_of(random, &[PtpTransport::Ipv6])
}

fn own_identity(random: &mut Random) -> Vec<u8> {
    let mut message = request(random);
    message[SOURCE_OFFSET..][..8].copy_from_slice(&CLOCK.to_be_bytes());
    carry_anyhow(random, &ALL, &message)
}

/// One byte of the message is another in some of the bits of `mask`.
fn with_byte(random: &mut Random, at: usize, mask: u8) -> Vec<u8> {
    let mut message = request(random);
    let lowest = 1 << mask.trailing_zeros();
    let change = random.next() as u8 & mask;
    message[at] ^= if change == 0 { lowest } else { change };
    carry_anyhow(random, &ALL, &message)
}

/// The message's own length is another.
fn other_length(random: &mut Random) -> Vec<u8> {
    let mut message = request(random);
    let change = random.pick(&[1, 2, 4, 10, 0x100, u16::MAX, u16::MAX - 1, u16::MAX - 9]);
    let length = (TIMESTAMP_MESSAGE_LEN as u16).wrapping_add(change);
    message[2..4].copy_from_slice(&length.to_be_bytes());
    carry_anyhow(random, &ALL, &message)
}

fn with_tlv(random: &mut Random) -> Vec<u8> {
    let mut message = request(random);
    let value = random.within(0..=40) as usize * 2;
    let number = random.pick(&[0x21fe, 0x2004, 0x8000_u16]);
    message.extend(number.to_be_bytes());
    message.extend((value as u16).to_be_bytes());
    message.extend(random.bytes(value));
    let length = message.len() as u16;
    message[2..4].copy_from_slice(&length.to_be_bytes());
    carry_anyhow(random, &ALL, &message)
}

/// More or fewer bytes of payload behind the message than this transport has.
fn other_padding(random: &mut Random) -> Vec<u8> {
    let transport = random.pick(&IP);
    let usual = if transport == PtpTransport::Ipv6 { IPV6_PADDING_LEN } else { 0 };
    let count = random.within(0..=99) as usize;
    let count = if count == usual { count + 1 } else { count };
    let builder = any_builder(random, transport);
    let mut payload = request(random);
    payload.extend(random.bytes(count));
    build(&builder, &payload)
}

fn behind_the_packet(random: &mut Random) -> Vec<u8> {
    let mut frame = any_ip(random);
    let count = random.within(1..=60) as usize;
    frame.extend(random.bytes(count));
    frame
}

fn options(random: &mut Random) -> Vec<u8> {
    let words = random.within(1..=10) as usize;
    let options = random.bytes(words * 4);
    with_options(&ipv4(random), &options)
}

fn any_builder(random: &mut Random, transport: PtpTransport) -> UdpFrameBuilder {
    let group = random.pick(&FLAGS);
    builder(random, transport, group)
}

/// A request over IP from a builder that was changed.
fn rebuilt(random: &mut Random, change: impl FnOnce(&mut UdpFrameBuilder, &mut Random)) -> Vec<u8> {
    let transport = random.pick(&IP);
    let mut builder = any_builder(random, transport);
    change(&mut builder, random);
    let mut payload = request(random);
    if transport == PtpTransport::Ipv6 {
        payload.extend([0; IPV6_PADDING_LEN]);
    }
    build(&builder, &payload)
}

fn other_port(random: &mut Random) -> Vec<u8> {
    rebuilt(random, |builder, random| {
        builder.destination.set_port(random.pick(&[123, EVENT_PORT - 1, EVENT_PORT + 1, 0]));
    })
}

fn other_address(random: &mut Random) -> Vec<u8> {
    rebuilt(random, |builder, random| {
        let ip = match builder.destination.ip() {
            IpAddr::V4(ip) => {
                Ipv4Addr::from_bits(ip.to_bits() ^ (1 << random.within(0..=31))).into()
            }
            IpAddr::V6(ip) => {
                Ipv6Addr::from_bits(ip.to_bits() ^ (1 << random.within(0..=127))).into()
            }
        };
        builder.destination.set_ip(ip);
    })
}

fn impossible_source(random: &mut Random) -> Vec<u8> {
    rebuilt(random, |builder, random| {
        // To a group, the port's own address is not what tells.
        builder.destination.set_ip(match builder.destination.ip() {
            IpAddr::V4(_) => OWN[0],
            IpAddr::V6(_) => OWN[2],
        });
        builder.destination_mac = MAC;
        builder.source.set_ip(unanswerable(builder.destination.ip(), random));
    })
}

/// From a group on the link, or to one although an address was asked, or to another's.
fn group_mac(random: &mut Random) -> Vec<u8> {
    let group = random.pick(&[[0xff; 6], [1, 0x1b, 0x19, 0, 0, 0], [0x33, 0x33, 0, 0, 1, 1]]);
    let transport = random.pick(&ALL);
    let mut frame = plain(random, transport, false);
    let at = random.pick(&[0, 6]);
    frame[at..at + 6].copy_from_slice(&group);
    if transport == PtpTransport::Ethernet && at == 0 {
        // This one is PTP's own; the others are not.
        frame[..6].copy_from_slice(&random.pick(&[[0xff; 6], [1, 0x80, 0xc2, 0, 0, 0x0e]]));
    }
    frame
}

fn truncated(random: &mut Random) -> Vec<u8> {
    let transport = random.pick(&ALL);
    let mut frame = plain(random, transport, false);
    let whole = match transport {
        // What stands behind the message is no part of it.
        PtpTransport::Ethernet => LINK_LEN + TIMESTAMP_MESSAGE_LEN,
        _ => frame.len(),
    };
    let length = random.within(LINK_LEN as u64..=whole as u64 - 1) as usize;
    frame.truncate(length);
    frame
}

fn one_byte_changed(random: &mut Random) -> Vec<u8> {
    let mut frame = any(random);
    let at = random.within(0..=frame.len() as u64 - 1) as usize;
    frame[at] ^= random.within(1..=255) as u8;
    frame
}

fn mixture(random: &mut Random) -> Vec<u8> {
    let others = KINDS.len() as u64 - 2;
    let mut frame = (KINDS[random.within(0..=others) as usize].make)(random);
    if random.pick(&FLAGS) {
        let at = random.within(0..=frame.len() as u64 - 1) as usize;
        frame[at] ^= 1 << random.within(0..=7);
    }
    if random.within(0..=7) == 0 {
        let length = random.within(LINK_LEN as u64..=frame.len() as u64) as usize;
        frame.truncate(length);
    }
    frame
}
