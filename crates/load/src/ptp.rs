//! Requests to a PTP master, and validation of its messages from their bytes alone. Duplicates and
//! timeouts are handled by [`crate::request_tracker`].
//!
//! A request carries a request token like an NTP request: its source port identity holds the 64
//! bits of the token ([`crate::token`]) as clock identity and the lane's number plus 1 as port
//! number, and its sequence ID is the low 16 bits of the sequence number. A `Delay_Resp` returns
//! all three. Sync and `Follow_Up` of NetSync Monitor return only the sequence ID, and are sent to
//! the client's address.
//!
//! The order of the checks is part of the result: the first check that fails names the reason. The
//! XDP engine checks in the same order.

use std::net::{IpAddr, SocketAddr};

use horolog_record::InvalidReplyReason;
use horolog_wire::ParseError;
use horolog_wire::ptp::message::{SIGNALING_LEN, TIMESTAMP_MESSAGE_LEN};
use horolog_wire::ptp::monitor::{NetSyncMonitorResponse, REQUEST_TLV};
use horolog_wire::ptp::tlv::{self, UNICAST_LEN_MAX, UnicastNegotiationTlv};
use horolog_wire::ptp::{
    self, EVENT_PORT, GENERAL_PORT, Header, IPV6_PADDING_LEN, Message, MessageType, NO_INTERVAL,
    PortIdentity, PtpFlags, PtpMessageBody, PtpTimestamp,
};

use crate::clients::LaneClients;
use crate::token::RequestTokenCodec;

/// Kind of the requests sent to a PTP master, with the reply that each expects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PtpRequestKind {
    /// A `Delay_Req`, answered by a `Delay_Resp`.
    Delay,
    /// A `Delay_Req` with the NetSync Monitor TLV: the master replies with a `Delay_Resp`, a Sync
    /// and, in two-step mode, a `Follow_Up`.
    Nsm,
    /// A request for unicast messages, granted or denied.
    Unicast(UnicastRequestParameters),
}

/// Terms of a request for unicast messages (IEEE 1588-2019, clause 16.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnicastRequestParameters {
    /// Kinds of messages; each request is for one of them, in turn.
    pub messages: UnicastMessageTypes,
    /// Log2 of the interval between two messages, in seconds.
    pub log_interval: i8,
    /// Requested duration, in seconds.
    pub duration_s: u32,
}

/// Up to three kinds of messages that a client can request from a master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnicastMessageTypes {
    kinds: [MessageType; 3],
    count: u8,
}

impl UnicastMessageTypes {
    /// Takes the first three of `kinds`. `None` if there are none, or if one of them is not
    /// Announce, Sync or `Delay_Resp`.
    #[must_use]
    pub fn new(kinds: &[MessageType]) -> Option<Self> {
        let is_sent = |kind| {
            matches!(kind, MessageType::Announce | MessageType::Sync | MessageType::DelayResp)
        };
        let count = kinds.len().min(3);
        let mut all = [*kinds.first()?; 3];
        all[..count].copy_from_slice(&kinds[..count]);
        all.into_iter().all(is_sent).then_some(Self { kinds: all, count: count as u8 })
    }

    /// Returns the kind of messages that the request with this number is for.
    #[must_use]
    pub const fn message_type(&self, sequence: u32) -> MessageType {
        self.kinds[(sequence % self.count as u32) as usize]
    }
}

/// Transport of PTP messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PtpLoadTransport {
    /// UDP and IP (IEEE 1588-2019, annexes C and D).
    Udp,
    /// Ethernet without IP (annex E). All requests come from the interface's own address, so
    /// clients differ only by the content of their requests.
    Ethernet,
}

/// Parameters of requests to a PTP master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PtpRequestOptions {
    /// Kind of requests.
    pub kind: PtpRequestKind,
    /// PTP domain number of the requests and of valid replies.
    pub domain: u8,
    /// Minor version of the requests: 0 for IEEE 1588-2008, 1 for 2019.
    pub minor_version: u8,
    /// True if requests are sent to the PTP multicast address, and replies too.
    pub multicast: bool,
    /// Transport of requests and replies.
    pub transport: PtpLoadTransport,
}

impl UnicastRequestParameters {
    /// Returns the request with this sequence number.
    #[must_use]
    pub const fn request(&self, sequence: u32) -> UnicastNegotiationTlv {
        let Self { log_interval, duration_s, .. } = *self;
        UnicastNegotiationTlv::Request {
            kind: self.messages.message_type(sequence),
            log_interval,
            duration_s,
        }
    }
}

impl PtpRequestOptions {
    /// Returns true if replies are sent to the client's own IP address.
    #[must_use]
    pub const fn replies_to_client_address(&self) -> bool {
        matches!(self.transport, PtpLoadTransport::Udp) && !self.multicast
    }

    /// Returns the number of clients that can be distinguished; `None` if the address space is the
    /// only limit. It is 1 for NetSync Monitor over Ethernet, whose Syncs identify no client.
    #[must_use]
    pub const fn clients_max(&self) -> Option<u32> {
        match (self.transport, self.kind) {
            (PtpLoadTransport::Ethernet, PtpRequestKind::Nsm) => Some(1),
            _ => None,
        }
    }

    /// Returns true if the request with this sequence number was for messages of this kind.
    #[must_use]
    pub fn is_request_for(&self, sequence: u32, kind: MessageType) -> bool {
        matches!(self.kind, PtpRequestKind::Unicast(contract) if contract.messages.message_type(sequence) == kind)
    }

    /// Returns the multicast address of requests; `None` with unicast.
    #[must_use]
    pub const fn multicast_group(&self, master: IpAddr) -> Option<IpAddr> {
        match master {
            _ if !self.multicast => None,
            IpAddr::V4(_) => Some(IpAddr::V4(ptp::MULTICAST_IPV4)),
            IpAddr::V6(_) => Some(IpAddr::V6(ptp::MULTICAST_IPV6)),
        }
    }

    /// Returns the source and destination port of requests.
    #[must_use]
    pub const fn port(&self) -> u16 {
        match self.kind {
            PtpRequestKind::Delay | PtpRequestKind::Nsm => EVENT_PORT,
            PtpRequestKind::Unicast(_) => GENERAL_PORT,
        }
    }

    /// Returns the destination of requests to `master`: its address or the multicast address.
    #[must_use]
    pub fn destination(&self, master: IpAddr) -> SocketAddr {
        SocketAddr::new(self.multicast_group(master).unwrap_or(master), self.port())
    }

    /// Returns true if a datagram with these ends can be a reply of `master`.
    #[must_use]
    pub fn can_be_reply(&self, master: IpAddr, from: SocketAddr, to: SocketAddr) -> bool {
        from.ip() == master
            && from.port() == to.port()
            && matches!(to.port(), EVENT_PORT | GENERAL_PORT)
            && match self.multicast_group(master) {
                Some(group) => to.ip() == group,
                None => !to.ip().is_multicast(),
            }
    }
}

/// Largest UDP payload of a request, in bytes.
pub const REQUEST_LEN_MAX: usize = SIGNALING_LEN + UNICAST_LEN_MAX + IPV6_PADDING_LEN;

const _: () =
    assert!(TIMESTAMP_MESSAGE_LEN + REQUEST_TLV.len() + IPV6_PADDING_LEN <= REQUEST_LEN_MAX);

/// Template of a lane's requests, as a UDP payload.
#[derive(Clone, Copy, Debug)]
pub struct PtpRequestTemplate {
    bytes: [u8; REQUEST_LEN_MAX],
    len: usize,
    /// Kinds of messages to request in turn; `None` for other requests.
    messages: Option<UnicastMessageTypes>,
}

impl PtpRequestTemplate {
    /// Creates the template of lane `lane`, with token 0 and sequence ID 0.
    #[must_use]
    pub fn new(plan: &PtpRequestOptions, lane: usize, master: IpAddr) -> Self {
        let flags = if plan.multicast { PtpFlags::default() } else { PtpFlags::UNICAST };
        let header = Header {
            minor_version: plan.minor_version,
            domain: plan.domain,
            flags,
            source: PortIdentity { clock: 0, port: port_number(lane) },
            log_interval: NO_INTERVAL,
            ..Header::default()
        };
        let delay_req = PtpMessageBody::DelayReq(PtpTimestamp::ZERO);
        let mut tlv = [0; UNICAST_LEN_MAX];
        let (body, suffix, messages) = match plan.kind {
            PtpRequestKind::Delay => (delay_req, &[][..], None),
            PtpRequestKind::Nsm => (delay_req, &REQUEST_TLV[..], None),
            PtpRequestKind::Unicast(contract) => {
                let length = contract.request(0).emit(&mut tlv);
                (
                    PtpMessageBody::Signaling(PortIdentity::ALL),
                    &tlv[..length],
                    Some(contract.messages),
                )
            }
        };
        let message = Message { header, body, suffix };
        let mut bytes = [0; REQUEST_LEN_MAX];
        let is_udp_ipv6 = plan.transport == PtpLoadTransport::Udp && master.is_ipv6();
        let padding = if is_udp_ipv6 { IPV6_PADDING_LEN } else { 0 };
        Self { len: message.emit(&mut bytes) + padding, bytes, messages }
    }

    /// Returns the current bytes of the request.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Sets token and sequence number, and returns the request.
    pub fn build_request(&mut self, token: u64, sequence: u32) -> &[u8] {
        let sequence_id = sequence as u16;
        if let Some(messages) = self.messages {
            self.bytes[SIGNALING_LEN + tlv::HEAD_LEN] =
                (messages.message_type(sequence) as u8) << 4;
        }
        let clock = ptp::SOURCE_OFFSET;
        self.bytes[clock..clock + 8].copy_from_slice(&token.to_be_bytes());
        let number = ptp::SEQUENCE_ID_OFFSET;
        self.bytes[number..number + 2].copy_from_slice(&sequence_id.to_be_bytes());
        self.bytes()
    }
}

/// Returns the port number in the source port identity of a lane's requests.
#[must_use]
pub const fn port_number(lane: usize) -> u16 {
    lane as u16 + 1
}

/// Verifier of PTP messages to one lane: the values that it compares them with.
#[derive(Clone, Copy, Debug)]
pub struct PtpMessageVerifier {
    /// Parameters of the requests.
    pub plan: PtpRequestOptions,
    /// Codec that recognises the requests of this run.
    pub token: RequestTokenCodec,
    /// Index of the lane.
    pub lane: usize,
    /// Number of lanes, including the lower ones of concurrent engines.
    pub lanes: usize,
    /// Number of clients over all lanes; 0 if a client's address does not determine its lane.
    pub clients: u32,
    /// Address of the master.
    pub master: IpAddr,
}

/// A reply that is valid by its own bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PtpReply {
    /// A `Delay_Resp` to a delay request, with or without NetSync Monitor.
    Delay {
        /// Bits of the token.
        token: u64,
        /// Master's receive time of the request, in ns of its timescale.
        receive_ns: i64,
        /// True if NetSync Monitor reports that the master's time is not traceable.
        untraceable: bool,
    },
    /// A grant or, with a duration of 0, a denial.
    Grant {
        /// Bits of the token.
        token: u64,
        /// Kind of the granted messages.
        kind: MessageType,
        /// Duration in seconds.
        duration_s: u32,
    },
    /// Cancellation of a grant by the master (clause 16.1.4.3).
    Cancelled {
        /// Bits of the token.
        token: u64,
        /// Kind of the cancelled messages.
        kind: MessageType,
    },
    /// Announce, Sync or `Follow_Up` under a grant.
    Granted,
    /// A Sync that answers a NetSync Monitor request.
    Sync {
        /// Master's transmit time of the Sync, in ns of its timescale; `None` if a `Follow_Up`
        /// carries it.
        transmit_ns: Option<i64>,
    },
    /// A `Follow_Up` to a Sync of a NetSync Monitor exchange in two-step mode.
    FollowUp {
        /// Master's transmit time of the Sync, in ns of its timescale.
        transmit_ns: i64,
    },
}

/// Largest number of padding bytes in an Ethernet frame.
const ETHERNET_PADDING_MAX: usize = 46;

impl PtpMessageVerifier {
    /// Returns the largest number of padding bytes after a message: 2 over UDP and IPv6, the
    /// padding of a short frame over Ethernet, otherwise 0.
    const fn padding_max(&self) -> usize {
        match (self.plan.transport, self.master) {
            (PtpLoadTransport::Ethernet, _) => ETHERNET_PADDING_MAX,
            (PtpLoadTransport::Udp, IpAddr::V4(_)) => 0,
            (PtpLoadTransport::Udp, IpAddr::V6(_)) => IPV6_PADDING_LEN,
        }
    }

    /// Validates a message to this lane; `None` if it belongs to another lane.
    ///
    /// `client` is the client to whose address the message was sent, and `lane_clients` are the
    /// lane's clients. Messages that do not identify their client belong to lane 0. With multicast
    /// every lane receives all messages, and those that identify no lane are ignored.
    #[must_use]
    pub fn validate(
        &self,
        payload: &[u8],
        client: Option<u32>,
        lane_clients: &LaneClients,
    ) -> Option<Result<(Header, PtpReply), InvalidReplyReason>> {
        let is_ours_by_address = match client {
            Some(client) if client < self.clients => lane_clients.includes(client),
            _ => self.lane == 0,
        };
        let may_be_ours = is_ours_by_address && !self.plan.multicast;
        let message = match self.parse(payload) {
            Ok(message) => message,
            Err(reason) => return may_be_ours.then_some(Err(reason)),
        };
        match message.body {
            PtpMessageBody::Signaling(target) if self.is_unicast() => {
                let names_lane = (1..=self.lanes).contains(&usize::from(target.port));
                let is_ours = if names_lane {
                    target.port == port_number(self.lane)
                } else {
                    is_ours_by_address
                };
                is_ours.then(|| self.read_grant(&message, target))
            }
            PtpMessageBody::Announce(_) | PtpMessageBody::Sync(_) | PtpMessageBody::FollowUp(_)
                if self.is_unicast() =>
            {
                may_be_ours.then(|| {
                    self.check_common(&message)?;
                    Ok((message.header, PtpReply::Granted))
                })
            }
            _ if self.is_unicast() => may_be_ours.then_some(Err(InvalidReplyReason::Mode)),
            PtpMessageBody::DelayResp { receive, requesting } => {
                let names_lane = (1..=self.lanes).contains(&usize::from(requesting.port));
                let is_ours = if names_lane || self.plan.multicast {
                    requesting.port == port_number(self.lane)
                } else {
                    is_ours_by_address
                };
                is_ours.then(|| self.read_delay_resp(&message, receive, requesting))
            }
            PtpMessageBody::Sync(origin) if self.plan.kind == PtpRequestKind::Nsm => {
                may_be_ours.then(|| self.read_sync(&message, origin))
            }
            PtpMessageBody::FollowUp(precise) if self.plan.kind == PtpRequestKind::Nsm => {
                may_be_ours.then(|| {
                    self.check_common(&message)?;
                    Ok((message.header, PtpReply::FollowUp { transmit_ns: timestamp_ns(precise)? }))
                })
            }
            _ => may_be_ours.then_some(Err(InvalidReplyReason::Mode)),
        }
    }

    /// Parses a message; only padding may follow it.
    fn parse<'a>(&self, payload: &'a [u8]) -> Result<Message<'a>, InvalidReplyReason> {
        let (message, trailer) = Message::parse(payload).map_err(|error| match error {
            ParseError::Version => InvalidReplyReason::Version,
            _ => InvalidReplyReason::Length,
        })?;
        if trailer.len() > self.padding_max() {
            return Err(InvalidReplyReason::Length);
        }
        Ok(message)
    }

    /// Checks what all replies have in common: domain, flags and TLVs. The domain implies the PTP
    /// profile (IEEE 1588-2019, clause 7.1.1).
    fn check_common(&self, message: &Message<'_>) -> Result<(), InvalidReplyReason> {
        let header = &message.header;
        if (header.domain, header.sdo_id) != (self.plan.domain, 0) {
            return Err(InvalidReplyReason::Domain);
        }
        if header.flags.contains(PtpFlags::UNICAST) == self.plan.multicast {
            return Err(InvalidReplyReason::Flags);
        }
        if message.tlvs().any(|tlv| tlv.is_err()) {
            return Err(InvalidReplyReason::Length);
        }
        Ok(())
    }

    const fn is_unicast(&self) -> bool {
        matches!(self.plan.kind, PtpRequestKind::Unicast(_))
    }

    fn read_grant(
        &self,
        message: &Message<'_>,
        target: PortIdentity,
    ) -> Result<(Header, PtpReply), InvalidReplyReason> {
        self.check_common(message)?;
        if target.port != port_number(self.lane) {
            return Err(InvalidReplyReason::Origin);
        }
        let token = target.clock;
        let terms =
            message.tlvs().flatten().find_map(|tlv| match UnicastNegotiationTlv::from_tlv(&tlv)? {
                Ok(UnicastNegotiationTlv::Grant { kind, duration_s, .. }) => {
                    Some(PtpReply::Grant { token, kind, duration_s })
                }
                Ok(UnicastNegotiationTlv::Cancel(ended)) => {
                    Some(PtpReply::Cancelled { token, kind: ended.kind })
                }
                _ => None,
            });
        terms.map(|answer| (message.header, answer)).ok_or(InvalidReplyReason::UnicastTerms)
    }

    fn read_sync(
        &self,
        message: &Message<'_>,
        origin: PtpTimestamp,
    ) -> Result<(Header, PtpReply), InvalidReplyReason> {
        self.check_common(message)?;
        let is_two_step = message.header.flags.contains(PtpFlags::TWO_STEP);
        let transmit_ns = if is_two_step { None } else { Some(timestamp_ns(origin)?) };
        Ok((message.header, PtpReply::Sync { transmit_ns }))
    }

    fn read_delay_resp(
        &self,
        message: &Message<'_>,
        receive: PtpTimestamp,
        requesting: PortIdentity,
    ) -> Result<(Header, PtpReply), InvalidReplyReason> {
        self.check_common(message)?;
        if requesting.port != port_number(self.lane) {
            return Err(InvalidReplyReason::Origin);
        }
        let receive_ns = timestamp_ns(receive)?;
        let untraceable = match self.plan.kind {
            PtpRequestKind::Nsm => !is_traceable(&monitor_response(message)?),
            PtpRequestKind::Delay | PtpRequestKind::Unicast(_) => false,
        };
        Ok((message.header, PtpReply::Delay { token: requesting.clock, receive_ns, untraceable }))
    }
}

/// Returns the NetSync Monitor response in a `Delay_Resp`.
fn monitor_response<'a>(
    message: &Message<'a>,
) -> Result<NetSyncMonitorResponse<'a>, InvalidReplyReason> {
    message
        .tlvs()
        .flatten()
        .find_map(|tlv| NetSyncMonitorResponse::from_tlv(&tlv))
        .and_then(Result::ok)
        .ok_or(InvalidReplyReason::Monitor)
}

/// Returns true if the master's time or frequency comes from a primary reference (IEEE 1588-2019,
/// clauses 8.2.4.6 and 8.2.4.7).
const fn is_traceable(response: &NetSyncMonitorResponse<'_>) -> bool {
    let flags = PtpFlags(response.time_flags as u16);
    flags.contains(PtpFlags::TIME_TRACEABLE) || flags.contains(PtpFlags::FREQUENCY_TRACEABLE)
}

/// Converts a timestamp to ns. Refuses 0, malformed timestamps, and those from the year 2262 on.
fn timestamp_ns(timestamp: PtpTimestamp) -> Result<i64, InvalidReplyReason> {
    let ns = timestamp.is_normalised().then(|| timestamp.ns_since(PtpTimestamp::ZERO)).flatten();
    ns.filter(|&ns| ns > 0).ok_or(InvalidReplyReason::Timestamp)
}

#[cfg(test)]
mod tests;
