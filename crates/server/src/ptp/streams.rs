//! Scheduled messages of a port: Announce and Sync, to the group and to clients with grants, and
//! the messages that follow a sent one (IEEE 1588-2019, clauses 9.5.8 to 9.5.10).

use horolog_time::{Monotonic, Span, Timestamp};
use horolog_wire::ptp::{
    Message, MessageType, PtpFlags, PtpMessageBody, PtpTimestamp, TimeInterval,
};

use super::compose::interval;
use super::{ClockPort, Outbox, PortState, PtpClockState, PtpDestination, compose};

/// Messages to the group at regular intervals.
#[derive(Clone, Copy, Debug)]
pub(super) struct PtpMessageStream {
    pub(super) next: Timestamp<Monotonic>,
    interval: Span,
    sequence_id: u16,
}

impl PtpMessageStream {
    /// Creates a stream whose first message is due at `next`.
    pub(super) const fn new(log_interval: i8, next: Timestamp<Monotonic>) -> Self {
        Self { next, interval: interval(log_interval), sequence_id: 0 }
    }

    /// Returns the sequence number of the due message, if any.
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

impl ClockPort {
    /// Performs the actions due at `now`.
    pub fn due(&mut self, clock: &PtpClockState, now: Timestamp<Monotonic>, out: &mut impl Outbox) {
        self.decide_state(clock, now, out);
        if self.state != PortState::Master {
            return;
        }
        if self.settings.multicast {
            if let Some(sequence_id) = self.announce.pop_due(now) {
                self.send_announce(PtpDestination::Group, sequence_id, clock, out);
            }
            if let Some(sequence_id) = self.sync.pop_due(now) {
                self.send_sync(PtpDestination::Group, sequence_id, out);
            }
        }
        while let Some(due) = self.grants.pop_due(now) {
            let to = PtpDestination::To(due.client.address);
            match due.kind {
                MessageType::Announce => self.send_announce(to, due.sequence_id, clock, out),
                _ => self.send_sync(to, due.sequence_id, out),
            }
        }
    }

    fn send_announce(
        &mut self,
        to: PtpDestination,
        sequence_id: u16,
        clock: &PtpClockState,
        out: &mut impl Outbox,
    ) {
        let mut header = self.header(to, sequence_id);
        header.flags = header.flags.with(PtpFlags(clock.time_flags().into()));
        if to == PtpDestination::Group {
            header.log_interval = self.settings.log_announce;
        }
        let announce = clock.announce(&self.clock, out.now_ptp());
        let message = Message::new(header, PtpMessageBody::Announce(announce));
        compose::send(out, &mut self.counts, to, &message, false);
    }

    /// Sends a Sync, with a `Follow_Up` if the NIC does not write the time into it.
    pub(super) fn send_sync(
        &mut self,
        to: PtpDestination,
        sequence_id: u16,
        out: &mut impl Outbox,
    ) {
        let mut header = self.header(to, sequence_id);
        let two_step = !self.settings.one_step;
        if two_step {
            header.flags = header.flags.with(PtpFlags::TWO_STEP);
        }
        if to == PtpDestination::Group {
            header.log_interval = self.settings.log_sync;
        }
        let message = Message::new(header, PtpMessageBody::Sync(out.now_ptp()));
        // A NIC writes the time only into messages that also request a timestamp.
        compose::send(out, &mut self.counts, to, &message, true);
    }

    /// Processes a sent event message of this port with its transmit time, and sends the follow-up,
    /// from its bytes alone.
    pub fn sent(
        &mut self,
        message: &[u8],
        to: PtpDestination,
        at: PtpTimestamp,
        out: &mut impl Outbox,
    ) {
        let Ok((sent, _)) = Message::parse(message) else { return };
        let mut header = sent.header;
        if header.source != self.identity || !header.flags.has(PtpFlags::TWO_STEP) {
            return;
        }
        header.flags = PtpFlags(header.flags.0 & !PtpFlags::TWO_STEP.0);
        let body = match sent.body {
            PtpMessageBody::Sync(_) => PtpMessageBody::FollowUp(at),
            PtpMessageBody::PdelayResp { requesting, .. } => {
                // The response carries the request's correction already; the requester adds up
                // both.
                header.correction = TimeInterval::default();
                PtpMessageBody::PdelayRespFollowUp { origin: at, requesting }
            }
            _ => return,
        };
        let follow_up = Message::new(header, body);
        compose::send(out, &mut self.counts, to, &follow_up, false);
    }
}
