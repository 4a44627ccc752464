//! Tests of what several modules share: tables that come and go as text and as data, decisions, and
//! a relay on the loopback interface.

mod control;
mod decisions;
mod loopback;
mod tables;
mod texts;

use crate::{GroupSpec, HOP_LIMIT, IpNetwork, RATE, RoutingTableSpec};

fn networks(texts: &[&str]) -> Vec<IpNetwork> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

pub(crate) fn group(name: &str, listen: &str, children: &[&str]) -> GroupSpec {
    GroupSpec {
        name: name.to_owned(),
        listen: listen.parse().unwrap(),
        interface: None,
        sources: networks(&["127.0.0.0/8", "198.51.100.0/24", "2001:db8::/32"]),
        rate: RATE,
        hop_limit: HOP_LIMIT,
        fragment: true,
        children: children.iter().map(|child| child.parse().unwrap()).collect(),
    }
}

pub(crate) fn spec(groups: Vec<GroupSpec>) -> RoutingTableSpec {
    let destinations = networks(&["127.0.0.0/8", "192.0.2.0/24", "2001:db8::/32"]);
    RoutingTableSpec { destinations, copy_rate: 1_000_000, groups }
}
