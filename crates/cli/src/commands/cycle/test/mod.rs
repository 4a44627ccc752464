//! `horolog cycle test`: tests an application that a file or the built-in sample defines, and
//! writes the result as text, JSON and HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

mod node;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_cycle::application::{
    self, ApplicationSearchOptions, ApplicationTestError, ApplicationTestOptions,
    ApplicationTestPlan, FILE_MAX, NODES_MAX, SAMPLE_TEST_FILE,
};
use horolog_record::{CycleTestResult, LimitUnit, LiveRun};
use horolog_report::Metric;

use super::predict::input;
use crate::failure::CommandFailure;
use crate::files::ResultFileArgs;
use crate::limit::MetricLimit;
use crate::live::{RunDisplay, require_terminal};
use crate::output;
use crate::values;

pub(super) use node::{ApplicationNodeArgs, run as run_node};

/// Test an application of several stages, sources and nodes with injected faults.
///
/// A FILE (TOML) defines the work of the application in each period and its scheduling policy
/// (fifo, rr or other), the sources of its input messages, the states through which the run passes
/// (labels of time spans, such as 'fault tolerance'), and the injected faults: damaged, lost and
/// late input messages, lost and late messages between nodes, and a node that hangs (SIGSTOP), is
/// killed (SIGKILL) or is slow. Without FILE, a small command-and-control application is tested;
/// --example prints its file.
///
/// Each node is a separate process on this host. Input messages ('reports' in the file and the
/// result) are datagrams that a generator really sends. Injected faults are counted where they are
/// injected; nodes are not informed of them and must detect them. The result has the timing of the
/// periods in each state, and for each fault the time to its detection and the recovery time from
/// its end. --search instead finds the largest load, with no faults injected, at which no deadline
/// is missed. The result ends with a scorecard: the criteria in Table 2 of Hao, Xue and Qin,
/// "Performance and test method for real-time parallel system", Computer Engineering 36 (2010), 8,
/// 267-269, doi:10.3969/j.issn.1000-3428.2010.08.093, each with its measured value.
#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct CycleTestArgs {
    /// Test file [default: the sample, see --example].
    file: Option<PathBuf>,
    /// Print the sample file, as a starting point, and exit.
    #[arg(long, exclusive = true)]
    example: bool,
    /// Number of nodes, overriding the file.
    #[arg(short, long, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=i64::from(NODES_MAX)))]
    nodes: Option<u16>,
    /// Duration of the run, overriding the file.
    #[arg(short, long, value_name = "TIME", value_parser = values::positive_duration,
          conflicts_with = "search")]
    time: Option<Duration>,
    /// Load factor: multiply the sources' rates and the computation of the stages that does not
    /// depend on input messages (key compute).
    #[arg(short, long, value_name = "FACTOR", value_parser = parse_factor, default_value = "1",
          conflicts_with = "search")]
    load: f64,
    /// Search for the largest load at which no deadline is missed.
    #[arg(long)]
    search: bool,
    /// Range of load factors to search, such as 0.5-8.
    #[arg(long, value_name = "LOW-HIGH", value_parser = parse_load_range, default_value = "0.25-16",
          requires = "search")]
    search_range: (f64, f64),
    /// End the search when the lowest load that failed exceeds the highest that passed by at most
    /// this share.
    #[arg(long, value_name = "RATIO", value_parser = values::ratio, default_value = "5%",
          requires = "search")]
    search_width: f64,
    /// Duration of each trial of the search.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, default_value = "2s",
          requires = "search")]
    trial_time: Duration,
    /// Exit with status 1 if the load factor that --search found is less than this.
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor, requires = "search")]
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
    /// Metrics, of each state: missed (share of periods), and response with -mean, -p50, -p90,
    /// -p99, -p99.9 or -max; of each fault: detection and recovery (times).
    #[arg(long, value_name = "LIMIT", value_parser = MetricLimit::<CycleTestResult>::parse)]
    fail_if: Vec<MetricLimit<CycleTestResult>>,
    /// Show the nodes and faults on the terminal during the test.
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    files: ResultFileArgs,
}

/// Arguments with which this program starts itself as a node of an application.
const APPLICATION_NODE_COMMAND: [&str; 2] = ["cycle", "application-node"];

fn parse_factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (0.001..=1_000.0).contains(factor));
    factor.ok_or_else(|| "expected a factor from 0.001 to 1000, such as 1.5".to_owned())
}

fn parse_load_range(text: &str) -> Result<(f64, f64), String> {
    let form = || "expected LOW-HIGH, such as 0.5-8".to_owned();
    let (low, high) = text.split_once('-').ok_or_else(form)?;
    let (low, high) =
        (parse_factor(low).map_err(|_| form())?, parse_factor(high).map_err(|_| form())?);
    if low < high { Ok((low, high)) } else { Err(form()) }
}

pub(super) fn run(args: &CycleTestArgs) -> Result<(), CommandFailure> {
    if args.example {
        return output::print_line(SAMPLE_TEST_FILE.trim_end());
    }
    if args.live {
        require_terminal()?;
    }
    let plan = read_test_plan(args)?;
    let mut measured = Vec::new();
    for path in &args.measured {
        measured.extend(input::read_costs(path)?);
    }
    let files = args.files.open()?;
    output::install_interrupt_handler()?;
    let (from, to) = args.search_range;
    let search =
        ApplicationSearchOptions { from, to, width: args.search_width, trial: args.trial_time };
    let options = ApplicationTestOptions {
        program: PathBuf::from("/proc/self/exe"),
        arguments: APPLICATION_NODE_COMMAND.map(str::to_owned).to_vec(),
        plan,
        load: args.load,
        search: args.search.then_some(search),
        hold_awake: !args.allow_idle_states,
        measured,
        command: output::command_line(),
    };
    let run = LiveRun::new("cycle test", String::new(), "");
    let initial_state = "nodes are starting".to_owned();
    let mut display = RunDisplay::start(LiveRun { initial_state, ..run }, args.live)?;
    let outcome = application::test(&options, &mut display);
    display.finish();
    let mut result = outcome?;
    let limits = [args.fail_if.clone(), args.load_min.map(load_limit).into_iter().collect()];
    files.finish(&mut result, &limits.concat())
}

/// Returns the limit of `--load-min` on the largest load without a missed deadline.
fn load_limit(least: f64) -> MetricLimit<CycleTestResult> {
    let load = Metric::new("load", LimitUnit::Factor, |result: &CycleTestResult| {
        let found = result.search.as_ref().and_then(|search| search.lower);
        vec![("the largest load without a miss".to_owned(), found)]
    });
    MetricLimit::at_least(least, load)
}

/// Reads the test from the file, or the sample, with the flags that override it.
fn read_test_plan(args: &CycleTestArgs) -> Result<ApplicationTestPlan, CommandFailure> {
    let (name, text) = match &args.file {
        None => ("the sample".to_owned(), SAMPLE_TEST_FILE.to_owned()),
        Some(path) => (path.display().to_string(), input::read_text(path, FILE_MAX)?),
    };
    let invalid_test = |why: String| CommandFailure::usage(format!("{name}: {why}"));
    let time_ns = args.time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let plan = ApplicationTestPlan::parse_with(&text, args.nodes, time_ns);
    let plan = plan.map_err(|error| invalid_test(error.to_string()))?;
    if !plan.cores.is_empty() {
        horolog_cycle::select_cores(&plan.cores)
            .map_err(|error| invalid_test(error.to_string()))?;
    }
    Ok(plan)
}

impl From<ApplicationTestError> for CommandFailure {
    fn from(error: ApplicationTestError) -> Self {
        match error {
            ApplicationTestError::Search(_) | ApplicationTestError::TrialTooShort { .. } => {
                Self::usage(error)
            }
            error => Self::environment(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_read() {
        assert_eq!(parse_load_range("0.5-8"), Ok((0.5, 8.0)));
        for text in ["", "1", "2-1", "1-1", "0-1", "a-b", "1-1e9"] {
            assert!(parse_load_range(text).is_err_and(|why| why.contains("0.5-8")), "{text}");
        }
        assert!(
            parse_factor("0").is_err()
                && parse_factor("nan").is_err()
                && parse_factor("1.5") == Ok(1.5)
        );
        assert!(MetricLimit::<CycleTestResult>::parse("recovery>500ms").is_ok());
        assert!(MetricLimit::<CycleTestResult>::parse("load<1").is_err());
    }
}
