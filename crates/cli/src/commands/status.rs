//! `horolog status`: prints the state and counters of a running server, or shows them live.

pub(crate) mod live;
mod view;

use std::path::PathBuf;

use clap::Args;
use horolog_server::status;

use crate::failure::CommandFailure;
use crate::live::require_terminal;
use crate::output;

/// Print the state and counters of a running server, as JSON.
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Status socket of the server [default: that of the only running server].
    #[arg(long, value_name = "PATH")]
    status_socket: Option<PathBuf>,
    /// Show the state on the terminal instead of as JSON, updated every second, until q is pressed.
    #[arg(long)]
    live: bool,
}

pub(crate) fn run(args: StatusArgs) -> Result<(), CommandFailure> {
    if args.live {
        require_terminal()?;
    }
    let path = args.status_socket.map_or_else(status::find_socket, Ok)?;
    if args.live {
        return live::run(&path, view::lay_out);
    }
    output::print_line(status::fetch(&path)?.trim_end())
}

/// Status with every field.
#[cfg(test)]
pub(crate) fn sample_status() -> horolog_server::ServerStatus {
    let text =
        include_str!(concat!(env!("HOROLOG_REPOSITORY"), "crates/server/samples/status.json"));
    horolog_server::ServerStatus::parse(text).unwrap()
}
