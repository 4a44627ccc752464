//! What the values of options are, and reading them. Each type admits what the command takes in
//! such a place and no more, so a value can neither become a second flag nor a second line of a
//! table file.

use std::iter;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use horolog_sys::netlink::Prefix;
use horolog_time::text;

use super::tasks;

/// Bytes of a list of sizes, at most.
const SIZES_BYTES_MAX: usize = 200;
const SIZES_FORM: &str = "write sizes such as 64,1000..5000:1000 or 64..32k:*2";
/// Cores in a list, at most: one for each node.
const CORES_MAX: usize = 256;
/// Bytes of a name, at most: those of a node.
const NAME_BYTES_MAX: usize = 32;

/// What an option's values are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// Where packets go: an address, with a port or without. No name, for whoever judges it has to
    /// know where it leads.
    Target,
    /// Where packets go: an address with a port.
    TargetPort,
    /// An address of the agent's own with a port.
    Listen,
    /// A network, or an address.
    Network,
    /// Something in a second.
    Rate,
    /// A rate, or a lowest and a highest with a hyphen between.
    Rates,
    /// A time that is not zero.
    Time,
    /// How many of something: 1 up to this.
    Count(u32),
    /// Bytes.
    Size,
    /// A list of sizes, such as `64,1000..5000:1000`, each from the first of these to the second.
    Sizes(u64, u64),
    /// A node's number and a factor, such as `2=3`.
    Factor,
    /// Cores, such as `0,1`, or `none`.
    Cores,
    /// The text of a task file, or `none`.
    Tasks,
    /// A name: letters, digits, `-`, `_` and `.`.
    Name,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Switch,
}

/// What bounds of a policy an option falls under.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// The networks that packets may be sent to.
    Targets,
    /// The networks that may be listened in.
    Listens,
    /// The highest rate.
    Rate,
    /// The longest time.
    Time,
}

/// A value that was read.
#[derive(Clone, PartialEq, Debug)]
pub enum Given {
    /// An address, with a port or without.
    Address(IpAddr, Option<u16>),
    /// A network.
    Network(Prefix),
    /// A rate; the highest, where there are two.
    Rate(f64),
    /// A time.
    Time(Duration),
    /// A number: of things or bytes.
    Number(u64),
    /// A word or a list.
    Words(String),
    /// Whether.
    Switch(bool),
}

impl Value {
    /// What it is called in tables.
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

    /// What of a policy it falls under.
    #[must_use]
    pub const fn bound(self) -> Option<Bound> {
        match self {
            Self::Target | Self::TargetPort => Some(Bound::Targets),
            Self::Listen => Some(Bound::Listens),
            Self::Rate | Self::Rates => Some(Bound::Rate),
            Self::Time => Some(Bound::Time),
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

    /// Reads a value.
    ///
    /// # Errors
    ///
    /// What to write instead.
    pub fn read(self, given: &str) -> Result<Given, String> {
        match self {
            Self::Target => target(given),
            Self::TargetPort | Self::Listen => socket_address(given),
            Self::Network => network(given),
            Self::Rate => text::rate(given).map(Given::Rate),
            Self::Rates => text::rates(given).map(|(_, high)| Given::Rate(high)),
            Self::Time => text::positive_duration(given).map(Given::Time),
            Self::Count(max) => count(given, max),
            Self::Size => text::size(given).map(Given::Number),
            Self::Sizes(min, max) => sizes(given, min, max),
            Self::Factor => factor(given),
            Self::Cores => cores(given),
            Self::Tasks if given == "none" => Ok(Given::Switch(false)),
            Self::Tasks => tasks::check(given).map(|()| Given::Words(given.to_owned())),
            Self::Name => name(given),
            Self::Choice(words) if words.contains(&given) => Ok(Given::Words(given.to_owned())),
            Self::Choice(words) => Err(format!("write one of {}", words.join(", "))),
            Self::Switch => given.parse().map(Given::Switch).map_err(|_| {
                let form = "write true or false";
                form.to_owned()
            }),
        }
    }
}

/// As the commands take it: `192.0.2.1`, `192.0.2.1:123`, `2001:db8::1`, `[2001:db8::1]:123`.
fn target(given: &str) -> Result<Given, String> {
    let bare = given.parse::<IpAddr>().map(|address| Given::Address(address, None));
    bare.or_else(|_| socket_address(given)).map_err(|_| {
        "write an address, with a port or without, such as 192.0.2.1 or [2001:db8::1]:123; names \
         are not taken, since an agent judges where packets go by addresses"
            .to_owned()
    })
}

fn socket_address(given: &str) -> Result<Given, String> {
    let parsed = given.parse::<SocketAddr>().ok();
    // A scope is an interface of whoever wrote it, not of the agent.
    let parsed = parsed.filter(|_| !given.contains('%'));
    let address = parsed.map(|at| Given::Address(at.ip(), Some(at.port())));
    let form = "write an address and a port, such as 192.0.2.1:123 or [2001:db8::1]:123";
    address.ok_or_else(|| form.to_owned())
}

fn network(given: &str) -> Result<Given, String> {
    let address = given.parse::<IpAddr>().map(Prefix::host);
    let network = address.or_else(|_| given.parse::<Prefix>());
    network.map(Given::Network).map_err(|error| error.to_string())
}

fn count(given: &str, max: u32) -> Result<Given, String> {
    match text::count(given) {
        Ok(count) if count <= max => Ok(Given::Number(count.into())),
        _ => Err(format!("write a number from 1 to {max}")),
    }
}

fn factor(given: &str) -> Result<Given, String> {
    let form = || "write a node and a factor from 0.01 to 100, such as 2=3".to_owned();
    let (node, times) = given.split_once('=').ok_or_else(form)?;
    let is_plain = times.chars().all(|c| c.is_ascii_digit() || c == '.');
    let times = times.parse().ok().filter(|times| is_plain && (0.01..=100.0).contains(times));
    count(node, u16::MAX.into()).ok().zip(times).ok_or_else(form)?;
    Ok(Given::Words(given.to_owned()))
}

/// `none` is what a flag that is not there says.
fn cores(given: &str) -> Result<Given, String> {
    let is_core =
        |core: &str| core.len() <= 4 && core.parse::<u16>().is_ok_and(|_| is_digits(core));
    let count = given.split(',').count();
    match given {
        "none" => Ok(Given::Switch(false)),
        _ if count <= CORES_MAX && given.split(',').all(is_core) => {
            Ok(Given::Words(given.to_owned()))
        }
        _ => Err("write cores such as 0,1, or none".to_owned()),
    }
}

fn is_digits(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_digit())
}

fn name(given: &str) -> Result<Given, String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let begins = given.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins && given.len() <= NAME_BYTES_MAX && given.chars().all(is_part) {
        Ok(Given::Words(given.to_owned()))
    } else {
        Err(format!("write up to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.'"))
    }
}

fn sizes(given: &str, min: u64, max: u64) -> Result<Given, String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || ",.:*".contains(c);
    let fits = (1..=SIZES_BYTES_MAX).contains(&given.len());
    if !fits || !given.starts_with(|c: char| c.is_ascii_digit()) || !given.chars().all(is_part) {
        return Err(SIZES_FORM.to_owned());
    }
    for end in given.split(',').flat_map(ends) {
        let size = text::size(end).map_err(|_| SIZES_FORM.to_owned())?;
        if !(min..=max).contains(&size) {
            return Err(format!("'{end}' is none of {min} to {max} bytes"));
        }
    }
    Ok(Given::Words(given.to_owned()))
}

/// A size, or the first and the last of a range; how it goes from one to the other is for the
/// command to read.
fn ends(part: &str) -> impl Iterator<Item = &str> {
    let (from, rest) = part.split_once("..").map_or((part, None), |(from, to)| (from, Some(to)));
    let to = rest.map(|rest| rest.split(':').next().unwrap_or_default());
    iter::once(from).chain(to)
}
