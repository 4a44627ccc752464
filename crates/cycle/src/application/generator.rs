//! Simulated sources: a thread that sends the scheduled reports at their times to the sockets of
//! the nodes, waits for no node, and counts what it sent.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use horolog_record::{Distribution, SimulatedSourceResult};
use horolog_stats::Histogram;
use horolog_sys::affinity::SchedulingParameters;
use horolog_sys::clock::{ClockMonotonic, sleep_until};
use horolog_sys::datagram;
use horolog_sys::socket::DatagramSocket;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::plan::{ApplicationTestPlan, REPORT_MAX};
use super::report::SimulatedReportHeader;
use super::script::{InjectedReportFaultKind, ScheduledSimulatedReport, SimulatedReportSchedule};

/// Longest sleep between two checks of the stop flag.
const POLL_INTERVAL: Span = Span::from_ms(20);
/// Largest number of reports sent between two checks of the stop flag.
const BATCH: usize = 256;
/// Longest single wait for space in a full send buffer.
const SEND_BUFFER_WAIT: Duration = Duration::from_micros(500);

/// Outcome of the sender: what it sent for each source and injected for each fault.
pub(super) struct SimulatedReportSenderOutcome {
    /// Record of each source.
    pub(super) sources: Vec<SimulatedSourceResult>,
    /// For each fault, number of injections and planned send time of the first one, in ns of the
    /// run.
    pub(super) faults: Vec<(u64, Option<u64>)>,
}

/// Opens a socket for each source and returns it with its local address, by which nodes attribute a
/// damaged report to its source.
pub(super) fn open_sockets(
    plan: &ApplicationTestPlan,
) -> io::Result<Vec<(DatagramSocket, SocketAddr)>> {
    let open = |_| {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let socket = DatagramSocket::udp(loopback)?;
        socket.bind(loopback)?;
        let address = socket.local_address()?;
        Ok((socket, address))
    };
    plan.sources.iter().map(open).collect()
}

/// Counts of the reports of a simulated source.
#[derive(Default)]
struct SimulatedSourceCounts {
    due: u64,
    sent: u64,
    unsent: u64,
    bytes: u64,
    lateness: Histogram,
    last_ns: u64,
}

/// Sender of the scheduled reports of all simulated sources to the nodes.
pub(super) struct SimulatedReportSender<'a> {
    plan: &'a ApplicationTestPlan,
    script: SimulatedReportSchedule<'a>,
    sockets: Vec<(DatagramSocket, SocketAddr)>,
    nodes: Vec<SocketAddr>,
    begin: Timestamp<Monotonic>,
    until_ns: u64,
    counts: Vec<SimulatedSourceCounts>,
    faults: Vec<(u64, Option<u64>)>,
    buffer: Vec<u8>,
}

impl<'a> SimulatedReportSender<'a> {
    /// Creates a sender to these addresses of the nodes, from `begin` until two periods before the
    /// end of the plan, so that the nodes can still process all reports. `load` multiplies the
    /// rates.
    pub(super) fn new(
        plan: &'a ApplicationTestPlan,
        load: f64,
        sockets: Vec<(DatagramSocket, SocketAddr)>,
        nodes: Vec<SocketAddr>,
        begin: Timestamp<Monotonic>,
    ) -> Self {
        let until_ns = plan.period_count().saturating_sub(2).saturating_mul(plan.period_ns);
        Self {
            plan,
            script: SimulatedReportSchedule::new(plan, load, until_ns),
            counts: plan.sources.iter().map(|_| SimulatedSourceCounts::default()).collect(),
            faults: vec![(0, None); plan.faults.len()],
            sockets,
            nodes,
            begin,
            until_ns,
            buffer: (0..REPORT_MAX).map(|at| (at % 251) as u8).collect(),
        }
    }

    /// Sends the reports until the end of the schedule or until `stop` is set, then announces the
    /// ends of the sources. Reports that are still unsent at the end of the schedule are counted as
    /// not sent.
    pub(super) fn run(mut self, stop: &AtomicBool) -> SimulatedReportSenderOutcome {
        // The sources take precedence over the nodes, unless these have priority 99. If the
        // priority is refused, the recorded send lateness shows it.
        let priority = i32::from(self.plan.priority).clamp(1, 98) + 1;
        let _ = SchedulingParameters::fifo(priority, true).apply();
        while !stop.load(Ordering::Relaxed) {
            let now_ns = self.now_ns();
            for _ in 0..BATCH {
                let Some(scheduled) = self.script.pop_due(now_ns) else { break };
                self.send(&scheduled);
            }
            let now_ns = self.now_ns();
            match self.script.next_ns() {
                // Reports not sent by now are too late to be taken.
                Some(_) if now_ns > self.until_ns => self.count_unsent(),
                Some(next_ns) if next_ns <= now_ns => {}
                Some(next_ns) => {
                    let next = self.begin + Span::from_ns(next_ns as i64);
                    sleep_until(next.min(ClockMonotonic.now() + POLL_INTERVAL));
                }
                None if now_ns >= self.until_ns => break,
                None => sleep_until(ClockMonotonic.now() + POLL_INTERVAL),
            }
        }
        self.send_ends();
        self.into_outcome()
    }

    fn now_ns(&self) -> u64 {
        (ClockMonotonic.now() - self.begin).as_ns().max(0).unsigned_abs()
    }

    fn send(&mut self, scheduled: &ScheduledSimulatedReport) {
        let count = &mut self.counts[usize::from(scheduled.source)];
        count.due += 1;
        if let Some(injected) = scheduled.error {
            let (times, first_ns) = &mut self.faults[injected.fault];
            *times += 1;
            first_ns.get_or_insert(scheduled.send_ns);
            if injected.kind == InjectedReportFaultKind::Lost {
                return;
            }
        }
        let sent = ClockMonotonic.now();
        let report = SimulatedReportHeader {
            is_end: false,
            source: scheduled.source,
            number: scheduled.number,
            due_ns: self.begin.as_ns().saturating_add_unsigned(scheduled.due_ns),
            sent_ns: sent.as_ns(),
        };
        let len = scheduled.len.min(self.buffer.len());
        report.write(&mut self.buffer[..len]);
        if let Some(InjectedReportFaultKind::BitFlipped(bit)) =
            scheduled.error.map(|injected| injected.kind)
        {
            self.buffer[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        let is_sent = self.send_datagram(scheduled.source, scheduled.node, len);
        if let Some(InjectedReportFaultKind::BitFlipped(bit)) =
            scheduled.error.map(|injected| injected.kind)
        {
            self.buffer[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        let count = &mut self.counts[usize::from(scheduled.source)];
        if !is_sent {
            count.unsent += 1;
            return;
        }
        count.sent += 1;
        count.bytes += len as u64;
        let sent_ns = (sent - self.begin).as_ns().max(0).unsigned_abs();
        count.last_ns = sent_ns;
        if scheduled.send_ns == scheduled.due_ns {
            count.lateness.record(sent_ns.saturating_sub(scheduled.due_ns));
        }
    }

    /// Sends the first `len` bytes of the buffer from a source to a node; returns true if one of at
    /// most two attempts succeeded.
    fn send_datagram(&self, source: u16, node: u16, len: usize) -> bool {
        let (socket, _) = &self.sockets[usize::from(source)];
        let Some(to) = self.nodes.get(usize::from(node)) else { return false };
        for _ in 0..2 {
            match datagram::send_to(socket.as_fd(), &self.buffer[..len], *to) {
                Ok(()) => return true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let _ = socket.wait_writable(SEND_BUFFER_WAIT);
                }
                // The error belongs to an earlier datagram and is cleared by being returned.
                Err(_) => {}
            }
        }
        false
    }

    /// Counts the remaining reports as not sent.
    fn count_unsent(&mut self) {
        while let Some(scheduled) = self.script.pop_due(u64::MAX) {
            let count = &mut self.counts[usize::from(scheduled.source)];
            count.due += 1;
            count.unsent += 1;
        }
    }

    /// Sends each node, for each source, the number of its reports, so that it detects the loss of
    /// the last ones too.
    fn send_ends(&mut self) {
        let ends: Vec<_> = self.script.end_numbers().collect();
        for (source, node, number) in ends {
            let now_ns = ClockMonotonic.now().as_ns();
            let header = SimulatedReportHeader {
                is_end: true,
                source,
                number,
                due_ns: now_ns,
                sent_ns: now_ns,
            };
            header.write(&mut self.buffer[..super::report::HEADER_LEN]);
            self.send_datagram(source, node, super::report::HEADER_LEN);
        }
    }

    fn into_outcome(self) -> SimulatedReportSenderOutcome {
        let source_record =
            |(source, count): (&super::plan::SimulatedSource, &SimulatedSourceCounts)| {
                SimulatedSourceResult {
                    name: source.name.clone(),
                    due: count.due,
                    sent: count.sent,
                    send_failed: count.unsent,
                    bytes: count.bytes,
                    rate: count.sent as f64 / (count.last_ns.max(1) as f64 / 1e9),
                    lateness_ns: Distribution::from_histogram(&count.lateness),
                }
            };
        SimulatedReportSenderOutcome {
            sources: self.plan.sources.iter().zip(&self.counts).map(source_record).collect(),
            faults: self.faults,
        }
    }
}
