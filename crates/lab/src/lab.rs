//! Creation of a lab: its hosts, the links between them, their addresses, routes and neighbours.
//! All of it is anonymous, so a failure or crash halfway leaves nothing behind.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use horolog_sys::ethtool;
use horolog_sys::netlink::{MacAddress, Netlink, NetlinkError, Prefix, VethEnd, VethPair};

use crate::config::{self, LinkEnd};
use crate::{LabConfig, LabError, LabHost, LabInterface};

/// Timeout of each wait. It takes milliseconds, or a second if many interfaces change at once.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Lab hosts that live as long as this value, and as the processes that run in them.
#[derive(Debug)]
pub struct Lab {
    hosts: Vec<LabHost>,
}

impl Lab {
    /// Creates the hosts and joins them. Needs `CAP_SYS_ADMIN` and `CAP_NET_ADMIN`.
    pub fn new(config: &LabConfig) -> Result<Self, LabError> {
        Self::tree(&vec![0; config.hosts.saturating_sub(1)], config)
    }

    /// Creates a tree: server 1 and the following ones are each joined to the host whose number is
    /// in `above`, which is smaller than their own. A host's first interface leads to the host
    /// above it, the others to the hosts below, in the order of their numbers; the client has only
    /// the latter. The number of hosts follows from `above`, not from `config`.
    pub fn tree(above: &[usize], config: &LabConfig) -> Result<Self, LabError> {
        let config = LabConfig { hosts: above.len() + 1, ..config.clone() };
        config.check()?;
        config::check_tree(above)?;
        let mut hosts = vec![LabHost::bare(config::host_name(0), config.ipv6)?];
        for (number, above) in (1..).zip(above) {
            let mut server = LabHost::bare(config::host_name(number), config.ipv6)?;
            join(&mut hosts[*above], &mut server, number, &config)?;
            hosts.push(server);
        }
        Ok(Self { hosts })
    }

    /// All hosts: the client, then the servers.
    #[must_use]
    pub fn hosts(&self) -> &[LabHost] {
        &self.hosts
    }

    /// A host by its number: 0 is the client, 1 the first server.
    ///
    /// # Panics
    ///
    /// If the lab has no such host.
    #[must_use]
    pub fn host(&self, number: usize) -> &LabHost {
        &self.hosts[number]
    }

    /// The host at the centre of the star.
    #[must_use]
    pub fn client(&self) -> &LabHost {
        self.host(0)
    }

    /// The first server; every lab has one.
    #[must_use]
    pub fn server(&self) -> &LabHost {
        self.host(1)
    }
}

/// One end of a link while it is being set up.
struct Plug {
    netlink: Netlink,
    interface: String,
    ipv4: (Ipv4Addr, u8),
    ipv6: Option<(Ipv6Addr, u8)>,
}

impl Plug {
    fn new(host: &LabHost, server: usize, end: LinkEnd, ipv6: bool) -> Result<Self, LabError> {
        Ok(Self {
            netlink: host.netlink()?,
            interface: format!("veth{}", host.ports.len()),
            ipv4: config::link_v4(server, end),
            ipv6: ipv6.then(|| config::link_v6(server, end)),
        })
    }

    fn mac(&self) -> MacAddress {
        config::mac_of(self.ipv4.0)
    }

    fn veth_end(&self) -> VethEnd {
        VethEnd { name: self.interface.clone(), mac: Some(self.mac()) }
    }

    /// The addresses of this end with their prefix lengths.
    fn addresses(&self) -> impl Iterator<Item = (IpAddr, u8)> + use<> {
        let (v4, v4_length) = self.ipv4;
        let v6 = self.ipv6.map(|(v6, length)| (IpAddr::V6(v6), length));
        std::iter::once((IpAddr::V4(v4), v4_length)).chain(v6)
    }

    /// Brings the interface up.
    fn switch_on(&mut self) -> Result<LabInterface, LabError> {
        let link = self.netlink.link_by_name(&self.interface)?;
        self.netlink.set_link_up(link.index)?;
        Ok(LabInterface {
            interface: self.interface.clone(),
            index: link.index,
            mac: self.mac(),
            ipv4: self.ipv4.0,
            ipv6: self.ipv6.map(|(address, _)| address),
        })
    }

    /// Waits until the interface passes packets. The kernel detects a carrier shortly after it
    /// comes up, and until then drops outgoing packets.
    fn await_carrier(&mut self, index: u32) -> Result<(), LabError> {
        self.wait(|netlink| Ok(netlink.link_by_index(index)?.operational))
    }

    /// Waits until packets to this end's addresses are accepted. The kernel activates an IPv6
    /// address shortly after it is added.
    fn await_addresses(&mut self) -> Result<(), LabError> {
        for (address, _) in self.addresses() {
            self.wait(|netlink| Ok(netlink.route_get(address, None)?.local))?;
        }
        Ok(())
    }

    fn wait(
        &mut self,
        ready: impl Fn(&mut Netlink) -> Result<bool, NetlinkError>,
    ) -> Result<(), LabError> {
        let started = Instant::now();
        while !ready(&mut self.netlink)? {
            if started.elapsed() >= WAIT_TIMEOUT {
                return Err(LabError::NotReady(self.interface.clone()));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Sets the interface's addresses and its neighbour entries for the other end, so that neither
    /// end ever sends a neighbour request.
    fn address(&mut self, index: u32, other: &Plug) -> Result<(), LabError> {
        for (address, length) in self.addresses() {
            self.netlink.add_address(index, Prefix::new(address, length)?)?;
        }
        for (address, _) in other.addresses() {
            self.netlink.add_permanent_neighbour(index, address, other.mac())?;
        }
        Ok(())
    }

    /// Adds a route to the networks of simulated clients through the other end.
    fn route(&mut self, index: u32, networks: Prefix, other: &Plug) -> Result<(), LabError> {
        let gateway = other
            .addresses()
            .map(|(address, _)| address)
            .find(|address| address.is_ipv4() == networks.address().is_ipv4());
        Ok(self.netlink.add_route(networks, gateway, index)?)
    }
}

/// Enables one end of a virtual link to receive frames that a BPF program redirects into it: this
/// requires a receive queue of its own, which comes with GRO or with an XDP program at that end.
fn take_frames_from_xdp(host: &LabHost, end: &Plug) -> Result<(), LabError> {
    Ok(host.run(|| ethtool::set_gro(&end.interface, true))??)
}

fn join(
    client: &mut LabHost,
    server: &mut LabHost,
    number: usize,
    config: &LabConfig,
) -> Result<(), LabError> {
    let mut near = Plug::new(client, number, LinkEnd::Client, config.ipv6)?;
    let mut far = Plug::new(server, number, LinkEnd::Server, config.ipv6)?;
    near.netlink.create_veth(&VethPair {
        local: near.veth_end(),
        peer: far.veth_end(),
        peer_namespace: server.netns.as_fd(),
        queues: config.queues,
    })?;
    take_frames_from_xdp(client, &near)?;
    take_frames_from_xdp(server, &far)?;
    let near_port = near.switch_on()?;
    let far_port = far.switch_on()?;
    near.await_carrier(near_port.index)?;
    far.await_carrier(far_port.index)?;
    near.address(near_port.index, &far)?;
    far.address(far_port.index, &near)?;
    near.await_addresses()?;
    far.await_addresses()?;
    for network in config.routed_networks() {
        far.route(far_port.index, network, &near)?;
    }
    client.ports.push(near_port);
    server.ports.push(far_port);
    Ok(())
}
