//! Two results of one kind beside each other: the record of a comparison, and what it judges.

mod figures;
mod judge;
mod places;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Finding, Host};

pub use places::{distributions, numbers};

/// The name and version of this record.
pub const COMPARE_SCHEMA: &str = "horolog.compare/1";

/// A comparison of two runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompareResult {
    /// [`COMPARE_SCHEMA`].
    pub schema: String,
    /// When they were compared, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine on which they were compared.
    pub host: Host,
    /// The run that the other is held against.
    pub earlier: ComparedRun,
    /// The run that is judged.
    pub later: ComparedRun,
    /// How much worse a figure may be, as a share of what it was.
    pub threshold: f64,
    /// The share of bootstrap replications between each figure's bounds.
    pub confidence: f64,
    /// The figures that both have, in the order of their places.
    pub figures: Vec<ComparedFigure>,
    /// The places that only the earlier one has.
    pub only_earlier: Vec<String>,
    /// The places that only the later one has.
    pub only_later: Vec<String>,
    /// What else differs: machine and command.
    pub conditions: Vec<ComparedCondition>,
    /// Doubts.
    pub findings: Vec<Finding>,
}

/// A run that is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedRun {
    /// What it was asked for by: its number, key or name, or a file.
    pub reference: String,
    /// Its result's schema.
    pub schema: String,
    /// When it began, RFC 3339.
    pub started: String,
}

/// A figure of both runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedFigure {
    /// Where it stands in the results, such as `trials[offered_rate=10000].rtt_ns`.
    pub place: String,
    /// Which figure.
    pub figure: ComparedFigureKind,
    /// What it was: ns, a share, or a rate in a second.
    pub earlier: f64,
    /// What it is.
    pub later: f64,
    /// The lower bound of the change: a share of what it was; of shares, their difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// The upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// What follows.
    pub verdict: CompareVerdict,
}

/// What is compared. Times and losses are worse where they are larger, rates where they are
/// smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComparedFigureKind {
    /// A median time.
    P50,
    /// A 99th percentile.
    P99,
    /// A 99.9th percentile.
    #[serde(rename = "p99.9")]
    P999,
    /// The share of what was sent that was lost.
    Loss,
    /// A rate that a search found, between its bounds.
    Rate,
}

/// What is said of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompareVerdict {
    /// Both bounds are within the threshold.
    Same,
    /// Both bounds are beyond it, for the better.
    Better,
    /// Both bounds are beyond it, for the worse.
    Worse,
    /// The bounds are on both sides of the threshold.
    Unclear,
    /// There are too few values for bounds.
    NotEnough,
}

/// Something that was not the same for both runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedCondition {
    /// Where it stands in the results.
    pub place: String,
    /// What it was.
    pub earlier: String,
    /// What it is.
    pub later: String,
}

/// What two results have and have not in common.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct Comparison {
    /// See [`CompareResult`].
    pub figures: Vec<ComparedFigure>,
    /// See [`CompareResult`].
    pub only_earlier: Vec<String>,
    /// See [`CompareResult`].
    pub only_later: Vec<String>,
    /// See [`CompareResult`].
    pub conditions: Vec<ComparedCondition>,
}

impl Comparison {
    /// Compares two results of one kind. Figures are compared where both have them at the same
    /// place: items of lists are the same where they have the same rate, length or name.
    #[must_use]
    pub fn of(earlier: &Value, later: &Value, threshold: f64) -> Self {
        let (figures, only_earlier, only_later) = figures::compare(earlier, later, threshold);
        let conditions = conditions(earlier, later);
        Self { figures, only_earlier, only_later, conditions }
    }
}

/// What differs of machine and command, but for files that results are written to.
fn conditions(earlier: &Value, later: &Value) -> Vec<ComparedCondition> {
    let host = |result: &'_ Value| result["host"].as_object().cloned().unwrap_or_default();
    let (before, after) = (host(earlier), host(later));
    let names: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let of = |place: String, earlier: String, later: String| {
        (earlier != later).then_some(ComparedCondition { place, earlier, later })
    };
    let shown = |value: Option<&Value>| match value {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let hosts = names.into_iter().filter_map(|name| {
        of(format!("host.{name}"), shown(before.get(name)), shown(after.get(name)))
    });
    hosts.chain(of("command".to_owned(), command(earlier), command(later))).collect()
}

/// Flags with files that results are written to.
const FILES: [&str; 6] = ["--json", "--html", "--csv", "--store", "--junit", "--summary"];

fn command(result: &Value) -> String {
    let words = result["command"].as_array().map_or(&[][..], Vec::as_slice);
    let mut words = words.iter().filter_map(Value::as_str).skip(1);
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word.split_once('=') {
            Some((flag, _)) if FILES.contains(&flag) => {}
            None if FILES.contains(&word) => drop(words.next()),
            _ => kept.push(word),
        }
    }
    kept.join(" ")
}

#[cfg(test)]
mod tests;
