//! The built-in load as work: supersteps of computation, communication and barrier, and a server
//! that polls for events.

use horolog_sys::clock::MonotonicClock;
use horolog_time::{Clock, Monotonic, Span, SplitMix64, Timestamp};

use super::mesh::Mesh;
use super::periods::{Period, Work, Worked};
use crate::entry::{Entry, Part};
use crate::load::{Load, units_of};
use crate::task::{Message, Polling, Step};

/// A superstep whose computation is known in units.
#[derive(Clone, Copy, Debug)]
struct Ready {
    units: u64,
    message: Option<Message>,
    barrier: bool,
}

/// Supersteps.
pub(crate) struct Steps {
    load: Load,
    each: Vec<Ready>,
    mesh: Option<Mesh>,
    period: Span,
}

impl Steps {
    /// On a core on which a unit takes so long.
    pub(crate) fn new(load: Load, steps: &[Step], unit_ns: f64, period_ns: u64) -> Self {
        let ready = |step: &Step| Ready {
            units: units_of(step.compute, unit_ns),
            message: step.message,
            barrier: step.barrier,
        };
        let each = steps.iter().map(ready).collect();
        Self { load, each, mesh: None, period: Span::from_ns(period_ns as i64) }
    }

    /// No step at all.
    pub(crate) fn nothing() -> Self {
        Self::new(Load::default(), &[], 1.0, 0)
    }

    /// Units in a period.
    pub(crate) fn units(&self) -> u64 {
        self.each.iter().map(|step| step.units).sum()
    }

    /// The same steps with nothing to compute and nobody to wait for, which are what is left of
    /// them when the measuring's cost is measured.
    pub(crate) fn hollow(&self) -> Self {
        let hollow = |_: &Ready| Ready { units: 0, message: None, barrier: false };
        let each = self.each.iter().map(hollow).collect();
        Self { load: Load::default(), each, mesh: None, period: self.period }
    }

    /// Gives it the other nodes.
    pub(crate) fn join(&mut self, mesh: Mesh) {
        self.mesh = Some(mesh);
    }

    fn step(&mut self, at: usize, period: &Period, entry: &mut Entry) {
        let Ready { units, message, barrier } = self.each[at];
        let begun = MonotonicClock.now();
        self.load.run(units);
        let computed = MonotonicClock.now();
        entry.compute_ns = (computed - begun).as_ns().unsigned_abs();
        let Some(mesh) = &mut self.mesh else { return };
        // Whoever has not come when the next period is to begin is not waited for any longer.
        let limit = period.due + self.period;
        let place = (period.cycle, at as u16);
        if let Some(message) = message {
            mesh.exchange(place, message, limit).of_messages(entry);
        }
        if barrier {
            mesh.meet(place, limit).of_barrier(entry);
        }
    }
}

impl Work for Steps {
    fn run(&mut self, period: &Period, entry: &mut Entry, put: &mut dyn FnMut(&Entry)) -> Worked {
        if self.each.len() == 1 {
            self.step(0, period, entry);
            return Worked::Done;
        }
        period.steps(self.each.len(), entry, put, |at, step| self.step(at, period, step));
        Worked::Done
    }
}

/// A server that serves at each release what has come since.
pub(crate) struct Server {
    load: Load,
    units: u64,
    budget: u32,
    arrivals: Arrivals,
}

impl Server {
    /// On a core on which a unit takes so long; events come from `begin` on.
    pub(crate) fn new(load: Load, polling: &Polling, unit_ns: f64, seed: u64) -> Self {
        Self {
            load,
            units: units_of(polling.event, unit_ns),
            budget: polling.budget,
            arrivals: Arrivals::new(polling.rate, seed),
        }
    }

    /// Units of each event.
    pub(crate) const fn units(&self) -> u64 {
        self.units
    }
}

impl Work for Server {
    fn run(&mut self, period: &Period, entry: &mut Entry, put: &mut dyn FnMut(&Entry)) -> Worked {
        self.arrivals.begin(period.due);
        let mut served = 0;
        while served < self.budget {
            let begun = MonotonicClock.now();
            // Those that come while it serves wait for the next release, as a polling server's do.
            let Some(came) = self.arrivals.take_until(period.begun) else { break };
            self.load.run(self.units);
            let ended = MonotonicClock.now();
            let mut event = period.entry(Part::Event);
            event.late_ns = (begun - came).as_ns().max(0).unsigned_abs();
            event.spent_ns = (ended - begun).as_ns().unsigned_abs();
            event.compute_ns = event.spent_ns;
            entry.add(&event);
            put(&event);
            served += 1;
        }
        entry.left = self.arrivals.waiting(period.begun);
        Worked::Done
    }
}

/// Events that come at random, one after the other: from one to the next it is an exponentially
/// distributed time.
struct Arrivals {
    random: SplitMix64,
    gap_ns: f64,
    next: Option<Timestamp<Monotonic>>,
}

/// Events that are counted as waiting, at most.
const WAITING_MAX: u32 = 1_000_000;

impl Arrivals {
    fn new(rate: f64, seed: u64) -> Self {
        Self { random: SplitMix64::new(seed), gap_ns: 1e9 / rate, next: None }
    }

    /// The first event comes after this instant, if none has come yet.
    fn begin(&mut self, begin: Timestamp<Monotonic>) {
        if self.next.is_none() {
            self.next = Some(begin);
            self.advance();
        }
    }

    fn advance(&mut self) {
        // 1 minus a number below 1 is above 0, so the logarithm is finite.
        let gap_ns = -(1.0 - self.random.unit()).ln() * self.gap_ns;
        self.next = self.next.map(|next| next + Span::from_ns(gap_ns as i64));
    }

    /// The next event, if it has come by `now`.
    fn take_until(&mut self, now: Timestamp<Monotonic>) -> Option<Timestamp<Monotonic>> {
        let came = self.next.filter(|next| *next <= now)?;
        self.advance();
        Some(came)
    }

    /// How many have come by `now` and were not taken.
    fn waiting(&self, now: Timestamp<Monotonic>) -> u32 {
        let mut ahead = Self { random: self.random.clone(), ..*self };
        (0..WAITING_MAX).take_while(|_| ahead.take_until(now).is_some()).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_at_their_rate_and_are_taken_once() {
        let begin = Timestamp::from_ns(0);
        let mut arrivals = Arrivals::new(1_000.0, 7);
        arrivals.begin(begin);
        let end = begin + Span::from_ms(100_000);
        let waiting = arrivals.waiting(end);
        let mut last = begin;
        let mut taken = 0;
        while let Some(came) = arrivals.take_until(end) {
            assert!(came >= last);
            last = came;
            taken += 1;
        }
        assert_eq!((taken, arrivals.waiting(end)), (waiting, 0));
        // 100,000 are expected, and the deviation of a Poisson process is 316.
        assert!((98_000..102_000).contains(&taken), "{taken}");
    }

    #[test]
    fn an_event_that_comes_later_waits_for_the_next_release() {
        let polling = Polling { rate: 1e6, event: crate::task::Compute::Units(1), budget: 3 };
        let mut server = Server::new(Load::default(), &polling, 1.0, 1);
        let due = MonotonicClock.now();
        let mut events = Vec::new();
        let mut put = |entry: &Entry| events.push(*entry);
        let period = Period { cycle: 0, due, begun: due + Span::from_ms(1), released_ns: 9 };
        let mut entry = Entry::new(Part::Period, 0);
        assert_eq!(server.run(&period, &mut entry, &mut put), Worked::Done);
        assert_eq!(events.len(), 3);
        assert!(events.iter().all(|event| event.released_ns == 9), "{events:?}");
        // About a thousand came in the millisecond.
        assert!((700..1_300).contains(&entry.left), "{}", entry.left);
    }

    #[test]
    fn each_of_several_steps_is_told_and_all_of_them_make_the_period() {
        let step = |units| Step {
            compute: crate::task::Compute::Units(units),
            message: None,
            barrier: false,
        };
        let mut steps = Steps::new(Load::default(), &[step(100), step(300)], 1.0, 1_000_000);
        assert_eq!((steps.units(), steps.hollow().units()), (400, 0));
        let now = MonotonicClock.now();
        let mut told = Vec::new();
        let mut entry = Entry::new(Part::Period, 5);
        let period = Period { cycle: 5, due: now, begun: now, released_ns: 0 };
        let worked = steps.run(&period, &mut entry, &mut |entry| told.push(*entry));
        assert_eq!(worked, Worked::Done);
        assert_eq!(
            told.iter().map(|one| one.part).collect::<Vec<_>>(),
            [Part::Step(0), Part::Step(1)]
        );
        assert_eq!(entry.compute_ns, told[0].compute_ns + told[1].compute_ns);
        assert!(told[1].late_ns >= told[0].late_ns + told[0].spent_ns);
    }
}
