//! A command as work: a program that is started at each release, in a group of its own, and ended
//! where it takes too long.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use horolog_sys::clock::MonotonicClock;
use horolog_sys::namespace::die_with_parent;
use horolog_sys::process::{ProcessHandle, end_group};
use horolog_time::Clock;

use super::periods::{Period, Work, Worked};
use crate::entry::{End, Entry};

/// How often it is looked whether the run is to end.
const LOOK: Duration = Duration::from_millis(20);

/// A command of each period.
pub(crate) struct Repeated<'a> {
    command: Command,
    timeout: Duration,
    stop: &'a AtomicU64,
}

impl<'a> Repeated<'a> {
    /// These words, of which the first is the program. Its output goes nowhere; what it says to
    /// standard error goes where this process's goes.
    /// It is ended when `stop` is no longer 0.
    pub(crate) fn new(words: &[String], timeout: Duration, stop: &'a AtomicU64) -> Self {
        let (program, arguments) =
            words.split_first().map_or(("", &[][..]), |(program, rest)| (program.as_str(), rest));
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        die_with_parent(&mut command);
        Self { command, timeout, stop }
    }

    fn once(&mut self) -> io::Result<bool> {
        let child = self.command.spawn()?;
        wait(child, self.timeout, self.stop)
    }
}

/// Waits for a program; says whether it ended well, and in time. One that does not end is ended;
/// what it left behind in its group is so in any case.
fn wait(mut child: Child, timeout: Duration, stop: &AtomicU64) -> io::Result<bool> {
    let handle = ProcessHandle::open(child.id())?;
    let begun = Instant::now();
    let ended = loop {
        let left = timeout.saturating_sub(begun.elapsed());
        if handle.wait(left.min(LOOK))? {
            break Ok(());
        }
        if stop.load(Ordering::Relaxed) != 0 {
            break Err(io::ErrorKind::Interrupted.into());
        }
        if left.is_zero() {
            break Err(io::ErrorKind::TimedOut.into());
        }
    };
    // As long as nobody has waited for it, the group's number is nobody else's. One of which
    // nothing is left cannot be ended.
    let _ = end_group(child.id());
    let status = child.wait()?;
    ended.map(|()| status.success())
}

impl Work for Repeated<'_> {
    fn run(&mut self, period: &Period, entry: &mut Entry, _: &mut dyn FnMut(&Entry)) -> Worked {
        let ended = self.once();
        if matches!(ended, Ok(false)) {
            entry.end = End::Failed;
        }
        entry.compute_ns = (MonotonicClock.now() - period.begun).as_ns().unsigned_abs();
        // One that does not end, or cannot be started, will not do better in the next period.
        match ended {
            Ok(_) => Worked::Done,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Worked::Stopped,
            Err(_) => Worked::GivenUp,
        }
    }
}

#[cfg(test)]
mod tests {
    use horolog_time::Timestamp;

    use super::*;
    use crate::entry::Part;

    fn entry(words: &[&str], timeout: Duration, stop: u64) -> (Worked, Entry) {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let mut entry = Entry::new(Part::Period, 0);
        let now = MonotonicClock.now();
        let period = Period { cycle: 0, due: Timestamp::from_ns(0), begun: now, released_ns: 0 };
        let stop = AtomicU64::new(stop);
        let worked = Repeated::new(&words, timeout, &stop).run(&period, &mut entry, &mut |_| {});
        (worked, entry)
    }

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn a_command_fails_by_its_status_and_the_next_period_may_do_better() {
        for (program, end) in [("true", End::Well), ("false", End::Failed)] {
            let (worked, entry) = entry(&[program], MINUTE, 0);
            assert_eq!((worked, entry.end), (Worked::Done, end), "{program}");
        }
    }

    #[test]
    fn a_command_that_never_ends_is_ended_and_so_is_the_task() {
        let (worked, entry) = entry(&["sleep", "600"], Duration::from_millis(30), 0);
        assert_eq!(worked, Worked::GivenUp);
        assert!(entry.compute_ns >= 30_000_000, "{entry:?}");
    }

    #[test]
    fn a_command_in_the_way_of_a_runs_end_is_ended() {
        assert_eq!(entry(&["sleep", "600"], MINUTE, 1).0, Worked::Stopped);
    }

    #[test]
    fn what_a_command_leaves_behind_is_ended() {
        let directory = tempfile::TempDir::new().unwrap();
        let pid = directory.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}", pid.display());
        assert_eq!(entry(&["sh", "-c", &script], MINUTE, 0).0, Worked::Done);
        let pid: u32 = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
        // It is another's child by now, and gone when that one has waited for it.
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let begun = Instant::now();
        while state().contains(" S ") && begun.elapsed() < MINUTE {
            std::thread::sleep(LOOK);
        }
        assert!(!state().contains(" S "), "{}", state());
    }

    #[test]
    fn a_command_that_is_not_there_ends_the_task() {
        assert_eq!(entry(&["/nowhere/at/all"], MINUTE, 0).0, Worked::GivenUp);
    }
}
