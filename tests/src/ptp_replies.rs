//! Responses of a PTP master for both verifiers of the generator: correct ones in every order,
//! and ones with each fault that one can have. A request comes as it would be sent; what is made of
//! it here is bytes.

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

use crate::generator::World;
use crate::random::Random;

/// The port of the master that answers.
const MASTER: PortIdentity = PortIdentity { clock: 0x0200_00ff_fe00_0001, port: 1 };

/// Where in a message its parts stand that are made wrong, in bytes.
const DOMAIN_OFFSET: usize = 4;
const MINOR_SDO_OFFSET: usize = 5;
const FLAGS_OFFSET: usize = 6;
const NANOSECONDS_OFFSET: usize = TIMESTAMP_MESSAGE_LEN - 4;

/// A request, as the master sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PtpRequest {
    pub(crate) client: u32,
    pub(crate) question: RequestId,
    /// Who asks: the token's bits and the lane's number.
    pub(crate) requesting: PortIdentity,
}

/// One of the messages that answer it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PtpResponse {
    /// Both ends' UDP port.
    pub(crate) port: u16,
    /// The client whose address it goes to.
    pub(crate) client: u32,
    pub(crate) bytes: Vec<u8>,
}

/// Which message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Delay,
    /// With a follow-up.
    Sync,
    FollowUp,
    /// A Sync that tells its own time.
    OneStep,
}

/// A master that answers.
pub(crate) struct Master<'a> {
    pub(crate) world: &'a World,
    pub(crate) random: &'a mut Random,
}

impl Master<'_> {
    /// The only answer to a request for the delay.
    pub(crate) fn delay(&mut self, request: &PtpRequest) -> PtpResponse {
        let times = self.times();
        self.answer(request, Part::Delay, times)
    }

    /// All answers of NetSync Monitor, in any order.
    pub(crate) fn all(&mut self, request: &PtpRequest) -> Vec<PtpResponse> {
        let one_step = self.random.pick(&[true, false]);
        let parts: &[Part] = if one_step {
            &[Part::Delay, Part::OneStep]
        } else {
            &[Part::Delay, Part::Sync, Part::FollowUp]
        };
        let times = self.times();
        let mut answers: Vec<_> =
            parts.iter().map(|&part| self.answer(request, part, times)).collect();
        for at in (1..answers.len()).rev() {
            answers.swap(at, self.random.within(0..=at as u64) as usize);
        }
        answers
    }

    /// When a request came and when its Sync left.
    pub(crate) fn times(&mut self) -> (PtpTimestamp, PtpTimestamp) {
        let seconds = self.random.within(1..=4_000_000_000);
        let receive = PtpTimestamp::new(seconds, self.random.within(0..=999_999_999) as u32);
        // Short times as often as long ones, up to 4 s.
        let bits = self.random.within(0..=32);
        let ns = u64::from(receive.nanoseconds()) + (self.random.next() & ((1 << bits) - 1));
        let transmit = PtpTimestamp::new(seconds + ns / 1_000_000_000, (ns % 1_000_000_000) as u32);
        (receive, transmit)
    }

    /// One message, of a request that came and whose Sync left then.
    pub(crate) fn answer(
        &mut self,
        request: &PtpRequest,
        part: Part,
        (receive, transmit): (PtpTimestamp, PtpTimestamp),
    ) -> PtpResponse {
        let plan = self.world.ptp.unwrap_or_else(|| unreachable!("a world of PTP"));
        let body = match part {
            Part::Delay => PtpMessageBody::DelayResp { receive, requesting: request.requesting },
            Part::Sync => PtpMessageBody::Sync(PtpTimestamp::ZERO),
            Part::FollowUp => PtpMessageBody::FollowUp(transmit),
            Part::OneStep => PtpMessageBody::Sync(transmit),
        };
        let unicast = if plan.multicast { PtpFlags::default() } else { PtpFlags::UNICAST };
        let flags = if part == Part::Sync { unicast.union(PtpFlags::TWO_STEP) } else { unicast };
        let header = Header {
            minor_version: plan.minor_version,
            domain: plan.domain,
            flags,
            source: MASTER,
            sequence_id: request.question.sequence as u16,
            ..Header::default()
        };
        let address = self.random.bytes(if self.world.target.is_ipv4() { 4 } else { 16 });
        let mut suffix = Vec::new();
        if part == Part::Delay && plan.kind == horolog_load::ptp::PtpRequestKind::Nsm {
            suffix = monitor(self.random, &address);
        }
        let message = Message { header, body, suffix: &suffix };
        let mut bytes = vec![0; message.len()];
        message.emit(&mut bytes);
        // Over IPv6 there may be two bytes behind it.
        if !self.world.target.is_ipv4() && self.random.pick(&[true, false]) {
            bytes.extend([0, 0]);
        }
        let is_event = matches!(part, Part::Sync | Part::OneStep);
        let port = if is_event { EVENT_PORT } else { GENERAL_PORT };
        PtpResponse { port, client: request.client, bytes }
    }
}

/// NetSync Monitor's extension, now and then behind another one.
fn monitor(random: &mut Random, address: &[u8]) -> Vec<u8> {
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

/// Makes one byte or more of a message wrong.
pub(crate) type Change = fn(&mut PtpResponse, &mut Random);

/// What can be wrong with any message, and the reason to refuse it.
pub(crate) const CHANGES: [(Change, InvalidReplyReason); 8] = [
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
        // Cut off, with more behind it than there may be, and with another length told.
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

/// Of a message that is no answer, and not longer.
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

/// Of another profile than IEEE 1588's own, by either part of its number.
fn profile(answer: &mut PtpResponse, random: &mut Random) {
    match random.within(0..=1) {
        0 => answer.bytes[0] ^= (random.within(1..=15) << 4) as u8,
        _ => answer.bytes[MINOR_SDO_OFFSET] ^= random.within(1..=255) as u8,
    }
}

/// Says that it is for one address where it is not, or the other way round.
fn unicast(answer: &mut PtpResponse, _: &mut Random) {
    answer.bytes[FLAGS_OFFSET] ^= (PtpFlags::UNICAST.0 >> 8) as u8;
}

/// No time at all; a Sync with a follow-up becomes one without.
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

/// Another number, and of a Sync one that no request of that client has: clients ask in turn, and
/// there are more of them than requests in a comparison.
pub(crate) fn number(answer: &mut PtpResponse, random: &mut Random) {
    let at = SEQUENCE_ID_OFFSET;
    let right = u16::from_be_bytes([answer.bytes[at], answer.bytes[at + 1]]);
    let other = right.wrapping_add(random.within(1..=100) as u16);
    answer.bytes[at..at + 2].copy_from_slice(&other.to_be_bytes());
}

/// A lane that there is not.
pub(crate) fn lane(answer: &mut PtpResponse, random: &mut Random) {
    let port = random.pick(&[0, crate::generator::LANES as u16 + 1, u16::MAX]);
    answer.bytes[DELAY_RESP_LEN - 2..DELAY_RESP_LEN].copy_from_slice(&port.to_be_bytes());
}

/// Without NetSync Monitor's extension, or with one that is none.
pub(crate) fn extension(answer: &mut PtpResponse, random: &mut Random) {
    let extensions: &[u8] =
        random.pick(&[&[], &[0x21, 0xff, 0, 0], &[0x21, 0xff, 0, 2, 6, 0], &[0x7f, 0, 0, 0]]);
    answer.bytes.truncate(DELAY_RESP_LEN);
    append(answer, extensions);
}

/// Extensions that do not end where the message does.
pub(crate) fn extensions(answer: &mut PtpResponse, random: &mut Random) {
    let message_length = u16::from_be_bytes([answer.bytes[2], answer.bytes[3]]);
    answer.bytes.truncate(message_length.into());
    let half = random.pick(&[&[0x7f][..], &[0x7f, 0, 0], &[0x7f, 0, 0, 2], &[0x7f, 0, 0, 1, 0]]);
    append(answer, half);
}

/// Puts more at the end of a message that has nothing behind it.
fn append(answer: &mut PtpResponse, more: &[u8]) {
    answer.bytes.extend(more);
    let length = answer.bytes.len() as u16;
    answer.bytes[2..4].copy_from_slice(&length.to_be_bytes());
}
