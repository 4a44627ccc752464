//! What the far end answers to a datagram of [`horolog_wire::path_probe`], and what it remembers: a
//! function of what came, from whom and when. Pure.
//!
//! A hello is answered with a session that is a keyed hash of its sender's address, and nothing is
//! remembered of it; so who forges the address of another learns no session, and makes this host
//! send that one no more than it spent itself. Only a probe with the right session is echoed. What
//! is remembered has bounds.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::net::SocketAddr;

use horolog_time::{Monotonic, Span, Timestamp};
use horolog_wire::path_probe::{
    Counted, FLAG_KERNEL_TIME, FLAG_TRAFFIC_CLASS, FLAG_WARM_UP, HELLO_LEN, Header, Kind, Losses,
};

use super::bucket::Bucket;

/// Sessions at a time.
const SESSIONS_MAX: usize = 256;
/// A session of which nothing came for so long makes room for another.
const IDLE: Span = Span::from_ms(10_000);
/// How long the word of one key period holds: this period and the one behind it.
const PERIOD_NS: i64 = 600_000_000_000;
/// Hellos answered in a second: they come from anybody.
const HELLOS_PER_S: u64 = 2_000;

/// A hash that is the same in every copy of the program (FNV-1a, 64 bits).
fn plain_hash(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// What stands for a kernel beside the number of a hello: two ends that run on the same one find
/// the same.
#[must_use]
pub fn kernel_hash(boot_id: &str, number: u32) -> i64 {
    let text = format!("{} {number}", boot_id.trim());
    plain_hash(text.as_bytes()).cast_signed()
}

/// The hash of a session's word is the word: it is a keyed hash already, so nobody can choose those
/// that are remembered.
#[derive(Clone, Copy, Debug, Default)]
struct OwnHash(u64);

impl Hasher for OwnHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 ^= plain_hash(bytes);
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

/// What a session remembers.
#[derive(Clone, Copy, Debug)]
struct Session {
    remote: SocketAddr,
    flags: u8,
    counted: Counted,
    /// Probes that count and were not echoed because of the limit.
    limited: u64,
    /// What the socket had dropped before.
    dropped_before: Option<u32>,
    /// One past the highest number that came.
    next: u32,
    last: Timestamp<Monotonic>,
    ended: bool,
}

/// What came beside the bytes of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// From whom.
    pub remote: SocketAddr,
    /// When, by the clock that orders what happens here.
    pub now: Timestamp<Monotonic>,
    /// When, in ns since 1970.
    pub received_ns: i64,
    /// With which traffic class, where that was asked for.
    pub traffic_class: u8,
}

/// What becomes of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The header at its front is now the answer's; all of its length goes back, with this class.
    Answer(Kind, u8),
    /// No answer.
    Silence(Reason),
}

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reason {
    /// It loads the path.
    Load,
    /// It is of no kind that is answered.
    Foreign,
    /// It has no session, or another's.
    NoSession,
    /// More came than are answered.
    Limited,
}

/// The far end's memory.
#[derive(Debug)]
pub struct Reflector {
    key: RandomState,
    sessions: HashMap<u64, Session, BuildHasherDefault<OwnHash>>,
    probes: Bucket,
    hellos: Bucket,
    boot_id: String,
    /// The most that this host's clock may be off, −1 where it is not synchronised.
    pub error_ns: i64,
    /// What this host's socket has dropped, modulo 2^32, as of the last hello or end; `None` where
    /// the kernel does not tell.
    pub dropped: Option<u32>,
}

impl Reflector {
    /// One that answers at most so many probes in a second.
    #[must_use]
    pub fn new(probes_per_s: u64, boot_id: String) -> Self {
        Self {
            key: RandomState::new(),
            sessions: HashMap::with_capacity_and_hasher(
                SESSIONS_MAX,
                BuildHasherDefault::default(),
            ),
            probes: Bucket::new(probes_per_s),
            hellos: Bucket::new(HELLOS_PER_S),
            boot_id,
            error_ns: -1,
            dropped: None,
        }
    }

    /// What sessions that are not over have asked for.
    #[must_use]
    pub fn wanted(&self) -> u8 {
        let open = self.sessions.values().filter(|session| !session.ended);
        open.fold(0, |flags, session| flags | session.flags)
    }

    /// Takes a datagram and turns it into its answer, where there is one. What is written stands in
    /// the header alone.
    pub fn take(&mut self, bytes: &mut [u8], arrival: &Arrival) -> Verdict {
        let Ok((header, padding)) = Header::parse(bytes) else {
            return Verdict::Silence(Reason::Foreign);
        };
        let padding = padding.len();
        match header.kind {
            Kind::Probe => self.probe(bytes, header, arrival),
            Kind::Load => {
                if let Some(session) = self.sessions.get_mut(&header.session) {
                    session.counted.load = session.counted.load.saturating_add(1);
                }
                Verdict::Silence(Reason::Load)
            }
            Kind::Hello if padding >= HELLO_LEN - horolog_wire::path_probe::HEADER_LEN => {
                self.hello(bytes, header, arrival)
            }
            Kind::End => self.end(bytes, header, arrival),
            _ => Verdict::Silence(Reason::Foreign),
        }
    }

    fn hello(&mut self, bytes: &mut [u8], header: Header, arrival: &Arrival) -> Verdict {
        if !self.hellos.take(arrival.now) {
            return Verdict::Silence(Reason::Limited);
        }
        let session = self.word(arrival.remote, header.flags, arrival.now.as_ns() / PERIOD_NS);
        let kind = if self.has_room(session, arrival.now) { Kind::Welcome } else { Kind::Full };
        let welcome = Header {
            flags: header.flags,
            received_ns: kernel_hash(&self.boot_id, header.sequence),
            sent_ns: self.error_ns,
            ..Header::new(kind, if kind == Kind::Full { 0 } else { session }, header.sequence)
        };
        welcome.emit(bytes);
        Verdict::Answer(kind, 0)
    }

    fn probe(&mut self, bytes: &mut [u8], header: Header, arrival: &Arrival) -> Verdict {
        if !self.is_known(&header, arrival) {
            return Verdict::Silence(Reason::NoSession);
        }
        let Some(session) = self.sessions.get_mut(&header.session) else {
            return Verdict::Silence(Reason::NoSession);
        };
        session.last = arrival.now;
        let counts = header.flags & FLAG_WARM_UP == 0;
        if !self.probes.take(arrival.now) {
            session.limited += u64::from(counts);
            return Verdict::Silence(Reason::Limited);
        }
        if counts {
            session.count(header.sequence);
        }
        let echo = Header {
            kind: Kind::Echo,
            traffic_class: arrival.traffic_class,
            counted: session.counted,
            received_ns: arrival.received_ns,
            ..header
        };
        let wants_class = session.flags & FLAG_TRAFFIC_CLASS != 0;
        echo.emit(bytes);
        Verdict::Answer(Kind::Echo, if wants_class { arrival.traffic_class } else { 0 })
    }

    fn end(&mut self, bytes: &mut [u8], header: Header, arrival: &Arrival) -> Verdict {
        // Of one whose probes were all lost as well: that none came is what its sender asks.
        if !self.is_known(&header, arrival) {
            return Verdict::Silence(Reason::NoSession);
        }
        let Some(session) = self.sessions.get_mut(&header.session) else {
            return Verdict::Silence(Reason::NoSession);
        };
        // It stays for a while: the tally may be lost, and be asked for again.
        session.ended = true;
        let tally = Header {
            counted: session.counted,
            ..Header::new(Kind::Tally, header.session, header.sequence)
        };
        let dropped = self.dropped.zip(session.dropped_before);
        let losses = dropped.map(|(now, before)| Losses {
            limited: session.limited,
            dropped: now.wrapping_sub(before).into(),
        });
        losses.map_or(tally, |losses| tally.with_losses(losses)).emit(bytes);
        Verdict::Answer(Kind::Tally, 0)
    }

    /// Whether a datagram has the session that was given to its sender; a new one is remembered.
    fn is_known(&mut self, header: &Header, arrival: &Arrival) -> bool {
        if let Some(session) = self.sessions.get(&header.session) {
            return session.remote == arrival.remote;
        }
        let period = arrival.now.as_ns() / PERIOD_NS;
        let all = FLAG_KERNEL_TIME | FLAG_TRAFFIC_CLASS;
        let flags = (0..=all).find(|flags| {
            let of = |period| self.word(arrival.remote, *flags, period) == header.session;
            of(period) || of(period - 1)
        });
        let Some(flags) = flags.filter(|_| self.has_room(header.session, arrival.now)) else {
            return false;
        };
        let session = Session {
            remote: arrival.remote,
            flags,
            counted: Counted::default(),
            limited: 0,
            dropped_before: self.dropped,
            next: 0,
            last: arrival.now,
            ended: false,
        };
        self.sessions.insert(header.session, session);
        true
    }

    /// The session of an address and what it asks for, in one period.
    fn word(&self, remote: SocketAddr, flags: u8, period: i64) -> u64 {
        let flags = flags & (FLAG_KERNEL_TIME | FLAG_TRAFFIC_CLASS);
        // Zero is for those who have none.
        self.key.hash_one((remote, flags, period)).max(1)
    }

    /// Whether a session is there or can be; those that are over or idle make room.
    fn has_room(&mut self, session: u64, now: Timestamp<Monotonic>) -> bool {
        if self.sessions.len() < SESSIONS_MAX || self.sessions.contains_key(&session) {
            return true;
        }
        self.forget(now);
        self.sessions.retain(|_, session| !session.ended);
        self.sessions.len() < SESSIONS_MAX
    }

    /// Forgets sessions of which nothing came for long.
    pub fn forget(&mut self, now: Timestamp<Monotonic>) {
        self.sessions.retain(|_, session| now - session.last < IDLE);
    }
}

impl Session {
    fn count(&mut self, sequence: u32) {
        self.counted.arrivals = self.counted.arrivals.saturating_add(1);
        if sequence < self.next {
            self.counted.behind = self.counted.behind.saturating_add(1);
        } else {
            self.next = sequence.saturating_add(1);
        }
    }
}

#[cfg(test)]
#[path = "reflector_tests.rs"]
mod tests;
