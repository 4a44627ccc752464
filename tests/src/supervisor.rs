//! Parent of a group's process, which adopts the orphans of its scenarios: a process that outlives
//! its parent becomes a child of this one, where [`crate::resource_leaks`] finds it. A process that
//! remains after all scenarios is named and fails the run.

use std::os::unix::process::parent_id;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use horolog_sys::process::{ReapOutcome, adopt_orphans, reap_child};

use crate::resource_leaks::children_of;

/// Longest time in which processes end after a signal.
const TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Makes this process the parent of a group. It waits for children only by the functions below.
pub(crate) fn become_parent() -> Result<()> {
    adopt_orphans().context("cannot adopt orphans")
}

/// Waits for the ends of the children `own`, and reaps other processes that end meanwhile.
pub(crate) fn wait_for<const N: usize>(own: &[Child; N]) -> Result<[ExitStatus; N]> {
    let mut ended = [None; N];
    while ended.iter().any(Option::is_none) {
        let ReapOutcome::Ended(pid, status) = reap_child(true)? else {
            bail!("a group's process has already been reaped");
        };
        if let Some(index) = own.iter().position(|child| child.id() == pid) {
            ended[index] = Some(status);
        }
    }
    Ok(ended.map(Option::unwrap_or_default))
}

/// Returns the processes that remain after a timeout; they are not terminated.
pub(crate) fn remaining_processes() -> Result<Vec<String>> {
    let started = Instant::now();
    loop {
        match reap_child(false)? {
            ReapOutcome::NoChildren => return Ok(Vec::new()),
            ReapOutcome::Ended(..) => {}
            ReapOutcome::None if started.elapsed() > TIMEOUT => {
                return children_of(&[std::process::id()]);
            }
            ReapOutcome::None => thread::sleep(POLL_INTERVAL),
        }
    }
}

/// Returns the parents of a scenario's processes: this process, and the one that adopts orphans.
pub(crate) fn parents() -> [u32; 2] {
    [std::process::id(), parent_id()]
}
