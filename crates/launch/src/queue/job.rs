//! A job as its file has it. Reading one never panics, and what is not whole or not of this format
//! is refused.

use std::fs::{OpenOptions, TryLockError};
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::ProcessIdentity;

/// The schema's name and version.
pub const JOB_SCHEMA: &str = "horolog.at-job/1";
/// More than any job takes that a command line can hold is no job's file.
pub const JOB_LEN_MAX: u64 = 4 << 20;

/// A job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Job {
    /// [`JOB_SCHEMA`].
    pub schema: String,
    /// Its number in the queue.
    pub id: u32,
    /// The process that waits.
    #[serde(flatten)]
    pub process: ProcessIdentity,
    /// When it was handed over, RFC 3339.
    pub handed_over: String,
    /// The first instant, as it is read.
    pub first: String,
    /// From one instant to the next, in ns; absent where there is one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ns: Option<u64>,
    /// What it runs: each program with its arguments, or a line for the shell.
    pub programs: Vec<Vec<String>>,
    /// Where it runs.
    pub directory: String,
    /// How it ended; absent while it has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ending>,
}

/// How a job ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ending {
    /// When, RFC 3339.
    pub at: String,
    /// Its exit status, as `horolog at` would have had it in the foreground; absent where it was
    /// ended before it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
}

/// Why a file is no job.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// There is nothing in it as yet.
    #[error("is empty")]
    Empty,
    /// It is longer than any.
    #[error("is longer than {JOB_LEN_MAX} bytes and so no job")]
    TooLong,
    /// It has another form.
    #[error("is no job: {0}")]
    Form(String),
    /// It is of another version.
    #[error("has the schema '{0}'; this version reads {JOB_SCHEMA}")]
    Schema(String),
}

impl Job {
    /// As its file has it.
    #[must_use]
    pub fn to_text(&self) -> String {
        // Strings and numbers always can be written.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Reads what a file has.
    pub fn parse(bytes: &[u8]) -> Result<Self, JobError> {
        if bytes.is_empty() {
            return Err(JobError::Empty);
        }
        if bytes.len() as u64 > JOB_LEN_MAX {
            return Err(JobError::TooLong);
        }
        let job: Self =
            serde_json::from_slice(bytes).map_err(|error| JobError::Form(error.to_string()))?;
        if job.schema != JOB_SCHEMA {
            return Err(JobError::Schema(job.schema.escape_debug().to_string()));
        }
        Ok(job)
    }
}

/// Reads a job's file, of which nobody is waited for; and says whether its programs run, which the
/// process that waits tells by a lock.
pub(super) fn read(path: &Path) -> Result<(Job, bool), JobError> {
    use std::os::unix::fs::OpenOptionsExt;
    /// `O_NONBLOCK`, so that a FIFO in its place is opened at once, and `O_NOFOLLOW`.
    const FLAGS: i32 = horolog_sys::private_file::AT_ONCE_AND_NO_LINK;
    let file = OpenOptions::new().read(true).custom_flags(FLAGS).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(JobError::Form("it is no regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    (&file).take(JOB_LEN_MAX + 1).read_to_end(&mut bytes)?;
    let is_running = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    Ok((Job::parse(&bytes)?, is_running))
}
