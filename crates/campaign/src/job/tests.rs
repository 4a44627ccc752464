//! Orders carried out by a stand-in for horolog: a shell script that does as the test needs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::Receiver;

use super::*;
use crate::order::PROTOCOL;
use crate::role::RoleKind;

/// A binary that is called like horolog, in a directory of its own.
struct StandIn {
    directory: tempfile::TempDir,
}

impl StandIn {
    /// `script` finds the file for its result in `$result`, and begins at its instant.
    fn new(script: &str) -> Self {
        Self::at_once(&format!("{PASS}\n{script}"))
    }

    /// The same without waiting for an instant.
    fn at_once(script: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let find = "for word; do case $word in --json=*) result=${word#--json=};; esac; done\n";
        let program = directory.path().join("program");
        fs::write(&program, format!("#!/bin/sh\n{find}{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self { directory }
    }

    fn means(&self) -> JobExecutionEnvironment {
        JobExecutionEnvironment {
            program: self.directory.path().join("program"),
            directory: self.directory.path().to_owned(),
            host: None,
        }
    }
}

fn job(id: &str, kind: RoleKind) -> Job {
    let mut options = BTreeMap::new();
    for option in kind.options().iter().filter(|option| option.required) {
        let example = crate::role::tests::example(option.value_type).to_owned();
        options.insert(option.name.to_owned(), vec![example]);
    }
    Job { id: id.parse().unwrap(), kind, options, service: kind.is_service() }
}

fn order(jobs: Vec<Job>) -> Order {
    Order {
        protocol: PROTOCOL,
        version: "0".into(),
        campaign: "c".parse().unwrap(),
        agent: "n1".parse().unwrap(),
        plan_hash: String::new(),
        deadline_ns: 60_000_000_000,
        jobs,
    }
}

fn begin(order: &Order, stand_in: &StandIn) -> (JobGroup, Receiver<JobEvent>) {
    let (to, events) = mpsc::channel();
    let to = Mutex::new(to);
    let event_sink: JobEventSink = Arc::new(move |event| drop(to.lock().unwrap().send(event)));
    (JobGroup::begin(order, &stand_in.means(), None, event_sink).unwrap(), events)
}

fn outcomes(mut group: JobGroup, events: &Receiver<JobEvent>) -> BTreeMap<String, JobOutcome> {
    group.wait();
    drop(group);
    let outcome = |event| match event {
        JobEvent::Outcome(outcome) => Some((outcome.job.to_string(), *outcome)),
        JobEvent::OrderEvent(_) => None,
    };
    let all: Vec<_> = events.iter().filter_map(outcome).collect();
    let by_job: BTreeMap<_, _> = all.iter().cloned().collect();
    assert_eq!(by_job.len(), all.len(), "one outcome for each");
    by_job
}

/// What [`pass_gate`] does, with the tools of a shell. Its clock has microseconds.
const PASS: &str = r#"[ -z "$HOROLOG_GATE" ] || perl -MSocket -MTime::HiRes=time,sleep -e '
    ($maker, $at, $to) = split / /, $ENV{HOROLOG_GATE}, 3;
    $at = $at / 1e9 + 1e-6;
    while (($left = $at - time) > 0) { sleep($left); }
    socket(S, AF_UNIX, SOCK_DGRAM, 0);
    send(S, sprintf("PASSED=%d", time * 1e9), 0, pack_sockaddr_un($to))'"#;

const TIMER: &str = r#"echo '{"schema":"horolog.host-timer/2"}' > "$result""#;

#[test]
fn a_job_starts_at_its_instant_and_its_result_is_read() {
    let stand_in = StandIn::new(&format!("echo row 1; sleep 0.2; echo done >&2; {TIMER}; exit 1"));
    let jobs = vec![job("a.1", RoleKind::HostTimer), job("a.2", RoleKind::HostTimer)];
    let (mut group, events) = begin(&order(jobs), &stand_in);
    group.start_services(Duration::from_secs(10)).unwrap();
    let at_ns = process::utc_ns() + 50_000_000;
    group.start(at_ns);
    let outcomes = outcomes(group, &events);
    assert_eq!(outcomes.len(), 2);
    for outcome in outcomes.values() {
        assert_eq!(outcome.ending, JobEnd::Done { status: 1 });
        assert_eq!(outcome.intended_ns, Some(at_ns));
        assert!(outcome.started_ns.unwrap() >= at_ns && outcome.ended_ns > outcome.started_ns);
        assert_eq!(outcome.result.as_ref().unwrap()["schema"], "horolog.host-timer/2");
        assert_eq!(outcome.stderr_tail, "done");
    }
    // The directories of jobs went with them.
    assert_eq!(fs::read_dir(stand_in.directory.path()).unwrap().count(), 1);
}

#[test]
fn progress_is_reported() {
    let stand_in = StandIn::new(&format!("echo row 1; sleep 0.3; {TIMER}"));
    let (mut group, events) = begin(&order(vec![job("a.1", RoleKind::HostTimer)]), &stand_in);
    group.start(0);
    group.wait();
    drop(group);
    let order_events: Vec<_> =
        events.iter().filter(|event| matches!(event, JobEvent::OrderEvent(_))).collect();
    let text = "row 1".to_owned();
    let progress = OrderEvent::Progress { job: "a.1".parse().unwrap(), text };
    assert!(
        matches!(order_events[0], JobEvent::OrderEvent(OrderEvent::Started { .. })),
        "{order_events:?}"
    );
    assert_eq!(order_events[1], JobEvent::OrderEvent(progress));
}

#[test]
fn missing_and_invalid_results_are_reported() {
    for (script, reason) in [
        ("true", "it wrote no result"),
        ("echo nothing > \"$result\"", "its result is not JSON"),
        (
            "echo '{\"schema\":\"horolog.load/2\"}' > \"$result\"",
            "its result is not of 'horolog.host-timer/'",
        ),
    ] {
        let stand_in = StandIn::new(script);
        let (mut group, events) = begin(&order(vec![job("a.1", RoleKind::HostTimer)]), &stand_in);
        group.start(0);
        let outcomes = outcomes(group, &events);
        let JobEnd::Failed { status: 0, message } = &outcomes["a.1"].ending else {
            panic!("{outcomes:?}");
        };
        assert!(message.starts_with(reason), "{message}");
    }
}

#[test]
fn a_failed_job_reports_the_reason() {
    let stand_in = StandIn::new("echo 'horolog: no route' >&2; exit 3");
    let (mut group, events) = begin(&order(vec![job("a.1", RoleKind::HostTimer)]), &stand_in);
    group.start(0);
    let message = "no route".to_owned();
    assert_eq!(outcomes(group, &events)["a.1"].ending, JobEnd::Failed { status: 3, message });
    let gone = StandIn::new("");
    fs::remove_file(gone.means().program).unwrap();
    let (mut group, events) = begin(&order(vec![job("a.1", RoleKind::HostTimer)]), &gone);
    group.start(0);
    let ending = outcomes(group, &events)["a.1"].ending.clone();
    assert!(matches!(ending, JobEnd::Failed { status: 127, .. }), "{ending:?}");
}

#[test]
fn a_job_past_its_deadline_is_interrupted_and_its_result_is_read() {
    let stand_in = StandIn::new(&format!(
        "keep() {{ {TIMER}; }}; trap 'keep; exit 0' INT; while :; do sleep 0.05; done"
    ));
    let mut order = order(vec![job("a.1", RoleKind::HostTimer)]);
    order.deadline_ns = 2_000_000_000;
    let (mut group, events) = begin(&order, &stand_in);
    group.start(0);
    let outcomes = outcomes(group, &events);
    assert_eq!(outcomes["a.1"].ending, JobEnd::TimedOut);
    assert!(outcomes["a.1"].result.is_some());
}

/// What `sd_notify(3)` does, with the tools of a shell: socat would be one more thing to need.
const NOTIFY_READY: &str = "perl -MSocket -e 'socket(S,AF_UNIX,SOCK_DGRAM,0); \
    send(S,\"READY=1\",0,pack_sockaddr_un($ENV{NOTIFY_SOCKET}))'";

#[test]
fn services_are_waited_for_and_ended() {
    let script = format!(
        "case $1 in path) trap 'exit 0' INT; {NOTIFY_READY}; while :; do sleep 0.05; done;; \
         *) {TIMER};; esac"
    );
    let stand_in = StandIn::new(&script);
    let jobs = vec![job("s.1", RoleKind::PathServe), job("a.1", RoleKind::HostTimer)];
    let (mut group, events) = begin(&order(jobs), &stand_in);
    group.start_services(Duration::from_secs(10)).unwrap();
    group.start(0);
    while !events.iter().any(|event| matches!(event, JobEvent::Outcome(_))) {}
    assert!(!group.has_ended(), "the service runs on");
    group.finish();
    let outcomes = outcomes(group, &events);
    assert_eq!(outcomes["s.1"].ending, JobEnd::Done { status: 0 });
    assert_eq!(outcomes["s.1"].intended_ns, None);
}

#[test]
fn a_service_that_is_not_ready_calls_everything_off() {
    for (script, reason) in [
        ("echo 'horolog: port taken' >&2; exit 3", "port taken"),
        ("trap 'exit 0' INT; while :; do sleep 0.05; done", "no notification in time"),
    ] {
        let stand_in = StandIn::new(script);
        let jobs = vec![job("s.1", RoleKind::PathServe), job("a.1", RoleKind::HostTimer)];
        let (mut group, events) = begin(&order(jobs), &stand_in);
        let not_ready = group.start_services(Duration::from_millis(500)).unwrap_err();
        assert_eq!((not_ready.job.to_string(), &*not_ready.reason), ("s.1".into(), reason));
        let outcomes = outcomes(group, &events);
        assert!(matches!(outcomes["a.1"].ending, JobEnd::Refused { .. }), "{outcomes:?}");
        assert!(outcomes.contains_key("s.1"));
    }
}

#[test]
fn what_is_abandoned_ends_before_and_after_its_instant() {
    let stand_in = StandIn::new("trap 'exit 0' INT; while :; do sleep 0.05; done");
    for at_ns in [0, process::utc_ns() + 60_000_000_000] {
        let (mut group, events) = begin(&order(vec![job("a.1", RoleKind::HostTimer)]), &stand_in);
        group.start(at_ns);
        thread::sleep(Duration::from_millis(300));
        group.abandon();
        let outcomes = outcomes(group, &events);
        assert_eq!(outcomes["a.1"].ending, JobEnd::Abandoned);
        assert_eq!(outcomes["a.1"].started_ns.is_some(), at_ns == 0);
    }
    let (group, events) = begin(&order(vec![job("a.1", RoleKind::HostTimer)]), &stand_in);
    // One that was never started is told of as well.
    assert_eq!(outcomes(group, &events)["a.1"].ending, JobEnd::Abandoned);
}
