//! Testbed for documented commands: two lab hosts, the reader's and the far one with address
//! 192.0.2.1, with their own files, processes and names, which end with the testbed. A long-running
//! command of a page (a server, a relay) runs to the end of its block, or to the end of the page if
//! it is in the background.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_record::STORE_VARIABLE;
use horolog_sys::namespace::die_with_parent;
use tempfile::TempDir;

use super::fixtures::{STORE, configure_networks, create_files};
use super::table::{self, FarService};
use crate::live_views::LiveTerminal;
use crate::process::{TIMEOUT, binary, is_running, run_to_end, signal_to};

/// Time after which a command that measures or waits is interrupted, as by Ctrl-C, in seconds.
const INTERRUPTED_AFTER: &str = "0.6";
/// Time in which any other command has to end by itself on a busy host, in seconds.
const END_LIMIT: &str = "20";
/// Time for which a long-running command must run to count as started.
const HOLD_TIME: Duration = Duration::from_millis(600);
/// User ID of a reader who is not an administrator: `nobody`.
const USER: &str = "65534";
const AS_USER: &[&str] = &["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups"];
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Lab of two hosts, a directory, and a process in whose namespaces commands run.
pub(crate) struct Testbed {
    lab: Lab,
    directory: TempDir,
    /// True if the reader is not an administrator.
    is_unprivileged: bool,
    holder: LongRunning,
    /// Process ID, outside, of the process that the holder started in its namespaces.
    inside_pid: u32,
    running: Vec<LongRunning>,
    far_service: Option<(FarService, LongRunning)>,
}

/// Long-running program; it is killed with its descendants when dropped.
struct LongRunning {
    child: Child,
    text: String,
    stderr: PathBuf,
    /// True if the command runs to the end of the page, in the background.
    in_background: bool,
}

impl Drop for LongRunning {
    fn drop(&mut self) {
        // Descendants do not end with the child, and would occupy ports of later commands.
        let mut all = vec![self.child.id()];
        let mut at = 0;
        while let Some(&pid) = all.get(at) {
            all.extend(children(pid));
            at += 1;
        }
        for &pid in &all {
            kill(pid);
        }
        let begun = Instant::now();
        while all.iter().skip(1).any(|&pid| is_running(pid)) && begun.elapsed() < TIMEOUT {
            thread::sleep(POLL_INTERVAL);
        }
        let _ = self.child.wait();
    }
}

/// Gives the testbed to an unprivileged user: the reader's directories are closed to others, and
/// the binary is copied to a path that the user can execute.
fn grant_to_user(directory: &Path) -> Result<()> {
    let script = "chmod 755 \"$1\" && cp --remove-destination \"$2\" \"$1/bin/horolog\" && \
                  chown -R \"$3\" \"$1/here\" \"$1/home\" && chmod 700 \"$1/here\" \"$1/home\"";
    let mut command = Command::new("sh");
    command.args(["-ec", script, "sh"]).arg(directory).arg(binary()?).arg(USER);
    let output = run_to_end(&mut command, TIMEOUT)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Kills a process that may have ended.
fn kill(pid: u32) {
    let script = format!("kill -KILL {pid}");
    let _ = Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).status();
}

impl LongRunning {
    fn stderr_text(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Interrupts the program, as Ctrl-C does, and returns its exit status.
    fn end(mut self) -> Result<ExitStatus> {
        let begun = Instant::now();
        for child in children(self.child.id()) {
            // Ignored: the child may have ended by itself.
            let _ = signal_to(child, "INT");
        }
        while begun.elapsed() < TIMEOUT {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(POLL_INTERVAL);
        }
        bail!("'{}' did not end after an interrupt: {}", self.text, self.stderr_text())
    }
}

/// Returns the children of a process.
fn children(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    listed.unwrap_or_default().split_whitespace().filter_map(|one| one.parse().ok()).collect()
}

impl Testbed {
    pub(crate) fn new(of_user: bool) -> Result<Self> {
        let lab = Lab::new(&LabConfig { queues: 2, ..LabConfig::default() })?;
        let directory = TempDir::new()?;
        create_files(directory.path())?;
        if of_user {
            grant_to_user(directory.path())?;
        }
        configure_networks(&lab)?;
        let script = "mount --bind \"$1/etc\" /etc && mount --bind \"$1/run\" /run && \
                      mount --bind \"$1/tmp\" /var/tmp && exec sleep infinity";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["sh", "-c", script, "sh"]).arg(directory.path());
        let holder = start(command, "the testbed", &directory.path().join("stage.err"))?;
        let inside = await_inside_pid(&holder)?;
        Ok(Self {
            lab,
            directory,
            is_unprivileged: of_user,
            holder,
            inside_pid: inside,
            running: Vec::new(),
            far_service: None,
        })
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join("here").join(name)
    }

    /// Returns the command that executes `text` with a shell, on the host that `text` is for.
    fn shell_command(&self, shell: &[&str], text: &str) -> Command {
        let is_root = text.contains("sudo ") || !self.is_unprivileged;
        let user: &[&str] = if is_root { &[] } else { AS_USER };
        let mut command = self.command(self.host(text), &[user, shell, &[text]].concat());
        if !is_root {
            command.env_remove(STORE_VARIABLE);
        }
        command
    }

    /// Returns a command in the namespaces of the testbed, on one of its hosts.
    fn command(&self, host: &LabHost, shell: &[&str]) -> Command {
        let mut command = host.command("nsenter");
        command.args(["--target", &self.inside_pid.to_string(), "--mount", "--pid"]);
        // With a shell of the testbed, since a directory opened outside belongs to another mount
        // namespace.
        command.args(["sh", "-c", "cd \"$0\" && exec \"$@\""]).arg(self.file("")).args(shell);
        let directory = self.directory.path();
        let ours = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{ours}", directory.join("bin").display()));
        command.env("HOME", directory.join("home")).env("TZ", "UTC").env_remove("XDG_RUNTIME_DIR");
        command.env(STORE_VARIABLE, directory.join(STORE));
        command
    }

    fn host(&self, text: &str) -> &LabHost {
        if table::is_for_far_host(text) { self.lab.client() } else { self.lab.server() }
    }

    /// Runs a command until it ends or is interrupted after [`INTERRUPTED_AFTER`] or [`END_LIMIT`].
    pub(crate) fn run(&mut self, text: &str) -> Result<Output> {
        self.start_required_service(table::required_service(text))?;
        // A pipeline is interrupted as a process group. A shell that executes a single program is
        // replaced by it, which would receive the signal twice from the group.
        let foreground_option = if text.contains(" | ") { "--verbose" } else { "--foreground" };
        let limit = if table::may_wait(text) { INTERRUPTED_AFTER } else { END_LIMIT };
        let shell = [
            "timeout",
            foreground_option,
            "--preserve-status",
            "--signal=INT",
            "--kill-after=20",
            limit,
            "bash",
            "-c",
        ];
        run_to_end(&mut self.shell_command(&shell, text), TIMEOUT * 3)
    }

    /// Runs a command on a pseudo-terminal, and ends it with a key after its first output.
    pub(crate) fn view(&mut self, text: &str) -> Result<(i32, String)> {
        self.start_required_service(table::required_service(text))?;
        let shell = ["setsid", "--ctty", "bash", "-c"];
        let mut viewed = LiveTerminal::start_alone(self.shell_command(&shell, text))?;
        viewed.until(|screen| screen.contains("q ends"))?;
        // The program may still be in preparation when its first output appears.
        thread::sleep(HOLD_TIME);
        viewed.press("q")?;
        let (status, _, screen) = viewed.end()?;
        ensure!(
            (screen.alternate_count, screen.restored_count) == (1, 1),
            "terminal was not restored"
        );
        Ok((status, screen.text()))
    }

    /// Starts a long-running command and waits until it is ready. Returns the exit status and
    /// output of a command that ends early; one that is expected to fail gets the full timeout.
    pub(crate) fn start(
        &mut self,
        text: &str,
        fails: bool,
    ) -> Result<Option<(ExitStatus, String)>> {
        let in_background = text.trim().ends_with('&');
        let text = text.trim().trim_end_matches('&').trim_end();
        self.far_service = None;
        let is_conflicting = |one: &LongRunning| table::is_conflicting(&one.text, text);
        for other in self.running.extract_if(.., |one| is_conflicting(one)) {
            end_well(other)?;
        }
        let command = self.shell_command(&["bash", "-c"], text);
        let stderr = self.directory.path().join(format!("stay{}.err", self.running.len()));
        let mut staying = start(command, text, &stderr)?;
        let begun = Instant::now();
        let held = if fails { TIMEOUT } else { HOLD_TIME };
        while begun.elapsed() < held {
            if let Some(status) = staying.child.try_wait()? {
                return Ok(Some((status, staying.stderr_text())));
            }
            thread::sleep(POLL_INTERVAL);
        }
        staying.in_background = in_background;
        self.running.push(staying);
        if let Some(probe) = table::readiness_command(text) {
            let wait = format!("horolog after --succeeds '{probe}' --deadline 15s --quiet");
            let ready =
                run_to_end(&mut self.command(self.host(text), &["sh", "-c", &wait]), TIMEOUT * 2)?;
            ensure!(ready.status.success(), "'{text}' is not ready: '{probe}' fails");
        }
        Ok(None)
    }

    /// Ends the long-running commands of a block, and checks that each ends well.
    pub(crate) fn end_block(&mut self) -> Result<()> {
        self.running.extract_if(.., |one| !one.in_background).try_for_each(end_well)
    }

    /// Ends the background commands of a page, and checks that each ends well.
    pub(crate) fn end_page(&mut self) -> Result<()> {
        self.running.drain(..).try_for_each(end_well)
    }

    /// Starts the service that a command requires on the far host, unless its page has started one.
    fn start_required_service(&mut self, far: Option<FarService>) -> Result<()> {
        let Some(far) = far else { return Ok(()) };
        let is_started_by_page = |one: &LongRunning| one.text.starts_with(far.page_command());
        let is_started = self.far_service.as_ref().is_some_and(|(there, _)| *there == far);
        if is_started || self.running.iter().any(is_started_by_page) {
            return Ok(());
        }
        self.far_service = None;
        let command = self.command(self.lab.client(), &["bash", "-c", &far.command()]);
        let stderr = self.directory.path().join("far.err");
        let staying = start(command, &far.command(), &stderr)?;
        let mut wait = self.command(self.lab.server(), &["bash", "-c", &far.probe_command()]);
        let ready = run_to_end(&mut wait, TIMEOUT * 2)?;
        ensure!(ready.status.success(), "{} is not ready: {}", staying.text, staying.stderr_text());
        self.far_service = Some((far, staying));
        Ok(())
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        self.far_service = None;
        self.running.clear();
        // All other processes of the namespace end with its first one.
        kill(self.inside_pid);
        let _ = self.holder.child.wait();
    }
}

fn end_well(staying: LongRunning) -> Result<()> {
    let (text, stderr) = (staying.text.clone(), staying.stderr.clone());
    let status = staying.end()?;
    let stderr_text = fs::read_to_string(stderr).unwrap_or_default();
    // The leader of a cluster whose members were interrupted before it.
    let is_abandoned_leader = stderr_text.contains("ended before");
    let is_interrupted = !table::is_horolog(&text) && status.signal() == Some(2);
    ensure!(
        status.success() || is_abandoned_leader || is_interrupted,
        "'{text}': {status}; {stderr_text}"
    );
    Ok(())
}

fn start(mut command: Command, text: &str, stderr: &Path) -> Result<LongRunning> {
    let file = fs::File::create(stderr)?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    let child = die_with_parent(&mut command).spawn()?;
    Ok(LongRunning {
        child,
        text: text.to_owned(),
        stderr: stderr.to_owned(),
        in_background: false,
    })
}

fn await_inside_pid(holder: &LongRunning) -> Result<u32> {
    let begun = Instant::now();
    loop {
        let inside = children(holder.child.id()).first().copied();
        let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if let Some(inside) = inside.filter(|&pid| name(pid).trim() == "sleep") {
            return Ok(inside);
        }
        ensure!(begun.elapsed() < TIMEOUT, "testbed was not started: {}", holder.stderr_text());
        thread::sleep(POLL_INTERVAL);
    }
}
