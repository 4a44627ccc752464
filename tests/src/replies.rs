//! Replies for both bodies of the generator to judge: valid ones, and ones with each fault that a
//! reply can have. Only the target's datagrams to simulated clients are made here.

use horolog_load::token::{Question, Token};
use horolog_record::InvalidReason;
use horolog_sys::clock::MonotonicClock;
use horolog_time::{Clock, NtpTimestamp, Span};
use horolog_wire::ntp::{HEADER_LEN, Header, Leap, Mode, STRATUM_UNSYNCHRONISED};

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
    InvalidInterleaved(InvalidReason),
    /// Invalid for this reason.
    Invalid(InvalidReason),
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
    pub(crate) make: fn(&mut Asker<'_>) -> Vec<Reply>,
}

const fn kind(
    name: &'static str,
    expected: Expected,
    make: fn(&mut Asker<'_>) -> Vec<Reply>,
) -> Kind {
    Kind { name, expected, make }
}

const fn invalid(reason: InvalidReason) -> Expected {
    Expected::Invalid(reason)
}

/// All kinds.
pub(crate) const KINDS: [Kind; 17] = [
    kind("valid", Expected::Received, |asker| vec![asker.valid(Age::InTime)]),
    kind("unsynchronised", Expected::Received, |asker| vec![asker.changed(unsynchronise)]),
    kind("twice", Expected::ReceivedAndDuplicate, |asker| vec![asker.valid(Age::InTime); 2]),
    kind("late", Expected::Late, |asker| vec![asker.valid(Age::Late)]),
    kind("late and again", Expected::LateAndDuplicate, |asker| vec![asker.valid(Age::Late); 2]),
    kind("of an earlier trial", Expected::Late, |asker| vec![asker.valid(Age::EarlierTrial)]),
    kind("wrong length", invalid(InvalidReason::Length), |asker| vec![asker.changed(wrong_length)]),
    kind("wrong mode", invalid(InvalidReason::Mode), |asker| vec![asker.changed(wrong_mode)]),
    kind("wrong version", invalid(InvalidReason::Version), |asker| {
        vec![asker.changed(wrong_version)]
    }),
    kind("wrong origin", invalid(InvalidReason::Origin), |asker| {
        let age = asker.random.pick(&[Age::EarlierRun, Age::Future]);
        vec![asker.valid(age)]
    }),
    kind("another client", invalid(InvalidReason::Client), |asker| {
        let other = asker.random.next() as u32 % asker.world.clients();
        let reply = asker.valid(Age::InTime);
        let client =
            if other == reply.client { (other + 1) % asker.world.clients() } else { other };
        vec![Reply { client, ..reply }]
    }),
    kind("wrong stratum", invalid(InvalidReason::Stratum), |asker| {
        vec![asker.changed(wrong_stratum)]
    }),
    kind("leap against stratum", invalid(InvalidReason::Leap), |asker| {
        vec![asker.changed(contradiction)]
    }),
    kind("wrong timestamps", invalid(InvalidReason::Timestamp), |asker| {
        vec![asker.changed(wrong_timestamps)]
    }),
    kind("interleaved", Expected::ReceivedInterleaved, |asker| vec![asker.changed(interleave)]),
    kind(
        "interleaved from the future",
        Expected::InvalidInterleaved(InvalidReason::Timestamp),
        |asker| {
            let mut reply = asker.changed(interleave);
            let later = asker.random.within(1..=i64::MAX as u64);
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
pub(crate) struct Asker<'a> {
    pub(crate) world: &'a World,
    pub(crate) random: &'a mut Random,
    /// The next sequence number of each lane.
    pub(crate) next: [u32; LANES],
}

impl Asker<'_> {
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
        let intended = MonotonicClock.now() - Span::from_ms(ms.cast_signed()) + lead;
        let lane = self.random.pick(&[0, 1]);
        let own = self.next[lane];
        self.next[lane] += 1;
        // A question of an earlier trial has a number from before this one's.
        let sequence =
            if age == Age::EarlierTrial { own.saturating_sub(GROUP as u32) } else { own };
        let origin = self.world.token.encode(Question { intended, sequence });
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
            leap: Leap::from_bits(self.random.within(0..=2) as u8),
            mode: Mode::Server,
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

fn unsynchronise(reply: &mut Reply, _: &mut Random) {
    reply.header.leap = Leap::Unsynchronised;
    reply.header.stratum = STRATUM_UNSYNCHRONISED;
}

fn wrong_length(reply: &mut Reply, random: &mut Random) {
    let right = HEADER_LEN as u64;
    let length = random.within(0..=2 * right);
    reply.length = if length == right { HEADER_LEN + 20 } else { length as usize };
}

fn wrong_mode(reply: &mut Reply, random: &mut Random) {
    reply.header.mode = Mode::from_bits(random.pick(&[0, 1, 2, 3, 5, 6, 7]));
}

fn wrong_version(reply: &mut Reply, random: &mut Random) {
    reply.header.version = (reply.header.version + random.within(1..=7) as u8) & 7;
}

fn wrong_stratum(reply: &mut Reply, random: &mut Random) {
    let large = random.within(17..=255) as u8;
    reply.header.stratum = random.pick(&[0, 17, large]);
}

fn contradiction(reply: &mut Reply, random: &mut Random) {
    if random.pick(&[true, false]) {
        reply.header.leap = Leap::Unsynchronised;
    } else {
        reply.header.stratum = STRATUM_UNSYNCHRONISED;
    }
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
    let origin = Token::receive_of(reply.header.origin.to_bits());
    let earlier = random.within(0..=i64::MAX as u64);
    let transmit = reply.header.receive.to_bits().wrapping_sub(earlier);
    reply.header.origin = NtpTimestamp::from_bits(origin);
    reply.header.transmit = NtpTimestamp::from_bits(transmit.max(1));
}

/// Some faults together: the order of the checks decides.
fn several(asker: &mut Asker<'_>) -> Vec<Reply> {
    const CHANGES: [Change; 8] = [
        unsynchronise,
        wrong_length,
        wrong_mode,
        wrong_version,
        wrong_stratum,
        contradiction,
        wrong_timestamps,
        interleave,
    ];
    let ages = [Age::InTime, Age::Late, Age::EarlierTrial, Age::EarlierRun, Age::Future];
    let age = asker.random.pick(&ages);
    let mut reply = asker.valid(age);
    for change in CHANGES {
        if asker.random.within(0..=4) == 0 {
            change(&mut reply, asker.random);
        }
    }
    if asker.random.within(0..=4) == 0 {
        reply.client = asker.random.next() as u32 % asker.world.clients();
    }
    if asker.random.within(0..=4) == 0 {
        // The other lane has asked as many questions.
        reply.lane = 1 - reply.lane;
    }
    let copies = asker.random.within(1..=2);
    vec![reply; copies as usize]
}
