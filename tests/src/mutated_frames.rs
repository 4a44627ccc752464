//! Frames with something about them that is not as it should be, or as it mostly is: each takes a
//! plain frame without a VLAN tag or IPv4 options, of whatever protocol over UDP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use horolog_wire::checksum::{self, OnesComplementSum};
use horolog_wire::ethernet::{HEADER_LEN as LINK_LEN, TYPE_SERVICE_VLAN, TYPE_VLAN};
use horolog_wire::frame::UdpFrame;
use horolog_wire::{ipv4, ipv6};

use crate::random::Random;

fn is_ipv4(frame: &[u8]) -> bool {
    frame[LINK_LEN] >> 4 == 4
}

/// Where the UDP header begins.
fn udp_at(frame: &[u8]) -> usize {
    LINK_LEN + if is_ipv4(frame) { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN }
}

/// Writes the checksum of the IPv4 header anew, as far as there is one.
pub(crate) fn mend(frame: &mut [u8]) {
    let Some(first) = frame.get(LINK_LEN) else { return };
    let length = usize::from(first & 0xf) * 4;
    let Some(header) = frame.get_mut(LINK_LEN..LINK_LEN + length) else { return };
    if header.len() >= ipv4::HEADER_LEN {
        header[10..12].fill(0);
        let sum = OnesComplementSum::default().add_bytes(header).finish();
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// One VLAN tag more.
pub(crate) fn tagged(mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let outer = random.pick(&[TYPE_VLAN, TYPE_SERVICE_VLAN]).to_be_bytes();
    let control = (random.next() as u16).to_be_bytes();
    frame.splice(12..12, [outer, control].concat());
    frame
}

/// These IPv4 options.
pub(crate) fn with_options(frame: &[u8], options: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let behind = LINK_LEN + ipv4::HEADER_LEN;
    frame.splice(behind..behind, options.iter().copied());
    frame[LINK_LEN] += (options.len() / 4) as u8;
    let total = (frame.len() - LINK_LEN) as u16;
    frame[LINK_LEN + 2..][..2].copy_from_slice(&total.to_be_bytes());
    mend(&mut frame);
    frame
}

/// Other values in fields that do not matter: service class, identification, the bit that forbids
/// fragments and the reserved one beside it, flow label, hops.
pub(crate) fn other_header_fields(mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let ip = &mut frame[LINK_LEN..];
    if ip[0] >> 4 == 4 {
        ip[1] = random.next() as u8;
        random.fill(&mut ip[4..6]);
        ip[6] = random.next() as u8 & 0xc0;
        ip[8] = random.next() as u8;
        mend(&mut frame);
    } else {
        let word = random.next() as u32 & 0x0fff_ffff | 0x6000_0000;
        ip[..4].copy_from_slice(&word.to_be_bytes());
        ip[7] = random.next() as u8;
    }
    frame
}

/// A UDP checksum that is neither right nor absent nor that of the pseudo-header alone.
pub(crate) fn wrong_udp_checksum(mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let at = udp_at(&frame) + 6;
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

/// The sum of the pseudo-header in place of the UDP checksum, for a network card to complete.
pub(crate) fn partial_udp_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    let at = udp_at(&frame);
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

/// No UDP checksum.
pub(crate) fn no_udp_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    let at = udp_at(&frame) + 6;
    frame[at..at + 2].fill(0);
    frame
}

/// A piece of an IPv4 packet.
pub(crate) fn fragment(mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let bits = random.within(1..=0x3fff) as u16 | random.pick(&[0, 0x4000]);
    frame[LINK_LEN + 6..][..2].copy_from_slice(&bits.to_be_bytes());
    mend(&mut frame);
    frame
}

/// An extension header of IPv6.
pub(crate) fn extension_header(mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
    const UDP: u8 = 17;
    let behind = LINK_LEN + ipv6::HEADER_LEN;
    // Hop-by-hop options, a fragment header, destination options: 8 bytes each at the least.
    frame[LINK_LEN + 6] = random.pick(&[0, 44, 60]);
    let mut header = [0; 8];
    random.fill(&mut header[2..]);
    header[0] = UDP;
    frame.splice(behind..behind, header);
    let length = (frame.len() - behind) as u16;
    frame[LINK_LEN + 4..][..2].copy_from_slice(&length.to_be_bytes());
    frame
}

/// No UDP, no IP of this version, or no IP at all.
pub(crate) fn other_protocol(mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
    match random.within(0..=2) {
        // The type of the frame; ARP, and one that is nobody's.
        0 => frame[12..14].copy_from_slice(&random.pick(&[0x0806_u16, 0x88b5]).to_be_bytes()),
        // The version of IP.
        1 => frame[LINK_LEN] ^= random.within(1..=15) as u8 * 16,
        _ if frame[LINK_LEN] == 0x45 => frame[LINK_LEN + 9] ^= random.within(1..=255) as u8,
        _ => frame[LINK_LEN + 6] ^= random.within(1..=255) as u8,
    }
    if frame[LINK_LEN] & 0xf == 5 {
        mend(&mut frame);
    }
    frame
}

/// Lengths of IP or UDP that do not fit.
pub(crate) fn wrong_length(mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let udp = udp_at(&frame) + 4;
    let network = if is_ipv4(&frame) { LINK_LEN + 2 } else { LINK_LEN + 4 };
    for at in random.pick(&[&[udp][..], &[network], &[udp, network]]) {
        let wrong = random.within(1..=65_535) as u16;
        let [high, low] = [frame[*at], frame[at + 1]];
        let right = u16::from_be_bytes([high, low]);
        let wrong = random.pick(&[wrong, 1, 4, 8, u16::MAX, u16::MAX - 7]);
        frame[*at..at + 2].copy_from_slice(&right.wrapping_add(wrong).to_be_bytes());
    }
    if is_ipv4(&frame) {
        mend(&mut frame);
    }
    frame
}

/// A checksum of the IPv4 header that does not fit.
pub(crate) fn wrong_ipv4_checksum(mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let at = LINK_LEN + 10;
    let right = u16::from_be_bytes([frame[at], frame[at + 1]]);
    // Never all ones, which is zero in its other form: a right one is never that, and what is added
    // to zero is less.
    let wrong = right.wrapping_add(random.within(1..=0xfffe) as u16);
    frame[at..at + 2].copy_from_slice(&wrong.to_be_bytes());
    frame
}

/// A source that whoever has `own` as address must not answer.
pub(crate) fn unanswerable(own: IpAddr, random: &mut Random) -> IpAddr {
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
