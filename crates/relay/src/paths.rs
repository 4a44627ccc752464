//! The ways to the children as the kernel knows them: the MTU, and whether the next hop answers. A
//! thread of its own looks at them, so that a child whose neighbour is silent costs those that are
//! there nothing: what is sent to such a neighbour would wait in the kernel and take up the
//! socket's buffer. Where copies are made in the kernel, it is told of the ways here too.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use horolog_sys::netlink::Netlink;

use crate::Child;
use crate::node::Shared;
use crate::ways::{Hop, Ways};

/// Between two looks at the neighbours.
const NEIGHBOURS_EVERY: Duration = Duration::from_millis(200);
/// The same while one of them is silent.
const SILENT_EVERY: Duration = Duration::from_millis(20);
/// Between two looks at routes, interfaces and own addresses; and between two trials of a silent
/// neighbour, which the kernel asks for as long.
const ROUTES_EVERY: Duration = Duration::from_secs(1);
/// How long a change waits for new neighbours to say their MAC addresses, before copies for those
/// that have not count as unresolved.
const RESOLVE_PATIENCE: Duration = Duration::from_millis(200);
const RESOLVE_EVERY: Duration = Duration::from_millis(1);

/// Who is told when a change has been looked at.
pub(crate) type Looked = SyncSender<()>;

/// What a look at neighbours showed.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// Whether one is silent: asked for and not answering. One that was never asked for is not.
    any_silent: bool,
    /// Whether one that was silent answers.
    any_answered: bool,
}

pub(crate) struct Paths {
    netlink: Netlink,
    shared: Arc<Shared>,
    ways: Ways,
    /// The children by the neighbour that their copies go to.
    hops: HashMap<Hop, Vec<Arc<Child>>>,
}

impl Paths {
    pub(crate) fn new(netlink: Netlink, ways: Ways, shared: Arc<Shared>) -> Self {
        Self { netlink, shared, ways, hops: HashMap::new() }
    }

    /// Looks until `changed` is closed; at once whenever something comes by it.
    pub(crate) fn run(mut self, changed: &Receiver<Looked>) {
        let mut looked: Option<Instant> = None;
        let mut asked_all: Option<Instant> = None;
        let mut waiting: Option<Looked> = None;
        loop {
            if looked.is_none_or(|at| at.elapsed() >= ROUTES_EVERY) {
                self.look_at_routes();
                looked = Some(Instant::now());
                // Some of them may be new.
                asked_all = None;
                self.try_again();
            }
            let all = asked_all.is_none_or(|at| at.elapsed() >= NEIGHBOURS_EVERY);
            if all {
                asked_all = Some(Instant::now());
            }
            let Heard { any_silent, any_answered } = self.look_at_neighbours(all);
            if waiting.is_some() {
                self.resolve();
            }
            if all || any_answered {
                self.tell_kernel();
            }
            if let Some(waiting) = waiting.take() {
                // Who does not wait any more need not be told.
                let _ = waiting.send(());
            }
            let wait = if any_silent { SILENT_EVERY } else { NEIGHBOURS_EVERY };
            match changed.recv_timeout(wait) {
                Ok(who) => (looked, waiting) = (None, Some(who)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// What cannot be learnt stays as it was; the kernel says it of each copy.
    fn look_at_routes(&mut self) {
        self.ways.renew(&mut self.netlink);
        self.shared.own.store(Arc::new(self.ways.own()));
        self.hops.clear();
        let plan = self.shared.plan.load_full();
        for group in plan.table.groups() {
            if group.is_multicast() {
                self.ways.ask_route(&mut self.netlink, group.spec.listen, group.spec.listen);
            }
            for child in &group.children {
                self.look_at_route(group.spec.listen, child);
            }
        }
        let Self { ways, hops, .. } = self;
        ways.keep_neighbours(|hop| hops.contains_key(hop));
    }

    fn look_at_route(&mut self, at: SocketAddr, child: &Arc<Child>) {
        self.ways.ask_route(&mut self.netlink, at, child.address);
        let way = self.ways.route(at, child.address);
        if let Some(mtu) = way.and_then(|way| self.ways.mtu(&way)) {
            child.set_mtu(mtu);
        }
        match self.ways.hop(at, child.address) {
            Some(hop) => self.hops.entry(hop).or_default().push(Arc::clone(child)),
            None => child.set_silent(false),
        }
    }

    /// Looks at all neighbours, or at the silent ones alone.
    fn look_at_neighbours(&mut self, all: bool) -> Heard {
        let mut heard = Heard::default();
        for (hop, children) in due(&self.hops, all) {
            let Ok(neighbour) = self.ways.ask_neighbour(&mut self.netlink, *hop) else { continue };
            if neighbour.is_none() && self.shared.kernel.is_some() {
                // The kernel's copies do not make it ask. That it is, shows in the next look.
                let _ = self.netlink.use_neighbour(hop.0, hop.1);
            }
            let silent = neighbour.is_some_and(|neighbour| !neighbour.usable);
            heard.any_silent |= silent;
            heard.any_answered |= !silent && is_silent(children);
            for child in children {
                child.set_silent(silent);
            }
        }
        heard
    }

    /// Waits for new neighbours to say their MAC addresses.
    fn resolve(&mut self) {
        let mut new: Vec<Hop> = self.hops.keys().copied().collect();
        let begun = Instant::now();
        while self.shared.kernel.is_some() && begun.elapsed() < RESOLVE_PATIENCE {
            new.retain(|hop| !self.ways.is_settled(*hop));
            if new.is_empty() {
                break;
            }
            thread::sleep(RESOLVE_EVERY);
            for hop in &new {
                // What cannot be learnt is not known.
                let _ = self.ways.ask_neighbour(&mut self.netlink, *hop);
            }
        }
        self.look_at_neighbours(true);
    }

    fn tell_kernel(&self) {
        if let Some(kernel) = &self.shared.kernel {
            kernel.follow(&self.shared.plan.load_full().table, &self.ways);
        }
    }

    /// Lets one copy go to each silent neighbour, which makes the kernel ask for it again. Where
    /// copies are made in the kernel, it is asked to do so without one.
    fn try_again(&mut self) {
        for (hop, children) in &self.hops {
            if let Some(child) = children.iter().find(|child| child.is_silent()) {
                child.try_again();
            }
            if self.shared.kernel.is_some() && self.ways.is_doubtful(*hop) {
                // As above.
                let _ = self.netlink.use_neighbour(hop.0, hop.1);
            }
        }
    }
}

/// The neighbours to be looked at: all of them, or the silent ones.
fn due(
    hops: &HashMap<Hop, Vec<Arc<Child>>>,
    all: bool,
) -> impl Iterator<Item = (&Hop, &Vec<Arc<Child>>)> {
    hops.iter().filter(move |(_, children)| all || is_silent(children))
}

/// Whether the neighbour that these children are behind was silent when it was last looked at.
fn is_silent(children: &[Arc<Child>]) -> bool {
    children.iter().any(|child| child.is_silent())
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::Table;
    use crate::tests::{group, spec};

    #[test]
    fn one_silent_neighbour_has_no_other_asked_for_more_often() {
        let addresses: Vec<String> = (1..=9).map(|host| format!("192.0.2.{host}:5")).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let table = Table::new(&spec(vec![group("g", "127.0.0.1:5", &addresses)]), None).unwrap();
        let children = &table.groups()[0].children;
        let hops: HashMap<Hop, _> =
            children.iter().map(|one| ((1, one.address.ip()), vec![Arc::clone(one)])).collect();
        assert_eq!(due(&hops, false).count(), 0);
        children[4].set_silent(true);
        let asked: Vec<IpAddr> = due(&hops, false).map(|(hop, _)| hop.1).collect();
        assert_eq!(asked, ["192.0.2.5".parse::<IpAddr>().unwrap()]);
        assert_eq!(due(&hops, true).count(), 9);
    }
}
