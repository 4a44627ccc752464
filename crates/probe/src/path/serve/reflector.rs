//! Replies of the far end to datagrams of [`horolog_wire::path_probe`], as a function of datagram,
//! sender, time and stored sessions. Pure.
//!
//! The session identifier in the reply to a hello is a keyed hash of the sender's address; nothing
//! is stored for it. A sender with a forged address therefore does not learn its session, and
//! triggers no more bytes to that address than it sent. Only probes with a valid session are
//! echoed. The number of stored sessions is bounded.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::net::SocketAddr;

use horolog_time::{Monotonic, Span, Timestamp};
use horolog_wire::path_probe::{
    self, FLAG_KERNEL_TIME, FLAG_TRAFFIC_CLASS, FLAG_WARM_UP, FarEndHostLosses, HELLO_LEN, Header,
    PathDatagramKind, SessionCounts, short,
};

use super::rate_limiter::RateLimiter;

/// Maximum number of stored sessions.
const SESSIONS_MAX: usize = 256;
/// Idle time after which a session is removed.
const IDLE_TIMEOUT: Span = Span::from_ms(10_000);
/// Idle time after which a hello from the sender of a session is no late copy of the session's own.
const HELLO_COPY_DELAY_MAX: Span = Span::from_ms(1_000);
/// Validity period of session identifiers in ns; one is valid in its period and the next.
const KEY_PERIOD_NS: i64 = 600_000_000_000;
/// Maximum number of hellos answered per second.
const HELLOS_PER_S: u64 = 2_000;

/// Returns an unkeyed hash, equal in every process (FNV-1a, 64 bits).
fn fnv1a_hash(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// Returns a hash of boot ID and hello number, by which two ends recognise that they run on the
/// same kernel.
#[must_use]
pub fn kernel_hash(boot_id: &str, number: u32) -> i64 {
    let text = format!("{} {number}", boot_id.trim());
    fnv1a_hash(text.as_bytes()).cast_signed()
}

/// Hasher that returns the session identifier itself: it is a keyed hash already, so that senders
/// cannot provoke collisions.
#[derive(Clone, Copy, Debug, Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 ^= fnv1a_hash(bytes);
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

/// Session that the reflector stores.
#[derive(Clone, Copy, Debug)]
struct ReflectorSession {
    remote: SocketAddr,
    flags: u8,
    counts: SessionCounts,
    /// Probes that were not echoed because of the rate limit, without those of the warm-up.
    limited: u64,
    /// Socket drops at the start of the session, modulo 2^32.
    dropped_before: Option<u32>,
    /// Highest received sequence number plus one.
    next_sequence: u32,
    last_arrival: Timestamp<Monotonic>,
    ended: bool,
}

/// Metadata of a received datagram.
#[derive(Clone, Copy, Debug)]
pub struct DatagramMetadata {
    /// Source address of the datagram.
    pub remote: SocketAddr,
    /// Receive time, for rate limits and idle times.
    pub now: Timestamp<Monotonic>,
    /// Receive time in ns since 1970.
    pub received_ns: i64,
    /// Traffic class, or 0 if its reception is not enabled.
    pub traffic_class: u8,
}

/// Treatment of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramVerdict {
    /// Send the buffer, whose header is now the reply's, in its whole length and with this traffic
    /// class.
    Reply(PathDatagramKind, u8),
    /// Send no reply, for this reason.
    Drop(ReflectorDropReason),
}

/// Reason why a datagram gets no reply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ReflectorDropReason {
    /// Load datagram, which is only counted.
    Load,
    /// Not a request of the protocol, or a hello that is too short.
    Foreign,
    /// Session unknown, expired or assigned to another address.
    NoSession,
    /// Above the rate limit.
    RateLimited,
}

/// Far end of the probe protocol: keys, stored sessions and rate limits.
#[derive(Debug)]
pub struct PathProbeReflector {
    key: RandomState,
    sessions: HashMap<u64, ReflectorSession, BuildHasherDefault<IdentityHasher>>,
    probe_limiter: RateLimiter,
    hello_limiter: RateLimiter,
    boot_id: String,
    /// Error bound of this host's clock in ns, −1 if it is not synchronised.
    pub error_ns: i64,
    /// Drop counter of the socket, modulo 2^32, read at each hello and end; `None` if the kernel
    /// does not report it.
    pub dropped: Option<u32>,
}

impl PathProbeReflector {
    /// Returns a reflector that echoes at most `probes_per_s` probes per second.
    #[must_use]
    pub fn new(probes_per_s: u64, boot_id: String) -> Self {
        Self {
            key: RandomState::new(),
            sessions: HashMap::with_capacity_and_hasher(
                SESSIONS_MAX,
                BuildHasherDefault::default(),
            ),
            probe_limiter: RateLimiter::new(probes_per_s),
            hello_limiter: RateLimiter::new(HELLOS_PER_S),
            boot_id,
            error_ns: -1,
            dropped: None,
        }
    }

    /// Returns the union of the flags that the open sessions requested.
    #[must_use]
    pub fn requested_flags(&self) -> u8 {
        let open = self.sessions.values().filter(|session| !session.ended);
        open.fold(0, |flags, session| flags | session.flags)
    }

    /// Handles a datagram; if it gets a reply, the reply's header replaces the header in `bytes`.
    pub fn handle(&mut self, bytes: &mut [u8], arrival: &DatagramMetadata) -> DatagramVerdict {
        if let Ok(probe) = short::ShortProbe::parse(bytes) {
            return self.echo_short_probe(bytes, probe, arrival);
        }
        let Ok((header, padding)) = Header::parse(bytes) else {
            return DatagramVerdict::Drop(ReflectorDropReason::Foreign);
        };
        let padding = padding.len();
        match header.kind {
            PathDatagramKind::Probe => self.echo_probe(bytes, header, arrival),
            PathDatagramKind::Load => {
                if let Some(session) = self.sessions.get_mut(&header.session) {
                    session.counts.load = session.counts.load.saturating_add(1);
                }
                DatagramVerdict::Drop(ReflectorDropReason::Load)
            }
            PathDatagramKind::Hello if padding >= HELLO_LEN - path_probe::HEADER_LEN => {
                self.reply_to_hello(bytes, header, arrival)
            }
            PathDatagramKind::End => self.end_session(bytes, header, arrival),
            _ => DatagramVerdict::Drop(ReflectorDropReason::Foreign),
        }
    }

    fn reply_to_hello(
        &mut self,
        bytes: &mut [u8],
        header: Header,
        arrival: &DatagramMetadata,
    ) -> DatagramVerdict {
        if !self.hello_limiter.admit(arrival.now) {
            return DatagramVerdict::Drop(ReflectorDropReason::RateLimited);
        }
        let session =
            self.session_id(arrival.remote, header.flags, arrival.now.as_ns() / KEY_PERIOD_NS);
        self.remove_finished(session, arrival.now);
        let kind = if self.has_room(session, arrival.now) {
            PathDatagramKind::Welcome
        } else {
            PathDatagramKind::Refusal
        };
        let welcome = Header {
            flags: header.flags,
            traffic_class: short::LEN as u8,
            received_ns: kernel_hash(&self.boot_id, header.sequence),
            sent_ns: self.error_ns,
            ..Header::new(
                kind,
                if kind == PathDatagramKind::Refusal { 0 } else { session },
                header.sequence,
            )
        };
        welcome.emit(bytes);
        DatagramVerdict::Reply(kind, 0)
    }

    fn echo_probe(
        &mut self,
        bytes: &mut [u8],
        header: Header,
        arrival: &DatagramMetadata,
    ) -> DatagramVerdict {
        let probe = short::ShortProbe {
            warm_up: header.flags & FLAG_WARM_UP != 0,
            sequence: header.sequence,
            session: header.session,
        };
        let (counted, class) = match self.count_probe(&probe, arrival) {
            Ok(echoed) => echoed,
            Err(reason) => return DatagramVerdict::Drop(reason),
        };
        let echo = Header {
            kind: PathDatagramKind::Echo,
            traffic_class: arrival.traffic_class,
            counts: counted,
            received_ns: arrival.received_ns,
            ..header
        };
        echo.emit(bytes);
        DatagramVerdict::Reply(PathDatagramKind::Echo, class)
    }

    fn echo_short_probe(
        &mut self,
        bytes: &mut [u8],
        probe: short::ShortProbe,
        arrival: &DatagramMetadata,
    ) -> DatagramVerdict {
        let (counted, class) = match self.count_probe(&probe, arrival) {
            Ok(echoed) => echoed,
            Err(reason) => return DatagramVerdict::Drop(reason),
        };
        let echo = short::ShortEcho {
            warm_up: probe.warm_up,
            traffic_class: arrival.traffic_class,
            arrivals: counted.arrivals as u8,
            sequence: probe.sequence,
            session: probe.session as u8,
            received: arrival.received_ns as u32,
            turnaround_ns: 0,
        };
        echo.emit(bytes);
        DatagramVerdict::Reply(PathDatagramKind::Echo, class)
    }

    /// Counts a probe, unless it belongs to the warm-up. Returns the session's counts and the
    /// traffic class of the echo, or the reason for no echo.
    fn count_probe(
        &mut self,
        probe: &short::ShortProbe,
        arrival: &DatagramMetadata,
    ) -> Result<(SessionCounts, u8), ReflectorDropReason> {
        if !self.has_valid_session(probe.session, arrival) {
            return Err(ReflectorDropReason::NoSession);
        }
        let session =
            self.sessions.get_mut(&probe.session).ok_or(ReflectorDropReason::NoSession)?;
        session.last_arrival = arrival.now;
        if !self.probe_limiter.admit(arrival.now) {
            session.limited += u64::from(!probe.warm_up);
            return Err(ReflectorDropReason::RateLimited);
        }
        if !probe.warm_up {
            session.count_arrival(probe.sequence);
        }
        let returns_class = session.flags & FLAG_TRAFFIC_CLASS != 0;
        Ok((session.counts, if returns_class { arrival.traffic_class } else { 0 }))
    }

    fn end_session(
        &mut self,
        bytes: &mut [u8],
        header: Header,
        arrival: &DatagramMetadata,
    ) -> DatagramVerdict {
        // Sessions without a received probe are accepted too: their sender needs to learn that none
        // arrived.
        if !self.has_valid_session(header.session, arrival) {
            return DatagramVerdict::Drop(ReflectorDropReason::NoSession);
        }
        let Some(session) = self.sessions.get_mut(&header.session) else {
            return DatagramVerdict::Drop(ReflectorDropReason::NoSession);
        };
        // The session is kept for a while, since the reply may be lost and requested again.
        session.ended = true;
        let counts_header = Header {
            counts: session.counts,
            ..Header::new(PathDatagramKind::Counts, header.session, header.sequence)
        };
        let dropped = self.dropped.zip(session.dropped_before);
        let losses = dropped.map(|(now, before)| FarEndHostLosses {
            limited: session.limited,
            dropped: now.wrapping_sub(before).into(),
        });
        losses.map_or(counts_header, |losses| counts_header.with_losses(losses)).emit(bytes);
        DatagramVerdict::Reply(PathDatagramKind::Counts, 0)
    }

    /// Returns true if the session is stored for the datagram's sender, or was assigned to it in
    /// this period or the last and there is room to store it, which is then done.
    fn has_valid_session(&mut self, session_id: u64, arrival: &DatagramMetadata) -> bool {
        if let Some(session) = self.sessions.get(&session_id) {
            return session.remote == arrival.remote;
        }
        let period = arrival.now.as_ns() / KEY_PERIOD_NS;
        let all = FLAG_KERNEL_TIME | FLAG_TRAFFIC_CLASS;
        let flags = (0..=all).find(|flags| {
            let of = |period| self.session_id(arrival.remote, *flags, period) == session_id;
            of(period) || of(period - 1)
        });
        let Some(flags) = flags.filter(|_| self.has_room(session_id, arrival.now)) else {
            return false;
        };
        let session = ReflectorSession {
            remote: arrival.remote,
            flags,
            counts: SessionCounts::default(),
            limited: 0,
            dropped_before: self.dropped,
            next_sequence: 0,
            last_arrival: arrival.now,
            ended: false,
        };
        self.sessions.insert(session_id, session);
        true
    }

    /// Returns the session identifier for an address and its flags in one period: a keyed hash,
    /// never 0.
    fn session_id(&self, remote: SocketAddr, flags: u8, period: i64) -> u64 {
        let flags = flags & (FLAG_KERNEL_TIME | FLAG_TRAFFIC_CLASS);
        // Zero means no session.
        self.key.hash_one((remote, flags, period)).max(1)
    }

    /// Returns true if the session is stored or there is room for it; removes idle and ended
    /// sessions if needed.
    fn has_room(&mut self, session: u64, now: Timestamp<Monotonic>) -> bool {
        if self.sessions.len() < SESSIONS_MAX || self.sessions.contains_key(&session) {
            return true;
        }
        self.remove_idle_sessions(now);
        self.sessions.retain(|_, session| !session.ended);
        self.sessions.len() < SESSIONS_MAX
    }

    /// Removes a session that is over, so that the next one of the same address and port, and thus
    /// with the same identifier, does not continue its counts.
    fn remove_finished(&mut self, session_id: u64, now: Timestamp<Monotonic>) {
        let is_over = |session: &ReflectorSession| {
            session.ended || now - session.last_arrival > HELLO_COPY_DELAY_MAX
        };
        if self.sessions.get(&session_id).is_some_and(is_over) {
            self.sessions.remove(&session_id);
        }
    }

    /// Removes sessions that have been idle for [`IDLE_TIMEOUT`].
    pub fn remove_idle_sessions(&mut self, now: Timestamp<Monotonic>) {
        self.sessions.retain(|_, session| now - session.last_arrival < IDLE_TIMEOUT);
    }
}

impl ReflectorSession {
    fn count_arrival(&mut self, sequence: u32) {
        self.counts.arrivals = self.counts.arrivals.saturating_add(1);
        if sequence < self.next_sequence {
            self.counts.out_of_order = self.counts.out_of_order.saturating_add(1);
        } else {
            self.next_sequence = sequence.saturating_add(1);
        }
    }
}

#[cfg(test)]
#[path = "reflector_tests.rs"]
mod tests;
