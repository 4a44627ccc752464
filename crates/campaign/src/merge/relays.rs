//! Relays together: what each received and sent to each child, and beside it what that child
//! received, where it is a relay of the campaign. Of a relay's record only what is needed is read;
//! the rest stays in the part.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use horolog_record::{CampaignChild, CampaignFigures, CampaignRelay};
use serde::Deserialize;

use super::load::counts;
use super::{Part, Unmerged};
use crate::place::Placed;
use crate::role::RoleKind;

/// What is read of a relay's record.
#[derive(Deserialize)]
struct Listing {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    packets: u64,
    #[serde(default)]
    refused: BTreeMap<String, u64>,
    #[serde(default)]
    socket_dropped: Option<u64>,
    #[serde(default)]
    children: Vec<Child>,
}

#[derive(Deserialize)]
struct Child {
    address: SocketAddr,
    packets: u64,
    #[serde(default)]
    dropped: BTreeMap<String, u64>,
}

/// All relays of the campaign, of whatever role.
struct All<'a>(Vec<(Listing, &'a Placed)>);

pub(super) fn merge(
    own: &[&Part<'_>],
    parts: &[Part<'_>],
    unmerged: &mut Unmerged<'_>,
) -> CampaignFigures {
    // Those of other roles, whose damage is said where they are merged.
    let readable = |part: &'_ &Part<'_>| part.placed.job.kind == RoleKind::RelayRun;
    let read = parts.iter().filter(readable).filter_map(|part| {
        let listing = Listing::deserialize(part.result()?).ok()?;
        Some((listing, part.placed))
    });
    let all = All(read.collect());
    let relays = own.iter().filter_map(|part| {
        let listing: Listing = part.read(unmerged)?;
        Some(all.relay(&listing, part.placed))
    });
    let relays: Vec<_> = relays.collect();
    let children = || relays.iter().flat_map(|relay| &relay.children);
    CampaignFigures::Relays {
        packets: relays.iter().fold(0, |sum, relay| sum.saturating_add(relay.packets)),
        copies: children().fold(0, |sum, child| sum.saturating_add(child.sent)),
        dropped: counts(children().map(|child| &child.dropped)),
        relays,
    }
}

impl All<'_> {
    fn relay(&self, listing: &Listing, placed: &Placed) -> CampaignRelay {
        let dropped = listing.groups.iter().filter_map(|group| group.socket_dropped);
        CampaignRelay {
            agent: placed.agent.to_string(),
            job: placed.job.id.to_string(),
            packets: listing.packets(),
            refused: counts(listing.groups.iter().map(|group| &group.refused)),
            socket_dropped: dropped.reduce(u64::saturating_add),
            children: listing.children().map(|child| self.child(child)).collect(),
        }
    }

    fn child(&self, child: &Child) -> CampaignChild {
        let known = self.0.iter().find(|(_, placed)| listens(placed, child.address));
        let children = self.0.iter().flat_map(|(listing, _)| listing.children());
        let parents = children.filter(|other| other.address == child.address).count();
        let received = known.filter(|_| parents == 1).map(|(listing, _)| listing.packets());
        CampaignChild {
            address: child.address,
            job: known.map(|(_, placed)| placed.job.id.to_string()),
            sent: child.packets,
            dropped: child.dropped.clone(),
            received,
        }
    }
}

impl Listing {
    fn children(&self) -> impl Iterator<Item = &Child> {
        self.groups.iter().flat_map(|group| &group.children)
    }

    fn packets(&self) -> u64 {
        self.groups.iter().fold(0, |sum, group| sum.saturating_add(group.packets))
    }
}

/// Whether a relay takes in what goes to an address.
fn listens(placed: &Placed, address: SocketAddr) -> bool {
    let listen = placed.job.options.get("listen").into_iter().flatten();
    listen.filter_map(|text| text.parse::<SocketAddr>().ok()).any(|own| {
        let is_all = own.ip().is_unspecified() && placed.address == address.ip();
        own == address || (is_all && own.port() == address.port())
    })
}
