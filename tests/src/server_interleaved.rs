//! Scenarios of interleaved mode with chronyd as client and XDP as server.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use horolog_lab::{Lab, LabConfig, RunningProgram};

use crate::process::{Engine, Server, TIMEOUT, run_to_end, server_address};
use crate::scenario::{Need, Scenario, scenario};

const NEEDS: &[Need] = &[Need::Root, Need::Ipv6, Need::Peer("chronyd"), Need::Peer("chronyc")];
/// chronyd polls every second and needs a few samples for each change of mode.
const MODE_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) fn all() -> Vec<Scenario> {
    [("ipv4", false), ("ipv6", true)]
        .map(|(name, ipv6)| {
            let name = format!("server_interleaved::chronyd_is_interleaved_by_xdp::{name}");
            scenario(name, NEEDS, move || chronyd_is_interleaved_by_xdp(ipv6))
        })
        .into()
}

/// chronyd with `xleave` reports interleaved mode, and the server counts interleaved replies.
fn chronyd_is_interleaved_by_xdp(ipv6: bool) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, ipv6)?;
    let server = Server::start(lab.server(), Engine::Xdp, &[at], &[])?;
    // chronyd creates no socket in a directory that others can access.
    let private = Permissions::from_mode(0o700);
    let directory = tempfile::Builder::new().permissions(private).tempdir()?;
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (socket, pid) = (path("chronyd.sock"), path("chronyd.pid"));
    let mut command = lab.client().command("chronyd");
    command.args(["-x", "-d", "-u", "root", "-f", "/dev/null", "cmdport 0"]);
    command.arg(format!("server {} xleave minpoll 0 maxpoll 0", at.ip()));
    command.args([&format!("bindcmdaddress {socket}"), &format!("pidfile {pid}")]);
    let _chronyd = RunningProgram::start(&mut command)?;
    let started = Instant::now();
    loop {
        let mut query = Command::new("chronyc");
        let output = run_to_end(query.args(["-h", &socket, "ntpdata"]), TIMEOUT)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mode = text.lines().find(|line| line.starts_with("Interleaved"));
        if mode.is_some_and(|line| line.ends_with("Yes")) {
            break;
        }
        let status = server.status()?["xdp_counters"].clone();
        ensure!(started.elapsed() < MODE_TIMEOUT, "not interleaved: {text}\n{status}");
        thread::sleep(Duration::from_millis(200));
    }
    let status = server.status()?;
    let interleaved = status["xdp_counters"]["answered_interleaved"].as_u64();
    ensure!(interleaved > Some(0), "no interleaved reply is counted: {status}");
    Ok(())
}
