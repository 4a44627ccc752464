//! Detection of resources that a scenario leaves behind: named namespaces, XDP programs on the
//! host's own interfaces, and processes, children as well as orphans. Resources that existed before
//! the scenario are ignored. The waiting groups check only processes, since other groups run in
//! parallel. Nothing is cleaned up: a leftover is a defect of what was run.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::LabHost;
use horolog_sys::namespace::list_named;
use serde_json::Value;

use crate::process::{TIMEOUT as PROGRAM_TIMEOUT, run_to_end, signal_to};
use crate::scenario_groups;
use crate::supervisor::parents;

/// Longest time that the kernel needs to remove released programs and processes.
const TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Prefix of the names of this project's namespaces.
const NAMESPACE_PREFIX: &str = "horolog-";

/// Resources of the host that a scenario could leave behind, as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Resources(BTreeSet<String>);

impl Resources {
    /// Returns the resources that exist now.
    pub(crate) fn snapshot() -> Result<Self> {
        let mut all = BTreeSet::new();
        all.extend(children_of(&parents())?);
        if scenario_groups::is_waiting() {
            return Ok(Self(all));
        }
        let ours = list_named()?.into_iter().filter(|name| name.starts_with(NAMESPACE_PREFIX));
        all.extend(ours.map(|name| format!("namespace {name}")));
        let links = std::process::Command::new("ip").args(["-j", "link"]).output();
        all.extend(xdp_programs(&links.context("cannot run ip")?.stdout)?);
        Ok(Self(all))
    }

    /// Returns the resources that appeared after this snapshot and stay for longer than `TIMEOUT`.
    pub(crate) fn left_behind(&self) -> Result<Option<String>> {
        let started = Instant::now();
        loop {
            let now = Self::snapshot()?;
            let new: Vec<&str> = now.0.difference(&self.0).map(String::as_str).collect();
            if new.is_empty() {
                return Ok(None);
            }
            if started.elapsed() > TIMEOUT {
                return Ok(Some(new.join(", ")));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// A process whose parent has ended is found, by name; it is not reported once it has ended.
pub(crate) fn an_orphan_is_found() -> Result<()> {
    let before = Resources::snapshot()?;
    let script = "sleep 62.5 > /dev/null 2>&1 & echo $!; true & exit 0";
    let output =
        run_to_end(std::process::Command::new("sh").args(["-c", script]), PROGRAM_TIMEOUT)?;
    let orphan = str::from_utf8(&output.stdout)?.trim().to_owned();
    let left = before.left_behind()?;
    signal_to(orphan.parse().context("invalid process number")?, "KILL")?;
    let expected = format!("process {orphan} (sleep)");
    ensure!(left.as_deref() == Some(&*expected), "{left:?} instead of {expected}");
    let gone = before.left_behind()?;
    ensure!(gone.is_none(), "{gone:?} is reported after its end");
    Ok(())
}

/// Checks that no XDP program is attached to an interface of `host`.
pub(crate) fn check_nothing_attached(host: &LabHost) -> Result<()> {
    let links = host.command("ip").args(["-j", "link"]).output().context("cannot run ip")?;
    let attached = xdp_programs(&links.stdout)?;
    ensure!(attached.is_empty(), "left attached: {}", attached.join(", "));
    Ok(())
}

/// Returns the XDP programs in the output of `ip -j link`.
fn xdp_programs(links: &[u8]) -> Result<Vec<String>> {
    let links: Vec<Value> = serde_json::from_slice(links).context("ip -j link: not a list")?;
    let with_program = links.iter().filter(|link| link.get("xdp").is_some());
    Ok(with_program.map(|link| format!("XDP program on {}", link["ifname"])).collect())
}

/// Returns the children of `parents`, except for this process.
pub(crate) fn children_of(parents: &[u32]) -> Result<Vec<String>> {
    let own = std::process::id().to_string();
    let parents: Vec<String> = parents.iter().map(u32::to_string).collect();
    let entries = fs::read_dir("/proc").context("cannot list the processes")?;
    Ok(entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit()))
        .filter(|entry| entry.file_name().to_string_lossy() != own)
        // A process that has ended meanwhile has no such file.
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .filter_map(|stat| {
            // "PID (NAME) STATE PARENT ...": NAME may contain any character (proc_pid_stat(5)).
            let (head, tail) = stat.rsplit_once(") ")?;
            let parent = tail.split(' ').nth(1)?;
            parents.iter().any(|known| known == parent).then(|| format!("process {head})"))
        })
        .collect())
}
