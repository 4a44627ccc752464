//! Isolation of a scenario: a process of its own, in its own mount, network, IPC and PID
//! namespaces. What it leaves behind is therefore its own: the first process of the PID namespace
//! ([`run_first_process`]) adopts orphans, and compares the namespaces before and after the
//! scenario. A leftover fails the scenario; it ends with the namespaces.
//!
//! Without root there are no namespaces, and only processes are found.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use horolog_lab::LabHost;
use horolog_record::{STORE_NONE, STORE_VARIABLE};
use horolog_sys::namespace::die_with_parent;
use horolog_sys::process::{ReapOutcome, adopt_orphans, reap_child};
use serde_json::Value;

use crate::process::{TIMEOUT as PROGRAM_TIMEOUT, run_to_end};
use crate::scenario::is_root;

/// First argument with which this program runs as the first process of a scenario, before the
/// program to run and its arguments.
pub(crate) const FIRST_PROCESS: &str = "first-process";

/// Longest time that the kernel needs to remove released programs and processes.
const TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Mounts that a scenario has for itself: type, directory and options. Pseudo-terminals are among
/// them because the number of a closed one is given to the next. The other mounts are those of the
/// host, of which `/sys` shows the host's interfaces.
const MOUNTS: [(&str, &str, &str); 3] = [
    ("tmpfs", "/run", "mode=755"),
    ("bpf", "/sys/fs/bpf", "mode=700"),
    ("devpts", "/dev/pts", "mode=620,ptmxmode=666"),
];
/// Directories with entries that outlive their creator: names of network namespaces, and pins.
const DIRECTORIES: [&str; 2] = ["/run/netns", "/sys/fs/bpf"];

/// Returns a command that runs `program` with `arguments`, isolated if this process is root. It
/// ends with the calling thread. Its status is that of the program, or a failure if something is
/// left behind, which standard error names.
pub(crate) fn isolated(program: &Path, arguments: &[&str]) -> Result<Command> {
    let runner = env::current_exe().context("cannot find this program")?;
    let mut command = if is_root() {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--ipc", "--pid", "--fork", "--kill-child"]);
        command.arg("--mount-proc").arg(runner);
        command
    } else {
        Command::new(runner)
    };
    command.arg(FIRST_PROCESS).arg(program).args(arguments).stdin(Stdio::null());
    // Results of scenarios are not stored; scenarios of the store set a store of their own.
    command.env(STORE_VARIABLE, STORE_NONE);
    die_with_parent(&mut command);
    Ok(command)
}

/// Runs a program as the first process of its namespaces; returns true if it succeeds.
pub(crate) fn run_first_process(arguments: &[String]) -> Result<bool> {
    let (program, arguments) = arguments.split_first().context("missing program")?;
    adopt_orphans().context("cannot adopt orphans")?;
    if is_root() {
        make_private()?;
    }
    let before = Resources::snapshot()?;
    // A process group of its own, with a parent of the same session outside it: if a group has no
    // such parent, the kernel hangs it up as soon as one of its processes is stopped and another
    // ends (setpgid(2)), and other scenarios must not be in it.
    let mut command = Command::new(program);
    let child = die_with_parent(command.args(arguments).process_group(0)).spawn()?;
    let status = wait_for(&child)?;
    match before.left_behind()? {
        None => Ok(status.success()),
        Some(left) => bail!("left behind: {left}"),
    }
}

/// Gives this process mounts and a loopback interface of its own.
fn make_private() -> Result<()> {
    for (kind, directory, options) in MOUNTS {
        run_tool("mount", &["-t", kind, "-o", options, kind, directory])?;
    }
    run_tool("ip", &["link", "set", "lo", "up"]).map(drop)
}

fn run_tool(program: &str, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {errors}", arguments.join(" "));
    Ok(output.stdout)
}

/// Waits for the end of a child, and reaps other processes that end meanwhile.
fn wait_for(child: &Child) -> io::Result<ExitStatus> {
    loop {
        match reap_child(true)? {
            ReapOutcome::Ended(pid, status) if pid == child.id() => return Ok(status),
            ReapOutcome::Ended(..) => {}
            ReapOutcome::None | ReapOutcome::NoChildren => {
                return Err(io::Error::other("the child has already been reaped"));
            }
        }
    }
}

/// Resources that outlive the processes that made them, and processes, as text.
struct Resources(BTreeSet<String>);

impl Resources {
    /// Returns the resources that exist now.
    fn snapshot() -> Result<Self> {
        while let ReapOutcome::Ended(..) = reap_child(false)? {}
        let mut all = BTreeSet::from_iter(children()?);
        if is_root() {
            for directory in DIRECTORIES {
                // The first name of a network namespace makes its directory.
                let entries = fs::read_dir(directory).into_iter().flatten();
                all.extend(
                    entries.filter_map(|entry| Some(format!("{}", entry.ok()?.path().display()))),
                );
            }
            let links = run_tool("ip", &["-j", "link"])?;
            all.extend(list(&links)?.iter().map(|link| format!("interface {}", link["ifname"])));
            all.extend(xdp_programs(&links)?);
            let disciplines = list(&run_tool("tc", &["-j", "qdisc"])?)?;
            let name = |one: &Value| format!("qdisc {} on {}", one["kind"], one["dev"]);
            all.extend(disciplines.iter().map(name));
        }
        Ok(Self(all))
    }

    /// Returns the resources that appeared after this snapshot and stay for longer than `TIMEOUT`.
    fn left_behind(&self) -> Result<Option<String>> {
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

/// Checks that no XDP program is attached to an interface of `host`.
pub(crate) fn check_nothing_attached(host: &LabHost) -> Result<()> {
    let links = host.command("ip").args(["-j", "link"]).output().context("cannot run ip")?;
    let attached = xdp_programs(&links.stdout)?;
    ensure!(attached.is_empty(), "left attached: {}", attached.join(", "));
    Ok(())
}

/// Returns the XDP programs in the output of `ip -j link`.
fn xdp_programs(links: &[u8]) -> Result<Vec<String>> {
    let links = list(links)?;
    let with_program = links.iter().filter(|link| link.get("xdp").is_some());
    Ok(with_program.map(|link| format!("XDP program on {}", link["ifname"])).collect())
}

fn list(json: &[u8]) -> Result<Vec<Value>> {
    serde_json::from_slice(json).context("the output of ip or tc is not a list")
}

/// Returns the children of this process, adopted ones included.
fn children() -> Result<Vec<String>> {
    let own = std::process::id();
    let path = format!("/proc/{own}/task/{own}/children");
    let listed = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // A process that has ended meanwhile has no name.
    let name = |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    let describe = |pid| Some(format!("process {pid} ({})", name(pid)?.trim_end()));
    Ok(listed.split_whitespace().filter_map(describe).collect())
}

/// A scenario that leaves something behind fails and names it; a scenario that removes it passes.
pub(crate) fn leftovers_are_named() -> Result<()> {
    let leaks = [
        (
            "ip netns add horolog-left",
            "ip netns del horolog-left",
            "left behind: /run/netns/horolog-left",
        ),
        ("sleep 62.5 >/dev/null 2>&1 & p=$!", "kill $p", "(sleep)"),
        ("mkdir /sys/fs/bpf/left", "rmdir /sys/fs/bpf/left", "left behind: /sys/fs/bpf/left"),
        (
            "ip link add left type veth peer name right",
            "ip link del left",
            "left behind: interface \"left\"",
        ),
        (
            "tc qdisc add dev lo root pfifo",
            "tc qdisc del dev lo root",
            "left behind: qdisc \"pfifo\" on \"lo\"",
        ),
    ];
    for (make, remove, message) in leaks {
        let [left, removed] = [make.to_owned(), format!("{make}; {remove}")].map(|script| {
            let mut command = isolated(Path::new("sh"), &["-ec", &script])?;
            run_to_end(&mut command, PROGRAM_TIMEOUT)
        });
        let (left, removed) = (left?, removed?);
        let errors = String::from_utf8_lossy(&left.stderr).into_owned();
        ensure!(!left.status.success() && errors.contains(message), "{make}: {errors}");
        let errors = String::from_utf8_lossy(&removed.stderr).into_owned();
        ensure!(removed.status.success(), "{make}; {remove}: {errors}");
    }
    Ok(())
}

/// The status of an isolated program is that of its scenario, and nothing of it reaches the host.
pub(crate) fn isolation_hides_the_host() -> Result<()> {
    let script = "ip netns add seen; test $(ip -o link | wc -l) = 1; test $(ls -d /proc/[0-9]* | wc -l) -lt 9
                  ip netns del seen";
    let output = run_to_end(&mut isolated(Path::new("sh"), &["-ec", script])?, PROGRAM_TIMEOUT)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut failing = isolated(Path::new("sh"), &["-c", "exit 7"])?;
    ensure!(!run_to_end(&mut failing, PROGRAM_TIMEOUT)?.status.success(), "a failure was lost");
    Ok(())
}
