//! Private hosts: network namespaces joined by veth pairs, for demonstrations, tests and
//! measurements that must touch no real network.
//!
//! A lab is a star. Host 0, the client, has one link to each of the others, the servers; usually
//! there is one. ([`Lab::tree`] joins servers to servers instead.) All hosts see the files,
//! processes and users of the machine and differ in nothing but their network. Nothing outside the
//! new namespaces is changed, and no state is kept but in the kernel: an anonymous [`Lab`] vanishes
//! with the process that holds it, however it dies, and a lab made by [`up`] is known by the names
//! of its namespaces alone.
//!
//! A lab attaches no XDP program, and decides nothing about what is run in it. Its links neither
//! lose nor delay packets on purpose; faults belong into a packet device, where they are exact.
//!
//! | | client | server *k* (1, 2, …) |
//! |---|---|---|
//! | interface | `veth0`, `veth1`, … | `veth0` |
//! | IPv4 (RFC 5737) | 192.0.2.1, .5, … /30 | 192.0.2.2, .6, … /30 |
//! | IPv6 (RFC 3849) | `2001:db8:0:k::1/64` | `2001:db8:0:k::2/64` |
//! | MAC | 02:00 and the IPv4 address | 02:00 and the IPv4 address |
//!
//! Each server has routes to the networks of simulated clients (10.0.0.0/8 and `fd00::/8`
//! unless told otherwise) by way of the client host.
//!
//! Beside the hosts stands a device that is played: a [`receiver`] of GNSS.

mod config;
mod error;
mod host;
mod lab;
mod named;
pub mod receiver;
mod running;
mod sysctl;

pub use config::{DEFAULT_CLIENT_NETWORKS, HOSTS_MAX, LabConfig, QUEUES_MAX};
pub use error::LabError;
pub use host::{Host, Port};
pub use lab::Lab;
pub use named::{Downed, LabSummary, command, down, exec, list, up};
pub use running::{Running, RunningError};
