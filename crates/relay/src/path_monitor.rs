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
use crate::relay::RelayState;
use crate::route_cache::{NextHop, RouteCache};

/// Interval between two polls of the neighbours.
const NEIGHBOURS_INTERVAL: Duration = Duration::from_millis(200);
/// Interval while one of them is unreachable.
const UNREACHABLE_INTERVAL: Duration = Duration::from_millis(20);
/// Interval between two polls of routes, interfaces and own addresses; and between two trials of an
/// unreachable neighbour, which the kernel takes as long to resolve.
const ROUTES_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait of a change for the MAC addresses of new neighbours, after which copies for those
/// without one count as unresolved.
const RESOLVE_TIMEOUT: Duration = Duration::from_millis(200);
const RESOLVE_INTERVAL: Duration = Duration::from_millis(1);

/// Sender by which the monitor reports that a requested poll is complete.
pub(crate) type PollDone = SyncSender<()>;

/// Result of a poll of neighbours.
#[derive(Clone, Copy, Debug, Default)]
struct NeighbourPoll {
    /// True if one is unreachable: requested and not answering. One that was never requested is
    /// not.
    any_unreachable: bool,
    /// True if one that was unreachable answers.
    any_answered: bool,
}

pub(crate) struct PathMonitor {
    netlink: Netlink,
    shared: Arc<RelayState>,
    ways: RouteCache,
    /// Children by the neighbour to which their copies go.
    hops: HashMap<NextHop, Vec<Arc<GroupChild>>>,
}

impl PathMonitor {
    pub(crate) fn new(netlink: Netlink, ways: RouteCache, shared: Arc<RelayState>) -> Self {
        Self { netlink, shared, ways, hops: HashMap::new() }
    }

    /// Polls until `changed` is closed; at once whenever a message arrives there.
    pub(crate) fn run(mut self, changed: &Receiver<PollDone>) {
        let mut routes_polled_at: Option<Instant> = None;
        let mut neighbours_polled_at: Option<Instant> = None;
        let mut waiting: Option<PollDone> = None;
        loop {
            if routes_polled_at.is_none_or(|at| at.elapsed() >= ROUTES_INTERVAL) {
                self.poll_routes();
                routes_polled_at = Some(Instant::now());
                // Some of them may be new.
                neighbours_polled_at = None;
                self.try_again();
            }
            let all = neighbours_polled_at.is_none_or(|at| at.elapsed() >= NEIGHBOURS_INTERVAL);
            if all {
                neighbours_polled_at = Some(Instant::now());
            }
            let NeighbourPoll { any_unreachable, any_answered } = self.poll_neighbours(all);
            if waiting.is_some() {
                self.resolve();
            }
            if all || any_answered {
                self.sync_xdp_engine();
            }
            if let Some(waiting) = waiting.take() {
                // The requester may no longer wait for it.
                let _ = waiting.send(());
            }
            let wait = if any_unreachable { UNREACHABLE_INTERVAL } else { NEIGHBOURS_INTERVAL };
            match changed.recv_timeout(wait) {
                Ok(who) => (routes_polled_at, waiting) = (None, Some(who)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Updates the routes. Values that cannot be read remain unchanged; the kernel reports the
    /// errors for each copy.
    fn poll_routes(&mut self) {
        self.ways.refresh(&mut self.netlink);
        self.shared.own.store(Arc::new(self.ways.own()));
        self.hops.clear();
        let plan = self.shared.plan.load_full();
        for group in plan.table.groups() {
            if group.is_multicast() {
                self.ways.query_route(&mut self.netlink, group.spec.listen, group.spec.listen);
            }
            for child in &group.children {
                self.poll_route(group.spec.listen, child);
            }
        }
        let Self { ways, hops, .. } = self;
        ways.keep_neighbours(|hop| hops.contains_key(hop));
    }

    fn poll_route(&mut self, at: SocketAddr, child: &Arc<GroupChild>) {
        self.ways.query_route(&mut self.netlink, at, child.address);
        let way = self.ways.route(at, child.address);
        if let Some(mtu) = way.and_then(|way| self.ways.mtu(&way)) {
            child.set_mtu(mtu);
        }
        match self.ways.hop(at, child.address) {
            Some(hop) => self.hops.entry(hop).or_default().push(Arc::clone(child)),
            None => child.set_unreachable(false),
        }
    }

    /// Polls all neighbours, or the unreachable ones only.
    fn poll_neighbours(&mut self, all: bool) -> NeighbourPoll {
        let mut poll = NeighbourPoll::default();
        for (hop, children) in due(&self.hops, all) {
            let Ok(neighbour) = self.ways.query_neighbour(&mut self.netlink, *hop) else {
                continue;
            };
            if neighbour.is_none() && self.shared.kernel.is_some() {
                // The XDP engine's copies do not make the kernel resolve it. The next poll shows
                // the result.
                let _ = self.netlink.probe_neighbour(hop.0, hop.1);
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

    /// Waits for the MAC addresses of new neighbours.
    fn resolve(&mut self) {
        let mut new: Vec<NextHop> = self.hops.keys().copied().collect();
        let begun = Instant::now();
        while self.shared.kernel.is_some() && begun.elapsed() < RESOLVE_TIMEOUT {
            new.retain(|hop| !self.ways.is_settled(*hop));
            if new.is_empty() {
                break;
            }
            thread::sleep(RESOLVE_INTERVAL);
            for hop in &new {
                // A failed query leaves it unresolved.
                let _ = self.ways.query_neighbour(&mut self.netlink, *hop);
            }
        }
        self.poll_neighbours(true);
    }

    fn sync_xdp_engine(&self) {
        if let Some(kernel) = &self.shared.kernel {
            kernel.sync(&self.shared.plan.load_full().table, &self.ways);
        }
    }

    /// Allows one copy to each unreachable neighbour, which makes the kernel resolve it again. With
    /// the XDP engine, the kernel is requested to do so without a copy.
    fn try_again(&mut self) {
        for (hop, children) in &self.hops {
            if let Some(child) = children.iter().find(|child| child.is_unreachable()) {
                child.allow_trial_copy();
            }
            if self.shared.kernel.is_some() && self.ways.is_unconfirmed(*hop) {
                // The next poll shows the result here too.
                let _ = self.netlink.probe_neighbour(hop.0, hop.1);
            }
        }
    }
}

/// Returns the neighbours to be polled: all of them, or the unreachable ones.
fn due(
    hops: &HashMap<NextHop, Vec<Arc<GroupChild>>>,
    all: bool,
) -> impl Iterator<Item = (&NextHop, &Vec<Arc<GroupChild>>)> {
    hops.iter().filter(move |(_, children)| all || is_unreachable(children))
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
        assert_eq!(due(&hops, false).count(), 0);
        children[4].set_unreachable(true);
        let polled: Vec<IpAddr> = due(&hops, false).map(|(hop, _)| hop.1).collect();
        assert_eq!(polled, ["192.0.2.5".parse::<IpAddr>().unwrap()]);
        assert_eq!(due(&hops, true).count(), 9);
    }
}
