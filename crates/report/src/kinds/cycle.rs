//! Document of a result of `horolog cycle run`: one row per task and node, bars of the ratio of
//! execution time to period, and joint results of several nodes.

use horolog_record::{
    CycleConfigurationResult, CycleNodeResult, CycleResult, CycleSharedTaskResult, CycleTaskResult,
    Distribution, LimitUnit, ParallelOverhead, ProgramStateResult, ReleaseSignal,
    ReleaseSignalCounts, TaskSchedulingOutcome, TaskSchedulingPolicy,
};

use crate::document::{
    BlockContent, DescribeResult, DistributionSet, HeadlineMetric, NameColumn, NamedRow,
    NamedRowTable, ResultDocument, run_of,
};
use crate::host::conditions;
use crate::html::escape::{each, text};
use crate::html::plot::{AxisScale, Plot, PlotAxis, PlotUnit, PlotViews};
use crate::html::time_series::TimeSeriesDrawingLimits;
use crate::metrics::{Metric, NamedItems, judged_by_fields, of_items};
use crate::table::TableStyle;
use crate::units::{ABSENT, count_of, full_count, human_ns, mean_ns, signed_ns};

const TABLE: &str = "tasks";
const NAME_WIDTH: usize = 16;
/// Maximum and minimum width of a bar that represents one period, and the width of the numbers
/// after it, in columns.
const BAR: usize = 40;
const BAR_MIN: usize = 10;
const BEHIND: usize = 38;

/// Titles of the cells of [`figures`].
const FIGURES: [&str; 9] = [
    "periods",
    "missed",
    "start p50",
    "start p99",
    "start max",
    "exec mean",
    "exec max",
    "ratio",
    "margin",
];

/// Titles of the cells of [`extra`].
const EXTRA: [&str; 5] = ["compute", "latency", "volume", "idle", "system"];

/// Definitions of the metrics.
const METHOD: &str = "Start: start latency, from the release to the task's first \
     instruction. Exec: execution time, from there to the end of its work. Missed: start and exec \
     together exceed the deadline. Ratio: mean exec to the period. Margin: share of the deadline \
     left by the longest response.";

impl DescribeResult for CycleResult {
    fn document(&self) -> ResultDocument<'_> {
        const SHAPES: &str = "Time series and distribution";
        let rows = rows(self);
        let periods: u64 = rows.iter().map(|row| row.task.periods).sum();
        let missed: u64 = rows.iter().map(|row| row.task.missed).sum();
        let period_ns = rows.first().map_or(0, |row| row.task.period_ns);
        let longest = rows.iter().filter_map(|row| Some(row.task.response_ns.as_ref()?.max)).max();
        let bars = |style: &TableStyle| {
            let bars = self::rows(self);
            let bars = bars.iter().map(|row| bar(row, self, style));
            std::iter::once(String::new()).chain(bars).collect()
        };
        let figures = |row: &NodeTaskRow<'_>| figures(row).to_vec();
        let mut blocks = vec![
            BlockContent::Markup(Box::new(|| meters(self, &self::rows(self)))).under("Tasks"),
            BlockContent::Table(table(self, (TABLE, "Periodic tasks"), &FIGURES, figures))
                .under("Tasks"),
            BlockContent::Custom(Box::new(bars), String::new()).under("Tasks"),
            BlockContent::Plot(ratio_plot(self, &rows), String::new()).under(SHAPES),
            BlockContent::Distributions(start_latencies(self)).under(SHAPES),
            BlockContent::Distributions(responses(self)).under(SHAPES),
        ];
        if is_parallel(self) {
            let cells = |row: &NodeTaskRow<'_>| extra(row.task).to_vec();
            let label = ("extra", "Extra cost of parallel work");
            let meaning = vec![EXTRA_MEANING.to_owned()];
            blocks.push(
                BlockContent::Table(table(self, label, &EXTRA, cells)).under("Several nodes"),
            );
            blocks.push(BlockContent::Remarks(meaning).under("Several nodes"));
        }
        let conditions = cross_node_sentences(self).into_iter().chain(facts(self)).collect();
        blocks.push(BlockContent::Remarks(conditions).under("Conditions"));
        ResultDocument {
            kind: "cycle",
            heading: format!("periodic tasks every {}", human_ns(period_ns)),
            lead: format!("{missed} of {periods} deadlines missed, started {}", self.started),
            headline: HeadlineMetric {
                name: "Deadlines missed".to_owned(),
                value: (periods > 0).then(|| count_of(missed, periods)),
                sentence: longest.map_or_else(
                    || "No periods were completed.".to_owned(),
                    |ns| format!("Longest response {}.", human_ns(ns)),
                ),
            },
            blocks,
            method: METHOD,
            limits: &self.limits,
            findings: &self.findings,
            run: run_of!(self),
        }
    }

    fn metrics() -> Vec<Metric<Self>> {
        let states = [
            Metric::ratio("missed", |state: &ProgramStateResult| {
                Some([state.missed, state.periods])
            }),
            Metric::times("execution", |state| state.execution_ns.as_ref()),
            Metric::times("response", |state| state.response_ns.as_ref()),
        ];
        let sent = Metric::times("signal-lateness", |sent: &ReleaseSignalCounts| {
            sent.lateness_ns.as_ref()
        });
        of_items(named_tasks, task_metrics())
            .chain(of_items(named_states, states))
            .chain(of_items(named_signals, [sent]))
            .collect()
    }
}

judged_by_fields!(CycleResult);

fn task_metrics() -> Vec<Metric<CycleTaskResult>> {
    let missed = Metric::ratio("missed", |task: &CycleTaskResult| {
        // A period that was never released has missed its deadline as well.
        let of_released = [task.missed, task.periods];
        Some(of_released.map(|count| count.saturating_add(task.unreleased)))
    });
    let start_latency =
        Metric::times("start-latency", |task: &CycleTaskResult| task.start_latency_ns.as_ref());
    let execution = Metric::times("execution", |task: &CycleTaskResult| task.execution_ns.as_ref());
    let response = Metric::times("response", |task: &CycleTaskResult| task.response_ns.as_ref());
    [
        vec![missed.limited(LimitUnit::Ratio)],
        start_latency.with_statistics("start-latency-"),
        execution.with_statistics("execution-"),
        response.with_statistics("response-"),
        vec![
            Metric::ratio("overrun", |task| Some([task.overrun, task.periods])),
            Metric::ratio("unreleased", |task| Some([task.unreleased, task.planned])),
            Metric::ratio("failed", |task| Some([task.failed, task.periods])),
            Metric::times("computation", |task| task.computation_ns.as_ref()),
            Metric::times("communication", |task| task.communication_ns.as_ref()),
            Metric::times("idle", |task| task.idle_ns.as_ref()),
            Metric::times("barrier", |task| task.barrier_ns.as_ref()),
            Metric::times("served", |task| task.served.as_ref()?.response_ns.as_ref()),
        ],
    ]
    .concat()
}

fn named_tasks(result: &CycleResult) -> NamedItems<'_, CycleTaskResult> {
    let all = result.labelled_tasks();
    all.map(|(label, task)| (format!("task '{}' on {label}", task.name), task)).collect()
}

fn named_states(result: &CycleResult) -> NamedItems<'_, ProgramStateResult> {
    let mut all = Vec::new();
    for (name, task) in named_tasks(result) {
        all.extend(task.states.iter().map(|one| (format!("state '{}' of {name}", one.name), one)));
    }
    all
}

fn named_signals(result: &CycleResult) -> NamedItems<'_, ReleaseSignalCounts> {
    let name = |policy: Option<TaskSchedulingPolicy>| {
        policy.map_or_else(String::new, |policy| policy.name().to_owned())
    };
    result.runs.iter().filter_map(|run| Some((name(run.policy), run.sent.as_ref()?))).collect()
}

fn table(
    result: &CycleResult,
    (id, label): (&'static str, &'static str),
    titles: &[&'static str],
    cells: impl Fn(&NodeTaskRow<'_>) -> Vec<String>,
) -> NamedRowTable {
    let rows = rows(result);
    NamedRowTable {
        id,
        label,
        names: NameColumn::words("task", NAME_WIDTH).or("task", 8).titled("task"),
        columns: titles.iter().map(|title| ((*title).into(), 9)).collect(),
        rows: rows.iter().map(|row| NamedRow::new(row.name(result), cells(row))).collect(),
    }
}

/// Returns the start latencies, for a page only.
fn start_latencies(result: &CycleResult) -> DistributionSet<'_> {
    let tasks = rows(result).into_iter().map(|row| (row.name(result), row.task));
    DistributionSet {
        quantity: "",
        entries: tasks
            .filter_map(|(name, task)| Some((name, task.start_latency_ns.as_ref()?)))
            .collect(),
        histogram: Some(("lateness", "Histogram of start latency")),
        percentiles: None,
        described_by: TABLE,
    }
}

/// Returns the response times, for a page only.
fn responses(result: &CycleResult) -> DistributionSet<'_> {
    let tasks = rows(result).into_iter().map(|row| (row.name(result), row.task));
    DistributionSet {
        quantity: "",
        entries: tasks
            .filter_map(|(name, task)| Some((name, task.response_ns.as_ref()?)))
            .collect(),
        histogram: None,
        percentiles: Some(("response", "Response time percentiles")),
        described_by: TABLE,
    }
}

/// Returns execution to period as a bar of one period: `#` to the mean, `-` to the largest.
fn bar(row: &NodeTaskRow<'_>, result: &CycleResult, style: &TableStyle) -> String {
    let width = style.width.saturating_sub(NAME_WIDTH + 3 + BEHIND).clamp(BAR_MIN, BAR);
    let (mean, most) = (row.ratio(), row.ratio_max());
    let columns = |ratio: Option<f64>| (ratio.unwrap_or(0.0) * width as f64).round() as usize;
    let (to_mean, to_most) = (columns(mean).min(width), columns(most).min(width));
    let drawn = "#".repeat(to_mean) + &"-".repeat(to_most.saturating_sub(to_mean));
    let end = if columns(most) > width { '>' } else { '|' };
    format!(
        "{:<NAME_WIDTH$} |{drawn:<width$}{end} {} of the period, {} max",
        row.name(result),
        percent(mean),
        percent(most)
    )
}

/// Returns one bar per task and node: mean and maximum ratio of execution time to period.
fn meters(result: &CycleResult, rows: &[NodeTaskRow<'_>]) -> String {
    each(rows, |one| {
        let (mean, most) = (one.ratio().unwrap_or(0.0), one.ratio_max().unwrap_or(0.0));
        let name = text(&one.name(result));
        // Layout of Fig. 1 of Hao, Xue and Qin: the full width is one period.
        format!(
            "<p><label>{name} <meter min=\"0\" max=\"1\" low=\"0.7\" high=\"0.999\" \
             optimum=\"0\" value=\"{:.4}\">{:.1}%</meter> {:.1}% of the period, {:.1}% \
             max</label></p>\n",
            mean.min(1.0),
            mean * 100.0,
            mean * 100.0,
            most * 100.0
        )
    })
}

fn ratio_plot(result: &CycleResult, rows: &[NodeTaskRow<'_>]) -> Plot {
    let series = |one: &NodeTaskRow<'_>| {
        let points = one.task.series.iter().map(|stretch| (stretch.at_s, stretch.ratio_max));
        TimeSeriesDrawingLimits::EVEN.line(one.name(result), points.collect())
    };
    Plot {
        id: "ratio",
        title: "Execution to period",
        hint: "Maximum of each group of periods; above 100% the next period starts late.",
        described_by: TABLE,
        x: PlotAxis::ELAPSED,
        y: PlotAxis {
            label: "execution to period",
            short: "ratio",
            unit: PlotUnit::Share,
            scale: AxisScale::Zero,
        },
        points: false,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews::one(rows.iter().map(series)),
    }
}

/// Task of one node of one run.
struct NodeTaskRow<'a> {
    run: &'a CycleConfigurationResult,
    node: &'a CycleNodeResult,
    task: &'a CycleTaskResult,
}

impl NodeTaskRow<'_> {
    /// Returns the name of the row: the parts of its identity in which rows differ.
    fn name(&self, result: &CycleResult) -> String {
        let mut words = Vec::new();
        if let Some(policy) = self.run.policy {
            words.push(policy.name().to_owned());
        }
        let counts = || result.runs.iter().map(|run| run.nodes.len());
        if counts().min() != counts().max() {
            words.push(format!("{}:", self.run.nodes.len()));
        }
        if counts().max() > Some(1) {
            words.push(self.node.name.clone());
        }
        if self.node.tasks.len() > 1 || words.is_empty() {
            words.push(self.task.name.clone());
        }
        words.join(" ")
    }

    /// Returns the mean ratio of execution time to period.
    fn ratio(&self) -> Option<f64> {
        let execution = self.task.execution_ns.as_ref()?;
        Some(execution.mean / self.task.period_ns as f64)
    }

    /// Returns the largest ratio of execution time to period.
    fn ratio_max(&self) -> Option<f64> {
        let execution = self.task.execution_ns.as_ref()?;
        Some(execution.max as f64 / self.task.period_ns as f64)
    }
}

/// Returns the rows of all runs, in the order of the result.
fn rows(result: &CycleResult) -> Vec<NodeTaskRow<'_>> {
    let mut rows = Vec::new();
    for run in &result.runs {
        for node in &run.nodes {
            rows.extend(node.tasks.iter().map(|task| NodeTaskRow { run, node, task }));
        }
    }
    rows
}

/// Formats a ratio as a percentage.
fn percent(share: Option<f64>) -> String {
    let shown = share.filter(|share| share.is_finite());
    shown.map_or_else(|| ABSENT.to_owned(), |share| format!("{:.1}%", share * 100.0))
}

/// Returns the cells of a row under [`FIGURES`].
fn figures(row: &NodeTaskRow<'_>) -> [String; 9] {
    let task = row.task;
    let of = |distribution: Option<&Distribution>, figure: fn(&Distribution) -> u64| {
        distribution.map_or_else(|| ABSENT.to_owned(), |one| human_ns(figure(one)))
    };
    let (late, exec) = (task.start_latency_ns.as_ref(), task.execution_ns.as_ref());
    let margin =
        task.response_ns.as_ref().map(|one| 1.0 - one.max as f64 / task.deadline_ns as f64);
    [
        full_count(task.periods),
        full_count(task.missed),
        of(late, |one| one.p50),
        of(late, |one| one.p99),
        of(late, |one| one.max),
        exec.map_or_else(|| ABSENT.to_owned(), |one| mean_ns(one.mean)),
        of(exec, |one| one.max),
        percent(row.ratio()),
        percent(margin),
    ]
}

/// Returns the cells of a task under [`EXTRA`]: means per period.
fn extra(task: &CycleTaskResult) -> [String; 5] {
    let ParallelOverhead {
        communication_latency_ns,
        communication_volume_ns,
        idle_ns,
        system_ns,
        ..
    } = task.overhead;
    let compute_ns = task.computation_ns.as_ref().map_or(f64::NAN, |one| one.mean);
    [compute_ns, communication_latency_ns, communication_volume_ns, idle_ns, system_ns].map(mean_ns)
}

/// Definitions of the metrics under [`EXTRA`].
const EXTRA_MEANING: &str = "Extra cost of parallel work, means per period: time of \
     the shortest messages, and of barriers once all nodes had arrived (latency); message time \
     due to length (volume); waiting for slower nodes (idle); start latency and slowdown of the \
     computation by the system (system).";

/// Returns true if there are results of several nodes.
fn is_parallel(result: &CycleResult) -> bool {
    result.runs.iter().any(|run| run.nodes.len() > 1)
}

/// Returns sentences on the conditions of the run.
fn facts(result: &CycleResult) -> Vec<String> {
    let mut facts = Vec::new();
    let Some(node) = result.runs.first().and_then(|run| run.nodes.first()) else { return facts };
    let first = if result.runs.len() > 1 { "first run: " } else { "" };
    for (at, task) in node.tasks.iter().enumerate() {
        facts.push(format!(
            "Task {}: period {}, deadline {}, {}; {first}{}.",
            task.name,
            human_ns(task.period_ns),
            human_ns(task.deadline_ns),
            compared(result, at).unwrap_or_else(|| scheduling(&task.scheduling)),
            cost(task)
        ));
    }
    facts.push(conditions(&node.conditions));
    facts.push(signal(result.signal).to_owned());
    facts.extend(result.runs.iter().filter_map(|run| run.sent.as_ref()).map(sent));
    facts
}

const fn signal(signal: ReleaseSignal) -> &'static str {
    match signal {
        ReleaseSignal::Monotonic => "Release signal: CLOCK_MONOTONIC of this host.",
        ReleaseSignal::Utc => "Release signal: clock of each node.",
        ReleaseSignal::Packet => "Release signal: packets.",
    }
}

/// Returns a sentence on the packets that released the periods: number, failures, send lateness.
fn sent(sent: &ReleaseSignalCounts) -> String {
    let late = sent.lateness_ns.as_ref().map_or_else(String::new, |late| {
        format!(", {} late (p99), {} max", human_ns(late.p99), human_ns(late.max))
    });
    let packets = full_count(sent.packets);
    match sent.failed {
        0 => format!("{packets} release packets sent{late}."),
        failed => format!("{packets} release packets sent{late}; {} failed.", full_count(failed)),
    }
}

fn cost(task: &CycleTaskResult) -> String {
    let own = format!("measurement overhead {} per period", human_ns(task.cost.period_ns));
    match (task.unit_ns, task.units) {
        (Some(unit_ns), Some(units)) if units > 0 => {
            format!("{} units of {:.0} ns undisturbed, {own}", full_count(units), unit_ns)
        }
        _ => own,
    }
}

/// Returns a phrase on the cores of the first node's task with index `at` if the runs compare
/// scheduling policies; otherwise `None`. Under `deadline` the kernel does not pin tasks to cores.
fn compared(result: &CycleResult, at: usize) -> Option<String> {
    result.runs.iter().any(|run| run.policy.is_some()).then(|| {
        let tasks = result.runs.iter().filter_map(|run| run.nodes.first()?.tasks.get(at));
        let mut all = tasks.map(|task| (task.scheduling.requested, task.scheduling.core));
        let is_free = |(policy, core): (TaskSchedulingPolicy, Option<usize>)| {
            policy == TaskSchedulingPolicy::Deadline && core.is_none()
        };
        let free = if all.clone().any(is_free) { " (deadline on any)" } else { "" };
        let tied = all.find_map(|(_, core)| core);
        let on = |core| format!(" on core {core}{free}");
        format!("policies compared{}", tied.map_or_else(String::new, on))
    })
}

fn scheduling(scheduling: &TaskSchedulingOutcome) -> String {
    let TaskSchedulingOutcome { policy, priority, core, error, .. } = scheduling;
    let core = core.map_or_else(String::new, |core| format!(" on core {core}"));
    let name = match policy {
        TaskSchedulingPolicy::Fifo => "SCHED_FIFO",
        TaskSchedulingPolicy::Rr => "SCHED_RR",
        TaskSchedulingPolicy::Other => "SCHED_OTHER",
        TaskSchedulingPolicy::Deadline => "SCHED_DEADLINE",
    };
    let priority =
        if policy.has_priority() { format!(" at priority {priority}") } else { String::new() };
    let refused = if error.is_some() { " (requested policy refused)" } else { "" };
    format!("{name}{priority}{core}{refused}")
}

/// Returns the joint results of several nodes, in sentences.
fn cross_node_sentences(result: &CycleResult) -> Vec<String> {
    let of_run = |run: &CycleConfigurationResult| -> Vec<String> {
        run.shared.iter().map(|shared| balance(run, shared)).collect()
    };
    let balances = result.runs.iter().flat_map(of_run);
    let served = rows(result).into_iter().filter_map(|row| served(&row, result));
    let speedups = result.speedups.iter().map(|one| {
        format!(
            "{}{} {}: a period of {} takes {}, speed-up {:.2}, efficiency {}.",
            one.policy.map_or_else(String::new, |policy| format!("{}, ", policy.name())),
            one.nodes,
            if one.nodes == 1 { "node" } else { "nodes" },
            one.task,
            mean_ns(one.span_ns),
            one.speedup,
            percent(Some(one.efficiency))
        )
    });
    let nodes = result.runs.iter().flat_map(|run| &run.nodes);
    let states = rows(result).into_iter().flat_map(|row| states(&row, result));
    let unmet = rows(result).into_iter().filter_map(|row| unmet(&row, result));
    balances
        .chain(unmet)
        .chain(served)
        .chain(states)
        .chain(speedups)
        .chain(nodes.filter_map(clock))
        .collect()
}

/// Returns a sentence on the largest measured clock offset of a node; `None` without measurements.
fn clock(node: &CycleNodeResult) -> Option<String> {
    let furthest = node.clocks.iter().max_by_key(|clock| clock.ahead_ns.unsigned_abs())?;
    let count = node.clocks.len();
    Some(format!(
        "Clock of {}: {} ahead of the first node's, ± {}; largest of {count} {}.",
        node.name,
        signed_ns(furthest.ahead_ns),
        human_ns(furthest.error_ns),
        if count == 1 { "measurement" } else { "measurements" }
    ))
}

fn balance(run: &CycleConfigurationResult, shared: &CycleSharedTaskResult) -> String {
    let policy = run.policy.map_or_else(String::new, |policy| format!("{}, ", policy.name()));
    let most = (0..).zip(&shared.straggler_periods).max_by_key(|(_, times)| **times);
    let awaited = most.filter(|(_, times)| **times > 0).and_then(|(node, times)| {
        let name = &run.nodes.get(node)?.name;
        let share = percent(Some(*times as f64 / shared.periods as f64));
        let waited = mean_ns(shared.waited_ns);
        Some(format!("; straggler {name} in {share} of the periods, mean wait {waited}"))
    });
    format!(
        "{policy}{} nodes, task {}: the largest computation is {} above the mean{}. A period \
         takes {} from the first start to the last end; equation (2) gives {}.",
        run.nodes.len(),
        shared.task,
        percent(Some(shared.imbalance)),
        awaited.unwrap_or_default(),
        mean_ns(shared.span_ns),
        mean_ns(shared.predicted_ns)
    )
}

/// Returns a sentence on missing messages and abandoned barriers of a task; `None` if there were
/// none.
fn unmet(row: &NodeTaskRow<'_>, result: &CycleResult) -> Option<String> {
    let counted = |count: u64, one: &str, more: &str| {
        (count > 0)
            .then(|| format!("{} {}", full_count(count), if count == 1 { one } else { more }))
    };
    let (missing, broken) = (row.task.messages_missing, row.task.barriers_broken);
    let phrases: Vec<String> = [
        counted(
            missing,
            "message from another node missing",
            "messages from other nodes \
            missing",
        ),
        counted(broken, "barrier abandoned", "barriers abandoned"),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!phrases.is_empty()).then(|| format!("{}: {}.", row.name(result), phrases.join(", ")))
}

/// Returns the results of the periods of each state.
fn states(row: &NodeTaskRow<'_>, result: &CycleResult) -> Vec<String> {
    let sentence = |state: &ProgramStateResult| {
        let times = state.execution_ns.as_ref().zip(state.response_ns.as_ref());
        let times = times.map_or_else(String::new, |(execution, response)| {
            let (mean, most) = (mean_ns(execution.mean), human_ns(response.max));
            format!(", mean exec {mean}, max response {most}")
        });
        format!(
            "{}, {}: {} periods{times}; {} missed.",
            row.name(result),
            state.name,
            full_count(state.periods),
            full_count(state.missed)
        )
    };
    row.task.states.iter().map(sentence).collect()
}

fn served(row: &NodeTaskRow<'_>, result: &CycleResult) -> Option<String> {
    let served = row.task.served.as_ref()?;
    let response = served.response_ns.as_ref().map_or_else(String::new, |one| {
        format!(", response {} mean, {} max", mean_ns(one.mean), human_ns(one.max))
    });
    Some(format!(
        "{}: {} events{response}; backlog {} max, {} at the end.",
        row.name(result),
        full_count(served.events),
        full_count(served.backlog_max),
        full_count(served.backlog)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;

    #[test]
    fn missing_messages_and_abandoned_barriers_are_reported_per_task() {
        let mut result: CycleResult = fixture::sample("cycle");
        for task in result.runs.iter_mut().flat_map(|run| &mut run.nodes).flat_map(|n| &mut n.tasks)
        {
            (task.messages_missing, task.barriers_broken) = (0, 0);
        }
        let vain = |result: &CycleResult| {
            cross_node_sentences(result)
                .into_iter()
                .filter(|line| line.contains("missing"))
                .collect()
        };
        assert_eq!(vain(&result), Vec::<String>::new());
        let task = &mut result.runs[0].nodes[1].tasks[0];
        (task.messages_missing, task.barriers_broken) = (1_200, 1);
        let sentences: Vec<String> = vain(&result);
        assert_eq!(sentences.len(), 1, "{sentences:?}");
        let wanted = ": 1,200 messages from other nodes missing, 1 barrier abandoned.";
        assert!(sentences[0].contains("node2") && sentences[0].ends_with(wanted), "{sentences:?}");
    }

    /// The kernel pins no `SCHED_DEADLINE` task to a core, so it stays unpinned unlike others.
    #[test]
    fn compared_policies_are_not_reported_as_one_and_an_unpinned_task_is_named() {
        let mut result: CycleResult = fixture::sample("cycle");
        assert!(!facts(&result)[0].contains("first run"), "{:?}", facts(&result));
        result.runs[0].policy = None;
        let sentences = facts(&result);
        assert!(sentences[0].contains("SCHED_FIFO at priority 80 on core 1"), "{sentences:?}");
        result.runs.push(result.runs[0].clone());
        for (run, policy) in
            result.runs.iter_mut().zip([TaskSchedulingPolicy::Deadline, TaskSchedulingPolicy::Fifo])
        {
            run.policy = Some(policy);
            let scheduling = &mut run.nodes[0].tasks[0].scheduling;
            scheduling.requested = policy;
            scheduling.core = (policy != TaskSchedulingPolicy::Deadline).then_some(1);
        }
        let sentences = facts(&result);
        assert!(
            sentences[0].contains("policies compared on core 1 (deadline on any); first run"),
            "{sentences:?}"
        );
        result.runs[1].nodes[0].tasks[0].scheduling.core = None;
        assert!(facts(&result)[0].contains("policies compared; first run"));
    }

    #[test]
    fn bars_fit_a_narrow_terminal() {
        let style = TableStyle { colour: false, width: 80 };
        let text = fixture::sample::<CycleResult>("cycle").text(&style);
        let bars: Vec<_> = text.lines().filter(|line| line.contains(" of the period, ")).collect();
        assert!(bars.len() > 1 && bars.iter().all(|bar| bar.chars().count() <= 80), "{text}");
        assert!(bars.iter().all(|bar| bar.contains('#')), "{text}");
    }

    #[test]
    fn a_run_without_periods_has_no_figures() {
        let mut result: CycleResult = fixture::sample("cycle");
        for task in result.runs.iter_mut().flat_map(|run| &mut run.nodes).flat_map(|n| &mut n.tasks)
        {
            (task.start_latency_ns, task.execution_ns, task.response_ns) = (None, None, None);
            (task.periods, task.served) = (0, None);
        }
        let text = result.text(&TableStyle { colour: false, width: 60 });
        assert!(!text.contains("NaN") && text.contains("- of the period"), "{text}");
    }
}
