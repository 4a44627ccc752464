//! Monitor of the routes to the children as the kernel sees them: the MTU, and whether the next hop
//! is reachable. It is a thread of its own, so that a child with an unreachable neighbour does not
//! delay the others: packets to such a neighbour would wait in the kernel and fill the socket's
//! buffer. It also updates the XDP engine with the routes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use horolog_sys::netlink::Netlink;

use crate::GroupChild;
use crate::relay::RelaySharedState;
use crate::route_cache::{NextHop, RouteCache};

/// Interval between two polls of the neighbours.
const NEIGHBOURS_INTERVAL: Duration = Duration::from_millis(200);
/// Interval between two polls while a neighbour is unreachable.
const UNREACHABLE_INTERVAL: Duration = Duration::from_millis(20);
/// Interval between two polls of routes, interfaces and this host's addresses; also the interval
/// between trial copies to an unreachable neighbour, because the kernel's resolution (ARP, ND)
/// takes about as long.
const ROUTES_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time for which a change waits for the MAC addresses of new neighbours; after it, copies
/// to neighbours without one count as unresolved.
const RESOLVE_TIMEOUT: Duration = Duration::from_millis(200);
const RESOLVE_INTERVAL: Duration = Duration::from_millis(1);

/// Sender by which the monitor reports that a requested poll is complete.
pub(crate) type PollDoneSender = SyncSender<()>;

/// Result of a poll of neighbours.
#[derive(Clone, Copy, Debug, Default)]
struct NeighbourPollSummary {
    /// True if a neighbour is unreachable: requested and not answering. One that was never
    /// requested is not.
    any_unreachable: bool,
    /// True if a neighbour that was unreachable answers now.
    any_answered: bool,
}

pub(crate) struct ChildRouteMonitor {
    netlink: Netlink,
    shared: Arc<RelaySharedState>,
    route_cache: RouteCache,
    /// Children by the neighbour (next hop) to which their copies are sent.
    children_by_neighbour: HashMap<NextHop, Vec<Arc<GroupChild>>>,
}

impl ChildRouteMonitor {
    pub(crate) fn new(
        netlink: Netlink,
        route_cache: RouteCache,
        shared: Arc<RelaySharedState>,
    ) -> Self {
        Self { netlink, shared, route_cache, children_by_neighbour: HashMap::new() }
    }

    /// Polls periodically, and at once on a message of `poll_requests`, until that channel is
    /// closed.
    pub(crate) fn run(mut self, poll_requests: &Receiver<PollDoneSender>) {
        let mut routes_polled_at: Option<Instant> = None;
        let mut neighbours_polled_at: Option<Instant> = None;
        let mut requester: Option<PollDoneSender> = None;
        loop {
            if routes_polled_at.is_none_or(|at| at.elapsed() >= ROUTES_INTERVAL) {
                self.poll_routes();
                routes_polled_at = Some(Instant::now());
                // Neighbours of the routes may be new.
                neighbours_polled_at = None;
                self.retry_unreachable();
            }
            let all = neighbours_polled_at.is_none_or(|at| at.elapsed() >= NEIGHBOURS_INTERVAL);
            if all {
                neighbours_polled_at = Some(Instant::now());
            }
            let NeighbourPollSummary { any_unreachable, any_answered } = self.poll_neighbours(all);
            if requester.is_some() {
                self.resolve();
            }
            if all || any_answered {
                self.sync_xdp_engine();
            }
            if let Some(requester) = requester.take() {
                // The requester may no longer wait for it.
                let _ = requester.send(());
            }
            let wait = if any_unreachable { UNREACHABLE_INTERVAL } else { NEIGHBOURS_INTERVAL };
            match poll_requests.recv_timeout(wait) {
                Ok(poll_done) => (routes_polled_at, requester) = (None, Some(poll_done)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Updates the routes. Values that cannot be read remain unchanged; the kernel reports the
    /// errors for each copy.
    fn poll_routes(&mut self) {
        self.route_cache.refresh(&mut self.netlink);
        self.shared.local_addresses.store(Arc::new(self.route_cache.local_addresses()));
        self.children_by_neighbour.clear();
        let plan = self.shared.plan.load_full();
        for group in plan.table.groups() {
            if group.is_multicast() {
                self.route_cache.query_route(
                    &mut self.netlink,
                    group.spec.listen,
                    group.spec.listen,
                );
            }
            for child in &group.children {
                self.poll_route(group.spec.listen, child);
            }
        }
        let Self { route_cache, children_by_neighbour, .. } = self;
        route_cache.retain_neighbours(|hop| children_by_neighbour.contains_key(hop));
    }

    fn poll_route(&mut self, listen: SocketAddr, child: &Arc<GroupChild>) {
        self.route_cache.query_route(&mut self.netlink, listen, child.address);
        let route = self.route_cache.route(listen, child.address);
        if let Some(mtu) = route.and_then(|route| self.route_cache.mtu(&route)) {
            child.set_mtu(mtu);
        }
        match self.route_cache.next_hop(listen, child.address) {
            Some(next_hop) => {
                self.children_by_neighbour.entry(next_hop).or_default().push(Arc::clone(child));
            }
            None => child.set_unreachable(false),
        }
    }

    /// Polls all neighbours, or the unreachable ones only.
    fn poll_neighbours(&mut self, all: bool) -> NeighbourPollSummary {
        let mut poll = NeighbourPollSummary::default();
        for (next_hop, children) in neighbours_to_poll(&self.children_by_neighbour, all) {
            let Ok(neighbour) = self.route_cache.query_neighbour(&mut self.netlink, *next_hop)
            else {
                continue;
            };
            if neighbour.is_none() && self.shared.xdp.is_some() {
                // The XDP engine's copies do not make the kernel resolve the neighbour. The next
                // poll shows the result.
                let _ = self.netlink.probe_neighbour(next_hop.0, next_hop.1);
            }
            let unreachable = neighbour.is_some_and(|neighbour| !neighbour.usable);
            poll.any_unreachable |= unreachable;
            poll.any_answered |= !unreachable && is_unreachable(children);
            for child in children {
                child.set_unreachable(unreachable);
            }
        }
        poll
    }

    /// Polls all neighbours; with an XDP engine, first waits until the kernel has resolved new
    /// ones, at most [`RESOLVE_TIMEOUT`].
    fn resolve(&mut self) {
        let mut unresolved: Vec<NextHop> = self.children_by_neighbour.keys().copied().collect();
        let started_at = Instant::now();
        while self.shared.xdp.is_some() && started_at.elapsed() < RESOLVE_TIMEOUT {
            unresolved.retain(|next_hop| !self.route_cache.is_resolution_complete(*next_hop));
            if unresolved.is_empty() {
                break;
            }
            thread::sleep(RESOLVE_INTERVAL);
            for next_hop in &unresolved {
                // A failed query leaves it unresolved.
                let _ = self.route_cache.query_neighbour(&mut self.netlink, *next_hop);
            }
        }
        self.poll_neighbours(true);
    }

    fn sync_xdp_engine(&self) {
        if let Some(xdp) = &self.shared.xdp {
            xdp.sync(&self.shared.plan.load_full().table, &self.route_cache);
        }
    }

    /// Allows one trial copy to each unreachable neighbour, which makes the kernel resolve it
    /// again. With the XDP engine, the kernel is requested to resolve unconfirmed neighbours
    /// without a copy.
    fn retry_unreachable(&mut self) {
        for (next_hop, children) in &self.children_by_neighbour {
            if let Some(child) = children.iter().find(|child| child.is_unreachable()) {
                child.allow_trial_copy();
            }
            if self.shared.xdp.is_some() && self.route_cache.is_unconfirmed(*next_hop) {
                // The next poll shows the result here too.
                let _ = self.netlink.probe_neighbour(next_hop.0, next_hop.1);
            }
        }
    }
}

/// Returns the neighbours to be polled: all of them, or the unreachable ones.
fn neighbours_to_poll(
    children_by_neighbour: &HashMap<NextHop, Vec<Arc<GroupChild>>>,
    all: bool,
) -> impl Iterator<Item = (&NextHop, &Vec<Arc<GroupChild>>)> {
    children_by_neighbour.iter().filter(move |(_, children)| all || is_unreachable(children))
}

/// Returns true if the neighbour of these children was unreachable at the latest poll.
fn is_unreachable(children: &[Arc<GroupChild>]) -> bool {
    children.iter().any(|child| child.is_unreachable())
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::RoutingTable;
    use crate::tests::{group, spec};

    #[test]
    fn unreachable_neighbour_is_polled_alone() {
        let addresses: Vec<String> = (1..=9).map(|host| format!("192.0.2.{host}:5")).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let table =
            RoutingTable::new(&spec(vec![group("g", "127.0.0.1:5", &addresses)]), None).unwrap();
        let children = &table.groups()[0].children;
        let hops: HashMap<NextHop, _> =
            children.iter().map(|one| ((1, one.address.ip()), vec![Arc::clone(one)])).collect();
        assert_eq!(neighbours_to_poll(&hops, false).count(), 0);
        children[4].set_unreachable(true);
        let polled: Vec<IpAddr> = neighbours_to_poll(&hops, false).map(|(hop, _)| hop.1).collect();
        assert_eq!(polled, ["192.0.2.5".parse::<IpAddr>().unwrap()]);
        assert_eq!(neighbours_to_poll(&hops, true).count(), 9);
    }
}
