//! Built-in load as the work of a task: supersteps of computation, communication and barrier, and a
//! polling server of events.

use horolog_sys::clock::ClockMonotonic;
use horolog_time::{Clock, Monotonic, Span, SplitMix64, Timestamp};

use super::mesh::Mesh;
use super::periods::{CurrentPeriod, PeriodWork, WorkOutcome};
use crate::entry::{PeriodEntry, PeriodEntryKind};
use crate::synthetic_load::{SyntheticLoad, units_of};
use crate::task::{PollingServerSpec, Superstep, SuperstepMessage};

/// Superstep with its computation in units of the load.
#[derive(Clone, Copy, Debug)]
struct PreparedSuperstep {
    units: u64,
    message: Option<SuperstepMessage>,
    barrier: bool,
}

/// Supersteps of a task as its work, with the load and the peers.
pub(crate) struct SuperstepWork {
    load: SyntheticLoad,
    steps: Vec<PreparedSuperstep>,
    mesh: Option<Mesh>,
    period: Span,
}

impl SuperstepWork {
    /// Prepares the steps for a core on which a unit takes `unit_ns`.
    pub(crate) fn new(
        load: SyntheticLoad,
        steps: &[Superstep],
        unit_ns: f64,
        period_ns: u64,
    ) -> Self {
        let prepared = |step: &Superstep| PreparedSuperstep {
            units: units_of(step.compute, unit_ns),
            message: step.message,
            barrier: step.barrier,
        };
        let prepared_steps = steps.iter().map(prepared).collect();
        Self { load, steps: prepared_steps, mesh: None, period: Span::from_ns(period_ns as i64) }
    }

    /// Returns work without supersteps.
    pub(crate) fn empty() -> Self {
        Self::new(SyntheticLoad::default(), &[], 1.0, 0)
    }

    /// Returns the units of the load in a period.
    pub(crate) fn units(&self) -> u64 {
        self.steps.iter().map(|step| step.units).sum()
    }

    /// Returns the same number of supersteps without computation, messages and barriers, to measure
    /// the measuring overhead.
    pub(crate) fn without_work(&self) -> Self {
        let empty_step =
            |_: &PreparedSuperstep| PreparedSuperstep { units: 0, message: None, barrier: false };
        let steps = self.steps.iter().map(empty_step).collect();
        Self { load: SyntheticLoad::default(), steps, mesh: None, period: self.period }
    }

    /// Sets the mesh by which the steps reach the other nodes.
    pub(crate) fn set_mesh(&mut self, mesh: Mesh) {
        self.mesh = Some(mesh);
    }

    fn run_step(&mut self, at: usize, period: &CurrentPeriod, entry: &mut PeriodEntry) {
        let PreparedSuperstep { units, message, barrier } = self.steps[at];
        let begun = ClockMonotonic.now();
        self.load.run(units);
        let computed = ClockMonotonic.now();
        entry.compute_ns = (computed - begun).as_ns().unsigned_abs();
        let Some(mesh) = &mut self.mesh else { return };
        // No wait for a peer extends beyond the next release.
        let deadline = period.released_at + self.period;
        let step_id = (period.number, at as u16);
        if let Some(message) = message {
            mesh.exchange(step_id, message, deadline).record_messages(entry);
        }
        if barrier {
            mesh.barrier(step_id, deadline).record_barrier(entry);
        }
    }
}

impl PeriodWork for SuperstepWork {
    fn run(
        &mut self,
        period: &CurrentPeriod,
        entry: &mut PeriodEntry,
        publish: &mut dyn FnMut(&PeriodEntry),
    ) -> WorkOutcome {
        if self.steps.len() == 1 {
            self.run_step(0, period, entry);
            return WorkOutcome::Done;
        }
        period.run_steps(self.steps.len(), entry, publish, |at, step| {
            self.run_step(at, period, step);
        });
        WorkOutcome::Done
    }
}

/// Polling server: serves, at each release, the events that have arrived since the previous one.
pub(crate) struct PollingServer {
    load: SyntheticLoad,
    units: u64,
    budget: u32,
    arrivals: PoissonArrivals,
}

impl PollingServer {
    /// Prepares a server for a core on which a unit takes `unit_ns`. The seed determines the
    /// arrivals of events.
    pub(crate) fn new(
        load: SyntheticLoad,
        polling: &PollingServerSpec,
        unit_ns: f64,
        seed: u64,
    ) -> Self {
        Self {
            load,
            units: units_of(polling.event, unit_ns),
            budget: polling.budget,
            arrivals: PoissonArrivals::new(polling.rate, seed),
        }
    }

    /// Returns the units of the load in each event.
    pub(crate) const fn units(&self) -> u64 {
        self.units
    }
}

impl PeriodWork for PollingServer {
    fn run(
        &mut self,
        period: &CurrentPeriod,
        entry: &mut PeriodEntry,
        publish: &mut dyn FnMut(&PeriodEntry),
    ) -> WorkOutcome {
        self.arrivals.begin(period.released_at);
        let mut served = 0;
        while served < self.budget {
            let begun = ClockMonotonic.now();
            // Events that arrive during service wait for the next release, as the definition of a
            // polling server requires.
            let Some(arrival) = self.arrivals.pop_arrived(period.started_at) else { break };
            self.load.run(self.units);
            let ended = ClockMonotonic.now();
            let mut event = period.entry(PeriodEntryKind::Event);
            event.start_latency_ns = (begun - arrival).as_ns().max(0).unsigned_abs();
            event.execution_ns = (ended - begun).as_ns().unsigned_abs();
            event.compute_ns = event.execution_ns;
            entry.add(&event);
            publish(&event);
            served += 1;
        }
        entry.backlog = self.arrivals.waiting_count(period.started_at);
        WorkOutcome::Done
    }
}

/// Arrivals of a Poisson process.
struct PoissonArrivals {
    random: SplitMix64,
    mean_gap_ns: f64,
    next: Option<Timestamp<Monotonic>>,
}

/// Largest number of waiting events that is counted.
const WAITING_MAX: u32 = 1_000_000;

impl PoissonArrivals {
    fn new(rate: f64, seed: u64) -> Self {
        Self { random: SplitMix64::new(seed), mean_gap_ns: 1e9 / rate, next: None }
    }

    /// Starts the arrivals at `begin`, on the first call only.
    fn begin(&mut self, begin: Timestamp<Monotonic>) {
        if self.next.is_none() {
            self.next = Some(begin);
            self.advance();
        }
    }

    fn advance(&mut self) {
        // 1 minus a number below 1 is above 0, so the logarithm is finite.
        let gap_ns = -(1.0 - self.random.next_f64()).ln() * self.mean_gap_ns;
        self.next = self.next.map(|next| next + Span::from_ns(gap_ns as i64));
    }

    /// Removes and returns the arrival of the next event, if it has arrived by `now`.
    fn pop_arrived(&mut self, now: Timestamp<Monotonic>) -> Option<Timestamp<Monotonic>> {
        let arrival = self.next.filter(|next| *next <= now)?;
        self.advance();
        Some(arrival)
    }

    /// Returns the number of events that have arrived by `now` and were not served, at most
    /// [`WAITING_MAX`].
    fn waiting_count(&self, now: Timestamp<Monotonic>) -> u32 {
        let mut upcoming = Self { random: self.random.clone(), ..*self };
        (0..WAITING_MAX).take_while(|_| upcoming.pop_arrived(now).is_some()).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_at_their_rate_and_are_taken_once() {
        let begin = Timestamp::from_ns(0);
        let mut arrivals = PoissonArrivals::new(1_000.0, 7);
        arrivals.begin(begin);
        let end = begin + Span::from_ms(100_000);
        let waiting = arrivals.waiting_count(end);
        let mut last = begin;
        let mut taken = 0;
        while let Some(arrival) = arrivals.pop_arrived(end) {
            assert!(arrival >= last);
            last = arrival;
            taken += 1;
        }
        assert_eq!((taken, arrivals.waiting_count(end)), (waiting, 0));
        // 100,000 are expected, and the deviation of a Poisson process is 316.
        assert!((98_000..102_000).contains(&taken), "{taken}");
    }

    #[test]
    fn an_event_that_comes_later_waits_for_the_next_release() {
        let polling =
            PollingServerSpec { rate: 1e6, event: crate::task::ComputeAmount::Units(1), budget: 3 };
        let mut server = PollingServer::new(SyntheticLoad::default(), &polling, 1.0, 1);
        let due = ClockMonotonic.now();
        let mut events = Vec::new();
        let mut put = |entry: &PeriodEntry| events.push(*entry);
        let period = CurrentPeriod {
            number: 0,
            released_at: due,
            started_at: due + Span::from_ms(1),
            released_ns: 9,
        };
        let mut entry = PeriodEntry::new(PeriodEntryKind::Period, 0);
        assert_eq!(server.run(&period, &mut entry, &mut put), WorkOutcome::Done);
        assert_eq!(events.len(), 3);
        assert!(events.iter().all(|event| event.released_ns == 9), "{events:?}");
        // About a thousand came in the millisecond.
        assert!((700..1_300).contains(&entry.backlog), "{}", entry.backlog);
    }

    #[test]
    fn each_of_several_steps_is_reported_and_together_they_are_the_period() {
        let step = |units| Superstep {
            compute: crate::task::ComputeAmount::Units(units),
            message: None,
            barrier: false,
        };
        let mut steps =
            SuperstepWork::new(SyntheticLoad::default(), &[step(100), step(300)], 1.0, 1_000_000);
        assert_eq!((steps.units(), steps.without_work().units()), (400, 0));
        let now = ClockMonotonic.now();
        let mut entries = Vec::new();
        let mut entry = PeriodEntry::new(PeriodEntryKind::Period, 5);
        let period = CurrentPeriod { number: 5, released_at: now, started_at: now, released_ns: 0 };
        let worked = steps.run(&period, &mut entry, &mut |entry| entries.push(*entry));
        assert_eq!(worked, WorkOutcome::Done);
        assert_eq!(
            entries.iter().map(|one| one.kind).collect::<Vec<_>>(),
            [PeriodEntryKind::Step(0), PeriodEntryKind::Step(1)]
        );
        assert_eq!(entry.compute_ns, entries[0].compute_ns + entries[1].compute_ns);
        assert!(
            entries[1].start_latency_ns >= entries[0].start_latency_ns + entries[0].execution_ns
        );
    }
}
