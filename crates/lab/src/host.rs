//! Lab host: its network namespace, its interfaces, and the programs that run in it.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::{fs, io};

use horolog_sys::namespace::NetNs;
use horolog_sys::netlink::{MacAddress, Netlink};

use crate::LabError;

/// Host of a lab: a network namespace with its interfaces.
#[derive(Debug)]
pub struct LabHost {
    /// Name: `client`, `server`, `server2`, …
    pub name: String,
    /// Network namespace of the host.
    pub netns: NetNs,
    /// Interfaces other than loopback: one for each server at the client, and one at each server;
    /// in a tree those of [`crate::Lab::tree`].
    pub interfaces: Vec<LabInterface>,
}

/// Interface of a lab host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabInterface {
    /// Name of the interface.
    pub name: String,
    /// Interface index in the host's namespace.
    pub index: u32,
    /// MAC address.
    pub mac: MacAddress,
    /// IPv4 address.
    pub ipv4: Ipv4Addr,
    /// IPv6 address; `None` in a lab without IPv6.
    pub ipv6: Option<Ipv6Addr>,
}

impl LabHost {
    /// Creates a host with a loopback interface, which is up, and no other.
    pub(crate) fn with_loopback_only(name: String, ipv6: bool) -> Result<Self, LabError> {
        let netns = NetNs::anonymous()?;
        netns.run(|| apply(ipv6))??;
        let host = Self { name, netns, interfaces: Vec::new() };
        let mut netlink = host.netlink()?;
        let loopback = netlink.link_by_name("lo")?;
        netlink.set_link_up(loopback.index)?;
        Ok(host)
    }

    /// Returns the first interface, which is the only one at a server of a star.
    ///
    /// # Panics
    ///
    /// Never for a host of a [`crate::Lab`]: each has a link to another one.
    #[must_use]
    pub fn first_interface(&self) -> &LabInterface {
        &self.interfaces[0]
    }

    /// Runs `work` on a new thread in this host's namespace and returns its value. Threads that it
    /// starts and sockets that it opens are in this namespace too.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        Ok(self.netns.run(work)?)
    }

    /// Returns a command that runs `program` in this host. With
    /// [`horolog_sys::namespace::die_with_parent`] it ends when the caller dies.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        self.netns.start_inside(&mut command);
        command
    }

    /// Opens an rtnetlink socket in this host's namespace, for use from any thread.
    pub fn netlink(&self) -> Result<Netlink, LabError> {
        Ok(self.netns.run(Netlink::open)??)
    }
}

/// Settings of IPv4. Replies to simulated clients arrive at the client host, which must neither
/// forward them nor drop them by reverse-path filtering; both settings may be inherited from the
/// host.
const IPV4_SETTINGS: [(&str, &str); 3] = [
    ("net/ipv4/ip_forward", "0"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
];

/// Settings of IPv6. No host sends router advertisements or solicitations, and addresses are usable
/// at once, without duplicate address detection. For that, `all` counts together with the setting
/// of the interface, which is derived from `default`.
const IPV6_SETTINGS: [(&str, &str); 7] = [
    ("net/ipv6/conf/all/forwarding", "0"),
    ("net/ipv6/conf/all/accept_ra", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv6/conf/all/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/all/router_solicitations", "0"),
    ("net/ipv6/conf/default/router_solicitations", "0"),
];

/// Settings of a lab without IPv6: no interface has an IPv6 address or sends multicast for it.
const IPV6_DISABLED_SETTINGS: [(&str, &str); 2] =
    [("net/ipv6/conf/all/disable_ipv6", "1"), ("net/ipv6/conf/default/disable_ipv6", "1")];

/// Applies the settings to the calling thread's namespace. To be called before interfaces are
/// created, which inherit them.
pub(crate) fn apply(ipv6: bool) -> Result<(), LabError> {
    for (setting, value) in IPV4_SETTINGS {
        write(setting, value).map_err(|source| setting_error(setting, source))?;
    }
    let settings: &[_] = if ipv6 { &IPV6_SETTINGS } else { &IPV6_DISABLED_SETTINGS };
    for &(setting, value) in settings {
        match write(setting, value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && ipv6 => {
                return Err(LabError::NoIpv6 { setting: setting.to_owned() });
            }
            // A kernel without IPv6 has nothing to disable.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.map_err(|source| setting_error(setting, source))?,
        }
    }
    Ok(())
}

fn write(setting: &str, value: &str) -> io::Result<()> {
    fs::write(format!("/proc/sys/{setting}"), value)
}

fn setting_error(setting: &str, source: io::Error) -> LabError {
    LabError::SettingFailed { setting: setting.to_owned(), source }
}
