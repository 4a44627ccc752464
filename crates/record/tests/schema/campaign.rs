//! The result of a campaign against its golden file, and any that the types allow.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use horolog_record::{
    CAMPAIGN_SCHEMA, CampaignCapacity, CampaignChild, CampaignClock, CampaignDelivery,
    CampaignDistribution, CampaignEnd, CampaignLimit, CampaignNode, CampaignPair, CampaignPart,
    CampaignPathRow, CampaignPlan, CampaignRelay, CampaignResult, CampaignRole, CampaignStart,
    CampaignTask, CampaignTrial, CampaignUnusableAgent, MergedResults, PathCounts,
};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::choices::{CAMPAIGN_ENDS, CAMPAIGN_LIMITS};
use crate::golden::{new_names, read, written};
use crate::strategies::{chosen, distribution, finding, host, number, signed, trial};

const CAMPAIGN: &str = include_str!("campaign.json");

fn by_reason() -> impl Strategy<Value = BTreeMap<String, u64>> {
    btree_map(Just("rate".to_owned()), any::<u64>(), 0..2)
}

fn parameters() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(Just("rate".to_owned()), any::<String>(), 0..2)
}

fn counts() -> impl Strategy<Value = PathCounts> {
    any::<[u64; 8]>().prop_map(|counts| {
        let [sent, received, lost, late, duplicate, reordered, invalid, refused] = counts;
        PathCounts { sent, received, lost, late, duplicate, reordered, invalid, refused }
    })
}

prop_compose! {
    fn limit()(
        limited_by in chosen(CAMPAIGN_LIMITS),
        intended_rate in number(),
        sent_rate in number(),
        loss in number(),
    ) -> CampaignLimit {
        CampaignLimit { limited_by, intended_rate, sent_rate, loss }
    }
}

prop_compose! {
    fn capacity()(
        loss_max in number(),
        answered_rate in option::of(number()),
        limit in option::of(limit()),
    ) -> CampaignCapacity {
        CampaignCapacity { loss_max, answered_rate, limit }
    }
}

prop_compose! {
    fn pair()(
        ends in any::<[String; 2]>(),
        length: u64,
        load_ratio in number(),
        counts in counts(),
        rtt_ns in option::of(distribution()),
    ) -> CampaignPair {
        let [from, to] = ends;
        CampaignPair { from, to, length, load_ratio, counts, rtt_ns }
    }
}

prop_compose! {
    fn row()(
        length: u64,
        load_ratio in number(),
        paths: u64,
        counts in counts(),
        rtt_ns in option::of(distribution()),
    ) -> CampaignPathRow {
        CampaignPathRow { length, load_ratio, paths, counts, rtt_ns }
    }
}

prop_compose! {
    fn child()(
        address in any::<(IpAddr, u16)>(),
        job: Option<String>,
        sent: u64,
        dropped in by_reason(),
        received: Option<u64>,
    ) -> CampaignChild {
        // A flow label is not written.
        let address = SocketAddr::from(address);
        CampaignChild { address, job, sent, dropped, received }
    }
}

prop_compose! {
    fn relay()(
        names in any::<[String; 2]>(),
        packets: u64,
        refused in by_reason(),
        socket_dropped: Option<u64>,
        children in vec(child(), 0..3),
    ) -> CampaignRelay {
        let [agent, job] = names;
        CampaignRelay { agent, job, packets, refused, socket_dropped, children }
    }
}

prop_compose! {
    fn task()(
        names in any::<[String; 2]>(),
        run: usize,
        counts: [u64; 3],
        span_ns in option::of(number()),
        skew: [u64; 2],
        start_latency_ns in option::of(distribution()),
        response_ns in option::of(distribution()),
    ) -> CampaignTask {
        let ([leader, task], [nodes, periods, missed]) = (names, counts);
        let [skew_ns, skew_error_ns] = skew;
        CampaignTask {
            leader, run, task, nodes, periods, missed, span_ns, skew_ns, skew_error_ns,
            start_latency_ns, response_ns,
        }
    }
}

prop_compose! {
    fn node()(
        names in any::<[String; 3]>(),
        places in any::<[Option<String>; 2]>(),
        run: usize,
        counts: [u64; 2],
        straggler_periods: Option<u64>,
        ahead_ns: Option<i64>,
        start_latency_ns in option::of(distribution()),
        response_ns in option::of(distribution()),
    ) -> CampaignNode {
        let ([leader, node, task], [job, agent], [periods, missed]) = (names, places, counts);
        CampaignNode {
            leader, run, node, job, agent, task, periods, missed, straggler_periods, ahead_ns,
            start_latency_ns, response_ns,
        }
    }
}

prop_compose! {
    fn delivery()(
        unusable in vec(any::<[String; 2]>(), 0..2),
        counts: [u64; 3],
    ) -> CampaignDelivery {
        let unusable = unusable.into_iter();
        let unusable = unusable.map(|[agent, reason]| CampaignUnusableAgent { agent, reason });
        let [duplicate_outcomes, unexpected_reports, unreadable_messages] = counts;
        CampaignDelivery {
            unusable: unusable.collect(), duplicate_outcomes, unexpected_reports, unreadable_messages,
        }
    }
}

fn merged() -> impl Strategy<Value = MergedResults> {
    let of_trial = (any::<usize>(), any::<u64>(), trial())
        .prop_map(|(index, generators, trial)| CampaignTrial { index, generators, trial });
    let path = (any::<String>(), any::<u64>(), distribution());
    let path = path.prop_map(|(path, results, distribution)| CampaignDistribution {
        path,
        results,
        distribution,
    });
    prop_oneof![
        (vec(of_trial, 0..2), option::of(capacity()))
            .prop_map(|(trials, capacity)| MergedResults::Load { trials, capacity }),
        (vec(pair(), 0..2), vec(row(), 0..2))
            .prop_map(|(pairs, rows)| MergedResults::Paths { pairs, rows }),
        (vec(relay(), 0..2), any::<[u64; 2]>(), by_reason()).prop_map(
            |(relays, [packets, copies], dropped)| MergedResults::Relays {
                relays,
                packets,
                copies,
                dropped,
            }
        ),
        (vec(task(), 0..2), vec(node(), 0..2))
            .prop_map(|(tasks, nodes)| MergedResults::Cycles { tasks, nodes }),
        vec(path, 0..2).prop_map(|distributions| MergedResults::Distributions { distributions }),
    ]
}

prop_compose! {
    fn role()(names in any::<[String; 2]>(), counts: [u64; 2], merged in merged()) -> CampaignRole {
        let ([role, kind], [instances, results]) = (names, counts);
        CampaignRole { role, kind, instances, results, merged }
    }
}

prop_compose! {
    fn clock()(offset_ns: i64, error_ns: u64, source: String) -> CampaignClock {
        CampaignClock { offset_ns, error_ns, source }
    }
}

prop_compose! {
    fn part()(
        names in any::<[String; 4]>(),
        service: bool,
        address: IpAddr,
        to: Option<String>,
        end in chosen(CAMPAIGN_ENDS),
        ended in any::<(Option<i32>, Option<String>, String)>(),
        started_ns: Option<i64>,
        duration_s in option::of(number()),
        clock in option::of(clock()),
        result in option::of(any::<String>()),
    ) -> CampaignPart {
        let ([job, role, kind, agent], (status, message, errors)) = (names, ended);
        let result = result.map(|schema| json!({ "schema": schema }));
        CampaignPart {
            job, role, kind, service, agent, address, to, end, status, message, started_ns,
            duration_s, clock, errors, result,
        }
    }
}

prop_compose! {
    fn start()(
        instant_ns: i64,
        late_ns in signed(),
        spread_ns: u64,
        clock_error_ns: Option<u64>,
    ) -> CampaignStart {
        CampaignStart { instant_ns, late_ns, spread_ns, clock_error_ns }
    }
}

prop_compose! {
    fn result()(
        texts in any::<[String; 6]>(),
        command in vec(any::<String>(), 0..3),
        host in host(),
        parameters in parameters(),
        flags: [bool; 2],
        start in option::of(start()),
        delivery in option::of(delivery()),
        roles in vec(role(), 0..3),
        parts in vec(part(), 0..3),
        findings in vec(finding(), 0..3),
    ) -> CampaignResult {
        let ([started, campaign, name, description, hash, text], [local, interrupted]) = (texts, flags);
        CampaignResult {
            schema: CAMPAIGN_SCHEMA.to_owned(),
            started, command, host, campaign,
            plan: CampaignPlan { name, description, hash, parameters, text },
            local, interrupted, start, delivery, roles, parts, findings,
        }
    }
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: CampaignResult = read(CAMPAIGN);
    assert_eq!(written(&result), CAMPAIGN);
    assert_eq!(result.schema, CAMPAIGN_SCHEMA);
    assert_eq!(result.parts[0].end, CampaignEnd::Done);
    assert_eq!(result.start.unwrap().spread_ns, 130_000);
    let MergedResults::Load { trials, .. } = &result.roles[0].merged else { panic!("no load") };
    assert_eq!((trials[0].generators, trials[0].trial.sent), (2, 1_000_000));
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(CAMPAIGN);
    for at in [
        "/plan",
        "/start",
        "/delivery",
        "/delivery/unusable/0",
        "/roles/3/merged/cycles/tasks/0",
        "/roles/3/merged/cycles/nodes/0",
        "/roles/0",
        "/roles/1/merged/paths/pairs/0",
        "/roles/2/merged/relays/relays/0",
        "/parts/0",
    ] {
        file.pointer_mut(at).unwrap()["from_a_later_version"] = json!(1);
    }
    assert_eq!(serde_json::from_value::<CampaignResult>(file).unwrap(), read(CAMPAIGN));
}

proptest! {
    #[test]
    fn any_result_is_read_as_it_was_written(result in result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<CampaignResult>(&text).unwrap(), result);
    }

    #[test]
    fn every_name_that_can_be_written_is_in_the_file(result in result()) {
        prop_assert_eq!(new_names(&result, CAMPAIGN), Vec::<String>::new());
    }
}
