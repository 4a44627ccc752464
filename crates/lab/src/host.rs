//! A lab host: its namespace, its interfaces, and programs run in it.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;

use horolog_sys::namespace::NetNs;
use horolog_sys::netlink::{MacAddress, Netlink};

use crate::{LabError, sysctl};

/// A lab host.
#[derive(Debug)]
pub struct LabHost {
    /// `client`, `server`, `server2`, …
    pub name: String,
    /// Its network.
    pub netns: NetNs,
    /// Its interfaces other than loopback: one for each server at the client, one at each server;
    /// in a tree those of [`crate::Lab::tree`].
    pub ports: Vec<LabInterface>,
}

/// An interface of a lab host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabInterface {
    /// Its name.
    pub interface: String,
    /// Its index in the host's namespace.
    pub index: u32,
    /// Its Ethernet address.
    pub mac: MacAddress,
    /// Its IPv4 address.
    pub ipv4: Ipv4Addr,
    /// Its IPv6 address, in a lab with IPv6.
    pub ipv6: Option<Ipv6Addr>,
}

impl LabHost {
    /// Creates a host with only a loopback interface, which is up.
    pub(crate) fn bare(name: String, ipv6: bool) -> Result<Self, LabError> {
        let netns = NetNs::anonymous()?;
        netns.run(|| sysctl::apply(ipv6))??;
        let host = Self { name, netns, ports: Vec::new() };
        let mut netlink = host.netlink()?;
        let loopback = netlink.link_by_name("lo")?;
        netlink.set_link_up(loopback.index)?;
        Ok(host)
    }

    /// The first interface, and at a server the only one.
    ///
    /// # Panics
    ///
    /// Never for a host of a [`crate::Lab`]: each is joined to another.
    #[must_use]
    pub fn port(&self) -> &LabInterface {
        &self.ports[0]
    }

    /// Runs `work` on a new thread in this host and returns its value. Threads that it starts are
    /// in this host too, and sockets that it opens stay here.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        Ok(self.netns.run(work)?)
    }

    /// A command that runs `program` in this host. Pass it to
    /// [`horolog_sys::namespace::die_with_parent`] to end it with its caller if the caller dies.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        self.netns.start_inside(&mut command);
        command
    }

    /// A connection to this host's routing netlink, for use from any thread.
    pub fn netlink(&self) -> Result<Netlink, LabError> {
        Ok(self.netns.run(Netlink::open)??)
    }
}
