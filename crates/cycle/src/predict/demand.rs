//! Demand of a task in one period by equation (2) of the paper (see [`super`]): computation,
//! communication and barrier of each superstep. An unknown value is reported and never estimated.

use super::cost::{HostCosts, SafeAndPublishedLatency};
use super::{PredictError, SafeAndPublishedValue};
use crate::task::{ComputeAmount, MessageDestination, Superstep, SuperstepMessage, Task, TaskWork};

/// Demand of a task in one period.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct PeriodDemand {
    /// Segments from one wait for other nodes to the next.
    pub(super) segments: Vec<DemandSegment>,
    /// Description of the value that is unknown; `None` if all are known.
    pub(super) unknown: Option<String>,
}

/// Computation, followed by a wait for other nodes. Times are in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct DemandSegment {
    pub(super) computation_ns: u64,
    pub(super) communication: SafeAndPublishedValue,
    pub(super) barrier: SafeAndPublishedValue,
    /// Least number of dispatches: one at the start and one after each wait.
    pub(super) dispatches: u64,
}

impl DemandSegment {
    /// Returns the longest duration, including the wait, in ns.
    pub(super) fn safe_ns(&self) -> u64 {
        let wait_ns = self.communication.safe_ns.saturating_add(self.barrier.safe_ns);
        self.computation_ns.saturating_add(wait_ns)
    }
}

impl PeriodDemand {
    /// Returns the sum of a value over all segments.
    pub(super) fn sum(&self, of: impl Fn(&DemandSegment) -> u64) -> u64 {
        self.segments.iter().map(of).fold(0, u64::saturating_add)
    }

    /// Returns C, the execution time by equation (2) as published, in ns.
    pub(super) fn published_ns(&self) -> u64 {
        self.sum(|one| {
            let wait_ns = one.communication.published_ns.saturating_add(one.barrier.published_ns);
            one.computation_ns.saturating_add(wait_ns)
        })
    }

    /// Returns the demand of a task that runs on each of `nodes` nodes; fails if its execution time
    /// is unknown.
    pub(super) fn from_task(
        task: &Task,
        costs: &HostCosts,
        nodes: u32,
    ) -> Result<Self, PredictError> {
        let reader =
            PeriodDemandCalculator { costs, other_nodes: u64::from(nodes.saturating_sub(1)) };
        if let Some(ns) = task.worst_ns {
            return Ok(reader.with_execution_time(ns, &task.work));
        }
        let error = |what: &str| PredictError::for_task(&task.name, what);
        match &task.work {
            TaskWork::Steps(steps) => reader.demand_of_steps(steps).map_err(|what| error(&what)),
            TaskWork::Polling(polling) => {
                let event_ns = duration_ns(polling.event).map_err(|what| error(&what))?;
                let ns = event_ns.saturating_mul(u64::from(polling.budget));
                Ok(reader.with_execution_time(ns, &task.work))
            }
            TaskWork::Command(_) | TaskWork::Program(_) => {
                Err(error("the execution time of its program is unknown; add worst = \"TIME\""))
            }
        }
    }
}

/// Returns the duration of a computation, in ns; for units of the load it is known only from a run.
fn duration_ns(compute: ComputeAmount) -> Result<u64, String> {
    match compute {
        ComputeAmount::Ns(ns) => Ok(ns),
        ComputeAmount::Units(0) => Ok(0),
        ComputeAmount::Units(_) => {
            Err("the execution time of its units is unknown; add worst = \"TIME\", or use compute \
                 instead of units"
                .to_owned())
        }
    }
}

struct PeriodDemandCalculator<'a> {
    costs: &'a HostCosts,
    /// Number of other nodes.
    other_nodes: u64,
}

impl PeriodDemandCalculator<'_> {
    /// Returns a demand of one segment, the execution time of which includes all waits.
    fn with_execution_time(&self, computation_ns: u64, work: &TaskWork) -> PeriodDemand {
        let waits = match work {
            TaskWork::Steps(steps) => steps.iter().map(|step| self.wait_count(step)).sum(),
            TaskWork::Command(_) | TaskWork::Program(_) | TaskWork::Polling(_) => 0,
        };
        let segment =
            DemandSegment { computation_ns, dispatches: 1 + waits, ..DemandSegment::default() };
        PeriodDemand { segments: vec![segment], unknown: None }
    }

    /// Returns the number of waits of a superstep for other nodes.
    fn wait_count(&self, step: &Superstep) -> u64 {
        if self.other_nodes == 0 {
            0
        } else {
            u64::from(step.message.is_some()) + u64::from(step.barrier)
        }
    }

    fn demand_of_steps(&self, steps: &[Superstep]) -> Result<PeriodDemand, String> {
        let mut demand = PeriodDemand::default();
        let mut segment = DemandSegment { dispatches: 1, ..DemandSegment::default() };
        for step in steps {
            let ns = duration_ns(step.compute)?;
            segment.computation_ns = segment.computation_ns.saturating_add(ns);
            let waits = self.wait_count(step);
            if waits == 0 {
                continue;
            }
            let message = step.message.map(|message| self.message_latency(message)).transpose();
            let barrier = if step.barrier { self.barrier_latency().map(Some) } else { Ok(None) };
            demand.unknown = demand.unknown.or(message.as_ref().err().cloned());
            demand.unknown = demand.unknown.or(barrier.as_ref().err().cloned());
            segment.communication = message.ok().flatten().unwrap_or_default();
            segment.barrier = barrier.ok().flatten().unwrap_or_default();
            segment.dispatches += waits;
            demand.segments.push(segment);
            segment = DemandSegment { dispatches: 1, ..DemandSegment::default() };
        }
        if segment.computation_ns > 0 || demand.segments.is_empty() {
            demand.segments.push(segment);
        }
        Ok(demand)
    }

    /// Returns the latency of messages that all nodes send at once. The safe value lets those for
    /// one node arrive one after the other; the published one, a maximum over nodes, counts a
    /// single message.
    fn message_latency(&self, message: SuperstepMessage) -> Result<SafeAndPublishedValue, String> {
        let SuperstepMessage { bytes, to } = message;
        let SafeAndPublishedLatency { safe_ns, half_ns } = self
            .costs
            .message_latency(bytes)
            .ok_or_else(|| format!("the duration of a message of {bytes} bytes is unknown"))?;
        let count = match to {
            MessageDestination::All => self.other_nodes,
            MessageDestination::Next => 1,
        };
        Ok(SafeAndPublishedValue { safe_ns: safe_ns.saturating_mul(count), published_ns: half_ns })
    }

    /// Returns the latency of a barrier: a short message from every other node to one, and one back
    /// to each.
    fn barrier_latency(&self) -> Result<SafeAndPublishedValue, String> {
        let SafeAndPublishedLatency { safe_ns, half_ns } = self
            .costs
            .message_latency(1)
            .ok_or_else(|| "the duration of a barrier is unknown without messages".to_owned())?;
        Ok(SafeAndPublishedValue {
            safe_ns: safe_ns.saturating_mul(2).saturating_mul(self.other_nodes),
            published_ns: half_ns.saturating_mul(2),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::cost::tests::message;
    use super::*;
    use crate::task::TaskSet;

    fn demand(lines: &str, costs: &HostCosts, nodes: u32) -> Result<PeriodDemand, String> {
        let text = format!("[[task]]\nname = \"a\"\nperiod = \"10ms\"\n{lines}");
        let set = TaskSet::parse(&text).unwrap();
        PeriodDemand::from_task(&set.tasks()[0], costs, nodes).map_err(|error| error.to_string())
    }

    fn both(safe_ns: u64, printed_ns: u64) -> SafeAndPublishedValue {
        SafeAndPublishedValue { safe_ns, published_ns: printed_ns }
    }

    #[test]
    fn supersteps_end_where_they_wait() {
        let costs =
            HostCosts::new(vec![message(100, 40_000, 20_000), message(1_000, 60_000, 30_000)]);
        let steps = "[[task.step]]\ncompute = \"1ms\"\n[[task.step]]\ncompute = \"2ms\"\n\
                     message = 500\n[[task.step]]\ncompute = \"3ms\"\nbarrier = true\n\
                     [[task.step]]\ncompute = \"4ms\"";
        let of_three = demand(steps, &costs, 3).unwrap();
        let [first, second, last] = &of_three.segments[..] else { panic!("{of_three:?}") };
        assert_eq!((first.computation_ns, first.dispatches), (3_000_000, 2));
        assert_eq!(first.communication, both(120_000, 30_000));
        assert_eq!((second.computation_ns, second.barrier), (3_000_000, both(160_000, 40_000)));
        assert_eq!((last.computation_ns, last.dispatches), (4_000_000, 1));
        assert_eq!(of_three.published_ns(), 10_070_000);
        let alone = demand(steps, &costs, 1).unwrap();
        assert_eq!(alone.segments.len(), 1, "nobody is sent to");
        assert_eq!(alone.sum(DemandSegment::safe_ns), 10_000_000);
        // One that is longer than any measured goes in several.
        let long = demand("message = 2001\nto = \"next\"", &costs, 9).unwrap();
        assert_eq!(long.segments[0].communication, both(180_000, 90_000));
    }

    #[test]
    fn a_configured_worst_case_replaces_all_terms() {
        let costs = HostCosts::default();
        let known = demand("worst = \"3ms\"\nmessage = 10\nbarrier = true", &costs, 2).unwrap();
        let whole =
            DemandSegment { computation_ns: 3_000_000, dispatches: 3, ..DemandSegment::default() };
        assert_eq!(known, PeriodDemand { segments: vec![whole], unknown: None });
        let polling = "[task.polling]\nrate = 1.0\ncompute = \"10us\"\nbudget = 7";
        assert_eq!(demand(polling, &costs, 2).unwrap().published_ns(), 70_000);
    }

    #[test]
    fn an_unknown_term_is_named() {
        let costs = HostCosts::default();
        for (lines, why) in [
            ("command = [\"x\"]", "task 'a': the execution time of its program"),
            ("program = [\"x\"]", "task 'a': the execution time of its program"),
            ("units = 5", "task 'a': the execution time of its units"),
        ] {
            let error = demand(lines, &costs, 2).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
        let lacking = demand("message = 10\nbarrier = true", &costs, 2).unwrap();
        assert!(lacking.unknown.is_some_and(|why| why.contains("10 bytes")), "the first of two");
        assert!(demand("barrier = true", &costs, 2).unwrap().unknown.is_some());
    }
}
