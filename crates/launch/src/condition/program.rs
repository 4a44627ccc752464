//! A command of the shell that succeeds. It has nothing to read, and what it says is not kept; one
//! that takes too long is ended with all that it started in its own group.

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

use super::Sight;

/// Whether it ends with status 0 in time.
pub(super) fn succeeds(line: &str, patience: Duration) -> Sight {
    match status(line, patience) {
        Ok(Some(status)) => told(status),
        Ok(None) => Sight::no("it did not end in time, and was ended"),
        Err(error) => Sight::no(format!("/bin/sh: {error}")),
    }
}

/// Its status, or `None` where it had to be ended.
fn status(line: &str, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(line).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let group = Arc::new(AtomicU32::new(0));
    let ended = Arc::clone(&group);
    let start = || {
        let child = die_with_parent(signal::let_through(&mut command)).spawn()?;
        group.store(child.id(), Ordering::Relaxed);
        Ok::<_, io::Error>(child)
    };
    // Whoever ends this process ends the command as well. Its group may have ended by itself.
    let end = move || drop(process::end_group(ended.load(Ordering::Relaxed)));
    let (mut child, group) = Undo::after(start, end)?;
    let in_time = ProcessHandle::open(child.id()).and_then(|handle| handle.wait(patience));
    // Before it is waited for: its number is its own until then.
    drop(group);
    let status = child.wait()?;
    Ok(in_time?.then_some(status))
}

fn told(status: ExitStatus) -> Sight {
    match (status.code(), status.signal()) {
        (Some(0), _) => Sight::yes("it succeeded"),
        (Some(code), _) => Sight::no(format!("it ended with status {code}")),
        (None, Some(signal)) => Sight::no(format!("signal {signal} ended it")),
        (None, None) => Sight::no("it ended"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn the_status_decides() {
        assert!(succeeds("exit 0", PATIENCE).holds);
        assert_eq!(succeeds("exit 7", PATIENCE).seen, "it ended with status 7");
        assert_eq!(succeeds("kill -9 $$", PATIENCE).seen, "signal 9 ended it");
    }

    #[test]
    fn one_that_hangs_is_ended_with_its_own_children() {
        let began = Instant::now();
        let sight = succeeds("sleep 60 & sleep 60", Duration::from_millis(20));
        assert!(!sight.holds && sight.seen.contains("in time"), "{sight:?}");
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
