//! Start gate in the process of a job. The process is created, loaded and has parsed its command
//! line beforehand; then it sleeps here, by itself, and continues at the start time. So only a
//! wake-up lies between the start time and its first action, not the loading of a program. If many
//! processes wake on few CPUs, each passes this gate before any of them begins its work, since all
//! have a real-time priority until then, if permitted.
//!
//! An environment variable names the time and the creator. It applies only to the process created
//! with it, not to that process's own children.

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

/// Name of the environment variable.
pub(super) const VARIABLE: &str = "HOROLOG_GATE";
/// Prefix of the notification to the creator: actual start time, UTC in ns since 1970.
pub(super) const STARTED: &str = "PASSED=";
/// Priority as in `horolog at`: above most computing tasks, below the kernel's own threads.
const PRIORITY: i32 = 40;

/// Contents of the variable.
#[derive(Debug, PartialEq, Eq)]
struct StartGateVariable {
    /// Process that created this one.
    maker: u32,
    /// Start time, UTC in ns since 1970.
    at_ns: i64,
    /// Socket for the notification of the actual start time.
    socket: PathBuf,
}

/// Returns the value of the variable for a child of this process.
pub(super) fn value(at_ns: i64, socket: &Path) -> OsString {
    let mut value = OsString::from(format!("{} {at_ns} ", process::id()));
    value.push(socket);
    value
}

impl StartGateVariable {
    fn parse(value: &OsStr) -> Option<Self> {
        let mut words = value.as_bytes().splitn(3, |byte| *byte == b' ');
        let mut next = || words.next();
        let (maker, at_ns, socket) = (next()?, next()?, next()?);
        let number = |word| std::str::from_utf8(word).ok();
        Some(Self {
            maker: number(maker)?.parse().ok()?,
            at_ns: number(at_ns)?.parse().ok()?,
            socket: OsStr::from_bytes(socket).into(),
        })
    }

    fn wait(&self) -> io::Result<()> {
        let socket = connected(&self.socket)?;
        let (usual, slack_ns) = (SchedulingParameters::current()?, timer_slack_ns()?);
        let rushes =
            !usual.is_real_time() && SchedulingParameters::fifo(PRIORITY, false).apply().is_ok();
        set_timer_slack_ns(1)?;
        let woken = self.sleep().and_then(|ns| socket.send(format!("{STARTED}{ns}").as_bytes()));
        // In this order: timer slack cannot be set under a real-time priority.
        if rushes {
            usual.apply()?;
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

/// Returns a short path by the descriptor of the directory: the address of a socket is limited to
/// about a hundred bytes, and the path of a directory may be longer.
pub(super) fn short(directory: &File, name: &OsStr) -> PathBuf {
    Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name)
}

fn connected(path: &Path) -> io::Result<UnixDatagram> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect(short(&File::open(directory)?, name))?;
    // A creator that does not read causes no delay.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Waits for the start time if this process was created as a campaign's job; otherwise returns at
/// once.
///
/// # Errors
///
/// The creator cannot be notified, or the system does not let the process sleep.
pub fn wait_for_start() -> io::Result<()> {
    let gate = env::var_os(VARIABLE).and_then(|value| StartGateVariable::parse(&value));
    gate.filter(|gate| gate.maker == parent_id()).map_or(Ok(()), |gate| gate.wait())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_round_trips() {
        let socket = Path::new("/a b/notify");
        let read = StartGateVariable::parse(&value(-5, socket)).unwrap();
        assert_eq!(
            read,
            StartGateVariable { maker: process::id(), at_ns: -5, socket: socket.to_owned() }
        );
        for wrong in ["", "1", "1 2", "x 2 /a", "1 x /a"] {
            assert_eq!(StartGateVariable::parse(OsStr::new(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn the_start_time_is_awaited_and_reported_however_long_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("d".repeat(200));
        std::fs::create_dir(&deep).unwrap();
        let listener =
            UnixDatagram::bind(short(&File::open(&deep).unwrap(), OsStr::new("s"))).unwrap();
        let before = (SchedulingParameters::current().unwrap(), timer_slack_ns().unwrap());
        let at_ns = SleepClock::Realtime.now_ns() + 20_000_000;
        StartGateVariable { maker: 0, at_ns, socket: deep.join("s") }.wait().unwrap();
        let mut bytes = [0; 64];
        let length = listener.recv(&mut bytes).unwrap();
        let text = std::str::from_utf8(&bytes[..length]).unwrap();
        let passed_ns: i64 = text.strip_prefix(STARTED).unwrap().parse().unwrap();
        assert!((at_ns..=SleepClock::Realtime.now_ns()).contains(&passed_ns), "{text}");
        assert_eq!((SchedulingParameters::current().unwrap(), timer_slack_ns().unwrap()), before);
    }
}
