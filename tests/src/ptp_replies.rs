//! Responses of a PTP master for both verifiers of the generator: correct ones in every order, and
//! ones with each possible fault. A request is given as sent, and a response is bytes.

use horolog_load::token::RequestId;
use horolog_record::InvalidReplyReason;
use horolog_wire::ptp::message::{
    DELAY_RESP_LEN, MANAGEMENT_LEN, PDELAY_LEN, TIMESTAMP_MESSAGE_LEN,
};
use horolog_wire::ptp::monitor::{CurrentDataSet, NetSyncMonitorResponse, ParentDataSet};
use horolog_wire::ptp::{
    EVENT_PORT, GENERAL_PORT, HEADER_LEN, Header, Message, PortIdentity, PtpFlags, PtpMessageBody,
    PtpTimestamp, SEQUENCE_ID_OFFSET, SOURCE_OFFSET,
};

use crate::generator::GeneratorRun;
use crate::random::Random;

/// Port identity of the master.
const MASTER: PortIdentity = PortIdentity { clock: 0x0200_00ff_fe00_0001, port: 1 };

/// Offsets of the fields of a message that faults change, in bytes.
const DOMAIN_OFFSET: usize = 4;
const MINOR_SDO_OFFSET: usize = 5;
const FLAGS_OFFSET: usize = 6;
const NANOSECONDS_OFFSET: usize = TIMESTAMP_MESSAGE_LEN - 4;

/// Request as received by the master.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PtpRequest {
    pub(crate) client: u32,
    pub(crate) request_id: RequestId,
    /// Requesting port: the bits of the token, and the number of the lane.
    pub(crate) requesting: PortIdentity,
}

/// Message of a response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PtpResponse {
    /// UDP port of both ends.
    pub(crate) port: u16,
    /// Client to whose address the message is sent.
    pub(crate) client: u32,
    pub(crate) bytes: Vec<u8>,
}

/// Kind of a message of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ResponseKind {
    Delay,
    /// Two-step Sync.
    Sync,
    FollowUp,
    /// Sync with its own timestamp.
    OneStep,
}

/// Master that makes random responses.
pub(crate) struct Master<'a> {
    pub(crate) world: &'a GeneratorRun,
    pub(crate) random: &'a mut Random,
}

impl Master<'_> {
    /// Returns the only message of a response to a delay request.
    pub(crate) fn delay(&mut self, request: &PtpRequest) -> PtpResponse {
        let times = self.timestamps();
        self.response(request, ResponseKind::Delay, times)
    }

    /// Returns all messages of a NetSync Monitor response, in random order.
    pub(crate) fn monitor_response(&mut self, request: &PtpRequest) -> Vec<PtpResponse> {
        let one_step = self.random.pick(&[true, false]);
        let parts: &[ResponseKind] = if one_step {
            &[ResponseKind::Delay, ResponseKind::OneStep]
        } else {
            &[ResponseKind::Delay, ResponseKind::Sync, ResponseKind::FollowUp]
        };
        let times = self.timestamps();
        let mut answers: Vec<_> =
            parts.iter().map(|&part| self.response(request, part, times)).collect();
        for at in (1..answers.len()).rev() {
            answers.swap(at, self.random.within(0..=at as u64) as usize);
        }
        answers
    }

    /// Returns timestamps of a received request and its sent Sync.
    pub(crate) fn timestamps(&mut self) -> (PtpTimestamp, PtpTimestamp) {
        let seconds = self.random.within(1..=4_000_000_000);
        let receive = PtpTimestamp::new(seconds, self.random.within(0..=999_999_999) as u32);
        // Intervals of all magnitudes up to 4 s are equally frequent.
        let bits = self.random.within(0..=32);
        let ns = u64::from(receive.nanoseconds()) + (self.random.next() & ((1 << bits) - 1));
        let transmit = PtpTimestamp::new(seconds + ns / 1_000_000_000, (ns % 1_000_000_000) as u32);
        (receive, transmit)
    }

    /// Returns one message of a response with these receive and transmit timestamps.
    pub(crate) fn response(
        &mut self,
        request: &PtpRequest,
        part: ResponseKind,
        (receive, transmit): (PtpTimestamp, PtpTimestamp),
    ) -> PtpResponse {
        let plan = self.world.ptp.unwrap_or_else(|| unreachable!("no PTP plan"));
        let body = match part {
            ResponseKind::Delay => {
                PtpMessageBody::DelayResp { receive, requesting: request.requesting }
            }
            ResponseKind::Sync => PtpMessageBody::Sync(PtpTimestamp::ZERO),
            ResponseKind::FollowUp => PtpMessageBody::FollowUp(transmit),
            ResponseKind::OneStep => PtpMessageBody::Sync(transmit),
        };
        let unicast = if plan.multicast { PtpFlags::default() } else { PtpFlags::UNICAST };
        let flags =
            if part == ResponseKind::Sync { unicast.union(PtpFlags::TWO_STEP) } else { unicast };
        let header = Header {
            minor_version: plan.minor_version,
            domain: plan.domain,
            flags,
            source: MASTER,
            sequence_id: request.request_id.sequence as u16,
            ..Header::default()
        };
        let address = self.random.bytes(if self.world.target.is_ipv4() { 4 } else { 16 });
        let mut suffix = Vec::new();
        if part == ResponseKind::Delay && plan.kind == horolog_load::ptp::PtpRequestKind::Nsm {
            suffix = monitor_suffix(self.random, &address);
        }
        let message = Message { header, body, suffix: &suffix };
        let mut bytes = vec![0; message.len()];
        message.emit(&mut bytes);
        // Over IPv6, two bytes may follow the message.
        if !self.world.target.is_ipv4() && self.random.pick(&[true, false]) {
            bytes.extend([0, 0]);
        }
        let is_event = matches!(part, ResponseKind::Sync | ResponseKind::OneStep);
        let port = if is_event { EVENT_PORT } else { GENERAL_PORT };
        PtpResponse { port, client: request.client, bytes }
    }
}

/// Returns the NetSync Monitor TLV, sometimes after other TLVs.
fn monitor_suffix(random: &mut Random, address: &[u8]) -> Vec<u8> {
    let traceable = PtpFlags::TIME_TRACEABLE.union(PtpFlags::FREQUENCY_TRACEABLE).0 as u8;
    let response = NetSyncMonitorResponse {
        port_state: random.next() as u8,
        protocol: 1,
        address,
        parent: ParentDataSet::default(),
        current: CurrentDataSet::default(),
        utc_offset: random.next() as i16,
        time_flags: random.next() as u8 & random.pick(&[traceable, !traceable, 0xff]),
        time_source: random.next() as u8,
        last_sync: PtpTimestamp::new(random.next(), 0),
    };
    let mut extension = vec![0; NetSyncMonitorResponse::tlv_len(address.len())];
    response.emit(&mut extension);
    let mut suffix = Vec::new();
    for _ in 0..random.pick(&[0, 0, 0, 1, 3]) {
        let length = 2 * random.within(0..=8) as u16;
        suffix.extend([0x7f, 0]);
        suffix.extend(length.to_be_bytes());
        suffix.extend(random.bytes(length.into()));
    }
    suffix.extend(extension);
    suffix
}

/// Function that makes one byte or more of a message invalid.
pub(crate) type MessageFault = fn(&mut PtpResponse, &mut Random);

/// Faults of any message, with the reason for which it is refused.
pub(crate) const MESSAGE_FAULTS: [(MessageFault, InvalidReplyReason); 8] = [
    (length, InvalidReplyReason::Length),
    (kind, InvalidReplyReason::Mode),
    (version, InvalidReplyReason::Version),
    (domain, InvalidReplyReason::Domain),
    (profile, InvalidReplyReason::Domain),
    (unicast, InvalidReplyReason::Flags),
    (nanoseconds, InvalidReplyReason::Timestamp),
    (source, InvalidReplyReason::Source),
];

fn length(answer: &mut PtpResponse, random: &mut Random) {
    let right = answer.bytes.len();
    match random.within(0..=3) {
        // Truncated, with too many trailing bytes, or with another length in the header.
        0 => answer.bytes.truncate(random.within(0..=HEADER_LEN as u64 - 1) as usize),
        1 => answer.bytes.resize(right - 3, 0),
        2 => answer.bytes.resize(right + random.within(3..=40) as usize, 0),
        _ => {
            let message_length =
                random.pick(&[0, HEADER_LEN as u16 - 1, right as u16 + 1, u16::MAX]);
            answer.bytes[2..4].copy_from_slice(&message_length.to_be_bytes());
        }
    }
}

/// Sets the type of a message that is no response, and not longer than this one.
fn kind(answer: &mut PtpResponse, random: &mut Random) {
    let short = [0x1, 0x4, 0xc, 0xf];
    let long = [0x1, 0x2, 0x4, 0xa, 0xc, 0xd, 0xf];
    let is_long = answer.bytes.len() >= PDELAY_LEN.max(MANAGEMENT_LEN);
    let kind = random.pick(if is_long { &long[..] } else { &short[..] });
    answer.bytes[0] = answer.bytes[0] & 0xf0 | kind;
}

fn version(answer: &mut PtpResponse, random: &mut Random) {
    answer.bytes[1] ^= random.within(1..=15) as u8;
}

fn domain(answer: &mut PtpResponse, random: &mut Random) {
    answer.bytes[DOMAIN_OFFSET] ^= random.within(1..=255) as u8;
}

/// Sets another profile than that of IEEE 1588, by either part of the SDO identifier.
fn profile(answer: &mut PtpResponse, random: &mut Random) {
    match random.within(0..=1) {
        0 => answer.bytes[0] ^= (random.within(1..=15) << 4) as u8,
        _ => answer.bytes[MINOR_SDO_OFFSET] ^= random.within(1..=255) as u8,
    }
}

/// Inverts the unicast flag.
fn unicast(answer: &mut PtpResponse, _: &mut Random) {
    answer.bytes[FLAGS_OFFSET] ^= (PtpFlags::UNICAST.0 >> 8) as u8;
}

/// Sets an invalid timestamp; a two-step Sync becomes a one-step Sync.
fn nanoseconds(answer: &mut PtpResponse, random: &mut Random) {
    answer.bytes[FLAGS_OFFSET] &= !((PtpFlags::TWO_STEP.0 >> 8) as u8);
    let timestamp = &mut answer.bytes[HEADER_LEN..TIMESTAMP_MESSAGE_LEN];
    match random.within(0..=2) {
        0 => timestamp.fill(0),
        1 => timestamp[..6].copy_from_slice(&[random.within(1..=255) as u8; 6]),
        _ => {
            let many = random.within(1_000_000_000..=u32::MAX.into()) as u32;
            answer.bytes[NANOSECONDS_OFFSET..TIMESTAMP_MESSAGE_LEN]
                .copy_from_slice(&many.to_be_bytes());
        }
    }
}

fn source(answer: &mut PtpResponse, random: &mut Random) {
    let at = SOURCE_OFFSET + random.within(0..=9) as usize;
    answer.bytes[at] ^= random.within(1..=255) as u8;
}

/// Sets another sequence number, and in a Sync one that no request of its client has: clients send
/// in turn, and there are more of them than requests in a comparison.
pub(crate) fn wrong_sequence_number(answer: &mut PtpResponse, random: &mut Random) {
    let at = SEQUENCE_ID_OFFSET;
    let right = u16::from_be_bytes([answer.bytes[at], answer.bytes[at + 1]]);
    let other = right.wrapping_add(random.within(1..=100) as u16);
    answer.bytes[at..at + 2].copy_from_slice(&other.to_be_bytes());
}

/// Sets a lane that does not exist.
pub(crate) fn wrong_lane(answer: &mut PtpResponse, random: &mut Random) {
    let port = random.pick(&[0, crate::generator::LANES as u16 + 1, u16::MAX]);
    answer.bytes[DELAY_RESP_LEN - 2..DELAY_RESP_LEN].copy_from_slice(&port.to_be_bytes());
}

/// Removes the NetSync Monitor TLV, or replaces it by an invalid one.
pub(crate) fn wrong_monitor_tlv(answer: &mut PtpResponse, random: &mut Random) {
    let extensions: &[u8] =
        random.pick(&[&[], &[0x21, 0xff, 0, 0], &[0x21, 0xff, 0, 2, 6, 0], &[0x7f, 0, 0, 0]]);
    answer.bytes.truncate(DELAY_RESP_LEN);
    append(answer, extensions);
}

/// Appends a TLV that does not end where the message does.
pub(crate) fn incomplete_tlv(answer: &mut PtpResponse, random: &mut Random) {
    let message_length = u16::from_be_bytes([answer.bytes[2], answer.bytes[3]]);
    answer.bytes.truncate(message_length.into());
    let half = random.pick(&[&[0x7f][..], &[0x7f, 0, 0], &[0x7f, 0, 0, 2], &[0x7f, 0, 0, 1, 0]]);
    append(answer, half);
}

/// Appends bytes to a message without trailing bytes, and updates its length.
fn append(answer: &mut PtpResponse, more: &[u8]) {
    answer.bytes.extend(more);
    let length = answer.bytes.len() as u16;
    answer.bytes[2..4].copy_from_slice(&length.to_be_bytes());
}
