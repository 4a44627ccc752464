//! Types of option values, and their parsers. Each type accepts only what the command accepts at
//! that position, so a value can become neither a second flag nor a second line of a table file.

use std::iter;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use horolog_sys::netlink::Prefix;
use horolog_time::text;

use super::tasks;

/// Longest text of a list of sizes, in bytes.
const SIZES_BYTES_MAX: usize = 200;
const SIZES_FORM: &str = "write sizes such as 64,1000..5000:1000 or 64..32k:*2";
/// Largest number of cores in a list: one for each node.
const CORES_MAX: usize = 256;
/// Largest size of a name, in bytes: that of a node name.
const NAME_BYTES_MAX: usize = 32;

/// Type of an option's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OptionType {
    /// Destination of packets: an address, with or without a port. Names are excluded, since the
    /// policy check must know the destination.
    Target,
    /// Destination of packets: an address with a port.
    TargetPort,
    /// Local address of the agent with a port.
    Listen,
    /// Network or address.
    Network,
    /// Rate per second.
    Rate,
    /// Rate, or a lowest and a highest one separated by a hyphen.
    Rates,
    /// Time greater than zero.
    Time,
    /// Count: 1 up to this.
    Count(u32),
    /// Size in bytes.
    Size,
    /// List of sizes, such as `64,1000..5000:1000`, each from the first of these to the second.
    Sizes(u64, u64),
    /// Number of a node and a factor, such as `2=3`.
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

/// Bound of a policy that applies to an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyBound {
    /// Networks to which packets may be sent.
    Targets,
    /// Networks in which the agent may listen.
    Listens,
    /// Highest rate.
    Rate,
    /// Longest time.
    Time,
}

/// Parsed value.
#[derive(Clone, PartialEq, Debug)]
pub enum ParsedValue {
    /// Address, with or without a port.
    Address(IpAddr, Option<u16>),
    /// Network.
    Network(Prefix),
    /// Rate; the highest of two.
    Rate(f64),
    /// Time.
    Time(Duration),
    /// Number: a count or bytes.
    Number(u64),
    /// Word or list.
    Words(String),
    /// Boolean.
    Switch(bool),
}

impl OptionType {
    /// Returns the name of the type in tables.
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

    /// Returns the bound of a policy that applies.
    #[must_use]
    pub const fn bound(self) -> Option<PolicyBound> {
        match self {
            Self::Target | Self::TargetPort => Some(PolicyBound::Targets),
            Self::Listen => Some(PolicyBound::Listens),
            Self::Rate | Self::Rates => Some(PolicyBound::Rate),
            Self::Time => Some(PolicyBound::Time),
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
    /// The expected form.
    pub fn read(self, input: &str) -> Result<ParsedValue, String> {
        match self {
            Self::Target => target(input),
            Self::TargetPort | Self::Listen => socket_address(input),
            Self::Network => network(input),
            Self::Rate => text::rate(input).map(ParsedValue::Rate),
            Self::Rates => text::rates(input).map(|(_, high)| ParsedValue::Rate(high)),
            Self::Time => text::positive_duration(input).map(ParsedValue::Time),
            Self::Count(max) => count(input, max),
            Self::Size => text::size(input).map(ParsedValue::Number),
            Self::Sizes(min, max) => sizes(input, min, max),
            Self::Factor => factor(input),
            Self::Cores => cores(input),
            Self::Tasks if input == "none" => Ok(ParsedValue::Switch(false)),
            Self::Tasks => tasks::check(input).map(|()| ParsedValue::Words(input.to_owned())),
            Self::Name => name(input),
            Self::Choice(words) if words.contains(&input) => {
                Ok(ParsedValue::Words(input.to_owned()))
            }
            Self::Choice(words) => Err(format!("write one of {}", words.join(", "))),
            Self::Switch => input.parse().map(ParsedValue::Switch).map_err(|_| {
                let form = "write true or false";
                form.to_owned()
            }),
        }
    }
}

/// Parses a target in the forms of the commands: `192.0.2.1`, `192.0.2.1:123`, `2001:db8::1`,
/// `[2001:db8::1]:123`.
fn target(input: &str) -> Result<ParsedValue, String> {
    refuse_zone(input)?;
    let bare = input.parse::<IpAddr>().map(|address| ParsedValue::Address(address, None));
    bare.or_else(|_| socket_address(input)).map_err(|_| {
        "write an address, with a port or without, such as 192.0.2.1 or [2001:db8::1]:123; names \
         are not supported, since an agent checks destinations by address"
            .to_owned()
    })
}

/// Refuses a zone, which is an interface of the plan author's host, not of the agent.
fn refuse_zone(input: &str) -> Result<(), String> {
    if input.contains('%') {
        return Err(format!(
            "'{input}' has a zone, which identifies an interface of one host only; write an \
             address that is not link-local"
        ));
    }
    Ok(())
}

fn socket_address(input: &str) -> Result<ParsedValue, String> {
    refuse_zone(input)?;
    let parsed = input.parse::<SocketAddr>().ok();
    let address = parsed.map(|at| ParsedValue::Address(at.ip(), Some(at.port())));
    let form = "write an address and a port, such as 192.0.2.1:123 or [2001:db8::1]:123";
    address.ok_or_else(|| form.to_owned())
}

fn network(input: &str) -> Result<ParsedValue, String> {
    let address = input.parse::<IpAddr>().map(Prefix::host);
    let network = address.or_else(|_| input.parse::<Prefix>());
    network.map(ParsedValue::Network).map_err(|error| error.to_string())
}

fn count(input: &str, max: u32) -> Result<ParsedValue, String> {
    match text::count(input) {
        Ok(count) if count <= max => Ok(ParsedValue::Number(count.into())),
        _ => Err(format!("write a number from 1 to {max}")),
    }
}

fn factor(input: &str) -> Result<ParsedValue, String> {
    let form = || "write a node and a factor from 0.01 to 100, such as 2=3".to_owned();
    let (node, times) = input.split_once('=').ok_or_else(form)?;
    let is_plain = times.chars().all(|c| c.is_ascii_digit() || c == '.');
    let times = times.parse().ok().filter(|times| is_plain && (0.01..=100.0).contains(times));
    count(node, u16::MAX.into()).ok().zip(times).ok_or_else(form)?;
    Ok(ParsedValue::Words(input.to_owned()))
}

/// Parses cores; `none` corresponds to an absent flag.
fn cores(input: &str) -> Result<ParsedValue, String> {
    let is_core =
        |core: &str| core.len() <= 4 && core.parse::<u16>().is_ok_and(|_| is_digits(core));
    let count = input.split(',').count();
    match input {
        "none" => Ok(ParsedValue::Switch(false)),
        _ if count <= CORES_MAX && input.split(',').all(is_core) => {
            Ok(ParsedValue::Words(input.to_owned()))
        }
        _ => Err("write cores such as 0,1, or none".to_owned()),
    }
}

fn is_digits(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_digit())
}

fn name(input: &str) -> Result<ParsedValue, String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let begins = input.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins && input.len() <= NAME_BYTES_MAX && input.chars().all(is_part) {
        Ok(ParsedValue::Words(input.to_owned()))
    } else {
        Err(format!("write up to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.'"))
    }
}

fn sizes(input: &str, min: u64, max: u64) -> Result<ParsedValue, String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || ",.:*".contains(c);
    let fits = (1..=SIZES_BYTES_MAX).contains(&input.len());
    if !fits || !input.starts_with(|c: char| c.is_ascii_digit()) || !input.chars().all(is_part) {
        return Err(SIZES_FORM.to_owned());
    }
    for end in input.split(',').flat_map(ends) {
        let size = text::size(end).map_err(|_| SIZES_FORM.to_owned())?;
        if !(min..=max).contains(&size) {
            return Err(format!("'{end}' is outside {min} to {max} bytes"));
        }
    }
    Ok(ParsedValue::Words(input.to_owned()))
}

/// Returns a size, or the first and the last of a range; the step between them is parsed by the
/// command.
fn ends(part: &str) -> impl Iterator<Item = &str> {
    let (from, rest) = part.split_once("..").map_or((part, None), |(from, to)| (from, Some(to)));
    let to = rest.map(|rest| rest.split(':').next().unwrap_or_default());
    iter::once(from).chain(to)
}
