//! The process of one node of an application under test, which `horolog cycle test` starts; nobody
//! else has a use for it.

use clap::Args;
use horolog_cycle::application::node;

use crate::failure::Failure;

/// Run one node of a test, as told on standard input; 'horolog cycle test' starts it.
#[derive(Args, Debug)]
pub(crate) struct ApplicationNodeArgs {}

pub(crate) fn run(_: &ApplicationNodeArgs) -> Result<(), Failure> {
    node::serve().map_err(|error| {
        Failure::environment(format!(
            "{error}; this command runs within 'horolog cycle test' and not by itself"
        ))
    })
}
