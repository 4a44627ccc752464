//! The relay's end of the control socket.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use horolog_sys::unix::{Answerer, AnswererError};

use super::message::{Answer, Fault, REQUEST_BYTES_MAX, Request};
use crate::Relay;

/// How long somebody may take to ask, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Askers that are answered at the same time; one more waits.
const ASKERS_MAX: usize = 64;
/// The owner of the process alone may ask.
const MODE: u32 = 0o600;

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Another relay answers there.
    #[error("{0} is the socket of another relay; choose another with --socket")]
    InUse(PathBuf),
    /// The socket could not be made.
    #[error("cannot make the socket {0}: {1}; choose another path with --socket")]
    Bind(PathBuf, #[source] io::Error),
}

/// Where a relay's control socket is unless one is named: `/run/horolog/relay/control.sock` for
/// root, the same below `$XDG_RUNTIME_DIR` for others, who have none when that is not set.
#[must_use]
pub fn default_path() -> Option<PathBuf> {
    let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let directory = if root { Some(PathBuf::from("/run")) } else { runtime };
    directory.map(|directory| directory.join("horolog/relay/control.sock"))
}

/// A thread that answers at a control socket until it is dropped.
#[derive(Debug)]
pub struct Control(Answerer);

impl Control {
    /// Answers at `path` for `relay`; the owner of the process alone may ask.
    pub fn start(path: &Path, relay: Arc<Relay>) -> Result<Self, ControlError> {
        let asking = Arc::new(AtomicUsize::new(0));
        let answer = move |stream: UnixStream| {
            let asker = Asker::new(&asking);
            let relay = Arc::clone(&relay);
            // Whoever hangs up before the answer gets none.
            let converse = move || {
                let _asker = asker;
                drop(converse(stream, &relay));
            };
            if asking.load(Ordering::Relaxed) > ASKERS_MAX {
                converse();
            } else {
                // Where the system has no room for a thread, who asks is hung up on.
                drop(thread::Builder::new().name("asked".into()).spawn(converse));
            }
        };
        let started = Answerer::start("control", path.to_owned(), MODE, answer);
        started.map(Self).map_err(|error| match error {
            AnswererError::InUse => ControlError::InUse(path.to_owned()),
            AnswererError::Io(error) => ControlError::Bind(path.to_owned(), error),
        })
    }

    /// Whether the thread has ended without being told to.
    #[must_use]
    pub fn has_died(&self) -> bool {
        self.0.has_died()
    }
}

/// One who asks, among those that are counted.
struct Asker(Arc<AtomicUsize>);

impl Asker {
    fn new(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(all))
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn converse(mut stream: UnixStream, relay: &Relay) -> io::Result<()> {
    let requested = match read_line(&mut stream)? {
        Some(line) => Request::parse(&line),
        None => Err(format!("a request may have {REQUEST_BYTES_MAX} bytes; ask for less at once")),
    };
    let answer = match requested {
        Ok(request) => request.carry_out(relay),
        Err(reason) => Answer::Refused { reason, fault: Fault::Request },
    };
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(answer.to_line().as_bytes())
}

/// Reads to the end of the line; `None` where it is longer than a request may be. Such a one is
/// read to its end too, so that who writes it comes to reading the answer.
fn read_line(stream: &mut UnixStream) -> io::Result<Option<Vec<u8>>> {
    let deadline = Instant::now() + PATIENCE;
    let (mut line, mut buffer) = (Some(Vec::new()), [0; 4_096]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let read = stream.read(&mut buffer)?;
        let came = &buffer[..read];
        let end = came.iter().position(|byte| *byte == b'\n');
        if let Some(line) = &mut line {
            line.extend_from_slice(&came[..end.unwrap_or(read)]);
        }
        line = line.filter(|line| line.len() <= REQUEST_BYTES_MAX);
        if end.is_some() || read == 0 {
            return Ok(line);
        }
    }
}
