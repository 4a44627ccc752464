//! Application-layer multicast: a relay receives one packet of a group and sends each of the
//! group's children a unicast copy. UDP only; TCP is out of scope.
//!
//! The decision about a packet is one pure function ([`decide()`]) of the packet, the routing table
//! and the limits; a [`CopySender`] sends the copies, or an [`XdpEngine`] makes them in the
//! driver's path by the same decision. A relay is not an open amplifier: sources and destinations
//! are restricted to lists, rates and fan-out have limits, loops end, and every refusal is counted.

mod confine;
pub mod control;
mod counters;
mod decide;
mod engine;
mod fields;
mod group_socket;
mod limits;
mod listing;
mod memberships;
pub mod metrics;
mod network;
mod path_monitor;
mod reason;
mod receiver;
mod relay;
mod route_cache;
mod send_interface;
mod spec;
mod table;
#[cfg(test)]
mod tests;
mod text;
pub mod tree;
mod worker;
mod xdp;

pub use confine::confine;
pub use counters::{ChildCounters, ChildCounts, GroupCounters, GroupCounts};
pub use decide::{LocalAddresses, PacketCopies, ReceivedPacket, decide};
pub use engine::{CopySender, OutgoingCopy, SocketEngineKind};
pub use group_socket::GroupSocketError;
pub use limits::RelayRateLimiter;
pub use listing::{ChildListing, GroupListing, LimitsListing, RelayListing, SCHEMA, XdpLimits};
pub use memberships::MembershipEvent;
pub use network::IpNetwork;
pub use reason::{CopyDrop, PacketRefusal};
pub use relay::{Relay, RelayError};
pub use send_interface::{LocalSenderInterface, LocalSenderInterfaceError};
pub use spec::{COPY_RATE, GroupSpec, HOP_LIMIT, RATE, RoutingTableFileError, RoutingTableSpec};
pub use table::{CHILDREN_MAX, GROUPS_MAX, Group, GroupChild, RoutingTable, RoutingTableError};
pub use text::{render_text, ring_drops_text};
pub use xdp::{XdpEngine, XdpEngineError, XdpInterfaceListing};
