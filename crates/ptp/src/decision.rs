//! State decision of a port, by the state of its clock and the Announce messages of other masters
//! (IEEE 1588-2019, clauses 9.2 and 9.3).

use horolog_time::{Monotonic, Timestamp};
use horolog_wire::ptp::{Message, PortIdentity, PtpFlags, PtpMessageBody};

use crate::clock_state::{PortState, PtpClockProperties};
use crate::foreign::{ForeignMasterRecord, MasterRank};
use crate::port::{ClockPort, Outbox};
use crate::refusal::PtpRefusal;

impl ClockPort {
    /// Records whether the interface is up (clause 9.2.6: `FAULT_DETECTED`, `FAULT_CLEARED`). While
    /// it is down, the port is faulty and its grants are cancelled; afterwards it listens as at the
    /// start.
    pub fn set_link_state(&mut self, is_up: bool, now: Timestamp<Monotonic>) {
        match (is_up, self.state) {
            (false, PortState::Faulty) => {}
            (false, _) => {
                // Clients cannot be notified of that.
                self.grants.take_all().for_each(drop);
                self.foreign.clear();
                self.state = PortState::Faulty;
            }
            (true, PortState::Faulty) => {
                self.listening_until = Some(now + self.listening_period);
                self.state = PortState::Listening;
            }
            (true, _) => {}
        }
    }

    /// Processes an Announce message of another clock.
    pub(crate) fn process_announce(
        &mut self,
        message: &Message<'_>,
        group: bool,
        clock: &PtpClockProperties,
        now: Timestamp<Monotonic>,
        out: &mut impl Outbox,
    ) -> Result<(), PtpRefusal> {
        let PtpMessageBody::Announce(announce) = &message.body else {
            return Err(PtpRefusal::Unwanted);
        };
        if !self.settings.multicast || !group {
            return Err(PtpRefusal::Group);
        }
        if message.header.flags.contains(PtpFlags::ALTERNATE_MASTER) {
            return Err(PtpRefusal::Unqualified);
        }
        self.foreign.process_announce(&message.header, announce, now)?;
        self.decide_state(clock, now, out);
        Ok(())
    }

    /// Returns the best master if it is better than this clock.
    pub(crate) fn better_master(&self, clock: &PtpClockProperties) -> Option<&ForeignMasterRecord> {
        let own = MasterRank {
            grandmaster: clock.grandmaster(&self.clock),
            steps_removed: 0,
            sender: PortIdentity { clock: self.clock.identity, port: 0 },
        };
        self.foreign.best().filter(|foreign| foreign.rank < own)
    }

    /// Makes the state decision (figure 33) for a clock that is never a slave: a better master
    /// makes the port passive.
    pub(crate) fn decide_state(
        &mut self,
        clock: &PtpClockProperties,
        now: Timestamp<Monotonic>,
        out: &mut impl Outbox,
    ) {
        self.foreign.expire(now);
        if self.state == PortState::Faulty {
            return;
        }
        if self.has_timescale_changed(clock) {
            // Clients must discard the old timescale before they receive the new one.
            self.listening_until = Some(now + self.listening_period);
            self.change_state(PortState::Listening, out);
        }
        self.listening_until = self.listening_until.filter(|&until| now < until);
        let has_listened = self.listening_until.is_none() || self.foreign.best().is_some();
        let state = if !clock.usable {
            PortState::Listening
        } else if self.better_master(clock).is_some() {
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
            (self.announce.next_due, self.sync.next_due) = (now, now);
        }
        self.change_state(state, out);
    }

    /// Changes the state; a port that stops being a master cancels its grants.
    fn change_state(&mut self, state: PortState, out: &mut impl Outbox) {
        if self.state == PortState::Master {
            self.cancel_grants(out);
        }
        self.state = state;
    }

    /// Returns true if the served time has jumped, because the timescale has changed, or the offset
    /// to UTC other than by a leap second that was announced (TAI does not step at one).
    fn has_timescale_changed(&mut self, clock: &PtpClockProperties) -> bool {
        if !clock.usable {
            return false;
        }
        let before = self.last_usable_state.replace(*clock);
        before.is_some_and(|before| {
            let is_leaping = before.flags.0 & (PtpFlags::LEAP_61.0 | PtpFlags::LEAP_59.0) != 0;
            before.flags.contains(PtpFlags::PTP_TIMESCALE)
                != clock.flags.contains(PtpFlags::PTP_TIMESCALE)
                || (before.utc_offset != clock.utc_offset && !is_leaping)
        })
    }
}
