//! Interfaces on which multicast groups are joined. A membership ends with its interface, and an
//! interface that replaces it under the same name has none; so the group must be joined again.

use std::fmt;
use std::net::IpAddr;

use horolog_sys::netlink::{Link, Netlink, NetlinkError};

use crate::GroupSpec;

/// State of the interface on which a group is joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JoinedInterfaceState {
    /// The interface is present; also assumed if its index is unknown (0).
    Joined,
    /// Another interface has replaced the one on which the group is joined.
    Changed,
    /// The interface on which the group is joined is gone, and none has replaced it.
    Gone,
}

/// Interfaces of this host at the time of the query.
pub(crate) struct HostInterfaces {
    netlink: Netlink,
    links: Vec<Link>,
}

impl HostInterfaces {
    pub(crate) fn query() -> Result<Self, NetlinkError> {
        let mut netlink = Netlink::open()?;
        let links = netlink.links()?;
        Ok(Self { netlink, links })
    }

    /// Returns the index of the interface on which a group is to be joined; 0 if neither the group
    /// nor a route names one.
    pub(crate) fn group_interface_index(&mut self, group: &GroupSpec) -> Result<u32, NetlinkError> {
        match &group.interface {
            Some(name) => {
                let not_found = || NetlinkError::NoSuchInterface(name.clone());
                self.index_by_name(name).ok_or_else(not_found)
            }
            None => Ok(self.routed_index(group.listen.ip())),
        }
    }

    /// Returns the state of the interface `index` on which a group is joined.
    pub(crate) fn join_state(&mut self, group: &GroupSpec, index: u32) -> JoinedInterfaceState {
        let now = match &group.interface {
            _ if index == 0 => return JoinedInterfaceState::Joined,
            Some(name) => self.index_by_name(name),
            None if self.links.iter().any(|link| link.index == index) => Some(index),
            None => Some(self.routed_index(group.listen.ip())).filter(|index| *index != 0),
        };
        match now {
            Some(now) if now == index => JoinedInterfaceState::Joined,
            Some(_) => JoinedInterfaceState::Changed,
            None => JoinedInterfaceState::Gone,
        }
    }

    fn index_by_name(&self, name: &str) -> Option<u32> {
        self.links.iter().find(|link| link.name == name).map(|link| link.index)
    }

    fn routed_index(&mut self, to: IpAddr) -> u32 {
        self.netlink.route_get(to, None).map_or(0, |route| route.index)
    }
}

/// Change of a multicast group's membership.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MembershipEvent {
    /// The interface on which this group is joined is gone.
    Lost(String),
    /// The interface is back, or another has replaced it, and this group is joined there.
    Joined(String),
}

impl fmt::Display for MembershipEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(group) => write!(
                f,
                "group '{group}' receives nothing because its interface is gone; it is joined \
                 again when the interface returns"
            ),
            Self::Joined(group) => {
                write!(f, "group '{group}' is joined again on its new interface")
            }
        }
    }
}
