//! One thread of the socket engine: receive a batch, decide, fill in the transmit timestamps as
//! late as can be, send. It is the same for every dispatch: what differs is the device handed in.
//! It allocates nothing once it runs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use horolog_io::{Batch, Device, Endpoints, Packet};
use horolog_time::{Clock, Monotonic, NtpTimestamp, Span, Timestamp};
use horolog_wire::ntp::{HEADER_LEN, Header, TRANSMIT_OFFSET};

use crate::page::PageReader;
use crate::{Counters, Page, Reason, Totals, Verdict, decide};

/// How long a receive call waits: the longest time until a thread sees that it is to stop.
const WAIT: Duration = Duration::from_millis(100);
/// How long to hold back after a failed receive call, so that a lasting error costs no core.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);
/// Room for a request: what an unfragmented datagram holds on Ethernet. No power of two, so that
/// the buffers' beginnings do not all compete for the same few sets of the cache.
pub(crate) const REQUEST_CAPACITY: usize = 1_472;

/// What every worker of a server has in common.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    /// The clock page.
    pub(crate) page: PageReader,
    /// Set when the workers are to end.
    pub(crate) stop: Arc<AtomicBool>,
    /// How old a receive timestamp may be.
    pub(crate) age_max: Span,
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
        let replies = Batch::new(slots, HEADER_LEN);
        Self { device, clock, surroundings, counters, requests, replies }
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
        if received == 0 {
            return Ok(turn);
        }
        let page = self.surroundings.page.read().at(self.clock.now());
        self.consider(&page, &mut turn);
        let replies = self.replies.len() as u64;
        match page.timebase.ntp_at(self.clock.now()) {
            // The page expired while the batch was being looked at.
            None => turn.expired += replies,
            Some(transmit) => {
                turn.answered = self.send(transmit);
                turn.refused = replies - turn.answered;
            }
        }
        Ok(turn)
    }

    /// Turns requests into replies that lack only their transmit timestamps.
    fn consider(&mut self, page: &Page, turn: &mut Totals) {
        self.replies.clear();
        let now = self.clock.now();
        for request in self.requests.iter() {
            match judge(&request, page, now, self.surroundings.age_max) {
                // There is a slot in one batch for every slot in the other.
                Judgement::Reply(header) => {
                    let _ = self.replies.push_with(request.address, |buffer| header.emit(buffer));
                }
                Judgement::Ignore(reason) => turn.ignored.count(reason),
                Judgement::Expired => turn.expired += 1,
            }
        }
    }

    fn send(&mut self, transmit: NtpTimestamp) -> u64 {
        let transmit = transmit.to_bits().to_be_bytes();
        for reply in self.replies.iter_mut() {
            reply.bytes[TRANSMIT_OFFSET..HEADER_LEN].copy_from_slice(&transmit);
        }
        // A device in trouble has sent nothing that can be relied on; the replies count as refused.
        self.device.send(&mut self.replies).map_or(0, |sent| sent as u64)
    }
}

enum Judgement {
    Reply(Header),
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
    age_max: Span,
) -> Judgement {
    if request.truncated {
        return Judgement::Ignore(Reason::Length);
    }
    let received = request.received_at.map_or(now, |instant| page.monotonic_of(instant, now));
    let age = now - received;
    let believed = age >= Span::ZERO && age <= age_max && now < page.timebase.expires;
    let received = if believed { page.timebase.ntp_at(received) } else { None };
    // Decided in any case, so that what would be ignored anyway is counted as ignored.
    let unknown = NtpTimestamp::UNKNOWN;
    match decide(request.bytes, request.address.remote, page, received.unwrap_or(unknown)) {
        Verdict::Ignore(reason) => Judgement::Ignore(reason),
        Verdict::Reply(header) if received.is_some() => Judgement::Reply(header),
        Verdict::Reply(_) => Judgement::Expired,
    }
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
