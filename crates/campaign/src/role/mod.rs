//! The kinds of roles that a plan can have: which command of horolog each is, which options it
//! takes, and how the command line is made of them. A plan or an order names a kind and options;
//! whatever is not in these tables cannot be run. What an agent's owner allows is
//! [`crate::policy`]'s business.

mod command;
mod table;
mod tasks;
mod value;

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::fault::shown;
use crate::order::SHOWN_MAX;

pub use command::{CommandLine, Files, RoleFault};
pub use value::{Bound, Given, Value};

/// What a role does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoleKind {
    /// Serves time: `horolog serve`.
    Serve,
    /// Loads a time server by NTP: `horolog load ntp`.
    LoadNtp,
    /// Loads a PTP master with delay requests: `horolog load ptp delay`.
    LoadPtpDelay,
    /// Measures how far servers' clocks are from this one's: `horolog query`.
    Query,
    /// Is the far end of paths: `horolog path serve`.
    PathServe,
    /// Measures datagrams over a path: `horolog path udp`.
    PathUdp,
    /// Measures TCP over a path: `horolog path tcp`.
    PathTcp,
    /// Relays packets to children: `horolog relay run`.
    RelayRun,
    /// Measures how late threads wake: `horolog host timer`.
    HostTimer,
    /// Runs a periodic task with others, as the first of them: `horolog cycle run --listen`.
    CycleLead,
    /// Runs it as one of the others: `horolog cycle run --join`.
    CycleJoin,
}

/// How an option becomes part of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Becomes {
    /// The flag of this name with its value, as in `--rate=5k`.
    Flag(&'static str),
    /// The flag of this name without a value, where it is true.
    Switch(&'static str),
    /// An argument without a name.
    Argument,
    /// A key of the table file that the command is given.
    Key(&'static str),
    /// The table file itself, where it is text; it stands in place of these options.
    Table(&'static [&'static str]),
}

/// An option of a kind of roles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionSpec {
    /// What it is called in plans and orders.
    pub name: &'static str,
    /// What its values are.
    pub value: Value,
    /// Whether it has to be given.
    pub required: bool,
    /// Whether it may have several values.
    pub many: bool,
    /// What it becomes.
    pub becomes: Becomes,
    /// What it is, in a few words.
    pub says: &'static str,
}

impl RoleKind {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Serve,
        Self::LoadNtp,
        Self::LoadPtpDelay,
        Self::Query,
        Self::PathServe,
        Self::PathUdp,
        Self::PathTcp,
        Self::RelayRun,
        Self::HostTimer,
        Self::CycleLead,
        Self::CycleJoin,
    ];

    /// What it is called in plans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::LoadNtp => "load-ntp",
            Self::LoadPtpDelay => "load-ptp-delay",
            Self::Query => "query",
            Self::PathServe => "path-serve",
            Self::PathUdp => "path-udp",
            Self::PathTcp => "path-tcp",
            Self::RelayRun => "relay-run",
            Self::HostTimer => "host-timer",
            Self::CycleLead => "cycle-lead",
            Self::CycleJoin => "cycle-join",
        }
    }

    /// Whether it is a service: started before the instant, and run until all else is done.
    #[must_use]
    pub const fn is_service(self) -> bool {
        matches!(self, Self::Serve | Self::PathServe | Self::RelayRun)
    }

    /// The schema of the record that it writes, without the version's number; `None` where it
    /// writes none.
    #[must_use]
    pub const fn schema(self) -> Option<&'static str> {
        match self {
            // What those who join do stands in the record of the first.
            Self::Serve | Self::PathServe | Self::CycleJoin => None,
            Self::LoadNtp | Self::LoadPtpDelay => Some("horolog.load/"),
            Self::Query => Some("horolog.query/"),
            Self::PathUdp => Some("horolog.path-udp/"),
            Self::PathTcp => Some("horolog.path-tcp/"),
            Self::RelayRun => Some("horolog.relay/"),
            Self::HostTimer => Some("horolog.host-timer/"),
            Self::CycleLead => Some("horolog.cycle/"),
        }
    }

    /// The options that it takes.
    #[must_use]
    pub const fn options(self) -> &'static [OptionSpec] {
        table::of(self)
    }

    /// The option of this name.
    #[must_use]
    pub fn option(self, name: &str) -> Option<&'static OptionSpec> {
        self.options().iter().find(|option| option.name == name)
    }

    /// Reads options, of which each has to be one of this kind's, with as many values as it may
    /// have, each of the form that it has to have.
    ///
    /// # Errors
    ///
    /// The first that is wrong, by its name.
    pub fn read(
        self,
        options: &BTreeMap<String, Vec<String>>,
    ) -> Result<Vec<(&'static OptionSpec, Vec<Given>)>, RoleFault> {
        command::read(self, options)
    }

    /// The command line with these options, and the text of the table file where it needs one.
    ///
    /// # Errors
    ///
    /// The first option that is wrong, by its name.
    pub fn command_line(
        self,
        options: &BTreeMap<String, Vec<String>>,
        files: &Files<'_>,
    ) -> Result<CommandLine, RoleFault> {
        command::line(self, options, files)
    }
}

impl Display for RoleKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for RoleKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.into_iter().map(Self::name).collect();
            let text = shown(text, SHOWN_MAX);
            format!("no kind of roles is called '{text}'; there are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
