//! Poller of one server over a packet device: sends, waits, timestamps, and counts. Replies are
//! evaluated by [`super::client`].

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::time::Duration;

use horolog_io::{Batch, BatchDevice, BatchPacket, Endpoints, HardwareTimestamp};
use horolog_nts::{Nonces, ReplyError};
use horolog_record::{
    InvalidReason, NtsUse, PhcTimestampSource, QueryEnd, QueryEndReason, TimestampSource,
};
use horolog_sys::explain::explain;
use horolog_time::{Monotonic, NtpTimestamp, Span, Timestamp};
use horolog_wire::frame::looped;
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header};

use super::client::{DatagramClass, NtpClient};
use super::nic_clock::NicClock;
use super::pace::{QueryClock, left};
use super::packet_timestamp::{PacketTimestamp, rank};
use super::reply::QueryReply;
use super::server_stats::ServerStats;
use super::session::NtsAssociation;

/// Capacity for a datagram, or for a frame that is looped back with its transmit timestamp.
pub(crate) const CAPACITY: usize = 2048;
/// Datagrams read in one batch.
const SLOTS: usize = 8;
/// Longest wait for a kernel transmit timestamp once the reply has arrived.
const KERNEL_TIMESTAMP_TIMEOUT: Duration = Duration::from_millis(1);
/// Longest wait for a hardware transmit timestamp once the reply has arrived.
const NIC_TIMESTAMP_TIMEOUT: Duration = Duration::from_millis(20);
/// Interval between checks for a transmit timestamp.
const CHECK_INTERVAL: Duration = Duration::from_micros(100);
/// Batches read after the last exchange at most.
const DRAIN_BATCHES: usize = 1_000;
/// Longest wait without a check of whether the run is to end.
const NAP: Duration = Duration::from_millis(100);

/// Schedule of the polls of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollPlan {
    /// Instant of the first exchange.
    pub(crate) start: Timestamp<Monotonic>,
    /// Interval of the time grid.
    pub(crate) interval: Duration,
    /// Number of exchanges.
    pub(crate) count: u64,
    /// True for one more request at the end, whose reply carries the transmit timestamp of the one
    /// before.
    pub(crate) closing: bool,
}

impl PollPlan {
    fn instant(&self, slot: u64) -> Timestamp<Monotonic> {
        let ns = i128::from(slot) * self.interval.as_nanos() as i128;
        self.start + Span::from_ns(i64::try_from(ns).unwrap_or(i64::MAX))
    }

    /// Returns the first slot of the grid from `least` on that is not past.
    fn slot_from(&self, least: u64, now: Timestamp<Monotonic>) -> u64 {
        let past = u64::try_from((now - self.start).as_ns()).unwrap_or(0);
        least.max(past.div_ceil(self.interval.as_nanos() as u64))
    }
}

/// Options of the polls of a server.
pub(crate) struct PollOptions {
    /// NTP version of the requests.
    pub(crate) version: u8,
    /// Interleaved mode.
    pub(crate) interleaved: bool,
    /// Timeout of a reply.
    pub(crate) timeout: Duration,
    /// Precision of this host, log2 of seconds.
    pub(crate) precision: i8,
}

/// Outcome of all polls of a server.
pub(crate) struct PollOutcome {
    pub(crate) account: ServerStats,
    pub(crate) nts: Option<NtsUse>,
    pub(crate) nic_clock: Option<PhcTimestampSource>,
}

impl PollOutcome {
    /// Returns the outcome for a server that could not be polled, with advice.
    pub(crate) fn nothing(end: QueryEnd, hint: Option<&'static str>) -> Self {
        let mut account = ServerStats::default();
        account.end(end.reason, end.message);
        account.hint = hint;
        Self { account, nts: None, nic_clock: None }
    }
}

/// Poller of one server.
pub(crate) struct ServerPoller<'a, D> {
    device: D,
    options: PollOptions,
    client: NtpClient,
    session: Option<NtsAssociation>,
    nic_clock: Option<Box<dyn NicClock>>,
    random: Nonces,
    pace: &'a dyn QueryClock,
    account: ServerStats,
    request: Batch<Endpoints>,
    batch: Batch<Endpoints>,
    /// Datagrams that have not been evaluated yet, in the order of arrival: their bytes, unless
    /// truncated, and their receive timestamps.
    waiting: VecDeque<(Option<Vec<u8>>, PacketTimestamp)>,
}

/// Effect of a datagram on the open exchange.
enum DatagramEffect {
    /// Reply received.
    Reply(QueryReply),
    /// Exchange ended without a reply.
    Over,
    /// Cookie refused. Anyone who saw the request can send this, so a reply may still arrive and is
    /// awaited until the next exchange (RFC 8915, section 5.7).
    Refused,
    /// No effect.
    Nothing,
}

impl<'a, D: BatchDevice<Address = Endpoints>> ServerPoller<'a, D> {
    pub(crate) fn new(
        device: D,
        options: PollOptions,
        session: Option<NtsAssociation>,
        nic_clock: Option<Box<dyn NicClock>>,
        random: Nonces,
        pace: &'a dyn QueryClock,
    ) -> Self {
        Self {
            device,
            client: NtpClient::new(options.version, options.interleaved, session.is_some()),
            options,
            session,
            nic_clock,
            random,
            pace,
            account: ServerStats::default(),
            request: Batch::new(1, CAPACITY),
            batch: Batch::new(SLOTS, CAPACITY),
            waiting: VecDeque::new(),
        }
    }

    /// Runs the plan until it is done, something ends it, or `stop` returns true; calls `progress`
    /// after every exchange.
    pub(crate) fn run(
        mut self,
        plan: &PollPlan,
        progress: &dyn Fn(),
        stop: &dyn Fn() -> bool,
    ) -> PollOutcome {
        let mut least = 0;
        for _ in 0..plan.count {
            let Some(slot) = self.wait_for_slot(plan, least, stop) else { break };
            least = slot.saturating_add(self.account.stride());
            self.exchange(slot, plan.instant(least));
            progress();
            least = least.max(slot.saturating_add(self.account.stride()));
        }
        let closed = plan.closing.then(|| self.wait_for_slot(plan, least, stop)).flatten();
        if let Some(slot) = closed {
            self.exchange(slot, plan.instant(slot.saturating_add(1)));
        }
        if let Some(last) = self.client.finish().filter(|last| Some(last.slot) != closed) {
            self.account.complete(&last, self.options.precision);
        }
        self.drain();
        if let Some(failure) = self.session.as_ref().and_then(NtsAssociation::failure) {
            self.account.end(QueryEndReason::NoKeys, &failure.message);
            self.account.hint = Some(failure.hint);
        }
        let nts = self.session.as_ref().map(NtsAssociation::describe);
        PollOutcome {
            account: self.account,
            nts,
            nic_clock: self.nic_clock.as_ref().map(|nic_clock| nic_clock.describe()),
        }
    }

    /// Waits for the next slot of the grid; `None` if there is to be no further exchange.
    fn wait_for_slot(
        &mut self,
        plan: &PollPlan,
        least: u64,
        stop: &dyn Fn() -> bool,
    ) -> Option<u64> {
        let slot = plan.slot_from(least, self.pace.monotonic());
        loop {
            if stop() {
                self.account.end(QueryEndReason::Interrupted, "the run was interrupted");
            }
            if self.account.ended.is_some() {
                return None;
            }
            let left = left(plan.instant(slot), self.pace.monotonic());
            if left.is_zero() {
                return Some(slot);
            }
            self.pace.sleep(left.min(NAP));
        }
    }

    fn exchange(&mut self, slot: u64, next: Timestamp<Monotonic>) {
        if let Some(nic_clock) = &mut self.nic_clock {
            nic_clock.compare();
        }
        let Some(transmit) = self.prepare(slot) else { return };
        let timeout = Span::from_ns(self.options.timeout.as_nanos() as i64);
        let deadline = self.pace.monotonic() + timeout;
        let user_t1 = PacketTimestamp::user(self.pace.utc());
        match self.device.send(&mut self.request) {
            Ok(1..) => self.account.counts.sent += 1,
            Ok(0) => {
                self.account.counts.refused += 1;
                return self.client.give_up();
            }
            Err(error) => return self.fail(&error),
        }
        if let Some((reply, t1, t4)) = self.await_reply(user_t1, transmit, (deadline, next)) {
            let t1 = self.await_timestamp(t1, transmit);
            self.account.received(&reply.header, reply.interleaved);
            if let Some(exchange) = self.client.accept(&reply, t1, t4) {
                self.account.complete(&exchange, self.options.precision);
            }
        } else {
            self.account.lost();
            self.client.give_up();
            if let Some(session) = &mut self.session {
                session.unanswered();
            }
        }
    }

    /// Puts the next request into the batch and returns its transmit timestamp. `None` if keys are
    /// missing for now.
    fn prepare(&mut self, slot: u64) -> Option<NtpTimestamp> {
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes);
        let bits = u128::from_ne_bytes(bytes);
        let header = self.client.next_request(slot, [bits as u64, (bits >> 64) as u64]);
        let mut plain = [0; HEADER_LEN];
        header.emit(&mut plain);
        let now = self.pace.monotonic();
        let payload = match &mut self.session {
            Some(session) => session.seal(&plain, &mut self.random, now)?,
            None => &plain,
        };
        self.request.clear();
        // A request is shorter than the batch's only slot.
        let taken = self.request.push(Endpoints::default(), payload);
        *self.request.packet_mut(0).wants_timestamp = taken;
        Some(header.transmit)
    }

    /// Waits for the reply and returns it with the timestamps of both packets. After a refusal the
    /// wait lasts until the next exchange at the latest.
    fn await_reply(
        &mut self,
        user_t1: PacketTimestamp,
        transmit: NtpTimestamp,
        (mut deadline, next): (Timestamp<Monotonic>, Timestamp<Monotonic>),
    ) -> Option<(QueryReply, PacketTimestamp, PacketTimestamp)> {
        let mut t1 = user_t1;
        loop {
            while let Some((bytes, t4)) = self.waiting.pop_front() {
                match self.take(bytes.as_deref()) {
                    DatagramEffect::Reply(reply) => return Some((reply, t1, t4)),
                    DatagramEffect::Over => return None,
                    DatagramEffect::Refused => deadline = deadline.min(next),
                    DatagramEffect::Nothing => {}
                }
            }
            let wait = left(deadline, self.pace.monotonic());
            if wait.is_zero() {
                return None;
            }
            if let Err(error) = self.receive(wait.min(NAP)) {
                self.fail(&error);
                return None;
            }
            t1 = self.left_at(t1, transmit);
        }
    }

    /// Receives datagrams that arrive within this time; returns their number.
    fn receive(&mut self, wait: Duration) -> io::Result<usize> {
        let count = self.device.receive(&mut self.batch, wait)?;
        let user_t4 = PacketTimestamp::user(self.pace.utc());
        for packet in self.batch.iter() {
            let bytes = (!packet.truncated).then(|| packet.bytes.to_vec());
            self.waiting
                .push_back((bytes, best_timestamp(self.nic_clock.as_deref(), &packet, user_t4)));
        }
        Ok(count)
    }

    /// Returns the best transmit timestamp received so far for the request with this transmit
    /// field.
    fn left_at(&mut self, own: PacketTimestamp, transmit: NtpTimestamp) -> PacketTimestamp {
        let mut best = own;
        while self.device.receive_transmitted(&mut self.batch).is_ok_and(|count| count > 0) {
            let ours = self.batch.iter().filter(|packet| is_request(packet.bytes, transmit));
            best = ours.fold(best, |best, packet| {
                best_timestamp(self.nic_clock.as_deref(), &packet, best)
            });
        }
        best
    }

    /// Returns the best transmit timestamp, after a bounded wait for a better one.
    fn await_timestamp(
        &mut self,
        mut t1: PacketTimestamp,
        transmit: NtpTimestamp,
    ) -> PacketTimestamp {
        let (wanted, timeout) = match self.nic_clock {
            Some(_) => (TimestampSource::Hardware, NIC_TIMESTAMP_TIMEOUT),
            None => (TimestampSource::Kernel, KERNEL_TIMESTAMP_TIMEOUT),
        };
        let deadline = self.pace.monotonic() + Span::from_ns(timeout.as_nanos() as i64);
        while rank(t1.kind) < rank(wanted) && self.pace.monotonic() < deadline {
            self.pace.sleep(CHECK_INTERVAL);
            t1 = self.left_at(t1, transmit);
        }
        t1
    }

    fn take(&mut self, payload: Option<&[u8]>) -> DatagramEffect {
        let Some(payload) = payload else { return self.invalid(InvalidReason::Length) };
        let taken = self.client.judge(payload);
        let authentic = match (&taken, &mut self.session) {
            (DatagramClass::Reply(_) | DatagramClass::Kiss(_), Some(session)) => {
                session.open(payload)
            }
            _ => Ok(()),
        };
        match (taken, authentic) {
            // Not authenticated, but only hosts that see the request know its unique identifier.
            (_, Err(ReplyError::Refused)) => {
                self.account.apply_kiss(*b"NTSN");
                DatagramEffect::Refused
            }
            (DatagramClass::Kiss(code), Ok(()) | Err(ReplyError::Kiss)) => self.kiss(code),
            (_, Err(_)) => self.invalid(InvalidReason::Nts),
            (DatagramClass::Reply(reply), Ok(())) => DatagramEffect::Reply(reply),
            (DatagramClass::Invalid(reason), Ok(())) => self.invalid(reason),
            (DatagramClass::Duplicate, Ok(())) => {
                self.account.counts.duplicate += 1;
                DatagramEffect::Nothing
            }
            (DatagramClass::Late, Ok(())) => {
                self.account.counts.late += 1;
                DatagramEffect::Nothing
            }
        }
    }

    fn invalid(&mut self, reason: InvalidReason) -> DatagramEffect {
        *self.account.counts.invalid.entry(reason).or_default() += 1;
        DatagramEffect::Nothing
    }

    fn kiss(&mut self, code: [u8; 4]) -> DatagramEffect {
        self.account.apply_kiss(code);
        DatagramEffect::Over
    }

    /// Handles a device error: the network reports the server unreachable, or the device itself has
    /// failed.
    fn fail(&mut self, error: &io::Error) {
        self.account.closed += u64::from(error.kind() == ErrorKind::ConnectionRefused);
        match error.kind() {
            ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::ConnectionReset => self.account.counts.unreachable += 1,
            _ => {
                self.account.end(QueryEndReason::Unreachable, explain(error).to_string());
            }
        }
    }

    /// Counts datagrams that arrived after the last awaited reply.
    fn drain(&mut self) {
        // A sender may go on for ever.
        for _ in 0..DRAIN_BATCHES {
            let has_received = self.receive(Duration::ZERO).is_ok_and(|count| count > 0);
            while let Some((bytes, _)) = self.waiting.pop_front() {
                self.take(bytes.as_deref());
            }
            if !has_received {
                break;
            }
        }
    }
}

/// Returns the best timestamp of a packet; `own` is this program's reading.
fn best_timestamp(
    nic_clock: Option<&dyn NicClock>,
    packet: &BatchPacket<'_, Endpoints>,
    own: PacketTimestamp,
) -> PacketTimestamp {
    let by_nic = |time: HardwareTimestamp| nic_clock?.convert(time);
    own.best_of(packet.received_at.map(PacketTimestamp::kernel))
        .best_of(packet.hardware.and_then(by_nic))
}

/// Returns true if a packet from the error queue is the request with this timestamp.
fn is_request(packet: &[u8], transmit: NtpTimestamp) -> bool {
    let header = looped(packet).and_then(|sent| Header::parse(sent.payload).ok());
    header.is_some_and(|(header, _)| {
        header.mode == AssociationMode::Client && header.transmit == transmit
    })
}

#[cfg(test)]
mod tests;
