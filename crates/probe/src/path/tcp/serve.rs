//! The far end: a listener that measures with whoever connects, within bounds, since it may stand
//! on the public internet. What it does on a connection is in `session.rs`.
//!
//! Connections are bounded in number, in number for each address, in time and in bytes, and all of
//! them together in the bytes of an hour; who asks for more is told so. Nothing is kept of anyone,
//! and nobody is sent more than was asked for on a connection that stands.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use horolog_record::PathEnd;
use horolog_sys::epoll::Epoll;
use horolog_sys::listen;

use super::bounds::Hour;
use super::protocol::Verdict;
use super::session;
use crate::path::serve::Counts;

/// Connections that wait to be taken.
const BACKLOG: u32 = 128;
/// Connections at a time that are told that there are too many; more are closed without a word.
const REFUSALS_MAX: usize = 16;
/// After a failure such as no descriptor left, a new look not at once.
const PAUSE: Duration = Duration::from_millis(5);
const CAME: u64 = 0;
const STOPPED: u64 = 1;
const IDLE: Duration = Duration::from_hours(1);

/// How much strangers may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpLimits {
    /// Connections at a time.
    pub connections: u32,
    /// Connections at a time of one address.
    pub connections_of_address: u32,
    /// How long one may last.
    pub time: Duration,
    /// Bytes of payload that one carries, there and back.
    pub bytes: u64,
    /// Bytes that all together carry in an hour.
    pub bytes_in_hour: u64,
    /// Bytes of a message.
    pub message_bytes: u32,
}

impl Default for TcpLimits {
    fn default() -> Self {
        Self {
            connections: 128,
            connections_of_address: 64,
            time: Duration::from_mins(2),
            bytes: 16 << 30,
            bytes_in_hour: 256 << 30,
            message_bytes: super::MESSAGE_BYTES_MAX as u32,
        }
    }
}

/// A far end.
#[derive(Clone, Debug, Default)]
pub struct FarEndSettings {
    /// Its bounds.
    pub limits: TcpLimits,
    /// Whether it keeps the facts about its machine to itself.
    pub is_discreet: bool,
}

/// What all connections of a far end share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: FarEndSettings,
    pub(super) hour: Hour,
    pub(super) books: Books,
}

/// What was done for connections, in numbers by name.
#[derive(Debug)]
pub(super) struct Books(Mutex<Counts>);

impl Default for Books {
    fn default() -> Self {
        let names = ["served", "too many", "over a limit", "malformed", "bytes carried"];
        Self(Mutex::new(names.map(|name| (name, 0)).into()))
    }
}

impl Books {
    fn add(&self, name: &'static str, count: u64) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(name).or_default() += count;
    }

    /// Counts what was answered to a greeting.
    pub(super) fn verdict(&self, verdict: Verdict) {
        let name = match verdict {
            Verdict::Accepted => "served",
            Verdict::Busy | Verdict::BusyForAddress => "too many",
            Verdict::TooLong | Verdict::TooLarge | Verdict::Spent => "over a limit",
            Verdict::Malformed => "malformed",
        };
        self.add(name, 1);
    }

    /// Counts the payload of a connection, there and back, in bytes.
    pub(super) fn carried(&self, bytes: u64) {
        self.add("bytes carried", bytes);
    }
}

/// A far end that runs; dropping it closes its connections and ends its threads.
#[derive(Debug)]
pub struct TcpFarEnd {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Closing it stops the thread.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// Measures with whoever connects to `listen`, until the value is dropped.
///
/// # Errors
///
/// When the address cannot be listened at, or a thread cannot be started.
pub fn serve(listen: SocketAddr, settings: FarEndSettings) -> io::Result<TcpFarEnd> {
    let listener = listen::tcp(listen, BACKLOG)?;
    let address = listener.local_addr()?;
    let (alive, closed) = UnixStream::pair()?;
    let mut events = Epoll::new(2)?;
    events.add(listener.as_fd(), CAME)?;
    events.add(closed.as_fd(), STOPPED)?;
    let hour = Hour::new(settings.limits.bytes_in_hour, Instant::now());
    let shared = Arc::new(Shared { settings, hour, books: Books::default() });
    let of_thread = Arc::clone(&shared);
    let work = move || {
        let _closed = closed;
        let mut open = Open::default();
        while let Ok(false) =
            events.wait(IDLE).map(|mut tokens| tokens.any(|token| token == STOPPED))
        {
            open.take_in(&listener, &of_thread);
        }
        open.end();
    };
    let thread = thread::Builder::new().name("path-tcp".to_owned()).spawn(work)?;
    Ok(TcpFarEnd { address, shared, alive: Some(alive), thread: Some(thread) })
}

impl TcpFarEnd {
    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether its thread has ended without being told to.
    #[must_use]
    pub fn has_died(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Closes its connections and ends its threads; what was counted.
    #[must_use]
    pub fn end(mut self) -> Counts {
        self.stop();
        self.shared.books.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn stop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so on stderr; there is nothing to add here.
            let _ = thread.join();
        }
    }
}

impl Drop for TcpFarEnd {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The connections that are open, each with its thread.
#[derive(Default)]
struct Open {
    served: Vec<Served>,
    refused: Vec<Served>,
}

struct Served {
    address: IpAddr,
    stream: Weak<TcpStream>,
    thread: JoinHandle<()>,
}

impl Open {
    fn take_in(&mut self, listener: &TcpListener, shared: &Arc<Shared>) {
        let (stream, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => return thread::sleep(PAUSE),
        };
        let from = from.ip().to_canonical();
        self.served.retain(|one| !one.thread.is_finished());
        self.refused.retain(|one| !one.thread.is_finished());
        let limits = &shared.settings.limits;
        let of_address = self.served.iter().filter(|one| one.address == from).count();
        let (verdict, limit) = if self.served.len() >= limits.connections as usize {
            (Verdict::Busy, limits.connections)
        } else if of_address >= limits.connections_of_address as usize {
            (Verdict::BusyForAddress, limits.connections_of_address)
        } else {
            (Verdict::Accepted, 0)
        };
        let list = if verdict == Verdict::Accepted { &mut self.served } else { &mut self.refused };
        if verdict != Verdict::Accepted && list.len() >= REFUSALS_MAX {
            shared.books.verdict(verdict);
            return;
        }
        let (stream, shared) = (Arc::new(stream), Arc::clone(shared));
        let held = Arc::downgrade(&stream);
        // Whatever ends a connection is the near end's to tell; it sees that it ended.
        let work = move || drop(session::run(&stream, &shared, (verdict, limit)));
        match thread::Builder::new().name("path-tcp-one".to_owned()).spawn(work) {
            Ok(thread) => list.push(Served { address: from, stream: held, thread }),
            Err(_) => thread::sleep(PAUSE),
        }
    }

    fn end(self) {
        let all: Vec<_> = self.served.into_iter().chain(self.refused).collect();
        for one in &all {
            if let Some(stream) = one.stream.upgrade() {
                // It may be closed already.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        for one in all {
            let _ = one.thread.join();
        }
    }
}

impl FarEndSettings {
    /// What it tells of its machine on a connection.
    pub(super) fn facts(&self, stream: &TcpStream) -> PathEnd {
        if self.is_discreet {
            PathEnd { program: Some(super::facts::program()), ..PathEnd::default() }
        } else {
            super::facts::near_end(stream)
        }
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
