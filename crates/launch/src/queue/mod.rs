//! Queue of jobs that wait in processes of their own, one file each in a directory of the user. A
//! file is information only: the process has received its programs directly. A file is written
//! completely or not at all, and a job whose process is gone, or whose PID was reused, is detected.

mod job;
mod process;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use horolog_record::rfc3339_now;
use horolog_sys::explain::explain;
use horolog_sys::signal::Signal;

pub use job::{JOB_LEN_MAX, JOB_SCHEMA, JobFileError, QueuedJob, QueuedJobEnd};
pub use process::ProcessIdentity;

/// Mode of files: accessible to the user only.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// Mode bits of group and others, none of which the directory may have.
const GROUP_AND_OTHER_BITS: u32 = 0o077;
/// Largest number of attempts to claim a number while others claim numbers concurrently.
const CLAIMS_MAX: u32 = 1_000;
/// Longest wait for the end of a job that was signalled.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum age of an empty job file whose job counts as starting.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Reason why the queue cannot be used; one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum JobQueueError {
    /// No directory for the queue is defined.
    #[error(
        "the queue directory is undefined: neither XDG_STATE_HOME nor HOME is set; set one of \
             them"
    )]
    NoDirectory,
    /// The home directory does not exist.
    #[error(
        "HOME is {}, which is not a directory; set it or XDG_STATE_HOME to one", .0.display()
    )]
    NoHome(PathBuf),
    /// A path cannot be read or written.
    #[error("{}: {why}; check the path and its permissions", path.display(), why = explain(.error))]
    Io {
        /// File or directory.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The directory is accessible to other users, or has another owner.
    #[error(
        "{} is accessible to other users or has another owner (mode {mode:o}); run 'chmod 700' on \
         it or set XDG_STATE_HOME to another directory", path.display()
    )]
    NotPrivate {
        /// Directory.
        path: PathBuf,
        /// Permission bits of the directory.
        mode: u32,
    },
    /// The job does not exist.
    #[error("job {0} not found; 'horolog at list' lists the jobs")]
    NoJob(u32),
    /// The job has not ended in time: its number, and the PID of its process.
    #[error("job {0} has not ended within 5 s of its signal; its process is {1}")]
    StillRunning(u32, u32),
}

/// State of a job in the queue, from waiting to ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobState {
    /// Waiting for its instant, or its next one.
    Waiting,
    /// Programs are running.
    Running,
    /// Process is being started.
    Starting,
    /// Process is gone without a result (killed, or the host was restarted), or was never entered.
    Lost,
    /// Ended; its status or output is stored.
    Ended,
    /// File cannot be read or is not a job of this number, for this reason.
    Unreadable(String),
}

/// Job as listed in the queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobQueueEntry {
    /// Number in the queue.
    pub id: u32,
    /// State of the job, by its file and its process.
    pub state: JobState,
    /// Contents of its file; `None` if that is absent, empty or unreadable.
    pub job: Option<QueuedJob>,
    /// Path of its output, if that file exists.
    pub log: Option<PathBuf>,
}

/// Job queue of a user: a directory with a file and a log for each job.
#[derive(Clone, Debug)]
pub struct JobQueue {
    directory: PathBuf,
    /// Home directory, which is not created; `None` if the queue is not below it.
    home: Option<PathBuf>,
}

/// Lock on a job file that marks the job's programs as running; released with the process.
#[derive(Debug)]
pub struct RunningJobLock {
    file: File,
    is_locked: bool,
}

impl RunningJobLock {
    /// Acquires the lock while programs run, and releases it otherwise.
    pub fn set(&mut self, is_running: bool) {
        if is_running != self.is_locked {
            let result = if is_running { self.file.lock() } else { self.file.unlock() };
            // On a file system without locks the job is listed as waiting.
            self.is_locked = is_running && result.is_ok();
        }
    }
}

/// Claimed number and its files.
#[derive(Debug)]
pub struct ClaimedJobNumber {
    /// Claimed number.
    pub id: u32,
    /// Job file, still empty.
    pub file: PathBuf,
    /// Path of the file for the job's output.
    pub log: PathBuf,
}

impl JobQueue {
    /// Returns the queue of a user: below `XDG_STATE_HOME`, or `~/.local/state`. Relative paths are
    /// ignored; an error if neither is usable.
    pub fn default_directory(
        state_home: Option<PathBuf>,
        home: Option<PathBuf>,
    ) -> Result<Self, JobQueueError> {
        let absolute = |path: &PathBuf| path.is_absolute();
        if let Some(base) = state_home.filter(absolute) {
            return Ok(Self { directory: base.join("horolog/at"), home: None });
        }
        let home = home.filter(absolute).ok_or(JobQueueError::NoDirectory)?;
        Ok(Self { directory: home.join(".local/state/horolog/at"), home: Some(home) })
    }

    /// Returns the queue and the number of a job file; `None` if the path is not that of one.
    #[must_use]
    pub fn of_file(file: &Path) -> Option<(Self, u32)> {
        let id = job_number(file, "json")?;
        Some((Self { directory: file.parent()?.to_owned(), home: None }, id))
    }

    /// Creates the directory if necessary, and checks that it belongs to the user and that others
    /// have no access.
    fn create_directory(&self) -> Result<(), JobQueueError> {
        if let Some(home) = self.home.as_ref().filter(|home| !home.is_dir()) {
            return Err(JobQueueError::NoHome(home.clone()));
        }
        let path = &self.directory;
        let failed = |error| JobQueueError::Io { path: path.clone(), error };
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path).map_err(failed)?;
        let metadata = fs::symlink_metadata(path).map_err(failed)?;
        let user_id = fs::metadata("/proc/self").map_err(failed)?.uid();
        if !metadata.is_dir()
            || metadata.uid() != user_id
            || metadata.mode() & GROUP_AND_OTHER_BITS != 0
        {
            return Err(JobQueueError::NotPrivate {
                path: path.clone(),
                mode: metadata.mode() & 0o7777,
            });
        }
        Ok(())
    }

    fn job_path(&self, id: u32) -> PathBuf {
        self.directory.join(format!("{id}.json"))
    }

    fn log_path(&self, id: u32) -> PathBuf {
        self.directory.join(format!("{id}.log"))
    }

    /// Claims the next number by creating its job file and its log. The log is returned open.
    pub fn claim(&self) -> Result<(ClaimedJobNumber, File), JobQueueError> {
        self.create_directory()?;
        let last_number = self.numbers()?.last().copied().unwrap_or(0);
        for id in (last_number.saturating_add(1)..).take(CLAIMS_MAX as usize) {
            let (file, log) = (self.job_path(id), self.log_path(id));
            match create_new_file(&file) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(JobQueueError::Io { path: file, error }),
                Ok(_) => {
                    let output = create_new_file(&log).map_err(|error| {
                        // The file may have been removed already.
                        let _ = fs::remove_file(&file);
                        JobQueueError::Io { path: log.clone(), error }
                    })?;
                    return Ok((ClaimedJobNumber { id, file, log }, output));
                }
            }
        }
        let error = io::Error::other("all job numbers are in use");
        Err(JobQueueError::Io { path: self.directory.clone(), error })
    }

    /// Writes a job's file by replacing it at once, so that readers never see a part of it.
    pub fn write(&self, job: &QueuedJob) -> Result<(), JobQueueError> {
        let path = self.job_path(job.id);
        let write = || {
            let mut temporary =
                tempfile::Builder::new().prefix(".job-").tempfile_in(&self.directory)?;
            temporary.write_all(job.to_text().as_bytes())?;
            temporary.persist(&path).map(drop).map_err(|error| error.error)
        };
        write().map_err(|error| JobQueueError::Io { path: path.clone(), error })
    }

    /// Opens the lock by which a job marks its programs as running.
    pub fn open_running_lock(&self, id: u32) -> Result<RunningJobLock, JobQueueError> {
        let path = self.job_path(id);
        let file = File::open(&path).map_err(|error| JobQueueError::Io { path, error })?;
        Ok(RunningJobLock { file, is_locked: false })
    }

    /// Records the end of a job, with its exit status if it has one, and removes an empty log. The
    /// job is removed if it succeeded without output, or if its end cannot be stored.
    pub fn finish(&self, id: u32, status: Option<i32>) {
        let log = self.log_path(id);
        let is_log_empty = fs::metadata(&log).is_ok_and(|log| log.len() == 0);
        if is_log_empty {
            // The file may have been removed already.
            let _ = fs::remove_file(&log);
        }
        let store_end = || {
            let (job, _) = job::read(&self.job_path(id)).ok()?;
            let ended = Some(QueuedJobEnd { at: rfc3339_now(), status });
            self.write(&QueuedJob { ended, ..job }).ok()
        };
        if is_log_empty && status == Some(0) || store_end().is_none() {
            let _ = fs::remove_file(self.job_path(id));
        }
    }

    /// Returns all jobs, by number.
    pub fn list(&self) -> Result<Vec<JobQueueEntry>, JobQueueError> {
        Ok(self.numbers()?.into_iter().map(|id| self.entry(id)).collect())
    }

    fn numbers(&self) -> Result<Vec<u32>, JobQueueError> {
        let failed = |error| JobQueueError::Io { path: self.directory.clone(), error };
        let files = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            files => files.map_err(failed)?,
        };
        let mut numbers = Vec::new();
        for file in files {
            let path = file.map_err(failed)?.path();
            numbers.extend(job_number(&path, "json").or_else(|| job_number(&path, "log")));
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }

    fn entry(&self, id: u32) -> JobQueueEntry {
        let log = Some(self.log_path(id)).filter(|log| log.is_file());
        let (state, job) = match job::read(&self.job_path(id)) {
            Err(JobFileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                (JobState::Ended, None)
            }
            Err(JobFileError::Empty) if self.is_recent(id) => (JobState::Starting, None),
            Err(JobFileError::Empty) => (JobState::Lost, None),
            Err(error) => (JobState::Unreadable(error.to_string()), None),
            Ok((job, _)) if job.id != id => {
                (JobState::Unreadable(format!("it belongs to job {}", job.id)), None)
            }
            Ok((job, _)) if job.ended.is_some() => (JobState::Ended, Some(job)),
            Ok((job, _)) if !job.process.is_running() => (JobState::Lost, Some(job)),
            Ok((job, true)) => (JobState::Running, Some(job)),
            Ok((job, false)) => (JobState::Waiting, Some(job)),
        };
        JobQueueEntry { id, state, job, log }
    }

    fn is_recent(&self, id: u32) -> bool {
        let modified_at = fs::metadata(self.job_path(id)).and_then(|file| file.modified());
        modified_at.is_ok_and(|made| made.elapsed().is_ok_and(|age| age < START_TIMEOUT))
    }

    /// Sends SIGTERM to the process of a waiting or running job, waits for its end, and removes the
    /// job's files. Returns the entry as it was before; an error if the job has not ended within
    /// [`END_TIMEOUT`].
    pub fn cancel(&self, id: u32) -> Result<JobQueueEntry, JobQueueError> {
        let entry = self.entry(id);
        if entry.state == JobState::Ended && entry.job.is_none() && entry.log.is_none() {
            return Err(JobQueueError::NoJob(id));
        }
        if let (JobState::Waiting | JobState::Running, Some(job)) = (&entry.state, &entry.job) {
            self.terminate_job(job)?;
        }
        for path in [self.job_path(id), self.log_path(id)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(JobQueueError::Io { path, error });
                }
                _ => {}
            }
        }
        Ok(entry)
    }

    fn terminate_job(&self, job: &QueuedJob) -> Result<(), JobQueueError> {
        let Some(handle) = job.process.open_handle() else { return Ok(()) };
        let failed = |error| JobQueueError::Io { path: self.job_path(job.id), error };
        match handle.signal(Signal::Terminate) {
            // The job has ended meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if !job.process.is_running() => {
                drop(error);
                return Ok(());
            }
            signalled => signalled.map_err(failed)?,
        }
        let deadline = Instant::now() + END_TIMEOUT;
        while job.process.is_running() {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Err(JobQueueError::StillRunning(job.id, job.process.pid));
            }
            handle.wait(remaining).map_err(failed)?;
        }
        Ok(())
    }
}

/// Parses the number of a file name such as `12.json`; `None` for other names.
fn job_number(path: &Path, extension: &str) -> Option<u32> {
    if path.extension()? != extension {
        return None;
    }
    let stem = path.file_stem()?.to_str()?;
    let id: u32 = stem.parse().ok().filter(|id| *id > 0)?;
    // No sign and no leading zeros.
    (id.to_string() == stem).then_some(id)
}

fn create_new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create_new(true).mode(FILE_MODE).open(path)
}

#[cfg(test)]
mod tests;
