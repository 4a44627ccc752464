//! An agent's decisions, played without processes, disk or broker.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::role::RoleKind;

const AT_NS: i64 = 10_000_000_000;

fn now(s: i64) -> AgentClockReadings {
    AgentClockReadings { utc_ns: s * 1_000_000_000, monotonic_ns: (s as u64 + 7) * 1_000_000_000 }
}

fn character() -> AgentIdentityAndPolicy {
    AgentIdentityAndPolicy {
        name: "n1".parse().unwrap(),
        version: "0.1.0".to_owned(),
        policy: AgentPolicy::default(),
    }
}

fn machine() -> AgentStateMachine {
    AgentStateMachine::new(character(), PersistentState::default(), 5).0
}

/// A service and two other jobs.
fn order(campaign: &str) -> Order {
    let job = |id: &str, kind, service, options: serde_json::Value| {
        let options = serde_json::from_value(options).unwrap();
        Job { id: id.parse().unwrap(), kind, options, service }
    };
    let query = json!({ "target": ["127.0.0.1"] });
    Order {
        protocol: 1,
        version: "0.1.0".to_owned(),
        campaign: campaign.parse().unwrap(),
        agent: "n1".parse().unwrap(),
        plan_hash: "00".to_owned(),
        deadline_ns: 60_000_000_000,
        jobs: vec![
            job("ends.1", RoleKind::PathServe, true, json!({ "listen": ["127.0.0.1:4000"] })),
            job("ask.1", RoleKind::Query, false, query.clone()),
            job("ask.2", RoleKind::Query, false, query),
        ],
    }
}

fn assignment(campaign: &str, word: Option<OrderCommand>) -> Assignment {
    Assignment { order: order(campaign), word }
}

fn read_assignment(
    machine: &mut AgentStateMachine,
    word: Option<OrderCommand>,
    s: i64,
) -> Vec<AgentAction> {
    machine.on_assignment(Ok(Some(assignment("c-1", word))), Ok(()), now(s))
}

fn ended(job: &str) -> Box<JobOutcome> {
    let AgentReportContent::Outcome(outcome) = machine().outcome_report(
        &"c-1".parse().unwrap(),
        job.parse().unwrap(),
        JobEnd::Done { status: 0 },
        None,
    ) else {
        unreachable!()
    };
    outcome
}

/// Summaries of the reliable events.
fn report_summaries(acts: &[AgentAction]) -> Vec<String> {
    let summaries = acts.iter().filter_map(|act| match act {
        AgentAction::QueueReport(_, AgentReportContent::Event(OrderEvent::Refused { reason })) => {
            Some(format!("refused: {reason}"))
        }
        AgentAction::QueueReport(_, AgentReportContent::Event(event)) => Some(format!("{event:?}")),
        AgentAction::QueueReport(_, AgentReportContent::Outcome(outcome)) => {
            Some(format!("{} {:?}", outcome.job, outcome.ending))
        }
        _ => None,
    });
    summaries.collect()
}

const START: Option<OrderCommand> = Some(OrderCommand::Start { at_ns: AT_NS });

#[test]
fn an_order_is_executed_once_however_often_it_is_read() {
    let mut machine = machine();
    let acts = read_assignment(&mut machine, None, 1);
    assert!(
        acts.contains(&AgentAction::Begin(order("c-1"))) && acts[0] == AgentAction::Persist,
        "{acts:?}"
    );
    assert_eq!(report_summaries(&acts), ["Accepted { at_ns: 1000000000 }"]);
    assert_eq!(machine.busy().unwrap().as_str(), "c-1");
    assert_eq!(read_assignment(&mut machine, None, 2), []);
    assert_eq!(report_summaries(&machine.on_job_event(OrderEvent::Ready, now(3))), ["Ready"]);
    assert_eq!(
        read_assignment(&mut machine, START, 4),
        [AgentAction::Persist, AgentAction::Start(AT_NS)]
    );
    assert_eq!(read_assignment(&mut machine, START, 5), []);
    for job in ["ask.1", "ask.2"] {
        assert_eq!(
            report_summaries(&machine.on_outcome(ended(job))),
            [format!("{job} Done {{ status: 0 }}")]
        );
    }
    assert_eq!(machine.on_outcome(ended("ask.2")), [], "it has one outcome");
    assert_eq!(
        read_assignment(&mut machine, Some(OrderCommand::Finish), 12),
        [AgentAction::Finish]
    );
    assert_eq!(read_assignment(&mut machine, Some(OrderCommand::Finish), 13), []);
    let acts = machine.on_outcome(ended("ends.1"));
    assert!(
        acts.contains(&AgentAction::DropExecutor) && acts.last() == Some(&AgentAction::Persist),
        "{acts:?}"
    );
    assert_eq!(machine.busy(), None);
    for word in [None, START, Some(OrderCommand::Finish), Some(OrderCommand::Abandon)] {
        assert_eq!(read_assignment(&mut machine, word, 14), [], "it is over");
    }
}

#[test]
fn a_start_time_received_before_services_are_ready_is_retained() {
    let mut machine = machine();
    read_assignment(&mut machine, None, 1);
    assert_eq!(read_assignment(&mut machine, START, 2), []);
    let acts = machine.on_job_event(OrderEvent::Ready, now(3));
    assert!(acts.ends_with(&[AgentAction::Persist, AgentAction::Start(AT_NS)]), "{acts:?}");
}

#[test]
fn an_agent_that_missed_commands_catches_up() {
    let mut machine = machine();
    let acts = read_assignment(&mut machine, START, 1);
    assert_eq!(report_summaries(&acts), ["Accepted { at_ns: 1000000000 }"]);
    assert!(machine.on_job_event(OrderEvent::Ready, now(2)).contains(&AgentAction::Start(AT_NS)));
    let mut late = self::machine();
    assert_eq!(
        read_assignment(&mut late, Some(OrderCommand::Finish), 1),
        [],
        "there is nothing to finish"
    );
    assert_eq!(read_assignment(&mut late, Some(OrderCommand::Abandon), 1), []);
}

#[test]
fn nothing_starts_after_its_instant() {
    let mut machine = machine();
    read_assignment(&mut machine, None, 1);
    let _ = machine.on_job_event(OrderEvent::Ready, now(2));
    let acts = read_assignment(&mut machine, START, 12);
    assert!(!acts.iter().any(|act| matches!(act, AgentAction::Start(_))), "{acts:?}");
    let summaries = report_summaries(&acts);
    let reason = "the start time had passed by 2.000 s when this agent received it";
    assert!(
        summaries.iter().all(|told| told.contains(reason)) && summaries.len() == 2,
        "{summaries:?}"
    );
    assert_eq!(
        read_assignment(&mut machine, Some(OrderCommand::Finish), 13),
        [AgentAction::Finish],
        "the service is there"
    );
}

#[test]
fn a_start_time_years_ahead_starts_no_job() {
    for at_ns in [i64::MAX, now(2).utc_ns + LEAD_NS_MAX + 1] {
        let mut machine = machine();
        read_assignment(&mut machine, None, 1);
        let _ = machine.on_job_event(OrderEvent::Ready, now(2));
        let acts = read_assignment(&mut machine, Some(OrderCommand::Start { at_ns }), 2);
        assert!(!acts.iter().any(|act| matches!(act, AgentAction::Start(_))), "{acts:?}");
        let summaries = report_summaries(&acts);
        assert!(
            summaries.len() == 2 && summaries[0].contains("and the limit of agents is 3600 s"),
            "{summaries:?}"
        );
        // The service ends as well.
        assert!(machine.tick(now(100)).contains(&AgentAction::Abandon));
    }
    let mut machine = machine();
    read_assignment(&mut machine, None, 1);
    let _ = machine.on_job_event(OrderEvent::Ready, now(2));
    let acts = read_assignment(&mut machine, Some(OrderCommand::Start { at_ns: i64::MIN }), 2);
    assert!(report_summaries(&acts)[0].contains("the start time had passed"), "{acts:?}");
}

#[test]
fn an_order_that_may_not_run_is_refused_once_and_reported() {
    let mut machine = machine();
    let room = Err("the disk is full".to_owned());
    let acts = machine.on_assignment(Ok(Some(assignment("c-1", None))), room, now(1));
    assert_eq!(report_summaries(&acts), ["refused: the disk is full"]);
    assert_eq!(machine.on_assignment(Ok(Some(assignment("c-1", None))), Ok(()), now(2)), []);
    let mut public = order("c-2");
    public.jobs[1].options.insert("target".into(), vec!["8.8.8.8".into()]);
    let instruction = Assignment { order: public, word: None };
    let acts = machine.on_assignment(Ok(Some(instruction)), Ok(()), now(3));
    assert!(
        report_summaries(&acts)[0].starts_with("refused: job ask.1: target: 8.8.8.8 is outside"),
        "{acts:?}"
    );
    let mut other = order("c-3");
    other.version = "9.0".to_owned();
    let acts =
        machine.on_assignment(Ok(Some(Assignment { order: other, word: None })), Ok(()), now(4));
    assert!(report_summaries(&acts)[0].contains("install one version"), "{acts:?}");
    let foreign = AssignmentError::OtherVersion {
        campaign: "c-4".parse().unwrap(),
        reason: "another version".to_owned(),
    };
    assert_eq!(
        report_summaries(&machine.on_assignment(Err(foreign.clone()), Ok(()), now(5))),
        ["refused: another version"]
    );
    assert_eq!(machine.on_assignment(Err(foreign), Ok(()), now(6)), []);
    assert_eq!(machine.on_assignment(Err(AssignmentError::Unreadable), Ok(()), now(7)), []);
    assert_eq!(machine.busy(), None);
}

#[test]
fn two_campaigns_are_not_mixed() {
    let mut machine = machine();
    read_assignment(&mut machine, None, 1);
    let acts = machine.on_assignment(Ok(Some(assignment("c-2", None))), Ok(()), now(2));
    assert_eq!(report_summaries(&acts), ["refused: it is busy with c-1; wait for its end"]);
    assert_eq!(machine.busy().unwrap().as_str(), "c-1");
    let mut stranger = ended("ask.1");
    stranger.campaign = "c-2".parse().unwrap();
    assert_eq!(machine.on_outcome(stranger), []);
}

#[test]
fn an_order_that_is_taken_back_is_not_begun_and_what_has_begun_goes_on() {
    let mut waiting = machine();
    read_assignment(&mut waiting, None, 1);
    let _ = waiting.on_job_event(OrderEvent::Ready, now(2));
    assert_eq!(waiting.on_assignment(Ok(None), Ok(()), now(3)), [AgentAction::Abandon]);
    assert_eq!(waiting.on_assignment(Ok(None), Ok(()), now(3)), []);
    assert_eq!(read_assignment(&mut waiting, START, 4), [], "it ends");
    let mut running = machine();
    read_assignment(&mut running, None, 1);
    let _ = running.on_job_event(OrderEvent::Ready, now(2));
    read_assignment(&mut running, START, 3);
    assert_eq!(running.on_assignment(Ok(None), Ok(()), now(4)), []);
    assert_eq!(
        read_assignment(&mut running, Some(OrderCommand::Abandon), 5),
        [AgentAction::Abandon]
    );
}

#[test]
fn an_absent_controller_does_not_block_an_agent() {
    let mut machine = machine();
    read_assignment(&mut machine, None, 1);
    assert_eq!(machine.tick(now(300)), []);
    assert!(machine.tick(now(302)).contains(&AgentAction::Abandon));
    assert_eq!(machine.tick(now(303)), []);
    let mut running = self::machine();
    read_assignment(&mut running, None, 1);
    let _ = running.on_job_event(OrderEvent::Ready, now(2));
    read_assignment(&mut running, START, 3);
    assert_eq!(running.tick(now(100)), [], "60 s from second 10 on, and 30 s more");
    assert!(running.tick(now(101)).contains(&AgentAction::Abandon));
}

#[test]
fn services_that_are_not_there_in_time_end_it_all() {
    let mut machine = machine();
    read_assignment(&mut machine, START, 1);
    let reason = "it says nothing".to_owned();
    let acts = machine
        .on_job_event(OrderEvent::NotReady { job: "ends.1".parse().unwrap(), reason }, now(2));
    assert_eq!(acts.last(), Some(&AgentAction::Abandon));
    assert_eq!(read_assignment(&mut machine, START, 3), []);
}

#[test]
fn a_restarted_agent_reports_interrupted_jobs_and_does_not_restart_them() {
    let mut machine = machine();
    read_assignment(&mut machine, None, 1);
    let _ = machine.on_job_event(OrderEvent::Ready, now(2));
    read_assignment(&mut machine, START, 3);
    let _ = machine.on_outcome(ended("ask.1"));
    let memory = machine.persistent_state();
    let memory = serde_json::from_str(&serde_json::to_string(&memory).unwrap()).unwrap();
    // Its clock was set back meanwhile.
    let (mut again, acts) = AgentStateMachine::new(character(), memory, 1);
    assert!(again.incarnation() > machine.incarnation());
    let summaries = report_summaries(&acts);
    assert_eq!(summaries.len(), 2);
    assert!(
        summaries[0].starts_with("ask.2 Interrupted")
            && summaries[1].starts_with("ends.1 Interrupted")
    );
    assert_eq!(acts.last(), Some(&AgentAction::Persist));
    assert_eq!(read_assignment(&mut again, START, 4), []);
    assert_eq!(again.busy(), None);
}

/// A step of a play.
#[derive(Clone, Copy, Debug)]
enum Step {
    Read(Option<OrderCommand>),
    /// The instant has passed meanwhile.
    ReadLate,
    Gone,
    Ready,
    Ended(usize),
    /// The process is killed after so many acts of the step before.
    Killed(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        Just(Step::Read(None)),
        Just(Step::Read(START)),
        Just(Step::Read(Some(OrderCommand::Finish))),
        Just(Step::Read(Some(OrderCommand::Abandon))),
        Just(Step::ReadLate),
        Just(Step::Gone),
        Just(Step::Ready),
        (0_usize..3).prop_map(Step::Ended),
        (0_usize..4).prop_map(Step::Killed),
    ];
    proptest::collection::vec(step, 0..25)
}

/// Machine, disk and what has been told.
struct World {
    machine: AgentStateMachine,
    disk: PersistentState,
    begun: bool,
    begins: usize,
    reported_jobs: Vec<String>,
}

impl World {
    fn act(&mut self, acts: &[AgentAction], count: usize) {
        for act in &acts[..count.min(acts.len())] {
            match act {
                AgentAction::Persist => self.disk = self.machine.persistent_state(),
                AgentAction::Begin(_) => {
                    self.begun = true;
                    self.begins += 1;
                }
                AgentAction::DropExecutor => self.begun = false,
                AgentAction::QueueReport(_, AgentReportContent::Outcome(outcome)) => {
                    self.reported_jobs.push(outcome.job.to_string());
                }
                _ => {}
            }
        }
    }

    fn decide(&mut self, step: Step) -> Vec<AgentAction> {
        let jobs = ["ends.1", "ask.1", "ask.2"];
        match step {
            Step::Read(word) => read_assignment(&mut self.machine, word, 1),
            Step::ReadLate => read_assignment(&mut self.machine, START, 20),
            Step::Gone => self.machine.on_assignment(Ok(None), Ok(()), now(1)),
            Step::Ready if self.begun => self.machine.on_job_event(OrderEvent::Ready, now(1)),
            Step::Ended(job) if self.begun => self.machine.on_outcome(ended(jobs[job])),
            Step::Ready | Step::Ended(_) | Step::Killed(_) => Vec::new(),
        }
    }

    fn restart(&mut self) {
        self.begun = false;
        let (machine, acts) = AgentStateMachine::new(character(), self.disk.clone(), 5);
        self.machine = machine;
        self.act(&acts, usize::MAX);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// Whatever is seen in whatever order, and whenever the process is killed: a campaign is begun
    /// at most once, and each of its jobs has an outcome in the end.
    #[test]
    fn every_job_that_was_accepted_has_an_outcome(steps in steps()) {
        let (machine, _) = AgentStateMachine::new(character(), PersistentState::default(), 5);
        let mut world =
            World { machine, disk: PersistentState::default(), begun: false, begins: 0, reported_jobs: Vec::new() };
        let mut lives = 1;
        for pair in steps.windows(2) {
            let acts = world.decide(pair[0]);
            if let Step::Killed(count) = pair[1] {
                world.act(&acts, count);
                world.restart();
                lives += 1;
            } else {
                world.act(&acts, usize::MAX);
            }
        }
        world.restart();
        prop_assert!(world.begins <= 1);
        let mut jobs = world.reported_jobs.clone();
        jobs.sort();
        jobs.dedup();
        if world.begins > 0 {
            prop_assert_eq!(jobs, ["ask.1", "ask.2", "ends.1"]);
        }
        // Only a kill between telling and remembering has an outcome told again.
        prop_assert!(world.reported_jobs.len() <= 3 * lives);
    }
}
