//! Interfaces to which the XDP programs are attached: mainly the ingress of groups' packets.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use horolog_sys::netlink::Link;
use horolog_xdp::{Attachment, Interface, RelayPrograms, supports_redirect};
use serde::{Deserialize, Serialize};

use crate::route_cache::RouteCache;
use crate::{Group, RoutingTable};

/// Interval after which an interface that refused the programs is tried again without a change of
/// the table, because the obstacle may have gone.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Interface to which the XDP programs are to be attached: ingress of groups' packets, egress that
/// accepts redirected frames only with a program, or the send interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct XdpInterfaceListing {
    /// Name of the interface.
    pub name: String,
    /// Reason for which all packets of the interface go to the sockets; absent if the XDP programs
    /// receive them first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Known ingress of a group's packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupIngress {
    /// Index of the interface, if a multicast group's packets arrive by exactly one; otherwise
    /// `None`, and any is accepted.
    pub(super) sole_interface: Option<u32>,
}

/// Interfaces to which the programs are to be attached, with the latest attempt for each.
#[derive(Debug)]
pub(super) struct XdpProgramInterfaces {
    /// Names of the interfaces to be used; if empty, those that the groups need.
    configured: Vec<String>,
    /// Index of the send interface, on which the relay injects packets; `None` without one.
    send_interface_index: Option<u32>,
    attempts: BTreeMap<u32, AttachAttempt>,
    /// Groups of the latest table, to detect a change of the table.
    latest_groups: Vec<Weak<Group>>,
}

#[derive(Debug)]
struct AttachAttempt {
    name: String,
    at: Instant,
    attached: Result<Attachment, String>,
}

impl XdpProgramInterfaces {
    pub(super) const fn new(configured: Vec<String>) -> Self {
        Self {
            configured,
            send_interface_index: None,
            attempts: BTreeMap::new(),
            latest_groups: Vec::new(),
        }
    }

    pub(super) const fn set_send_interface(&mut self, index: u32) {
        self.send_interface_index = Some(index);
    }

    /// Returns true if the programs are attached to the send interface.
    pub(super) fn is_send_interface_attached(&self) -> bool {
        let attempt = self.send_interface_index.and_then(|own| self.attempts.get(&own));
        attempt.is_some_and(|tried| tried.attached.is_ok())
    }

    /// Attaches the programs to the ingress interfaces of groups' packets, to the send interface,
    /// and to egress interfaces that need a program; detaches them from those no longer used,
    /// unless they are merely down. An interface that refused the programs is tried again at each
    /// change of the table, periodically, and when it has been created anew.
    pub(super) fn sync(
        &mut self,
        relay: &RelayPrograms,
        table: &RoutingTable,
        route_cache: &RouteCache,
    ) {
        let mut wanted: BTreeMap<u32, &Link> = BTreeMap::new();
        for group in table.groups() {
            let links = self.ingress_links(group, route_cache).into_iter();
            wanted.extend(links.filter(|link| link.up).map(|link| (link.index, link)));
        }
        wanted.extend(
            self.egress_needing_program(table, route_cache)
                .into_iter()
                .map(|link| (link.index, link)),
        );
        let send_link = self.send_interface_index.and_then(|own| route_cache.link(own));
        wanted.extend(send_link.map(|link| (link.index, link)));
        let is_changed = self.update_groups(table);
        self.attempts.retain(|_, tried| !tried.is_retry_due(is_changed));
        self.attempts.retain(|index, tried| {
            wanted.get(index).is_some_and(|link| link.name == tried.name)
                || tried.attached.is_ok() && route_cache.link(*index).is_some_and(|link| !link.up)
        });
        for (index, link) in wanted {
            if let Some(mac) = link.mac {
                relay.set_mac(index, mac);
            }
            self.attempts.entry(index).or_insert_with(|| {
                let interface = Interface { index, name: link.name.clone() };
                let attached = if self.send_interface_index == Some(index) {
                    relay.attach_send_interface(&interface)
                } else {
                    relay.attach(&interface)
                };
                let attached = attached.map_err(|error| error.to_string());
                AttachAttempt { name: interface.name, at: Instant::now(), attached }
            });
        }
    }

    /// Records the groups of a table; returns true if they differ from those of the previous call.
    fn update_groups(&mut self, table: &RoutingTable) -> bool {
        let groups = table.groups();
        // Every table makes its own groups, so that comparing addresses suffices.
        let is_same = |(previous, group): (&Weak<Group>, &Arc<Group>)| {
            std::ptr::eq(previous.as_ptr(), Arc::as_ptr(group))
        };
        let same = self.latest_groups.len() == groups.len()
            && self.latest_groups.iter().zip(groups).all(is_same);
        if !same {
            self.latest_groups = groups.iter().map(Arc::downgrade).collect();
        }
        !same
    }

    /// Returns the egress interfaces to which an XDP program must be attached before they accept
    /// redirected frames (some drivers allocate XDP transmit queues only then).
    fn egress_needing_program<'a>(
        &self,
        table: &RoutingTable,
        route_cache: &'a RouteCache,
    ) -> Vec<&'a Link> {
        let routes_of = |group: &Arc<Group>| {
            let listen = group.spec.listen;
            let routes =
                group.children.iter().map(move |child| route_cache.route(listen, child.address));
            routes.flatten().collect::<Vec<_>>()
        };
        let links = table
            .groups()
            .iter()
            .flat_map(routes_of)
            .filter(|route| !route.local)
            .filter_map(|route| route_cache.link(route.index));
        let nics = links.filter(|link| link.up && link.kind.is_none() && has_mac(link));
        let needs_one = |link: &&Link| {
            self.attempts.contains_key(&link.index) || !supports_redirect(link.index)
        };
        nics.filter(needs_one).collect()
    }

    /// Returns the ingress of a group's packets, or the reason for which the programs do not
    /// receive them there.
    pub(super) fn group_ingress(
        &self,
        group: &Group,
        route_cache: &RouteCache,
    ) -> Result<GroupIngress, String> {
        let links = self.ingress_links(group, route_cache);
        let only_link = links.first().filter(|_| links.len() == 1 && group.is_multicast());
        let ingress = GroupIngress { sole_interface: only_link.map(|link| link.index) };
        let mut refusal = None;
        for link in &links {
            match self.attempts.get(&link.index) {
                Some(AttachAttempt { attached: Ok(_), .. }) => return Ok(ingress),
                Some(AttachAttempt { attached: Err(why), .. }) => refusal = Some(why.clone()),
                None => {}
            }
        }
        // Injected packets are multicast.
        if group.is_multicast() && self.is_send_interface_attached() {
            return Ok(ingress);
        }
        let down = links.first().map(|link| format!("interface '{}' is down", link.name));
        let no_interface = || "its packets arrive on no interface that supports XDP".to_owned();
        Err(refusal.or(down).unwrap_or_else(no_interface))
    }

    /// Returns the interfaces by which a group's packets arrive, sorted by index: only those with a
    /// MAC address and, if any are configured, only these.
    fn ingress_links<'a>(&self, group: &Group, route_cache: &'a RouteCache) -> Vec<&'a Link> {
        let listen = group.spec.listen;
        let is_configured =
            |link: &&Link| self.configured.is_empty() || self.configured.contains(&link.name);
        let is_ingress = |link: &&Link| {
            if let Some(name) = &group.spec.interface {
                link.name == *name
            } else if listen.ip().is_multicast() {
                route_cache.route(listen, listen).is_some_and(|route| route.index == link.index)
            } else if listen.ip().is_unspecified() || !self.configured.is_empty() {
                true
            } else {
                route_cache.interface_of(listen.ip()) == Some(link.index)
            }
        };
        let mut links: Vec<&Link> = route_cache
            .links()
            .filter(|link| has_mac(link))
            .filter(is_configured)
            .filter(is_ingress)
            .collect();
        links.sort_unstable_by_key(|link| link.index);
        links
    }

    pub(super) fn listing(&self) -> Vec<XdpInterfaceListing> {
        let to_listing = |tried: &AttachAttempt| XdpInterfaceListing {
            name: tried.name.clone(),
            refused: tried.attached.as_ref().err().cloned(),
        };
        self.attempts.values().map(to_listing).collect()
    }
}

impl AttachAttempt {
    /// Returns true if the attachment failed and is to be tried again.
    fn is_retry_due(&self, is_changed: bool) -> bool {
        self.attached.is_err() && (is_changed || self.at.elapsed() >= RETRY_INTERVAL)
    }
}

/// Returns true if frames of the link have MAC addresses, unlike those of the loopback.
fn has_mac(link: &Link) -> bool {
    link.mac.is_some_and(|mac| mac != [0; 6])
}
