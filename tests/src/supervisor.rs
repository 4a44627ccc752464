//! Each group's scenarios run in a process whose parent takes up whatever they leave without one: a
//! process that outlives the one that started it is then that parent's child, where
//! [`crate::resource_leaks`] finds it, and not lost among the processes of the machine. One that is
//! there when all scenarios are over is named, and fails the run.

use std::os::unix::process::parent_id;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use horolog_sys::process::{ReapOutcome, adopt_orphans, reap_child};

use crate::resource_leaks::children_of;

/// Processes end a moment after they are told to.
const TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Makes this process the parent of a group, which is to wait for no child in any other way.
pub(crate) fn become_parent() -> Result<()> {
    adopt_orphans().context("cannot take up what is left without a parent")
}

/// Waits for the ends of these children of such a parent, and takes up what else ends meanwhile.
pub(crate) fn wait_for<const N: usize>(own: &[Child; N]) -> Result<[ExitStatus; N]> {
    let mut ended = [None; N];
    while ended.iter().any(Option::is_none) {
        let ReapOutcome::Ended(pid, status) = reap_child(true)? else {
            bail!("somebody else waited for a group's process");
        };
        if let Some(index) = own.iter().position(|child| child.id() == pid) {
            ended[index] = Some(status);
        }
    }
    Ok(ended.map(Option::unwrap_or_default))
}

/// What is still there and does not go by itself; it is left alone.
pub(crate) fn left_over() -> Result<Vec<String>> {
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

/// The processes whose children are a scenario's: this one, and the one that takes up orphans.
pub(crate) fn parents() -> [u32; 2] {
    [std::process::id(), parent_id()]
}
