//! `horolog load nts-ke`: flags to a run, its result as text, JSON and page.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_load::establishment::{
    self, CONNECTIONS, EstablishmentJob, EstablishmentOptions, Follower, SEARCH_CONNECTIONS,
    SEARCH_TIMEOUT,
};
use horolog_load::limit::Wants;
use horolog_load::nts::Trust;
use horolog_load::target::TargetName;
use horolog_record::{EstablishmentTrial, Look, LookEnded};
use horolog_report::table;
use horolog_stats::SearchConfig;

use super::SearchArg;
use super::outputs::{OutputArgs, Outputs};
use super::rows::{Onlookers, Printer};
use crate::failure::Failure;
use crate::live::Feed;
use crate::output;
use crate::values;

/// The rates that a search tries unless told otherwise.
const SEARCH_RATES: (f64, f64) = (20.0, 100e3);

/// The first trials of a search, unless the decisive ones are shorter: long enough for a server
/// with too much to do to keep clients waiting for longer than they wait.
const SEARCH_INITIAL: Duration = Duration::from_millis(500);

/// Establish NTS keys (RFC 8915) over and over and say how many a second the server completes.
///
/// Each client opens a connection, shakes hands in full (TLS 1.3, nothing is resumed), takes keys
/// and cookies, and begins again as soon as it has them.
///
/// With --search they begin at planned rates instead, and one that has not given keys within
/// --timeout of when it was due is lost. A server that has too much to do keeps handshakes waiting
/// and drops none: what it is found to hold can be above what it holds for ever by as much as
/// --timeout is of --duration.
#[derive(Args, Debug)]
pub(crate) struct NtsKeArgs {
    /// The server: HOST or HOST:PORT; the port is 4460 unless given.
    #[arg(value_name = "HOST[:PORT]", value_parser = super::nts::establishment)]
    target: TargetName,
    /// PEM file of the certificates to trust.
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// The name that the certificate has to be for [default: the one that the server is called by].
    #[arg(long, value_name = "NAME")]
    nts_name: Option<String>,
    /// Clients, each with one connection at a time; in a search, at most so many [default: 32; 512
    /// in a search].
    #[arg(short, long, value_name = "N")]
    connections: Option<usize>,
    /// How long; in a search, the length of its decisive trials [default: 5; 2 in a search].
    #[arg(short, long, value_name = "SECONDS", value_parser = values::positive_duration)]
    duration: Option<Duration>,
    /// How long one key establishment may take [default: 5s; 100ms in a search].
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    timeout: Option<Duration>,
    /// Search for the highest rate of which none fails (ndr) or at most 0.5% (pdr), to 1%.
    #[arg(long, value_enum, value_name = "KIND")]
    search: Option<SearchArg>,
    /// Share of failures that a search allows, such as 0.01% [default: 0 for ndr, 0.5% for pdr].
    #[arg(long, value_name = "SHARE", value_parser = values::ratio, requires = "search")]
    loss_ratio: Option<f64>,
    /// Lowest and highest rate of a search, in key establishments per second [default: 20-100k].
    #[arg(short, long, value_name = "RATE[-RATE]", value_parser = values::rates,
          requires = "search")]
    rate: Option<(f64, f64)>,
    #[command(flatten)]
    limits: super::LimitArgs,
    /// The target has a public address and is yours.
    #[arg(long)]
    i_own_this_target: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl NtsKeArgs {
    fn job(&self) -> Result<EstablishmentJob, Failure> {
        let Some(search) = self.search else {
            return Ok(EstablishmentJob::Eager(self.duration.unwrap_or(Duration::from_secs(5))));
        };
        let (kind, goal) = search.goal(self.loss_ratio)?;
        let (min, max) = self.rate.unwrap_or(SEARCH_RATES);
        let mut config = SearchConfig::new(goal, min, max);
        config.initial_duration = SEARCH_INITIAL;
        output::scale_search(&mut config, self.duration.unwrap_or(Duration::from_secs(2)));
        Ok(EstablishmentJob::Search { kind, config })
    }

    fn resolve(self) -> Result<(EstablishmentOptions, Outputs), Failure> {
        let job = self.job()?;
        let outputs = self.output.open()?;
        let (connections, timeout, search) = match &job {
            EstablishmentJob::Eager(_) => (CONNECTIONS, Duration::from_secs(5), None),
            EstablishmentJob::Search { kind, .. } => {
                (SEARCH_CONNECTIONS, SEARCH_TIMEOUT, Some(Wants::Search(*kind)))
            }
        };
        let does: Vec<_> = search.into_iter().collect();
        let options = EstablishmentOptions {
            target: self.target,
            family: None,
            name: self.nts_name,
            i_own_this_target: self.i_own_this_target,
            trust: Trust::from_pem_file(Some(&self.ca)).map_err(Failure::usage)?,
            connections: self.connections.unwrap_or(connections),
            job,
            timeout: self.timeout.unwrap_or(timeout),
            limits: self.limits.resolve_for_establishments(&does)?,
            command: output::command_line(),
        };
        options.check()?;
        Ok((options, outputs))
    }
}

/// Prints each trial of a search, and lets those see it who look on.
struct Rows {
    style: table::TableStyle,
    /// None where there is one trial, whose text follows, or the result goes to standard output.
    printer: Option<Printer>,
    feed: Option<Feed>,
}

impl Follower for Rows {
    fn looks(&self) -> bool {
        self.feed.is_some()
    }

    fn look(&mut self, look: Look) {
        if let Some(feed) = &self.feed {
            feed.look(look);
        }
    }

    fn ended(&mut self, index: usize, trial: &EstablishmentTrial) {
        if let Some(feed) = &self.feed {
            feed.ended(LookEnded::of_establishments(index, trial));
        }
        if let Some(printer) = &mut self.printer {
            printer.print(table::establishment_row(trial, &self.style));
        }
    }
}

pub(super) fn run(args: NtsKeArgs) -> Result<(), Failure> {
    let (options, mut outputs) = args.resolve()?;
    let quiet = outputs.quiet;
    output::end_gently()?;
    announce(&options);
    let title = format!("key establishments with {}", options.target);
    let onlookers = Onlookers::start(&mut outputs, (title, "trial"))?;
    let has_rows = !quiet && matches!(options.job, EstablishmentJob::Search { .. });
    let printer = has_rows.then(|| Printer::new(&onlookers));
    let mut rows = Rows { style: output::table_style(), printer, feed: onlookers.feed() };
    if let Some(printer) = &mut rows.printer {
        printer.print(table::establishment_header(&rows.style));
    }
    let result = establishment::run(&options, &|| output::flow().is_break(), &mut rows);
    // The terminal is given back before anything is said on it.
    let web = onlookers.finish(result.as_ref().ok().map(|result| &result.findings[..]));
    let Rows { style, printer, .. } = rows;
    if let Some(printer) = printer {
        printer.finish();
    }
    let result = result?;
    let written = outputs.write(&result, horolog_report::html::establishment);
    if !quiet {
        output::line(&table::establishment(&result, &style))?;
    }
    if let Some(web) = web {
        web.finish();
    }
    written?;
    super::limits::verdict(&result.findings, &result.limits)
}

fn announce(options: &EstablishmentOptions) {
    let how = match &options.job {
        EstablishmentJob::Eager(duration) => {
            format!("by {} clients for {:.1} s", options.connections, duration.as_secs_f64())
        }
        EstablishmentJob::Search { .. } => "at rising rates".to_owned(),
    };
    output::note(&format!("horolog: establishing keys with {} {how}", options.target));
}
