//! What a test of an application comes to, in words and cells: the table and the page say it with
//! these.

use horolog_record::{
    CycleTestFault, CycleTestNode, CycleTestResult, CycleTestRun, CycleTestScore, CycleTestSearch,
    CycleTestSource, CycleTestStage, CycleTestState, Distribution, SearchEnd,
};

use crate::host::conditions;
use crate::units::{ABSENT, full_count, human_ns, human_rate, mean_ns, percent};

/// What the figures mean.
pub(crate) const METHOD: &str = "Missed: from the release to the end took longer than the deadline. \
     Injected is counted by who injects it, noticed by the nodes, which know nothing of it; what was \
     noticed counts for each fault that it may come of. Detected: from the first injection to the \
     first notice. Recovered: from the fault's end to the first of the steady periods, in which every \
     node ran and none missed or noticed anything.";

/// The titles of [`state_cells`].
pub(crate) const STATES: [&str; 7] =
    ["periods", "missed", "resp p50", "resp p99", "resp max", "exec p99", "exec max"];
/// The titles of [`fault_cells`].
pub(crate) const FAULTS: [&str; 6] = ["at", "for", "injected", "noticed", "detected", "recovered"];
/// The titles of [`node_cells`].
pub(crate) const NODES: [&str; 7] =
    ["periods", "missed", "resp p99", "resp max", "compute", "comm", "idle"];
/// The titles of [`stage_cells`].
pub(crate) const STAGES: [&str; 4] = ["compute", "comm", "idle", "barrier"];
/// The titles of [`source_cells`].
pub(crate) const SOURCES: [&str; 6] = ["due", "sent", "unsent", "rate", "late p50", "late p99"];
/// The titles of [`trial_rows`].
pub(crate) const TRIALS: [&str; 4] = ["for", "periods", "missed", "offered"];
/// The titles of [`score_cells`].
pub(crate) const SCORES: [&str; 4] = ["kind", "figure", "share", "grade"];

/// Rows of a table: a name, and cells.
pub(crate) type Rows = Vec<(String, Vec<String>)>;

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

/// A row for each state.
pub(crate) fn state_rows(run: &CycleTestRun) -> Rows {
    run.states.iter().map(|state| (state.name.clone(), state_cells(state).to_vec())).collect()
}

fn state_cells(state: &CycleTestState) -> [String; 7] {
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

/// A row for each fault.
pub(crate) fn fault_rows(run: &CycleTestRun) -> Rows {
    run.faults.iter().map(|fault| (fault_name(fault), fault_cells(fault).to_vec())).collect()
}

/// What a fault is called, such as `lost of radar`.
#[must_use]
pub fn fault_name(fault: &CycleTestFault) -> String {
    let kind = fault.kind.name();
    fault.of.as_ref().map_or_else(|| kind.to_owned(), |of| format!("{kind} {of}"))
}

fn fault_cells(fault: &CycleTestFault) -> [String; 6] {
    let detected = fault.detected.as_ref();
    [
        seconds(fault.at_s),
        fault.for_s.map_or_else(|| ABSENT.to_owned(), seconds),
        full_count(fault.injected),
        full_count(fault.noticed.iter().map(|one| one.count).sum()),
        detected.map_or_else(|| ABSENT.to_owned(), |first| human_ns(first.after_ns)),
        fault
            .recovered_after_ns
            .map_or_else(|| if fault.injected > 0 { "never" } else { ABSENT }.to_owned(), human_ns),
    ]
}

/// A row for each node.
pub(crate) fn node_rows(run: &CycleTestRun) -> Rows {
    run.nodes.iter().map(|node| (node.name.clone(), node_cells(node).to_vec())).collect()
}

fn node_cells(node: &CycleTestNode) -> [String; 7] {
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

/// A row for each stage.
pub(crate) fn stage_rows(run: &CycleTestRun) -> Rows {
    let cells = |stage: &CycleTestStage| {
        [stage.computation_ns, stage.communication_ns, stage.idle_ns, stage.barrier_ns]
            .map(mean_ns)
            .to_vec()
    };
    run.stages.iter().map(|stage| (stage.name.clone(), cells(stage))).collect()
}

/// A row for each source.
pub(crate) fn source_rows(run: &CycleTestRun) -> Rows {
    run.sources.iter().map(|source| (source.name.clone(), source_cells(source).to_vec())).collect()
}

fn source_cells(source: &CycleTestSource) -> [String; 6] {
    let lateness = source.lateness_ns.as_ref();
    [
        full_count(source.due),
        full_count(source.sent),
        full_count(source.unsent),
        human_rate(source.rate),
        of(lateness, |times| times.p50),
        of(lateness, |times| times.p99),
    ]
}

/// A row for each run of a search.
pub(crate) fn trial_rows(search: &CycleTestSearch) -> Rows {
    let row = |trial: &horolog_record::CycleTestTrial| {
        let cells = vec![
            seconds(trial.duration_s),
            full_count(trial.planned),
            full_count(trial.missed),
            percent(trial.offered),
        ];
        (factor(trial.load), cells)
    };
    search.trials.iter().map(row).collect()
}

/// A load, such as `1.25`.
pub(crate) fn factor(load: f64) -> String {
    if load.is_finite() { format!("{load:.3}") } else { ABSENT.to_owned() }
}

/// A row for each line of the scorecard.
pub(crate) fn score_rows(result: &CycleTestResult) -> Rows {
    let name = |score: &CycleTestScore| format!("{}: {}", score.scale.part(), score.scale.name());
    result.scorecard.iter().map(|score| (name(score), score_cells(score).to_vec())).collect()
}

fn score_cells(score: &CycleTestScore) -> [String; 4] {
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

/// What the scorecard's figures are, and its scale, a sentence each.
pub(crate) fn score_sentences(result: &CycleTestResult) -> Vec<String> {
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
        scale(true, "the share of the deadline", "quantities"),
        scale(false, "what is no computing, to computing", "qualities"),
    ];
    measured.chain(scales.into_iter().flatten()).collect()
}

/// What it is and how it went.
pub(crate) fn heading(result: &CycleTestResult) -> String {
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

/// What was tested and what came of it, a sentence each.
pub(crate) fn sentences(result: &CycleTestResult) -> Vec<String> {
    let application = &result.application;
    let count = |count: u16, one: &str, more: &str| {
        format!("{count} {}", if count == 1 { one } else { more })
    };
    let load = result.run.as_ref().map_or_else(String::new, |run| {
        format!(", load {}, {}", factor(run.load), seconds(run.elapsed_s))
    });
    let mut lines = vec![format!(
        "{}: {} every {}, to be done within {}{load}.",
        application.name,
        count(application.nodes, "node", "nodes"),
        human_ns(application.period_ns),
        human_ns(application.deadline_ns),
    )];
    lines.extend(result.search.as_ref().map(found));
    let Some(run) = &result.run else { return lines };
    if run.faults.iter().any(|fault| fault.injected > 0) {
        lines.push(format!(
            "All is well again after {} periods in a row.",
            full_count(application.steady.into())
        ));
    }
    lines.extend(run.faults.iter().filter_map(told));
    lines.push(conditions(&run.conditions));
    lines
}

fn found(search: &CycleTestSearch) -> String {
    let lower = search.lower.map_or_else(
        || "No load without a miss was found".to_owned(),
        |load| format!("The largest load without a miss is {}", factor(load)),
    );
    let upper = search.upper.map_or_else(
        || "none with misses was found".to_owned(),
        |load| format!("the least with misses {}", factor(load)),
    );
    let end = match search.end {
        SearchEnd::Converged => "as close as was asked",
        SearchEnd::CappedAtMax => "the largest that was to be tried",
        SearchEnd::BelowMin => "even the least that was to be tried misses",
        SearchEnd::GeneratorLimit => "the sources could send no more",
        SearchEnd::BudgetSpent => "time or runs were used up",
    };
    format!(
        "{lower}, {upper}: {end}, in {} {}.",
        search.trials.len(),
        if search.trials.len() == 1 { "run" } else { "runs" }
    )
}

/// What was noticed of a fault, and by whom.
fn told(fault: &CycleTestFault) -> Option<String> {
    let first = fault.detected.as_ref()?;
    let noticed: Vec<String> = fault
        .noticed
        .iter()
        .map(|one| format!("{} {}", full_count(one.count), one.kind.name()))
        .collect();
    // What was noticed and turned out to be nothing is no longer counted.
    let is_counted = fault.noticed.iter().any(|one| one.kind == first.kind);
    let undone = if is_counted { "" } else { ", which came after all" };
    let all = if noticed.is_empty() { "nothing else".to_owned() } else { noticed.join(", ") };
    let state = fault.state.as_ref().map_or_else(String::new, |state| format!(" ({state})"));
    Some(format!(
        "{} at {}{state}: first noticed by {} as {}{undone}; in all {all}.",
        fault_name(fault),
        seconds(fault.at_s),
        first.by,
        first.kind.name()
    ))
}

#[cfg(test)]
mod tests {
    use horolog_record::{CycleTestCount, CycleTestDetected, CycleTestNotice};

    use super::*;
    use crate::fixture;

    /// A message that a stopped node sends late is not missing any more, but was noticed as that.
    #[test]
    fn what_was_noticed_first_and_came_after_all_is_told_as_such() {
        let mut fault = fixture::cycle_test().run.unwrap().faults.swap_remove(0);
        let (by, after_ns) = ("node1".to_owned(), 1_000);
        fault.detected =
            Some(CycleTestDetected { after_ns, by, kind: CycleTestNotice::MessageMissing });
        let count = |kind, count| CycleTestCount { kind, count };
        fault.noticed =
            vec![count(CycleTestNotice::NodeSilent, 2), count(CycleTestNotice::DeadlineMissed, 5)];
        let line = told(&fault).unwrap();
        assert!(line.contains("as message missing, which came after all; in all 2 "), "{line}");
        assert_eq!(fault_cells(&fault)[3], "7");
        fault.noticed.push(count(CycleTestNotice::MessageMissing, 1));
        assert!(!told(&fault).unwrap().contains("after all"));
        fault.noticed.clear();
        assert!(told(&fault).unwrap().ends_with("in all nothing else."));
    }

    #[test]
    fn a_search_without_one_of_its_bounds_says_so() {
        let mut search = fixture::cycle_test_search();
        (search.lower, search.upper) = (Some(16.0), None);
        search.trials.truncate(1);
        assert!(found(&search).starts_with(
            "The largest load without a miss is 16.000, none with misses was found: "
        ));
        assert!(found(&search).ends_with("in 1 run."));
        (search.lower, search.upper) = (None, Some(0.25));
        let wanted = "No load without a miss was found, the least with misses 0.250: ";
        assert!(found(&search).starts_with(wanted));
    }
}
