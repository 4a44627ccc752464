//! `horolog counters`: serves snapshots of this host's packet counters by HTTP, or prints one.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use horolog_counters::{
    BearerToken, CounterQuery, CounterReader, ServerCounts, ServerCountsResult, ServerQueryFn,
    render_text,
};
use horolog_http::{HttpRequest, HttpResponder};
use horolog_server::ServerStatus;
use horolog_server::status::{self, StatusError};
use horolog_source::CHRONYD_SOCKET;
use horolog_sys::signal::{BlockedSignals, Signal};

use crate::failure::CommandFailure;
use crate::output;
use crate::values;

/// Timeout of the status request to one horolog server. The HTTP client waits meanwhile.
const SERVER_TIMEOUT: Duration = Duration::from_millis(500);
/// Interval between checks that the HTTP thread still runs.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Serve this host's packet counters to a remote load test, which reads them before and after each
/// trial.
///
/// The counters are those of interfaces, per-CPU backlog queues (softnet_stat), UDP and its
/// sockets, chronyd and horolog serve, for any time server on this host. Clients that present the
/// token (Authorization: Bearer TOKEN) read them at /counters as JSON and at /counters.txt as text.
/// Access is read-only. Root is required only for the counters of chronyd. Neither the counters nor
/// the token are encrypted: listen on a private address, or on 127.0.0.1 behind a tunnel.
#[derive(Args, Debug)]
pub(crate) struct CountersArgs {
    /// Address and port on which to serve the counters; required unless --once is given.
    #[arg(
        long,
        value_name = "ADDR:PORT",
        value_parser = values::socket_address,
        requires = "token_file",
        conflicts_with = "once"
    )]
    listen: Option<SocketAddr>,
    /// File with the token that clients must present, required with --listen: a line of at least 16
    /// bytes, readable by its owner only.
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
    /// Report only this interface. Repeatable [default: all].
    #[arg(short, long, value_name = "IF")]
    interface: Vec<String>,
    /// Command socket of chronyd.
    #[arg(long, value_name = "PATH", default_value = CHRONYD_SOCKET)]
    chronyd: PathBuf,
    /// Status socket of horolog serve [default: those of all running servers].
    #[arg(long, value_name = "PATH")]
    status_socket: Option<PathBuf>,
    /// Print the counters once and exit.
    #[arg(long)]
    once: bool,
    /// Print the counters of --once as JSON.
    #[arg(long, requires = "once")]
    json: bool,
}

pub(crate) fn run(args: CountersArgs) -> Result<(), CommandFailure> {
    let status_socket = args.status_socket;
    let server_query: ServerQueryFn =
        Box::new(move |deadline| query_servers(status_socket.as_deref(), deadline));
    horolog_counters::check_interfaces(&args.interface).map_err(CommandFailure::environment)?;
    let mut reader = CounterReader::new(args.interface, args.chronyd, server_query);
    let (Some(listen), Some(file)) = (args.listen, args.token_file) else {
        if !args.once {
            let reason = "give --listen ADDR:PORT and --token-file FILE to serve the counter \
                          snapshot, or --once to print it";
            return Err(CommandFailure::usage(reason));
        }
        let snapshot = reader.read_snapshot(&CounterQuery::default());
        let shown = if args.json { snapshot.to_json() } else { render_text(&snapshot) };
        return output::print_line(shown.trim_end());
    };
    let token = BearerToken::load(&file).map_err(CommandFailure::usage)?;
    let cannot = |error| {
        CommandFailure::environment(format!(
            "cannot serve counters at {listen}: {error}; choose another address with --listen \
                ADDR:PORT"
        ))
    };
    let listener = TcpListener::bind(listen).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    // Must precede the start of the HTTP thread, which inherits the signal mask.
    let signals = BlockedSignals::block(&[Signal::Interrupt, Signal::Terminate])
        .map_err(CommandFailure::environment)?;
    horolog_counters::confine().map_err(CommandFailure::environment)?;
    let reader = RefCell::new(reader);
    let read_snapshot = move |query: &CounterQuery| reader.borrow_mut().read_snapshot(query);
    let respond = move |request: &HttpRequest<'_>| {
        horolog_counters::respond(request, &token, |query| read_snapshot(query))
    };
    let responder = HttpResponder::start("counters", listener, respond).map_err(cannot)?;
    output::print_note(&format!("horolog: counters at http://{address}"));
    if is_exposed(address.ip()) {
        output::print_note("horolog: the token is sent in clear text; use a private address");
    }
    while signals.wait(CHECK_INTERVAL).map_err(CommandFailure::environment)?.is_none() {
        if responder.has_failed() {
            return Err(CommandFailure::environment("the serving thread has exited; see above"));
        }
    }
    Ok(())
}

/// Returns true unless the address is loopback, link-local or private (RFC 1918, RFC 4193), that is
/// if other hosts may be able to read the unencrypted traffic.
fn is_exposed(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            !(address.is_loopback() || address.is_private() || address.is_link_local())
        }
        IpAddr::V6(address) => {
            !(address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local())
        }
    }
}

/// Reads the counts of all running horolog servers on this host, or of the one with the status
/// socket `status_socket`. A server that is not read before `deadline` yields an error; if the
/// search for servers fails, the list is empty.
fn query_servers(status_socket: Option<&Path>, deadline: Instant) -> Vec<ServerCountsResult> {
    let found = status_socket.map_or_else(status::find_socket, |path| Ok(path.to_owned()));
    let paths = match found {
        Ok(path) => vec![path],
        Err(StatusError::Several(paths)) => paths,
        Err(_) => Vec::new(),
    };
    paths.iter().map(|path| query_server(path, deadline)).collect()
}

fn query_server(path: &Path, deadline: Instant) -> ServerCountsResult {
    let remaining = deadline.saturating_duration_since(Instant::now());
    if remaining.is_zero() {
        return Err(format!("{} not read: no time left after the others", path.display()));
    }
    let timeout = SERVER_TIMEOUT.min(remaining);
    let status = status::fetch_status_within(path, timeout).map_err(|error| error.to_string())?;
    Ok(server_counts(&status))
}

/// Returns the numbers of requests received, answered and rejected by limits, each summed over the
/// socket and the XDP engine.
fn server_counts(status: &ServerStatus) -> ServerCounts {
    ServerCounts {
        program: "horolog".to_owned(),
        received: status.requests_received(),
        answered: status.requests_answered(),
        limited: status.requests_limited(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn servers_not_read_in_time_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = |number: usize| directory.path().join(format!("{number}.sock"));
        let listeners: Vec<_> = (0..20).map(|at| UnixListener::bind(path(at)).unwrap()).collect();
        let begun = Instant::now();
        let deadline = begun + SERVER_TIMEOUT / 2;
        let errors: Vec<_> =
            (0..listeners.len()).map(|at| query_server(&path(at), deadline).unwrap_err()).collect();
        assert!(begun.elapsed() < SERVER_TIMEOUT * 10, "{:?}", begun.elapsed());
        assert!(errors.iter().enumerate().all(|(at, why)| why.contains(&format!("/{at}.sock"))));
        assert!(errors[19].contains("not read"), "{errors:?}");
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
            assert_eq!(is_exposed(address.parse().unwrap()), open, "{address}");
        }
    }
}
