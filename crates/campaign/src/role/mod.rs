//! Kinds of roles in a plan: the horolog command of each kind, its options, and the command line
//! built from them. Plans and orders can only name these kinds and options. Whether an agent allows
//! them is decided by [`crate::policy`].

mod command;
mod table;
mod value;

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::file_error::sanitised;
use crate::order::SHOWN_MAX;

pub use command::{CommandFiles, RoleCommandLine, RoleOptionError};
pub use value::{ApplicablePolicyBound, ParsedOptionValue, RoleOptionType};

/// Kind of role.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoleKind {
    /// Serves time: `horolog serve`.
    Serve,
    /// Loads a time server by NTP: `horolog load ntp`.
    LoadNtp,
    /// Loads a PTP master with delay requests: `horolog load ptp delay`.
    LoadPtpDelay,
    /// Measures the offset of servers' clocks from this host's: `horolog query`.
    Query,
    /// Serves as the far end of path measurements: `horolog path serve`.
    PathServe,
    /// Measures datagrams over a path: `horolog path udp`.
    PathUdp,
    /// Measures TCP over a path: `horolog path tcp`.
    PathTcp,
    /// Relays packets to children: `horolog relay run`.
    RelayRun,
    /// Measures the wake-up latency of threads: `horolog host timer`.
    HostTimer,
    /// Runs periodic tasks as the leader of a cluster: `horolog cycle run --listen`.
    CycleLead,
    /// Runs periodic tasks as another node of the cluster: `horolog cycle run --join`.
    CycleJoin,
}

/// Mapping of an option to the command line or the table file of its command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoleOptionMapping {
    /// Flag of this name with its value, as in `--rate=5k`.
    Flag(&'static str),
    /// Flag of this name without a value, if the option is true.
    Switch(&'static str),
    /// Positional argument.
    Argument,
    /// Key of the command's table file.
    Key(&'static str),
    /// Complete text of the table file; it replaces these options.
    Table(&'static [&'static str]),
}

/// Option of a kind of roles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleOptionSpec {
    /// Name in plans and orders.
    pub name: &'static str,
    /// Type of the values.
    pub value_type: RoleOptionType,
    /// True if the option is required.
    pub required: bool,
    /// True if the option may have several values.
    pub many: bool,
    /// Mapping to the command.
    pub maps_to: RoleOptionMapping,
    /// Short description.
    pub help: &'static str,
}

impl RoleKind {
    /// All kinds.
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

    /// Returns the name in plans.
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

    /// Returns true if the kind is a service: started before the start time, and run until all
    /// other jobs have ended.
    #[must_use]
    pub const fn is_service(self) -> bool {
        matches!(self, Self::Serve | Self::PathServe | Self::RelayRun)
    }

    /// Returns the schema of the result that the command writes, without the version number; `None`
    /// if it writes no result file.
    #[must_use]
    pub const fn schema(self) -> Option<&'static str> {
        match self {
            // The result of the leader includes the nodes that join.
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

    /// Returns the options of this kind.
    #[must_use]
    pub const fn options(self) -> &'static [RoleOptionSpec] {
        table::option_specs(self)
    }

    /// Returns the option of this name; `None` if the kind has none.
    #[must_use]
    pub fn option(self, name: &str) -> Option<&'static RoleOptionSpec> {
        self.options().iter().find(|option| option.name == name)
    }

    /// Parses options: checks that each exists for this kind and has a valid number of valid
    /// values, and that no required one is missing.
    ///
    /// # Errors
    ///
    /// The first invalid option, by name.
    pub fn parse_options(
        self,
        options: &BTreeMap<String, Vec<String>>,
    ) -> Result<Vec<(&'static RoleOptionSpec, Vec<ParsedOptionValue>)>, RoleOptionError> {
        command::parse_options(self, options)
    }

    /// Returns the command line with these options, and the text of the table file if it needs one.
    ///
    /// # Errors
    ///
    /// The first invalid option, by name.
    pub fn command_line(
        self,
        options: &BTreeMap<String, Vec<String>>,
        files: &CommandFiles<'_>,
    ) -> Result<RoleCommandLine, RoleOptionError> {
        command::command_line(self, options, files)
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
            let text = sanitised(text, SHOWN_MAX);
            format!("unknown kind of role '{text}'; the kinds are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
