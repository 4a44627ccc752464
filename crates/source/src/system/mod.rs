//! Source `system`: the kernel's clock, which another daemon disciplines, with that daemon's leap
//! indicator, stratum, reference identifier, root delay and dispersion. It only reads; it sends no
//! daemon a command.

mod chronyd;
mod ntpd;
mod slew_estimate;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use horolog_sys::adjtimex::PendingLeap;
use horolog_time::{Span, Timestamp};
use horolog_wire::ntp::LeapIndicator;
use horolog_wire::{chrony, ntp};

use crate::{
    ChronydAddress, ClockReadings, DaemonChoice, STALE, Slew, SourceError, SourceEstimate,
    TimeSource,
};
use chronyd::Chronyd;
use ntpd::Ntpd;

/// Stratum claimed for the kernel's clock if no daemon reports its own. One too high is harmless,
/// while one too low draws clients away from better servers.
pub const KERNEL_STRATUM: u8 = 10;
/// Reference identifier of a clock without further data: the address by which the reference
/// implementation names its own undisciplined clock.
pub const UNDISCIPLINED: [u8; 4] = [127, 127, 1, 1];

/// Timeout of a daemon's reply, regardless of other input meanwhile: other sources wait.
pub(crate) const DAEMON_TIMEOUT: Duration = Duration::from_millis(200);
/// Polls between two searches for a daemon if there is none.
const SEARCH_INTERVAL: u32 = 16;
/// Default path of chronyd's command socket.
pub const CHRONYD_SOCKET: &str = "/run/chrony/chronyd.sock";

/// Daemon that disciplines the clock.
trait Daemon: Send {
    /// Queries the data that it would send to its own clients.
    fn query(&mut self, readings: &ClockReadings) -> Result<SourceEstimate, SourceError>;
}

/// Time source by the system clock.
pub(crate) struct System {
    name: String,
    daemons: Vec<Box<dyn Daemon>>,
    /// True if the kernel is queried when no daemon replies.
    kernel_too: bool,
    /// Index of the daemon that replied last, and the instant of that.
    answered: Option<(usize, Timestamp<horolog_time::Monotonic>)>,
    /// Polls until the next search.
    rest: u32,
}

impl System {
    /// Creates the source with this choice of daemons. A server that listens at `own` is not
    /// queried about itself.
    pub(crate) fn new(name: String, choice: &DaemonChoice, own: &[SocketAddr]) -> Self {
        let daemons: Vec<Box<dyn Daemon>> = match choice {
            DaemonChoice::Kernel => Vec::new(),
            DaemonChoice::Chronyd(address) => vec![Box::new(Chronyd::new(address.clone()))],
            DaemonChoice::Ntpd(address) => vec![Box::new(Ntpd::new(*address))],
            DaemonChoice::Auto => default_daemons(own),
        };
        let kernel_too = matches!(choice, DaemonChoice::Kernel | DaemonChoice::Auto);
        Self { name, daemons, kernel_too, answered: None, rest: 0 }
    }

    /// Queries the daemon that replied last, and the others only if it has not for long.
    fn mirrored(
        &mut self,
        readings: &ClockReadings,
    ) -> Result<Option<SourceEstimate>, SourceError> {
        if let Some((index, when)) = self.answered {
            match self.daemons[index].query(readings) {
                Ok(report) => {
                    self.answered = Some((index, readings.monotonic));
                    return Ok(Some(report));
                }
                Err(SourceError::NoData(_)) if readings.monotonic - when < STALE => {
                    return Ok(None);
                }
                Err(SourceError::NoData(_)) => self.answered = None,
                Err(fault) => return Err(fault),
            }
        }
        self.search(readings)
    }

    fn search(&mut self, readings: &ClockReadings) -> Result<Option<SourceEstimate>, SourceError> {
        if self.rest > 0 && self.kernel_too {
            self.rest -= 1;
            return Err(SourceError::NoData("no time daemon answers".into()));
        }
        let mut fault = SourceError::NoData("no time daemon answers".into());
        for (index, daemon) in self.daemons.iter_mut().enumerate() {
            match daemon.query(readings) {
                Err(SourceError::NoData(reason)) => fault = SourceError::NoData(reason),
                answer => {
                    self.answered = Some((index, readings.monotonic));
                    return answer.map(Some);
                }
            }
        }
        self.rest = SEARCH_INTERVAL;
        Err(fault)
    }
}

impl TimeSource for System {
    fn name(&self) -> &str {
        &self.name
    }

    fn poll(&mut self, readings: &ClockReadings) -> Result<Option<SourceEstimate>, SourceError> {
        match self.mirrored(readings) {
            Err(SourceError::NoData(_)) if self.kernel_too => kernel(readings).map(Some),
            answer => answer,
        }
    }

    fn is_mirror(&self) -> bool {
        true
    }
}

fn default_daemons(own: &[SocketAddr]) -> Vec<Box<dyn Daemon>> {
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut daemons: Vec<Box<dyn Daemon>> = Vec::new();
    if Path::new(CHRONYD_SOCKET).exists() {
        daemons.push(Box::new(Chronyd::new(ChronydAddress::Unix(CHRONYD_SOCKET.into()))));
    }
    daemons.push(Box::new(Chronyd::new(ChronydAddress::Udp(local(chrony::PORT)))));
    if !own.iter().any(|own| reaches(*own, local(ntp::PORT))) {
        daemons.push(Box::new(Ntpd::new(local(ntp::PORT))));
    }
    daemons
}

/// Returns true if datagrams to `address` may reach a socket bound to `own`.
fn reaches(own: SocketAddr, address: SocketAddr) -> bool {
    let everywhere = own.ip().is_unspecified() && (own.is_ipv6() || address.is_ipv4());
    own.port() == address.port() && (everywhere || own.ip() == address.ip())
}

/// Returns the kernel's estimate of its own clock.
fn kernel(readings: &ClockReadings) -> Result<SourceEstimate, SourceError> {
    let Some(kernel) = readings.kernel.filter(|kernel| kernel.synchronised) else {
        return Err(SourceError::Unusable(
            "the kernel reports that its clock is not synchronised".into(),
        ));
    };
    Ok(SourceEstimate {
        tai_minus_utc_s: None,
        next_leap: None,
        at: readings.monotonic,
        offset: Span::ZERO,
        frequency_ppb: 0,
        slew: Slew::default(),
        uncertainty: Span::ZERO,
        leap: match kernel.leap {
            PendingLeap::None => LeapIndicator::None,
            PendingLeap::Insert => LeapIndicator::Insert,
            PendingLeap::Delete => LeapIndicator::Delete,
        },
        stratum: KERNEL_STRATUM,
        reference_id: UNDISCIPLINED,
        reference: readings.realtime(),
        root_delay: Span::ZERO,
        root_dispersion: kernel.maximum_error,
        is_unconfirmed: false,
        host_clock: None,
    })
}

/// Returns the remaining time until `deadline`; an error if that is past.
pub(crate) fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Converts a failed query to an error that names its target.
fn query_error(whom: &str, error: &io::Error) -> SourceError {
    let reason = match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer".into(),
        _ => error.to_string(),
    };
    SourceError::NoData(format!("{whom}: {reason}"))
}

/// Returns a local address of the family of `peer` for the query.
pub(crate) fn any_like(peer: SocketAddr) -> SocketAddr {
    let any: IpAddr = if peer.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    (any, 0).into()
}

#[cfg(test)]
mod tests;
