//! Reference model of the XDP program: the server's decision on whole Ethernet frames. For the same
//! frames in the same order the program must return the same bytes. The model answers only what XDP
//! answers; all other frames pass to the sockets. It is written for clarity, not speed, and serves
//! no requests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use horolog_source::ClockPage;
use horolog_time::{Monotonic, NtpTimestamp, Timestamp};
use horolog_wire::frame::{UdpFrame, UdpFrameBuilder};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header};

use super::decide::{PreparedReply, RequestVerdict, decide};
use super::interleaved::{InterleavedTable, as_transmit, may_be_interleaved};
use super::limits::{Admission, Limiter, RequestLengthClass};
use crate::sockets::listen::ListenAddressSet;

/// Verdict of the XDP engine on a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrameVerdict {
    /// Transmit this frame on the interface on which the request arrived.
    Transmit(Vec<u8>),
    /// Pass the unchanged frame to the kernel's network stack.
    Pass,
    /// Drop the frame, because of limits or lists.
    Drop,
}

/// Handling of requests that may be in interleaved mode.
#[derive(Clone, Copy, Debug)]
pub enum FrameInterleavedHandling<'a> {
    /// Answer with the timestamps stored in this table.
    Answer(&'a InterleavedTable),
    /// Pass to the sockets, which have better transmit timestamps.
    Pass,
}

/// Inputs of the decision, apart from the frame and the time.
#[derive(Clone, Copy, Debug)]
pub struct FrameDecisionInputs<'a> {
    /// Addresses and ports at which requests are answered.
    pub listen: &'a ListenAddressSet,
    /// Clock page; the caller has checked that it has not expired.
    pub page: &'a ClockPage,
    /// Rate limits and lists, if any.
    pub limiter: Option<&'a Limiter>,
    /// Handling of requests that may be in interleaved mode.
    pub interleaved: FrameInterleavedHandling<'a>,
}

/// Times at which a frame arrives and its reply is sent.
#[derive(Clone, Copy, Debug)]
pub struct FrameTimes {
    /// Instant used by the rate limiter.
    pub now: Timestamp<Monotonic>,
    /// Receive time of the frame (T2).
    pub received: NtpTimestamp,
    /// Transmit time of the reply (T3).
    pub transmit: NtpTimestamp,
}

/// Decides on a frame, charges its client's rate limit, and stores the reply's timestamps if
/// required.
///
/// Requests are answered if they have exactly 48 bytes, client or symmetric active mode, a
/// destination in the listen set and a MAC address of this host, over IPv4 (with options, but no
/// fragments) or IPv6 (without extension headers), with at most one VLAN tag, of a VLAN of this
/// host, and without bytes beyond the lengths in the headers. Requests of version 1 without a mode,
/// over IPv6 without a UDP checksum, or with a wrong checksum pass to the sockets. A checksum over
/// the pseudo-header alone, as on virtual links, is valid. The reply has no IPv4 options, so it may
/// be shorter than the request, and has the VLAN tag of the request. Longer requests that are
/// otherwise valid pass, but the rate limits apply to them first.
#[must_use]
pub fn decide_frame(
    frame: &[u8],
    server: &FrameDecisionInputs<'_>,
    arrival: &FrameTimes,
) -> FrameVerdict {
    let Ok(request) = UdpFrame::parse(frame) else { return FrameVerdict::Pass };
    if !is_request(&request, server.listen) {
        return FrameVerdict::Pass;
    }
    let class = RequestLengthClass::from_length(request.payload.len());
    // A trailer makes no difference to the checks of version and source.
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
        (_, RequestLengthClass::Long) => FrameVerdict::Pass,
        (Admission::Kiss(code), RequestLengthClass::Plain) => {
            FrameVerdict::Transmit(reply_frame(&request, basic.into_kiss(code), arrival))
        }
        (Admission::Admit, RequestLengthClass::Plain) => {
            answer_request(&request, basic, server, arrival)
        }
    }
}

/// Answers a request that has passed all checks.
fn answer_request(
    request: &UdpFrame<'_>,
    basic: PreparedReply,
    server: &FrameDecisionInputs<'_>,
    arrival: &FrameTimes,
) -> FrameVerdict {
    let requests_interleaved =
        Header::parse(request.payload).is_ok_and(|(header, _)| may_be_interleaved(&header));
    let client = request.source.ip();
    let reply = match server.interleaved {
        _ if !requests_interleaved => basic,
        FrameInterleavedHandling::Pass => return FrameVerdict::Pass,
        FrameInterleavedHandling::Answer(table) => {
            let transmit_of = |origin| table.transmit_of(client, origin);
            let (page, received) = (server.page, arrival.received);
            match decide(request.payload, request.source, page, received, transmit_of) {
                RequestVerdict::Reply(reply) => reply,
                RequestVerdict::Ignore(_) => return FrameVerdict::Pass,
            }
        }
    };
    if let FrameInterleavedHandling::Answer(table) = server.interleaved
        && reply.kind.needs_timestamps_stored()
    {
        table.store_timestamps(client, reply.header.receive, as_transmit(arrival.transmit));
    }
    FrameVerdict::Transmit(reply_frame(request, reply, arrival))
}

fn reply_frame(request: &UdpFrame<'_>, reply: PreparedReply, arrival: &FrameTimes) -> Vec<u8> {
    let mut payload = [0; HEADER_LEN];
    reply.header_at(arrival.transmit).emit(&mut payload);
    let builder = UdpFrameBuilder {
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

/// Returns true if the frame is a request that XDP may answer, or a longer one.
fn is_request(request: &UdpFrame<'_>, listen: &ListenAddressSet) -> bool {
    let (source, destination) = (request.source, request.destination);
    !request.ethernet.source.is_group()
        && request.payload.len() >= HEADER_LEN
        && matches!(
            AssociationMode::from_bits(request.payload[0]),
            AssociationMode::Client | AssociationMode::SymmetricActive
        )
        && request.trailer_len == 0
        && (request.has_valid_checksum() || request.has_partial_checksum())
        && listen.has_station(request.ethernet.vlan, request.ethernet.destination)
        && listen.contains(destination.ip(), destination.port())
        && source.ip() != destination.ip()
        && is_possible_remote_source(source.ip())
        && !listen.is_broadcast(source.ip())
}

/// Returns true if the address can be that of a remote host. Frames from loopback, "this network",
/// multicast and reserved addresses pass to the kernel, which drops most of them; so do those from
/// IPv4-mapped IPv6 addresses, which must not occur on a link (RFC 4291, section 2.5.5.2; RFC
/// 6890).
fn is_possible_remote_source(ip: IpAddr) -> bool {
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
