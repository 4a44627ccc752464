//! `horolog relay add`, `remove` and `list`: changes and the state of a running relay.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use horolog_relay::control::{AskError, Fault, Request, ask, default_path};
use horolog_relay::{GroupSpec, HOP_LIMIT, Listing, Network, RATE, text};

use super::no_usual_place;
use crate::failure::Failure;
use crate::{output, values};

#[derive(Args, Debug)]
struct SocketArgs {
    /// The relay's control socket [default: as for 'relay run'].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Add children to a group of a running relay, or with --listen a new group.
///
/// It is in force when the command ends, without a packet lost or doubled for the others, and until
/// the relay ends or rereads its table file; 'relay list --toml' prints what to keep in that file.
#[derive(Args, Debug)]
pub(super) struct AddArgs {
    /// The group's name.
    group: String,
    /// Addresses and ports of children.
    #[arg(value_name = "ADDR:PORT", value_parser = values::socket_address,
          required_unless_present = "listen")]
    children: Vec<SocketAddr>,
    /// Make a new group, which listens here: at a multicast group's address, one of the relay's
    /// own, or all (0.0.0.0, [::]).
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address,
          requires = "source")]
    listen: Option<SocketAddr>,
    /// A new group's source: a network or an address; may be given several times.
    #[arg(long, value_name = "NETWORK", requires = "listen")]
    source: Vec<Network>,
    /// The interface on which a new group joins its multicast group [default: the kernel's choice].
    #[arg(long, value_name = "IF", requires = "listen")]
    interface: Option<String>,
    /// Packets in a second of a new group, at most.
    #[arg(long, value_name = "RATE", value_parser = values::count, requires = "listen",
          default_value_t = RATE as u32)]
    rate: u32,
    /// TTL or hop limit that copies of a new group leave with, at most.
    #[arg(long, value_name = "N", requires = "listen", default_value_t = HOP_LIMIT,
          value_parser = clap::value_parser!(u8).range(1..))]
    hop_limit: u8,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Remove children of a group of a running relay, or the group where none is named.
#[derive(Args, Debug)]
pub(super) struct RemoveArgs {
    /// The group's name.
    group: String,
    /// Addresses and ports of children.
    #[arg(value_name = "ADDR:PORT", value_parser = values::socket_address)]
    children: Vec<SocketAddr>,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Show the table of a running relay and what it counted.
#[derive(Args, Debug)]
pub(super) struct ListArgs {
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
    /// Print the table alone, as a table file.
    #[arg(long, conflicts_with = "json")]
    toml: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Refused(reason, Fault::Request) => Self::usage(reason),
            error => Self::environment(error),
        }
    }
}

impl SocketArgs {
    fn ask(&self, request: &Request) -> Result<Option<Listing>, Failure> {
        let path = self.socket.clone().or_else(default_path).ok_or_else(no_usual_place)?;
        Ok(ask(&path, request)?)
    }
}

pub(super) fn add(args: AddArgs) -> Result<(), Failure> {
    let AddArgs { group, children, listen, source, interface, rate, hop_limit, socket } = args;
    let request = match listen {
        None => Request::AddChildren { group, children },
        Some(listen) => Request::AddGroup {
            group: GroupSpec {
                name: group,
                listen,
                interface,
                sources: source,
                rate: rate.into(),
                hop_limit,
                children,
            },
        },
    };
    socket.ask(&request).map(drop)
}

pub(super) fn remove(args: RemoveArgs) -> Result<(), Failure> {
    let RemoveArgs { group, children, socket } = args;
    let request = if children.is_empty() {
        Request::RemoveGroup { group }
    } else {
        Request::RemoveChildren { group, children }
    };
    socket.ask(&request).map(drop)
}

pub(super) fn list(args: &ListArgs) -> Result<(), Failure> {
    let Some(listing) = args.socket.ask(&Request::List)? else {
        return Err(Failure::environment("the relay answered without telling its state"));
    };
    let shown = if args.json {
        serde_json::to_string_pretty(&listing).map_err(Failure::environment)?
    } else if args.toml {
        listing.table.to_toml()
    } else {
        text(&listing)
    };
    output::line(shown.trim_end())
}
