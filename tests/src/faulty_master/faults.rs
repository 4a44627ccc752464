//! Faults of a PTP master: a change of the last message of a response, or other messages instead.

use std::time::Duration;

use horolog_record::InvalidReplyReason;
use horolog_wire::ptp::message::{DELAY_RESP_LEN, MANAGEMENT_LEN, TIMESTAMP_MESSAGE_LEN};
use horolog_wire::ptp::tlv::{UNICAST_LEN_MAX, UnicastCancellation, UnicastNegotiationTlv};
use horolog_wire::ptp::{
    HEADER_LEN, MessageType, PortIdentity, PtpFlags, SEQUENCE_ID_OFFSET, SOURCE_OFFSET,
};

use super::FaultOutcome;
use crate::faulty_server::{ExpectedFinding, LATE};
use crate::ptp_messages::{Datagram, PtpRequest, RequestKind, SourceSocket, monitor_suffix};

/// Request with the requests before it.
pub(super) struct Context<'a> {
    pub(super) request: &'a PtpRequest,
    /// Previous request.
    pub(super) before: Option<&'a PtpRequest>,
    /// Last request of another client.
    pub(super) other: Option<&'a PtpRequest>,
}

/// Action of a faulty master; `None` if a request gives no occasion for the fault.
#[derive(Clone, Copy)]
pub(super) enum FaultAction {
    /// Changes the last message of the correct response.
    Change(fn(&mut Vec<u8>)),
    /// Sends other messages instead.
    Send(fn(&Context<'_>) -> Option<Vec<Datagram>>),
}

impl FaultAction {
    /// Returns the messages to send in reply to this request.
    pub(super) fn responses(self, context: &Context<'_>) -> Option<Vec<Datagram>> {
        match self {
            Self::Send(make) => make(context),
            Self::Change(change) => {
                let mut all = context.request.correct_response();
                change(&mut all.last_mut()?.payload);
                Some(all)
            }
        }
    }
}

/// Kind of fault: name, expected outcome and action.
pub(super) type Fault = (&'static str, FaultOutcome, FaultAction);

const fn invalid(reason: InvalidReplyReason) -> FaultOutcome {
    FaultOutcome::Common(ExpectedFinding::Invalid(reason))
}

const fn change_fault(
    name: &'static str,
    reason: InvalidReplyReason,
    change: fn(&mut Vec<u8>),
) -> Fault {
    (name, invalid(reason), FaultAction::Change(change))
}

const fn send_fault(
    name: &'static str,
    outcome: FaultOutcome,
    make: fn(&Context<'_>) -> Option<Vec<Datagram>>,
) -> Fault {
    (name, outcome, FaultAction::Send(make))
}

const NOTHING: FaultOutcome = FaultOutcome::Common(ExpectedFinding::Nothing);
const LOSS: FaultOutcome = FaultOutcome::Common(ExpectedFinding::Loss);

/// Offsets of domain, flags and fields of a timestamp in a message, in bytes.
const DOMAIN_OFFSET: usize = 4;
const FLAGS_OFFSET: usize = 6;
const SECONDS: std::ops::Range<usize> = HEADER_LEN..HEADER_LEN + 6;
const NANOSECONDS: std::ops::Range<usize> = TIMESTAMP_MESSAGE_LEN - 4..TIMESTAMP_MESSAGE_LEN;

fn set_length(message: &mut [u8], length: usize) {
    message[2..4].copy_from_slice(&(length as u16).to_be_bytes());
}

/// Appends bytes to a message, and includes them in its length.
fn append(message: &mut Vec<u8>, more: &[u8]) {
    message.extend(more);
    let length = message.len();
    set_length(message, length);
}

/// Sets the message type.
fn retype(message: &mut [u8], kind: u8) {
    message[0] = message[0] & 0xf0 | kind;
}

/// Faults of any message.
pub(super) const MESSAGE_FAULTS: [Fault; 24] = [
    change_fault("empty", InvalidReplyReason::Length, Vec::clear),
    change_fault("cut off in its header", InvalidReplyReason::Length, |m| {
        m.truncate(HEADER_LEN - 1);
    }),
    change_fault("cut off after its header", InvalidReplyReason::Length, |m| {
        m.truncate(HEADER_LEN);
    }),
    change_fault("a byte short", InvalidReplyReason::Length, |m| m.truncate(m.len() - 1)),
    change_fault("trailing bytes", InvalidReplyReason::Length, |m| m.extend([0xa5; 20])),
    change_fault("maximum length", InvalidReplyReason::Length, |m| m.resize(1_452, 0xa5)),
    change_fault("no length", InvalidReplyReason::Length, |m| set_length(m, 0)),
    change_fault("a length within its header", InvalidReplyReason::Length, |m| {
        set_length(m, HEADER_LEN - 1);
    }),
    change_fault("a length within its body", InvalidReplyReason::Length, |m| {
        set_length(m, HEADER_LEN + 9);
    }),
    change_fault("a length beyond its end", InvalidReplyReason::Length, |m| {
        let length = m.len() + 1;
        set_length(m, length);
    }),
    change_fault("trailing garbage within its length", InvalidReplyReason::Length, |m| {
        append(m, &[0xff; 9]);
    }),
    change_fault("half a TLV", InvalidReplyReason::Length, |m| append(m, &[0x7f, 0])),
    change_fault("a TLV of an odd length", InvalidReplyReason::Length, |m| {
        append(m, &[0x7f, 0, 0, 1, 0]);
    }),
    (
        "an unknown TLV",
        NOTHING,
        FaultAction::Change(|m| {
            let mut tlv = vec![0; 4 + 0x300];
            tlv[..4].copy_from_slice(&[0x7f, 0, 3, 0]);
            append(m, &tlv);
        }),
    ),
    change_fault("a request", InvalidReplyReason::Mode, |m| retype(m, 0x1)),
    change_fault("management", InvalidReplyReason::Mode, |m| {
        m.resize(MANAGEMENT_LEN, 0);
        set_length(m, MANAGEMENT_LEN);
        retype(m, 0xd);
    }),
    change_fault("a reserved type", InvalidReplyReason::Mode, |m| retype(m, 0x5)),
    change_fault("version 1", InvalidReplyReason::Version, |m| m[1] = 1),
    change_fault("version 3", InvalidReplyReason::Version, |m| m[1] = 3),
    change_fault("another domain", InvalidReplyReason::Domain, |m| m[DOMAIN_OFFSET] ^= 1),
    change_fault("another profile", InvalidReplyReason::Domain, |m| m[0] |= 0x10),
    change_fault("without the unicast flag", InvalidReplyReason::Flags, |m| {
        m[FLAGS_OFFSET] &= !((PtpFlags::UNICAST.0 >> 8) as u8);
    }),
    change_fault("another clock", InvalidReplyReason::Source, |m| m[SOURCE_OFFSET] ^= 1),
    change_fault("another port of the clock", InvalidReplyReason::Source, |m| {
        m[SOURCE_OFFSET + 9] ^= 2;
    }),
];

/// Faults in the delivery of any message.
pub(super) const DELIVERY_FAULTS: [Fault; 6] = [
    send_fault("unanswered", LOSS, |_| Some(Vec::new())),
    send_fault("twice", FaultOutcome::Common(ExpectedFinding::Duplicate), |context| {
        let mut all = context.request.correct_response();
        all.extend(all.last().cloned());
        Some(all)
    }),
    send_fault("replayed", FaultOutcome::Common(ExpectedFinding::Replay), |context| {
        context.before?.correct_response().pop().map(|last| vec![last])
    }),
    send_fault("out of order", NOTHING, |context| {
        Some(redelivered(context, |last| last.delay = Duration::from_millis(7)))
    }),
    send_fault("from another port", LOSS, |context| {
        Some(redelivered(context, |last| last.from = SourceSocket::OtherPort))
    }),
    send_fault("from another address", LOSS, |context| {
        Some(redelivered(context, |last| last.from = SourceSocket::OtherAddress))
    }),
];

/// Returns the correct response with a changed delivery of its last message.
fn redelivered(context: &Context<'_>, change: fn(&mut Datagram)) -> Vec<Datagram> {
    let mut all = context.request.correct_response();
    all.last_mut().into_iter().for_each(change);
    all
}

/// Faults of a timestamp.
pub(super) const TIMESTAMP_FAULTS: [Fault; 3] = [
    change_fault("no time", InvalidReplyReason::Timestamp, |m| {
        m[HEADER_LEN..TIMESTAMP_MESSAGE_LEN].fill(0);
    }),
    change_fault("a second of 10^9 ns", InvalidReplyReason::Timestamp, |m| {
        m[NANOSECONDS].copy_from_slice(&1_000_000_000_u32.to_be_bytes());
    }),
    change_fault("after the end of time", InvalidReplyReason::Timestamp, |m| m[SECONDS].fill(0xff)),
];

/// Faults of a sequence number.
pub(super) const SEQUENCE_FAULTS: [Fault; 1] =
    [change_fault("an unknown sequence number", InvalidReplyReason::Sequence, |m| {
        m[SEQUENCE_ID_OFFSET] ^= 0x40;
    })];

/// Returns a delay response to another port.
fn delay_to_port(context: &Context<'_>, requesting: PortIdentity) -> Vec<Datagram> {
    vec![context.request.delay(requesting, &[])]
}

/// Faults of a delay response alone.
pub(super) const DELAY_RESPONSE_FAULTS: [Fault; 4] = [
    send_fault("late", FaultOutcome::Common(ExpectedFinding::Late), |context| {
        Some(redelivered(context, |last| last.delay = LATE))
    }),
    send_fault("to another clock", invalid(InvalidReplyReason::Origin), |context| {
        // This bit selects one of a request's two timestamps.
        let PortIdentity { clock, port } = context.request.port;
        Some(delay_to_port(context, PortIdentity { clock: clock ^ 1, port }))
    }),
    send_fault("to another port", invalid(InvalidReplyReason::Origin), |context| {
        Some(delay_to_port(context, PortIdentity { port: 77, ..context.request.port }))
    }),
    change_fault("a Sync", InvalidReplyReason::Mode, |m| {
        m.truncate(TIMESTAMP_MESSAGE_LEN);
        set_length(m, TIMESTAMP_MESSAGE_LEN);
        retype(m, 0x0);
    }),
];

/// Faults that need several clients.
pub(super) const CLIENT_FAULTS: [Fault; 1] =
    [send_fault("another client's answer", invalid(InvalidReplyReason::Client), |context| {
        let mut last = context.other?.correct_response().pop()?;
        last.to.set_ip(context.request.from);
        Some(vec![last])
    })];

/// Returns the correct NetSync Monitor response without one of its messages.
fn without_message(context: &Context<'_>, which: usize) -> Vec<Datagram> {
    let mut all = context.request.correct_response();
    all.remove(which);
    all
}

/// Returns the correct NetSync Monitor response with other TLVs in its delay response.
fn with_suffix(context: &Context<'_>, suffix: &[u8]) -> Vec<Datagram> {
    let mut all = context.request.correct_response();
    all[0] = context.request.delay(context.request.port, suffix);
    all
}

/// Faults of a whole NetSync Monitor response.
pub(super) const MONITOR_FAULTS: [Fault; 10] = [
    send_fault("no delay response", FaultOutcome::NoDelay, |context| {
        Some(without_message(context, 0))
    }),
    send_fault("no Sync", FaultOutcome::NoSync, |context| Some(without_message(context, 1))),
    send_fault("no follow-up", FaultOutcome::NoSync, |context| Some(without_message(context, 2))),
    send_fault("a delay response and nothing else", FaultOutcome::NoSync, |context| {
        Some(without_message(context, 2).into_iter().take(1).collect())
    }),
    send_fault("the other way round", NOTHING, |context| {
        let mut all = context.request.correct_response();
        all.reverse();
        Some(all)
    }),
    send_fault("without the monitor TLV", invalid(InvalidReplyReason::Monitor), |context| {
        Some(with_suffix(context, &[]))
    }),
    send_fault("a short monitor TLV", invalid(InvalidReplyReason::Monitor), |context| {
        Some(with_suffix(context, &[0x21, 0xff, 0, 2, 6, 0]))
    }),
    send_fault(
        "traceable to nothing",
        FaultOutcome::Common(ExpectedFinding::Unsynchronised),
        |context| Some(with_suffix(context, &monitor_suffix(PtpFlags::default()))),
    ),
    change_fault("sent before the request", InvalidReplyReason::Timestamp, |m| {
        m[NANOSECONDS].copy_from_slice(&1_000_u32.to_be_bytes());
    }),
    send_fault("a Sync of another domain", invalid(InvalidReplyReason::Domain), |context| {
        let mut all = context.request.correct_response();
        all[1].payload[DOMAIN_OFFSET] ^= 1;
        Some(all)
    }),
];

/// Faults of NetSync Monitor that need several clients: only the sequence number identifies the
/// client of a `Follow_Up`.
pub(super) const MONITOR_CLIENT_FAULTS: [Fault; 1] =
    [send_fault("another client's follow-up", invalid(InvalidReplyReason::Sequence), |context| {
        let mut all = context.request.correct_response();
        let mut other = context.other?.correct_response().pop()?;
        other.to.set_ip(context.request.from);
        *all.last_mut()? = other;
        Some(all)
    })];

/// Returns a signaling message with one TLV in reply to a unicast request.
fn signaling_reply(
    context: &Context<'_>,
    make: fn(&PtpRequest, MessageType, u32) -> UnicastNegotiationTlv,
) -> Option<Vec<Datagram>> {
    let RequestKind::Messages { kind, duration_s, .. } = context.request.kind else {
        return None;
    };
    Some(vec![context.request.negotiation(make(context.request, kind, duration_s))])
}

const fn cancellation(kind: MessageType) -> UnicastCancellation {
    UnicastCancellation { kind, maintain_request: false, maintain_grant: false }
}

/// Returns the grant of a unicast request, addressed to another port.
fn grant_to_port(context: &Context<'_>, target: PortIdentity) -> Option<Vec<Datagram>> {
    let RequestKind::Messages { kind, duration_s, .. } = context.request.kind else {
        return None;
    };
    let mut tlv = [0; UNICAST_LEN_MAX];
    let length = context.request.grant(kind, duration_s).emit(&mut tlv);
    Some(vec![context.request.signaling(target, &tlv[..length])])
}

/// Faults of a unicast negotiation alone.
pub(super) const NEGOTIATION_FAULTS: [Fault; 15] = [
    send_fault("late", FaultOutcome::Common(ExpectedFinding::Late), |context| {
        Some(redelivered(context, |last| last.delay = LATE))
    }),
    send_fault("denied", FaultOutcome::Denied, |context| {
        signaling_reply(context, |request, kind, _| request.grant(kind, 0))
    }),
    send_fault("grants other messages", invalid(InvalidReplyReason::UnicastTerms), |context| {
        signaling_reply(context, |request, _, duration_s| {
            request.grant(MessageType::Management, duration_s)
        })
    }),
    send_fault("denies other messages", invalid(InvalidReplyReason::UnicastTerms), |context| {
        signaling_reply(context, |request, _, _| request.grant(MessageType::FollowUp, 0))
    }),
    send_fault("requests as well", invalid(InvalidReplyReason::UnicastTerms), |context| {
        signaling_reply(context, |_, kind, duration_s| UnicastNegotiationTlv::Request {
            kind,
            log_interval: 0,
            duration_s,
        })
    }),
    send_fault("cancels without a grant", FaultOutcome::CancelledOnly, |context| {
        signaling_reply(context, |_, kind, _| UnicastNegotiationTlv::Cancel(cancellation(kind)))
    }),
    send_fault("cancels its grant", FaultOutcome::Cancelled, |context| {
        let cancel = signaling_reply(context, |_, kind, _| {
            UnicastNegotiationTlv::Cancel(cancellation(kind))
        })?;
        Some([context.request.correct_response(), cancel].concat())
    }),
    send_fault("cancels other messages", invalid(InvalidReplyReason::UnicastTerms), |context| {
        signaling_reply(context, |_, _, _| {
            UnicastNegotiationTlv::Cancel(cancellation(MessageType::Management))
        })
    }),
    send_fault(
        "acknowledges a cancellation",
        invalid(InvalidReplyReason::UnicastTerms),
        |context| {
            signaling_reply(context, |_, kind, _| {
                UnicastNegotiationTlv::AcknowledgeCancel(cancellation(kind))
            })
        },
    ),
    send_fault("signaling without a TLV", invalid(InvalidReplyReason::UnicastTerms), |context| {
        Some(vec![context.request.signaling(context.request.port, &[])])
    }),
    send_fault("a grant that is too short", invalid(InvalidReplyReason::UnicastTerms), |context| {
        Some(vec![context.request.signaling(context.request.port, &[0, 5, 0, 2, 0xb0, 0])])
    }),
    send_fault("grants a reserved type", invalid(InvalidReplyReason::UnicastTerms), |context| {
        let tlv = [0, 5, 0, 8, 0x50, 0, 0, 0, 0, 9, 0, 1];
        Some(vec![context.request.signaling(context.request.port, &tlv)])
    }),
    send_fault("to another clock", invalid(InvalidReplyReason::Origin), |context| {
        let PortIdentity { clock, port } = context.request.port;
        grant_to_port(context, PortIdentity { clock: clock ^ 1, port })
    }),
    send_fault("to all ports", invalid(InvalidReplyReason::Origin), |context| {
        grant_to_port(context, PortIdentity::ALL)
    }),
    change_fault("a delay response", InvalidReplyReason::Mode, |m| {
        m.truncate(DELAY_RESP_LEN);
        set_length(m, DELAY_RESP_LEN);
        retype(m, 0x9);
    }),
];
