//! What a task asks for in one period, by equation (2): computation, communication and barrier of
//! each superstep. Where a figure is not known it says so and makes none up.

use super::cost::{Costs, Latency};
use super::{Both, PredictError};
use crate::task::{Audience, Compute, Message, Step, Task, Work};

/// What a task asks for in a period.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Demand {
    /// From one place at which it waits for others to the next.
    pub(super) segments: Vec<Segment>,
    /// What is not known of it.
    pub(super) lacks: Option<String>,
}

/// Computation, and the waiting behind it. All times are in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Segment {
    pub(super) computation_ns: u64,
    pub(super) communication: Both,
    pub(super) barrier: Both,
    /// How often it is given the core in it at least: at its beginning and behind each wait.
    pub(super) dispatches: u64,
}

impl Segment {
    /// All of it, at most.
    pub(super) fn safe_ns(&self) -> u64 {
        let wait_ns = self.communication.safe_ns.saturating_add(self.barrier.safe_ns);
        self.computation_ns.saturating_add(wait_ns)
    }
}

impl Demand {
    /// The sum of a figure over all segments.
    pub(super) fn sum(&self, of: impl Fn(&Segment) -> u64) -> u64 {
        self.segments.iter().map(of).fold(0, u64::saturating_add)
    }

    /// C by equation (2) as it is printed.
    pub(super) fn printed_ns(&self) -> u64 {
        self.sum(|one| {
            let wait_ns = one.communication.printed_ns.saturating_add(one.barrier.printed_ns);
            one.computation_ns.saturating_add(wait_ns)
        })
    }

    /// What one task asks for on each of `nodes` nodes.
    pub(super) fn of(task: &Task, costs: &Costs, nodes: u32) -> Result<Self, PredictError> {
        let reader = Reader { costs, others: u64::from(nodes.saturating_sub(1)) };
        if let Some(ns) = task.worst_ns {
            return Ok(reader.known(ns, &task.work));
        }
        let wanting = |what: &str| PredictError::of_task(&task.name, what);
        match &task.work {
            Work::Steps(steps) => reader.steps(steps).map_err(|what| wanting(&what)),
            Work::Polling(polling) => {
                let event_ns = ns_of(polling.event).map_err(|what| wanting(&what))?;
                let ns = event_ns.saturating_mul(u64::from(polling.budget));
                Ok(reader.known(ns, &task.work))
            }
            Work::Command(_) | Work::Program(_) => {
                Err(wanting("how long its program runs is not known; give worst = \"TIME\""))
            }
        }
    }
}

/// How long a computation is; units of the load are so long as a run makes them.
fn ns_of(compute: Compute) -> Result<u64, String> {
    match compute {
        Compute::Ns(ns) => Ok(ns),
        Compute::Units(0) => Ok(0),
        Compute::Units(_) => {
            Err("how long its units take is not known; give worst = \"TIME\", or \
                                  compute in place of units"
                .to_owned())
        }
    }
}

struct Reader<'a> {
    costs: &'a Costs,
    /// Nodes beside this one.
    others: u64,
}

impl Reader<'_> {
    /// One stretch that holds everything, waits and all.
    fn known(&self, computation_ns: u64, work: &Work) -> Demand {
        let waits = match work {
            Work::Steps(steps) => steps.iter().map(|step| self.waits(step)).sum(),
            Work::Command(_) | Work::Program(_) | Work::Polling(_) => 0,
        };
        let whole = Segment { computation_ns, dispatches: 1 + waits, ..Segment::default() };
        Demand { segments: vec![whole], lacks: None }
    }

    /// How often a step waits for other nodes; without any there is nothing to wait for.
    fn waits(&self, step: &Step) -> u64 {
        if self.others == 0 {
            0
        } else {
            u64::from(step.message.is_some()) + u64::from(step.barrier)
        }
    }

    fn steps(&self, steps: &[Step]) -> Result<Demand, String> {
        let mut demand = Demand::default();
        let mut open = Segment { dispatches: 1, ..Segment::default() };
        for step in steps {
            let ns = ns_of(step.compute)?;
            open.computation_ns = open.computation_ns.saturating_add(ns);
            let waits = self.waits(step);
            if waits == 0 {
                continue;
            }
            let message = step.message.map(|message| self.message(message)).transpose();
            let barrier = if step.barrier { self.barrier().map(Some) } else { Ok(None) };
            demand.lacks = demand.lacks.or(message.as_ref().err().cloned());
            demand.lacks = demand.lacks.or(barrier.as_ref().err().cloned());
            open.communication = message.ok().flatten().unwrap_or_default();
            open.barrier = barrier.ok().flatten().unwrap_or_default();
            open.dispatches += waits;
            demand.segments.push(open);
            open = Segment { dispatches: 1, ..Segment::default() };
        }
        if open.computation_ns > 0 || demand.segments.is_empty() {
            demand.segments.push(open);
        }
        Ok(demand)
    }

    /// All nodes send at once. A node has all messages when as many as it waits for came one behind
    /// the other; the printed maximum over nodes has one of them.
    fn message(&self, message: Message) -> Result<Both, String> {
        let Message { bytes, to } = message;
        let Latency { safe_ns, half_ns } = self
            .costs
            .message(bytes)
            .ok_or_else(|| format!("how long a message of {bytes} bytes takes is not known"))?;
        let count = match to {
            Audience::All => self.others,
            Audience::Next => 1,
        };
        Ok(Both { safe_ns: safe_ns.saturating_mul(count), printed_ns: half_ns })
    }

    /// A short message from every other node to one, and one back to each.
    fn barrier(&self) -> Result<Both, String> {
        let Latency { safe_ns, half_ns } = self
            .costs
            .message(1)
            .ok_or_else(|| "how long a barrier takes is not known without messages".to_owned())?;
        Ok(Both {
            safe_ns: safe_ns.saturating_mul(2).saturating_mul(self.others),
            printed_ns: half_ns.saturating_mul(2),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::cost::tests::message;
    use super::*;
    use crate::task::TaskSet;

    fn demand(lines: &str, costs: &Costs, nodes: u32) -> Result<Demand, String> {
        let text = format!("[[task]]\nname = \"a\"\nperiod = \"10ms\"\n{lines}");
        let set = TaskSet::parse(&text).unwrap();
        Demand::of(&set.tasks()[0], costs, nodes).map_err(|error| error.to_string())
    }

    fn both(safe_ns: u64, printed_ns: u64) -> Both {
        Both { safe_ns, printed_ns }
    }

    #[test]
    fn supersteps_end_where_they_wait() {
        let costs = Costs::new(vec![message(100, 40_000, 20_000), message(1_000, 60_000, 30_000)]);
        let steps = "[[task.step]]\ncompute = \"1ms\"\n[[task.step]]\ncompute = \"2ms\"\n\
                     message = 500\n[[task.step]]\ncompute = \"3ms\"\nbarrier = true\n\
                     [[task.step]]\ncompute = \"4ms\"";
        let of_three = demand(steps, &costs, 3).unwrap();
        let [first, second, last] = &of_three.segments[..] else { panic!("{of_three:?}") };
        assert_eq!((first.computation_ns, first.dispatches), (3_000_000, 2));
        assert_eq!(first.communication, both(120_000, 30_000));
        assert_eq!((second.computation_ns, second.barrier), (3_000_000, both(160_000, 40_000)));
        assert_eq!((last.computation_ns, last.dispatches), (4_000_000, 1));
        assert_eq!(of_three.printed_ns(), 10_070_000);
        let alone = demand(steps, &costs, 1).unwrap();
        assert_eq!(alone.segments.len(), 1, "nobody is sent to");
        assert_eq!(alone.sum(Segment::safe_ns), 10_000_000);
        // One that is longer than any measured goes in several.
        let long = demand("message = 2001\nto = \"next\"", &costs, 9).unwrap();
        assert_eq!(long.segments[0].communication, both(180_000, 90_000));
    }

    #[test]
    fn what_is_known_beforehand_takes_the_place_of_all() {
        let costs = Costs::default();
        let known = demand("worst = \"3ms\"\nmessage = 10\nbarrier = true", &costs, 2).unwrap();
        let whole = Segment { computation_ns: 3_000_000, dispatches: 3, ..Segment::default() };
        assert_eq!(known, Demand { segments: vec![whole], lacks: None });
        let polling = "[task.polling]\nrate = 1.0\ncompute = \"10us\"\nbudget = 7";
        assert_eq!(demand(polling, &costs, 2).unwrap().printed_ns(), 70_000);
    }

    #[test]
    fn what_is_not_known_is_said() {
        let costs = Costs::default();
        for (lines, why) in [
            ("command = [\"x\"]", "task 'a': how long its program runs"),
            ("program = [\"x\"]", "task 'a': how long its program runs"),
            ("units = 5", "task 'a': how long its units take"),
        ] {
            let told = demand(lines, &costs, 2).unwrap_err();
            assert!(told.starts_with(why), "{told}");
        }
        let lacking = demand("message = 10\nbarrier = true", &costs, 2).unwrap();
        assert!(lacking.lacks.is_some_and(|why| why.contains("10 bytes")), "the first of two");
        assert!(demand("barrier = true", &costs, 2).unwrap().lacks.is_some());
    }
}
