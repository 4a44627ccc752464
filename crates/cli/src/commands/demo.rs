//! `horolog demo`: comparison of the capacities of several server configurations.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_experiment::demo::{self, DemoOptions};
use horolog_report::{RenderableResult, to_json};

use crate::commands::experiment_progress::ExperimentProgress;
use crate::failure::CommandFailure;
use crate::output::{self, ResultDestination};
use crate::result_store::StoreResultArgs;

/// Demonstrate a time server and its capacity on this host.
///
/// Creates two lab hosts (network namespaces joined by a virtual link), starts one server after
/// another in one of them, and searches from the other for the highest rate that each answers
/// without loss. The servers are: threads that share one socket; threads with a socket each, 1, 2,
/// 4 and so on up to the number of cores; XDP. Without the privilege to create lab hosts, the demo
/// uses sockets on loopback and reports what it did not run.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Approximate duration of the load on each server.
    #[arg(long, value_name = "TIME", value_parser = crate::values::positive_duration, default_value = "5s")]
    time: Duration,
    /// Write the result to FILE as JSON; '-' writes it to standard output instead of the table.
    #[arg(long, value_name = "FILE", default_value = "result.json")]
    json: PathBuf,
    /// Write an HTML report to FILE.
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    html: PathBuf,
    #[command(flatten)]
    store_args: StoreResultArgs,
}

pub(crate) fn run(args: &DemoArgs) -> Result<(), CommandFailure> {
    let quiet = output::is_stdout(&args.json);
    crate::files::require_distinct_files(&[
        ("--json", Some(&args.json)),
        ("--html", Some(&args.html)),
    ])?;
    let (json, page) = (ResultDestination::open(&args.json)?, ResultDestination::open(&args.html)?);
    output::install_interrupt_handler()?;
    let options = DemoOptions { load_duration: args.time, command: output::command_line() };
    let result = demo::run(&options, &ExperimentProgress::default())?;
    let written = [json.write(&to_json(&result)), page.write(&result.page())];
    args.store_args.store_result(&result, written.iter().any(Result::is_err));
    // After the files, so that an error on standard output does not prevent them; errors of the
    // files are returned after the table.
    if !quiet {
        output::print_line(&result.text(&output::table_style()))?;
    }
    written.into_iter().collect::<Result<(), _>>()?;
    let (json, html) = (args.json.display(), args.html.display());
    output::print_note(&format!("horolog: wrote {json} and {html}"));
    Ok(())
}
