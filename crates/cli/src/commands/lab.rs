//! `horolog lab`: creates, lists, uses and removes lab hosts.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::ffi::OsString;

use clap::{Args, Subcommand};
use horolog_lab::{LabConfig, LabHost};
use horolog_sys::signal::{BlockedSignals, Signal};
use horolog_wire::prefix::Prefix;

use crate::failure::CommandFailure;
use crate::output;

/// Create and use lab hosts: network namespaces joined by virtual links.
///
/// Hosts are named client, server, server2, ...; host HOST of lab NAME is the network namespace
/// horolog-NAME-HOST. Each server has one link to the client. Nothing outside the lab hosts
/// changes. Requires root.
#[derive(Args, Debug)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    action: LabCommand,
}

#[derive(Subcommand, Debug)]
enum LabCommand {
    /// Create a lab, which persists until 'horolog lab down'.
    Up {
        /// Name of the lab.
        #[arg(default_value = "lab")]
        name: String,
        /// Number of hosts, 2 to 65: one client, the rest servers.
        #[arg(long, value_name = "N", default_value_t = 2)]
        hosts: usize,
        /// Queues of every interface [default: one for each core].
        #[arg(long, value_name = "N")]
        queues: Option<u32>,
        /// Create the lab without IPv6.
        #[arg(long)]
        no_ipv6: bool,
        /// Network of the simulated clients of 'horolog load' (its --source), which the servers
        /// reach through the host client. Repeatable [default: 10.0.0.0/8 fd00::/8].
        #[arg(short = 's', long, value_name = "NETWORK/BITS")]
        source: Vec<Prefix>,
    },
    /// Remove a lab, or the remains of one after a crash.
    Down {
        /// Name of the lab.
        #[arg(default_value = "lab")]
        name: String,
    },
    /// List the labs.
    List,
    /// Run a program in one of a lab's hosts.
    Exec {
        /// Name of the lab.
        #[arg(long, default_value = "lab")]
        name: String,
        /// Host: client, server, server2, ...
        host: String,
        /// Program and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<OsString>,
    },
}

pub(crate) fn run(args: LabArgs) -> Result<(), CommandFailure> {
    match args.action {
        LabCommand::Up { name, hosts, queues, no_ipv6, source } => {
            let default = LabConfig::default();
            let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
            let config = LabConfig {
                hosts,
                queues: queues.unwrap_or(cores),
                ipv6: !no_ipv6,
                client_networks: if source.is_empty() { default.client_networks } else { source },
            };
            up(&name, &config)
        }
        LabCommand::Down { name } => down(&name),
        LabCommand::List => list(),
        LabCommand::Exec { name, host, program } => {
            horolog_lab::exec_in_host(&name, &host, &program)?;
            Ok(())
        }
    }
}

fn up(name: &str, config: &LabConfig) -> Result<(), CommandFailure> {
    // Signals stay blocked until this process ends, so that no incomplete lab is left behind.
    let signals = [Signal::Interrupt, Signal::Terminate, Signal::HangUp];
    BlockedSignals::block(&signals).map_err(CommandFailure::environment)?;
    let lab = horolog_lab::create_lab(name, config)?;
    let printed = lab.hosts().iter().try_for_each(|host| output::print_line(&host_line(host)));
    if let Err(failure) = printed {
        down(name)?;
        return Err(failure);
    }
    output::print_note(&format!(
        "horolog: 'horolog lab exec --name {name} HOST PROGRAM' runs a program in a host"
    ));
    Ok(())
}

fn host_line(host: &LabHost) -> String {
    let ports = host.interfaces.iter().map(|port| {
        let ipv6 = port.ipv6.map(|address| format!(" {address}")).unwrap_or_default();
        format!("{} {}{ipv6}", port.name, port.ipv4)
    });
    format!("{}: {}", host.name, ports.collect::<Vec<_>>().join(", "))
}

fn down(name: &str) -> Result<(), CommandFailure> {
    let removed = horolog_lab::remove_lab(name)?;
    for process in &removed.processes {
        output::print_note(&format!(
            "horolog: process {} ({}) still runs in a host, which remains until it ends",
            process.pid, process.name
        ));
    }
    Ok(())
}

fn list() -> Result<(), CommandFailure> {
    for lab in horolog_lab::list_labs()? {
        let note = if lab.is_complete() { "" } else { " (incomplete; remove it)" };
        output::print_line(&format!("{}: {}{note}", lab.name, lab.hosts.join(", ")))?;
    }
    Ok(())
}
