//! The process of one node, which `horolog cycle run` starts; nobody else has a use for it.

use clap::Args;
use horolog_cycle::node;

use crate::failure::Failure;

/// Run one node of a run, as told on standard input; 'horolog cycle run' starts it.
#[derive(Args, Debug)]
pub(crate) struct NodeArgs {}

/// The words that start it.
pub(super) const WORDS: [&str; 2] = ["cycle", "node"];

pub(super) fn run(_: &NodeArgs) -> Result<(), Failure> {
    node::serve().map_err(|error| {
        Failure::environment(format!(
            "{error}; this command runs within 'horolog cycle run' and not by itself"
        ))
    })
}
