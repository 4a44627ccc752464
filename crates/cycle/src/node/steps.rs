//! Built-in load as work: supersteps of computation, communication and barrier, and a server that
//! polls for events.

use horolog_sys::clock::MonotonicClock;
use horolog_time::{Clock, Monotonic, Span, SplitMix64, Timestamp};

use super::mesh::Mesh;
use super::periods::{Period, PeriodWork, WorkOutcome};
use crate::entry::{EntryKind, PeriodEntry};
use crate::synthetic_load::{SyntheticLoad, units_of};
use crate::task::{Polling, StepMessage, Superstep};

/// Superstep whose computation is known in units.
#[derive(Clone, Copy, Debug)]
struct PreparedStep {
    units: u64,
    message: Option<StepMessage>,
    barrier: bool,
}

/// Supersteps.
pub(crate) struct Steps {
    load: SyntheticLoad,
    each: Vec<PreparedStep>,
    mesh: Option<Mesh>,
    period: Span,
}

impl Steps {
    /// Prepares the steps for a core on which a unit takes `unit_ns`.
    pub(crate) fn new(
        load: SyntheticLoad,
        steps: &[Superstep],
        unit_ns: f64,
        period_ns: u64,
    ) -> Self {
        let ready = |step: &Superstep| PreparedStep {
            units: units_of(step.compute, unit_ns),
            message: step.message,
            barrier: step.barrier,
        };
        let each = steps.iter().map(ready).collect();
        Self { load, each, mesh: None, period: Span::from_ns(period_ns as i64) }
    }

    /// Returns work without any step.
    pub(crate) fn nothing() -> Self {
        Self::new(SyntheticLoad::default(), &[], 1.0, 0)
    }

    /// Returns the units in a period.
    pub(crate) fn units(&self) -> u64 {
        self.each.iter().map(|step| step.units).sum()
    }

    /// Returns the same steps without computation and peers, as they remain when the cost of
    /// measuring is measured.
    pub(crate) fn without_work(&self) -> Self {
        let hollow = |_: &PreparedStep| PreparedStep { units: 0, message: None, barrier: false };
        let each = self.each.iter().map(hollow).collect();
        Self { load: SyntheticLoad::default(), each, mesh: None, period: self.period }
    }

    /// Attaches the mesh of the other nodes.
    pub(crate) fn join(&mut self, mesh: Mesh) {
        self.mesh = Some(mesh);
    }

    fn step(&mut self, at: usize, period: &Period, entry: &mut PeriodEntry) {
        let PreparedStep { units, message, barrier } = self.each[at];
        let begun = MonotonicClock.now();
        self.load.run(units);
        let computed = MonotonicClock.now();
        entry.compute_ns = (computed - begun).as_ns().unsigned_abs();
        let Some(mesh) = &mut self.mesh else { return };
        // A peer that is missing when the next period begins is not waited for any longer.
        let limit = period.due + self.period;
        let step_id = (period.cycle, at as u16);
        if let Some(message) = message {
            mesh.exchange(step_id, message, limit).of_messages(entry);
        }
        if barrier {
            mesh.barrier(step_id, limit).of_barrier(entry);
        }
    }
}

impl PeriodWork for Steps {
    fn run(
        &mut self,
        period: &Period,
        entry: &mut PeriodEntry,
        put: &mut dyn FnMut(&PeriodEntry),
    ) -> WorkOutcome {
        if self.each.len() == 1 {
            self.step(0, period, entry);
            return WorkOutcome::Done;
        }
        period.steps(self.each.len(), entry, put, |at, step| self.step(at, period, step));
        WorkOutcome::Done
    }
}

/// Server that serves, at each release, the events since the previous one.
pub(crate) struct PollingServer {
    load: SyntheticLoad,
    units: u64,
    budget: u32,
    arrivals: RandomArrivals,
}

impl PollingServer {
    /// Prepares a server for a core on which a unit takes `unit_ns`; events arrive from `begin` on.
    pub(crate) fn new(load: SyntheticLoad, polling: &Polling, unit_ns: f64, seed: u64) -> Self {
        Self {
            load,
            units: units_of(polling.event, unit_ns),
            budget: polling.budget,
            arrivals: RandomArrivals::new(polling.rate, seed),
        }
    }

    /// Returns the units of each event.
    pub(crate) const fn units(&self) -> u64 {
        self.units
    }
}

impl PeriodWork for PollingServer {
    fn run(
        &mut self,
        period: &Period,
        entry: &mut PeriodEntry,
        put: &mut dyn FnMut(&PeriodEntry),
    ) -> WorkOutcome {
        self.arrivals.begin(period.due);
        let mut served = 0;
        while served < self.budget {
            let begun = MonotonicClock.now();
            // Events that arrive during service wait for the next release, as those of a polling
            // server do.
            let Some(arrival) = self.arrivals.take_until(period.begun) else { break };
            self.load.run(self.units);
            let ended = MonotonicClock.now();
            let mut event = period.entry(EntryKind::Event);
            event.start_latency_ns = (begun - arrival).as_ns().max(0).unsigned_abs();
            event.execution_ns = (ended - begun).as_ns().unsigned_abs();
            event.compute_ns = event.execution_ns;
            entry.add(&event);
            put(&event);
            served += 1;
        }
        entry.backlog = self.arrivals.waiting(period.begun);
        WorkOutcome::Done
    }
}

/// Random arrivals of events, with exponentially distributed times between them.
struct RandomArrivals {
    random: SplitMix64,
    gap_ns: f64,
    next: Option<Timestamp<Monotonic>>,
}

/// Events that are counted as waiting, at most.
const WAITING_MAX: u32 = 1_000_000;

impl RandomArrivals {
    fn new(rate: f64, seed: u64) -> Self {
        Self { random: SplitMix64::new(seed), gap_ns: 1e9 / rate, next: None }
    }

    /// Sets the instant after which the first event arrives, if none has arrived yet.
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

    /// Takes the next event, if it has arrived by `now`.
    fn take_until(&mut self, now: Timestamp<Monotonic>) -> Option<Timestamp<Monotonic>> {
        let arrival = self.next.filter(|next| *next <= now)?;
        self.advance();
        Some(arrival)
    }

    /// Returns the number of events that have arrived by `now` and were not taken.
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
        let mut arrivals = RandomArrivals::new(1_000.0, 7);
        arrivals.begin(begin);
        let end = begin + Span::from_ms(100_000);
        let waiting = arrivals.waiting(end);
        let mut last = begin;
        let mut taken = 0;
        while let Some(arrival) = arrivals.take_until(end) {
            assert!(arrival >= last);
            last = arrival;
            taken += 1;
        }
        assert_eq!((taken, arrivals.waiting(end)), (waiting, 0));
        // 100,000 are expected, and the deviation of a Poisson process is 316.
        assert!((98_000..102_000).contains(&taken), "{taken}");
    }

    #[test]
    fn an_event_that_comes_later_waits_for_the_next_release() {
        let polling = Polling { rate: 1e6, event: crate::task::Compute::Units(1), budget: 3 };
        let mut server = PollingServer::new(SyntheticLoad::default(), &polling, 1.0, 1);
        let due = MonotonicClock.now();
        let mut events = Vec::new();
        let mut put = |entry: &PeriodEntry| events.push(*entry);
        let period = Period { cycle: 0, due, begun: due + Span::from_ms(1), released_ns: 9 };
        let mut entry = PeriodEntry::new(EntryKind::Period, 0);
        assert_eq!(server.run(&period, &mut entry, &mut put), WorkOutcome::Done);
        assert_eq!(events.len(), 3);
        assert!(events.iter().all(|event| event.released_ns == 9), "{events:?}");
        // About a thousand came in the millisecond.
        assert!((700..1_300).contains(&entry.backlog), "{}", entry.backlog);
    }

    #[test]
    fn each_of_several_steps_is_reported_and_together_they_are_the_period() {
        let step = |units| Superstep {
            compute: crate::task::Compute::Units(units),
            message: None,
            barrier: false,
        };
        let mut steps =
            Steps::new(SyntheticLoad::default(), &[step(100), step(300)], 1.0, 1_000_000);
        assert_eq!((steps.units(), steps.without_work().units()), (400, 0));
        let now = MonotonicClock.now();
        let mut entries = Vec::new();
        let mut entry = PeriodEntry::new(EntryKind::Period, 5);
        let period = Period { cycle: 5, due: now, begun: now, released_ns: 0 };
        let worked = steps.run(&period, &mut entry, &mut |entry| entries.push(*entry));
        assert_eq!(worked, WorkOutcome::Done);
        assert_eq!(
            entries.iter().map(|one| one.part).collect::<Vec<_>>(),
            [EntryKind::Step(0), EntryKind::Step(1)]
        );
        assert_eq!(entry.compute_ns, entries[0].compute_ns + entries[1].compute_ns);
        assert!(
            entries[1].start_latency_ns >= entries[0].start_latency_ns + entries[0].execution_ns
        );
    }
}
