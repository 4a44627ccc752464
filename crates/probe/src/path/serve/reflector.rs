//! Replies of the far end to datagrams of [`horolog_wire::path_probe`], and its state: a function
//! of datagram, sender and time. Pure.
//!
//! The reply to a hello carries a session that is a keyed hash of its sender's address, and nothing
//! is stored for it. A sender with a forged address therefore learns no session, and makes this
//! host send the owner of that address no more than the sender spent itself. Only a probe with the
//! right session is echoed. The state is bounded.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::net::SocketAddr;

use horolog_time::{Monotonic, Span, Timestamp};
use horolog_wire::path_probe::{
    self, FLAG_KERNEL_TIME, FLAG_TRAFFIC_CLASS, FLAG_WARM_UP, HELLO_LEN, Header, HostLosses,
    PathDatagramKind, SessionCounts, short,
};

use super::rate_limiter::RateLimiter;

/// Sessions at a time.
const SESSIONS_MAX: usize = 256;
/// Idle time after which a session makes room for another.
const IDLE: Span = Span::from_ms(10_000);
/// Length of a key period in ns; a session identifier is valid in its period and the one after.
const PERIOD_NS: i64 = 600_000_000_000;
/// Hellos answered per second: anyone can send them.
const HELLOS_PER_S: u64 = 2_000;

/// Returns a hash that is the same in every copy of the program (FNV-1a, 64 bits).
fn plain_hash(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// Returns a value for the kernel and the number of a hello: two ends on the same kernel compute
/// the same one.
#[must_use]
pub fn kernel_hash(boot_id: &str, number: u32) -> i64 {
    let text = format!("{} {number}", boot_id.trim());
    plain_hash(text.as_bytes()).cast_signed()
}

/// Hasher of session identifiers. The hash is the identifier: it is a keyed hash already, so a
/// sender cannot choose those that are stored.
#[derive(Clone, Copy, Debug, Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
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

/// State of a session.
#[derive(Clone, Copy, Debug)]
struct ReflectorSession {
    remote: SocketAddr,
    flags: u8,
    counted: SessionCounts,
    /// Probes counted but not echoed because of the limit.
    limited: u64,
    /// Socket drops before the session.
    dropped_before: Option<u32>,
    /// One past the highest number received.
    next: u32,
    last: Timestamp<Monotonic>,
    ended: bool,
}

/// Metadata of a received datagram.
#[derive(Clone, Copy, Debug)]
pub struct DatagramMetadata {
    /// Sender.
    pub remote: SocketAddr,
    /// Receive time on the clock that orders events here.
    pub now: Timestamp<Monotonic>,
    /// Receive time in ns since 1970.
    pub received_ns: i64,
    /// Traffic class, if its reception is enabled.
    pub traffic_class: u8,
}

/// Verdict on a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramVerdict {
    /// Reply: the header in the buffer is now the reply's; the whole length goes back, with this
    /// class.
    Answer(PathDatagramKind, u8),
    /// No reply.
    Drop(ReflectorDropReason),
}

/// Reason for no reply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ReflectorDropReason {
    /// Load datagram.
    Load,
    /// Unknown kind.
    Foreign,
    /// No session, or another sender's.
    NoSession,
    /// Above the rate limit.
    Limited,
}

/// State of the far end.
#[derive(Debug)]
pub struct Reflector {
    key: RandomState,
    sessions: HashMap<u64, ReflectorSession, BuildHasherDefault<IdentityHasher>>,
    probes: RateLimiter,
    hellos: RateLimiter,
    boot_id: String,
    /// Error bound of this host's clock in ns, −1 if it is not synchronised.
    pub error_ns: i64,
    /// Packets dropped by this host's socket, modulo 2^32, as of the last hello or end; `None` if
    /// the kernel does not report it.
    pub dropped: Option<u32>,
}

impl Reflector {
    /// Returns a reflector that answers at most `probes_per_s` probes per second.
    #[must_use]
    pub fn new(probes_per_s: u64, boot_id: String) -> Self {
        Self {
            key: RandomState::new(),
            sessions: HashMap::with_capacity_and_hasher(
                SESSIONS_MAX,
                BuildHasherDefault::default(),
            ),
            probes: RateLimiter::new(probes_per_s),
            hellos: RateLimiter::new(HELLOS_PER_S),
            boot_id,
            error_ns: -1,
            dropped: None,
        }
    }

    /// Returns the flags requested by the open sessions.
    #[must_use]
    pub fn wanted(&self) -> u8 {
        let open = self.sessions.values().filter(|session| !session.ended);
        open.fold(0, |flags, session| flags | session.flags)
    }

    /// Handles a datagram and turns it into its reply, if there is one. Only the header is written.
    pub fn handle(&mut self, bytes: &mut [u8], arrival: &DatagramMetadata) -> DatagramVerdict {
        if let Ok(probe) = short::Probe::parse(bytes) {
            return self.short_probe(bytes, probe, arrival);
        }
        let Ok((header, padding)) = Header::parse(bytes) else {
            return DatagramVerdict::Drop(ReflectorDropReason::Foreign);
        };
        let padding = padding.len();
        match header.kind {
            PathDatagramKind::Probe => self.probe(bytes, header, arrival),
            PathDatagramKind::Load => {
                if let Some(session) = self.sessions.get_mut(&header.session) {
                    session.counted.load = session.counted.load.saturating_add(1);
                }
                DatagramVerdict::Drop(ReflectorDropReason::Load)
            }
            PathDatagramKind::Hello if padding >= HELLO_LEN - path_probe::HEADER_LEN => {
                self.hello(bytes, header, arrival)
            }
            PathDatagramKind::End => self.end(bytes, header, arrival),
            _ => DatagramVerdict::Drop(ReflectorDropReason::Foreign),
        }
    }

    fn hello(
        &mut self,
        bytes: &mut [u8],
        header: Header,
        arrival: &DatagramMetadata,
    ) -> DatagramVerdict {
        if !self.hellos.admit(arrival.now) {
            return DatagramVerdict::Drop(ReflectorDropReason::Limited);
        }
        let session = self.word(arrival.remote, header.flags, arrival.now.as_ns() / PERIOD_NS);
        let kind = if self.has_room(session, arrival.now) {
            PathDatagramKind::Welcome
        } else {
            PathDatagramKind::Full
        };
        let welcome = Header {
            flags: header.flags,
            traffic_class: short::LEN as u8,
            received_ns: kernel_hash(&self.boot_id, header.sequence),
            sent_ns: self.error_ns,
            ..Header::new(
                kind,
                if kind == PathDatagramKind::Full { 0 } else { session },
                header.sequence,
            )
        };
        welcome.emit(bytes);
        DatagramVerdict::Answer(kind, 0)
    }

    fn probe(
        &mut self,
        bytes: &mut [u8],
        header: Header,
        arrival: &DatagramMetadata,
    ) -> DatagramVerdict {
        let probe = short::Probe {
            warm_up: header.flags & FLAG_WARM_UP != 0,
            sequence: header.sequence,
            session: header.session,
        };
        let (counted, class) = match self.echoed(&probe, arrival) {
            Ok(echoed) => echoed,
            Err(reason) => return DatagramVerdict::Drop(reason),
        };
        let echo = Header {
            kind: PathDatagramKind::Echo,
            traffic_class: arrival.traffic_class,
            counted,
            received_ns: arrival.received_ns,
            ..header
        };
        echo.emit(bytes);
        DatagramVerdict::Answer(PathDatagramKind::Echo, class)
    }

    fn short_probe(
        &mut self,
        bytes: &mut [u8],
        probe: short::Probe,
        arrival: &DatagramMetadata,
    ) -> DatagramVerdict {
        let (counted, class) = match self.echoed(&probe, arrival) {
            Ok(echoed) => echoed,
            Err(reason) => return DatagramVerdict::Drop(reason),
        };
        let echo = short::Echo {
            warm_up: probe.warm_up,
            traffic_class: arrival.traffic_class,
            arrivals: counted.arrivals as u8,
            sequence: probe.sequence,
            session: probe.session as u8,
            received: arrival.received_ns as u32,
            held_ns: 0,
        };
        echo.emit(bytes);
        DatagramVerdict::Answer(PathDatagramKind::Echo, class)
    }

    /// Counts a probe to be echoed. Returns the counts and the traffic class of the echo, or the
    /// reason for no echo.
    fn echoed(
        &mut self,
        probe: &short::Probe,
        arrival: &DatagramMetadata,
    ) -> Result<(SessionCounts, u8), ReflectorDropReason> {
        if !self.is_known(probe.session, arrival) {
            return Err(ReflectorDropReason::NoSession);
        }
        let session =
            self.sessions.get_mut(&probe.session).ok_or(ReflectorDropReason::NoSession)?;
        session.last = arrival.now;
        if !self.probes.admit(arrival.now) {
            session.limited += u64::from(!probe.warm_up);
            return Err(ReflectorDropReason::Limited);
        }
        if !probe.warm_up {
            session.count(probe.sequence);
        }
        let wants_class = session.flags & FLAG_TRAFFIC_CLASS != 0;
        Ok((session.counted, if wants_class { arrival.traffic_class } else { 0 }))
    }

    fn end(
        &mut self,
        bytes: &mut [u8],
        header: Header,
        arrival: &DatagramMetadata,
    ) -> DatagramVerdict {
        // Also for a session whose probes were all lost: its sender needs to learn that none
        // arrived.
        if !self.is_known(header.session, arrival) {
            return DatagramVerdict::Drop(ReflectorDropReason::NoSession);
        }
        let Some(session) = self.sessions.get_mut(&header.session) else {
            return DatagramVerdict::Drop(ReflectorDropReason::NoSession);
        };
        // The session stays for a while: the reply may be lost and be requested again.
        session.ended = true;
        let tally = Header {
            counted: session.counted,
            ..Header::new(PathDatagramKind::Tally, header.session, header.sequence)
        };
        let dropped = self.dropped.zip(session.dropped_before);
        let losses = dropped.map(|(now, before)| HostLosses {
            limited: session.limited,
            dropped: now.wrapping_sub(before).into(),
        });
        losses.map_or(tally, |losses| tally.with_losses(losses)).emit(bytes);
        DatagramVerdict::Answer(PathDatagramKind::Tally, 0)
    }

    /// Returns true if a datagram has the session that was assigned to its sender; a new one is
    /// stored.
    fn is_known(&mut self, word: u64, arrival: &DatagramMetadata) -> bool {
        if let Some(session) = self.sessions.get(&word) {
            return session.remote == arrival.remote;
        }
        let period = arrival.now.as_ns() / PERIOD_NS;
        let all = FLAG_KERNEL_TIME | FLAG_TRAFFIC_CLASS;
        let flags = (0..=all).find(|flags| {
            let of = |period| self.word(arrival.remote, *flags, period) == word;
            of(period) || of(period - 1)
        });
        let Some(flags) = flags.filter(|_| self.has_room(word, arrival.now)) else {
            return false;
        };
        let session = ReflectorSession {
            remote: arrival.remote,
            flags,
            counted: SessionCounts::default(),
            limited: 0,
            dropped_before: self.dropped,
            next: 0,
            last: arrival.now,
            ended: false,
        };
        self.sessions.insert(word, session);
        true
    }

    /// Returns the session identifier of an address and its flags, in one period.
    fn word(&self, remote: SocketAddr, flags: u8, period: i64) -> u64 {
        let flags = flags & (FLAG_KERNEL_TIME | FLAG_TRAFFIC_CLASS);
        // Zero means no session.
        self.key.hash_one((remote, flags, period)).max(1)
    }

    /// Returns true if a session exists or can be stored; ended and idle ones make room.
    fn has_room(&mut self, session: u64, now: Timestamp<Monotonic>) -> bool {
        if self.sessions.len() < SESSIONS_MAX || self.sessions.contains_key(&session) {
            return true;
        }
        self.forget(now);
        self.sessions.retain(|_, session| !session.ended);
        self.sessions.len() < SESSIONS_MAX
    }

    /// Removes sessions that have been idle for long.
    pub fn forget(&mut self, now: Timestamp<Monotonic>) {
        self.sessions.retain(|_, session| now - session.last < IDLE);
    }
}

impl ReflectorSession {
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
