//! The routing table: immutable, made of a [`Spec`] that can be. A change makes a new table that
//! shares the books of all that stay, so whoever reads the old one meanwhile is not disturbed.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::{ChildBook, Drop, GroupBook, GroupSpec, Network, Spec};

/// Groups of a table.
pub const GROUPS_MAX: usize = 256;
/// Children of all groups of a table together.
pub const CHILDREN_MAX: usize = 1_024;
/// Longest name of a group.
const NAME_MAX: usize = 64;
/// Longest name of an interface (`IFNAMSIZ` less its final zero).
const INTERFACE_MAX: usize = 15;
/// Headers of IP and UDP.
const V4_HEADERS: u32 = 28;
const V6_HEADERS: u32 = 48;

/// Why a table cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableError {
    /// Too many groups.
    #[error("{0} groups are too many; a table takes {GROUPS_MAX}")]
    Groups(usize),
    /// Too many children.
    #[error("{0} children are too many; a table takes {CHILDREN_MAX} in all groups together")]
    Children(usize),
    /// A name that is none.
    #[error(
        "'{0}' is no name for a group; write 1 to {NAME_MAX} letters, digits, '-', '_' and '.'"
    )]
    Name(String),
    /// Two groups of one name.
    #[error("there are two groups named '{0}'; give each a name of its own")]
    SameName(String),
    /// Two groups at one address.
    #[error("groups '{0}' and '{1}' listen at the same address; give each its own")]
    SameListen(String, String),
    /// No port, or an address that nobody listens at.
    #[error("group '{0}' cannot listen at {1}; name an address and a port other than 0")]
    Listen(String, SocketAddr),
    /// An interface for what is no multicast group, or none that can be.
    #[error("group '{0}': an interface is named for multicast groups alone, and '{1}' is none")]
    Interface(String, String),
    /// Nobody may send.
    #[error(
        "group '{0}' names no sources, so nothing would be relayed; give sources = [\"NETWORK\"]"
    )]
    NoSources(String),
    /// A rate or a hop limit of 0.
    #[error("{0} must be at least 1")]
    Zero(String),
    /// A child that cannot be sent to.
    #[error("group '{0}': {1} is no child; name one host's address and a port other than 0")]
    Child(String, SocketAddr),
    /// A child of the other IP version.
    #[error("group '{0}': {1} is of another IP version than where the group listens")]
    Family(String, SocketAddr),
    /// A child outside of the list of destinations.
    #[error("group '{0}': {1} is in none of the destinations; add its network to the table file")]
    Destination(String, SocketAddr),
    /// A child twice.
    #[error("group '{0}' has the child {1} already")]
    SameChild(String, SocketAddr),
    /// A child that is the relay.
    #[error("group '{0}': at {1} this relay itself listens; that would be a loop")]
    Oneself(String, SocketAddr),
    /// A group that is not there.
    #[error("there is no group '{0}'; 'horolog relay list' shows those that there are")]
    NoGroup(String),
    /// A child that is not there.
    #[error("group '{0}' has no child {1}; 'horolog relay list' shows those that it has")]
    NoChild(String, SocketAddr),
}

/// What identifies an end: a link-local address comes with its interface, which is not compared.
type End = (IpAddr, u16);

pub(crate) fn end(address: SocketAddr) -> End {
    (address.ip(), address.port())
}

/// A child of one group.
#[derive(Debug)]
pub struct Child {
    /// Where its copies go.
    pub address: SocketAddr,
    /// What became of those that were sent by sockets.
    pub book: ChildBook,
    /// What became of those that the kernel made, as far as it does not count them itself any more.
    pub(crate) below: ChildBook,
    /// The longest payload that fits the way to it; unknown: no limit.
    payload_max: AtomicU32,
    /// Whether the next hop is known to be silent.
    silent: AtomicBool,
    /// Copies that may go to a silent one all the same, so that the kernel asks for it again.
    trials: AtomicU32,
}

impl Child {
    fn new(address: SocketAddr) -> Self {
        Self {
            address,
            book: ChildBook::default(),
            below: ChildBook::default(),
            payload_max: AtomicU32::new(u32::MAX),
            silent: AtomicBool::new(false),
            trials: AtomicU32::new(0),
        }
    }

    /// Notes the MTU of the interface by which it is reached.
    pub fn set_mtu(&self, mtu: u32) {
        let headers = if self.address.is_ipv4() { V4_HEADERS } else { V6_HEADERS };
        self.payload_max.store(mtu.saturating_sub(headers), Ordering::Relaxed);
    }

    /// Notes whether its next hop does not answer the kernel.
    pub fn set_silent(&self, silent: bool) {
        self.silent.store(silent, Ordering::Relaxed);
    }

    /// Whether its next hop is known not to answer.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// Lets one copy go to it though it is silent.
    pub fn try_again(&self) {
        self.trials.store(1, Ordering::Relaxed);
    }

    /// Whether it gets a copy with so much payload.
    pub(crate) fn admits(&self, payload: usize) -> Result<(), Drop> {
        if payload as u64 > u64::from(self.payload_max.load(Ordering::Relaxed)) {
            return Err(Drop::TooLarge);
        }
        if self.is_silent() && self.trials.swap(0, Ordering::Relaxed) == 0 {
            return Err(Drop::Unresolved);
        }
        Ok(())
    }
}

/// A group of a table.
#[derive(Debug)]
pub struct Group {
    /// As it was asked for.
    pub spec: GroupSpec,
    /// Its children.
    pub children: Vec<Arc<Child>>,
    /// What became of its packets that came to its socket.
    pub book: Arc<GroupBook>,
    /// What became of those that the kernel took, as far as it does not count them itself any more.
    pub(crate) below: Arc<GroupBook>,
    /// A number below [`GROUPS_MAX`] that no other group of the table has, and that stays its own.
    pub place: usize,
    ends: HashSet<End>,
}

impl Group {
    /// Whether it listens to a multicast group.
    #[must_use]
    pub fn is_multicast(&self) -> bool {
        self.spec.listen.ip().is_multicast()
    }

    /// Whether it is sure to listen at the same socket as another.
    #[must_use]
    pub fn listens_as(&self, other: &GroupSpec) -> bool {
        (self.spec.listen, &self.spec.interface) == (other.listen, &other.interface)
    }

    /// Whether a packet comes from one of its children.
    pub(crate) fn has_child(&self, source: SocketAddr) -> bool {
        self.ends.contains(&end(source))
    }

    /// Whether its list names the source.
    pub(crate) fn allows(&self, source: IpAddr) -> bool {
        self.spec.sources.iter().any(|network| network.contains(source))
    }
}

/// A routing table.
#[derive(Debug)]
pub struct Table {
    destinations: Vec<Network>,
    copy_rate: u64,
    groups: Vec<Arc<Group>>,
    by_listen: HashMap<End, usize>,
    ports: HashSet<u16>,
}

impl Table {
    /// Makes the table that `spec` asks for. Groups that listen where they did in `before`, under
    /// the same name, keep their books and places, and so do their children.
    pub fn new(spec: &Spec, before: Option<&Self>) -> Result<Self, TableError> {
        check(spec)?;
        let mut taken: HashSet<usize> = HashSet::new();
        let kept: Vec<Option<&Arc<Group>>> = spec
            .groups
            .iter()
            .map(|group| before?.named(&group.name).filter(|old| old.listens_as(group)))
            .inspect(|old| taken.extend(old.map(|old| old.place)))
            .collect();
        let mut free = (0..GROUPS_MAX).filter(|place| !taken.contains(place));
        let mut groups = Vec::with_capacity(spec.groups.len());
        for (group, old) in spec.groups.iter().zip(kept) {
            let place = old.map(|old| old.place).or_else(|| free.next());
            // There are as many places as groups.
            let place = place.ok_or(TableError::Groups(spec.groups.len()))?;
            groups.push(Arc::new(make(group, place, old.map(|old| &**old))));
        }
        let by_listen =
            groups.iter().enumerate().map(|(at, group)| (end(group.spec.listen), at)).collect();
        let ports = groups.iter().map(|group| group.spec.listen.port()).collect();
        let (destinations, copy_rate) = (spec.destinations.clone(), spec.copy_rate);
        Ok(Self { destinations, copy_rate, groups, by_listen, ports })
    }

    /// What it was made of.
    #[must_use]
    pub fn spec(&self) -> Spec {
        Spec {
            destinations: self.destinations.clone(),
            copy_rate: self.copy_rate,
            groups: self.groups.iter().map(|group| group.spec.clone()).collect(),
        }
    }

    /// Its groups.
    #[must_use]
    pub fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// Copies in a second.
    #[must_use]
    pub fn copy_rate(&self) -> u64 {
        self.copy_rate
    }

    fn named(&self, name: &str) -> Option<&Arc<Group>> {
        self.groups.iter().find(|group| group.spec.name == name)
    }

    /// The group whose packets go to an address: the one that listens there, or at all addresses of
    /// this host.
    pub(crate) fn find(&self, destination: SocketAddr) -> Option<&Arc<Group>> {
        let any: IpAddr = match destination {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let exact = self.by_listen.get(&end(destination));
        let place = exact.or_else(|| self.by_listen.get(&(any, destination.port())))?;
        self.groups.get(*place)
    }

    /// Whether a group listens at this port, so that copies leave from it.
    pub(crate) fn has_port(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }
}

fn make(spec: &GroupSpec, place: usize, old: Option<&Group>) -> Group {
    let kept = |address: &SocketAddr| {
        let same = old?.children.iter().find(|child| child.address == *address);
        same.map(Arc::clone)
    };
    let fresh = |address: &SocketAddr| Arc::new(Child::new(*address));
    let children =
        spec.children.iter().map(|address| kept(address).unwrap_or_else(|| fresh(address)));
    Group {
        children: children.collect(),
        book: old.map(|old| Arc::clone(&old.book)).unwrap_or_default(),
        below: old.map(|old| Arc::clone(&old.below)).unwrap_or_default(),
        place,
        ends: spec.children.iter().map(|child| end(*child)).collect(),
        spec: spec.clone(),
    }
}

fn check(spec: &Spec) -> Result<(), TableError> {
    if spec.groups.len() > GROUPS_MAX {
        return Err(TableError::Groups(spec.groups.len()));
    }
    let children = spec.groups.iter().map(|group| group.children.len()).sum();
    if children > CHILDREN_MAX {
        return Err(TableError::Children(children));
    }
    if spec.copy_rate == 0 {
        return Err(TableError::Zero("copy-rate".into()));
    }
    let mut names = HashSet::new();
    let mut listening: HashMap<End, &str> = HashMap::new();
    for group in &spec.groups {
        check_group(group)?;
        if !names.insert(&group.name) {
            return Err(TableError::SameName(group.name.clone()));
        }
        if let Some(other) = listening.insert(end(group.listen), &group.name) {
            return Err(TableError::SameListen(other.to_owned(), group.name.clone()));
        }
    }
    for group in &spec.groups {
        let mut seen = HashSet::new();
        for child in &group.children {
            check_child(spec, group, *child)?;
            if !seen.insert(end(*child)) {
                return Err(TableError::SameChild(group.name.clone(), *child));
            }
            if listening.contains_key(&end(*child)) {
                return Err(TableError::Oneself(group.name.clone(), *child));
            }
        }
    }
    Ok(())
}

fn check_group(group: &GroupSpec) -> Result<(), TableError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !(1..=NAME_MAX).contains(&group.name.len()) || !group.name.chars().all(plain) {
        // What is quoted stays in its line and is no longer than a name may be.
        let shown = group.name.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect();
        return Err(TableError::Name(shown));
    }
    let name = || group.name.clone();
    let ip = group.listen.ip();
    let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    if group.listen.port() == 0 || broadcast || ip != ip.to_canonical() {
        return Err(TableError::Listen(name(), group.listen));
    }
    if let Some(interface) = &group.interface {
        let can_be = (1..=INTERFACE_MAX).contains(&interface.len())
            && interface.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '/' | '"' | '\\'));
        if !can_be || !ip.is_multicast() {
            let shown =
                if can_be { ip.to_string() } else { interface.escape_default().to_string() };
            return Err(TableError::Interface(name(), shown));
        }
    }
    if group.sources.is_empty() {
        return Err(TableError::NoSources(name()));
    }
    if group.rate == 0 {
        return Err(TableError::Zero(format!("group '{}': rate", group.name)));
    }
    if group.hop_limit == 0 {
        return Err(TableError::Zero(format!("group '{}': hop-limit", group.name)));
    }
    Ok(())
}

fn check_child(spec: &Spec, group: &GroupSpec, child: SocketAddr) -> Result<(), TableError> {
    let (name, ip) = (|| group.name.clone(), child.ip());
    let nobody = ip.is_unspecified() || ip.is_multicast() || ip == Ipv4Addr::BROADCAST;
    if child.port() == 0 || nobody || ip != ip.to_canonical() {
        return Err(TableError::Child(name(), child));
    }
    if child.is_ipv4() != group.listen.is_ipv4() {
        return Err(TableError::Family(name(), child));
    }
    if !spec.destinations.iter().any(|network| network.contains(ip)) {
        return Err(TableError::Destination(name(), child));
    }
    Ok(())
}
