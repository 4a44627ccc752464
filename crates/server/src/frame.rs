//! The server's decision over whole Ethernet frames: the model of the XDP program, which must
//! return the same bytes for the same frame. It knows the fast subset only; everything else passes
//! up to the sockets. It is written to be plainly right, not fast, and nothing serves with it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use horolog_time::NtpTimestamp;
use horolog_wire::frame::{Builder, UdpFrame};
use horolog_wire::ntp::{HEADER_LEN, Mode};

use crate::{ListenSet, Page, Verdict, decide};

/// What becomes of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrameVerdict {
    /// This frame goes back out by the interface that the request came in by.
    Transmit(Vec<u8>),
    /// The frame goes up to the kernel's own network stack as it came.
    Pass,
}

/// Judges a frame that came at `received` (T2) and whose reply would leave at `transmit` (T3). The
/// caller has found the page unexpired.
///
/// Answered are requests of exactly 48 bytes in client mode to an address of the listen set, in
/// IPv4 (options allowed, fragments not) or IPv6 (no extension headers), with at most one VLAN tag,
/// without a byte that the length fields do not account for. Version 1 without a mode is left to
/// the sockets, and so is IPv6 without a UDP checksum. Whether the checksum fits is not looked at:
/// on virtual links it may be half computed. The reply has no IPv4 options, so it may be shorter
/// than the request, and keeps the VLAN tag.
#[must_use]
pub fn decide_frame(
    frame: &[u8],
    listen: &ListenSet,
    page: &Page,
    received: NtpTimestamp,
    transmit: NtpTimestamp,
) -> FrameVerdict {
    let Ok(request) = UdpFrame::parse(frame) else { return FrameVerdict::Pass };
    if !in_fast_subset(&request, listen) {
        return FrameVerdict::Pass;
    }
    let Verdict::Reply(reply) = decide(request.payload, request.source, page, received, |_| None)
    else {
        return FrameVerdict::Pass;
    };
    let mut payload = [0; HEADER_LEN];
    reply.at(transmit).emit(&mut payload);
    let builder = Builder {
        destination_mac: request.ethernet.source,
        source_mac: request.ethernet.destination,
        vlan: request.ethernet.vlan,
        source: request.destination,
        destination: request.source,
    };
    let mut reply = vec![0; builder.headers_len() + HEADER_LEN];
    builder.emit(&payload, &mut reply);
    FrameVerdict::Transmit(reply)
}

fn in_fast_subset(request: &UdpFrame<'_>, listen: &ListenSet) -> bool {
    let (source, destination) = (request.source, request.destination);
    !request.ethernet.destination.is_group()
        && !request.ethernet.source.is_group()
        && request.payload.len() == HEADER_LEN
        && Mode::from_bits(request.payload[0]) == Mode::Client
        && request.trailer_len == 0
        && (source.is_ipv4() || request.datagram[6..8] != [0, 0])
        && listen.contains(destination.ip(), destination.port())
        && source.ip() != destination.ip()
        && can_come_from_a_link(source.ip())
}

/// Whether a host elsewhere can have this address. Loopback, "this network", multicast and
/// reserved addresses are left to the kernel, which drops most of them; so are IPv4 addresses
/// written as IPv6 ones, which must not appear on a link (RFC 4291, section 2.5.5.2; RFC 6890).
fn can_come_from_a_link(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let first = ip.octets()[0];
            first != 0 && first != Ipv4Addr::LOCALHOST.octets()[0] && first < 224
        }
        IpAddr::V6(ip) => {
            ip != Ipv6Addr::UNSPECIFIED
                && ip != Ipv6Addr::LOCALHOST
                && !ip.is_multicast()
                && ip.to_ipv4_mapped().is_none()
        }
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
