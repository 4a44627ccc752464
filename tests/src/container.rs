//! Scenarios of the container file: podman builds the image from the package and a base made by
//! debootstrap, and runs it in a lab host, with the socket engine as an unprivileged user and with
//! the XDP engine with the capabilities named in the file. Images, mounts and processes are in a
//! directory and in namespaces that end with the scenario; the host's control groups are hidden, so
//! none are made.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_sys::namespace::die_with_parent;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{run_to_end, server_address};
use crate::scenario::{Need, Scenario};
use crate::{client, container, debian_root, package, scenarios};

const TIMEOUT: Duration = Duration::from_mins(2);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const FILE: &str = concat!(env!("HOROLOG_REPOSITORY"), "packaging/Containerfile");

/// Script prefix of the first process; its arguments are the store and those of the script after
/// it.
const ENTER: &str = r#"
mount -t tmpfs none /sys/fs/cgroup
podman="podman --root $1/images --runroot $1/run --tmpdir $1/tmp --cgroup-manager cgroupfs"
podman="$podman --runtime crun"
run="$podman run --rm --cgroups disabled --network host --ulimit nofile=1024:1024"
run="$run --ulimit nproc=1000:1000"
shift
"#;
/// Script that builds the image; its installation must work without a network.
const BUILD: &str = r#"
$podman import --quiet "$1" localhost/base
$podman build --isolation chroot --network host --layers=false --build-arg BASE=localhost/base \
    -t localhost/horolog -f "$2" "$3"
"#;
const RUN: &str = "$run \"$@\"";
/// Script that runs a server until a file is removed, and then ends it like a container engine.
const SERVE: &str = r#"
until=$1; shift
[ "$1" = sockets ] && echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start; shift
$run "$@" &
while [ -e "$until" ]; do sleep 0.05; done
kill -TERM $!
wait $!
"#;

/// Options of a server with XDP, from the head of the file. NTS in XDP, which needs more locked
/// memory, is not covered: not every root may raise that limit.
const XDP: [&str; 10] = [
    "--user",
    "0",
    "--cap-drop",
    "all",
    "--cap-add",
    "NET_ADMIN,NET_RAW,BPF,PERFMON",
    "--cap-add",
    "NET_BIND_SERVICE,SYS_NICE,SETUID,SETGID,SETPCAP,CHOWN",
    "--security-opt",
    "seccomp=unconfined",
];

pub(crate) fn all() -> Vec<Scenario> {
    const NEEDS: &[Need] = &[
        Need::Root,
        Need::DebianRoot,
        Need::Peer("dpkg-deb"),
        Need::Peer("dpkg-shlibdeps"),
        Need::Peer("podman"),
        Need::Peer("crun"),
    ];
    Vec::from(scenarios!(NEEDS, container: the_image_serves_by_sockets_and_in_xdp))
}

/// Podman with its store in a temporary directory.
struct Podman(TempDir);

impl Podman {
    /// Returns the command that runs a script with podman in a host, or without a network.
    fn command(&self, host: Option<&LabHost>, script: &str, arguments: &[&str]) -> Command {
        let mut command =
            host.map_or_else(|| Command::new("unshare"), |host| host.command("unshare"));
        command.args(host.is_none().then_some("--net"));
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["--propagation", "private"]);
        command.args(["setpriv", "--bounding-set", "-sys_time", "--inh-caps", "-sys_time"]);
        command.args(["sh", "-ec", &[ENTER, script].concat(), "sh"]).arg(self.0.path());
        command.args(arguments);
        command
    }

    fn run(&self, host: Option<&LabHost>, script: &str, arguments: &[&str]) -> Result<Output> {
        let output = run_to_end(&mut self.command(host, script, arguments), TIMEOUT)?;
        let log = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{arguments:?}: {}: {log}", output.status);
        Ok(output)
    }

    fn build_image(&self) -> Result<()> {
        let base = debian_root::image().context("no Debian root")?;
        let context = TempDir::new()?;
        package::build(context.path())?;
        let arguments = [text(&base)?, FILE, text(context.path())?];
        self.run(None, BUILD, &arguments).map(drop)
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("the path is not UTF-8")
}

/// Server in a container.
struct ContainerServer {
    child: Child,
    until: PathBuf,
    log: PathBuf,
    _directory: TempDir,
}

impl ContainerServer {
    fn start(podman: &Podman, host: &LabHost, engine: &str, arguments: &[&str]) -> Result<Self> {
        let directory = TempDir::new()?;
        let [until, log] = ["until", "log"].map(|name| directory.path().join(name));
        File::create(&until)?;
        let all = [&[text(&until)?, engine], arguments].concat();
        let mut command = podman.command(Some(host), SERVE, &all);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let child = die_with_parent(&mut command).spawn()?;
        Ok(Self { child, until, log, _directory: directory })
    }

    /// Waits until the log contains `words`.
    fn await_log(&mut self, words: &str) -> Result<()> {
        let begun = Instant::now();
        loop {
            let log = fs::read_to_string(&self.log)?;
            if log.contains(words) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{status}: {log}");
            }
            ensure!(begun.elapsed() < TIMEOUT, "no '{words}' in the log: {log}");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Ends the server, which must exit successfully.
    fn end(mut self) -> Result<()> {
        fs::remove_file(&self.until)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "{status}: {}", fs::read_to_string(&self.log)?);
        Ok(())
    }
}

impl Drop for ContainerServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn the_image_serves_by_sockets_and_in_xdp() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let podman = Podman(TempDir::new()?);
    podman.build_image()?;
    let identity = ["--entrypoint", "/usr/bin/id", "localhost/horolog", "-un"];
    let output = podman.run(Some(lab.server()), RUN, &identity)?;
    ensure!(output.stdout == b"_horolog\n", "{output:?}");

    let by_sockets = ["--cap-drop", "all", "localhost/horolog", "serve", "--local"];
    let mut served = ContainerServer::start(&podman, lab.server(), "sockets", &by_sockets)?;
    served.await_log("by sockets")?;
    check_replies(&lab)?;
    // The tools are in the same image, here run on the other host.
    let address = lab.server().first_interface().ipv4.to_string();
    let query = ["--cap-drop", "all", "localhost/horolog", "query", "--json", "-", &address];
    let output = podman.run(Some(lab.client()), RUN, &query)?;
    let result: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(result["servers"][0]["counts"]["received"].as_u64() > Some(0), "{result}");
    served.end()?;

    let in_xdp = ["localhost/horolog", "serve", "--local", "--engine", "xdp"];
    let mut served =
        ContainerServer::start(&podman, lab.server(), "xdp", &[&XDP[..], &in_xdp].concat())?;
    served.await_log("by XDP (native mode)")?;
    served.await_log("sandbox in force: capabilities")?;
    check_replies(&lab)?;
    served.end()
}

/// Checks that the server answers every request.
fn check_replies(lab: &Lab) -> Result<()> {
    let at = server_address(lab, false)?;
    for _ in 0..10 {
        client::query_from(lab.client(), at)?;
    }
    Ok(())
}
