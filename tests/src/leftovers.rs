//! What a scenario must not leave behind: named namespaces, XDP programs on this machine's own
//! interfaces, child processes. What was there before the scenario is somebody else's and ignored.
//! In the lane that waits, child processes alone, since the other lane comes and goes beside it.
//! It cleans nothing up: whoever left it has a defect.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::Host;
use horolog_sys::namespace::list_named;
use serde_json::Value;

use crate::lane;

/// The kernel takes programs and processes away a moment after they are let go.
const PATIENCE: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// What the names of this project's namespaces begin with.
const NAMESPACE_PREFIX: &str = "horolog-";

/// The things of this machine that a scenario could leave behind, each in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Belongings(BTreeSet<String>);

impl Belongings {
    /// Those that are there now.
    pub(crate) fn look() -> Result<Self> {
        let mut all = BTreeSet::new();
        all.extend(children()?);
        if lane::is_waiting() {
            return Ok(Self(all));
        }
        let ours = list_named()?.into_iter().filter(|name| name.starts_with(NAMESPACE_PREFIX));
        all.extend(ours.map(|name| format!("namespace {name}")));
        let links = std::process::Command::new("ip").args(["-j", "link"]).output();
        all.extend(xdp_in(&links.context("cannot run ip")?.stdout)?);
        Ok(Self(all))
    }

    /// What has come since, and does not go by itself.
    pub(crate) fn left_behind(&self) -> Result<Option<String>> {
        let started = Instant::now();
        loop {
            let now = Self::look()?;
            let new: Vec<&str> = now.0.difference(&self.0).map(String::as_str).collect();
            if new.is_empty() {
                return Ok(None);
            }
            if started.elapsed() > PATIENCE {
                return Ok(Some(new.join(", ")));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Checks that no XDP program is attached to an interface of this host.
pub(crate) fn nothing_is_attached(host: &Host) -> Result<()> {
    let links = host.command("ip").args(["-j", "link"]).output().context("cannot run ip")?;
    let attached = xdp_in(&links.stdout)?;
    ensure!(attached.is_empty(), "still there: {}", attached.join(", "));
    Ok(())
}

/// The XDP programs in what `ip -j link` prints.
fn xdp_in(links: &[u8]) -> Result<Vec<String>> {
    let links: Vec<Value> = serde_json::from_slice(links).context("ip -j link prints no list")?;
    let with_program = links.iter().filter(|link| link.get("xdp").is_some());
    Ok(with_program.map(|link| format!("XDP program on {}", link["ifname"])).collect())
}

fn children() -> Result<Vec<String>> {
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").context("cannot list the processes")?;
    Ok(entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit()))
        // One that has ended meanwhile is none.
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .filter_map(|stat| {
            // "PID (NAME) STATE PARENT ...", where the name may hold anything (proc_pid_stat(5)).
            let (head, tail) = stat.rsplit_once(") ")?;
            (tail.split(' ').nth(1)? == own).then(|| format!("process {head})"))
        })
        .collect())
}
