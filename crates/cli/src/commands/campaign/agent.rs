//! `horolog campaign agent`: flags to an agent, which runs until it is told to end.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;

use clap::Args;
use horolog_campaign::AgentName;
use horolog_campaign::agent::{self, AgentError, AgentOptions, Owner};
use horolog_campaign::nats::Broker;
use horolog_campaign::order::Abilities;
use horolog_campaign::policy::Policy;
use horolog_sys::netlink::Netlink;
use sd_notify::NotifyState;

use super::broker::BrokerArgs;
use crate::failure::Failure;
use crate::output;

/// Bytes of a policy, at most.
const POLICY_BYTES_MAX: u64 = 1 << 20;
/// Labels, at most, and their bytes.
const LABELS_MAX: usize = 64;
const LABEL_BYTES_MAX: usize = 128;

/// Do what campaigns ask of this machine, as far as its owner allows.
///
/// The agent says at a NATS server that it is there, with its labels, its addresses and how far its
/// clock is off, carries out orders that its policy allows, and tells what came of them. When the
/// server is gone it finishes what it has begun and tells later; what it has to tell is on its disk
/// until the server has it. It ends with Ctrl-C or SIGTERM, and with status 4 where an agent of its
/// name was started later.
///
/// Without --policy it measures within private networks, modestly. 'horolog campaign agent
/// --show-policy' writes what is in force.
#[derive(Args, Debug)]
pub(super) struct AgentArgs {
    #[command(flatten)]
    broker: BrokerArgs,
    /// Its name: letters, digits, '-' and '_' [default: the host's name].
    #[arg(long)]
    name: Option<AgentName>,
    /// What plans can choose it by; can be given more than once.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Where other agents reach it; can be given more than once, the best first [default: the
    /// address that leads to the NATS server, and then all others].
    #[arg(long = "address", value_name = "IP")]
    addresses: Vec<IpAddr>,
    /// What it may run.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Write the policy that is in force, and end.
    #[arg(long)]
    show_policy: bool,
    /// The directory where it keeps what it has to tell [default: $STATE_DIRECTORY, as systemd
    /// sets it, or horolog/agents/NAME in the user's state].
    #[arg(long, value_name = "DIRECTORY")]
    state: Option<PathBuf>,
    /// Compare its clock with this time server's [default: believe the kernel, where somebody
    /// disciplines its clock].
    #[arg(long, value_name = "HOST")]
    clock_server: Option<String>,
}

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::Nats(error) => error.into(),
            AgentError::Name(error) => Self::usage(error),
            AgentError::Replaced(_) => Self::replaced(error),
            error => Self::environment(error),
        }
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let form = || "write NAME=VALUE, such as site=a".to_owned();
    let (name, value) = text.split_once('=').ok_or_else(form)?;
    let fits = |text: &str| text.len() <= LABEL_BYTES_MAX && !text.contains(char::is_control);
    if name.is_empty() || !fits(name) || !fits(value) {
        return Err(form());
    }
    Ok((name.to_owned(), value.to_owned()))
}

pub(super) fn run(args: AgentArgs) -> Result<(), Failure> {
    let policy = policy(args.policy.as_ref())?;
    if args.show_policy {
        return output::line(policy.to_toml().trim_end());
    }
    // Before any thread is there.
    output::end_gently()?;
    let options = options(args, policy)?;
    let owner = Owner {
        says: &|text| output::note(&format!("horolog: {text}")),
        // systemd may not be there.
        ready: &|| drop(sd_notify::notify(&[NotifyState::Ready])),
        flow: &output::flow,
    };
    Ok(agent::run(options, owner)?)
}

fn policy(path: Option<&PathBuf>) -> Result<Policy, Failure> {
    let Some(path) = path else { return Ok(Policy::default()) };
    let shown = path.display();
    let unreadable = |error| Failure::usage(format!("--policy {shown}: {error}; check the path"));
    if fs::metadata(path).map_err(unreadable)?.len() > POLICY_BYTES_MAX {
        return Err(Failure::usage(format!("--policy {shown}: it is too long to be a policy")));
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    Policy::parse(&text).map_err(|fault| Failure::usage(format!("--policy {shown}: {fault}")))
}

fn options(args: AgentArgs, policy: Policy) -> Result<AgentOptions, Failure> {
    let broker = args.broker.broker();
    // What is no address is not looked for either.
    broker.check()?;
    let name = args.name.map_or_else(host_name, Ok)?;
    let state = args.state.map_or_else(|| state(&name), Ok)?;
    let mut labels = BTreeMap::new();
    for (label, value) in args.labels {
        if labels.insert(label.clone(), value).is_some() || labels.len() > LABELS_MAX {
            return Err(Failure::usage(format!(
                "--label: '{label}' is there twice, or there are more than {LABELS_MAX}"
            )));
        }
    }
    let addresses = if args.addresses.is_empty() { addresses(&broker)? } else { args.addresses };
    Ok(AgentOptions {
        abilities: Abilities {
            root: is_root(),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
            kinds: policy.kinds(),
        },
        broker,
        name,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        labels,
        addresses,
        policy,
        state,
        clock_server: args.clock_server,
        // Itself, even where another file has taken the place of its own since it was started.
        program: "/proc/self/exe".into(),
    })
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// The host's name, without what a name cannot have.
fn host_name() -> Result<AgentName, Failure> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim().replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "-");
    name.parse().map_err(|error| Failure::usage(format!("{error}; name it with --name")))
}

fn state(name: &AgentName) -> Result<PathBuf, Failure> {
    let path = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(given) = path("STATE_DIRECTORY") {
        return Ok(given);
    }
    let home = || Some(path("HOME")?.join(".local/state"));
    let user = path("XDG_STATE_HOME").or_else(home).ok_or_else(|| {
        Failure::environment(
            "neither XDG_STATE_HOME nor HOME is set; name a directory with --state",
        )
    })?;
    Ok(user.join("horolog/agents").join(name.as_str()))
}

/// The address by which the NATS server is reached, and then all others that reach farther than
/// this host and its links.
fn addresses(broker: &Broker) -> Result<Vec<IpAddr>, Failure> {
    let mut netlink = Netlink::open().map_err(Failure::environment)?;
    let all = netlink.addresses().map_err(Failure::environment)?;
    let all = all.into_iter().map(|entry| entry.prefix.address());
    let mut best: Vec<_> =
        broker.servers.iter().find_map(|server| towards(server)).into_iter().collect();
    for address in all {
        let is_near = match address {
            IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
        };
        if !is_near && !best.contains(&address) {
            best.push(address);
        }
    }
    Ok(best)
}

/// The address that this host sends from to a server.
fn towards(server: &str) -> Option<IpAddr> {
    let place = server.split_once("://").map_or(server, |(_, place)| place);
    let place = place.trim_end_matches('/');
    let to = [place.to_owned(), format!("{place}:4222")]
        .iter()
        .find_map(|place| place.to_socket_addrs().ok()?.next())?;
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    // Nothing is sent: the kernel only looks up the way.
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_a_name_and_a_value() {
        assert_eq!(label("site=a=b"), Ok(("site".to_owned(), "a=b".to_owned())));
        assert_eq!(label("site="), Ok(("site".to_owned(), String::new())));
        for text in ["", "site", "=a", "a=b\n"] {
            assert!(label(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_way_to_a_server_tells_the_own_address() {
        let loopback = Some(IpAddr::from([127, 0, 0, 1]));
        for server in ["nats://127.0.0.1:4222", "127.0.0.1", "tls://127.0.0.1:1/"] {
            assert_eq!(towards(server), loopback, "{server}");
        }
        assert_eq!(towards("nats://"), None);
    }
}
