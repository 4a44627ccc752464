//! What each place of a campaign measured, as bars with the worst on top: which generator, node,
//! path or child differs from the others.

use horolog_record::{
    CampaignFigures, CampaignNode, CampaignPair, CampaignPart, CampaignRelay, CampaignResult,
    CampaignRole, PathCounts,
};
use serde::Deserialize;
use serde_json::Value;

use super::bars::{bar, row, table};
use super::escape::each;
use super::sections::paragraph;
use crate::campaign::length;
use crate::units::{full_count, human_ns, human_rate, percent_of};

/// Bars of a role: all others are in its table.
const BARS_MAX: usize = 40;

/// A bar and what stands beside it.
struct Place {
    name: String,
    /// How long the bar is.
    size: f64,
    numbers: [String; 2],
}

/// The bars of a role.
struct Places {
    /// What they are of.
    about: String,
    /// Of the names and of the numbers.
    titles: [&'static str; 3],
    /// The worst first.
    all: Vec<Place>,
    /// The size of a full bar.
    full: f64,
}

/// Bars for each role that measured in several places.
pub(super) fn places(result: &CampaignResult) -> String {
    let all = result.roles.iter().filter_map(|role| of_role(role, &result.parts));
    each(all.filter(|bars| bars.all.len() > 1), |bars| drawn(&bars))
}

fn drawn(bars: &Places) -> String {
    let rows = each(bars.all.iter().take(BARS_MAX), |place| {
        let share = (bars.full > 0.0).then(|| place.size / bars.full);
        row(&place.name, place.numbers.each_ref().map(String::as_str), &bar(share))
    });
    let [name, first, second] = bars.titles;
    let left = bars.all.len().saturating_sub(BARS_MAX);
    let left = match left {
        0 => String::new(),
        _ => paragraph(&format!("{left} more were better than these.")),
    };
    paragraph(&bars.about) + &table([name, first, second, ""], &rows) + &left
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture;

    /// The names of the bars, from the top, of a role alone.
    fn names(result: &CampaignResult, role: &str) -> Vec<String> {
        let mut result = result.clone();
        result.roles.retain(|one| one.role == role);
        let markup = places(&result);
        let rows = markup.split("<th scope=\"row\">").skip(1);
        rows.map(|row| row.split_once('<').unwrap().0.to_owned()).collect()
    }

    fn with_parts(role: &str, results: &[Value]) -> CampaignResult {
        let mut result = fixture::campaign();
        let part = result.parts[0].clone();
        let numbered = |(number, own): (usize, &Value)| CampaignPart {
            job: format!("{role}.{number}"),
            role: role.to_owned(),
            result: Some(own.clone()),
            ..part.clone()
        };
        result.parts = results.iter().enumerate().map(numbered).collect();
        result
    }

    #[test]
    fn the_slowest_generator_is_on_top() {
        let own = |p99| json!({"sent": 100, "lost": 1, "rtt_ns": {"p99": p99, "max": 9}});
        let of = |p99| json!({"trials": [own(1), own(1), own(p99)]});
        let without = json!({"trials": [own(99)]});
        let result = with_parts("load", &[of(20), of(40), without, of(30), json!({"trials": 7})]);
        let on = |number| format!("load.{number} on n1");
        assert_eq!(names(&result, "load"), [on(1), on(3), on(0)]);
        let markup = places(&result);
        assert!(markup.contains("width:75.00%") && markup.contains("1.00%"), "{markup}");
    }

    #[test]
    fn a_distribution_is_read_where_it_stands() {
        let of = |p99| json!({"cores": [{"latency_ns": {"p99": p99, "max": 50}}]});
        let result = with_parts("timer", &[of(10), of(40), json!({"cores": []})]);
        assert_eq!(names(&result, "timer"), ["timer.1 on n1", "timer.0 on n1"]);
    }

    #[test]
    fn paths_nodes_and_children_are_compared() {
        let result = fixture::campaign();
        assert_eq!(names(&result, "probe"), ["n1 to n2", "n2 to n1"]);
        assert_eq!(names(&result, "lead"), ["node1, task", "member1, task"]);
        let child = |to: &str| format!("relay.1 on n1 to {to}");
        assert_eq!(names(&result, "relay"), [child("relay.2"), child("192.0.2.10:5000")]);
        // One generator is compared with nobody.
        assert_eq!(names(&result, "load"), [""; 0]);
    }

    #[test]
    fn the_best_of_many_are_left_to_the_table() {
        let of = |p99: usize| json!({"cores": [{"latency_ns": {"p99": p99, "max": 50}}]});
        let many: Vec<_> = (0..BARS_MAX + 3).map(of).collect();
        let result = with_parts("timer", &many);
        assert_eq!(names(&result, "timer").len(), BARS_MAX);
        assert!(places(&result).contains("3 more were better"));
    }
}
