//! STAMP session-reflector (RFC 8762), stateless and unauthenticated, for session-senders of other
//! implementations.
//!
//! The protocol cannot detect forged source addresses. The reflector therefore sends replies no
//! longer than the request, answers public addresses only with permission, limits its rate, and
//! ignores packets from service ports, so that two reflectors cannot be made to loop.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use horolog_io::target::is_public;
use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::clock::{ClockMonotonic, ClockRealtime};
use horolog_sys::datagram::MsghdrBuffers;
use horolog_sys::message::ReceivedDatagramInfo;
use horolog_time::{Clock, Monotonic, NS_PER_S, Span, Timestamp, Utc};
use horolog_wire::prefix::Prefix;
use horolog_wire::stamp::{
    ErrorEstimate, PACKET_LEN, PORT, RawTimestamp, ReflectorPacket, SenderPacket,
};

use super::rate_limiter::RateLimiter;
use super::udp::{LENGTH_MAX, UdpListenOptions, UdpListener};
use super::{FarEndListenError, FarEndServiceCounts, RunningFarEnd};

/// Lowest source port that is answered; lower ones belong to services.
const SENDER_PORT_MIN: u16 = 1_024;

/// Options of the STAMP reflector.
#[derive(Clone, Debug)]
pub struct StampOptions {
    /// Listen address and rate limit.
    pub listen: UdpListenOptions,
    /// Public networks that are answered, in addition to all non-public addresses.
    pub allowed: Vec<Prefix>,
}

/// Timestamps and hop limit for the reply to one packet.
#[derive(Clone, Copy, Debug)]
pub struct ReflectedPacketContext {
    /// Receive timestamp of the packet.
    pub received: Timestamp<Utc>,
    /// Transmit timestamp of the reply.
    pub now: Timestamp<Utc>,
    /// Error estimate of both timestamps.
    pub error_estimate: ErrorEstimate,
    /// Received TTL or hop limit; 0 if unknown.
    pub hop_limit: u8,
}

/// Replaces a session-sender packet by its reply, in place; the length and the padding do not
/// change (RFC 8762, section 4.3). Returns false if the bytes are not such a packet. Pure.
#[must_use]
pub fn reflect(bytes: &mut [u8], at: &ReflectedPacketContext) -> bool {
    let Ok((sender, _)) = SenderPacket::parse(bytes) else { return false };
    let reply = ReflectorPacket {
        sequence: sender.sequence,
        timestamp: RawTimestamp::from_utc(at.now),
        error_estimate: at.error_estimate,
        session: sender.session,
        received: RawTimestamp::from_utc(at.received),
        sender,
        sender_hop_limit: at.hop_limit,
    };
    reply.emit(bytes) == PACKET_LEN
}

/// Starts the reflector as a service of the far end.
///
/// # Errors
///
/// If the address cannot be listened on.
pub fn start_reflector(
    far: &mut RunningFarEnd,
    options: &StampOptions,
) -> Result<(), FarEndListenError> {
    let listener = UdpListener::open("stamp", &options.listen)?;
    let enabled = listener.socket.enable_unicast_detection(options.listen.address);
    enabled.map_err(|source| FarEndListenError::new("stamp", options.listen.address, source))?;
    let failed = |source| FarEndListenError::new("stamp", options.listen.address, source);
    let (socket, of) = (&listener.socket, listener.address);
    socket.enable_receive_timestamps(false).map_err(failed)?;
    socket.enable_hop_limit(of).map_err(failed)?;
    socket.enable_traffic_class(of, true).map_err(failed)?;
    let reflector_thread = SessionReflectorWorker {
        own_port: of.port(),
        allowed: options.allowed.clone(),
        rate_limiter: RateLimiter::new(options.listen.rate_max),
        estimate: current_error_estimate(),
        estimated_at: ClockMonotonic.now(),
        traffic_class: 0,
        counts: ["answered", "foreign", "not allowed", "limited", "not unicast"]
            .map(|outcome| (outcome, 0))
            .into(),
        listener,
    };
    far.start("stamp", of, move |stop| reflector_thread.serve_until_stopped(stop))
}

fn current_error_estimate() -> ErrorEstimate {
    let clock = kernel_clock().ok();
    let synchronised = clock.is_some_and(|clock| clock.synchronised);
    let error = clock.map_or(Span::from_ms(16_000), |clock| clock.maximum_error);
    ErrorEstimate::new(error, synchronised)
}

/// Returns true if the sender is on an unprivileged port that is no reflector's, and at a
/// non-public or permitted address.
fn is_sender_allowed(remote: SocketAddr, own_port: u16, allowed: &[Prefix]) -> bool {
    let port = remote.port();
    let is_service = port < SENDER_PORT_MIN || port == PORT || port == own_port;
    let address: IpAddr = remote.ip().to_canonical();
    !is_service && (!is_public(address) || allowed.iter().any(|prefix| prefix.contains(address)))
}

struct SessionReflectorWorker {
    listener: UdpListener,
    own_port: u16,
    allowed: Vec<Prefix>,
    rate_limiter: RateLimiter,
    estimate: ErrorEstimate,
    estimated_at: Timestamp<Monotonic>,
    traffic_class: u8,
    counts: FarEndServiceCounts,
}

impl SessionReflectorWorker {
    fn serve_until_stopped(mut self, stop: &AtomicBool) -> FarEndServiceCounts {
        let mut envelope = MsghdrBuffers::new();
        let mut buffer = vec![0; LENGTH_MAX];
        while let Some(received) =
            self.listener.receive_datagram(&mut envelope, &mut buffer, true, stop)
        {
            let outcome = self.reflect_packet(&mut envelope, &mut buffer, &received);
            *self.counts.entry(outcome).or_default() += 1;
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        self.counts
    }

    fn reflect_packet(
        &mut self,
        envelope: &mut MsghdrBuffers,
        buffer: &mut [u8],
        received: &ReceivedDatagramInfo,
    ) -> &'static str {
        let now = ClockMonotonic.now();
        if (now - self.estimated_at).as_ns() > NS_PER_S {
            (self.estimated_at, self.estimate) = (now, current_error_estimate());
        }
        let Some(remote) = received.remote else { return "foreign" };
        if !received.is_unicast() {
            return "not unicast";
        }
        if !is_sender_allowed(remote, self.own_port, &self.allowed) {
            return "not allowed";
        }
        if !self.rate_limiter.admit(now) {
            return "limited";
        }
        let control = &received.control;
        let of = self.listener.address;
        let class = control.traffic_class.unwrap_or(0);
        if class != self.traffic_class && self.listener.socket.set_traffic_class(of, class).is_ok()
        {
            self.traffic_class = class;
        }
        let now = ClockRealtime.now();
        let at = ReflectedPacketContext {
            received: control.received_at.unwrap_or(now),
            now,
            error_estimate: self.estimate,
            hop_limit: control.hop_limit.unwrap_or(0),
        };
        let bytes = &mut buffer[..received.len];
        if !reflect(bytes, &at) {
            return "foreign";
        }
        // A failed send appears as a loss at the sender.
        let _ = envelope.reply(self.listener.socket.as_fd(), bytes, control.local);
        "answered"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at() -> ReflectedPacketContext {
        ReflectedPacketContext {
            received: Timestamp::from_timespec(1_700_000_000, 5),
            now: Timestamp::from_timespec(1_700_000_000, 9_005),
            error_estimate: ErrorEstimate::new(Span::from_ns(1_000), true),
            hop_limit: 254,
        }
    }

    #[test]
    fn a_packet_is_reflected_with_its_padding() {
        let sender = SenderPacket {
            sequence: 77,
            timestamp: RawTimestamp(0x1234),
            error_estimate: ErrorEstimate::from_bits(0x8001),
            session: 9,
        };
        let mut bytes = [0xaa; 60];
        sender.emit(&mut bytes);
        assert!(reflect(&mut bytes, &at()));
        let (answer, padding) = ReflectorPacket::parse(&bytes).unwrap();
        assert_eq!((answer.sequence, answer.sender), (77, sender), "stateless");
        assert_eq!((answer.sender_hop_limit, answer.session), (254, 9));
        let near = Timestamp::from_timespec(1_700_000_001, 0);
        let time = |time: RawTimestamp| time.to_utc(answer.error_estimate, near).unwrap();
        assert!(((time(answer.timestamp) - time(answer.received)).as_ns() - 9_000).abs() <= 1);
        assert_eq!(padding, [0xaa; 16]);
        assert!(!reflect(&mut bytes[..43], &at()), "too short for a packet");
    }

    #[test]
    fn senders_are_allowed_by_address_and_port() {
        let may = |text: &str, allowed: &[&str]| {
            let allowed: Vec<Prefix> = allowed.iter().map(|one| one.parse().unwrap()).collect();
            is_sender_allowed(text.parse().unwrap(), 9_862, &allowed)
        };
        assert!(may("192.0.2.1:40000", &[]) && may("[2001:db8::1]:40000", &[]));
        assert!(!may("8.8.8.8:40000", &[]) && !may("[::ffff:8.8.8.8]:40000", &[]));
        assert!(may("8.8.8.8:40000", &["8.8.8.0/24"]));
        for port in [862, 9_862, 123, 1_023] {
            assert!(!may(&format!("192.0.2.1:{port}"), &["0.0.0.0/0"]), "{port}");
        }
    }
}
