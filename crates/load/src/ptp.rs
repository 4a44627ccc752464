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
use horolog_wire::ptp::message::STAMP_LEN;
use horolog_wire::ptp::monitor::{REQUEST_TLV, Response};
use horolog_wire::ptp::{
    self, Body, EVENT_PORT, Flags, GENERAL_PORT, Header, IPV6_PADDING_LEN, Message, NO_INTERVAL,
    PortIdentity, PtpTimestamp,
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

impl PtpPlan {
    /// What it is called in a result.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        match self.kind {
            PtpKind::Delay => Mode::PtpDelay,
            PtpKind::Nsm => Mode::PtpNsm,
        }
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

    /// The group that requests go to instead of the master, if they do.
    #[must_use]
    pub const fn group(&self, master: IpAddr) -> Option<IpAddr> {
        match master {
            _ if !self.multicast => None,
            IpAddr::V4(_) => Some(IpAddr::V4(ptp::MULTICAST_IPV4)),
            IpAddr::V6(_) => Some(IpAddr::V6(ptp::MULTICAST_IPV6)),
        }
    }

    /// Where requests for `master` go.
    #[must_use]
    pub fn destination(&self, master: IpAddr) -> SocketAddr {
        SocketAddr::new(self.group(master).unwrap_or(master), EVENT_PORT)
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
pub const REQUEST_LEN_MAX: usize = STAMP_LEN + REQUEST_TLV.len() + IPV6_PADDING_LEN;

/// A lane's request, as a UDP payload.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    bytes: [u8; REQUEST_LEN_MAX],
    len: usize,
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
        let suffix: &[u8] = match plan.kind {
            PtpKind::Delay => &[],
            PtpKind::Nsm => &REQUEST_TLV,
        };
        let message = Message { header, body: Body::DelayReq(PtpTimestamp::ZERO), suffix };
        let mut bytes = [0; REQUEST_LEN_MAX];
        let is_udp_ipv6 = plan.transport == Transport::Udp && master.is_ipv6();
        let padding = if is_udp_ipv6 { IPV6_PADDING_LEN } else { 0 };
        Self { len: message.emit(&mut bytes) + padding, bytes }
    }

    /// The request as it is.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The request with this token and number.
    pub fn ask(&mut self, token: u64, sequence_id: u16) -> &[u8] {
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

    /// What all answers have to have.
    fn check(&self, message: &Message<'_>) -> Result<(), InvalidReason> {
        if message.header.domain != self.plan.domain {
            return Err(InvalidReason::Domain);
        }
        if message.header.flags.has(Flags::UNICAST) == self.plan.multicast {
            return Err(InvalidReason::Flags);
        }
        Ok(())
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
            PtpKind::Delay => false,
            PtpKind::Nsm => !is_traceable(&monitor(message)?),
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
