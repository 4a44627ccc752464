//! `horolog runs show`: prints a result as the command that measured it did.

use std::path::PathBuf;

use clap::Args;
use horolog_report::{RenderableResult, parse_result, to_json};
use serde_json::Value;

use super::run_input::{ReferencedResult, ResultReader};
use crate::failure::CommandFailure;
use crate::files::require_distinct_files;
use crate::output::{self, ResultDestination};
use crate::result_store::StoreArgs;

/// Show a run again, as text, as an HTML report or as the result itself.
#[derive(Args, Debug)]
pub(super) struct RunsShowArgs {
    /// Run: a number, a key, a name, 'last' or 'last~1'; or a result file, if it contains '/' or
    /// ends with '.json'.
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// Write the result to FILE as JSON; '-' writes it to standard output instead of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML report to FILE.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn run(args: &RunsShowArgs) -> Result<(), CommandFailure> {
    require_distinct_files(&[("--json", args.json.as_deref()), ("--html", args.html.as_deref())])?;
    let input = ResultReader::new(&args.store).read(&args.run)?;
    if let Some(path) = &args.json {
        ResultDestination::open(path)?.write(&to_json(&input.result))?;
    }
    let takes_stdout =
        [&args.json, &args.html].into_iter().flatten().any(|path| output::is_stdout(path));
    if takes_stdout && args.html.is_none() {
        return Ok(());
    }
    let result = parse_or_show_common(&input, takes_stdout)?;
    if let Some(path) = &args.html {
        ResultDestination::open(path)?.write(&result.page())?;
    }
    if takes_stdout { Ok(()) } else { output::print_line(&result.text(&output::table_style())) }
}

/// Parses a result. If that fails, prints the fields common to all kinds on standard output, unless
/// that takes a file (`takes_stdout`), and returns the error.
pub(super) fn parse_or_show_common(
    input: &ReferencedResult,
    takes_stdout: bool,
) -> Result<Box<dyn RenderableResult>, CommandFailure> {
    match parse_result(&input.result) {
        Ok(result) => Ok(result),
        Err(error) => {
            if !takes_stdout {
                output::print_line(&common_fields_text(&input.result))?;
            }
            Err(CommandFailure::environment(format!("{}: {error}", input.reference)))
        }
    }
}

/// Returns the fields common to results of all kinds (schema, start and findings) as text, for a
/// result that cannot be rendered.
fn common_fields_text(result: &Value) -> String {
    let of = |name: &str| result[name].as_str().unwrap_or("-");
    let mut lines = vec![format!("{}, started {}", of("schema"), of("started"))];
    let findings = result["findings"].as_array().map_or(&[][..], Vec::as_slice);
    let finding_line = |finding: &Value| {
        let of = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", of("severity"), of("message"))
    };
    lines.extend(findings.iter().map(finding_line));
    let mut text = lines.join("\n");
    text.retain(|c| c == '\n' || !c.is_control());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_kinds_have_is_shown_of_an_unknown_one() {
        let result = serde_json::json!({
            "schema": "horolog.new/7",
            "started": "2026-01-01T00:00:00Z",
            "findings": [{"severity": "warning", "message": "a \u{1b}[2Jdoubt"}, 7],
        });
        let text = "horolog.new/7, started 2026-01-01T00:00:00Z\nwarning: a [2Jdoubt\n: ";
        assert_eq!(common_fields_text(&result), text);
    }
}
