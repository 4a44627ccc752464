//! Two results of one kind beside each other: the record of a comparison, and what it judges.

mod conditions;
mod figures;
mod judge;
mod measured;
mod places;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Finding, Host};

pub use places::{damaged, distributions, numbers};

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
    /// More runs like the earlier one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_repeats: Vec<ComparedRun>,
    /// More runs like the later one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later_repeats: Vec<ComparedRun>,
    /// How much worse a figure may be, as a share of what it was.
    pub threshold: f64,
    /// The share of bootstrap replications between each figure's bounds.
    pub confidence: f64,
    /// The figures that both have, in the order of their places.
    pub figures: Vec<ComparedFigure>,
    /// The places that only the earlier one has, or not all of several.
    pub only_earlier: Vec<String>,
    /// The places that only the later one has, or not all of several.
    pub only_later: Vec<String>,
    /// What else differs: machine and command.
    pub conditions: Vec<ComparedCondition>,
    /// Doubts.
    pub findings: Vec<Finding>,
}

impl CompareResult {
    /// The figures that decide: those of what was measured.
    pub fn deciding(&self) -> impl Iterator<Item = &ComparedFigure> + Clone {
        self.figures.iter().filter(|figure| !figure.of_measurer)
    }
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
    /// What it was: ns, a share, or a rate in a second; of several runs the mean, of their offsets
    /// that of how far they are from 0. Absent where a run tried and nothing came of it, such as a
    /// fault that nobody detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<f64>,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub later: Option<f64>,
    /// The lower bound of the change: a share of what it was; of shares, their difference; of
    /// offsets, by how many ns it is further from 0. Absent where there is too little for it: too
    /// few values, one reading only, or a search that ended before it found that bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// The upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// What follows.
    pub verdict: CompareVerdict,
    /// It tells of whoever measured, such as how late a generator was, and decides nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_measurer: bool,
}

/// What is compared. Times and shares are worse where they are larger, rates where they are
/// smaller, offsets where they are further from 0.
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
    /// The share of what was sent that was lost; or of what the place says, that was late, invalid,
    /// missed, failed, stalled or sent again.
    Loss,
    /// A rate that a search found, between its bounds; or of a transfer.
    Rate,
    /// A time that was read once, in ns.
    Time,
    /// How far a clock is from another, in ns.
    Offset,
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
    /// Compares results of one kind, one or several on either side. Figures are compared where all
    /// have them at the same place: items of lists are the same where they have the same rate,
    /// length or name. What else differs is that of the first of each.
    #[must_use]
    pub fn of(earlier: &[&Value], later: &[&Value], threshold: f64) -> Self {
        let (figures, only_earlier, only_later) = figures::compare(earlier, later, threshold);
        let conditions = earlier.first().zip(later.first());
        let conditions = conditions
            .map_or_else(Vec::new, |(earlier, later)| conditions::differing(earlier, later));
        Self { figures, only_earlier, only_later, conditions }
    }
}

#[cfg(test)]
mod tests;
