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
use horolog_sys::undo::UndoGuard;

use super::CheckResult;

/// Checks that the command ends with status 0 in time.
pub(super) fn check_command(line: &str, timeout: Duration) -> CheckResult {
    match exit_status(line, timeout) {
        Ok(Some(status)) => check_result(status),
        Ok(None) => CheckResult::unsatisfied("it did not end in time and was terminated"),
        Err(error) => CheckResult::unsatisfied(format!("/bin/sh: {error}")),
    }
}

/// Returns the exit status, or `None` if the command had to be terminated.
fn exit_status(line: &str, timeout: Duration) -> io::Result<Option<ExitStatus>> {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(line).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let group_id = Arc::new(AtomicU32::new(0));
    let ended_group_id = Arc::clone(&group_id);
    let start = || {
        let child = die_with_parent(signal::unblock_in_child(&mut command)).spawn()?;
        group_id.store(child.id(), Ordering::Relaxed);
        Ok::<_, io::Error>(child)
    };
    // Terminating this process terminates the command as well. Its group may have ended by itself.
    let end_group = move || drop(process::kill_group(ended_group_id.load(Ordering::Relaxed)));
    let (mut child, group_guard) = UndoGuard::after_change(start, end_group)?;
    let ended_in_time = ProcessHandle::open(child.id()).and_then(|handle| handle.wait(timeout));
    // Before the process is reaped: until then its PID is not reused.
    drop(group_guard);
    let status = child.wait()?;
    Ok(ended_in_time?.then_some(status))
}

fn check_result(status: ExitStatus) -> CheckResult {
    match (status.code(), status.signal()) {
        (Some(0), _) => CheckResult::satisfied("it succeeded"),
        (Some(code), _) => CheckResult::unsatisfied(format!("it exited with status {code}")),
        (None, Some(signal)) => {
            CheckResult::unsatisfied(format!("it was terminated by signal {signal}"))
        }
        (None, None) => CheckResult::unsatisfied("it ended"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    #[test]
    fn the_status_decides() {
        assert!(check_command("exit 0", TIMEOUT).holds);
        assert_eq!(check_command("exit 7", TIMEOUT).detail, "it exited with status 7");
        assert_eq!(check_command("kill -9 $$", TIMEOUT).detail, "it was terminated by signal 9");
    }

    #[test]
    fn one_that_hangs_is_ended_with_its_own_children() {
        let began = Instant::now();
        let result = check_command("sleep 60 & sleep 60", Duration::from_millis(20));
        assert!(!result.holds && result.detail.contains("in time"), "{result:?}");
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
