//! Decision on a request: a pure function of the request, its source address, the clock page, the
//! receive timestamp and the stored timestamps of the client. The transmit timestamp of a basic
//! reply is left open, so that it can be taken as late as possible.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use horolog_source::ClockPage;
use horolog_time::{NtpShort, NtpTimestamp};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header, LeapIndicator, PORT};

use super::interleaved::{as_receive, as_transmit, may_be_interleaved};
use super::limits::{DropReason, KissCode};

/// Versions of NTP with the header layout of version 4: RFC 1059, RFC 1119, RFC 1305, RFC 5905.
const VERSIONS: std::ops::RangeInclusive<u8> = 1..=4;

/// Decision on a received datagram: to reply or to ignore it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestVerdict {
    /// Send this reply.
    Reply(PreparedReply),
    /// Send nothing.
    Ignore(IgnoreReason),
}

/// Reply without its final transmit timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PreparedReply {
    /// Header of the reply. Its transmit timestamp is final in an interleaved reply, and
    /// [`NtpTimestamp::UNKNOWN`] otherwise, until [`PreparedReply::header_at`] sets it.
    pub header: Header,
    /// Mode of the reply, basic or interleaved.
    pub kind: ReplyTimestampMode,
}

/// Mode of a reply (RFC 9769, section 2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReplyTimestampMode {
    /// Basic mode; the reply's timestamps need not be stored.
    Basic,
    /// Basic mode, because no reply with the request's origin timestamp is stored. The reply's
    /// timestamps must be stored for the next request.
    First,
    /// Interleaved mode: the reply carries the transmit timestamp of the previous one. Its own
    /// timestamps must be stored.
    Interleaved,
}

impl ReplyTimestampMode {
    /// Returns true if the receive and transmit timestamps of the reply must be stored for the
    /// client's next request.
    #[must_use]
    pub const fn needs_timestamps_stored(self) -> bool {
        !matches!(self, Self::Basic)
    }
}

impl PreparedReply {
    /// Returns the header of the reply, sent at `transmit` (T3).
    #[must_use]
    pub const fn header_at(mut self, transmit: NtpTimestamp) -> Header {
        if !matches!(self.kind, ReplyTimestampMode::Interleaved) {
            self.header.transmit = as_transmit(transmit);
        }
        self.header
    }

    /// Returns the kiss-o'-death packet to send instead of a basic reply (RFC 5905, section 7.4).
    /// Leap indicator and stratum mark it as unsynchronised, and its timestamps are not stored.
    #[must_use]
    pub const fn into_kiss(self, code: KissCode) -> Self {
        let header = Header {
            leap: LeapIndicator::Unsynchronised,
            stratum: 0,
            root_delay: NtpShort::from_bits(0),
            root_dispersion: NtpShort::from_bits(0),
            reference_id: code.as_bytes(),
            reference: NtpTimestamp::UNKNOWN,
            ..self.header
        };
        Self { header, kind: ReplyTimestampMode::Basic }
    }
}

/// Reason for which a datagram is ignored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub enum IgnoreReason {
    /// Shorter than a header, longer than the receive buffer, or with a trailer whose length is no
    /// multiple of 4 bytes, as extension fields and MACs require.
    Length,
    /// Version other than 1 to 4.
    Version,
    /// Mode 0, which is reserved except in version 1, and there only from a port other than 123.
    ModeReserved,
    /// Mode 2, symmetric passive: a reply to a mode that this server never sends.
    ModePassive,
    /// Mode 4, server: replies to replies could loop between two servers.
    ModeServer,
    /// Mode 5, broadcast.
    ModeBroadcast,
    /// Mode 6, control: a reply could be longer than the request.
    ModeControl,
    /// Mode 7, private use: a reply could be longer than the request.
    ModePrivate,
    /// Source port 0, or a source address that is multicast, broadcast or unspecified.
    Source,
    /// MAC that is wrong or has an unknown key.
    Mac,
    /// NTS extension fields that are malformed or contain no cookie.
    Nts,
    /// Request above the client's rate limit.
    Limited,
    /// Client denied by the lists of prefixes.
    Denied,
    /// Request above the rate limit for new clients.
    NewClients,
    /// Destination that is multicast or broadcast, in IP or at the link layer: every thread, and
    /// every server on the link, would reply.
    NotUnicast,
}

impl From<DropReason> for IgnoreReason {
    fn from(why: DropReason) -> Self {
        match why {
            DropReason::Limited => Self::Limited,
            DropReason::Denied => Self::Denied,
            DropReason::NewClients => Self::NewClients,
        }
    }
}

impl IgnoreReason {
    /// All reasons, each at the index of its discriminant.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Length,
        Self::Version,
        Self::ModeReserved,
        Self::ModePassive,
        Self::ModeServer,
        Self::ModeBroadcast,
        Self::ModeControl,
        Self::ModePrivate,
        Self::Source,
        Self::Mac,
        Self::Nts,
        Self::Limited,
        Self::Denied,
        Self::NewClients,
        Self::NotUnicast,
    ];
    /// Number of reasons.
    pub const COUNT: usize = 15;

    /// Returns the name of the reason, its key in the counters of the status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Version => "version",
            Self::ModeReserved => "mode_reserved",
            Self::ModePassive => "mode_passive",
            Self::ModeServer => "mode_server",
            Self::ModeBroadcast => "mode_broadcast",
            Self::ModeControl => "mode_control",
            Self::ModePrivate => "mode_private",
            Self::Source => "source",
            Self::Mac => "mac",
            Self::Nts => "nts",
            Self::Limited => "limited",
            Self::Denied => "denied",
            Self::NewClients => "new_clients",
            Self::NotUnicast => "not_unicast",
        }
    }
}

/// Decides on the payload of a UDP datagram from `source`, received at `received` (T2). Only for a
/// request that may be in interleaved mode, `transmit_of` is called with the receive timestamp of
/// an earlier reply, and returns the transmit timestamp of that reply if it is stored.
///
/// Extension fields and MACs are not evaluated. The reply has 48 bytes and no authentication, so
/// that a client that requires authentication drops it. No reply is longer than its request.
#[must_use]
pub fn decide(
    request: &[u8],
    source: SocketAddr,
    page: &ClockPage,
    received: NtpTimestamp,
    transmit_of: impl FnOnce(NtpTimestamp) -> Option<NtpTimestamp>,
) -> RequestVerdict {
    if let Some(reason) = layout_ignore_reason(request) {
        return RequestVerdict::Ignore(reason);
    }
    let Ok((request, rest)) = Header::parse(request) else {
        return RequestVerdict::Ignore(IgnoreReason::Length);
    };
    match ignore_reason(&request, rest, source) {
        Some(reason) => RequestVerdict::Ignore(reason),
        None => RequestVerdict::Reply(reply(&request, page, received, transmit_of)),
    }
}

/// Returns the reason to ignore a datagram of mode 6 or 7, which have other layouts and lengths;
/// `None` for other modes. A single byte is left to the check of the length, because a socket
/// filter may have truncated the datagram to it.
fn layout_ignore_reason(request: &[u8]) -> Option<IgnoreReason> {
    let [first, _, ..] = *request else { return None };
    match AssociationMode::from_bits(first) {
        AssociationMode::Control => Some(IgnoreReason::ModeControl),
        AssociationMode::Private => Some(IgnoreReason::ModePrivate),
        _ => None,
    }
}

fn ignore_reason(request: &Header, rest: &[u8], source: SocketAddr) -> Option<IgnoreReason> {
    if !rest.len().is_multiple_of(4) {
        Some(IgnoreReason::Length)
    } else if !VERSIONS.contains(&request.version) {
        Some(IgnoreReason::Version)
    } else if let Some(reason) = mode_ignore_reason(request, source.port()) {
        Some(reason)
    } else if source.port() == 0 || !is_single_host(source.ip()) {
        Some(IgnoreReason::Source)
    } else {
        None
    }
}

/// Returns the reason to ignore the mode, if any. Version 1 has no mode field; its three bits are
/// zero, and a client differs from a peer by its port, which is not 123 (RFC 1059, appendix B and
/// section 3; RFC 1305, appendix D).
fn mode_ignore_reason(request: &Header, source_port: u16) -> Option<IgnoreReason> {
    match request.mode {
        AssociationMode::Client | AssociationMode::SymmetricActive => None,
        AssociationMode::Reserved if request.version == 1 && source_port != PORT => None,
        AssociationMode::Reserved => Some(IgnoreReason::ModeReserved),
        AssociationMode::SymmetricPassive => Some(IgnoreReason::ModePassive),
        AssociationMode::Server => Some(IgnoreReason::ModeServer),
        AssociationMode::Broadcast => Some(IgnoreReason::ModeBroadcast),
        AssociationMode::Control => Some(IgnoreReason::ModeControl),
        AssociationMode::Private => Some(IgnoreReason::ModePrivate),
    }
}

/// Returns the mode of the reply. A request in symmetric active mode, as sent by the Windows time
/// service, is answered in symmetric passive mode without an association. No server replies to mode
/// 2, so that the exchange ends with the reply.
const fn reply_mode(request: AssociationMode) -> AssociationMode {
    match request {
        AssociationMode::SymmetricActive => AssociationMode::SymmetricPassive,
        _ => AssociationMode::Server,
    }
}

fn is_single_host(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    !(ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST))
}

fn reply(
    request: &Header,
    page: &ClockPage,
    received: NtpTimestamp,
    transmit_of: impl FnOnce(NtpTimestamp) -> Option<NtpTimestamp>,
) -> PreparedReply {
    let variables = &page.variables;
    let basic = Header {
        leap: variables.leap,
        version: request.version,
        mode: reply_mode(request.mode),
        stratum: variables.packet_stratum(),
        poll: request.poll,
        precision: variables.precision,
        root_delay: variables.root_delay,
        root_dispersion: variables.root_dispersion,
        reference_id: variables.reference_id,
        reference: variables.reference,
        origin: request.transmit,
        receive: as_receive(received),
        transmit: NtpTimestamp::UNKNOWN,
    };
    if !may_be_interleaved(request) {
        return PreparedReply { header: basic, kind: ReplyTimestampMode::Basic };
    }
    match transmit_of(request.origin) {
        None => PreparedReply { header: basic, kind: ReplyTimestampMode::First },
        Some(transmit) => PreparedReply {
            header: Header { origin: request.receive, transmit, ..basic },
            kind: ReplyTimestampMode::Interleaved,
        },
    }
}

const _: () = assert!(HEADER_LEN == 48);

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
