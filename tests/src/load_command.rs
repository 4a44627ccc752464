//! Runs `horolog load` and other commands that measure, in a private host, and reads the results
//! that they write. What has to hold of a result is for the scenarios.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::LabHost;
use horolog_record::{Finding, FindingCode, LoadEngineKind, LoadResult, Trial};
use horolog_sys::namespace::die_with_parent;
use tempfile::TempDir;

use crate::process::{self, binary, run_to_end};

/// Longer than any load here takes, on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// A user without privileges, which every system has under this number.
const UNPRIVILEGED_USER: &str = "65534";

/// All engines that send.
pub(crate) const ENGINES: [LoadEngineKind; 3] =
    [LoadEngineKind::Udp, LoadEngineKind::Packet, LoadEngineKind::Xdp];

/// `horolog load ntp TARGET ARGUMENTS` in a host, to be run.
pub(crate) fn load(host: &LabHost, arguments: &[&str]) -> Result<Command> {
    let mut command = host.command(binary()?);
    command.args(["load", "ntp"]).args(arguments);
    Ok(command)
}

/// Runs a load to its end and returns its result, which has to be there.
pub(crate) fn result_of(host: &LabHost, arguments: &[&str]) -> Result<LoadResult> {
    let output = run_to_end(load(host, arguments)?.args(["--json", "-"]), TIMEOUT)?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "load {arguments:?}: {complaint}");
    parse(&output.stdout).with_context(|| format!("load {arguments:?}"))
}

/// Reads a result, in which nothing may stand that the record does not know.
pub(crate) fn parse<T>(json: &[u8]) -> Result<T>
where
    T: serde::de::DeserializeOwned + serde::Serialize,
{
    let result: T = serde_json::from_slice(json).context("the result cannot be read")?;
    let original: serde_json::Value = serde_json::from_slice(json)?;
    ensure!(
        serde_json::to_value(&result)? == original,
        "the result holds what the record does not"
    );
    Ok(result)
}

/// The only trial of a result.
pub(crate) fn only_trial(result: &LoadResult) -> Result<&Trial> {
    ensure!(result.trials.len() == 1, "{} trials instead of one", result.trials.len());
    Ok(&result.trials[0])
}

/// The first doubt of this kind.
pub(crate) fn finding(result: &LoadResult, code: FindingCode) -> Result<&Finding> {
    let found = result.findings.iter().find(|finding| finding.code == code);
    found.with_context(|| format!("no finding {code:?} in {:?}", result.findings))
}

/// Whether a result has such a doubt.
pub(crate) fn has(result: &LoadResult, code: FindingCode) -> bool {
    result.findings.iter().any(|finding| finding.code == code)
}

/// Checks that a trial's counts add up.
pub(crate) fn check_sums(trial: &Trial) -> Result<()> {
    let Trial { sent, received, lost, .. } = *trial;
    let attributed = trial.lost_at.values().sum::<u64>();
    ensure!(
        received <= sent && received + lost == sent,
        "{sent} sent, {received} received, {lost}"
    );
    ensure!(attributed == lost, "{lost} lost, at places {:?}", trial.lost_at);
    let lateness = trial.lateness_ns.as_ref().map_or(0, |lateness| lateness.count);
    let round_trips = trial.rtt_ns.as_ref().map_or(0, |rtt| rtt.count);
    ensure!((lateness, round_trips) == (sent, received), "{lateness} sent, {round_trips} received");
    Ok(())
}

/// A program in a directory of its own, with its output in files there. It is killed with this
/// value, and dies with the thread that started it.
pub(crate) struct Started {
    pub(crate) child: Child,
    directory: TempDir,
}

impl Started {
    /// Starts a program in a fresh directory, which also takes its temporary files.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        Self::start_in(TempDir::new()?, command, None)
    }

    /// The same with its standard output elsewhere.
    pub(crate) fn start_with(command: &mut Command, stdout: Stdio) -> Result<Self> {
        Self::start_in(TempDir::new()?, command, Some(stdout))
    }

    fn start_in(directory: TempDir, command: &mut Command, stdout: Option<Stdio>) -> Result<Self> {
        let file = |name: &str| File::create(directory.path().join(name));
        let stdout = stdout.map_or_else(|| file("stdout").map(Stdio::from), Ok)?;
        command.current_dir(directory.path()).env("TMPDIR", directory.path());
        command.stdin(Stdio::null()).stdout(stdout).stderr(file("stderr")?);
        let child = die_with_parent(command).spawn()?;
        Ok(Self { child, directory })
    }

    /// What stands in one of its files.
    pub(crate) fn read(&self, name: &str) -> Result<String> {
        let path = self.directory.path().join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// The names of its files, in order.
    pub(crate) fn files(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(self.directory.path())?.collect::<Result<Vec<_>, _>>()?;
        let mut names: Vec<_> =
            entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        Ok(names)
    }

    /// Waits until `there` says so of what it printed on standard output and standard error.
    pub(crate) fn wait_until(&mut self, there: impl Fn(&str, &str) -> bool) -> Result<()> {
        let started = Instant::now();
        while !there(&self.read("stdout")?, &self.read("stderr")?) {
            let ended = self.child.try_wait()?;
            ensure!(ended.is_none(), "it ended too early: {}", self.read("stderr")?);
            ensure!(started.elapsed() < TIMEOUT, "it never came: {}", self.read("stderr")?);
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        process::signal(&self.child, name)
    }

    /// Waits for its end, and returns how long that took.
    pub(crate) fn end(&mut self) -> Result<(ExitStatus, Duration)> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok((status, started.elapsed()));
            }
            ensure!(started.elapsed() < TIMEOUT, "it does not end: {}", self.read("stderr")?);
            thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // One that has ended by itself is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The binary where an ordinary user may run it, which may not be so where it was built.
pub(crate) struct UnprivilegedCopy {
    directory: TempDir,
}

impl UnprivilegedCopy {
    /// Makes a directory that this user may write to, with a copy of the binary.
    pub(crate) fn new() -> Result<Self> {
        let directory = TempDir::new()?;
        fs::copy(binary()?, directory.path().join("horolog"))?;
        open(&directory.path().join("horolog"), 0o755)?;
        open(directory.path(), 0o777)?;
        Ok(Self { directory })
    }

    /// Where the user may write.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Completes a command to set the user's privileges (`setpriv`) to one that runs the binary.
    pub(crate) fn command(&self, mut setpriv: Command) -> Command {
        setpriv.args([
            "--reuid",
            UNPRIVILEGED_USER,
            "--regid",
            UNPRIVILEGED_USER,
            "--clear-groups",
            "--inh-caps=-all",
        ]);
        setpriv.arg("--").arg(self.path("horolog"));
        setpriv.current_dir(self.directory.path()).env("HOME", self.directory.path());
        setpriv.env("TMPDIR", self.directory.path()).env_remove("XDG_RUNTIME_DIR");
        setpriv
    }
}

fn open(path: &Path, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}
