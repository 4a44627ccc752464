//! Flags of `horolog serve` for leap seconds, stepped or smeared.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_server::LeapConfig;

#[derive(Args, Debug)]
pub(crate) struct LeapArgs {}

impl LeapArgs {
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "skeleton")]
    pub(crate) fn resolve(self) -> Result<LeapConfig, crate::failure::Failure> {
        Ok(LeapConfig::default())
    }
}
