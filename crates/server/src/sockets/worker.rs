//! Worker thread of the socket engine: receives a batch, decides on it, fills in the transmit
//! timestamps as late as possible, sends the replies, and collects the kernel's timestamps of their
//! transmission. Only the device depends on the dispatch. It allocates no memory once it runs.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use horolog_io::{
    Batch, BatchDevice, BatchPacket, DatagramEndpoints, PacketTimestampSource, PhcConversions,
};
use horolog_nts::{BATCH, BatchKeyBuffer, NonceStream};
use horolog_source::{ClockPage, ClockPageReader};
use horolog_time::{Clock, Monotonic, NtpTimestamp, Span, Timestamp};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header};

use super::counters::{SocketEngineCounts, WorkerCounters};
use crate::nts::authenticate::{
    BatchAuthenticationResults, BatchSecrets, RequestAuthentication, Secrets,
};
use crate::reply::decide::{
    IgnoreReason, PreparedReply, ReplyTimestampMode, RequestVerdict, decide,
};
use crate::reply::interleaved::InterleavedTable;
use crate::reply::limits::{Admission, Limiter, RequestLengthClass};
use crate::reply::transmitted_reply::TransmittedReplyKey;

/// Longest wait for a batch, after which a stop request is noticed.
const RECEIVE_WAIT: Duration = Duration::from_millis(100);
/// Pause after a failed receive call, so that a persistent error does not occupy a core.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);
/// Buffer size for a request, in bytes: the payload of an unfragmented datagram on Ethernet. It is
/// no power of two, so that the starts of the buffers do not map to the same few cache sets.
pub(crate) const REQUEST_CAPACITY: usize = 1_472;
/// Buffer size for a looped-back reply with its headers, in bytes.
const LOOPED_CAPACITY: usize = REQUEST_CAPACITY + 14 + 4 + 60 + 8;
/// Number of replies sent by one call with one transmit timestamp, as many as NTS opens and seals
/// together. It is small, because the last reply is sent after the others, but has their timestamp.
const REPLIES_PER_SEND: usize = BATCH;
/// Largest lead of a transmit timestamp over the monotonic clock: the clocks are read one after the
/// other, and a PHC is compared with them to within a few microseconds.
const CLOCK_READ_SKEW: Span = Span::from_ns(10_000);
/// Maximum number of calls that collect looped-back replies after a batch, so that a flood of them
/// does not delay requests.
const COLLECT_MAX: usize = 4;

/// Context shared by all workers of a server.
#[derive(Clone, Debug)]
pub(crate) struct WorkerContext {
    /// Reader of the clock page of the timeline that the worker serves.
    pub(crate) page: ClockPageReader,
    /// Flag that ends the workers when it is set.
    pub(crate) stop: Arc<AtomicBool>,
    /// Largest age of a receive timestamp: the life of a clock page. Requests with older ones are
    /// not answered.
    pub(crate) age_max: Span,
    /// Timestamps stored for interleaved mode.
    pub(crate) interleaved: Arc<InterleavedTable>,
    /// True if the devices take transmit timestamps.
    pub(crate) has_transmit_timestamps: bool,
    /// Rate limits and prefix lists, if any.
    pub(crate) limiter: Arc<ArcSwapOption<Limiter>>,
    /// Conversions of PHC timestamps to the monotonic clock.
    pub(crate) hardware: Arc<PhcConversions>,
    /// Secrets that authenticate requests and replies.
    pub(crate) secrets: Secrets,
}

impl WorkerContext {
    /// Returns the configuration for a batch processed at `now`.
    fn batch_config(&self, now: Timestamp<Monotonic>) -> BatchInputs {
        BatchInputs {
            page: self.page.read().for_reply_at(now),
            limiter: self.limiter.load(),
            secrets: self.secrets.snapshot(),
        }
    }
}

/// Inputs that stay constant during a batch: clock page, limiter and secrets.
#[derive(Debug)]
struct BatchInputs {
    page: ClockPage,
    limiter: Guard<Option<Arc<Limiter>>>,
    secrets: BatchSecrets,
}

/// Worker that answers requests from a device.
#[derive(Debug)]
pub(crate) struct Worker<D, C> {
    device: D,
    clock: C,
    context: WorkerContext,
    counters: Arc<WorkerCounters>,
    requests: Batch<DatagramEndpoints>,
    replies: Batch<DatagramEndpoints>,
    error_queue: Batch<DatagramEndpoints>,
    /// Number of replies whose transmit timestamps have not been collected yet, as far as known.
    outstanding: u64,
    nonces: NonceStream,
    batch_keys: BatchKeyBuffer,
}

impl<D: BatchDevice<Address = DatagramEndpoints>, C: Clock<Monotonic>> Worker<D, C> {
    /// Creates a worker with batches of up to `slots` packets.
    pub(crate) fn new(
        device: D,
        clock: C,
        context: WorkerContext,
        counters: Arc<WorkerCounters>,
        nonces: NonceStream,
        slots: usize,
    ) -> Self {
        let requests = Batch::new(slots, REQUEST_CAPACITY);
        let reply_capacity =
            if context.secrets.is_configured() { REQUEST_CAPACITY } else { HEADER_LEN };
        let replies = Batch::new(slots.min(REPLIES_PER_SEND), reply_capacity);
        let looped = Batch::new(slots, LOOPED_CAPACITY);
        Self {
            device,
            clock,
            context,
            counters,
            requests,
            replies,
            error_queue: looped,
            outstanding: 0,
            nonces,
            batch_keys: BatchKeyBuffer::default(),
        }
    }

    /// Processes batches and adds their counts to the counters, until the stop flag is set.
    pub(crate) fn run(mut self) {
        while !self.context.stop.load(Ordering::Relaxed) {
            let counts = self.process_batch().unwrap_or_else(|_| {
                thread::sleep(PAUSE_AFTER_ERROR);
                SocketEngineCounts { receive_errors: 1, ..SocketEngineCounts::default() }
            });
            self.counters.add(&counts);
        }
    }

    /// Receives one batch, answers its requests, collects looped-back replies, and returns the
    /// counts.
    fn process_batch(&mut self) -> io::Result<SocketEngineCounts> {
        let received = self.device.receive(&mut self.requests, RECEIVE_WAIT)?;
        let mut counts =
            SocketEngineCounts { received: received as u64, ..SocketEngineCounts::default() };
        if received > 0 {
            let batch_config = self.context.batch_config(self.clock.now());
            for first in (0..received).step_by(self.replies.slots()) {
                self.answer(first, &batch_config, &mut counts);
            }
        }
        self.outstanding += counts.transmit_timestamps_requested;
        // A looped-back reply ends the wait too, and would end every wait until it is collected.
        if self.context.has_transmit_timestamps && (self.outstanding > 0 || received == 0) {
            self.collect_transmit_times(&mut counts)?;
        }
        Ok(counts)
    }

    /// Answers as many requests of the batch as one call sends, from the one at index `first` on.
    fn answer(
        &mut self,
        first: usize,
        batch_config: &BatchInputs,
        counts: &mut SocketEngineCounts,
    ) {
        let Self { device, clock, context, requests, replies, nonces, batch_keys: room, .. } = self;
        let BatchInputs { page, secrets, .. } = batch_config;
        let mut pairs = [const { None }; REPLIES_PER_SEND];
        let mut to_check = [None; REPLIES_PER_SEND];
        let now = clock.now();
        for ((pair, to_check), request) in
            pairs.iter_mut().zip(&mut to_check).zip(requests.iter().skip(first))
        {
            match decide_request(&request, batch_config, now, context, counts) {
                WorkerDecision::Reply(reply) => {
                    // Authentication is the most expensive step, so it comes last.
                    *to_check = Some(request.bytes);
                    *pair = Some((request, reply));
                }
                WorkerDecision::Kiss(reply) => *pair = Some((request, reply)),
                WorkerDecision::Ignore(reason) => counts.ignored.count(reason),
                WorkerDecision::Expired => counts.expired += 1,
            }
        }
        let credentials = secrets.check(&to_check, room);
        replies.clear();
        if let Some(transmit) = page.timebase.ntp_at(clock.now()) {
            let mut writer =
                ReplyWriter { replies, context, secrets, nonces, batch_keys: room, counts };
            writer.write(&pairs, &credentials, transmit);
        } else {
            // The page has expired while the batch was processed.
            counts.expired += pairs.iter().flatten().count() as u64;
        }
        let count = replies.len() as u64;
        if count > 0 {
            // A device that fails has sent nothing, so that all replies count as refused.
            let sent = device.send(replies).map_or(0, |sent| sent as u64);
            counts.answered += sent;
            counts.refused += count - sent;
        }
    }

    /// Collects looped-back replies in at most [`COLLECT_MAX`] calls, and corrects the stored
    /// transmit timestamps by theirs.
    fn collect_transmit_times(&mut self, counts: &mut SocketEngineCounts) -> io::Result<()> {
        let page = self.context.page.read();
        for _ in 0..COLLECT_MAX {
            let count = self.device.receive_transmitted(&mut self.error_queue)?;
            let now = self.clock.now();
            for packet in self.error_queue.iter() {
                correct_stored_timestamp(&packet, &page, now, &self.context, counts);
            }
            self.outstanding = self.outstanding.saturating_sub(count as u64);
            if count < self.error_queue.slots() {
                // If no requests arrive either, the outstanding ones will not be looped back any
                // more.
                if count == 0 && counts.received == 0 {
                    self.outstanding = 0;
                }
                break;
            }
        }
        Ok(())
    }
}

/// Writer of the replies of a batch.
struct ReplyWriter<'a> {
    replies: &'a mut Batch<DatagramEndpoints>,
    context: &'a WorkerContext,
    secrets: &'a BatchSecrets,
    nonces: &'a mut NonceStream,
    batch_keys: &'a mut BatchKeyBuffer,
    counts: &'a mut SocketEngineCounts,
}

/// Reply written into the batch, with what its counts and stored timestamps need.
struct QueuedReply<'a> {
    client: IpAddr,
    header: Header,
    kind: ReplyTimestampMode,
    credential: &'a RequestAuthentication<'a>,
}

impl ReplyWriter<'_> {
    /// Writes the replies in `pairs`, which have the transmit timestamp `transmit`, and counts
    /// them. If the timestamps of a reply must be stored, they are, and the actual transmit
    /// timestamp is requested.
    fn write<'a>(
        &mut self,
        pairs: &[Option<(BatchPacket<'a, DatagramEndpoints>, PreparedReply)>; REPLIES_PER_SEND],
        credentials: &'a BatchAuthenticationResults<'a>,
        transmit: NtpTimestamp,
    ) {
        let mut written = [const { None }; REPLIES_PER_SEND];
        for (pair, credential) in pairs.iter().zip(credentials) {
            let Some((request, reply)) = pair else { continue };
            let credential = match credential {
                None => &RequestAuthentication::None,
                Some(Ok(credential)) => credential,
                Some(Err(reason)) => {
                    self.counts.ignored.count(*reason);
                    continue;
                }
            };
            let (header, longest) = (reply.header_at(transmit), request.bytes.len());
            let slot = self.replies.len();
            // The batch has a slot for every request processed here.
            let _ = self.replies.push_with(request.address, |buffer| {
                let room = longest.min(buffer.len());
                credential.write(&header, &mut buffer[..room])
            });
            let client = request.address.remote.ip();
            written[slot] = Some(QueuedReply { client, header, kind: reply.kind, credential });
        }
        let sealing = self.replies.iter_mut().zip(&written).map(|(reply, written)| match written {
            Some(QueuedReply {
                credential: RequestAuthentication::Nts(opened), header, ..
            }) => Some((opened, header, reply.bytes)),
            _ => None,
        });
        let sealed = self.secrets.seal(sealing, self.batch_keys, self.nonces);
        for (slot, len) in sealed.into_iter().enumerate() {
            if let Some(len) = len {
                self.replies.shorten(slot, len);
            }
        }
        self.count(&written, transmit);
    }

    /// Counts the written replies and stores their timestamps for interleaved mode if required.
    /// Removes those that do not fit their buffer, which count as refused.
    fn count(
        &mut self,
        written: &[Option<QueuedReply<'_>>; REPLIES_PER_SEND],
        transmit: NtpTimestamp,
    ) {
        for (slot, written) in written.iter().enumerate().rev() {
            let Some(QueuedReply { client, header, kind, credential }) = written else { continue };
            if self.replies.packet(slot).bytes.is_empty() {
                // Does not occur, because every accepted credential leaves room for its reply.
                self.replies.swap_remove(slot);
                self.counts.refused += 1;
                continue;
            }
            credential.count(self.counts);
            self.counts.response_times.count(transmit.since(header.receive));
            self.counts.interleaved += u64::from(*kind == ReplyTimestampMode::Interleaved);
            self.counts.symmetric += u64::from(header.mode == AssociationMode::SymmetricPassive);
            if kind.needs_timestamps_stored() && credential.can_carry_time() {
                self.context.interleaved.store_timestamps(*client, header.receive, transmit);
                if self.context.has_transmit_timestamps {
                    self.counts.transmit_timestamps_requested += 1;
                    *self.replies.packet_mut(slot).wants_timestamp = true;
                }
            }
        }
    }
}

/// Corrects the stored transmit timestamp of a looped-back reply, unless the actual one is before
/// the stored one or ahead of `now`: then a clock was stepped.
fn correct_stored_timestamp(
    packet: &BatchPacket<'_, DatagramEndpoints>,
    page: &ClockPage,
    now: Timestamp<Monotonic>,
    context: &WorkerContext,
    counts: &mut SocketEngineCounts,
) {
    let timestamp =
        context.hardware.best_timestamp(packet, |instant| page.monotonic_of(instant, now));
    let (Some(looped), Some((transmitted_at, by))) =
        (TransmittedReplyKey::parse(packet.bytes), timestamp)
    else {
        return;
    };
    if transmitted_at > now + CLOCK_READ_SKEW {
        return;
    }
    if let Some(transmit) = page.timebase.ntp_at(transmitted_at)
        && context.interleaved.correct(looped.client, looped.receive, transmit)
    {
        *by.choose(
            &mut counts.transmit_kernel_timestamps,
            &mut counts.transmit_hardware_timestamps,
        ) += 1;
    }
}

enum WorkerDecision {
    /// Send this reply if the trailer of the request is valid.
    Reply(PreparedReply),
    /// Send this kiss, whatever the trailer.
    Kiss(PreparedReply),
    Ignore(IgnoreReason),
    Expired,
}

/// Determines the receive time (T2) and decides on a request. A receive timestamp that is ahead of
/// `now` or more than `age_max` before it is rejected: the system clock was stepped after the page
/// update, or the request has waited longer than the page is valid. The request is then not
/// answered.
fn decide_request(
    request: &BatchPacket<'_, DatagramEndpoints>,
    batch_config: &BatchInputs,
    now: Timestamp<Monotonic>,
    context: &WorkerContext,
    counts: &mut SocketEngineCounts,
) -> WorkerDecision {
    let BatchInputs { page, limiter, .. } = batch_config;
    if !request.address.unicast {
        return WorkerDecision::Ignore(IgnoreReason::NotUnicast);
    }
    if request.truncated {
        return WorkerDecision::Ignore(IgnoreReason::Length);
    }
    let timestamp =
        || context.hardware.best_timestamp(request, |instant| page.monotonic_of(instant, now));
    let received = match request
        .received_monotonic
        .map(|instant| (instant, PacketTimestampSource::Kernel))
        .or_else(timestamp)
    {
        Some((instant, by)) => {
            *by.choose(
                &mut counts.receive_kernel_timestamps,
                &mut counts.receive_hardware_timestamps,
            ) += 1;
            instant
        }
        None => now,
    };
    let age = now - received;
    let is_plausible = age >= Span::ZERO && age <= context.age_max && now < page.timebase.expires;
    let received = if is_plausible { page.timebase.ntp_at(received) } else { None };
    // Decides even without a receive time, so that requests that are ignored in any case count as
    // ignored.
    let received_or = received.unwrap_or(NtpTimestamp::UNKNOWN);
    let client = request.address.remote;
    let transmit_of = |origin| context.interleaved.transmit_of(client.ip(), origin);
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
    request: &BatchPacket<'_, DatagramEndpoints>,
    now: Timestamp<Monotonic>,
    limiter: Option<&Limiter>,
) -> Admission {
    let class = RequestLengthClass::from_length(request.bytes.len());
    limiter.map_or(Admission::Admit, |it| it.judge(request.address.remote.ip(), class, now))
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
