//! What a program can wait for, and one look at whether it holds. A look may take as long as the
//! machine lets it: whoever looks does so in a thread that it can leave behind.

mod clock;
mod files;
mod network;
mod program;

use std::path::PathBuf;
use std::time::Duration;

use horolog_record::DependencyKind;
use horolog_time::Span;

pub use network::{Endpoint, EndpointError, UdpEndpoint};

/// Something that a program waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// So much time has passed.
    Delay(Duration),
    /// A TCP connection is accepted.
    Tcp(Endpoint),
    /// A UDP port answers.
    Udp(UdpEndpoint),
    /// A file, directory or device is there.
    File(PathBuf),
    /// A file system is mounted there.
    Mount(PathBuf),
    /// A name has an address.
    Dns(String),
    /// The system clock is synchronised, with no larger error.
    Clock(Span),
    /// A command of the shell succeeds.
    Command(String),
}

/// What a look showed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sight {
    /// Whether the condition holds.
    pub holds: bool,
    /// Why, for the user.
    pub seen: String,
}

impl Sight {
    fn yes(seen: impl Into<String>) -> Self {
        Self { holds: true, seen: seen.into() }
    }

    fn no(seen: impl Into<String>) -> Self {
        Self { holds: false, seen: seen.into() }
    }
}

impl Condition {
    /// What kind it is.
    #[must_use]
    pub const fn kind(&self) -> DependencyKind {
        match self {
            Self::Delay(_) => DependencyKind::Delay,
            Self::Tcp(_) => DependencyKind::Tcp,
            Self::Udp(_) => DependencyKind::Udp,
            Self::File(_) => DependencyKind::File,
            Self::Mount(_) => DependencyKind::Mount,
            Self::Dns(_) => DependencyKind::Dns,
            Self::Clock(_) => DependencyKind::Clock,
            Self::Command(_) => DependencyKind::Command,
        }
    }

    /// Which one, for the user.
    #[must_use]
    pub fn target(&self) -> String {
        match self {
            Self::Delay(time) => seconds(*time),
            Self::Tcp(endpoint) => endpoint.to_string(),
            Self::Udp(udp) => udp.endpoint.to_string(),
            Self::File(path) | Self::Mount(path) => path.display().to_string(),
            Self::Dns(name) => name.clone(),
            Self::Clock(within) => seconds(Duration::from_nanos(within.as_ns().unsigned_abs())),
            Self::Command(line) => line.clone(),
        }
    }

    /// Looks once, for about `patience` where that is in its hands.
    #[must_use]
    pub fn look(&self, since_start: Duration, patience: Duration) -> Sight {
        match self {
            Self::Delay(time) if since_start >= *time => Sight::yes("passed"),
            Self::Delay(_) => Sight::no("not yet passed"),
            Self::Tcp(endpoint) => network::tcp(endpoint, patience),
            Self::Udp(udp) => network::udp(udp, patience),
            Self::File(path) => files::file(path),
            Self::Mount(path) => files::mount(path),
            Self::Dns(name) => network::dns(name),
            Self::Clock(within) => clock::synchronised(*within),
            Self::Command(line) => program::succeeds(line, patience),
        }
    }
}

/// A time in the unit that suits it, exactly.
pub(crate) fn seconds(time: Duration) -> String {
    let ns = time.as_nanos();
    let (unit_ns, unit) = match ns {
        1..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let fraction = format!("{:09}", ns % unit_ns * (1_000_000_000 / unit_ns));
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{}{point}{fraction}{unit}", ns / unit_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_their_unit() {
        for (ns, text) in [
            (0, "0s"),
            (7, "7ns"),
            (1_500, "1.5us"),
            (20_000_000, "20ms"),
            (180_000_000_000, "180s"),
            (2_250_000_000, "2.25s"),
        ] {
            assert_eq!(seconds(Duration::from_nanos(ns)), text);
        }
    }
}
