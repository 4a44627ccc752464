//! `horolog cycle test`: a test file, or the sample, to a test of an application, its result as
//! text, JSON and page.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

mod live;
mod node;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_cycle::application::{
    self, FILE_MAX, NODES_MAX, Plan, SAMPLE, SearchOptions, TestError, TestOptions,
};
use horolog_record::{
    CycleTestFault, CycleTestResult, CycleTestRun, Distribution, LimitResult, LimitUnit,
};
use horolog_report::{html, table, to_json};

pub(super) use node::{ApplicationNodeArgs, run as run_node};

use self::watch::Watcher;
use super::predict::given;
use crate::failure::{Failure, verdict};
use crate::files::FileArgs;
use crate::limit::{Limit, Limited, MAX, MEAN, P99, TimeOf};
use crate::live::needs_a_terminal_beside;
use crate::output;
use crate::values;

/// Test an application of several stages, sources and nodes, with faults on purpose.
///
/// A FILE (TOML) says what the application does in each period and under which policy (fifo, rr or
/// other), which sources send it reports, which states the run has, and which faults are injected:
/// damaged, lost and late reports, lost and late messages between nodes, a node that stops, ends or
/// is slow. Without one, a small application in the manner of command and control is tested;
/// --sample prints its file.
///
/// Each node is a process of its own on this machine. Reports are datagrams that a generator really
/// sends. What was injected is counted by who injects it, what was noticed by the nodes alone. The
/// result has the periods by state, and for each fault how long until it was noticed and, from its
/// end, until all was well again. With --find, the largest load at which no deadline is missed is
/// searched for, without faults. The scorecard is that of Hao, Xue and Qin 2010, Table 2.
#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct TestArgs {
    /// Test file [default: the sample].
    file: Option<PathBuf>,
    /// Print the file of the sample, to begin with, and end.
    #[arg(long, exclusive = true)]
    sample: bool,
    /// How many nodes, instead of what the file says.
    #[arg(short, long, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=i64::from(NODES_MAX)))]
    nodes: Option<u16>,
    /// How long to run, instead of what the file says.
    #[arg(short, long, value_name = "TIME", value_parser = values::long_duration,
          conflicts_with = "find")]
    time: Option<Duration>,
    /// Multiply the sources' rates and what stages compute in any case.
    #[arg(short, long, value_name = "FACTOR", value_parser = factor, default_value = "1",
          conflicts_with = "find")]
    load: f64,
    /// Search for the largest load at which no deadline is missed.
    #[arg(long)]
    find: bool,
    /// The loads that are searched, such as 0.5-8.
    #[arg(long, value_name = "LOW-HIGH", value_parser = range, default_value = "0.25-16",
          requires = "find")]
    range: (f64, f64),
    /// How close the largest load is to be found, as a share.
    #[arg(long, value_name = "SHARE", value_parser = values::ratio, default_value = "5%",
          requires = "find")]
    width: f64,
    /// How long the runs are that decide about a load.
    #[arg(long, value_name = "TIME", value_parser = values::long_duration, default_value = "2s",
          requires = "find")]
    trial: Duration,
    /// End with status 1 if the load that is found is less than this.
    #[arg(long, value_name = "FACTOR", value_parser = factor, requires = "find")]
    least_load: Option<f64>,
    /// A result (JSON) of 'host switch', 'host interrupt' or 'host all', for the scorecard; may be
    /// given more than once.
    #[arg(long, value_name = "FILE")]
    measured: Vec<PathBuf>,
    /// Leave the processors' idle states alone, instead of holding off all but the lightest.
    #[arg(long)]
    leave_idle_states: bool,
    /// End with status 1 if this holds, such as 'missed>1%' or 'recovery>500ms'; may be given more
    /// than once. Figures: missed (a share) and response with -mean, -p99, -p99.9 and -max, of any
    /// state; detection and recovery of any fault. What was not measured, noticed or recovered
    /// from breaks its limit.
    #[arg(long, value_name = "LIMIT", value_parser = |text: &str| Limit::parse(text, FIGURES))]
    fail_if: Vec<Limit<Figure>>,
    /// Show the nodes and faults on the terminal while the test goes on.
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    files: FileArgs,
}

/// What can be limited.
#[derive(Clone, Copy, Debug)]
enum Figure {
    Missed,
    Response(TimeOf),
    Detection,
    Recovery,
}

const FIGURES: [Limited<Figure>; 7] = [
    ("missed", LimitUnit::Ratio, Figure::Missed),
    ("response-mean", LimitUnit::Ns, Figure::Response(MEAN)),
    ("response-p99", LimitUnit::Ns, Figure::Response(P99)),
    ("response-p99.9", LimitUnit::Ns, Figure::Response(P99_9)),
    ("response-max", LimitUnit::Ns, Figure::Response(MAX)),
    ("detection", LimitUnit::Ns, Figure::Detection),
    ("recovery", LimitUnit::Ns, Figure::Recovery),
];
const P99_9: TimeOf = |times: &Distribution| times.p99_9 as f64;

/// The words that start a node.
const WORDS: [&str; 2] = ["cycle", "application-node"];

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (0.001..=1_000.0).contains(factor));
    factor.ok_or_else(|| "write a factor from 0.001 to 1000, such as 1.5".to_owned())
}

fn range(text: &str) -> Result<(f64, f64), String> {
    let form = || "write the least load and the largest, such as 0.5-8".to_owned();
    let (low, high) = text.split_once('-').ok_or_else(form)?;
    let (low, high) = (factor(low).map_err(|_| form())?, factor(high).map_err(|_| form())?);
    if low < high { Ok((low, high)) } else { Err(form()) }
}

pub(super) fn run(args: &TestArgs) -> Result<(), Failure> {
    if args.sample {
        return output::line(SAMPLE.trim_end());
    }
    if args.live {
        needs_a_terminal_beside()?;
    }
    let plan = plan(args)?;
    let mut measured = Vec::new();
    for path in &args.measured {
        measured.extend(given::costs(path)?);
    }
    let files = args.files.open()?;
    output::end_gently()?;
    let (from, to) = args.range;
    let search = SearchOptions { from, to, width: args.width, trial: args.trial };
    let options = TestOptions {
        program: PathBuf::from("/proc/self/exe"),
        arguments: WORDS.map(str::to_owned).to_vec(),
        plan,
        load: args.load,
        search: args.find.then_some(search),
        hold_awake: !args.leave_idle_states,
        measured,
        command: output::command_line(),
    };
    let mut watcher = Watcher::new(args.live)?;
    let tested = application::test(&options, &mut watcher);
    watcher.finish();
    let mut result = tested?;
    let judge = |limit: &Limit<Figure>| limit.judge_named(figures(&result, limit.figure));
    let mut limits: Vec<LimitResult> = args.fail_if.iter().map(judge).collect();
    limits.extend(args.least_load.map(|least| least_load(&result, least)));
    result.limits = limits;
    files.write(&result, [to_json, html::cycle_test], table::cycle_test)?;
    verdict(&result.limits, &result.findings)
}

/// The test, as the file and the flags say.
fn plan(args: &TestArgs) -> Result<Plan, Failure> {
    let (name, text) = match &args.file {
        None => ("the sample".to_owned(), SAMPLE.to_owned()),
        Some(path) => (path.display().to_string(), given::text(path, FILE_MAX)?),
    };
    let wrong = |why: String| Failure::usage(format!("{name}: {why}"));
    let time_ns = args.time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let plan = Plan::parse_as(&text, args.nodes, time_ns);
    let plan = plan.map_err(|fault| wrong(fault.to_string()))?;
    if !plan.cores.is_empty() {
        horolog_cycle::cores(&plan.cores).map_err(|error| wrong(error.to_string()))?;
    }
    Ok(plan)
}

/// The figures that a limit is about, each with what it is of.
fn figures(result: &CycleTestResult, figure: Figure) -> Vec<(String, Option<f64>)> {
    let Some(run) = &result.run else { return Vec::new() };
    match figure {
        Figure::Missed => of_states(run, |state| {
            (state.periods > 0).then(|| state.missed as f64 / state.periods as f64)
        }),
        Figure::Response(figure) => of_states(run, |state| state.response_ns.as_ref().map(figure)),
        Figure::Detection => {
            of_faults(run, |fault| fault.detected.as_ref().map(|first| first.after_ns as f64))
        }
        Figure::Recovery => of_faults(run, |fault| fault.recovered_after_ns.map(|ns| ns as f64)),
    }
}

fn of_states(
    run: &CycleTestRun,
    of: impl Fn(&horolog_record::CycleTestState) -> Option<f64>,
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

/// Holds what a search found against the least that it has to be.
fn least_load(result: &CycleTestResult, least: f64) -> LimitResult {
    let found = result.search.as_ref().and_then(|search| search.lower);
    LimitResult {
        expression: format!("load<{least}"),
        unit: LimitUnit::Factor,
        bound: least,
        value: found,
        trial: None,
        of: Some("the largest load without a miss".to_owned()),
        failed: found.is_none_or(|found| found < least),
    }
}

impl From<TestError> for Failure {
    fn from(error: TestError) -> Self {
        match error {
            TestError::Search(_) | TestError::Short { .. } => Self::usage(error),
            error => Self::environment(error),
        }
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
