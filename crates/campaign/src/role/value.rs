//! Types of option values, and their parsers. The accepted values contain no characters by which a
//! value could become a second flag or a second line of a table file.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use horolog_time::text::{self, Rate, Size};
use horolog_wire::prefix::Prefix;
use toml::{Table, Value};

/// Longest text of a list of sizes, in bytes.
const SIZES_BYTES_MAX: usize = 200;
/// Largest number of cores in a list: one for each node.
const CORES_MAX: usize = 256;
/// Largest size of a name, in bytes: that of a node name.
const NAME_BYTES_MAX: usize = 32;

/// Type of an option's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoleOptionType {
    /// Destination of packets: an address, with or without a port. Host names are excluded, because
    /// the policy checks addresses.
    Target,
    /// Destination of packets: an address with a port.
    TargetPort,
    /// Local address of the agent with a port.
    Listen,
    /// Network or address.
    Network,
    /// Rate per second.
    Rate,
    /// Rate per second, or a lowest and a highest one separated by a hyphen.
    Rates,
    /// Time greater than zero.
    Time,
    /// Number from 1 to this.
    Count(u32),
    /// Size in bytes.
    Size,
    /// List of sizes, such as `64,1000..5000:1000`, with the smallest and the largest accepted size
    /// in bytes.
    Sizes(u64, u64),
    /// Number of a node and a factor of its computation time, such as `2=3`.
    Factor,
    /// Cores, such as `0,1`, or `none`.
    Cores,
    /// Text of a task file, or `none`.
    Tasks,
    /// Name: letters, digits, `-`, `_` and `.`.
    Name,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Switch,
}

/// Bound of the policy that applies to the values of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ApplicablePolicyBound {
    /// Networks to which packets may be sent.
    Targets,
    /// Networks of local addresses on which the agent may listen.
    Listens,
    /// Highest rate.
    Rate,
    /// Longest time.
    Time,
}

/// Parsed value of an option.
#[derive(Clone, PartialEq, Debug)]
pub enum ParsedOptionValue {
    /// Address, with or without a port.
    Address(IpAddr, Option<u16>),
    /// Network.
    Network(Prefix),
    /// Rate per second; of two, the higher one.
    Rate(f64),
    /// Time.
    Time(Duration),
    /// Count, or size in bytes.
    Number(u64),
    /// Word, list or task file, unchanged.
    Text(String),
    /// Boolean; false for the word `none` in place of cores or a task file.
    Switch(bool),
}

impl RoleOptionType {
    /// Returns the name of the type for tables of options.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Target => "address[:port]".into(),
            Self::TargetPort | Self::Listen => "address:port".into(),
            Self::Network => "network".into(),
            Self::Rate => "rate".into(),
            Self::Rates => "rate[-rate]".into(),
            Self::Time => "time".into(),
            Self::Count(max) => format!("1..{max}"),
            Self::Size => "size".into(),
            Self::Sizes(..) => "sizes".into(),
            Self::Factor => "node=factor".into(),
            Self::Cores => "cores".into(),
            Self::Tasks => "text".into(),
            Self::Name => "name".into(),
            Self::Choice(words) => words.join(", "),
            Self::Switch => "true, false".into(),
        }
    }

    /// Returns the kind of policy bound that the type names; `None` if it names none. A network has
    /// none, but the policy checks it against its targets.
    #[must_use]
    pub const fn bound(self) -> Option<ApplicablePolicyBound> {
        match self {
            Self::Target | Self::TargetPort => Some(ApplicablePolicyBound::Targets),
            Self::Listen => Some(ApplicablePolicyBound::Listens),
            Self::Rate | Self::Rates => Some(ApplicablePolicyBound::Rate),
            Self::Time => Some(ApplicablePolicyBound::Time),
            Self::Network
            | Self::Count(_)
            | Self::Size
            | Self::Sizes(..)
            | Self::Factor
            | Self::Cores
            | Self::Tasks
            | Self::Name
            | Self::Choice(_)
            | Self::Switch => None,
        }
    }

    /// Parses a value.
    ///
    /// # Errors
    ///
    /// The expected form, as an imperative sentence.
    pub fn parse(self, input: &str) -> Result<ParsedOptionValue, String> {
        match self {
            Self::Target => parse_target(input),
            Self::TargetPort | Self::Listen => parse_socket_address(input),
            Self::Network => parse_network(input),
            Self::Rate => Ok(ParsedOptionValue::Rate(input.parse::<Rate>()?.per_second())),
            Self::Rates => Ok(ParsedOptionValue::Rate(text::rates(input)?.1)),
            Self::Time => Ok(ParsedOptionValue::Time(text::positive_duration(input)?)),
            Self::Count(max) => parse_count(input, max),
            Self::Size => Ok(ParsedOptionValue::Number(input.parse::<Size>()?.bytes())),
            Self::Sizes(min, max) => parse_sizes(input, min, max),
            Self::Factor => parse_factor(input),
            Self::Cores => parse_cores(input),
            Self::Tasks if input == "none" => Ok(ParsedOptionValue::Switch(false)),
            Self::Tasks => {
                check_task_file(input).map(|()| ParsedOptionValue::Text(input.to_owned()))
            }
            Self::Name => parse_name(input),
            Self::Choice(words) if words.contains(&input) => {
                Ok(ParsedOptionValue::Text(input.to_owned()))
            }
            Self::Choice(words) => Err(format!("write one of {}", words.join(", "))),
            Self::Switch => input.parse().map(ParsedOptionValue::Switch).map_err(|_| {
                let form = "write true or false";
                form.to_owned()
            }),
        }
    }
}

/// Parses an address with or without a port: `192.0.2.1`, `192.0.2.1:123`, `2001:db8::1`,
/// `[2001:db8::1]:123`.
fn parse_target(input: &str) -> Result<ParsedOptionValue, String> {
    refuse_zone(input)?;
    let bare = input.parse::<IpAddr>().map(|address| ParsedOptionValue::Address(address, None));
    bare.or_else(|_| parse_socket_address(input)).map_err(|_| {
        "write an address, with a port or without, such as 192.0.2.1 or [2001:db8::1]:123; names \
         are not supported, since an agent checks destinations by address"
            .to_owned()
    })
}

/// Refuses an IPv6 zone, because interface names differ between hosts.
fn refuse_zone(input: &str) -> Result<(), String> {
    if input.contains('%') {
        return Err(format!(
            "'{input}' has a zone, which identifies an interface of one host only; write an \
             address that is not link-local"
        ));
    }
    Ok(())
}

fn parse_socket_address(input: &str) -> Result<ParsedOptionValue, String> {
    refuse_zone(input)?;
    let parsed = input.parse::<SocketAddr>().ok();
    let address = parsed.map(|at| ParsedOptionValue::Address(at.ip(), Some(at.port())));
    let form = "write an address and a port, such as 192.0.2.1:123 or [2001:db8::1]:123";
    address.ok_or_else(|| form.to_owned())
}

fn parse_network(input: &str) -> Result<ParsedOptionValue, String> {
    let address = input.parse::<IpAddr>().map(Prefix::host);
    let network = address.or_else(|_| input.parse::<Prefix>());
    network.map(ParsedOptionValue::Network).map_err(|error| error.to_string())
}

fn parse_count(input: &str, max: u32) -> Result<ParsedOptionValue, String> {
    match text::count::<u32>(input) {
        Ok(count) if count <= max => Ok(ParsedOptionValue::Number(count.into())),
        _ => Err(format!("write a number from 1 to {max}")),
    }
}

fn parse_factor(input: &str) -> Result<ParsedOptionValue, String> {
    let form = || "write a node and a factor from 0.01 to 100, such as 2=3".to_owned();
    let (node, factor) = input.split_once('=').ok_or_else(form)?;
    let is_decimal = factor.chars().all(|c| c.is_ascii_digit() || c == '.');
    let factor = factor.parse().ok().filter(|times| is_decimal && (0.01..=100.0).contains(times));
    parse_count(node, u16::MAX.into()).ok().zip(factor).ok_or_else(form)?;
    Ok(ParsedOptionValue::Text(input.to_owned()))
}

/// Parses a list of cores; `none` yields `Switch(false)`, for which the flag is omitted.
fn parse_cores(input: &str) -> Result<ParsedOptionValue, String> {
    let is_core =
        |core: &str| core.len() <= 4 && core.parse::<u16>().is_ok_and(|_| is_digits(core));
    let count = input.split(',').count();
    match input {
        "none" => Ok(ParsedOptionValue::Switch(false)),
        _ if count <= CORES_MAX && input.split(',').all(is_core) => {
            Ok(ParsedOptionValue::Text(input.to_owned()))
        }
        _ => Err("write cores such as 0,1, or none".to_owned()),
    }
}

fn is_digits(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_digit())
}

fn parse_name(input: &str) -> Result<ParsedOptionValue, String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let begins = input.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins && input.len() <= NAME_BYTES_MAX && input.chars().all(is_part) {
        Ok(ParsedOptionValue::Text(input.to_owned()))
    } else {
        Err(format!("write up to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.'"))
    }
}

fn parse_sizes(input: &str, min: u64, max: u64) -> Result<ParsedOptionValue, String> {
    if input.len() > SIZES_BYTES_MAX {
        return Err(format!("write at most {SIZES_BYTES_MAX} characters"));
    }
    match text::sizes(input)?.into_iter().find(|size| !(min..=max).contains(size)) {
        Some(size) => Err(format!("'{size}' is outside {min} to {max} bytes")),
        None => Ok(ParsedOptionValue::Text(input.to_owned())),
    }
}

/// Permitted keys of a task. Keys that concern a command or a program are not among them.
const TASK_KEYS: &[&str] = &[
    "name", "period", "deadline", "offset", "policy", "priority", "core", "worst", "critical",
    "compute", "units", "message", "to", "barrier", "step", "polling",
];
const STEP_KEYS: &[&str] = &["compute", "units", "message", "to", "barrier"];
const POLLING_KEYS: &[&str] = &["rate", "compute", "units", "budget"];

/// Checks that a task file has at least one task, and only permitted keys.
///
/// # Errors
///
/// The first key that is not permitted, or the expected form.
pub(super) fn check_task_file(text: &str) -> Result<(), String> {
    let form = || "write the text of a task file, with a [[task]], or none".to_owned();
    let file: Table = text.parse().map_err(|_| form())?;
    check_keys(&file, &["task"])?;
    let tasks = file.get("task").and_then(Value::as_array).filter(|tasks| !tasks.is_empty());
    tasks.ok_or_else(form)?.iter().try_for_each(|task| {
        let task = task.as_table().ok_or_else(form)?;
        check_keys(task, TASK_KEYS)?;
        let steps = task.get("step").map(|steps| steps.as_array().ok_or_else(form)).transpose()?;
        for step in steps.into_iter().flatten() {
            check_keys(step.as_table().ok_or_else(form)?, STEP_KEYS)?;
        }
        match task.get("polling") {
            Some(polling) => check_keys(polling.as_table().ok_or_else(form)?, POLLING_KEYS),
            None => Ok(()),
        }
    })
}

fn check_keys(table: &Table, names: &[&str]) -> Result<(), String> {
    match table.keys().find(|name| !names.contains(&name.as_str())) {
        Some(name) => Err(format!("'{name}' is not supported in plans; omit it")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_is_built_in_may_be_in_a_plan_and_programs_may_not() {
        let task = "[[task]]\nname = \"a\"\nperiod = \"10ms\"\n";
        for more in [
            "compute = \"1ms\"\nbarrier = true\n",
            "[[task.step]]\nunits = 3\n[[task.step]]\nmessage = 64\n[[task]]\nname = \"b\"\n",
            "[task.polling]\nrate = 200\ncompute = \"1ms\"\nbudget = 4\n",
        ] {
            check_task_file(&format!("{task}{more}")).unwrap();
        }
        for (more, named) in [
            ("command = [\"/bin/sh\"]\n", "'command' is not supported in plans"),
            ("program = [\"/bin/sh\"]\n", "'program' is not"),
            ("[[task.step]]\ncommand = [\"/bin/sh\"]\n", "'command' is not"),
            ("[task.polling]\nprogram = [\"/bin/sh\"]\n", "'program' is not"),
            ("[other]\n", "'other' is not"),
            ("step = 1\n", "write the text of a task file"),
        ] {
            let why = check_task_file(&format!("{task}{more}")).unwrap_err();
            assert!(why.contains(named), "{more}: {why}");
        }
        for text in ["", "task = []", "task = 1", "task = [1]", "[[task]"] {
            assert!(
                check_task_file(text).unwrap_err().contains("write the text of a task file"),
                "{text}"
            );
        }
    }
}
