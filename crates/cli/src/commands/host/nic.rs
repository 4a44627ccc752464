//! `horolog host nic`: an interface's name to what it is set to and able to do.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_probe::host::nic::look;
use horolog_report::{html, table, to_json};
use horolog_sys::netlink::NetlinkError;

use crate::failure::{Failure, verdict};
use crate::files::FileArgs;
use crate::output;

/// Show what a network card is set to and able to do: queues, spreading (RSS), interrupts and their
/// cores, rings, coalescing, offloads, XDP, timestamps; and what to change for serving or loading
/// time.
///
/// Nothing is set; each change comes with the command that makes it. What an interface does not
/// have is named with the reason. It is looked up in the network namespace of this process.
#[derive(Args, Debug)]
pub(crate) struct NicArgs {
    /// The interface, such as eth0.
    #[arg(value_name = "IF")]
    interface: String,
    #[command(flatten)]
    files: FileArgs,
}

pub(super) fn run(args: &NicArgs) -> Result<(), Failure> {
    let files = args.files.open()?;
    let result = look(&args.interface, output::command_line()).map_err(|error| match error {
        NetlinkError::NoSuchInterface(name) => {
            Failure::environment(format!("no interface '{name}' is here; 'ip link' lists them"))
        }
        error => Failure::environment(error),
    })?;
    files.write(&result, [to_json, html::host_nic], table::host_nic)?;
    verdict(&[], &result.findings)
}
