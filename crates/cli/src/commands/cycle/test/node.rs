//! `horolog cycle application-node` (hidden): the process of one node of an application under test,
//! started by `horolog cycle test` only.

use clap::Args;
use horolog_cycle::application::node;

use crate::failure::CommandFailure;

/// Run one node of a test by orders on standard input; started by 'horolog cycle test'.
#[derive(Args, Debug)]
pub(crate) struct ApplicationNodeArgs {}

pub(crate) fn run(_: &ApplicationNodeArgs) -> Result<(), CommandFailure> {
    node::serve().map_err(|error| {
        CommandFailure::environment(format!(
            "{error}; this command is started by 'horolog cycle test'"
        ))
    })
}
