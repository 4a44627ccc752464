//! Flags of `horolog serve` for Network Time Security and symmetric keys.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_server::NtsConfig;

#[derive(Args, Debug)]
pub(crate) struct NtsArgs {}

impl NtsArgs {
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "skeleton")]
    pub(crate) fn resolve(self) -> Result<NtsConfig, crate::failure::Failure> {
        Ok(NtsConfig::default())
    }
}
