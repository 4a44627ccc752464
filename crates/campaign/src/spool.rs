//! Spool of an agent: directory with the reports that a broker has not stored yet, one file each,
//! in order of creation, and a file with the agent's persistent state. Files are written
//! atomically; corrupt ones are renamed and reported. The number and the size of the reports are
//! limited.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::packing::hex;
use crate::{AgentName, CampaignId};

/// Largest number of stored reports.
pub const REPORTS_MAX: usize = 10_000;
/// Largest size of all stored reports together, in bytes.
pub const BYTES_MAX: u64 = 1 << 30;
/// Largest size of a state, in bytes.
const STATE_BYTES_MAX: u64 = 16 << 20;
/// Prefix of a report file: format and version.
const MAGIC: &[u8] = b"horolog.spool/1 ";
/// Largest size of the header line before a file's content, in bytes.
const HEADER_BYTES_MAX: usize = 1_024;
const REPORT: &str = "report";
const CORRUPT_EXTENSION: &str = "spoilt";
const STATE_FILE: &str = "state.json";
const LOCK_FILE: &str = "lock";

/// Reason why the spool cannot be used; formatted as one line.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// A path cannot be read or written.
    #[error("{}: {error}; check the path, its permissions and the free space", path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// Another process uses the directory.
    #[error("{} is in use by another agent; stop that agent or choose another \
             directory", .0.display())]
    InUse(PathBuf),
    /// A report is corrupt.
    #[error("{}: {why}; its report is lost", path.display())]
    Corrupt {
        /// File of the report, which was renamed.
        path: PathBuf,
        /// Reason.
        why: String,
    },
    /// The spool is full.
    #[error(
        "{} is full ({reports} reports, {bytes} bytes not delivered to a broker)", path.display()
    )]
    Full {
        /// Directory.
        path: PathBuf,
        /// Number of stored reports.
        reports: usize,
        /// Size of stored reports, in bytes.
        bytes: u64,
    },
}

/// Reason why a file is not a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpoolEntryError {
    /// The prefix or the header line is invalid.
    #[error("invalid header")]
    Header,
    /// The content is corrupt.
    #[error("its checksum does not match")]
    Content,
}

/// Stored report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpoolEntry {
    /// Identifier ([`crate::report::AgentReport::id`]).
    pub id: String,
    /// Campaign of the report.
    pub campaign: CampaignId,
    /// Reporting agent.
    pub agent: AgentName,
    /// Packed report.
    pub packed: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpoolEntryHeader {
    id: String,
    campaign: CampaignId,
    agent: AgentName,
    bytes: usize,
    sha256: String,
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

impl SpoolEntry {
    /// Serialises the entry as a file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let line = serde_json::json!({
            "id": self.id,
            "campaign": self.campaign,
            "agent": self.agent,
            "bytes": self.packed.len(),
            "sha256": sha256(&self.packed),
        });
        [MAGIC, format!("{line}\n").as_bytes(), &self.packed].concat()
    }

    /// Parses a file.
    ///
    /// # Errors
    ///
    /// The bytes were not created by [`Self::to_bytes`], or are corrupt.
    pub fn parse(bytes: &[u8]) -> Result<Self, SpoolEntryError> {
        let bytes = bytes.strip_prefix(MAGIC).ok_or(SpoolEntryError::Header)?;
        let start = &bytes[..bytes.len().min(HEADER_BYTES_MAX)];
        let end = start.iter().position(|byte| *byte == b'\n').ok_or(SpoolEntryError::Header)?;
        let header: SpoolEntryHeader =
            serde_json::from_slice(&bytes[..end]).map_err(|_| SpoolEntryError::Header)?;
        let packed = &bytes[end + 1..];
        if packed.len() != header.bytes || sha256(packed) != header.sha256 {
            return Err(SpoolEntryError::Content);
        }
        let SpoolEntryHeader { id, campaign, agent, .. } = header;
        Ok(Self { id, campaign, agent, packed: packed.to_vec() })
    }
}

/// Position of a report in the spool; later reports have greater positions.
pub type SpoolPosition = u64;

/// Limits of the stored reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpoolLimits {
    /// Number of reports.
    pub reports: usize,
    /// Size of the reports, in bytes.
    pub bytes: u64,
}

impl Default for SpoolLimits {
    fn default() -> Self {
        Self { reports: REPORTS_MAX, bytes: BYTES_MAX }
    }
}

/// Spool directory, locked by this process.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    limits: SpoolLimits,
    /// Size of each report, in bytes.
    report_sizes: BTreeMap<SpoolPosition, u64>,
    bytes: u64,
    next_position: SpoolPosition,
    /// Lock held for the lifetime of this value.
    _lock: File,
}

impl Spool {
    /// Opens a spool directory; creates it if it does not exist, and removes incomplete files of a
    /// killed process. Returns the spool, and the new paths of corrupt files, which were renamed.
    ///
    /// # Errors
    ///
    /// Another agent uses the directory, or it cannot be read or written.
    pub fn open(directory: &Path, limits: SpoolLimits) -> Result<(Self, Vec<PathBuf>), SpoolError> {
        let failed = io_error_at(directory);
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(&failed)?;
        let lock = lock_directory(directory)?;
        let mut spool = Self {
            directory: directory.to_owned(),
            limits,
            report_sizes: BTreeMap::new(),
            bytes: 0,
            next_position: 1,
            _lock: lock,
        };
        let mut corrupt_files = Vec::new();
        for entry in fs::read_dir(directory).map_err(&failed)? {
            spool.register_file(&entry.map_err(&failed)?.path(), &mut corrupt_files)?;
        }
        Ok((spool, corrupt_files))
    }

    /// Registers a file found in the directory, or removes or renames it.
    fn register_file(
        &mut self,
        path: &Path,
        corrupt_files: &mut Vec<PathBuf>,
    ) -> Result<(), SpoolError> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(TEMPORARY_PREFIX) {
            return fs::remove_file(path).map_err(io_error_at(path));
        }
        let Some((position, kind)) = name.split_once('.') else { return Ok(()) };
        let Ok(position) = position.parse::<SpoolPosition>() else { return Ok(()) };
        // A new report must not get the position of a corrupt file.
        self.next_position = self.next_position.max(position.saturating_add(1));
        if kind != REPORT {
            return Ok(());
        }
        let bytes = fs::read(path).map_err(io_error_at(path))?;
        if SpoolEntry::parse(&bytes).is_err() {
            let aside = path.with_extension(CORRUPT_EXTENSION);
            fs::rename(path, &aside).map_err(io_error_at(path))?;
            corrupt_files.push(aside);
            return Ok(());
        }
        self.report_sizes.insert(position, bytes.len() as u64);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Appends a report and syncs it to disk.
    ///
    /// # Errors
    ///
    /// The spool is full, or the disk fails.
    pub fn append(&mut self, entry: &SpoolEntry) -> Result<SpoolPosition, SpoolError> {
        let bytes = entry.to_bytes();
        let length = bytes.len() as u64;
        if self.report_sizes.len() >= self.limits.reports || self.bytes + length > self.limits.bytes
        {
            return Err(self.full_error());
        }
        let position = self.next_position;
        self.write(&self.report_path(position), &bytes)?;
        self.next_position += 1;
        self.report_sizes.insert(position, length);
        self.bytes += length;
        Ok(position)
    }

    fn full_error(&self) -> SpoolError {
        let path = self.directory.clone();
        SpoolError::Full { path, reports: self.report_sizes.len(), bytes: self.bytes }
    }

    /// Checks that at least a quarter of the capacity is free, as required to accept an order.
    ///
    /// # Errors
    ///
    /// Less is free.
    pub fn check_capacity(&self) -> Result<(), SpoolError> {
        let is_roomy = self.report_sizes.len() / 3 < self.limits.reports / 4
            && self.bytes / 3 < self.limits.bytes / 4;
        if is_roomy { Ok(()) } else { Err(self.full_error()) }
    }

    /// Returns the oldest report after this position, or the oldest of all if there is none.
    ///
    /// # Errors
    ///
    /// The report cannot be read or is corrupt. Its file is renamed and not read again.
    pub fn next_after(
        &mut self,
        position: SpoolPosition,
    ) -> Result<Option<(SpoolPosition, SpoolEntry)>, SpoolError> {
        let mut later = self.report_sizes.range(position.saturating_add(1)..);
        let next = later.next().or_else(|| self.report_sizes.first_key_value());
        let Some(position) = next.map(|(position, _)| *position) else { return Ok(None) };
        let path = self.report_path(position);
        let read = fs::read(&path).map_err(|error| error.to_string());
        let parsed = read
            .and_then(|bytes| SpoolEntry::parse(&bytes).map_err(|error| error.to_string()))
            .map(|entry| Some((position, entry)));
        parsed.map_err(|why| {
            self.bytes -= self.report_sizes.remove(&position).unwrap_or_default();
            // If this fails, the next start finds the file again.
            let _ = fs::rename(&path, path.with_extension(CORRUPT_EXTENSION));
            SpoolError::Corrupt { path, why }
        })
    }

    /// Removes a report that a broker has stored.
    ///
    /// # Errors
    ///
    /// The disk fails.
    pub fn remove(&mut self, position: SpoolPosition) -> Result<(), SpoolError> {
        let path = self.report_path(position);
        fs::remove_file(&path).map_err(io_error_at(&path))?;
        self.bytes -= self.report_sizes.remove(&position).unwrap_or_default();
        Ok(())
    }

    /// Returns the number of stored reports.
    #[must_use]
    pub fn len(&self) -> usize {
        self.report_sizes.len()
    }

    /// Returns true if no reports are stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.report_sizes.is_empty()
    }

    /// Saves this state; it replaces the previous one.
    ///
    /// # Errors
    ///
    /// The disk fails.
    pub fn save_state<T: Serialize>(&self, state: &T) -> Result<(), SpoolError> {
        let path = self.directory.join(STATE_FILE);
        let text = serde_json::to_vec(state).map_err(|error| io_error_at(&path)(error.into()))?;
        self.write(&path, &text)
    }

    /// Returns the last saved state; `None` if there is none, or if it cannot be parsed.
    ///
    /// # Errors
    ///
    /// The disk fails.
    pub fn load_state<T: for<'a> Deserialize<'a>>(&self) -> Result<Option<T>, SpoolError> {
        let path = self.directory.join(STATE_FILE);
        match fs::metadata(&path) {
            Ok(metadata) if metadata.len() > STATE_BYTES_MAX => return Ok(None),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error_at(&path)(error)),
        }
        Ok(serde_json::from_slice(&fs::read(&path).map_err(io_error_at(&path))?).ok())
    }

    fn report_path(&self, position: SpoolPosition) -> PathBuf {
        self.directory.join(format!("{position:020}.{REPORT}"))
    }

    /// Writes a temporary file, syncs it to disk, and renames it.
    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), SpoolError> {
        let written = tempfile::Builder::new()
            .prefix(TEMPORARY_PREFIX)
            .tempfile_in(&self.directory)
            .and_then(|mut file| {
                file.write_all(bytes)?;
                file.as_file().sync_all()?;
                file.persist(path).map_err(|error| error.error)?;
                // The new name is on disk once its directory is synced.
                File::open(&self.directory)?.sync_all()
            });
        written.map_err(io_error_at(path))
    }
}

const TEMPORARY_PREFIX: &str = ".new-";

fn io_error_at(path: &Path) -> impl Fn(io::Error) -> SpoolError {
    let path = path.to_owned();
    move |error| SpoolError::Io { path: path.clone(), error }
}

/// Locks the directory for this process. The kernel releases the lock when the process ends.
fn lock_directory(directory: &Path) -> Result<File, SpoolError> {
    let path = directory.join(LOCK_FILE);
    let failed = io_error_at(&path);
    let mut options = File::options();
    let options = options.create(true).truncate(false).write(true);
    let file = options.open(&path).map_err(&failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(SpoolError::InUse(directory.to_owned())),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests;
