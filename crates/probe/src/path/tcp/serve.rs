//! TCP far end: a listener that measures with any client, within limits, since it may be on the
//! public Internet. The jobs on a connection are in `session.rs`.
//!
//! Limits: connections in total and per address, time and bytes per connection, and bytes per hour
//! of all connections. A client above a limit gets a refusal that states it. Nothing is stored
//! about clients, and no more data is sent than requested.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use horolog_record::PathEndFacts;
use horolog_sys::epoll::Epoll;
use horolog_sys::listen;

use super::bounds::HourlyByteBudget;
use super::protocol::AdmissionVerdict;
use super::session;
use crate::path::serve::FarEndServiceCounts;

/// Listen backlog.
const BACKLOG: u32 = 128;
/// Maximum number of refusals in progress; further connections above the limit are closed without a
/// response.
const REFUSALS_MAX: usize = 16;
/// Pause after an accept failure, such as no free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);
const LISTENER_TOKEN: u64 = 0;
const STOP_TOKEN: u64 = 1;
const EPOLL_TIMEOUT: Duration = Duration::from_hours(1);

/// Limits of the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpFarEndLimits {
    /// Maximum number of concurrent connections.
    pub connections: u32,
    /// Maximum number of concurrent connections per address.
    pub connections_per_address: u32,
    /// Maximum duration of a job.
    pub time: Duration,
    /// Maximum payload of one connection in bytes, both directions together.
    pub bytes: u64,
    /// Maximum payload of all connections per hour, in bytes.
    pub bytes_per_hour: u64,
    /// Maximum size of a message in bytes.
    pub message_bytes: u32,
}

impl Default for TcpFarEndLimits {
    fn default() -> Self {
        Self {
            connections: 128,
            connections_per_address: 64,
            time: Duration::from_mins(2),
            bytes: 16 << 30,
            bytes_per_hour: 256 << 30,
            message_bytes: super::MESSAGE_BYTES_MAX as u32,
        }
    }
}

/// Settings of a TCP far end.
#[derive(Clone, Debug, Default)]
pub struct TcpFarEndSettings {
    /// Limits of connections, time and bytes.
    pub limits: TcpFarEndLimits,
    /// True to send no facts about the host but the program version.
    pub hides_host_facts: bool,
}

/// State shared by all connections of a far end.
#[derive(Debug)]
pub(super) struct TcpFarEndState {
    pub(super) settings: TcpFarEndSettings,
    pub(super) hourly_budget: HourlyByteBudget,
    pub(super) counters: FarEndServiceCounters,
}

/// Counters of the service, by name.
#[derive(Debug)]
pub(super) struct FarEndServiceCounters(Mutex<FarEndServiceCounts>);

impl Default for FarEndServiceCounters {
    fn default() -> Self {
        let names = ["served", "too many", "over a limit", "malformed", "bytes carried"];
        Self(Mutex::new(names.map(|name| (name, 0)).into()))
    }
}

impl FarEndServiceCounters {
    fn add(&self, name: &'static str, count: u64) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(name).or_default() += count;
    }

    /// Counts the verdict on a hello.
    pub(super) fn count_verdict(&self, verdict: AdmissionVerdict) {
        let name = match verdict {
            AdmissionVerdict::Accepted => "served",
            AdmissionVerdict::ConnectionLimit | AdmissionVerdict::AddressConnectionLimit => {
                "too many"
            }
            AdmissionVerdict::TooLong
            | AdmissionVerdict::TooLarge
            | AdmissionVerdict::BudgetExhausted => "over a limit",
            AdmissionVerdict::InvalidHello => "malformed",
        };
        self.add(name, 1);
    }

    /// Counts the payload of a connection in bytes, in both directions.
    pub(super) fn count_payload(&self, bytes: u64) {
        self.add("bytes carried", bytes);
    }
}

/// Running far end; dropping it closes its connections and ends its threads.
#[derive(Debug)]
pub struct RunningTcpFarEnd {
    address: SocketAddr,
    shared: Arc<TcpFarEndState>,
    /// Dropping it stops the thread.
    stop_signal: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a far end that serves clients at `listen` until it is dropped.
///
/// # Errors
///
/// If the address cannot be listened on, or a thread cannot be started.
pub fn serve(listen: SocketAddr, settings: TcpFarEndSettings) -> io::Result<RunningTcpFarEnd> {
    let listener = listen::listen_tcp(listen, BACKLOG)?;
    let address = listener.local_addr()?;
    let (alive, closed) = UnixStream::pair()?;
    let mut events = Epoll::new(2)?;
    events.add(listener.as_fd(), LISTENER_TOKEN)?;
    events.add(closed.as_fd(), STOP_TOKEN)?;
    let hour = HourlyByteBudget::new(settings.limits.bytes_per_hour, Instant::now());
    let shared = Arc::new(TcpFarEndState {
        settings,
        hourly_budget: hour,
        counters: FarEndServiceCounters::default(),
    });
    let thread_state = Arc::clone(&shared);
    let work = move || {
        let _closed = closed;
        let mut open = OpenConnections::default();
        while let Ok(false) =
            events.wait(EPOLL_TIMEOUT).map(|mut tokens| tokens.any(|token| token == STOP_TOKEN))
        {
            open.accept_connection(&listener, &thread_state);
        }
        open.close_all();
    };
    let thread = thread::Builder::new().name("path-tcp".to_owned()).spawn(work)?;
    Ok(RunningTcpFarEnd { address, shared, stop_signal: Some(alive), thread: Some(thread) })
}

impl RunningTcpFarEnd {
    /// Returns the listen address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns true if the listener's thread has ended without request.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Closes all connections, stops the threads and returns the counts.
    #[must_use]
    pub fn shut_down(mut self) -> FarEndServiceCounts {
        self.stop();
        self.shared.counters.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn stop(&mut self) {
        drop(self.stop_signal.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has reported it on stderr; there is nothing to add here.
            let _ = thread.join();
        }
    }
}

impl Drop for RunningTcpFarEnd {
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
    fn accept_connection(&mut self, listener: &TcpListener, shared: &Arc<TcpFarEndState>) {
        let (stream, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => return thread::sleep(ACCEPT_PAUSE),
        };
        let from = from.ip().to_canonical();
        self.served.retain(|one| !one.thread.is_finished());
        self.refused.retain(|one| !one.thread.is_finished());
        let limits = &shared.settings.limits;
        let of_address = self.served.iter().filter(|one| one.address == from).count();
        let (verdict, limit) = if self.served.len() >= limits.connections as usize {
            (AdmissionVerdict::ConnectionLimit, limits.connections)
        } else if of_address >= limits.connections_per_address as usize {
            (AdmissionVerdict::AddressConnectionLimit, limits.connections_per_address)
        } else {
            (AdmissionVerdict::Accepted, 0)
        };
        let list = if verdict == AdmissionVerdict::Accepted {
            &mut self.served
        } else {
            &mut self.refused
        };
        if verdict != AdmissionVerdict::Accepted && list.len() >= REFUSALS_MAX {
            shared.counters.count_verdict(verdict);
            return;
        }
        let (stream, shared) = (Arc::new(stream), Arc::clone(shared));
        let weak_stream = Arc::downgrade(&stream);
        // Errors are dropped: the near end reports why a connection ended.
        let work = move || drop(session::serve_connection(&stream, &shared, (verdict, limit)));
        match thread::Builder::new().name("path-tcp-one".to_owned()).spawn(work) {
            Ok(thread) => {
                list.push(ServedConnection { address: from, stream: weak_stream, thread });
            }
            Err(_) => thread::sleep(ACCEPT_PAUSE),
        }
    }

    fn close_all(self) {
        let all: Vec<_> = self.served.into_iter().chain(self.refused).collect();
        for one in &all {
            if let Some(stream) = one.stream.upgrade() {
                // Fails if the connection is closed already.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        for one in all {
            let _ = one.thread.join();
        }
    }
}

impl TcpFarEndSettings {
    /// Returns the facts about this host that are sent on a connection.
    pub(super) fn facts(&self, stream: &TcpStream) -> PathEndFacts {
        if self.hides_host_facts {
            PathEndFacts {
                program: Some(super::facts::program_version()),
                ..PathEndFacts::default()
            }
        } else {
            super::facts::near_end(stream)
        }
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
