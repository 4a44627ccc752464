//! Scenario of `horolog at --detach` with a separate systemd: process 1 of its own PID, mount,
//! network and cgroup namespaces, with a few empty units and without the right to set the clock. A
//! read-only file system prevents changes to this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{binary, run_to_end};
use crate::scenario::{Need, Scenario};
use crate::{launch_systemd, scenarios};

const TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Targets that transient units require; all are empty.
const TARGETS: [&str; 5] = ["sysinit", "basic", "timers", "shutdown", "default"];

/// Script of the first process: joins its cgroup, makes the namespaces and executes systemd.
const BOOT_SCRIPT: &str = r#"
echo $$ > "$2/cgroup.procs"
exec unshare --fork --pid --mount --uts --ipc --net --cgroup --kill-child --propagation private \
    setpriv --bounding-set -sys_time,-sys_module,-mknod --inh-caps -sys_time,-sys_module,-mknod \
    sh -ec '
        mount -t proc proc /proc
        mount --bind /proc/sys /proc/sys
        mount -o remount,bind,ro /proc/sys
        mount -t cgroup2 none /sys/fs/cgroup
        mount --bind "$1" "$1"
        mount -o remount,bind,ro /
        mount -t tmpfs none /run
        export container=horolog SYSTEMD_UNIT_PATH="$1/units" SYSTEMD_GENERATOR_PATH=/nowhere
        exec "$3" --system --unit=default.target --show-status=no --log-target=null
    ' sh "$@"
"#;

/// Script of the service: a job that runs and writes a result, and a job that waits and is
/// cancelled.
const SERVICE_SCRIPT: &str = r#"
cd "$1" && exec > transcript 2>&1
"$2" at --detach 'now + 7 s' --json at.json -- sh -c 'pwd > ran; echo "$1" >> ran' sh '$HOME 50%'
"$2" at --detach 'now + 1 hour' -c 'echo later'
"$2" at list --json > list.json
i=0
until [ -s ran ] && [ -s at.json ] || [ $i -ge 300 ]; do sleep 0.1; i=$((i + 1)); done
later=$("$2" at list --backend systemd | sed -n 's/ .*echo later$//p')
"$2" at cancel "$later"
"$2" at list
systemctl poweroff --force
"#;

pub(crate) fn all() -> Vec<Scenario> {
    const NEEDS: &[Need] =
        &[Need::Root, Need::Systemd, Need::Peer("unshare"), Need::Peer("setpriv")];
    Vec::from(scenarios!(NEEDS, launch_systemd: a_real_systemd_runs_jobs))
}

/// Returns the mount point of the cgroup2 file system, if any.
pub(crate) fn cgroup_root() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    mounts.find(|mount| mount.get(2) == Some(&"cgroup2")).map(|mount| PathBuf::from(mount[1]))
}

/// Returns the path of systemd, which is in no usual `PATH`.
pub(crate) fn systemd() -> Option<&'static Path> {
    let paths = ["/usr/lib/systemd/systemd", "/lib/systemd/systemd"];
    paths.into_iter().map(Path::new).find(|path| path.is_file())
}

/// Cgroup that is removed when dropped, with its descendants, after its processes have ended.
pub(crate) struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates a cgroup.
    pub(crate) fn create() -> Result<Self> {
        let root = cgroup_root().context("no cgroup2 file system")?;
        // Process IDs are not unique: each scenario has its own.
        let directory = tempfile::Builder::new().prefix("horolog-systemd-").tempdir_in(&root);
        let directory = directory.with_context(|| format!("no cgroup in {}", root.display()))?;
        Ok(Self(directory.keep()))
    }

    /// Returns the path of the cgroup.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let began = Instant::now();
        while remove_recursively(&self.0).is_err() && began.elapsed() < TIMEOUT {
            thread::sleep(POLL_INTERVAL);
        }
    }
}

fn remove_recursively(directory: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_recursively(&path)?;
        }
    }
    fs::remove_dir(directory)
}

fn a_real_systemd_runs_jobs() -> Result<()> {
    let work = TempDir::new()?;
    let (units, inside) = (work.path().join("units"), work.path().join("inside"));
    fs::create_dir(&units)?;
    fs::write(&inside, SERVICE_SCRIPT)?;
    for target in TARGETS {
        let wants = if target == "default" { "Wants=inside.service\n" } else { "" };
        let text = format!("[Unit]\nDefaultDependencies=no\n{wants}");
        fs::write(units.join(format!("{target}.target")), text)?;
    }
    let service = format!(
        "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=/bin/sh {} {} {}\n",
        inside.display(),
        work.path().display(),
        binary()?.display()
    );
    fs::write(units.join("inside.service"), service)?;
    let cgroup = Cgroup::create()?;
    let mut command = Command::new("sh");
    command.args(["-ec", BOOT_SCRIPT, "sh"]).arg(work.path()).arg(&cgroup.0);
    let output = run_to_end(command.arg(systemd().context("no systemd")?), TIMEOUT)?;
    drop(cgroup);
    let transcript = fs::read_to_string(work.path().join("transcript"))
        .with_context(|| format!("service did not run: {output:?}"))?;
    check(work.path(), &transcript).with_context(|| transcript.clone())
}

fn check(work: &Path, transcript: &str) -> Result<()> {
    let read = |name: &str| fs::read_to_string(work.join(name)).with_context(|| name.to_owned());
    let ran = read("ran")?;
    ensure!(ran == format!("{}\n$HOME 50%\n", work.display()), "{ran}");
    let result: Value = serde_json::from_str(&read("at.json")?)?;
    ensure!(result["met"] == 1 && result["programs"][0]["last_status"] == 0, "{result}");
    let list: Value = serde_json::from_str(&read("list.json")?)?;
    let jobs = list["jobs"].as_array().context("no jobs")?;
    ensure!(jobs.len() == 2 && jobs.iter().all(|job| job["keeper"] == "systemd"), "{list}");
    let by_systemd =
        transcript.lines().filter(|line| line.contains(", run by systemd; output: journalctl"));
    ensure!(by_systemd.count() == 2, "jobs are not run by systemd");
    let cancelled = transcript.lines().filter(|line| line.ends_with(": cancelled"));
    ensure!(cancelled.count() == 1 && transcript.ends_with("horolog: no jobs\n"), "not cancelled");
    Ok(())
}
