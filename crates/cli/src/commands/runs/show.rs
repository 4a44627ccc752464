//! `horolog runs show`: a result as its own command shows it.

use std::path::{Path, PathBuf};

use clap::Args;
use horolog_report::{AnyError, page_of, table_of, to_json};
use serde_json::Value;

use super::given::{Given, Reader};
use crate::failure::Failure;
use crate::files::apart;
use crate::keep::StoreArgs;
use crate::output::{self, Destination};

/// Show a run again, as text, as a page or as the result itself.
#[derive(Args, Debug)]
pub(super) struct ShowArgs {
    /// Which run; a file of a result where it has a '/' or ends with '.json'.
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// Write the result to this file; to standard output with -, instead of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the result as a page to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn run(args: &ShowArgs) -> Result<(), Failure> {
    apart(&[("--json", args.json.as_deref()), ("--html", args.html.as_deref())])?;
    let given = Reader::new(&args.store).read(&args.run)?;
    if let Some(path) = &args.json {
        Destination::open(path)?.write(&to_json(&given.result))?;
    }
    let takes_stdout =
        [&args.json, &args.html].into_iter().flatten().any(|path| output::is_stdout(path));
    if let Some(path) = &args.html {
        write_page(&given, path, takes_stdout)?;
    }
    if takes_stdout {
        return Ok(());
    }
    let common = common(&given.result);
    match table_of(given.result, &output::table_style()) {
        Ok(text) => output::line(&text),
        Err(error) => {
            output::line(&common)?;
            Err(unshown(&given.reference, &error))
        }
    }
}

/// Writes a result as a page. Of one that cannot be shown as its kind is, what all kinds have is
/// written to standard output, unless something else goes there.
pub(super) fn write_page(given: &Given, path: &Path, takes_stdout: bool) -> Result<(), Failure> {
    match page_of(&given.result) {
        Ok(page) => Destination::open(path)?.write(&page),
        Err(error) => {
            if !takes_stdout {
                output::line(&common(&given.result))?;
            }
            Err(unshown(&given.reference, &error))
        }
    }
}

fn unshown(reference: &str, error: &AnyError) -> Failure {
    Failure::environment(format!("{reference}: {error}"))
}

/// What results of all kinds have, for one that is not known here.
fn common(result: &Value) -> String {
    let of = |name: &str| result[name].as_str().unwrap_or("-");
    let mut lines = vec![format!("{}, begun {}", of("schema"), of("started"))];
    let findings = result["findings"].as_array().map_or(&[][..], Vec::as_slice);
    let told = |finding: &Value| {
        let of = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", of("severity"), of("message"))
    };
    lines.extend(findings.iter().map(told));
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
        let text = "horolog.new/7, begun 2026-01-01T00:00:00Z\nwarning: a [2Jdoubt\n: ";
        assert_eq!(common(&result), text);
    }
}
