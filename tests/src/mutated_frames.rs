//! Frames with invalid or unusual properties: each function changes one property of a plain frame,
//! without a VLAN tag or IPv4 options, of any protocol over UDP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use horolog_wire::checksum::{self, OnesComplementSum};
use horolog_wire::ethernet::{HEADER_LEN as LINK_LEN, TYPE_SERVICE_VLAN, TYPE_VLAN};
use horolog_wire::frame::UdpFrame;
use horolog_wire::{ipv4, ipv6};

use crate::random::Random;

fn is_ipv4(frame: &[u8]) -> bool {
    frame[LINK_LEN] >> 4 == 4
}

/// Returns the offset of the UDP header, in bytes.
fn udp_offset(frame: &[u8]) -> usize {
    LINK_LEN + if is_ipv4(frame) { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN }
}

/// Updates the checksum of the IPv4 header, unless the header is truncated.
pub(crate) fn update_ipv4_checksum(frame: &mut [u8]) {
    let Some(first) = frame.get(LINK_LEN) else { return };
    let length = usize::from(first & 0xf) * 4;
    let Some(header) = frame.get_mut(LINK_LEN..LINK_LEN + length) else { return };
    if header.len() >= ipv4::HEADER_LEN {
        header[10..12].fill(0);
        let sum = OnesComplementSum::default().add_bytes(header).finish();
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Adds a VLAN tag.
pub(crate) fn add_vlan_tag(mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let outer = random.pick(&[TYPE_VLAN, TYPE_SERVICE_VLAN]).to_be_bytes();
    let control = (random.next() as u16).to_be_bytes();
    frame.splice(12..12, [outer, control].concat());
    frame
}

/// Adds these IPv4 options.
pub(crate) fn with_options(frame: &[u8], options: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let behind = LINK_LEN + ipv4::HEADER_LEN;
    frame.splice(behind..behind, options.iter().copied());
    frame[LINK_LEN] += (options.len() / 4) as u8;
    let total = (frame.len() - LINK_LEN) as u16;
    frame[LINK_LEN + 2..][..2].copy_from_slice(&total.to_be_bytes());
    update_ipv4_checksum(&mut frame);
    frame
}

/// Changes fields that do not affect the reply: service class, identification, the DF and the
/// reserved flag, flow label, hops.
pub(crate) fn other_header_fields(mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let ip = &mut frame[LINK_LEN..];
    if ip[0] >> 4 == 4 {
        ip[1] = random.next() as u8;
        random.fill(&mut ip[4..6]);
        ip[6] = random.next() as u8 & 0xc0;
        ip[8] = random.next() as u8;
        update_ipv4_checksum(&mut frame);
    } else {
        let word = random.next() as u32 & 0x0fff_ffff | 0x6000_0000;
        ip[..4].copy_from_slice(&word.to_be_bytes());
        ip[7] = random.next() as u8;
    }
    frame
}

/// Sets a UDP checksum that is neither correct nor absent nor that of the pseudo-header alone.
pub(crate) fn wrong_udp_checksum(mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let at = udp_offset(&frame) + 6;
    loop {
        let checksum = random.within(1..=0xffff) as u16;
        frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        let wrong = UdpFrame::parse(&frame)
            .map_or(true, |it| !it.has_valid_checksum() && !it.has_partial_checksum());
        if wrong {
            return frame;
        }
    }
}

/// Sets the UDP checksum to the sum of the pseudo-header, as for checksum offload by a NIC.
pub(crate) fn partial_udp_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    let at = udp_offset(&frame);
    let length = frame[at + 4..at + 6].try_into().map_or(0, u16::from_be_bytes);
    let pseudo = match UdpFrame::parse(&frame).map(|it| (it.source.ip(), it.destination.ip())) {
        Ok((IpAddr::V4(from), IpAddr::V4(to))) => {
            checksum::ipv4_pseudo_header_sum(from, to, length)
        }
        Ok((IpAddr::V6(from), IpAddr::V6(to))) => {
            checksum::ipv6_pseudo_header_sum(from, to, length)
        }
        _ => OnesComplementSum::default(),
    };
    frame[at + 6..at + 8].copy_from_slice(&(!pseudo.finish()).to_be_bytes());
    frame
}

/// Removes the UDP checksum.
pub(crate) fn no_udp_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    let at = udp_offset(&frame) + 6;
    frame[at..at + 2].fill(0);
    frame
}

/// Makes the packet an IPv4 fragment.
pub(crate) fn fragment(mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let bits = random.within(1..=0x3fff) as u16 | random.pick(&[0, 0x4000]);
    frame[LINK_LEN + 6..][..2].copy_from_slice(&bits.to_be_bytes());
    update_ipv4_checksum(&mut frame);
    frame
}

/// Inserts an IPv6 extension header.
pub(crate) fn extension_header(mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
    const UDP: u8 = 17;
    let behind = LINK_LEN + ipv6::HEADER_LEN;
    // Hop-by-hop options, fragment header, destination options; each has at least 8 bytes.
    frame[LINK_LEN + 6] = random.pick(&[0, 44, 60]);
    let mut header = [0; 8];
    random.fill(&mut header[2..]);
    header[0] = UDP;
    frame.splice(behind..behind, header);
    let length = (frame.len() - behind) as u16;
    frame[LINK_LEN + 4..][..2].copy_from_slice(&length.to_be_bytes());
    frame
}

/// Changes the protocol, the IP version or the `EtherType`.
pub(crate) fn other_protocol(mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
    match random.within(0..=2) {
        // EtherType of ARP, or one for local experiments.
        0 => frame[12..14].copy_from_slice(&random.pick(&[0x0806_u16, 0x88b5]).to_be_bytes()),
        // IP version.
        1 => frame[LINK_LEN] ^= random.within(1..=15) as u8 * 16,
        _ if frame[LINK_LEN] == 0x45 => frame[LINK_LEN + 9] ^= random.within(1..=255) as u8,
        _ => frame[LINK_LEN + 6] ^= random.within(1..=255) as u8,
    }
    if frame[LINK_LEN] & 0xf == 5 {
        update_ipv4_checksum(&mut frame);
    }
    frame
}

/// Sets wrong lengths of IP, of UDP or of both.
pub(crate) fn wrong_length(mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let udp = udp_offset(&frame) + 4;
    let network = if is_ipv4(&frame) { LINK_LEN + 2 } else { LINK_LEN + 4 };
    for at in random.pick(&[&[udp][..], &[network], &[udp, network]]) {
        let wrong = random.within(1..=65_535) as u16;
        let [high, low] = [frame[*at], frame[at + 1]];
        let right = u16::from_be_bytes([high, low]);
        let wrong = random.pick(&[wrong, 1, 4, 8, u16::MAX, u16::MAX - 7]);
        frame[*at..at + 2].copy_from_slice(&right.wrapping_add(wrong).to_be_bytes());
    }
    if is_ipv4(&frame) {
        update_ipv4_checksum(&mut frame);
    }
    frame
}

/// Sets a wrong checksum of the IPv4 header.
pub(crate) fn wrong_ipv4_checksum(mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let at = LINK_LEN + 10;
    let right = u16::from_be_bytes([frame[at], frame[at + 1]]);
    // The result never is 0xffff in place of 0, its equal in one's complement: a correct checksum
    // is never 0xffff, and less than that is added.
    let wrong = right.wrapping_add(random.within(1..=0xfffe) as u16);
    frame[at..at + 2].copy_from_slice(&wrong.to_be_bytes());
    frame
}

/// Returns a source address that a host with the address `own` must not answer.
pub(crate) fn unanswerable_source(own: IpAddr, random: &mut Random) -> IpAddr {
    let low = random.next() as u32;
    match own {
        IpAddr::V4(_) => {
            let first = random.pick(&[0, 127, 224, 239, 240, 255]);
            let ip = IpAddr::V4(Ipv4Addr::from_bits(first << 24 | low & 0x00ff_ffff));
            random.pick(&[ip, own, IpAddr::V4(Ipv4Addr::BROADCAST)])
        }
        IpAddr::V6(_) => {
            let mapped = Ipv4Addr::from_bits(low).to_ipv6_mapped();
            let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, low as u16);
            let odd = [Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST, mapped, group];
            let odd = random.pick(&odd).into();
            random.pick(&[own, odd])
        }
    }
}
