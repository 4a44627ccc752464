//! `horolog serve`: flags to a server's configuration, and the server until a signal ends it.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

mod calibration;
mod events;
#[cfg(test)]
mod example;
mod file;
mod interleaved;
mod leap;
mod limits;
mod log;
mod nts;
mod operation;
mod options;
mod ptp;
mod running;
mod source;
mod timestamps;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_server::{Dispatch, Engine, ServerConfig, Trust, XdpReply, status};
use horolog_sys::affinity;
use horolog_time::Span;
use horolog_wire::ntp::Leap;

use crate::failure::Failure;
use crate::values;

/// Serve time to NTP clients.
///
/// Serves the clock of this machine, which another daemon keeps right, or what other sources say
/// (--source). While no source says that the time is right, replies say so (leap 3, stratum 16),
/// unless --local is given.
///
/// SIGTERM and SIGINT end it within a second; SIGUSR1 prints its counters; SIGHUP has the options
/// read again.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Address and port to answer at; can be given more than once [default: 0.0.0.0:123 [::]:123].
    #[arg(short, long, value_name = "ADDR:PORT", value_parser = values::socket_address)]
    listen: Vec<SocketAddr>,
    /// Interface to answer on in XDP; can be given more than once [default: all that have an
    /// address listened on].
    #[arg(short, long, value_name = "IF")]
    interface: Vec<String>,
    /// What answers: XDP and sockets for the rest, sockets only, or the best that can be had.
    #[arg(long, value_enum, default_value_t = EngineArg::Auto)]
    engine: EngineArg,
    /// Attach XDP behind the driver, which works on every interface, at a fraction of the speed.
    #[arg(long)]
    xdp_generic: bool,
    /// How replies made in XDP leave: by transmission (XDP_TX), the fastest, but on a virtual link
    /// (veth) only if its other end runs an XDP program too, or by redirect. Auto redirects on
    /// virtual links.
    #[arg(long, value_enum, default_value_t = XdpReplyArg::Auto)]
    xdp_reply: XdpReplyArg,
    /// Threads of the socket engine for each address [default: one for each core; with --gnss one
    /// less].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// How the threads share the work: each its own socket and batches, or all one socket with a
    /// lock around receiving and another around sending, one packet at a time.
    #[arg(long, value_enum, default_value_t = DispatchArg::PerThread)]
    dispatch: DispatchArg,
    /// Give each packet to the thread on the core that received it, instead of choosing by a hash
    /// of its addresses: faster where the card spreads packets over the cores.
    #[arg(long)]
    steer_by_cpu: bool,
    /// Serve the system clock as it is, as if it were right.
    #[arg(long)]
    local: bool,
    /// Stratum to claim while synchronised, 1 to 15 [default: the source's; 10 with --local].
    #[arg(long, value_name = "N")]
    stratum: Option<u8>,
    /// Reference identifier: up to four characters or an IPv4 address [default: the
    /// source's; with --local LOCL at stratum 1, otherwise 127.127.1.1].
    #[arg(long, value_name = "ID", value_parser = values::reference_id)]
    refid: Option<[u8; 4]>,
    /// Leap indicator while synchronised: none, insert, delete or unsynchronised [default: the
    /// source's].
    #[arg(long, value_name = "LEAP", value_parser = values::leap)]
    leap: Option<Leap>,
    /// Delay to the reference clock, such as 0.5ms [default: the source's; 0 with --local].
    #[arg(long, value_name = "TIME", value_parser = values::span, allow_hyphen_values = true)]
    root_delay: Option<Span>,
    /// Dispersion to the reference clock [default: the source's; 0 with --local].
    #[arg(long, value_name = "TIME", value_parser = values::span, allow_hyphen_values = true)]
    root_dispersion: Option<Span>,
    /// How long the clock may be served from without being renewed, 200ms to 2s.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, default_value = "1s")]
    clock_expiry: Duration,
    /// For tests: serve time that is ahead of the clock by so many nanoseconds.
    #[arg(long, value_name = "NS", default_value_t = 0, allow_negative_numbers = true)]
    test_offset: i64,
    /// For tests: serve time that gains so many parts per billion on the clock.
    #[arg(long, value_name = "PPB", default_value_t = 0, allow_negative_numbers = true)]
    test_drift: i64,
    /// Where to answer 'horolog status' [default: /run/horolog/PID.sock for root, with --user
    /// /run/horolog/user-NAME/PID.sock, otherwise $XDG_RUNTIME_DIR/horolog/PID.sock].
    #[arg(long, value_name = "PATH")]
    status_socket: Option<PathBuf>,
    #[command(flatten)]
    limits: limits::LimitsArgs,
    #[command(flatten)]
    interleaved: interleaved::InterleavedArgs,
    #[command(flatten)]
    leap_seconds: leap::LeapArgs,
    #[command(flatten)]
    source: source::SourceArgs,
    #[command(flatten)]
    calibration: calibration::CalibrationArgs,
    #[command(flatten)]
    nts: nts::NtsArgs,
    #[command(flatten)]
    timestamps: timestamps::TimestampsArgs,
    #[command(flatten)]
    ptp: ptp::PtpArgs,
    #[command(flatten)]
    operation: operation::OperationArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EngineArg {
    Auto,
    Socket,
    Xdp,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum XdpReplyArg {
    Auto,
    Transmit,
    Redirect,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DispatchArg {
    PerThread,
    SharedLock,
}

impl ServeArgs {
    fn resolve(self) -> Result<ServerConfig, Failure> {
        let default = ServerConfig::default();
        let operation = self.operation.resolve()?;
        let user = operation.user.as_deref();
        Ok(ServerConfig {
            listen: if self.listen.is_empty() && self.leap_seconds.serves_utc() {
                default.listen
            } else {
                self.listen
            },
            engine: match self.engine {
                EngineArg::Auto => Engine::Auto,
                EngineArg::Socket => Engine::Socket,
                EngineArg::Xdp => Engine::Xdp,
            },
            interfaces: self.interface,
            xdp_generic: self.xdp_generic,
            xdp_reply: match self.xdp_reply {
                XdpReplyArg::Auto => XdpReply::Auto,
                XdpReplyArg::Transmit => XdpReply::Transmit,
                XdpReplyArg::Redirect => XdpReply::Redirect,
            },
            threads: self.threads.unwrap_or_else(|| self.calibration.leaves_of(cores())),
            dispatch: match self.dispatch {
                DispatchArg::PerThread => Dispatch::PerThread,
                DispatchArg::SharedLock => Dispatch::SharedLock,
            },
            steer_by_cpu: self.steer_by_cpu,
            trust: if self.local { Trust::Local } else { Trust::Kernel },
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
            source: self.source.resolve(
                self.local || self.calibration.is_on(),
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

/// Cores that this process may use; one where the kernel does not tell.
fn cores() -> usize {
    affinity::allowed_cores().map_or(1, |cores| cores.len().max(1))
}

/// Serves until a signal ends it. The options are read from the command line again at each reload.
pub(crate) fn run(_: ServeArgs) -> Result<(), Failure> {
    running::serve(options::CommandLine::of_this_process())
}
