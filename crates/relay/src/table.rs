//! Routing table: immutable, made of a valid [`RoutingTableSpec`]. A change makes a new table that
//! shares the counters of all remaining members, so that concurrent readers of the old one are not
//! disturbed.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::{ChildCounters, CopyDrop, GroupCounters, GroupSpec, IpNetwork, RoutingTableSpec};

/// Maximum number of groups of a table.
pub const GROUPS_MAX: usize = 256;
/// Maximum number of children of all groups of a table together.
pub const CHILDREN_MAX: usize = 1_024;
/// Maximum length of a group's name, in bytes.
const NAME_MAX: usize = 64;
/// Maximum length of an interface's name, in bytes (`IFNAMSIZ` less its final zero).
const INTERFACE_MAX: usize = 15;
/// Length of the headers of IP and UDP, in bytes, for IPv4 and IPv6.
const V4_HEADERS: u32 = 28;
const V6_HEADERS: u32 = 48;

/// Reason for which a table is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RoutingTableError {
    /// More than [`GROUPS_MAX`] groups; their number.
    #[error("{0} groups exceed the limit of {GROUPS_MAX} of a table")]
    TooManyGroups(usize),
    /// More than [`CHILDREN_MAX`] children; their number.
    #[error("{0} children exceed the limit of {CHILDREN_MAX} for all groups of a table")]
    TooManyChildren(usize),
    /// An invalid name of a group.
    #[error("invalid group name '{0}'; write 1 to {NAME_MAX} letters, digits, '-', '_' and '.'")]
    InvalidName(String),
    /// Two groups of one name.
    #[error("group name '{0}' occurs twice; choose unique names")]
    SameName(String),
    /// Two groups on one address.
    #[error("groups '{0}' and '{1}' listen on the same address; choose different addresses")]
    SameListen(String, String),
    /// No port, or an address on which a socket cannot listen.
    #[error("group '{0}' cannot listen on {1}; choose an address and a port other than 0")]
    InvalidListen(String, SocketAddr),
    /// Group, and its address if it has an interface without being multicast, or an invalid
    /// interface name.
    #[error("group '{0}': an interface requires a multicast group, and '{1}' is not one")]
    InvalidInterface(String, String),
    /// A group without permitted sources.
    #[error("group '{0}' has no sources, so nothing would be relayed; add sources = [\"NETWORK\"]")]
    NoSources(String),
    /// A rate or a hop limit of 0; its name.
    #[error("{0} must be at least 1")]
    ZeroLimit(String),
    /// A child to which packets cannot be sent.
    #[error(
        "group '{0}': {1} is not a valid child; choose the address of one host and a port \
             other than 0"
    )]
    InvalidChild(String, SocketAddr),
    /// A child of the other IP version.
    #[error("group '{0}': the IP version of {1} differs from that of the group's address")]
    IpVersionMismatch(String, SocketAddr),
    /// A child outside the permitted destinations.
    #[error("group '{0}': {1} is outside the destinations; add its network to the table file")]
    OutsideDestinations(String, SocketAddr),
    /// A duplicate child.
    #[error("group '{0}' has the child {1} already")]
    SameChild(String, SocketAddr),
    /// A child at an address and port on which a group of the relay listens.
    #[error("group '{0}': {1} is an address of this relay, which would be a loop")]
    RelayAddress(String, SocketAddr),
    /// A group that does not exist.
    #[error("group '{0}' not found; 'horolog relay list' lists the groups")]
    NoGroup(String),
    /// A child that does not exist.
    #[error("group '{0}' has no child {1}; 'horolog relay list' lists its children")]
    NoChild(String, SocketAddr),
}

/// Key of an endpoint: address and port. The scope ID of a link-local address is not compared.
type EndpointKey = (IpAddr, u16);

pub(crate) fn endpoint_key(address: SocketAddr) -> EndpointKey {
    (address.ip(), address.port())
}

/// Child of one group.
#[derive(Debug)]
pub struct GroupChild {
    /// Destination of the child's copies.
    pub address: SocketAddr,
    /// Counters of the copies sent by sockets.
    pub counters: ChildCounters,
    /// Counts retained from the XDP programs when they gave this child up; current counts are read
    /// from the programs.
    pub(crate) xdp_counters: ChildCounters,
    /// Longest payload that fits the route to the child, in bytes; `u32::MAX` while unknown.
    payload_max: AtomicU32,
    /// True if the next hop is known to be unreachable.
    unreachable: AtomicBool,
    /// Number of copies that may be sent although the child is unreachable, so that the kernel
    /// resolves the next hop again.
    trial_copies: AtomicU32,
}

impl GroupChild {
    fn new(address: SocketAddr) -> Self {
        Self {
            address,
            counters: ChildCounters::default(),
            xdp_counters: ChildCounters::default(),
            payload_max: AtomicU32::new(u32::MAX),
            unreachable: AtomicBool::new(false),
            trial_copies: AtomicU32::new(0),
        }
    }

    /// Records the MTU of the route to the child, in bytes.
    pub fn set_mtu(&self, mtu: u32) {
        let headers = if self.address.is_ipv4() { V4_HEADERS } else { V6_HEADERS };
        self.payload_max.store(mtu.saturating_sub(headers), Ordering::Relaxed);
    }

    /// Records whether the next hop is unreachable.
    pub fn set_unreachable(&self, unreachable: bool) {
        self.unreachable.store(unreachable, Ordering::Relaxed);
    }

    /// Returns true if the next hop is known to be unreachable.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        self.unreachable.load(Ordering::Relaxed)
    }

    /// Allows one trial copy although the child is unreachable.
    pub fn allow_trial_copy(&self) {
        self.trial_copies.store(1, Ordering::Relaxed);
    }

    /// Decides about a copy of a payload of this length in bytes, which may be fragmented or not;
    /// the error is the reason for which the child gets no copy. Uses up the trial copy of an
    /// unreachable child.
    pub(crate) fn admit_copy(&self, payload: usize, fragment: bool) -> Result<(), CopyDrop> {
        if !fragment && payload as u64 > u64::from(self.payload_max.load(Ordering::Relaxed)) {
            return Err(CopyDrop::TooLarge);
        }
        if self.is_unreachable() && self.trial_copies.swap(0, Ordering::Relaxed) == 0 {
            return Err(CopyDrop::Unresolved);
        }
        Ok(())
    }
}

/// Group of a table.
#[derive(Debug)]
pub struct Group {
    /// Specification of the group.
    pub spec: GroupSpec,
    /// Children of the group.
    pub children: Vec<Arc<GroupChild>>,
    /// Counters of the packets that the socket engine processed.
    pub counters: Arc<GroupCounters>,
    /// Counts retained from the XDP programs when they gave this group up; current counts are read
    /// from the programs.
    pub(crate) xdp_counters: Arc<GroupCounters>,
    /// Number below [`GROUPS_MAX`], unique in the table, and constant for the group.
    pub index: usize,
    child_endpoints: HashSet<EndpointKey>,
}

impl Group {
    /// Returns true if the group listens on a multicast address.
    #[must_use]
    pub fn is_multicast(&self) -> bool {
        self.spec.listen.ip().is_multicast()
    }

    /// Returns true if the group's address and interface are the same as those of another group.
    #[must_use]
    pub fn has_same_listen(&self, other: &GroupSpec) -> bool {
        (self.spec.listen, &self.spec.interface) == (other.listen, &other.interface)
    }

    /// Returns true if the source of a packet is a child of the group.
    pub(crate) fn has_child(&self, source: SocketAddr) -> bool {
        self.child_endpoints.contains(&endpoint_key(source))
    }

    /// Returns true if the group's list of sources contains the address.
    pub(crate) fn allows_source(&self, source: IpAddr) -> bool {
        self.spec.sources.iter().any(|network| network.contains(source))
    }
}

/// Valid groups of a relay, with an index by the addresses on which they listen.
#[derive(Debug)]
pub struct RoutingTable {
    destinations: Vec<IpNetwork>,
    copy_rate: u64,
    groups: Vec<Arc<Group>>,
    by_listen: HashMap<EndpointKey, usize>,
    ports: HashSet<u16>,
}

impl RoutingTable {
    /// Makes the table of `spec`; an error for the first rule that it violates. Groups with the
    /// same name, address and interface as in `previous` keep their counters and indices, and their
    /// children keep their counters.
    pub fn new(
        spec: &RoutingTableSpec,
        previous: Option<&Self>,
    ) -> Result<Self, RoutingTableError> {
        check_spec(spec)?;
        let mut used_indices: HashSet<usize> = HashSet::new();
        let retained: Vec<Option<&Arc<Group>>> = spec
            .groups
            .iter()
            .map(|group| {
                previous?.group_named(&group.name).filter(|old| old.has_same_listen(group))
            })
            .inspect(|old| used_indices.extend(old.map(|old| old.index)))
            .collect();
        let mut free_indices = (0..GROUPS_MAX).filter(|index| !used_indices.contains(index));
        let mut groups = Vec::with_capacity(spec.groups.len());
        for (group, old) in spec.groups.iter().zip(retained) {
            let index = old.map(|old| old.index).or_else(|| free_indices.next());
            // There are as many indices as groups.
            let index = index.ok_or(RoutingTableError::TooManyGroups(spec.groups.len()))?;
            groups.push(Arc::new(build_group(group, index, old.map(|old| &**old))));
        }
        let by_listen = groups
            .iter()
            .enumerate()
            .map(|(index, group)| (endpoint_key(group.spec.listen), index))
            .collect();
        let ports = groups.iter().map(|group| group.spec.listen.port()).collect();
        let (destinations, copy_rate) = (spec.destinations.clone(), spec.copy_rate);
        Ok(Self { destinations, copy_rate, groups, by_listen, ports })
    }

    /// Returns the specification from which the table was made.
    #[must_use]
    pub fn spec(&self) -> RoutingTableSpec {
        RoutingTableSpec {
            destinations: self.destinations.clone(),
            copy_rate: self.copy_rate,
            groups: self.groups.iter().map(|group| group.spec.clone()).collect(),
        }
    }

    /// Returns the groups.
    #[must_use]
    pub fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// Returns the limit of copies per second.
    #[must_use]
    pub fn copy_rate(&self) -> u64 {
        self.copy_rate
    }

    fn group_named(&self, name: &str) -> Option<&Arc<Group>> {
        self.groups.iter().find(|group| group.spec.name == name)
    }

    /// Returns the group whose packets go to an address: the one that listens on it, or else on all
    /// addresses of this host; `None` if there is neither.
    pub(crate) fn find_group(&self, destination: SocketAddr) -> Option<&Arc<Group>> {
        let any: IpAddr = match destination {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let exact = self.by_listen.get(&endpoint_key(destination));
        let index = exact.or_else(|| self.by_listen.get(&(any, destination.port())))?;
        self.groups.get(*index)
    }

    /// Returns true if a group listens on this port, so that copies leave from it.
    pub(crate) fn has_port(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }
}

fn build_group(spec: &GroupSpec, index: usize, old: Option<&Group>) -> Group {
    let retained = |address: &SocketAddr| {
        let same = old?.children.iter().find(|child| child.address == *address);
        same.map(Arc::clone)
    };
    let create = |address: &SocketAddr| Arc::new(GroupChild::new(*address));
    let children =
        spec.children.iter().map(|address| retained(address).unwrap_or_else(|| create(address)));
    Group {
        children: children.collect(),
        counters: old.map(|old| Arc::clone(&old.counters)).unwrap_or_default(),
        xdp_counters: old.map(|old| Arc::clone(&old.xdp_counters)).unwrap_or_default(),
        index,
        child_endpoints: spec.children.iter().map(|child| endpoint_key(*child)).collect(),
        spec: spec.clone(),
    }
}

fn check_spec(spec: &RoutingTableSpec) -> Result<(), RoutingTableError> {
    if spec.groups.len() > GROUPS_MAX {
        return Err(RoutingTableError::TooManyGroups(spec.groups.len()));
    }
    let children = spec.groups.iter().map(|group| group.children.len()).sum();
    if children > CHILDREN_MAX {
        return Err(RoutingTableError::TooManyChildren(children));
    }
    if spec.copy_rate == 0 {
        return Err(RoutingTableError::ZeroLimit("copy-rate".into()));
    }
    let mut names = HashSet::new();
    let mut listen_endpoints: HashMap<EndpointKey, &str> = HashMap::new();
    for group in &spec.groups {
        check_group(group)?;
        if !names.insert(&group.name) {
            return Err(RoutingTableError::SameName(group.name.clone()));
        }
        if let Some(other) = listen_endpoints.insert(endpoint_key(group.listen), &group.name) {
            return Err(RoutingTableError::SameListen(other.to_owned(), group.name.clone()));
        }
    }
    for group in &spec.groups {
        let mut child_endpoints = HashSet::new();
        for child in &group.children {
            check_child(spec, group, *child)?;
            if !child_endpoints.insert(endpoint_key(*child)) {
                return Err(RoutingTableError::SameChild(group.name.clone(), *child));
            }
            if listen_endpoints.contains_key(&endpoint_key(*child)) {
                return Err(RoutingTableError::RelayAddress(group.name.clone(), *child));
            }
        }
    }
    Ok(())
}

fn check_group(group: &GroupSpec) -> Result<(), RoutingTableError> {
    let is_permitted = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !(1..=NAME_MAX).contains(&group.name.len()) || !group.name.chars().all(is_permitted) {
        // Quoted text stays on one line and is no longer than a name may be.
        let shown = group.name.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect();
        return Err(RoutingTableError::InvalidName(shown));
    }
    let name = || group.name.clone();
    let ip = group.listen.ip();
    let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    if group.listen.port() == 0 || broadcast || ip != ip.to_canonical() {
        return Err(RoutingTableError::InvalidListen(name(), group.listen));
    }
    if let Some(interface) = &group.interface {
        let is_valid_name = (1..=INTERFACE_MAX).contains(&interface.len())
            && interface.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '/' | '"' | '\\'));
        if !is_valid_name || !ip.is_multicast() {
            let shown =
                if is_valid_name { ip.to_string() } else { interface.escape_default().to_string() };
            return Err(RoutingTableError::InvalidInterface(name(), shown));
        }
    }
    if group.sources.is_empty() {
        return Err(RoutingTableError::NoSources(name()));
    }
    if group.rate == 0 {
        return Err(RoutingTableError::ZeroLimit(format!("group '{}': rate", group.name)));
    }
    if group.hop_limit == 0 {
        return Err(RoutingTableError::ZeroLimit(format!("group '{}': hop-limit", group.name)));
    }
    Ok(())
}

fn check_child(
    spec: &RoutingTableSpec,
    group: &GroupSpec,
    child: SocketAddr,
) -> Result<(), RoutingTableError> {
    let (name, ip) = (|| group.name.clone(), child.ip());
    let is_not_unicast = ip.is_unspecified() || ip.is_multicast() || ip == Ipv4Addr::BROADCAST;
    if child.port() == 0 || is_not_unicast || ip != ip.to_canonical() {
        return Err(RoutingTableError::InvalidChild(name(), child));
    }
    if child.is_ipv4() != group.listen.is_ipv4() {
        return Err(RoutingTableError::IpVersionMismatch(name(), child));
    }
    if !spec.destinations.iter().any(|network| network.contains(ip)) {
        return Err(RoutingTableError::OutsideDestinations(name(), child));
    }
    Ok(())
}
