//! Notifications from a process to its creator, by datagrams on a Unix socket: readiness of a
//! service, as for systemd (`NOTIFY_SOCKET`, `sd_notify(3)`), and the actual start time of a
//! measurement. Other messages are ignored.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::Instant;

use super::start_gate::{STARTED, short_socket_path};
use crate::id::JobId;

/// Environment variable with the path of the socket.
pub(super) const NOTIFY_VARIABLE: &str = "NOTIFY_SOCKET";
/// Largest size of a message, in bytes.
const BYTES_MAX: usize = 4_096;
/// Name of the socket in its directory.
const SOCKET_NAME: &str = "notify";

/// Service, and `Ok` if it is ready or the reason why it is not.
pub(super) type ServiceReadiness = (JobId, Result<(), String>);

/// Channel by which the supervisor of a service reports its readiness, and the deadline for it.
#[derive(Clone, Debug)]
pub(super) struct ServiceReadinessSender {
    pub(super) sender: Sender<ServiceReadiness>,
    pub(super) deadline: Instant,
}

/// Socket that receives the notifications of a process.
#[derive(Debug)]
pub(super) struct NotifySocket {
    socket: UnixDatagram,
    path: PathBuf,
}

/// Notification of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProcessNotification {
    /// The service is ready.
    Ready,
    /// The measurement began at this time: UTC, in ns since 1970.
    Started(i64),
}

impl ProcessNotification {
    fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        match line.strip_prefix(STARTED) {
            Some(number) => number.parse().ok().map(Self::Started),
            None => (line == "READY=1").then_some(Self::Ready),
        }
    }
}

impl NotifySocket {
    /// Opens the socket in a directory.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let path = directory.join(SOCKET_NAME);
        let socket = UnixDatagram::bind(short_socket_path(
            &File::open(directory)?,
            OsStr::new(SOCKET_NAME),
        ))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the next notification received so far.
    pub(super) fn receive(&self) -> Option<ProcessNotification> {
        let mut bytes = [0; BYTES_MAX];
        while let Ok(length) = self.socket.recv(&mut bytes) {
            let mut lines = bytes[..length].split(|byte| *byte == b'\n');
            let notification = lines.find_map(ProcessNotification::parse);
            if notification.is_some() {
                return notification;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_notifications_are_received() {
        let directory = tempfile::tempdir().unwrap();
        let listener = NotifySocket::open(directory.path()).unwrap();
        assert_eq!(listener.receive(), None);
        let service = UnixDatagram::unbound().unwrap();
        let send = |text: &str| service.send_to(text.as_bytes(), listener.path()).unwrap();
        send("STATUS=READY=1 soon");
        send("PASSED=now");
        assert_eq!(listener.receive(), None);
        send("STATUS=up\nREADY=1\n");
        send("PASSED=-7");
        assert_eq!(listener.receive(), Some(ProcessNotification::Ready));
        assert_eq!(listener.receive(), Some(ProcessNotification::Started(-7)));
    }
}
