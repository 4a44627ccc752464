//! Start gate in the process of a job. The process is loaded and parses its command line before the
//! start time, then sleeps here until the start time, so that the start latency contains only a
//! wake-up. Processes that wait here have a real-time priority, if permitted: if many of them wake
//! on few CPUs, all pass the gate before any begins its work.
//!
//! An environment variable holds the start time, the notification socket and the process ID of the
//! creator. The children of the process ignore the variable, because they have another parent.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process;

use horolog_sys::affinity::{SchedulingParameters, set_timer_slack_ns, timer_slack_ns};
use horolog_sys::alarm_clock::SleepClock;

/// Environment variable of the start gate: process ID of the creator, start time (UTC, in ns since
/// 1970) and path of the notification socket.
pub(super) const START_GATE_VARIABLE: &str = "HOROLOG_GATE";
/// Prefix of the notification to the creator: actual start time, UTC in ns since 1970.
pub(super) const STARTED: &str = "PASSED=";
/// `SCHED_FIFO` priority while waiting, as in `horolog at`: above most real-time tasks, below the
/// kernel's own threads.
const PRIORITY: i32 = 40;

/// Parameters of the start gate of one process: the parsed value of [`START_GATE_VARIABLE`].
#[derive(Debug, PartialEq, Eq)]
struct StartGateParameters {
    /// Process that created this one.
    creator_pid: u32,
    /// Start time, UTC in ns since 1970.
    at_ns: i64,
    /// Socket for the notification of the actual start time.
    socket: PathBuf,
}

/// Returns the value of the variable for a child of this process.
pub(super) fn variable_value(at_ns: i64, socket: &Path) -> OsString {
    let mut value = OsString::from(format!("{} {at_ns} ", process::id()));
    value.push(socket);
    value
}

impl StartGateParameters {
    fn parse(value: &OsStr) -> Option<Self> {
        let mut words = value.as_bytes().splitn(3, |byte| *byte == b' ');
        let mut next = || words.next();
        let (creator_pid, at_ns, socket) = (next()?, next()?, next()?);
        let number = |word| std::str::from_utf8(word).ok();
        Some(Self {
            creator_pid: number(creator_pid)?.parse().ok()?,
            at_ns: number(at_ns)?.parse().ok()?,
            socket: OsStr::from_bytes(socket).into(),
        })
    }

    fn wait(&self) -> io::Result<()> {
        let socket = connect_to(&self.socket)?;
        let (initial_scheduling, slack_ns) = (SchedulingParameters::current()?, timer_slack_ns()?);
        let is_priority_raised = !initial_scheduling.is_real_time()
            && SchedulingParameters::fifo(PRIORITY, false).apply().is_ok();
        set_timer_slack_ns(1)?;
        let woken = self.sleep().and_then(|ns| socket.send(format!("{STARTED}{ns}").as_bytes()));
        // In this order: timer slack cannot be set under a real-time priority.
        if is_priority_raised {
            initial_scheduling.apply()?;
        }
        set_timer_slack_ns(slack_ns)?;
        woken.map(drop)
    }

    /// Sleeps until the start time. Returns the clock reading after it.
    fn sleep(&self) -> io::Result<i64> {
        loop {
            let now_ns = SleepClock::Realtime.now_ns();
            if now_ns >= self.at_ns {
                return Ok(now_ns);
            }
            SleepClock::Realtime.sleep_until_ns(self.at_ns)?;
        }
    }
}

/// Returns the path of `name` in a directory by way of the directory's file descriptor: the path of
/// a Unix socket is limited to 107 bytes (unix(7)), and that of the directory may be longer.
pub(super) fn short_socket_path(directory: &File, name: &OsStr) -> PathBuf {
    Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name)
}

fn connect_to(path: &Path) -> io::Result<UnixDatagram> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect(short_socket_path(&File::open(directory)?, name))?;
    // The notification must not block if the creator does not read the socket.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Waits for the start time if this process was created as a campaign's job; otherwise returns at
/// once.
///
/// # Errors
///
/// The creator cannot be notified, or a system call for scheduling or sleep fails.
pub fn wait_for_start() -> io::Result<()> {
    let gate =
        env::var_os(START_GATE_VARIABLE).and_then(|value| StartGateParameters::parse(&value));
    gate.filter(|gate| gate.creator_pid == parent_id()).map_or(Ok(()), |gate| gate.wait())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_round_trips() {
        let socket = Path::new("/a b/notify");
        let read = StartGateParameters::parse(&variable_value(-5, socket)).unwrap();
        assert_eq!(
            read,
            StartGateParameters {
                creator_pid: process::id(),
                at_ns: -5,
                socket: socket.to_owned()
            }
        );
        for wrong in ["", "1", "1 2", "x 2 /a", "1 x /a"] {
            assert_eq!(StartGateParameters::parse(OsStr::new(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn the_start_time_is_awaited_and_reported_however_long_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("d".repeat(200));
        std::fs::create_dir(&deep).unwrap();
        let listener =
            UnixDatagram::bind(short_socket_path(&File::open(&deep).unwrap(), OsStr::new("s")))
                .unwrap();
        let before = (SchedulingParameters::current().unwrap(), timer_slack_ns().unwrap());
        let at_ns = SleepClock::Realtime.now_ns() + 20_000_000;
        StartGateParameters { creator_pid: 0, at_ns, socket: deep.join("s") }.wait().unwrap();
        let mut bytes = [0; 64];
        let length = listener.recv(&mut bytes).unwrap();
        let text = std::str::from_utf8(&bytes[..length]).unwrap();
        let passed_ns: i64 = text.strip_prefix(STARTED).unwrap().parse().unwrap();
        assert!((at_ns..=SleepClock::Realtime.now_ns()).contains(&passed_ns), "{text}");
        assert_eq!((SchedulingParameters::current().unwrap(), timer_slack_ns().unwrap()), before);
    }
}
