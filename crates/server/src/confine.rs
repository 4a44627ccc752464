//! What a server gives up once its sockets are open and before its threads are started: other
//! users' rights, files, system calls. What could not be given up is said, not passed over.

use std::path::{Path, PathBuf};

use horolog_sys::capability::Capability;
use horolog_sys::sandbox::{self, Extent, Reach, UserError};
use serde::Serialize;

use crate::{CalibrationConfig, Sandbox, ServerConfig, SourceSpec, status};

/// What stays: ports below 1024 for a reload, going first for the clock thread, and switching the
/// timestamps of cards off again at the end; and steering the clock where that was asked for.
fn kept(config: &ServerConfig) -> Vec<Capability> {
    let mut kept = vec![Capability::NetBindService, Capability::SysNice];
    if config.calibration.as_ref().is_some_and(|calibration| calibration.controls_clock) {
        kept.push(Capability::SysTime);
    }
    if !config.timestamps.hardware.is_empty() {
        kept.push(Capability::NetAdmin);
    }
    kept
}

/// Where the system keeps what a server or its libraries read while they run.
const SYSTEM: [&str; 8] =
    ["/etc", "/usr/share", "/usr/lib", "/lib", "/proc", "/sys", "/dev", "/run"];

/// Why a server is not confined as it has to be.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// It cannot become the user.
    #[error(transparent)]
    User(#[from] UserError),
    /// A part of the sandbox is not to be had, and was required.
    #[error("the sandbox is not complete: {0}; --sandbox auto does with what there is")]
    Incomplete(String),
}

/// What was given up, as `horolog status` tells it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Confinement {
    /// The user that it became.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What is in force: `capabilities`, `no-new-privileges`, `landlock`, `seccomp`.
    pub in_force: Vec<&'static str>,
    /// What is not, though it was wanted, and why.
    pub missing: Vec<String>,
}

/// Gives up what the configuration says. Everything that needs privileges has been done before, and
/// no thread has been started yet.
pub(crate) fn confine(config: &ServerConfig) -> Result<Confinement, ConfineError> {
    let operation = &config.operation;
    let mut confinement = Confinement::default();
    if let Some(user) = &operation.user {
        sandbox::become_user(user, own_directory(config).as_deref())?;
        confinement.user = Some(user.clone());
    }
    if operation.sandbox == Sandbox::Off {
        if operation.user.is_some() {
            // Another user with all the rights of root would be no other user.
            let kept = sandbox::keep_capabilities(&kept(config)).map_err(|error| error.to_string());
            note(&mut confinement, "capabilities", kept);
        }
        return Ok(confinement);
    }
    let text = |error: std::io::Error| error.to_string();
    note(&mut confinement, "capabilities", sandbox::keep_capabilities(&kept(config)).map_err(text));
    note(&mut confinement, "no-new-privileges", sandbox::no_new_privileges().map_err(text));
    note(&mut confinement, "landlock", confine_files(config));
    let filtered = sandbox::filter_system_calls(Reach::Process);
    note(&mut confinement, "seccomp", filtered.map_err(|error| error.to_string()));
    if operation.sandbox == Sandbox::Required && !confinement.missing.is_empty() {
        return Err(ConfineError::Incomplete(confinement.missing.join("; ")));
    }
    Ok(confinement)
}

fn note(confinement: &mut Confinement, name: &'static str, result: Result<(), String>) {
    match result {
        Ok(()) => confinement.in_force.push(name),
        Err(reason) => confinement.missing.push(format!("{name}: {reason}")),
    }
}

fn confine_files(config: &ServerConfig) -> Result<(), String> {
    match sandbox::confine_files(&readable(config), &writable(config)) {
        Ok(Extent::Whole) => Ok(()),
        Ok(Extent::Part) => Err("this kernel knows some of the rights only, which hold".into()),
        Ok(Extent::None) => Err("this kernel has no Landlock, or it is switched off".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// The system's files, and those and the devices that options name, with the directories that they
/// stand in: a file that is replaced by another of the same name is a new one.
fn readable(config: &ServerConfig) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    let devices = config.source.sources.iter().flat_map(SourceSpec::devices);
    let line = config.calibration.iter().flat_map(CalibrationConfig::devices);
    for file in config.operation.files.iter().cloned().chain(devices).chain(line) {
        // What a symbolic link leads to stands elsewhere.
        for path in [file.canonicalize().ok(), Some(file)].into_iter().flatten() {
            all.extend(parent(&path));
            all.push(path);
        }
    }
    all
}

/// Where sockets are made, and removed at the end: for the status, and by sources of time; and
/// where the clock-error log is turned over.
fn writable(config: &ServerConfig) -> Vec<PathBuf> {
    let sources = config.source.sources.iter().flat_map(SourceSpec::directories);
    let log = config.calibration.as_ref().and_then(|calibration| calibration.error_log.as_ref());
    let log = log.and_then(|log| parent(&log.path));
    let status = config.status_socket.as_deref().and_then(parent);
    status.into_iter().chain(sources).chain(log).collect()
}

/// The directory of a file, unless that is the whole system.
fn parent(path: &Path) -> Option<PathBuf> {
    let parent = path.parent()?;
    if parent.as_os_str().is_empty() {
        return Some(PathBuf::from("."));
    }
    (parent != Path::new("/")).then(|| parent.to_owned())
}

/// The directory of the status socket where that is the user's own.
fn own_directory(config: &ServerConfig) -> Option<PathBuf> {
    let (path, user) = (config.status_socket.as_ref()?, config.operation.user.as_deref()?);
    (Some(path) == status::default_path(Some(user)).as_ref()).then(|| parent(path)).flatten()
}
