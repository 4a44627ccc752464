//! PTP frames for both engines of the server: delay requests over each transport, to the port and
//! to the multicast group, and frames of every form that the program passes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use horolog_wire::ethernet::{HEADER_LEN as LINK_LEN, Header, MacAddress};
use horolog_wire::frame::UdpFrameBuilder;
use horolog_wire::ptp::message::TIMESTAMP_MESSAGE_LEN;
use horolog_wire::ptp::{
    ETHER_TYPE, EVENT_PORT, IPV6_PADDING_LEN, MULTICAST_IPV4, MULTICAST_IPV6, MULTICAST_MAC,
    SOURCE_OFFSET, VERSION, monitor::REQUEST_TLV_TYPE as MONITOR,
};
use horolog_xdp::PtpTransport;

use crate::frames::{ExpectedOutcome, FrameKind, build, frame_kind};
use crate::mutated_frames::{
    add_vlan_tag, extension_header, fragment, no_udp_checksum, other_header_fields, other_protocol,
    unanswerable_source, with_options, wrong_ipv4_checksum, wrong_length, wrong_udp_checksum,
};
use crate::random::Random;

/// Identity of the server's clock.
pub(crate) const CLOCK: u64 = 0x0200_c0ff_fe00_0202;
/// Domain of the server.
pub(crate) const DOMAIN: u8 = 5;
/// Profile (sdoId) of the server.
pub(crate) const SDO_ID: u16 = 0x2c3;
/// MAC address of the server.
pub(crate) const MAC: MacAddress = MacAddress([2, 0, 192, 0, 2, 2]);
/// Addresses of the server; multicast messages are sent from the first of each family.
pub(crate) const SERVER_ADDRESSES: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 2)),
];
/// Minimum length of a frame without its checksum, in bytes (IEEE 802.3, clause 4.4.2).
const FRAME_MIN: usize = 60;
const BOOLEANS: [bool; 2] = [false, true];
const IP_TRANSPORTS: [PtpTransport; 2] = [PtpTransport::Ipv4, PtpTransport::Ipv6];
const TRANSPORTS: [PtpTransport; 3] =
    [PtpTransport::Ipv4, PtpTransport::Ipv6, PtpTransport::Ethernet];

/// Kinds of frames. `Answered` holds for a port that answers requests to the group and to itself.
pub(crate) const KINDS: [FrameKind; 34] = [
    frame_kind("IPv4, to the port", ExpectedOutcome::Answered, |r| {
        plain(r, PtpTransport::Ipv4, false)
    }),
    frame_kind("IPv4, to the group", ExpectedOutcome::Answered, |r| {
        plain(r, PtpTransport::Ipv4, true)
    }),
    frame_kind("IPv6, to the port", ExpectedOutcome::Answered, |r| {
        plain(r, PtpTransport::Ipv6, false)
    }),
    frame_kind("IPv6, to the group", ExpectedOutcome::Answered, |r| {
        plain(r, PtpTransport::Ipv6, true)
    }),
    frame_kind("Ethernet, to the port", ExpectedOutcome::Answered, |r| {
        plain(r, PtpTransport::Ethernet, false)
    }),
    frame_kind("Ethernet, to the group", ExpectedOutcome::Answered, |r| {
        plain(r, PtpTransport::Ethernet, true)
    }),
    frame_kind("other header fields", ExpectedOutcome::Answered, |r| {
        other_header_fields(any_ip(r), r)
    }),
    frame_kind("wrong UDP checksum", ExpectedOutcome::Passed, |r| wrong_udp_checksum(any_ip(r), r)),
    frame_kind("IPv4 without UDP checksum", ExpectedOutcome::Answered, |r| {
        no_udp_checksum(ipv4(r))
    }),
    frame_kind("IPv6 without UDP checksum", ExpectedOutcome::Passed, |r| no_udp_checksum(ipv6(r))),
    frame_kind("the clock's own identity", ExpectedOutcome::Passed, own_identity),
    frame_kind("other domains", ExpectedOutcome::Passed, |r| with_byte(r, 4, 0xff)),
    frame_kind("other profiles, major", ExpectedOutcome::Passed, |r| with_byte(r, 0, 0xf0)),
    frame_kind("other profiles, minor", ExpectedOutcome::Passed, |r| with_byte(r, 5, 0xff)),
    frame_kind("other types", ExpectedOutcome::Passed, |r| with_byte(r, 0, 0x0f)),
    frame_kind("other versions", ExpectedOutcome::Passed, |r| with_byte(r, 1, 0x0f)),
    frame_kind("other lengths", ExpectedOutcome::Passed, other_length),
    frame_kind("TLVs", ExpectedOutcome::Passed, with_tlv),
    frame_kind("other padding over IP", ExpectedOutcome::Passed, other_padding),
    frame_kind("trailing bytes", ExpectedOutcome::Passed, trailing_bytes),
    frame_kind("IPv4 options", ExpectedOutcome::Passed, options),
    frame_kind("IPv4 fragments", ExpectedOutcome::Passed, |r| fragment(ipv4(r), r)),
    frame_kind("wrong IPv4 checksum", ExpectedOutcome::Passed, |r| wrong_ipv4_checksum(ipv4(r), r)),
    frame_kind("IPv6 extension headers", ExpectedOutcome::Passed, |r| extension_header(ipv6(r), r)),
    frame_kind("other protocols", ExpectedOutcome::Passed, |r| other_protocol(any_ip(r), r)),
    frame_kind("wrong lengths of IP and UDP", ExpectedOutcome::Passed, |r| {
        wrong_length(any_ip(r), r)
    }),
    frame_kind("VLAN tags", ExpectedOutcome::Passed, |r| add_vlan_tag(any_transport(r), r)),
    frame_kind("other ports", ExpectedOutcome::Passed, other_port),
    frame_kind("other addresses", ExpectedOutcome::Passed, other_address),
    frame_kind("impossible sources", ExpectedOutcome::Passed, impossible_source),
    frame_kind("group MAC addresses", ExpectedOutcome::Passed, group_mac),
    frame_kind("truncated", ExpectedOutcome::Passed, truncated),
    frame_kind("one byte changed", ExpectedOutcome::Either, one_byte_changed),
    frame_kind("mixture, changed or truncated", ExpectedOutcome::Either, mixture),
];

/// Networks from which NetSync Monitor requests are answered; some of the generated clients are
/// outside.
pub(crate) const ADMITTED: [(IpAddr, u8); 2] = [
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), 9),
    (IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0)), 16),
];

/// NetSync Monitor requests, and frames that resemble them.
pub(crate) const MONITOR_KINDS: [FrameKind; 14] = [
    frame_kind("monitor, IPv4", ExpectedOutcome::Either, |r| monitor(r, PtpTransport::Ipv4)),
    frame_kind("monitor, IPv6", ExpectedOutcome::Either, |r| monitor(r, PtpTransport::Ipv6)),
    frame_kind("monitor, Ethernet", ExpectedOutcome::Answered, |r| {
        monitor(r, PtpTransport::Ethernet)
    }),
    frame_kind("monitor, to the group", ExpectedOutcome::Passed, monitor_to_group),
    frame_kind("monitor, other TLVs", ExpectedOutcome::Passed, other_tlv),
    frame_kind("monitor, other header fields", ExpectedOutcome::Either, |r| {
        other_header_fields(ip_monitor(r), r)
    }),
    frame_kind("monitor, IPv4 fragments", ExpectedOutcome::Passed, |r| {
        fragment(monitor(r, PtpTransport::Ipv4), r)
    }),
    frame_kind("monitor, wrong IPv4 checksum", ExpectedOutcome::Passed, |r| {
        wrong_ipv4_checksum(monitor(r, PtpTransport::Ipv4), r)
    }),
    frame_kind("monitor, IPv6 without UDP checksum", ExpectedOutcome::Passed, |r| {
        no_udp_checksum(monitor(r, PtpTransport::Ipv6))
    }),
    frame_kind("monitor, wrong lengths", ExpectedOutcome::Passed, |r| {
        wrong_length(ip_monitor(r), r)
    }),
    frame_kind("monitor, other protocols", ExpectedOutcome::Passed, |r| {
        other_protocol(ip_monitor(r), r)
    }),
    frame_kind("monitor, VLAN tags", ExpectedOutcome::Passed, |r| add_vlan_tag(ip_monitor(r), r)),
    frame_kind("monitor, trailing bytes", ExpectedOutcome::Passed, |r| {
        let count = r.within(1..=60) as usize;
        [ip_monitor(r), r.bytes(count)].concat()
    }),
    frame_kind("monitor, one byte changed", ExpectedOutcome::Either, |r| {
        let mut frame = ip_monitor(r);
        let at = r.within(0..=frame.len() as u64 - 1) as usize;
        frame[at] ^= r.within(1..=255) as u8;
        frame
    }),
];

/// Returns a delay request with an empty TLV of this type.
fn request_with_tlv(random: &mut Random, number: u16) -> Vec<u8> {
    let mut message = request(random);
    message.extend(number.to_be_bytes());
    message.extend([0; 2]);
    let length = message.len() as u16;
    message[2..4].copy_from_slice(&length.to_be_bytes());
    message
}

fn monitor(random: &mut Random, transport: PtpTransport) -> Vec<u8> {
    let message = request_with_tlv(random, MONITOR);
    frame_with(random, transport, false, &message)
}

fn ip_monitor(random: &mut Random) -> Vec<u8> {
    let transport = random.pick(&IP_TRANSPORTS);
    monitor(random, transport)
}

fn monitor_to_group(random: &mut Random) -> Vec<u8> {
    let message = request_with_tlv(random, MONITOR);
    let transport = random.pick(&TRANSPORTS);
    frame_with(random, transport, true, &message)
}

/// Returns a delay request with another TLV than NetSync Monitor's, or with a non-empty one.
fn other_tlv(random: &mut Random) -> Vec<u8> {
    let mut message = request_with_tlv(random, MONITOR);
    let at = TIMESTAMP_MESSAGE_LEN + random.within(0..=3) as usize;
    message[at] ^= random.within(1..=255) as u8;
    frame_to_either(random, &TRANSPORTS, &message)
}

/// Returns a delay request, random in each field that does not affect the decision.
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
        PtpTransport::Ipv6 => {
            (&SERVER_ADDRESSES[2..], MULTICAST_IPV6.into(), u128::from(random.next()))
        }
        _ => (&SERVER_ADDRESSES[..2], MULTICAST_IPV4.into(), 0),
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

/// Returns a correct frame with a message, with the padding of the transport.
pub(crate) fn frame_with(
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
            let padding = least + random.pick(&[0, 0, 4, 60]);
            frame.extend(random.bytes(padding));
            frame
        }
    }
}

fn frame_to_either(random: &mut Random, transports: &[PtpTransport], message: &[u8]) -> Vec<u8> {
    let (transport, group) = (random.pick(transports), random.pick(&BOOLEANS));
    frame_with(random, transport, group, message)
}

fn plain(random: &mut Random, transport: PtpTransport, group: bool) -> Vec<u8> {
    let message = request(random);
    frame_with(random, transport, group, &message)
}

fn any_of(random: &mut Random, transports: &[PtpTransport]) -> Vec<u8> {
    let message = request(random);
    frame_to_either(random, transports, &message)
}

fn any_transport(random: &mut Random) -> Vec<u8> {
    any_of(random, &TRANSPORTS)
}

fn any_ip(random: &mut Random) -> Vec<u8> {
    any_of(random, &IP_TRANSPORTS)
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
    frame_to_either(random, &TRANSPORTS, &message)
}

/// Returns a request with one byte changed in some of the bits of `mask`.
fn with_byte(random: &mut Random, at: usize, mask: u8) -> Vec<u8> {
    let mut message = request(random);
    let lowest = 1 << mask.trailing_zeros();
    let change = random.next() as u8 & mask;
    message[at] ^= if change == 0 { lowest } else { change };
    frame_to_either(random, &TRANSPORTS, &message)
}

/// Returns a request with a wrong length field.
fn other_length(random: &mut Random) -> Vec<u8> {
    let mut message = request(random);
    let change = random.pick(&[1, 2, 4, 10, 0x100, u16::MAX, u16::MAX - 1, u16::MAX - 9]);
    let length = (TIMESTAMP_MESSAGE_LEN as u16).wrapping_add(change);
    message[2..4].copy_from_slice(&length.to_be_bytes());
    frame_to_either(random, &TRANSPORTS, &message)
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
    frame_to_either(random, &TRANSPORTS, &message)
}

/// Returns a request with another amount of padding than the transport's.
fn other_padding(random: &mut Random) -> Vec<u8> {
    let transport = random.pick(&IP_TRANSPORTS);
    let usual = if transport == PtpTransport::Ipv6 { IPV6_PADDING_LEN } else { 0 };
    let count = random.within(0..=99) as usize;
    let count = if count == usual { count + 1 } else { count };
    let builder = any_builder(random, transport);
    let mut payload = request(random);
    payload.extend(random.bytes(count));
    build(&builder, &payload)
}

fn trailing_bytes(random: &mut Random) -> Vec<u8> {
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
    let group = random.pick(&BOOLEANS);
    builder(random, transport, group)
}

/// Returns a request over IP with changes to its addresses and ports.
fn request_with_changes(
    random: &mut Random,
    change: impl FnOnce(&mut UdpFrameBuilder, &mut Random),
) -> Vec<u8> {
    let transport = random.pick(&IP_TRANSPORTS);
    let mut builder = any_builder(random, transport);
    change(&mut builder, random);
    let mut payload = request(random);
    if transport == PtpTransport::Ipv6 {
        payload.extend([0; IPV6_PADDING_LEN]);
    }
    build(&builder, &payload)
}

fn other_port(random: &mut Random) -> Vec<u8> {
    request_with_changes(random, |builder, random| {
        builder.destination.set_port(random.pick(&[123, EVENT_PORT - 1, EVENT_PORT + 1, 0]));
    })
}

fn other_address(random: &mut Random) -> Vec<u8> {
    request_with_changes(random, |builder, random| {
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
    request_with_changes(random, |builder, random| {
        // At group addresses, the comparison with the port's own address does not decide.
        builder.destination.set_ip(match builder.destination.ip() {
            IpAddr::V4(_) => SERVER_ADDRESSES[0],
            IpAddr::V6(_) => SERVER_ADDRESSES[2],
        });
        builder.destination_mac = MAC;
        builder.source.set_ip(unanswerable_source(builder.destination.ip(), random));
    })
}

/// Returns a unicast request with a group MAC address as source or destination.
fn group_mac(random: &mut Random) -> Vec<u8> {
    let group = random.pick(&[[0xff; 6], [1, 0x1b, 0x19, 0, 0, 0], [0x33, 0x33, 0, 0, 1, 1]]);
    let transport = random.pick(&TRANSPORTS);
    let mut frame = plain(random, transport, false);
    let at = random.pick(&[0, 6]);
    frame[at..at + 6].copy_from_slice(&group);
    if transport == PtpTransport::Ethernet && at == 0 {
        // Destinations that are not PTP's own group address.
        frame[..6].copy_from_slice(&random.pick(&[[0xff; 6], [1, 0x80, 0xc2, 0, 0, 0x0e]]));
    }
    frame
}

fn truncated(random: &mut Random) -> Vec<u8> {
    let transport = random.pick(&TRANSPORTS);
    let mut frame = plain(random, transport, false);
    let whole = match transport {
        // Padding after the message is not part of it.
        PtpTransport::Ethernet => LINK_LEN + TIMESTAMP_MESSAGE_LEN,
        _ => frame.len(),
    };
    let length = random.within(LINK_LEN as u64..=whole as u64 - 1) as usize;
    frame.truncate(length);
    frame
}

fn one_byte_changed(random: &mut Random) -> Vec<u8> {
    let mut frame = any_transport(random);
    let at = random.within(0..=frame.len() as u64 - 1) as usize;
    frame[at] ^= random.within(1..=255) as u8;
    frame
}

fn mixture(random: &mut Random) -> Vec<u8> {
    let others = KINDS.len() as u64 - 2;
    let mut frame = (KINDS[random.within(0..=others) as usize].make)(random);
    if random.pick(&BOOLEANS) {
        let at = random.within(0..=frame.len() as u64 - 1) as usize;
        frame[at] ^= 1 << random.within(0..=7);
    }
    if random.within(0..=7) == 0 {
        let length = random.within(LINK_LEN as u64..=frame.len() as u64) as usize;
        frame.truncate(length);
    }
    frame
}
