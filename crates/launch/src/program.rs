//! The programs of an instant: started, told of signals, waited for. Their output is not touched.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::Sender as Channel;
use std::thread;

use horolog_sys::process::{ProcessHandle, signal_group};
use horolog_sys::signal::Sender;
use horolog_sys::start::{Started, start};

use crate::signals::Came;

/// What a shell ends with for a program that it cannot start, but for one that is not there.
const CANNOT_START: i32 = 126;
const NOT_FOUND: i32 = 127;
/// What is added to the number of a signal.
const BY_SIGNAL: i32 = 128;

/// A program to start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Program {
    /// With its arguments.
    Words(Vec<OsString>),
    /// A line for the shell.
    Line(String),
}

impl Program {
    /// For the record and for the user.
    #[must_use]
    pub fn shown(&self) -> Vec<String> {
        match self {
            Self::Words(words) => {
                words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
            }
            Self::Line(line) => vec![line.clone()],
        }
    }

    fn start(&self, own_group: bool) -> io::Result<Started> {
        match self {
            Self::Line(line) => {
                start(OsStr::new("/bin/sh"), &["-c".into(), line.into()], own_group)
            }
            Self::Words(words) => {
                let (name, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
                start(name, arguments, own_group)
            }
        }
    }
}

/// The exit status that a shell would give.
#[must_use]
pub(crate) fn status_of(status: ExitStatus) -> i32 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => BY_SIGNAL + signal,
        (None, None) => BY_SIGNAL,
    }
}

/// The exit status of a program that could not be started.
fn status_of_error(error: &io::Error) -> i32 {
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_START }
}

/// A program that was started.
#[derive(Debug)]
pub(crate) struct Running {
    handle: ProcessHandle,
    pid: u32,
    own_group: bool,
}

impl Running {
    /// Passes on a signal. What came from the terminal the program has got itself.
    pub(crate) fn pass_on(&self, came: Came) {
        // It may have ended by now.
        if self.own_group {
            let _ = signal_group(self.pid, came.signal);
        } else if came.sender == Sender::Process {
            let _ = self.handle.signal(came.signal);
        }
    }
}

/// A program that could not be started.
#[derive(Debug)]
pub(crate) struct NotStarted {
    pub(crate) error: io::Error,
    pub(crate) status: i32,
}

/// Starts a program; nothing else is done before it runs.
pub(crate) fn begin(program: &Program, own_group: bool) -> Result<Started, NotStarted> {
    let started = program.start(own_group);
    started.map_err(|error| NotStarted { status: status_of_error(&error), error })
}

/// Has a thread wait for it, which tells its exit status.
pub(crate) fn watch<T: Send + 'static>(
    started: Started,
    own_group: bool,
    to: Channel<T>,
    tell: impl FnOnce(i32) -> T + Send + 'static,
) -> io::Result<Running> {
    let pid = started.pid();
    let running = Running { handle: ProcessHandle::open(pid)?, pid, own_group };
    let wait = move || {
        let status = started.wait().map_or(BY_SIGNAL, status_of);
        // Nobody listens any more where this process is ending.
        let _ = to.send(tell(status));
    };
    thread::Builder::new().name("program".into()).spawn(wait)?;
    Ok(running)
}
