//! UDP service for Horolog's own probes: socket and thread around the [`super::reflector`].

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::clock::{ClockMonotonic, ClockOffset, realtime_minus_monotonic};
use horolog_sys::datagram::{MsghdrBuffers, WaitMode};
use horolog_sys::message::ReceivedDatagramInfo;
use horolog_sys::socket::DatagramSocket;
use horolog_time::{Clock, Monotonic, NS_PER_S, Timestamp};
use horolog_wire::path_probe::{
    FLAG_KERNEL_TIME, FLAG_TRAFFIC_CLASS, HEADER_LEN, PathDatagramKind, short,
};

use super::reflector::{
    DatagramMetadata, DatagramVerdict, PathProbeReflector, ReflectorDropReason,
};
use super::{FarEndListenError, FarEndServiceCounts, RunningFarEnd, STOP_CHECK_INTERVAL};

pub use super::reflector::{DatagramMetadata as UdpArrival, PathProbeReflector as UdpReflector};
pub use super::reflector::{DatagramVerdict as UdpVerdict, kernel_hash};

/// Maximum length of a datagram.
pub(super) const LENGTH_MAX: usize = 65_535;
/// Socket buffer size, for a burst of long datagrams.
pub(super) const BUFFER_BYTES: usize = 4 << 20;
/// Offset of the transmit time in an echo, in bytes.
const SENT_OFFSET: usize = HEADER_LEN - 8;
/// Offset of the datagram kind in the header, in bytes.
const KIND_OFFSET: usize = 5;
/// Offset of the flags in the header, in bytes.
const FLAGS_OFFSET: usize = 6;
/// Receive calls between two checks of the stop flag when busy polling.
pub(super) const POLLS_PER_CHECK: u32 = 1_024;

/// Listen address, wait mode and rate limit of a UDP service.
#[derive(Clone, Copy, Debug)]
pub struct UdpListenOptions {
    /// Listen address.
    pub address: SocketAddr,
    /// True to busy-poll the socket instead of sleeping until a datagram arrives.
    pub busy_polling: bool,
    /// Maximum number of probes answered per second.
    pub rate_max: u64,
}

/// Socket and options of a service that answers datagrams.
pub(super) struct UdpListener {
    pub(super) socket: DatagramSocket,
    pub(super) address: SocketAddr,
    pub(super) wait: WaitMode,
}

impl UdpListener {
    pub(super) fn open(
        part: &'static str,
        options: &UdpListenOptions,
    ) -> Result<Self, FarEndListenError> {
        let failed = |source| FarEndListenError::new(part, options.address, source);
        let socket = Self::bind_socket(options).map_err(failed)?;
        let address = socket.local_address().map_err(failed)?;
        let wait = if options.busy_polling { WaitMode::NonBlocking } else { WaitMode::Blocking };
        Ok(Self { socket, address, wait })
    }

    fn bind_socket(options: &UdpListenOptions) -> io::Result<DatagramSocket> {
        let at = options.address;
        let socket = DatagramSocket::udp(at)?;
        if at.is_ipv6() {
            socket.set_v6_only(true)?;
        }
        socket.bind_to_host(at)?;
        socket.allow_fragmentation(at)?;
        socket.set_receive_timeout(STOP_CHECK_INTERVAL)?;
        // Best effort; a smaller buffer may drop datagrams, which are counted.
        let _ = socket.set_receive_buffer(BUFFER_BYTES);
        Ok(socket)
    }

    /// Waits for a datagram; with `with_control`, control messages are parsed. `None` if the
    /// service is to stop.
    pub(super) fn receive_datagram(
        &self,
        envelope: &mut MsghdrBuffers,
        buffer: &mut [u8],
        with_control: bool,
        stop: &AtomicBool,
    ) -> Option<ReceivedDatagramInfo> {
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
            // An error is a timeout, or an ICMP error for an earlier reply.
            polls += 1;
            if (self.wait == WaitMode::Blocking || polls % POLLS_PER_CHECK == 0)
                && stop.load(Ordering::Relaxed)
            {
                return None;
            }
        }
    }
}

/// Starts the UDP service of the far end.
///
/// # Errors
///
/// If the address cannot be listened on.
pub fn start_service(
    far: &mut RunningFarEnd,
    options: &UdpListenOptions,
) -> Result<(), FarEndListenError> {
    let listener = UdpListener::open("udp", options)?;
    // Load datagrams may be broadcast and are counted by their header, so they must not be
    // truncated.
    let untruncated_kind = Some((KIND_OFFSET as u32, PathDatagramKind::Load as u8));
    listener
        .socket
        .enable_destination_info(options.address)
        .and_then(|()| listener.socket.mark_link_groups(untruncated_kind))
        .map_err(|source| FarEndListenError::new("udp", options.address, source))?;
    let rate_max = options.rate_max;
    far.start("udp", listener.address, move |stop| {
        UdpServiceWorker::new(listener, rate_max).serve_until_stopped(stop)
    })
}

/// Worker that runs in the service thread: socket, sessions and counts.
struct UdpServiceWorker {
    listener: UdpListener,
    reflector: PathProbeReflector,
    /// Flags currently enabled on the socket.
    enabled_flags: u8,
    /// Flags of hellos since the last refresh, whose sessions may not be stored yet.
    recent_hello_flags: u8,
    traffic_class: u8,
    clock_offset: ClockOffset,
    refreshed_at: Timestamp<Monotonic>,
    answered: u64,
    not_unicast: u64,
    dropped: BTreeMap<ReflectorDropReason, u64>,
}

impl UdpServiceWorker {
    fn new(listener: UdpListener, rate_max: u64) -> Self {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mut service_thread = Self {
            listener,
            reflector: PathProbeReflector::new(rate_max, boot_id),
            enabled_flags: 0,
            recent_hello_flags: 0,
            traffic_class: 0,
            clock_offset: realtime_minus_monotonic(),
            refreshed_at: ClockMonotonic.now(),
            answered: 0,
            not_unicast: 0,
            dropped: BTreeMap::new(),
        };
        service_thread.refresh(ClockMonotonic.now());
        service_thread
    }

    fn serve_until_stopped(mut self, stop: &AtomicBool) -> FarEndServiceCounts {
        let mut envelope = MsghdrBuffers::new();
        let mut buffer = vec![0; LENGTH_MAX];
        let is_wildcard = self.listener.address.ip().is_unspecified();
        loop {
            let with_control = is_wildcard || self.enabled_flags != 0;
            let Some(received) =
                self.listener.receive_datagram(&mut envelope, &mut buffer, with_control, stop)
            else {
                break;
            };
            let now = ClockMonotonic.now();
            self.process_datagram(&mut envelope, &mut buffer, &received, now);
            if (now - self.refreshed_at).as_ns() > NS_PER_S {
                self.refresh(now);
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        self.counts()
    }

    fn process_datagram(
        &mut self,
        envelope: &mut MsghdrBuffers,
        buffer: &mut [u8],
        received: &ReceivedDatagramInfo,
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
            received_ns: kernel.unwrap_or((now + self.clock_offset.offset).as_ns()),
            traffic_class: received.control.traffic_class.unwrap_or(0),
        };
        let bytes = &mut buffer[..received.len];
        let kind = bytes.get(KIND_OFFSET).filter(|_| received.len >= HEADER_LEN);
        if kind.is_some_and(|kind| {
            [PathDatagramKind::Hello as u8, PathDatagramKind::End as u8].contains(kind)
        }) {
            // The counts of a session include the drops since its start.
            self.reflector.dropped = self.listener.socket.drops().ok();
        }
        match self.reflector.handle(bytes, &arrival) {
            DatagramVerdict::Drop(reason) => *self.dropped.entry(reason).or_default() += 1,
            DatagramVerdict::Reply(kind, class) => {
                self.set_reply_traffic_class(class);
                if kind == PathDatagramKind::Echo {
                    let sent_ns = (ClockMonotonic.now() + self.clock_offset.offset).as_ns();
                    match bytes.get_mut(SENT_OFFSET..HEADER_LEN) {
                        Some(field) => field.copy_from_slice(&sent_ns.to_be_bytes()),
                        None => short::set_turnaround(bytes, sent_ns - arrival.received_ns),
                    }
                }
                // A failed send appears as a loss at the near end.
                let sent =
                    envelope.reply(self.listener.socket.as_fd(), bytes, received.control.local);
                self.answered += u64::from(sent.is_ok());
                if kind == PathDatagramKind::Welcome {
                    // Enabled now, so that the first probe has a timestamp and a traffic class.
                    self.recent_hello_flags |= bytes[FLAGS_OFFSET];
                    self.enable_options(self.enabled_flags | self.recent_hello_flags);
                }
            }
        }
    }

    /// Sets the traffic class of replies if it has changed.
    fn set_reply_traffic_class(&mut self, class: u8) {
        let of = self.listener.address;
        if class != self.traffic_class && self.listener.socket.set_traffic_class(of, class).is_ok()
        {
            self.traffic_class = class;
        }
    }

    /// Enables exactly the socket options for these flags.
    fn enable_options(&mut self, flags: u8) {
        let changed = flags ^ self.enabled_flags;
        let (socket, of) = (&self.listener.socket, self.listener.address);
        if changed & FLAG_KERNEL_TIME != 0 {
            let on = flags & FLAG_KERNEL_TIME != 0;
            let _ = if on {
                socket.enable_receive_timestamps(false)
            } else {
                socket.disable_timestamps()
            };
        }
        if changed & FLAG_TRAFFIC_CLASS != 0 {
            let _ = socket.enable_traffic_class(of, flags & FLAG_TRAFFIC_CLASS != 0);
        }
        self.enabled_flags = flags;
    }

    /// Refreshes clock offset, error bound, sessions and socket options; called once a second.
    fn refresh(&mut self, now: Timestamp<Monotonic>) {
        self.clock_offset = self.clock_offset.latest_or_tighter(realtime_minus_monotonic());
        let clock = kernel_clock().ok().filter(|clock| clock.synchronised);
        self.reflector.error_ns = clock.map_or(-1, |clock| clock.maximum_error.as_ns());
        self.refreshed_at = now;
        self.reflector.remove_idle_sessions(now);
        let greeted = std::mem::take(&mut self.recent_hello_flags);
        self.enable_options(self.reflector.requested_flags() | greeted);
    }

    fn counts(&self) -> FarEndServiceCounts {
        let of = |reason| self.dropped.get(&reason).copied().unwrap_or(0);
        FarEndServiceCounts::from([
            ("answered", self.answered),
            ("load", of(ReflectorDropReason::Load)),
            ("foreign", of(ReflectorDropReason::Foreign)),
            ("without session", of(ReflectorDropReason::NoSession)),
            ("limited", of(ReflectorDropReason::RateLimited)),
            ("not unicast", self.not_unicast),
            ("dropped by the socket", self.listener.socket.drops().map_or(0, u64::from)),
        ])
    }
}
