//! Flags of `horolog serve` for interleaved mode and transmit timestamps.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_server::InterleavedConfig;

#[derive(Args, Debug)]
pub(crate) struct InterleavedArgs {}

impl InterleavedArgs {
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "skeleton")]
    pub(crate) fn resolve(self) -> Result<InterleavedConfig, crate::failure::Failure> {
        Ok(InterleavedConfig::default())
    }
}
