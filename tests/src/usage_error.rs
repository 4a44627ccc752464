//! Checks of commands with invalid arguments: each ends with the right exit status and one line on
//! the cause and the remedy, and prints nothing else.

use std::process::Output;

use anyhow::{Context, Result, ensure};

/// Exit status for an invalid command line.
pub(crate) const USAGE: i32 = 2;
/// Exit status for a host that lacks something.
pub(crate) const ENVIRONMENT: i32 = 3;

/// Refused command: its arguments, its exit status, and the words of its error.
pub(crate) struct RefusalCase {
    arguments: &'static [&'static str],
    status: i32,
    named: &'static [&'static str],
}

pub(crate) const fn case(
    arguments: &'static [&'static str],
    status: i32,
    named: &'static [&'static str],
) -> RefusalCase {
    RefusalCase { arguments, status, named }
}

/// Checks that a command was refused by one line, which contains `named`.
pub(crate) fn check_refusal(output: &Output, status: i32, named: &[&str]) -> Result<()> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(status), "{} with {stderr}", output.status);
    ensure!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    check_error_line(&stderr, named)
}

/// Checks the line of an error.
pub(crate) fn check_error_line(stderr: &str, named: &[&str]) -> Result<()> {
    ensure!(
        stderr.starts_with("horolog: ") && stderr.lines().count() == 1,
        "not one line: {stderr}"
    );
    for name in named {
        ensure!(stderr.contains(name), "{name} is missing: {stderr}");
    }
    Ok(())
}

/// Runs a command with the arguments of each case and checks that it is refused.
pub(crate) fn check_all_refused(
    cases: &[RefusalCase],
    run: impl Fn(&[&str]) -> Result<Output>,
) -> Result<()> {
    let mut failures = Vec::new();
    for RefusalCase { arguments, status, named } in cases {
        let refused = run(arguments).and_then(|output| check_refusal(&output, *status, named));
        // Failures are collected, so that one run shows all of them.
        failures.extend(refused.with_context(|| format!("{arguments:?}")).err());
    }
    let failures: Vec<_> = failures.iter().map(|error| format!("{error:#}")).collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}
