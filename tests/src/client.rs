//! A plain NTP client on a UDP socket in a private host: it asks, and checks what must hold for
//! every reply. It does not judge the time that it is told.

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

/// The system's clock as an NTP timestamp.
pub(crate) fn now() -> NtpTimestamp {
    NtpTimestamp::from_utc(ClockRealtime.now())
}

/// A request whose transmit timestamp is `token`.
pub(crate) fn request(version: u8, token: NtpTimestamp) -> [u8; HEADER_LEN] {
    let mut packet = [0; HEADER_LEN];
    Header::request(version, token).emit(&mut packet);
    packet
}

/// A socket in `host` with a port of its own, of the family that `server` has.
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

/// A reply, and when it was asked for and came by the system's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    /// What the server said.
    pub(crate) header: Header,
    /// When the request was sent (T1).
    pub(crate) sent: NtpTimestamp,
    /// When the reply was there (T4).
    pub(crate) received: NtpTimestamp,
}

impl Reply {
    /// How far the server's clock is ahead (RFC 5905, section 8).
    pub(crate) fn offset(&self) -> Span {
        let Header { receive, transmit, .. } = self.header;
        let there = receive.since(self.sent).as_ns();
        let back = transmit.since(self.received).as_ns();
        Span::from_ns(i64::midpoint(there, back))
    }
}

/// Asks once and returns the reply, of which everything has been checked but the time.
pub(crate) fn query(socket: &UdpSocket, server: SocketAddr) -> Result<Reply> {
    let sent = now();
    socket.send_to(&request(4, sent), server)?;
    let mut buffer = [0; 1024];
    let (length, from) =
        socket.recv_from(&mut buffer).with_context(|| format!("no reply of {server}"))?;
    let received = now();
    ensure!(from == server, "a reply came from {from}");
    ensure!(length == HEADER_LEN, "a reply of {length} bytes");
    let (header, _) = Header::parse(&buffer[..length])?;
    ensure!(header.mode == AssociationMode::Server && header.version == 4, "{header:?}");
    ensure!(header.origin == sent, "the reply is to another request: {header:?}");
    ensure!(header.transmit.since(header.receive) >= Span::ZERO, "{header:?}");
    Ok(Reply { header, sent, received })
}

/// Asks once, from a new socket in `host`.
pub(crate) fn query_from(host: &LabHost, server: SocketAddr) -> Result<Reply> {
    query(&socket(host, server, TIMEOUT)?, server)
}

/// A client that asks one request after the other until it is told to end.
pub(crate) struct SteadyClient {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<ClientOutcome>>,
}

/// Outcome of a [`SteadyClient`].
#[derive(Default)]
pub(crate) struct ClientOutcome {
    /// Requests that it made.
    pub(crate) requests: u64,
    /// Those that had a reply.
    pub(crate) answered: u64,
    first_loss: Option<anyhow::Error>,
}

impl SteadyClient {
    /// Asks from this socket, with such a pause after each reply.
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

    /// Ends it and tells how it fared.
    pub(crate) fn end(mut self) -> Result<ClientOutcome> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("it was ended before")?;
        thread.join().map_err(|_| anyhow!("the client panicked"))
    }
}

impl Drop for SteadyClient {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl ClientOutcome {
    /// How many requests were made; an error if one of them had no reply.
    pub(crate) fn all_answered(self) -> Result<u64> {
        self.first_loss.map_or(Ok(self.answered), Err)
    }
}
