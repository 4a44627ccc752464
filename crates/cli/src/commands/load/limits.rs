//! `--fail-if`: what a load is held against, and how a broken limit ends the command.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_load::limit::Limit;
use horolog_record::{Finding, LimitResult, SearchKind, Severity};

use crate::failure::Failure;

/// What must not be measured.
#[derive(Args, Debug, Default)]
pub(crate) struct LimitArgs {
    /// End with status 1 if this holds of any trial, such as 'loss>0.1%' or 'p99>200us'; may be
    /// given more than once. Metrics: loss, late, duplicate, invalid (shares of the requests sent),
    /// hurt (share of the well-behaved clients' requests that were lost), rate (sent per second),
    /// ndr and pdr (what a search found), p50, p90, p99, p99.9, p99.99, max (round trip), and these
    /// six behind response- (the server's response time) and lateness- (how late requests left). Of
    /// a search, the trials at the rate found count. What was not measured breaks its limit.
    #[arg(long, value_name = "LIMIT")]
    fail_if: Vec<Limit>,
}

impl LimitArgs {
    /// The limits of a run with this search, or none.
    pub(crate) fn resolve(self, search: Option<SearchKind>) -> Result<Vec<Limit>, Failure> {
        for limit in &self.fail_if {
            let (text, wanted) = (limit.text(), limit.search());
            let Some(wanted) = wanted.filter(|wanted| search != Some(*wanted)) else { continue };
            let name = match wanted {
                SearchKind::Ndr => "ndr",
                SearchKind::Pdr => "pdr",
            };
            let reason = format!("the limit '{text}' is for a search; add --search {name}");
            return Err(Failure::usage(reason));
        }
        Ok(self.fail_if)
    }

    /// The limits of a run of key establishments.
    pub(crate) fn resolve_for_establishments(self) -> Result<Vec<Limit>, Failure> {
        match self.fail_if.iter().find(|limit| !limit.suits_establishment()) {
            None => Ok(self.fail_if),
            Some(limit) => Err(Failure::usage(format!(
                "key establishments have no such figure as in '{}'; take loss, rate, or a \
                 percentile or max of the time that they take",
                limit.text()
            ))),
        }
    }
}

/// How a measurement ends: in status 1 where a finding is an error or a limit is broken.
pub(crate) fn verdict(findings: &[Finding], limits: &[LimitResult]) -> Result<(), Failure> {
    let error = findings.iter().find(|finding| finding.severity == Severity::Error);
    let reason = error.map(|finding| finding.message.clone());
    match reason.or_else(|| horolog_report::broken_limits(limits)) {
        Some(reason) => Err(Failure::Limit(reason)),
        None => Ok(()),
    }
}
