//! Flags of `horolog serve` for rate limits and lists of prefixes.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_server::LimitsConfig;

#[derive(Args, Debug)]
pub(crate) struct LimitsArgs {}

impl LimitsArgs {
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "skeleton")]
    pub(crate) fn resolve(self) -> Result<LimitsConfig, crate::failure::Failure> {
        Ok(LimitsConfig::default())
    }
}
