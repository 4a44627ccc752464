//! `--fail-if`: limits of a load, and the effect of a failed limit on the command.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_load::limit::{LoadLimit, RequiredFeature};
use horolog_record::{Finding, LimitResult, SearchKind};

use crate::failure::{CommandFailure, limits_passed, no_error};

/// Limits on the measured values.
#[derive(Args, Debug, Default)]
pub(crate) struct LimitArgs {
    /// Exit with status 1 if this expression is true for any trial, such as 'loss>0.1%' or
    /// 'p99>200us'; in a search, for the trials at the rate found. Repeatable. A limit on a metric
    /// that was not measured fails.
    ///
    /// Metrics: loss, late, duplicate, invalid, unsynchronised (shares of the requests sent),
    /// compliant-loss (share of the compliant clients' requests that were lost), rate (sent per
    /// second), ndr and pdr (result of a search), p50, p90, p99, p99.9, p99.99, max (round trip),
    /// and these six after response- (the server's response time), lateness- (send lateness) and
    /// offset- (absolute error of timestamps, with --measure-offset).
    #[arg(long, value_name = "LIMIT")]
    fail_if: Vec<LoadLimit>,
}

impl LimitArgs {
    /// The limits of a run with all of these features.
    pub(crate) fn resolve(
        self,
        does: &[RequiredFeature],
    ) -> Result<Vec<LoadLimit>, CommandFailure> {
        check_features(&self.fail_if, does)?;
        Ok(self.fail_if)
    }
}

/// Checks that a run has the features that its limits require.
pub(crate) fn check_features(
    limits: &[LoadLimit],
    features: &[RequiredFeature],
) -> Result<(), CommandFailure> {
    for limit in limits {
        let wants = limit.wants().filter(|wants| !features.contains(wants));
        let missing = match wants {
            None => continue,
            Some(RequiredFeature::Search(SearchKind::Ndr)) => "a search; add --search ndr",
            Some(RequiredFeature::Search(SearchKind::Pdr)) => "a search; add --search pdr",
            Some(RequiredFeature::Offsets) => "offsets; add --measure-offset",
            Some(RequiredFeature::WellBehaved) => "compliant clients; add --compliant-clients",
        };
        let text = limit.text();
        return Err(CommandFailure::usage(format!("the limit '{text}' is for {missing}")));
    }
    Ok(())
}

/// The end of a load: status 1 if there is an error-level finding, which is reported before any
/// limit, or a failed limit.
pub(crate) fn verdict(findings: &[Finding], limits: &[LimitResult]) -> Result<(), CommandFailure> {
    no_error(findings)?;
    limits_passed(limits)
}
