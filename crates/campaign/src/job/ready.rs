//! What a process says to whoever made it: a service that it is ready, as services of systemd do,
//! by a datagram to the socket that `NOTIFY_SOCKET` names (`sd_notify(3)`); a measurement when it
//! passed its instant. Nothing else that is said there matters here.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::Instant;

use super::gate::{PASSED, short};
use crate::id::JobId;

/// The variable that names the socket.
pub(super) const VARIABLE: &str = "NOTIFY_SOCKET";
/// More than a service has to say at a time.
const BYTES_MAX: usize = 4_096;
/// What the socket is called in its directory.
const NAME: &str = "notify";

/// Whether a service is ready, or why it is not.
pub(super) type Readied = (JobId, Result<(), String>);

/// Who waits for a service, and how long.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) to: Sender<Readied>,
    pub(super) until: Instant,
}

/// The socket at which a process is heard.
#[derive(Debug)]
pub(super) struct Listener {
    socket: UnixDatagram,
    path: PathBuf,
}

/// What a process has said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Said {
    /// It is ready.
    Ready,
    /// It went on at its instant, then: UTC, in ns since 1970.
    Passed(i64),
}

impl Said {
    fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        match line.strip_prefix(PASSED) {
            Some(number) => number.parse().ok().map(Self::Passed),
            None => (line == "READY=1").then_some(Self::Ready),
        }
    }
}

impl Listener {
    /// Opens it in a directory.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let path = directory.join(NAME);
        let socket = UnixDatagram::bind(short(&File::open(directory)?, OsStr::new(NAME)))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The next thing that it has said by now.
    pub(super) fn hear(&self) -> Option<Said> {
        let mut bytes = [0; BYTES_MAX];
        while let Ok(length) = self.socket.recv(&mut bytes) {
            let mut lines = bytes[..length].split(|byte| *byte == b'\n');
            let said = lines.find_map(Said::parse);
            if said.is_some() {
                return said;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_heard() {
        let directory = tempfile::tempdir().unwrap();
        let listener = Listener::open(directory.path()).unwrap();
        assert_eq!(listener.hear(), None);
        let service = UnixDatagram::unbound().unwrap();
        let say = |text: &str| service.send_to(text.as_bytes(), listener.path()).unwrap();
        say("STATUS=READY=1 soon");
        say("PASSED=now");
        assert_eq!(listener.hear(), None);
        say("STATUS=up\nREADY=1\n");
        say("PASSED=-7");
        assert_eq!(listener.hear(), Some(Said::Ready));
        assert_eq!(listener.hear(), Some(Said::Passed(-7)));
    }
}
