//! Task files: what they say, and what is told of those that say nothing.

use super::*;

const WHOLE: &str = r#"
[[task]]
name = "control"
period = "10ms"
deadline = "8ms"
offset = "1ms"
policy = "rr"
priority = 70
core = 1
worst = "3ms"
critical = "50us"
[[task.step]]
compute = "2ms"
message = 1024
to = "next"
[[task.step]]
units = 1000
barrier = true

[[task]]
name = "alarms"
period = "5ms"
policy = "other"
[task.polling]
rate = 200
compute = "100us"
budget = 10

[[task]]
name = "log"
period = "1s"
command = ["./log", "--fast"]
"#;

#[test]
fn a_file_describes_every_part_of_a_task() {
    let set = TaskSet::parse(WHOLE).unwrap();
    let steps = vec![
        Superstep {
            compute: ComputeAmount::Ns(2_000_000),
            message: Some(SuperstepMessage { bytes: 1_024, to: MessageDestination::Next }),
            barrier: false,
        },
        Superstep { compute: ComputeAmount::Units(1_000), message: None, barrier: true },
    ];
    assert_eq!(
        set.tasks()[0],
        Task {
            name: "control".to_owned(),
            period_ns: 10_000_000,
            deadline_ns: 8_000_000,
            offset_ns: 1_000_000,
            schedule: SchedulingSpec { policy: Policy::Rr, priority: 70, core: Some(1) },
            work: TaskWork::Steps(steps),
            worst_ns: Some(3_000_000),
            critical_ns: 50_000,
        }
    );
    let alarms = &set.tasks()[1];
    let event = ComputeAmount::Ns(100_000);
    assert_eq!(
        alarms.work,
        TaskWork::Polling(PollingServerSpec { rate: 200.0, event, budget: 10 })
    );
    assert_eq!((alarms.deadline_ns, alarms.schedule.priority), (5_000_000, 0));
    let words = vec!["./log".to_owned(), "--fast".to_owned()];
    assert_eq!(set.tasks()[2].work, TaskWork::Command(words));
}

#[test]
fn errors_name_their_line() {
    let task = |lines: &str| format!("[[task]]\nname = \"a\"\nperiod = \"10ms\"\n{lines}");
    for (text, why) in [
        (task(""), "line 1: the task has no work"),
        (task("compute = \"2\"\ncommand = [\"x\"]"), "line 1: the task has several"),
        (task("compute = \"2 parsecs\""), "line 4: write a time such as"),
        (task("compute = \"1ms\"\npolicy = \"best\""), "line 5: write fifo, rr"),
        (task("compute = \"1ms\"\ndeadline = \"11ms\""), "line 1: a deadline is"),
        (task("compute = \"1ms\"\npriority = 0"), "line 1: a real-time priority is 1 to 99"),
        (task("compute = \"1ms\"\npolicy = \"deadline\"\ncore = 1"), "line 1: policy deadline"),
        (task("compute = \"1s\""), "line 1: it computes for longer than ten"),
        (task("to = \"all\"\nbarrier = true"), "line 4: 'to' needs a message"),
        (task("barrier = false"), "line 1: a step has no work"),
        (task("message = 0"), "line 1: a message has 1 byte"),
        (task("command = []"), "line 1: the program is missing"),
        (task("colour = 3"), "line 4: unknown field"),
        ("task = []".to_owned(), "there are 0 tasks"),
        (format!("{0}{0}", task("units = 1\n")), "task 'a': another task"),
        (task("units = 1").replace("\"a\"", "\"a b\""), "line 1: invalid name 'a b'"),
    ] {
        let error = TaskSet::parse(&text).unwrap_err().to_string();
        assert!(error.starts_with(why), "{text}\n{error}");
    }
}

/// The figures of all that may be served, and of all steps, have room until somebody takes them.
#[test]
fn more_events_than_there_is_room_for_are_refused() {
    let polling = |period: &str, rest: &str| {
        let text = format!("[[task]]\nname = \"a\"\nperiod = \"{period}\"\n[task.polling]\n{rest}");
        TaskSet::parse(&text)
    };
    let room = "use a budget of 7168 at most";
    for (period, rest, wanted) in [
        ("1s", "rate = 1e6\nunits = 1\nbudget = 7168", Ok(())),
        ("1s", "rate = 1e6\nunits = 1\nbudget = 7169", Err(room)),
        ("1s", "rate = 1e6\nunits = 1\nbudget = 100000", Err(room)),
        ("1s", "rate = 7000\nunits = 1\nbudget = 100000", Ok(())),
        ("1s", "rate = 1e6\ncompute = \"10us\"\nbudget = 100000", Ok(())),
        ("1s", "rate = 1e6\ncompute = \"1us\"\nbudget = 100000", Err(room)),
        ("1ms", "rate = 1e5\nunits = 1\nbudget = 358", Ok(())),
        ("1ms", "rate = 1e5\nunits = 1\nbudget = 359", Err("use a budget of 358 at most")),
        ("50us", "rate = 1e5\nunits = 1\nbudget = 18", Err("use a budget of 17 at most")),
    ] {
        match (polling(period, rest), wanted) {
            (Ok(_), Ok(())) => {}
            (Err(fault), Err(why)) => assert!(fault.to_string().contains(why), "{fault}"),
            (found, _) => panic!("{period}, {rest}: {found:?}"),
        }
    }
    let entries = (1 + STEPS_MAX as u64) * crate::ring::COLLECT_INTERVAL_NS.div_ceil(PERIOD_MIN_NS);
    assert!(entries <= crate::ring::NON_PERIOD_MAX as u64, "{entries}");
}
