//! `horolog campaign agent`: runs an agent until it is stopped.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use horolog_campaign::AgentName;
use horolog_campaign::agent::{self, AgentCallbacks, AgentError, AgentOptions};
use horolog_campaign::order::AgentCapabilities;
use horolog_campaign::policy::AgentPolicy;
use sd_notify::NotifyState;

use super::broker::BrokerArgs;
use crate::failure::CommandFailure;
use crate::output;

/// Largest accepted size of a policy file, in bytes.
const POLICY_BYTES_MAX: u64 = 1 << 20;
/// Largest number of labels; [`LABEL_BYTES_MAX`] is the longest name or value of one, in bytes.
const LABELS_MAX: usize = 64;
const LABEL_BYTES_MAX: usize = 128;

/// Execute campaign jobs on this host, within its policy.
///
/// The agent announces itself to a NATS server with its labels, its addresses and its clock offset,
/// executes the jobs that its policy allows, and reports their results. If the server becomes
/// unreachable, the agent finishes what it has begun and reports later; reports stay on its disk
/// until the server has stored them. Ctrl-C and SIGTERM end the agent; it ends with status 4 if an
/// agent of the same name was started later.
///
/// Without --policy the agent measures only within private networks, with modest limits. 'horolog
/// campaign agent --show-policy' prints the policy in force.
#[derive(Args, Debug)]
pub(super) struct CampaignAgentArgs {
    #[command(flatten)]
    broker: BrokerArgs,
    /// Name of the agent: letters, digits, '-' and '_' [default: the hostname].
    #[arg(long)]
    name: Option<AgentName>,
    /// Label by which plans select the agent. Repeatable.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,
    /// Address at which other agents reach this one. Repeatable, the best first [default: the local
    /// address used to reach the NATS server, then all others].
    #[arg(long = "address", value_name = "IP")]
    addresses: Vec<IpAddr>,
    /// Policy: the jobs that the agent may run [default: measurements within private networks].
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Print the policy in force and exit.
    #[arg(long)]
    show_policy: bool,
    /// Directory of the undelivered reports [default: $STATE_DIRECTORY, as set by systemd, or
    /// horolog/agents/NAME in the user's state directory].
    #[arg(long, value_name = "DIRECTORY")]
    state: Option<PathBuf>,
    /// Measure the clock offset against this NTP server. An agent with an unknown offset gets no
    /// jobs [default: use the kernel's estimate if the clock is disciplined].
    #[arg(long, value_name = "HOST")]
    clock_server: Option<String>,
}

impl From<AgentError> for CommandFailure {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::Nats(error) => error.into(),
            AgentError::Name(error) => Self::usage(error),
            AgentError::Replaced(_) => Self::replaced(error),
            error => Self::environment(error),
        }
    }
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    let form = || "write NAME=VALUE, such as site=a".to_owned();
    let (name, value) = text.split_once('=').ok_or_else(form)?;
    let fits = |text: &str| text.len() <= LABEL_BYTES_MAX && !text.contains(char::is_control);
    if name.is_empty() || !fits(name) || !fits(value) {
        return Err(form());
    }
    Ok((name.to_owned(), value.to_owned()))
}

pub(super) fn run(args: CampaignAgentArgs) -> Result<(), CommandFailure> {
    let policy = load_policy(args.policy.as_ref())?;
    if args.show_policy {
        return output::print_line(policy.to_toml().trim_end());
    }
    // Must precede the start of any thread.
    output::install_interrupt_handler()?;
    let options = agent_options(args, policy)?;
    let callbacks = AgentCallbacks {
        log: &|text| output::print_note(&format!("horolog: {text}")),
        // The error is ignored: systemd may be absent.
        ready: &|| drop(sd_notify::notify(&[NotifyState::Ready])),
        flow: &output::check_stop_request,
    };
    Ok(agent::run(options, callbacks)?)
}

fn load_policy(path: Option<&PathBuf>) -> Result<AgentPolicy, CommandFailure> {
    let Some(path) = path else { return Ok(AgentPolicy::default()) };
    let shown = path.display();
    let unreadable =
        |error| CommandFailure::usage(format!("--policy {shown}: {error}; check the path"));
    if fs::metadata(path).map_err(unreadable)?.len() > POLICY_BYTES_MAX {
        return Err(CommandFailure::usage(format!(
            "--policy {shown}: it is too long to be a policy"
        )));
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    AgentPolicy::parse(&text)
        .map_err(|fault| CommandFailure::usage(format!("--policy {shown}: {fault}")))
}

fn agent_options(
    args: CampaignAgentArgs,
    policy: AgentPolicy,
) -> Result<AgentOptions, CommandFailure> {
    let broker = args.broker.broker_options();
    // Checked first, since the addresses below are resolved from the server names.
    broker.check()?;
    let name = args.name.map_or_else(host_name, Ok)?;
    let state = args.state.map_or_else(|| state_directory(&name), Ok)?;
    let mut labels = BTreeMap::new();
    for (label, value) in args.labels {
        if labels.insert(label.clone(), value).is_some() || labels.len() > LABELS_MAX {
            return Err(CommandFailure::usage(format!(
                "--label: '{label}' is there twice, or there are more than {LABELS_MAX}"
            )));
        }
    }
    let addresses = if args.addresses.is_empty() {
        agent::reachable_addresses(&broker).map_err(CommandFailure::environment)?
    } else {
        args.addresses
    };
    Ok(AgentOptions {
        capabilities: AgentCapabilities {
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
        // The running executable, even if its file has been replaced since the start.
        program: "/proc/self/exe".into(),
    })
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Returns the hostname as an agent name, with `-` in place of invalid characters.
fn host_name() -> Result<AgentName, CommandFailure> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim().replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "-");
    name.parse().map_err(|error| CommandFailure::usage(format!("{error}; name it with --name")))
}

fn state_directory(name: &AgentName) -> Result<PathBuf, CommandFailure> {
    let path = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(directory) = path("STATE_DIRECTORY") {
        return Ok(directory);
    }
    let home = || Some(path("HOME")?.join(".local/state"));
    let user = path("XDG_STATE_HOME").or_else(home).ok_or_else(|| {
        CommandFailure::environment(
            "neither XDG_STATE_HOME nor HOME is set; name a directory with --state",
        )
    })?;
    Ok(user.join("horolog/agents").join(name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_a_name_and_a_value() {
        assert_eq!(parse_label("site=a=b"), Ok(("site".to_owned(), "a=b".to_owned())));
        assert_eq!(parse_label("site="), Ok(("site".to_owned(), String::new())));
        for text in ["", "site", "=a", "a=b\n"] {
            assert!(parse_label(text).is_err(), "{text}");
        }
    }
}
