//! A job in a process of its own, where no systemd keeps it: started without a terminal, entered in
//! the queue, and only then told to go on. One that is not entered ends without doing anything.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use horolog_record::rfc3339_now;
use horolog_sys::process::in_new_session;

use crate::queue::{Claim, JOB_SCHEMA, Job, ProcessIdentity, Queue, QueueError};

/// What the process is told when it is in the queue.
const GO: &[u8] = b"go";

/// Why a job is not in the background; one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum BackgroundError {
    /// The queue does not take it.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The process cannot be started.
    #[error("cannot start a process for the job: {0}")]
    Start(io::Error),
}

/// A job that was handed over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Handed {
    /// As it stands in the queue.
    pub job: Job,
    /// Where its output goes.
    pub log: PathBuf,
}

/// What a job is, beside its process.
#[derive(Clone, Debug)]
pub struct Outline {
    /// The first instant, as it is read.
    pub first: String,
    /// From one instant to the next, in ns.
    pub every_ns: Option<u64>,
    /// What it runs.
    pub programs: Vec<Vec<String>>,
    /// Where.
    pub directory: String,
}

/// Starts a process that waits: `arguments` gives those of this program for a job with this file.
pub fn hand_over(
    queue: &Queue,
    outline: Outline,
    arguments: impl FnOnce(&Claim) -> Vec<OsString>,
) -> Result<Handed, BackgroundError> {
    let (claim, output) = queue.claim()?;
    let enter = || {
        let errors = output.try_clone().map_err(BackgroundError::Start)?;
        let own = std::env::current_exe().map_err(BackgroundError::Start)?;
        let mut command = Command::new(own);
        command.args(arguments(&claim));
        command.stdin(Stdio::piped()).stdout(output).stderr(errors);
        let mut child = in_new_session(&mut command).spawn().map_err(BackgroundError::Start)?;
        let entered = self::enter(queue, &claim, outline, &mut child);
        if entered.is_err() {
            // Its standard input ended without the word, so that it ends as well.
            drop(child.stdin.take());
            let _ = child.wait();
        }
        entered
    };
    enter().inspect_err(|_| queue.finish(claim.id, Some(0)))
}

fn enter(
    queue: &Queue,
    claim: &Claim,
    outline: Outline,
    child: &mut Child,
) -> Result<Handed, BackgroundError> {
    let gone = || BackgroundError::Start(io::Error::other("it ended at once"));
    let job = Job {
        schema: JOB_SCHEMA.to_owned(),
        id: claim.id,
        process: ProcessIdentity::of(child.id()).ok_or_else(gone)?,
        handed_over: rfc3339_now(),
        first: outline.first,
        every_ns: outline.every_ns,
        programs: outline.programs,
        directory: outline.directory,
        ended: None,
    };
    queue.write(&job)?;
    let mut input = child.stdin.take().ok_or_else(gone)?;
    input.write_all(GO).map_err(BackgroundError::Start)?;
    Ok(Handed { job, log: claim.log.clone() })
}

/// Of the process that waits: whether it was told to go on, which it waits for.
#[must_use]
pub fn is_taken_over(mut input: impl Read) -> bool {
    let mut word = Vec::new();
    input.read_to_end(&mut word).is_ok() && word == GO
}
