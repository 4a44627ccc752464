//! Conditions that a program can wait for, and one check of each. A check may block for as long as
//! the system allows, so it must run in a thread that can be abandoned.

mod clock;
mod files;
mod network;
mod program;

use std::path::PathBuf;
use std::time::Duration;

use horolog_record::AfterDependencyKind;
use horolog_time::Span;

pub use network::{Endpoint, EndpointError, UdpEndpoint};

/// Condition that a program waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// This time has passed since the start of the wait.
    Delay(Duration),
    /// A TCP connection is accepted.
    Tcp(Endpoint),
    /// A UDP port answers or, with `no-reply=ok`, does not refuse.
    Udp(UdpEndpoint),
    /// A file, directory or device exists.
    File(PathBuf),
    /// A file system is mounted at this path.
    Mount(PathBuf),
    /// A name has an address.
    Dns(String),
    /// The system clock is synchronised within this error bound.
    Clock(Span),
    /// A shell command succeeds.
    Command(String),
}

/// Result of one check of a [`Condition`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckResult {
    /// True if the condition holds.
    pub holds: bool,
    /// Reason why the condition holds or does not, for the user.
    pub detail: String,
}

impl CheckResult {
    fn satisfied(detail: impl Into<String>) -> Self {
        Self { holds: true, detail: detail.into() }
    }

    fn unsatisfied(detail: impl Into<String>) -> Self {
        Self { holds: false, detail: detail.into() }
    }
}

impl Condition {
    /// Returns the kind of condition.
    #[must_use]
    pub const fn kind(&self) -> AfterDependencyKind {
        match self {
            Self::Delay(_) => AfterDependencyKind::Delay,
            Self::Tcp(_) => AfterDependencyKind::Tcp,
            Self::Udp(_) => AfterDependencyKind::Udp,
            Self::File(_) => AfterDependencyKind::File,
            Self::Mount(_) => AfterDependencyKind::Mount,
            Self::Dns(_) => AfterDependencyKind::Dns,
            Self::Clock(_) => AfterDependencyKind::Clock,
            Self::Command(_) => AfterDependencyKind::Command,
        }
    }

    /// Returns the parameter of the condition as text for the user: an endpoint, a path, a name, a
    /// duration or a command line.
    #[must_use]
    pub fn target(&self) -> String {
        match self {
            Self::Delay(time) => format!("{:#}", Span::from(*time)),
            Self::Tcp(endpoint) => endpoint.to_string(),
            Self::Udp(udp) => udp.endpoint.to_string(),
            Self::File(path) | Self::Mount(path) => path.display().to_string(),
            Self::Dns(name) => name.clone(),
            Self::Clock(within) => format!("{within:#}"),
            Self::Command(line) => line.clone(),
        }
    }

    /// Checks the condition once. `since_start` is the time since the start of the wait; `timeout`
    /// limits connections, UDP replies and commands, but not name resolution, file access or the
    /// query of the clock.
    #[must_use]
    pub fn check(&self, since_start: Duration, timeout: Duration) -> CheckResult {
        match self {
            Self::Delay(time) if since_start >= *time => CheckResult::satisfied("passed"),
            Self::Delay(_) => CheckResult::unsatisfied("not yet passed"),
            Self::Tcp(endpoint) => network::check_tcp(endpoint, timeout),
            Self::Udp(udp) => network::check_udp(udp, timeout),
            Self::File(path) => files::check_file(path),
            Self::Mount(path) => files::check_mount(path),
            Self::Dns(name) => network::check_dns(name),
            Self::Clock(within) => clock::check_clock(*within),
            Self::Command(line) => program::check_command(line, timeout),
        }
    }
}
