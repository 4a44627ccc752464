//! Thread that responds at a Unix stream socket, one connection after the other. The protocol is up
//! to its owner.

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

/// Wait for the next connection; nothing happens in between.
const IDLE: Duration = Duration::from_hours(1);
/// Tokens of the events that the thread waits for.
const INCOMING: u64 = 0;
const STOPPED: u64 = 1;

/// Reason for which a responder could not start.
#[derive(Debug, thiserror::Error)]
pub enum UnixResponderError {
    /// Another process responds there.
    #[error("another program answers there")]
    InUse,
    /// The socket could not be created.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Thread that responds at a socket until it is dropped, which removes the socket.
#[derive(Debug)]
pub struct UnixResponder {
    path: PathBuf,
    /// Closing it stops the thread.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl UnixResponder {
    /// Creates a socket at `path`, its directory too, and passes each connection to `answer`, in a
    /// thread of this name. Clients are restricted by `mode`, less the process's mask. A socket
    /// that a killed process left there is replaced.
    pub fn start(
        name: &str,
        path: PathBuf,
        mode: u32,
        answer: impl Fn(UnixStream) + Send + 'static,
    ) -> Result<Self, UnixResponderError> {
        let listener = bind(&path, mode)?;
        let (alive, closed) = UnixStream::pair()?;
        // A client that hung up again must not keep the thread in its accept call.
        listener.set_nonblocking(true)?;
        let mut events = Epoll::new(2)?;
        events.add(listener.as_fd(), INCOMING)?;
        events.add(closed.as_fd(), STOPPED)?;
        let serve = move || {
            let _closed = closed;
            let mut stopped =
                move || events.wait(IDLE).map(|mut tokens| tokens.any(|token| token == STOPPED));
            while let Ok(false) = stopped() {
                if let Ok((stream, _)) = listener.accept()
                    && stream.set_nonblocking(false).is_ok()
                {
                    answer(stream);
                }
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(serve)?;
        Ok(Self { path, alive: Some(alive), thread: Some(thread) })
    }

    /// Returns true if the thread has ended without being stopped.
    #[must_use]
    pub fn has_died(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl Drop for UnixResponder {
    fn drop(&mut self) {
        drop(self.alive.take());
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

fn bind(path: &Path, mode: u32) -> Result<UnixListener, UnixResponderError> {
    make_directory(path)?;
    match listen(path, mode) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
        bound => return Ok(bound?),
    }
    match UnixStream::connect(path) {
        // Left by a process that was killed.
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
