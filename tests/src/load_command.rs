//! Runner of `horolog load` and other measuring commands on a lab host, and reader of their
//! results, which scenarios check.

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

/// Longer than any load here takes on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// User ID without privileges that exists on every system.
const UNPRIVILEGED_USER: &str = "65534";

/// All engines of a load.
pub(crate) const ENGINES: [LoadEngineKind; 3] =
    [LoadEngineKind::Udp, LoadEngineKind::Packet, LoadEngineKind::Xdp];

/// Returns the command `horolog load ntp TARGET ARGUMENTS` for a host.
pub(crate) fn load(host: &LabHost, arguments: &[&str]) -> Result<Command> {
    let mut command = host.command(binary()?);
    command.args(["load", "ntp"]).args(arguments);
    Ok(command)
}

/// Returns the finding that planned requests were not sent. One about their rate alone is none of
/// these: a busy host delays the last requests.
pub(crate) fn unsent_requests_finding(result: &LoadResult) -> Option<&Finding> {
    let is_about_requests =
        |one: &&Finding| one.code == FindingCode::GeneratorBehind && !one.message.contains("/s");
    result.findings.iter().find(is_about_requests)
}

/// Runs a load to its end, which must succeed, and returns its result.
pub(crate) fn result_of(host: &LabHost, arguments: &[&str]) -> Result<LoadResult> {
    let output = run_to_end(load(host, arguments)?.args(["--json", "-"]), TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "load {arguments:?}: {stderr}");
    parse(&output.stdout).with_context(|| format!("load {arguments:?}"))
}

/// Parses a result; fails if it contains fields that the record lacks.
pub(crate) fn parse<T>(json: &[u8]) -> Result<T>
where
    T: serde::de::DeserializeOwned + serde::Serialize,
{
    let result: T = serde_json::from_slice(json).context("the result cannot be read")?;
    let original: serde_json::Value = serde_json::from_slice(json)?;
    ensure!(
        serde_json::to_value(&result)? == original,
        "the result has fields that the record lacks"
    );
    Ok(result)
}

/// Returns the only trial of a result.
pub(crate) fn only_trial(result: &LoadResult) -> Result<&Trial> {
    ensure!(result.trials.len() == 1, "{} trials instead of one", result.trials.len());
    Ok(&result.trials[0])
}

/// Returns the first finding with this code.
pub(crate) fn finding(result: &LoadResult, code: FindingCode) -> Result<&Finding> {
    let found = result.findings.iter().find(|finding| finding.code == code);
    found.with_context(|| format!("no finding {code:?} in {:?}", result.findings))
}

/// Returns true if a result has a finding with this code.
pub(crate) fn has_finding(result: &LoadResult, code: FindingCode) -> bool {
    result.findings.iter().any(|finding| finding.code == code)
}

/// Checks that the counts of a trial add up.
pub(crate) fn check_sums(trial: &Trial) -> Result<()> {
    let Trial { sent, received, lost, .. } = *trial;
    let attributed = trial.lost_at.values().sum::<u64>();
    ensure!(
        received <= sent && received + lost == sent,
        "{sent} sent, {received} received, {lost} lost"
    );
    ensure!(attributed == lost, "{lost} lost, by location {:?}", trial.lost_at);
    let lateness = trial.lateness_ns.as_ref().map_or(0, |lateness| lateness.count);
    let round_trips = trial.rtt_ns.as_ref().map_or(0, |rtt| rtt.count);
    ensure!((lateness, round_trips) == (sent, received), "{lateness} and {round_trips} samples");
    Ok(())
}

/// Program in its own directory, with its output in files. It is killed when dropped, and when the
/// thread that started it ends.
pub(crate) struct StartedProgram {
    pub(crate) child: Child,
    directory: TempDir,
}

impl StartedProgram {
    /// Starts a program in a new directory, which it also uses for temporary files.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        Self::start_in(TempDir::new()?, command, None)
    }

    /// Starts a program in a new directory, with another standard output.
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

    /// Returns the content of a file in the program's directory.
    pub(crate) fn read(&self, name: &str) -> Result<String> {
        let path = self.directory.path().join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Returns the sorted names of the files in the program's directory.
    pub(crate) fn files(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(self.directory.path())?.collect::<Result<Vec<_>, _>>()?;
        let mut names: Vec<_> =
            entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        Ok(names)
    }

    /// Waits until `there` returns true for the standard output and standard error so far.
    pub(crate) fn wait_until(&mut self, is_ready: impl Fn(&str, &str) -> bool) -> Result<()> {
        let started = Instant::now();
        while !is_ready(&self.read("stdout")?, &self.read("stderr")?) {
            let ended = self.child.try_wait()?;
            ensure!(ended.is_none(), "program ended too early: {}", self.read("stderr")?);
            ensure!(started.elapsed() < TIMEOUT, "output did not appear: {}", self.read("stderr")?);
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Sends a signal to the program.
    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        process::signal(&self.child, name)
    }

    /// Waits for the end of the program; returns its exit status and the time waited.
    pub(crate) fn end(&mut self) -> Result<(ExitStatus, Duration)> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok((status, started.elapsed()));
            }
            ensure!(started.elapsed() < TIMEOUT, "program did not end: {}", self.read("stderr")?);
            thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for StartedProgram {
    fn drop(&mut self) {
        // Ignored: the program may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Copy of the binary that an unprivileged user may execute, unlike perhaps the original.
pub(crate) struct UnprivilegedCopy {
    directory: TempDir,
}

impl UnprivilegedCopy {
    /// Creates a directory that the user may write to, with a copy of the binary.
    pub(crate) fn new() -> Result<Self> {
        let directory = TempDir::new()?;
        fs::copy(binary()?, directory.path().join("horolog"))?;
        set_mode(&directory.path().join("horolog"), 0o755)?;
        set_mode(directory.path(), 0o777)?;
        Ok(Self { directory })
    }

    /// Returns the path of a file in the directory, which the user may write to.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Completes a `setpriv` command so that it runs the copy as the user.
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

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}
