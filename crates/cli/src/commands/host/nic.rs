//! `horolog host nic`: settings and capabilities of a named interface.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_probe::host::nic::inspect;

use crate::failure::{CommandFailure, check_findings};
use crate::files::ResultFileArgs;
use crate::output;

/// Show the settings and capabilities of a NIC: queues, RSS, interrupts and their cores, rings,
/// coalescing, offloads, XDP, timestamps; and the changes to make for serving time or generating
/// load.
///
/// Nothing is changed; each recommended change is shown with its command. Missing features are
/// listed with the reason. The interface is looked up in the network namespace of this process.
#[derive(Args, Debug)]
pub(crate) struct HostNicArgs {
    /// Interface, such as eth0.
    #[arg(value_name = "IF")]
    interface: String,
    #[command(flatten)]
    files: ResultFileArgs,
}

pub(super) fn run(args: &HostNicArgs) -> Result<(), CommandFailure> {
    let files = args.files.open()?;
    let result = inspect(&args.interface, output::command_line()).map_err(|error| {
        let missing = error.missing_interface();
        let hint = missing.map(|name| format!("no interface '{name}'; 'ip link' lists them"));
        CommandFailure::environment(hint.unwrap_or_else(|| error.to_string()))
    })?;
    files.write(&result)?;
    check_findings(&result.findings)
}
