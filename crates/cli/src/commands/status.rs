//! `horolog status`: asks a running server for its state and counters.

use std::path::PathBuf;

use clap::Args;
use horolog_server::status;

use crate::failure::Failure;

/// Print the state and counters of a running server, as JSON.
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Status socket of the server [default: that of the one server that runs].
    #[arg(long, value_name = "PATH")]
    status_socket: Option<PathBuf>,
}

pub(crate) fn run(args: StatusArgs) -> Result<(), Failure> {
    let path = args.status_socket.map_or_else(status::find, Ok)?;
    print!("{}", status::ask(&path)?);
    Ok(())
}
