//! `horolog cycle node` (hidden): the process of one node, started by `horolog cycle run` only.

use clap::Args;
use horolog_cycle::node;

use crate::failure::CommandFailure;

/// Run one node of a run by orders on standard input; started by 'horolog cycle run'.
#[derive(Args, Debug)]
pub(crate) struct CycleNodeArgs {}

/// Arguments with which this program starts itself as a node.
pub(super) const NODE_COMMAND: [&str; 2] = ["cycle", "node"];

pub(super) fn run(_: &CycleNodeArgs) -> Result<(), CommandFailure> {
    node::serve().map_err(|error| {
        CommandFailure::environment(format!(
            "{error}; this command is started by 'horolog cycle run'"
        ))
    })
}
