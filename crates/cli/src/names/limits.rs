//! List of the metrics of `--fail-if` by command, obtained from the parsers' error messages: the
//! error for an unknown metric names the known ones. Each word of that error is tried with an
//! invalid bound; it is a metric if the error is then a different one.

use std::collections::BTreeSet;
use std::error::Error;

use clap::{Command, CommandFactory};

use crate::Cli;

const FLAG: &str = "--fail-if";
/// Name that no metric has.
const UNKNOWN: &str = "?";

pub(super) fn metric_lines() -> Vec<String> {
    let mut command = Cli::command();
    command.build();
    let mut lines = Vec::new();
    add_command_metrics(&command, "horolog", &mut lines);
    lines
}

fn add_command_metrics(command: &Command, path: &str, lines: &mut Vec<String>) {
    if command.get_arguments().any(|argument| argument.get_long() == FLAG.strip_prefix("--")) {
        let metrics = command_metrics(command);
        assert!(!metrics.is_empty(), "no metric of {path}: {}", refusal(command, UNKNOWN));
        lines.extend(metrics.into_iter().map(|metric| format!("{path}: {metric}")));
    }
    for inner in command.get_subcommands() {
        add_command_metrics(inner, &format!("{path} {}", inner.get_name()), lines);
    }
}

/// Returns the metrics that `--fail-if` of a command accepts.
fn command_metrics(command: &Command) -> BTreeSet<String> {
    let words = words(&refusal(command, UNKNOWN));
    let prefixes = words.iter().filter(|word| word.ends_with('-'));
    let prefixed = prefixes.flat_map(|prefix| words.iter().map(move |word| prefix.clone() + word));
    let mut candidates: BTreeSet<String> = prefixed.chain(words.iter().cloned()).collect();
    // `host all` has metrics of the form MEASUREMENT.METRIC.
    for part in words.iter().filter(|word| !word.contains('.')) {
        let of_part = refusal(command, &format!("{part}.{UNKNOWN}"));
        if of_part != refusal(command, &format!("{UNKNOWN}.{UNKNOWN}")) {
            candidates.extend(self::words(&of_part).iter().map(|word| format!("{part}.{word}")));
        }
    }
    candidates.retain(|name| is_metric(command, name));
    candidates
}

/// Returns true if the error for a limit on this metric with an invalid bound differs from the
/// error for an unknown metric.
fn is_metric(command: &Command, name: &str) -> bool {
    let part = name.split_once('.').map(|(part, _)| format!("{part}.{UNKNOWN}"));
    let unknown = [Some(UNKNOWN.to_owned()), part];
    unknown
        .into_iter()
        .flatten()
        .all(|unknown| refusal(command, name) != refusal(command, &unknown))
}

/// Returns the error of a command for a limit on this metric with the invalid bound `!`. The quoted
/// name is removed, so that errors for different names can be compared.
fn refusal(command: &Command, name: &str) -> String {
    let arguments = [command.get_name(), FLAG, &format!("{name}>!")].map(ToOwned::to_owned);
    let error = command.clone().try_get_matches_from(arguments).unwrap_err();
    error.source().map(ToString::to_string).unwrap_or_default().replace(&format!("'{name}'"), "")
}

fn words(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.');
    words
        .map(|word| word.trim_end_matches('.').to_owned())
        .filter(|word| !word.is_empty())
        .collect()
}

#[test]
fn metrics_are_those_that_parsers_know() {
    let mut command = Cli::command();
    command.build();
    let of = |path: &[&str]| {
        let mut command = &command;
        for name in path {
            command = command.find_subcommand(name).unwrap();
        }
        command_metrics(command).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(of(&["path", "stall"]), ["longest", "stalled"]);
    for (path, metric) in [(["load", "ntp"], "response-p99.9"), (["host", "all"], "timer.p99")] {
        assert!(of(&path).iter().any(|name| name == metric), "{path:?} {metric}: {:?}", of(&path));
    }
}

#[test]
fn help_names_each_metric() {
    let mut command = Cli::command();
    command.build();
    // That of all parts refers to the help of each.
    for line in metric_lines().iter().filter(|line| !line.starts_with("horolog host all:")) {
        let (path, metric) = line.split_once(": ").unwrap();
        let found = path
            .split(' ')
            .skip(1)
            .fold(&command, |command, name| command.find_subcommand(name).unwrap());
        let flag = found.get_arguments().find(|argument| argument.get_long() == Some("fail-if"));
        let help = flag.and_then(clap::Arg::get_long_help).unwrap().to_string();
        let mut parts = metric.match_indices(['-', '.']).map(|(at, _)| metric.split_at(at));
        let is_named = help.contains(metric)
            || parts.any(|(kind, of)| help.contains(kind) && help.contains(&of[1..]));
        assert!(is_named, "{line}: {help}");
    }
}
