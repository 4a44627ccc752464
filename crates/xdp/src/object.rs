//! Opening and loading of a compiled BPF object; errors quote the kernel's message.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Mutex;

use horolog_sys::capability::{Capabilities, Capability};
use libbpf_rs::{MapCore, Object, ObjectBuilder, OpenObject, PrintLevel};

use crate::XdpError;

/// Last warning of libbpf while an object was loaded; it contains the verifier's reason.
static LAST_MESSAGE: Mutex<String> = Mutex::new(String::new());

fn store_last_message(_: PrintLevel, message: String) {
    if let Ok(mut last) = LAST_MESSAGE.lock() {
        *last = message;
    }
}

/// Loaded BPF object: its programs and maps.
pub(crate) struct LoadedBpfObject {
    name: &'static str,
    object: Object,
}

impl LoadedBpfObject {
    /// Loads the object in `bytes`, after `prepare` has set map sizes and constants.
    pub(crate) fn load(
        name: &'static str,
        bytes: &[u8],
        prepare: impl FnOnce(&mut OpenObject) -> Result<(), XdpError>,
    ) -> Result<Self, XdpError> {
        libbpf_rs::set_print(Some((PrintLevel::Warn, store_last_message)));
        if let Ok(mut last) = LAST_MESSAGE.lock() {
            last.clear();
        }
        let open =
            ObjectBuilder::default().name(name).and_then(|builder| builder.open_memory(bytes));
        let mut open = open.map_err(|error| load_error(name, &error))?;
        prepare(&mut open)?;
        let object = open.load().map_err(|error| load_error(name, &error))?;
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

/// Sets the number of entries of the map called `part`. `name` is that of the object, for errors.
pub(crate) fn set_map_entries(
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
        .map_err(|error| XdpError::Map(to_io_error(&error)))
}

/// Fills the object's read-only data, whose length must be that of `bytes`. `name` is that of the
/// object, for errors.
pub(crate) fn set_constants(
    object: &mut OpenObject,
    name: &'static str,
    bytes: &[u8],
) -> Result<(), XdpError> {
    // The map's name begins with a generated prefix; only its suffix is known.
    object
        .maps_mut()
        .find(|map| map.name().to_string_lossy().ends_with(".rodata"))
        .ok_or(XdpError::Missing { object: name, part: ".rodata" })?
        .set_initial_value(bytes)
        .map_err(|error| XdpError::Map(to_io_error(&error)))
}

/// Returns the number of possible CPUs, which is the number of entries of maps that have one for
/// each CPU; 1 if it is unknown.
pub(crate) fn possible_processors() -> u32 {
    libbpf_rs::num_possible_cpus().map_or(1, |count| count as u32)
}

pub(crate) fn to_io_error(error: &libbpf_rs::Error) -> io::Error {
    let kind = error.kind();
    let code = match kind {
        libbpf_rs::ErrorKind::PermissionDenied => Some(libc::EPERM),
        libbpf_rs::ErrorKind::OutOfMemory => Some(libc::ENOMEM),
        libbpf_rs::ErrorKind::TooBig => Some(libc::E2BIG),
        _ => None,
    };
    code.map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error)
}

fn load_error(program: &'static str, error: &libbpf_rs::Error) -> XdpError {
    let source = to_io_error(error);
    if source.kind() == io::ErrorKind::PermissionDenied && !can_load_programs() {
        return XdpError::Privilege;
    }
    let last = LAST_MESSAGE.lock().map(|words| words.trim().to_owned()).unwrap_or_default();
    let detail = last.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
    XdpError::Load { program, source, detail }
}

/// Returns true if this thread has the capabilities to load XDP programs: `CAP_BPF` and
/// `CAP_NET_ADMIN`.
fn can_load_programs() -> bool {
    Capabilities::effective()
        .is_ok_and(|held| held.has(Capability::Bpf) && held.has(Capability::NetAdmin))
}
