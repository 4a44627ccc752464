//! Where documented commands are run: two private hosts, their reader's one and the far one that
//! the pages call 192.0.2.1, with files, processes and names of their own. Everything on it ends
//! with it. What a page starts and leaves running (a server, a relay) runs to the end of its block,
//! and what it puts into the background to its own end.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use horolog_lab::{Host, Lab, LabConfig};
use horolog_sys::namespace::die_with_parent;
use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use super::page::{Page, path};
use super::table::{self, Far};
use crate::process::{PATIENCE, binary, run_to_end, signal_to, write_secret};

/// How long what would take longer goes on before it is interrupted, as by Ctrl-C.
const INTERRUPTED_AFTER: &str = "0.6";
/// How long what stays has to hold before it counts as started.
const HELD: Duration = Duration::from_millis(600);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const GOLDEN: &str = "crates/record/tests/schema";
const CLOCK_LOG: &str = "fuzz/seeds/record_clock_log/server";
const LEAP_SECONDS: &str = "crates/server/testdata/leap-seconds-2016.list";

/// Two hosts, a directory, and a process in whose namespaces commands run.
pub(crate) struct Stage {
    lab: Lab,
    directory: TempDir,
    holder: Staying,
    /// The process that the holder started there: its number outside.
    inside: u32,
    staying: Vec<Staying>,
    far: Option<(Far, Staying)>,
}

/// A program that stays, killed with whatever it has started when it is let go.
struct Staying {
    child: Child,
    text: String,
    stderr: PathBuf,
    /// To the end of the page, since the reader put it in the background.
    beside: bool,
}

impl Drop for Staying {
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
        while all.iter().skip(1).any(|&pid| is_running(pid)) && begun.elapsed() < PATIENCE {
            thread::sleep(POLL_INTERVAL);
        }
        let _ = self.child.wait();
    }
}

/// Whether a process has not ended. One that nobody has waited for is a zombie
/// (`proc_pid_stat(5)`), but so is the first thread of one whose others have not ended yet.
fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z') || threads > 1)
}

/// Kills a process that may have ended.
fn kill(pid: u32) {
    let script = format!("kill -KILL {pid}");
    let _ = Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).status();
}

impl Staying {
    fn said(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Has it end as Ctrl-C does.
    fn end(mut self) -> Result<ExitStatus> {
        let begun = Instant::now();
        for child in children(self.child.id()) {
            // One that ends by itself at this instant is as good.
            let _ = signal_to(child, "INT");
        }
        while begun.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(POLL_INTERVAL);
        }
        bail!("'{}' does not end: {}", self.text, self.said())
    }
}

/// The processes that one has started, of this machine's numbers.
fn children(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    listed.unwrap_or_default().split_whitespace().filter_map(|one| one.parse().ok()).collect()
}

impl Stage {
    pub(crate) fn new() -> Result<Self> {
        let lab = Lab::new(&LabConfig { queues: 2, ..LabConfig::default() })?;
        let directory = TempDir::new()?;
        furnish(directory.path())?;
        connect(&lab)?;
        let script = "mount --bind \"$1/etc\" /etc && mount --bind \"$1/run\" /run && \
                      mount --bind \"$1/tmp\" /var/tmp && exec sleep infinity";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["sh", "-c", script, "sh"]).arg(directory.path());
        let holder = start(command, "the stage", &directory.path().join("stage.err"))?;
        let inside = await_inside(&holder)?;
        Ok(Self { lab, directory, holder, inside, staying: Vec::new(), far: None })
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join("here").join(name)
    }

    /// A command for a shell on this stage, in one of its hosts.
    fn command(&self, host: &Host, shell: &[&str]) -> Command {
        let mut command = host.command("nsenter");
        command.args(["--target", &self.inside.to_string(), "--mount", "--pid"]);
        // By a shell of the stage, since a directory that was opened outside is of another mount.
        command.args(["sh", "-c", "cd \"$0\" && exec \"$@\""]).arg(self.file("")).args(shell);
        let directory = self.directory.path();
        let ours = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{ours}", directory.join("bin").display()));
        command.env("HOME", directory.join("home")).env("TZ", "UTC").env_remove("XDG_RUNTIME_DIR");
        command.env("HOROLOG_STORE", directory.join("runs.sqlite"));
        command
    }

    fn host(&self, text: &str) -> &Host {
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
            text,
        ];
        run_to_end(&mut self.command(self.host(text), &shell), PATIENCE * 3)
    }

    /// Starts what stays, and looks whether it does. One that ends at once is told with its status;
    /// one of which that is expected gets time for it.
    pub(crate) fn start(
        &mut self,
        text: &str,
        fails: bool,
    ) -> Result<Option<(ExitStatus, String)>> {
        let beside = text.trim().ends_with('&');
        let text = text.trim().trim_end_matches('&').trim_end();
        self.far = None;
        let again = |one: &Staying| table::is_same(&one.text, text);
        for other in self.staying.extract_if(.., |one| again(one)) {
            finish(other)?;
        }
        let command = self.command(self.host(text), &["bash", "-c", text]);
        let stderr = self.directory.path().join(format!("stay{}.err", self.staying.len()));
        let mut staying = start(command, text, &stderr)?;
        let begun = Instant::now();
        let held = if fails { PATIENCE } else { HELD };
        while begun.elapsed() < held {
            if let Some(status) = staying.child.try_wait()? {
                return Ok(Some((status, staying.said())));
            }
            thread::sleep(POLL_INTERVAL);
        }
        staying.beside = beside;
        self.staying.push(staying);
        if let Some(question) = table::is_asked_by(text) {
            let wait = format!("horolog after --succeeds '{question}' --deadline 15s --quiet");
            let ready =
                run_to_end(&mut self.command(self.host(text), &["sh", "-c", &wait]), PATIENCE * 2)?;
            ensure!(ready.status.success(), "'{text}' is asked '{question}' and does not answer");
        }
        Ok(None)
    }

    /// Ends what a block has left running, each of which ends well.
    pub(crate) fn end_block(&mut self) -> Result<()> {
        self.staying.extract_if(.., |one| !one.beside).try_for_each(finish)
    }

    /// And what a page has put into the background.
    pub(crate) fn end_page(&mut self) -> Result<()> {
        self.staying.drain(..).try_for_each(finish)
    }

    /// Makes the far host have what a command asks of it, unless its page has started that itself.
    fn provide(&mut self, far: Option<Far>) -> Result<()> {
        let Some(far) = far else { return Ok(()) };
        let has = |one: &Staying| one.text.starts_with(far.own_command());
        let there = self.far.as_ref().is_some_and(|(there, _)| *there == far);
        if there || self.staying.iter().any(has) {
            return Ok(());
        }
        self.far = None;
        let command = self.command(self.lab.client(), &["bash", "-c", &far.command()]);
        let stderr = self.directory.path().join("far.err");
        let staying = start(command, &far.command(), &stderr)?;
        let mut wait = self.command(self.lab.server(), &["bash", "-c", &far.ready()]);
        let ready = run_to_end(&mut wait, PATIENCE * 2)?;
        ensure!(ready.status.success(), "{} is not ready: {}", staying.text, staying.said());
        self.far = Some((far, staying));
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.far = None;
        self.staying.clear();
        // With the first process of its namespace all others end.
        kill(self.inside);
        let _ = self.holder.child.wait();
    }
}

fn finish(staying: Staying) -> Result<()> {
    let (text, stderr) = (staying.text.clone(), staying.stderr.clone());
    let status = staying.end()?;
    let said = fs::read_to_string(stderr).unwrap_or_default();
    // A leader of a cluster whose others were interrupted before it.
    let cut = said.contains("ended before");
    let is_others = !table::is_ours(&text) && status.signal() == Some(2);
    ensure!(status.success() || cut || is_others, "'{text}': {status}; {said}");
    Ok(())
}

fn start(mut command: Command, text: &str, stderr: &Path) -> Result<Staying> {
    let file = fs::File::create(stderr)?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    let child = die_with_parent(&mut command).spawn()?;
    Ok(Staying { child, text: text.to_owned(), stderr: stderr.to_owned(), beside: false })
}

fn await_inside(holder: &Staying) -> Result<u32> {
    let begun = Instant::now();
    loop {
        let inside = children(holder.child.id()).first().copied();
        let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if let Some(inside) = inside.filter(|&pid| name(pid).trim() == "sleep") {
            return Ok(inside);
        }
        ensure!(begun.elapsed() < PATIENCE, "no stage: {}", holder.said());
        thread::sleep(POLL_INTERVAL);
    }
}

/// The files that pages speak of, beside what stands in for programs of their readers.
fn furnish(directory: &Path) -> Result<()> {
    for name in ["bin", "here", "home", "run", "tmp"] {
        fs::create_dir(directory.join(name))?;
    }
    let copied = Command::new("cp").args(["-a", "/etc"]).arg(directory.join("etc")).status()?;
    ensure!(copied.success(), "cannot copy /etc");
    std::os::unix::fs::symlink(binary()?, directory.join("bin/horolog"))?;
    std::os::unix::fs::symlink(binary()?, directory.join("bin/ntpperf"))?;
    for (name, script) in table::PROGRAMS {
        let script = script.replace("REPOSITORY", &path("").display().to_string());
        executable(&directory.join("bin").join(name), &script)?;
    }
    let here = directory.join("here");
    fs::create_dir(here.join("usr-bin"))?;
    for (name, text) in table::FILES {
        write_secret(&here.join(name), text)?;
    }
    for (name, page, begins) in table::BLOCKS {
        let page = Page::read(page)?;
        let text = page.data(begins).with_context(|| format!("no page has {name}"))?;
        fs::write(here.join(name), text)?;
    }
    fs::copy(path(CLOCK_LOG), here.join("errors.jsonl"))?;
    for (name, golden) in table::RESULTS {
        fs::copy(path(GOLDEN).join(golden), here.join(name))
            .with_context(|| (*golden).to_owned())?;
    }
    for name in ["step", "control", "log"] {
        executable(&here.join(name), "exit 0")?;
    }
    let built = directory.join("home/.cache/horolog/target/release");
    fs::create_dir_all(&built)?;
    std::os::unix::fs::symlink(binary()?, built.join("horolog"))?;
    std::os::unix::fs::symlink(path("packaging"), here.join("packaging"))?;
    std::os::unix::fs::symlink(path("plans"), here.join("plans"))?;
    fs::copy(binary()?, here.join("horolog"))?;
    identity(directory)?;
    let names = table::NAMES.join(" ");
    let hosts = directory.join("etc/hosts");
    fs::write(&hosts, format!("127.0.0.1 localhost\n192.0.2.1 {names}\n"))?;
    Ok(())
}

fn executable(path: &Path, script: &str) -> Result<()> {
    fs::write(path, format!("#!/bin/sh\n{script}\n"))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// The certificate of time.example, its key, and the secret of its servers.
fn identity(directory: &Path) -> Result<()> {
    let key = KeyPair::generate()?;
    let names = ["time.example".to_owned(), "192.0.2.1".to_owned()];
    let certificate = CertificateParams::new(names)?.self_signed(&key)?;
    for name in ["here/ca.pem", "here/server.pem"] {
        fs::write(directory.join(name), certificate.pem())?;
    }
    let etc = directory.join("etc");
    for below in ["horolog", "ssl/private"] {
        fs::create_dir_all(etc.join(below))?;
    }
    fs::write(etc.join("ssl/time.example.pem"), certificate.pem())?;
    write_secret(&etc.join("ssl/private/time.example.key"), &key.serialize_pem())?;
    fs::copy(path("packaging/horolog.toml"), etc.join("horolog/horolog.toml"))?;
    fs::copy(path(LEAP_SECONDS), directory.join("here/leap-seconds.list"))?;
    write_secret(&etc.join("horolog/master-secret"), &"5a".repeat(32))
}

/// Routes for simulated clients, and interfaces of the names that pages use.
fn connect(lab: &Lab) -> Result<()> {
    let run = |host: &Host, script: &str| -> Result<()> {
        let mut command = host.command("sh");
        let output = run_to_end(command.args(["-ec", script]), PATIENCE)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    run(lab.server(), table::NEAR_NETWORK)?;
    run(lab.client(), table::FAR_NETWORK)
}
