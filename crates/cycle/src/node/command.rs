//! Periodic command: a program that is started at each release, in a process group of its own, and
//! killed at its timeout.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use horolog_sys::clock::ClockMonotonic;
use horolog_sys::namespace::die_with_parent;
use horolog_sys::process::{ProcessHandle, kill_group};
use horolog_time::Clock;

use super::failure::TaskFailure;
use super::periods::{CurrentPeriod, PeriodWork, WorkOutcome};
use crate::entry::{PeriodEntry, PeriodOutcome};

/// Interval at which a waiting thread checks whether the run has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Command that runs once in each period.
pub(crate) struct PeriodicCommand<'a> {
    command: Command,
    timeout: Duration,
    stop: &'a AtomicU64,
    /// Reason for the latest failure; `None` if none has occurred.
    pub(crate) failure: Option<TaskFailure>,
}

/// Checks that the program of a command line exists and is executable; the error is the reason.
/// Called before the run, so that a wrong name is not found only in the first period.
pub(crate) fn check_program(words: &[String]) -> Result<(), String> {
    let name = words.first().map_or("", String::as_str);
    let files: Vec<PathBuf> = if name.contains('/') {
        vec![PathBuf::from(name)]
    } else {
        // Search path of the system if PATH is not set.
        let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        env::split_paths(&path).map(|directory| directory.join(name)).collect()
    };
    if files.iter().any(|file| is_program(file)) {
        return Ok(());
    }
    let why = if files.iter().any(|file| file.exists()) {
        "not an executable; make it executable (chmod +x)"
    } else if name.contains('/') {
        "no such file; choose an existing one"
    } else {
        "not found in PATH; specify its path, such as ./program"
    };
    Err(format!("cannot start '{name}': {why}"))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

impl<'a> PeriodicCommand<'a> {
    /// Creates a command from its words, of which the first is the program. Standard output is
    /// discarded; standard error is inherited. The command is killed when `stop` is no longer 0.
    pub(crate) fn new(words: &[String], timeout: Duration, stop: &'a AtomicU64) -> Self {
        let (program, arguments) =
            words.split_first().map_or(("", &[][..]), |(program, rest)| (program.as_str(), rest));
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        die_with_parent(&mut command);
        Self { command, timeout, stop, failure: None }
    }

    fn run_once(&mut self) -> io::Result<ExitStatus> {
        let child = self.command.spawn()?;
        wait_for_exit(child, self.timeout, self.stop)
    }
}

/// Waits for a program to exit, then kills the remaining processes of its group. If `timeout`
/// expires (error kind `TimedOut`) or `stop` is no longer 0 (`Interrupted`), kills the whole group.
/// After an error of the wait itself nothing is killed.
fn wait_for_exit(mut child: Child, timeout: Duration, stop: &AtomicU64) -> io::Result<ExitStatus> {
    let result = wait_for_end(&child, timeout, stop);
    // The group ID cannot be reused before the child is waited for. Killing an empty group fails,
    // which is harmless.
    let _ = kill_group(child.id());
    let status = child.wait()?;
    result.map(|()| status)
}

/// Waits for a program to end, for `timeout` at most or until `stop` is no longer 0.
fn wait_for_end(child: &Child, timeout: Duration, stop: &AtomicU64) -> io::Result<()> {
    let handle = ProcessHandle::open(child.id())?;
    let started = Instant::now();
    loop {
        let remaining = timeout.saturating_sub(started.elapsed());
        if handle.wait(remaining.min(POLL_INTERVAL))? {
            return Ok(());
        }
        if stop.load(Ordering::Relaxed) != 0 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if remaining.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

impl PeriodWork for PeriodicCommand<'_> {
    fn run(
        &mut self,
        period: &CurrentPeriod,
        entry: &mut PeriodEntry,
        _: &mut dyn FnMut(&PeriodEntry),
    ) -> WorkOutcome {
        let result = self.run_once();
        if let Ok(status) = &result
            && let Some(failure) = TaskFailure::from_status(*status)
        {
            entry.end = PeriodOutcome::Failed;
            self.failure = Some(failure);
        }
        entry.compute_ns = (ClockMonotonic.now() - period.started_at).as_ns().unsigned_abs();
        // A command that does not end, or cannot be started, would fail in the next period as well.
        match result {
            Ok(_) => WorkOutcome::Done,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => WorkOutcome::Stopped,
            Err(error) => {
                self.failure = Some(TaskFailure::from_error(&error, self.timeout));
                WorkOutcome::Abandoned
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use horolog_time::Timestamp;

    use super::*;
    use crate::entry::PeriodEntryKind;

    fn entry(words: &[&str], timeout: Duration, stop: u64) -> (WorkOutcome, PeriodEntry) {
        let (worked, entry, _) = run_command(words, timeout, stop);
        (worked, entry)
    }

    fn run_command(
        words: &[&str],
        timeout: Duration,
        stop: u64,
    ) -> (WorkOutcome, PeriodEntry, Option<TaskFailure>) {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let mut entry = PeriodEntry::new(PeriodEntryKind::Period, 0);
        let now = ClockMonotonic.now();
        let period = CurrentPeriod {
            number: 0,
            released_at: Timestamp::from_ns(0),
            started_at: now,
            released_ns: 0,
        };
        let stop = AtomicU64::new(stop);
        let mut repeated = PeriodicCommand::new(&words, timeout, &stop);
        let worked = repeated.run(&period, &mut entry, &mut |_| {});
        (worked, entry, repeated.failure)
    }

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn a_command_fails_by_its_status_and_the_next_period_may_do_better() {
        for (program, end) in [("true", PeriodOutcome::Success), ("false", PeriodOutcome::Failed)] {
            let (worked, entry) = entry(&[program], MINUTE, 0);
            assert_eq!((worked, entry.end), (WorkOutcome::Done, end), "{program}");
        }
    }

    #[test]
    fn a_command_that_never_ends_is_ended_and_so_is_the_task() {
        let (worked, entry) = entry(&["sleep", "600"], Duration::from_millis(30), 0);
        assert_eq!(worked, WorkOutcome::Abandoned);
        assert!(entry.compute_ns >= 30_000_000, "{entry:?}");
    }

    #[test]
    fn a_command_in_the_way_of_a_runs_end_is_ended() {
        assert_eq!(entry(&["sleep", "600"], MINUTE, 1).0, WorkOutcome::Stopped);
    }

    #[test]
    fn what_a_command_leaves_behind_is_ended() {
        let directory = tempfile::TempDir::new().unwrap();
        let pid = directory.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}", pid.display());
        assert_eq!(entry(&["sh", "-c", &script], MINUTE, 0).0, WorkOutcome::Done);
        let pid: u32 = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
        // It is another's child by now, and gone when that one has waited for it.
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let begun = Instant::now();
        while state().contains(" S ") && begun.elapsed() < MINUTE {
            std::thread::sleep(POLL_INTERVAL);
        }
        assert!(!state().contains(" S "), "{}", state());
    }

    #[test]
    fn the_reason_of_a_failed_command_is_reported() {
        let fault = |script: &str, timeout| run_command(&["sh", "-c", script], timeout, 0).2;
        assert_eq!(fault("exit 0", MINUTE), None);
        assert_eq!(fault("exit 3", MINUTE), Some(TaskFailure::Status(3)));
        assert_eq!(fault("kill -9 $$", MINUTE), Some(TaskFailure::Signal(9)));
        let soon = Duration::from_millis(30);
        assert_eq!(fault("sleep 600", soon), Some(TaskFailure::TimedOut(30)));
        let absent = run_command(&["/nowhere/at/all"], MINUTE, 0).2;
        assert_eq!(absent, Some(TaskFailure::NotStarted(2)));
        assert_eq!(run_command(&["sleep", "600"], MINUTE, 1).2, None);
    }

    #[test]
    fn what_cannot_be_started_is_known_before_it_is() {
        let why = |name: &str| check_program(&[name.to_owned()]).err().unwrap_or_default();
        assert_eq!((why("sh"), why("/bin/sh")), (String::new(), String::new()));
        assert!(why("/nowhere/at/all").contains("no such file"));
        assert!(why("no-such-program-anywhere").contains("not found in PATH"));
        assert!(why("/etc/passwd").contains("make it executable"));
        assert!(why("/etc").contains("not an executable"));
    }

    #[test]
    fn a_command_that_is_not_there_ends_the_task() {
        assert_eq!(entry(&["/nowhere/at/all"], MINUTE, 0).0, WorkOutcome::Abandoned);
    }
}
