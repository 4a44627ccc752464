//! Programs that are started at once and at instants, called off, and what they are given.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::*;
use crate::process::signal_group;
use crate::signal::{BlockedSignals, Signal};

fn recipe(words: &[&str], own_group: bool) -> SpawnCommand {
    let words: Vec<_> = words.iter().map(OsString::from).collect();
    SpawnCommand::new(&words[0], &words[1..], own_group).unwrap()
}

fn usual() -> DefaultScheduling {
    DefaultScheduling::current().unwrap()
}

fn at_once(words: &[&str], own_group: bool) -> io::Result<SpawnedProgram> {
    let attempt =
        spawn(&recipe(words, own_group), None, usual(), &CancelHandle::default()).unwrap();
    assert_eq!(attempt.woken_ns, None);
    attempt.started.map(|started| started.expect("nobody called it off"))
}

fn run(words: &[&str]) -> ExitStatus {
    at_once(words, false).unwrap().wait().unwrap()
}

fn in_ms(ms: i64) -> StartTime {
    let clock = SleepClock::Realtime;
    StartTime { clock, ns: clock.now_ns() + ms * 1_000_000, start_priority: None }
}

#[test]
fn a_program_is_started_with_its_arguments_and_waited_for() {
    assert_eq!(run(&["sh", "-c", "exit $#", "sh", "a", "b c"]).code(), Some(2));
    assert_eq!(run(&["/bin/sh", "-c", "kill -9 $$"]).signal(), Some(9));
    let missing = at_once(&["/nowhere/at/all"], false).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    assert_eq!(at_once(&["no such program"], false).unwrap_err().kind(), io::ErrorKind::NotFound);
    let denied = at_once(&["/dev/null"], false).unwrap_err();
    assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
    let zero = SpawnCommand::new(OsStr::new("a\0b"), [], false).unwrap_err();
    assert_eq!(zero.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn signals_that_a_thread_keeps_back_reach_what_it_starts() {
    thread::spawn(|| {
        let _blocked = BlockedSignals::block(&[Signal::Terminate]).unwrap();
        let sleep = at_once(&["sleep", "60"], true).unwrap();
        signal_group(sleep.pid(), Signal::Terminate).unwrap();
        assert_eq!(sleep.wait().unwrap().signal(), Some(libc::SIGTERM));
    })
    .join()
    .unwrap();
}

#[test]
fn a_program_starts_at_its_instant() {
    for clock in [SleepClock::Realtime, SleepClock::Tai] {
        let at = StartTime { clock, ns: clock.now_ns() + 30_000_000, start_priority: None };
        let attempt =
            spawn(&recipe(&["true"], false), Some(&at), usual(), &CancelHandle::default()).unwrap();
        assert!(attempt.woken_ns.is_some_and(|woken_ns| woken_ns >= at.ns), "{attempt:?}");
        assert!(attempt.started.unwrap().unwrap().wait().unwrap().success());
        assert!(clock.now_ns() >= at.ns);
    }
}

#[test]
fn what_is_past_starts_at_once() {
    let past = StartTime { clock: SleepClock::Realtime, ns: -1, start_priority: None };
    let attempt =
        spawn(&recipe(&["true"], false), Some(&past), usual(), &CancelHandle::default()).unwrap();
    assert!(attempt.started.unwrap().unwrap().wait().unwrap().success());
    let missing = recipe(&["/nowhere/at/all"], false);
    let attempt = spawn(&missing, Some(&past), usual(), &CancelHandle::default()).unwrap();
    assert!(attempt.woken_ns.is_some() && attempt.started.is_err(), "{attempt:?}");
}

/// Before it waits, and while it does.
#[test]
fn a_start_is_called_off() {
    for after in [Duration::ZERO, Duration::from_millis(30)] {
        let call_off = Arc::new(CancelHandle::default());
        let waits = Arc::clone(&call_off);
        let starter = thread::spawn(move || {
            spawn(&recipe(&["true"], false), Some(&in_ms(60_000)), usual(), &waits).unwrap()
        });
        thread::sleep(after);
        call_off.cancel();
        let attempt = starter.join().unwrap();
        assert!(attempt.woken_ns.is_none() && attempt.started.unwrap().is_none());
    }
}

/// Whether a rush is allowed here or not, the program has what this thread has.
#[test]
fn a_program_has_the_scheduling_that_its_starter_has() {
    const FACTS: &str =
        "sleep 0.05; cut -d' ' -f19,40,41 /proc/$$/stat; cat /proc/$$/timerslack_ns";
    let facts = |start_priority: Option<StartPriority>| {
        let out = tempfile_path();
        let line = format!("{{ {FACTS}; }} > {out}");
        let at = StartTime { start_priority, ..in_ms(20) };
        let recipe = recipe(&["sh", "-c", &line], false);
        let attempt = spawn(&recipe, Some(&at), usual(), &CancelHandle::default()).unwrap();
        let mut started = attempt.started.unwrap().unwrap();
        thread::sleep(Duration::from_millis(2));
        started.restore_scheduling().unwrap();
        assert!(started.wait().unwrap().success());
        assert!(!SchedulingParameters::current().unwrap().is_real_time());
        let text = std::fs::read_to_string(&out).unwrap();
        std::fs::remove_file(&out).unwrap();
        text
    };
    thread::spawn(move || {
        crate::affinity::increase_nice(10).unwrap();
        let plain = facts(None);
        assert!(plain.starts_with("10 0 0\n"), "{plain}");
        for keep in [false, true] {
            assert_eq!(facts(Some(StartPriority { priority: 2, keeps_priority: keep })), plain);
        }
    })
    .join()
    .unwrap();
}

fn tempfile_path() -> String {
    let name = format!("horolog-start-{}", std::process::id());
    std::env::temp_dir().join(name).to_string_lossy().into_owned()
}

#[test]
fn a_program_has_its_configured_environment() {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    for at in [None, Some(in_ms(20))] {
        let (mut output, output_end) = UnixStream::pair().unwrap();
        let (mut errors, errors_end) = UnixStream::pair().unwrap();
        let variables = [("A".into(), "b c".into())];
        let around =
            SpawnEnvironmentAndStreams::new(output_end.into(), errors_end.into(), variables)
                .unwrap();
        let line = "echo \"$A-$HOME\"; cat; echo no >&2";
        let recipe = recipe(&["/bin/sh", "-c", line], false).with_environment(around);
        let attempt = spawn(&recipe, at.as_ref(), usual(), &CancelHandle::default()).unwrap();
        // The writing ends here go with it, so that the reading ones see an end.
        drop(recipe);
        let (mut output_text, mut complained) = (String::new(), String::new());
        output.read_to_string(&mut output_text).unwrap();
        errors.read_to_string(&mut complained).unwrap();
        assert_eq!((&*output_text, &*complained), ("b c-\n", "no\n"));
        assert!(attempt.started.unwrap().unwrap().wait().unwrap().success());
    }
}

#[test]
fn such_a_program_ends_with_the_thread_that_started_it() {
    use std::os::unix::net::UnixStream;
    let (_output, end) = UnixStream::pair().unwrap();
    let pid = thread::spawn(move || {
        let environment = std::env::vars_os();
        let around = SpawnEnvironmentAndStreams::new(
            end.try_clone().unwrap().into(),
            end.into(),
            environment,
        );
        let recipe = recipe(&["sleep", "60"], false).with_environment(around.unwrap());
        let attempt = spawn(&recipe, Some(&in_ms(5)), usual(), &CancelHandle::default()).unwrap();
        attempt.started.unwrap().unwrap().pid()
    })
    .join()
    .unwrap();
    let ended =
        SpawnedProgram { pid: pid.cast_signed(), thread_default: None, program_default: None };
    assert_eq!(ended.wait().unwrap().signal(), Some(libc::SIGKILL));
}
