//! Scenarios of commands with invalid arguments: each ends at once with the right exit status and
//! one line on the cause and the remedy, and leaves nothing behind.

use std::ffi::OsStr;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Result, ensure};
use horolog_lab::{Lab, LabConfig};
use tempfile::TempDir;

use crate::isolation::check_nothing_attached;
use crate::process::{Engine, Server, binary, run_to_end, server_address};
use crate::usage_error::{ENVIRONMENT, RefusalCase, USAGE, case, check_all_refused, check_refusal};

const TIMEOUT: Duration = Duration::from_secs(5);
/// Number of a user without privileges on every system.
const UNPRIVILEGED_USER: &str = "65534";

/// Requests that are impossible on a server whose own address is 192.0.2.2.
const CASES: [RefusalCase; 16] = [
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

/// Values that no option accepts, and an unknown option.
const MALFORMED: [RefusalCase; 5] = [
    case(&["--refid", "TOOLONG"], USAGE, &["TOOLONG", "--refid"]),
    case(&["--root-delay=-1ms"], USAGE, &["-1ms", "--root-delay"]),
    case(&["--stratum", "first"], USAGE, &["first", "--stratum"]),
    case(&["--listen", "192.0.2.2"], USAGE, &["192.0.2.2", "--listen"]),
    case(&["--no-such-option"], USAGE, &["--no-such-option"]),
];

/// Returns a command that serves on the lab's server host, with its status socket in `directory`.
fn serve_command(
    lab: &Lab,
    directory: &TempDir,
    arguments: &[impl AsRef<OsStr>],
) -> Result<Command> {
    let mut command = lab.server().command(binary()?);
    command.args(["serve", "--local"]).args(arguments);
    if !arguments.iter().any(|argument| argument.as_ref() == "--status-socket") {
        command.arg("--status-socket").arg(directory.path().join("status.sock"));
    }
    Ok(command)
}

/// Runs `horolog serve`, which must leave no file.
fn run(lab: &Lab, arguments: &[&str]) -> Result<Output> {
    let directory = TempDir::new()?;
    let output = run_to_end(&mut serve_command(lab, &directory, arguments)?, TIMEOUT)?;
    ensure!(directory.path().read_dir()?.next().is_none(), "{arguments:?} left a file");
    Ok(output)
}

/// Impossible requests are refused, and no XDP program stays attached.
pub(crate) fn impossible_requests_are_refused() -> Result<()> {
    check_cases(&CASES)
}

/// Malformed command lines are refused in one line.
pub(crate) fn malformed_command_lines_are_refused() -> Result<()> {
    check_cases(&MALFORMED)
}

fn check_cases(cases: &[RefusalCase]) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    check_all_refused(cases, |arguments| run(&lab, arguments))?;
    check_nothing_attached(lab.server())
}

/// The error for a port in use contains a command that finds its owner, whose server continues. An
/// interface that already has an XDP program is named.
pub(crate) fn occupied_ports_and_interfaces_are_named() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let first = Server::start(lab.server(), Engine::Xdp, &[at], &[])?;
    let taken = at.to_string();
    for engine in ["socket", "xdp"] {
        for dispatch in ["per-thread", "shared-lock"] {
            let arguments = ["--engine", engine, "--dispatch", dispatch, "--listen", &taken];
            let named = [&taken, "in use", "ss -ulpn", "--listen"];
            check_refusal(&run(&lab, &arguments)?, ENVIRONMENT, &named)?;
        }
    }
    let other = format!("{}:4123", at.ip());
    let arguments = ["--engine", "xdp", "--listen", &other];
    check_refusal(&run(&lab, &arguments)?, ENVIRONMENT, &["veth0", "already has an XDP program"])?;
    crate::client::query_from(lab.client(), at)?;
    let answered = first.status()?["xdp_counters"]["answered_ipv4"].as_u64();
    ensure!(answered == Some(1), "the first server sent {answered:?} replies");
    Ok(())
}

/// The errors of an unprivileged user name what XDP and a low port require.
pub(crate) fn missing_privileges_are_named() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let ip = server_address(&lab, false)?.ip();
    // The user may have no access to the built program, hence a copy.
    let directory = TempDir::new()?;
    let program = directory.path().join("horolog");
    std::fs::copy(binary()?, &program)?;
    let make_accessible = |path: &std::path::Path| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
    };
    make_accessible(directory.path())?;
    make_accessible(&program)?;
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
    check_refusal(&output, ENVIRONMENT, &["BPF", "CAP_BPF", "root"])?;
    let output = as_unprivileged(&["--engine", "socket", "--listen", &low])?;
    check_refusal(&output, ENVIRONMENT, &[&low, "CAP_NET_BIND_SERVICE"])?;
    check_nothing_attached(lab.server())
}

/// Without a server, the error of `horolog status` contains the path of the socket.
pub(crate) fn status_without_a_server_is_refused() -> Result<()> {
    let directory = TempDir::new()?;
    let path = directory.path().join("none.sock");
    let mut command = Command::new(binary()?);
    let output = run_to_end(command.args(["status", "--status-socket"]).arg(&path), TIMEOUT)?;
    check_refusal(&output, ENVIRONMENT, &[&path.to_string_lossy(), "runs"])
}
