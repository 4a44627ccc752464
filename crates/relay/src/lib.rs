//! Application-layer multicast: a relay takes one packet of a group in and sends each of the
//! group's children a unicast copy. UDP alone; TCP is out of scope.
//!
//! What becomes of a packet is decided by one pure function ([`decide`]) of the packet, the routing
//! table and the limits; an [`Engine`] sends the copies, or a [`Kernel`] makes them in the driver's
//! path by the same decision. A relay is no open amplifier: sources and destinations are those of
//! lists, rates and fan-out have limits, loops die, and whatever is refused is counted.

mod books;
pub mod control;
mod decide;
mod engine;
mod fields;
mod handover;
mod joins;
mod kernel;
mod limits;
mod listing;
pub mod metrics;
mod network;
mod node;
mod outlet;
mod paths;
mod reason;
mod receiver;
mod spec;
mod table;
#[cfg(test)]
mod tests;
mod text;
pub mod tree;
mod ways;
mod worker;

pub use books::{ChildBook, ChildTally, GroupBook, GroupTally};
pub use decide::{Copies, Own, Packet, decide};
pub use engine::{Engine, EngineKind, Outbound};
pub use handover::{SendInterface, SendInterfaceError};
pub use joins::JoinNews;
pub use kernel::{InterfaceListing, Kernel, KernelError};
pub use limits::Limits;
pub use listing::{ChildListing, GroupListing, KernelLimits, LimitsListing, Listing, SCHEMA};
pub use network::Network;
pub use node::{Relay, RelayError};
pub use outlet::OutletError;
pub use reason::{Drop, Refusal};
pub use spec::{COPY_RATE, GroupSpec, HOP_LIMIT, RATE, Spec, SpecFault};
pub use table::{CHILDREN_MAX, Child, GROUPS_MAX, Group, Table, TableError};
pub use text::{ring_drops, text};
