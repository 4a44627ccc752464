//! Lab hosts: network namespaces joined by veth pairs, for demonstrations, tests and measurements
//! that must not touch a real network.
//!
//! A lab is a star. Host 0, the client, has one link to each of the others, the servers; by default
//! there is one. ([`Lab::tree`] joins servers to servers instead.) All hosts share the files,
//! processes and users of the host and differ only in their network. Nothing outside the new
//! namespaces is changed, and state is held only in the kernel: an anonymous [`Lab`] vanishes with
//! the process that holds it, however it dies, and a lab created by [`up`] is identified by the
//! names of its namespaces alone.
//!
//! A lab attaches no XDP program and does not decide what runs in it. Its links neither lose nor
//! delay packets on purpose; faults belong in a packet device, where they are exact.
//!
//! | | client | server *k* (1, 2, …) |
//! |---|---|---|
//! | interface | `veth0`, `veth1`, … | `veth0` |
//! | IPv4 (RFC 5737) | 192.0.2.1, .5, … /30 | 192.0.2.2, .6, … /30 |
//! | IPv6 (RFC 3849) | `2001:db8:0:k::1/64` | `2001:db8:0:k::2/64` |
//! | MAC | 02:00 and the IPv4 address | 02:00 and the IPv4 address |
//!
//! Each server has routes to the networks of simulated clients (by default 10.0.0.0/8 and
//! `fd00::/8`) through the client host.
//!
//! In addition to the hosts there is a simulated device: a GNSS [`receiver`].

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
pub use host::{LabHost, LabInterface};
pub use lab::Lab;
pub use named::{LabSummary, RemovedLab, command, down, exec, list, up};
pub use running::{RunningError, RunningProgram};
