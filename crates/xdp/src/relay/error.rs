//! Why the relay's groups or children cannot be what they are asked to be.

use std::net::{IpAddr, SocketAddr};

use super::abi::{INTERFACE_INDICES, RELAY_INTERFACES_MAX};
use crate::XdpError;

/// Why a group was not set; it stays as it was.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// A map or program failed.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// Its number is none.
    #[error("group {address} is one more than the {max} that the kernel's tables were made for")]
    GroupsFull {
        /// The group.
        address: SocketAddr,
        /// How many there may be.
        max: u32,
    },
    /// Its number is another group's.
    #[error("group {address} has the number {number}, which is that of another group")]
    NumberTaken {
        /// The group.
        address: SocketAddr,
        /// The number.
        number: u32,
    },
    /// The group has more children than a group may have.
    #[error(
        "group {address} has {count} children; the kernel's tables were made for {max} of a group"
    )]
    ChildrenOfGroup {
        /// The group.
        address: SocketAddr,
        /// How many it has.
        count: usize,
        /// How many it may have.
        max: u32,
    },
    /// All groups together have more children than they may have.
    #[error("the children are more than the {max} that the kernel's tables were made for")]
    ChildrenFull {
        /// How many there may be.
        max: u32,
    },
    /// Copies would leave by too many interfaces.
    #[error("copies leave by more than {} interfaces; relay some by sockets", RELAY_INTERFACES_MAX)]
    InterfacesFull,
    /// An interface's index is beyond the table of interfaces.
    #[error(
        "interface '{interface}' has index {index}, and the kernel's table ends at {}; relay by \
         sockets there",
        INTERFACE_INDICES
    )]
    InterfaceIndex {
        /// Its name.
        interface: String,
        /// Its index.
        index: u32,
    },
    /// An interface does not send frames that programs redirect to it.
    #[error(
        "interface '{interface}' takes no frames from BPF programs; of a virtual link, the other \
         end must run an XDP program or have GRO switched on"
    )]
    NoRedirects {
        /// Its name.
        interface: String,
    },
    /// A child or a source has an address of another IP version than the group.
    #[error("group {group} cannot have {other}: copies keep the packet's IP version")]
    Family {
        /// The group.
        group: SocketAddr,
        /// The address.
        other: IpAddr,
    },
    /// A child is listed twice.
    #[error("group {group} has the child {child} twice")]
    Twice {
        /// The group.
        group: SocketAddr,
        /// The child.
        child: SocketAddr,
    },
}
