//! Thread that serves a Unix stream socket, one connection after another. The protocol is defined
//! by the caller.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::listen;
use crate::epoll::Epoll;

/// Timeout of the wait for a connection, after which the wait is repeated.
const IDLE_TIMEOUT: Duration = Duration::from_hours(1);
/// Epoll tokens of a new connection and of the stop request.
const CONNECTION_TOKEN: u64 = 0;
const STOP_TOKEN: u64 = 1;

/// Reason for which a responder could not start.
#[derive(Debug, thiserror::Error)]
pub enum UnixResponderError {
    /// Another process serves this socket.
    #[error("another program answers there")]
    InUse,
    /// The socket could not be created.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Thread that serves a socket; dropping it stops the thread and removes the socket.
#[derive(Debug)]
pub struct UnixResponder {
    path: PathBuf,
    /// Dropped to stop the thread.
    stop_sender: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl UnixResponder {
    /// Creates a socket at `path`, with its directory if necessary, and passes each connection to
    /// `respond` in a thread named `name`. Access is restricted by `mode`, less the process's
    /// umask. A stale socket of a killed process is replaced.
    pub fn start(
        name: &str,
        path: PathBuf,
        mode: u32,
        respond: impl Fn(UnixStream) + Send + 'static,
    ) -> Result<Self, UnixResponderError> {
        let listener = bind_replacing(&path, mode)?;
        let (alive, closed) = UnixStream::pair()?;
        // A client that has already disconnected must not block the thread in accept.
        listener.set_nonblocking(true)?;
        let mut events = Epoll::new(2)?;
        events.add(listener.as_fd(), CONNECTION_TOKEN)?;
        events.add(closed.as_fd(), STOP_TOKEN)?;
        let serve = move || {
            let _closed = closed;
            let mut stopped = move || {
                events.wait(IDLE_TIMEOUT).map(|mut tokens| tokens.any(|token| token == STOP_TOKEN))
            };
            while let Ok(false) = stopped() {
                if let Ok((stream, _)) = listener.accept()
                    && stream.set_nonblocking(false).is_ok()
                {
                    respond(stream);
                }
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(serve)?;
        Ok(Self { path, stop_sender: Some(alive), thread: Some(thread) })
    }

    /// Returns true if the thread has ended without being stopped.
    #[must_use]
    pub fn has_died(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl Drop for UnixResponder {
    fn drop(&mut self) {
        drop(self.stop_sender.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been reported on stderr.
            let _ = thread.join();
        }
        // A file that is already gone is no error.
        let _ = fs::remove_file(&self.path);
    }
}

/// Creates the directory of a socket at `path`.
pub fn make_directory(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

fn bind_replacing(path: &Path, mode: u32) -> Result<UnixListener, UnixResponderError> {
    make_directory(path)?;
    match listen(path, mode) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
        bound => return Ok(bound?),
    }
    match UnixStream::connect(path) {
        // Stale socket of a killed process.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let is_socket =
                fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
            if !is_socket {
                return Err(io::Error::from(io::ErrorKind::AlreadyExists).into());
            }
            fs::remove_file(path)?;
            Ok(listen(path, mode)?)
        }
        _ => Err(UnixResponderError::InUse),
    }
}
