//! Thread of a port: it waits for messages and timers, and lets [`ClockPort`] decide.

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
use super::link::{IncomingPtpMessage, OutgoingPtpMessage, PortLink};
use super::precedence::ThreadPriority;
use super::served::ServedTime;
use super::status::{PortStatus, PtpStatus, PtpTimestampCounts, SharedStatus};
use crate::hardware::PhcConversions;
use crate::page::{ClockPage, PageReader};
use crate::ptp::{
    ClockPort, ClockSettings, Outbox, PortSettings, PtpAddress, PtpArrival, PtpClockState,
    PtpDestination, PtpRefusal,
};

/// Longest wait of a thread, so that it detects a stop request and changes of the clock.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Wait if an action remains due.
const WAIT_MIN: Span = Span::from_ms(1);
/// Interval at which the status is published and this host's addresses are read.
const STATUS_INTERVAL: Span = Span::from_ns(NS_PER_S / 2);
/// Batches received before due messages are checked.
const BATCHES_PER_TURN: usize = 4;

/// Data of a port's thread.
pub(super) struct PortThread {
    pub(super) interface: String,
    pub(super) index: u32,
    pub(super) link: Box<dyn PortLink>,
    pub(super) netlink: Netlink,
    pub(super) settings: PortSettings,
    pub(super) clock: ClockSettings,
    pub(super) page: PageReader,
    pub(super) conversions: Arc<PhcConversions>,
    pub(super) clock_class: Option<u8>,
    pub(super) allow: Vec<Prefix>,
    /// Program that responds to delay requests for the port.
    pub(super) fast: Option<FastPath>,
    pub(super) status: SharedStatus,
}

/// Threads of all ports; dropping it ends them.
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

    /// Returns the last published status of the ports.
    pub(crate) fn status(&self) -> PtpStatus {
        PtpStatus::new(&self.clock, &self.ports)
    }

    /// Returns true if a thread has ended without being stopped.
    pub(crate) fn has_died(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Ends the threads; their last status remains readable.
    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panicked thread has already reported on stderr.
            let _ = thread.join();
        }
    }
}

impl Drop for PtpThreads {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Messages sent by a port, queued until the link is available.
#[derive(Default)]
struct SendQueue {
    bytes: Vec<u8>,
    messages: Vec<(PtpDestination, bool, bool, usize)>,
    /// Number of messages to be returned with their transmit time.
    awaited: u64,
    now: PtpTimestamp,
}

impl Outbox for SendQueue {
    fn send(&mut self, to: PtpDestination, event: bool, stamp: bool, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        self.awaited += u64::from(stamp);
        self.messages.push((to, event, stamp, message.len()));
    }

    fn now_ptp(&mut self) -> PtpTimestamp {
        self.now
    }
}

impl SendQueue {
    /// Sends the queue by `link`.
    fn leave_by(&mut self, link: &mut dyn PortLink) {
        let mut rest = &self.bytes[..];
        for &(to, event, stamp, len) in &self.messages {
            let (bytes, after) = rest.split_at(len);
            link.push(&OutgoingPtpMessage { to, event, needs_timestamp: stamp, bytes });
            rest = after;
        }
        if !self.messages.is_empty() {
            link.flush();
        }
        self.bytes.clear();
        self.messages.clear();
    }
}

/// Prefixes on the link, and prefixes admitted to grants.
struct UnicastAdmission {
    index: u32,
    on_link: Vec<Prefix>,
    allow: Vec<Prefix>,
}

impl UnicastAdmission {
    fn refresh(&mut self, addresses: &[InterfaceAddress], fast: Option<&mut FastPath>) {
        let ours = |address: &&InterfaceAddress| address.index == self.index;
        self.on_link = addresses.iter().filter(ours).map(|own| own.prefix.network()).collect();
        if let Some(fast) = fast {
            let admitted = if self.allow.is_empty() { &self.on_link } else { &self.allow };
            fast.refresh(addresses.iter().filter(ours).map(|own| own.prefix.address()), admitted);
        }
    }

    fn is_on_link(&self, from: PtpAddress) -> bool {
        match from {
            PtpAddress::Mac(_) => true,
            PtpAddress::Ip { peer, .. } => contains(&self.on_link, peer),
        }
    }

    fn admits(&self, from: PtpAddress) -> bool {
        match from {
            PtpAddress::Ip { peer, .. } if !self.allow.is_empty() => contains(&self.allow, peer),
            from => self.is_on_link(from),
        }
    }
}

fn contains(prefixes: &[Prefix], ip: IpAddr) -> bool {
    prefixes.iter().any(|prefix| prefix.contains(ip))
}

impl PortThread {
    /// Serves until it is stopped.
    fn run(mut self, stop: &AtomicBool) {
        let now = || MonotonicClock.now();
        let mut port = ClockPort::new(self.clock.clone(), self.settings.clone(), now());
        let mut admission = UnicastAdmission {
            index: self.index,
            on_link: Vec::new(),
            allow: std::mem::take(&mut self.allow),
        };
        let mut leaving = SendQueue::default();
        let mut timestamp_counts = PtpTimestampCounts::default();
        let mut publish_at = now();
        // XDP then responds to delay requests, so that little work but sending remains.
        let mut precedence = self.fast.is_some().then(|| ThreadPriority::take(now()));
        let mut woken = now();
        while !stop.load(Ordering::Relaxed) {
            self.send_due(&mut port, &mut leaving);
            // After the due messages: the query to the kernel takes longer than a Sync may be late.
            if now() >= publish_at {
                match self.netlink.addresses() {
                    Ok(addresses) => admission.refresh(&addresses, self.fast.as_mut()),
                    Err(error) => self.status.note_error(&error),
                }
                match self.netlink.link_by_index(self.index) {
                    Ok(link) => port.link(link.up && link.operational, now()),
                    Err(error) => {
                        // The interface was removed, or the lookup failed; earlier knowledge of it
                        // may not hold. An interface that later appears under its name is a
                        // different one, with its own MAC address, and the privileges that opened
                        // the sockets have been dropped.
                        port.link(false, now());
                        self.status.note_error(&format!(
                            "'{}' has changed since the start ({error}); restart the server when \
                             it is back",
                            self.interface
                        ));
                    }
                }
                self.publish_status(&port, timestamp_counts, leaving.awaited);
                publish_at = now() + STATUS_INTERVAL;
            }
            // Due actions have just been taken; any that remain wait for another change.
            let due = port.next_due() - now();
            let due = if due > Span::ZERO { due } else { WAIT_MIN };
            let wait = Duration::from_nanos(due.as_ns().unsigned_abs()).min(WAIT_MAX);
            if let Some(precedence) = &mut precedence {
                precedence.worked(woken, now());
            }
            let waited = self.link.wait(wait);
            woken = now();
            let done = waited.and_then(|()| {
                self.follow_up(&mut port, &mut leaving, &mut timestamp_counts)?;
                self.answer(&mut port, &admission, &mut leaving, &mut timestamp_counts)
            });
            if let Err(error) = done {
                // An interface that is down comes back; one that was removed does not, and then
                // this continues until the server is stopped.
                self.status.note_error(&error);
                thread::sleep(WAIT_MAX);
            }
        }
        self.leave(&mut port, &mut leaving);
        self.publish_status(&port, timestamp_counts, leaving.awaited);
    }

    /// Withdraws the grants.
    fn leave(&mut self, port: &mut ClockPort, leaving: &mut SendQueue) {
        let (page, now) = (self.page.read(), MonotonicClock.now());
        let state = PtpClockState { usable: false, ..self.served(&page).state(now) };
        port.due(&state, now, leaving);
        leaving.leave_by(&mut *self.link);
    }

    /// Returns the state of the clock as it can be served at `now`. A NIC that writes the time into
    /// Sync itself writes that of its PHC, which must be disciplined by another process.
    fn state(&self, served: &ServedTime<'_>, now: Timestamp<Monotonic>) -> PtpClockState {
        let mut state = served.state(now);
        if self.settings.one_step && state.usable && !served.is_phc_on_served_time(self.index, now)
        {
            state.usable = false;
            self.status.note_error(&"the PHC does not show TAI, so no one-step Sync is sent");
        }
        state
    }

    fn served<'a>(&'a self, page: &'a ClockPage) -> ServedTime<'a> {
        ServedTime { page, conversions: &self.conversions, clock_class: self.clock_class }
    }

    fn send_due(&mut self, port: &mut ClockPort, leaving: &mut SendQueue) {
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

    /// Reports the transmit times of returned messages.
    fn follow_up(
        &mut self,
        port: &mut ClockPort,
        leaving: &mut SendQueue,
        timestamp_counts: &mut PtpTimestampCounts,
    ) -> io::Result<()> {
        let page = self.page.read();
        let served = ServedTime {
            page: &page,
            conversions: &self.conversions,
            clock_class: self.clock_class,
        };
        let mut each = |returned: &super::link::TransmittedMessage<'_>| {
            let (at, by) = returned.timestamp;
            timestamp_counts.count(by);
            timestamp_counts.departures += 1;
            port.sent(returned.bytes, returned.to, at, leaving);
        };
        self.link.returned(&served, &|| MonotonicClock.now(), &mut each)?;
        leaving.leave_by(&mut *self.link);
        Ok(())
    }

    fn answer(
        &mut self,
        port: &mut ClockPort,
        admission: &UnicastAdmission,
        leaving: &mut SendQueue,
        timestamp_counts: &mut PtpTimestampCounts,
    ) -> io::Result<()> {
        for _ in 0..BATCHES_PER_TURN {
            let page = self.page.read();
            let served = ServedTime {
                page: &page,
                conversions: &self.conversions,
                clock_class: self.clock_class,
            };
            let now = MonotonicClock.now();
            let state = self.state(&served, now);
            leaving.now = served.at(now).unwrap_or(PtpTimestamp::ZERO);
            let mut each = |message: &IncomingPtpMessage<'_>| {
                if message.stray {
                    return port.refuse(PtpRefusal::NotUnicast);
                }
                // An event message without a receive time counts as lost.
                match message.timestamp.filter(|_| message.event) {
                    Some((_, by)) => timestamp_counts.count(by),
                    None if message.event => {
                        timestamp_counts.missing += 1;
                        return;
                    }
                    None => {}
                }
                let received = message.timestamp.map_or(PtpTimestamp::ZERO, |(at, _)| at);
                let arrival = PtpArrival {
                    bytes: message.bytes,
                    from: message.from,
                    from_port: message.from_port,
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

    fn publish_status(
        &mut self,
        port: &ClockPort,
        timestamp_counts: PtpTimestampCounts,
        awaited: u64,
    ) {
        let page = self.page.read();
        let clock = self.served(&page).state(MonotonicClock.now());
        let status = PortStatus {
            interface: self.interface.clone(),
            settings: self.settings.clone(),
            view: port.view(&clock),
            clock,
            timestamp_counts,
            awaited,
            send_errors: self.link.refused(),
            dropped: self.link.dropped(),
        };
        self.status.put(status);
    }
}
