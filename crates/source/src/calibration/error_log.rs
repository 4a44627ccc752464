//! Clock-error log: one JSON line for each entry, in a file that is rotated when it is full. A
//! thread without real-time scheduling writes it, so that a slow disk does not delay the
//! calibration; lost entries are counted.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};

use horolog_discipline::ClockErrorLogEntry;

use super::ClockErrorLogConfig;

/// Most entries in the queue to the writer: those of some minutes.
const PENDING_ENTRIES_MAX: usize = 256;
/// Mode of the file: readable by its group, and not by others.
const FILE_MODE: u32 = 0o640;

/// Open log file.
#[derive(Debug)]
pub(super) struct ClockErrorLogFile {
    path: PathBuf,
    bytes_max: u64,
    file: File,
    bytes: u64,
}

impl ClockErrorLogFile {
    /// Opens the file, or continues an existing one.
    pub(super) fn open(config: &ClockErrorLogConfig) -> io::Result<Self> {
        let file = open_for_append(&config.path)?;
        let bytes = file.metadata()?.len();
        let ClockErrorLogConfig { path, bytes_max } = config.clone();
        Ok(Self { path, bytes_max, file, bytes })
    }

    /// Appends an entry. If a full file cannot be rotated, it continues to grow until it can.
    fn write(&mut self, entry: &ClockErrorLogEntry) -> io::Result<()> {
        let line = entry.to_json() + "\n";
        let is_full = self.bytes + line.len() as u64 > self.bytes_max;
        let rotated = if is_full { self.rotate() } else { Ok(()) };
        self.bytes += line.len() as u64;
        self.file.write_all(line.as_bytes())?;
        rotated
    }

    fn rotate(&mut self) -> io::Result<()> {
        let mut rotated_path = self.path.clone().into_os_string();
        rotated_path.push(".1");
        match fs::rename(&self.path, rotated_path) {
            // The file was removed by another program.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        self.file = open_for_append(&self.path)?;
        self.bytes = 0;
        Ok(())
    }
}

fn open_for_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(FILE_MODE).open(path)
}

/// Log with its writer thread; dropping it writes pending entries.
#[derive(Debug)]
pub(super) struct ClockErrorLog {
    sender: Option<SyncSender<ClockErrorLogEntry>>,
    failures: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl ClockErrorLog {
    /// Starts the writer thread.
    pub(super) fn start(mut file: ClockErrorLogFile) -> io::Result<Self> {
        let (sender, entries) = mpsc::sync_channel::<ClockErrorLogEntry>(PENDING_ENTRIES_MAX);
        let failures = Arc::<AtomicU64>::default();
        let failed = Arc::clone(&failures);
        let work = move || {
            for entry in entries {
                let is_lost = file.write(&entry).is_err();
                failed.fetch_add(is_lost.into(), Ordering::Relaxed);
            }
        };
        let thread = thread::Builder::new().name("clock-error-log".into()).spawn(work)?;
        Ok(Self { sender: Some(sender), failures, thread: Some(thread) })
    }

    /// Queues an entry without blocking; if the queue is full, the entry is lost and counted.
    pub(super) fn write(&self, entry: &ClockErrorLogEntry) {
        let is_lost = self.sender.as_ref().is_none_or(|log| log.try_send(*entry).is_err());
        self.failures.fetch_add(is_lost.into(), Ordering::Relaxed);
    }

    /// Returns the number of entries that could not be written, or with which a full file could not
    /// be rotated.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

impl Drop for ClockErrorLog {
    fn drop(&mut self) {
        drop(self.sender.take());
        // A panic of the thread has already been reported on stderr.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use horolog_discipline::{PulseVerdict, SynchronisationState};

    use super::*;

    fn entry(monotonic_ns: i64) -> ClockErrorLogEntry {
        ClockErrorLogEntry {
            monotonic_ns,
            utc_ns: None,
            measured_ns: None,
            innovation_ns: None,
            verdict: PulseVerdict::Missing,
            offset_ns: Some(-5),
            uncertainty_ns: None,
            frequency_ppb: None,
            noise_ns: 1.0,
            command_ppb: None,
            step_ns: None,
            state: SynchronisationState::Holdover,
        }
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    fn numbers(text: &str) -> Vec<i64> {
        let number = |line| serde_json::from_str::<ClockErrorLogEntry>(line).unwrap().monotonic_ns;
        text.lines().map(number).collect()
    }

    #[test]
    fn a_full_file_becomes_the_one_before_and_nothing_is_torn() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("errors.jsonl");
        let config = ClockErrorLogConfig { path: path.clone(), bytes_max: 2_000 };
        for part in [0..10, 10..30] {
            let log = ClockErrorLog::start(ClockErrorLogFile::open(&config).unwrap()).unwrap();
            part.for_each(|number| log.write(&entry(number)));
        }
        let (before, now) = (read(&directory.path().join("errors.jsonl.1")), read(&path));
        assert!(before.len() <= 2_000 && now.len() <= 2_000);
        let numbers = numbers(&(before + &now));
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
        assert_eq!(numbers.last(), Some(&29));
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777 & !FILE_MODE, 0);
    }

    #[test]
    fn a_file_that_cannot_be_turned_over_is_gone_on_with_until_it_can() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("errors.jsonl");
        // A directory with the name of the old file, which no file replaces.
        let before = directory.path().join("errors.jsonl.1");
        fs::create_dir(&before).unwrap();
        let config = ClockErrorLogConfig { path: path.clone(), bytes_max: 1_000 };
        let mut file = ClockErrorLogFile::open(&config).unwrap();
        let failures = (0..20).filter(|number| file.write(&entry(*number)).is_err()).count();
        assert!(failures > 0, "it is counted");
        assert_eq!(numbers(&read(&path)), (0..20).collect::<Vec<_>>());
        fs::remove_dir(&before).unwrap();
        file.write(&entry(20)).unwrap();
        assert_eq!((numbers(&read(&path)), numbers(&read(&before)).len()), (vec![20], 20));
    }

    #[test]
    fn a_disk_that_accepts_nothing_blocks_no_caller() {
        let (waiting, _entries) = mpsc::sync_channel(PENDING_ENTRIES_MAX);
        let log = ClockErrorLog { sender: Some(waiting), failures: Arc::default(), thread: None };
        (0..PENDING_ENTRIES_MAX as i64 + 5).for_each(|number| log.write(&entry(number)));
        assert_eq!(log.failures(), 5);
    }
}
