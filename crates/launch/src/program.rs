//! The programs of an instant: started, told of signals, waited for. Their output is not touched.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::mpsc::Sender as Channel;
use std::thread;
use std::time::Duration;

use horolog_sys::alarm_clock::AlarmClock;
use horolog_sys::process::{ProcessHandle, signal_group};
use horolog_sys::signal::Sender;
use horolog_sys::start::{At, CallOff, Recipe, Started, Usual, start};

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

    /// As it is started; `own_group` makes it the leader of a group of processes.
    fn recipe(&self, own_group: bool) -> io::Result<Recipe> {
        match self {
            Self::Line(line) => {
                Recipe::new(OsStr::new("/bin/sh"), &["-c".into(), line.into()], own_group)
            }
            Self::Words(words) => {
                let (name, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
                Recipe::new(name, arguments, own_group)
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

/// The exit status of a program that could not be started, as shells have it: 127 where it is not
/// there, 126 otherwise.
#[must_use]
pub fn status_of_error(error: &io::Error) -> i32 {
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

impl From<io::Error> for NotStarted {
    fn from(error: io::Error) -> Self {
        Self { status: status_of_error(&error), error }
    }
}

/// What is told of a program, in this order.
#[derive(Debug)]
pub(crate) enum News {
    /// The instant has come, and the clock shows this, in ns since 1970.
    Woken(i64),
    /// It runs, since the clock showed this.
    Started(Running, i64),
    /// It does not run. Nothing comes after this.
    NotStarted(NotStarted),
    /// It was called off before its instant. Nothing comes after this.
    CalledOff,
    /// It has ended with this status. Nothing comes after this.
    Ended(i32),
}

/// How a program is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// The clock that the news tell of.
    pub(crate) clock: AlarmClock,
    /// When; at once where it is absent.
    pub(crate) at: Option<At>,
    /// How it is to run.
    pub(crate) usual: Usual,
    /// How long it keeps the priority that it was started with, at most.
    pub(crate) head_start: Duration,
    /// Whether it gets a group of its own.
    pub(crate) own_group: bool,
}

/// Has a thread start a program and wait for its end, and tell of both. What it returns calls the
/// start off.
///
/// # Errors
///
/// The system gives no thread.
pub(crate) fn launch<T: Send + 'static>(
    program: &Program,
    manner: Manner,
    to: Channel<T>,
    tell: impl Fn(News) -> T + Send + 'static,
) -> io::Result<Arc<CallOff>> {
    let recipe = program.recipe(manner.own_group);
    let call_off = Arc::new(CallOff::default());
    let calls_off = Arc::clone(&call_off);
    let run = move || {
        // Nobody listens any more where this process is ending.
        let tell = |news| drop(to.send(tell(news)));
        let last = match recipe.and_then(|recipe| begin(&recipe, manner, &calls_off, &tell)) {
            Ok(None) => News::CalledOff,
            Ok(Some(started)) => News::Ended(run_to_end(started, manner.head_start)),
            Err(error) => News::NotStarted(error.into()),
        };
        tell(last);
    };
    thread::Builder::new().name("program".into()).spawn(run)?;
    Ok(call_off)
}

fn begin(
    recipe: &Recipe,
    manner: Manner,
    call_off: &CallOff,
    tell: &impl Fn(News),
) -> io::Result<Option<Started>> {
    let attempt = start(recipe, manner.at.as_ref(), manner.usual, call_off)?;
    let started_ns = manner.clock.now_ns();
    if let Some(woken_ns) = attempt.woken_ns {
        tell(News::Woken(woken_ns));
    }
    let Some(started) = attempt.started? else { return Ok(None) };
    let pid = started.pid();
    let handle = ProcessHandle::open(pid)?;
    tell(News::Started(Running { handle, pid, own_group: manner.own_group }, started_ns));
    Ok(Some(started))
}

/// Waits for its end, and takes its priority from it when it has had its head start.
fn run_to_end(mut started: Started, head_start: Duration) -> i32 {
    if started.keeps_priority() {
        // Where it cannot be waited for, it has had it.
        let _ = ProcessHandle::open(started.pid()).and_then(|handle| handle.wait(head_start));
    }
    let given_back = started.give_back();
    debug_assert!(given_back.is_ok(), "{given_back:?}");
    started.wait().map_or(BY_SIGNAL, status_of)
}
