//! Test of an application: states, faults, nodes, stages, sources, the search, and the scorecard.

use horolog_record::{
    CycleTestFaultResult, CycleTestNodeResult, CycleTestResult, CycleTestRunResult,
    CycleTestSearchResult, CycleTestStageTimes, CycleTestStateResult, Distribution, LimitUnit,
    ScorecardRow, SearchEndReason, SimulatedSourceResult,
};

use crate::document::{
    BlockContent, DescribeResult, DistributionSet, DocumentBlock, HeadlineMetric, NameColumn,
    NamedRow, NamedRowTable, ResultDocument, run_of,
};
use crate::host::conditions;
use crate::metrics::{Metric, MetricValue, NamedItems, judged_by_fields, known, of_items};
use crate::units::{ABSENT, count_of, full_count, human_ns, human_rate, mean_ns, percent};

/// Definitions of the metrics.
const METHOD: &str = "Missed: response longer than the deadline. Injected: counted by \
     the injector. Detections: counted by the nodes, which do not know the faults; a detection \
     counts for each fault that can have caused it. Detected: first injection to first detection. \
     Recovered: end of the fault to the first of the steady periods, in which every node ran \
     without a miss or detection.";

const STATES_ID: &str = "states";

/// Titles of [`state_cells`].
const STATES: [&str; 7] =
    ["periods", "missed", "resp p50", "resp p99", "resp max", "exec p99", "exec max"];
/// Titles of [`fault_cells`].
const FAULTS: [&str; 6] = ["at", "duration", "injected", "detections", "detected", "recovered"];
/// Titles of [`node_cells`].
const NODES: [&str; 7] = ["periods", "missed", "resp p99", "resp max", "compute", "comm", "idle"];
/// Titles of [`stage_rows`].
const STAGES: [&str; 4] = ["compute", "comm", "idle", "barrier"];
/// Titles of [`source_cells`].
const SOURCES: [&str; 6] = ["intended", "sent", "failed", "rate", "late p50", "late p99"];
/// Titles of [`trial_rows`].
const TRIALS: [&str; 4] = ["duration", "periods", "missed", "sent"];
/// Titles of [`score_cells`].
const SCORES: [&str; 4] = ["kind", "value", "share", "grade"];

/// Table rows: name and cells.
type NamedTextRows = Vec<(String, Vec<String>)>;

fn of(times: Option<&Distribution>, figure: fn(&Distribution) -> u64) -> String {
    times.map_or_else(|| ABSENT.to_owned(), |times| human_ns(figure(times)))
}

fn mean(times: Option<&Distribution>) -> String {
    times.map_or_else(|| ABSENT.to_owned(), |times| mean_ns(times.mean))
}

fn seconds(seconds: f64) -> String {
    let text = format!("{seconds:.3}");
    format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
}

impl DescribeResult for CycleTestResult {
    fn document(&self) -> ResultDocument<'_> {
        let mut blocks = vec![
            BlockContent::Title(heading(self)).under(""),
            BlockContent::Summary(sentences(self)).under("Summary"),
        ];
        blocks.extend(self.search.as_ref().and_then(|search| {
            let label = ("trials", "Runs of the search");
            block("Search", label, "load", &TRIALS, trial_rows(search))
        }));
        blocks.extend(self.run.iter().flat_map(tables));
        blocks.extend(block(
            "Scorecard",
            ("scorecard", "Scorecard"),
            "scorecard",
            &SCORES,
            score_rows(self),
        ));
        blocks.push(BlockContent::Remarks(score_sentences(self)).under("Scorecard"));
        ResultDocument {
            kind: "cycle test",
            heading: heading(self),
            lead: format!("started {}", self.started),
            headline: headline(self),
            blocks,
            method: METHOD,
            limits: &self.limits,
            findings: &self.findings,
            run: run_of!(self),
        }
    }

    fn metrics() -> Vec<Metric<Self>> {
        let faults = [
            Metric::value("detection", |fault: &CycleTestFaultResult| {
                attempt(fault, fault.detected.as_ref().map(|first| first.after_ns))
            })
            .limited(LimitUnit::Ns),
            Metric::value("recovery", |fault| attempt(fault, fault.recovered_after_ns))
                .limited(LimitUnit::Ns),
        ];
        let sources =
            Metric::times("lateness", |one: &SimulatedSourceResult| one.lateness_ns.as_ref());
        let load = Metric::value("load", |result: &Self| {
            known(result.search.as_ref(), |search| {
                MetricValue::found_rate(search.lower.unwrap_or(0.0), search.lower, search.upper)
            })
        });
        of_items(states_of, state_metrics())
            .chain(of_items(faults_of, faults))
            .chain(of_items(nodes_of, node_metrics()))
            .chain(of_items(sources_of, [sources.informational()]))
            .chain([load])
            .collect()
    }
}

judged_by_fields!(CycleTestResult);

fn state_metrics() -> Vec<Metric<CycleTestStateResult>> {
    let missed =
        Metric::ratio("missed", |state: &CycleTestStateResult| Some([state.missed, state.periods]));
    let response =
        Metric::times("response", |state: &CycleTestStateResult| state.response_ns.as_ref());
    let execution =
        Metric::times("execution", |state: &CycleTestStateResult| state.execution_ns.as_ref());
    [vec![missed.limited(LimitUnit::Ratio)], response.with_statistics("response-"), vec![execution]]
        .concat()
}

fn node_metrics() -> [Metric<CycleTestNodeResult>; 6] {
    [
        Metric::ratio("missed", |node: &CycleTestNodeResult| Some([node.missed, node.periods])),
        Metric::ratio("overrun", |node| Some([node.overrun, node.periods])),
        Metric::times("response", |node| node.response_ns.as_ref()),
        Metric::times("computation", |node| node.computation_ns.as_ref()),
        Metric::times("communication", |node| node.communication_ns.as_ref()),
        Metric::times("idle", |node| node.idle_ns.as_ref()),
    ]
}

fn states_of(result: &CycleTestResult) -> NamedItems<'_, CycleTestStateResult> {
    let states = result.run.iter().flat_map(|run| &run.states);
    states.map(|one| (format!("state '{}'", one.name), one)).collect()
}

fn faults_of(result: &CycleTestResult) -> NamedItems<'_, CycleTestFaultResult> {
    let whose = |fault: &CycleTestFaultResult| {
        fault.of.as_ref().map_or_else(String::new, |of| format!(" of {of}"))
    };
    let faults = result.run.iter().flat_map(|run| &run.faults);
    faults.map(|one| (format!("fault {}{}", one.kind.name(), whose(one)), one)).collect()
}

fn nodes_of(result: &CycleTestResult) -> NamedItems<'_, CycleTestNodeResult> {
    let nodes = result.run.iter().flat_map(|run| &run.nodes);
    nodes.map(|one| (one.name.clone(), one)).collect()
}

fn sources_of(result: &CycleTestResult) -> NamedItems<'_, SimulatedSourceResult> {
    let sources = result.run.iter().flat_map(|run| &run.sources);
    sources.map(|one| (one.name.clone(), one)).collect()
}

/// Returns the time after a fault; it has none if it was not injected, and failed if it was.
fn attempt(fault: &CycleTestFaultResult, after_ns: Option<u64>) -> MetricValue<'static> {
    match after_ns {
        None if fault.injected == 0 => MetricValue::NotMeasured,
        after_ns => MetricValue::attempt(after_ns.map(|ns| ns as f64)),
    }
}

/// Returns the highest load without misses, or the misses of a single run, as headline.
fn headline(result: &CycleTestResult) -> HeadlineMetric {
    if let Some(search) = &result.search {
        return HeadlineMetric {
            name: "Largest load without a miss".to_owned(),
            value: search.lower.map(factor),
            sentence: heading(result),
        };
    }
    let nodes = result.run.iter().flat_map(|run| &run.nodes);
    let (missed, periods) = nodes.fold((0_u64, 0_u64), |(missed, periods), node| {
        (missed.saturating_add(node.missed), periods.saturating_add(node.periods))
    });
    HeadlineMetric {
        name: "Deadlines missed".to_owned(),
        value: (periods > 0).then(|| count_of(missed, periods)),
        sentence: heading(result),
    }
}

/// Returns the tables of a run, and the response times by state.
fn tables(run: &CycleTestRunResult) -> Vec<DocumentBlock<'_>> {
    let tables = [
        block("States", (STATES_ID, "Periods by state"), "state", &STATES, state_rows(run)),
        Some(BlockContent::Distributions(responses(run)).under("States")),
        block("Faults", ("faults", "Injected faults"), "fault", &FAULTS, fault_rows(run)),
        block("Nodes", ("nodes", "Nodes"), "node", &NODES, node_rows(run)),
        block("Stages", ("stages", "Stages, means per period"), "stage", &STAGES, stage_rows(run)),
        block("Sources", ("sources", "Sources of reports"), "source", &SOURCES, source_rows(run)),
    ];
    tables.into_iter().flatten().collect()
}

/// Returns a block with a table under its heading; `None` without rows.
fn block<'a>(
    heading: &'static str,
    (id, label): (&'static str, &'static str),
    name: &'static str,
    titles: &[&'static str],
    rows: NamedTextRows,
) -> Option<DocumentBlock<'a>> {
    if rows.is_empty() {
        return None;
    }
    let names = if name == "scorecard" {
        NameColumn::words(name, 36).titled("scale")
    } else {
        NameColumn::words(name, 20).titled(name)
    };
    let width = |title| if title == "grade" { 12 } else { 10 };
    let table = NamedRowTable {
        id,
        label,
        names: names.or(name, 12),
        columns: titles.iter().map(|title| ((*title).into(), width(*title))).collect(),
        rows: NamedRow::list(rows),
    };
    Some(BlockContent::Table(table).under(heading))
}

fn responses(run: &CycleTestRunResult) -> DistributionSet<'_> {
    let states = run.states.iter();
    DistributionSet {
        quantity: "response by state",
        entries: states
            .filter_map(|one| Some((one.name.clone(), one.response_ns.as_ref()?)))
            .collect(),
        histogram: None,
        percentiles: Some(("response", "Response time percentiles by state")),
        described_by: STATES_ID,
    }
}

/// Returns a row for each state.
fn state_rows(run: &CycleTestRunResult) -> NamedTextRows {
    run.states.iter().map(|state| (state.name.clone(), state_cells(state).to_vec())).collect()
}

fn state_cells(state: &CycleTestStateResult) -> [String; 7] {
    let (response, execution) = (state.response_ns.as_ref(), state.execution_ns.as_ref());
    [
        full_count(state.periods),
        full_count(state.missed),
        of(response, |times| times.p50),
        of(response, |times| times.p99),
        of(response, |times| times.max),
        of(execution, |times| times.p99),
        of(execution, |times| times.max),
    ]
}

/// Returns a row for each fault.
fn fault_rows(run: &CycleTestRunResult) -> NamedTextRows {
    run.faults.iter().map(|fault| (fault_name(fault), fault_cells(fault).to_vec())).collect()
}

/// Returns the name of a fault, such as `lost radar`.
#[must_use]
pub fn fault_name(fault: &CycleTestFaultResult) -> String {
    let kind = fault.kind.name();
    fault.of.as_ref().map_or_else(|| kind.to_owned(), |of| format!("{kind} {of}"))
}

fn fault_cells(fault: &CycleTestFaultResult) -> [String; 6] {
    let detected = fault.detected.as_ref();
    [
        seconds(fault.at_s),
        fault.duration_s.map_or_else(|| ABSENT.to_owned(), seconds),
        full_count(fault.injected),
        full_count(fault.detections.iter().map(|one| one.count).sum()),
        detected.map_or_else(|| ABSENT.to_owned(), |first| human_ns(first.after_ns)),
        fault
            .recovered_after_ns
            .map_or_else(|| if fault.injected > 0 { "never" } else { ABSENT }.to_owned(), human_ns),
    ]
}

/// Returns a row for each node.
fn node_rows(run: &CycleTestRunResult) -> NamedTextRows {
    run.nodes.iter().map(|node| (node.name.clone(), node_cells(node).to_vec())).collect()
}

fn node_cells(node: &CycleTestNodeResult) -> [String; 7] {
    let response = node.response_ns.as_ref();
    [
        full_count(node.periods),
        full_count(node.missed),
        of(response, |times| times.p99),
        of(response, |times| times.max),
        mean(node.computation_ns.as_ref()),
        mean(node.communication_ns.as_ref()),
        mean(node.idle_ns.as_ref()),
    ]
}

/// Returns a row for each stage.
fn stage_rows(run: &CycleTestRunResult) -> NamedTextRows {
    let cells = |stage: &CycleTestStageTimes| {
        [stage.computation_ns, stage.communication_ns, stage.idle_ns, stage.barrier_ns]
            .map(mean_ns)
            .to_vec()
    };
    run.stages.iter().map(|stage| (stage.name.clone(), cells(stage))).collect()
}

/// Returns a row for each source.
fn source_rows(run: &CycleTestRunResult) -> NamedTextRows {
    run.sources.iter().map(|source| (source.name.clone(), source_cells(source).to_vec())).collect()
}

fn source_cells(source: &SimulatedSourceResult) -> [String; 6] {
    let lateness = source.lateness_ns.as_ref();
    [
        full_count(source.due),
        full_count(source.sent),
        full_count(source.send_failed),
        human_rate(source.rate),
        of(lateness, |times| times.p50),
        of(lateness, |times| times.p99),
    ]
}

/// Returns a row for each run of a search.
fn trial_rows(search: &CycleTestSearchResult) -> NamedTextRows {
    let row = |trial: &horolog_record::CycleTestTrial| {
        let cells = vec![
            seconds(trial.duration_s),
            full_count(trial.planned),
            full_count(trial.missed),
            percent(trial.sent_ratio),
        ];
        (factor(trial.load), cells)
    };
    search.trials.iter().map(row).collect()
}

/// Formats a load factor with three decimals, such as `1.250`.
fn factor(load: f64) -> String {
    if load.is_finite() { format!("{load:.3}") } else { ABSENT.to_owned() }
}

/// Returns a row for each line of the scorecard.
fn score_rows(result: &CycleTestResult) -> NamedTextRows {
    let name = |score: &ScorecardRow| format!("{}: {}", score.scale.part(), score.scale.name());
    result.scorecard.iter().map(|score| (name(score), score_cells(score).to_vec())).collect()
}

fn score_cells(score: &ScorecardRow) -> [String; 4] {
    let kind = if score.scale.is_quantity() { "quantity" } else { "quality" };
    let ratio = score.ratio.map(|ratio| format!("{ratio:.2}"));
    let figure = score.value_ns.map(mean_ns).or(ratio);
    [
        kind.to_owned(),
        figure.unwrap_or_else(|| ABSENT.to_owned()),
        score.share.map_or_else(|| ABSENT.to_owned(), percent),
        score.grade.map_or("not measured", |grade| grade.name()).to_owned(),
    ]
}

/// Returns sentences that explain the values and grades of the scorecard.
fn score_sentences(result: &CycleTestResult) -> Vec<String> {
    let measured = result
        .scorecard
        .iter()
        .map(|score| format!("{}: {}.", score.scale.name(), score.basis.trim_end_matches('.')));
    let scale = |is_quantity: bool, of: &str, rows: &str| {
        let bounds = result.scorecard.iter().find(|score| score.scale.is_quantity() == is_quantity);
        bounds.map(|score| {
            let [excellent, good, fair] = score.bounds.map(percent);
            format!(
                "Scale of {rows}: {of}; up to {excellent} excellent, {good} good, {fair} fair, \
                 above poor."
            )
        })
    };
    let scales = [
        scale(true, "share of the deadline", "quantities"),
        scale(false, "ratio of other time to computation", "qualities"),
    ];
    measured.chain(scales.into_iter().flatten()).collect()
}

/// Returns the heading: the application and the outcome.
fn heading(result: &CycleTestResult) -> String {
    let name = &result.application.name;
    if let Some(search) = &result.search {
        let found = search
            .lower
            .map_or_else(|| "no load".to_owned(), |load| format!("load {}", factor(load)));
        return format!("{name}: {found} without a miss");
    }
    let Some(run) = &result.run else { return format!("{name}: no run") };
    let (missed, periods) = run
        .nodes
        .iter()
        .fold((0, 0), |(missed, periods), node| (missed + node.missed, periods + node.periods));
    let injected = run.faults.iter().filter(|fault| fault.injected > 0).count();
    let recovered =
        run.faults.iter().filter(|fault| fault.injected > 0 && fault.has_recovered()).count();
    let faults = if injected > 0 {
        format!(", recovered from {recovered} of {injected} faults")
    } else {
        String::new()
    };
    format!("{name}: {} of {} deadlines missed{faults}", full_count(missed), full_count(periods))
}

/// Returns sentences on the test and its results.
fn sentences(result: &CycleTestResult) -> Vec<String> {
    let application = &result.application;
    let count = |count: u16, one: &str, more: &str| {
        format!("{count} {}", if count == 1 { one } else { more })
    };
    let load = result.run.as_ref().map_or_else(String::new, |run| {
        format!(", load {}, {}", factor(run.load), seconds(run.elapsed_s))
    });
    let mut lines = vec![format!(
        "{}: {}, period {}, deadline {}{load}.",
        application.name,
        count(application.nodes, "node", "nodes"),
        human_ns(application.period_ns),
        human_ns(application.deadline_ns),
    )];
    lines.extend(result.search.as_ref().map(found));
    let Some(run) = &result.run else { return lines };
    if run.faults.iter().any(|fault| fault.injected > 0) {
        lines.push(format!(
            "Recovery takes {} consecutive steady periods.",
            full_count(application.steady.into())
        ));
    }
    lines.extend(run.faults.iter().filter_map(detection_sentence));
    lines.push(conditions(&run.conditions));
    lines
}

fn found(search: &CycleTestSearchResult) -> String {
    let lower = search.lower.map_or_else(
        || "No load without a miss".to_owned(),
        |load| format!("Largest load without a miss {}", factor(load)),
    );
    let upper = search.upper.map_or_else(
        || "none with misses".to_owned(),
        |load| format!("smallest with misses {}", factor(load)),
    );
    let end = match search.end {
        SearchEndReason::Converged => "search width reached",
        SearchEndReason::CappedAtMax => "end of the search range",
        SearchEndReason::BelowMin => "the smallest load misses",
        SearchEndReason::GeneratorLimit => "source limit reached",
        SearchEndReason::BudgetSpent => "time or runs exhausted",
    };
    format!(
        "{lower}, {upper}: {end}, in {} {}.",
        search.trials.len(),
        if search.trials.len() == 1 { "run" } else { "runs" }
    )
}

/// Returns a sentence on the detections of a fault and the nodes that made them; `None` without
/// any.
fn detection_sentence(fault: &CycleTestFaultResult) -> Option<String> {
    let first = fault.detected.as_ref()?;
    let noticed: Vec<String> = fault
        .detections
        .iter()
        .map(|one| format!("{} {}", full_count(one.count), one.kind.name()))
        .collect();
    // Detections that turned out to be false alarms are not counted.
    let is_counted = fault.detections.iter().any(|one| one.kind == first.kind);
    let undone = if is_counted { "" } else { ", a false alarm" };
    let all =
        if noticed.is_empty() { "no other detections".to_owned() } else { noticed.join(", ") };
    let state = fault.state.as_ref().map_or_else(String::new, |state| format!(" ({state})"));
    Some(format!(
        "{} at {}{state}: first detected by {} as {}{undone}; total {all}.",
        fault_name(fault),
        seconds(fault.at_s),
        first.by,
        first.kind.name()
    ))
}

#[cfg(test)]
mod tests {
    use horolog_record::{CycleTestDetectionKind, CycleTestFirstDetection, DetectionCount};

    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;
    use crate::table::TableStyle;

    /// A message that a stopped node sends late is no longer missing, but was detected as missing.
    #[test]
    fn a_refuted_first_detection_is_reported_as_a_false_alarm() {
        let mut fault =
            fixture::sample::<CycleTestResult>("cycle_test").run.unwrap().faults.swap_remove(0);
        let (by, after_ns) = ("node1".to_owned(), 1_000);
        fault.detected = Some(CycleTestFirstDetection {
            after_ns,
            by,
            kind: CycleTestDetectionKind::MessageMissing,
        });
        let count = |kind, count| DetectionCount { kind, count };
        fault.detections = vec![
            count(CycleTestDetectionKind::NodeTimeout, 2),
            count(CycleTestDetectionKind::DeadlineMissed, 5),
        ];
        let line = detection_sentence(&fault).unwrap();
        assert!(line.contains("as message missing, a false alarm; total 2 "), "{line}");
        assert_eq!(fault_cells(&fault)[3], "7");
        fault.detections.push(count(CycleTestDetectionKind::MessageMissing, 1));
        assert!(!detection_sentence(&fault).unwrap().contains("false alarm"));
        fault.detections.clear();
        assert!(detection_sentence(&fault).unwrap().ends_with("total no other detections."));
    }

    #[test]
    fn a_search_reports_a_missing_bound() {
        let mut search = fixture::sample::<CycleTestResult>("cycle_test").search.unwrap();
        (search.lower, search.upper) = (Some(16.0), None);
        search.trials.truncate(1);
        assert!(
            found(&search).starts_with("Largest load without a miss 16.000, none with misses: ")
        );
        assert!(found(&search).ends_with("in 1 run."));
        (search.lower, search.upper) = (None, Some(0.25));
        let wanted = "No load without a miss, smallest with misses 0.250: ";
        assert!(found(&search).starts_with(wanted));
    }

    #[test]
    fn nothing_at_all_is_no_error_and_a_search_is_reported() {
        let mut result: CycleTestResult = fixture::sample("cycle_test");
        let text = result.text(&TableStyle::default());
        assert!(text.starts_with("command and control: load 1.250 without a miss"), "{text}");
        assert!(text.contains("Largest load without a miss 1.250, smallest with misses"));
        result.search = None;
        let text = result.text(&TableStyle::default());
        let counts =
            "command and control: 15 of 680 deadlines missed, recovered from 1 of 2 faults";
        assert!(text.starts_with(counts), "{text}");
        result.run = None;
        result.scorecard.clear();
        let text = result.text(&TableStyle::default());
        assert!(text.starts_with("command and control: no run") && !text.contains("NaN"), "{text}");
    }
}
