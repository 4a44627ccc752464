//! What each place of a campaign measured, the worst first: which generator, node, path or child
//! differs from the others. The table and the page draw bars of it.

use horolog_record::{
    CampaignFigures, CampaignNode, CampaignPair, CampaignPart, CampaignRelay, CampaignResult,
    CampaignRole, PathCounts,
};
use serde::Deserialize;
use serde_json::Value;

use crate::campaign::length;
use crate::units::{full_count, human_ns, human_rate, percent_of};

/// A bar and what stands beside it.
pub(crate) struct Place {
    pub(crate) name: String,
    /// How long the bar is.
    pub(crate) size: f64,
    pub(crate) numbers: [String; 2],
}

/// The bars of a role.
pub(crate) struct Places {
    /// What they are of.
    pub(crate) about: String,
    /// Of the names and of the numbers.
    pub(crate) titles: [&'static str; 3],
    /// The worst first.
    pub(crate) all: Vec<Place>,
    /// The size of a full bar.
    pub(crate) full: f64,
}

/// The places of each role that measured in several.
pub(crate) fn places(result: &CampaignResult) -> impl Iterator<Item = Places> + '_ {
    let all = result.roles.iter().filter_map(|role| of_role(role, &result.parts));
    all.filter(|places| places.all.len() > 1)
}

fn of_role(role: &CampaignRole, parts: &[CampaignPart]) -> Option<Places> {
    let parts = || parts.iter().filter(|part| part.role == role.role);
    let (what, titles, places): (String, _, Vec<_>) = match &role.figures {
        CampaignFigures::Load { trials, .. } => {
            let last = trials.last()?;
            let what = format!(
                "round trip, p99, in the trial at {} together",
                human_rate(last.trial.offered_rate)
            );
            let place = |part| of_generator(part, last.index);
            (what, ["generator", "p99", "lost"], parts().filter_map(place).collect())
        }
        CampaignFigures::Paths { pairs, .. } => {
            let last = pairs.last()?;
            let row = |pair: &CampaignPair| length(pair.length, pair.load_ratio);
            let same = pairs.iter().filter(|pair| row(pair) == row(last));
            let place = |pair: &CampaignPair| {
                let name = format!("{} to {}", pair.from, pair.to);
                Some(timed(name, pair.rtt_ns.as_ref()?.p99, lost(&pair.counts)))
            };
            let what = format!("round trip at {} bytes, p99", row(last));
            (what, ["path", "p99", "lost"], same.filter_map(place).collect())
        }
        CampaignFigures::Relays { relays, .. } => return Some(of_relays(&role.role, relays)),
        CampaignFigures::Cycles { nodes, .. } => {
            let place = |node: &CampaignNode| {
                let name = format!("{}, {}", node.node, node.task);
                let missed = percent_of(node.missed, node.periods);
                Some(timed(name, node.response_ns.as_ref()?.p99, missed))
            };
            let what = "from the release to the end of the work, p99".to_owned();
            (what, ["node", "p99", "missed"], nodes.iter().filter_map(place).collect())
        }
        CampaignFigures::Distributions { distributions } => {
            let first = distributions.iter().rev().max_by_key(|one| one.results)?;
            let place = |part: &CampaignPart| {
                let times = Times::deserialize(at(part.result.as_ref()?, &first.place)?).ok()?;
                Some(timed(on(part), times.p99, human_ns(times.max)))
            };
            let what = format!("{}, p99", first.place);
            (what, ["part", "p99", "max"], parts().filter_map(place).collect())
        }
    };
    let mut places = places;
    places.sort_by(|a, b| b.size.total_cmp(&a.size));
    let full = places.first().map_or(0.0, |place| place.size);
    Some(Places { about: format!("{}: {what}.", role.role), titles, all: places, full })
}

fn timed(name: String, ns: u64, beside: String) -> Place {
    Place { name, size: ns as f64, numbers: [human_ns(ns), beside] }
}

fn on(part: &CampaignPart) -> String {
    format!("{} on {}", part.job, part.agent)
}

fn lost(counts: &PathCounts) -> String {
    percent_of(counts.lost, counts.sent)
}

/// What is read of a distribution in a part's own result.
#[derive(Deserialize)]
struct Times {
    p99: u64,
    max: u64,
}

/// What is read of a trial in a part's own result.
#[derive(Deserialize)]
struct Trial {
    sent: u64,
    lost: u64,
    rtt_ns: Times,
}

fn of_generator(part: &CampaignPart, trial: usize) -> Option<Place> {
    let trial = part.result.as_ref()?.get("trials")?.get(trial)?;
    let trial = Trial::deserialize(trial).ok()?;
    Some(timed(on(part), trial.rtt_ns.p99, percent_of(trial.lost, trial.sent)))
}

/// What stands at a place such as `cores[0].latency_ns`.
fn at<'a>(result: &'a Value, place: &str) -> Option<&'a Value> {
    result.pointer(&format!("/{}", place.replace(['.', '['], "/").replace(']', "")))
}

/// Of every child, how much came of what its relay received; copies that were sent where nobody
/// knows what came. The least comes first.
fn of_relays(role: &str, relays: &[CampaignRelay]) -> Places {
    let mut places = Vec::new();
    for relay in relays.iter().filter(|relay| relay.packets > 0) {
        for child in &relay.children {
            let to = child.job.clone().unwrap_or_else(|| child.address.to_string());
            let came = child.received.unwrap_or(child.sent);
            places.push(Place {
                name: format!("{} on {} to {to}", relay.job, relay.agent),
                size: came as f64 / relay.packets as f64,
                numbers: [percent_of(came, relay.packets), full_count(came)],
            });
        }
    }
    places.sort_by(|a, b| a.size.total_cmp(&b.size));
    let about = format!("{role}: what came at each child of what its relay received.");
    Places { about, titles: ["child", "share", "packets"], all: places, full: 1.0 }
}
