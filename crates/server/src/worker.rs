//! One thread of the socket engine: receive a batch, decide, fill in the transmit timestamps as
//! late as can be, send, and take the kernel's word on when the replies really left. It is the same
//! for every dispatch: what differs is the device handed in. It allocates nothing once it runs.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use horolog_io::{Batch, Device, Endpoints, Packet};
use horolog_nts::{BATCH, BatchKeys, Nonces};
use horolog_time::{Clock, Monotonic, NtpTimestamp, Span, Timestamp};
use horolog_wire::ntp::{HEADER_LEN, Header};

use crate::authenticate::{Credential, Credentials, Present, Secrets};
use crate::hardware::{By, Conversions};
use crate::page::PageReader;
use crate::transmit::Looped;
use crate::{
    Admission, Class, Counters, InterleavedTable, Limiter, Page, Reason, Reply, ReplyKind, Totals,
    Verdict, decide,
};

/// How long a receive call waits: the longest time until a thread sees that it is to stop.
const WAIT: Duration = Duration::from_millis(100);
/// How long to hold back after a failed receive call, so that a lasting error costs no core.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);
/// Room for a request: what an unfragmented datagram holds on Ethernet. No power of two, so that
/// the buffers' beginnings do not all compete for the same few sets of the cache.
pub(crate) const REQUEST_CAPACITY: usize = 1_472;
/// Room for a reply that comes back in its frame, options and VLAN tag included.
const LOOPED_CAPACITY: usize = REQUEST_CAPACITY + 14 + 4 + 60 + 8;
/// Replies that leave by one call, and bear one transmit timestamp: as many as are opened and
/// sealed together. The last of them waits for the others behind that timestamp, so they are few.
const REPLIES: usize = BATCH;
/// How far ahead of the monotonic clock a transmission may seem to lie: both clocks are read one
/// after the other, and a card's is compared with them to within a few microseconds.
const READING_ORDER: Span = Span::from_ns(10_000);
/// Calls for what came back in one turn, so that no flood of it keeps a thread from requests.
const COLLECT_MAX: usize = 4;

/// What every worker of a server has in common.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    /// The clock page.
    pub(crate) page: PageReader,
    /// Set when the workers are to end.
    pub(crate) stop: Arc<AtomicBool>,
    /// How old a receive timestamp may be.
    pub(crate) age_max: Span,
    /// What is remembered of clients in interleaved mode.
    pub(crate) interleaved: Arc<InterleavedTable>,
    /// Whether the devices take timestamps of what they send.
    pub(crate) transmit_stamps: bool,
    /// What limits clients and keeps some out, if anything does.
    pub(crate) limiter: Arc<ArcSwapOption<Limiter>>,
    /// What converts timestamps of the interfaces' own clocks.
    pub(crate) hardware: Arc<Conversions>,
    /// What authenticates requests and replies.
    pub(crate) secrets: Secrets,
}

impl Surroundings {
    /// What a batch is answered by that is looked at `now`.
    fn in_force(&self, now: Timestamp<Monotonic>) -> InForce {
        InForce {
            page: self.page.read().at(now),
            limiter: self.limiter.load(),
            secrets: self.secrets.present(),
        }
    }
}

/// What may change while a server runs, as it holds for one batch.
#[derive(Debug)]
struct InForce {
    page: Page,
    limiter: Guard<Option<Arc<Limiter>>>,
    secrets: Present,
}

/// A device with what it takes to answer from it.
#[derive(Debug)]
pub(crate) struct Worker<D, C> {
    device: D,
    clock: C,
    surroundings: Surroundings,
    counters: Arc<Counters>,
    requests: Batch<Endpoints>,
    replies: Batch<Endpoints>,
    looped: Batch<Endpoints>,
    /// Replies of which the timestamp has not come yet, as far as is known.
    outstanding: u64,
    nonces: Nonces,
    room: BatchKeys,
}

impl<D: Device<Address = Endpoints>, C: Clock<Monotonic>> Worker<D, C> {
    /// A worker that moves up to `slots` packets at a time.
    pub(crate) fn new(
        device: D,
        clock: C,
        surroundings: Surroundings,
        counters: Arc<Counters>,
        nonces: Nonces,
        slots: usize,
    ) -> Self {
        let requests = Batch::new(slots, REQUEST_CAPACITY);
        let reply_capacity =
            if surroundings.secrets.is_some() { REQUEST_CAPACITY } else { HEADER_LEN };
        let replies = Batch::new(slots.min(REPLIES), reply_capacity);
        let looped = Batch::new(slots, LOOPED_CAPACITY);
        Self {
            device,
            clock,
            surroundings,
            counters,
            requests,
            replies,
            looped,
            outstanding: 0,
            nonces,
            room: BatchKeys::default(),
        }
    }

    /// Answers until it is told to stop.
    pub(crate) fn run(mut self) {
        while !self.surroundings.stop.load(Ordering::Relaxed) {
            let turn = self.turn().unwrap_or_else(|_| {
                thread::sleep(PAUSE_AFTER_ERROR);
                Totals { receive_errors: 1, ..Totals::default() }
            });
            self.counters.add(&turn);
        }
    }

    /// Receives one batch, answers it, and returns what to count.
    fn turn(&mut self) -> io::Result<Totals> {
        let received = self.device.receive(&mut self.requests, WAIT)?;
        let mut turn = Totals { received: received as u64, ..Totals::default() };
        if received > 0 {
            let in_force = self.surroundings.in_force(self.clock.now());
            for first in (0..received).step_by(self.replies.slots()) {
                self.answer(first, &in_force, &mut turn);
            }
        }
        self.outstanding += turn.transmit_stamps_wanted;
        // The wait ends as well when something came back, and would not last until it is fetched.
        if self.surroundings.transmit_stamps && (self.outstanding > 0 || received == 0) {
            self.collect(&mut turn)?;
        }
        Ok(turn)
    }

    /// Answers as many requests from the `first` on as leave by one call.
    fn answer(&mut self, first: usize, in_force: &InForce, turn: &mut Totals) {
        let Self { device, clock, surroundings, requests, replies, nonces, room, .. } = self;
        let InForce { page, secrets, .. } = in_force;
        let mut asked = [const { None }; REPLIES];
        let mut to_check = [None; REPLIES];
        let now = clock.now();
        for ((asked, to_check), request) in
            asked.iter_mut().zip(&mut to_check).zip(requests.iter().skip(first))
        {
            match judge(&request, in_force, now, surroundings, turn) {
                Judgement::Reply(reply) => {
                    // What costs the most is done last.
                    *to_check = Some(request.bytes);
                    *asked = Some((request, reply));
                }
                Judgement::Kiss(reply) => *asked = Some((request, reply)),
                Judgement::Ignore(reason) => turn.ignored.count(reason),
                Judgement::Expired => turn.expired += 1,
            }
        }
        let credentials = secrets.check(&to_check, room);
        replies.clear();
        if let Some(transmit) = page.timebase.ntp_at(clock.now()) {
            let mut writer = ReplyWriter { replies, surroundings, secrets, nonces, room, turn };
            writer.write(&asked, &credentials, transmit);
        } else {
            // The page expired while the batch was being looked at.
            turn.expired += asked.iter().flatten().count() as u64;
        }
        let count = replies.len() as u64;
        if count > 0 {
            // A device in trouble has sent nothing that can be relied on; the replies count as
            // refused.
            let sent = device.send(replies).map_or(0, |sent| sent as u64);
            turn.answered += sent;
            turn.refused += count - sent;
        }
    }

    /// Takes in when replies really left.
    fn collect(&mut self, turn: &mut Totals) -> io::Result<()> {
        let page = self.surroundings.page.read();
        for _ in 0..COLLECT_MAX {
            let count = self.device.sent(&mut self.looped)?;
            let now = self.clock.now();
            for packet in self.looped.iter() {
                note_transmission(&packet, &page, now, &self.surroundings, turn);
            }
            self.outstanding = self.outstanding.saturating_sub(count as u64);
            if count < self.looped.slots() {
                // Where nothing comes in either, what has not come back will not.
                if count == 0 && turn.received == 0 {
                    self.outstanding = 0;
                }
                break;
            }
        }
        Ok(())
    }
}

/// Puts replies into a batch.
struct ReplyWriter<'a> {
    replies: &'a mut Batch<Endpoints>,
    surroundings: &'a Surroundings,
    secrets: &'a Present,
    nonces: &'a mut Nonces,
    room: &'a mut BatchKeys,
    turn: &'a mut Totals,
}

/// A reply that stands in the batch.
struct Written<'a> {
    client: IpAddr,
    header: Header,
    kind: ReplyKind,
    credential: &'a Credential<'a>,
}

impl ReplyWriter<'_> {
    /// Writes the replies that are due to `asked`, which leave at `transmit`, and counts them. What
    /// is to be remembered of them is, and then their transmission is to be timestamped.
    fn write<'a>(
        &mut self,
        asked: &[Option<(Packet<'a, Endpoints>, Reply)>; REPLIES],
        credentials: &'a Credentials<'a>,
        transmit: NtpTimestamp,
    ) {
        let mut written = [const { None }; REPLIES];
        for (asked, credential) in asked.iter().zip(credentials) {
            let Some((request, reply)) = asked else { continue };
            let credential = match credential {
                None => &Credential::None,
                Some(Ok(credential)) => credential,
                Some(Err(reason)) => {
                    self.turn.ignored.count(*reason);
                    continue;
                }
            };
            let (header, longest) = (reply.at(transmit), request.bytes.len());
            let slot = self.replies.len();
            // There is a slot in this batch for every request that is looked at.
            let _ = self.replies.push_with(request.address, |buffer| {
                let room = longest.min(buffer.len());
                credential.write(&header, &mut buffer[..room])
            });
            let client = request.address.remote.ip();
            written[slot] = Some(Written { client, header, kind: reply.kind, credential });
        }
        let sealing = self.replies.iter_mut().zip(&written).map(|(reply, written)| match written {
            Some(Written { credential: Credential::Nts(opened), header, .. }) => {
                Some((opened, header, reply.bytes))
            }
            _ => None,
        });
        let sealed = self.secrets.seal(sealing, self.room, self.nonces);
        for (slot, len) in sealed.into_iter().enumerate() {
            if let Some(len) = len {
                self.replies.shorten(slot, len);
            }
        }
        self.count(&written, transmit);
    }

    /// Counts the replies that were written, and takes out what has become none.
    fn count(&mut self, written: &[Option<Written<'_>>; REPLIES], transmit: NtpTimestamp) {
        for (slot, written) in written.iter().enumerate().rev() {
            let Some(Written { client, header, kind, credential }) = written else { continue };
            if self.replies.packet(slot).bytes.is_empty() {
                // Every credential that is accepted leaves room for its reply; nothing is sent if
                // not.
                self.replies.swap_remove(slot);
                self.turn.refused += 1;
                continue;
            }
            credential.count(self.turn);
            self.turn.response_times.count(transmit.since(header.receive));
            self.turn.interleaved += u64::from(*kind == ReplyKind::Interleaved);
            if kind.is_remembered() && credential.is_served() {
                self.surroundings.interleaved.remember(*client, header.receive, transmit);
                if self.surroundings.transmit_stamps {
                    self.turn.transmit_stamps_wanted += 1;
                    *self.replies.packet_mut(slot).stamp = true;
                }
            }
        }
    }
}

/// Corrects what is remembered of the reply that came back, unless it left by its timestamp before
/// it was sent or after it came back: then one of the clocks was stepped.
fn note_transmission(
    packet: &Packet<'_, Endpoints>,
    page: &Page,
    now: Timestamp<Monotonic>,
    surroundings: &Surroundings,
    turn: &mut Totals,
) {
    let stamp = surroundings.hardware.stamp_of(packet, page, now);
    let (Some(looped), Some((left, by))) = (Looped::parse(packet.bytes), stamp) else {
        return;
    };
    if left > now + READING_ORDER {
        return;
    }
    if let Some(transmit) = page.timebase.ntp_at(left)
        && surroundings.interleaved.correct(looped.client, looped.receive, transmit)
    {
        *by.choose(&mut turn.transmit_kernel_stamps, &mut turn.transmit_hardware_stamps) += 1;
    }
}

enum Judgement {
    /// If what stands behind the request's header is in order.
    Reply(Reply),
    /// Whatever stands there.
    Kiss(Reply),
    Ignore(Reason),
    Expired,
}

/// Finds T2 and decides. A receive timestamp is not believed when it lies ahead of `now` or more
/// than `age_max` behind: then the system clock was stepped after the page was renewed, or the
/// request has waited longer than the page reaches back. Nothing is served from such a time.
fn judge(
    request: &Packet<'_, Endpoints>,
    in_force: &InForce,
    now: Timestamp<Monotonic>,
    surroundings: &Surroundings,
    turn: &mut Totals,
) -> Judgement {
    let InForce { page, limiter, .. } = in_force;
    if request.truncated {
        return Judgement::Ignore(Reason::Length);
    }
    let stamp = || surroundings.hardware.stamp_of(request, page, now);
    let received =
        match request.received_monotonic.map(|instant| (instant, By::Kernel)).or_else(stamp) {
            Some((instant, by)) => {
                *by.choose(&mut turn.receive_kernel_stamps, &mut turn.receive_hardware_stamps) += 1;
                instant
            }
            None => now,
        };
    let age = now - received;
    let believed = age >= Span::ZERO && age <= surroundings.age_max && now < page.timebase.expires;
    let received = if believed { page.timebase.ntp_at(received) } else { None };
    // Decided in any case, so that what would be ignored anyway is counted as ignored.
    let received_or = received.unwrap_or(NtpTimestamp::UNKNOWN);
    let client = request.address.remote;
    let transmit_of = |origin| surroundings.interleaved.transmit_of(client.ip(), origin);
    match decide(request.bytes, client, page, received_or, transmit_of) {
        Verdict::Ignore(reason) => Judgement::Ignore(reason),
        Verdict::Reply(_) if received.is_none() => Judgement::Expired,
        Verdict::Reply(reply) => match admit(request, now, limiter.as_deref()) {
            Admission::Drop(why) => Judgement::Ignore(why.into()),
            Admission::Kiss(code) => Judgement::Kiss(reply.into_kiss(code)),
            Admission::Admit => Judgement::Reply(reply),
        },
    }
}

fn admit(
    request: &Packet<'_, Endpoints>,
    now: Timestamp<Monotonic>,
    limiter: Option<&Limiter>,
) -> Admission {
    let class = Class::of(request.bytes.len());
    limiter.map_or(Admission::Admit, |it| it.judge(request.address.remote.ip(), class, now))
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
