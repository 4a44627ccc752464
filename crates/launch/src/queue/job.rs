//! Job as stored in its file. Reading one never panics; incomplete files and other formats are
//! refused.

use horolog_sys::explain::explain;
use std::fs::{OpenOptions, TryLockError};
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::ProcessIdentity;

/// Name and version of the schema.
pub const JOB_SCHEMA: &str = "horolog.at-job/1";
/// Largest size of a job file, in bytes; more than any job from a command line needs.
pub const JOB_LEN_MAX: u64 = 4 << 20;

/// Contents of a job file: process, instants and programs of a job, and its end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueuedJob {
    /// Name and version of the format, [`JOB_SCHEMA`].
    pub schema: String,
    /// Number in the queue.
    pub id: u32,
    /// Process that waits for the instants and starts the programs.
    #[serde(flatten)]
    pub process: ProcessIdentity,
    /// Time at which the job was queued, RFC 3339.
    pub queued_at: String,
    /// First instant, as `TimescaleInstant` is displayed.
    pub first: String,
    /// Period between instants, in ns; absent if there is only one instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ns: Option<u64>,
    /// Programs to run: each with its arguments, or a line for the shell.
    pub programs: Vec<Vec<String>>,
    /// Working directory of the programs.
    pub directory: String,
    /// End of the job; absent until it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<QueuedJobEnd>,
}

/// Time and exit status of a job that has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueuedJobEnd {
    /// Time of the end, RFC 3339.
    pub at: String,
    /// Exit status, as `horolog at` would have returned in the foreground; absent if the job was
    /// terminated before it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
}

/// Reason why a file is no job.
#[derive(Debug, thiserror::Error)]
pub enum JobFileError {
    /// The file cannot be read.
    #[error("cannot be read: {why}", why = explain(.0))]
    Io(#[from] io::Error),
    /// The file is still empty.
    #[error("is empty")]
    Empty,
    /// The file is too long.
    #[error("exceeds {JOB_LEN_MAX} bytes and cannot be a job")]
    TooLong,
    /// The file is not a job, for this reason.
    #[error("is not a job: {0}")]
    NotAJob(String),
    /// The schema has another version.
    #[error("has the schema '{0}'; this version reads {JOB_SCHEMA}")]
    Schema(String),
}

impl QueuedJob {
    /// Formats the job as the text of its file.
    #[must_use]
    pub fn to_text(&self) -> String {
        // Strings and numbers always serialise.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Parses the contents of a job file.
    pub fn parse(bytes: &[u8]) -> Result<Self, JobFileError> {
        if bytes.is_empty() {
            return Err(JobFileError::Empty);
        }
        if bytes.len() as u64 > JOB_LEN_MAX {
            return Err(JobFileError::TooLong);
        }
        let job: Self = serde_json::from_slice(bytes)
            .map_err(|error| JobFileError::NotAJob(error.to_string()))?;
        if job.schema != JOB_SCHEMA {
            return Err(JobFileError::Schema(job.schema.escape_debug().to_string()));
        }
        Ok(job)
    }
}

/// Reads a job file without blocking. Also returns whether the job's programs are running, which
/// the job's process marks by a lock on the file.
pub(super) fn read(path: &Path) -> Result<(QueuedJob, bool), JobFileError> {
    use std::os::unix::fs::OpenOptionsExt;
    /// `O_NONBLOCK`, so that a FIFO in its place is opened at once, and `O_NOFOLLOW`.
    const FLAGS: i32 = horolog_sys::private_file::NONBLOCK_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(FLAGS).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(JobFileError::NotAJob("not a regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    (&file).take(JOB_LEN_MAX + 1).read_to_end(&mut bytes)?;
    let is_running = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    Ok((QueuedJob::parse(&bytes)?, is_running))
}
