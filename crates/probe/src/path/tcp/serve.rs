//! Far end: a listener that measures with any client, within bounds, since it may be on the public
//! Internet. The work on a connection is in `session.rs`.
//!
//! Connections are limited in number, in number per address, in time and in bytes, and all of them
//! together in bytes per hour; a client that exceeds a limit gets a refusal with that limit. No
//! client data is stored, and data is sent only on established connections, no more than requested.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use horolog_record::PathEndpoint;
use horolog_sys::epoll::Epoll;
use horolog_sys::listen;

use super::bounds::HourlyBudget;
use super::protocol::AdmissionVerdict;
use super::session;
use crate::path::serve::ServiceCounts;

/// Listen backlog.
const BACKLOG: u32 = 128;
/// Refusals sent at a time to clients above the connection limit; further connections are closed
/// without a response.
const REFUSALS_MAX: usize = 16;
/// Pause after an accept failure, such as no free descriptor.
const PAUSE: Duration = Duration::from_millis(5);
const INCOMING: u64 = 0;
const STOPPED: u64 = 1;
const IDLE: Duration = Duration::from_hours(1);

/// Limits of the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpLimits {
    /// Connections at a time.
    pub connections: u32,
    /// Connections at a time per address.
    pub connections_of_address: u32,
    /// Longest time of a connection.
    pub time: Duration,
    /// Bytes of payload on one connection, in both directions.
    pub bytes: u64,
    /// Bytes on all connections per hour.
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

/// Settings of a far end.
#[derive(Clone, Debug, Default)]
pub struct FarEndSettings {
    /// Limits.
    pub limits: TcpLimits,
    /// True to withhold the facts of its host.
    pub hides_host_facts: bool,
}

/// State shared by all connections of a far end.
#[derive(Debug)]
pub(super) struct FarEndState {
    pub(super) settings: FarEndSettings,
    pub(super) hour: HourlyBudget,
    pub(super) counters: ServiceCounters,
}

/// Counts of the service, by name.
#[derive(Debug)]
pub(super) struct ServiceCounters(Mutex<ServiceCounts>);

impl Default for ServiceCounters {
    fn default() -> Self {
        let names = ["served", "too many", "over a limit", "malformed", "bytes carried"];
        Self(Mutex::new(names.map(|name| (name, 0)).into()))
    }
}

impl ServiceCounters {
    fn add(&self, name: &'static str, count: u64) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(name).or_default() += count;
    }

    /// Counts the verdict on a greeting.
    pub(super) fn verdict(&self, verdict: AdmissionVerdict) {
        let name = match verdict {
            AdmissionVerdict::Accepted => "served",
            AdmissionVerdict::Busy | AdmissionVerdict::BusyForAddress => "too many",
            AdmissionVerdict::TooLong
            | AdmissionVerdict::TooLarge
            | AdmissionVerdict::BudgetExhausted => "over a limit",
            AdmissionVerdict::Malformed => "malformed",
        };
        self.add(name, 1);
    }

    /// Counts the payload of a connection in bytes, in both directions.
    pub(super) fn carried(&self, bytes: u64) {
        self.add("bytes carried", bytes);
    }
}

/// Running far end; dropping it closes its connections and ends its threads.
#[derive(Debug)]
pub struct TcpFarEnd {
    address: SocketAddr,
    shared: Arc<FarEndState>,
    /// Closing it stops the thread.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// Measures with any client that connects to `listen`, until the value is dropped.
///
/// # Errors
///
/// If the address cannot be listened at, or a thread cannot be started.
pub fn serve(listen: SocketAddr, settings: FarEndSettings) -> io::Result<TcpFarEnd> {
    let listener = listen::listen_tcp(listen, BACKLOG)?;
    let address = listener.local_addr()?;
    let (alive, closed) = UnixStream::pair()?;
    let mut events = Epoll::new(2)?;
    events.add(listener.as_fd(), INCOMING)?;
    events.add(closed.as_fd(), STOPPED)?;
    let hour = HourlyBudget::new(settings.limits.bytes_in_hour, Instant::now());
    let shared = Arc::new(FarEndState { settings, hour, counters: ServiceCounters::default() });
    let of_thread = Arc::clone(&shared);
    let work = move || {
        let _closed = closed;
        let mut open = OpenConnections::default();
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
    /// Returns the listen address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns true if its thread has ended by itself.
    #[must_use]
    pub fn has_died(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Closes its connections and ends its threads; returns the counts.
    #[must_use]
    pub fn end(mut self) -> ServiceCounts {
        self.stop();
        self.shared.counters.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn stop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has reported it on stderr; there is nothing to add here.
            let _ = thread.join();
        }
    }
}

impl Drop for TcpFarEnd {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Open connections, each with its thread.
#[derive(Default)]
struct OpenConnections {
    served: Vec<ServedConnection>,
    refused: Vec<ServedConnection>,
}

struct ServedConnection {
    address: IpAddr,
    stream: Weak<TcpStream>,
    thread: JoinHandle<()>,
}

impl OpenConnections {
    fn take_in(&mut self, listener: &TcpListener, shared: &Arc<FarEndState>) {
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
            (AdmissionVerdict::Busy, limits.connections)
        } else if of_address >= limits.connections_of_address as usize {
            (AdmissionVerdict::BusyForAddress, limits.connections_of_address)
        } else {
            (AdmissionVerdict::Accepted, 0)
        };
        let list = if verdict == AdmissionVerdict::Accepted {
            &mut self.served
        } else {
            &mut self.refused
        };
        if verdict != AdmissionVerdict::Accepted && list.len() >= REFUSALS_MAX {
            shared.counters.verdict(verdict);
            return;
        }
        let (stream, shared) = (Arc::new(stream), Arc::clone(shared));
        let held = Arc::downgrade(&stream);
        // The near end reports the reason for the end of a connection.
        let work = move || drop(session::run(&stream, &shared, (verdict, limit)));
        match thread::Builder::new().name("path-tcp-one".to_owned()).spawn(work) {
            Ok(thread) => list.push(ServedConnection { address: from, stream: held, thread }),
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
    /// Returns the facts of its host for a connection.
    pub(super) fn facts(&self, stream: &TcpStream) -> PathEndpoint {
        if self.hides_host_facts {
            PathEndpoint { program: Some(super::facts::program()), ..PathEndpoint::default() }
        } else {
            super::facts::near_end(stream)
        }
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
