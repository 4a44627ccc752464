//! Command lines built from a role's options. Pure: the contents of a table file are returned as
//! text.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;

use super::{ParsedOptionValue, RoleKind, RoleOptionMapping, RoleOptionSpec};
use crate::file_error::sanitised;

/// Name of a role's packet group in a relay's table file.
const GROUP: &str = "campaign";

/// Reason why options are invalid for a kind of roles.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RoleOptionError {
    /// The option does not exist.
    #[error("{kind} has no option '{option}'; its options are {}", names(*.kind))]
    Unknown {
        /// Kind of role.
        kind: RoleKind,
        /// Option, truncated if it is long.
        option: String,
    },
    /// An option is missing.
    #[error("{kind} requires the option '{option}': {help}")]
    Missing {
        /// Kind of role.
        kind: RoleKind,
        /// Option.
        option: &'static str,
        /// Description.
        help: &'static str,
    },
    /// An option has no value, or several if only one is possible.
    #[error(
        "'{option}' of {kind} has {count} values; {}",
        if *many { "specify one or more" } else { "specify one" }
    )]
    Values {
        /// Kind of role.
        kind: RoleKind,
        /// Option.
        option: &'static str,
        /// Number of values.
        count: usize,
        /// True if several are possible.
        many: bool,
    },
    /// A value has an invalid form.
    #[error("invalid '{option}' of {kind}, '{value}': {reason}")]
    Value {
        /// Kind of role.
        kind: RoleKind,
        /// Option.
        option: &'static str,
        /// Value, truncated if it is long.
        value: String,
        /// Remedy.
        reason: String,
    },
}

impl RoleOptionError {
    /// Returns the option in error.
    #[must_use]
    pub fn option(&self) -> &str {
        match self {
            Self::Unknown { option, .. } => option,
            Self::Missing { option, .. }
            | Self::Values { option, .. }
            | Self::Value { option, .. } => option,
        }
    }
}

fn names(kind: RoleKind) -> String {
    let names: Vec<_> = kind.options().iter().map(|option| option.name).collect();
    names.join(", ")
}

/// Paths passed to a command.
#[derive(Clone, Copy, Debug)]
pub struct CommandFiles<'a> {
    /// File for the result.
    pub result: &'a Path,
    /// Table file of a relay, or task file of a cycle.
    pub table: &'a Path,
    /// Path of the control or status socket that the command creates.
    pub socket: &'a Path,
}

/// Command line after the program's name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoleCommandLine {
    /// Arguments.
    pub argv: Vec<OsString>,
    /// Contents of the table file, if the command needs one.
    pub table: Option<String>,
}

/// Largest number of characters shown of a refused text.
const SHOWN_MAX: usize = 60;

pub(super) fn parse_options(
    kind: RoleKind,
    options: &BTreeMap<String, Vec<String>>,
) -> Result<Vec<(&'static RoleOptionSpec, Vec<ParsedOptionValue>)>, RoleOptionError> {
    if let Some(option) = options.keys().find(|name| kind.option(name).is_none()) {
        return Err(RoleOptionError::Unknown { kind, option: sanitised(option, SHOWN_MAX) });
    }
    let is_missing =
        |option: &&RoleOptionSpec| option.required && !options.contains_key(option.name);
    if let Some(RoleOptionSpec { name, help, .. }) = kind.options().iter().find(is_missing) {
        return Err(RoleOptionError::Missing { kind, option: name, help });
    }
    let values_of = |spec: &'static RoleOptionSpec| Some((spec, options.get(spec.name)?));
    let present = kind.options().iter().filter_map(values_of);
    let read = present.map(|(spec, values)| Ok((spec, parse_values(kind, spec, values)?)));
    let read = read.collect::<Result<Vec<_>, RoleOptionError>>()?;
    check_node_numbers(kind, &read)?;
    Ok(read)
}

/// Checks that the node numbers in `slow-node` do not exceed `nodes`.
fn check_node_numbers(
    kind: RoleKind,
    read: &[(&'static RoleOptionSpec, Vec<ParsedOptionValue>)],
) -> Result<(), RoleOptionError> {
    let values = |name: &str| read.iter().find(|(spec, _)| spec.name == name);
    let Some((_, nodes)) = values("nodes") else { return Ok(()) };
    let Some((spec, named)) = values("slow-node") else { return Ok(()) };
    let [ParsedOptionValue::Number(nodes)] = nodes.as_slice() else { return Ok(()) };
    for value in named {
        let ParsedOptionValue::Text(text) = value else { continue };
        let node = text.split('=').next().and_then(|node| node.parse::<u64>().ok());
        if let Some(node) = node.filter(|node| node > nodes) {
            let reason = format!("node {node} does not exist; nodes are 1 to {nodes}");
            return Err(RoleOptionError::Value {
                kind,
                option: spec.name,
                value: text.clone(),
                reason,
            });
        }
    }
    Ok(())
}

fn parse_values(
    kind: RoleKind,
    spec: &'static RoleOptionSpec,
    values: &[String],
) -> Result<Vec<ParsedOptionValue>, RoleOptionError> {
    if values.is_empty() || (values.len() > 1 && !spec.many) {
        let (option, many, count) = (spec.name, spec.many, values.len());
        return Err(RoleOptionError::Values { kind, option, count, many });
    }
    let one = |value: &String| {
        let wrong = |reason| {
            let (option, value) = (spec.name, sanitised(value, SHOWN_MAX));
            RoleOptionError::Value { kind, option, value, reason }
        };
        spec.value_type.parse(value).map_err(wrong)
    };
    values.iter().map(one).collect()
}

/// Returns the words of the command, and true if it accepts `--json` with a path for its result.
const fn command_words(kind: RoleKind) -> (&'static [&'static str], bool) {
    match kind {
        RoleKind::Serve => (&["serve"], false),
        RoleKind::LoadNtp => (&["load", "ntp"], true),
        RoleKind::LoadPtpDelay => (&["load", "ptp", "delay"], true),
        RoleKind::Query => (&["query"], true),
        RoleKind::PathServe => (&["path", "serve"], false),
        RoleKind::PathUdp => (&["path", "udp"], true),
        RoleKind::PathTcp => (&["path", "tcp"], true),
        RoleKind::RelayRun => (&["relay", "run"], true),
        RoleKind::HostTimer => (&["host", "timer"], true),
        // The nodes start at the same time, so they may wait for one another to join.
        RoleKind::CycleLead => (&["cycle", "run", "--join-timeout=30s"], true),
        RoleKind::CycleJoin => (&["cycle", "run", "--join-timeout=30s"], false),
    }
}

pub(super) fn command_line(
    kind: RoleKind,
    options: &BTreeMap<String, Vec<String>>,
    files: &CommandFiles<'_>,
) -> Result<RoleCommandLine, RoleOptionError> {
    let read = parse_options(kind, options)?;
    let (command, has_json_flag) = command_words(kind);
    let mut argv: Vec<OsString> = command.iter().map(OsString::from).collect();
    let mut arguments = Vec::new();
    let tasks = task_file(&read, options);
    let replaced = tasks.as_ref().map_or(&[][..], |(_, replaced)| replaced);
    for (spec, parsed) in read.iter().filter(|(spec, _)| !replaced.contains(&spec.name)) {
        // Always present, because only present options were parsed.
        let values = options.get(spec.name).map_or(&[][..], Vec::as_slice);
        match spec.maps_to {
            // The value `none` of `core`: the flag is omitted.
            RoleOptionMapping::Flag(_) if *parsed == [ParsedOptionValue::Switch(false)] => {}
            RoleOptionMapping::Flag(flag) => {
                argv.extend(values.iter().map(|value| OsString::from(format!("{flag}={value}"))));
            }
            RoleOptionMapping::Switch(flag)
                if parsed.contains(&ParsedOptionValue::Switch(true)) =>
            {
                argv.push(flag.into());
            }
            RoleOptionMapping::Argument => arguments.extend(values.iter().map(OsString::from)),
            RoleOptionMapping::Switch(_)
            | RoleOptionMapping::Key(_)
            | RoleOptionMapping::Table(_) => {}
        }
    }
    argv.extend(has_json_flag.then(|| file_flag("--json", files.result)));
    // Not the default path, because several servers may run on one host.
    argv.extend((kind == RoleKind::Serve).then(|| file_flag("--status-socket", files.socket)));
    let table = (kind == RoleKind::RelayRun).then(|| {
        argv.push(file_flag("--config", files.table));
        argv.push(file_flag("--socket", files.socket));
        relay_table(&read, options)
    });
    let table = table.or_else(|| {
        let (text, _) = tasks?;
        arguments.push(files.table.into());
        Some(text)
    });
    argv.extend(arguments);
    Ok(RoleCommandLine { argv, table })
}

/// Returns the text of the task file and the names of the options that it replaces; `None` without
/// a task file.
fn task_file(
    read: &[(&'static RoleOptionSpec, Vec<ParsedOptionValue>)],
    options: &BTreeMap<String, Vec<String>>,
) -> Option<(String, &'static [&'static str])> {
    read.iter().find_map(|(spec, parsed)| match (spec.maps_to, parsed.as_slice()) {
        (RoleOptionMapping::Table(replaced), [ParsedOptionValue::Text(_)]) => {
            Some((options.get(spec.name)?.concat(), replaced))
        }
        _ => None,
    })
}

fn file_flag(flag: &str, path: &Path) -> OsString {
    let mut word = OsString::from(flag);
    word.push("=");
    word.push(path);
    word
}

/// Formats a relay's table file with one group. The values were validated, so none needs escapes.
fn relay_table(
    read: &[(&'static RoleOptionSpec, Vec<ParsedOptionValue>)],
    options: &BTreeMap<String, Vec<String>>,
) -> String {
    let mut text = format!("[[group]]\nname = \"{GROUP}\"\n");
    let mut destinations = String::new();
    for (spec, parsed) in read {
        let RoleOptionMapping::Key(key) = spec.maps_to else { continue };
        let values = options.get(spec.name).map_or(&[][..], Vec::as_slice);
        let quoted: Vec<_> = values.iter().map(|value| format!("\"{value}\"")).collect();
        let value = match parsed.as_slice() {
            [ParsedOptionValue::Rate(rate)] => format!("{}", rate.ceil() as u64),
            _ if spec.many => format!("[{}]", quoted.join(", ")),
            _ => quoted.concat(),
        };
        // Writing to memory cannot fail.
        let _ = writeln!(text, "{key} = {value}");
        if key == "children" {
            destinations = destinations_of(parsed);
        }
    }
    destinations + &text
}

/// Formats the key `destinations` of the table file: the addresses of the children, which the
/// policy has checked.
fn destinations_of(children: &[ParsedOptionValue]) -> String {
    let address = |child: &ParsedOptionValue| match child {
        ParsedOptionValue::Address(address, _) => Some(format!("\"{address}\"")),
        _ => None,
    };
    let addresses: Vec<_> = children.iter().filter_map(address).collect();
    format!("destinations = [{}]\n", addresses.join(", "))
}
