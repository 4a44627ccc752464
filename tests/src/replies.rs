//! Replies for both verifiers of the generator: valid ones, and ones with each fault that a reply
//! can have. Only the target's datagrams to simulated clients are made here.

use horolog_load::token::{RequestId, RequestTokenCodec};
use horolog_record::InvalidReplyReason;
use horolog_sys::clock::ClockMonotonic;
use horolog_time::{Clock, NtpTimestamp, Span};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header, KISS_CODES, LeapIndicator};

use crate::generator::{LANES, World};
use crate::random::Random;

/// What every reply of a kind is to count as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expected {
    /// A valid reply in time.
    Received,
    /// Valid, and the same again.
    ReceivedAndDuplicate,
    /// Valid but too late, or of an earlier trial.
    Late,
    /// The first too late, the same again a duplicate.
    LateAndDuplicate,
    /// A valid reply in time where interleaved mode was asked for, and else an answer to nothing
    /// that was asked.
    ReceivedInterleaved,
    /// Invalid for this reason where interleaved mode was asked for, and else as above.
    InvalidInterleaved(InvalidReplyReason),
    /// Invalid for this reason.
    Invalid(InvalidReplyReason),
    /// Whatever it is.
    Anything,
}

/// A kind of replies.
pub(crate) struct Kind {
    /// What it is.
    pub(crate) name: &'static str,
    /// What they count as.
    pub(crate) expected: Expected,
    /// Makes one, or one and its copy.
    pub(crate) make: fn(&mut Requester<'_>) -> Vec<Reply>,
}

const fn kind(
    name: &'static str,
    expected: Expected,
    make: fn(&mut Requester<'_>) -> Vec<Reply>,
) -> Kind {
    Kind { name, expected, make }
}

const fn invalid(reason: InvalidReplyReason) -> Expected {
    Expected::Invalid(reason)
}

/// All kinds.
pub(crate) const KINDS: [Kind; 21] = [
    kind("valid", Expected::Received, |requester| vec![requester.valid(Age::InTime)]),
    kind("unsynchronised", Expected::Received, |requester| vec![requester.changed(unsynchronise)]),
    kind("unsynchronised without timestamps", Expected::Received, |requester| {
        vec![requester.changed(without_times)]
    }),
    kind("twice", Expected::ReceivedAndDuplicate, |requester| {
        vec![requester.valid(Age::InTime); 2]
    }),
    kind("late", Expected::Late, |requester| vec![requester.valid(Age::Late)]),
    kind("late and again", Expected::LateAndDuplicate, |requester| {
        vec![requester.valid(Age::Late); 2]
    }),
    kind("of an earlier trial", Expected::Late, |requester| {
        vec![requester.valid(Age::EarlierTrial)]
    }),
    kind("wrong length", invalid(InvalidReplyReason::Length), |requester| {
        vec![requester.changed(wrong_length)]
    }),
    kind("wrong mode", invalid(InvalidReplyReason::Mode), |requester| {
        vec![requester.changed(wrong_mode)]
    }),
    kind("wrong version", invalid(InvalidReplyReason::Version), |requester| {
        vec![requester.changed(wrong_version)]
    }),
    kind("wrong origin", invalid(InvalidReplyReason::Origin), |requester| {
        let age = requester.random.pick(&[Age::EarlierRun, Age::Future]);
        vec![requester.valid(age)]
    }),
    kind("another client", invalid(InvalidReplyReason::Client), |requester| {
        let other = requester.random.next() as u32 % requester.world.clients();
        let reply = requester.valid(Age::InTime);
        let client =
            if other == reply.client { (other + 1) % requester.world.clients() } else { other };
        vec![Reply { client, ..reply }]
    }),
    kind("wrong stratum", invalid(InvalidReplyReason::Stratum), |requester| {
        vec![requester.changed(wrong_stratum)]
    }),
    kind("kiss RATE", invalid(InvalidReplyReason::KissRate), |requester| {
        vec![requester.changed(kiss_rate)]
    }),
    kind("kiss DENY", invalid(InvalidReplyReason::KissDeny), |requester| {
        vec![requester.changed(|reply, _| kiss(reply, *b"DENY"))]
    }),
    kind("kiss RSTR", invalid(InvalidReplyReason::KissRstr), |requester| {
        vec![requester.changed(|reply, _| kiss(reply, *b"RSTR"))]
    }),
    kind("another kiss", invalid(InvalidReplyReason::KissOther), |requester| {
        vec![requester.changed(other_kiss)]
    }),
    kind("wrong timestamps", invalid(InvalidReplyReason::Timestamp), |requester| {
        vec![requester.changed(wrong_timestamps)]
    }),
    kind("interleaved", Expected::ReceivedInterleaved, |requester| {
        vec![requester.changed(interleave)]
    }),
    kind(
        "interleaved from the future",
        Expected::InvalidInterleaved(InvalidReplyReason::Timestamp),
        |requester| {
            let mut reply = requester.changed(interleave);
            let later = requester.random.within(1..=i64::MAX as u64);
            let transmit = reply.header.receive.to_bits().wrapping_add(later);
            reply.header.transmit = NtpTimestamp::from_bits(transmit);
            vec![reply]
        },
    ),
    kind("several of these at once", Expected::Anything, several),
];

/// A reply and where it goes.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) lane: usize,
    pub(crate) client: u32,
    pub(crate) header: Header,
    /// Bytes of the payload: the header cut off or with zeroes behind it.
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

/// How long before now a request was meant to be sent. Each stays what it is for some seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Age {
    InTime,
    Late,
    EarlierTrial,
    EarlierRun,
    Future,
}

/// Questions of each lane between two comparisons.
pub(crate) const GROUP: u64 = 64;

/// How long ago the trial began.
pub(crate) const TRIAL_AGE: Span = Span::from_ms(20_000);

/// Asks questions, each with a sequence number of its own, and makes the replies.
pub(crate) struct Requester<'a> {
    pub(crate) world: &'a World,
    pub(crate) random: &'a mut Random,
    /// The next sequence number of each lane.
    pub(crate) next: [u32; LANES],
}

impl Requester<'_> {
    /// A valid reply to a new question of this age.
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
        // A question of an earlier trial has a number from before this one's.
        let sequence =
            if age == Age::EarlierTrial { own.saturating_sub(GROUP as u32) } else { own };
        let origin = self.world.token.encode(RequestId { intended, sequence });
        let client = self.world.lane_clients(lane).client(sequence);
        Reply { lane, client, header: self.header(origin), length: HEADER_LEN }
    }

    /// What a server could have answered.
    fn header(&mut self, origin: u64) -> Header {
        let receive = NtpTimestamp::from_bits(self.random.next());
        // Up to nine seconds, in units of 2^-32 s; short ones as often as long ones.
        let bits = self.random.within(0..=35);
        let took = self.random.next() & ((1 << bits) - 1);
        let transmit = match receive.to_bits().wrapping_add(took) {
            // Zero would say that it is not known.
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

    fn changed(&mut self, change: Change) -> Reply {
        let mut reply = self.valid(Age::InTime);
        change(&mut reply, self.random);
        reply
    }
}

type Change = fn(&mut Reply, &mut Random);

fn unsynchronise(reply: &mut Reply, random: &mut Random) {
    let any = random.within(0..=255) as u8;
    let (leap, stratum) = random.pick(&[(3, any), (3, 0), (3, 16), (any, 16), (any, 0)]);
    (reply.header.leap, reply.header.stratum) = (LeapIndicator::from_bits(leap), stratum);
    reply.header.reference_id = random.pick(&[[0; 4], *b"INIT", *b"STEP", *b"GPS\0", *b"RATF"]);
}

fn without_times(reply: &mut Reply, random: &mut Random) {
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
    // Its timestamps say nothing.
    wrong_timestamps(reply, random);
}

fn other_kiss(reply: &mut Reply, random: &mut Random) {
    let of_no_reason_of_its_own = |code: &[u8; 4]| ![*b"RATE", *b"DENY", *b"RSTR"].contains(code);
    let codes: Vec<_> = KISS_CODES.into_iter().filter(of_no_reason_of_its_own).collect();
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
    // 69 s and more are longer than a histogram reaches.
    let long = random.within(69 << 32..=i64::MAX as u64);
    let back = random.within(1..=i64::MAX as u64);
    let transmit = match random.within(0..=2) {
        0 => 0,
        1 => receive.wrapping_add(long),
        _ => receive.wrapping_sub(back),
    };
    reply.header.transmit = NtpTimestamp::from_bits(transmit);
}

/// Answers with what the request carried as its receive timestamp, and with when an earlier reply
/// left.
fn interleave(reply: &mut Reply, random: &mut Random) {
    let origin = RequestTokenCodec::interleaved_receive(reply.header.origin.to_bits());
    let earlier = random.within(0..=i64::MAX as u64);
    let transmit = reply.header.receive.to_bits().wrapping_sub(earlier);
    reply.header.origin = NtpTimestamp::from_bits(origin);
    reply.header.transmit = NtpTimestamp::from_bits(transmit.max(1));
}

/// Some faults together: the order of the checks decides.
fn several(requester: &mut Requester<'_>) -> Vec<Reply> {
    const CHANGES: [Change; 9] = [
        unsynchronise,
        wrong_length,
        wrong_mode,
        wrong_version,
        wrong_stratum,
        without_times,
        kiss_rate,
        wrong_timestamps,
        interleave,
    ];
    let ages = [Age::InTime, Age::Late, Age::EarlierTrial, Age::EarlierRun, Age::Future];
    let age = requester.random.pick(&ages);
    let mut reply = requester.valid(age);
    for change in CHANGES {
        if requester.random.within(0..=4) == 0 {
            change(&mut reply, requester.random);
        }
    }
    if requester.random.within(0..=4) == 0 {
        reply.client = requester.random.next() as u32 % requester.world.clients();
    }
    if requester.random.within(0..=4) == 0 {
        // The other lane has asked as many questions.
        reply.lane = 1 - reply.lane;
    }
    let copies = requester.random.within(1..=2);
    vec![reply; copies as usize]
}
