//! `--fail-if`: what a load is held against, and how a broken limit ends the command.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_load::limit::{Limit, Wants};
use horolog_record::{Finding, LimitResult, SearchKind};

use crate::failure::{Failure, limits_kept, no_error};

/// What must not be measured.
#[derive(Args, Debug, Default)]
pub(crate) struct LimitArgs {
    /// End with status 1 if this holds of any trial, such as 'loss>0.1%' or 'p99>200us'; may be
    /// given more than once. Metrics: loss, late, duplicate, invalid (shares of the requests sent),
    /// hurt (share of the well-behaved clients' requests that were lost), rate (sent per second),
    /// ndr and pdr (what a search found), p50, p90, p99, p99.9, p99.99, max (round trip), and these
    /// six behind response- (the server's response time), lateness- (how late requests left) and
    /// offset- (by how much timestamps are off, either way; with --offset). Of a search, the trials
    /// at the rate found count. What was not measured breaks its limit.
    #[arg(long, value_name = "LIMIT")]
    fail_if: Vec<Limit>,
}

impl LimitArgs {
    /// The limits of a run that does all of this.
    pub(crate) fn resolve(self, does: &[Wants]) -> Result<Vec<Limit>, Failure> {
        for limit in &self.fail_if {
            let wants = limit.wants().filter(|wants| !does.contains(wants));
            let missing = match wants {
                None => continue,
                Some(Wants::Search(SearchKind::Ndr)) => "a search; add --search ndr",
                Some(Wants::Search(SearchKind::Pdr)) => "a search; add --search pdr",
                Some(Wants::Offsets) => "offsets; add --offset",
                Some(Wants::WellBehaved) => "well-behaved clients; add --well-behaved",
            };
            let text = limit.text();
            return Err(Failure::usage(format!("the limit '{text}' is for {missing}")));
        }
        Ok(self.fail_if)
    }

    /// The limits of a run of key establishments that does all of this.
    pub(crate) fn resolve_for_establishments(self, does: &[Wants]) -> Result<Vec<Limit>, Failure> {
        match self.fail_if.iter().find(|limit| !limit.suits_establishment()) {
            None => self.resolve(does),
            Some(limit) => Err(Failure::usage(format!(
                "key establishments have no such figure as in '{}'; take loss, rate, ndr, pdr, or \
                 a percentile or max of the time that they take",
                limit.text()
            ))),
        }
    }
}

/// How a load ends: in status 1 where a finding is an error, which is told before any limit, or a
/// limit is broken.
pub(crate) fn verdict(findings: &[Finding], limits: &[LimitResult]) -> Result<(), Failure> {
    no_error(findings)?;
    limits_kept(limits)
}
