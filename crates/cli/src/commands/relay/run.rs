//! `horolog relay run`: a relay until a signal ends it.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_http::{Request, Responder};
use horolog_relay::control::{Control, ControlError, default_path};
use horolog_relay::{
    EngineKind, Kernel, KernelError, Listing, Relay, RelayError, SendInterface, Spec, Table,
    metrics, ring_drops, text,
};
use horolog_report::to_json;
use horolog_sys::capability::Capability;
use horolog_sys::sandbox;
use horolog_sys::signal::{BlockedSignals, Signal};
use sd_notify::NotifyState;

use super::no_usual_place;
use crate::failure::Failure;
use crate::output::Destination;
use crate::{output, values};

/// How often to look whether all threads still run, and whether interfaces are as they were.
const TICK: Duration = Duration::from_millis(500);
/// A file of the largest table is far smaller.
const TABLE_BYTES_MAX: u64 = 8 << 20;
/// Groups that are named where something holds for many.
const NAMES_TOLD: usize = 5;

/// Relay packets to children until Ctrl-C or SIGTERM; SIGHUP rereads the table file.
///
/// The table file (TOML) names groups, who may send to each, and its children. Nothing is relayed
/// from a source, nor to a destination, that it does not list; rates are limited, and packets that
/// come from a child or from the relay itself are refused. Everything refused or dropped is
/// counted.
#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// Table file.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// What makes the copies: one system call for each, one for many, the kernel's driver path
    /// (XDP; what it cannot do goes by sendmmsg), or the best that may be used here.
    #[arg(long, value_enum, default_value_t = EngineArg::Auto)]
    engine: EngineArg,
    /// Have the kernel's driver path (XDP) take packets in by this interface; may be given several
    /// times [default: those by which the groups' packets come in].
    #[arg(long, value_name = "IF")]
    interface: Vec<String>,
    /// Make an interface of this name, by which programs on this host hand each packet over once,
    /// by a route to the multicast group through it.
    #[arg(long, value_name = "IF")]
    send_interface: Option<String>,
    /// Where to answer 'horolog relay add', 'remove' and 'list' [default:
    /// /run/horolog/relay/control.sock for root, otherwise
    /// $XDG_RUNTIME_DIR/horolog/relay/control.sock].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Read the table file, say whether it can be, and end.
    #[arg(long)]
    check: bool,
    /// Answer GET /metrics at this address, for Prometheus.
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address)]
    metrics: Option<SocketAddr>,
    /// Write the table and what was counted to this file at the end.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum EngineArg {
    Auto,
    Send,
    Sendmmsg,
    Xdp,
}

/// What makes copies.
struct Bodies {
    engine: EngineKind,
    kernel: Option<Kernel>,
    /// Why there is no body in the kernel, where it would have been used.
    without: Option<String>,
}

impl From<RelayError> for Failure {
    fn from(error: RelayError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::environment(error) }
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        Self::environment(error)
    }
}

impl RunArgs {
    fn spec(&self) -> Result<Spec, Failure> {
        let path = self.config.display();
        let cannot = |error| Failure::usage(format!("cannot read {path}: {error}"));
        let mut text = String::new();
        let file = fs::File::open(&self.config).map_err(cannot)?;
        file.take(TABLE_BYTES_MAX + 1).read_to_string(&mut text).map_err(cannot)?;
        if text.len() as u64 > TABLE_BYTES_MAX {
            return Err(Failure::usage(format!(
                "{path} is no table file: it has more than {TABLE_BYTES_MAX} bytes"
            )));
        }
        Spec::parse(&text).map_err(|fault| Failure::usage(format!("{path}, {fault}")))
    }

    /// What the table file is to blame for, with its name.
    fn locate(&self, error: RelayError) -> Failure {
        let located = format!("{}: {error}", self.config.display());
        if error.is_usage() { Failure::usage(located) } else { error.into() }
    }

    /// Refuses flags that would do nothing.
    fn refuse_idle(&self) -> Result<(), Failure> {
        let is_host_based = matches!(self.engine, EngineArg::Send | EngineArg::Sendmmsg);
        if is_host_based && !self.interface.is_empty() {
            return Err(Failure::usage(
                "--interface names what XDP takes packets in by; it does nothing with the engines \
                 send and sendmmsg",
            ));
        }
        Ok(())
    }

    fn responder(&self, relay: &Arc<Relay>) -> Result<Option<Responder>, Failure> {
        let Some(address) = self.metrics else { return Ok(None) };
        let relay = Arc::clone(relay);
        let answer = move |request: &Request<'_>| metrics::answer(request.path, || relay.listing());
        let started = TcpListener::bind(address)
            .and_then(|listener| Responder::start("metrics", listener, answer));
        let reason = "choose another with --metrics ADDR:PORT";
        started.map(Some).map_err(|error| {
            Failure::environment(format!("cannot answer at {address}: {error}; {reason}"))
        })
    }

    /// Chooses what makes copies. With 'auto' the kernel does where it may.
    fn bodies(&self) -> Result<Bodies, Failure> {
        let of_host = |engine| Bodies { engine, kernel: None, without: None };
        let is_optional = match self.engine {
            EngineArg::Send => return Ok(of_host(EngineKind::Send)),
            EngineArg::Sendmmsg => return Ok(of_host(EngineKind::Sendmmsg)),
            EngineArg::Auto => true,
            EngineArg::Xdp => false,
        };
        let bodies = of_host(EngineKind::Sendmmsg);
        match Kernel::load(&self.interface) {
            Ok(kernel) => Ok(Bodies { kernel: Some(kernel), ..bodies }),
            Err(error @ KernelError::Interface(_)) => Err(Failure::usage(error)),
            Err(error) if is_optional => Ok(Bodies { without: Some(error.to_string()), ..bodies }),
            Err(error) => Err(Failure::environment(error)),
        }
    }

    /// What the file says now. What is no regular file may keep who opens it waiting, and with it
    /// the signals that end the relay.
    fn changed_spec(&self) -> Result<Spec, Failure> {
        let is_other = fs::metadata(&self.config).is_ok_and(|file| !file.is_file());
        if is_other {
            let path = self.config.display();
            return Err(Failure::usage(format!("{path} is no regular file any more")));
        }
        self.spec()
    }

    fn reload(&self, relay: &Relay) -> Result<(), Failure> {
        let new = self.changed_spec().inspect_err(|_| relay.note_refused())?;
        let taken = relay.change(|spec| {
            *spec = new;
            Ok(())
        });
        taken.map_err(|error| self.locate(error))
    }
}

pub(super) fn run(args: &RunArgs) -> Result<(), Failure> {
    args.refuse_idle()?;
    let spec = args.spec()?;
    let children: usize = spec.groups.iter().map(|group| group.children.len()).sum();
    let size = format!("groups: {}, children: {children}", spec.groups.len());
    if args.check {
        Table::new(&spec, None).map_err(|error| args.locate(error.into()))?;
        return output::line(&format!("{}: a table that can be ({size})", args.config.display()));
    }
    let socket = args.socket.clone().or_else(default_path).ok_or_else(no_usual_place)?;
    let json = args.json.as_deref().map(Destination::open).transpose()?;
    // Before the threads are started, which inherit them.
    let signals = [Signal::Interrupt, Signal::Terminate, Signal::HangUp];
    let signals = BlockedSignals::block(&signals).map_err(Failure::environment)?;
    // Loading programs needs privileges that nothing later does.
    let Bodies { engine, kernel, without } = args.bodies()?;
    let send_interface = args.send_interface.as_deref().map(SendInterface::open);
    let send_interface = send_interface.transpose().map_err(Failure::environment)?;
    // For low ports of groups that are added, for large buffers and interfaces that come; and for
    // children that come, where the kernel makes their copies.
    let mut kept = vec![Capability::NetBindService, Capability::NetAdmin];
    kept.extend(kernel.as_ref().map(|_| Capability::Bpf));
    sandbox::keep_capabilities(&kept).map_err(Failure::environment)?;
    sandbox::no_new_privileges().map_err(Failure::environment)?;
    let relay = Relay::start_with(&spec, engine, kernel, send_interface)
        .map_err(|error| args.locate(error))?;
    let relay = Arc::new(relay);
    let listing = relay.listing();
    if args.engine == EngineArg::Xdp {
        refuse_without_xdp(&listing)?;
    }
    let metrics = args.responder(&relay)?;
    let control = Control::start(&socket, Arc::clone(&relay))?;
    say_engine(&listing, without);
    output::note(&format!("horolog: relaying ({size}); control at {}", socket.display()));
    output::notify(&[NotifyState::Ready]);
    let (mut said, mut refusals) = (None, relay.not_in_kernel());
    loop {
        match signals.wait(TICK).map_err(Failure::environment)? {
            Some(Signal::HangUp) => match args.reload(&relay) {
                Ok(()) => output::note("horolog: reloaded"),
                Err(why) => output::note(&format!("horolog: not reloaded, all stays: {why}")),
            },
            Some(_) => break,
            None => said = keep_joined(&relay, said.as_deref()),
        }
        let now = relay.not_in_kernel();
        say_by_engine(&changed(&refusals, &now), &listing.host_engine, true);
        refusals = now;
        if relay.has_died()
            || control.has_died()
            || metrics.as_ref().is_some_and(Responder::has_died)
        {
            return Err(Failure::environment("a thread of the relay has ended; see above"));
        }
    }
    drop((control, metrics));
    let listing = relay.listing();
    output::note(text(&listing).trim_end());
    json.map_or(Ok(()), |json| json.write(&to_json(&listing)))
}

/// Keeps multicast groups joined, and says what has become of them. What hinders it is said once:
/// `said` is what was the last time.
fn keep_joined(relay: &Relay, said: Option<&str>) -> Option<String> {
    let (news, joined) = relay.keep_joined();
    for one in news {
        output::note(&format!("horolog: {one}"));
    }
    let hindrance = joined.err().map(|error| format!("horolog: cannot join anew: {error}"));
    if let Some(line) = hindrance.as_deref().filter(|line| said != Some(*line)) {
        output::note(line);
    }
    hindrance
}

/// Refuses a relay whose packets no program sees, although that was asked for.
fn refuse_without_xdp(listing: &Listing) -> Result<(), Failure> {
    let seen = listing.interfaces.iter().any(|interface| interface.refused.is_none());
    let by_sockets = listing
        .groups
        .iter()
        .find_map(|group| group.not_in_kernel.as_ref().map(|why| (&group.name, why)));
    match by_sockets {
        Some((group, why)) if !seen => Err(Failure::environment(format!(
            "the engine xdp cannot be used: group '{group}': {why}; --engine auto does without it"
        ))),
        _ => Ok(()),
    }
}

/// Says what makes the copies, and what a better engine needs.
fn say_engine(listing: &Listing, without: Option<String>) {
    let Listing { engine, host_engine, limits, groups, .. } = listing;
    if let Some(why) = without {
        output::note(&format!("horolog: copies are sent by {engine}; by xdp not, because {why}"));
        return;
    }
    output::note(&format!("horolog: copies are made by {engine}"));
    if let Some(why) = limits.kernel.as_ref().and_then(|kernel| kernel.ring_drops_unseen.as_ref()) {
        output::note(&format!("horolog: {}", ring_drops(why)));
    }
    let refused = groups.iter().filter(|group| group.not_in_kernel.is_some());
    let refused = refused.map(|group| (&*group.name, group.not_in_kernel.as_deref()));
    say_by_engine(&refused.collect(), host_engine, false);
}

/// What of each group was asked last time and is otherwise now, or is new.
fn changed<'a>(
    before: &BTreeMap<String, Option<String>>,
    now: &'a BTreeMap<String, Option<String>>,
) -> BTreeMap<&'a str, Option<&'a str>> {
    let is_new = |(name, why): &(&String, &Option<String>)| before.get(*name) != Some(*why);
    now.iter().filter(is_new).map(|(name, why)| (&**name, why.as_deref())).collect()
}

/// Says which groups' copies the kernel makes, and which it does not, by the reason.
fn say_by_engine(groups: &BTreeMap<&str, Option<&str>>, host_engine: &str, is_now: bool) {
    let mut by_reason: BTreeMap<Option<&str>, Vec<&str>> = BTreeMap::new();
    for (name, why) in groups {
        by_reason.entry(*why).or_default().push(name);
    }
    let now = if is_now { " now" } else { "" };
    for (why, names) in by_reason {
        let names = some_of(&names);
        output::note(&match why {
            None => format!("horolog: copies of {names} are made by xdp{now}"),
            Some(why) => {
                format!("horolog: copies of {names} are sent by {host_engine}{now}: {why}")
            }
        });
    }
}

/// The names of groups, of which many are not all told.
fn some_of(names: &[&str]) -> String {
    let told: Vec<_> = names.iter().take(NAMES_TOLD).map(|name| format!("'{name}'")).collect();
    let told = told.join(", ");
    match names.len() {
        1 => format!("group {told}"),
        many if many > NAMES_TOLD => format!("groups {told} and {} more", many - NAMES_TOLD),
        _ => format!("groups {told}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_told() {
        let of = |groups: &[(&str, Option<&str>)]| -> BTreeMap<String, Option<String>> {
            let own = groups.iter().map(|(name, why)| ((*name).into(), why.map(Into::into)));
            own.collect()
        };
        let before = of(&[("a", None), ("b", Some("x")), ("gone", None), ("c", Some("x"))]);
        let now = of(&[("a", Some("y")), ("b", Some("x")), ("c", None), ("new", None)]);
        let expected = [("a", Some("y")), ("c", None), ("new", None)];
        assert_eq!(changed(&before, &now), BTreeMap::from(expected));
        assert_eq!(changed(&now, &now), BTreeMap::new());
    }

    #[test]
    fn of_many_groups_some_are_told() {
        assert_eq!(some_of(&["a"]), "group 'a'");
        assert_eq!(some_of(&["a", "b"]), "groups 'a', 'b'");
        assert_eq!(some_of(&["x"; 250]), "groups 'x', 'x', 'x', 'x', 'x' and 245 more");
    }
}
