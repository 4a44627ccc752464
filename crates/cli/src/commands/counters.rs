//! `horolog counters`: this machine's packet counters as a page that can only be read.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use horolog_counters::{AskServers, Gatherer, Query, Server, Token, Told, text};
use horolog_http::{Request, Responder};
use horolog_server::status::{self, StatusError};
use horolog_source::CHRONYD_SOCKET;
use horolog_sys::capability::Capability;
use horolog_sys::netlink::Netlink;
use horolog_sys::sandbox;
use horolog_sys::signal::{BlockedSignals, Signal};
use serde_json::Value;

use crate::failure::Failure;
use crate::output;
use crate::values;

/// How long a server of this project may take to tell what it counted; who reads the page waits.
const SERVER_PATIENCE: Duration = Duration::from_millis(500);
/// How often to look whether the page is still answered.
const TICK: Duration = Duration::from_secs(1);

/// Show this machine's packet counters, for a load run elsewhere to read before and after each
/// trial.
///
/// It tells what interfaces, softnet queues, UDP and its sockets, chronyd and horolog serve have
/// counted, whatever server runs here; with the token, at /counters as JSON and at /counters.txt as
/// text. Nothing can be changed by it. It does not need root, but for what chronyd tells. Neither
/// page nor token are encrypted: listen at a private address, or at 127.0.0.1 behind a tunnel.
#[derive(Args, Debug)]
pub(crate) struct CountersArgs {
    /// Where to answer.
    #[arg(
        long,
        value_name = "ADDR:PORT",
        value_parser = values::socket_address,
        requires = "token_file",
        conflicts_with = "once"
    )]
    listen: Option<SocketAddr>,
    /// File with the token that has to be shown: a line of at least 16 bytes, closed to others.
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
    /// Only this interface; may be given several times [default: all].
    #[arg(short, long, value_name = "IF")]
    interface: Vec<String>,
    /// Command socket of chronyd.
    #[arg(long, value_name = "PATH", default_value = CHRONYD_SOCKET)]
    chronyd: PathBuf,
    /// Status socket of horolog serve [default: those of all servers that run].
    #[arg(long, value_name = "PATH")]
    status_socket: Option<PathBuf>,
    /// Print the page once, and end.
    #[arg(long)]
    once: bool,
    /// Print it as JSON.
    #[arg(long, requires = "once")]
    json: bool,
}

pub(crate) fn run(args: CountersArgs) -> Result<(), Failure> {
    let named = args.status_socket;
    let ask: AskServers = Box::new(move |deadline| ask_servers(named.as_deref(), deadline));
    check_interfaces(&args.interface)?;
    let mut gatherer = Gatherer::new(args.interface, args.chronyd, ask);
    let (Some(listen), Some(file)) = (args.listen, args.token_file) else {
        if !args.once {
            let reason = "give --listen ADDR:PORT and --token-file FILE to have the page read from \
                          elsewhere, or --once to print it";
            return Err(Failure::usage(reason));
        }
        let page = gatherer.page(&Query::default());
        let shown = if args.json { page.to_json() } else { text(&page) };
        return output::line(shown.trim_end());
    };
    let token = Token::load(&file).map_err(Failure::usage)?;
    let cannot = |error| {
        Failure::environment(format!(
            "cannot answer at {listen}: {error}; choose another with --listen ADDR:PORT"
        ))
    };
    let listener = TcpListener::bind(listen).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    // Before the thread is started, which inherits them.
    let signals = BlockedSignals::block(&[Signal::Interrupt, Signal::Terminate])
        .map_err(Failure::environment)?;
    // Of root's privileges only the one that reaches into chronyd's directory.
    sandbox::keep_capabilities(&[Capability::DacOverride]).map_err(Failure::environment)?;
    sandbox::no_new_privileges().map_err(Failure::environment)?;
    let gatherer = RefCell::new(gatherer);
    let page = move |query: &Query| gatherer.borrow_mut().page(query);
    let answer =
        move |request: &Request<'_>| horolog_counters::answer(request, &token, |query| page(query));
    let responder = Responder::start("counters", listener, answer).map_err(cannot)?;
    output::note(&format!("horolog: counters at http://{address}"));
    if is_open(address.ip()) {
        output::note(
            "horolog: whoever sees the packets sees the token; a private address is safer",
        );
    }
    while signals.wait(TICK).map_err(Failure::environment)?.is_none() {
        if responder.has_died() {
            return Err(Failure::environment("the thread that answers has ended; see above"));
        }
    }
    Ok(())
}

/// Refuses interfaces that are not there; a page without them would be no answer.
fn check_interfaces(names: &[String]) -> Result<(), Failure> {
    if names.is_empty() {
        return Ok(());
    }
    let mut netlink = Netlink::open().map_err(Failure::environment)?;
    names
        .iter()
        .try_for_each(|name| netlink.link_by_name(name).map(drop).map_err(Failure::environment))
}

/// Whether strangers may see what goes to and from an address.
fn is_open(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            !(address.is_loopback() || address.is_private() || address.is_link_local())
        }
        IpAddr::V6(address) => {
            !(address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local())
        }
    }
}

/// Asks the servers of this project that run here, or the one whose socket was named.
fn ask_servers(named: Option<&Path>, deadline: Instant) -> Vec<Told> {
    let found = named.map_or_else(status::find, |path| Ok(path.to_owned()));
    let paths = match found {
        Ok(path) => vec![path],
        Err(StatusError::Several(paths)) => paths,
        Err(_) => Vec::new(),
    };
    paths.iter().map(|path| ask_server(path, deadline)).collect()
}

fn ask_server(path: &Path, deadline: Instant) -> Told {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(format!("{} was not asked: no time was left after the others", path.display()));
    }
    let patience = SERVER_PATIENCE.min(left);
    let text = status::ask_within(path, patience).map_err(|error| error.to_string())?;
    let status: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    counted(&status).ok_or_else(|| format!("{} tells no counters", path.display()))
}

/// What a server received and answered in both of its bodies.
fn counted(status: &Value) -> Option<Server> {
    let count = |pointer: &str| status.pointer(pointer).and_then(Value::as_u64);
    let sum = |pointers: &[&str]| pointers.iter().filter_map(|at| count(at)).sum::<u64>();
    let by_xdp = sum(&["/xdp_counters/answered_ipv4", "/xdp_counters/answered_ipv6"]);
    let dropped_by_xdp = sum(&[
        "/xdp_counters/dropped/limited",
        "/xdp_counters/dropped/denied",
        "/xdp_counters/dropped/newcomers",
    ]);
    let ignored = sum(&[
        "/counters/ignored/limited",
        "/counters/ignored/denied",
        "/counters/ignored/newcomers",
    ]);
    Some(Server {
        program: "horolog".to_owned(),
        received: count("/counters/received")? + by_xdp + dropped_by_xdp,
        answered: count("/counters/answered")? + by_xdp,
        limited: ignored + dropped_by_xdp,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn both_bodies_are_added_up() {
        let status = serde_json::json!({
            "counters": {"received": 10, "answered": 7, "ignored": {"limited": 2, "length": 1}},
            "xdp_counters": {
                "answered_ipv4": 100, "answered_ipv6": 20, "dropped": {"denied": 5, "limited": 1}
            },
        });
        let server = counted(&status).unwrap();
        assert_eq!((server.received, server.answered, server.limited), (136, 127, 8));
        assert_eq!(counted(&serde_json::json!({"xdp_counters": {}})), None);
    }

    #[test]
    fn who_cannot_be_asked_in_time_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = |number: usize| directory.path().join(format!("{number}.sock"));
        let silent: Vec<_> = (0..20).map(|at| UnixListener::bind(path(at)).unwrap()).collect();
        let begun = Instant::now();
        let deadline = begun + SERVER_PATIENCE / 2;
        let told: Vec<_> =
            (0..silent.len()).map(|at| ask_server(&path(at), deadline).unwrap_err()).collect();
        assert!(begun.elapsed() < SERVER_PATIENCE * 10, "{:?}", begun.elapsed());
        assert!(told.iter().enumerate().all(|(at, why)| why.contains(&format!("/{at}.sock"))));
        assert!(told[19].contains("not asked"), "{told:?}");
    }

    #[test]
    fn only_private_addresses_are_closed() {
        for (address, open) in [
            ("127.0.0.1", false),
            ("10.1.2.3", false),
            ("::1", false),
            ("fd00::1", false),
            ("::ffff:192.168.1.1", false),
            ("0.0.0.0", true),
            ("::", true),
            ("192.0.2.1", true),
            ("2001:db8::1", true),
        ] {
            assert_eq!(is_open(address.parse().unwrap()), open, "{address}");
        }
    }
}
