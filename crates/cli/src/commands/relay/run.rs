//! `horolog relay run`: a relay that runs until SIGINT or SIGTERM.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_http::{HttpRequest, HttpResponder};
use horolog_relay::control::{ControlServer, ControlSocketError, default_path};
use horolog_relay::{
    LocalSenderInterface, Relay, RelayError, RelayListing, RoutingTable, RoutingTableSpec,
    SocketEngineKind, XdpEngine, XdpEngineError, metrics, render_text, ring_drops_text,
};
use horolog_report::to_json;
use horolog_sys::signal::{BlockedSignals, Signal};
use sd_notify::NotifyState;

use super::no_default_path;
use crate::failure::CommandFailure;
use crate::output::ResultDestination;
use crate::{output, values};

/// Interval between checks that all threads still run and that multicast groups are still joined.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum length of a table file, in bytes; far above that of the largest table.
const TABLE_BYTES_MAX: u64 = 8 << 20;
/// Maximum number of groups that a notice names.
const NAMES_MAX: usize = 5;

/// Relay packets to children until Ctrl-C or SIGTERM; SIGHUP rereads the table file.
///
/// The table file (TOML) defines groups, the permitted sources of each, and its children; 'relay
/// add' and 'relay remove' change the table. Nothing is relayed from a source or to a destination
/// that the table does not list; rates are limited, and packets that come from a child or from the
/// relay itself are refused. Everything refused or dropped is counted.
#[derive(Args, Debug)]
pub(super) struct RelayRunArgs {
    /// Table file.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Engine that makes the copies. send: a system call for each copy; sendmmsg: a system call for
    /// many copies; xdp: XDP in the driver's receive path, with sendmmsg for packets that it cannot
    /// copy; auto: xdp if available, otherwise sendmmsg.
    #[arg(long, value_enum, default_value_t = RelayEngineArg::Auto)]
    engine: RelayEngineArg,
    /// Receive packets in XDP on this interface. Repeatable [default: the interfaces on which the
    /// groups' packets arrive].
    #[arg(long, value_name = "IF")]
    interface: Vec<String>,
    /// Create an interface of this name for programs on this host: a packet that they send to a
    /// multicast group through it (by a route, or IP_MULTICAST_IF) reaches the relay once, and the
    /// relay makes the copies.
    #[arg(long, value_name = "IF")]
    send_interface: Option<String>,
    /// Control socket for 'horolog relay add', 'remove' and 'list' [default:
    /// /run/horolog/relay/control.sock for root, otherwise
    /// $XDG_RUNTIME_DIR/horolog/relay/control.sock].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Drop copies that exceed the path MTU to a child, in every group of the table file; otherwise
    /// the kernel fragments them unless the file has 'fragment = false'.
    #[arg(long)]
    no_fragment: bool,
    /// Check that the table file is valid, and exit.
    #[arg(long)]
    check: bool,
    /// Serve GET /metrics on this address, for Prometheus.
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address)]
    metrics: Option<SocketAddr>,
    /// Write the table and its counters to FILE as JSON at the end.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum RelayEngineArg {
    Auto,
    Send,
    Sendmmsg,
    Xdp,
}

/// Engines selected to make the copies.
struct SelectedRelayEngines {
    engine: SocketEngineKind,
    xdp_engine: Option<XdpEngine>,
    /// Reason why the XDP engine is not available, if it was wanted.
    unavailable: Option<String>,
}

impl From<RelayError> for CommandFailure {
    fn from(error: RelayError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::environment(error) }
    }
}

impl From<ControlSocketError> for CommandFailure {
    fn from(error: ControlSocketError) -> Self {
        Self::environment(error)
    }
}

impl RelayRunArgs {
    fn read_spec(&self) -> Result<RoutingTableSpec, CommandFailure> {
        let path = self.config.display();
        let cannot = |error| CommandFailure::usage(format!("cannot read {path}: {error}"));
        let mut text = String::new();
        let file = fs::File::open(&self.config).map_err(cannot)?;
        file.take(TABLE_BYTES_MAX + 1).read_to_string(&mut text).map_err(cannot)?;
        if text.len() as u64 > TABLE_BYTES_MAX {
            return Err(CommandFailure::usage(format!(
                "{path} is not a table file: longer than {TABLE_BYTES_MAX} bytes"
            )));
        }
        let mut spec = RoutingTableSpec::parse(&text)
            .map_err(|fault| CommandFailure::usage(format!("{path}, {fault}")))?;
        if self.no_fragment {
            spec.groups.iter_mut().for_each(|group| group.fragment = false);
        }
        Ok(spec)
    }

    /// Converts an error and, if it concerns the table, prefixes the name of the table file.
    fn located_error(&self, error: RelayError) -> CommandFailure {
        let located = format!("{}: {error}", self.config.display());
        if error.is_usage() { CommandFailure::usage(located) } else { error.into() }
    }

    /// Returns an error for flags that would have no effect.
    fn refuse_ineffective_flags(&self) -> Result<(), CommandFailure> {
        let is_host_based = matches!(self.engine, RelayEngineArg::Send | RelayEngineArg::Sendmmsg);
        if is_host_based && !self.interface.is_empty() {
            return Err(CommandFailure::usage(
                "--interface is the ingress of XDP; it has no effect with the engines send and \
                 sendmmsg",
            ));
        }
        Ok(())
    }

    fn start_metrics_responder(
        &self,
        relay: &Arc<Relay>,
    ) -> Result<Option<HttpResponder>, CommandFailure> {
        let Some(address) = self.metrics else { return Ok(None) };
        let relay = Arc::clone(relay);
        let respond =
            move |request: &HttpRequest<'_>| metrics::respond(request.path, || relay.listing());
        let started = TcpListener::bind(address)
            .and_then(|listener| HttpResponder::start("metrics", listener, respond));
        let reason = "choose another with --metrics ADDR:PORT";
        started.map(Some).map_err(|error| {
            CommandFailure::environment(format!(
                "cannot serve metrics at {address}: {error}; \
                {reason}"
            ))
        })
    }

    /// Loads the selected engine; with `auto` the XDP engine, or sendmmsg alone if it is
    /// unavailable.
    fn load_engines(&self) -> Result<SelectedRelayEngines, CommandFailure> {
        let host_only =
            |engine| SelectedRelayEngines { engine, xdp_engine: None, unavailable: None };
        let is_optional = match self.engine {
            RelayEngineArg::Send => return Ok(host_only(SocketEngineKind::Send)),
            RelayEngineArg::Sendmmsg => return Ok(host_only(SocketEngineKind::Sendmmsg)),
            RelayEngineArg::Auto => true,
            RelayEngineArg::Xdp => false,
        };
        let engines = host_only(SocketEngineKind::Sendmmsg);
        match XdpEngine::load(&self.interface) {
            Ok(kernel) => Ok(SelectedRelayEngines { xdp_engine: Some(kernel), ..engines }),
            Err(error @ XdpEngineError::Interface(_)) => Err(CommandFailure::usage(error)),
            Err(error) if is_optional => {
                Ok(SelectedRelayEngines { unavailable: Some(error.to_string()), ..engines })
            }
            Err(error) => Err(CommandFailure::environment(error)),
        }
    }

    /// Rereads the table file. Refuses a file that is no longer regular: opening it, such as a
    /// FIFO, could block, and then no signal could end the relay.
    fn reread_spec(&self) -> Result<RoutingTableSpec, CommandFailure> {
        let is_other = fs::metadata(&self.config).is_ok_and(|file| !file.is_file());
        if is_other {
            let path = self.config.display();
            return Err(CommandFailure::usage(format!("{path} is no longer a regular file")));
        }
        self.read_spec()
    }

    fn reload(&self, relay: &Relay) -> Result<(), CommandFailure> {
        let new = self.reread_spec().inspect_err(|_| relay.count_refused_change())?;
        let applied = relay.change(|spec| {
            *spec = new;
            Ok(())
        });
        applied.map_err(|error| self.located_error(error))
    }
}

pub(super) fn run(args: &RelayRunArgs) -> Result<(), CommandFailure> {
    args.refuse_ineffective_flags()?;
    let spec = args.read_spec()?;
    let children: usize = spec.groups.iter().map(|group| group.children.len()).sum();
    let size = format!("groups: {}, children: {children}", spec.groups.len());
    if args.check {
        RoutingTable::new(&spec, None).map_err(|error| args.located_error(error.into()))?;
        return output::print_line(&format!("{}: valid table ({size})", args.config.display()));
    }
    let socket = args.socket.clone().or_else(default_path).ok_or_else(no_default_path)?;
    let json = args.json.as_deref().map(ResultDestination::open).transpose()?;
    // Threads inherit the signal mask, so signals are blocked before any thread starts.
    let signals = [Signal::Interrupt, Signal::Terminate, Signal::HangUp];
    let signals = BlockedSignals::block(&signals).map_err(CommandFailure::environment)?;
    // Loading BPF programs needs capabilities that no later step needs.
    let SelectedRelayEngines { engine, xdp_engine: kernel, unavailable: xdp_unavailable } =
        args.load_engines()?;
    let send_interface = args.send_interface.as_deref().map(LocalSenderInterface::open);
    let send_interface = send_interface.transpose().map_err(CommandFailure::environment)?;
    horolog_relay::confine(kernel.is_some()).map_err(CommandFailure::environment)?;
    let relay = Relay::start_with_send_interface(&spec, engine, kernel, send_interface)
        .map_err(|error| args.located_error(error))?;
    let relay = Arc::new(relay);
    let listing = relay.listing();
    if args.engine == RelayEngineArg::Xdp {
        require_xdp(&listing)?;
    }
    let metrics = args.start_metrics_responder(&relay)?;
    let control = ControlServer::start(&socket, Arc::clone(&relay))?;
    print_engine(&listing, xdp_unavailable);
    output::print_note(&format!("horolog: relaying ({size}); control at {}", socket.display()));
    output::notify_service_manager(&[NotifyState::Ready]);
    let (mut last_problem, mut refusals) = (None, relay.xdp_refusals());
    loop {
        match signals.wait(CHECK_INTERVAL).map_err(CommandFailure::environment)? {
            Some(Signal::HangUp) => match args.reload(&relay) {
                Ok(()) => output::print_note("horolog: reloaded"),
                // Whether the table is unchanged depends on the error.
                Err(why) => output::print_note(&format!("horolog: reload failed: {why}")),
            },
            Some(_) => break,
            None => last_problem = refresh_memberships(&relay, last_problem.as_deref()),
        }
        let now = relay.xdp_refusals();
        print_groups_by_engine(&changed_groups(&refusals, &now), &listing.host_engine, true);
        refusals = now;
        if relay.has_died()
            || control.has_died()
            || metrics.as_ref().is_some_and(HttpResponder::has_failed)
        {
            return Err(CommandFailure::environment("a thread of the relay has exited; see above"));
        }
    }
    drop((control, metrics));
    let listing = relay.listing();
    output::print_note(render_text(&listing).trim_end());
    json.map_or(Ok(()), |json| json.write(&to_json(&listing)))
}

/// Rejoins multicast groups whose interface was replaced, and returns the present problem; `None`
/// if there is none. A problem is printed only if it differs from `last_problem`, that of the
/// previous call.
fn refresh_memberships(relay: &Relay, last_problem: Option<&str>) -> Option<String> {
    let (events, joined) = relay.refresh_memberships();
    for one in events {
        output::print_note(&format!("horolog: {one}"));
    }
    let problem = joined.err().map(|error| format!("horolog: cannot rejoin: {error}"));
    if let Some(line) = problem.as_deref().filter(|line| last_problem != Some(*line)) {
        output::print_note(line);
    }
    problem
}

/// Returns an error if no interface has the relay's XDP program and a group lacks in-kernel copies;
/// for --engine xdp, which does not fall back.
fn require_xdp(listing: &RelayListing) -> Result<(), CommandFailure> {
    let is_attached = listing.interfaces.iter().any(|interface| interface.refused.is_none());
    let by_sockets = listing
        .groups
        .iter()
        .find_map(|group| group.xdp_unavailable.as_ref().map(|why| (&group.name, why)));
    match by_sockets {
        Some((group, why)) if !is_attached => Err(CommandFailure::environment(format!(
            "engine xdp unavailable: group '{group}': {why}; --engine auto falls back"
        ))),
        _ => Ok(()),
    }
}

/// Prints the engine that makes the copies, and the reasons why XDP does not make all of them.
fn print_engine(listing: &RelayListing, xdp_unavailable: Option<String>) {
    let RelayListing { engine, host_engine, limits, groups, .. } = listing;
    if let Some(why) = xdp_unavailable {
        output::print_note(&format!(
            "horolog: copies are sent by {engine}; xdp unavailable: {why}"
        ));
        return;
    }
    output::print_note(&format!("horolog: copies are made by {engine}"));
    if let Some(why) =
        limits.kernel.as_ref().and_then(|kernel| kernel.uncounted_ring_drops.as_ref())
    {
        output::print_note(&format!("horolog: {}", ring_drops_text(why)));
    }
    let refused = groups.iter().filter(|group| group.xdp_unavailable.is_some());
    let refused = refused.map(|group| (&*group.name, group.xdp_unavailable.as_deref()));
    print_groups_by_engine(&refused.collect(), host_engine, false);
}

/// Returns the groups that are new or whose engine or reason has changed. The value is the reason
/// why XDP does not make the copies; `None` if it does.
fn changed_groups<'a>(
    before: &BTreeMap<String, Option<String>>,
    now: &'a BTreeMap<String, Option<String>>,
) -> BTreeMap<&'a str, Option<&'a str>> {
    let is_new = |(name, why): &(&String, &Option<String>)| before.get(*name) != Some(*why);
    now.iter().filter(is_new).map(|(name, why)| (&**name, why.as_deref())).collect()
}

/// Prints which groups' copies are made by XDP, and which by the host engine, grouped by reason.
/// `is_now` marks a change during the run.
fn print_groups_by_engine(groups: &BTreeMap<&str, Option<&str>>, host_engine: &str, is_now: bool) {
    let mut by_reason: BTreeMap<Option<&str>, Vec<&str>> = BTreeMap::new();
    for (name, why) in groups {
        by_reason.entry(*why).or_default().push(name);
    }
    let now = if is_now { " now" } else { "" };
    for (why, names) in by_reason {
        let names = abbreviated_names(&names);
        output::print_note(&match why {
            None => format!("horolog: copies of {names} are made by xdp{now}"),
            Some(why) => {
                format!("horolog: copies of {names} are sent by {host_engine}{now}: {why}")
            }
        });
    }
}

/// Returns the quoted names of groups, of which at most [`NAMES_MAX`] are listed.
fn abbreviated_names(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().take(NAMES_MAX).map(|name| format!("'{name}'")).collect();
    let list = quoted.join(", ");
    match names.len() {
        1 => format!("group {list}"),
        many if many > NAMES_MAX => format!("groups {list} and {} more", many - NAMES_MAX),
        _ => format!("groups {list}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_groups_are_reported() {
        let of = |groups: &[(&str, Option<&str>)]| -> BTreeMap<String, Option<String>> {
            let own = groups.iter().map(|(name, why)| ((*name).into(), why.map(Into::into)));
            own.collect()
        };
        let before = of(&[("a", None), ("b", Some("x")), ("gone", None), ("c", Some("x"))]);
        let now = of(&[("a", Some("y")), ("b", Some("x")), ("c", None), ("new", None)]);
        let expected = [("a", Some("y")), ("c", None), ("new", None)];
        assert_eq!(changed_groups(&before, &now), BTreeMap::from(expected));
        assert_eq!(changed_groups(&now, &now), BTreeMap::new());
    }

    #[test]
    fn long_lists_of_groups_are_abbreviated() {
        assert_eq!(abbreviated_names(&["a"]), "group 'a'");
        assert_eq!(abbreviated_names(&["a", "b"]), "groups 'a', 'b'");
        assert_eq!(abbreviated_names(&["x"; 250]), "groups 'x', 'x', 'x', 'x', 'x' and 245 more");
    }
}
