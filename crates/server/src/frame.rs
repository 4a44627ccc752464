//! Decision of the server over whole Ethernet frames: the model of the XDP program, which must
//! return the same bytes for the same frames in the same order. It covers only the fast subset;
//! everything else passes to the sockets. It is written for clarity, not speed, and is not used for
//! serving.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use horolog_time::{Monotonic, NtpTimestamp, Timestamp};
use horolog_wire::frame::{Builder, UdpFrame};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header};

use crate::{
    Admission, ClockPage, InterleavedTable, Limiter, ListenSet, Reply, RequestClass,
    RequestVerdict, as_transmit, decide, may_be_interleaved,
};

/// Verdict on a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrameVerdict {
    /// Transmit this frame from the ingress interface of the request.
    Transmit(Vec<u8>),
    /// Pass the unchanged frame to the kernel's network stack.
    Pass,
    /// Drop, by limits or lists.
    Drop,
}

/// Handling of requests that may be in interleaved mode.
#[derive(Clone, Copy, Debug)]
pub enum FrameInterleaved<'a> {
    /// Answered from this table.
    Answer(&'a InterleavedTable),
    /// Passed, because the sockets have better transmit timestamps.
    PassUp,
}

/// Inputs of the verdict on a frame, apart from the frame and the time.
#[derive(Clone, Copy, Debug)]
pub struct FrameServer<'a> {
    /// Addresses at which requests are answered.
    pub listen: &'a ListenSet,
    /// Clock page; the caller has checked that it has not expired.
    pub page: &'a ClockPage,
    /// Limits and lists, if any.
    pub limiter: Option<&'a Limiter>,
    /// Handling of requests that may be in interleaved mode.
    pub interleaved: FrameInterleaved<'a>,
}

/// Arrival of a frame and departure of its reply.
#[derive(Clone, Copy, Debug)]
pub struct FrameTimes {
    /// Instant for the rate limits.
    pub now: Timestamp<Monotonic>,
    /// Receive time (T2).
    pub received: NtpTimestamp,
    /// Transmit time of a reply (T3).
    pub transmit: NtpTimestamp,
}

/// Judges a frame, charges its client, and stores the reply's timestamps if required.
///
/// Requests are answered if they have exactly 48 bytes, client or symmetric active mode, a
/// destination in the listen set and a MAC address of this host, in IPv4 (options allowed, no
/// fragments) or IPv6 (no extension headers), with at most one VLAN tag, of a VLAN of this host,
/// and without a byte that the length fields do not account for. Version 1 without a mode, IPv6
/// without a UDP checksum, and a wrong checksum are left to the sockets. On virtual links the
/// checksum may cover the pseudo-header alone, which is valid. The reply has no IPv4 options, so it
/// may be shorter than the request, and keeps the VLAN tag. Longer requests of the same kind pass,
/// but are rate-limited first.
#[must_use]
pub fn decide_frame(frame: &[u8], server: &FrameServer<'_>, arrival: &FrameTimes) -> FrameVerdict {
    let Ok(request) = UdpFrame::parse(frame) else { return FrameVerdict::Pass };
    if !is_request(&request, server.listen) {
        return FrameVerdict::Pass;
    }
    let class = RequestClass::of(request.payload.len());
    // The checks of version and source are the same whatever follows.
    let header = &request.payload[..HEADER_LEN];
    let RequestVerdict::Reply(basic) =
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
        (_, RequestClass::Long) => FrameVerdict::Pass,
        (Admission::Kiss(code), RequestClass::Plain) => {
            FrameVerdict::Transmit(reply_frame(&request, basic.into_kiss(code), arrival))
        }
        (Admission::Admit, RequestClass::Plain) => answer(&request, basic, server, arrival),
    }
}

/// Answers a request that passed all checks.
fn answer(
    request: &UdpFrame<'_>,
    basic: Reply,
    server: &FrameServer<'_>,
    arrival: &FrameTimes,
) -> FrameVerdict {
    let requests_interleaved =
        Header::parse(request.payload).is_ok_and(|(header, _)| may_be_interleaved(&header));
    let client = request.source.ip();
    let reply = match server.interleaved {
        _ if !requests_interleaved => basic,
        FrameInterleaved::PassUp => return FrameVerdict::Pass,
        FrameInterleaved::Answer(table) => {
            let known = |origin| table.transmit_of(client, origin);
            let (page, received) = (server.page, arrival.received);
            match decide(request.payload, request.source, page, received, known) {
                RequestVerdict::Reply(reply) => reply,
                RequestVerdict::Ignore(_) => return FrameVerdict::Pass,
            }
        }
    };
    if let FrameInterleaved::Answer(table) = server.interleaved
        && reply.kind.needs_timestamps_stored()
    {
        table.remember(client, reply.header.receive, as_transmit(arrival.transmit));
    }
    FrameVerdict::Transmit(reply_frame(request, reply, arrival))
}

fn reply_frame(request: &UdpFrame<'_>, reply: Reply, arrival: &FrameTimes) -> Vec<u8> {
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

/// Returns true if it is a request of the fast subset, or a longer one.
fn is_request(request: &UdpFrame<'_>, listen: &ListenSet) -> bool {
    let (source, destination) = (request.source, request.destination);
    !request.ethernet.source.is_group()
        && request.payload.len() >= HEADER_LEN
        && matches!(
            AssociationMode::from_bits(request.payload[0]),
            AssociationMode::Client | AssociationMode::SymmetricActive
        )
        && request.trailer_len == 0
        && (request.checksum_fits() || request.has_partial_checksum())
        && listen.has_station(request.ethernet.vlan, request.ethernet.destination)
        && listen.contains(destination.ip(), destination.port())
        && source.ip() != destination.ip()
        && can_come_from_a_link(source.ip())
        && !listen.is_broadcast(source.ip())
}

/// Returns true if a remote host can have this address. Loopback, "this network", multicast and
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
