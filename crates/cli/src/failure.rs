//! Failure of a command: one line on stderr, and an exit status for scripts.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use horolog_lab::LabError;
use horolog_load::LoadError;
use horolog_probe::path::tcp::TcpPathError;
use horolog_probe::query::QueryError;
use horolog_record::{Finding, LimitResult, Severity};
use horolog_server::StartError;
use horolog_server::status::StatusError;
use horolog_store::StoreError;
use horolog_sys::explain::explain_line;
use horolog_sys::zone::AddressError;

/// Reason for which a command failed.
#[derive(Debug)]
pub(crate) enum CommandFailure {
    /// The measurement failed: no reply, or a failed limit.
    Limit(String),
    /// The request is invalid.
    Usage(String),
    /// The host lacks a prerequisite, or refuses it.
    Environment(String),
    /// Another instance has taken over, and must not be replaced in turn.
    Replaced(String),
}

impl CommandFailure {
    pub(crate) fn usage(reason: impl Display) -> Self {
        Self::Usage(reason.to_string())
    }

    pub(crate) fn environment(reason: impl Display) -> Self {
        Self::Environment(reason.to_string())
    }

    pub(crate) fn replaced(reason: impl Display) -> Self {
        Self::Replaced(reason.to_string())
    }

    /// Prints the reason on stderr, in one line, and returns the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        crate::output::print_note(&format!("horolog: {self}"));
        ExitCode::from(self.status())
    }

    /// The exit status.
    pub(crate) const fn status(&self) -> u8 {
        match self {
            Self::Limit(_) => 1,
            Self::Usage(_) => 2,
            Self::Environment(_) => 3,
            Self::Replaced(_) => 4,
        }
    }
}

/// The end of a measurement: status 1 if a limit failed or a finding is an error.
pub(crate) fn verdict(limits: &[LimitResult], findings: &[Finding]) -> Result<(), CommandFailure> {
    limits_passed(limits)?;
    no_error(findings)
}

pub(crate) fn limits_passed(limits: &[LimitResult]) -> Result<(), CommandFailure> {
    horolog_report::broken_limits(limits)
        .map_or(Ok(()), |broken| Err(CommandFailure::Limit(broken)))
}

pub(crate) fn no_error(findings: &[Finding]) -> Result<(), CommandFailure> {
    let error = findings.iter().find(|finding| finding.severity == Severity::Error);
    error.map_or(Ok(()), |finding| Err(CommandFailure::Limit(finding.message.clone())))
}

/// Fails with status 3 if there is no value at all, for this reason.
pub(crate) fn no_lack(lack: Option<String>) -> Result<(), CommandFailure> {
    let to_failure = |why| CommandFailure::environment(format!("nothing was measured: {why}"));
    lack.map_or(Ok(()), |why| Err(to_failure(why)))
}

/// The failure to read a file. It may become available later, unless it is not text.
pub(crate) fn unreadable(what: &str, path: &Path, error: &io::Error) -> CommandFailure {
    let reason = format!("cannot read {what}{}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::InvalidData => CommandFailure::Usage(reason),
        _ => CommandFailure::Environment(reason),
    }
}

/// The failure to parse a value. The interface of a zone may appear later, so a zone that does not
/// exist is not a usage error.
pub(crate) fn parse_failure(error: &clap::Error, message: String) -> CommandFailure {
    let source = std::error::Error::source(error);
    match source.and_then(|source| source.downcast_ref()) {
        Some(AddressError::NoInterface(_)) => CommandFailure::Environment(message),
        _ => CommandFailure::Usage(message),
    }
}

/// The error in a command line, in one line: clap's own message has several.
pub(crate) fn wrong_usage(error: &clap::Error) -> CommandFailure {
    let text = error.render().to_string();
    // The message ends at the first empty line; usage and a reference to the help follow.
    let lines = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim);
    let message = lines.collect::<Vec<_>>().join(" ");
    let message = message.trim_start_matches("error: ");
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let usage = text.lines().find_map(|line| line.trim().strip_prefix("Usage: "));
        let words = usage.unwrap_or("horolog").split_whitespace();
        let command: Vec<_> = words.take_while(|word| !word.starts_with(['[', '<'])).collect();
        let command = command.join(" ");
        return CommandFailure::usage(format!(
            "no command was given; '{command} --help' lists them"
        ));
    }
    let meant = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(name)) => format!("; did you mean '{name}'?"),
        _ => match error.get(ContextKind::SuggestedSubcommand) {
            Some(ContextValue::Strings(names)) if !names.is_empty() => {
                format!("; did you mean '{}'?", names.join("' or '"))
            }
            _ => "; see --help".to_owned(),
        },
    };
    parse_failure(error, format!("{message}{meant}"))
}

impl Display for CommandFailure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (Self::Limit(reason)
        | Self::Usage(reason)
        | Self::Environment(reason)
        | Self::Replaced(reason)) = self;
        f.write_str(&explain_line(&reason.replace('\n', " ")))
    }
}

impl From<StoreError> for CommandFailure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::RunNotFound(_)
            | StoreError::Ambiguous { .. }
            | StoreError::NameTaken { .. } => Self::usage(error),
            error => Self::environment(error),
        }
    }
}

impl From<StartError> for CommandFailure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Config(error) => Self::usage(error),
            error => Self::environment(error),
        }
    }
}

impl From<StatusError> for CommandFailure {
    fn from(error: StatusError) -> Self {
        match error {
            StatusError::Several(_) => Self::usage(error),
            error => Self::environment(error),
        }
    }
}

impl From<LoadError> for CommandFailure {
    fn from(error: LoadError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::environment(error) }
    }
}

impl From<QueryError> for CommandFailure {
    fn from(error: QueryError) -> Self {
        if error.is_usage_error() { Self::usage(error) } else { Self::environment(error) }
    }
}

impl From<TcpPathError> for CommandFailure {
    fn from(error: TcpPathError) -> Self {
        if error.is_usage_error() { Self::usage(error) } else { Self::environment(error) }
    }
}

impl From<LabError> for CommandFailure {
    fn from(error: LabError) -> Self {
        match error {
            LabError::HostCount(_)
            | LabError::QueueCount(_)
            | LabError::InvalidParent(_)
            | LabError::InvalidName(_)
            | LabError::NameTooLong { .. }
            | LabError::Exists(_)
            | LabError::NotFound(_)
            | LabError::NoSuchHost { .. }
            | LabError::NoProgram
            | LabError::Prefix(_) => Self::usage(error),
            error => Self::environment(error),
        }
    }
}
