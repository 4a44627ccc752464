//! The interfaces by which groups' packets come in, with the programs attached there.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use horolog_sys::netlink::Link;
use horolog_xdp::{Attachment, Interface, Relay, takes_redirects};
use serde::{Deserialize, Serialize};

use crate::ways::Ways;
use crate::{Group, Table};

/// How long an interface that refused the programs is left alone, unless the table changes: what
/// stood in the way may have gone.
const TRY_EVERY: Duration = Duration::from_secs(10);

/// An interface where packets of groups come in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InterfaceListing {
    /// Its name.
    pub name: String,
    /// Why its packets all go to the sockets; absent where the kernel's programs see them first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Where a group's packets come in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entrance {
    /// The one interface by which they do, where it is one.
    pub(super) only: Option<u32>,
}

/// The interfaces that were looked at, by their index.
#[derive(Debug)]
pub(super) struct Entrances {
    /// Those to be used; where none is named, those that the groups need.
    named: Vec<String>,
    /// The one by which the relay itself puts packets in.
    own: Option<u32>,
    tried: BTreeMap<u32, Tried>,
    /// The groups of the table that was followed last.
    followed: Vec<Weak<Group>>,
}

#[derive(Debug)]
struct Tried {
    name: String,
    at: Instant,
    attached: Result<Attachment, String>,
}

impl Entrances {
    pub(super) const fn new(named: Vec<String>) -> Self {
        Self { named, own: None, tried: BTreeMap::new(), followed: Vec::new() }
    }

    pub(super) const fn set_own(&mut self, index: u32) {
        self.own = Some(index);
    }

    /// Whether the programs see what the relay itself puts in.
    pub(super) fn has_own(&self) -> bool {
        let own = self.own.and_then(|own| self.tried.get(&own));
        own.is_some_and(|tried| tried.attached.is_ok())
    }

    /// Attaches the programs where groups' packets come in, and takes them off where none do any
    /// more. An interface that refused them is asked again at each change of the table, every now
    /// and then, and when it has come anew.
    pub(super) fn follow(&mut self, relay: &Relay, table: &Table, ways: &Ways) {
        let mut wanted: BTreeMap<u32, &Link> = BTreeMap::new();
        for group in table.groups() {
            let links = self.links_of(group, ways).into_iter();
            wanted.extend(links.filter(|link| link.up).map(|link| (link.index, link)));
        }
        wanted.extend(self.exits(table, ways).into_iter().map(|link| (link.index, link)));
        let own = self.own.and_then(|own| ways.link(own));
        wanted.extend(own.map(|link| (link.index, link)));
        let is_new = self.is_new(table);
        self.tried.retain(|_, tried| !tried.is_to_be_asked(is_new));
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
                    relay.attach_own(&interface)
                } else {
                    relay.attach(&interface)
                };
                let attached = attached.map_err(|error| error.to_string());
                Tried { name: interface.name, at: Instant::now(), attached }
            });
        }
    }

    /// Whether a table is another one than that which was followed last; this one is from now on.
    fn is_new(&mut self, table: &Table) -> bool {
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

    /// The cards by which copies leave, and that take none from programs before they have one: some
    /// drivers make the queues for it only then.
    fn exits<'a>(&self, table: &Table, ways: &'a Ways) -> Vec<&'a Link> {
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
        let cards = links.filter(|link| link.up && link.kind.is_none() && has_wire(link));
        let needs_one =
            |link: &&Link| self.tried.contains_key(&link.index) || !takes_redirects(link.index);
        cards.filter(needs_one).collect()
    }

    /// Where a group's packets come in, or why the programs do not see them there.
    pub(super) fn of(&self, group: &Group, ways: &Ways) -> Result<Entrance, String> {
        let links = self.links_of(group, ways);
        let one = links.first().filter(|_| links.len() == 1 && group.is_multicast());
        let entrance = Entrance { only: one.map(|link| link.index) };
        let mut refusal = None;
        for link in &links {
            match self.tried.get(&link.index) {
                Some(Tried { attached: Ok(_), .. }) => return Ok(entrance),
                Some(Tried { attached: Err(why), .. }) => refusal = Some(why.clone()),
                None => {}
            }
        }
        // What the relay itself puts in, is multicast.
        if group.is_multicast() && self.has_own() {
            return Ok(entrance);
        }
        let down = links.first().map(|link| format!("interface '{}' is down", link.name));
        let none = || "its packets come in by no interface that could have XDP".to_owned();
        Err(refusal.or(down).unwrap_or_else(none))
    }

    /// The interfaces by which a group's packets come in.
    fn links_of<'a>(&self, group: &Group, ways: &'a Ways) -> Vec<&'a Link> {
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
        let one = |tried: &Tried| InterfaceListing {
            name: tried.name.clone(),
            refused: tried.attached.as_ref().err().cloned(),
        };
        self.tried.values().map(one).collect()
    }
}

impl Tried {
    /// Whether it refused, and may have changed its mind.
    fn is_to_be_asked(&self, is_new: bool) -> bool {
        self.attached.is_err() && (is_new || self.at.elapsed() >= TRY_EVERY)
    }
}

/// Whether frames come in and leave by it with MAC addresses, as they do not by the loopback.
fn has_wire(link: &Link) -> bool {
    link.mac.is_some_and(|mac| mac != [0; 6])
}
