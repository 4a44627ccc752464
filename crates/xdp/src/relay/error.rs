//! Errors in the settings of the relay's groups and children.

use std::net::{IpAddr, SocketAddr};

use super::abi::{INTERFACE_INDICES, RELAY_INTERFACES_MAX};
use crate::XdpError;

/// Reason for which a group could not be set or removed. The group keeps its previous state, except
/// after some errors of [`RelayGroupError::Xdp`].
#[derive(Debug, thiserror::Error)]
pub enum RelayGroupError {
    /// A map or program failed. If it failed after the new state had been activated, that state is
    /// in effect.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// The group's number is not below
    /// [`RelayTableCapacities::groups`](super::RelayTableCapacities::groups).
    #[error("group {address} exceeds the limit of {max} groups of the BPF maps")]
    GroupsFull {
        /// Address of the group.
        address: SocketAddr,
        /// Limit of the group numbers.
        max: u32,
    },
    /// The group's number belongs to another group.
    #[error("group {address} has the number {number}, which another group uses")]
    NumberTaken {
        /// Address of the group.
        address: SocketAddr,
        /// Number in use.
        number: u32,
    },
    /// The group has too many children.
    #[error("group {address} has {count} children; the limit of the BPF maps is {max} per group")]
    GroupFull {
        /// Address of the group.
        address: SocketAddr,
        /// Number of its children.
        count: usize,
        /// Most children of a group.
        max: u32,
    },
    /// All groups together have too many children.
    #[error("the children exceed the limit of {max} of the BPF maps")]
    ChildrenFull {
        /// Most children of all groups.
        max: u32,
    },
    /// Copies would leave by too many interfaces.
    #[error(
        "copies leave through more than {} interfaces; relay some by sockets",
        RELAY_INTERFACES_MAX
    )]
    InterfacesFull,
    /// An interface's index is beyond the table of interfaces.
    #[error(
        "interface '{interface}' has index {index}, and the BPF map ends at {}; relay by sockets \
         there",
        INTERFACE_INDICES
    )]
    InterfaceIndex {
        /// Name of the interface.
        interface: String,
        /// Index of the interface.
        index: u32,
    },
    /// An interface does not send frames that programs redirect to it.
    #[error(
        "interface '{interface}' takes no frames from BPF programs; on a virtual link, enable GRO \
         at the peer end or run an XDP program there"
    )]
    RedirectUnsupported {
        /// Name of the interface.
        interface: String,
    },
    /// A source, a destination address or a child's address has another IP version than the group.
    #[error("group {group} cannot have the child {other}: copies keep the packet's IP version")]
    IpVersionMismatch {
        /// Address of the group.
        group: SocketAddr,
        /// Address of the other IP version.
        other: IpAddr,
    },
    /// Two children have the same destination.
    #[error("group {group} has the child {child} twice")]
    DuplicateChild {
        /// Address of the group.
        group: SocketAddr,
        /// Destination of the child.
        child: SocketAddr,
    },
}
