//! Spool of an agent: reports stored on disk until a broker has stored them, in order of creation,
//! one file each, and one state that replaces the previous one. A file is complete or absent,
//! whenever the process is killed; a corrupt one is set aside and reported. Storage is limited in
//! bytes and in number. The spool neither packs nor sends.

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
/// Largest size of stored reports, in bytes.
pub const BYTES_MAX: u64 = 1 << 30;
/// Largest size of a state, in bytes.
const STATE_BYTES_MAX: u64 = 16 << 20;
/// Prefix of a file.
const MAGIC: &[u8] = b"horolog.spool/1 ";
/// Largest size of the header line before a file's content, in bytes.
const HEADER_BYTES_MAX: usize = 1_024;
const REPORT: &str = "report";
const SPOILT: &str = "spoilt";
const STATE: &str = "state.json";
const LOCK: &str = "lock";

/// Reason why the spool cannot be used; one line.
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
    Taken(PathBuf),
    /// A report is corrupt.
    #[error("{}: {why}; its report is lost", path.display())]
    Corrupt {
        /// Its file, which has been set aside.
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

/// Reason why a file is no report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EntryError {
    /// The prefix is wrong.
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
struct SpoolHeader {
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
    /// It was not created by [`Self::to_bytes`].
    pub fn parse(bytes: &[u8]) -> Result<Self, EntryError> {
        let bytes = bytes.strip_prefix(MAGIC).ok_or(EntryError::Header)?;
        let start = &bytes[..bytes.len().min(HEADER_BYTES_MAX)];
        let end = start.iter().position(|byte| *byte == b'\n').ok_or(EntryError::Header)?;
        let header: SpoolHeader =
            serde_json::from_slice(&bytes[..end]).map_err(|_| EntryError::Header)?;
        let packed = &bytes[end + 1..];
        if packed.len() != header.bytes || sha256(packed) != header.sha256 {
            return Err(EntryError::Content);
        }
        let SpoolHeader { id, campaign, agent, .. } = header;
        Ok(Self { id, campaign, agent, packed: packed.to_vec() })
    }
}

/// Position of a report in the spool; later ones are greater.
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

/// Directory of reports.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    limits: SpoolLimits,
    /// Size of each report, in bytes.
    report_sizes: BTreeMap<SpoolPosition, u64>,
    bytes: u64,
    next: SpoolPosition,
    /// Lock held for the lifetime of this value.
    _lock: File,
}

impl Spool {
    /// Opens a directory, which is created if it does not exist. Incomplete files of a killed
    /// process are removed. Returns the spool and the files that were no reports, by their new
    /// names.
    ///
    /// # Errors
    ///
    /// Another agent uses it, or it cannot be read or written.
    pub fn open(directory: &Path, limits: SpoolLimits) -> Result<(Self, Vec<PathBuf>), SpoolError> {
        let failed = at(directory);
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(&failed)?;
        let lock = lock(directory)?;
        let mut spool = Self {
            directory: directory.to_owned(),
            limits,
            report_sizes: BTreeMap::new(),
            bytes: 0,
            next: 1,
            _lock: lock,
        };
        let mut spoilt = Vec::new();
        for entry in fs::read_dir(directory).map_err(&failed)? {
            spool.take_note(&entry.map_err(&failed)?.path(), &mut spoilt)?;
        }
        Ok((spool, spoilt))
    }

    /// Registers a file found on opening.
    fn take_note(&mut self, path: &Path, spoilt: &mut Vec<PathBuf>) -> Result<(), SpoolError> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(TEMPORARY) {
            return fs::remove_file(path).map_err(at(path));
        }
        let Some((position, kind)) = name.split_once('.') else { return Ok(()) };
        let Ok(position) = position.parse::<SpoolPosition>() else { return Ok(()) };
        // No position is used twice, otherwise a corrupt file could block a later one.
        self.next = self.next.max(position.saturating_add(1));
        if kind != REPORT {
            return Ok(());
        }
        let bytes = fs::read(path).map_err(at(path))?;
        if SpoolEntry::parse(&bytes).is_err() {
            let aside = path.with_extension(SPOILT);
            fs::rename(path, &aside).map_err(at(path))?;
            spoilt.push(aside);
            return Ok(());
        }
        self.report_sizes.insert(position, bytes.len() as u64);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Appends a report; it is on disk on return.
    ///
    /// # Errors
    ///
    /// The spool is full, or the disk fails.
    pub fn append(&mut self, entry: &SpoolEntry) -> Result<SpoolPosition, SpoolError> {
        let bytes = entry.to_bytes();
        let length = bytes.len() as u64;
        if self.report_sizes.len() >= self.limits.reports || self.bytes + length > self.limits.bytes
        {
            return Err(self.full());
        }
        let position = self.next;
        self.write(&self.path(position), &bytes)?;
        self.next += 1;
        self.report_sizes.insert(position, length);
        self.bytes += length;
        Ok(position)
    }

    fn full(&self) -> SpoolError {
        let path = self.directory.clone();
        SpoolError::Full { path, reports: self.report_sizes.len(), bytes: self.bytes }
    }

    /// Checks that at least a quarter of the capacity is left; otherwise no order may be accepted.
    ///
    /// # Errors
    ///
    /// Less is left.
    pub fn has_room(&self) -> Result<(), SpoolError> {
        let is_roomy = self.report_sizes.len() / 3 < self.limits.reports / 4
            && self.bytes / 3 < self.limits.bytes / 4;
        if is_roomy { Ok(()) } else { Err(self.full()) }
    }

    /// Returns the oldest report after this position, or the oldest of all if there is none.
    ///
    /// # Errors
    ///
    /// The report cannot be read back or is corrupt. It is set aside and not read again.
    pub fn next_after(
        &mut self,
        position: SpoolPosition,
    ) -> Result<Option<(SpoolPosition, SpoolEntry)>, SpoolError> {
        let mut later = self.report_sizes.range(position.saturating_add(1)..);
        let next = later.next().or_else(|| self.report_sizes.first_key_value());
        let Some(position) = next.map(|(position, _)| *position) else { return Ok(None) };
        let path = self.path(position);
        let read = fs::read(&path).map_err(|error| error.to_string());
        let parsed = read
            .and_then(|bytes| SpoolEntry::parse(&bytes).map_err(|error| error.to_string()))
            .map(|entry| Some((position, entry)));
        parsed.map_err(|why| {
            self.bytes -= self.report_sizes.remove(&position).unwrap_or_default();
            // If even that fails, the next start finds it again.
            let _ = fs::rename(&path, path.with_extension(SPOILT));
            SpoolError::Corrupt { path, why }
        })
    }

    /// Removes a report that a broker has stored.
    ///
    /// # Errors
    ///
    /// The disk fails.
    pub fn remove(&mut self, position: SpoolPosition) -> Result<(), SpoolError> {
        let path = self.path(position);
        fs::remove_file(&path).map_err(at(&path))?;
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
        let path = self.directory.join(STATE);
        let text = serde_json::to_vec(state).map_err(|error| at(&path)(error.into()))?;
        self.write(&path, &text)
    }

    /// Returns the state saved last; `None` if there is none, or none that can be read.
    ///
    /// # Errors
    ///
    /// The disk fails.
    pub fn state<T: for<'a> Deserialize<'a>>(&self) -> Result<Option<T>, SpoolError> {
        let path = self.directory.join(STATE);
        match fs::metadata(&path) {
            Ok(facts) if facts.len() > STATE_BYTES_MAX => return Ok(None),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at(&path)(error)),
        }
        Ok(serde_json::from_slice(&fs::read(&path).map_err(at(&path))?).ok())
    }

    fn path(&self, position: SpoolPosition) -> PathBuf {
        self.directory.join(format!("{position:020}.{REPORT}"))
    }

    /// Writes a temporary file, syncs it to disk, and renames it.
    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), SpoolError> {
        let written = tempfile::Builder::new()
            .prefix(TEMPORARY)
            .tempfile_in(&self.directory)
            .and_then(|mut file| {
                file.write_all(bytes)?;
                file.as_file().sync_all()?;
                file.persist(path).map_err(|error| error.error)?;
                // The new name is on disk once its directory is synced.
                File::open(&self.directory)?.sync_all()
            });
        written.map_err(at(path))
    }
}

const TEMPORARY: &str = ".new-";

fn at(path: &Path) -> impl Fn(io::Error) -> SpoolError {
    let path = path.to_owned();
    move |error| SpoolError::Io { path: path.clone(), error }
}

/// Locks the directory for this process. The lock is released with the process, however it ends.
fn lock(directory: &Path) -> Result<File, SpoolError> {
    let path = directory.join(LOCK);
    let failed = at(&path);
    let mut options = File::options();
    let options = options.create(true).truncate(false).write(true);
    let file = options.open(&path).map_err(&failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(SpoolError::Taken(directory.to_owned())),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests;
