//! A clean Debian (or Ubuntu) of this machine's release, unpacked for one scenario from what
//! `scripts/setup.sh --peers` made with debootstrap: running commands in it, and starting it with
//! its own systemd in a private host. All that is mounted is in namespaces that end with what runs
//! in them; the machine itself sees a directory that goes with the scenario. Its clock is out of
//! reach.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{LabHost, RunningProgram};
use tempfile::TempDir;

use crate::launch_systemd::Cgroup;
use crate::process::run_to_end;
use crate::scenario::cached;

const TIMEOUT: Duration = Duration::from_mins(2);
const IMAGE: &str = "debian-root.tar";

/// What is written anew by whatever runs in a system, and by dpkg and systemd for themselves.
const RESTLESS: [&str; 11] = [
    "/dev",
    "/proc",
    "/run",
    "/sys",
    "/tmp",
    "/var/cache",
    "/var/lib/apt",
    "/var/lib/dpkg",
    "/var/lib/systemd",
    "/var/log",
    "/var/tmp",
];

/// Of the first process in there: its mounts, and no services that a package would start.
const ENTER: &str = r#"
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount --bind dev dev
exec chroot . sh -ec "$2"
"#;

/// Of the first process, in its cgroup: makes the namespaces, turns to the system's own root and
/// becomes its systemd.
const START: &str = r#"
echo $$ > "$2/cgroup.procs"
exec unshare --fork --pid --mount --uts --ipc --cgroup --kill-child --propagation private \
    setpriv --bounding-set -sys_time,-sys_module,-mknod --inh-caps -sys_time,-sys_module,-mknod \
    sh -ec '
        mount --bind "$1" "$1"
        cd "$1"
        mount -t proc proc proc
        mount --bind proc/sys proc/sys
        mount -o remount,bind,ro proc/sys
        mount -t sysfs -o ro sysfs sys
        mount -t cgroup2 none sys/fs/cgroup
        mount -t tmpfs none run
        mount --bind dev dev
        pivot_root . mnt
        umount -l /mnt
        export container=horolog
        exec /usr/lib/systemd/systemd --system --unit="$3" --show-status=no --log-target=journal
    ' sh "$@"
"#;

/// The unpacked system.
pub(crate) struct System {
    directory: TempDir,
}

impl System {
    /// Unpacks it, and forbids packages to start services.
    pub(crate) fn unpack() -> Result<Self> {
        let directory = TempDir::new()?;
        let image = image().context("no cache to look for it in")?;
        let mut tar = Command::new("tar");
        tar.arg("-xpf").arg(&image).arg("-C").arg(directory.path());
        let output = run_to_end(&mut tar, TIMEOUT)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let system = Self { directory };
        system.write("usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n")?;
        system.run("chmod 755 /usr/sbin/policy-rc.d")?;
        Ok(system)
    }

    /// Where this machine sees a path of it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name.trim_start_matches('/'))
    }

    /// Writes a file of it.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path(name);
        fs::write(&path, text).with_context(|| path.display().to_string())
    }

    /// Reads a file of it.
    pub(crate) fn read(&self, name: &str) -> Result<String> {
        let path = self.path(name);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    }

    /// Runs a script of its shell, with its root, without a network, and returns what it says.
    pub(crate) fn run(&self, script: &str) -> Result<String> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--net", "--uts", "--ipc"]);
        command.args(["--propagation", "private"]);
        command.args(["setpriv", "--bounding-set", "-sys_time", "--inh-caps", "-sys_time"]);
        command.args(["sh", "-ec", ENTER, "sh"]).arg(self.directory.path()).arg(script);
        command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let output = run_to_end(&mut command, TIMEOUT)?;
        let text = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
        ensure!(output.status.success(), "{script}: {}: {}", output.status, text.concat());
        Ok(text[0].clone())
    }

    /// All paths of it that last.
    pub(crate) fn paths(&self) -> Result<BTreeSet<String>> {
        let mut paths = BTreeSet::new();
        let mut waiting = vec![self.directory.path().to_owned()];
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(&directory)? {
                let entry = entry?;
                let path = entry.path();
                let name = Path::new("/").join(path.strip_prefix(self.directory.path())?);
                let name = name.display().to_string();
                if RESTLESS.contains(&name.as_str()) {
                    continue;
                }
                if entry.file_type()?.is_dir() {
                    waiting.push(path);
                }
                paths.insert(name);
            }
        }
        Ok(paths)
    }

    /// Starts it in a host, up to this unit; it ends with what is returned.
    pub(crate) fn boot(&self, host: &LabHost, unit: &str) -> Result<Booted> {
        let cgroup = Cgroup::make()?;
        let mut command = host.command("sh");
        command.args(["-ec", START, "sh"]).arg(self.directory.path()).arg(cgroup.path()).arg(unit);
        let process = RunningProgram::start(&mut command)?;
        Ok(Booted { process, _cgroup: cgroup })
    }
}

/// A system that runs.
pub(crate) struct Booted {
    process: RunningProgram,
    // Goes last.
    _cgroup: Cgroup,
}

impl Booted {
    /// Waits until something is so.
    pub(crate) fn wait_for(&mut self, ready: impl FnMut() -> bool) -> Result<()> {
        self.process.await_ready(TIMEOUT, ready)?;
        Ok(())
    }

    /// Waits until it has ended by itself.
    pub(crate) fn wait_for_end(mut self) -> Result<()> {
        let began = std::time::Instant::now();
        while self.process.exit_status().is_none() {
            ensure!(began.elapsed() < TIMEOUT, "the system does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// The archive that systems are unpacked from, where it is there.
pub(crate) fn image() -> Option<PathBuf> {
    cached(IMAGE)
}
