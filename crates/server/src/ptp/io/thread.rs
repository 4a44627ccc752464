//! The thread of a port: it waits for messages and for what is due, and lets [`Port`] decide.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use horolog_sys::clock::MonotonicClock;
use horolog_sys::netlink::{InterfaceAddress, Netlink, Prefix};
use horolog_time::{Clock, Monotonic, NS_PER_S, Span, Timestamp};
use horolog_wire::ptp::PtpTimestamp;

use super::fast::FastPath;
use super::link::{Incoming, Link, Outgoing};
use super::precedence::Precedence;
use super::served::Served;
use super::status::{PortStatus, PtpStatus, SharedStatus, Stamps};
use crate::hardware::Conversions;
use crate::page::{Page, PageReader};
use crate::ptp::{
    Address, Arrival, ClockSettings, ClockState, Destination, Outbox, Port, PortSettings,
};

/// How long a thread waits at most, so that it sees when it is to stop and when the clock changes.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// How long it waits when something stays due.
const WAIT_MIN: Span = Span::from_ms(1);
/// How often the state is told and this machine's addresses are looked up.
const TELL_EVERY: Span = Span::from_ns(NS_PER_S / 2);
/// Batches that are taken before it is looked after what is due.
const BATCHES_PER_TURN: usize = 4;

/// All that the thread of a port needs.
pub(super) struct PortThread {
    pub(super) interface: String,
    pub(super) index: u32,
    pub(super) link: Box<dyn Link>,
    pub(super) netlink: Netlink,
    pub(super) settings: PortSettings,
    pub(super) clock: ClockSettings,
    pub(super) page: PageReader,
    pub(super) conversions: Arc<Conversions>,
    pub(super) clock_class: Option<u8>,
    pub(super) allow: Vec<Prefix>,
    /// The program that answers requests for the delay in its place.
    pub(super) fast: Option<FastPath>,
    pub(super) status: SharedStatus,
}

/// The threads of all ports; dropping it ends them.
pub(crate) struct PtpThreads {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    ports: Vec<SharedStatus>,
    clock: ClockSettings,
}

impl std::fmt::Debug for PtpThreads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PtpThreads").field("ports", &self.ports.len()).finish_non_exhaustive()
    }
}

impl PtpThreads {
    pub(super) fn new(clock: ClockSettings) -> Self {
        Self { stop: Arc::default(), threads: Vec::new(), ports: Vec::new(), clock }
    }

    pub(super) fn spawn(&mut self, port: PortThread) -> io::Result<()> {
        self.ports.push(port.status.clone());
        let stop = Arc::clone(&self.stop);
        let name = format!("ptp-{}", port.settings.number);
        let thread = thread::Builder::new().name(name).spawn(move || port.run(&stop))?;
        self.threads.push(thread);
        Ok(())
    }

    /// What the ports do, as they last told.
    pub(crate) fn status(&self) -> PtpStatus {
        PtpStatus::new(&self.clock, &self.ports)
    }

    /// Whether a thread has ended without being told to.
    pub(crate) fn has_died(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Ends the threads; their last state can still be read.
    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so on stderr; there is nothing to add here.
            let _ = thread.join();
        }
    }
}

impl Drop for PtpThreads {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What a port sends, kept until the link is free to take it.
#[derive(Default)]
struct Leaving {
    bytes: Vec<u8>,
    messages: Vec<(Destination, bool, bool, usize)>,
    /// How many were to come back with the time when they left.
    awaited: u64,
    now: PtpTimestamp,
}

impl Outbox for Leaving {
    fn send(&mut self, to: Destination, event: bool, stamp: bool, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        self.awaited += u64::from(stamp);
        self.messages.push((to, event, stamp, message.len()));
    }

    fn now_ptp(&mut self) -> PtpTimestamp {
        self.now
    }
}

impl Leaving {
    /// Sends all of it.
    fn leave_by(&mut self, link: &mut dyn Link) {
        let mut rest = &self.bytes[..];
        for &(to, event, stamp, len) in &self.messages {
            let (bytes, after) = rest.split_at(len);
            link.push(&Outgoing { to, event, stamp, bytes });
            rest = after;
        }
        if !self.messages.is_empty() {
            link.flush();
        }
        self.bytes.clear();
        self.messages.clear();
    }
}

/// Who is on the link, and who may be granted what.
struct Admission {
    index: u32,
    on_link: Vec<Prefix>,
    allow: Vec<Prefix>,
}

impl Admission {
    fn look(&mut self, addresses: &[InterfaceAddress], fast: Option<&mut FastPath>) {
        let ours = |address: &&InterfaceAddress| address.index == self.index;
        self.on_link = addresses.iter().filter(ours).map(|own| own.prefix.network()).collect();
        if let Some(fast) = fast {
            let admitted = if self.allow.is_empty() { &self.on_link } else { &self.allow };
            fast.look(addresses.iter().filter(ours).map(|own| own.prefix.address()), admitted);
        }
    }

    fn is_on_link(&self, from: Address) -> bool {
        match from {
            Address::Mac(_) => true,
            Address::Ip { peer, .. } => contains(&self.on_link, peer),
        }
    }

    fn admits(&self, from: Address) -> bool {
        match from {
            Address::Ip { peer, .. } if !self.allow.is_empty() => contains(&self.allow, peer),
            from => self.is_on_link(from),
        }
    }
}

fn contains(prefixes: &[Prefix], ip: IpAddr) -> bool {
    prefixes.iter().any(|prefix| prefix.contains(ip))
}

impl PortThread {
    /// Serves until told to stop.
    fn run(mut self, stop: &AtomicBool) {
        let now = || MonotonicClock.now();
        let mut port = Port::new(self.clock.clone(), self.settings.clone(), now());
        let mut admission = Admission {
            index: self.index,
            on_link: Vec::new(),
            allow: std::mem::take(&mut self.allow),
        };
        let mut leaving = Leaving::default();
        let mut stamps = Stamps::default();
        let mut tell_at = now();
        // Where XDP answers requests for the delay, so that little is left to do but to send.
        let mut precedence = self.fast.is_some().then(|| Precedence::take(now()));
        let mut woken = now();
        while !stop.load(Ordering::Relaxed) {
            self.send_due(&mut port, &mut leaving);
            // Behind what is due: asking the kernel takes longer than a Sync may be late.
            if now() >= tell_at {
                match self.netlink.addresses() {
                    Ok(addresses) => admission.look(&addresses, self.fast.as_mut()),
                    Err(error) => self.status.note_error(&error),
                }
                match self.netlink.link_by_index(self.index) {
                    Ok(link) => port.link(link.up && link.operational, now()),
                    Err(error) => {
                        // It is gone, or nobody can tell; what was known of it may not hold. One
                        // that comes under its name is another, with a MAC address of its own, and
                        // what opened the sockets has been given up.
                        port.link(false, now());
                        self.status.note_error(&format!(
                            "'{}' is not what it was at the start ({error}); restart the server \
                             when it is there",
                            self.interface
                        ));
                    }
                }
                self.tell(&port, stamps, leaving.awaited);
                tell_at = now() + TELL_EVERY;
            }
            // What is due has just been done; what still is waits for something else to change.
            let due = port.next_due() - now();
            let due = if due > Span::ZERO { due } else { WAIT_MIN };
            let wait = Duration::from_nanos(due.as_ns().unsigned_abs()).min(WAIT_MAX);
            if let Some(precedence) = &mut precedence {
                precedence.worked(woken, now());
            }
            let waited = self.link.wait(wait);
            woken = now();
            let done = waited.and_then(|()| {
                self.follow_up(&mut port, &mut leaving, &mut stamps)?;
                self.answer(&mut port, &admission, &mut leaving, &mut stamps)
            });
            if let Err(error) = done {
                // An interface that is down comes back; one that is gone does not, and then this
                // goes on until the server is told to stop.
                self.status.note_error(&error);
                thread::sleep(WAIT_MAX);
            }
        }
        self.leave(&mut port, &mut leaving);
        self.tell(&port, stamps, leaving.awaited);
    }

    /// Takes back what was granted.
    fn leave(&mut self, port: &mut Port, leaving: &mut Leaving) {
        let (page, now) = (self.page.read(), MonotonicClock.now());
        let state = ClockState { usable: false, ..self.served(&page).state(now) };
        port.due(&state, now, leaving);
        leaving.leave_by(&mut *self.link);
    }

    /// The clock as it can be served at `now`. A card that writes the time into Sync itself writes
    /// that of its own clock, which somebody else has to keep right.
    fn state(&self, served: &Served<'_>, now: Timestamp<Monotonic>) -> ClockState {
        let mut state = served.state(now);
        if self.settings.one_step && state.usable && !served.is_shown_by_card(self.index, now) {
            state.usable = false;
            self.status
                .note_error(&"the card's clock does not show TAI, so no one-step Sync is sent");
        }
        state
    }

    fn served<'a>(&'a self, page: &'a Page) -> Served<'a> {
        Served { page, conversions: &self.conversions, clock_class: self.clock_class }
    }

    fn send_due(&mut self, port: &mut Port, leaving: &mut Leaving) {
        let (page, now) = (self.page.read(), MonotonicClock.now());
        let served = self.served(&page);
        let state = self.state(&served, now);
        leaving.now = served.at(now).unwrap_or(PtpTimestamp::ZERO);
        port.due(&state, now, leaving);
        if let Some(fast) = &mut self.fast {
            fast.serve(port.fast(&state));
        }
        leaving.leave_by(&mut *self.link);
    }

    /// Tells when what came back had left.
    fn follow_up(
        &mut self,
        port: &mut Port,
        leaving: &mut Leaving,
        stamps: &mut Stamps,
    ) -> io::Result<()> {
        let page = self.page.read();
        let served =
            Served { page: &page, conversions: &self.conversions, clock_class: self.clock_class };
        let mut each = |returned: &super::link::Returned<'_>| {
            let (at, by) = returned.stamp;
            stamps.count(by);
            stamps.departures += 1;
            port.sent(returned.bytes, returned.to, at, leaving);
        };
        self.link.returned(&served, &|| MonotonicClock.now(), &mut each)?;
        leaving.leave_by(&mut *self.link);
        Ok(())
    }

    fn answer(
        &mut self,
        port: &mut Port,
        admission: &Admission,
        leaving: &mut Leaving,
        stamps: &mut Stamps,
    ) -> io::Result<()> {
        for _ in 0..BATCHES_PER_TURN {
            let page = self.page.read();
            let served = Served {
                page: &page,
                conversions: &self.conversions,
                clock_class: self.clock_class,
            };
            let now = MonotonicClock.now();
            let state = self.state(&served, now);
            leaving.now = served.at(now).unwrap_or(PtpTimestamp::ZERO);
            let mut each = |message: &Incoming<'_>| {
                // An event message without a time of arrival is as good as lost.
                match message.stamp.filter(|_| message.event) {
                    Some((_, by)) => stamps.count(by),
                    None if message.event => {
                        stamps.missing += 1;
                        return;
                    }
                    None => {}
                }
                let received = message.stamp.map_or(PtpTimestamp::ZERO, |(at, _)| at);
                let arrival = Arrival {
                    bytes: message.bytes,
                    from: message.from,
                    group: message.to_group,
                    event: message.event,
                    received,
                    on_link: admission.is_on_link(message.from),
                    admitted: admission.admits(message.from),
                };
                port.receive(&arrival, &state, now, leaving);
            };
            let count = self.link.receive(&served, &|| MonotonicClock.now(), &mut each)?;
            leaving.leave_by(&mut *self.link);
            if count == 0 {
                break;
            }
        }
        Ok(())
    }

    fn tell(&mut self, port: &Port, stamps: Stamps, awaited: u64) {
        let page = self.page.read();
        let clock = self.served(&page).state(MonotonicClock.now());
        let status = PortStatus {
            interface: self.interface.clone(),
            settings: self.settings.clone(),
            view: port.view(&clock),
            clock,
            stamps,
            awaited,
            send_errors: self.link.refused(),
            dropped: self.link.dropped(),
        };
        self.status.put(status);
    }
}
