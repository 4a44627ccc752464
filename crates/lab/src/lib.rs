//! Labs: hosts that are network namespaces joined by veth pairs, for demonstrations, tests and
//! measurements that must not touch a real network.
//!
//! A lab is a star. Host 0, the client, has one link to each of the others, the servers; by default
//! there is one. ([`Lab::tree`] links servers to servers instead.) Lab hosts share the files,
//! processes and users of the real host and differ only in their network. Nothing outside the new
//! namespaces is changed, and all state is in the kernel: an anonymous [`Lab`] vanishes with the
//! process that holds it, in whatever way that ends, and a lab created by [`create_lab`] is
//! identified by the names of its namespaces alone.
//!
//! A lab attaches no XDP program and does not decide what runs in it. Its links do not lose or
//! delay packets on purpose; inject such faults in a packet device, where they are exact.
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
//! Besides hosts, the crate has a simulated GNSS [`receiver`].

mod config;
mod error;
mod host;
mod lab;
mod named;
pub mod receiver;
mod running;

pub use config::{DEFAULT_CLIENT_NETWORKS, HOSTS_MAX, LabConfig, QUEUES_MAX};
pub use error::LabError;
pub use host::{LabHost, LabInterface};
pub use lab::Lab;
pub use named::{
    LabSummary, RemovedLab, create_lab, exec_in_host, host_command, list_labs, remove_lab,
};
pub use running::{RunningProgram, RunningProgramError};
