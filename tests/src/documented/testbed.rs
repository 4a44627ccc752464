//! Testbed for documented commands: two lab hosts, the reader's and the far one that the pages call
//! 192.0.2.1, with files, processes and names of their own. Everything on it ends with it. What a
//! page starts and leaves running (a server, a relay) runs to the end of its block, and what it
//! puts into the background to its own end.

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

use super::fixtures::{STORE, connect, furnish};
use super::table::{self, Far};
use crate::live_views::LiveTerminal;
use crate::process::{TIMEOUT, binary, is_running, run_to_end, signal_to};

/// How long what would take longer goes on before it is interrupted, as by Ctrl-C.
const INTERRUPTED_AFTER: &str = "0.6";
/// How long what stays has to hold before it counts as started.
const HELD: Duration = Duration::from_millis(600);
/// The number of a reader who is no administrator: that of `nobody`.
const USER: &str = "65534";
const AS_USER: &[&str] = &["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups"];
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Two hosts, a directory, and a process in whose namespaces commands run.
pub(crate) struct Testbed {
    lab: Lab,
    directory: TempDir,
    /// Whether the reader is no administrator.
    of_user: bool,
    holder: LongRunning,
    /// The process that the holder started there: its number outside.
    inside: u32,
    staying: Vec<LongRunning>,
    far: Option<(Far, LongRunning)>,
}

/// A program that stays, killed with whatever it has started when it is let go.
struct LongRunning {
    child: Child,
    text: String,
    stderr: PathBuf,
    /// To the end of the page, since the reader put it in the background.
    in_background: bool,
}

impl Drop for LongRunning {
    fn drop(&mut self) {
        // What it has started would not end with it, and what comes next is to find its place free.
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

/// Makes a stage one of another user: the reader's own directories are closed to others, and the
/// program is where that user can start it.
fn give_to_user(stage: &Path) -> Result<()> {
    let script = "chmod 755 \"$1\" && cp --remove-destination \"$2\" \"$1/bin/horolog\" && \
                  chown -R \"$3\" \"$1/here\" \"$1/home\" && chmod 700 \"$1/here\" \"$1/home\"";
    let mut command = Command::new("sh");
    command.args(["-ec", script, "sh"]).arg(stage).arg(binary()?).arg(USER);
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

    /// Has it end as Ctrl-C does.
    fn end(mut self) -> Result<ExitStatus> {
        let begun = Instant::now();
        for child in children(self.child.id()) {
            // One that ends by itself at this instant is as good.
            let _ = signal_to(child, "INT");
        }
        while begun.elapsed() < TIMEOUT {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(POLL_INTERVAL);
        }
        bail!("'{}' does not end: {}", self.text, self.stderr_text())
    }
}

/// The processes that one has started, of this machine's numbers.
fn children(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    listed.unwrap_or_default().split_whitespace().filter_map(|one| one.parse().ok()).collect()
}

impl Testbed {
    pub(crate) fn new(of_user: bool) -> Result<Self> {
        let lab = Lab::new(&LabConfig { queues: 2, ..LabConfig::default() })?;
        let directory = TempDir::new()?;
        furnish(directory.path())?;
        if of_user {
            give_to_user(directory.path())?;
        }
        connect(&lab)?;
        let script = "mount --bind \"$1/etc\" /etc && mount --bind \"$1/run\" /run && \
                      mount --bind \"$1/tmp\" /var/tmp && exec sleep infinity";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["sh", "-c", script, "sh"]).arg(directory.path());
        let holder = start(command, "the stage", &directory.path().join("stage.err"))?;
        let inside = await_inside(&holder)?;
        Ok(Self { lab, directory, of_user, holder, inside, staying: Vec::new(), far: None })
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join("here").join(name)
    }

    /// What a reader types, by a shell whose last argument that is, in the host that it is for.
    fn typed(&self, shell: &[&str], text: &str) -> Command {
        let is_root = text.contains("sudo ") || !self.of_user;
        let user: &[&str] = if is_root { &[] } else { AS_USER };
        let mut command = self.command(self.host(text), &[user, shell, &[text]].concat());
        if !is_root {
            command.env_remove(STORE_VARIABLE);
        }
        command
    }

    /// A command on this stage, in one of its hosts.
    fn command(&self, host: &LabHost, shell: &[&str]) -> Command {
        let mut command = host.command("nsenter");
        command.args(["--target", &self.inside.to_string(), "--mount", "--pid"]);
        // By a shell of the stage, since a directory that was opened outside is of another mount.
        command.args(["sh", "-c", "cd \"$0\" && exec \"$@\""]).arg(self.file("")).args(shell);
        let directory = self.directory.path();
        let ours = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{ours}", directory.join("bin").display()));
        command.env("HOME", directory.join("home")).env("TZ", "UTC").env_remove("XDG_RUNTIME_DIR");
        command.env(STORE_VARIABLE, directory.join(STORE));
        command
    }

    fn host(&self, text: &str) -> &LabHost {
        if table::is_far(text) { self.lab.client() } else { self.lab.server() }
    }

    /// Runs a command to its end, or until it is interrupted after a while.
    pub(crate) fn run(&mut self, text: &str) -> Result<Output> {
        self.provide(table::far(text))?;
        // A shell of several programs is interrupted with all of them; one that is becomes its only
        // program, which the group's signal would reach twice.
        let whose = if text.contains(" | ") { "--verbose" } else { "--foreground" };
        // What copies or makes something else is to get through with it.
        let limit = if table::is_ours(text) { INTERRUPTED_AFTER } else { "10" };
        let shell = [
            "timeout",
            whose,
            "--preserve-status",
            "--signal=INT",
            "--kill-after=20",
            limit,
            "bash",
            "-c",
        ];
        run_to_end(&mut self.typed(&shell, text), TIMEOUT * 3)
    }

    /// Runs a command on a terminal of its own, and ends it by a key when it has drawn something.
    pub(crate) fn view(&mut self, text: &str) -> Result<(i32, String)> {
        self.provide(table::far(text))?;
        let shell = ["setsid", "--ctty", "bash", "-c"];
        let mut viewed = LiveTerminal::start_alone(self.typed(&shell, text))?;
        viewed.until(|screen| screen.contains("q ends"))?;
        // What is drawn first may still get ready.
        thread::sleep(HELD);
        viewed.press("q")?;
        let (status, _, screen) = viewed.end()?;
        ensure!((screen.taken, screen.restored) == (1, 1), "the terminal is not as it was");
        Ok((status, screen.text()))
    }

    /// Starts what stays, and looks whether it does. One that ends at once is told with its status;
    /// one of which that is expected gets time for it.
    pub(crate) fn start(
        &mut self,
        text: &str,
        fails: bool,
    ) -> Result<Option<(ExitStatus, String)>> {
        let in_background = text.trim().ends_with('&');
        let text = text.trim().trim_end_matches('&').trim_end();
        self.far = None;
        let again = |one: &LongRunning| table::is_same(&one.text, text);
        for other in self.staying.extract_if(.., |one| again(one)) {
            finish(other)?;
        }
        let command = self.typed(&["bash", "-c"], text);
        let stderr = self.directory.path().join(format!("stay{}.err", self.staying.len()));
        let mut staying = start(command, text, &stderr)?;
        let begun = Instant::now();
        let held = if fails { TIMEOUT } else { HELD };
        while begun.elapsed() < held {
            if let Some(status) = staying.child.try_wait()? {
                return Ok(Some((status, staying.stderr_text())));
            }
            thread::sleep(POLL_INTERVAL);
        }
        staying.in_background = in_background;
        self.staying.push(staying);
        if let Some(question) = table::readiness_command(text) {
            let wait = format!("horolog after --succeeds '{question}' --deadline 15s --quiet");
            let ready =
                run_to_end(&mut self.command(self.host(text), &["sh", "-c", &wait]), TIMEOUT * 2)?;
            ensure!(ready.status.success(), "'{text}' is asked '{question}' and does not answer");
        }
        Ok(None)
    }

    /// Ends what a block has left running, each of which ends well.
    pub(crate) fn end_block(&mut self) -> Result<()> {
        self.staying.extract_if(.., |one| !one.in_background).try_for_each(finish)
    }

    /// And what a page has put into the background.
    pub(crate) fn end_page(&mut self) -> Result<()> {
        self.staying.drain(..).try_for_each(finish)
    }

    /// Makes the far host have what a command asks of it, unless its page has started that itself.
    fn provide(&mut self, far: Option<Far>) -> Result<()> {
        let Some(far) = far else { return Ok(()) };
        let has = |one: &LongRunning| one.text.starts_with(far.own_command());
        let there = self.far.as_ref().is_some_and(|(there, _)| *there == far);
        if there || self.staying.iter().any(has) {
            return Ok(());
        }
        self.far = None;
        let command = self.command(self.lab.client(), &["bash", "-c", &far.command()]);
        let stderr = self.directory.path().join("far.err");
        let staying = start(command, &far.command(), &stderr)?;
        let mut wait = self.command(self.lab.server(), &["bash", "-c", &far.ready()]);
        let ready = run_to_end(&mut wait, TIMEOUT * 2)?;
        ensure!(ready.status.success(), "{} is not ready: {}", staying.text, staying.stderr_text());
        self.far = Some((far, staying));
        Ok(())
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        self.far = None;
        self.staying.clear();
        // With the first process of its namespace all others end.
        kill(self.inside);
        let _ = self.holder.child.wait();
    }
}

fn finish(staying: LongRunning) -> Result<()> {
    let (text, stderr) = (staying.text.clone(), staying.stderr.clone());
    let status = staying.end()?;
    let stderr_text = fs::read_to_string(stderr).unwrap_or_default();
    // A leader of a cluster whose others were interrupted before it.
    let cut = stderr_text.contains("ended before");
    let is_others = !table::is_ours(&text) && status.signal() == Some(2);
    ensure!(status.success() || cut || is_others, "'{text}': {status}; {stderr_text}");
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

fn await_inside(holder: &LongRunning) -> Result<u32> {
    let begun = Instant::now();
    loop {
        let inside = children(holder.child.id()).first().copied();
        let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if let Some(inside) = inside.filter(|&pid| name(pid).trim() == "sleep") {
            return Ok(inside);
        }
        ensure!(begun.elapsed() < TIMEOUT, "no stage: {}", holder.stderr_text());
        thread::sleep(POLL_INTERVAL);
    }
}
