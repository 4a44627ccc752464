//! Scheduled messages of a port: Announce and Sync messages to the group and to clients with
//! grants, and the follow-ups of sent messages (IEEE 1588-2019, clauses 9.5.8 to 9.5.10).

use horolog_time::{Monotonic, Span, Timestamp};
use horolog_wire::ptp::{
    Message, MessageType, PtpFlags, PtpMessageBody, PtpTimestamp, TimeInterval,
};

use crate::address::PtpDestination;
use crate::clock_state::{PortState, PtpClockProperties};
use crate::compose::{self, interval_from_log};
use crate::port::{ClockPort, Outbox};

/// Schedule of periodic messages to the group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PtpMessageSchedule {
    pub(crate) next_due: Timestamp<Monotonic>,
    interval: Span,
    sequence_id: u16,
}

impl PtpMessageSchedule {
    /// Creates a schedule with this interval in log2 seconds, whose first message is due at `next`.
    pub(crate) const fn new(log_interval: i8, next: Timestamp<Monotonic>) -> Self {
        Self { next_due: next, interval: interval_from_log(log_interval), sequence_id: 0 }
    }

    /// Returns the sequence number of the message that is due at `now`, and schedules the next;
    /// `None` if none is due.
    pub(crate) fn pop_due(&mut self, now: Timestamp<Monotonic>) -> Option<u16> {
        if now < self.next_due {
            return None;
        }
        let on_time = self.next_due + self.interval;
        self.next_due = if on_time > now { on_time } else { now + self.interval };
        let sequence_id = self.sequence_id;
        self.sequence_id = sequence_id.wrapping_add(1);
        Some(sequence_id)
    }
}

impl ClockPort {
    /// Makes the state decision and, if the port is a master, sends the messages that are due at
    /// `now`.
    pub fn process_due(
        &mut self,
        clock: &PtpClockProperties,
        now: Timestamp<Monotonic>,
        out: &mut impl Outbox,
    ) {
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
        clock: &PtpClockProperties,
        out: &mut impl Outbox,
    ) {
        let mut header = self.header(to, sequence_id);
        header.flags = header.flags.union(PtpFlags(clock.time_flags().into()));
        if to == PtpDestination::Group {
            header.log_interval = self.settings.log_announce;
        }
        let announce = clock.announce(&self.clock, out.now_ptp());
        let message = Message::new(header, PtpMessageBody::Announce(announce));
        compose::send_message(out, &mut self.counts, to, &message, false);
    }

    /// Sends a Sync message. Unless the NIC writes the time into it, a `Follow_Up` is sent once the
    /// transmit time is known.
    pub(crate) fn send_sync(
        &mut self,
        to: PtpDestination,
        sequence_id: u16,
        out: &mut impl Outbox,
    ) {
        let mut header = self.header(to, sequence_id);
        let two_step = !self.settings.one_step;
        if two_step {
            header.flags = header.flags.union(PtpFlags::TWO_STEP);
        }
        if to == PtpDestination::Group {
            header.log_interval = self.settings.log_sync;
        }
        let message = Message::new(header, PtpMessageBody::Sync(out.now_ptp()));
        // A NIC writes the time only into messages for which a timestamp was requested.
        compose::send_message(out, &mut self.counts, to, &message, true);
    }

    /// Sends the follow-up of a two-step Sync or `Pdelay_Resp` of this port, of which the bytes,
    /// the destination and the transmit time `at` are passed. Other messages have none.
    pub fn process_transmitted(
        &mut self,
        message: &[u8],
        to: PtpDestination,
        at: PtpTimestamp,
        out: &mut impl Outbox,
    ) {
        let Ok((sent, _)) = Message::parse(message) else { return };
        let mut header = sent.header;
        if header.source != self.identity || !header.flags.contains(PtpFlags::TWO_STEP) {
            return;
        }
        header.flags = PtpFlags(header.flags.0 & !PtpFlags::TWO_STEP.0);
        let body = match sent.body {
            PtpMessageBody::Sync(_) => PtpMessageBody::FollowUp(at),
            PtpMessageBody::PdelayResp { requesting, .. } => {
                // The `Pdelay_Resp` carries the correction of the request; the requester adds both.
                header.correction = TimeInterval::default();
                PtpMessageBody::PdelayRespFollowUp { origin: at, requesting }
            }
            _ => return,
        };
        let follow_up = Message::new(header, body);
        compose::send_message(out, &mut self.counts, to, &follow_up, false);
    }
}
