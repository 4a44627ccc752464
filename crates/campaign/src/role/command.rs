//! Making a command line of a role's options. Pure: the table file of a relay is given as text.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;

use super::{Becomes, Given, OptionSpec, RoleKind};
use crate::fault::shown;

/// What a role's group of packets is called in a relay's table file.
const GROUP: &str = "campaign";

/// Options that a kind of roles cannot have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RoleFault {
    /// It has no such option.
    #[error("{kind} has no option '{option}'; it has {}", names(*.kind))]
    Unknown {
        /// The kind.
        kind: RoleKind,
        /// The option, cut where it is long.
        option: String,
    },
    /// An option is missing.
    #[error("{kind} needs the option '{option}': {says}")]
    Missing {
        /// The kind.
        kind: RoleKind,
        /// The option.
        option: &'static str,
        /// What it is.
        says: &'static str,
    },
    /// An option has no value, or several where one is possible.
    #[error("'{option}' of {kind} has {count} values; {}", if *many { "give one or more" } else { "give one" })]
    Values {
        /// The kind.
        kind: RoleKind,
        /// The option.
        option: &'static str,
        /// How many there are.
        count: usize,
        /// Whether several are possible.
        many: bool,
    },
    /// A value is not of the form that it has to have.
    #[error("'{option}' of {kind} cannot be '{value}': {reason}")]
    Value {
        /// The kind.
        kind: RoleKind,
        /// The option.
        option: &'static str,
        /// The value, cut where it is long.
        value: String,
        /// What to write instead.
        reason: String,
    },
}

impl RoleFault {
    /// The option that it is about.
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

/// Files that a command is told of.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// Where its record goes.
    pub result: &'a Path,
    /// Where its table file is.
    pub table: &'a Path,
    /// Where it may make a socket by which it is asked.
    pub socket: &'a Path,
}

/// A command line behind the program's name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandLine {
    /// Its words.
    pub words: Vec<OsString>,
    /// What the table file holds, where it takes one.
    pub table: Option<String>,
}

/// Characters of a refused text that are shown.
const SHOWN_MAX: usize = 60;

pub(super) fn read(
    kind: RoleKind,
    options: &BTreeMap<String, Vec<String>>,
) -> Result<Vec<(&'static OptionSpec, Vec<Given>)>, RoleFault> {
    if let Some(option) = options.keys().find(|name| kind.option(name).is_none()) {
        return Err(RoleFault::Unknown { kind, option: shown(option, SHOWN_MAX) });
    }
    let is_missing = |option: &&OptionSpec| option.required && !options.contains_key(option.name);
    if let Some(OptionSpec { name, says, .. }) = kind.options().iter().find(is_missing) {
        return Err(RoleFault::Missing { kind, option: name, says });
    }
    let given = |spec: &'static OptionSpec| Some((spec, options.get(spec.name)?));
    let given = kind.options().iter().filter_map(given);
    let read = given.map(|(spec, values)| Ok((spec, read_one(kind, spec, values)?)));
    let read = read.collect::<Result<Vec<_>, RoleFault>>()?;
    nodes_are_there(kind, &read)?;
    Ok(read)
}

/// Whether each node that is named by its number is there.
fn nodes_are_there(
    kind: RoleKind,
    read: &[(&'static OptionSpec, Vec<Given>)],
) -> Result<(), RoleFault> {
    let values = |name: &str| read.iter().find(|(spec, _)| spec.name == name);
    let Some((_, nodes)) = values("nodes") else { return Ok(()) };
    let Some((spec, named)) = values("slow") else { return Ok(()) };
    let [Given::Number(nodes)] = nodes.as_slice() else { return Ok(()) };
    for given in named {
        let Given::Words(text) = given else { continue };
        let node = text.split('=').next().and_then(|node| node.parse::<u64>().ok());
        if let Some(node) = node.filter(|node| node > nodes) {
            let reason = format!("there is no node {node}; they are 1 to {nodes}");
            return Err(RoleFault::Value { kind, option: spec.name, value: text.clone(), reason });
        }
    }
    Ok(())
}

fn read_one(
    kind: RoleKind,
    spec: &'static OptionSpec,
    values: &[String],
) -> Result<Vec<Given>, RoleFault> {
    if values.is_empty() || (values.len() > 1 && !spec.many) {
        let (option, many, count) = (spec.name, spec.many, values.len());
        return Err(RoleFault::Values { kind, option, count, many });
    }
    let one = |value: &String| {
        let wrong = |reason| {
            let (option, value) = (spec.name, shown(value, SHOWN_MAX));
            RoleFault::Value { kind, option, value, reason }
        };
        spec.value.read(value).map_err(wrong)
    };
    values.iter().map(one).collect()
}

/// The words of the command, and whether it is told where its record goes.
const fn command(kind: RoleKind) -> (&'static [&'static str], bool) {
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
        // All are started at one instant, and which is there first is nobody's fault.
        RoleKind::CycleLead => (&["cycle", "run", "--wait=30s"], true),
        RoleKind::CycleJoin => (&["cycle", "run", "--wait=30s"], false),
    }
}

pub(super) fn line(
    kind: RoleKind,
    options: &BTreeMap<String, Vec<String>>,
    files: &Files<'_>,
) -> Result<CommandLine, RoleFault> {
    let read = read(kind, options)?;
    let (command, tells) = command(kind);
    let mut words: Vec<OsString> = command.iter().map(OsString::from).collect();
    let mut arguments = Vec::new();
    let tasks = tasks(&read, options);
    let replaced = tasks.as_ref().map_or(&[][..], |(_, replaced)| replaced);
    for (spec, given) in read.iter().filter(|(spec, _)| !replaced.contains(&spec.name)) {
        // Present, for it was read.
        let values = options.get(spec.name).map_or(&[][..], Vec::as_slice);
        match spec.becomes {
            // Cores that are none.
            Becomes::Flag(_) if *given == [Given::Switch(false)] => {}
            Becomes::Flag(flag) => {
                words.extend(values.iter().map(|value| OsString::from(format!("{flag}={value}"))));
            }
            Becomes::Switch(flag) if given.contains(&Given::Switch(true)) => {
                words.push(flag.into());
            }
            Becomes::Argument => arguments.extend(values.iter().map(OsString::from)),
            Becomes::Switch(_) | Becomes::Key(_) | Becomes::Table(_) => {}
        }
    }
    words.extend(tells.then(|| file_flag("--json", files.result)));
    // Not the usual places: several of a kind may run on one machine.
    words.extend((kind == RoleKind::Serve).then(|| file_flag("--status-socket", files.socket)));
    let table = (kind == RoleKind::RelayRun).then(|| {
        words.push(file_flag("--config", files.table));
        words.push(file_flag("--socket", files.socket));
        table(&read, options)
    });
    let table = table.or_else(|| {
        let (text, _) = tasks?;
        arguments.push(files.table.into());
        Some(text)
    });
    words.extend(arguments);
    Ok(CommandLine { words, table })
}

/// The text of a task file, where there is one, and the options that it replaces.
fn tasks(
    read: &[(&'static OptionSpec, Vec<Given>)],
    options: &BTreeMap<String, Vec<String>>,
) -> Option<(String, &'static [&'static str])> {
    read.iter().find_map(|(spec, given)| match (spec.becomes, given.as_slice()) {
        (Becomes::Table(replaced), [Given::Words(_)]) => {
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

/// A relay's table file with one group. All values were read, so none needs quoting.
fn table(
    read: &[(&'static OptionSpec, Vec<Given>)],
    options: &BTreeMap<String, Vec<String>>,
) -> String {
    let mut text = format!("[[group]]\nname = \"{GROUP}\"\n");
    let mut destinations = String::new();
    for (spec, given) in read {
        let Becomes::Key(key) = spec.becomes else { continue };
        let values = options.get(spec.name).map_or(&[][..], Vec::as_slice);
        let quoted: Vec<_> = values.iter().map(|value| format!("\"{value}\"")).collect();
        let value = match given.as_slice() {
            [Given::Rate(rate)] => format!("{}", rate.ceil() as u64),
            _ if spec.many => format!("[{}]", quoted.join(", ")),
            _ => quoted.concat(),
        };
        // Writing to memory does not fail.
        let _ = writeln!(text, "{key} = {value}");
        if key == "children" {
            destinations = destinations_of(given);
        }
    }
    destinations + &text
}

/// What a table allows copies to go to: the children, which were judged one by one.
fn destinations_of(children: &[Given]) -> String {
    let address = |child: &Given| match child {
        Given::Address(address, _) => Some(format!("\"{address}\"")),
        _ => None,
    };
    let addresses: Vec<_> = children.iter().filter_map(address).collect();
    format!("destinations = [{}]\n", addresses.join(", "))
}
