//! What a controller makes of reports that come twice, late, or from strangers.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::order::{Job, JobEnd, PROTOCOL};
use crate::role::RoleKind;

fn order(agent: &str, jobs: &[(&str, bool)]) -> Order {
    let job = |(id, service): &(&str, bool)| Job {
        id: id.parse().unwrap(),
        kind: RoleKind::Query,
        options: BTreeMap::new(),
        service: *service,
    };
    Order {
        protocol: PROTOCOL,
        version: "0.1.0".to_owned(),
        campaign: "c-1".parse().unwrap(),
        agent: agent.parse().unwrap(),
        plan_hash: "00".to_owned(),
        deadline_ns: 1,
        jobs: jobs.iter().map(job).collect(),
    }
}

fn ledger() -> Ledger {
    let orders = [order("n1", &[("server.1", true)]), order("n2", &[("load.1", false)])];
    Ledger::new("c-1".parse().unwrap(), &orders)
}

fn report(agent: &str, content: AgentReportContent) -> AgentReport {
    AgentReport {
        protocol: PROTOCOL,
        campaign: "c-1".parse().unwrap(),
        agent: agent.parse().unwrap(),
        incarnation: 1,
        number: 1,
        content,
    }
}

fn event_report(agent: &str, event: OrderEvent) -> AgentReport {
    report(agent, AgentReportContent::Event(event))
}

fn outcome(agent: &str, job: &str, status: i32) -> AgentReport {
    report(
        agent,
        AgentReportContent::Outcome(Box::new(JobOutcome {
            campaign: "c-1".parse().unwrap(),
            agent: agent.parse().unwrap(),
            job: job.parse().unwrap(),
            ending: JobEnd::Done { status },
            intended_ns: None,
            started_ns: None,
            ended_ns: None,
            clock: None,
            result: None,
            stderr_tail: String::new(),
        })),
    )
}

fn names(names: &[&AgentName]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn a_campaign_is_followed_from_its_reports() {
    let mut ledger = ledger();
    assert_eq!(names(&ledger.unanswered()), ["n1", "n2"]);
    for agent in ["n1", "n2"] {
        assert!(matches!(
            ledger.ingest(agent, event_report(agent, OrderEvent::Accepted { at_ns: 0 })),
            LedgerChange::Event(..)
        ));
        assert_eq!(
            ledger.ingest(agent, event_report(agent, OrderEvent::Accepted { at_ns: 0 })),
            LedgerChange::Ignored
        );
    }
    assert!(ledger.unanswered().is_empty() && ledger.refusals().is_empty());
    ledger.ingest("n1", event_report("n1", OrderEvent::Ready));
    assert_eq!(names(&ledger.unready()), ["n2"]);
    ledger.ingest("n2", event_report("n2", OrderEvent::Ready));
    assert!(ledger.unready().is_empty() && !ledger.has_started());
    let job: JobId = "load.1".parse().unwrap();
    ledger.ingest("n2", event_report("n2", OrderEvent::Started { job: job.clone(), at_ns: 5 }));
    assert!(ledger.has_started());
    assert_eq!(names(&ledger.measuring()), ["n2"]);
    assert_eq!(ledger.ingest("n2", outcome("n2", "load.1", 0)), LedgerChange::Outcome(job.clone()));
    assert!(ledger.measuring().is_empty());
    assert_eq!(names(&ledger.serving()), ["n1"]);
    // The first one counts.
    assert_eq!(ledger.ingest("n2", outcome("n2", "load.1", 1)), LedgerChange::Ignored);
    assert_eq!((ledger.duplicates, ledger.outcomes().len()), (1, 1));
    assert_eq!(ledger.outcomes()[&job].ending, JobEnd::Done { status: 0 });
    ledger.ingest("n1", outcome("n1", "server.1", 0));
    assert!(ledger.serving().is_empty());
}

#[test]
fn refusals_have_names_and_reasons() {
    let refusal = |report: AgentReport| {
        let mut ledger = ledger();
        ledger.ingest(&report.agent.to_string(), report);
        let refusals = ledger.refusals();
        assert_eq!(refusals.len(), 1);
        format!("{}: {}", refusals[0].0, refusals[0].1)
    };
    let refused = OrderEvent::Refused { reason: "the policy".to_owned() };
    assert_eq!(refusal(event_report("n2", refused)), "n2: the policy");
    let job = "server.1".parse().unwrap();
    let unready = OrderEvent::NotReady { job, reason: "it says nothing".to_owned() };
    assert_eq!(refusal(event_report("n1", unready)), "n1: server.1: it says nothing");
    let over = "n2: load.1 ended before the start time was set";
    assert_eq!(refusal(outcome("n2", "load.1", 2)), over);
}

#[test]
fn strangers_are_counted_and_nothing_else() {
    let mut ledger = ledger();
    let before = ledger.clone();
    let mut other = event_report("n1", OrderEvent::Accepted { at_ns: 0 });
    other.campaign = "c-2".parse().unwrap();
    let mut borrowed = outcome("n2", "load.1", 0);
    if let AgentReportContent::Outcome(outcome) = &mut borrowed.content {
        outcome.agent = "n1".parse().unwrap();
    }
    let strange = [
        ("n1", other),
        ("n3", event_report("n3", OrderEvent::Accepted { at_ns: 0 })),
        ("n1", event_report("n2", OrderEvent::Accepted { at_ns: 0 })),
        ("n1", outcome("n1", "load.1", 0)),
        ("n2", outcome("n2", "load.2", 0)),
        ("n2", borrowed),
    ];
    for (agent, report) in strange {
        assert_eq!(ledger.ingest(agent, report), LedgerChange::Ignored);
    }
    assert_eq!(ledger.unexpected, 6);
    assert_eq!(Ledger { unexpected: 0, ..ledger }, before);
}

proptest! {
    /// Reports of each job may come any number of times, and news in any order: what is known in
    /// the end is the same.
    #[test]
    fn order_and_repetition_do_not_matter(
        order in proptest::collection::vec(0_usize..6, 0..40), last in Just([0, 1, 2, 3, 4, 5]).prop_shuffle(),
    ) {
        let all = [
            event_report("n1", OrderEvent::Accepted { at_ns: 0 }),
            event_report("n2", OrderEvent::Accepted { at_ns: 0 }),
            event_report("n1", OrderEvent::Ready),
            event_report("n2", OrderEvent::Ready),
            outcome("n1", "server.1", 0),
            outcome("n2", "load.1", 0),
        ];
        let mut straight = ledger();
        for report in &all {
            straight.ingest(&report.agent.to_string(), report.clone());
        }
        let mut mixed = ledger();
        for index in order.into_iter().chain(last) {
            let report = all[index].clone();
            mixed.ingest(&report.agent.to_string(), report);
        }
        prop_assert_eq!(Ledger { duplicates: 0, ..mixed }, straight);
    }
}
