//! Jobs that wait in processes of their own, one file each in a directory of the user's. A file is
//! information: what a job runs, its process has been told itself. It is written whole or not at
//! all, and one whose process is gone, or has given its number to another, is seen to be.

mod job;
mod process;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use horolog_record::rfc3339_now;
use horolog_sys::signal::Signal;

pub use job::{Ending, JOB_LEN_MAX, JOB_SCHEMA, Job, JobError};
pub use process::ProcessIdentity;

/// For nobody but the user.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// What others may not do to the directory.
const FOR_OTHERS: u32 = 0o077;
/// How many numbers are tried that others take at the same moment.
const CLAIMS_MAX: u32 = 1_000;
/// How long a job may take to end that was told to.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// How long a job may be without its process: it is just being started.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// Why the queue cannot be used; one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// There is no place for it.
    #[error("neither XDG_STATE_HOME nor HOME says where to keep the queue; set one of them")]
    NoPlace,
    /// The user's directory is not there.
    #[error(
        "HOME is {}, which is no directory; set it or XDG_STATE_HOME to one", .0.display()
    )]
    NoHome(PathBuf),
    /// It cannot be read or written.
    #[error("{}: {error}; check the path and its permissions", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Others could write there.
    #[error(
        "{} is open to other users or not yours (mode {mode:o}); run 'chmod 700' on it or set \
         XDG_STATE_HOME to another place", path.display()
    )]
    Open {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// No such job.
    #[error("there is no job {0}; 'horolog at list' shows those that there are")]
    NoJob(u32),
    /// It goes on.
    #[error("job {0} was told to end and has not within 5 s; its process is {1}")]
    GoesOn(u32, u32),
}

/// What became of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It waits for its instant, or its next one.
    Waiting,
    /// Its programs run.
    Running,
    /// It is just being started.
    Starting,
    /// Its process is gone without a word: killed, or the machine was restarted.
    Lost,
    /// It is over; how, or its output, is kept.
    Ended,
    /// Its file cannot be read.
    Unreadable(String),
}

/// A job as it stands in the queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its number.
    pub id: u32,
    /// What became of it.
    pub standing: Standing,
    /// What it is, where that can be read.
    pub job: Option<Job>,
    /// Where its output goes, where there is such a file.
    pub log: Option<PathBuf>,
}

/// A user's queue.
#[derive(Clone, Debug)]
pub struct Queue {
    directory: PathBuf,
    /// What is not made where it is not there.
    home: Option<PathBuf>,
}

/// A job's word on whether its programs run: a lock on its file, which goes with the process.
#[derive(Debug)]
pub struct RunningMark {
    file: File,
    is_set: bool,
}

impl RunningMark {
    /// Sets it or takes it back.
    pub fn set(&mut self, is_running: bool) {
        if is_running != self.is_set {
            let changed = if is_running { self.file.lock() } else { self.file.unlock() };
            // Where a file system has no locks, the job is listed as one that waits.
            self.is_set = is_running && changed.is_ok();
        }
    }
}

/// A number that is taken, with its files.
#[derive(Debug)]
pub struct Claim {
    /// The number.
    pub id: u32,
    /// The job's file, empty as yet.
    pub file: PathBuf,
    /// Where its output goes.
    pub log: PathBuf,
}

impl Queue {
    /// Where a user's queue is: below `XDG_STATE_HOME`, or `~/.local/state`.
    pub fn place(state_home: Option<PathBuf>, home: Option<PathBuf>) -> Result<Self, QueueError> {
        let absolute = |path: &PathBuf| path.is_absolute();
        if let Some(base) = state_home.filter(absolute) {
            return Ok(Self { directory: base.join("horolog/at"), home: None });
        }
        let home = home.filter(absolute).ok_or(QueueError::NoPlace)?;
        Ok(Self { directory: home.join(".local/state/horolog/at"), home: Some(home) })
    }

    /// The queue that a job's file is in.
    #[must_use]
    pub fn of_file(file: &Path) -> Option<(Self, u32)> {
        let id = number(file, "json")?;
        Some((Self { directory: file.parent()?.to_owned(), home: None }, id))
    }

    /// Makes the directory, where it is not there, and sees that it is the user's own.
    fn make(&self) -> Result<(), QueueError> {
        if let Some(home) = self.home.as_ref().filter(|home| !home.is_dir()) {
            return Err(QueueError::NoHome(home.clone()));
        }
        let path = &self.directory;
        let failed = |error| QueueError::Io { path: path.clone(), error };
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path).map_err(failed)?;
        let facts = fs::symlink_metadata(path).map_err(failed)?;
        let own = fs::metadata("/proc/self").map_err(failed)?.uid();
        if !facts.is_dir() || facts.uid() != own || facts.mode() & FOR_OTHERS != 0 {
            return Err(QueueError::Open { path: path.clone(), mode: facts.mode() & 0o7777 });
        }
        Ok(())
    }

    fn file(&self, id: u32) -> PathBuf {
        self.directory.join(format!("{id}.json"))
    }

    fn log(&self, id: u32) -> PathBuf {
        self.directory.join(format!("{id}.log"))
    }

    /// Takes the next number.
    pub fn claim(&self) -> Result<(Claim, File), QueueError> {
        self.make()?;
        let after = self.numbers()?.last().copied().unwrap_or(0);
        for id in (after.saturating_add(1)..).take(CLAIMS_MAX as usize) {
            let (file, log) = (self.file(id), self.log(id));
            match new_file(&file) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(QueueError::Io { path: file, error }),
                Ok(_) => {
                    let output = new_file(&log).map_err(|error| {
                        // It may be gone already.
                        let _ = fs::remove_file(&file);
                        QueueError::Io { path: log.clone(), error }
                    })?;
                    return Ok((Claim { id, file, log }, output));
                }
            }
        }
        let error = io::Error::other("no number is free");
        Err(QueueError::Io { path: self.directory.clone(), error })
    }

    /// Writes a job, whole.
    pub fn write(&self, job: &Job) -> Result<(), QueueError> {
        let path = self.file(job.id);
        let write = || {
            let mut beside =
                tempfile::Builder::new().prefix(".job-").tempfile_in(&self.directory)?;
            beside.write_all(job.to_text().as_bytes())?;
            beside.persist(&path).map(drop).map_err(|error| error.error)
        };
        write().map_err(|error| QueueError::Io { path: path.clone(), error })
    }

    /// By what a job tells that its programs run.
    pub fn mark(&self, id: u32) -> Result<RunningMark, QueueError> {
        let path = self.file(id);
        let file = File::open(&path).map_err(|error| QueueError::Io { path, error })?;
        Ok(RunningMark { file, is_set: false })
    }

    /// A job is over, with this exit status where it has one: how it ended is kept, and its log if
    /// there is something in it; of one that succeeded and said nothing, nothing is.
    pub fn finish(&self, id: u32, status: Option<i32>) {
        let log = self.log(id);
        let said_nothing = fs::metadata(&log).is_ok_and(|log| log.len() == 0);
        if said_nothing {
            // What is gone already need not be removed.
            let _ = fs::remove_file(&log);
        }
        let ended = || {
            let (job, _) = job::read(&self.file(id)).ok()?;
            let ended = Some(Ending { at: rfc3339_now(), status });
            self.write(&Job { ended, ..job }).ok()
        };
        if said_nothing && status == Some(0) || ended().is_none() {
            let _ = fs::remove_file(self.file(id));
        }
    }

    /// All jobs, by their numbers.
    pub fn list(&self) -> Result<Vec<Entry>, QueueError> {
        Ok(self.numbers()?.into_iter().map(|id| self.entry(id)).collect())
    }

    fn numbers(&self) -> Result<Vec<u32>, QueueError> {
        let failed = |error| QueueError::Io { path: self.directory.clone(), error };
        let files = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            files => files.map_err(failed)?,
        };
        let mut numbers = Vec::new();
        for file in files {
            let path = file.map_err(failed)?.path();
            numbers.extend(number(&path, "json").or_else(|| number(&path, "log")));
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }

    fn entry(&self, id: u32) -> Entry {
        let log = Some(self.log(id)).filter(|log| log.is_file());
        let (standing, job) = match job::read(&self.file(id)) {
            Err(JobError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                (Standing::Ended, None)
            }
            Err(JobError::Empty) if self.is_young(id) => (Standing::Starting, None),
            Err(JobError::Empty) => (Standing::Lost, None),
            Err(error) => (Standing::Unreadable(error.to_string()), None),
            Ok((job, _)) if job.id != id => {
                (Standing::Unreadable(format!("it is of job {}", job.id)), None)
            }
            Ok((job, _)) if job.ended.is_some() => (Standing::Ended, Some(job)),
            Ok((job, _)) if !job.process.is_there() => (Standing::Lost, Some(job)),
            Ok((job, true)) => (Standing::Running, Some(job)),
            Ok((job, false)) => (Standing::Waiting, Some(job)),
        };
        Entry { id, standing, job, log }
    }

    fn is_young(&self, id: u32) -> bool {
        let made = fs::metadata(self.file(id)).and_then(|file| file.modified());
        made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age < START_PATIENCE))
    }

    /// Ends a job, with its programs where they run, and removes what is left of it. Says what it
    /// was.
    pub fn cancel(&self, id: u32) -> Result<Entry, QueueError> {
        let entry = self.entry(id);
        if entry.standing == Standing::Ended && entry.job.is_none() && entry.log.is_none() {
            return Err(QueueError::NoJob(id));
        }
        if let (Standing::Waiting | Standing::Running, Some(job)) = (&entry.standing, &entry.job) {
            self.end(job)?;
        }
        for path in [self.file(id), self.log(id)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(QueueError::Io { path, error });
                }
                _ => {}
            }
        }
        Ok(entry)
    }

    fn end(&self, job: &Job) -> Result<(), QueueError> {
        let Some(handle) = job.process.open() else { return Ok(()) };
        let failed = |error| QueueError::Io { path: self.file(job.id), error };
        match handle.signal(Signal::Terminate) {
            // It has ended meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if !job.process.is_there() => {
                drop(error);
                return Ok(());
            }
            signalled => signalled.map_err(failed)?,
        }
        let until = Instant::now() + END_PATIENCE;
        while job.process.is_there() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(QueueError::GoesOn(job.id, job.process.pid));
            }
            handle.wait(left).map_err(failed)?;
        }
        Ok(())
    }
}

/// `12` of `12.json`.
fn number(path: &Path, extension: &str) -> Option<u32> {
    if path.extension()? != extension {
        return None;
    }
    let stem = path.file_stem()?.to_str()?;
    let id: u32 = stem.parse().ok().filter(|id| *id > 0)?;
    // No sign, no zeros in front.
    (id.to_string() == stem).then_some(id)
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create_new(true).mode(FILE_MODE).open(path)
}

#[cfg(test)]
mod tests;
