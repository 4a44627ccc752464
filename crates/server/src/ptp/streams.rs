//! What a port sends at its time: Announce and Sync, to the group and to those to whom they are
//! granted, and what follows a message that was sent (IEEE 1588-2019, clauses 9.5.8 to 9.5.10).

use horolog_time::{Monotonic, Span, Timestamp};
use horolog_wire::ptp::{Body, Flags, Message, MessageType, PtpTimestamp, TimeInterval};

use super::compose::interval;
use super::{ClockState, Destination, Outbox, Port, PortState, compose};

/// Messages to the group at regular intervals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) next: Timestamp<Monotonic>,
    interval: Span,
    sequence_id: u16,
}

impl Stream {
    /// One whose first message is due at `next`.
    pub(super) const fn new(log_interval: i8, next: Timestamp<Monotonic>) -> Self {
        Self { next, interval: interval(log_interval), sequence_id: 0 }
    }

    /// The number of the message that is due, where one is.
    pub(super) fn pop_due(&mut self, now: Timestamp<Monotonic>) -> Option<u16> {
        if now < self.next {
            return None;
        }
        let on_time = self.next + self.interval;
        self.next = if on_time > now { on_time } else { now + self.interval };
        let sequence_id = self.sequence_id;
        self.sequence_id = sequence_id.wrapping_add(1);
        Some(sequence_id)
    }
}

impl Port {
    /// Does what is due at `now`.
    pub fn due(&mut self, clock: &ClockState, now: Timestamp<Monotonic>, out: &mut impl Outbox) {
        self.decide_state(clock, now, out);
        if self.state != PortState::Master {
            return;
        }
        if self.settings.multicast {
            if let Some(sequence_id) = self.announce.pop_due(now) {
                self.send_announce(Destination::Group, sequence_id, clock, out);
            }
            if let Some(sequence_id) = self.sync.pop_due(now) {
                self.send_sync(Destination::Group, sequence_id, out);
            }
        }
        while let Some(due) = self.grants.pop_due(now) {
            let to = Destination::To(due.client.address);
            match due.kind {
                MessageType::Announce => self.send_announce(to, due.sequence_id, clock, out),
                _ => self.send_sync(to, due.sequence_id, out),
            }
        }
    }

    fn send_announce(
        &mut self,
        to: Destination,
        sequence_id: u16,
        clock: &ClockState,
        out: &mut impl Outbox,
    ) {
        let mut header = self.header(to, sequence_id);
        header.flags = header.flags.with(Flags(clock.time_flags().into()));
        if to == Destination::Group {
            header.log_interval = self.settings.log_announce;
        }
        let announce = clock.announce(&self.clock, out.now_ptp());
        let message = Message::new(header, Body::Announce(announce));
        compose::send(out, &mut self.counts, to, &message, false);
    }

    /// Sends a Sync, which a `Follow_Up` follows if the card does not write the time into it.
    pub(super) fn send_sync(&mut self, to: Destination, sequence_id: u16, out: &mut impl Outbox) {
        let mut header = self.header(to, sequence_id);
        let two_step = !self.settings.one_step;
        if two_step {
            header.flags = header.flags.with(Flags::TWO_STEP);
        }
        if to == Destination::Group {
            header.log_interval = self.settings.log_sync;
        }
        let message = Message::new(header, Body::Sync(out.now_ptp()));
        // A card writes the time only into what asks for a timestamp as well.
        compose::send(out, &mut self.counts, to, &message, true);
    }

    /// Takes an event message of this port as it was sent, with when it left, and sends what
    /// follows it, from its bytes alone.
    pub fn sent(
        &mut self,
        message: &[u8],
        to: Destination,
        at: PtpTimestamp,
        out: &mut impl Outbox,
    ) {
        let Ok((sent, _)) = Message::parse(message) else { return };
        let mut header = sent.header;
        if header.source != self.identity || !header.flags.has(Flags::TWO_STEP) {
            return;
        }
        header.flags = Flags(header.flags.0 & !Flags::TWO_STEP.0);
        let body = match sent.body {
            Body::Sync(_) => Body::FollowUp(at),
            Body::PdelayResp { requesting, .. } => {
                // The answer carries the request's correction already; whoever asked adds both up.
                header.correction = TimeInterval::default();
                Body::PdelayRespFollowUp { origin: at, requesting }
            }
            _ => return,
        };
        let follow_up = Message::new(header, body);
        compose::send(out, &mut self.counts, to, &follow_up, false);
    }
}
