//! Live views of a running command: on the terminal, with the same keys and marks for all commands,
//! and as a page for a browser.

mod feed;
mod layout;
mod screen;
mod sparkline;
mod view;
pub(crate) mod web;

use std::io::{self, IsTerminal};

use crate::failure::CommandFailure;

pub(crate) use feed::LiveFeed;
pub(crate) use layout::layout;
pub(crate) use screen::{KeyAction, Screen};
pub(crate) use sparkline::{SparklineHistory, bar};
pub(crate) use view::{SharedView, TerminalView};

/// Fails if there is no terminal to draw on and to read keys from.
pub(crate) fn needs_a_terminal() -> Result<(), CommandFailure> {
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        return Ok(());
    }
    Err(CommandFailure::usage("--live needs a terminal; omit it"))
}

/// Checks the terminal of a view that draws on standard error, because its result goes to standard
/// output.
pub(crate) fn needs_a_terminal_on_stderr() -> Result<(), CommandFailure> {
    let missing = match (io::stderr().is_terminal(), io::stdin().is_terminal()) {
        (true, true) => return Ok(()),
        (false, _) => "standard error",
        (true, false) => "standard input",
    };
    Err(CommandFailure::usage(format!(
        "--live needs a terminal: {missing} is not one; omit --live"
    )))
}
