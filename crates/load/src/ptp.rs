//! What is asked of a PTP master, and whether a message from it is a valid answer, decided from its
//! bytes alone. Whether it is the first and came in time is for [`crate::account`].
//!
//! A request carries its question as an NTP request does: the eight bytes of its sender's clock
//! identity are the token's bits ([`crate::token`]), its port number is that of the lane plus 1,
//! and its number is the low 16 bits of the sequence number. A `Delay_Resp` brings all three back.
//! Sync and `Follow_Up` of NetSync Monitor bring the number back and come to the client's address.
//!
//! The order of the checks is part of the result: the first that fails names the reason. The
//! in-kernel engine checks in the same order.

use std::net::{IpAddr, SocketAddr};

use horolog_record::{InvalidReason, Mode};
use horolog_wire::Malformed;
use horolog_wire::ptp::message::{SIGNALING_LEN, STAMP_LEN};
use horolog_wire::ptp::monitor::{REQUEST_TLV, Response};
use horolog_wire::ptp::tlv::{self, UNICAST_LEN_MAX, Unicast};
use horolog_wire::ptp::{
    self, Body, EVENT_PORT, Flags, GENERAL_PORT, Header, IPV6_PADDING_LEN, Message, MessageType,
    NO_INTERVAL, PortIdentity, PtpTimestamp,
};

use crate::clients::LaneClients;
use crate::token::Token;

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PtpKind {
    /// A `Delay_Req`, to be answered by a `Delay_Resp`.
    Delay,
    /// The same with NetSync Monitor's TLV, to be answered by a Sync with its `Follow_Up` as well.
    Nsm,
    /// A request for unicast messages, to be granted or denied.
    Unicast(Contract),
}

/// What unicast messages are asked for (IEEE 1588-2019, clause 16.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contract {
    /// Which ones, in turn: a request asks for one kind.
    pub messages: Messages,
    /// How often, log2 of seconds between them.
    pub log_interval: i8,
    /// For how many seconds.
    pub duration_s: u32,
}

/// Up to three kinds of messages that a client can ask a master for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Messages {
    kinds: [MessageType; 3],
    count: u8,
}

impl Messages {
    /// These, the first three of them; `None` where there are none, or one that no master sends to
    /// its clients.
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

    /// What the request with this number asks for.
    #[must_use]
    pub const fn of(&self, sequence: u32) -> MessageType {
        self.kinds[(sequence % self.count as u32) as usize]
    }
}

/// Over what messages go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// UDP and IP (IEEE 1588-2019, annexes C and D).
    Udp,
    /// Ethernet and nothing else (annex E). All requests come from the interface's own address, so
    /// clients differ by what their requests carry alone.
    Ethernet,
}

/// How a PTP master is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PtpPlan {
    /// What is asked.
    pub kind: PtpKind,
    /// The domain.
    pub domain: u8,
    /// The minor version of the requests: 0 for IEEE 1588-2008, 1 for 2019.
    pub minor_version: u8,
    /// Requests go to the group of all PTP ports, and so do the answers.
    pub multicast: bool,
    /// Over what.
    pub transport: Transport,
}

impl Contract {
    /// The request with this sequence number.
    #[must_use]
    pub const fn request(&self, sequence: u32) -> Unicast {
        let Self { log_interval, duration_s, .. } = *self;
        Unicast::Request { kind: self.messages.of(sequence), log_interval, duration_s }
    }
}

impl PtpPlan {
    /// What it is called in a result.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        match self.kind {
            PtpKind::Delay => Mode::PtpDelay,
            PtpKind::Nsm => Mode::PtpNsm,
            PtpKind::Unicast(_) => Mode::PtpUnicast,
        }
    }

    /// Whether answers tell when the master sent something.
    #[must_use]
    pub const fn tells_of_transmission(&self) -> bool {
        matches!(self.kind, PtpKind::Nsm)
    }

    /// Whether an answer comes to the address of the client that asked.
    #[must_use]
    pub const fn has_addresses(&self) -> bool {
        matches!(self.transport, Transport::Udp) && !self.multicast
    }

    /// Clients that are told apart; `None` where there are as many as addresses. Over Ethernet they
    /// have none, and NetSync Monitor has nothing else to tell them by.
    #[must_use]
    pub const fn clients_max(&self) -> Option<u32> {
        match (self.transport, self.kind) {
            (Transport::Ethernet, PtpKind::Nsm) => Some(1),
            _ => None,
        }
    }

    /// Whether the request with this sequence number asked for messages of this kind.
    #[must_use]
    pub fn asked_for(&self, sequence: u32, kind: MessageType) -> bool {
        matches!(self.kind, PtpKind::Unicast(contract) if contract.messages.of(sequence) == kind)
    }

    /// The group that requests go to instead of the master, if they do.
    #[must_use]
    pub const fn group(&self, master: IpAddr) -> Option<IpAddr> {
        match master {
            _ if !self.multicast => None,
            IpAddr::V4(_) => Some(IpAddr::V4(ptp::MULTICAST_IPV4)),
            IpAddr::V6(_) => Some(IpAddr::V6(ptp::MULTICAST_IPV6)),
        }
    }

    /// The port that requests leave from and go to.
    #[must_use]
    pub const fn port(&self) -> u16 {
        match self.kind {
            PtpKind::Delay | PtpKind::Nsm => EVENT_PORT,
            PtpKind::Unicast(_) => GENERAL_PORT,
        }
    }

    /// Where requests for `master` go.
    #[must_use]
    pub fn destination(&self, master: IpAddr) -> SocketAddr {
        SocketAddr::new(self.group(master).unwrap_or(master), self.port())
    }

    /// Whether a datagram between these ends can be an answer of `master`.
    #[must_use]
    pub fn is_answer(&self, master: IpAddr, from: SocketAddr, to: SocketAddr) -> bool {
        from.ip() == master
            && from.port() == to.port()
            && matches!(to.port(), EVENT_PORT | GENERAL_PORT)
            && match self.group(master) {
                Some(group) => to.ip() == group,
                None => !to.ip().is_multicast(),
            }
    }
}

/// The most bytes that a request has.
pub const REQUEST_LEN_MAX: usize = SIGNALING_LEN + UNICAST_LEN_MAX + IPV6_PADDING_LEN;

const _: () = assert!(STAMP_LEN + REQUEST_TLV.len() + IPV6_PADDING_LEN <= REQUEST_LEN_MAX);

/// A lane's request, as a UDP payload.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    bytes: [u8; REQUEST_LEN_MAX],
    len: usize,
    /// What is asked for in turn, where that changes.
    messages: Option<Messages>,
}

impl Template {
    /// A request of lane `lane` to `master`, with no token and the number 0.
    #[must_use]
    pub fn new(plan: &PtpPlan, lane: usize, master: IpAddr) -> Self {
        let flags = if plan.multicast { Flags::default() } else { Flags::UNICAST };
        let header = Header {
            minor_version: plan.minor_version,
            domain: plan.domain,
            flags,
            source: PortIdentity { clock: 0, port: port_number(lane) },
            log_interval: NO_INTERVAL,
            ..Header::default()
        };
        let delay_req = Body::DelayReq(PtpTimestamp::ZERO);
        let mut tlv = [0; UNICAST_LEN_MAX];
        let (body, suffix, messages) = match plan.kind {
            PtpKind::Delay => (delay_req, &[][..], None),
            PtpKind::Nsm => (delay_req, &REQUEST_TLV[..], None),
            PtpKind::Unicast(contract) => {
                let length = contract.request(0).emit(&mut tlv);
                (Body::Signaling(PortIdentity::ALL), &tlv[..length], Some(contract.messages))
            }
        };
        let message = Message { header, body, suffix };
        let mut bytes = [0; REQUEST_LEN_MAX];
        let is_udp_ipv6 = plan.transport == Transport::Udp && master.is_ipv6();
        let padding = if is_udp_ipv6 { IPV6_PADDING_LEN } else { 0 };
        Self { len: message.emit(&mut bytes) + padding, bytes, messages }
    }

    /// The request as it is.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The request with this token and sequence number.
    pub fn ask(&mut self, token: u64, sequence: u32) -> &[u8] {
        let sequence_id = sequence as u16;
        if let Some(messages) = self.messages {
            self.bytes[SIGNALING_LEN + tlv::HEAD_LEN] = (messages.of(sequence) as u8) << 4;
        }
        let clock = ptp::SOURCE_OFFSET;
        self.bytes[clock..clock + 8].copy_from_slice(&token.to_be_bytes());
        let number = ptp::SEQUENCE_ID_OFFSET;
        self.bytes[number..number + 2].copy_from_slice(&sequence_id.to_be_bytes());
        self.bytes()
    }
}

/// The port number of a lane's requests.
#[must_use]
pub const fn port_number(lane: usize) -> u16 {
    lane as u16 + 1
}

/// What messages to one lane are held against.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// How the master is asked.
    pub plan: PtpPlan,
    /// Recognises the questions of this run.
    pub token: Token,
    /// The lane.
    pub lane: usize,
    /// How many there are.
    pub lanes: usize,
    /// The clients of all lanes; 0 where their addresses do not tell their lanes.
    pub clients: u32,
    /// The master's address.
    pub master: IpAddr,
}

/// An answer that is right as far as its own bytes tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// A `Delay_Resp`.
    Delay {
        /// The token's bits.
        token: u64,
        /// When the master received the request, in ns since its epoch.
        receive_ns: i64,
        /// The master says, by NetSync Monitor, that its time can be traced to nothing.
        untraceable: bool,
    },
    /// A grant or, where it is for no time, a denial.
    Grant {
        /// The token's bits.
        token: u64,
        /// What is granted.
        kind: MessageType,
        /// For how many seconds.
        duration_s: u32,
    },
    /// The end of what was granted, at the master's wish (clause 16.1.4.3).
    Cancelled {
        /// The token's bits.
        token: u64,
        /// What is to end.
        kind: MessageType,
    },
    /// A message that was granted.
    Granted,
    /// A Sync.
    Sync {
        /// When it left, in ns since the master's epoch; `None` where a `Follow_Up` tells.
        transmit_ns: Option<i64>,
    },
    /// A `Follow_Up`.
    FollowUp {
        /// When the Sync left, in ns since the master's epoch.
        transmit_ns: i64,
    },
}

/// Bytes that fill a frame up to the shortest one at most: all of its payload.
const ETHERNET_PADDING_MAX: usize = 46;

impl Expected {
    /// Bytes that may follow a message: over IPv6 two, over Ethernet what fills up a short frame.
    const fn trailer_max(&self) -> usize {
        match (self.plan.transport, self.master) {
            (Transport::Ethernet, _) => ETHERNET_PADDING_MAX,
            (Transport::Udp, IpAddr::V4(_)) => 0,
            (Transport::Udp, IpAddr::V6(_)) => IPV6_PADDING_LEN,
        }
    }

    /// What a message says to this lane; `None` where it is another one's.
    ///
    /// `client` is to whose address it came and `block` are the clients of the lane. Messages that
    /// do not tell whom they are for are the first lane's, unless they went to a group: there
    /// everybody's messages are seen, and those that cannot be told from others' are not judged.
    #[must_use]
    pub fn read(
        &self,
        payload: &[u8],
        client: Option<u32>,
        block: &LaneClients,
    ) -> Option<Result<(Header, Answer), InvalidReason>> {
        let by_address = match client {
            Some(client) if client < self.clients => block.has(client),
            _ => self.lane == 0,
        };
        let may_be_ours = by_address && !self.plan.multicast;
        let message = match self.parse(payload) {
            Ok(message) => message,
            Err(reason) => return may_be_ours.then_some(Err(reason)),
        };
        match message.body {
            Body::Signaling(target) if self.is_unicast() => {
                let of_a_lane = (1..=self.lanes).contains(&usize::from(target.port));
                let is_ours =
                    if of_a_lane { target.port == port_number(self.lane) } else { by_address };
                is_ours.then(|| self.grant(&message, target))
            }
            Body::Announce(_) | Body::Sync(_) | Body::FollowUp(_) if self.is_unicast() => {
                may_be_ours.then(|| {
                    self.check(&message)?;
                    Ok((message.header, Answer::Granted))
                })
            }
            _ if self.is_unicast() => may_be_ours.then_some(Err(InvalidReason::Mode)),
            Body::DelayResp { receive, requesting } => {
                let of_a_lane = (1..=self.lanes).contains(&usize::from(requesting.port));
                let is_ours = if of_a_lane || self.plan.multicast {
                    requesting.port == port_number(self.lane)
                } else {
                    by_address
                };
                is_ours.then(|| self.delay_resp(&message, receive, requesting))
            }
            Body::Sync(origin) if self.plan.kind == PtpKind::Nsm => {
                may_be_ours.then(|| self.sync(&message, origin))
            }
            Body::FollowUp(precise) if self.plan.kind == PtpKind::Nsm => may_be_ours.then(|| {
                self.check(&message)?;
                Ok((message.header, Answer::FollowUp { transmit_ns: instant(precise)? }))
            }),
            _ => may_be_ours.then_some(Err(InvalidReason::Mode)),
        }
    }

    /// A message with nothing behind it but what IPv6 asks for.
    fn parse<'a>(&self, payload: &'a [u8]) -> Result<Message<'a>, InvalidReason> {
        let (message, trailer) = Message::parse(payload).map_err(|error| match error {
            Malformed::Version => InvalidReason::Version,
            _ => InvalidReason::Length,
        })?;
        if trailer.len() > self.trailer_max() {
            return Err(InvalidReason::Length);
        }
        Ok(message)
    }

    /// What all answers have to have. Whose profile it is belongs to the domain (clause 7.1.1), and
    /// a message whose TLVs do not end where it does is malformed.
    fn check(&self, message: &Message<'_>) -> Result<(), InvalidReason> {
        let header = &message.header;
        if (header.domain, header.sdo_id) != (self.plan.domain, 0) {
            return Err(InvalidReason::Domain);
        }
        if header.flags.has(Flags::UNICAST) == self.plan.multicast {
            return Err(InvalidReason::Flags);
        }
        if message.tlvs().any(|tlv| tlv.is_err()) {
            return Err(InvalidReason::Length);
        }
        Ok(())
    }

    const fn is_unicast(&self) -> bool {
        matches!(self.plan.kind, PtpKind::Unicast(_))
    }

    fn grant(
        &self,
        message: &Message<'_>,
        target: PortIdentity,
    ) -> Result<(Header, Answer), InvalidReason> {
        self.check(message)?;
        if target.port != port_number(self.lane) {
            return Err(InvalidReason::Origin);
        }
        let token = target.clock;
        let told = message.tlvs().flatten().find_map(|tlv| match Unicast::from_tlv(&tlv)? {
            Ok(Unicast::Grant { kind, duration_s, .. }) => {
                Some(Answer::Grant { token, kind, duration_s })
            }
            Ok(Unicast::Cancel(ended)) => Some(Answer::Cancelled { token, kind: ended.kind }),
            _ => None,
        });
        told.map(|answer| (message.header, answer)).ok_or(InvalidReason::Contract)
    }

    fn sync(
        &self,
        message: &Message<'_>,
        origin: PtpTimestamp,
    ) -> Result<(Header, Answer), InvalidReason> {
        self.check(message)?;
        let is_two_step = message.header.flags.has(Flags::TWO_STEP);
        let transmit_ns = if is_two_step { None } else { Some(instant(origin)?) };
        Ok((message.header, Answer::Sync { transmit_ns }))
    }

    fn delay_resp(
        &self,
        message: &Message<'_>,
        receive: PtpTimestamp,
        requesting: PortIdentity,
    ) -> Result<(Header, Answer), InvalidReason> {
        self.check(message)?;
        if requesting.port != port_number(self.lane) {
            return Err(InvalidReason::Origin);
        }
        let receive_ns = instant(receive)?;
        let untraceable = match self.plan.kind {
            PtpKind::Nsm => !is_traceable(&monitor(message)?),
            PtpKind::Delay | PtpKind::Unicast(_) => false,
        };
        Ok((message.header, Answer::Delay { token: requesting.clock, receive_ns, untraceable }))
    }
}

/// NetSync Monitor's part of a `Delay_Resp`.
fn monitor<'a>(message: &Message<'a>) -> Result<Response<'a>, InvalidReason> {
    message
        .tlvs()
        .flatten()
        .find_map(|tlv| Response::from_tlv(&tlv))
        .and_then(Result::ok)
        .ok_or(InvalidReason::Monitor)
}

/// Whether the master's time or frequency comes from a primary reference (IEEE 1588-2019, clauses
/// 8.2.4.6 and 8.2.4.7).
const fn is_traceable(response: &Response<'_>) -> bool {
    let flags = Flags(response.time_flags as u16);
    flags.has(Flags::TIME_TRACEABLE) || flags.has(Flags::FREQUENCY_TRACEABLE)
}

/// A timestamp in ns, where it is one: not 0, whole, and before the year 2262.
fn instant(timestamp: PtpTimestamp) -> Result<i64, InvalidReason> {
    let ns = timestamp.is_normal().then(|| timestamp.since(PtpTimestamp::ZERO)).flatten();
    ns.filter(|&ns| ns > 0).ok_or(InvalidReason::Timestamp)
}

#[cfg(test)]
mod tests;
