//! chronyd, asked over its command socket what `chronyc tracking` shows.

use std::fs::{self, Permissions};
use std::io;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use horolog_time::Span;
use horolog_wire::chrony::{Reply, TRACKING_LEN, Tracking, tracking_request};
use horolog_wire::ntp::{Leap, STRATUM_UNSYNCHRONISED};

use super::corrections::Corrections;
use super::{Daemon, PATIENCE, any_like, left, silent};
use crate::{ChronydAddress, Fault, Look, Report};

/// Answers to earlier questions that are passed over before it counts as none.
const LATE_ANSWERS_MAX: usize = 8;
/// Tells the sockets of one process apart.
static SOCKETS: AtomicU32 = AtomicU32::new(0);

/// A running chronyd.
pub(super) struct Chronyd {
    address: ChronydAddress,
    link: Option<Link>,
    sequence: u32,
    corrections: Corrections,
}

impl Chronyd {
    pub(super) fn new(address: ChronydAddress) -> Self {
        Self { address, link: None, sequence: 0, corrections: Corrections::default() }
    }

    fn exchange(&mut self) -> io::Result<Reply> {
        let link = match self.link.take() {
            Some(link) => link,
            None => Link::open(&self.address)?,
        };
        self.sequence = self.sequence.wrapping_add(1);
        link.send(&tracking_request(self.sequence))?;
        let deadline = Instant::now() + PATIENCE;
        for _ in 0..LATE_ANSWERS_MAX {
            let mut answer = [0; TRACKING_LEN];
            let length = link.receive(&mut answer, left(deadline)?)?;
            let reply = Reply::parse(&answer[..length])
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if reply.sequence == self.sequence {
                self.link = Some(link);
                return Ok(reply);
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    fn whom(&self) -> String {
        match &self.address {
            ChronydAddress::Udp(address) => format!("chronyd at {address}"),
            ChronydAddress::Unix(path) => format!("chronyd at {}", path.display()),
        }
    }
}

impl Daemon for Chronyd {
    fn ask(&mut self, look: &Look) -> Result<Report, Fault> {
        let reply = self.exchange().map_err(|error| silent(&self.whom(), &error))?;
        let unusable = |what: String| Fault::Unusable(format!("{} {what}", self.whom()));
        match reply.tracking {
            Err(status) => Err(unusable(format!("refuses to say its state (status {status})"))),
            Ok(tracking) if is_synchronised(&tracking) => {
                Ok(report(&tracking, look, &mut self.corrections))
            }
            Ok(_) => Err(unusable("says that it is not synchronised".into())),
        }
    }
}

fn is_synchronised(tracking: &Tracking) -> bool {
    tracking.leap != Leap::Unsynchronised && (1..STRATUM_UNSYNCHRONISED).contains(&tracking.stratum)
}

fn report(tracking: &Tracking, look: &Look, corrections: &mut Corrections) -> Report {
    let (slew, uncertainty) = corrections.next(look, tracking.correction);
    Report {
        at: look.monotonic,
        offset: tracking.correction,
        frequency_ppb: 0,
        slew,
        uncertainty,
        leap: tracking.leap,
        stratum: tracking.stratum,
        reference_id: tracking.reference_id,
        reference: tracking.reference,
        root_delay: tracking.root_delay.max(Span::ZERO),
        root_dispersion: tracking.root_dispersion.max(Span::ZERO),
    }
}

/// A socket that is connected to chronyd.
enum Link {
    Udp(UdpSocket),
    Unix(UnixDatagram, PathBuf),
}

impl Link {
    fn open(address: &ChronydAddress) -> io::Result<Self> {
        match address {
            ChronydAddress::Udp(address) => {
                let socket = UdpSocket::bind(any_like(*address))?;
                socket.connect(address)?;
                Ok(Self::Udp(socket))
            }
            ChronydAddress::Unix(path) => {
                // chronyd answers to a path, and only its own directory is sure to be within its
                // reach when it has dropped its privileges.
                let number = SOCKETS.fetch_add(1, Ordering::Relaxed);
                let own =
                    path.with_file_name(format!("horolog.{}.{number}.sock", std::process::id()));
                let socket = UnixDatagram::bind(&own)?;
                let link = Self::Unix(socket, own);
                link.connect_to(path)?;
                Ok(link)
            }
        }
    }

    fn connect_to(&self, path: &PathBuf) -> io::Result<()> {
        let Self::Unix(socket, own) = self else { return Ok(()) };
        fs::set_permissions(own, Permissions::from_mode(0o666))?;
        socket.connect(path)?;
        // A daemon that is stopped takes nothing more once its queue is full.
        socket.set_write_timeout(Some(PATIENCE))
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Udp(socket) => socket.send(bytes),
            Self::Unix(socket, _) => socket.send(bytes),
        }
    }

    fn receive(&self, buffer: &mut [u8], within: Duration) -> io::Result<usize> {
        match self {
            Self::Udp(socket) => {
                socket.set_read_timeout(Some(within))?;
                socket.recv(buffer)
            }
            Self::Unix(socket, _) => {
                socket.set_read_timeout(Some(within))?;
                socket.recv(buffer)
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Self::Unix(_, own) = self {
            // Gone already is as good.
            let _ = fs::remove_file(own);
        }
    }
}
