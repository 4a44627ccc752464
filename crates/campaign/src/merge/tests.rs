//! Results put together are what one program would have recorded that did everything.

use horolog_record::{
    CampaignCapacity, FindingCode, LimitingSide, LoadEngineKind, LoadTarget, MergedResults,
    PATH_UDP_SCHEMA, PathRequestCounts, ReplyKindCounts, RequestMode, RequestSpacing, Severity,
    Trial,
};
use horolog_stats::Histogram;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::order::AgentClockOffset;
use crate::placement::{AgentCandidate, assign_roles};

pub(super) const PLAN: &str = r#"
schema = "horolog.plan/2"
name = "p"
[[role]]
name = "server"
kind = "serve"
[role.options]
listen = "{self}:123"
[[role]]
name = "load"
kind = "load-ntp"
count = 3
[role.options]
target = "{server}"
rate = "1k"
"#;

fn agents(count: u8) -> Vec<AgentCandidate> {
    let agent = |number: u8| AgentCandidate {
        name: format!("n{number}").parse().unwrap(),
        labels: BTreeMap::new(),
        addresses: vec![[192, 0, 2, number].into()],
        kinds: RoleKind::ALL.to_vec(),
    };
    (1..=count).map(agent).collect()
}

fn host() -> Host {
    serde_json::from_value(json!({ "cores": 2 })).unwrap()
}

pub(super) fn outcome(job: &str, result: Option<Value>) -> JobOutcome {
    JobOutcome {
        campaign: "c".parse().unwrap(),
        agent: "n1".parse().unwrap(),
        job: job.parse().unwrap(),
        ending: JobEnd::Done { status: 0 },
        intended_ns: Some(1_000),
        started_ns: Some(1_500),
        ended_ns: Some(2_000_001_500),
        clock: None,
        result,
        stderr_tail: String::new(),
    }
}

pub(super) fn merged(text: &str, outcomes: Vec<JobOutcome>) -> CampaignResult {
    let plan = Plan::parse(text, &[]).unwrap();
    let placement = assign_roles(&plan, &agents(5)).unwrap();
    merge(MergeInput {
        plan: &plan,
        placement: &placement,
        campaign: &"c".parse().unwrap(),
        started: String::new(),
        command: Vec::new(),
        host: host(),
        local: false,
        interrupted: false,
        at_ns: Some(1_000),
        delivery: None,
        outcomes,
        findings: Vec::new(),
    })
}

fn distribution(values: &[u64]) -> Option<Distribution> {
    let mut histogram = Histogram::new();
    for value in values {
        histogram.record(*value);
    }
    Distribution::from_histogram(&histogram)
}

pub(super) fn trial(rate: f64, rtts: &[u64]) -> Trial {
    let received = rtts.len() as u64;
    Trial {
        phase: None,
        intended_rate: rate,
        achieved_rate: rate - 1.0,
        duration_s: 2.0,
        clients: 16,
        sent: received + 2,
        received,
        lost: 2,
        duplicate: 1,
        late: 1,
        unsynchronised: 0,
        invalid: BTreeMap::new(),
        responses: ReplyKindCounts { basic: received, ..ReplyKindCounts::default() },
        authenticated: None,
        cookies_reused: None,
        fairness: None,
        compliant_clients: None,
        rtt_ns: distribution(rtts),
        response_time_ns: None,
        tx_offset_ns: None,
        timestamped: None,
        lateness_ns: distribution(&[1]),
        lost_at: [
            (horolog_record::LossLocation::Unknown, 1),
            (horolog_record::LossLocation::Late, 1),
        ]
        .into(),
        parts: Vec::new(),
    }
}

pub(super) fn load(trials: Vec<Trial>) -> Value {
    let target = LoadTarget {
        address: [192, 0, 2, 1].into(),
        port: 123,
        name: None,
        interface: None,
        mac: None,
        source_network: None,
    };
    serde_json::to_value(horolog_record::LoadResult {
        schema: "horolog.load/2".into(),
        started: String::new(),
        command: Vec::new(),
        host: host(),
        target,
        mode: RequestMode::NtpBasic,
        engine: LoadEngineKind::Udp,
        threads: 1,
        spacing: RequestSpacing::Constant,
        reply_timeout_ns: 1,
        offset: None,
        trials,
        search: None,
        series: None,
        outages: Vec::new(),
        overload: None,
        limits: Vec::new(),
        findings: Vec::new(),
    })
    .unwrap()
}

fn trials(result: &CampaignResult) -> &[horolog_record::CampaignTrial] {
    let role = result.roles.iter().find(|role| role.role == "load").unwrap();
    let MergedResults::Load { trials, .. } = &role.merged else { panic!("{role:?}") };
    trials
}

fn capacity(result: &CampaignResult) -> Option<CampaignCapacity> {
    let role = result.roles.iter().find(|role| role.role == "load").unwrap();
    let MergedResults::Load { capacity, .. } = &role.merged else { panic!("{role:?}") };
    *capacity
}

pub(super) fn codes(result: &CampaignResult) -> Vec<FindingCode> {
    result.findings.iter().map(|finding| finding.code).collect()
}

#[test]
fn loads_become_one() {
    let one = load(vec![trial(1e3, &[5, 7]), trial(2e3, &[9])]);
    let two = load(vec![trial(1e3, &[100])]);
    let outcomes = vec![
        outcome("server.1", None),
        outcome("load.1", Some(one)),
        outcome("load.2", Some(two.clone())),
        // Delivered twice, of which the first counts.
        outcome("load.2", Some(load(vec![trial(1e3, &[1; 50])]))),
        outcome("load.3", Some(two)),
        // Of nobody who was asked.
        outcome("other.1", None),
    ];
    let result = merged(PLAN, outcomes);
    let [first, second] = trials(&result) else { panic!("{result:?}") };
    assert_eq!((first.generators, second.generators), (3, 1));
    let Trial { sent, received, lost, clients, .. } = first.trial;
    assert_eq!((sent, received, lost, clients), (10, 4, 6, 48));
    assert!((first.trial.intended_rate - 3e3).abs() < 1e-9);
    assert_eq!(first.trial.lost_at[&horolog_record::LossLocation::Late], 3);
    assert_eq!(first.trial.rtt_ns, distribution(&[5, 7, 100, 100]));
    assert_eq!(second.trial.rtt_ns, distribution(&[9]));
    assert_eq!((result.roles[1].instances, result.roles[1].results), (3, 3));
    assert_eq!(result.parts[1].duration_s, Some(2.0));
    assert_eq!(codes(&result), []);
}

#[test]
fn rising_rates_show_what_limited_them() {
    let sent = |rate, sent: u64, lost| {
        let achieved_rate = rate * sent as f64 / 1e4;
        Trial { sent: 10_000, lost, achieved_rate, ..trial(rate, &[1]) }
    };
    let of = |trials: Vec<Trial>| {
        let outcomes = [1, 2, 3].map(|number| {
            let mut own = trials.clone();
            // The last one is a generator's alone.
            own.extend((number == 1).then(|| sent(1e6, 10_000, 10_000)));
            outcome(&format!("load.{number}"), Some(load(own)))
        });
        capacity(&merged(PLAN, outcomes.into()))
    };
    let [well, few, many] = [0, 10, 11];
    let found = of(vec![sent(1e3, 10_000, well), sent(2e3, 9_900, few), sent(4e3, 10_000, many)]);
    let found = found.unwrap();
    assert_eq!(found.answered_rate, Some(2e3 * 0.99 * 3.0));
    let limit = found.limit.unwrap();
    assert_eq!((limit.limited_by, limit.intended_rate), (LimitingSide::Servers, 12e3));
    assert!((limit.loss - 0.0011).abs() < 1e-12, "{limit:?}");

    let found = of(vec![sent(1e3, 9_800, 0), sent(2e3, 10_000, 0)]).unwrap();
    assert_eq!(found.answered_rate, None);
    assert_eq!(found.limit.unwrap().limited_by, LimitingSide::Generators);

    let found = of(vec![sent(1e3, 10_000, 0), sent(2e3, 10_000, 0)]).unwrap();
    assert_eq!((found.answered_rate, found.limit), (Some(6e3), None));

    // One rate is no search for a limit, and neither are rates that do not rise.
    assert_eq!(of(vec![sent(1e3, 10_000, 0)]), None);
    assert_eq!(of(vec![sent(2e3, 10_000, 0), sent(1e3, 10_000, 0)]), None);
}

#[test]
fn what_is_lacking_is_named() {
    let damaged = json!({ "schema": "horolog.load/2" });
    let mut timed_out = outcome("load.2", Some(damaged));
    timed_out.ending = JobEnd::TimedOut;
    let result = merged(PLAN, vec![outcome("server.1", None), timed_out]);
    let of = |code| result.findings.iter().find(|finding| finding.code == code).unwrap();
    // Loads are on the agents behind the server's.
    let lost: Vec<_> =
        result.findings.iter().filter(|one| one.code == FindingCode::AgentLost).collect();
    assert_eq!(lost.len(), 2);
    assert_eq!(lost[0].message, "Agent n2 did not report: results of load.1 are missing.");
    assert!(
        of(FindingCode::MergeIncomplete).message.contains("load.2: missing field"),
        "{result:?}"
    );
    let late = of(FindingCode::PartUnmeasured);
    assert!(late.message.contains("load.2 on n3 exceeded the plan's duration-max"), "{late:?}");
    assert_eq!(late.severity, Severity::Error);
    assert_eq!(result.parts[1].end, CampaignInstanceOutcome::Lost);
    assert_eq!(result.roles[1].results, 1);
}

#[test]
fn starts_are_by_the_true_time() {
    let clock = |offset_ns| Some(AgentClockOffset { offset_ns, error_ns: 7, source: "s".into() });
    let mut one = outcome("load.1", None);
    one.clock = clock(400);
    let mut two = outcome("load.2", None);
    (two.clock, two.started_ns) = (clock(0), Some(1_300));
    let mut service = outcome("server.1", None);
    service.intended_ns = None;
    let start = merged(PLAN, vec![service.clone(), one.clone(), two]).start.unwrap();
    assert_eq!((start.late_ns.min, start.late_ns.max), (100, 300));
    assert_eq!((start.spread_ns, start.clock_error_ns), (200, Some(7)));
    // One that does not know is enough.
    let mut far = outcome("load.2", None);
    far.started_ns = Some(9_000_000);
    let result = merged(PLAN, vec![service.clone(), one, far]);
    assert_eq!(result.start.as_ref().unwrap().clock_error_ns, None);
    assert!(codes(&result).contains(&FindingCode::StartSpreadLarge));
    assert_eq!(merged(PLAN, vec![service]).start, None);
}

#[test]
fn parts_with_another_start_time_are_named() {
    let named = |outcomes| {
        let findings = merged(PLAN, outcomes).findings;
        let mut named =
            findings.into_iter().filter(|one| one.code == FindingCode::StartTimesDiffer);
        named.next().map(|one| one.message)
    };
    let all = || vec![outcome("server.1", None), outcome("load.1", None), outcome("load.2", None)];
    assert_eq!(named(all()), None);
    let mut late = all();
    late[2].intended_ns = late[2].intended_ns.map(|at_ns| at_ns + 1);
    let message = "Start times other than that of the others: load.2.";
    assert_eq!(named(late).as_deref(), Some(message));
}

const RELAYS: &str = r#"
schema = "horolog.plan/2"
name = "p"
[[role]]
name = "root"
kind = "relay-run"
[role.options]
listen = "0.0.0.0:5000"
source = "192.0.2.0/24"
rate = "1k"
child = "{leaf.all}:6000"
[[role]]
name = "leaf"
kind = "relay-run"
count = 2
apart-from = ["root"]
[role.options]
listen = "{self}:6000"
source = "{root}"
rate = "1k"
[[role]]
name = "t"
kind = "host-timer"
"#;

#[test]
fn relays_are_held_against_their_children() {
    let relay = |packets: u64, children: &[(&str, u64)]| {
        let child = |(address, packets): &(&str, u64)| {
            json!({
                "address": address, "packets": packets, "bytes": 1, "dropped": { "no-route": 1 },
                "unreachable": false
            })
        };
        let children: Vec<_> = children.iter().map(child).collect();
        let group = json!({ "name": "campaign", "packets": packets, "bytes": 1,
            "refused": { "rate": 2 }, "socket_dropped": 1, "children": children });
        Some(json!({ "schema": "horolog.relay/2", "groups": [group] }))
    };
    let result = merged(
        RELAYS,
        vec![
            outcome("root.1", relay(10, &[("192.0.2.2:6000", 9), ("192.0.2.3:6000", 8)])),
            outcome("leaf.1", relay(9, &[])),
            outcome("leaf.2", relay(7, &[])),
        ],
    );
    let MergedResults::Relays { relays, packets, copies, dropped } = &result.roles[0].merged else {
        panic!("{result:?}");
    };
    assert_eq!((*packets, *copies, dropped["no-route"]), (10, 17, 2));
    let children: Vec<_> = relays[0]
        .children
        .iter()
        .map(|child| (child.job.as_deref().unwrap(), child.sent, child.received))
        .collect();
    assert_eq!(children, [("leaf.1", 9, Some(9)), ("leaf.2", 8, Some(7))]);
    assert_eq!((relays[0].refused["rate"], relays[0].socket_dropped), (2, Some(1)));
}

#[test]
fn distributions_of_any_record_are_found_by_their_paths() {
    let plan = "schema = \"horolog.plan/2\"\nname = \"p\"\n[[role]]\nname = \"t\"\n\
                kind = \"host-timer\"\ncount = 2\n";
    let record = |values: &[u64]| {
        Some(json!({ "schema": "horolog.host-timer/2", "cores": [
            { "core": 0, "latency_ns": distribution(values) }, { "core": 1, "latency_ns": null }
        ]}))
    };
    let result = merged(plan, vec![outcome("t.1", record(&[1, 2])), outcome("t.2", record(&[3]))]);
    let MergedResults::Distributions { distributions } = &result.roles[0].merged else {
        panic!("{result:?}");
    };
    let [one] = &distributions[..] else { panic!("{distributions:?}") };
    assert_eq!((&*one.path, one.results), ("cores[0].latency_ns", 2));
    assert_eq!(Some(&one.distribution), distribution(&[1, 2, 3]).as_ref());
}

/// The first node's record has all nodes; those that joined have none, and none is lacking.
#[test]
fn nodes_of_a_cluster_are_identified_by_their_agents() {
    let plan = "schema = \"horolog.plan/2\"\nname = \"p\"\n[[role]]\nname = \"lead\"\n\
                kind = \"cycle-lead\"\n[role.options]\nlisten = \"{self}:4460\"\nnodes = 2\n\
                period = \"10ms\"\ncompute = \"1ms\"\n[[role]]\nname = \"member\"\n\
                kind = \"cycle-join\"\napart-from = [\"lead\"]\n[role.options]\n\
                target = \"{lead}:4460\"\nname = \"node{instance}\"\n";
    let mut record: Value =
        serde_json::from_str(include_str!("../../../record/samples/cycle.json")).unwrap();
    // What it calls its second node is the first member of this plan.
    record["runs"][0]["nodes"][1]["name"] = json!("node1");
    record["runs"][0]["nodes"][0]["name"] = json!("first");
    for (node, values) in [(0, [1, 2]), (1, [3, 9])] {
        let task = &mut record["runs"][0]["nodes"][node]["tasks"][0];
        task["start_latency_ns"] = Value::Null;
        task["response_ns"] = json!(distribution(&values));
    }
    record["findings"] = json!([{
        "code": "straggler-node", "severity": "warning",
        "message": "The others wait for node1: it was the last.", "advice": "Less."
    }, {
        "code": "deadlines-missed", "severity": "warning",
        "message": "600 of 600 periods were not done by their deadline.", "advice": "See."
    }]);
    let result = merged(plan, vec![outcome("lead.1", Some(record)), outcome("member.1", None)]);
    let MergedResults::Cycles { tasks, nodes } = &result.roles[0].merged else {
        panic!("{result:?}");
    };
    let [task] = &tasks[..] else { panic!("{tasks:?}") };
    assert_eq!((task.nodes, task.periods, task.missed), (2, 600, 3));
    assert_eq!(task.response_ns, distribution(&[1, 2, 3, 9]));
    assert_eq!((task.skew_ns, task.skew_error_ns), (1_742, 7_132));
    let reported: Vec<_> = nodes
        .iter()
        .map(|node| {
            (&*node.node, node.job.as_deref(), node.agent.as_deref(), node.straggler_periods)
        })
        .collect();
    assert_eq!(
        reported,
        [
            ("first", Some("lead.1"), Some("n1"), Some(3)),
            ("node1", Some("member.1"), Some("n2"), Some(297))
        ]
    );
    let [awaited, missed] = &result.findings[..] else { panic!("{:?}", result.findings) };
    assert_eq!(
        awaited.message,
        "lead.1 on n1: The others wait for node1: it was the last. node1 is member.1 on n2."
    );
    assert_eq!((missed.code, missed.severity), (FindingCode::DeadlinesMissed, Severity::Warning));
    let message = "lead.1 on n1: 600 of 600 periods were not done by their deadline.";
    assert_eq!(missed.message, message);
    assert_eq!((result.roles[1].instances, result.roles[1].results), (1, 0));
}

#[test]
fn paths_make_a_matrix() {
    let plan = "schema = \"horolog.plan/2\"\nname = \"p\"\n[[role]]\nname = \"ends\"\n\
                kind = \"path-serve\"\ncount = 2\n[role.options]\nlisten = \"{self}:1\"\n\
                [[role]]\nname = \"probe\"\nkind = \"path-udp\"\nfor-each-pair = \"ends\"\n\
                [role.options]\ntarget = \"{to}:1\"\n";
    let record = |rtts: &[u64]| {
        let counts = PathRequestCounts {
            sent: 9,
            received: rtts.len() as u64,
            lost: 1,
            ..PathRequestCounts::default()
        };
        let row = json!({ "length": 64, "fragments": 1, "duration_s": 1.0, "achieved_rate": 9.0,
            "load": { "planned_ratio": 0.0, "ratio": 0.0, "sent": 0, "sent_in_all": 0 },
            "counts": counts, "rtt_ns": distribution(rtts) });
        Some(json!({ "schema": PATH_UDP_SCHEMA, "started": "", "command": [], "host": host(),
            "target": { "name": "x", "address": "192.0.2.9", "port": 1, "mtu": 1500, "same_clock": false },
            "protocol": "horolog", "mode": "ping-pong", "flows": 1, "busy_polling": false,
            "timestamps": "user", "dscp": 0, "warm_up": 0, "reply_timeout_ns": 1,
            "load_length": 1, "load_broadcast": false,
            "cost": { "clock_reading_ns": 1.0, "bookkeeping_ns": 1.0 },
            "rows": [row], "limits": [], "findings": [] }))
    };
    let result =
        merged(plan, vec![outcome("probe.1", record(&[5, 6])), outcome("probe.2", record(&[7]))]);
    let MergedResults::Paths { pairs, rows } = &result.roles[1].merged else {
        panic!("{result:?}");
    };
    let ends: Vec<_> = pairs.iter().map(|pair| (&*pair.from, &*pair.to)).collect();
    assert_eq!(ends, [("n1", "n2"), ("n2", "n1")], "{:?}", result.findings);
    assert_eq!((rows[0].paths, rows[0].counts.sent, rows[0].counts.received), (2, 18, 3));
    assert_eq!(rows[0].rtt_ns, distribution(&[5, 6, 7]));
    assert_eq!(result.parts[2].to.as_deref(), Some("n2"));
}

proptest! {
    /// However requests are dealt out to generators, together they are the same.
    #[test]
    fn dealing_out_changes_nothing(parts in vec(vec(1_u64..1_000_000, 1..20), 3)) {
        let outcomes = (1..).zip(&parts).map(|(number, rtts)| {
            outcome(&format!("load.{number}"), Some(load(vec![trial(1e3, rtts)])))
        });
        let result = merged(PLAN, outcomes.collect());
        let trial = &trials(&result)[0].trial;
        let all = parts.concat();
        prop_assert_eq!(trial.received, all.len() as u64);
        prop_assert_eq!(trial.sent, trial.received + trial.lost);
        let (merged, together) = (trial.rtt_ns.clone().unwrap(), distribution(&all).unwrap());
        prop_assert_eq!(
            (merged.count, merged.min, merged.p50, merged.p99_99, merged.max),
            (together.count, together.min, together.p50, together.p99_99, together.max)
        );
    }
}
