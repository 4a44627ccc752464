//! Asks one server, exchange after exchange, over a packet device: sends, waits, timestamps, and
//! keeps the books. What a reply means is for [`super::client`] to say.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::time::Duration;

use horolog_io::{Batch, Device, Endpoints, HardwareTime, Packet};
use horolog_nts::{Nonces, ReplyFault};
use horolog_record::{HardwareClock, InvalidReason, NtsUse, QueryEnd, QueryEndReason, StampKind};
use horolog_time::{Monotonic, NtpTimestamp, Span, Timestamp};
use horolog_wire::frame::looped;
use horolog_wire::ntp::{HEADER_LEN, Header, Mode};

use super::account::Account;
use super::card::Card;
use super::client::{Client, Taken};
use super::pace::{Pace, left};
use super::reply::Reply;
use super::session::Session;
use super::stamp::{Stamp, rank};

/// Room for a datagram, or for a frame that comes back with its transmit timestamp.
pub(crate) const CAPACITY: usize = 2048;
/// Datagrams that are looked at together.
const SLOTS: usize = 8;
/// How long the kernel may take to tell when a request left, once its reply is there.
const KERNEL_PATIENCE: Duration = Duration::from_millis(1);
/// The same for a card.
const CARD_PATIENCE: Duration = Duration::from_millis(20);
/// Between two looks for a transmit timestamp.
const LOOK: Duration = Duration::from_micros(100);
/// How many times datagrams are looked for behind the last exchange.
const DRAIN_BATCHES: usize = 1_000;
/// How long a wait goes on without a look at whether the run is to end.
const NAP: Duration = Duration::from_millis(100);

/// When a server is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The instant of the first exchange.
    pub(crate) start: Timestamp<Monotonic>,
    /// From each place of the time grid to the next.
    pub(crate) interval: Duration,
    /// Exchanges.
    pub(crate) count: u64,
    /// One more request at the end, whose reply tells when the one before it left.
    pub(crate) closing: bool,
}

impl Plan {
    fn instant(&self, slot: u64) -> Timestamp<Monotonic> {
        let ns = i128::from(slot) * self.interval.as_nanos() as i128;
        self.start + Span::from_ns(i64::try_from(ns).unwrap_or(i64::MAX))
    }

    /// The first place of the grid from `least` on that is not past.
    fn slot_from(&self, least: u64, now: Timestamp<Monotonic>) -> u64 {
        let past = u64::try_from((now - self.start).as_ns()).unwrap_or(0);
        least.max(past.div_ceil(self.interval.as_nanos() as u64))
    }
}

/// How a server is asked.
pub(crate) struct Manner {
    /// NTP version of the requests.
    pub(crate) version: u8,
    /// In interleaved mode.
    pub(crate) interleaved: bool,
    /// How long a reply may take.
    pub(crate) timeout: Duration,
    /// This machine's precision, log2 of seconds.
    pub(crate) precision: i8,
}

/// What became of it all.
pub(crate) struct Done {
    pub(crate) account: Account,
    pub(crate) nts: Option<NtsUse>,
    pub(crate) card: Option<HardwareClock>,
}

impl Done {
    /// A server that could not be asked.
    pub(crate) fn nothing(end: QueryEnd) -> Self {
        let mut account = Account::default();
        account.end(end.reason, end.message);
        Self { account, nts: None, card: None }
    }
}

/// Asks one server.
pub(crate) struct Asker<'a, D> {
    device: D,
    manner: Manner,
    client: Client,
    session: Option<Session>,
    card: Option<Box<dyn Card>>,
    random: Nonces,
    pace: &'a dyn Pace,
    account: Account,
    request: Batch<Endpoints>,
    batch: Batch<Endpoints>,
    /// Datagrams that nobody has looked at yet, in the order in which they came: their bytes,
    /// unless they are cut off, and when they came.
    waiting: VecDeque<(Option<Vec<u8>>, Stamp)>,
}

/// What a datagram did to the open exchange.
enum Step {
    /// It is the reply.
    Reply(Reply),
    /// It ended the exchange without one.
    Over,
    /// Nothing.
    Nothing,
}

impl<'a, D: Device<Address = Endpoints>> Asker<'a, D> {
    pub(crate) fn new(
        device: D,
        manner: Manner,
        session: Option<Session>,
        card: Option<Box<dyn Card>>,
        random: Nonces,
        pace: &'a dyn Pace,
    ) -> Self {
        Self {
            device,
            client: Client::new(manner.version, manner.interleaved, session.is_some()),
            manner,
            session,
            card,
            random,
            pace,
            account: Account::default(),
            request: Batch::new(1, CAPACITY),
            batch: Batch::new(SLOTS, CAPACITY),
            waiting: VecDeque::new(),
        }
    }

    /// Goes through the plan until it is done, something ends it, or `stop` says so; `progress` is
    /// told of every exchange.
    pub(crate) fn run(mut self, plan: &Plan, progress: &dyn Fn(), stop: &dyn Fn() -> bool) -> Done {
        let mut least = 0;
        for _ in 0..plan.count {
            let Some(slot) = self.wait_for_slot(plan, least, stop) else { break };
            self.exchange(slot);
            progress();
            least = slot.saturating_add(self.account.stride());
        }
        let closed = plan.closing.then(|| self.wait_for_slot(plan, least, stop)).flatten();
        if let Some(slot) = closed {
            self.exchange(slot);
        }
        if let Some(last) = self.client.finish().filter(|last| Some(last.slot) != closed) {
            self.account.complete(&last, self.manner.precision);
        }
        self.drain();
        let nts = self.session.as_ref().map(Session::describe);
        Done { account: self.account, nts, card: self.card.as_ref().map(|card| card.describe()) }
    }

    /// Waits for the next place of the grid; `None` where there is to be no further exchange.
    fn wait_for_slot(&mut self, plan: &Plan, least: u64, stop: &dyn Fn() -> bool) -> Option<u64> {
        let slot = plan.slot_from(least, self.pace.monotonic());
        loop {
            if stop() {
                self.account.end(QueryEndReason::Interrupted, "the run was ended");
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

    fn exchange(&mut self, slot: u64) {
        if let Some(card) = &mut self.card {
            card.compare();
        }
        let Some(transmit) = self.prepare(slot) else { return };
        let timeout = Span::from_ns(self.manner.timeout.as_nanos() as i64);
        let deadline = self.pace.monotonic() + timeout;
        let asked = Stamp::user(self.pace.utc());
        match self.device.send(&mut self.request) {
            Ok(1..) => self.account.counts.sent += 1,
            Ok(0) => {
                self.account.counts.refused += 1;
                return self.client.give_up();
            }
            Err(error) => return self.fail(&error),
        }
        if let Some((reply, t1, t4)) = self.await_reply(asked, transmit, deadline) {
            let t1 = self.await_stamp(t1, transmit);
            self.account.received(&reply.header, reply.interleaved);
            if let Some(exchange) = self.client.accept(&reply, t1, t4) {
                self.account.complete(&exchange, self.manner.precision);
            }
        } else {
            self.account.lost();
            self.client.give_up();
        }
    }

    /// Puts the next request into the batch; gives its transmit timestamp.
    fn prepare(&mut self, slot: u64) -> Option<NtpTimestamp> {
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes);
        let bits = u128::from_ne_bytes(bytes);
        let header = self.client.ask(slot, [bits as u64, (bits >> 64) as u64]);
        let mut plain = [0; HEADER_LEN];
        header.emit(&mut plain);
        let sealed = self.session.as_mut().map(|session| session.seal(&plain, &mut self.random));
        let payload = match sealed.transpose() {
            Ok(sealed) => sealed.unwrap_or(&plain),
            Err(message) => {
                self.account.end(QueryEndReason::NoKeys, message);
                return None;
            }
        };
        self.request.clear();
        // A request is shorter than the batch's only slot.
        let taken = self.request.push(Endpoints::default(), payload);
        *self.request.packet_mut(0).stamp = taken;
        Some(header.transmit)
    }

    /// Waits for the reply; gives it with when its request left and it came.
    fn await_reply(
        &mut self,
        asked: Stamp,
        transmit: NtpTimestamp,
        deadline: Timestamp<Monotonic>,
    ) -> Option<(Reply, Stamp, Stamp)> {
        let mut t1 = asked;
        loop {
            while let Some((bytes, t4)) = self.waiting.pop_front() {
                match self.take(bytes.as_deref()) {
                    Step::Reply(reply) => return Some((reply, t1, t4)),
                    Step::Over => return None,
                    Step::Nothing => {}
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

    /// Receives what comes within this time; returns how much that is.
    fn receive(&mut self, wait: Duration) -> io::Result<usize> {
        let count = self.device.receive(&mut self.batch, wait)?;
        let came = Stamp::user(self.pace.utc());
        for packet in self.batch.iter() {
            let bytes = (!packet.truncated).then(|| packet.bytes.to_vec());
            self.waiting.push_back((bytes, stamp_of(self.card.as_deref(), &packet, came)));
        }
        Ok(count)
    }

    /// When the request with this transmit timestamp left, as far as that came back by now.
    fn left_at(&mut self, own: Stamp, transmit: NtpTimestamp) -> Stamp {
        let mut best = own;
        while self.device.sent(&mut self.batch).is_ok_and(|count| count > 0) {
            let ours = self.batch.iter().filter(|packet| is_request(packet.bytes, transmit));
            best = ours.fold(best, |best, packet| stamp_of(self.card.as_deref(), &packet, best));
        }
        best
    }

    /// The same, with some patience for what may still come back.
    fn await_stamp(&mut self, mut t1: Stamp, transmit: NtpTimestamp) -> Stamp {
        let (wanted, patience) = match self.card {
            Some(_) => (StampKind::Hardware, CARD_PATIENCE),
            None => (StampKind::Kernel, KERNEL_PATIENCE),
        };
        let deadline = self.pace.monotonic() + Span::from_ns(patience.as_nanos() as i64);
        while rank(t1.kind) < rank(wanted) && self.pace.monotonic() < deadline {
            self.pace.sleep(LOOK);
            t1 = self.left_at(t1, transmit);
        }
        t1
    }

    fn take(&mut self, payload: Option<&[u8]>) -> Step {
        let Some(payload) = payload else { return self.invalid(InvalidReason::Length) };
        let taken = self.client.judge(payload);
        let authentic = match (&taken, &mut self.session) {
            (Taken::Reply(_) | Taken::Kiss(_), Some(session)) => session.open(payload),
            _ => Ok(()),
        };
        match (taken, authentic) {
            // Not authenticated, but only who sees the request knows its unique identifier.
            (_, Err(ReplyFault::Refused)) => self.kiss(*b"NTSN"),
            (_, Err(_)) => self.invalid(InvalidReason::Nts),
            (Taken::Reply(reply), Ok(())) => Step::Reply(reply),
            (Taken::Kiss(code), Ok(())) => self.kiss(code),
            (Taken::Invalid(reason), Ok(())) => self.invalid(reason),
            (Taken::Duplicate, Ok(())) => {
                self.account.counts.duplicate += 1;
                Step::Nothing
            }
            (Taken::Late, Ok(())) => {
                self.account.counts.late += 1;
                Step::Nothing
            }
        }
    }

    fn invalid(&mut self, reason: InvalidReason) -> Step {
        *self.account.counts.invalid.entry(reason).or_default() += 1;
        Step::Nothing
    }

    fn kiss(&mut self, code: [u8; 4]) -> Step {
        self.account.kiss(code);
        Step::Over
    }

    /// The device complained: the network says that the server cannot be reached, or the device
    /// itself is at its end.
    fn fail(&mut self, error: &io::Error) {
        match error.kind() {
            ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::ConnectionReset => self.account.counts.unreachable += 1,
            _ => self.account.end(QueryEndReason::Unreachable, error.to_string()),
        }
    }

    /// Counts what came after the last reply that was waited for.
    fn drain(&mut self) {
        // Somebody may send for ever.
        for _ in 0..DRAIN_BATCHES {
            let came = self.receive(Duration::ZERO).is_ok_and(|count| count > 0);
            while let Some((bytes, _)) = self.waiting.pop_front() {
                self.take(bytes.as_deref());
            }
            if !came {
                break;
            }
        }
    }
}

/// The best timestamp of a packet, where `own` is what this program read.
fn stamp_of(card: Option<&dyn Card>, packet: &Packet<'_, Endpoints>, own: Stamp) -> Stamp {
    let by_card = |time: HardwareTime| card?.stamp(time);
    own.or_better(packet.received_at.map(Stamp::kernel))
        .or_better(packet.hardware.and_then(by_card))
}

/// Whether a packet that came back from the error queue is the request with this timestamp.
fn is_request(packet: &[u8], transmit: NtpTimestamp) -> bool {
    let header = looped(packet).and_then(|sent| Header::parse(sent.payload).ok());
    header.is_some_and(|(header, _)| header.mode == Mode::Client && header.transmit == transmit)
}

#[cfg(test)]
mod tests;
