//! Decision on a reply, as a pure function of the request, its source address, the clock page, the
//! receive timestamp and the stored state of the client. It reads no clock, keeps no state, and
//! leaves one field of a basic reply open: the transmit timestamp, which is filled in as late as
//! possible.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use horolog_time::{NtpShort, NtpTimestamp};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header, LeapIndicator, PORT};

use crate::interleaved::{as_receive, as_transmit, may_be_interleaved};
use crate::{ClockPage, DropReason, KissCode};

/// Versions with the layout of version 4: RFC 1059, RFC 1119, RFC 1305, RFC 5905.
const VERSIONS: std::ops::RangeInclusive<u8> = 1..=4;

/// Decision on a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestVerdict {
    /// Send this reply of 48 bytes.
    Reply(Reply),
    /// Send nothing.
    Ignore(IgnoreReason),
}

/// Reply, with the handling of its transmit timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// Header of the reply. Its transmit timestamp is final in an interleaved reply and
    /// [`NtpTimestamp::UNKNOWN`] in every other; see [`Reply::at`].
    pub header: Header,
    /// Mode of the reply.
    pub kind: ReplyKind,
}

/// Mode of a reply (RFC 9769, section 2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReplyKind {
    /// Request in basic mode: nothing is stored.
    Basic,
    /// Request that may be in interleaved mode but refers to an unknown reply. The reply is in
    /// basic mode, and its timestamps must be stored.
    First,
    /// Reply with the transmit time of the previous reply; its own timestamps must be stored.
    Interleaved,
}

impl ReplyKind {
    /// Returns true if the reply's receive timestamp and transmit time must be stored for the
    /// client's next request.
    #[must_use]
    pub const fn needs_timestamps_stored(self) -> bool {
        !matches!(self, Self::Basic)
    }
}

impl Reply {
    /// Returns the header as sent at `transmit`.
    #[must_use]
    pub const fn at(mut self, transmit: NtpTimestamp) -> Header {
        if !matches!(self.kind, ReplyKind::Interleaved) {
            self.header.transmit = as_transmit(transmit);
        }
        self.header
    }

    /// Returns the kiss that replaces a reply in basic mode (RFC 5905, section 7.4). It carries no
    /// time and is not stored.
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
        Self { header, kind: ReplyKind::Basic }
    }
}

/// Reason for which a datagram is not answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub enum IgnoreReason {
    /// Length below that of a header, or a trailer that cannot be extension fields and a message
    /// authentication code, which consist of 32-bit words.
    Length,
    /// Version other than 1 to 4.
    Version,
    /// Mode 0, reserved, in a version that has modes, or from the port of a server.
    ModeReserved,
    /// Mode 2, symmetric passive: a reply to a packet that this server never sends.
    ModePassive,
    /// Mode 4, server: a reply to it could start a loop between two servers.
    ModeServer,
    /// Mode 5, broadcast.
    ModeBroadcast,
    /// Mode 6, control: a reply could be longer than the request.
    ModeControl,
    /// Mode 7, private use: a reply could be longer than the request.
    ModePrivate,
    /// Port 0, which cannot be replied to, or an address that does not identify a single host.
    Source,
    /// Message authentication code that is wrong or of an unknown key.
    Mac,
    /// Fields of Network Time Security that are malformed or lack a cookie.
    Nts,
    /// Request in excess of the client's rate limit.
    Limited,
    /// Client denied by the lists of prefixes.
    Denied,
    /// Request in excess of the limit for new clients.
    NewClients,
    /// Multicast or broadcast destination, of IP or of the link: each thread, and each server on
    /// the link, would reply.
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

    /// Returns its name in counters.
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

/// Judges the payload of a UDP datagram from `source`, received at `received` (T2). Only for a
/// request that may be in interleaved mode, `transmit_of` is called for the transmit timestamp of
/// this client's reply with that receive timestamp.
///
/// Extension fields and message authentication codes are skipped: the reply has 48 bytes and
/// authenticates nothing, so a client that requires authentication drops it, as it must. No reply
/// is longer than its request.
#[must_use]
pub fn decide(
    request: &[u8],
    source: SocketAddr,
    page: &ClockPage,
    received: NtpTimestamp,
    transmit_of: impl FnOnce(NtpTimestamp) -> Option<NtpTimestamp>,
) -> RequestVerdict {
    if let Some(reason) = other_layout(request) {
        return RequestVerdict::Ignore(reason);
    }
    let Ok((request, rest)) = Header::parse(request) else {
        return RequestVerdict::Ignore(IgnoreReason::Length);
    };
    match objection(&request, rest, source) {
        Some(reason) => RequestVerdict::Ignore(reason),
        None => RequestVerdict::Reply(reply(&request, page, received, transmit_of)),
    }
}

/// Returns the reason to ignore modes with another layout after the first byte, and hence other
/// lengths. Sockets may truncate a datagram to one byte (see `horolog_io::filter`), so a single
/// byte has no other layout.
fn other_layout(request: &[u8]) -> Option<IgnoreReason> {
    let [first, _, ..] = *request else { return None };
    match AssociationMode::from_bits(first) {
        AssociationMode::Control => Some(IgnoreReason::ModeControl),
        AssociationMode::Private => Some(IgnoreReason::ModePrivate),
        _ => None,
    }
}

fn objection(request: &Header, rest: &[u8], source: SocketAddr) -> Option<IgnoreReason> {
    if !rest.len().is_multiple_of(4) {
        Some(IgnoreReason::Length)
    } else if !VERSIONS.contains(&request.version) {
        Some(IgnoreReason::Version)
    } else if let Some(reason) = objection_to_mode(request, source.port()) {
        Some(reason)
    } else if source.port() == 0 || !names_one_host(source.ip()) {
        Some(IgnoreReason::Source)
    } else {
        None
    }
}

/// Returns the reason to ignore the mode, if any. Version 1 had no mode field; its three bits are
/// zero, and a client is distinguished from a peer by its port, which is not 123 (RFC 1059,
/// appendix B and section 3; RFC 1305, appendix D).
fn objection_to_mode(request: &Header, source_port: u16) -> Option<IgnoreReason> {
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
/// service, gets a reply in symmetric passive mode without an association: mode 2 is never replied
/// to, so the reply ends the exchange from any port.
const fn reply_mode(request: AssociationMode) -> AssociationMode {
    match request {
        AssociationMode::SymmetricActive => AssociationMode::SymmetricPassive,
        _ => AssociationMode::Server,
    }
}

fn names_one_host(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    !(ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST))
}

fn reply(
    request: &Header,
    page: &ClockPage,
    received: NtpTimestamp,
    transmit_of: impl FnOnce(NtpTimestamp) -> Option<NtpTimestamp>,
) -> Reply {
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
        return Reply { header: basic, kind: ReplyKind::Basic };
    }
    match transmit_of(request.origin) {
        None => Reply { header: basic, kind: ReplyKind::First },
        Some(transmit) => Reply {
            header: Header { origin: request.receive, transmit, ..basic },
            kind: ReplyKind::Interleaved,
        },
    }
}

const _: () = assert!(HEADER_LEN == 48);

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
