//! `horolog load nts-ke`: flags to a run, and its result as text, JSON and HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_load::limit::{LoadMetricLimit, MetricPrerequisite};
use horolog_load::nts::TrustAnchors;
use horolog_load::nts_ke::{
    self, CONNECTIONS_DEFAULT, NtsKeLoadOptions, NtsKeLoadProcedure, SEARCH_CONNECTIONS_DEFAULT,
    SEARCH_TIMEOUT,
};
use horolog_load::target::TargetName;
use horolog_record::{LivePartSummary, NtsKeTrial, RunObserver, Snapshot};
use horolog_report::{RenderableResult as _, table};
use horolog_stats::SearchConfig;

use super::SearchArg;
use super::outputs::{LoadOutputArgs, LoadOutputs};
use super::trial_printer::{LiveOutputs, TableRowPrinter};
use crate::failure::CommandFailure;
use crate::live::LiveFeed;
use crate::output;
use crate::values;

/// Default lowest and highest rate of a search, in NTS-KE exchanges per second.
const SEARCH_RATE_RANGE: (f64, f64) = (20.0, 100e3);

/// Duration of the first trials of a search, unless the full-length trials are shorter: long enough
/// for the exchanges of an overloaded server to reach the clients' timeout.
const SEARCH_INITIAL_DURATION: Duration = Duration::from_millis(500);

/// Exchange NTS keys (RFC 8915) repeatedly and report the rate of completed exchanges.
///
/// Each client opens a connection, runs a full TLS 1.3 handshake without resumption, receives keys
/// and cookies, and begins again as soon as it has them.
///
/// With --search, exchanges begin at intended rates instead, and one that has not yielded keys
/// within --timeout of its intended start is lost. A saturated server delays handshakes and drops
/// none: the rate found can exceed the sustainable rate by up to the ratio of --timeout to
/// --time (5% by default).
#[derive(Args, Debug)]
pub(crate) struct LoadNtsKeArgs {
    /// Server: HOST or HOST:PORT; the default port is 4460.
    #[arg(value_name = "HOST[:PORT]", value_parser = super::nts::parse_nts_ke_server)]
    target: TargetName,
    /// PEM file of the certificates to trust.
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// Name that the certificate must be valid for [default: the NTS-KE server as given].
    #[arg(long, value_name = "NAME")]
    nts_name: Option<String>,
    /// Number of clients, each with one connection at a time; in a search, the largest number
    /// [default: 32; 512 in a search].
    #[arg(short, long, value_name = "N")]
    connections: Option<usize>,
    /// Duration of the run; in a search, of the trials that determine the result (the first ones
    /// are shorter) [default: 5s; 2s in a search].
    #[arg(short, long, value_name = "TIME", value_parser = values::positive_duration)]
    time: Option<Duration>,
    /// Timeout of one NTS-KE exchange [default: 5s; 100ms in a search].
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    timeout: Option<Duration>,
    /// Search for the highest rate, to within 1%. ndr (non-drop rate): without failures; pdr
    /// (partial drop rate): with at most 0.5% failures.
    #[arg(long, value_enum, value_name = "KIND")]
    search: Option<SearchArg>,
    /// Ratio of failed exchanges that a search permits, such as 0.01% [default: 0 for ndr, 0.5% for
    /// pdr].
    #[arg(long, value_name = "RATIO", value_parser = values::ratio, requires = "search")]
    loss_ratio: Option<f64>,
    /// Lowest and highest rate of a search, in NTS-KE exchanges per second [default: 20
    /// to 100k].
    #[arg(short, long, value_name = "RATE[-RATE]", value_parser = values::rates,
          requires = "search")]
    rate: Option<(f64, f64)>,
    /// Exit with status 1 if this expression is true, such as 'loss>0.1%' or 'p99>200ms'; in a
    /// search, for the trials at the rate found. Repeatable. A limit on a metric that was not
    /// measured fails.
    ///
    /// Metrics: loss (share of the exchanges that failed), rate (completed per second), ndr and pdr
    /// (result of a search), p50, p90, p99, p99.9, p99.99, max (duration of an exchange).
    #[arg(long, value_name = "LIMIT", value_parser = LoadMetricLimit::parse_for_nts_ke)]
    fail_if: Vec<LoadMetricLimit>,
    /// Confirm that a target with a public address is yours; without this it is refused.
    #[arg(long)]
    i_own_this_target: bool,
    #[command(flatten)]
    output: LoadOutputArgs,
}

impl LoadNtsKeArgs {
    fn job(&self) -> Result<NtsKeLoadProcedure, CommandFailure> {
        let Some(search) = self.search else {
            return Ok(NtsKeLoadProcedure::ClosedLoop(self.time.unwrap_or(Duration::from_secs(5))));
        };
        let (kind, goal) = search.goal(self.loss_ratio)?;
        let (min, max) = self.rate.unwrap_or(SEARCH_RATE_RANGE);
        let mut config = SearchConfig::new(goal, min, max);
        config.initial_duration = SEARCH_INITIAL_DURATION;
        config.scale(self.time.unwrap_or(Duration::from_secs(2)));
        Ok(NtsKeLoadProcedure::Search { kind, config })
    }

    fn resolve(self) -> Result<(NtsKeLoadOptions, LoadOutputs), CommandFailure> {
        let job = self.job()?;
        let outputs = self.output.open()?;
        let (connections, timeout, search) = match &job {
            NtsKeLoadProcedure::ClosedLoop(_) => {
                (CONNECTIONS_DEFAULT, Duration::from_secs(5), None)
            }
            NtsKeLoadProcedure::Search { kind, .. } => (
                SEARCH_CONNECTIONS_DEFAULT,
                SEARCH_TIMEOUT,
                Some(MetricPrerequisite::Search(*kind)),
            ),
        };
        let features: Vec<_> = search.into_iter().collect();
        super::flags::check_features(&self.fail_if, &features)?;
        let options = NtsKeLoadOptions {
            target: self.target,
            family: None,
            name: self.nts_name,
            i_own_this_target: self.i_own_this_target,
            trust: TrustAnchors::from_pem_file(Some(&self.ca)).map_err(CommandFailure::usage)?,
            connections: self.connections.unwrap_or(connections),
            job,
            timeout: self.timeout.unwrap_or(timeout),
            limits: self.fail_if,
            command: output::command_line(),
        };
        options.check()?;
        Ok((options, outputs))
    }
}

/// Observer that prints the trials of a search and passes each trial to the live outputs.
struct NtsKeTrialPrinter {
    style: table::TableStyle,
    /// Printer of rows; `None` outside a search, whose text is printed at the end, and if the
    /// result is written to standard output.
    printer: Option<TableRowPrinter>,
    feed: Option<LiveFeed>,
}

impl RunObserver<NtsKeTrial> for NtsKeTrialPrinter {
    fn wants_snapshots(&self) -> bool {
        self.feed.is_some()
    }

    fn snapshot(&mut self, snapshot: Snapshot) {
        if let Some(feed) = &self.feed {
            feed.push(snapshot);
        }
    }

    fn part_ended(&mut self, index: usize, trial: &NtsKeTrial) {
        if let Some(feed) = &self.feed {
            feed.end_part(LivePartSummary::from_nts_ke_trial(index, trial));
        }
        if let Some(printer) = &mut self.printer {
            printer.print(table::nts_ke_row(trial, &self.style));
        }
    }
}

pub(super) fn run(args: LoadNtsKeArgs) -> Result<(), CommandFailure> {
    let (options, mut outputs) = args.resolve()?;
    let quiet = outputs.quiet;
    output::install_interrupt_handler()?;
    announce(&options);
    let title = format!("NTS-KE exchanges with {}", options.target);
    let live_outputs = LiveOutputs::start(&mut outputs, (title, "trial"))?;
    let has_rows = !quiet && matches!(options.job, NtsKeLoadProcedure::Search { .. });
    let printer = has_rows.then(|| TableRowPrinter::new(&live_outputs));
    let mut trial_printer =
        NtsKeTrialPrinter { style: output::table_style(), printer, feed: live_outputs.feed() };
    if let Some(printer) = &mut trial_printer.printer {
        printer.print(table::nts_ke_header(&trial_printer.style));
    }
    let result =
        nts_ke::run(&options, &|| output::check_stop_request().is_break(), &mut trial_printer);
    // Restores the terminal before anything is printed on it.
    let web = live_outputs.finish(result.as_ref().ok().map(|result| &result.findings[..]));
    let NtsKeTrialPrinter { style, printer, .. } = trial_printer;
    if let Some(printer) = printer {
        printer.finish();
    }
    let result = result?;
    let written = outputs.write(&result);
    if !quiet {
        output::print_line(&result.summary(&style))?;
    }
    if let Some(web) = web {
        web.finish();
    }
    written?;
    super::flags::check_findings_and_limits(&result.findings, &result.limits)
}

fn announce(options: &NtsKeLoadOptions) {
    let how = match &options.job {
        NtsKeLoadProcedure::ClosedLoop(duration) => {
            format!("by {} clients for {:.1} s", options.connections, duration.as_secs_f64())
        }
        NtsKeLoadProcedure::Search { .. } => "at rising rates".to_owned(),
    };
    output::print_note(&format!("horolog: NTS-KE exchanges with {} {how}", options.target));
}
