//! `horolog relay add`, `remove` and `list`: control of a running relay through its control socket.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use horolog_relay::control::{
    ControlClientError, ControlRefusalClass, ControlRequest, default_path, request,
};
use horolog_relay::{GroupSpec, HOP_LIMIT, IpNetwork, RATE, RelayListing, render_text};

use super::no_default_path;
use crate::failure::CommandFailure;
use crate::{output, values};

#[derive(Args, Debug)]
struct ControlSocketArgs {
    /// Control socket of the relay [default: as for 'relay run'].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Add children to a group of a running relay, or with --listen a new group.
///
/// The change is in force when the command ends; no packet to other children is lost or duplicated.
/// It lasts until the relay ends or rereads its table file; 'relay list --toml' prints the table
/// for that file.
#[derive(Args, Debug)]
pub(super) struct RelayAddArgs {
    /// Name of the group.
    group: String,
    /// Addresses and ports of children.
    #[arg(value_name = "ADDR:PORT", value_parser = values::socket_address,
          required_unless_present = "listen")]
    children: Vec<SocketAddr>,
    /// Create a new group that listens on this address: that of a multicast group, one of the
    /// relay's host, or all of that host (0.0.0.0, [::]).
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address,
          requires = "source")]
    listen: Option<SocketAddr>,
    /// Permitted sender of a new group: a network or an address. Required with --listen.
    /// Repeatable.
    #[arg(long, value_name = "NETWORK", requires = "listen")]
    source: Vec<IpNetwork>,
    /// Interface on which a new group joins its multicast group [default: the kernel's choice].
    #[arg(long, value_name = "IF", requires = "listen")]
    interface: Option<String>,
    /// Limit on packets per second that a new group relays, before they are copied.
    #[arg(long, value_name = "RATE", value_parser = values::count, requires = "listen",
          default_value_t = RATE as u32)]
    rate: u32,
    /// Highest TTL (IPv4) or hop limit (IPv6) of the copies of a new group. A copy has one less
    /// than the received packet, and this at most; a packet to a multicast address is copied with
    /// exactly this value.
    #[arg(long, value_name = "N", requires = "listen", default_value_t = HOP_LIMIT,
          value_parser = clap::value_parser!(u8).range(1..))]
    hop_limit: u8,
    /// Drop copies of a new group that exceed the path MTU to a child, instead of letting the
    /// kernel fragment them.
    #[arg(long, requires = "listen")]
    no_fragment: bool,
    #[command(flatten)]
    socket: ControlSocketArgs,
}

/// Remove children of a group of a running relay, or the whole group if none is named.
#[derive(Args, Debug)]
pub(super) struct RelayRemoveArgs {
    /// Name of the group.
    group: String,
    /// Addresses and ports of children.
    #[arg(value_name = "ADDR:PORT", value_parser = values::socket_address)]
    children: Vec<SocketAddr>,
    #[command(flatten)]
    socket: ControlSocketArgs,
}

/// Show the table of a running relay and its counters.
#[derive(Args, Debug)]
pub(super) struct RelayListArgs {
    /// Print the table and counters as JSON.
    #[arg(long)]
    json: bool,
    /// Print only the table, as a table file.
    #[arg(long, conflicts_with = "json")]
    toml: bool,
    #[command(flatten)]
    socket: ControlSocketArgs,
}

impl From<ControlClientError> for CommandFailure {
    fn from(error: ControlClientError) -> Self {
        match error {
            ControlClientError::Refused(reason, ControlRefusalClass::Request) => {
                Self::usage(reason)
            }
            error => Self::environment(error),
        }
    }
}

impl ControlSocketArgs {
    fn send_request(
        &self,
        wanted: &ControlRequest,
    ) -> Result<Option<RelayListing>, CommandFailure> {
        let path = self.socket.clone().or_else(default_path).ok_or_else(no_default_path)?;
        Ok(request(&path, wanted)?)
    }
}

pub(super) fn add(args: RelayAddArgs) -> Result<(), CommandFailure> {
    let RelayAddArgs { group, children, listen, source, interface, rate, hop_limit, .. } = args;
    let request = match listen {
        None => ControlRequest::AddChildren { group, children },
        Some(listen) => ControlRequest::AddGroup {
            group: GroupSpec {
                name: group,
                listen,
                interface,
                sources: source,
                rate: rate.into(),
                hop_limit,
                fragment: !args.no_fragment,
                children,
            },
        },
    };
    args.socket.send_request(&request).map(drop)
}

pub(super) fn remove(args: RelayRemoveArgs) -> Result<(), CommandFailure> {
    let RelayRemoveArgs { group, children, socket } = args;
    let request = if children.is_empty() {
        ControlRequest::RemoveGroup { group }
    } else {
        ControlRequest::RemoveChildren { group, children }
    };
    socket.send_request(&request).map(drop)
}

pub(super) fn list(args: &RelayListArgs) -> Result<(), CommandFailure> {
    let Some(listing) = args.socket.send_request(&ControlRequest::List)? else {
        return Err(CommandFailure::environment("the relay responded without its state"));
    };
    let text = if args.json {
        serde_json::to_string_pretty(&listing).map_err(CommandFailure::environment)?
    } else if args.toml {
        listing.table.to_toml()
    } else {
        render_text(&listing)
    };
    output::print_line(text.trim_end())
}
