//! Flags of `horolog serve` for metrics, logs, privileges.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_server::OperationConfig;

#[derive(Args, Debug)]
pub(crate) struct OperationArgs {}

impl OperationArgs {
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "skeleton")]
    pub(crate) fn resolve(self) -> Result<OperationConfig, crate::failure::Failure> {
        Ok(OperationConfig::default())
    }
}
