//! Confinement of a server once its sockets are open and before its threads start: it drops
//! privileges and restricts the accessible files and system calls.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use horolog_source::{CalibrationConfig, SourceSpec};
use horolog_sys::capability::Capability;
use horolog_sys::sandbox::{self, LandlockStatus, SeccompFilterScope, UserSwitchError};
use serde::{Deserialize, Serialize};

use super::status;
use crate::config::{SandboxMode, ServerConfig};

/// Returns the capabilities to retain: for ports below 1024 after a reload, for the real-time
/// priority of the clock thread, and, if configured, for steering the clock and for disabling
/// hardware timestamps at the end.
fn retained_capabilities(config: &ServerConfig) -> Vec<Capability> {
    let mut retained = vec![Capability::NetBindService, Capability::SysNice];
    if config.calibration.as_ref().is_some_and(|calibration| calibration.controls_clock) {
        retained.push(Capability::SysTime);
    }
    if !config.timestamps.hardware.is_empty() {
        retained.push(Capability::NetAdmin);
    }
    retained
}

/// System directories that a server or its libraries read while they run.
const SYSTEM_DIRECTORIES: [&str; 8] =
    ["/etc", "/usr/share", "/usr/lib", "/lib", "/proc", "/sys", "/dev", "/run"];

/// Reason for which a server could not be confined as required.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// Failure to switch to the user.
    #[error(transparent)]
    User(#[from] UserSwitchError),
    /// Unavailable part of a required sandbox.
    #[error(
        "the sandbox is incomplete: {0}; use --sandbox auto to continue with the available \
             parts"
    )]
    Incomplete(String),
}

/// Confinement in force, for `horolog status`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ConfinementStatus {
    /// User that the process switched to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Parts in force: `capabilities`, `no-new-privileges`, `landlock`, `seccomp`.
    pub in_force: Vec<Cow<'static, str>>,
    /// Requested parts that are not in force, with the reason.
    pub missing: Vec<String>,
}

/// Applies the configured confinement: switches the user, and drops capabilities and restricts
/// files and system calls unless the sandbox is off; if the user is switched, capabilities are
/// dropped in any case. Everything that needs privileges has been done before, and no thread has
/// been started yet. Fails if the user cannot be switched, or a required part is unavailable.
pub(crate) fn confine(config: &ServerConfig) -> Result<ConfinementStatus, ConfineError> {
    let operation = &config.operation;
    let mut confinement = ConfinementStatus::default();
    if let Some(user) = &operation.user {
        sandbox::switch_user(user, user_directory(config).as_deref())?;
        confinement.user = Some(user.clone());
    }
    if operation.sandbox == SandboxMode::Off {
        if operation.user.is_some() {
            // With all of root's capabilities, another user would still be root.
            let outcome = sandbox::keep_capabilities(&retained_capabilities(config))
                .map_err(|error| error.to_string());
            record_outcome(&mut confinement, "capabilities", outcome);
        }
        return Ok(confinement);
    }
    let text = |error: std::io::Error| error.to_string();
    record_outcome(
        &mut confinement,
        "capabilities",
        sandbox::keep_capabilities(&retained_capabilities(config)).map_err(text),
    );
    record_outcome(
        &mut confinement,
        "no-new-privileges",
        sandbox::no_new_privileges().map_err(text),
    );
    record_outcome(&mut confinement, "landlock", confine_files(config));
    let filtered = sandbox::filter_system_calls(SeccompFilterScope::Process);
    record_outcome(&mut confinement, "seccomp", filtered.map_err(|error| error.to_string()));
    if operation.sandbox == SandboxMode::Required && !confinement.missing.is_empty() {
        return Err(ConfineError::Incomplete(confinement.missing.join("; ")));
    }
    Ok(confinement)
}

fn record_outcome(
    confinement: &mut ConfinementStatus,
    name: &'static str,
    result: Result<(), String>,
) {
    match result {
        Ok(()) => confinement.in_force.push(name.into()),
        Err(reason) => confinement.missing.push(format!("{name}: {reason}")),
    }
}

fn confine_files(config: &ServerConfig) -> Result<(), String> {
    match sandbox::confine_files(&readable(config), &writable(config)) {
        Ok(LandlockStatus::Full) => Ok(()),
        Ok(LandlockStatus::Partial) => {
            Err("this kernel supports only some of the rights; those are in force".into())
        }
        Ok(LandlockStatus::None) => Err("this kernel has no Landlock, or it is disabled".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the readable paths: system directories, and the files and devices named by options with
/// their directories, because a file replaced under its name is a new file.
fn readable(config: &ServerConfig) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = SYSTEM_DIRECTORIES.iter().map(PathBuf::from).collect();
    let devices = config.source.sources.iter().flat_map(SourceSpec::devices);
    let line = config.calibration.iter().flat_map(CalibrationConfig::devices);
    for file in config.operation.files.iter().cloned().chain(devices).chain(line) {
        // The target of a symbolic link may lie in another directory.
        for path in [file.canonicalize().ok(), Some(file)].into_iter().flatten() {
            all.extend(parent_directory(&path));
            all.push(path);
        }
    }
    all
}

/// Returns the writable directories: those where sockets are created and removed (the status
/// socket, sockets of time sources), and where the clock-error log is rotated.
fn writable(config: &ServerConfig) -> Vec<PathBuf> {
    let sources = config.source.sources.iter().flat_map(SourceSpec::directories);
    let log = config.calibration.as_ref().and_then(|calibration| calibration.error_log.as_ref());
    let log = log.and_then(|log| parent_directory(&log.path));
    let status = config.status_socket.as_deref().and_then(parent_directory);
    status.into_iter().chain(sources).chain(log).collect()
}

/// Returns the directory of a path; `None` for the root directory.
fn parent_directory(path: &Path) -> Option<PathBuf> {
    let parent = path.parent()?;
    if parent.as_os_str().is_empty() {
        return Some(PathBuf::from("."));
    }
    (parent != Path::new("/")).then(|| parent.to_owned())
}

/// Returns the directory of the status socket if the socket is the default one of the configured
/// user.
fn user_directory(config: &ServerConfig) -> Option<PathBuf> {
    let (path, user) = (config.status_socket.as_ref()?, config.operation.user.as_deref()?);
    (Some(path) == status::default_path(Some(user)).as_ref())
        .then(|| parent_directory(path))
        .flatten()
}
