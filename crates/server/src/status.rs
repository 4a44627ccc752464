//! The status socket: a Unix stream socket that answers every connection with one JSON object and
//! closes it, and the asking side of it. It takes no commands; a server cannot be changed by it.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use horolog_sys::epoll::Epoll;
use horolog_sys::unix::connect_at_once;

/// How long to wait for the next connection; nothing happens in between.
const IDLE: Duration = Duration::from_hours(1);
/// Tokens of what the thread waits for.
const ASKED: u64 = 0;
const STOPPED: u64 = 1;
/// How long to wait for the other side, which may be stopped.
const PATIENCE: Duration = Duration::from_secs(2);
/// A running server's answer goes into the socket's buffer at once; no asker may hold up the next.
const WRITE_PATIENCE: Duration = Duration::from_millis(200);
const SUFFIX: &str = "sock";

/// Why there is no status socket, or no answer from one.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// Another server answers there.
    #[error("{0} is the status socket of another server; choose another with --status-socket")]
    InUse(PathBuf),
    /// The socket could not be made.
    #[error("cannot make the status socket {0}: {1}; choose another path with --status-socket")]
    Bind(PathBuf, #[source] io::Error),
    /// Nobody answers there.
    #[error("no server answers at {0}: {1}; see that it runs and that you may use its socket")]
    NoAnswer(PathBuf, #[source] io::Error),
    /// No server was found.
    #[error("no running server was found in {0}; name its socket with --status-socket")]
    NoServer(String),
    /// More than one server was found.
    #[error("several servers are running; name one with --status-socket: {}", list(.0))]
    Several(Vec<PathBuf>),
}

fn list(paths: &[PathBuf]) -> String {
    let texts: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    texts.join(", ")
}

/// The status socket of this process where none is named: `PID.sock` in `/run/horolog` for root, in
/// `$XDG_RUNTIME_DIR/horolog` for others, who have none when that is not set.
#[must_use]
pub fn default_path() -> Option<PathBuf> {
    let own = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let directory = if own { Some(PathBuf::from(SYSTEM)) } else { session_directory() };
    Some(directory?.join(format!("{}.{SUFFIX}", std::process::id())))
}

/// Removes what killed servers left where [`default_path`] is, as far as this user may.
pub fn sweep() {
    let Some(directory) = default_path().and_then(|path| path.parent().map(Path::to_owned)) else {
        return;
    };
    for path in sockets_in(&[directory]) {
        let refused = UnixStream::connect(&path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        if refused {
            // What cannot be removed is passed over by whoever looks for a server.
            let _ = fs::remove_file(path);
        }
    }
}

const SYSTEM: &str = "/run/horolog";

fn session_directory() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").map(|runtime| Path::new(&runtime).join("horolog"))
}

/// The status socket of the one server that runs on this machine, as far as this user may see.
pub fn find() -> Result<PathBuf, StatusError> {
    let directories: Vec<_> =
        [Some(PathBuf::from(SYSTEM)), session_directory()].into_iter().flatten().collect();
    find_in(&directories)
}

fn find_in(directories: &[PathBuf]) -> Result<PathBuf, StatusError> {
    // What a killed server left behind refuses connections.
    let mut alive: Vec<_> = sockets_in(directories).filter(|path| is_listened_at(path)).collect();
    alive.sort_unstable();
    match alive.len() {
        0 => Err(StatusError::NoServer(list(directories))),
        1 => Ok(alive.remove(0)),
        _ => Err(StatusError::Several(alive)),
    }
}

fn is_listened_at(path: &Path) -> bool {
    // So many may wait for a server that is stopped that no more can.
    let is_full = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
    connect_at_once(path).as_ref().err().is_none_or(is_full)
}

fn sockets_in(directories: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    let entries = directories.iter().filter_map(|path| fs::read_dir(path).ok()).flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|suffix| suffix == SUFFIX))
}

/// Asks the server at `path` and returns its JSON object as text.
pub fn ask(path: &Path) -> Result<String, StatusError> {
    ask_within(path, PATIENCE)
}

/// The same with less or more patience for a server that is stopped, or that never ends.
pub fn ask_within(path: &Path, patience: Duration) -> Result<String, StatusError> {
    let answer = read_within(path, patience);
    answer.map_err(|error| StatusError::NoAnswer(path.to_owned(), error))
}

fn read_within(path: &Path, patience: Duration) -> io::Result<String> {
    let deadline = Instant::now() + patience;
    let mut stream = connect_at_once(path)?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 4_096]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&buffer[..length]),
            // With a time limit, a signal ends the call even where handlers restart others.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    String::from_utf8(answer).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// A thread that answers at a status socket until it is dropped.
#[derive(Debug)]
pub(crate) struct StatusSocket {
    path: PathBuf,
    /// Closing it stops the thread.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl StatusSocket {
    /// Answers at `path` with what `answer` returns.
    pub(crate) fn start(
        path: PathBuf,
        answer: impl Fn() -> String + Send + 'static,
    ) -> Result<Self, StatusError> {
        let listener = bind(&path)?;
        let failed = |error| StatusError::Bind(path.clone(), error);
        let (alive, closed) = UnixStream::pair().map_err(failed)?;
        // An asker that hung up again must not keep the thread in its accept call.
        listener.set_nonblocking(true).map_err(failed)?;
        let mut events = Epoll::new(2).map_err(failed)?;
        events.add(listener.as_fd(), ASKED).map_err(failed)?;
        events.add(closed.as_fd(), STOPPED).map_err(failed)?;
        let serve = move || {
            let _closed = closed;
            let mut stopped =
                move || events.wait(IDLE).map(|mut tokens| tokens.any(|token| token == STOPPED));
            while let Ok(false) = stopped() {
                if let Ok((stream, _)) = listener.accept() {
                    reply(stream, &answer());
                }
            }
        };
        let thread = thread::Builder::new().name("status".into()).spawn(serve).map_err(failed)?;
        Ok(Self { path, alive: Some(alive), thread: Some(thread) })
    }
}

impl StatusSocket {
    /// Whether the thread has ended without being told to.
    pub(crate) fn has_died(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl Drop for StatusSocket {
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

/// Makes the directory for a status socket.
pub(crate) fn make_directory(path: &Path) -> Result<(), StatusError> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.map_err(|error| StatusError::Bind(path.to_owned(), error))
}

fn bind(path: &Path) -> Result<UnixListener, StatusError> {
    make_directory(path)?;
    let failed = |error| StatusError::Bind(path.to_owned(), error);
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
        bound => return bound.map_err(failed),
    }
    match UnixStream::connect(path) {
        // Left behind by a server that was killed.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let is_socket = fs::symlink_metadata(path)
                .is_ok_and(|file| std::os::unix::fs::FileTypeExt::is_socket(&file.file_type()));
            if !is_socket {
                return Err(failed(io::ErrorKind::AlreadyExists.into()));
            }
            fs::remove_file(path).map_err(failed)?;
            UnixListener::bind(path).map_err(failed)
        }
        _ => Err(StatusError::InUse(path.to_owned())),
    }
}

/// Whoever asks and hangs up before the answer gets none.
fn reply(mut stream: UnixStream, answer: &str) {
    let _ = stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_write_timeout(Some(WRITE_PATIENCE)))
        .and_then(|()| stream.write_all(answer.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_and_is_answered() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/1.sock");
        let socket = StatusSocket::start(path.clone(), || "{\"n\":1}\n".into()).unwrap();
        assert_eq!(ask(&path).unwrap(), "{\"n\":1}\n");
        drop(UnixStream::connect(&path).unwrap());
        assert_eq!(ask(&path).unwrap(), "{\"n\":1}\n", "after one that hung up");
        assert_eq!(find_in(&[path.parent().unwrap().into()]).unwrap(), path);
        drop(socket);
        assert!(!path.exists());
        assert!(matches!(ask(&path), Err(StatusError::NoAnswer(..))));
    }

    #[test]
    fn a_socket_left_behind_is_replaced_and_one_in_use_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "left behind");
        assert!(matches!(find_in(&[directory.path().into()]), Err(StatusError::NoServer(_))));
        let first = StatusSocket::start(path.clone(), String::new).unwrap();
        let second = StatusSocket::start(path.clone(), String::new);
        assert!(matches!(second, Err(StatusError::InUse(_))));
        drop(first);
    }

    #[test]
    fn a_file_in_the_way_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes");
        fs::write(&path, "keep").unwrap();
        let error = StatusSocket::start(path.clone(), String::new).unwrap_err();
        assert!(matches!(error, StatusError::Bind(..)));
        assert_eq!(fs::read_to_string(&path).unwrap(), "keep");
    }

    #[test]
    fn who_never_ends_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let drip = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Until the other side has gone.
            while stream.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        assert!(matches!(
            ask_within(&path, Duration::from_millis(100)),
            Err(StatusError::NoAnswer(..))
        ));
        drip.join().unwrap();
    }

    #[test]
    fn several_servers_are_listed() {
        let directory = tempfile::tempdir().unwrap();
        let sockets = ["1.sock", "2.sock"]
            .map(|name| StatusSocket::start(directory.path().join(name), String::new).unwrap());
        let message = find_in(&[directory.path().into()]).unwrap_err().to_string();
        assert!(message.contains("1.sock, /") && message.ends_with("2.sock"), "{message}");
        drop(sockets);
    }
}
