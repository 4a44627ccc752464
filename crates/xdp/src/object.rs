//! Opening and loading of a compiled object, with the kernel's own messages for the error.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Mutex;

use horolog_sys::capability::{Capabilities, Capability};
use libbpf_rs::{MapCore, Object, ObjectBuilder, OpenObject, PrintLevel};

use crate::XdpError;

/// Last message of libbpf while it loaded something; it contains the verifier's reason.
static LAST_WORDS: Mutex<String> = Mutex::new(String::new());

fn keep_last_words(_: PrintLevel, words: String) {
    if let Ok(mut last) = LAST_WORDS.lock() {
        *last = words;
    }
}

/// A loaded program with its maps.
pub(crate) struct LoadedObject {
    name: &'static str,
    object: Object,
}

impl LoadedObject {
    /// Loads `bytes`; `prepare` first sets map sizes and constants.
    pub(crate) fn load(
        name: &'static str,
        bytes: &[u8],
        prepare: impl FnOnce(&mut OpenObject) -> Result<(), XdpError>,
    ) -> Result<Self, XdpError> {
        libbpf_rs::set_print(Some((PrintLevel::Warn, keep_last_words)));
        if let Ok(mut last) = LAST_WORDS.lock() {
            last.clear();
        }
        let open =
            ObjectBuilder::default().name(name).and_then(|builder| builder.open_memory(bytes));
        let mut open = open.map_err(|error| refused(name, &error))?;
        prepare(&mut open)?;
        let object = open.load().map_err(|error| refused(name, &error))?;
        Ok(Self { name, object })
    }

    /// Returns the descriptor of the program called `part`.
    pub(crate) fn program(&self, part: &'static str) -> Result<BorrowedFd<'_>, XdpError> {
        self.object
            .progs()
            .find(|program| program.name() == OsStr::new(part))
            // SAFETY: the descriptor stays open as long as the object that `self` owns.
            .map(|program| unsafe { BorrowedFd::borrow_raw(program.as_fd().as_raw_fd()) })
            .ok_or(XdpError::Missing { object: self.name, part })
    }

    /// Returns the map called `part`.
    pub(crate) fn map(&self, part: &'static str) -> Result<libbpf_rs::Map<'_>, XdpError> {
        self.object
            .maps()
            .find(|map| map.name() == OsStr::new(part))
            .ok_or(XdpError::Missing { object: self.name, part })
    }
}

/// Sets the number of entries of the map called `part`.
pub(crate) fn size_map(
    object: &mut OpenObject,
    name: &'static str,
    part: &'static str,
    entries: u32,
) -> Result<(), XdpError> {
    object
        .maps_mut()
        .find(|map| map.name() == OsStr::new(part))
        .ok_or(XdpError::Missing { object: name, part })?
        .set_max_entries(entries)
        .map_err(|error| XdpError::Map(to_io(&error)))
}

/// Fills the object's read-only data, which must be `bytes` long.
pub(crate) fn set_constants(
    object: &mut OpenObject,
    name: &'static str,
    bytes: &[u8],
) -> Result<(), XdpError> {
    // An object opened from memory gives its data maps generated names; only the end is known.
    object
        .maps_mut()
        .find(|map| map.name().to_string_lossy().ends_with(".rodata"))
        .ok_or(XdpError::Missing { object: name, part: ".rodata" })?
        .set_initial_value(bytes)
        .map_err(|error| XdpError::Map(to_io(&error)))
}

/// Returns the number of CPUs that the kernel may ever run on: maps with one entry for each CPU
/// have as many.
pub(crate) fn possible_processors() -> u32 {
    libbpf_rs::num_possible_cpus().map_or(1, |count| count as u32)
}

pub(crate) fn to_io(error: &libbpf_rs::Error) -> io::Error {
    let kind = error.kind();
    let code = match kind {
        libbpf_rs::ErrorKind::PermissionDenied => Some(libc::EPERM),
        libbpf_rs::ErrorKind::OutOfMemory => Some(libc::ENOMEM),
        libbpf_rs::ErrorKind::TooBig => Some(libc::E2BIG),
        _ => None,
    };
    code.map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error)
}

fn refused(program: &'static str, error: &libbpf_rs::Error) -> XdpError {
    let source = to_io(error);
    if source.kind() == io::ErrorKind::PermissionDenied && !may_load() {
        return XdpError::Privilege;
    }
    let last = LAST_WORDS.lock().map(|words| words.trim().to_owned()).unwrap_or_default();
    let detail = last.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
    XdpError::Load { program, source, detail }
}

/// Returns true if this thread has the capabilities for loading a network program.
fn may_load() -> bool {
    Capabilities::effective()
        .is_ok_and(|held| held.has(Capability::Bpf) && held.has(Capability::NetAdmin))
}
