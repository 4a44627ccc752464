//! The process of one node, which `horolog cycle run` starts; it has no other use.

use clap::Args;
use horolog_cycle::node;

use crate::failure::CommandFailure;

/// Run one node of a run by orders on standard input; started by 'horolog cycle run'.
#[derive(Args, Debug)]
pub(crate) struct NodeArgs {}

/// Arguments that start it.
pub(super) const WORDS: [&str; 2] = ["cycle", "node"];

pub(super) fn run(_: &NodeArgs) -> Result<(), CommandFailure> {
    node::serve().map_err(|error| {
        CommandFailure::environment(format!(
            "{error}; this command is started by 'horolog cycle run'"
        ))
    })
}
