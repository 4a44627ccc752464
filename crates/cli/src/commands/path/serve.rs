//! `horolog path serve`: the far end, part by part, until it is told to end.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use clap::Args;
use horolog_probe::path::serve::stamp::{self, StampOptions};
use horolog_probe::path::serve::udp::{self, ListenOptions};
use horolog_probe::path::serve::{FarEnd, ServeError};
use horolog_probe::path::tcp::{self, FarEndSettings, TcpFarEnd, TcpLimits};
use horolog_report::units::full_count;
use horolog_sys::netlink::Prefix;
use horolog_sys::signal::{BlockedSignals, Signal};
use horolog_wire::{path_probe, stamp as stamp_format};
use sd_notify::NotifyState;

use crate::failure::Failure;
use crate::output;
use crate::values;

/// How often to look whether all parts still run.
const TICK: Duration = Duration::from_millis(200);
/// Answers in a second of a part that strangers may ask.
const STAMP_RATE_MAX: u64 = 100_000;

/// Answer the measurements of 'horolog path' from other hosts, until Ctrl-C or SIGTERM.
///
/// Over UDP, probes are echoed only to who showed to receive at the address that it sends from, no
/// answer is longer than what it answers, and sessions and answers are bounded. So this host cannot
/// be made to flood another. Over TCP, who connects may have what it asks for, within bounds of
/// connections, time and bytes; who reaches one is told so. It needs no privilege, but for --stamp
/// at a port below 1024.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Where to listen, over UDP and TCP, as ADDRESS or ADDRESS:PORT; may be given several times
    /// [default: all addresses of both versions of IP, port 8625].
    #[arg(short, long, value_name = "ADDR", value_parser = path_address)]
    listen: Vec<SocketAddr>,
    /// Be a STAMP session-reflector (RFC 8762; stateless, without authentication) as well, for the
    /// senders of other makers.
    #[arg(long)]
    stamp: bool,
    /// Where to listen for STAMP; may be given several times [default: the same addresses, port
    /// 862].
    #[arg(long, value_name = "ADDR", value_parser = stamp_address, requires = "stamp")]
    stamp_listen: Vec<SocketAddr>,
    /// Answer STAMP from this network of the Internet too, where anybody may forge a sender's
    /// address; may be given several times. Private networks are always answered.
    #[arg(long, value_name = "NETWORK", requires = "stamp")]
    allow: Vec<Prefix>,
    /// Look for datagrams all the time instead of sleeping until one comes: answers are faster, and
    /// each address takes a processor.
    #[arg(long)]
    busy_poll: bool,
    /// Probes answered in a second at each address, at most.
    #[arg(long, value_name = "RATE", value_parser = values::count, default_value = "1M")]
    max_rate: u32,
    /// TCP connections at a time.
    #[arg(long, value_name = "N", default_value_t = TcpLimits::default().connections,
           value_parser = clap::value_parser!(u32).range(1..=4_096))]
    tcp_connections: u32,
    /// Longest time of a TCP connection.
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = values::long_duration)]
    tcp_time: Duration,
    /// Bytes that a TCP connection may carry, there and back; k is 1024 and kB 1000.
    #[arg(long, value_name = "SIZE", default_value = "16G", value_parser = values::size)]
    tcp_bytes: u64,
    /// Bytes that all TCP connections to an address may carry in an hour, beginning with an hour's
    /// worth.
    #[arg(long, value_name = "SIZE", default_value = "256G", value_parser = values::size)]
    tcp_bytes_hour: u64,
    /// Tell those who measure over TCP nothing of this machine (processor, kernel, interface).
    #[arg(long)]
    discreet: bool,
}

fn path_address(text: &str) -> Result<SocketAddr, String> {
    address(text, path_probe::PORT)
}

fn stamp_address(text: &str) -> Result<SocketAddr, String> {
    address(text, stamp_format::PORT)
}

fn address(text: &str, port: u16) -> Result<SocketAddr, String> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok((address, port).into());
    }
    text.parse().map_err(|_| {
        format!(
            "write an address, with a port or without, such as 192.0.2.1 or [2001:db8::1]:{port}"
        )
    })
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        Self::environment(error)
    }
}

/// Both wildcard addresses, of which a host without IPv6 has one.
fn all(port: u16) -> impl Iterator<Item = SocketAddr> {
    let has_ipv6 = Path::new("/proc/net/if_inet6").exists();
    let both = [(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()];
    both.into_iter().filter(move |at: &SocketAddr| at.is_ipv4() || has_ipv6)
}

impl ServeArgs {
    fn own_addresses(&self) -> Vec<SocketAddr> {
        if self.listen.is_empty() { all(path_probe::PORT).collect() } else { self.listen.clone() }
    }

    /// The parts without connections.
    fn start(&self) -> Result<FarEnd, Failure> {
        let mut far = FarEnd::new();
        let rate_max = u64::from(self.max_rate);
        let busy_polling = self.busy_poll;
        let own = self.own_addresses();
        for address in &own {
            udp::listen(&mut far, &ListenOptions { address: *address, busy_polling, rate_max })?;
        }
        if self.stamp {
            let at = |address: &SocketAddr| (address.ip(), stamp_format::PORT).into();
            let same: Vec<_> = own.iter().map(at).collect();
            let given = if self.stamp_listen.is_empty() { &same } else { &self.stamp_listen };
            for address in given {
                let rate_max = rate_max.min(STAMP_RATE_MAX);
                let listen = ListenOptions { address: *address, busy_polling, rate_max };
                stamp::listen(&mut far, &StampOptions { listen, allowed: self.allow.clone() })?;
            }
        }
        Ok(far)
    }

    fn start_tcp(&self) -> Result<Vec<TcpFarEnd>, Failure> {
        let usual = TcpLimits::default();
        let limits = TcpLimits {
            connections: self.tcp_connections,
            connections_of_address: usual.connections_of_address.min(self.tcp_connections),
            time: self.tcp_time,
            bytes: self.tcp_bytes,
            bytes_in_hour: self.tcp_bytes_hour,
            ..usual
        };
        let settings = FarEndSettings { limits, is_discreet: self.discreet };
        let one = |address: SocketAddr| {
            tcp::serve(address, settings.clone())
                .map_err(|error| ServeError::new("TCP", address, error).into())
        };
        self.own_addresses().into_iter().map(one).collect()
    }
}

pub(super) fn run(args: &ServeArgs) -> Result<(), Failure> {
    // Before the threads are started, which inherit them.
    let signals = BlockedSignals::block(&[Signal::Interrupt, Signal::Terminate])
        .map_err(Failure::environment)?;
    let far = args.start()?;
    let at = |part: &horolog_probe::path::serve::Part| format!("{} at {}", part.name, part.address);
    let tcp = args.start_tcp()?;
    let tcp_at = tcp.iter().map(|end| format!("TCP at {}", end.address()));
    let parts: Vec<_> = far.parts().iter().map(at).chain(tcp_at).collect();
    output::note(&format!("horolog: path far end: {}", parts.join(", ")));
    output::notify(&[NotifyState::Ready]);
    while signals.wait(TICK).map_err(Failure::environment)?.is_none() {
        if let Some(dead) = far.dead() {
            return Err(Failure::environment(format!("{} has ended by itself", at(dead))));
        }
        if let Some(dead) = tcp.iter().find(|end| end.has_died()) {
            let told = format!("TCP at {} has ended by itself", dead.address());
            return Err(Failure::environment(told));
        }
    }
    let of_tcp = tcp.into_iter().map(|end| ("TCP", end.address(), end.end()));
    for (name, address, counts) in far.end().into_iter().chain(of_tcp) {
        let counts = counts.iter().map(|(what, count)| format!("{what} {}", full_count(*count)));
        let counts: Vec<_> = counts.collect();
        output::note(&format!("horolog: {name} at {address}: {}", counts.join(", ")));
    }
    Ok(())
}
