//! Far end for Horolog's own probes over UDP: a socket, a buffer and the [`super::reflector`]. A
//! reply is never longer than its request.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::clock::{ClockOffset, MonotonicClock, realtime_minus_monotonic};
use horolog_sys::datagram::{MessageHeader, WaitMode};
use horolog_sys::message::ReceiveInfo;
use horolog_sys::socket::Socket;
use horolog_time::{Clock, Monotonic, NS_PER_S, Timestamp};
use horolog_wire::path_probe::{
    FLAG_KERNEL_TIME, FLAG_TRAFFIC_CLASS, HEADER_LEN, PathDatagramKind, short,
};

use super::reflector::{DatagramMetadata, DatagramVerdict, Reflector, ReflectorDropReason};
use super::{FarEnd, ServeError, ServiceCounts, TICK};

pub use super::reflector::{DatagramMetadata as UdpArrival, Reflector as UdpReflector};
pub use super::reflector::{DatagramVerdict as UdpVerdict, kernel_hash};

/// Maximum length of a datagram.
pub(super) const LENGTH_MAX: usize = 65_535;
/// Socket buffer size, for a burst of long datagrams.
pub(super) const BUFFER_BYTES: usize = 4 << 20;
/// Offset of the transmit timestamp in an echo.
const SENT_OFFSET: usize = HEADER_LEN - 8;
/// Offset of the kind.
const KIND_OFFSET: usize = 5;
/// Offset of the flags.
const FLAGS_OFFSET: usize = 6;
/// Polls of the queue between two checks of the end flag, when busy polling.
pub(super) const POLLS: u32 = 1_024;

/// Listen options.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// Listen address.
    pub address: SocketAddr,
    /// True to poll for datagrams all the time instead of sleeping until one arrives.
    pub busy_polling: bool,
    /// Probes answered per second, at most.
    pub rate_max: u64,
}

/// Socket and options of a service that answers datagrams.
pub(super) struct UdpListener {
    pub(super) socket: Socket,
    pub(super) address: SocketAddr,
    pub(super) wait: WaitMode,
}

impl UdpListener {
    pub(super) fn open(part: &'static str, options: &ListenOptions) -> Result<Self, ServeError> {
        let failed = |source| ServeError::new(part, options.address, source);
        let socket = Self::bound(options).map_err(failed)?;
        let address = socket.local_address().map_err(failed)?;
        let wait = if options.busy_polling { WaitMode::NonBlocking } else { WaitMode::Blocking };
        Ok(Self { socket, address, wait })
    }

    fn bound(options: &ListenOptions) -> io::Result<Socket> {
        let at = options.address;
        let socket = Socket::udp(at)?;
        if at.is_ipv6() {
            socket.set_v6_only(true)?;
        }
        socket.bind_to_host(at)?;
        socket.allow_fragmentation(at)?;
        socket.set_receive_timeout(TICK)?;
        // Best effort: drops of a smaller buffer are counted.
        let _ = socket.set_receive_buffer(BUFFER_BYTES);
        Ok(socket)
    }

    /// Receives until a datagram arrives or the service is to end; returns it with the control
    /// messages that are enabled.
    pub(super) fn next(
        &self,
        envelope: &mut MessageHeader,
        buffer: &mut [u8],
        with_control: bool,
        stop: &AtomicBool,
    ) -> Option<ReceiveInfo> {
        let mut polls = 0;
        loop {
            let socket = self.socket.as_fd();
            let received = if with_control {
                envelope.receive(socket, buffer, self.wait)
            } else {
                envelope.receive_with_source(socket, buffer, self.wait)
            };
            if let Ok(received) = received {
                return Some(received);
            }
            // Errors are of replies that were rejected (ICMP), and of expired waits.
            polls += 1;
            if (self.wait == WaitMode::Blocking || polls % POLLS == 0)
                && stop.load(Ordering::Relaxed)
            {
                return None;
            }
        }
    }
}

/// Starts the service.
///
/// # Errors
///
/// If the address cannot be listened at.
pub fn listen(far: &mut FarEnd, options: &ListenOptions) -> Result<(), ServeError> {
    let listener = UdpListener::open("udp", options)?;
    // Load may be broadcast and is counted, so it must not be truncated.
    let whole = Some((KIND_OFFSET as u32, PathDatagramKind::Load as u8));
    listener
        .socket
        .enable_destination_info(options.address)
        .and_then(|()| listener.socket.mark_link_groups(whole))
        .map_err(|source| ServeError::new("udp", options.address, source))?;
    let rate_max = options.rate_max;
    far.start("udp", listener.address, move |stop| {
        UdpServiceThread::new(listener, rate_max).run(stop)
    })
}

/// Service thread with its state.
struct UdpServiceThread {
    listener: UdpListener,
    reflector: Reflector,
    /// Flags currently enabled on the socket.
    enabled_flags: u8,
    /// Flags of recent hellos.
    greeted: u8,
    traffic_class: u8,
    offset: ClockOffset,
    renewed: Timestamp<Monotonic>,
    answered: u64,
    not_unicast: u64,
    dropped: BTreeMap<ReflectorDropReason, u64>,
}

impl UdpServiceThread {
    fn new(listener: UdpListener, rate_max: u64) -> Self {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mut answering = Self {
            listener,
            reflector: Reflector::new(rate_max, boot_id),
            enabled_flags: 0,
            greeted: 0,
            traffic_class: 0,
            offset: realtime_minus_monotonic(),
            renewed: MonotonicClock.now(),
            answered: 0,
            not_unicast: 0,
            dropped: BTreeMap::new(),
        };
        answering.renew(MonotonicClock.now());
        answering
    }

    fn run(mut self, stop: &AtomicBool) -> ServiceCounts {
        let mut envelope = MessageHeader::new();
        let mut buffer = vec![0; LENGTH_MAX];
        let is_wildcard = self.listener.address.ip().is_unspecified();
        loop {
            let with_control = is_wildcard || self.enabled_flags != 0;
            let Some(received) = self.listener.next(&mut envelope, &mut buffer, with_control, stop)
            else {
                break;
            };
            let now = MonotonicClock.now();
            self.answer(&mut envelope, &mut buffer, &received, now);
            if (now - self.renewed).as_ns() > NS_PER_S {
                self.renew(now);
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        self.counts()
    }

    fn answer(
        &mut self,
        envelope: &mut MessageHeader,
        buffer: &mut [u8],
        received: &ReceiveInfo,
        now: Timestamp<Monotonic>,
    ) {
        let Some(remote) = received.remote else { return };
        let kind = buffer[..received.len].get(KIND_OFFSET).filter(|_| received.len >= HEADER_LEN);
        if !received.control.is_unicast() && kind != Some(&(PathDatagramKind::Load as u8)) {
            self.not_unicast += 1;
            return;
        }
        let kernel = received.control.received_at.map(Timestamp::as_ns);
        let arrival = DatagramMetadata {
            remote,
            now,
            received_ns: kernel.unwrap_or((now + self.offset.offset).as_ns()),
            traffic_class: received.control.traffic_class.unwrap_or(0),
        };
        let bytes = &mut buffer[..received.len];
        let kind = bytes.get(KIND_OFFSET).filter(|_| received.len >= HEADER_LEN);
        if kind.is_some_and(|kind| {
            [PathDatagramKind::Hello as u8, PathDatagramKind::End as u8].contains(kind)
        }) {
            // A session reports the difference.
            self.reflector.dropped = self.listener.socket.drops().ok();
        }
        match self.reflector.handle(bytes, &arrival) {
            DatagramVerdict::Drop(reason) => *self.dropped.entry(reason).or_default() += 1,
            DatagramVerdict::Answer(kind, class) => {
                self.colour(class);
                if kind == PathDatagramKind::Echo {
                    let sent_ns = (MonotonicClock.now() + self.offset.offset).as_ns();
                    match bytes.get_mut(SENT_OFFSET..HEADER_LEN) {
                        Some(field) => field.copy_from_slice(&sent_ns.to_be_bytes()),
                        None => short::set_held(bytes, sent_ns - arrival.received_ns),
                    }
                }
                // A failed send is a loss, which the near end sees.
                let sent =
                    envelope.reply(self.listener.socket.as_fd(), bytes, received.control.local);
                self.answered += u64::from(sent.is_ok());
                if kind == PathDatagramKind::Welcome {
                    // Enabled before the first probe arrives, which needs it.
                    self.greeted |= bytes[FLAGS_OFFSET];
                    self.enable_options(self.enabled_flags | self.greeted);
                }
            }
        }
    }

    /// Sets the traffic class of replies when it changes.
    fn colour(&mut self, class: u8) {
        let of = self.listener.address;
        if class != self.traffic_class && self.listener.socket.set_traffic_class(of, class).is_ok()
        {
            self.traffic_class = class;
        }
    }

    /// Enables the socket options that sessions request, and no more.
    fn enable_options(&mut self, wanted: u8) {
        let changed = wanted ^ self.enabled_flags;
        let (socket, of) = (&self.listener.socket, self.listener.address);
        if changed & FLAG_KERNEL_TIME != 0 {
            let on = wanted & FLAG_KERNEL_TIME != 0;
            let _ = if on {
                socket.enable_receive_timestamps(false)
            } else {
                socket.disable_timestamps()
            };
        }
        if changed & FLAG_TRAFFIC_CLASS != 0 {
            let _ = socket.enable_traffic_class(of, wanted & FLAG_TRAFFIC_CLASS != 0);
        }
        self.enabled_flags = wanted;
    }

    /// Refreshes values that change slowly.
    fn renew(&mut self, now: Timestamp<Monotonic>) {
        self.offset = self.offset.latest_or_tighter(realtime_minus_monotonic());
        let clock = kernel_clock().ok().filter(|clock| clock.synchronised);
        self.reflector.error_ns = clock.map_or(-1, |clock| clock.maximum_error.as_ns());
        self.renewed = now;
        self.reflector.forget(now);
        let greeted = std::mem::take(&mut self.greeted);
        self.enable_options(self.reflector.wanted() | greeted);
    }

    fn counts(&self) -> ServiceCounts {
        let of = |reason| self.dropped.get(&reason).copied().unwrap_or(0);
        ServiceCounts::from([
            ("answered", self.answered),
            ("load", of(ReflectorDropReason::Load)),
            ("foreign", of(ReflectorDropReason::Foreign)),
            ("without session", of(ReflectorDropReason::NoSession)),
            ("limited", of(ReflectorDropReason::Limited)),
            ("not unicast", self.not_unicast),
            ("dropped by the socket", self.listener.socket.drops().map_or(0, u64::from)),
        ])
    }
}
