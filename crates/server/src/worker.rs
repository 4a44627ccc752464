//! One thread of the socket engine: receive a batch, decide, fill in the transmit timestamps as
//! late as can be, send, and take the kernel's word on when the replies really left. It is the same
//! for every dispatch: what differs is the device handed in. It allocates nothing once it runs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use horolog_io::{Batch, Device, Endpoints, Packet};
use horolog_time::{Clock, Monotonic, NtpTimestamp, Span, Timestamp};
use horolog_wire::ntp::HEADER_LEN;

use crate::page::PageReader;
use crate::transmit::Looped;
use crate::{Counters, InterleavedTable, Page, Reason, Reply, ReplyKind, Totals, Verdict, decide};

/// How long a receive call waits: the longest time until a thread sees that it is to stop.
const WAIT: Duration = Duration::from_millis(100);
/// How long to hold back after a failed receive call, so that a lasting error costs no core.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);
/// Room for a request: what an unfragmented datagram holds on Ethernet. No power of two, so that
/// the buffers' beginnings do not all compete for the same few sets of the cache.
pub(crate) const REQUEST_CAPACITY: usize = 1_472;
/// Room for a reply that comes back in its frame, options and VLAN tag included.
const LOOPED_CAPACITY: usize = REQUEST_CAPACITY + 14 + 4 + 60 + 8;
/// Replies that leave by one call. The last of them waits for the others behind its transmit
/// timestamp, so they are few; entering the kernel costs little beside sending that many.
const REPLIES: usize = 8;
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
}

impl<D: Device<Address = Endpoints>, C: Clock<Monotonic>> Worker<D, C> {
    /// A worker that moves up to `slots` packets at a time.
    pub(crate) fn new(
        device: D,
        clock: C,
        surroundings: Surroundings,
        counters: Arc<Counters>,
        slots: usize,
    ) -> Self {
        let requests = Batch::new(slots, REQUEST_CAPACITY);
        let replies = Batch::new(slots.min(REPLIES), HEADER_LEN);
        let looped = Batch::new(slots, LOOPED_CAPACITY);
        Self { device, clock, surroundings, counters, requests, replies, looped, outstanding: 0 }
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
            let page = self.surroundings.page.read();
            for first in (0..received).step_by(self.replies.slots()) {
                self.answer(first, &page, &mut turn);
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
    fn answer(&mut self, first: usize, page: &Page, turn: &mut Totals) {
        self.replies.clear();
        let now = self.clock.now();
        for request in self.requests.iter().skip(first).take(self.replies.slots()) {
            match judge(&request, page, now, &self.surroundings, turn) {
                Judgement::Reply(reply) => match page.timebase.ntp_at(self.clock.now()) {
                    Some(transmit) => {
                        add(
                            &mut self.replies,
                            &request,
                            &reply,
                            transmit,
                            &self.surroundings,
                            turn,
                        );
                    }
                    // The page expired while the batch was being looked at.
                    None => turn.expired += 1,
                },
                Judgement::Ignore(reason) => turn.ignored.count(reason),
                Judgement::Expired => turn.expired += 1,
            }
        }
        let replies = self.replies.len() as u64;
        if replies > 0 {
            // A device in trouble has sent nothing that can be relied on; the replies count as
            // refused.
            let sent = self.device.send(&mut self.replies).map_or(0, |sent| sent as u64);
            turn.answered += sent;
            turn.refused += replies - sent;
        }
    }

    /// Takes in when replies really left.
    fn collect(&mut self, turn: &mut Totals) -> io::Result<()> {
        let page = self.surroundings.page.read();
        for _ in 0..COLLECT_MAX {
            let count = self.device.sent(&mut self.looped)?;
            for packet in self.looped.iter() {
                note_transmission(&packet, &page, &self.surroundings, turn);
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

/// Puts a reply into the batch. If it is to be remembered, it is, and its transmission is to be
/// timestamped.
fn add(
    replies: &mut Batch<Endpoints>,
    request: &Packet<'_, Endpoints>,
    reply: &Reply,
    transmit: NtpTimestamp,
    surroundings: &Surroundings,
    turn: &mut Totals,
) {
    let header = reply.at(transmit);
    // There is a slot in this batch for every request that is looked at.
    let _ = replies.push_with(request.address, |buffer| header.emit(buffer));
    turn.interleaved += u64::from(reply.kind == ReplyKind::Interleaved);
    if reply.kind.is_remembered() {
        let client = request.address.remote.ip();
        surroundings.interleaved.remember(client, header.receive, transmit);
        if surroundings.transmit_stamps {
            turn.transmit_stamps_wanted += 1;
            *replies.packet_mut(replies.len() - 1).stamp = true;
        }
    }
}

/// Corrects what is remembered of the reply that came back.
fn note_transmission(
    packet: &Packet<'_, Endpoints>,
    page: &Page,
    surroundings: &Surroundings,
    turn: &mut Totals,
) {
    let (Some(looped), Some(left)) = (Looped::parse(packet.bytes), packet.received_at) else {
        return;
    };
    if let Some(transmit) = page.timebase.ntp_at(page.monotonic_of(left)) {
        turn.transmit_kernel_stamps += 1;
        surroundings.interleaved.correct(looped.client, looped.receive, transmit);
    }
}

enum Judgement {
    Reply(Reply),
    Ignore(Reason),
    Expired,
}

/// Finds T2 and decides. A receive timestamp is not believed when it lies ahead of `now` or more
/// than `age_max` behind: then the system clock was stepped after the page was renewed, or the
/// request has waited longer than the page reaches back. Nothing is served from such a time.
fn judge(
    request: &Packet<'_, Endpoints>,
    page: &Page,
    now: Timestamp<Monotonic>,
    surroundings: &Surroundings,
    turn: &mut Totals,
) -> Judgement {
    if request.truncated {
        return Judgement::Ignore(Reason::Length);
    }
    turn.receive_kernel_stamps += u64::from(request.received_at.is_some());
    let received = request.received_at.map_or(now, |instant| page.monotonic_of(instant));
    let age = now - received;
    let believed = age >= Span::ZERO && age <= surroundings.age_max && now < page.timebase.expires;
    let received = if believed { page.timebase.ntp_at(received) } else { None };
    // Decided in any case, so that what would be ignored anyway is counted as ignored.
    let received_or = received.unwrap_or(NtpTimestamp::UNKNOWN);
    let client = request.address.remote;
    let transmit_of = |origin| surroundings.interleaved.transmit_of(client.ip(), origin);
    match decide(request.bytes, client, page, received_or, transmit_of) {
        Verdict::Ignore(reason) => Judgement::Ignore(reason),
        Verdict::Reply(reply) if received.is_some() => Judgement::Reply(reply),
        Verdict::Reply(_) => Judgement::Expired,
    }
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
