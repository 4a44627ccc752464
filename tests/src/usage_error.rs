//! Check of every command that is given impossible arguments: it ends with the right exit status
//! and one line on the cause and the remedy, and prints nothing else.

use std::process::Output;

use anyhow::{Context, Result, ensure};

/// Exit status where the command line is wrong.
pub(crate) const USAGE: i32 = 2;
/// Exit status where the machine lacks something.
pub(crate) const ENVIRONMENT: i32 = 3;

/// A refusal: the arguments of a command, its exit status, and what its line has to name.
pub(crate) struct Case {
    arguments: &'static [&'static str],
    status: i32,
    named: &'static [&'static str],
}

pub(crate) const fn case(
    arguments: &'static [&'static str],
    status: i32,
    named: &'static [&'static str],
) -> Case {
    Case { arguments, status, named }
}

/// Checks that a command was refused by one line, which names `named`.
pub(crate) fn check(output: &Output, status: i32, named: &[&str]) -> Result<()> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(status), "{} with {stderr}", output.status);
    ensure!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    check_line(&stderr, named)
}

/// Checks what was said instead of a result.
pub(crate) fn check_line(stderr: &str, named: &[&str]) -> Result<()> {
    ensure!(
        stderr.starts_with("horolog: ") && stderr.lines().count() == 1,
        "not one line: {stderr}"
    );
    for name in named {
        ensure!(stderr.contains(name), "{name} is not named: {stderr}");
    }
    Ok(())
}

/// Runs a command with the arguments of each case, all of which have to be refused.
pub(crate) fn expect_all(cases: &[Case], run: impl Fn(&[&str]) -> Result<Output>) -> Result<()> {
    let mut failures = Vec::new();
    for Case { arguments, status, named } in cases {
        let refused = run(arguments).and_then(|output| check(&output, *status, named));
        // All of them, so that one run shows every one that is wrong.
        failures.extend(refused.with_context(|| format!("{arguments:?}")).err());
    }
    let failures: Vec<_> = failures.iter().map(|error| format!("{error:#}")).collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}
