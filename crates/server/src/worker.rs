//! Thread of the socket engine: receives a batch, decides, fills in the transmit timestamps as late
//! as possible, sends, and collects the kernel's reports of the actual transmit times. It is the
//! same for every dispatch, only the device differs. It allocates nothing once it runs.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use horolog_io::{Batch, BatchDevice, BatchPacket, Endpoints};
use horolog_nts::{BATCH, BatchKeys, Nonces};
use horolog_time::{Clock, Monotonic, NtpTimestamp, Span, Timestamp};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header};

use crate::authenticate::{Credential, Credentials, Secrets, SecretsSnapshot};
use crate::hardware::{PhcConversions, TimestampSource};
use crate::page::PageReader;
use crate::transmitted_reply::TransmittedReply;
use crate::{
    Admission, ClockPage, Counters, IgnoreReason, InterleavedTable, Limiter, Reply, ReplyKind,
    RequestClass, RequestVerdict, SocketCounts, decide,
};

/// Wait of a receive call: the longest time until a thread detects a stop request.
const WAIT: Duration = Duration::from_millis(100);
/// Pause after a failed receive call, so that a lasting error does not occupy a core.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);
/// Capacity for a request: the payload of an unfragmented datagram on Ethernet. Not a power of two,
/// so that the starts of the buffers do not all compete for the same few sets of the cache.
pub(crate) const REQUEST_CAPACITY: usize = 1_472;
/// Capacity for a reply returned in its frame, options and VLAN tag included.
const LOOPED_CAPACITY: usize = REQUEST_CAPACITY + 14 + 4 + 60 + 8;
/// Replies that are sent by one call, with one transmit timestamp: as many as are opened and sealed
/// together. The last of them waits for the others after that timestamp, so they are few.
const REPLIES: usize = BATCH;
/// Largest lead of a transmission over the monotonic clock: both clocks are read one after the
/// other, and a PHC is compared with them to within a few microseconds.
const READING_ORDER: Span = Span::from_ns(10_000);
/// Calls for returned replies in one turn, so that a flood of them does not keep a thread from
/// requests.
const COLLECT_MAX: usize = 4;

/// Context common to all workers of a server.
#[derive(Clone, Debug)]
pub(crate) struct WorkerContext {
    /// Clock page.
    pub(crate) page: PageReader,
    /// Stop flag of the workers.
    pub(crate) stop: Arc<AtomicBool>,
    /// Maximum age of a receive timestamp.
    pub(crate) age_max: Span,
    /// Stored state of clients in interleaved mode.
    pub(crate) interleaved: Arc<InterleavedTable>,
    /// True if the devices take transmit timestamps.
    pub(crate) has_transmit_timestamps: bool,
    /// Limits and lists of clients, if any.
    pub(crate) limiter: Arc<ArcSwapOption<Limiter>>,
    /// Conversions of hardware timestamps.
    pub(crate) hardware: Arc<PhcConversions>,
    /// Secrets that authenticate requests and replies.
    pub(crate) secrets: Secrets,
}

impl WorkerContext {
    /// Returns the configuration for a batch that is processed at `now`.
    fn in_force(&self, now: Timestamp<Monotonic>) -> BatchConfig {
        BatchConfig {
            page: self.page.read().at(now),
            limiter: self.limiter.load(),
            secrets: self.secrets.present(),
        }
    }
}

/// Reloadable configuration, constant for one batch.
#[derive(Debug)]
struct BatchConfig {
    page: ClockPage,
    limiter: Guard<Option<Arc<Limiter>>>,
    secrets: SecretsSnapshot,
}

/// Device with the state needed to answer from it.
#[derive(Debug)]
pub(crate) struct Worker<D, C> {
    device: D,
    clock: C,
    context: WorkerContext,
    counters: Arc<Counters>,
    requests: Batch<Endpoints>,
    replies: Batch<Endpoints>,
    error_queue: Batch<Endpoints>,
    /// Replies whose timestamp has not arrived yet, as far as known.
    outstanding: u64,
    nonces: Nonces,
    room: BatchKeys,
}

impl<D: BatchDevice<Address = Endpoints>, C: Clock<Monotonic>> Worker<D, C> {
    /// Creates a worker that moves up to `slots` packets at a time.
    pub(crate) fn new(
        device: D,
        clock: C,
        surroundings: WorkerContext,
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
            context: surroundings,
            counters,
            requests,
            replies,
            error_queue: looped,
            outstanding: 0,
            nonces,
            room: BatchKeys::default(),
        }
    }

    /// Answers until it is stopped.
    pub(crate) fn run(mut self) {
        while !self.context.stop.load(Ordering::Relaxed) {
            let turn = self.turn().unwrap_or_else(|_| {
                thread::sleep(PAUSE_AFTER_ERROR);
                SocketCounts { receive_errors: 1, ..SocketCounts::default() }
            });
            self.counters.add(&turn);
        }
    }

    /// Receives one batch, answers it, and returns the counts.
    fn turn(&mut self) -> io::Result<SocketCounts> {
        let received = self.device.receive(&mut self.requests, WAIT)?;
        let mut turn = SocketCounts { received: received as u64, ..SocketCounts::default() };
        if received > 0 {
            let in_force = self.context.in_force(self.clock.now());
            for first in (0..received).step_by(self.replies.slots()) {
                self.answer(first, &in_force, &mut turn);
            }
        }
        self.outstanding += turn.transmit_timestamps_requested;
        // A returned reply also ends the wait, and would end the next one at once until it is
        // fetched.
        if self.context.has_transmit_timestamps && (self.outstanding > 0 || received == 0) {
            self.collect(&mut turn)?;
        }
        Ok(turn)
    }

    /// Answers as many requests from the `first` on as are sent by one call.
    fn answer(&mut self, first: usize, in_force: &BatchConfig, turn: &mut SocketCounts) {
        let Self { device, clock, context: surroundings, requests, replies, nonces, room, .. } =
            self;
        let BatchConfig { page, secrets, .. } = in_force;
        let mut pairs = [const { None }; REPLIES];
        let mut to_check = [None; REPLIES];
        let now = clock.now();
        for ((pair, to_check), request) in
            pairs.iter_mut().zip(&mut to_check).zip(requests.iter().skip(first))
        {
            match judge(&request, in_force, now, surroundings, turn) {
                WorkerDecision::Reply(reply) => {
                    // The most expensive step is done last.
                    *to_check = Some(request.bytes);
                    *pair = Some((request, reply));
                }
                WorkerDecision::Kiss(reply) => *pair = Some((request, reply)),
                WorkerDecision::Ignore(reason) => turn.ignored.count(reason),
                WorkerDecision::Expired => turn.expired += 1,
            }
        }
        let credentials = secrets.check(&to_check, room);
        replies.clear();
        if let Some(transmit) = page.timebase.ntp_at(clock.now()) {
            let mut writer =
                ReplyWriter { replies, context: surroundings, secrets, nonces, room, turn };
            writer.write(&pairs, &credentials, transmit);
        } else {
            // The page expired while the batch was being processed.
            turn.expired += pairs.iter().flatten().count() as u64;
        }
        let count = replies.len() as u64;
        if count > 0 {
            // A failing device has reliably sent nothing; the replies count as refused.
            let sent = device.send(replies).map_or(0, |sent| sent as u64);
            turn.answered += sent;
            turn.refused += count - sent;
        }
    }

    /// Collects the actual transmit times of replies.
    fn collect(&mut self, turn: &mut SocketCounts) -> io::Result<()> {
        let page = self.context.page.read();
        for _ in 0..COLLECT_MAX {
            let count = self.device.sent(&mut self.error_queue)?;
            let now = self.clock.now();
            for packet in self.error_queue.iter() {
                note_transmission(&packet, &page, now, &self.context, turn);
            }
            self.outstanding = self.outstanding.saturating_sub(count as u64);
            if count < self.error_queue.slots() {
                // If nothing is received either, the missing ones will not be returned.
                if count == 0 && turn.received == 0 {
                    self.outstanding = 0;
                }
                break;
            }
        }
        Ok(())
    }
}

/// Writer of replies into a batch.
struct ReplyWriter<'a> {
    replies: &'a mut Batch<Endpoints>,
    context: &'a WorkerContext,
    secrets: &'a SecretsSnapshot,
    nonces: &'a mut Nonces,
    room: &'a mut BatchKeys,
    turn: &'a mut SocketCounts,
}

/// Reply in the batch.
struct QueuedReply<'a> {
    client: IpAddr,
    header: Header,
    kind: ReplyKind,
    credential: &'a Credential<'a>,
}

impl ReplyWriter<'_> {
    /// Writes the replies in `pairs`, which are sent at `transmit`, and counts them. Timestamps
    /// that must be stored are stored, and then a transmit timestamp is requested.
    fn write<'a>(
        &mut self,
        pairs: &[Option<(BatchPacket<'a, Endpoints>, Reply)>; REPLIES],
        credentials: &'a Credentials<'a>,
        transmit: NtpTimestamp,
    ) {
        let mut written = [const { None }; REPLIES];
        for (pair, credential) in pairs.iter().zip(credentials) {
            let Some((request, reply)) = pair else { continue };
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
            // There is a slot in this batch for every request processed.
            let _ = self.replies.push_with(request.address, |buffer| {
                let room = longest.min(buffer.len());
                credential.write(&header, &mut buffer[..room])
            });
            let client = request.address.remote.ip();
            written[slot] = Some(QueuedReply { client, header, kind: reply.kind, credential });
        }
        let sealing = self.replies.iter_mut().zip(&written).map(|(reply, written)| match written {
            Some(QueuedReply { credential: Credential::Nts(opened), header, .. }) => {
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

    /// Counts the written replies, and removes those that have become empty.
    fn count(&mut self, written: &[Option<QueuedReply<'_>>; REPLIES], transmit: NtpTimestamp) {
        for (slot, written) in written.iter().enumerate().rev() {
            let Some(QueuedReply { client, header, kind, credential }) = written else { continue };
            if self.replies.packet(slot).bytes.is_empty() {
                // Every accepted credential leaves room for its reply; otherwise nothing is sent.
                self.replies.swap_remove(slot);
                self.turn.refused += 1;
                continue;
            }
            credential.count(self.turn);
            self.turn.response_times.count(transmit.since(header.receive));
            self.turn.interleaved += u64::from(*kind == ReplyKind::Interleaved);
            self.turn.symmetric += u64::from(header.mode == AssociationMode::SymmetricPassive);
            if kind.needs_timestamps_stored() && credential.is_served() {
                self.context.interleaved.remember(*client, header.receive, transmit);
                if self.context.has_transmit_timestamps {
                    self.turn.transmit_timestamps_requested += 1;
                    *self.replies.packet_mut(slot).wants_timestamp = true;
                }
            }
        }
    }
}

/// Corrects the stored timestamps of a returned reply, unless its transmit timestamp lies before it
/// was sent or after it was returned: then one of the clocks was stepped.
fn note_transmission(
    packet: &BatchPacket<'_, Endpoints>,
    page: &ClockPage,
    now: Timestamp<Monotonic>,
    surroundings: &WorkerContext,
    turn: &mut SocketCounts,
) {
    let stamp = surroundings.hardware.best_timestamp(packet, page, now);
    let (Some(looped), Some((left, by))) = (TransmittedReply::parse(packet.bytes), stamp) else {
        return;
    };
    if left > now + READING_ORDER {
        return;
    }
    if let Some(transmit) = page.timebase.ntp_at(left)
        && surroundings.interleaved.correct(looped.client, looped.receive, transmit)
    {
        *by.choose(&mut turn.transmit_kernel_timestamps, &mut turn.transmit_hardware_timestamps) +=
            1;
    }
}

enum WorkerDecision {
    /// Reply, if the trailer of the request is valid.
    Reply(Reply),
    /// Kiss, whatever the trailer.
    Kiss(Reply),
    Ignore(IgnoreReason),
    Expired,
}

/// Determines T2 and decides. A receive timestamp is rejected if it lies ahead of `now` or more
/// than `age_max` before it: then the system clock was stepped after the page update, or the
/// request has waited longer than the page reaches back. Nothing is served from such a time.
fn judge(
    request: &BatchPacket<'_, Endpoints>,
    in_force: &BatchConfig,
    now: Timestamp<Monotonic>,
    surroundings: &WorkerContext,
    turn: &mut SocketCounts,
) -> WorkerDecision {
    let BatchConfig { page, limiter, .. } = in_force;
    if !request.address.unicast {
        return WorkerDecision::Ignore(IgnoreReason::NotUnicast);
    }
    if request.truncated {
        return WorkerDecision::Ignore(IgnoreReason::Length);
    }
    let stamp = || surroundings.hardware.best_timestamp(request, page, now);
    let received = match request
        .received_monotonic
        .map(|instant| (instant, TimestampSource::Kernel))
        .or_else(stamp)
    {
        Some((instant, by)) => {
            *by.choose(
                &mut turn.receive_kernel_timestamps,
                &mut turn.receive_hardware_timestamps,
            ) += 1;
            instant
        }
        None => now,
    };
    let age = now - received;
    let believed = age >= Span::ZERO && age <= surroundings.age_max && now < page.timebase.expires;
    let received = if believed { page.timebase.ntp_at(received) } else { None };
    // Decided in any case, so that requests that would be ignored anyway are counted as ignored.
    let received_or = received.unwrap_or(NtpTimestamp::UNKNOWN);
    let client = request.address.remote;
    let transmit_of = |origin| surroundings.interleaved.transmit_of(client.ip(), origin);
    match decide(request.bytes, client, page, received_or, transmit_of) {
        RequestVerdict::Ignore(reason) => WorkerDecision::Ignore(reason),
        RequestVerdict::Reply(_) if received.is_none() => WorkerDecision::Expired,
        RequestVerdict::Reply(reply) => match admit(request, now, limiter.as_deref()) {
            Admission::Drop(why) => WorkerDecision::Ignore(why.into()),
            Admission::Kiss(code) => WorkerDecision::Kiss(reply.into_kiss(code)),
            Admission::Admit => WorkerDecision::Reply(reply),
        },
    }
}

fn admit(
    request: &BatchPacket<'_, Endpoints>,
    now: Timestamp<Monotonic>,
    limiter: Option<&Limiter>,
) -> Admission {
    let class = RequestClass::of(request.bytes.len());
    limiter.map_or(Admission::Admit, |it| it.judge(request.address.remote.ip(), class, now))
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
