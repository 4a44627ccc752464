//! The interfaces that multicast groups are joined on. A membership goes with its interface, and
//! what comes in its place under the same name has none; so it has to be joined anew.

use std::fmt;
use std::net::IpAddr;

use horolog_sys::netlink::{Link, Netlink, NetlinkError};

use crate::GroupSpec;

/// The interface that a group is joined on is there, or another one, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ground {
    /// It is there; so it is taken to be where the kernel does not tell.
    Firm,
    /// Another one has come in its place.
    Changed,
    /// There is none at present.
    Gone,
}

/// The interfaces of this host, as they were when they were asked for.
pub(crate) struct Interfaces {
    netlink: Netlink,
    links: Vec<Link>,
}

impl Interfaces {
    pub(crate) fn look() -> Result<Self, NetlinkError> {
        let mut netlink = Netlink::open()?;
        let links = netlink.links()?;
        Ok(Self { netlink, links })
    }

    /// The index of the interface that a group is to be joined on; 0 where neither it nor a route
    /// names one.
    pub(crate) fn of(&mut self, group: &GroupSpec) -> Result<u32, NetlinkError> {
        match &group.interface {
            Some(name) => {
                let none = || NetlinkError::NoSuchInterface(name.clone());
                self.named(name).ok_or_else(none)
            }
            None => Ok(self.routed(group.listen.ip())),
        }
    }

    /// What has become of the interface `index` that a group is joined on.
    pub(crate) fn ground(&mut self, group: &GroupSpec, index: u32) -> Ground {
        let now = match &group.interface {
            _ if index == 0 => return Ground::Firm,
            Some(name) => self.named(name),
            None if self.links.iter().any(|link| link.index == index) => Some(index),
            None => Some(self.routed(group.listen.ip())).filter(|index| *index != 0),
        };
        match now {
            Some(now) if now == index => Ground::Firm,
            Some(_) => Ground::Changed,
            None => Ground::Gone,
        }
    }

    fn named(&self, name: &str) -> Option<u32> {
        self.links.iter().find(|link| link.name == name).map(|link| link.index)
    }

    fn routed(&mut self, to: IpAddr) -> u32 {
        self.netlink.route_get(to, None).map_or(0, |way| way.index)
    }
}

/// What a multicast group has lost or found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JoinNews {
    /// The interface that this group is joined on is gone.
    Lost(String),
    /// It is back, or another is in its place, and this group is joined there.
    Joined(String),
}

impl fmt::Display for JoinNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(group) => write!(
                f,
                "group '{group}' gets nothing by its interface, which is gone; it is joined again \
                 when there is one"
            ),
            Self::Joined(group) => {
                write!(f, "group '{group}' is joined anew, on the interface that has come")
            }
        }
    }
}
