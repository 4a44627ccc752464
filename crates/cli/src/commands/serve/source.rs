//! Flags of `horolog serve` for where the time comes from.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_server::SourceConfig;

#[derive(Args, Debug)]
pub(crate) struct SourceArgs {}

impl SourceArgs {
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "skeleton")]
    pub(crate) fn resolve(self) -> Result<SourceConfig, crate::failure::Failure> {
        Ok(SourceConfig::default())
    }
}
