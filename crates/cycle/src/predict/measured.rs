//! What a run of the same tasks measured, beside what is predicted of them: how long a task ran
//! whose time is not known otherwise, and how long after its release it ended.

use std::collections::BTreeMap;

use horolog_record::{
    Code, CyclePredictMeasured, CyclePredictTask, CyclePredictWorst as Worst, CycleResult,
    CycleTask, Distribution, Finding, Severity,
};

use crate::task::{Compute, Fault, TaskSet, Work};

/// What was measured of each task, by its name.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Runs {
    tasks: BTreeMap<String, CyclePredictMeasured>,
}

impl Runs {
    /// Takes a run's figures, of every node and of those of its runs in which tasks had the
    /// policies of their file. `name` says where it is from.
    pub fn add(&mut self, name: &str, result: &CycleResult, worst: Worst) {
        let runs = result.runs.iter().filter(|run| run.policy.is_none());
        let tasks = runs.flat_map(|run| &run.nodes).flat_map(|node| &node.tasks);
        for task in tasks {
            let found = of(name, task, worst);
            match self.tasks.get_mut(&task.name) {
                Some(all) => join(all, &found),
                None => drop(self.tasks.insert(task.name.clone(), found)),
            }
        }
    }

    /// The set with the measured execution as the worst that is known of tasks of which nothing
    /// else says how long they run.
    ///
    /// # Errors
    ///
    /// None that a set that is one can have.
    pub fn known(&self, set: &TaskSet) -> Result<TaskSet, Fault> {
        let mut tasks = set.tasks().to_vec();
        for task in &mut tasks {
            let is_unknown = task.worst_ns.is_none() && has_unknown(&task.work);
            let measured = self.tasks.get(&task.name).filter(|_| is_unknown);
            task.worst_ns = task.worst_ns.or_else(|| measured?.execution_ns);
        }
        TaskSet::new(tasks)
    }

    /// Puts what was measured beside what is predicted, and tells where it was longer.
    pub fn beside(&self, tasks: &mut [CyclePredictTask]) -> Vec<Finding> {
        for task in &mut *tasks {
            task.measured = self.tasks.get(&task.name).cloned();
        }
        tasks.iter().filter_map(exceeded).collect()
    }
}

/// Whether a task's time does not stand in its file.
fn has_unknown(work: &Work) -> bool {
    let is_unit = |compute: Compute| matches!(compute, Compute::Units(1..));
    match work {
        Work::Command(_) | Work::Program(_) => true,
        Work::Steps(steps) => steps.iter().any(|step| is_unit(step.compute)),
        Work::Polling(polling) => is_unit(polling.event),
    }
}

fn of(name: &str, task: &CycleTask, worst: Worst) -> CyclePredictMeasured {
    let largest = |times: Option<&Distribution>| times.map(|times| times.max);
    CyclePredictMeasured {
        periods: task.periods,
        execution_ns: task.execution_ns.as_ref().map(|times| worst.of(times)),
        response_ns: largest(task.response_ns.as_ref()),
        missed: task.missed,
        source: name.to_owned(),
    }
}

fn join(all: &mut CyclePredictMeasured, other: &CyclePredictMeasured) {
    all.periods = all.periods.saturating_add(other.periods);
    all.missed = all.missed.saturating_add(other.missed);
    all.execution_ns = all.execution_ns.max(other.execution_ns);
    all.response_ns = all.response_ns.max(other.response_ns);
    if all.source != other.source {
        all.source = format!("{}, {}", all.source, other.source);
    }
}

fn exceeded(task: &CyclePredictTask) -> Option<Finding> {
    let (measured, safe) = task.measured.as_ref().zip(task.safe.as_ref())?;
    let longest_ns = measured.response_ns.filter(|ns| *ns > safe.response_ns)?;
    Some(Finding {
        code: Code::BoundExceeded,
        severity: Severity::Warning,
        message: format!(
            "task '{}' was measured to take up to {} us, longer than its bound of {} us.",
            task.name,
            longest_ns / 1_000,
            safe.response_ns / 1_000
        ),
        advice: "Something costs more than was measured or given: measure the costs longer, look \
                 for tasks that are not in the file, and see whether it computes as long as it says."
            .to_owned(),
        trial: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::predict::{Costs, Machine, predict};

    fn times(max: u64) -> Value {
        json!({
            "count": 9, "min": 1, "mean": 2.0, "stddev": 0.0, "p50": 2, "p90": 3, "p99": 4,
            "p99_9": 5, "p99_99": 6, "max": max, "histogram": ""
        })
    }

    fn task(name: &str, execution: u64, response: u64) -> Value {
        json!({
            "name": name, "period_ns": 1, "deadline_ns": 1,
            "scheduling": {"asked": "fifo", "policy": "fifo", "priority": 1},
            "cost": {"clock_ns": 1, "period_ns": 1},
            "planned": 9, "periods": 9, "missed": 1, "overrun": 0, "uncounted": 0, "failed": 0,
            "messages_missing": 0, "barriers_broken": 0,
            "execution_ns": times(execution), "response_ns": times(response),
            "overhead": {
                "communication_latency_ns": 0.0, "communication_volume_ns": 0.0, "idle_ns": 0.0,
                "system_ns": 0.0
            },
            "series": []
        })
    }

    fn runs() -> Runs {
        let node = |tasks: Vec<Value>| {
            json!({
                "name": "n", "clocks": [], "tasks": tasks,
                "conditions": {"memory_locked": true, "idle_states": []}
            })
        };
        let nodes = [
            node(vec![task("a", 3_000_000, 4_000_000), task("b", 5_000, 6_000)]),
            node(vec![task("a", 2_000_000, 9_000_000)]),
        ];
        let other = json!([node(vec![task("a", 99_000_000, 99_000_000)])]);
        let result = json!({
            "schema": "horolog.cycle/1", "started": "", "command": [], "host": {"cores": 1},
            "signal": "monotonic",
            "runs": [
                {"elapsed_s": 1.0, "nodes": nodes, "shared": []},
                {"policy": "other", "elapsed_s": 1.0, "nodes": other, "shared": []}
            ],
            "speedups": [], "limits": [], "findings": []
        });
        let mut runs = Runs::default();
        runs.add("run.json", &serde_json::from_value(result).unwrap(), Worst::Max);
        runs
    }

    const TWO: &str = "[[task]]\nname = \"a\"\nperiod = \"20ms\"\ncommand = [\"x\"]\n\
                       [[task]]\nname = \"b\"\nperiod = \"20ms\"\ncompute = \"1ms\"\n";

    #[test]
    fn a_run_says_how_long_programs_take_and_stands_beside_their_bounds() {
        let set = TaskSet::parse(TWO).unwrap();
        let machine = Machine { nodes: 1, cores: 1, real_time_share: None };
        assert!(predict(&set, &Costs::default(), machine).is_err());
        let runs = runs();
        let known = runs.known(&set).unwrap();
        let worst: Vec<_> = known.tasks().iter().map(|task| task.worst_ns).collect();
        assert_eq!(worst, [Some(3_000_000), None], "what the file says is not replaced");
        let mut tasks = predict(&known, &Costs::default(), machine).unwrap().tasks;
        let findings = runs.beside(&mut tasks);
        let measured = tasks[0].measured.as_ref().unwrap();
        assert_eq!((measured.periods, measured.missed), (18, 2));
        assert_eq!(measured.response_ns, Some(9_000_000));
        assert_eq!(findings.len(), 1, "9 ms are more than 3 + 1");
        assert!(findings[0].message.starts_with("task 'a' was measured"), "{findings:?}");
    }
}
