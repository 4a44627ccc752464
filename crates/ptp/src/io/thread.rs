//! Thread of a PTP port: waits for messages and timers, and lets [`ClockPort`] process them.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use horolog_io::PhcConversions;
use horolog_source::{ClockPage, ClockPageReader};
use horolog_sys::clock::ClockMonotonic;
use horolog_sys::netlink::{InterfaceAddress, Netlink};
use horolog_time::{Clock, Monotonic, NS_PER_S, Span, Timestamp};
use horolog_wire::prefix::Prefix;
use horolog_wire::ptp::PtpTimestamp;

use super::fast::XdpPortRegistration;
use super::link::{IncomingPtpMessage, OutgoingPtpMessage, PtpPortSockets};
use super::precedence::RealTimeThrottle;
use super::served::ServedTime;
use super::status::{PtpPortStatusInputs, PtpStatus, PtpTimestampCounts, SharedPortStatus};
use crate::address::{PtpAddress, PtpDestination};
use crate::clock_state::PtpClockProperties;
use crate::port::{ClockPort, Outbox, ReceivedPtpMessage};
use crate::refusal::PtpRefusal;
use crate::settings::{ClockSettings, PortSettings};

/// Longest wait of a thread, so that it notices a stop request or a change of the clock.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Wait while an overdue action remains.
const WAIT_MIN: Span = Span::from_ms(1);
/// Interval at which the status is published and this host's addresses are read.
const STATUS_INTERVAL: Span = Span::from_ns(NS_PER_S / 2);
/// Maximum number of batches to receive before scheduled messages are sent.
const BATCHES_MAX: usize = 4;

/// Sockets, settings and shared data of the thread of one port.
pub(super) struct PortThread {
    pub(super) interface: String,
    pub(super) index: u32,
    pub(super) link: Box<dyn PtpPortSockets>,
    pub(super) netlink: Netlink,
    pub(super) settings: PortSettings,
    pub(super) clock: ClockSettings,
    pub(super) page: ClockPageReader,
    pub(super) conversions: Arc<PhcConversions>,
    pub(super) clock_class: Option<u8>,
    pub(super) allow: Vec<Prefix>,
    /// Registration with the XDP program, if it answers delay requests for the port.
    pub(super) xdp_registration: Option<XdpPortRegistration>,
    pub(super) status: SharedPortStatus,
}

/// Threads of all ports. Dropping it ends the threads.
pub struct PtpThreads {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    ports: Vec<SharedPortStatus>,
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

    /// Returns the status last published by each port.
    #[must_use]
    pub fn status(&self) -> PtpStatus {
        PtpStatus::new(&self.clock, &self.ports)
    }

    /// Returns true if a thread has ended without being stopped.
    #[must_use]
    pub fn has_died(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Ends the threads. The last status of each remains readable.
    pub fn stop(&mut self) {
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

/// Queue of the messages that a port sends during one call.
#[derive(Default)]
struct SendQueue {
    bytes: Vec<u8>,
    messages: Vec<(PtpDestination, bool, bool, usize)>,
    /// Number of messages sent with a request for a transmit timestamp.
    timestamps_requested: u64,
    now: PtpTimestamp,
}

impl Outbox for SendQueue {
    fn send(&mut self, to: PtpDestination, event: bool, needs_timestamp: bool, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        self.timestamps_requested += u64::from(needs_timestamp);
        self.messages.push((to, event, needs_timestamp, message.len()));
    }

    fn now_ptp(&mut self) -> PtpTimestamp {
        self.now
    }
}

impl SendQueue {
    /// Sends all queued messages by `link`.
    fn flush_to(&mut self, link: &mut dyn PtpPortSockets) {
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

/// Networks on the link, and the prefixes to which unicast grants are restricted; if there are no
/// such prefixes, clients on the link may get grants.
struct UnicastAdmissionPrefixes {
    index: u32,
    on_link: Vec<Prefix>,
    allow: Vec<Prefix>,
}

impl UnicastAdmissionPrefixes {
    fn refresh(
        &mut self,
        addresses: &[InterfaceAddress],
        xdp_registration: Option<&mut XdpPortRegistration>,
    ) {
        let ours = |address: &&InterfaceAddress| address.index == self.index;
        self.on_link = addresses.iter().filter(ours).map(|own| own.prefix.network()).collect();
        if let Some(fast) = xdp_registration {
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
    /// Runs the port until the thread is stopped.
    fn run(mut self, stop: &AtomicBool) {
        let now = || ClockMonotonic.now();
        let mut port = ClockPort::new(self.clock.clone(), self.settings.clone(), now());
        let mut admission = UnicastAdmissionPrefixes {
            index: self.index,
            on_link: Vec::new(),
            allow: std::mem::take(&mut self.allow),
        };
        let mut outgoing = SendQueue::default();
        let mut timestamp_counts = PtpTimestampCounts::default();
        let mut publish_at = now();
        // Only if XDP answers delay requests does the thread have little to do but to send.
        let mut priority = self.xdp_registration.is_some().then(|| RealTimeThrottle::raise(now()));
        let mut woken = now();
        while !stop.load(Ordering::Relaxed) {
            self.send_due(&mut port, &mut outgoing);
            // After sending, because this query may take longer than a Sync may be late.
            if now() >= publish_at {
                match self.netlink.addresses() {
                    Ok(addresses) => admission.refresh(&addresses, self.xdp_registration.as_mut()),
                    Err(error) => self.status.store_error(&error),
                }
                match self.netlink.link_by_index(self.index) {
                    Ok(link) => port.set_link_state(link.up && link.operational, now()),
                    Err(error) => {
                        // The interface was removed, or the query failed, so its earlier state may
                        // be outdated. An interface that appears later under the same name is
                        // another one with its own MAC address, and the privileges to open sockets
                        // have been dropped.
                        port.set_link_state(false, now());
                        self.status.store_error(&format!(
                            "'{}' has changed since the start ({error}); restart the server when \
                             it is back",
                            self.interface
                        ));
                    }
                }
                self.publish_status(&port, timestamp_counts, outgoing.timestamps_requested);
                publish_at = now() + STATUS_INTERVAL;
            }
            // Actions due by now are done; any that remain wait for another event.
            let due = port.next_due() - now();
            let due = if due > Span::ZERO { due } else { WAIT_MIN };
            let wait = Duration::from_nanos(due.as_ns().unsigned_abs()).min(WAIT_MAX);
            if let Some(priority) = &mut priority {
                priority.charge_work(woken, now());
            }
            let waited = self.link.wait(wait);
            woken = now();
            let done = waited.and_then(|()| {
                self.process_transmitted(&mut port, &mut outgoing, &mut timestamp_counts)?;
                self.process_received(&mut port, &admission, &mut outgoing, &mut timestamp_counts)
            });
            if let Err(error) = done {
                // An interface that is down recovers; if it was removed, this is repeated until the
                // server is stopped.
                self.status.store_error(&error);
                thread::sleep(WAIT_MAX);
            }
        }
        self.withdraw_grants(&mut port, &mut outgoing);
        self.publish_status(&port, timestamp_counts, outgoing.timestamps_requested);
    }

    /// Cancels all grants and notifies their clients, by the actions of a port whose clock is
    /// unusable.
    fn withdraw_grants(&mut self, port: &mut ClockPort, outgoing: &mut SendQueue) {
        let (page, now) = (self.page.read(), ClockMonotonic.now());
        let state =
            PtpClockProperties { usable: false, ..self.served_time(&page).clock_state(now) };
        port.process_due(&state, now, outgoing);
        outgoing.flush_to(&mut *self.link);
    }

    /// Returns the PTP data of the clock at `now`. With one-step operation the NIC sends the time
    /// of its PHC, so the clock is only usable while another process disciplines the PHC to the
    /// served time.
    fn clock_state(
        &self,
        served: &ServedTime<'_>,
        now: Timestamp<Monotonic>,
    ) -> PtpClockProperties {
        let mut state = served.clock_state(now);
        if self.settings.one_step && state.usable && !served.is_phc_on_served_time(self.index, now)
        {
            state.usable = false;
            self.status.store_error(&"the PHC does not show TAI, so no one-step Sync is sent");
        }
        state
    }

    fn served_time<'a>(&'a self, page: &'a ClockPage) -> ServedTime<'a> {
        ServedTime { page, conversions: &self.conversions, clock_class: self.clock_class }
    }

    fn send_due(&mut self, port: &mut ClockPort, outgoing: &mut SendQueue) {
        let (page, now) = (self.page.read(), ClockMonotonic.now());
        let served = self.served_time(&page);
        let state = self.clock_state(&served, now);
        outgoing.now = served.ptp_time_at(now).unwrap_or(PtpTimestamp::ZERO);
        port.process_due(&state, now, outgoing);
        if let Some(xdp_registration) = &mut self.xdp_registration {
            xdp_registration.set_responder(port.delay_responder(&state));
        }
        outgoing.flush_to(&mut *self.link);
    }

    /// Passes looped-back messages with their transmit times to the port, which sends follow-ups.
    fn process_transmitted(
        &mut self,
        port: &mut ClockPort,
        outgoing: &mut SendQueue,
        timestamp_counts: &mut PtpTimestampCounts,
    ) -> io::Result<()> {
        let page = self.page.read();
        let served = ServedTime {
            page: &page,
            conversions: &self.conversions,
            clock_class: self.clock_class,
        };
        let mut each = |returned: &super::link::TransmittedPtpMessage<'_>| {
            let (at, by) = returned.timestamp;
            timestamp_counts.count(by);
            timestamp_counts.departures += 1;
            port.process_transmitted(returned.bytes, returned.to, at, outgoing);
        };
        self.link.receive_transmitted(&served, &|| ClockMonotonic.now(), &mut each)?;
        outgoing.flush_to(&mut *self.link);
        Ok(())
    }

    fn process_received(
        &mut self,
        port: &mut ClockPort,
        admission: &UnicastAdmissionPrefixes,
        outgoing: &mut SendQueue,
        timestamp_counts: &mut PtpTimestampCounts,
    ) -> io::Result<()> {
        for _ in 0..BATCHES_MAX {
            let page = self.page.read();
            let served = ServedTime {
                page: &page,
                conversions: &self.conversions,
                clock_class: self.clock_class,
            };
            let now = ClockMonotonic.now();
            let state = self.clock_state(&served, now);
            outgoing.now = served.ptp_time_at(now).unwrap_or(PtpTimestamp::ZERO);
            let mut each = |message: &IncomingPtpMessage<'_>| {
                if message.stray {
                    return port.refuse(PtpRefusal::NotUnicast);
                }
                // An event message without a receive time is treated as lost.
                match message.timestamp.filter(|_| message.event) {
                    Some((_, by)) => timestamp_counts.count(by),
                    None if message.event => {
                        timestamp_counts.missing += 1;
                        return;
                    }
                    None => {}
                }
                let received = message.timestamp.map_or(PtpTimestamp::ZERO, |(at, _)| at);
                let arrival = ReceivedPtpMessage {
                    bytes: message.bytes,
                    from: message.from,
                    from_port: message.from_port,
                    group: message.to_group,
                    event: message.event,
                    received,
                    on_link: admission.is_on_link(message.from),
                    admitted: admission.admits(message.from),
                };
                port.receive(&arrival, &state, now, outgoing);
            };
            let count = self.link.receive(&served, &|| ClockMonotonic.now(), &mut each)?;
            outgoing.flush_to(&mut *self.link);
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
        timestamps_requested: u64,
    ) {
        let page = self.page.read();
        let clock = self.served_time(&page).clock_state(ClockMonotonic.now());
        let status = PtpPortStatusInputs {
            interface: self.interface.clone(),
            settings: self.settings.clone(),
            view: port.view(&clock),
            clock,
            timestamp_counts,
            timestamps_requested,
            send_errors: self.link.refused(),
            dropped: self.link.dropped(),
        };
        self.status.store_status(status);
    }
}
