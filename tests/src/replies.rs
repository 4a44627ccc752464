//! Replies for both verifiers of the generator: valid ones, and ones with each possible fault. All
//! are datagrams of the target to simulated clients.

use horolog_load::token::{RequestId, RequestTokenCodec};
use horolog_record::InvalidReplyReason;
use horolog_sys::clock::ClockMonotonic;
use horolog_time::{Clock, NtpTimestamp, Span};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header, KISS_CODES, LeapIndicator};

use crate::generator::{GeneratorRun, LANES};
use crate::random::Random;

/// Expected counts of every reply of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expected {
    /// Valid reply in time.
    Received,
    /// Valid reply in time, and a duplicate.
    ReceivedAndDuplicate,
    /// Valid reply that is too late, or of an earlier trial.
    Late,
    /// Valid reply that is too late, and a duplicate.
    LateAndDuplicate,
    /// Valid reply in time if interleaved mode was requested, and one with a wrong origin
    /// otherwise.
    ReceivedInterleaved,
    /// Invalid for this reason if interleaved mode was requested, and by its origin otherwise.
    InvalidInterleaved(InvalidReplyReason),
    /// Invalid for this reason.
    Invalid(InvalidReplyReason),
    /// Any counts.
    Anything,
}

/// Kind of replies.
pub(crate) struct ReplyKind {
    /// Name in messages.
    pub(crate) name: &'static str,
    /// Expected counts.
    pub(crate) expected: Expected,
    /// Function that makes one reply, or one and its copy.
    pub(crate) make: fn(&mut Requester<'_>) -> Vec<Reply>,
}

const fn kind(
    name: &'static str,
    expected: Expected,
    make: fn(&mut Requester<'_>) -> Vec<Reply>,
) -> ReplyKind {
    ReplyKind { name, expected, make }
}

const fn invalid(reason: InvalidReplyReason) -> Expected {
    Expected::Invalid(reason)
}

/// All kinds of replies.
pub(crate) const KINDS: [ReplyKind; 21] = [
    kind("valid", Expected::Received, |requester| vec![requester.valid(Age::InTime)]),
    kind("unsynchronised", Expected::Received, |requester| vec![requester.faulty(unsynchronise)]),
    kind("unsynchronised without timestamps", Expected::Received, |requester| {
        vec![requester.faulty(without_timestamps)]
    }),
    kind("duplicate", Expected::ReceivedAndDuplicate, |requester| {
        vec![requester.valid(Age::InTime); 2]
    }),
    kind("late", Expected::Late, |requester| vec![requester.valid(Age::Late)]),
    kind("late with duplicate", Expected::LateAndDuplicate, |requester| {
        vec![requester.valid(Age::Late); 2]
    }),
    kind("of an earlier trial", Expected::Late, |requester| {
        vec![requester.valid(Age::EarlierTrial)]
    }),
    kind("wrong length", invalid(InvalidReplyReason::Length), |requester| {
        vec![requester.faulty(wrong_length)]
    }),
    kind("wrong mode", invalid(InvalidReplyReason::Mode), |requester| {
        vec![requester.faulty(wrong_mode)]
    }),
    kind("wrong version", invalid(InvalidReplyReason::Version), |requester| {
        vec![requester.faulty(wrong_version)]
    }),
    kind("wrong origin", invalid(InvalidReplyReason::Origin), |requester| {
        let age = requester.random.pick(&[Age::EarlierRun, Age::Future]);
        vec![requester.valid(age)]
    }),
    kind("another client", invalid(InvalidReplyReason::Client), |requester| {
        let other = requester.random.next() as u32 % requester.world.client_count();
        let reply = requester.valid(Age::InTime);
        let client = if other == reply.client {
            (other + 1) % requester.world.client_count()
        } else {
            other
        };
        vec![Reply { client, ..reply }]
    }),
    kind("wrong stratum", invalid(InvalidReplyReason::Stratum), |requester| {
        vec![requester.faulty(wrong_stratum)]
    }),
    kind("kiss RATE", invalid(InvalidReplyReason::KissRate), |requester| {
        vec![requester.faulty(kiss_rate)]
    }),
    kind("kiss DENY", invalid(InvalidReplyReason::KissDeny), |requester| {
        vec![requester.faulty(|reply, _| kiss(reply, *b"DENY"))]
    }),
    kind("kiss RSTR", invalid(InvalidReplyReason::KissRstr), |requester| {
        vec![requester.faulty(|reply, _| kiss(reply, *b"RSTR"))]
    }),
    kind("another kiss", invalid(InvalidReplyReason::KissOther), |requester| {
        vec![requester.faulty(other_kiss)]
    }),
    kind("wrong timestamps", invalid(InvalidReplyReason::Timestamp), |requester| {
        vec![requester.faulty(wrong_timestamps)]
    }),
    kind("interleaved", Expected::ReceivedInterleaved, |requester| {
        vec![requester.faulty(interleave)]
    }),
    kind(
        "interleaved from the future",
        Expected::InvalidInterleaved(InvalidReplyReason::Timestamp),
        |requester| {
            let mut reply = requester.faulty(interleave);
            let later = requester.random.within(1..=i64::MAX as u64);
            let transmit = reply.header.receive.to_bits().wrapping_add(later);
            reply.header.transmit = NtpTimestamp::from_bits(transmit);
            vec![reply]
        },
    ),
    kind("several faults at once", Expected::Anything, several_faults),
];

/// Reply, with the lane and the client to which it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) lane: usize,
    pub(crate) client: u32,
    pub(crate) header: Header,
    /// Length of the payload, in bytes: the header is truncated or followed by zeros.
    pub(crate) length: usize,
}

impl Reply {
    pub(crate) fn payload(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        self.header.emit(&mut bytes);
        bytes.resize(self.length, 0);
        bytes
    }
}

/// Time since the intended send time of a request. Each keeps its meaning for some seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Age {
    InTime,
    Late,
    EarlierTrial,
    EarlierRun,
    Future,
}

/// Requests of each lane between two comparisons.
pub(crate) const GROUP: u64 = 64;

/// Time since the start of the trial.
pub(crate) const TRIAL_AGE: Span = Span::from_ms(20_000);

/// Maker of requests, each with its own sequence number, and of their replies.
pub(crate) struct Requester<'a> {
    pub(crate) world: &'a GeneratorRun,
    pub(crate) random: &'a mut Random,
    /// Next sequence number of each lane.
    pub(crate) next: [u32; LANES],
}

impl Requester<'_> {
    /// Returns a valid reply to a new request of this age.
    pub(crate) fn valid(&mut self, age: Age) -> Reply {
        let ms = match age {
            Age::InTime => self.random.within(0..=500),
            Age::Late => self.random.within(1_500..=15_000),
            Age::EarlierTrial => self.random.within(21_000..=25_000),
            // The time in a token wraps after 68.7 s.
            Age::EarlierRun => self.random.within(35_000..=60_000),
            Age::Future => 0,
        };
        let lead = if age == Age::Future { Span::from_ms(5_000) } else { Span::ZERO };
        let intended = ClockMonotonic.now() - Span::from_ms(ms.cast_signed()) + lead;
        let lane = self.random.pick(&[0, 1]);
        let own = self.next[lane];
        self.next[lane] += 1;
        // A request of an earlier trial has a sequence number from before this one.
        let sequence =
            if age == Age::EarlierTrial { own.saturating_sub(GROUP as u32) } else { own };
        let origin = self.world.token.encode(RequestId { intended, sequence });
        let client = self.world.lane_clients(lane).client(sequence);
        Reply { lane, client, header: self.header(origin), length: HEADER_LEN }
    }

    /// Returns a header that a server could send.
    fn header(&mut self, origin: u64) -> Header {
        let receive = NtpTimestamp::from_bits(self.random.next());
        // Up to 8 s, in units of 2^-32 s; all magnitudes are equally frequent.
        let bits = self.random.within(0..=35);
        let took = self.random.next() & ((1 << bits) - 1);
        let transmit = match receive.to_bits().wrapping_add(took) {
            // Zero would mean an unknown time.
            0 => receive,
            bits => NtpTimestamp::from_bits(bits),
        };
        Header {
            leap: LeapIndicator::from_bits(self.random.within(0..=2) as u8),
            mode: AssociationMode::Server,
            stratum: self.random.within(1..=15) as u8,
            poll: self.random.next() as i8,
            precision: self.random.next() as i8,
            reference_id: (self.random.next() as u32).to_be_bytes(),
            origin: NtpTimestamp::from_bits(origin),
            receive,
            transmit,
            ..Header::request(self.world.version, NtpTimestamp::UNKNOWN)
        }
    }

    fn faulty(&mut self, change: ReplyFault) -> Reply {
        let mut reply = self.valid(Age::InTime);
        change(&mut reply, self.random);
        reply
    }
}

type ReplyFault = fn(&mut Reply, &mut Random);

fn unsynchronise(reply: &mut Reply, random: &mut Random) {
    let any = random.within(0..=255) as u8;
    let (leap, stratum) = random.pick(&[(3, any), (3, 0), (3, 16), (any, 16), (any, 0)]);
    (reply.header.leap, reply.header.stratum) = (LeapIndicator::from_bits(leap), stratum);
    reply.header.reference_id = random.pick(&[[0; 4], *b"INIT", *b"STEP", *b"GPS\0", *b"RATF"]);
}

fn without_timestamps(reply: &mut Reply, random: &mut Random) {
    unsynchronise(reply, random);
    let unknown = random.within(1..=3);
    if unknown & 1 != 0 {
        reply.header.receive = NtpTimestamp::UNKNOWN;
    }
    if unknown & 2 != 0 {
        reply.header.transmit = NtpTimestamp::UNKNOWN;
    }
}

fn kiss(reply: &mut Reply, code: [u8; 4]) {
    (reply.header.stratum, reply.header.reference_id) = (0, code);
}

fn kiss_rate(reply: &mut Reply, random: &mut Random) {
    kiss(reply, *b"RATE");
    // The timestamps of a kiss have no meaning.
    wrong_timestamps(reply, random);
}

fn other_kiss(reply: &mut Reply, random: &mut Random) {
    let has_no_own_reason = |code: &[u8; 4]| ![*b"RATE", *b"DENY", *b"RSTR"].contains(code);
    let codes: Vec<_> = KISS_CODES.into_iter().filter(has_no_own_reason).collect();
    kiss(reply, random.pick(&codes));
}

fn wrong_length(reply: &mut Reply, random: &mut Random) {
    let right = HEADER_LEN as u64;
    let length = random.within(0..=2 * right);
    reply.length = if length == right { HEADER_LEN + 20 } else { length as usize };
}

fn wrong_mode(reply: &mut Reply, random: &mut Random) {
    reply.header.mode = AssociationMode::from_bits(random.pick(&[0, 1, 2, 3, 5, 6, 7]));
}

fn wrong_version(reply: &mut Reply, random: &mut Random) {
    reply.header.version = (reply.header.version + random.within(1..=7) as u8) & 7;
}

fn wrong_stratum(reply: &mut Reply, random: &mut Random) {
    let large = random.within(17..=255) as u8;
    reply.header.stratum = random.pick(&[17, large]);
}

fn wrong_timestamps(reply: &mut Reply, random: &mut Random) {
    let receive = reply.header.receive.to_bits();
    // 69 s and more are beyond the range of a histogram.
    let long = random.within(69 << 32..=i64::MAX as u64);
    let back = random.within(1..=i64::MAX as u64);
    let transmit = match random.within(0..=2) {
        0 => 0,
        1 => receive.wrapping_add(long),
        _ => receive.wrapping_sub(back),
    };
    reply.header.transmit = NtpTimestamp::from_bits(transmit);
}

/// Makes a reply interleaved: its origin is the receive timestamp of the request, and its transmit
/// timestamp the send time of an earlier reply.
fn interleave(reply: &mut Reply, random: &mut Random) {
    let origin = RequestTokenCodec::interleaved_receive(reply.header.origin.to_bits());
    let earlier = random.within(0..=i64::MAX as u64);
    let transmit = reply.header.receive.to_bits().wrapping_sub(earlier);
    reply.header.origin = NtpTimestamp::from_bits(origin);
    reply.header.transmit = NtpTimestamp::from_bits(transmit.max(1));
}

/// Combines some faults: the order of the checks decides.
fn several_faults(requester: &mut Requester<'_>) -> Vec<Reply> {
    const FAULTS: [ReplyFault; 9] = [
        unsynchronise,
        wrong_length,
        wrong_mode,
        wrong_version,
        wrong_stratum,
        without_timestamps,
        kiss_rate,
        wrong_timestamps,
        interleave,
    ];
    let ages = [Age::InTime, Age::Late, Age::EarlierTrial, Age::EarlierRun, Age::Future];
    let age = requester.random.pick(&ages);
    let mut reply = requester.valid(age);
    for change in FAULTS {
        if requester.random.within(0..=4) == 0 {
            change(&mut reply, requester.random);
        }
    }
    if requester.random.within(0..=4) == 0 {
        reply.client = requester.random.next() as u32 % requester.world.client_count();
    }
    if requester.random.within(0..=4) == 0 {
        // The other lane has sent as many requests.
        reply.lane = 1 - reply.lane;
    }
    let copies = requester.random.within(1..=2);
    vec![reply; copies as usize]
}
