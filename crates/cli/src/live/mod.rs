//! What is shown of something while it goes on: on the terminal, by one set of keys and marks for
//! all commands, and as a page for a browser.

mod feed;
mod lay;
mod marks;
mod screen;
mod view;
pub(crate) mod web;

use std::io::{self, IsTerminal};

use crate::failure::Failure;

pub(crate) use feed::Feed;
pub(crate) use lay::lay;
pub(crate) use marks::{Course, bar};
pub(crate) use screen::{Asked, Screen};
pub(crate) use view::{View, Viewed};

/// Complains where there is nothing to draw on and no keys to ask by.
pub(crate) fn needs_a_terminal() -> Result<(), Failure> {
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::usage("--live draws on a terminal, and this is none; leave it out"))
}

/// The same for what draws on standard error, since its result goes to standard output.
pub(crate) fn needs_a_terminal_beside() -> Result<(), Failure> {
    let missing = match (io::stderr().is_terminal(), io::stdin().is_terminal()) {
        (true, true) => return Ok(()),
        (false, _) => "standard error",
        (true, false) => "standard input",
    };
    Err(Failure::usage(format!("--live draws on a terminal, and {missing} is none; leave it out")))
}
