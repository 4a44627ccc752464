//! Which state a port is in, by the state of its clock and the masters that it hears (IEEE
//! 1588-2019, clauses 9.2 and 9.3).

use horolog_time::{Monotonic, Timestamp};
use horolog_wire::ptp::{Body, Flags, Message, PortIdentity};

use super::foreign::Rank;
use super::{ClockState, Foreign, Outbox, Port, PortState, Refusal};

impl Port {
    /// Takes note of whether its interface can pass messages (clause 9.2.6: `FAULT_DETECTED`,
    /// `FAULT_CLEARED`). While it cannot, nobody is heard and what was granted is lost; then it
    /// listens anew, as at the start.
    pub fn link(&mut self, is_up: bool, now: Timestamp<Monotonic>) {
        match (is_up, self.state) {
            (false, PortState::Faulty) => {}
            (false, _) => {
                // Nobody can be told that grants are taken back.
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

    /// Takes the Announce of another clock into account.
    pub(super) fn hear(
        &mut self,
        message: &Message<'_>,
        group: bool,
        clock: &ClockState,
        now: Timestamp<Monotonic>,
        out: &mut impl Outbox,
    ) -> Result<(), Refusal> {
        let Body::Announce(announce) = &message.body else { return Err(Refusal::Unwanted) };
        if !self.settings.multicast || !group {
            return Err(Refusal::Group);
        }
        if message.header.flags.has(Flags::ALTERNATE_MASTER) {
            return Err(Refusal::Unqualified);
        }
        self.foreign.hear(&message.header, announce, now)?;
        self.decide_state(clock, now, out);
        Ok(())
    }

    /// The better master, if one is heard.
    pub(super) fn better(&self, clock: &ClockState) -> Option<&Foreign> {
        let own = Rank {
            grandmaster: clock.grandmaster(&self.clock),
            steps_removed: 0,
            sender: PortIdentity { clock: self.clock.identity, port: 0 },
        };
        self.foreign.best().filter(|foreign| foreign.rank < own)
    }

    /// The state decision (figure 33), for a clock that is never a slave: whatever is better than
    /// it makes the port passive.
    pub(super) fn decide_state(
        &mut self,
        clock: &ClockState,
        now: Timestamp<Monotonic>,
        out: &mut impl Outbox,
    ) {
        self.foreign.expire(now);
        if self.state == PortState::Faulty {
            return;
        }
        if self.scale_has_changed(clock) {
            // Whoever follows has to forget the old scale before it hears of the new one.
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

    /// Goes on to a state; a master takes back what it granted.
    fn leave(&mut self, state: PortState, out: &mut impl Outbox) {
        if self.state == PortState::Master {
            self.cancel_grants(out);
        }
        self.state = state;
    }

    /// Whether the time has jumped, because another scale is served, or because the offset to UTC
    /// was found to be another one: TAI itself does not step at a leap second, which is announced.
    fn scale_has_changed(&mut self, clock: &ClockState) -> bool {
        if !clock.usable {
            return false;
        }
        let before = self.scale.replace(*clock);
        before.is_some_and(|before| {
            let is_leaping = before.flags.0 & (Flags::LEAP_61.0 | Flags::LEAP_59.0) != 0;
            before.flags.has(Flags::PTP_TIMESCALE) != clock.flags.has(Flags::PTP_TIMESCALE)
                || (before.utc_offset != clock.utc_offset && !is_leaping)
        })
    }
}
