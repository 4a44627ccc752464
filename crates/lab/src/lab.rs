//! Creation of a lab: its hosts, the links between them, their addresses, routes and neighbours.
//! All namespaces are anonymous, so a failure or crash halfway leaves nothing behind.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use horolog_sys::ethtool;
use horolog_sys::netlink::{MacAddress, Netlink, NetlinkError, VethEndConfig, VethPairConfig};
use horolog_wire::prefix::Prefix;

use crate::config::{self, LinkEnd};
use crate::{LabConfig, LabError, LabHost, LabInterface};

/// Timeout of each wait. Waits take milliseconds, or about a second if many interfaces change at
/// once.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Lab hosts, which exist as long as this value or a process that runs in them.
#[derive(Debug)]
pub struct Lab {
    hosts: Vec<LabHost>,
}

impl Lab {
    /// Creates a star: a client with a link to each server. Requires `CAP_SYS_ADMIN` and
    /// `CAP_NET_ADMIN`.
    pub fn new(config: &LabConfig) -> Result<Self, LabError> {
        Self::tree(&vec![0; config.hosts.saturating_sub(1)], config)
    }

    /// Creates a tree: server `i + 1` has a link to the host with the number `parents[i]`, which is
    /// smaller than its own. The first interface of a server leads to its parent, and the others
    /// lead to its children in the order of their numbers; the client has only children. The number
    /// of hosts follows from `parents`, not from `config`.
    pub fn tree(parents: &[usize], config: &LabConfig) -> Result<Self, LabError> {
        let config = LabConfig { hosts: parents.len() + 1, ..config.clone() };
        config.check()?;
        config::check_tree(parents)?;
        let mut hosts = vec![LabHost::with_loopback_only(config::host_name(0), config.ipv6)?];
        for (number, parent) in (1..).zip(parents) {
            let mut server = LabHost::with_loopback_only(config::host_name(number), config.ipv6)?;
            link_hosts(&mut hosts[*parent], &mut server, number, &config)?;
            hosts.push(server);
        }
        Ok(Self { hosts })
    }

    /// Returns all hosts: the client, then the servers.
    #[must_use]
    pub fn hosts(&self) -> &[LabHost] {
        &self.hosts
    }

    /// Returns a host by its number: 0 is the client, 1 the first server.
    ///
    /// # Panics
    ///
    /// The lab has no such host.
    #[must_use]
    pub fn host(&self, number: usize) -> &LabHost {
        &self.hosts[number]
    }

    /// Returns the client, the centre of a star or the root of a tree.
    #[must_use]
    pub fn client(&self) -> &LabHost {
        self.host(0)
    }

    /// Returns the first server; every lab has one.
    #[must_use]
    pub fn server(&self) -> &LabHost {
        self.host(1)
    }
}

/// End of a veth pair during its configuration.
struct VethEndSetup {
    netlink: Netlink,
    interface: String,
    ipv4: (Ipv4Addr, u8),
    ipv6: Option<(Ipv6Addr, u8)>,
}

impl VethEndSetup {
    fn new(host: &LabHost, server: usize, end: LinkEnd, ipv6: bool) -> Result<Self, LabError> {
        Ok(Self {
            netlink: host.netlink()?,
            interface: format!("veth{}", host.interfaces.len()),
            ipv4: config::link_v4(server, end),
            ipv6: ipv6.then(|| config::link_v6(server, end)),
        })
    }

    fn mac(&self) -> MacAddress {
        config::mac_of(self.ipv4.0)
    }

    fn veth_end(&self) -> VethEndConfig {
        VethEndConfig { name: self.interface.clone(), mac: Some(self.mac()) }
    }

    /// Returns the addresses of this end with their prefix lengths.
    fn addresses(&self) -> impl Iterator<Item = (IpAddr, u8)> + use<> {
        let (v4, v4_length) = self.ipv4;
        let v6 = self.ipv6.map(|(v6, length)| (IpAddr::V6(v6), length));
        std::iter::once((IpAddr::V4(v4), v4_length)).chain(v6)
    }

    /// Brings the interface up, and returns its description.
    fn bring_up(&mut self) -> Result<LabInterface, LabError> {
        let link = self.netlink.link_by_name(&self.interface)?;
        self.netlink.set_link_up(link.index)?;
        Ok(LabInterface {
            name: self.interface.clone(),
            index: link.index,
            mac: self.mac(),
            ipv4: self.ipv4.0,
            ipv6: self.ipv6.map(|(address, _)| address),
        })
    }

    /// Waits until the interface is operational. The kernel detects the carrier shortly after the
    /// interface comes up, and drops outgoing packets until then.
    fn await_carrier(&mut self, index: u32) -> Result<(), LabError> {
        self.wait_until(|netlink| Ok(netlink.link_by_index(index)?.operational))
    }

    /// Waits until packets to the addresses of this end are accepted. The kernel activates an IPv6
    /// address shortly after it is added.
    fn await_addresses(&mut self) -> Result<(), LabError> {
        for (address, _) in self.addresses() {
            self.wait_until(|netlink| Ok(netlink.route_get(address, None)?.local))?;
        }
        Ok(())
    }

    fn wait_until(
        &mut self,
        is_ready: impl Fn(&mut Netlink) -> Result<bool, NetlinkError>,
    ) -> Result<(), LabError> {
        let started = Instant::now();
        while !is_ready(&mut self.netlink)? {
            if started.elapsed() >= WAIT_TIMEOUT {
                return Err(LabError::NotReady(self.interface.clone()));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Adds the addresses of this end, and permanent neighbour entries for the other end, so that
    /// neither end sends neighbour requests.
    fn add_addresses(&mut self, index: u32, other: &VethEndSetup) -> Result<(), LabError> {
        for (address, length) in self.addresses() {
            self.netlink.add_address(index, Prefix::new(address, length)?)?;
        }
        for (address, _) in other.addresses() {
            self.netlink.add_permanent_neighbour(index, address, other.mac())?;
        }
        Ok(())
    }

    /// Adds a route to a network of simulated clients through the other end.
    fn add_route(
        &mut self,
        index: u32,
        networks: Prefix,
        other: &VethEndSetup,
    ) -> Result<(), LabError> {
        let gateway = other
            .addresses()
            .map(|(address, _)| address)
            .find(|address| address.is_ipv4() == networks.address().is_ipv4());
        Ok(self.netlink.add_route(networks, gateway, index)?)
    }
}

/// Enables one end of a veth pair to receive frames that an XDP program redirects to its peer: this
/// requires NAPI at the receiving end, which GRO or an XDP program enables there.
fn enable_xdp_receive(host: &LabHost, end: &VethEndSetup) -> Result<(), LabError> {
    Ok(host.run(|| ethtool::set_gro(&end.interface, true))??)
}

fn link_hosts(
    client: &mut LabHost,
    server: &mut LabHost,
    number: usize,
    config: &LabConfig,
) -> Result<(), LabError> {
    let mut near = VethEndSetup::new(client, number, LinkEnd::Client, config.ipv6)?;
    let mut far = VethEndSetup::new(server, number, LinkEnd::Server, config.ipv6)?;
    near.netlink.create_veth(&VethPairConfig {
        local: near.veth_end(),
        peer: far.veth_end(),
        peer_namespace: server.netns.as_fd(),
        queues: config.queues,
    })?;
    enable_xdp_receive(client, &near)?;
    enable_xdp_receive(server, &far)?;
    let near_interface = near.bring_up()?;
    let far_interface = far.bring_up()?;
    near.await_carrier(near_interface.index)?;
    far.await_carrier(far_interface.index)?;
    near.add_addresses(near_interface.index, &far)?;
    far.add_addresses(far_interface.index, &near)?;
    near.await_addresses()?;
    far.await_addresses()?;
    for network in config.routed_networks() {
        far.add_route(far_interface.index, network, &near)?;
    }
    client.interfaces.push(near_interface);
    server.interfaces.push(far_interface);
    Ok(())
}
