//! Ingress interfaces of groups' packets, with the programs attached there.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use horolog_sys::netlink::Link;
use horolog_xdp::{Attachment, Interface, RelayPrograms, supports_redirect};
use serde::{Deserialize, Serialize};

use crate::route_cache::RouteCache;
use crate::{Group, RoutingTable};

/// Interval before an interface that refused the programs is tried again, unless the table changes:
/// the obstacle may have gone.
const TRY_EVERY: Duration = Duration::from_secs(10);

/// Ingress interface of groups' packets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InterfaceListing {
    /// Its name.
    pub name: String,
    /// Reason for which its packets all go to the sockets; absent if the XDP programs receive them
    /// first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Ingress of a group's packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ingress {
    /// The only interface by which they arrive, if it is one.
    pub(super) only: Option<u32>,
}

/// Interfaces that were examined, by their index.
#[derive(Debug)]
pub(super) struct IngressInterfaces {
    /// Interfaces to be used; if empty, those that the groups need.
    named: Vec<String>,
    /// Interface by which the relay itself injects packets.
    own: Option<u32>,
    tried: BTreeMap<u32, AttachAttempt>,
    /// Groups of the latest table.
    followed: Vec<Weak<Group>>,
}

#[derive(Debug)]
struct AttachAttempt {
    name: String,
    at: Instant,
    attached: Result<Attachment, String>,
}

impl IngressInterfaces {
    pub(super) const fn new(named: Vec<String>) -> Self {
        Self { named, own: None, tried: BTreeMap::new(), followed: Vec::new() }
    }

    pub(super) const fn set_send_interface(&mut self, index: u32) {
        self.own = Some(index);
    }

    /// Returns true if the programs receive the packets that the relay itself injects.
    pub(super) fn has_own(&self) -> bool {
        let own = self.own.and_then(|own| self.tried.get(&own));
        own.is_some_and(|tried| tried.attached.is_ok())
    }

    /// Attaches the programs to the ingress interfaces of groups' packets, and detaches them from
    /// those no longer used. An interface that refused them is tried again at each change of the
    /// table, periodically, and when it has been created anew.
    pub(super) fn sync(&mut self, relay: &RelayPrograms, table: &RoutingTable, ways: &RouteCache) {
        let mut wanted: BTreeMap<u32, &Link> = BTreeMap::new();
        for group in table.groups() {
            let links = self.links_of(group, ways).into_iter();
            wanted.extend(links.filter(|link| link.up).map(|link| (link.index, link)));
        }
        wanted.extend(self.exits(table, ways).into_iter().map(|link| (link.index, link)));
        let own = self.own.and_then(|own| ways.link(own));
        wanted.extend(own.map(|link| (link.index, link)));
        let is_new = self.is_new(table);
        self.tried.retain(|_, tried| !tried.is_retry_due(is_new));
        self.tried.retain(|index, tried| {
            wanted.get(index).is_some_and(|link| link.name == tried.name)
                || tried.attached.is_ok() && ways.link(*index).is_some_and(|link| !link.up)
        });
        for (index, link) in wanted {
            if let Some(mac) = link.mac {
                relay.set_mac(index, mac);
            }
            self.tried.entry(index).or_insert_with(|| {
                let interface = Interface { index, name: link.name.clone() };
                let attached = if self.own == Some(index) {
                    relay.attach_send_interface(&interface)
                } else {
                    relay.attach(&interface)
                };
                let attached = attached.map_err(|error| error.to_string());
                AttachAttempt { name: interface.name, at: Instant::now(), attached }
            });
        }
    }

    /// Returns true if a table differs from the latest one, and records it.
    fn is_new(&mut self, table: &RoutingTable) -> bool {
        let groups = table.groups();
        // Every table makes its own groups.
        let is_same = |(known, group): (&Weak<Group>, &Arc<Group>)| {
            std::ptr::eq(known.as_ptr(), Arc::as_ptr(group))
        };
        let same =
            self.followed.len() == groups.len() && self.followed.iter().zip(groups).all(is_same);
        if !same {
            self.followed = groups.iter().map(Arc::downgrade).collect();
        }
        !same
    }

    /// Returns the egress interfaces of copies that do not accept redirected frames without a
    /// program of their own: some drivers allocate the queues for it only then.
    fn exits<'a>(&self, table: &RoutingTable, ways: &'a RouteCache) -> Vec<&'a Link> {
        let ways_of = |group: &Arc<Group>| {
            let at = group.spec.listen;
            let each = group.children.iter().map(move |child| ways.route(at, child.address));
            each.flatten().collect::<Vec<_>>()
        };
        let links = table
            .groups()
            .iter()
            .flat_map(ways_of)
            .filter(|way| !way.local)
            .filter_map(|way| ways.link(way.index));
        let nics = links.filter(|link| link.up && link.kind.is_none() && has_wire(link));
        let needs_one =
            |link: &&Link| self.tried.contains_key(&link.index) || !supports_redirect(link.index);
        nics.filter(needs_one).collect()
    }

    /// Returns the ingress of a group's packets, or the reason for which the programs do not
    /// receive them there.
    pub(super) fn of(&self, group: &Group, ways: &RouteCache) -> Result<Ingress, String> {
        let links = self.links_of(group, ways);
        let one = links.first().filter(|_| links.len() == 1 && group.is_multicast());
        let entrance = Ingress { only: one.map(|link| link.index) };
        let mut refusal = None;
        for link in &links {
            match self.tried.get(&link.index) {
                Some(AttachAttempt { attached: Ok(_), .. }) => return Ok(entrance),
                Some(AttachAttempt { attached: Err(why), .. }) => refusal = Some(why.clone()),
                None => {}
            }
        }
        // Injected packets are multicast.
        if group.is_multicast() && self.has_own() {
            return Ok(entrance);
        }
        let down = links.first().map(|link| format!("interface '{}' is down", link.name));
        let none = || "its packets arrive on no interface that supports XDP".to_owned();
        Err(refusal.or(down).unwrap_or_else(none))
    }

    /// Returns the interfaces by which a group's packets arrive.
    fn links_of<'a>(&self, group: &Group, ways: &'a RouteCache) -> Vec<&'a Link> {
        let listen = group.spec.listen;
        let named = |link: &&Link| self.named.is_empty() || self.named.contains(&link.name);
        let is_its = |link: &&Link| {
            if let Some(name) = &group.spec.interface {
                link.name == *name
            } else if listen.ip().is_multicast() {
                ways.route(listen, listen).is_some_and(|way| way.index == link.index)
            } else if listen.ip().is_unspecified() || !self.named.is_empty() {
                true
            } else {
                ways.owner(listen.ip()) == Some(link.index)
            }
        };
        let mut links: Vec<&Link> =
            ways.links().filter(|link| has_wire(link)).filter(named).filter(is_its).collect();
        links.sort_unstable_by_key(|link| link.index);
        links
    }

    pub(super) fn listing(&self) -> Vec<InterfaceListing> {
        let one = |tried: &AttachAttempt| InterfaceListing {
            name: tried.name.clone(),
            refused: tried.attached.as_ref().err().cloned(),
        };
        self.tried.values().map(one).collect()
    }
}

impl AttachAttempt {
    /// Returns true if it refused, and may accept now.
    fn is_retry_due(&self, is_new: bool) -> bool {
        self.attached.is_err() && (is_new || self.at.elapsed() >= TRY_EVERY)
    }
}

/// Returns true if its frames have MAC addresses, unlike those of the loopback.
fn has_wire(link: &Link) -> bool {
    link.mac.is_some_and(|mac| mac != [0; 6])
}
