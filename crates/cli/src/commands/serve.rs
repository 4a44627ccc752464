//! `horolog serve`: resolves the flags to a server configuration, and runs the server until a
//! signal ends it.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

mod calibration;
mod events;
#[cfg(test)]
mod example;
mod file;
mod flags;
mod limits;
mod log;
mod options;
mod ptp;
mod running;
mod source;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_server::{
    ClockTrust, EngineSelection, ServerConfig, SocketSharingMode, XdpTransmitMethod, status,
};
use horolog_sys::affinity;
use horolog_sys::listen::WildcardAddresses;
use horolog_time::Span;
use horolog_wire::ntp::{LeapIndicator, PORT};

use crate::failure::CommandFailure;
use crate::values;

/// Serve time by NTP, NTS and PTP.
///
/// Serves the clock of this host, which is disciplined by another daemon, or by this server to a
/// GNSS receiver (--gnss); or else the time of other sources (--source). Until a source confirms
/// that the time is correct, replies are marked as unsynchronised (leap 3, stratum 0), unless
/// --local is given.
///
/// SIGTERM and SIGINT end the server within a second; SIGUSR1 prints its counters; SIGHUP rereads
/// the configuration file and the files that the options name, except the web token.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Address and port to listen on. Repeatable [default: 0.0.0.0:123 and [::]:123, each if the
    /// kernel has its version of IP; none with --smear-listen].
    #[arg(short, long, value_name = "ADDR:PORT", value_parser = values::socket_address)]
    listen: Vec<SocketAddr>,
    /// Interface on which XDP answers. Repeatable [default: all with a listening address].
    #[arg(short, long, value_name = "IF")]
    interface: Vec<String>,
    /// Engine that answers. xdp: XDP, with sockets for the requests that it passes on; socket: only
    /// sockets; auto: the best available one.
    #[arg(long, value_enum, default_value_t = ServeEngineArg::Auto)]
    engine: ServeEngineArg,
    /// Attach XDP in generic mode (SKB mode), in the kernel's network stack instead of the driver:
    /// it works on every interface but is much slower.
    #[arg(long)]
    xdp_generic: bool,
    /// Method by which XDP sends replies. transmit: XDP_TX, the fastest, but on a virtual link
    /// (veth) only if its other end runs an XDP program too; redirect: XDP_REDIRECT; auto: redirect
    /// on virtual links, otherwise transmit.
    #[arg(long, value_enum, default_value_t = XdpTransmitMethodArg::Auto)]
    xdp_reply: XdpTransmitMethodArg,
    /// Threads of the socket engine for each listening address [default: one for each core; with
    /// --gnss one less].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Distribution of work over the threads. per-thread: a socket for each, with batched system
    /// calls; shared-lock: one socket for all, with a lock for receiving and one for sending, one
    /// packet at a time.
    #[arg(long, value_enum, default_value_t = SocketSharingModeArg::PerThread)]
    dispatch: SocketSharingModeArg,
    /// Steer each packet to the thread on the core that received it, instead of by a hash of its
    /// addresses: faster if the NIC spreads packets over the cores.
    #[arg(long)]
    steer_by_cpu: bool,
    /// Serve the system clock as correct, whether or not it is synchronised; not with --source or
    /// --gnss.
    #[arg(long)]
    local: bool,
    /// Stratum to claim while synchronised, 1 to 15 [default: the source's; 10 with --local].
    #[arg(long, value_name = "N")]
    stratum: Option<u8>,
    /// Reference identifier: up to four characters or an IPv4 address [default: the source's; with
    /// --local 127.127.1.1, or LOCL at stratum 1].
    #[arg(long, value_name = "ID", value_parser = values::reference_id)]
    refid: Option<[u8; 4]>,
    /// Leap indicator while synchronised: none, insert, delete or unsynchronised [default: the
    /// source's].
    #[arg(long, value_name = "LEAP", value_parser = values::leap)]
    leap: Option<LeapIndicator>,
    /// Root delay (round trip to the reference clock), such as 0.5ms [default: the source's; 0 with
    /// --local].
    #[arg(long, value_name = "TIME", value_parser = values::span, allow_hyphen_values = true)]
    root_delay: Option<Span>,
    /// Root dispersion (relative to the reference clock) [default: the source's; 0 with --local].
    #[arg(long, value_name = "TIME", value_parser = values::span, allow_hyphen_values = true)]
    root_dispersion: Option<Span>,
    /// Stop answering when the clock state, from which replies are computed, has not been updated
    /// for this time, 200ms to 2s.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, default_value = "1s")]
    clock_expiry: Duration,
    /// Offset the served time by this many nanoseconds; for tests.
    #[arg(long, value_name = "NS", default_value_t = 0, allow_negative_numbers = true)]
    test_offset: i64,
    /// Make the served time drift by this many parts per billion; for tests.
    #[arg(long, value_name = "PPB", default_value_t = 0, allow_negative_numbers = true)]
    test_drift: i64,
    /// Socket for 'horolog status' [default: for root /run/horolog/PID.sock, or with --user
    /// /run/horolog/user-NAME/PID.sock; for other users $XDG_RUNTIME_DIR/horolog/PID.sock].
    #[arg(long, value_name = "PATH")]
    status_socket: Option<PathBuf>,
    #[command(flatten)]
    limits: limits::ServeLimitsArgs,
    #[command(flatten)]
    interleaved: flags::ServeInterleavedArgs,
    #[command(flatten)]
    leap_seconds: flags::ServeLeapSecondArgs,
    #[command(flatten)]
    source: source::ServeTimeSourceArgs,
    #[command(flatten)]
    calibration: calibration::ServeGnssArgs,
    #[command(flatten)]
    nts: flags::ServeNtsArgs,
    #[command(flatten)]
    timestamps: flags::ServeTimestampsArgs,
    #[command(flatten)]
    ptp: ptp::ServePtpArgs,
    #[command(flatten)]
    operation: flags::ServeOperationArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ServeEngineArg {
    Auto,
    Socket,
    Xdp,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum XdpTransmitMethodArg {
    Auto,
    Transmit,
    Redirect,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SocketSharingModeArg {
    PerThread,
    SharedLock,
}

impl ServeArgs {
    fn resolve(self) -> Result<ServerConfig, CommandFailure> {
        let default = ServerConfig::default();
        let operation = self.operation.resolve()?;
        let user = operation.user.as_deref();
        Ok(ServerConfig {
            listen: if self.listen.is_empty() && self.leap_seconds.serves_utc() {
                WildcardAddresses::supported_by_kernel(PORT).addresses
            } else {
                self.listen
            },
            engine: match self.engine {
                ServeEngineArg::Auto => EngineSelection::Auto,
                ServeEngineArg::Socket => EngineSelection::Socket,
                ServeEngineArg::Xdp => EngineSelection::Xdp,
            },
            interfaces: self.interface,
            xdp_generic: self.xdp_generic,
            xdp_reply: match self.xdp_reply {
                XdpTransmitMethodArg::Auto => XdpTransmitMethod::Auto,
                XdpTransmitMethodArg::Transmit => XdpTransmitMethod::Transmit,
                XdpTransmitMethodArg::Redirect => XdpTransmitMethod::Redirect,
            },
            threads: self
                .threads
                .unwrap_or_else(|| self.calibration.request_cores(allowed_core_count())),
            dispatch: match self.dispatch {
                SocketSharingModeArg::PerThread => SocketSharingMode::PerThread,
                SocketSharingModeArg::SharedLock => SocketSharingMode::SharedLock,
            },
            steer_by_cpu: self.steer_by_cpu,
            trust: if self.local { ClockTrust::Local } else { ClockTrust::Kernel },
            stratum: self.stratum.unwrap_or(default.stratum),
            reference_id: self.refid,
            leap: self.leap,
            root_delay: self.root_delay.unwrap_or(default.root_delay),
            root_dispersion: self.root_dispersion,
            test_offset: Span::from_ns(self.test_offset),
            test_drift_ppb: self.test_drift,
            page_life: self.clock_expiry,
            status_socket: self.status_socket.or_else(|| status::default_path(user)),
            limits: self.limits.resolve()?,
            interleaved: self.interleaved.resolve()?,
            leap_seconds: self.leap_seconds.resolve()?,
            plausibility: self.source.plausibility(),
            source: self.source.resolve(
                self.local || self.calibration.has_receiver(),
                self.stratum.is_some(),
                self.root_delay.is_some(),
            )?,
            calibration: self.calibration.resolve()?,
            nts: self.nts.resolve()?,
            timestamps: self.timestamps.resolve()?,
            ptp: self.ptp.resolve()?,
            operation,
            ..default
        })
    }
}

/// Returns the number of cores in this process's CPU affinity mask; 1 if the kernel does not report
/// it.
fn allowed_core_count() -> usize {
    affinity::allowed_cores().map_or(1, |cores| cores.len().max(1))
}

/// Serves until a signal ends it. The parsed arguments are not used: the command line is parsed
/// again, together with the configuration file, at the start and at each reload.
pub(crate) fn run(_: ServeArgs) -> Result<(), CommandFailure> {
    running::serve(options::ServeCommandLine::of_this_process())
}

/// Returns all keys that a configuration file may have.
#[cfg(test)]
pub(crate) fn config_file_keys() -> Vec<String> {
    let definition = options::command_definition();
    file::file_keys(&definition)
        .filter_map(|argument| Some(argument.get_long()?.to_owned()))
        .collect()
}
