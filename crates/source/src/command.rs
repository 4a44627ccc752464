//! chronyd's command socket: one question at a time and its answer, over UDP or a Unix socket. Only
//! questions that change nothing are known.

use std::fs::{self, Permissions};
use std::io;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use horolog_wire::Malformed;
use horolog_wire::chrony::statistics::{self, Statistics, statistics_request};
use horolog_wire::chrony::{Reply, TRACKING_LEN, tracking_request};

use crate::ChronydAddress;
use crate::system::{PATIENCE, any_like, left};

/// Answers to earlier questions that are passed over before it counts as none.
const LATE_ANSWERS_MAX: usize = 8;
/// Longer than any answer that is known.
const ANSWER_LEN_MAX: usize = 512;
const _: () = assert!(TRACKING_LEN < ANSWER_LEN_MAX && statistics::STATISTICS_LEN < ANSWER_LEN_MAX);
/// Tells the sockets of one process apart.
static SOCKETS: AtomicU32 = AtomicU32::new(0);

/// Where a chronyd takes questions. It connects with the first of them.
pub struct CommandSocket {
    address: ChronydAddress,
    link: Option<Link>,
    sequence: u32,
}

impl CommandSocket {
    /// The socket of the chronyd at `address`.
    #[must_use]
    pub const fn new(address: ChronydAddress) -> Self {
        Self { address, link: None, sequence: 0 }
    }

    /// Asks what it counted as a server. The error of the inner result is the number of its
    /// refusal; it answers only over its Unix socket.
    pub fn statistics(&mut self) -> io::Result<Result<Statistics, u16>> {
        let parse = |bytes: &[u8]| {
            statistics::Reply::parse(bytes).map(|reply| (reply.sequence, reply.statistics))
        };
        self.exchange(statistics_request, parse)
    }

    /// Asks what it says of its synchronisation.
    pub(crate) fn tracking(&mut self) -> io::Result<Reply> {
        let parse = |bytes: &[u8]| Reply::parse(bytes).map(|reply| (reply.sequence, reply));
        self.exchange(tracking_request, parse)
    }

    fn exchange<R, const LEN: usize>(
        &mut self,
        request: impl Fn(u32) -> [u8; LEN],
        parse: impl Fn(&[u8]) -> Result<(u32, R), Malformed>,
    ) -> io::Result<R> {
        let link = match self.link.take() {
            Some(link) => link,
            None => Link::open(&self.address)?,
        };
        self.sequence = self.sequence.wrapping_add(1);
        link.send(&request(self.sequence))?;
        let deadline = Instant::now() + PATIENCE;
        for _ in 0..LATE_ANSWERS_MAX {
            let mut answer = [0; ANSWER_LEN_MAX];
            let length = link.receive(&mut answer, left(deadline)?)?;
            let (sequence, reply) = parse(&answer[..length])
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if sequence == self.sequence {
                self.link = Some(link);
                return Ok(reply);
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// How it is called in a message.
    pub(crate) fn whom(&self) -> String {
        match &self.address {
            ChronydAddress::Udp(address) => format!("chronyd at {address}"),
            ChronydAddress::Unix(path) => format!("chronyd at {}", path.display()),
        }
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
