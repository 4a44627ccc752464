//! Failure of a command: one line on stderr, and the exit status of the process.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use horolog_experiment::ExperimentError;
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
    /// The outcome is negative: no reply, a failed limit, an error-level finding, a worse
    /// comparison, a missed deadline or a lost part of a campaign. Exit status 1.
    Measurement(String),
    /// An option or a file named by one is invalid. Exit status 2.
    Usage(String),
    /// The host lacks a prerequisite or denies access to it, or a far end is unreachable. Exit
    /// status 3.
    Environment(String),
    /// Another instance of this agent was started later and replaced this one; a service manager
    /// must not restart it. Exit status 4.
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

    /// Returns the exit status of the process, 1 to 4.
    pub(crate) const fn status(&self) -> u8 {
        match self {
            Self::Measurement(_) => 1,
            Self::Usage(_) => 2,
            Self::Environment(_) => 3,
            Self::Replaced(_) => 4,
        }
    }
}

/// Fails with status 1 if a limit failed.
pub(crate) fn check_limits(limits: &[LimitResult]) -> Result<(), CommandFailure> {
    horolog_report::broken_limits(limits)
        .map_or(Ok(()), |failed| Err(CommandFailure::Measurement(failed)))
}

/// Fails with status 1 if a finding has severity error.
pub(crate) fn check_findings<'a>(
    findings: impl IntoIterator<Item = &'a Finding>,
) -> Result<(), CommandFailure> {
    let error = findings.into_iter().find(|finding| finding.severity == Severity::Error);
    error.map_or(Ok(()), |finding| Err(CommandFailure::Measurement(finding.message.clone())))
}

/// Fails with status 3 if there is a reason why nothing was measured.
pub(crate) fn fail_if_unmeasured(reason: Option<String>) -> Result<(), CommandFailure> {
    let unmeasured = |why| CommandFailure::environment(format!("nothing was measured: {why}"));
    reason.map_or(Ok(()), |why| Err(unmeasured(why)))
}

/// Returns the failure to read the file `path`; `what` precedes the path in the message. A file
/// that is not UTF-8 is a usage error; other errors may pass, so they are failures of the
/// environment.
pub(crate) fn read_failure(what: &str, path: &Path, error: &io::Error) -> CommandFailure {
    let reason = format!("cannot read {what}{}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::InvalidData => CommandFailure::Usage(reason),
        _ => CommandFailure::Environment(reason),
    }
}

/// Returns the failure to parse a command line. An IPv6 zone without an interface of this name is
/// not a usage error, because the interface may appear later.
pub(crate) fn parse_failure(error: &clap::Error, message: String) -> CommandFailure {
    let source = std::error::Error::source(error);
    match source.and_then(|source| source.downcast_ref()) {
        Some(AddressError::NoInterface(_)) => CommandFailure::Environment(message),
        _ => CommandFailure::Usage(message),
    }
}

/// Converts clap's error in a command line, which has several lines, to a failure of one line with
/// a hint.
pub(crate) fn command_line_failure(error: &clap::Error) -> CommandFailure {
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
    let hint = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(name)) => format!("; did you mean '{name}'?"),
        _ => match error.get(ContextKind::SuggestedSubcommand) {
            Some(ContextValue::Strings(names)) if !names.is_empty() => {
                format!("; did you mean '{}'?", names.join("' or '"))
            }
            _ => "; see --help".to_owned(),
        },
    };
    parse_failure(error, format!("{message}{hint}"))
}

impl Display for CommandFailure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (Self::Measurement(reason)
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
        if error.is_usage_error() { Self::usage(error) } else { Self::environment(error) }
    }
}

impl From<ExperimentError> for CommandFailure {
    fn from(error: ExperimentError) -> Self {
        if error.is_usage_error() { Self::usage(error) } else { Self::environment(error) }
    }
}
