//! The status socket: a Unix stream socket that answers every connection with one JSON object and
//! closes it, and the asking side of it. It takes no commands; a server cannot be changed by it.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, lchown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use horolog_sys::unix::{self, Answerer, AnswererError, connect_at_once};

/// How long to wait for the other side, which may be stopped.
const PATIENCE: Duration = Duration::from_secs(2);
/// Whoever the directory and the mask let may ask.
const MODE: u32 = 0o777;
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
    /// What was found is another user's.
    #[error(
        "no running server was found that this user may ask: {0} can be asked by the owner alone; \
         ask as that user, such as root, or name another socket with --status-socket"
    )]
    NotAllowed(String),
    /// More than one server was found.
    #[error("several servers are running; name one with --status-socket: {}", list(.0))]
    Several(Vec<PathBuf>),
}

fn list(paths: &[PathBuf]) -> String {
    let texts: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    texts.join(", ")
}

/// The status socket of this process where none is named: `PID.sock` in `/run/horolog` for root, in
/// `$XDG_RUNTIME_DIR/horolog` for others, who have none when that is not set. For root that becomes
/// `user` it is in `/run/horolog/user-NAME`, which is that user's; what stands above is root's.
#[must_use]
pub fn default_path(user: Option<&str>) -> Option<PathBuf> {
    let directory = if is_root() { Some(system_directory(user)) } else { session_directory() };
    Some(directory?.join(format!("{}.{SUFFIX}", std::process::id())))
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn system_directory(user: Option<&str>) -> PathBuf {
    let system = PathBuf::from(SYSTEM);
    // No user's name has a slash, and the start refuses one that does.
    match user.filter(|name| !name.contains('/')) {
        Some(name) => system.join(format!("{OF_USER}{name}")),
        None => system,
    }
}

/// Removes what killed servers left where [`default_path`] is, as far as this user may.
pub fn sweep(user: Option<&str>) {
    let Some(directory) = default_path(user).and_then(|path| path.parent().map(Path::to_owned))
    else {
        return;
    };
    for path in sockets_in(&[directory]) {
        let refused = connect_at_once(&path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        if refused {
            // What cannot be removed is passed over by whoever looks for a server.
            let _ = fs::remove_file(path);
        }
    }
}

const SYSTEM: &str = "/run/horolog";
/// How the names of users' directories in there begin.
const OF_USER: &str = "user-";

fn session_directory() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").map(|runtime| Path::new(&runtime).join("horolog"))
}

/// The status socket of the one server that runs on this machine, as far as this user may see.
pub fn find() -> Result<PathBuf, StatusError> {
    let own = [Some(PathBuf::from(SYSTEM)), session_directory()].into_iter().flatten();
    let directories: Vec<_> = own.chain(of_users(Path::new(SYSTEM))).collect();
    find_in(&directories)
}

/// The directories of users in the system's.
fn of_users(system: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(system).into_iter().flatten().flatten();
    let is_of_user =
        |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(OF_USER);
    entries.filter(is_of_user).map(|entry| entry.path()).collect()
}

fn find_in(directories: &[PathBuf]) -> Result<PathBuf, StatusError> {
    let found = sockets_in(directories).map(|path| (connect_at_once(&path).err(), path));
    let closed = directories.iter().map(|path| (fs::read_dir(path).err(), path.clone()));
    choose(found, closed.filter_map(|(error, path)| Some((error?, path))), directories)
}

/// The one socket at which a server answers, of those found with why they could not be connected to
/// and of the directories that cannot be read.
fn choose(
    found: impl Iterator<Item = (Option<io::Error>, PathBuf)>,
    closed: impl Iterator<Item = (io::Error, PathBuf)>,
    directories: &[PathBuf],
) -> Result<PathBuf, StatusError> {
    let forbids = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    // So many may wait for a server that is stopped that no more can.
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
        // What a killed server left behind refuses connections.
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
pub(crate) struct StatusSocket(Answerer);

impl StatusSocket {
    /// Answers at `path` with what `answer` returns.
    pub(crate) fn start(
        path: PathBuf,
        answer: impl Fn() -> String + Send + 'static,
    ) -> Result<Self, StatusError> {
        let serve = move |stream| reply(stream, &answer());
        let started = Answerer::start("status", path.clone(), MODE, serve);
        started.map(Self).map_err(|error| match error {
            AnswererError::InUse => StatusError::InUse(path),
            AnswererError::Io(error) => StatusError::Bind(path, error),
        })
    }

    /// Whether the thread has ended without being told to.
    pub(crate) fn has_died(&self) -> bool {
        self.0.has_died()
    }
}

/// Makes the directory for a status socket. The system's own belongs to root, whoever it was given
/// to: servers of several users have their sockets in it.
pub(crate) fn make_directory(path: &Path) -> Result<(), StatusError> {
    let failed = |error| StatusError::Bind(path.to_owned(), error);
    unix::make_directory(path).map_err(failed)?;
    if is_root() && path.starts_with(SYSTEM) {
        own_by_root(Path::new(SYSTEM)).map_err(failed)?;
    }
    Ok(())
}

fn own_by_root(directory: &Path) -> io::Result<()> {
    match fs::symlink_metadata(directory)? {
        found if found.is_dir() && found.uid() != 0 => lchown(directory, Some(0), Some(0)),
        _ => Ok(()),
    }
}

/// Whoever asks and hangs up before the answer gets none.
fn reply(mut stream: UnixStream, answer: &str) {
    let _ = stream
        .set_write_timeout(Some(WRITE_PATIENCE))
        .and_then(|()| stream.write_all(answer.as_bytes()));
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    #[test]
    fn another_users_server_is_not_said_to_be_absent() {
        let directories = [PathBuf::from("/run/horolog")];
        let failed = |kind: io::ErrorKind| Some(io::Error::from(kind));
        let choose = |found: Vec<_>, closed: Vec<_>| {
            choose(found.into_iter(), closed.into_iter(), &directories)
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
    fn a_user_s_server_has_a_directory_of_its_own_that_is_looked_into() {
        let own = system_directory(Some("time"));
        assert_eq!(own, Path::new("/run/horolog/user-time"));
        for root_s in [None, Some("../etc")] {
            assert_eq!(system_directory(root_s), Path::new("/run/horolog"), "{root_s:?}");
        }
        let system = tempfile::tempdir().unwrap();
        fs::create_dir(system.path().join("relay")).unwrap();
        let path = system.path().join("user-time/7.sock");
        let socket = StatusSocket::start(path.clone(), String::new).unwrap();
        let found = of_users(system.path());
        assert_eq!(found, [path.parent().unwrap()]);
        assert_eq!(find_in(&found).unwrap(), path);
        drop(socket);
    }

    #[test]
    fn root_takes_back_a_directory_that_was_given_away() {
        let directory = tempfile::tempdir().unwrap();
        let owner = || fs::metadata(directory.path()).unwrap().uid();
        if is_root() {
            lchown(directory.path(), Some(65_534), Some(65_534)).unwrap();
            own_by_root(directory.path()).unwrap();
            assert_eq!(owner(), 0);
        }
        assert_eq!(owner() == 0, is_root());
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
