//! Merge of relay results: for each relay the packets that it received and those that it sent to
//! each child, compared with the packets that the child received if it is a relay of the campaign.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use horolog_record::{CampaignRelayChildCounts, CampaignRelayCounts, MergedResults};
use serde::Deserialize;

use super::load::sum_counts;
use super::{InstanceOutcome, MergeFailureCollector};
use crate::placement::PlacedJob;
use crate::role::RoleKind;

/// Fields of a relay's result that the merge reads.
#[derive(Deserialize)]
struct RelayListingExtract {
    groups: Vec<RelayGroupExtract>,
}

#[derive(Deserialize)]
struct RelayGroupExtract {
    packets: u64,
    #[serde(default)]
    refused: BTreeMap<String, u64>,
    #[serde(default)]
    socket_dropped: Option<u64>,
    #[serde(default)]
    children: Vec<RelayChildExtract>,
}

#[derive(Deserialize)]
struct RelayChildExtract {
    address: SocketAddr,
    packets: u64,
    #[serde(default)]
    dropped: BTreeMap<String, u64>,
}

/// Results of all relays of the campaign, of any role.
struct RelayListings<'a>(Vec<(RelayListingExtract, &'a PlacedJob)>);

pub(super) fn merge(
    role_parts: &[&InstanceOutcome<'_>],
    parts: &[InstanceOutcome<'_>],
    failures: &mut MergeFailureCollector<'_>,
) -> MergedResults {
    // Includes relays of other roles; invalid results of these are reported when their role is
    // merged.
    let is_relay = |part: &'_ &InstanceOutcome<'_>| part.placed.job.kind == RoleKind::RelayRun;
    let read = parts.iter().filter(is_relay).filter_map(|part| {
        let listing = RelayListingExtract::deserialize(part.result()?).ok()?;
        Some((listing, part.placed))
    });
    let listings = RelayListings(read.collect());
    let relays = role_parts.iter().filter_map(|part| {
        let listing: RelayListingExtract = part.parse_result(failures)?;
        Some(listings.relay(&listing, part.placed))
    });
    let relays: Vec<_> = relays.collect();
    let children = || relays.iter().flat_map(|relay| &relay.children);
    MergedResults::Relays {
        packets: relays.iter().fold(0, |sum, relay| sum.saturating_add(relay.packets)),
        copies: children().fold(0, |sum, child| sum.saturating_add(child.sent)),
        dropped: sum_counts(children().map(|child| &child.dropped)),
        relays,
    }
}

impl RelayListings<'_> {
    fn relay(&self, listing: &RelayListingExtract, placed: &PlacedJob) -> CampaignRelayCounts {
        let dropped = listing.groups.iter().filter_map(|group| group.socket_dropped);
        CampaignRelayCounts {
            agent: placed.agent.to_string(),
            job: placed.job.id.to_string(),
            packets: listing.packets(),
            refused: sum_counts(listing.groups.iter().map(|group| &group.refused)),
            socket_dropped: dropped.reduce(u64::saturating_add),
            children: listing.children().map(|child| self.child(child)).collect(),
        }
    }

    fn child(&self, child: &RelayChildExtract) -> CampaignRelayChildCounts {
        let child_relay = self.0.iter().find(|(_, placed)| is_listening_on(placed, child.address));
        let children = self.0.iter().flat_map(|(listing, _)| listing.children());
        let parents = children.filter(|other| other.address == child.address).count();
        let received = child_relay.filter(|_| parents == 1).map(|(listing, _)| listing.packets());
        CampaignRelayChildCounts {
            address: child.address,
            job: child_relay.map(|(_, placed)| placed.job.id.to_string()),
            sent: child.packets,
            dropped: child.dropped.clone(),
            received,
        }
    }
}

impl RelayListingExtract {
    fn children(&self) -> impl Iterator<Item = &RelayChildExtract> {
        self.groups.iter().flat_map(|group| &group.children)
    }

    fn packets(&self) -> u64 {
        self.groups.iter().fold(0, |sum, group| sum.saturating_add(group.packets))
    }
}

/// Returns true if a relay listens on an address, or on all addresses of its agent with this port.
fn is_listening_on(placed: &PlacedJob, address: SocketAddr) -> bool {
    let listen = placed.job.options.get("listen").into_iter().flatten();
    listen.filter_map(|text| text.parse::<SocketAddr>().ok()).any(|own| {
        let is_all = own.ip().is_unspecified() && placed.address == address.ip();
        own == address || (is_all && own.port() == address.port())
    })
}
