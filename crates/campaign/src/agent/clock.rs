//! How far this machine's clock is off, as far as that is known here: by the kernel's own
//! statement, which whoever disciplines the clock keeps (chronyd with `rtcsync`, timesyncd, ntpd,
//! ptp4l's phc2sys), or by asking a time server. It never sets a clock.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::QueryResult;
use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::namespace::die_with_parent;

use crate::order::ClockState;

/// How long asking a server may take.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Exchanges with a server; the quickest one counts.
const EXCHANGES: &str = "5";
const KERNEL: &str = "kernel";

/// What is known. Without a server it is what the kernel says, if somebody disciplines its clock.
#[must_use]
pub(super) fn look(program: &Path, server: Option<&str>) -> Option<ClockState> {
    match server {
        Some(server) => of_result(&ask(program, server).ok()?, server),
        None => of_kernel(),
    }
}

fn of_kernel() -> Option<ClockState> {
    let clock = kernel_clock().ok().filter(|clock| clock.synchronised)?;
    let error_ns = u64::try_from(clock.maximum_error.as_ns()).ok()?;
    Some(ClockState { offset_ns: 0, error_ns, source: KERNEL.to_owned() })
}

/// Asks by `horolog query`, a process of its own as every measurement.
fn ask(program: &Path, server: &str) -> io::Result<QueryResult> {
    let report = tempfile::NamedTempFile::new()?;
    let mut command = Command::new(program);
    command.args(["query", "--count", EXCHANGES, "--json"]).arg(report.path());
    // A name that begins with a hyphen is no option.
    command.args(["--", server]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = die_with_parent(&mut command).spawn()?;
    let started = Instant::now();
    while child.try_wait()?.is_none() {
        if started.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(serde_json::from_slice(&std::fs::read(report.path())?)?)
}

/// A server that is ahead of this clock says that this clock is behind.
fn of_result(result: &QueryResult, server: &str) -> Option<ClockState> {
    let best = result.servers.first()?.best.as_ref()?;
    let offset_ns = best.offset_ns.checked_neg()?;
    Some(ClockState { offset_ns, error_ns: best.bound_ns, source: server.to_owned() })
}
