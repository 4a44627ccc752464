//! Scenarios of commands with impossible arguments: each ends at once with the right exit status
//! and one line on the cause and the remedy, and leaves nothing behind.

use std::ffi::OsStr;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Result, ensure};
use horolog_lab::{Lab, LabConfig};
use tempfile::TempDir;

use crate::process::{Engine, Server, binary, run_to_end, server_address};
use crate::resource_leaks::nothing_is_attached;
use crate::usage_error::{Case, ENVIRONMENT, USAGE, case, check, expect_all};

const TIMEOUT: Duration = Duration::from_secs(5);
/// A user without privileges, which every system has under this number.
const UNPRIVILEGED_USER: &str = "65534";

/// The server's own address is 192.0.2.2.
const CASES: [Case; 16] = [
    case(&["--engine", "xdp", "--interface", "nosuch0"], ENVIRONMENT, &["'nosuch0'", "ip link"]),
    case(&["--engine", "xdp", "--interface", "lo"], ENVIRONMENT, &["'lo'", "--engine socket"]),
    case(
        &["--engine", "xdp", "--listen", "127.0.0.1:4123"],
        ENVIRONMENT,
        &["no Ethernet interface", "--interface"],
    ),
    case(&["--listen", "203.0.113.9:123"], ENVIRONMENT, &["203.0.113.9:123"]),
    case(&["--listen", "224.0.1.1:123"], USAGE, &["224.0.1.1:123", "--listen"]),
    case(&["--listen", "[fe80::1]:123"], USAGE, &["[fe80::1]:123", "%eth0"]),
    case(&["--listen", "[::ffff:192.0.2.2]:123"], USAGE, &["--listen 192.0.2.2:123"]),
    case(
        &["--listen", "192.0.2.2:123", "--listen", "192.0.2.2:123"],
        USAGE,
        &["192.0.2.2:123", "twice"],
    ),
    case(&["--stratum", "0"], USAGE, &["stratum 0", "--stratum"]),
    case(&["--stratum", "16"], USAGE, &["stratum 16", "--stratum"]),
    case(&["--threads", "0"], USAGE, &["--threads"]),
    case(&["--clock-expiry", "5s"], USAGE, &["5000 ms", "200"]),
    case(&["--test-offset", "1"], USAGE, &["--test-offset", "0.0.0.0:123"]),
    case(&["--test-drift", "1", "--listen", "[2a00::1]:123"], USAGE, &["--test-drift", "2a00::1"]),
    case(
        &["--test-drift", "200000000", "--listen", "192.0.2.2:123"],
        USAGE,
        &["200000000 ppb", "--test-drift"],
    ),
    case(
        &["--listen", "192.0.2.2:123", "--status-socket", "/proc/nowhere/x.sock"],
        ENVIRONMENT,
        &["/proc/nowhere/x.sock", "--status-socket"],
    ),
];

/// Values that no option takes, and options that there are not.
const MALFORMED: [Case; 5] = [
    case(&["--refid", "TOOLONG"], USAGE, &["TOOLONG", "--refid"]),
    case(&["--root-delay=-1ms"], USAGE, &["-1ms", "--root-delay"]),
    case(&["--stratum", "first"], USAGE, &["first", "--stratum"]),
    case(&["--listen", "192.0.2.2"], USAGE, &["192.0.2.2", "--listen"]),
    case(&["--no-such-option"], USAGE, &["--no-such-option"]),
];

/// A command to serve in the lab's server host, whose status socket lies in `directory`.
fn serve(lab: &Lab, directory: &TempDir, arguments: &[impl AsRef<OsStr>]) -> Result<Command> {
    let mut command = lab.server().command(binary()?);
    command.args(["serve", "--local"]).args(arguments);
    if !arguments.iter().any(|argument| argument.as_ref() == "--status-socket") {
        command.arg("--status-socket").arg(directory.path().join("status.sock"));
    }
    Ok(command)
}

/// Runs a command to serve, which must leave no file.
fn run(lab: &Lab, arguments: &[&str]) -> Result<Output> {
    let directory = TempDir::new()?;
    let output = run_to_end(&mut serve(lab, &directory, arguments)?, TIMEOUT)?;
    ensure!(directory.path().read_dir()?.next().is_none(), "{arguments:?} left a file");
    Ok(output)
}

/// What cannot be is refused, with nothing left attached.
pub(crate) fn impossible_requests_are_refused() -> Result<()> {
    refused(&CASES)
}

/// A command line that is malformed is refused in one line as well.
pub(crate) fn malformed_command_lines_are_refused() -> Result<()> {
    refused(&MALFORMED)
}

fn refused(cases: &[Case]) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    expect_all(cases, |arguments| run(&lab, arguments))?;
    nothing_is_attached(lab.server())
}

/// A port that is taken is named, by whom it can be found out; the server that has it goes on. So
/// is an interface that has an XDP program already.
pub(crate) fn occupied_ports_and_interfaces_are_named() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let first = Server::start(lab.server(), Engine::Xdp, &[at], &[])?;
    let taken = at.to_string();
    for engine in ["socket", "xdp"] {
        for dispatch in ["per-thread", "shared-lock"] {
            let arguments = ["--engine", engine, "--dispatch", dispatch, "--listen", &taken];
            let named = [&taken, "in use", "ss -ulpn", "--listen"];
            check(&run(&lab, &arguments)?, ENVIRONMENT, &named)?;
        }
    }
    let other = format!("{}:4123", at.ip());
    let arguments = ["--engine", "xdp", "--listen", &other];
    check(&run(&lab, &arguments)?, ENVIRONMENT, &["veth0", "already has an XDP program"])?;
    crate::client::query_from(lab.client(), at)?;
    let answered = first.status()?["xdp_counters"]["answered_ipv4"].as_u64();
    ensure!(answered == Some(1), "the first server answered {answered:?}");
    Ok(())
}

/// An ordinary user is told what a low port and XDP need, and gets the socket engine on a high port
/// with `auto`.
pub(crate) fn missing_privileges_are_named() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let ip = server_address(&lab, false)?.ip();
    // Where that user may run it, which may not be so where it was built.
    let directory = TempDir::new()?;
    let program = directory.path().join("horolog");
    std::fs::copy(binary()?, &program)?;
    let open = |path: &std::path::Path| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
    };
    open(directory.path())?;
    open(&program)?;
    let as_unprivileged = |arguments: &[&str]| {
        let mut command = lab.server().command("setpriv");
        command.args([
            "--reuid",
            UNPRIVILEGED_USER,
            "--regid",
            UNPRIVILEGED_USER,
            "--clear-groups",
            "--",
        ]);
        command
            .arg(&program)
            .args(["serve", "--local"])
            .args(arguments)
            .env_remove("XDG_RUNTIME_DIR");
        run_to_end(&mut command, TIMEOUT)
    };
    let (low, high) = (format!("{ip}:123"), format!("{ip}:4123"));
    let output = as_unprivileged(&["--engine", "xdp", "--listen", &high])?;
    check(&output, ENVIRONMENT, &["BPF", "CAP_BPF", "root"])?;
    let output = as_unprivileged(&["--engine", "socket", "--listen", &low])?;
    check(&output, ENVIRONMENT, &[&low, "CAP_NET_BIND_SERVICE"])?;
    nothing_is_attached(lab.server())
}

/// Asking a server that is not there says where it was looked for.
pub(crate) fn status_without_a_server_is_refused() -> Result<()> {
    let directory = TempDir::new()?;
    let path = directory.path().join("none.sock");
    let mut command = Command::new(binary()?);
    let output = run_to_end(command.args(["status", "--status-socket"]).arg(&path), TIMEOUT)?;
    check(&output, ENVIRONMENT, &[&path.to_string_lossy(), "runs"])
}
