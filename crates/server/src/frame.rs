//! The server's decision over whole Ethernet frames: the model of the XDP program, which must
//! return the same bytes for the same frames in the same order. It knows the fast subset only;
//! everything else passes up to the sockets. It is written to be plainly right, not fast, and
//! nothing serves with it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use horolog_time::{Monotonic, NtpTimestamp, Timestamp};
use horolog_wire::frame::{Builder, UdpFrame};
use horolog_wire::ntp::{HEADER_LEN, Header, Mode};

use crate::{
    Admission, Class, InterleavedTable, Limiter, ListenSet, Page, Reply, Verdict, as_transmit,
    decide, looks_interleaved,
};

/// What becomes of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrameVerdict {
    /// This frame goes back out by the interface that the request came in by.
    Transmit(Vec<u8>),
    /// The frame goes up to the kernel's own network stack as it came.
    Pass,
    /// Limits or lists turn it away.
    Drop,
}

/// What becomes of requests that may be of interleaved mode.
#[derive(Clone, Copy, Debug)]
pub enum FrameInterleaved<'a> {
    /// They are answered from this table.
    Answer(&'a InterleavedTable),
    /// They pass, because the sockets have better transmit timestamps.
    PassUp,
}

/// All that a verdict over a frame depends on, apart from the frame and the time.
#[derive(Clone, Copy, Debug)]
pub struct FrameServer<'a> {
    /// Where requests are answered.
    pub listen: &'a ListenSet,
    /// What the server says of itself; the caller has found it unexpired.
    pub page: &'a Page,
    /// Limits and lists, where there are any.
    pub limiter: Option<&'a Limiter>,
    /// What becomes of requests that may be of interleaved mode.
    pub interleaved: FrameInterleaved<'a>,
}

/// When a frame came, and when its reply leaves.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The instant by which limits are reckoned.
    pub now: Timestamp<Monotonic>,
    /// When it came (T2).
    pub received: NtpTimestamp,
    /// When its reply would leave (T3).
    pub transmit: NtpTimestamp,
}

/// Judges a frame, charges its client, and remembers the reply where that is to be.
///
/// Answered are requests of exactly 48 bytes in client mode to an address of the listen set, in
/// IPv4 (options allowed, fragments not) or IPv6 (no extension headers), with at most one VLAN tag,
/// without a byte that the length fields do not account for. Version 1 without a mode is left to
/// the sockets, and so is IPv6 without a UDP checksum. Whether the checksum fits is not looked at:
/// on virtual links it may be half computed. The reply has no IPv4 options, so it may be shorter
/// than the request, and keeps the VLAN tag. Longer requests of the same kind pass, but are limited
/// before.
#[must_use]
pub fn decide_frame(frame: &[u8], server: &FrameServer<'_>, arrival: &Arrival) -> FrameVerdict {
    let Ok(request) = UdpFrame::parse(frame) else { return FrameVerdict::Pass };
    if !is_request(&request, server.listen) {
        return FrameVerdict::Pass;
    }
    let class = Class::of(request.payload.len());
    // Whether it is of the right version and comes from somewhere is the same whatever follows.
    let header = &request.payload[..HEADER_LEN];
    let Verdict::Reply(basic) =
        decide(header, request.source, server.page, arrival.received, |_| None)
    else {
        return FrameVerdict::Pass;
    };
    let admission = match server.limiter {
        Some(limiter) => limiter.judge(request.source.ip(), class, arrival.now),
        None => Admission::Admit,
    };
    match (admission, class) {
        (Admission::Drop(_), _) => FrameVerdict::Drop,
        (_, Class::Long) => FrameVerdict::Pass,
        (Admission::Kiss(code), Class::Plain) => {
            FrameVerdict::Transmit(reply_frame(&request, basic.into_kiss(code), arrival))
        }
        (Admission::Admit, Class::Plain) => answer(&request, basic, server, arrival),
    }
}

/// Answers a request that nothing speaks against.
fn answer(
    request: &UdpFrame<'_>,
    basic: Reply,
    server: &FrameServer<'_>,
    arrival: &Arrival,
) -> FrameVerdict {
    let asks_interleaved =
        Header::parse(request.payload).is_ok_and(|(header, _)| looks_interleaved(&header));
    let client = request.source.ip();
    let reply = match server.interleaved {
        _ if !asks_interleaved => basic,
        FrameInterleaved::PassUp => return FrameVerdict::Pass,
        FrameInterleaved::Answer(table) => {
            let known = |origin| table.transmit_of(client, origin);
            let (page, received) = (server.page, arrival.received);
            match decide(request.payload, request.source, page, received, known) {
                Verdict::Reply(reply) => reply,
                Verdict::Ignore(_) => return FrameVerdict::Pass,
            }
        }
    };
    if let FrameInterleaved::Answer(table) = server.interleaved
        && reply.kind.is_remembered()
    {
        table.remember(client, reply.header.receive, as_transmit(arrival.transmit));
    }
    FrameVerdict::Transmit(reply_frame(request, reply, arrival))
}

fn reply_frame(request: &UdpFrame<'_>, reply: Reply, arrival: &Arrival) -> Vec<u8> {
    let mut payload = [0; HEADER_LEN];
    reply.at(arrival.transmit).emit(&mut payload);
    let builder = Builder {
        destination_mac: request.ethernet.source,
        source_mac: request.ethernet.destination,
        vlan: request.ethernet.vlan,
        source: request.destination,
        destination: request.source,
    };
    let mut reply = vec![0; builder.headers_len() + HEADER_LEN];
    builder.emit(&payload, &mut reply);
    reply
}

/// Whether it is a request of the fast subset, or a longer one.
fn is_request(request: &UdpFrame<'_>, listen: &ListenSet) -> bool {
    let (source, destination) = (request.source, request.destination);
    !request.ethernet.destination.is_group()
        && !request.ethernet.source.is_group()
        && request.payload.len() >= HEADER_LEN
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
