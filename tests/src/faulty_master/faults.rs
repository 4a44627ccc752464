//! The faults, each a change of the last message that a request is owed, or other messages instead.

use std::time::Duration;

use horolog_record::InvalidReplyReason;
use horolog_wire::ptp::message::{DELAY_RESP_LEN, MANAGEMENT_LEN, TIMESTAMP_MESSAGE_LEN};
use horolog_wire::ptp::tlv::{UNICAST_LEN_MAX, UnicastCancellation, UnicastNegotiationTlv};
use horolog_wire::ptp::{
    HEADER_LEN, MessageType, PortIdentity, PtpFlags, SEQUENCE_ID_OFFSET, SOURCE_OFFSET,
};

use super::FaultOutcome;
use crate::faulty_server::{ExpectedFinding, LATE};
use crate::ptp_messages::{Datagram, From, PtpRequest, RequestKind, monitor_suffix};

/// A request, and what is known of others.
pub(super) struct Context<'a> {
    pub(super) request: &'a PtpRequest,
    /// The request before.
    pub(super) before: Option<&'a PtpRequest>,
    /// The last one of another client.
    pub(super) other: Option<&'a PtpRequest>,
}

/// What a master does; `None` where a request gives no occasion for it.
#[derive(Clone, Copy)]
pub(super) enum FaultAction {
    /// Changes the last message that the request is owed.
    Change(fn(&mut Vec<u8>)),
    /// Sends something else.
    Send(fn(&Context<'_>) -> Option<Vec<Datagram>>),
}

impl FaultAction {
    /// What is sent to this request.
    pub(super) fn answers(self, context: &Context<'_>) -> Option<Vec<Datagram>> {
        match self {
            Self::Send(make) => make(context),
            Self::Change(change) => {
                let mut all = context.request.right();
                change(&mut all.last_mut()?.payload);
                Some(all)
            }
        }
    }
}

/// A kind of fault: its name, what is to be found of it, and how it is committed.
pub(super) type Fault = (&'static str, FaultOutcome, FaultAction);

const fn invalid(reason: InvalidReplyReason) -> FaultOutcome {
    FaultOutcome::As(ExpectedFinding::Invalid(reason))
}

const fn changed(
    name: &'static str,
    reason: InvalidReplyReason,
    change: fn(&mut Vec<u8>),
) -> Fault {
    (name, invalid(reason), FaultAction::Change(change))
}

const fn sent(
    name: &'static str,
    outcome: FaultOutcome,
    make: fn(&Context<'_>) -> Option<Vec<Datagram>>,
) -> Fault {
    (name, outcome, FaultAction::Send(make))
}

const NOTHING: FaultOutcome = FaultOutcome::As(ExpectedFinding::Nothing);
const LOSS: FaultOutcome = FaultOutcome::As(ExpectedFinding::Loss);

/// Where the domain, the flags and the seconds of a timestamp stand in a message, in bytes.
const DOMAIN_OFFSET: usize = 4;
const FLAGS_OFFSET: usize = 6;
const SECONDS: std::ops::Range<usize> = HEADER_LEN..HEADER_LEN + 6;
const NANOSECONDS: std::ops::Range<usize> = TIMESTAMP_MESSAGE_LEN - 4..TIMESTAMP_MESSAGE_LEN;

fn set_length(message: &mut [u8], length: usize) {
    message[2..4].copy_from_slice(&(length as u16).to_be_bytes());
}

/// Puts something at the end of a message that belongs to it.
fn append(message: &mut Vec<u8>, more: &[u8]) {
    message.extend(more);
    let length = message.len();
    set_length(message, length);
}

/// Makes it one of another type.
fn retype(message: &mut [u8], kind: u8) {
    message[0] = message[0] & 0xf0 | kind;
}

/// What can be wrong with any message.
pub(super) const OF_ANY: [Fault; 24] = [
    changed("nothing in it", InvalidReplyReason::Length, Vec::clear),
    changed("cut off in its header", InvalidReplyReason::Length, |m| m.truncate(HEADER_LEN - 1)),
    changed("cut off behind its header", InvalidReplyReason::Length, |m| m.truncate(HEADER_LEN)),
    changed("a byte short", InvalidReplyReason::Length, |m| m.truncate(m.len() - 1)),
    changed("more behind it", InvalidReplyReason::Length, |m| m.extend([0xa5; 20])),
    changed("as long as can be", InvalidReplyReason::Length, |m| m.resize(1_452, 0xa5)),
    changed("no length", InvalidReplyReason::Length, |m| set_length(m, 0)),
    changed("a length within its header", InvalidReplyReason::Length, |m| {
        set_length(m, HEADER_LEN - 1);
    }),
    changed("a length within its body", InvalidReplyReason::Length, |m| {
        set_length(m, HEADER_LEN + 9);
    }),
    changed("a length beyond its end", InvalidReplyReason::Length, |m| {
        let length = m.len() + 1;
        set_length(m, length);
    }),
    changed("garbage behind it that it counts", InvalidReplyReason::Length, |m| {
        append(m, &[0xff; 9]);
    }),
    changed("half a TLV", InvalidReplyReason::Length, |m| append(m, &[0x7f, 0])),
    changed("a TLV of an odd length", InvalidReplyReason::Length, |m| {
        append(m, &[0x7f, 0, 0, 1, 0]);
    }),
    (
        "a TLV that nobody knows",
        NOTHING,
        FaultAction::Change(|m| {
            let mut tlv = vec![0; 4 + 0x300];
            tlv[..4].copy_from_slice(&[0x7f, 0, 3, 0]);
            append(m, &tlv);
        }),
    ),
    changed("a request", InvalidReplyReason::Mode, |m| retype(m, 0x1)),
    changed("management", InvalidReplyReason::Mode, |m| {
        m.resize(MANAGEMENT_LEN, 0);
        set_length(m, MANAGEMENT_LEN);
        retype(m, 0xd);
    }),
    changed("a reserved type", InvalidReplyReason::Mode, |m| retype(m, 0x5)),
    changed("version 1", InvalidReplyReason::Version, |m| m[1] = 1),
    changed("version 3", InvalidReplyReason::Version, |m| m[1] = 3),
    changed("another domain", InvalidReplyReason::Domain, |m| m[DOMAIN_OFFSET] ^= 1),
    changed("another profile", InvalidReplyReason::Domain, |m| m[0] |= 0x10),
    changed("for everybody", InvalidReplyReason::Flags, |m| {
        m[FLAGS_OFFSET] &= !((PtpFlags::UNICAST.0 >> 8) as u8);
    }),
    changed("another clock", InvalidReplyReason::Source, |m| m[SOURCE_OFFSET] ^= 1),
    changed("another port of the clock", InvalidReplyReason::Source, |m| m[SOURCE_OFFSET + 9] ^= 2),
];

/// What can be wrong with the way of any message.
pub(super) const OF_THE_WAY: [Fault; 6] = [
    sent("silent", LOSS, |_| Some(Vec::new())),
    sent("twice", FaultOutcome::As(ExpectedFinding::Duplicate), |context| {
        let mut all = context.request.right();
        all.extend(all.last().cloned());
        Some(all)
    }),
    sent("replayed", FaultOutcome::As(ExpectedFinding::Replay), |context| {
        context.before?.right().pop().map(|last| vec![last])
    }),
    sent("out of order", NOTHING, |context| {
        Some(moved(context, |last| last.after = Duration::from_millis(7)))
    }),
    sent("from another port", LOSS, |context| {
        Some(moved(context, |last| last.from = From::OtherPort))
    }),
    sent("from another address", LOSS, |context| {
        Some(moved(context, |last| last.from = From::OtherAddress))
    }),
];

/// All that a request is owed, the last of it on another way.
fn moved(context: &Context<'_>, change: fn(&mut Datagram)) -> Vec<Datagram> {
    let mut all = context.request.right();
    all.last_mut().into_iter().for_each(change);
    all
}

/// What can be wrong with a timestamp.
pub(super) const OF_A_TIME: [Fault; 3] = [
    changed("no time", InvalidReplyReason::Timestamp, |m| {
        m[HEADER_LEN..TIMESTAMP_MESSAGE_LEN].fill(0);
    }),
    changed("a second of 10^9 ns", InvalidReplyReason::Timestamp, |m| {
        m[NANOSECONDS].copy_from_slice(&1_000_000_000_u32.to_be_bytes());
    }),
    changed("after the end of time", InvalidReplyReason::Timestamp, |m| m[SECONDS].fill(0xff)),
];

/// What can be wrong with the number of an answer.
pub(super) const OF_A_NUMBER: [Fault; 1] =
    [changed("the number of no request", InvalidReplyReason::Sequence, |m| {
        m[SEQUENCE_ID_OFFSET] ^= 0x40;
    })];

/// A delay response to somebody else.
fn to_another(context: &Context<'_>, requesting: PortIdentity) -> Vec<Datagram> {
    vec![context.request.delay(requesting, &[])]
}

/// What can be wrong with a delay response alone.
pub(super) const OF_A_DELAY: [Fault; 4] = [
    sent("late", FaultOutcome::As(ExpectedFinding::Late), |context| {
        Some(moved(context, |last| last.after = LATE))
    }),
    sent("of a clock that did not ask", invalid(InvalidReplyReason::Origin), |context| {
        // The bit that tells which of a request's timestamps it is.
        let PortIdentity { clock, port } = context.request.port;
        Some(to_another(context, PortIdentity { clock: clock ^ 1, port }))
    }),
    sent("of a port that did not ask", invalid(InvalidReplyReason::Origin), |context| {
        Some(to_another(context, PortIdentity { port: 77, ..context.request.port }))
    }),
    changed("a Sync", InvalidReplyReason::Mode, |m| {
        m.truncate(TIMESTAMP_MESSAGE_LEN);
        set_length(m, TIMESTAMP_MESSAGE_LEN);
        retype(m, 0x0);
    }),
];

/// What takes several clients.
pub(super) const OF_CLIENTS: [Fault; 1] =
    [sent("another client's answer", invalid(InvalidReplyReason::Client), |context| {
        let mut last = context.other?.right().pop()?;
        last.to.set_ip(context.request.from);
        Some(vec![last])
    })];

/// The messages that NetSync Monitor owes, but one of them.
fn without(context: &Context<'_>, which: usize) -> Vec<Datagram> {
    let mut all = context.request.right();
    all.remove(which);
    all
}

/// The same with another delay response: one with these TLVs.
fn with_suffix(context: &Context<'_>, suffix: &[u8]) -> Vec<Datagram> {
    let mut all = context.request.right();
    all[0] = context.request.delay(context.request.port, suffix);
    all
}

/// What can be wrong with NetSync Monitor's answers as a whole.
pub(super) const OF_MONITOR: [Fault; 10] = [
    sent("no delay response", FaultOutcome::NoDelay, |context| Some(without(context, 0))),
    sent("no Sync", FaultOutcome::NoSync, |context| Some(without(context, 1))),
    sent("no follow-up", FaultOutcome::NoSync, |context| Some(without(context, 2))),
    sent("a delay response and nothing else", FaultOutcome::NoSync, |context| {
        Some(without(context, 2).into_iter().take(1).collect())
    }),
    sent("the other way round", NOTHING, |context| {
        let mut all = context.request.right();
        all.reverse();
        Some(all)
    }),
    sent("nothing of the master", invalid(InvalidReplyReason::Monitor), |context| {
        Some(with_suffix(context, &[]))
    }),
    sent("too little of the master", invalid(InvalidReplyReason::Monitor), |context| {
        Some(with_suffix(context, &[0x21, 0xff, 0, 2, 6, 0]))
    }),
    sent("traceable to nothing", FaultOutcome::As(ExpectedFinding::Unsynchronised), |context| {
        Some(with_suffix(context, &monitor_suffix(PtpFlags::default())))
    }),
    changed("sent before it was asked for", InvalidReplyReason::Timestamp, |m| {
        m[NANOSECONDS].copy_from_slice(&1_000_u32.to_be_bytes());
    }),
    sent("a Sync of another domain", invalid(InvalidReplyReason::Domain), |context| {
        let mut all = context.request.right();
        all[1].payload[DOMAIN_OFFSET] ^= 1;
        Some(all)
    }),
];

/// What another client is owed in NetSync Monitor: nothing in it tells whose it is but its number.
pub(super) const OF_MONITORS_CLIENTS: [Fault; 1] =
    [sent("another client's follow-up", invalid(InvalidReplyReason::Sequence), |context| {
        let mut all = context.request.right();
        let mut other = context.other?.right().pop()?;
        other.to.set_ip(context.request.from);
        *all.last_mut()? = other;
        Some(all)
    })];

/// What is asked for, and the answer to it by one TLV.
fn negotiated(
    context: &Context<'_>,
    make: fn(&PtpRequest, MessageType, u32) -> UnicastNegotiationTlv,
) -> Option<Vec<Datagram>> {
    let RequestKind::Messages { kind, duration_s, .. } = context.request.wanted else {
        return None;
    };
    Some(vec![context.request.negotiation(make(context.request, kind, duration_s))])
}

const fn ended(kind: MessageType) -> UnicastCancellation {
    UnicastCancellation { kind, maintain_request: false, maintain_grant: false }
}

/// What is asked for, granted to somebody else.
fn to_another_port(context: &Context<'_>, target: PortIdentity) -> Option<Vec<Datagram>> {
    let RequestKind::Messages { kind, duration_s, .. } = context.request.wanted else {
        return None;
    };
    let mut tlv = [0; UNICAST_LEN_MAX];
    let length = context.request.grant(kind, duration_s).emit(&mut tlv);
    Some(vec![context.request.signaling(target, &tlv[..length])])
}

/// What can be wrong with a negotiation alone.
pub(super) const OF_A_NEGOTIATION: [Fault; 15] = [
    sent("late", FaultOutcome::As(ExpectedFinding::Late), |context| {
        Some(moved(context, |last| last.after = LATE))
    }),
    sent("denied", FaultOutcome::Denied, |context| {
        negotiated(context, |request, kind, _| request.grant(kind, 0))
    }),
    sent("grants others", invalid(InvalidReplyReason::UnicastTerms), |context| {
        negotiated(context, |request, _, duration_s| {
            request.grant(MessageType::Management, duration_s)
        })
    }),
    sent("denies others", invalid(InvalidReplyReason::UnicastTerms), |context| {
        negotiated(context, |request, _, _| request.grant(MessageType::FollowUp, 0))
    }),
    sent("asks as well", invalid(InvalidReplyReason::UnicastTerms), |context| {
        negotiated(context, |_, kind, duration_s| UnicastNegotiationTlv::Request {
            kind,
            log_interval: 0,
            duration_s,
        })
    }),
    sent("takes back what it did not grant", FaultOutcome::TakenBackOnly, |context| {
        negotiated(context, |_, kind, _| UnicastNegotiationTlv::Cancel(ended(kind)))
    }),
    sent("takes back what it granted", FaultOutcome::TakenBack, |context| {
        let cancel = negotiated(context, |_, kind, _| UnicastNegotiationTlv::Cancel(ended(kind)))?;
        Some([context.request.right(), cancel].concat())
    }),
    sent("takes others back", invalid(InvalidReplyReason::UnicastTerms), |context| {
        negotiated(context, |_, _, _| UnicastNegotiationTlv::Cancel(ended(MessageType::Management)))
    }),
    sent("acknowledges an end", invalid(InvalidReplyReason::UnicastTerms), |context| {
        negotiated(context, |_, kind, _| UnicastNegotiationTlv::AcknowledgeCancel(ended(kind)))
    }),
    sent("says nothing", invalid(InvalidReplyReason::UnicastTerms), |context| {
        Some(vec![context.request.signaling(context.request.port, &[])])
    }),
    sent("a grant that is too short", invalid(InvalidReplyReason::UnicastTerms), |context| {
        Some(vec![context.request.signaling(context.request.port, &[0, 5, 0, 2, 0xb0, 0])])
    }),
    sent("grants a reserved type", invalid(InvalidReplyReason::UnicastTerms), |context| {
        let tlv = [0, 5, 0, 8, 0x50, 0, 0, 0, 0, 9, 0, 1];
        Some(vec![context.request.signaling(context.request.port, &tlv)])
    }),
    sent("a clock that did not ask", invalid(InvalidReplyReason::Origin), |context| {
        let PortIdentity { clock, port } = context.request.port;
        to_another_port(context, PortIdentity { clock: clock ^ 1, port })
    }),
    sent("to all ports", invalid(InvalidReplyReason::Origin), |context| {
        to_another_port(context, PortIdentity::ALL)
    }),
    changed("a delay response", InvalidReplyReason::Mode, |m| {
        m.truncate(DELAY_RESP_LEN);
        set_length(m, DELAY_RESP_LEN);
        retype(m, 0x9);
    }),
];
