//! How a command ends when it cannot do what it was asked: one line on stderr, and an exit status
//! that a script can act upon.

use std::fmt::{self, Display, Formatter};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use horolog_lab::LabError;
use horolog_load::LoadError;
use horolog_probe::path::tcp::PathError;
use horolog_probe::query::QueryError;
use horolog_record::{Finding, LimitResult, Severity};
use horolog_server::StartError;
use horolog_server::status::StatusError;
use horolog_store::StoreError;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was measured is not what it should be: nothing answered, or a limit was broken.
    Limit(String),
    /// It was asked for something that cannot be.
    Usage(String),
    /// The machine lacks something, or refuses it.
    Environment(String),
    /// Another one has taken its place, and is not to be driven out in turn.
    Replaced(String),
}

impl Failure {
    pub(crate) fn usage(reason: impl Display) -> Self {
        Self::Usage(reason.to_string())
    }

    pub(crate) fn environment(reason: impl Display) -> Self {
        Self::Environment(reason.to_string())
    }

    pub(crate) fn replaced(reason: impl Display) -> Self {
        Self::Replaced(reason.to_string())
    }

    /// Says why on stderr, in one line, and gives the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        crate::output::note(&format!("horolog: {self}"));
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

/// How a measurement ends: in status 1 where a limit is broken or a finding is an error.
pub(crate) fn verdict(limits: &[LimitResult], findings: &[Finding]) -> Result<(), Failure> {
    limits_kept(limits)?;
    no_error(findings)
}

pub(crate) fn limits_kept(limits: &[LimitResult]) -> Result<(), Failure> {
    horolog_report::broken_limits(limits).map_or(Ok(()), |broken| Err(Failure::Limit(broken)))
}

pub(crate) fn no_error(findings: &[Finding]) -> Result<(), Failure> {
    let error = findings.iter().find(|finding| finding.severity == Severity::Error);
    error.map_or(Ok(()), |finding| Err(Failure::Limit(finding.message.clone())))
}

/// Ends in status 3 where there is no figure at all, for this reason.
pub(crate) fn no_lack(lack: Option<String>) -> Result<(), Failure> {
    let told = |why| Failure::environment(format!("nothing was measured: {why}"));
    lack.map_or(Ok(()), |why| Err(told(why)))
}

/// What is wrong with a command line, in one line: clap's own message has several.
pub(crate) fn wrong_usage(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    // The message ends at the first empty line; behind it come the usage and where the help is.
    let lines = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim);
    let message = lines.collect::<Vec<_>>().join(" ");
    let message = message.trim_start_matches("error: ");
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let usage = text.lines().find_map(|line| line.trim().strip_prefix("Usage: "));
        let words = usage.unwrap_or("horolog").split_whitespace();
        let command: Vec<_> = words.take_while(|word| !word.starts_with(['[', '<'])).collect();
        let command = command.join(" ");
        return Failure::usage(format!("no command was given; '{command} --help' lists them"));
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
    Failure::usage(format!("{message}{meant}"))
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (Self::Limit(reason)
        | Self::Usage(reason)
        | Self::Environment(reason)
        | Self::Replaced(reason)) = self;
        f.write_str(&reason.replace('\n', " "))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoRun(_) | StoreError::Ambiguous { .. } | StoreError::NameTaken { .. } => {
                Self::usage(error)
            }
            error => Self::environment(error),
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Config(error) => Self::usage(error),
            error => Self::environment(error),
        }
    }
}

impl From<StatusError> for Failure {
    fn from(error: StatusError) -> Self {
        match error {
            StatusError::Several(_) => Self::usage(error),
            error => Self::environment(error),
        }
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::environment(error) }
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::environment(error) }
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::environment(error) }
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        match error {
            LabError::Hosts(_)
            | LabError::Queues(_)
            | LabError::NotAbove(_)
            | LabError::BadName(_)
            | LabError::LongName { .. }
            | LabError::Exists(_)
            | LabError::NotFound(_)
            | LabError::NoSuchHost { .. }
            | LabError::NoProgram
            | LabError::Prefix(_) => Self::usage(error),
            error => Self::environment(error),
        }
    }
}
