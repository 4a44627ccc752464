//! Poller of one server: sends requests, waits for replies, collects timestamps and counts. Replies
//! are classified by [`super::client`].

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::thread;
use std::time::Duration;

use horolog_io::{Batch, BatchDevice, BatchPacket, DatagramEndpoints, HardwareTimestamp};
use horolog_nts::{NonceStream, ReplyError};
use horolog_record::{
    EarlyQueryEnd, InvalidReplyReason, NtsUseSummary, PhcTimestampSource, QueryEndReason,
    TimestampSource,
};
use horolog_sys::clock::{ClockMonotonic, ClockRealtime};
use horolog_sys::explain::explain;
use horolog_time::{Clock, Monotonic, NtpTimestamp, Span, TimeGrid, Timestamp, Utc};
use horolog_wire::frame::parse_looped_frame;
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header};

use super::client::{DatagramClass, NtpClient};
use super::nic_clock::NicClock;
use super::packet_timestamp::{PacketTimestamp, source_rank};
use super::reply::QueryReply;
use super::server_stats::PolledServerStats;
use super::session::NtsAssociation;

/// Buffer size in bytes, for a datagram or for the looped-back frame with a transmit timestamp.
pub(crate) const FRAME_CAPACITY: usize = 2048;
/// Maximum number of datagrams read at once.
const BATCH_DATAGRAMS: usize = 8;
/// Longest further wait for a kernel transmit timestamp after the reply.
const KERNEL_TIMESTAMP_TIMEOUT: Duration = Duration::from_millis(1);
/// Longest further wait for a hardware transmit timestamp after the reply.
const NIC_TIMESTAMP_TIMEOUT: Duration = Duration::from_millis(20);
/// Interval between checks for a transmit timestamp.
const CHECK_INTERVAL: Duration = Duration::from_micros(100);
/// Maximum number of batches read after the last exchange.
const DRAIN_BATCHES: usize = 1_000;
/// Longest wait between two checks of whether the run is to end.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Schedule of the polls of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollPlan {
    /// Time grid of the exchanges.
    pub(crate) grid: TimeGrid<Monotonic>,
    /// Number of exchanges.
    pub(crate) count: u64,
    /// True to send another request at the end, whose interleaved reply carries the transmit
    /// timestamp of the last one.
    pub(crate) has_final_request: bool,
}

/// Options of the polls of a server.
pub(crate) struct PollOptions {
    /// NTP version of the requests.
    pub(crate) version: u8,
    /// True to use interleaved mode (RFC 9769).
    pub(crate) interleaved: bool,
    /// Timeout of a reply.
    pub(crate) timeout: Duration,
    /// Precision of this host, log2 of seconds.
    pub(crate) precision: i8,
}

/// Outcome of all polls of a server.
pub(crate) struct PolledServerOutcome {
    pub(crate) stats: PolledServerStats,
    pub(crate) nts: Option<NtsUseSummary>,
    pub(crate) nic_clock: Option<PhcTimestampSource>,
}

impl PolledServerOutcome {
    /// Returns the outcome for a server that could not be polled, with the reason and advice.
    pub(crate) fn without_exchange(end: EarlyQueryEnd, hint: Option<&'static str>) -> Self {
        let mut stats = PolledServerStats::default();
        stats.end_polls(end.reason, end.message);
        stats.hint = hint;
        Self { stats, nts: None, nic_clock: None }
    }
}

/// Poller of one server.
pub(crate) struct ServerPoller<'a, D> {
    device: D,
    options: PollOptions,
    client: NtpClient,
    session: Option<NtsAssociation>,
    nic_clock: Option<Box<dyn NicClock>>,
    random: NonceStream,
    clock: &'a dyn QueryClock,
    stats: PolledServerStats,
    request: Batch<DatagramEndpoints>,
    batch: Batch<DatagramEndpoints>,
    /// Received datagrams not processed yet, in order of arrival: bytes (`None` if truncated) and
    /// receive timestamp.
    unprocessed: VecDeque<(Option<Vec<u8>>, PacketTimestamp)>,
}

/// Effect of a datagram on the open exchange.
enum DatagramEffect {
    /// Reply received.
    Reply(QueryReply),
    /// Exchange ended without a reply.
    ExchangeEnded,
    /// Cookie refused (NTSN). The refusal is not authenticated, so the wait for a genuine reply
    /// continues until the next exchange (RFC 8915, section 5.7).
    CookieRefused,
    /// No effect on the exchange; the datagram was only counted.
    NoEffect,
}

impl<'a, D: BatchDevice<Address = DatagramEndpoints>> ServerPoller<'a, D> {
    pub(crate) fn new(
        device: D,
        options: PollOptions,
        session: Option<NtsAssociation>,
        nic_clock: Option<Box<dyn NicClock>>,
        random: NonceStream,
        pace: &'a dyn QueryClock,
    ) -> Self {
        Self {
            device,
            client: NtpClient::new(options.version, options.interleaved, session.is_some()),
            options,
            session,
            nic_clock,
            random,
            clock: pace,
            stats: PolledServerStats::default(),
            request: Batch::new(1, FRAME_CAPACITY),
            batch: Batch::new(BATCH_DATAGRAMS, FRAME_CAPACITY),
            unprocessed: VecDeque::new(),
        }
    }

    /// Runs the plan until it is done, an error ends it, or `stop` returns true; calls `progress`
    /// after each exchange.
    pub(crate) fn run_plan(
        mut self,
        plan: &PollPlan,
        progress: &dyn Fn(),
        stop: &dyn Fn() -> bool,
    ) -> PolledServerOutcome {
        let mut slot_min = 0;
        for _ in 0..plan.count {
            let Some(slot) = self.wait_for_slot(plan, slot_min, stop) else { break };
            slot_min = slot.saturating_add(self.stats.intervals_per_exchange());
            self.run_exchange(slot, plan.grid.instant(slot_min));
            progress();
            slot_min = slot_min.max(slot.saturating_add(self.stats.intervals_per_exchange()));
        }
        let final_slot =
            plan.has_final_request.then(|| self.wait_for_slot(plan, slot_min, stop)).flatten();
        if let Some(slot) = final_slot {
            self.run_exchange(slot, plan.grid.instant(slot.saturating_add(1)));
        }
        if let Some(last) = self.client.take_pending().filter(|last| Some(last.slot) != final_slot)
        {
            self.stats.add_exchange(&last, self.options.precision);
        }
        self.count_remaining();
        if let Some(failure) = self.session.as_ref().and_then(NtsAssociation::failure) {
            self.stats.end_polls(QueryEndReason::NoKeys, &failure.message);
            self.stats.hint = Some(failure.hint);
        }
        let nts = self.session.as_ref().map(NtsAssociation::usage);
        PolledServerOutcome {
            stats: self.stats,
            nts,
            nic_clock: self.nic_clock.as_ref().map(|nic_clock| nic_clock.describe()),
        }
    }

    /// Waits for the next slot from `slot_min` on; `None` if the polls have ended.
    fn wait_for_slot(
        &mut self,
        plan: &PollPlan,
        slot_min: u64,
        stop: &dyn Fn() -> bool,
    ) -> Option<u64> {
        let slot = slot_min.max(plan.grid.index_from(self.clock.monotonic()));
        loop {
            if stop() {
                self.stats.end_polls(QueryEndReason::Interrupted, "the run was interrupted");
            }
            if self.stats.end_reason.is_some() {
                return None;
            }
            let left = time_until(plan.grid.instant(slot), self.clock.monotonic());
            if left.is_zero() {
                return Some(slot);
            }
            self.clock.sleep(left.min(SLEEP_MAX));
        }
    }

    fn run_exchange(&mut self, slot: u64, next: Timestamp<Monotonic>) {
        if let Some(nic_clock) = &mut self.nic_clock {
            nic_clock.compare_if_due();
        }
        let Some(transmit) = self.prepare_request(slot) else { return };
        let timeout = Span::from_ns(self.options.timeout.as_nanos() as i64);
        let deadline = self.clock.monotonic() + timeout;
        let user_t1 = PacketTimestamp::user(self.clock.utc());
        match self.device.send(&mut self.request) {
            Ok(1..) => self.stats.counts.sent += 1,
            Ok(0) => {
                self.stats.counts.refused += 1;
                return self.client.abandon_request();
            }
            Err(error) => return self.handle_error(&error),
        }
        if let Some((reply, t1, t4)) = self.wait_for_reply(user_t1, transmit, (deadline, next)) {
            let t1 = self.wait_for_timestamp(t1, transmit);
            self.stats.count_reply(&reply.header, reply.interleaved);
            if let Some(exchange) = self.client.accept_reply(&reply, t1, t4) {
                self.stats.add_exchange(&exchange, self.options.precision);
            }
        } else {
            self.stats.count_lost();
            self.client.abandon_request();
            if let Some(session) = &mut self.session {
                session.count_unanswered();
            }
        }
    }

    /// Prepares the next request in the batch; returns its transmit field. `None` if there are no
    /// NTS cookies at present.
    fn prepare_request(&mut self, slot: u64) -> Option<NtpTimestamp> {
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes);
        let bits = u128::from_ne_bytes(bytes);
        let header = self.client.next_request(slot, [bits as u64, (bits >> 64) as u64]);
        let mut header_bytes = [0; HEADER_LEN];
        header.emit(&mut header_bytes);
        let now = self.clock.monotonic();
        let payload = match &mut self.session {
            Some(session) => session.seal_request(&header_bytes, &mut self.random, now)?,
            None => &header_bytes,
        };
        self.request.clear();
        // Always succeeds: a request is shorter than the batch's slot.
        let taken = self.request.push(DatagramEndpoints::default(), payload);
        *self.request.packet_mut(0).wants_timestamp = taken;
        Some(header.transmit)
    }

    /// Waits for the reply; returns it with the timestamps of request and reply. `None` on timeout.
    /// After a refusal the wait ends at `next`, the time of the next exchange, at the latest.
    fn wait_for_reply(
        &mut self,
        user_t1: PacketTimestamp,
        transmit: NtpTimestamp,
        (mut deadline, next): (Timestamp<Monotonic>, Timestamp<Monotonic>),
    ) -> Option<(QueryReply, PacketTimestamp, PacketTimestamp)> {
        let mut t1 = user_t1;
        loop {
            while let Some((bytes, t4)) = self.unprocessed.pop_front() {
                match self.process_datagram(bytes.as_deref()) {
                    DatagramEffect::Reply(reply) => return Some((reply, t1, t4)),
                    DatagramEffect::ExchangeEnded => return None,
                    DatagramEffect::CookieRefused => deadline = deadline.min(next),
                    DatagramEffect::NoEffect => {}
                }
            }
            let wait = time_until(deadline, self.clock.monotonic());
            if wait.is_zero() {
                return None;
            }
            if let Err(error) = self.receive_datagrams(wait.min(SLEEP_MAX)) {
                self.handle_error(&error);
                return None;
            }
            t1 = self.transmit_timestamp(t1, transmit);
        }
    }

    /// Waits up to `wait` for datagrams and appends up to [`BATCH_DATAGRAMS`] of them to
    /// `unprocessed`; returns their number.
    fn receive_datagrams(&mut self, wait: Duration) -> io::Result<usize> {
        let count = self.device.receive(&mut self.batch, wait)?;
        let user_t4 = PacketTimestamp::user(self.clock.utc());
        for packet in self.batch.iter() {
            let bytes = (!packet.truncated).then(|| packet.bytes.to_vec());
            self.unprocessed
                .push_back((bytes, best_timestamp(self.nic_clock.as_deref(), &packet, user_t4)));
        }
        Ok(count)
    }

    /// Returns the best transmit timestamp so far of the request with this transmit field;
    /// `user_timestamp` if there is no better one.
    fn transmit_timestamp(
        &mut self,
        user_timestamp: PacketTimestamp,
        transmit: NtpTimestamp,
    ) -> PacketTimestamp {
        let mut best = user_timestamp;
        while self.device.receive_transmitted(&mut self.batch).is_ok_and(|count| count > 0) {
            let request_packets =
                self.batch.iter().filter(|packet| is_request(packet.bytes, transmit));
            best = request_packets.fold(best, |best, packet| {
                best_timestamp(self.nic_clock.as_deref(), &packet, best)
            });
        }
        best
    }

    /// Waits a bounded time for a transmit timestamp from the best source; returns the best one.
    fn wait_for_timestamp(
        &mut self,
        mut t1: PacketTimestamp,
        transmit: NtpTimestamp,
    ) -> PacketTimestamp {
        let (wanted, timeout) = match self.nic_clock {
            Some(_) => (TimestampSource::Hardware, NIC_TIMESTAMP_TIMEOUT),
            None => (TimestampSource::Kernel, KERNEL_TIMESTAMP_TIMEOUT),
        };
        let deadline = self.clock.monotonic() + Span::from_ns(timeout.as_nanos() as i64);
        while source_rank(t1.source) < source_rank(wanted) && self.clock.monotonic() < deadline {
            self.clock.sleep(CHECK_INTERVAL);
            t1 = self.transmit_timestamp(t1, transmit);
        }
        t1
    }

    fn process_datagram(&mut self, payload: Option<&[u8]>) -> DatagramEffect {
        let Some(payload) = payload else { return self.count_invalid(InvalidReplyReason::Length) };
        let class = self.client.classify(payload);
        let authentic = match (&class, &mut self.session) {
            (DatagramClass::Reply(_) | DatagramClass::Kiss(_), Some(session)) => {
                session.open_reply(payload)
            }
            _ => Ok(()),
        };
        match (class, authentic) {
            // Not authenticated, but its sender must have seen the request, whose unique identifier
            // it returns.
            (_, Err(ReplyError::CookieRefused)) => {
                self.stats.apply_kiss(*b"NTSN");
                DatagramEffect::CookieRefused
            }
            (DatagramClass::Kiss(code), Ok(()) | Err(ReplyError::KissOfDeath)) => {
                self.apply_kiss(code)
            }
            (_, Err(_)) => self.count_invalid(InvalidReplyReason::Nts),
            (DatagramClass::Reply(reply), Ok(())) => DatagramEffect::Reply(reply),
            (DatagramClass::Invalid(reason), Ok(())) => self.count_invalid(reason),
            (DatagramClass::Duplicate, Ok(())) => {
                self.stats.counts.duplicate += 1;
                DatagramEffect::NoEffect
            }
            (DatagramClass::Late, Ok(())) => {
                self.stats.counts.late += 1;
                DatagramEffect::NoEffect
            }
        }
    }

    fn count_invalid(&mut self, reason: InvalidReplyReason) -> DatagramEffect {
        *self.stats.counts.invalid.entry(reason).or_default() += 1;
        DatagramEffect::NoEffect
    }

    fn apply_kiss(&mut self, code: [u8; 4]) -> DatagramEffect {
        self.stats.apply_kiss(code);
        DatagramEffect::ExchangeEnded
    }

    /// Handles a device error: counts ICMP errors; any other error ends the polls.
    fn handle_error(&mut self, error: &io::Error) {
        self.stats.port_unreachable += u64::from(error.kind() == ErrorKind::ConnectionRefused);
        match error.kind() {
            ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::ConnectionReset => self.stats.counts.unreachable += 1,
            _ => {
                self.stats.end_polls(QueryEndReason::Unreachable, explain(error).to_string());
            }
        }
    }

    /// Counts the datagrams that arrived after the last exchange.
    fn count_remaining(&mut self) {
        // Bounded, since a sender may never stop.
        for _ in 0..DRAIN_BATCHES {
            let has_received = self.receive_datagrams(Duration::ZERO).is_ok_and(|count| count > 0);
            while let Some((bytes, _)) = self.unprocessed.pop_front() {
                self.process_datagram(bytes.as_deref());
            }
            if !has_received {
                break;
            }
        }
    }
}

/// Returns the best timestamp of a packet; `user_timestamp` is this program's reading.
fn best_timestamp(
    nic_clock: Option<&dyn NicClock>,
    packet: &BatchPacket<'_, DatagramEndpoints>,
    user_timestamp: PacketTimestamp,
) -> PacketTimestamp {
    let by_nic = |time: HardwareTimestamp| nic_clock?.convert(time);
    user_timestamp
        .best_of(packet.received_at.map(PacketTimestamp::kernel))
        .best_of(packet.hardware.and_then(by_nic))
}

/// Returns true if a looped-back packet is the request with this transmit field.
fn is_request(packet: &[u8], transmit: NtpTimestamp) -> bool {
    let header = parse_looped_frame(packet).and_then(|sent| Header::parse(sent.payload).ok());
    header.is_some_and(|(header, _)| {
        header.mode == AssociationMode::Client && header.transmit == transmit
    })
}

#[cfg(test)]
mod tests;

/// Source of time and of sleep.
pub(crate) trait QueryClock: Sync {
    /// Returns the system time, with which the servers' clocks are compared.
    fn utc(&self) -> Timestamp<Utc>;
    /// Returns the monotonic time, for intervals and timeouts.
    fn monotonic(&self) -> Timestamp<Monotonic>;
    /// Sleeps for this time.
    fn sleep(&self, time: Duration);
}

/// System clocks and sleep.
pub(crate) struct SystemQueryClock;

impl QueryClock for SystemQueryClock {
    fn utc(&self) -> Timestamp<Utc> {
        ClockRealtime.now()
    }

    fn monotonic(&self) -> Timestamp<Monotonic> {
        ClockMonotonic.now()
    }

    fn sleep(&self, time: Duration) {
        thread::sleep(time);
    }
}

/// Returns the time from now until an instant; zero if it is past.
pub(crate) fn time_until(until: Timestamp<Monotonic>, now: Timestamp<Monotonic>) -> Duration {
    Duration::from_nanos(u64::try_from((until - now).as_ns()).unwrap_or(0))
}
