//! Status socket: a Unix stream socket that sends one JSON object to every client and closes the
//! connection; and its client. It accepts no commands.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, lchown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use horolog_sys::explain::explain;
use horolog_sys::unix::{self, UnixResponder, UnixResponderError, connect_without_waiting};

use super::server_status::{ServerStatus, StatusFormatError};

/// Timeout for the response of a server, which may be stopped.
const FETCH_TIMEOUT: Duration = Duration::from_secs(2);
/// Mode of the socket before the umask; access is limited by its directory.
const MODE: u32 = 0o777;
/// Timeout for sending the status, so that no client delays the next. The status fits into the
/// socket's buffer.
const WRITE_TIMEOUT: Duration = Duration::from_millis(200);
const SUFFIX: &str = "sock";

/// Failure to create the status socket, or to get a status.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// Path of another server's status socket.
    #[error("{0} is the status socket of another server; choose another with --status-socket")]
    InUse(PathBuf),
    /// Socket that could not be created.
    #[error("cannot create the status socket {0}: {why}; choose another path with \
             --status-socket", why = explain(.1))]
    Bind(PathBuf, #[source] io::Error),
    /// Socket at which no server answers in time, or that cannot be read.
    #[error("no server answers at {0}: {why}; check that it runs and that you may use its \
             socket", why = explain(.1))]
    NoAnswer(PathBuf, #[source] io::Error),
    /// Path at which the answer is not a status that this version reads.
    #[error("cannot read the status from {0}: {1}")]
    Format(PathBuf, #[source] StatusFormatError),
    /// No socket found at which a server answers, in these directories.
    #[error("no running server found in {0}; name its socket with --status-socket")]
    NoServer(String),
    /// Only sockets of other users found.
    #[error(
        "no running server found that this user may query: {0} is accessible to its owner only; \
         run as that user, such as root, or name another socket with --status-socket"
    )]
    NotAllowed(String),
    /// More than one server found.
    #[error("several servers are running; name one with --status-socket: {}", list(.0))]
    Several(Vec<PathBuf>),
}

fn list(paths: &[PathBuf]) -> String {
    let texts: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    texts.join(", ")
}

/// Returns the path of this process's default status socket: `PID.sock`, in `/run/horolog` for root
/// and in `$XDG_RUNTIME_DIR/horolog` for other users; `None` if that variable is not set. For root
/// that switches to `user`, the directory is `/run/horolog/user-NAME`, which that user owns; the
/// directories above are root's.
#[must_use]
pub fn default_path(user: Option<&str>) -> Option<PathBuf> {
    let directory = if is_root() { Some(system_directory(user)) } else { session_directory() };
    Some(directory?.join(format!("{}.{SUFFIX}", std::process::id())))
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn system_directory(user: Option<&str>) -> PathBuf {
    let system = PathBuf::from(SYSTEM_DIRECTORY);
    // User names contain no slash; the start rejects one that does.
    match user.filter(|name| !name.contains('/')) {
        Some(name) => system.join(format!("{USER_DIRECTORY_PREFIX}{name}")),
        None => system,
    }
}

/// Removes sockets that refuse connections, which killed servers left, from the directory of
/// [`default_path`], as far as this user may do so.
pub fn remove_stale_sockets(user: Option<&str>) {
    let Some(directory) = default_path(user).and_then(|path| path.parent().map(Path::to_owned))
    else {
        return;
    };
    for path in sockets_in(&[directory]) {
        let refused = connect_without_waiting(&path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        if refused {
            // A socket that cannot be removed is ignored when searching for a server.
            let _ = fs::remove_file(path);
        }
    }
}

const SYSTEM_DIRECTORY: &str = "/run/horolog";
/// Prefix of the names of the directories that belong to users.
const USER_DIRECTORY_PREFIX: &str = "user-";

fn session_directory() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").map(|runtime| Path::new(&runtime).join("horolog"))
}

/// Returns the status socket of the only server on this host to which this user has access.
pub fn find_socket() -> Result<PathBuf, StatusError> {
    let own = [Some(PathBuf::from(SYSTEM_DIRECTORY)), session_directory()].into_iter().flatten();
    let directories: Vec<_> = own.chain(user_directories(Path::new(SYSTEM_DIRECTORY))).collect();
    find_in(&directories)
}

/// Returns the directories below `system` that belong to users.
fn user_directories(system: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(system).into_iter().flatten().flatten();
    let is_of_user = |entry: &fs::DirEntry| {
        entry.file_name().to_string_lossy().starts_with(USER_DIRECTORY_PREFIX)
    };
    entries.filter(is_of_user).map(|entry| entry.path()).collect()
}

fn find_in(directories: &[PathBuf]) -> Result<PathBuf, StatusError> {
    let found = sockets_in(directories).map(|path| (connect_without_waiting(&path).err(), path));
    let closed = directories.iter().map(|path| (fs::read_dir(path).err(), path.clone()));
    choose_socket(found, closed.filter_map(|(error, path)| Some((error?, path))), directories)
}

/// Returns the only socket at which a server answers. `found` are the sockets, each with its
/// connection error, and `closed` the directories that cannot be read, each with its error.
fn choose_socket(
    found: impl Iterator<Item = (Option<io::Error>, PathBuf)>,
    closed: impl Iterator<Item = (io::Error, PathBuf)>,
    directories: &[PathBuf],
) -> Result<PathBuf, StatusError> {
    let forbids = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    // A stopped server may have a full backlog.
    let is_full = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
    let closed = closed.filter(|(error, _)| forbids(error));
    let mut forbidden: Vec<_> = closed.map(|(_, path)| path).collect();
    let mut alive = Vec::new();
    for (error, path) in found {
        if error.as_ref().is_none_or(is_full) {
            alive.push(path);
        } else if error.as_ref().is_some_and(forbids) {
            forbidden.push(path);
        }
        // The socket of a killed server refuses connections.
    }
    alive.sort_unstable();
    match alive.len() {
        0 if !forbidden.is_empty() => Err(StatusError::NotAllowed(list(&forbidden))),
        0 => Err(StatusError::NoServer(list(directories))),
        1 => Ok(alive.remove(0)),
        _ => Err(StatusError::Several(alive)),
    }
}

fn sockets_in(directories: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    let entries = directories.iter().filter_map(|path| fs::read_dir(path).ok()).flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|suffix| suffix == SUFFIX))
}

/// Returns the status of the server whose status socket is `path`; waits up to 2 s.
pub fn fetch_status(path: &Path) -> Result<ServerStatus, StatusError> {
    fetch_status_within(path, FETCH_TIMEOUT)
}

/// Returns the status as [`fetch_status`] does, but waits up to `timeout`, because the server may
/// be stopped.
pub fn fetch_status_within(path: &Path, timeout: Duration) -> Result<ServerStatus, StatusError> {
    let text = fetch_within(path, timeout)?;
    ServerStatus::parse(&text).map_err(|error| StatusError::Format(path.to_owned(), error))
}

/// Returns the status of the server whose status socket is `path`, as the text of a JSON object;
/// waits up to 2 s.
pub fn fetch(path: &Path) -> Result<String, StatusError> {
    fetch_within(path, FETCH_TIMEOUT)
}

fn fetch_within(path: &Path, timeout: Duration) -> Result<String, StatusError> {
    let answer = read_within(path, timeout);
    answer.map_err(|error| StatusError::NoAnswer(path.to_owned(), error))
}

fn read_within(path: &Path, timeout: Duration) -> io::Result<String> {
    let deadline = Instant::now() + timeout;
    let mut stream = connect_without_waiting(path)?;
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
            // A signal interrupts a call that has a timeout, even with SA_RESTART.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    String::from_utf8(answer).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Thread that answers at a status socket. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct StatusSocket(UnixResponder);

impl StatusSocket {
    /// Starts the thread at `path`; each response is the result of `answer`.
    pub(crate) fn start(
        path: PathBuf,
        answer: impl Fn() -> String + Send + 'static,
    ) -> Result<Self, StatusError> {
        let serve = move |stream| reply(stream, &answer());
        let started = UnixResponder::start("status", path.clone(), MODE, serve);
        started.map(Self).map_err(|error| match error {
            UnixResponderError::InUse => StatusError::InUse(path),
            UnixResponderError::Io(error) => StatusError::Bind(path, error),
        })
    }

    /// Returns true if the thread has ended without being stopped.
    pub(crate) fn has_died(&self) -> bool {
        self.0.has_died()
    }
}

/// Creates the directory of a status socket. If this process is root and the socket is below the
/// system directory, root becomes the owner of that directory, because servers of several users
/// have sockets in it.
pub(crate) fn make_directory(path: &Path) -> Result<(), StatusError> {
    let failed = |error| StatusError::Bind(path.to_owned(), error);
    unix::make_directory(path).map_err(failed)?;
    if is_root() && path.starts_with(SYSTEM_DIRECTORY) {
        give_to_root(Path::new(SYSTEM_DIRECTORY)).map_err(failed)?;
    }
    Ok(())
}

fn give_to_root(directory: &Path) -> io::Result<()> {
    match fs::symlink_metadata(directory)? {
        found if found.is_dir() && found.uid() != 0 => lchown(directory, Some(0), Some(0)),
        _ => Ok(()),
    }
}

/// Sends the response. It is lost if the client has disconnected.
fn reply(mut stream: UnixStream, answer: &str) {
    let _ = stream
        .set_write_timeout(Some(WRITE_TIMEOUT))
        .and_then(|()| stream.write_all(answer.as_bytes()));
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    #[test]
    fn a_server_of_another_user_is_not_reported_as_absent() {
        let directories = [PathBuf::from("/run/horolog")];
        let failed = |kind: io::ErrorKind| Some(io::Error::from(kind));
        let choose = |found: Vec<_>, closed: Vec<_>| {
            choose_socket(found.into_iter(), closed.into_iter(), &directories)
        };
        let forbidden = || (failed(io::ErrorKind::PermissionDenied), PathBuf::from("1.sock"));
        let dead = (failed(io::ErrorKind::ConnectionRefused), PathBuf::from("2.sock"));
        let error = choose(vec![forbidden(), dead], Vec::new()).unwrap_err();
        assert!(matches!(&error, StatusError::NotAllowed(which) if which == "1.sock"), "{error}");
        let own = choose(vec![forbidden(), (None, "3.sock".into())], Vec::new());
        assert_eq!(own.unwrap(), Path::new("3.sock"));
        let closed = |kind: io::ErrorKind| vec![(io::Error::from(kind), directories[0].clone())];
        let error = choose(Vec::new(), closed(io::ErrorKind::PermissionDenied)).unwrap_err();
        assert!(matches!(error, StatusError::NotAllowed(_)), "{error}");
        let error = choose(Vec::new(), closed(io::ErrorKind::NotFound)).unwrap_err();
        assert!(matches!(error, StatusError::NoServer(_)), "{error}");
    }

    #[test]
    fn each_request_gets_a_response() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/1.sock");
        let socket = StatusSocket::start(path.clone(), || "{\"n\":1}\n".into()).unwrap();
        assert_eq!(fetch(&path).unwrap(), "{\"n\":1}\n");
        drop(UnixStream::connect(&path).unwrap());
        assert_eq!(fetch(&path).unwrap(), "{\"n\":1}\n", "after one that hung up");
        assert_eq!(find_in(&[path.parent().unwrap().into()]).unwrap(), path);
        drop(socket);
        assert!(!path.exists());
        assert!(matches!(fetch(&path), Err(StatusError::NoAnswer(..))));
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
    fn a_user_s_server_has_a_directory_of_its_own_that_is_searched() {
        let own = system_directory(Some("time"));
        assert_eq!(own, Path::new("/run/horolog/user-time"));
        for root_s in [None, Some("../etc")] {
            assert_eq!(system_directory(root_s), Path::new("/run/horolog"), "{root_s:?}");
        }
        let system = tempfile::tempdir().unwrap();
        fs::create_dir(system.path().join("relay")).unwrap();
        let path = system.path().join("user-time/7.sock");
        let socket = StatusSocket::start(path.clone(), String::new).unwrap();
        let found = user_directories(system.path());
        assert_eq!(found, [path.parent().unwrap()]);
        assert_eq!(find_in(&found).unwrap(), path);
        drop(socket);
    }

    #[test]
    fn root_takes_back_a_directory_of_another_owner() {
        let directory = tempfile::tempdir().unwrap();
        let owner = || fs::metadata(directory.path()).unwrap().uid();
        if is_root() {
            lchown(directory.path(), Some(65_534), Some(65_534)).unwrap();
            give_to_root(directory.path()).unwrap();
            assert_eq!(owner(), 0);
        }
        assert_eq!(owner() == 0, is_root());
    }

    #[test]
    fn an_existing_file_is_not_replaced() {
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
            fetch_within(&path, Duration::from_millis(100)),
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
