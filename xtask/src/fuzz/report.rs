//! Report of a libFuzzer run, in one line, from its log.

use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Outcome of the run of one target.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FuzzOutcome {
    pub(super) passed: bool,
    /// `None` if a crash cut the statistics off.
    runs: Option<u64>,
    runs_per_second: Option<u64>,
    /// Reason of a crash, as printed by the target.
    reason: Option<String>,
    /// File with the input that crashed the target.
    artifact: Option<String>,
}

impl FuzzOutcome {
    /// Reads a log. Fails if no input was run with coverage counters: such a run proves nothing.
    pub(super) fn new(log: &str, passed: bool) -> Result<Self> {
        let counters = log.lines().find(|line| line.contains("inline 8-bit counters"));
        counters.context("the binary has no coverage counters, so it was not fuzzed")?;
        let runs = statistic(log, "number_of_executed_units");
        ensure!(!passed || runs.is_some_and(|runs| runs > 0), "no input was run");
        Ok(Self {
            passed,
            runs,
            runs_per_second: statistic(log, "average_exec_per_sec"),
            reason: reason(log),
            artifact: text_after(log, "Test unit written to "),
        })
    }

    /// Returns a line for the table of all targets.
    pub(super) fn line(&self, target: &str) -> String {
        let number = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), |n| n.to_string());
        format!(
            "{target:<24} {:>12} runs {:>9}/s  {}",
            number(self.runs),
            number(self.runs_per_second),
            if self.passed { "ok" } else { "CRASHED" }
        )
    }

    /// Returns the reason of a crash of the target's `binary`, and a command that reproduces it.
    pub(super) fn advice(&self, binary: &Path) -> String {
        let reason = self.reason.as_deref().unwrap_or("no reason in the log");
        match &self.artifact {
            Some(artifact) => format!(
                "  {reason}\n  input:     {artifact}\n  reproduce: {} {artifact}",
                binary.display()
            ),
            None => format!("  {reason}\n  no input was stored"),
        }
    }
}

/// Returns the value of `stat::NAME: VALUE`, as written by `-print_final_stats=1`.
fn statistic(log: &str, name: &str) -> Option<u64> {
    text_after(log, &format!("stat::{name}:"))?.parse().ok()
}

/// Returns the reason of a crash: of a Rust panic, the line after its heading; of libFuzzer, a line
/// of its own.
fn reason(log: &str) -> Option<String> {
    let mut lines = log.lines().skip_while(|line| !line.contains("panicked at "));
    match (lines.next(), lines.next()) {
        (Some(location), Some(message)) => Some(format!("{} {message}", location.trim())),
        _ => text_after(log, "ERROR: libFuzzer: "),
    }
}

fn text_after(log: &str, prefix: &str) -> Option<String> {
    let (_, rest) = log.lines().find_map(|line| line.split_once(prefix))?;
    Some(rest.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADED: &str = "INFO: Loaded 1 modules   (88 inline 8-bit counters): 88 [0x1, 0x2),\n";

    #[test]
    fn a_clean_run_is_one_line() {
        let log = format!(
            "{LOADED}stat::number_of_executed_units: 4194304\nstat::average_exec_per_sec:     1398101\n"
        );
        let outcome = FuzzOutcome::new(&log, true).unwrap();
        assert_eq!(
            outcome.line("wire_ntp"),
            "wire_ntp                      4194304 runs   1398101/s  ok"
        );
    }

    #[test]
    fn a_crash_states_its_reason_and_how_to_reproduce_it() {
        let log = format!(
            "{LOADED}thread '<unnamed>' panicked at src/a.rs:3:5:\nattempt to add with overflow\n\
             ==7== ERROR: libFuzzer: deadly signal\n\
             artifact_prefix='/c/'; Test unit written to /c/crash-1f\n"
        );
        let outcome = FuzzOutcome::new(&log, false).unwrap();
        assert!(outcome.line("a").ends_with("? runs         ?/s  CRASHED"));
        let advice = outcome.advice(Path::new("/t/a"));
        assert!(advice.contains("panicked at src/a.rs:3:5: attempt to add with overflow"));
        assert!(advice.contains("reproduce: /t/a /c/crash-1f"));
    }

    #[test]
    fn a_timeout_is_named() {
        let log = format!("{LOADED}==7== ERROR: libFuzzer: timeout after 5 seconds\n");
        let outcome = FuzzOutcome::new(&log, false).unwrap();
        assert!(outcome.advice(Path::new("/t/a")).contains("timeout after 5 seconds"));
    }

    #[test]
    fn a_run_that_proves_nothing_is_an_error() {
        assert!(FuzzOutcome::new("stat::number_of_executed_units: 5\n", true).is_err());
        let log = format!("{LOADED}stat::number_of_executed_units: 0\n");
        assert!(FuzzOutcome::new(&log, true).is_err());
    }
}
