//! What an agent has to tell, kept on its disk until a broker has it: reports in the order in which
//! they were made, one file each, and one state that takes the place of the state before it. A file
//! is there whole or not at all, whenever the process is killed; one that a disk has spoilt is put
//! aside and said. Room is bounded in bytes and in number. It neither packs nor sends.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::packing::hex;
use crate::{AgentName, CampaignId};

/// Reports that are kept, at most.
pub const REPORTS_MAX: usize = 10_000;
/// Bytes of them, at most.
pub const BYTES_MAX: u64 = 1 << 30;
/// Bytes of a state, at most.
const STATE_BYTES_MAX: u64 = 16 << 20;
/// What a file begins with.
const MAGIC: &[u8] = b"horolog.spool/1 ";
/// Bytes of the line before a file's content, at most.
const HEADER_BYTES_MAX: usize = 1_024;
const REPORT: &str = "report";
const SPOILT: &str = "spoilt";
const STATE: &str = "state.json";
const LOCK: &str = "lock";

/// Why the spool cannot be used; one line.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// It cannot be read or written.
    #[error("{}: {error}; check the path, its permissions and the room on its disk", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Somebody else has it.
    #[error("{} is in use by another agent; end that one or name another directory", .0.display())]
    Taken(PathBuf),
    /// A report is not what was written.
    #[error("{}: {why}; its report is lost", path.display())]
    Spoilt {
        /// Its file, which has been put aside.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// No report more is kept.
    #[error(
        "{} is full ({reports} reports, {bytes} bytes that no broker has taken)", path.display()
    )]
    Full {
        /// The directory.
        path: PathBuf,
        /// How many are kept.
        reports: usize,
        /// Their bytes.
        bytes: u64,
    },
}

/// Why a file is no report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EntryError {
    /// It does not begin as a report does.
    #[error("it does not begin as a report does")]
    Header,
    /// Its content is not what was written.
    #[error("its content is not what was written")]
    Content,
}

/// A report as it is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What it is known by ([`crate::message::Report::id`]).
    pub id: String,
    /// The campaign that it is about.
    pub campaign: CampaignId,
    /// Who made it.
    pub agent: AgentName,
    /// The report, packed.
    pub packed: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    id: String,
    campaign: CampaignId,
    agent: AgentName,
    bytes: usize,
    sha256: String,
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

impl Entry {
    /// As a file.
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

    /// From a file.
    ///
    /// # Errors
    ///
    /// It is none that [`Self::to_bytes`] made.
    pub fn parse(bytes: &[u8]) -> Result<Self, EntryError> {
        let bytes = bytes.strip_prefix(MAGIC).ok_or(EntryError::Header)?;
        let start = &bytes[..bytes.len().min(HEADER_BYTES_MAX)];
        let end = start.iter().position(|byte| *byte == b'\n').ok_or(EntryError::Header)?;
        let header: Header =
            serde_json::from_slice(&bytes[..end]).map_err(|_| EntryError::Header)?;
        let packed = &bytes[end + 1..];
        if packed.len() != header.bytes || sha256(packed) != header.sha256 {
            return Err(EntryError::Content);
        }
        let Header { id, campaign, agent, .. } = header;
        Ok(Self { id, campaign, agent, packed: packed.to_vec() })
    }
}

/// The place of a report in the spool; later ones are greater.
pub type Place = u64;

/// How much is kept at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Reports.
    pub reports: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { reports: REPORTS_MAX, bytes: BYTES_MAX }
    }
}

/// A directory of reports.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    limits: Limits,
    /// Bytes of each.
    kept: BTreeMap<Place, u64>,
    bytes: u64,
    next: Place,
    /// Held as long as this value.
    _lock: File,
}

impl Spool {
    /// Opens a directory, which is made where it is not there. What a killed process left half
    /// written is removed. Gives the spool and the files that were no reports, by their new names.
    ///
    /// # Errors
    ///
    /// Another agent has it, or it cannot be read or written.
    pub fn open(directory: &Path, limits: Limits) -> Result<(Self, Vec<PathBuf>), SpoolError> {
        let failed = at(directory);
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(&failed)?;
        let lock = lock(directory)?;
        let mut spool = Self {
            directory: directory.to_owned(),
            limits,
            kept: BTreeMap::new(),
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

    /// Takes note of a file that was there.
    fn take_note(&mut self, path: &Path, spoilt: &mut Vec<PathBuf>) -> Result<(), SpoolError> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(TEMPORARY) {
            return fs::remove_file(path).map_err(at(path));
        }
        let Some((place, kind)) = name.split_once('.') else { return Ok(()) };
        let Ok(place) = place.parse::<Place>() else { return Ok(()) };
        // No place is given twice, or a spoilt file would be in the way of a later one.
        self.next = self.next.max(place.saturating_add(1));
        if kind != REPORT {
            return Ok(());
        }
        let bytes = fs::read(path).map_err(at(path))?;
        if Entry::parse(&bytes).is_err() {
            let aside = path.with_extension(SPOILT);
            fs::rename(path, &aside).map_err(at(path))?;
            spoilt.push(aside);
            return Ok(());
        }
        self.kept.insert(place, bytes.len() as u64);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Keeps a report; it is on the disk when this returns.
    ///
    /// # Errors
    ///
    /// There is no room, or the disk fails.
    pub fn put(&mut self, entry: &Entry) -> Result<Place, SpoolError> {
        let bytes = entry.to_bytes();
        let length = bytes.len() as u64;
        if self.kept.len() >= self.limits.reports || self.bytes + length > self.limits.bytes {
            return Err(self.full());
        }
        let place = self.next;
        self.write(&self.path(place), &bytes)?;
        self.next += 1;
        self.kept.insert(place, length);
        self.bytes += length;
        Ok(place)
    }

    fn full(&self) -> SpoolError {
        let path = self.directory.clone();
        SpoolError::Full { path, reports: self.kept.len(), bytes: self.bytes }
    }

    /// Whether less than a quarter of the room is left, so that no order is to be taken on.
    ///
    /// # Errors
    ///
    /// It is so.
    pub fn has_room(&self) -> Result<(), SpoolError> {
        let is_roomy =
            self.kept.len() / 3 < self.limits.reports / 4 && self.bytes / 3 < self.limits.bytes / 4;
        if is_roomy { Ok(()) } else { Err(self.full()) }
    }

    /// The oldest report behind this place, and where there is none, the oldest of all.
    ///
    /// # Errors
    ///
    /// The disk does not give it back as it was. It is put aside, and not asked for any more.
    pub fn next_behind(&mut self, place: Place) -> Result<Option<(Place, Entry)>, SpoolError> {
        let mut later = self.kept.range(place.saturating_add(1)..);
        let next = later.next().or_else(|| self.kept.first_key_value());
        let Some(place) = next.map(|(place, _)| *place) else { return Ok(None) };
        let path = self.path(place);
        let read = fs::read(&path).map_err(|error| error.to_string());
        let parsed = read
            .and_then(|bytes| Entry::parse(&bytes).map_err(|error| error.to_string()))
            .map(|entry| Some((place, entry)));
        parsed.map_err(|why| {
            self.bytes -= self.kept.remove(&place).unwrap_or_default();
            // Where not even that is possible, the next start finds it once more.
            let _ = fs::rename(&path, path.with_extension(SPOILT));
            SpoolError::Spoilt { path, why }
        })
    }

    /// Removes a report that a broker has.
    ///
    /// # Errors
    ///
    /// The disk fails.
    pub fn remove(&mut self, place: Place) -> Result<(), SpoolError> {
        let path = self.path(place);
        fs::remove_file(&path).map_err(at(&path))?;
        self.bytes -= self.kept.remove(&place).unwrap_or_default();
        Ok(())
    }

    /// How many reports are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Has this state take the place of the one before.
    ///
    /// # Errors
    ///
    /// The disk fails.
    pub fn keep_state<T: Serialize>(&self, state: &T) -> Result<(), SpoolError> {
        let path = self.directory.join(STATE);
        let text = serde_json::to_vec(state).map_err(|error| at(&path)(error.into()))?;
        self.write(&path, &text)
    }

    /// The state that was kept last; `None` where there is none, or none that can be read.
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

    fn path(&self, place: Place) -> PathBuf {
        self.directory.join(format!("{place:020}.{REPORT}"))
    }

    /// Writes a file beside its place, has it on the disk, and puts it there.
    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), SpoolError> {
        let written = tempfile::Builder::new()
            .prefix(TEMPORARY)
            .tempfile_in(&self.directory)
            .and_then(|mut file| {
                file.write_all(bytes)?;
                file.as_file().sync_all()?;
                file.persist(path).map_err(|error| error.error)?;
                // The new name is on the disk when its directory is.
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

/// Has the directory for this process alone. The lock goes with the process, however it ends.
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
