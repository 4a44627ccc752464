//! The part of the far end that answers Horolog's own probes over UDP: a socket, a buffer and the
//! [`super::reflector`]. A reply is as long as what it answers, never longer.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::clock::{ClockOffset, MonotonicClock, realtime_minus_monotonic};
use horolog_sys::datagram::{Envelope, Wait};
use horolog_sys::message::Received;
use horolog_sys::socket::Socket;
use horolog_time::{Clock, Monotonic, NS_PER_S, Timestamp};
use horolog_wire::path_probe::{FLAG_KERNEL_TIME, FLAG_TRAFFIC_CLASS, HEADER_LEN, Kind};

use super::reflector::{Arrival, Reason, Reflector, Verdict};
use super::{Counts, FarEnd, ServeError, TICK};

pub use super::reflector::{Arrival as UdpArrival, Reflector as UdpReflector};
pub use super::reflector::{Verdict as UdpVerdict, kernel_hash};

/// The longest datagram there is.
pub(super) const LENGTH_MAX: usize = 65_535;
/// Room in the socket for a burst of long datagrams.
pub(super) const BUFFER_BYTES: usize = 4 << 20;
/// Where the time of an echo's leaving stands.
const SENT_OFFSET: usize = HEADER_LEN - 8;
/// Where the kind stands.
const KIND_OFFSET: usize = 5;
/// Where the flags stand.
const FLAGS_OFFSET: usize = 6;
/// Looks at the queue between two looks at whether the part is to end, where it does not sleep.
pub(super) const POLLS: u32 = 1_024;

/// How to listen.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// Where.
    pub address: SocketAddr,
    /// Whether to look for datagrams all the time, instead of sleeping until one comes.
    pub busy_polling: bool,
    /// Probes answered in a second, at most.
    pub rate_max: u64,
}

/// What a part that answers datagrams has of the system.
pub(super) struct Listener {
    pub(super) socket: Socket,
    pub(super) address: SocketAddr,
    pub(super) wait: Wait,
}

impl Listener {
    pub(super) fn open(part: &'static str, options: &ListenOptions) -> Result<Self, ServeError> {
        let failed = |source| ServeError::new(part, options.address, source);
        let socket = Self::bound(options).map_err(failed)?;
        let address = socket.local_address().map_err(failed)?;
        let wait = if options.busy_polling { Wait::Never } else { Wait::Asleep };
        Ok(Self { socket, address, wait })
    }

    fn bound(options: &ListenOptions) -> io::Result<Socket> {
        let at = options.address;
        let socket = Socket::udp(at)?;
        if at.is_ipv6() {
            socket.set_v6_only(true)?;
        }
        socket.bind(at)?;
        socket.send_in_fragments(at)?;
        socket.set_receive_timeout(TICK)?;
        // What can be had will do: a small buffer loses no more than it says.
        let _ = socket.set_receive_buffer(BUFFER_BYTES);
        if at.ip().is_unspecified() {
            socket.tell_local_address(at)?;
        }
        Ok(socket)
    }

    /// Receives until a datagram is there or the part is to end; with what the kernel tells of it
    /// beside its sender, where that was asked for.
    pub(super) fn next(
        &self,
        envelope: &mut Envelope,
        buffer: &mut [u8],
        told: bool,
        stop: &AtomicBool,
    ) -> Option<Received> {
        let mut polls = 0;
        loop {
            let socket = self.socket.as_fd();
            let received = if told {
                envelope.receive(socket, buffer, self.wait)
            } else {
                envelope.receive_plain(socket, buffer, self.wait)
            };
            if let Ok(received) = received {
                return Some(received);
            }
            // Errors are of answers that nobody wanted (ICMP), and of waits that are over.
            polls += 1;
            if (self.wait == Wait::Asleep || polls % POLLS == 0) && stop.load(Ordering::Relaxed) {
                return None;
            }
        }
    }
}

/// Starts the part.
///
/// # Errors
///
/// When there is no such address to listen at.
pub fn listen(far: &mut FarEnd, options: &ListenOptions) -> Result<(), ServeError> {
    let listener = Listener::open("udp", options)?;
    let rate_max = options.rate_max;
    far.start("udp", listener.address, move |stop| Answering::new(listener, rate_max).run(stop))
}

/// The part as it runs.
struct Answering {
    listener: Listener,
    reflector: Reflector,
    /// What the socket tells because sessions want it.
    told: u8,
    /// What those want who were welcomed lately.
    greeted: u8,
    traffic_class: u8,
    offset: ClockOffset,
    renewed: Timestamp<Monotonic>,
    answered: u64,
    silent: BTreeMap<Reason, u64>,
}

impl Answering {
    fn new(listener: Listener, rate_max: u64) -> Self {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mut answering = Self {
            listener,
            reflector: Reflector::new(rate_max, boot_id),
            told: 0,
            greeted: 0,
            traffic_class: 0,
            offset: realtime_minus_monotonic(),
            renewed: MonotonicClock.now(),
            answered: 0,
            silent: BTreeMap::new(),
        };
        answering.renew(MonotonicClock.now());
        answering
    }

    fn run(mut self, stop: &AtomicBool) -> Counts {
        let mut envelope = Envelope::new();
        let mut buffer = vec![0; LENGTH_MAX];
        let is_wildcard = self.listener.address.ip().is_unspecified();
        loop {
            let told = is_wildcard || self.told != 0;
            let Some(received) = self.listener.next(&mut envelope, &mut buffer, told, stop) else {
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
        envelope: &mut Envelope,
        buffer: &mut [u8],
        received: &Received,
        now: Timestamp<Monotonic>,
    ) {
        let Some(remote) = received.remote else { return };
        let kernel = received.control.received_at.map(Timestamp::as_ns);
        let arrival = Arrival {
            remote,
            now,
            received_ns: kernel.unwrap_or((now + self.offset.offset).as_ns()),
            traffic_class: received.control.traffic_class.unwrap_or(0),
        };
        let bytes = &mut buffer[..received.len];
        let kind = bytes.get(KIND_OFFSET);
        if kind.is_some_and(|kind| [Kind::Hello as u8, Kind::End as u8].contains(kind)) {
            // What is told of a session is the difference.
            self.reflector.dropped = self.listener.socket.drops().ok();
        }
        match self.reflector.take(bytes, &arrival) {
            Verdict::Silence(reason) => *self.silent.entry(reason).or_default() += 1,
            Verdict::Answer(kind, class) => {
                self.colour(class);
                if kind == Kind::Echo {
                    let sent = MonotonicClock.now() + self.offset.offset;
                    bytes[SENT_OFFSET..HEADER_LEN].copy_from_slice(&sent.as_ns().to_be_bytes());
                }
                // One that does not leave is lost, which the near end sees.
                let sent =
                    envelope.answer(self.listener.socket.as_fd(), bytes, received.control.local);
                self.answered += u64::from(sent.is_ok());
                if kind == Kind::Welcome {
                    // Before the first probe comes, of which it will be wanted.
                    self.greeted |= bytes[FLAGS_OFFSET];
                    self.tell(self.told | self.greeted);
                }
            }
        }
    }

    /// Gives answers the class that they are to have, when it changes.
    fn colour(&mut self, class: u8) {
        let of = self.listener.address;
        if class != self.traffic_class && self.listener.socket.set_traffic_class(of, class).is_ok()
        {
            self.traffic_class = class;
        }
    }

    /// Asks the kernel for what is wanted, and for no more.
    fn tell(&mut self, wanted: u8) {
        let changed = wanted ^ self.told;
        let (socket, of) = (&self.listener.socket, self.listener.address);
        if changed & FLAG_KERNEL_TIME != 0 {
            let on = wanted & FLAG_KERNEL_TIME != 0;
            let _ = if on { socket.tell_receive_time(false) } else { socket.tell_no_times() };
        }
        if changed & FLAG_TRAFFIC_CLASS != 0 {
            let _ = socket.tell_traffic_class(of, wanted & FLAG_TRAFFIC_CLASS != 0);
        }
        self.told = wanted;
    }

    /// Looks anew at what moves slowly.
    fn renew(&mut self, now: Timestamp<Monotonic>) {
        self.offset = self.offset.follow(realtime_minus_monotonic());
        let clock = kernel_clock().ok().filter(|clock| clock.synchronised);
        self.reflector.error_ns = clock.map_or(-1, |clock| clock.maximum_error.as_ns());
        self.renewed = now;
        self.reflector.forget(now);
        let greeted = std::mem::take(&mut self.greeted);
        self.tell(self.reflector.wanted() | greeted);
    }

    fn counts(&self) -> Counts {
        let of = |reason| self.silent.get(&reason).copied().unwrap_or(0);
        Counts::from([
            ("answered", self.answered),
            ("load", of(Reason::Load)),
            ("foreign", of(Reason::Foreign)),
            ("without session", of(Reason::NoSession)),
            ("limited", of(Reason::Limited)),
            ("dropped by the socket", self.listener.socket.drops().map_or(0, u64::from)),
        ])
    }
}
