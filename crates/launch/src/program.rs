//! Programs of an instant: start, forwarding of signals, and wait for their end. Their output is
//! not touched.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::mpsc::Sender as Channel;
use std::thread;
use std::time::Duration;

use horolog_sys::alarm_clock::SleepClock;
use horolog_sys::process::{ProcessHandle, signal_group};
use horolog_sys::signal::SignalOrigin;
use horolog_sys::spawn::{
    CancelHandle, DefaultScheduling, SpawnCommand, SpawnedProgram, StartTime, spawn,
};

use crate::signals::CaughtSignal;

/// Exit status of a shell for a program that exists but cannot be started.
const CANNOT_EXECUTE_STATUS: i32 = 126;
const NOT_FOUND_STATUS: i32 = 127;
/// Offset that a shell adds to the number of a signal.
const SIGNAL_STATUS_BASE: i32 = 128;

/// Program to start, as its words or as a line for `/bin/sh`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProgramSpec {
    /// Program with its arguments.
    Argv(Vec<OsString>),
    /// Command line for the shell.
    ShellLine(String),
}

impl ProgramSpec {
    /// Formats the program for the record and for the user.
    #[must_use]
    pub fn to_words(&self) -> Vec<String> {
        match self {
            Self::Argv(words) => {
                words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
            }
            Self::ShellLine(line) => vec![line.clone()],
        }
    }

    /// Returns the command to spawn; `own_group` makes it a process group leader.
    fn spawn_command(&self, own_group: bool) -> io::Result<SpawnCommand> {
        match self {
            Self::ShellLine(line) => {
                SpawnCommand::new(OsStr::new("/bin/sh"), &["-c".into(), line.into()], own_group)
            }
            Self::Argv(words) => {
                let (name, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
                SpawnCommand::new(name, arguments, own_group)
            }
        }
    }
}

/// Returns the exit status that a shell would report: 128 plus the number of the signal for a
/// terminated program.
#[must_use]
pub(crate) fn shell_status(status: ExitStatus) -> i32 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => SIGNAL_STATUS_BASE + signal,
        (None, None) => SIGNAL_STATUS_BASE,
    }
}

/// Returns the exit status of a program that could not be started, as in shells: 127 if it does not
/// exist, 126 otherwise.
#[must_use]
pub fn status_of_error(error: &io::Error) -> i32 {
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND_STATUS } else { CANNOT_EXECUTE_STATUS }
}

/// Program that was started.
#[derive(Debug)]
pub(crate) struct StartedProgram {
    handle: ProcessHandle,
    pid: u32,
    own_group: bool,
}

impl StartedProgram {
    /// Forwards a caught signal to the program. A program in this process's group has itself
    /// received one that was sent from the terminal.
    pub(crate) fn forward_signal(&self, caught: CaughtSignal) {
        // The program may have ended by now.
        if self.own_group {
            let _ = signal_group(self.pid, caught.signal);
        } else if caught.sender == SignalOrigin::Process {
            let _ = self.handle.signal(caught.signal);
        }
    }
}

/// Program that could not be started.
#[derive(Debug)]
pub(crate) struct ProgramStartError {
    pub(crate) error: io::Error,
    pub(crate) status: i32,
}

impl From<io::Error> for ProgramStartError {
    fn from(error: io::Error) -> Self {
        Self { status: status_of_error(&error), error }
    }
}

/// Event of the start, the run or the end of a program; they occur in this order.
#[derive(Debug)]
pub(crate) enum ProgramLaunchEvent {
    /// The instant has come, at this clock reading in ns since 1970.
    Woken(i64),
    /// The program runs, since this clock reading in ns.
    Started(StartedProgram, i64),
    /// The program could not be started. Last event.
    NotStarted(ProgramStartError),
    /// The start was cancelled before its instant. Last event.
    Cancelled,
    /// The program has ended with this status. Last event.
    Ended(i32),
}

/// Options for starting a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchOptions {
    /// Clock of the readings in the events.
    pub(crate) clock: SleepClock,
    /// Start time; `None` starts at once.
    pub(crate) at: Option<StartTime>,
    /// Scheduling of the program after its head start.
    pub(crate) default_scheduling: DefaultScheduling,
    /// Longest time for which the program keeps its start priority.
    pub(crate) head_start: Duration,
    /// True if the program gets a process group of its own.
    pub(crate) own_group: bool,
}

/// Starts a thread that starts the program, waits for its end and reports its events. The returned
/// handle cancels the start.
///
/// # Errors
///
/// The thread cannot be created.
pub(crate) fn launch<T: Send + 'static>(
    program: &ProgramSpec,
    options: LaunchOptions,
    to: Channel<T>,
    to_event: impl Fn(ProgramLaunchEvent) -> T + Send + 'static,
) -> io::Result<Arc<CancelHandle>> {
    let command = program.spawn_command(options.own_group);
    let cancel = Arc::new(CancelHandle::default());
    let cancel_in_thread = Arc::clone(&cancel);
    let run = move || {
        // The receiver is gone if this process is ending.
        let send_event = |event| drop(to.send(to_event(event)));
        let last = match command
            .and_then(|command| start_program(&command, options, &cancel_in_thread, &send_event))
        {
            Ok(None) => ProgramLaunchEvent::Cancelled,
            Ok(Some(started)) => ProgramLaunchEvent::Ended(run_to_end(started, options.head_start)),
            Err(error) => ProgramLaunchEvent::NotStarted(error.into()),
        };
        send_event(last);
    };
    thread::Builder::new().name("program".into()).spawn(run)?;
    Ok(cancel)
}

fn start_program(
    command: &SpawnCommand,
    options: LaunchOptions,
    cancel: &CancelHandle,
    send_event: &impl Fn(ProgramLaunchEvent),
) -> io::Result<Option<SpawnedProgram>> {
    let attempt = spawn(command, options.at.as_ref(), options.default_scheduling, cancel)?;
    let started_ns = options.clock.now_ns();
    if let Some(woken_ns) = attempt.woken_ns {
        send_event(ProgramLaunchEvent::Woken(woken_ns));
    }
    let Some(started) = attempt.started? else { return Ok(None) };
    let pid = started.pid();
    let handle = ProcessHandle::open(pid)?;
    send_event(ProgramLaunchEvent::Started(
        StartedProgram { handle, pid, own_group: options.own_group },
        started_ns,
    ));
    Ok(Some(started))
}

/// Restores the program's scheduling after its head start, and waits for its end. Returns its exit
/// status as a shell reports it; 128 if that cannot be determined.
fn run_to_end(mut started: SpawnedProgram, head_start: Duration) -> i32 {
    if started.keeps_priority() {
        // If it cannot be waited for, the head start is over.
        let _ = ProcessHandle::open(started.pid()).and_then(|handle| handle.wait(head_start));
    }
    let restored = started.restore_scheduling();
    debug_assert!(restored.is_ok(), "{restored:?}");
    started.wait().map_or(SIGNAL_STATUS_BASE, shell_status)
}
