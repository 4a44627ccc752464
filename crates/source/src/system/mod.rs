//! The source `system`: the kernel's clock, which another daemon disciplines, with what that daemon
//! says of it: its leap indicator, stratum, reference identifier, root delay and dispersion. It
//! asks; it tells no daemon to do anything.

mod chronyd;
mod corrections;
mod ntpd;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use horolog_sys::adjtimex::PendingLeap;
use horolog_time::{Span, Timestamp};
use horolog_wire::ntp::Leap;
use horolog_wire::{chrony, ntp};

use crate::{Ask, ChronydAddress, Fault, Look, Report, STALE, Slew, Source};
use chronyd::Chronyd;
use ntpd::Ntpd;

/// The stratum claimed of the kernel's clock where no daemon says its own. One too high is merely
/// modest where one too low draws clients away from better servers.
pub const KERNEL_STRATUM: u8 = 10;
/// The reference identifier of a clock that nobody says more of: the address by which the reference
/// implementation names its own undisciplined clock.
pub const UNDISCIPLINED: [u8; 4] = [127, 127, 1, 1];

/// How long a daemon may take to answer, whatever else comes meanwhile: other sources wait.
pub(crate) const PATIENCE: Duration = Duration::from_millis(200);
/// Polls between two searches for a daemon, where there is none.
const SEARCH_INTERVAL: u32 = 16;
/// Where chronyd takes commands by default.
pub const CHRONYD_SOCKET: &str = "/run/chrony/chronyd.sock";

/// A daemon that disciplines the clock.
trait Daemon: Send {
    /// Asks it what it would tell its own clients.
    fn ask(&mut self, look: &Look) -> Result<Report, Fault>;
}

/// The source.
pub(crate) struct System {
    name: String,
    places: Vec<Box<dyn Daemon>>,
    /// Whether the kernel is asked where no daemon answers.
    kernel_too: bool,
    /// Index of the daemon that answered last, and when.
    answered: Option<(usize, Timestamp<horolog_time::Monotonic>)>,
    /// Polls until the next search.
    rest: u32,
}

impl System {
    /// The source that asks as told. A server that listens at `own` is not asked about itself.
    pub(crate) fn new(name: String, ask: &Ask, own: &[SocketAddr]) -> Self {
        let places: Vec<Box<dyn Daemon>> = match ask {
            Ask::Kernel => Vec::new(),
            Ask::Chronyd(address) => vec![Box::new(Chronyd::new(address.clone()))],
            Ask::Ntpd(address) => vec![Box::new(Ntpd::new(*address))],
            Ask::Auto => usual_places(own),
        };
        let kernel_too = matches!(ask, Ask::Kernel | Ask::Auto);
        Self { name, places, kernel_too, answered: None, rest: 0 }
    }

    /// Asks the daemon that answered last, and the others only when it has not for long.
    fn mirrored(&mut self, look: &Look) -> Result<Option<Report>, Fault> {
        if let Some((index, when)) = self.answered {
            match self.places[index].ask(look) {
                Ok(report) => {
                    self.answered = Some((index, look.monotonic));
                    return Ok(Some(report));
                }
                Err(Fault::Silent(_)) if look.monotonic - when < STALE => return Ok(None),
                Err(Fault::Silent(_)) => self.answered = None,
                Err(fault) => return Err(fault),
            }
        }
        self.search(look)
    }

    fn search(&mut self, look: &Look) -> Result<Option<Report>, Fault> {
        if self.rest > 0 && self.kernel_too {
            self.rest -= 1;
            return Err(Fault::Silent("no daemon answers".into()));
        }
        let mut fault = Fault::Silent("no daemon answers".into());
        for (index, place) in self.places.iter_mut().enumerate() {
            match place.ask(look) {
                Err(Fault::Silent(reason)) => fault = Fault::Silent(reason),
                answer => {
                    self.answered = Some((index, look.monotonic));
                    return answer.map(Some);
                }
            }
        }
        self.rest = SEARCH_INTERVAL;
        Err(fault)
    }
}

impl Source for System {
    fn name(&self) -> &str {
        &self.name
    }

    fn poll(&mut self, look: &Look) -> Result<Option<Report>, Fault> {
        match self.mirrored(look) {
            Err(Fault::Silent(_)) if self.kernel_too => kernel(look).map(Some),
            answer => answer,
        }
    }

    fn is_mirror(&self) -> bool {
        true
    }
}

fn usual_places(own: &[SocketAddr]) -> Vec<Box<dyn Daemon>> {
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut places: Vec<Box<dyn Daemon>> = Vec::new();
    if Path::new(CHRONYD_SOCKET).exists() {
        places.push(Box::new(Chronyd::new(ChronydAddress::Unix(CHRONYD_SOCKET.into()))));
    }
    places.push(Box::new(Chronyd::new(ChronydAddress::Udp(local(chrony::PORT)))));
    if !own.iter().any(|own| reaches(*own, local(ntp::PORT))) {
        places.push(Box::new(Ntpd::new(local(ntp::PORT))));
    }
    places
}

/// Whether what is sent to `address` may come to a socket bound to `own`.
fn reaches(own: SocketAddr, address: SocketAddr) -> bool {
    let everywhere = own.ip().is_unspecified() && (own.is_ipv6() || address.is_ipv4());
    own.port() == address.port() && (everywhere || own.ip() == address.ip())
}

/// What the kernel says of its own clock.
fn kernel(look: &Look) -> Result<Report, Fault> {
    let Some(kernel) = look.kernel.filter(|kernel| kernel.synchronised) else {
        return Err(Fault::Unusable("the kernel says that its clock is not synchronised".into()));
    };
    Ok(Report {
        tai_minus_utc_s: None,
        next_leap: None,
        at: look.monotonic,
        offset: Span::ZERO,
        frequency_ppb: 0,
        slew: Slew::default(),
        uncertainty: Span::ZERO,
        leap: match kernel.leap {
            PendingLeap::None => Leap::None,
            PendingLeap::Insert => Leap::Insert,
            PendingLeap::Delete => Leap::Delete,
        },
        stratum: KERNEL_STRATUM,
        reference_id: UNDISCIPLINED,
        reference: look.realtime(),
        root_delay: Span::ZERO,
        root_dispersion: kernel.maximum_error,
    })
}

/// How long to wait until `deadline`; an error when that is past.
pub(crate) fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Turns a failure to ask into a fault that names what was asked.
fn silent(whom: &str, error: &io::Error) -> Fault {
    let reason = match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer".into(),
        _ => error.to_string(),
    };
    Fault::Silent(format!("{whom}: {reason}"))
}

/// An address of the family of `peer` from which it is asked.
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
