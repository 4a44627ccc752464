//! Offset and error bound of this host's clock: read from the kernel, where the daemon that
//! disciplines the clock maintains them (chronyd with `rtcsync`, timesyncd, ntpd, ptp4l's phc2sys),
//! or measured against a time server. No clock is set.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::QueryResult;
use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::namespace::die_with_parent;

use crate::order::AgentClockOffset;

/// Timeout of a query to a server.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Number of exchanges with a server; the one with the shortest round trip counts.
const EXCHANGES: &str = "5";
const KERNEL: &str = "kernel";

/// Returns the clock state measured against `server` or, without one, the kernel's. `None` if the
/// query fails or the kernel's clock is not synchronised.
#[must_use]
pub(super) fn clock_state(program: &Path, server: Option<&str>) -> Option<AgentClockOffset> {
    match server {
        Some(server) => state_from_query(&query_server(program, server).ok()?, server),
        None => state_from_kernel(),
    }
}

fn state_from_kernel() -> Option<AgentClockOffset> {
    let clock = kernel_clock().ok().filter(|clock| clock.synchronised)?;
    let error_ns = u64::try_from(clock.maximum_error.as_ns()).ok()?;
    Some(AgentClockOffset { offset_ns: 0, error_ns, source: KERNEL.to_owned() })
}

/// Queries a server by a `horolog query` process.
fn query_server(program: &Path, server: &str) -> io::Result<QueryResult> {
    let report = tempfile::NamedTempFile::new()?;
    let mut command = Command::new(program);
    command.args(["query", "--count", EXCHANGES, "--json"]).arg(report.path());
    // A name that begins with a hyphen must not become an option.
    command.args(["--", server]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = die_with_parent(&mut command).spawn()?;
    let started = Instant::now();
    while child.try_wait()?.is_none() {
        if started.elapsed() > QUERY_TIMEOUT {
            child.kill()?;
            child.wait()?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(serde_json::from_slice(&std::fs::read(report.path())?)?)
}

/// Converts a query result. The sign is inverted: `QueryResult` holds the server's offset from this
/// clock, the clock state this clock's offset from the server.
fn state_from_query(result: &QueryResult, server: &str) -> Option<AgentClockOffset> {
    let best = result.servers.first()?.best.as_ref()?;
    let offset_ns = best.offset_ns.checked_neg()?;
    Some(AgentClockOffset { offset_ns, error_ns: best.bound_ns, source: server.to_owned() })
}
