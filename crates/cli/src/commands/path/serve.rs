//! `horolog path serve`: far end of path measurements, whose UDP, STAMP and TCP services run until
//! a signal.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use horolog_probe::path::serve::stamp::{self, StampOptions};
use horolog_probe::path::serve::udp::{self, UdpListenOptions};
use horolog_probe::path::serve::{FarEndListenError, RunningFarEnd};
use horolog_probe::path::tcp::{self, RunningTcpFarEnd, TcpFarEndLimits, TcpFarEndSettings};
use horolog_report::units::full_count;
use horolog_sys::listen::WildcardAddresses;
use horolog_sys::signal::{BlockedSignals, Signal};
use horolog_sys::zone::{self, AddressError};
use horolog_time::text::Size;
use horolog_wire::prefix::Prefix;
use horolog_wire::{path_probe, stamp as stamp_codec};
use sd_notify::NotifyState;

use crate::failure::CommandFailure;
use crate::output;
use crate::values;

/// Interval between checks that all services still run.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Upper limit on STAMP replies per second at each address; STAMP has no return-routability check.
const STAMP_RATE_MAX: u64 = 100_000;

/// Answer the measurements of 'horolog path' from other hosts, until Ctrl-C or SIGTERM.
///
/// Over UDP, probes are echoed only to a client that has proved by a return-routability check that
/// it receives at its source address, no reply is longer than its request, and sessions and replies
/// are bounded, so this host cannot be made to flood another. Over TCP, a client that connects
/// receives what it requests, within limits of connections, time and bytes; a client that reaches a
/// limit is informed. No privilege is required, except for --stamp at a port below 1024.
#[derive(Args, Debug)]
pub(crate) struct PathServeArgs {
    /// Address to listen on, over UDP and TCP, as ADDRESS or ADDRESS:PORT. Repeatable [default: all
    /// IPv4 and IPv6 addresses, port 8625].
    #[arg(short, long, value_name = "ADDR", value_parser = path_address)]
    listen: Vec<SocketAddr>,
    /// Also run a STAMP session-reflector (RFC 8762; stateless, without authentication), for
    /// senders of other implementations.
    #[arg(long)]
    stamp: bool,
    /// Address to listen on for STAMP. Repeatable [default: the addresses of --listen, port 862].
    #[arg(long, value_name = "ADDR", value_parser = stamp_address, requires = "stamp")]
    stamp_listen: Vec<SocketAddr>,
    /// Answer STAMP from this public network too, where source addresses can be forged. Repeatable.
    /// Private networks are always answered.
    #[arg(long, value_name = "NETWORK", requires = "stamp")]
    allow: Vec<Prefix>,
    /// Poll for datagrams continuously instead of sleeping: replies are faster, and each listening
    /// address, of UDP and of STAMP, occupies a CPU.
    #[arg(long)]
    busy_poll: bool,
    /// Limit on the UDP probes answered per second at each listening address; for STAMP at most
    /// 100k.
    #[arg(long, value_name = "RATE", value_parser = values::count, default_value = "1M")]
    max_rate: u32,
    /// Limit on concurrent TCP connections, at most 64 of them from one client address.
    #[arg(long, value_name = "N", default_value_t = TcpFarEndLimits::default().connections,
           value_parser = clap::value_parser!(u32).range(1..=4_096))]
    tcp_connections: u32,
    /// Time limit of a TCP connection.
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = values::positive_duration)]
    tcp_time: Duration,
    /// Limit on the bytes of a TCP connection, in both directions together; k is 1024 and kB 1000.
    #[arg(long, value_name = "SIZE", default_value = "16G")]
    tcp_bytes: Size,
    /// Limit on bytes per hour of all TCP connections to one listening address (token bucket, full
    /// at the start).
    #[arg(long, value_name = "SIZE", default_value = "256G")]
    tcp_bytes_per_hour: Size,
    /// Do not reveal this host's CPU, kernel and interface to TCP clients.
    #[arg(long)]
    no_host_facts: bool,
}

fn path_address(text: &str) -> Result<SocketAddr, AddressError> {
    parse_address(text, path_probe::PORT)
}

fn stamp_address(text: &str) -> Result<SocketAddr, AddressError> {
    parse_address(text, stamp_codec::PORT)
}

fn parse_address(text: &str, port: u16) -> Result<SocketAddr, AddressError> {
    match zone::split_host(text) {
        Ok((host, specified_port)) => {
            zone::host_address(host, specified_port.unwrap_or(port)).and_then(zone::require_zone)
        }
        Err(_) => zone::socket_address(text),
    }
}

impl From<FarEndListenError> for CommandFailure {
    fn from(error: FarEndListenError) -> Self {
        Self::environment(error)
    }
}

impl PathServeArgs {
    fn listen_addresses(&self) -> Vec<SocketAddr> {
        if !self.listen.is_empty() {
            return self.listen.clone();
        }
        WildcardAddresses::supported_by_kernel(path_probe::PORT).addresses
    }

    /// Starts the UDP services: path probes and, if requested, STAMP.
    fn start_udp(&self) -> Result<RunningFarEnd, CommandFailure> {
        let mut far_end = RunningFarEnd::new();
        let rate_max = u64::from(self.max_rate);
        let busy_polling = self.busy_poll;
        let probe_addresses = self.listen_addresses();
        for address in &probe_addresses {
            udp::start_service(
                &mut far_end,
                &UdpListenOptions { address: *address, busy_polling, rate_max },
            )?;
        }
        if self.stamp {
            let with_default_port = |address: &SocketAddr| (address.ip(), stamp_codec::PORT).into();
            let default_addresses: Vec<_> = probe_addresses.iter().map(with_default_port).collect();
            let addresses =
                if self.stamp_listen.is_empty() { &default_addresses } else { &self.stamp_listen };
            for address in addresses {
                let rate_max = rate_max.min(STAMP_RATE_MAX);
                let listen = UdpListenOptions { address: *address, busy_polling, rate_max };
                stamp::start_reflector(
                    &mut far_end,
                    &StampOptions { listen, allowed: self.allow.clone() },
                )?;
            }
        }
        Ok(far_end)
    }

    fn start_tcp(&self) -> Result<Vec<RunningTcpFarEnd>, CommandFailure> {
        let defaults = TcpFarEndLimits::default();
        let limits = TcpFarEndLimits {
            connections: self.tcp_connections,
            connections_per_address: defaults.connections_per_address.min(self.tcp_connections),
            time: self.tcp_time,
            bytes: self.tcp_bytes.bytes(),
            bytes_per_hour: self.tcp_bytes_per_hour.bytes(),
            ..defaults
        };
        let settings = TcpFarEndSettings { limits, hides_host_facts: self.no_host_facts };
        let start_service = |address: SocketAddr| {
            tcp::serve(address, settings.clone())
                .map_err(|error| FarEndListenError::new("TCP", address, error).into())
        };
        self.listen_addresses().into_iter().map(start_service).collect()
    }
}

pub(super) fn run(args: &PathServeArgs) -> Result<(), CommandFailure> {
    // Threads inherit the signal mask, so signals are blocked before any thread starts.
    let signals = BlockedSignals::block(&[Signal::Interrupt, Signal::Terminate])
        .map_err(CommandFailure::environment)?;
    let far_end = args.start_udp()?;
    if let Some(missing) =
        WildcardAddresses::supported_by_kernel(0).missing.filter(|_| args.listen.is_empty())
    {
        output::print_note(&format!("horolog: {missing}"));
    }
    let describe_service = |part: &horolog_probe::path::serve::RunningFarEndService| {
        format!("{} at {}", part.name, part.address)
    };
    let tcp = args.start_tcp()?;
    let tcp_at = tcp.iter().map(|end| format!("TCP at {}", end.address()));
    let services: Vec<_> = far_end.services().iter().map(describe_service).chain(tcp_at).collect();
    output::print_note(&format!("horolog: path far end: {}", services.join(", ")));
    output::notify_service_manager(&[NotifyState::Ready]);
    while signals.wait(CHECK_INTERVAL).map_err(CommandFailure::environment)?.is_none() {
        if let Some(dead) = far_end.failed_service() {
            return Err(CommandFailure::environment(format!(
                "{} has exited",
                describe_service(dead)
            )));
        }
        if let Some(dead) = tcp.iter().find(|end| end.has_ended()) {
            let reason = format!("TCP at {} has exited", dead.address());
            return Err(CommandFailure::environment(reason));
        }
    }
    let tcp_counts = tcp.into_iter().map(|end| ("TCP", end.address(), end.shut_down()));
    for (name, address, counts) in far_end.shut_down().into_iter().chain(tcp_counts) {
        let counts = counts.iter().map(|(what, count)| format!("{what} {}", full_count(*count)));
        let counts: Vec<_> = counts.collect();
        output::print_note(&format!("horolog: {name} at {address}: {}", counts.join(", ")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_address_has_to_have_its_zone() {
        for text in ["fe80::1", "[fe80::1]:9000"] {
            assert!(matches!(path_address(text), Err(AddressError::NeedsZone(_))), "{text}");
        }
        assert_eq!(path_address("::1").map(|at| at.port()), Ok(path_probe::PORT));
    }
}
