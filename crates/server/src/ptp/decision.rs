//! State decision of a port, from the state of its clock and the masters that it receives messages
//! from (IEEE 1588-2019, clauses 9.2 and 9.3).

use horolog_time::{Monotonic, Timestamp};
use horolog_wire::ptp::{Message, PortIdentity, PtpFlags, PtpMessageBody};

use super::foreign::Rank;
use super::{ClockPort, ForeignMasterRecord, Outbox, PortState, PtpClockState, PtpRefusal};

impl ClockPort {
    /// Records whether its interface can pass messages (clause 9.2.6: `FAULT_DETECTED`,
    /// `FAULT_CLEARED`). While it cannot, nothing is received and grants are lost; afterwards the
    /// port listens anew, as at the start.
    pub fn link(&mut self, is_up: bool, now: Timestamp<Monotonic>) {
        match (is_up, self.state) {
            (false, PortState::Faulty) => {}
            (false, _) => {
                // Clients cannot be notified that grants are withdrawn.
                self.grants.take_all().for_each(drop);
                self.foreign.forget();
                self.state = PortState::Faulty;
            }
            (true, PortState::Faulty) => {
                self.listening_until = Some(now + self.listening);
                self.state = PortState::Listening;
            }
            (true, _) => {}
        }
    }

    /// Processes the Announce of another clock.
    pub(super) fn process_announce(
        &mut self,
        message: &Message<'_>,
        group: bool,
        clock: &PtpClockState,
        now: Timestamp<Monotonic>,
        out: &mut impl Outbox,
    ) -> Result<(), PtpRefusal> {
        let PtpMessageBody::Announce(announce) = &message.body else {
            return Err(PtpRefusal::Unwanted);
        };
        if !self.settings.multicast || !group {
            return Err(PtpRefusal::Group);
        }
        if message.header.flags.has(PtpFlags::ALTERNATE_MASTER) {
            return Err(PtpRefusal::Unqualified);
        }
        self.foreign.process_announce(&message.header, announce, now)?;
        self.decide_state(clock, now, out);
        Ok(())
    }

    /// Returns the better master, if there is one.
    pub(super) fn better(&self, clock: &PtpClockState) -> Option<&ForeignMasterRecord> {
        let own = Rank {
            grandmaster: clock.grandmaster(&self.clock),
            steps_removed: 0,
            sender: PortIdentity { clock: self.clock.identity, port: 0 },
        };
        self.foreign.best().filter(|foreign| foreign.rank < own)
    }

    /// Makes the state decision (figure 33) for a clock that is never a slave: any better clock
    /// makes the port passive.
    pub(super) fn decide_state(
        &mut self,
        clock: &PtpClockState,
        now: Timestamp<Monotonic>,
        out: &mut impl Outbox,
    ) {
        self.foreign.expire(now);
        if self.state == PortState::Faulty {
            return;
        }
        if self.scale_has_changed(clock) {
            // Followers must discard the old scale before they receive the new one.
            self.listening_until = Some(now + self.listening);
            self.leave(PortState::Listening, out);
        }
        self.listening_until = self.listening_until.filter(|&until| now < until);
        let has_listened = self.listening_until.is_none() || self.foreign.best().is_some();
        let state = if !clock.usable {
            PortState::Listening
        } else if self.better(clock).is_some() {
            PortState::Passive
        } else if has_listened || self.state == PortState::Passive {
            PortState::Master
        } else {
            self.state
        };
        if state == self.state {
            return;
        }
        if state == PortState::Master {
            (self.announce.next, self.sync.next) = (now, now);
        }
        self.leave(state, out);
    }

    /// Changes to a state; a master withdraws its grants.
    fn leave(&mut self, state: PortState, out: &mut impl Outbox) {
        if self.state == PortState::Master {
            self.cancel_grants(out);
        }
        self.state = state;
    }

    /// Returns true if the time has jumped, because another scale is served, or because the offset
    /// to UTC has changed: TAI itself does not step at a leap second, which is announced.
    fn scale_has_changed(&mut self, clock: &PtpClockState) -> bool {
        if !clock.usable {
            return false;
        }
        let before = self.scale.replace(*clock);
        before.is_some_and(|before| {
            let is_leaping = before.flags.0 & (PtpFlags::LEAP_61.0 | PtpFlags::LEAP_59.0) != 0;
            before.flags.has(PtpFlags::PTP_TIMESCALE) != clock.flags.has(PtpFlags::PTP_TIMESCALE)
                || (before.utc_offset != clock.utc_offset && !is_leaping)
        })
    }
}
