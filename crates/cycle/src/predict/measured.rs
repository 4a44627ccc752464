//! Measurements from runs of the predicted tasks: execution times that are not known otherwise, and
//! response times to compare with the bounds.

use horolog_record::{
    CyclePredictPercentile as Worst, CyclePredictTaskMeasurement, CyclePredictTaskResult,
    CycleResult, CycleTaskResult, Distribution, Finding, FindingCode, Severity,
    TaskSchedulingPolicy,
};

use crate::task::{ComputeAmount, Task, TaskSet, TaskSetError, TaskWork};

/// Measurements of each task in one or more results.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MeasuredRuns {
    sources: Vec<String>,
    tasks: Vec<MeasuredTask>,
}

/// Task that ran on one node.
#[derive(Clone, PartialEq, Debug)]
struct MeasuredTask {
    name: String,
    period_ns: u64,
    deadline_ns: u64,
    /// Requested policy, and policy in force.
    policies: (TaskSchedulingPolicy, TaskSchedulingPolicy),
    values: CyclePredictTaskMeasurement,
}

impl MeasuredRuns {
    /// Adds the tasks of all nodes, from the runs in which tasks had the policies of their file.
    /// `name` describes the origin; `worst` is the percentile that stands for the execution time.
    pub fn add(&mut self, name: &str, result: &CycleResult, worst: Worst) {
        self.sources.push(name.to_owned());
        let runs = result.runs.iter().filter(|run| run.policy.is_none());
        let tasks = runs.flat_map(|run| &run.nodes).flat_map(|node| &node.tasks);
        self.tasks.extend(tasks.map(|task| MeasuredTask {
            name: task.name.clone(),
            period_ns: task.period_ns,
            deadline_ns: task.deadline_ns,
            policies: (task.scheduling.requested, task.scheduling.policy),
            values: measured_task(name, task, worst),
        }));
    }

    /// Returns the set with measured execution times as the worst case of tasks whose execution
    /// time is not known otherwise.
    ///
    /// # Errors
    ///
    /// None for a valid set.
    pub fn with_measured_execution(&self, set: &TaskSet) -> Result<TaskSet, TaskSetError> {
        let mut tasks = set.tasks().to_vec();
        for task in &mut tasks {
            let is_unknown = task.worst_ns.is_none() && has_unknown_duration(&task.work);
            let measured = self.merged_values(task).filter(|_| is_unknown);
            task.worst_ns = task.worst_ns.or_else(|| measured?.execution_ns);
        }
        TaskSet::new(tasks)
    }

    /// Adds the measurements to the predictions of the set's tasks. Returns findings about exceeded
    /// bounds, about tasks that differ between the file and the measurements or are in only one of
    /// them, and about refused policies.
    pub fn compare_with_bounds(
        &self,
        set: &TaskSet,
        tasks: &mut [CyclePredictTaskResult],
    ) -> Vec<Finding> {
        for (predicted, task) in tasks.iter_mut().zip(set.tasks()) {
            predicted.measured = self.merged_values(task);
        }
        let exceeded = tasks.iter().filter_map(exceeded_finding);
        exceeded
            .chain(self.mismatch_findings(set))
            .chain(self.missing_task_findings(set))
            .chain(self.refused_policy_findings(set))
            .collect()
    }

    /// Returns the measurements of a task over all runs (sums of periods, maxima of times); `None`
    /// if there are none.
    fn merged_values(&self, task: &Task) -> Option<CyclePredictTaskMeasurement> {
        let mut all = self.tasks.iter().filter(|ran| ran.matches(task)).map(|ran| &ran.values);
        let mut merged = all.next()?.clone();
        all.for_each(|other| merge(&mut merged, other));
        Some(merged)
    }

    /// Returns findings about measured tasks with the name of a task of the set but other
    /// parameters.
    fn mismatch_findings(&self, set: &TaskSet) -> Vec<Finding> {
        let mut messages: Vec<String> = Vec::new();
        for task in set.tasks() {
            for ran in self.tasks.iter().filter(|ran| ran.name == task.name && !ran.matches(task)) {
                let (name, source, differs) =
                    (&ran.name, &ran.values.source, ran.differences(task));
                let message = format!(
                    "task '{name}' of {source} differs from that of the file, {differs}: its \
                     measurements are ignored."
                );
                if !messages.contains(&message) {
                    messages.push(message);
                }
            }
        }
        let advice = "Run the predicted file: 'cycle run' with it, and --json.";
        messages
            .into_iter()
            .map(|message| mismatch_finding(Severity::Warning, message, advice))
            .collect()
    }

    /// Returns findings about tasks that are only in the set or only in the measurements.
    fn missing_task_findings(&self, set: &TaskSet) -> Vec<Finding> {
        if self.sources.is_empty() {
            return Vec::new();
        }
        let mut findings = Vec::new();
        let is_measured = |name: &str| self.tasks.iter().any(|ran| ran.name == name);
        let unmeasured: Vec<_> = set
            .tasks()
            .iter()
            .filter(|task| !is_measured(&task.name))
            .map(|task| format!("'{}'", task.name))
            .collect();
        if !unmeasured.is_empty() {
            findings.push(mismatch_finding(
                Severity::Note,
                format!(
                    "{} of the file {} not in {}: no measurements to compare with.",
                    unmeasured.join(", "),
                    if unmeasured.len() == 1 { "is" } else { "are" },
                    self.sources.join(", ")
                ),
                "Run the predicted file, without --compare, which runs other policies.",
            ));
        }
        let mut foreign: Vec<String> = Vec::new();
        for ran in &self.tasks {
            let label = format!("'{}' of {}", ran.name, ran.values.source);
            let is_known = set.tasks().iter().any(|task| task.name == ran.name);
            if !is_known && !foreign.contains(&label) {
                foreign.push(label);
            }
        }
        if !foreign.is_empty() {
            findings.push(mismatch_finding(
                Severity::Warning,
                format!(
                    "{} {} not in the file: their interference with the measured tasks is in no \
                     bound.",
                    foreign.join(", "),
                    if foreign.len() == 1 { "is" } else { "are" }
                ),
                "Predict the measured file, or measure the predicted one.",
            ));
        }
        findings
    }

    /// Returns findings about tasks that were not measured under the requested policy.
    fn refused_policy_findings(&self, set: &TaskSet) -> Vec<Finding> {
        let was_refused = |task: &&Task| {
            self.tasks.iter().any(|ran| ran.matches(task) && ran.policies.0 != ran.policies.1)
        };
        let refused = |task: &Task| {
            mismatch_finding(
                Severity::Warning,
                format!(
                    "task '{}' was not measured under policy {}, which was refused: bounds and \
                     measurements are not comparable.",
                    task.name,
                    task.schedule.policy.name()
                ),
                "Measure it with real-time rights: as root, or with CAP_SYS_NICE.",
            )
        };
        set.tasks().iter().filter(was_refused).map(refused).collect()
    }
}

impl MeasuredTask {
    fn matches(&self, task: &Task) -> bool {
        self.name == task.name
            && self.period_ns == task.period_ns
            && self.deadline_ns == task.deadline_ns
            && self.policies.0 == task.schedule.policy
    }

    /// Describes the differences from a task of the set.
    fn differences(&self, task: &Task) -> String {
        let us = |what: &str, ran_ns: u64, task_ns: u64| {
            let differs = ran_ns != task_ns;
            differs.then(|| format!("{what} {} us, not {} us", ran_ns / 1_000, task_ns / 1_000))
        };
        let (ran, wanted) = (self.policies.0, task.schedule.policy);
        let policy =
            (ran != wanted).then(|| format!("policy {}, not {}", ran.name(), wanted.name()));
        let period = us("period", self.period_ns, task.period_ns);
        let deadline = us("deadline", self.deadline_ns, task.deadline_ns);
        [period, deadline, policy].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

fn mismatch_finding(severity: Severity, message: String, advice: &str) -> Finding {
    Finding {
        code: FindingCode::TaskSetMismatch,
        severity,
        message,
        advice: advice.to_owned(),
        trial: None,
    }
}

/// Returns true if the file of a task does not state the duration of its work.
fn has_unknown_duration(work: &TaskWork) -> bool {
    let is_unit = |compute: ComputeAmount| matches!(compute, ComputeAmount::Units(1..));
    match work {
        TaskWork::Command(_) | TaskWork::Program(_) => true,
        TaskWork::Steps(steps) => steps.iter().any(|step| is_unit(step.compute)),
        TaskWork::Polling(polling) => is_unit(polling.event),
    }
}

fn measured_task(name: &str, task: &CycleTaskResult, worst: Worst) -> CyclePredictTaskMeasurement {
    let largest = |times: Option<&Distribution>| times.map(|times| times.max);
    CyclePredictTaskMeasurement {
        periods: task.periods,
        execution_ns: task.execution_ns.as_ref().map(|times| worst.value_ns(times)),
        response_ns: largest(task.response_ns.as_ref()),
        missed: task.missed,
        source: name.to_owned(),
    }
}

fn merge(all: &mut CyclePredictTaskMeasurement, other: &CyclePredictTaskMeasurement) {
    all.periods = all.periods.saturating_add(other.periods);
    all.missed = all.missed.saturating_add(other.missed);
    all.execution_ns = all.execution_ns.max(other.execution_ns);
    all.response_ns = all.response_ns.max(other.response_ns);
    if all.source != other.source {
        all.source = format!("{}, {}", all.source, other.source);
    }
}

fn exceeded_finding(task: &CyclePredictTaskResult) -> Option<Finding> {
    let (measured, safe) = task.measured.as_ref().zip(task.safe.as_ref())?;
    let longest_ns = measured.response_ns.filter(|ns| *ns > safe.response_ns)?;
    Some(Finding {
        code: FindingCode::BoundExceeded,
        severity: Severity::Warning,
        message: format!(
            "task '{}' was measured with up to {} us, longer than its bound of {} us.",
            task.name,
            longest_ns / 1_000,
            safe.response_ns / 1_000
        ),
        advice: "A cost exceeds its measured or specified value: measure the costs longer, look \
                 for tasks that are not in the file, and compare the task's computation with its \
                 specification."
            .to_owned(),
        trial: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::predict::{HostCosts, PredictedHostConfig, predict};

    fn times(max: u64) -> Value {
        json!({
            "count": 9, "min": 1, "mean": 2.0, "stddev": 0.0, "p50": 2, "p90": 3, "p99": 4,
            "p99_9": 5, "p99_99": 6, "max": max, "histogram": ""
        })
    }

    fn task(name: &str, execution: u64, response: u64) -> Value {
        json!({
            "name": name, "period_ns": 20_000_000, "deadline_ns": 20_000_000,
            "scheduling": {"requested": "fifo", "policy": "fifo", "priority": 1},
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

    fn runs() -> MeasuredRuns {
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
            "schema": "horolog.cycle/2", "started": "", "command": [], "host": {"cores": 1},
            "signal": "monotonic",
            "runs": [
                {"elapsed_s": 1.0, "nodes": nodes, "shared": []},
                {"policy": "other", "elapsed_s": 1.0, "nodes": other, "shared": []}
            ],
            "speedups": [], "limits": [], "findings": []
        });
        let mut runs = MeasuredRuns::default();
        runs.add("run.json", &serde_json::from_value(result).unwrap(), Worst::Max);
        runs
    }

    const TWO: &str = "[[task]]\nname = \"a\"\nperiod = \"20ms\"\ncommand = [\"x\"]\n\
                       [[task]]\nname = \"b\"\nperiod = \"20ms\"\ncompute = \"1ms\"\n";

    #[test]
    fn a_run_supplies_execution_times_and_is_compared_with_the_bounds() {
        let set = TaskSet::parse(TWO).unwrap();
        let machine = PredictedHostConfig { nodes: 1, cores: 1, real_time_share: None };
        assert!(predict(&set, &HostCosts::default(), machine).is_err());
        let runs = runs();
        let known = runs.with_measured_execution(&set).unwrap();
        let worst: Vec<_> = known.tasks().iter().map(|task| task.worst_ns).collect();
        assert_eq!(worst, [Some(3_000_000), None], "what the file says is not replaced");
        let mut tasks = predict(&known, &HostCosts::default(), machine).unwrap().tasks;
        let findings = runs.compare_with_bounds(&set, &mut tasks);
        let measured = tasks[0].measured.as_ref().unwrap();
        assert_eq!((measured.periods, measured.missed), (18, 2));
        assert_eq!(measured.response_ns, Some(9_000_000));
        assert_eq!(findings.len(), 1, "9 ms are more than 3 + 1");
        assert!(findings[0].message.starts_with("task 'a' was measured"), "{findings:?}");
    }

    /// What is told where this is predicted instead.
    fn mismatches(file: &str) -> Vec<String> {
        let set = TaskSet::parse(file).unwrap();
        let machine = PredictedHostConfig { nodes: 1, cores: 1, real_time_share: None };
        let known =
            TaskSet::parse(&file.replace("command = [\"x\"]", "compute = \"9ms\"")).unwrap();
        let mut tasks = predict(&known, &HostCosts::default(), machine).unwrap().tasks;
        let findings = runs().compare_with_bounds(&set, &mut tasks);
        let differs = findings.into_iter().filter(|one| one.code == FindingCode::TaskSetMismatch);
        let messages: Vec<_> = differs.map(|one| one.message).collect();
        let has_measurement = tasks[0].measured.is_some();
        assert_eq!(
            has_measurement,
            !messages.iter().any(|one| one.contains("task 'a'")),
            "{messages:?}"
        );
        messages
    }

    #[test]
    fn tasks_that_differ_or_are_on_one_side_only_are_reported() {
        assert_eq!(mismatches(TWO), Vec::<String>::new());
        for (from, to, named) in [
            ("20ms", "10ms", "period 20000 us, not 10000 us, deadline 20000 us, not 10000 us:"),
            ("\"20ms\"", "\"20ms\"\ndeadline = \"9500us\"", "deadline 20000 us, not 9500 us:"),
            ("\"20ms\"", "\"20ms\"\npolicy = \"rr\"", "policy fifo, not rr:"),
        ] {
            let messages = mismatches(&TWO.replacen(from, to, 1));
            let [one] = &messages[..] else { panic!("{messages:?}") };
            assert!(one.starts_with("task 'a' of run.json differs"), "{one}");
            assert!(one.contains(named), "{one}");
        }
        let messages = mismatches(&TWO.replace("name = \"b\"", "name = \"c\""));
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(messages[0].starts_with("'c' of the file is not in run.json"), "{messages:?}");
        assert!(messages[1].starts_with("'b' of run.json is not in the file"), "{messages:?}");
    }
}
