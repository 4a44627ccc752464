//! Background job in a process of its own, without systemd: started without a terminal, entered in
//! the queue, and only then signalled to continue. A process that is not entered ends without doing
//! anything.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use horolog_record::rfc3339_now;
use horolog_sys::explain::explain;
use horolog_sys::process::in_new_session;

use crate::queue::{
    ClaimedJobNumber, JOB_SCHEMA, JobQueue, JobQueueError, ProcessIdentity, QueuedJob,
};

/// Message that releases the job's process once the job is in the queue.
const GO_AHEAD: &[u8] = b"go";

/// Reason why a job is not in the background; one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum BackgroundError {
    /// The queue does not accept the job.
    #[error(transparent)]
    Queue(#[from] JobQueueError),
    /// The job's process cannot be started.
    #[error("cannot start a process for the job: {why}", why = explain(.0))]
    Start(io::Error),
}

/// Job that was started in the background.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackgroundJob {
    /// Job as entered in the queue.
    pub job: QueuedJob,
    /// Path of the job's output.
    pub log: PathBuf,
}

/// Description of a job, without its process.
#[derive(Clone, Debug)]
pub struct BackgroundJobSpec {
    /// First instant, as `TimescaleInstant` is displayed.
    pub first: String,
    /// Period between instants, in ns; `None` if there is only one instant.
    pub every_ns: Option<u64>,
    /// Programs to run, each as its words; a line for the shell is one word.
    pub programs: Vec<Vec<String>>,
    /// Working directory.
    pub directory: String,
}

/// Starts the background process of a job and enters the job in the queue. `arguments` returns this
/// program's arguments for the claimed job file.
pub fn start_background(
    queue: &JobQueue,
    description: BackgroundJobSpec,
    arguments: impl FnOnce(&ClaimedJobNumber) -> Vec<OsString>,
) -> Result<BackgroundJob, BackgroundError> {
    let (claim, output) = queue.claim()?;
    let start_and_enqueue = || {
        let errors = output.try_clone().map_err(BackgroundError::Start)?;
        let current_exe = std::env::current_exe().map_err(BackgroundError::Start)?;
        let mut command = Command::new(current_exe);
        command.args(arguments(&claim));
        command.stdin(Stdio::piped()).stdout(output).stderr(errors);
        let mut child = in_new_session(&mut command).spawn().map_err(BackgroundError::Start)?;
        let entered = self::enqueue_and_release(queue, &claim, description, &mut child);
        if entered.is_err() {
            // The process finds its standard input closed without the message, so it exits as well.
            drop(child.stdin.take());
            let _ = child.wait();
        }
        entered
    };
    start_and_enqueue().inspect_err(|_| queue.finish(claim.id, Some(0)))
}

fn enqueue_and_release(
    queue: &JobQueue,
    claim: &ClaimedJobNumber,
    description: BackgroundJobSpec,
    child: &mut Child,
) -> Result<BackgroundJob, BackgroundError> {
    let ended_early = || BackgroundError::Start(io::Error::other("it ended immediately"));
    let job = QueuedJob {
        schema: JOB_SCHEMA.to_owned(),
        id: claim.id,
        process: ProcessIdentity::from_pid(child.id()).ok_or_else(ended_early)?,
        queued_at: rfc3339_now(),
        first: description.first,
        every_ns: description.every_ns,
        programs: description.programs,
        directory: description.directory,
        ended: None,
    };
    queue.write(&job)?;
    let mut input = child.stdin.take().ok_or_else(ended_early)?;
    input.write_all(GO_AHEAD).map_err(BackgroundError::Start)?;
    Ok(BackgroundJob { job, log: claim.log.clone() })
}

/// Waits, in the job process, for the message to continue. Returns true if it was received.
#[must_use]
pub fn await_go_ahead(mut input: impl Read) -> bool {
    let mut word = Vec::new();
    input.read_to_end(&mut word).is_ok() && word == GO_AHEAD
}
