//! Source `system`: the kernel's clock, disciplined by another daemon, with that daemon's leap
//! indicator, stratum, reference identifier, root delay and dispersion. It only sends requests that
//! change nothing.

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
    ChronydAddress, ClockReadings, DaemonChoice, PollableTimeSource, REPORT_AGE_MAX, Slew,
    SourceError, SourceEstimate,
};
use chronyd::ChronydClient;
use ntpd::NtpdClient;

/// Stratum of the kernel's clock if no daemon reports one. A stratum that is too high is harmless;
/// one that is too low attracts clients of better servers.
pub const KERNEL_STRATUM: u8 = 10;
/// Reference identifier of a clock of unknown origin: the address of ntpd's undisciplined local
/// clock driver.
pub const UNDISCIPLINED_REFERENCE_ID: [u8; 4] = [127, 127, 1, 1];

/// Timeout of a daemon's reply, short because other sources wait meanwhile.
pub(crate) const DAEMON_TIMEOUT: Duration = Duration::from_millis(200);
/// Polls between two searches for a daemon while none replies.
const SEARCH_INTERVAL: u32 = 16;
/// Default path of chronyd's command socket.
pub const CHRONYD_SOCKET: &str = "/run/chrony/chronyd.sock";

/// Daemon that disciplines the system clock.
trait TimeDaemon: Send {
    /// Requests the data that the daemon would report to its own clients.
    fn query(&mut self, readings: &ClockReadings) -> Result<SourceEstimate, SourceError>;
}

/// Time source that repeats the system clock.
pub(crate) struct SystemClockSource {
    name: String,
    daemons: Vec<Box<dyn TimeDaemon>>,
    /// True if the kernel is queried when no daemon replies.
    falls_back_to_kernel: bool,
    /// Index of the daemon that last replied, and the instant of its reply; `None` before a search
    /// has found one.
    last_reply: Option<(usize, Timestamp<horolog_time::Monotonic>)>,
    /// Polls until the next search for a daemon.
    polls_until_search: u32,
}

impl SystemClockSource {
    /// Creates the source for this choice of daemons. A server that listens on the NTP port of this
    /// host (`server_addresses`) does not query itself as ntpd.
    pub(crate) fn new(
        name: String,
        choice: &DaemonChoice,
        server_addresses: &[SocketAddr],
    ) -> Self {
        let daemons: Vec<Box<dyn TimeDaemon>> = match choice {
            DaemonChoice::Kernel => Vec::new(),
            DaemonChoice::Chronyd(address) => vec![Box::new(ChronydClient::new(address.clone()))],
            DaemonChoice::Ntpd(address) => vec![Box::new(NtpdClient::new(*address))],
            DaemonChoice::Auto => default_daemons(server_addresses),
        };
        let kernel_too = matches!(choice, DaemonChoice::Kernel | DaemonChoice::Auto);
        Self {
            name,
            daemons,
            falls_back_to_kernel: kernel_too,
            last_reply: None,
            polls_until_search: 0,
        }
    }

    /// Queries the daemon that last replied; `None` while it does not reply. After
    /// [`REPORT_AGE_MAX`] without a reply, searches for a daemon that replies.
    fn query_daemon(
        &mut self,
        readings: &ClockReadings,
    ) -> Result<Option<SourceEstimate>, SourceError> {
        if let Some((index, when)) = self.last_reply {
            match self.daemons[index].query(readings) {
                Ok(report) => {
                    self.last_reply = Some((index, readings.monotonic));
                    return Ok(Some(report));
                }
                Err(SourceError::NoData(_)) if readings.monotonic - when < REPORT_AGE_MAX => {
                    return Ok(None);
                }
                Err(SourceError::NoData(_)) => self.last_reply = None,
                Err(fault) => return Err(fault),
            }
        }
        self.search(readings)
    }

    fn search(&mut self, readings: &ClockReadings) -> Result<Option<SourceEstimate>, SourceError> {
        if self.polls_until_search > 0 && self.falls_back_to_kernel {
            self.polls_until_search -= 1;
            return Err(SourceError::NoData("no time daemon answers".into()));
        }
        let mut fault = SourceError::NoData("no time daemon answers".into());
        for (index, daemon) in self.daemons.iter_mut().enumerate() {
            match daemon.query(readings) {
                Err(SourceError::NoData(reason)) => fault = SourceError::NoData(reason),
                answer => {
                    self.last_reply = Some((index, readings.monotonic));
                    return answer.map(Some);
                }
            }
        }
        self.polls_until_search = SEARCH_INTERVAL;
        Err(fault)
    }
}

impl PollableTimeSource for SystemClockSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn poll(&mut self, readings: &ClockReadings) -> Result<Option<SourceEstimate>, SourceError> {
        match self.query_daemon(readings) {
            Err(SourceError::NoData(_)) if self.falls_back_to_kernel => {
                kernel_estimate(readings).map(Some)
            }
            answer => answer,
        }
    }

    fn is_system_clock_mirror(&self) -> bool {
        true
    }
}

fn default_daemons(server_addresses: &[SocketAddr]) -> Vec<Box<dyn TimeDaemon>> {
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut daemons: Vec<Box<dyn TimeDaemon>> = Vec::new();
    if Path::new(CHRONYD_SOCKET).exists() {
        daemons.push(Box::new(ChronydClient::new(ChronydAddress::Unix(CHRONYD_SOCKET.into()))));
    }
    daemons.push(Box::new(ChronydClient::new(ChronydAddress::Udp(local(chrony::PORT)))));
    if !server_addresses.iter().any(|own| can_reach(*own, local(ntp::PORT))) {
        daemons.push(Box::new(NtpdClient::new(local(ntp::PORT))));
    }
    daemons
}

/// Returns true if datagrams to `address` may reach a socket with the address `bound`.
fn can_reach(bound: SocketAddr, address: SocketAddr) -> bool {
    let everywhere = bound.ip().is_unspecified() && (bound.is_ipv6() || address.is_ipv4());
    bound.port() == address.port() && (everywhere || bound.ip() == address.ip())
}

/// Returns the estimate by the kernel's clock status alone; an error if the status is not available
/// or the clock is not synchronised.
fn kernel_estimate(readings: &ClockReadings) -> Result<SourceEstimate, SourceError> {
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
        reference_id: UNDISCIPLINED_REFERENCE_ID,
        reference: readings.realtime(),
        root_delay: Span::ZERO,
        root_dispersion: kernel.maximum_error,
        is_unconfirmed: false,
        host_clock: None,
    })
}

/// Returns the time until `deadline`; `TimedOut` if it has passed.
pub(crate) fn time_until(deadline: Instant) -> io::Result<Duration> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    if remaining.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(remaining) }
}

/// Converts a failed query to an error that names the queried daemon.
fn query_error(target: &str, error: &io::Error) -> SourceError {
    let reason = match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer".into(),
        _ => error.to_string(),
    };
    SourceError::NoData(format!("{target}: {reason}"))
}

/// Returns the unspecified address of the IP version of `peer`, to bind to.
pub(crate) fn unspecified_address(peer: SocketAddr) -> SocketAddr {
    let any: IpAddr = if peer.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    (any, 0).into()
}

#[cfg(test)]
mod tests;
