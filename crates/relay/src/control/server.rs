//! Server of the control socket.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use horolog_sys::explain::explain;
use horolog_sys::unix::{UnixResponder, UnixResponderError};

use super::message::{ControlRefusalClass, ControlRequest, ControlResponse, REQUEST_BYTES_MAX};
use crate::Relay;

/// Timeout for a client to send its request, and to read the response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Clients served concurrently; a further one is served by the accepting thread, so that all others
/// wait.
const CONCURRENT_CLIENTS_MAX: usize = 64;
/// Permissions for the owner of the process only.
const MODE: u32 = 0o600;

/// Reason for which there is no control socket.
#[derive(Debug, thiserror::Error)]
pub enum ControlSocketError {
    /// Another relay uses the socket.
    #[error("{0} is the socket of another relay; choose another with --socket")]
    InUse(PathBuf),
    /// The socket could not be created.
    #[error(
        "cannot create the socket {0}: {why}; choose another path with --socket",
        why = explain(.1)
    )]
    Bind(PathBuf, #[source] io::Error),
}

/// Returns the default path of a relay's control socket: `/run/horolog/relay/control.sock` for
/// root, the same below `$XDG_RUNTIME_DIR` for other users; `None` for these if it is not set.
#[must_use]
pub fn default_path() -> Option<PathBuf> {
    let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let directory = if root { Some(PathBuf::from("/run")) } else { runtime };
    directory.map(|directory| directory.join("horolog/relay/control.sock"))
}

/// Thread that serves a control socket until it is dropped.
#[derive(Debug)]
pub struct ControlServer(UnixResponder);

impl ControlServer {
    /// Serves `relay` at `path`, to the owner of the process only; an error if another process
    /// serves that socket, or it cannot be created.
    pub fn start(path: &Path, relay: Arc<Relay>) -> Result<Self, ControlSocketError> {
        let client_count = Arc::new(AtomicUsize::new(0));
        let accept_client = move |stream: UnixStream| {
            let slot = ControlClientPermit::new(&client_count);
            let relay = Arc::clone(&relay);
            // A client that disconnects early gets no response.
            let serve = move || {
                let _slot = slot;
                drop(serve_client(stream, &relay));
            };
            if client_count.load(Ordering::Relaxed) > CONCURRENT_CLIENTS_MAX {
                serve();
            } else {
                // If the system has no room for a thread, the client is disconnected.
                drop(thread::Builder::new().name("asked".into()).spawn(serve));
            }
        };
        let started = UnixResponder::start("control", path.to_owned(), MODE, accept_client);
        started.map(Self).map_err(|error| match error {
            UnixResponderError::InUse => ControlSocketError::InUse(path.to_owned()),
            UnixResponderError::Io(error) => ControlSocketError::Bind(path.to_owned(), error),
        })
    }

    /// Returns true if the thread has ended without a request to do so.
    #[must_use]
    pub fn has_died(&self) -> bool {
        self.0.has_died()
    }
}

/// Slot of a client in the count of connected clients, released on drop.
struct ControlClientPermit(Arc<AtomicUsize>);

impl ControlClientPermit {
    fn new(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(all))
    }
}

impl Drop for ControlClientPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve_client(mut stream: UnixStream, relay: &Relay) -> io::Result<()> {
    let requested = match read_line(&mut stream)? {
        Some(line) => ControlRequest::parse(&line),
        None => {
            Err(format!("a request is limited to {REQUEST_BYTES_MAX} bytes; send less at once"))
        }
    };
    let response = match requested {
        Ok(request) => request.execute(relay),
        Err(reason) => ControlResponse::Refused { reason, class: ControlRefusalClass::Request },
    };
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    stream.write_all(response.to_line().as_bytes())
}

/// Reads to the end of the line; `None` if it is longer than a request may be. Such a line is read
/// to its end too, so that the client proceeds to reading the response.
fn read_line(stream: &mut UnixStream) -> io::Result<Option<Vec<u8>>> {
    let deadline = Instant::now() + CLIENT_TIMEOUT;
    let (mut line, mut buffer) = (Some(Vec::new()), [0; 4_096]);
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(remaining))?;
        let read = stream.read(&mut buffer)?;
        let received = &buffer[..read];
        let end = received.iter().position(|byte| *byte == b'\n');
        if let Some(line) = &mut line {
            line.extend_from_slice(&received[..end.unwrap_or(read)]);
        }
        line = line.filter(|line| line.len() <= REQUEST_BYTES_MAX);
        if end.is_some() || read == 0 {
            return Ok(line);
        }
    }
}
