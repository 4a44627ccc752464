//! What is said is read as it was said, and what cannot be meant is refused.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde::de::DeserializeOwned;

use super::*;

fn agent() -> impl Strategy<Value = AgentName> {
    "[A-Za-z0-9][A-Za-z0-9_-]{0,20}".prop_map(|text| text.parse().unwrap())
}

fn campaign() -> impl Strategy<Value = CampaignId> {
    "[a-z0-9][a-z0-9-]{0,20}".prop_map(|text| text.parse().unwrap())
}

fn job_id() -> impl Strategy<Value = JobId> {
    "[a-z][a-z0-9-]{0,8}\\.[1-9][0-9]{0,3}".prop_map(|text| text.parse().unwrap())
}

fn kind() -> impl Strategy<Value = RoleKind> {
    proptest::sample::select(RoleKind::ALL.to_vec())
}

fn job() -> impl Strategy<Value = Job> {
    let options = btree_map("[a-z-]{1,8}", vec("\\PC{0,12}", 0..3), 0..4);
    (job_id(), kind(), options, any::<bool>()).prop_map(|(id, kind, options, service)| Job {
        id,
        kind,
        options,
        service,
    })
}

prop_compose! {
    fn order()(
        protocol: u32,
        version in "\\PC{0,10}",
        campaign in campaign(),
        agent in agent(),
        plan_hash in "[0-9a-f]{64}",
        deadline_ns: u64,
        jobs in vec(job(), 0..4),
    ) -> Order {
        Order { protocol, version, campaign, agent, plan_hash, deadline_ns, jobs }
    }
}

fn ending() -> impl Strategy<Value = JobEnd> {
    prop_oneof![
        any::<i32>().prop_map(|status| JobEnd::Done { status }),
        (any::<i32>(), "\\PC{0,20}")
            .prop_map(|(status, message)| JobEnd::Failed { status, message }),
        any::<i32>().prop_map(|signal| JobEnd::Signalled { signal }),
        Just(JobEnd::TimedOut),
        Just(JobEnd::Abandoned),
        "\\PC{0,20}".prop_map(|reason| JobEnd::Refused { reason }),
        "\\PC{0,20}".prop_map(|reason| JobEnd::Interrupted { reason }),
    ]
}

prop_compose! {
    fn clock()(offset_ns: i64, error_ns: u64, source in "\\PC{0,10}") -> AgentClockOffset {
        AgentClockOffset { offset_ns, error_ns, source }
    }
}

fn result() -> impl Strategy<Value = serde_json::Value> {
    prop_oneof![
        any::<i64>().prop_map(serde_json::Value::from),
        vec(any::<u32>(), 0..4).prop_map(|list| serde_json::json!({ "schema": "x/1", "n": list })),
    ]
}

prop_compose! {
    fn outcome()(
        campaign in campaign(),
        agent in agent(),
        job in job_id(),
        ending in ending(),
        intended_ns: Option<i64>,
        started_ns: Option<i64>,
        ended_ns: Option<i64>,
        clock in option::of(clock()),
        result in option::of(result()),
        stderr_tail in "\\PC{0,20}",
    ) -> JobOutcome {
        JobOutcome {
            campaign, agent, job, ending, intended_ns, started_ns, ended_ns, clock, result,
            stderr_tail,
        }
    }
}

prop_compose! {
    fn state()(
        protocol: u32,
        version in "\\PC{0,10}",
        name in agent(),
        incarnation: u64,
        labels in btree_map("\\PC{0,8}", "\\PC{0,8}", 0..3),
        addresses in vec(any::<IpAddr>(), 0..3),
        root: bool,
        cores: u32,
        kinds in vec(kind(), 0..3),
        clock in option::of(clock()),
        busy in option::of(campaign()),
        at_ns: Option<i64>,
    ) -> AgentState {
        let abilities = AgentCapabilities { root, cores, kinds };
        AgentState { protocol, version, name, incarnation, labels, addresses, abilities, clock, busy, at_ns }
    }
}

fn order_event() -> impl Strategy<Value = OrderEvent> {
    prop_oneof![
        any::<i64>().prop_map(|at_ns| OrderEvent::Accepted { at_ns }),
        Just(OrderEvent::Ready),
        "\\PC{0,20}".prop_map(|reason| OrderEvent::Refused { reason }),
        (job_id(), "\\PC{0,20}").prop_map(|(job, reason)| OrderEvent::NotReady { job, reason }),
        (job_id(), any::<i64>()).prop_map(|(job, at_ns)| OrderEvent::Started { job, at_ns }),
        (job_id(), "\\PC{0,20}").prop_map(|(job, text)| OrderEvent::Progress { job, text }),
        job_id().prop_map(|job| OrderEvent::Ended { job }),
    ]
}

fn word() -> impl Strategy<Value = OrderCommand> {
    prop_oneof![
        any::<i64>().prop_map(|at_ns| OrderCommand::Start { at_ns }),
        Just(OrderCommand::Finish),
        Just(OrderCommand::Abandon),
    ]
}

fn is_read_as_written<T: Serialize + DeserializeOwned + PartialEq>(value: &T) -> bool {
    let text = serde_json::to_string(value).unwrap();
    serde_json::from_str::<T>(&text).unwrap() == *value
}

proptest! {
    #[test]
    fn messages_round_trip(
        order in order(),
        outcome in outcome(),
        state in state(),
        news in order_event(),
        word in word(),
    ) {
        prop_assert!(is_read_as_written(&order));
        prop_assert!(is_read_as_written(&outcome));
        prop_assert!(is_read_as_written(&state));
        prop_assert!(is_read_as_written(&news));
        prop_assert!(is_read_as_written(&word));
    }

    #[test]
    fn orders_with_more_than_is_known_are_refused(order in order()) {
        let mut json = serde_json::to_value(&order).unwrap();
        json["command"] = "sh".into();
        prop_assert!(serde_json::from_value::<Order>(json).is_err());
    }
}

fn sound() -> Order {
    let text = r#"{
        "protocol": 1, "version": "0.1.0", "campaign": "c-1", "agent": "n1", "plan_hash": "",
        "deadline_ns": 60000000000,
        "jobs": [{"id": "load.1", "kind": "load-ntp", "options": {"rate": ["1k"]}, "service": false}]
    }"#;
    serde_json::from_str(text).unwrap()
}

fn fault(change: impl FnOnce(&mut Order)) -> String {
    let mut order = sound();
    change(&mut order);
    order.check(&"n1".parse().unwrap(), "0.1.0").unwrap_err().to_string()
}

#[test]
fn words_are_written_as_documented() {
    let json = |word| serde_json::to_string(&word).unwrap();
    assert_eq!(json(OrderCommand::Start { at_ns: 5 }), r#"{"word":"start","at-ns":5}"#);
    assert_eq!(json(OrderCommand::Abandon), r#"{"word":"abandon"}"#);
    let ended = OrderEvent::Ended { job: "load.1".parse().unwrap() };
    assert_eq!(serde_json::to_string(&ended).unwrap(), r#"{"news":"ended","job":"load.1"}"#);
}

#[test]
fn orders_that_are_not_for_this_agent_are_refused() {
    assert_eq!(sound().check(&"n1".parse().unwrap(), "0.1.0"), Ok(()));
    let other = fault(|order| order.protocol = 2);
    assert_eq!(other, "the order uses protocol 2, and this agent protocol 1; install one version");
    let other = fault(|order| order.version = "0.2.0".into());
    assert!(other.contains("horolog 0.2.0, and this agent is 0.1.0"), "{other}");
    assert_eq!(fault(|order| order.agent = "n2".parse().unwrap()), "the order is for agent n2");
}

#[test]
fn orders_of_impossible_size_are_refused() {
    assert!(fault(|order| order.jobs.clear()).contains("0 jobs"));
    assert!(fault(|order| order.jobs = vec![order.jobs[0].clone(); 2]).contains("load.1 twice"));
    assert!(fault(|order| order.deadline_ns = 0).contains("deadline"));
    assert!(fault(|order| order.deadline_ns = u64::MAX).contains("deadline"));
    let large = |values: Vec<String>| {
        fault(|order| _ = order.jobs[0].options.insert("rate".into(), values))
    };
    assert!(large(vec!["x".repeat(VALUE_BYTES_MAX + 1)]).contains("'rate' is too large"));
    assert!(large(vec![String::new(); VALUES_MAX + 1]).contains("'rate' is too large"));
    assert!(large(vec!["1\0".into()]).contains("'rate' is too large"));
}
