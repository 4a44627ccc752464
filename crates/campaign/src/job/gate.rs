//! The instant as a job's process sees it. The process is made, loaded and has read its command
//! line before; then it sleeps here, by itself, and goes on at the instant. So what lies between
//! the instant and its first action is a wake-up, and not the loading of a program; and where many
//! wake on few processors, each is through here before any of them begins its work, since all have
//! a real-time priority until then, where it is allowed.
//!
//! A variable says when and by whose order. It counts only for the process that was made with it,
//! not for those which that one makes.

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

use horolog_sys::affinity::{Policy, set_timer_slack_ns, timer_slack_ns};
use horolog_sys::alarm_clock::AlarmClock;

/// Names the variable.
pub(super) const VARIABLE: &str = "HOROLOG_GATE";
/// What is said to whoever made the process: when it went on, UTC in ns since 1970.
pub(super) const PASSED: &str = "PASSED=";
/// As `horolog at` has it: above most that computes, below what the kernel itself has.
const PRIORITY: i32 = 40;

/// What the variable says.
#[derive(Debug, PartialEq, Eq)]
struct Gate {
    /// The process that made this one.
    maker: u32,
    /// The instant, UTC in ns since 1970.
    at_ns: i64,
    /// The socket at which is said when it was passed.
    socket: PathBuf,
}

/// The value of the variable for a process that this one makes.
pub(super) fn value(at_ns: i64, socket: &Path) -> OsString {
    let mut value = OsString::from(format!("{} {at_ns} ", process::id()));
    value.push(socket);
    value
}

impl Gate {
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
        let (usual, slack_ns) = (Policy::current()?, timer_slack_ns()?);
        let rushes = !usual.is_real_time() && Policy::fifo(PRIORITY, false).take().is_ok();
        set_timer_slack_ns(1)?;
        let woken = self.sleep().and_then(|ns| socket.send(format!("{PASSED}{ns}").as_bytes()));
        // In this order: with a real-time priority there is no slack to be set.
        if rushes {
            usual.take()?;
        }
        set_timer_slack_ns(slack_ns)?;
        woken.map(drop)
    }

    /// Until the instant; what the clock shows then.
    fn sleep(&self) -> io::Result<i64> {
        loop {
            let now_ns = AlarmClock::Realtime.now_ns();
            if now_ns >= self.at_ns {
                return Ok(now_ns);
            }
            AlarmClock::Realtime.sleep_until_ns(self.at_ns)?;
        }
    }
}

/// A socket's address has room for about a hundred bytes, and a directory's path may be longer; the
/// name of its descriptor is not.
pub(super) fn short(directory: &File, name: &OsStr) -> PathBuf {
    Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name)
}

fn connected(path: &Path) -> io::Result<UnixDatagram> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect(short(&File::open(directory)?, name))?;
    // Whoever does not listen delays nothing.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Waits for the instant, where this process was made as a campaign's job; else it is through at
/// once.
///
/// # Errors
///
/// Whoever made it cannot be told, or the system does not let it sleep.
pub fn pass() -> io::Result<()> {
    let gate = env::var_os(VARIABLE).and_then(|value| Gate::parse(&value));
    gate.filter(|gate| gate.maker == parent_id()).map_or(Ok(()), |gate| gate.wait())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read_as_it_was() {
        let socket = Path::new("/a b/notify");
        let read = Gate::parse(&value(-5, socket)).unwrap();
        assert_eq!(read, Gate { maker: process::id(), at_ns: -5, socket: socket.to_owned() });
        for wrong in ["", "1", "1 2", "x 2 /a", "1 x /a"] {
            assert_eq!(Gate::parse(OsStr::new(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn the_instant_is_waited_for_and_told_however_long_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("d".repeat(200));
        std::fs::create_dir(&deep).unwrap();
        let heard =
            UnixDatagram::bind(short(&File::open(&deep).unwrap(), OsStr::new("s"))).unwrap();
        let before = (Policy::current().unwrap(), timer_slack_ns().unwrap());
        let at_ns = AlarmClock::Realtime.now_ns() + 20_000_000;
        Gate { maker: 0, at_ns, socket: deep.join("s") }.wait().unwrap();
        let mut said = [0; 64];
        let length = heard.recv(&mut said).unwrap();
        let text = std::str::from_utf8(&said[..length]).unwrap();
        let passed_ns: i64 = text.strip_prefix(PASSED).unwrap().parse().unwrap();
        assert!((at_ns..=AlarmClock::Realtime.now_ns()).contains(&passed_ns), "{text}");
        assert_eq!((Policy::current().unwrap(), timer_slack_ns().unwrap()), before);
    }
}
