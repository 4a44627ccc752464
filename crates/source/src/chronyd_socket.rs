//! Client of chronyd's command socket, over UDP or a Unix socket: one request and its reply at a
//! time. Only requests that change nothing are implemented.

use std::fs::{self, Permissions};
use std::io;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use horolog_wire::ParseError;
use horolog_wire::chrony::statistics::{self, ChronydStatistics, statistics_request};
use horolog_wire::chrony::{ChronydTrackingReply, TRACKING_LEN, tracking_request};

use crate::ChronydAddress;
use crate::system::{DAEMON_TIMEOUT, time_until, unspecified_address};

/// Most replies to earlier requests that are skipped before the request counts as unanswered.
const LATE_REPLIES_MAX: usize = 8;
/// Buffer size in bytes, above that of every known reply.
const REPLY_LEN_MAX: usize = 512;
const _: () = assert!(TRACKING_LEN < REPLY_LEN_MAX && statistics::STATISTICS_LEN < REPLY_LEN_MAX);
/// Counter that distinguishes the sockets of one process.
static SOCKETS: AtomicU32 = AtomicU32::new(0);

/// Client of a chronyd's command socket. It connects with the first request.
pub struct ChronydSocket {
    address: ChronydAddress,
    connection: Option<ChronydTransport>,
    sequence: u32,
}

impl ChronydSocket {
    /// Creates the client of the chronyd at `address`.
    #[must_use]
    pub const fn new(address: ChronydAddress) -> Self {
        Self { address, connection: None, sequence: 0 }
    }

    /// Requests the server statistics, which chronyd reports only over its Unix socket. The inner
    /// error is the status code of a refusal.
    pub fn statistics(&mut self) -> io::Result<Result<ChronydStatistics, u16>> {
        let parse = |bytes: &[u8]| {
            statistics::ChronydStatisticsReply::parse(bytes)
                .map(|reply| (reply.sequence, reply.statistics))
        };
        self.exchange(statistics_request, parse)
    }

    /// Requests the synchronisation status (`chronyc tracking`).
    pub(crate) fn tracking(&mut self) -> io::Result<ChronydTrackingReply> {
        let parse =
            |bytes: &[u8]| ChronydTrackingReply::parse(bytes).map(|reply| (reply.sequence, reply));
        self.exchange(tracking_request, parse)
    }

    fn exchange<R, const LEN: usize>(
        &mut self,
        request: impl Fn(u32) -> [u8; LEN],
        parse: impl Fn(&[u8]) -> Result<(u32, R), ParseError>,
    ) -> io::Result<R> {
        let connection = match self.connection.take() {
            Some(link) => link,
            None => ChronydTransport::open(&self.address)?,
        };
        self.sequence = self.sequence.wrapping_add(1);
        connection.send(&request(self.sequence))?;
        let deadline = Instant::now() + DAEMON_TIMEOUT;
        for _ in 0..LATE_REPLIES_MAX {
            let mut buffer = [0; REPLY_LEN_MAX];
            let length = connection.receive(&mut buffer, time_until(deadline)?)?;
            let (sequence, reply) = parse(&buffer[..length])
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if sequence == self.sequence {
                self.connection = Some(connection);
                return Ok(reply);
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Returns the name of this chronyd for messages.
    pub(crate) fn address_text(&self) -> String {
        match &self.address {
            ChronydAddress::Udp(address) => format!("chronyd at {address}"),
            ChronydAddress::Unix(path) => format!("chronyd at {}", path.display()),
        }
    }
}

/// Socket connected to chronyd.
enum ChronydTransport {
    Udp(UdpSocket),
    Unix(UnixDatagram, PathBuf),
}

impl ChronydTransport {
    fn open(address: &ChronydAddress) -> io::Result<Self> {
        match address {
            ChronydAddress::Udp(address) => {
                let socket = UdpSocket::bind(unspecified_address(*address))?;
                socket.connect(address)?;
                Ok(Self::Udp(socket))
            }
            ChronydAddress::Unix(path) => {
                // chronyd replies to the client's socket path; after dropping privileges it is
                // certain to reach only its own directory.
                let number = SOCKETS.fetch_add(1, Ordering::Relaxed);
                let own_path =
                    path.with_file_name(format!("horolog.{}.{number}.sock", std::process::id()));
                let socket = UnixDatagram::bind(&own_path)?;
                let connection = Self::Unix(socket, own_path);
                connection.connect_to(path)?;
                Ok(connection)
            }
        }
    }

    fn connect_to(&self, path: &PathBuf) -> io::Result<()> {
        let Self::Unix(socket, own_path) = self else { return Ok(()) };
        fs::set_permissions(own_path, Permissions::from_mode(0o666))?;
        socket.connect(path)?;
        // A stopped chronyd accepts no more datagrams once its queue is full.
        socket.set_write_timeout(Some(DAEMON_TIMEOUT))
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Udp(socket) => socket.send(bytes),
            Self::Unix(socket, _) => socket.send(bytes),
        }
    }

    fn receive(&self, buffer: &mut [u8], timeout: Duration) -> io::Result<usize> {
        match self {
            Self::Udp(socket) => {
                socket.set_read_timeout(Some(timeout))?;
                socket.recv(buffer)
            }
            Self::Unix(socket, _) => {
                socket.set_read_timeout(Some(timeout))?;
                socket.recv(buffer)
            }
        }
    }
}

impl Drop for ChronydTransport {
    fn drop(&mut self) {
        if let Self::Unix(_, own_path) = self {
            // A file that is already gone is no error.
            let _ = fs::remove_file(own_path);
        }
    }
}
