//! `horolog cycle test`: a test file, or the sample, to a test of an application, its result as
//! text, JSON and HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

mod live;
mod node;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_cycle::application::{
    self, FILE_MAX, NODES_MAX, SAMPLE_TEST_FILE, SearchOptions, TestError, TestObserver,
    TestOptions, TestPlan, TestSnapshot,
};
use horolog_record::{
    CycleTestFault, CycleTestResult, CycleTestRun, Distribution, LimitResult, LimitUnit,
};
use horolog_report::{RenderResult, to_json};
use live::CycleTestLiveView;

use super::predict::input;
use crate::failure::{CommandFailure, verdict};
use crate::files::FileArgs;
use crate::limit::{Limit, LimitedMetric, MAX, MEAN, P99, TimeOf};
use crate::live::needs_a_terminal_on_stderr;
use crate::output::{self, ProgressLine};
use crate::values;

pub(super) use node::{ApplicationNodeArgs, run as run_node};

/// Test an application of several stages, sources and nodes with injected faults.
///
/// A FILE (TOML) defines the work of the application in each period and its policy (fifo, rr or
/// other), the sources that send it input messages (reports), the states of the run, and the
/// injected faults: damaged, lost and late reports, lost and late messages between nodes, a node
/// that stops, ends or is slow. Without one, a small command-and-control application is tested;
/// --example prints its file.
///
/// Each node is a separate process on this host. Reports are datagrams that a generator really
/// sends. Injected faults are counted where they are injected; nodes are not informed of them and
/// must detect them. The result has the periods by state, and for each fault the time to its
/// detection and the recovery time from its end. With --search, the largest load without a missed
/// deadline is searched for, without faults. The scorecard is that of Hao, Xue and Qin 2010, Table
/// 2.
#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct TestArgs {
    /// Test file [default: the sample].
    file: Option<PathBuf>,
    /// Print the sample file, as a starting point, and exit.
    #[arg(long, exclusive = true)]
    example: bool,
    /// Number of nodes, overriding the file.
    #[arg(short, long, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=i64::from(NODES_MAX)))]
    nodes: Option<u16>,
    /// Duration of the run, overriding the file.
    #[arg(short, long, value_name = "TIME", value_parser = values::long_duration,
          conflicts_with = "search")]
    time: Option<Duration>,
    /// Multiply the sources' rates and the fixed computation of the stages.
    #[arg(short, long, value_name = "FACTOR", value_parser = factor, default_value = "1",
          conflicts_with = "search")]
    load: f64,
    /// Search for the largest load at which no deadline is missed.
    #[arg(long)]
    search: bool,
    /// Range of loads to search, such as 0.5-8.
    #[arg(long, value_name = "LOW-HIGH", value_parser = range, default_value = "0.25-16",
          requires = "search")]
    search_range: (f64, f64),
    /// Relative width at which the search ends.
    #[arg(long, value_name = "RATIO", value_parser = values::ratio, default_value = "5%",
          requires = "search")]
    search_width: f64,
    /// Duration of each trial of the search.
    #[arg(long, value_name = "TIME", value_parser = values::long_duration, default_value = "2s",
          requires = "search")]
    trial_time: Duration,
    /// Exit with status 1 if the load found is less than this.
    #[arg(long, value_name = "FACTOR", value_parser = factor, requires = "search")]
    load_min: Option<f64>,
    /// Result (JSON) of 'host switch', 'host interrupt' or 'host all' for the scorecard.
    /// Repeatable.
    #[arg(long, value_name = "FILE")]
    measured: Vec<PathBuf>,
    /// Leave the CPU's idle states (C-states) enabled, instead of disabling all but polling
    /// (/dev/cpu_dma_latency).
    #[arg(long)]
    allow_idle_states: bool,
    /// Exit with status 1 if this expression is true, such as 'missed>1%' or 'recovery>500ms'.
    /// Repeatable. A limit fails if its metric was not measured, or a fault was not detected or
    /// recovered from.
    ///
    /// Metrics: missed (a share) and response with -mean, -p99, -p99.9 and -max, of any state;
    /// detection and recovery of any fault.
    #[arg(long, value_name = "LIMIT", value_parser = |text: &str| Limit::parse(text, FIGURES))]
    fail_if: Vec<Limit<CycleTestMetric>>,
    /// Show the nodes and faults on the terminal during the test.
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    files: FileArgs,
}

/// Metric that can be limited.
#[derive(Clone, Copy, Debug)]
enum CycleTestMetric {
    Missed,
    Response(TimeOf),
    Detection,
    Recovery,
}

const FIGURES: [LimitedMetric<CycleTestMetric>; 7] = [
    ("missed", LimitUnit::Ratio, CycleTestMetric::Missed),
    ("response-mean", LimitUnit::Ns, CycleTestMetric::Response(MEAN)),
    ("response-p99", LimitUnit::Ns, CycleTestMetric::Response(P99)),
    ("response-p99.9", LimitUnit::Ns, CycleTestMetric::Response(P99_9)),
    ("response-max", LimitUnit::Ns, CycleTestMetric::Response(MAX)),
    ("detection", LimitUnit::Ns, CycleTestMetric::Detection),
    ("recovery", LimitUnit::Ns, CycleTestMetric::Recovery),
];
const P99_9: TimeOf = |times: &Distribution| times.p99_9 as f64;

/// Arguments that start a node.
const WORDS: [&str; 2] = ["cycle", "application-node"];

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (0.001..=1_000.0).contains(factor));
    factor.ok_or_else(|| "expected a factor from 0.001 to 1000, such as 1.5".to_owned())
}

fn range(text: &str) -> Result<(f64, f64), String> {
    let form = || "expected LOW-HIGH, such as 0.5-8".to_owned();
    let (low, high) = text.split_once('-').ok_or_else(form)?;
    let (low, high) = (factor(low).map_err(|_| form())?, factor(high).map_err(|_| form())?);
    if low < high { Ok((low, high)) } else { Err(form()) }
}

pub(super) fn run(args: &TestArgs) -> Result<(), CommandFailure> {
    if args.example {
        return output::line(SAMPLE_TEST_FILE.trim_end());
    }
    if args.live {
        needs_a_terminal_on_stderr()?;
    }
    let plan = plan(args)?;
    let mut measured = Vec::new();
    for path in &args.measured {
        measured.extend(input::costs(path)?);
    }
    let files = args.files.open()?;
    output::install_interrupt_handler()?;
    let (from, to) = args.search_range;
    let search = SearchOptions { from, to, width: args.search_width, trial: args.trial_time };
    let options = TestOptions {
        program: PathBuf::from("/proc/self/exe"),
        arguments: WORDS.map(str::to_owned).to_vec(),
        plan,
        load: args.load,
        search: args.search.then_some(search),
        hold_awake: !args.allow_idle_states,
        measured,
        command: output::command_line(),
    };
    let mut watcher = CycleTestReporter::new(args.live)?;
    let tested = application::test(&options, &mut watcher);
    watcher.finish();
    let mut result = tested?;
    let judge = |limit: &Limit<CycleTestMetric>| limit.judge_named(figures(&result, limit.metric));
    let mut limits: Vec<LimitResult> = args.fail_if.iter().map(judge).collect();
    limits.extend(args.load_min.map(|least| least_load(&result, least)));
    result.limits = limits;
    files.write(&result, [to_json, RenderResult::page], RenderResult::text)?;
    verdict(&result.limits, &result.findings)
}

/// The test according to the file and the flags.
fn plan(args: &TestArgs) -> Result<TestPlan, CommandFailure> {
    let (name, text) = match &args.file {
        None => ("the sample".to_owned(), SAMPLE_TEST_FILE.to_owned()),
        Some(path) => (path.display().to_string(), input::text(path, FILE_MAX)?),
    };
    let wrong = |why: String| CommandFailure::usage(format!("{name}: {why}"));
    let time_ns = args.time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let plan = TestPlan::parse_with(&text, args.nodes, time_ns);
    let plan = plan.map_err(|fault| wrong(fault.to_string()))?;
    if !plan.cores.is_empty() {
        horolog_cycle::select_cores(&plan.cores).map_err(|error| wrong(error.to_string()))?;
    }
    Ok(plan)
}

/// The values of a limited metric, each with its name.
fn figures(result: &CycleTestResult, figure: CycleTestMetric) -> Vec<(String, Option<f64>)> {
    let Some(run) = &result.run else { return Vec::new() };
    match figure {
        CycleTestMetric::Missed => of_states(run, |state| {
            (state.periods > 0).then(|| state.missed as f64 / state.periods as f64)
        }),
        CycleTestMetric::Response(figure) => {
            of_states(run, |state| state.response_ns.as_ref().map(figure))
        }
        CycleTestMetric::Detection => {
            of_faults(run, |fault| fault.detected.as_ref().map(|first| first.after_ns as f64))
        }
        CycleTestMetric::Recovery => {
            of_faults(run, |fault| fault.recovered_after_ns.map(|ns| ns as f64))
        }
    }
}

fn of_states(
    run: &CycleTestRun,
    of: impl Fn(&horolog_record::CycleTestStateCounts) -> Option<f64>,
) -> Vec<(String, Option<f64>)> {
    run.states.iter().map(|state| (format!("state '{}'", state.name), of(state))).collect()
}

fn of_faults(
    run: &CycleTestRun,
    of: impl Fn(&CycleTestFault) -> Option<f64>,
) -> Vec<(String, Option<f64>)> {
    let named = |fault: &CycleTestFault| {
        let whose = fault.of.as_ref().map_or_else(String::new, |of| format!(" of {of}"));
        (format!("fault {}{whose}", fault.kind.name()), of(fault))
    };
    run.faults.iter().map(named).collect()
}

/// Evaluates a search's result against the required minimum.
fn least_load(result: &CycleTestResult, least: f64) -> LimitResult {
    let found = result.search.as_ref().and_then(|search| search.lower);
    LimitResult {
        expression: format!("load<{least}"),
        unit: LimitUnit::Factor,
        bound: least,
        value: found,
        trial: None,
        scope: Some("the largest load without a miss".to_owned()),
        failed: found.is_none_or(|found| found < least),
    }
}

impl From<TestError> for CommandFailure {
    fn from(error: TestError) -> Self {
        match error {
            TestError::Search(_) | TestError::TrialTooShort { .. } => Self::usage(error),
            error => Self::environment(error),
        }
    }
}

/// Observer of a test.
enum CycleTestReporter {
    /// The progress line.
    Line(ProgressLine),
    /// A view that has the terminal.
    View(CycleTestLiveView),
}

impl CycleTestReporter {
    pub(super) fn new(live: bool) -> Result<Self, CommandFailure> {
        if live {
            CycleTestLiveView::start().map(Self::View)
        } else {
            Ok(Self::Line(ProgressLine::new()))
        }
    }

    /// Restores the terminal.
    pub(super) fn finish(self) {
        if let Self::Line(progress) = self {
            progress.finish();
        }
    }
}

impl TestObserver for CycleTestReporter {
    fn snapshot(&mut self, snapshot: &TestSnapshot<'_>) {
        match self {
            Self::Line(progress) => {
                let (elapsed, total) =
                    (snapshot.elapsed.as_secs_f64(), snapshot.total.as_secs_f64());
                progress.set_message(&format!("{}: {elapsed:.0} of {total:.0} s", snapshot.label));
            }
            Self::View(live) => live.snapshot(snapshot),
        }
    }

    fn is_stop_requested(&self) -> bool {
        output::flow().is_break()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_read() {
        assert_eq!(range("0.5-8"), Ok((0.5, 8.0)));
        for text in ["", "1", "2-1", "1-1", "0-1", "a-b", "1-1e9"] {
            assert!(range(text).is_err_and(|why| why.contains("0.5-8")), "{text}");
        }
        assert!(factor("0").is_err() && factor("nan").is_err() && factor("1.5") == Ok(1.5));
        assert!(Limit::parse("recovery>500ms", FIGURES).is_ok());
        assert!(Limit::parse("load<1", FIGURES).is_err());
    }
}
