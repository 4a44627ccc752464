//! Clean Debian (or Ubuntu) of this machine's release, unpacked for one scenario from the image
//! that `scripts/setup.sh --peers` made with debootstrap: runs commands in it, and boots it with
//! its own systemd in a lab host. All mounts are in namespaces that end with their processes; on
//! the machine itself only a temporary directory exists. The machine's clock cannot be set from
//! inside.

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
use crate::scenario::cached_file;

const TIMEOUT: Duration = Duration::from_mins(2);
const IMAGE: &str = "debian-root.tar";

/// Directories whose content changes while a system runs, or that dpkg and systemd write for
/// themselves.
const VOLATILE_DIRECTORIES: [&str; 11] = [
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

/// Script of the first process of a command: mounts, and a shell in the changed root.
const CHROOT_SCRIPT: &str = r#"
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount --bind dev dev
exec chroot . sh -ec "$2"
"#;

/// Script of the first process of a booted system: joins its cgroup, makes the namespaces, changes
/// the root and executes systemd.
const BOOT_SCRIPT: &str = r#"
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

/// Unpacked system.
pub(crate) struct DebianSystem {
    directory: TempDir,
}

impl DebianSystem {
    /// Unpacks the image, and forbids packages to start services.
    pub(crate) fn unpack() -> Result<Self> {
        let directory = TempDir::new()?;
        let image = image().context("cannot find the image in the cache")?;
        let mut tar = Command::new("tar");
        tar.arg("-xpf").arg(&image).arg("-C").arg(directory.path());
        let output = run_to_end(&mut tar, TIMEOUT)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let system = Self { directory };
        system.write("usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n")?;
        system.run("chmod 755 /usr/sbin/policy-rc.d")?;
        Ok(system)
    }

    /// Returns the path outside the system of a path inside it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name.trim_start_matches('/'))
    }

    /// Writes a file inside the system.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path(name);
        fs::write(&path, text).with_context(|| path.display().to_string())
    }

    /// Reads a file inside the system.
    pub(crate) fn read(&self, name: &str) -> Result<String> {
        let path = self.path(name);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    }

    /// Runs a shell script inside the system, without a network, and returns its standard output.
    pub(crate) fn run(&self, script: &str) -> Result<String> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--net", "--uts", "--ipc"]);
        command.args(["--propagation", "private"]);
        command.args(["setpriv", "--bounding-set", "-sys_time", "--inh-caps", "-sys_time"]);
        command.args(["sh", "-ec", CHROOT_SCRIPT, "sh"]).arg(self.directory.path()).arg(script);
        command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let output = run_to_end(&mut command, TIMEOUT)?;
        let text = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
        ensure!(output.status.success(), "{script}: {}: {}", output.status, text.concat());
        Ok(text[0].clone())
    }

    /// Returns all paths of the system except volatile ones.
    pub(crate) fn paths(&self) -> Result<BTreeSet<String>> {
        let mut paths = BTreeSet::new();
        let mut pending = vec![self.directory.path().to_owned()];
        while let Some(directory) = pending.pop() {
            for entry in fs::read_dir(&directory)? {
                let entry = entry?;
                let path = entry.path();
                let name = Path::new("/").join(path.strip_prefix(self.directory.path())?);
                let name = name.display().to_string();
                if VOLATILE_DIRECTORIES.contains(&name.as_str()) {
                    continue;
                }
                if entry.file_type()?.is_dir() {
                    pending.push(path);
                }
                paths.insert(name);
            }
        }
        Ok(paths)
    }

    /// Boots the system on a lab host up to `unit`; it ends when the returned value is dropped.
    pub(crate) fn boot(&self, host: &LabHost, unit: &str) -> Result<BootedDebian> {
        let cgroup = Cgroup::create()?;
        let mut command = host.command("sh");
        command
            .args(["-ec", BOOT_SCRIPT, "sh"])
            .arg(self.directory.path())
            .arg(cgroup.path())
            .arg(unit);
        let process = RunningProgram::start(&mut command)?;
        Ok(BootedDebian { process, _cgroup: cgroup })
    }
}

/// Booted system.
pub(crate) struct BootedDebian {
    process: RunningProgram,
    // Dropped after `process`, since a cgroup with processes cannot be removed.
    _cgroup: Cgroup,
}

impl BootedDebian {
    /// Waits until `ready` returns true.
    pub(crate) fn wait_until_ready(&mut self, ready: impl FnMut() -> bool) -> Result<()> {
        self.process.await_ready(TIMEOUT, ready)?;
        Ok(())
    }

    /// Waits until the system has powered off.
    pub(crate) fn wait_for_end(mut self) -> Result<()> {
        let began = std::time::Instant::now();
        while self.process.exit_status().is_none() {
            ensure!(began.elapsed() < TIMEOUT, "system did not power off within the timeout");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// Returns the archive from which systems are unpacked; `None` if it is not in the cache.
pub(crate) fn image() -> Option<PathBuf> {
    cached_file(IMAGE)
}
