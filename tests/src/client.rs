//! Plain NTP client on a UDP socket in a lab host: sends requests, and checks the properties that
//! every reply must have. It does not judge the time in a reply.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use horolog_lab::LabHost;
use horolog_sys::clock::ClockRealtime;
use horolog_time::{Clock, NtpTimestamp, Span};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header};

const TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the system time as an NTP timestamp.
pub(crate) fn now() -> NtpTimestamp {
    NtpTimestamp::from_utc(ClockRealtime.now())
}

/// Returns a request whose transmit timestamp is `token`.
pub(crate) fn request(version: u8, token: NtpTimestamp) -> [u8; HEADER_LEN] {
    let mut packet = [0; HEADER_LEN];
    Header::request(version, token).emit(&mut packet);
    packet
}

/// Opens a socket in `host` with an ephemeral port, of the address family of `server`.
pub(crate) fn socket(
    host: &LabHost,
    server: SocketAddr,
    read_timeout: Duration,
) -> Result<UdpSocket> {
    let any: SocketAddr = if server.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = host.run(|| UdpSocket::bind(any))??;
    socket.set_read_timeout(Some(read_timeout))?;
    Ok(socket)
}

/// Reply with its timestamps by the system clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    /// Header of the reply.
    pub(crate) header: Header,
    /// Transmit time of the request (T1).
    pub(crate) sent: NtpTimestamp,
    /// Receive time of the reply (T4).
    pub(crate) received: NtpTimestamp,
}

impl Reply {
    /// Returns the offset of the server's clock, positive if ahead (RFC 5905, section 8).
    pub(crate) fn offset(&self) -> Span {
        let Header { receive, transmit, .. } = self.header;
        let forward = receive.since(self.sent).as_ns();
        let backward = transmit.since(self.received).as_ns();
        Span::from_ns(i64::midpoint(forward, backward))
    }

    /// Returns true if the offset is `expected`, but for `error_max` and for what the paths may
    /// contribute.
    pub(crate) fn has_offset(&self, expected: Span, error_max: Span) -> bool {
        let bound = error_max + self.path_error_max();
        (-bound..=bound).contains(&(self.offset() - expected))
    }

    /// Returns the largest error of [`Self::offset`] that the paths may cause: half of the round
    /// trip, which is long where client or server waits for a core.
    pub(crate) fn path_error_max(&self) -> Span {
        Span::from_ns(self.received.since(self.sent).as_ns() / 2)
    }
}

/// Sends a request and returns its reply, which is checked except for its time.
pub(crate) fn query(socket: &UdpSocket, server: SocketAddr) -> Result<Reply> {
    let sent = now();
    socket.send_to(&request(4, sent), server)?;
    let mut buffer = [0; 1024];
    let (length, from) =
        socket.recv_from(&mut buffer).with_context(|| format!("no reply from {server}"))?;
    let received = now();
    ensure!(from == server, "reply from {from}, not {server}");
    ensure!(length == HEADER_LEN, "the reply has {length} bytes");
    let (header, _) = Header::parse(&buffer[..length])?;
    ensure!(header.mode == AssociationMode::Server && header.version == 4, "{header:?}");
    ensure!(header.origin == sent, "the reply is to another request: {header:?}");
    ensure!(header.transmit.since(header.receive) >= Span::ZERO, "{header:?}");
    Ok(Reply { header, sent, received })
}

/// Sends one request from a new socket in `host`.
pub(crate) fn query_from(host: &LabHost, server: SocketAddr) -> Result<Reply> {
    query(&socket(host, server, TIMEOUT)?, server)
}

/// Client that sends one request after the other until it is ended.
pub(crate) struct SteadyClient {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<ClientOutcome>>,
}

/// Outcome of a [`SteadyClient`].
#[derive(Default)]
pub(crate) struct ClientOutcome {
    /// Requests sent.
    pub(crate) requests: u64,
    /// Requests with a reply.
    pub(crate) answered: u64,
    first_loss: Option<anyhow::Error>,
}

impl SteadyClient {
    /// Starts to send from this socket, with this pause after each reply.
    pub(crate) fn start(socket: UdpSocket, server: SocketAddr, pause: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut all = ClientOutcome::default();
            while !stopped.load(Ordering::Relaxed) {
                let reply = query(&socket, server);
                all.requests += 1;
                all.answered += u64::from(reply.is_ok());
                let lost =
                    reply.err().map(|error| error.context(format!("request {}", all.requests)));
                all.first_loss = all.first_loss.or(lost);
                thread::sleep(pause);
            }
            all
        });
        Self { stop, thread: Some(thread) }
    }

    /// Ends the client and returns its outcome.
    pub(crate) fn end(mut self) -> Result<ClientOutcome> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("the client has already ended")?;
        thread.join().map_err(|_| anyhow!("the client panicked"))
    }
}

impl Drop for SteadyClient {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl ClientOutcome {
    /// Returns the number of requests; fails if one of them had no reply.
    pub(crate) fn all_answered(self) -> Result<u64> {
        self.first_loss.map_or(Ok(self.answered), Err)
    }
}
