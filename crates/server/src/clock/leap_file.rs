//! File with the list of leap seconds (`leap-seconds.list`), read at start and at every reload. An
//! invalid file prevents the start; at a reload, the last valid list stays in force.

use horolog_sys::explain::explain;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use horolog_time::leap::{LIST_BYTES_MAX, LeapList, LeapListError};

/// Reason for which a file contains no usable list; its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum LeapFileError {
    /// Unreadable file.
    #[error("cannot read the leap-seconds file {0}: {why}; choose another with \
             --leap-file", why = explain(.1))]
    Read(PathBuf, #[source] io::Error),
    /// File that is not a valid list.
    #[error("the leap-seconds file {0} is ignored: {1}")]
    List(PathBuf, #[source] LeapListError),
}

/// Path of the file, and the last valid list read from it. Clones share the list.
#[derive(Clone, Debug)]
pub struct LeapFile {
    path: PathBuf,
    list: Arc<ArcSwap<LeapList>>,
}

impl LeapFile {
    /// Reads the file at `path`, which must contain a valid list.
    pub fn open(path: &Path) -> Result<Self, LeapFileError> {
        let list = Arc::new(ArcSwap::from_pointee(read_list(path)?));
        Ok(Self { path: path.to_owned(), list })
    }

    /// Reads the file again and returns its list, without putting that in force.
    pub fn read(&self) -> Result<LeapList, LeapFileError> {
        read_list(&self.path)
    }

    /// Puts a list that was read earlier in force.
    pub fn replace(&self, list: LeapList) {
        self.list.store(Arc::new(list));
    }

    /// Returns the list in force.
    #[must_use]
    pub fn list(&self) -> Arc<LeapList> {
        self.list.load_full()
    }
}

fn read_list(path: &Path) -> Result<LeapList, LeapFileError> {
    let failed = |error| LeapFileError::Read(path.to_owned(), error);
    let mut text = String::new();
    // A file one byte longer than the maximum is detected as too long.
    let file = File::open(path).map_err(failed)?;
    file.take(LIST_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(failed)?;
    LeapList::parse(&text).map_err(|error| LeapFileError::List(path.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// No leap second but that of 2016; the hash is over these digits.
    const LIST: &str = "#$ 3676924800\n#@ 3991593600\n3644697600 36\n3692217600 37\n\
                        #h 3b7e1e7a 0 0 0 0\n";

    #[test]
    fn a_broken_file_refuses_the_start_and_spoils_no_running_list() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        let name = path.display().to_string();
        let message = LeapFile::open(&path).unwrap_err().to_string();
        assert!(message.starts_with(&format!("cannot read the leap-seconds file {name}: No such")));
        fs::write(&path, LIST).unwrap();
        let message = LeapFile::open(&path).unwrap_err().to_string();
        assert_eq!(
            message,
            format!(
                "the leap-seconds file {name} is ignored: line 5: the hash does not match the \
                 data, so the list was damaged or changed; download it again"
            )
        );
        fs::write(&path, RIGHT).unwrap();
        let file = LeapFile::open(&path).unwrap();
        let shared = file.clone();
        let good = file.list();
        fs::write(&path, LIST).unwrap();
        assert!(file.read().is_err());
        assert_eq!(shared.list(), good);
        fs::write(&path, RIGHT.replace("# old", "# new")).unwrap();
        file.replace(file.read().unwrap());
        assert!(!Arc::ptr_eq(&shared.list(), &good));
    }

    const RIGHT: &str = include_str!("../../testdata/leap-seconds-2016.list");
}
