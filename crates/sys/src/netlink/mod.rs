//! Links, addresses, routes, neighbours and namespace identifiers through the kernel's routing
//! netlink (RFC 3549, `rtnetlink(7)`), one small file per kind of object.
//!
//! Calls are synchronous, one request and its response at a time: the kernel responds before `send`
//! returns. Notifications are not subscribed to.
//!
//! A [`Netlink`] belongs to the network namespace of the thread that opened it, even if it is moved
//! to another thread.

mod address;
mod connection;
mod error;
mod link;
mod neighbour;
mod route;
mod route_metrics;
mod veth;
mod xdp;

pub use address::InterfaceAddress;
pub use connection::Netlink;
pub use error::{KernelRefusal, NetlinkError};
pub use link::{Link, LinkCounters, VlanId};
pub use neighbour::Neighbour;
pub use route::RouteInfo;
pub use route_metrics::RouteMetrics;
pub use veth::{VethEndConfig, VethPairConfig};
pub use xdp::{XdpAttachmentMode, XdpFeatures, xdp_features};

/// Ethernet address, in transmission order.
pub type MacAddress = [u8; 6];
