//! Shell command that succeeds. Its input is empty and its output is discarded; one that takes too
//! long is terminated with everything that it started in its own group.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use horolog_sys::namespace::die_with_parent;
use horolog_sys::process::{self, ProcessHandle};
use horolog_sys::signal;
use horolog_sys::undo::Undo;

use super::CheckResult;

/// Checks that the command ends with status 0 in time.
pub(super) fn succeeds(line: &str, timeout: Duration) -> CheckResult {
    match status(line, timeout) {
        Ok(Some(status)) => check_result(status),
        Ok(None) => CheckResult::no("it did not end in time and was terminated"),
        Err(error) => CheckResult::no(format!("/bin/sh: {error}")),
    }
}

/// Returns the exit status, or `None` if the command had to be terminated.
fn status(line: &str, timeout: Duration) -> io::Result<Option<ExitStatus>> {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(line).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let group = Arc::new(AtomicU32::new(0));
    let ended = Arc::clone(&group);
    let start = || {
        let child = die_with_parent(signal::unblock_in_child(&mut command)).spawn()?;
        group.store(child.id(), Ordering::Relaxed);
        Ok::<_, io::Error>(child)
    };
    // Terminating this process terminates the command as well. Its group may have ended by itself.
    let end = move || drop(process::end_group(ended.load(Ordering::Relaxed)));
    let (mut child, group) = Undo::after(start, end)?;
    let in_time = ProcessHandle::open(child.id()).and_then(|handle| handle.wait(timeout));
    // Before the process is reaped: until then its PID is not reused.
    drop(group);
    let status = child.wait()?;
    Ok(in_time?.then_some(status))
}

fn check_result(status: ExitStatus) -> CheckResult {
    match (status.code(), status.signal()) {
        (Some(0), _) => CheckResult::yes("it succeeded"),
        (Some(code), _) => CheckResult::no(format!("it exited with status {code}")),
        (None, Some(signal)) => CheckResult::no(format!("it was terminated by signal {signal}")),
        (None, None) => CheckResult::no("it ended"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    #[test]
    fn the_status_decides() {
        assert!(succeeds("exit 0", TIMEOUT).holds);
        assert_eq!(succeeds("exit 7", TIMEOUT).detail, "it exited with status 7");
        assert_eq!(succeeds("kill -9 $$", TIMEOUT).detail, "it was terminated by signal 9");
    }

    #[test]
    fn one_that_hangs_is_ended_with_its_own_children() {
        let began = Instant::now();
        let result = succeeds("sleep 60 & sleep 60", Duration::from_millis(20));
        assert!(!result.holds && result.detail.contains("in time"), "{result:?}");
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
