//! `horolog report`: the page of a result.

use std::path::PathBuf;

use clap::Args;

use super::given::Reader;
use super::show;
use crate::failure::Failure;
use crate::keep::StoreArgs;
use crate::output;

/// Write the page of a result: its verdict, findings, plots and figures in one file.
///
/// The page needs no network and nothing beside it; the result is inside. It is the page that the
/// measuring command writes with --html, of any result that is kept or lies in a file.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Which run; a file of a result where it has a '/' or ends with '.json'.
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// The file that becomes the page; standard output with -.
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &ReportArgs) -> Result<(), Failure> {
    let given = Reader::new(&args.store).read(&args.run)?;
    let takes_stdout = output::is_stdout(&args.output);
    show::write_page(&given, &args.output, takes_stdout)?;
    if !takes_stdout {
        output::aside(&format!("the page is {}", args.output.display()));
    }
    Ok(())
}
