//! `horolog report`: writes the HTML report of a stored run or a result file.

use std::path::PathBuf;

use clap::Args;

use super::run_input::ResultReader;
use super::show;
use crate::failure::CommandFailure;
use crate::output::{self, ResultDestination};
use crate::result_store::StoreArgs;

/// Write an HTML report of a result: its verdict, findings, plots and values in one file.
///
/// The report needs no network and no other file, and contains the result. The report is the same
/// as that of the measuring command with --html. RUN is any result in the store or in a file.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Run: a number, a key, a name, 'last' or 'last~1'; or a result file, if it contains '/' or
    /// ends with '.json'.
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// Output file; '-' for standard output.
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &ReportArgs) -> Result<(), CommandFailure> {
    let input = ResultReader::new(&args.store).read(&args.run)?;
    let takes_stdout = output::is_stdout(&args.output);
    let page = show::parse_or_show_common(&input, takes_stdout)?.page();
    ResultDestination::open(&args.output)?.write(&page)?;
    if !takes_stdout {
        output::print_terminal_note(&format!("wrote {}", args.output.display()));
    }
    Ok(())
}
