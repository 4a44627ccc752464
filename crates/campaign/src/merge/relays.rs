//! Merge of relays: packets that each received and sent to each child, compared with those that the
//! child received if it is a relay of the campaign. Only the necessary part of a relay's record is
//! read; the rest stays in the part.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use horolog_record::{CampaignRelay, CampaignRelayChild, MergedResults};
use serde::Deserialize;

use super::load::counts;
use super::{MergeFailures, MergedPart};
use crate::placement::PlacedJob;
use crate::role::RoleKind;

/// Part of a relay's record that is read.
#[derive(Deserialize)]
struct RelayListingExtract {
    groups: Vec<GroupExtract>,
}

#[derive(Deserialize)]
struct GroupExtract {
    packets: u64,
    #[serde(default)]
    refused: BTreeMap<String, u64>,
    #[serde(default)]
    socket_dropped: Option<u64>,
    #[serde(default)]
    children: Vec<RelayChildRecord>,
}

#[derive(Deserialize)]
struct RelayChildRecord {
    address: SocketAddr,
    packets: u64,
    #[serde(default)]
    dropped: BTreeMap<String, u64>,
}

/// All relays of the campaign, of any role.
struct RelayListings<'a>(Vec<(RelayListingExtract, &'a PlacedJob)>);

pub(super) fn merge(
    own: &[&MergedPart<'_>],
    parts: &[MergedPart<'_>],
    unmerged: &mut MergeFailures<'_>,
) -> MergedResults {
    // Includes relays of other roles; their invalid records are reported when those roles are
    // merged.
    let readable = |part: &'_ &MergedPart<'_>| part.placed.job.kind == RoleKind::RelayRun;
    let read = parts.iter().filter(readable).filter_map(|part| {
        let listing = RelayListingExtract::deserialize(part.result()?).ok()?;
        Some((listing, part.placed))
    });
    let all = RelayListings(read.collect());
    let relays = own.iter().filter_map(|part| {
        let listing: RelayListingExtract = part.read(unmerged)?;
        Some(all.relay(&listing, part.placed))
    });
    let relays: Vec<_> = relays.collect();
    let children = || relays.iter().flat_map(|relay| &relay.children);
    MergedResults::Relays {
        packets: relays.iter().fold(0, |sum, relay| sum.saturating_add(relay.packets)),
        copies: children().fold(0, |sum, child| sum.saturating_add(child.sent)),
        dropped: counts(children().map(|child| &child.dropped)),
        relays,
    }
}

impl RelayListings<'_> {
    fn relay(&self, listing: &RelayListingExtract, placed: &PlacedJob) -> CampaignRelay {
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

    fn child(&self, child: &RelayChildRecord) -> CampaignRelayChild {
        let known = self.0.iter().find(|(_, placed)| listens(placed, child.address));
        let children = self.0.iter().flat_map(|(listing, _)| listing.children());
        let parents = children.filter(|other| other.address == child.address).count();
        let received = known.filter(|_| parents == 1).map(|(listing, _)| listing.packets());
        CampaignRelayChild {
            address: child.address,
            job: known.map(|(_, placed)| placed.job.id.to_string()),
            sent: child.packets,
            dropped: child.dropped.clone(),
            received,
        }
    }
}

impl RelayListingExtract {
    fn children(&self) -> impl Iterator<Item = &RelayChildRecord> {
        self.groups.iter().flat_map(|group| &group.children)
    }

    fn packets(&self) -> u64 {
        self.groups.iter().fold(0, |sum, group| sum.saturating_add(group.packets))
    }
}

/// Returns true if a relay receives packets sent to an address.
fn listens(placed: &PlacedJob, address: SocketAddr) -> bool {
    let listen = placed.job.options.get("listen").into_iter().flatten();
    listen.filter_map(|text| text.parse::<SocketAddr>().ok()).any(|own| {
        let is_all = own.ip().is_unspecified() && placed.address == address.ip();
        own == address || (is_all && own.port() == address.port())
    })
}
