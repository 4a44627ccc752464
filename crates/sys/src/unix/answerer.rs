//! A thread that answers at a Unix stream socket, one connection after the other. What is said
//! there is its owner's business.

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

/// How long to wait for the next connection; nothing happens in between.
const IDLE: Duration = Duration::from_hours(1);
/// Tokens of what the thread waits for.
const ASKED: u64 = 0;
const STOPPED: u64 = 1;

/// Why nobody answers at a socket.
#[derive(Debug, thiserror::Error)]
pub enum AnswererError {
    /// Somebody else answers there.
    #[error("somebody else answers there")]
    InUse,
    /// It could not be made.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A thread that answers at a socket until it is dropped, which removes the socket.
#[derive(Debug)]
pub struct Answerer {
    path: PathBuf,
    /// Closing it stops the thread.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Answerer {
    /// Makes a socket at `path`, its directory too, and hands each connection to `answer`, in a
    /// thread of this name. Who may connect, `mode` says, less what the process's mask takes away.
    /// A socket that a killed process left behind there is replaced.
    pub fn start(
        name: &str,
        path: PathBuf,
        mode: u32,
        answer: impl Fn(UnixStream) + Send + 'static,
    ) -> Result<Self, AnswererError> {
        let listener = bind(&path, mode)?;
        let (alive, closed) = UnixStream::pair()?;
        // An asker that hung up again must not keep the thread in its accept call.
        listener.set_nonblocking(true)?;
        let mut events = Epoll::new(2)?;
        events.add(listener.as_fd(), ASKED)?;
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

    /// Whether the thread has ended without being told to.
    #[must_use]
    pub fn has_died(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so on stderr; there is nothing to add here.
            let _ = thread.join();
        }
        // Gone already is as good.
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes the directory that a socket at `path` stands in.
pub fn make_directory(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

fn bind(path: &Path, mode: u32) -> Result<UnixListener, AnswererError> {
    make_directory(path)?;
    match listen(path, mode) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
        bound => return Ok(bound?),
    }
    match UnixStream::connect(path) {
        // Left behind by a process that was killed.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let is_socket =
                fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
            if !is_socket {
                return Err(io::Error::from(io::ErrorKind::AlreadyExists).into());
            }
            fs::remove_file(path)?;
            Ok(listen(path, mode)?)
        }
        _ => Err(AnswererError::InUse),
    }
}
