//! Thread of the listener: accepts connections and advances them in an epoll loop. No step blocks;
//! each ready connection gets one read per turn, or two after its response.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read};
use std::mem;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use horolog_sys::affinity;
use horolog_sys::epoll::Epoll;
use rustls::ServerConnection;

use super::connection::{
    ConnectionContext, ConnectionStep, NtsKeConnection, OutcomeCounterSelector,
};
use super::counters::count;
use super::prefix_limiter::{ClientPrefix, LimitExceeded};
use super::{BACKLOG, ConfigWithSockets, NtsKeListeningSocket, NtsKeServerState};

/// Largest number of epoll events per wait.
const EVENTS_MAX: usize = 64;
/// Largest number of connections accepted per event, before open connections are advanced.
const ACCEPT_BATCH: u32 = 4;
/// Nice increment of this thread, so that it gets about a tenth of a core that it shares with an
/// NTP thread.
const NICE_INCREMENT: u8 = 10;
/// Pause of accepting after a lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const WAKE_TOKEN: u64 = u64::MAX;
/// Epoll token of the first listening socket; smaller tokens are slots of the table.
const FIRST_LISTENER_TOKEN: u64 = 1 << 32;

pub(crate) struct NtsKeWorker {
    shared: Arc<NtsKeServerState>,
    settings: Arc<ConfigWithSockets>,
    epoll: Epoll,
    wake_socket: UnixStream,
    table: ConnectionTable,
    /// End of the current pause, in which listening sockets are not in the epoll set.
    paused_until: Option<Instant>,
}

impl NtsKeWorker {
    pub(crate) fn new(shared: Arc<NtsKeServerState>, wake_socket: UnixStream) -> io::Result<Self> {
        wake_socket.set_nonblocking(true)?;
        let epoll = Epoll::new(EVENTS_MAX)?;
        epoll.add(wake_socket.as_fd(), WAKE_TOKEN)?;
        let settings = shared.settings.load_full();
        let worker = Self {
            shared,
            settings,
            epoll,
            wake_socket,
            table: ConnectionTable::default(),
            paused_until: None,
        };
        worker.register_listeners()?;
        Ok(worker)
    }

    /// Runs until it is stopped.
    pub(crate) fn run(mut self) {
        // Not essential: without it, handshakes compete equally with NTP threads.
        let _ = affinity::increase_nice(NICE_INCREMENT);
        let mut ready = Vec::with_capacity(EVENTS_MAX);
        while !self.shared.stop.load(Acquire) {
            ready.clear();
            let wait = self.time_to_deadline(Instant::now());
            match self.epoll.wait_in_milliseconds(wait) {
                Ok(tokens) => ready.extend(tokens),
                // Not expected; the sleep prevents a busy loop.
                Err(_) => std::thread::sleep(ACCEPT_PAUSE),
            }
            for &token in &ready {
                match token {
                    WAKE_TOKEN => self.handle_wakeup(),
                    FIRST_LISTENER_TOKEN.. => {
                        self.accept_batch((token - FIRST_LISTENER_TOKEN) as usize);
                    }
                    slot => self.advance(slot as usize),
                }
            }
            self.close_expired(Instant::now());
        }
        self.settings = self.shared.settings.load_full();
        while let Some((_, slot)) = self.table.oldest() {
            self.close(slot, |counters| &counters.broken);
        }
    }

    fn time_to_deadline(&self, now: Instant) -> Option<Duration> {
        let timeout = self.settings.config.limits.timeout;
        let deadline = self.table.oldest().map(|(opened, _)| opened + timeout);
        let next = deadline.into_iter().chain(self.paused_until).min()?;
        Some(next.saturating_duration_since(now))
    }

    /// Closes connections that exceed the timeout, and ends an expired pause.
    fn close_expired(&mut self, now: Instant) {
        let timeout = self.settings.config.limits.timeout;
        while let Some((opened, slot)) = self.table.oldest() {
            if now.saturating_duration_since(opened) < timeout {
                break;
            }
            if let Some(connection) = self.table.get(slot) {
                connection.send_timeout_error();
            }
            self.close(slot, |counters| &counters.timed_out);
        }
        if self.paused_until.is_some_and(|until| until <= now) {
            self.paused_until = None;
            if self.register_listeners().is_err() {
                self.pause_accepting();
            }
        }
    }

    /// Handles a wake-up: the settings have changed, or the thread must stop.
    fn handle_wakeup(&mut self) {
        while matches!(self.wake_socket.read(&mut [0; 64]), Ok(1..)) {}
        self.unregister_listeners();
        let previous = mem::replace(&mut self.settings, self.shared.settings.load_full());
        for old in &previous.listeners {
            if !self.settings.listeners.iter().any(|current| Arc::ptr_eq(current, old)) {
                // Closing the socket, by the last thread that drops it, resets the connections in
                // its accept queue.
                self.accept_from(old, BACKLOG);
            }
        }
        self.paused_until = None;
        if self.register_listeners().is_err() {
            self.pause_accepting();
        }
        self.shared.applied_count.fetch_add(1, AcqRel);
    }

    fn register_listeners(&self) -> io::Result<()> {
        for (token, listener) in (FIRST_LISTENER_TOKEN..).zip(&self.settings.listeners) {
            self.epoll.add_shared(listener.socket.as_fd(), token)?;
        }
        Ok(())
    }

    fn unregister_listeners(&self) {
        for listener in &self.settings.listeners {
            // Fails during a pause, when the socket is not in the set.
            let _ = self.epoll.remove(listener.socket.as_fd());
        }
    }

    fn pause_accepting(&mut self) {
        self.unregister_listeners();
        self.paused_until = Some(Instant::now() + ACCEPT_PAUSE);
    }

    fn accept_batch(&mut self, listener: usize) {
        if let Some(listener) = self.settings.listeners.get(listener).map(Arc::clone) {
            self.accept_from(&listener, ACCEPT_BATCH);
        }
    }

    /// Accepts up to `most` connections from the accept queue; pauses accepting after a failure,
    /// such as a lack of descriptors.
    fn accept_from(&mut self, listener: &NtsKeListeningSocket, most: u32) {
        for _ in 0..most {
            match accept_nonblocking(&listener.socket) {
                Ok((stream, peer)) => {
                    count(&self.shared.counters.accepted);
                    self.admit(stream, peer);
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    // The client has closed already.
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    _ => {
                        count(&self.shared.counters.accept_failed);
                        return self.pause_accepting();
                    }
                },
            }
        }
    }

    /// Checks the limits, then adds a connection to the table; a refused connection is dropped and
    /// counted.
    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        let (now, prefix) = (Instant::now(), ClientPrefix::from_address(peer.ip()));
        let limits = self.settings.config.limits;
        let counters = &self.shared.counters;
        match self.shared.prefix_limiter.admit(prefix, &limits, now) {
            Ok(()) => {}
            Err(LimitExceeded::Concurrent) => return count(&counters.refused_concurrent),
            Err(LimitExceeded::Rate) => return count(&counters.refused_rate),
        }
        if !self.reserve_connection(limits.connections, limits.eviction_age, now) {
            self.shared.prefix_limiter.release(prefix, now);
            return count(&self.shared.counters.refused_full);
        }
        let Ok(tls) = ServerConnection::new(Arc::clone(&self.shared.tls)) else {
            self.shared.release_connection(prefix, now);
            return count(&self.shared.counters.handshake_failed);
        };
        let slot = self.table.insert(NtsKeConnection::new(stream, tls, now, prefix));
        let added = self.table.get(slot).map(|new| self.epoll.add(new.as_fd(), slot as u64));
        if matches!(added, Some(Ok(()))) {
            // The client's first message has often arrived already.
            self.advance(slot);
        } else {
            self.close(slot, |counters| &counters.accept_failed);
        }
    }

    /// Reserves one of `connections`. If all are in use, closes this thread's oldest connection, if
    /// its age is at least `timeout`. Returns true on success.
    fn reserve_connection(&mut self, connections: usize, timeout: Duration, now: Instant) -> bool {
        let increment = |open: usize| (open < connections).then_some(open + 1);
        for _ in 0..2 {
            if self.shared.open_connections.fetch_update(AcqRel, Relaxed, increment).is_ok() {
                return true;
            }
            match self.table.oldest() {
                Some((opened, slot)) if now.saturating_duration_since(opened) >= timeout => {
                    self.close(slot, |counters| &counters.crowded_out);
                }
                _ => return false,
            }
        }
        false
    }

    fn advance(&mut self, slot: usize) {
        let Some(connection) = self.table.get(slot) else { return };
        let context = ConnectionContext {
            config: &self.settings.config,
            cookie_provider: &*self.shared.cookie_provider,
            counters: &self.shared.counters,
        };
        match connection.advance(&context) {
            ConnectionStep::Wait { wants_write: write } if write == connection.watches_write => {}
            ConnectionStep::Wait { wants_write: write } => {
                connection.watches_write = write;
                let watched = self.epoll.watch_write(connection.as_fd(), slot as u64, write);
                if watched.is_err() {
                    self.close(slot, |counters| &counters.broken);
                }
            }
            ConnectionStep::Close => self.close(slot, |counters| &counters.broken),
        }
    }

    /// Closes a connection, and counts `reason` if it has no outcome yet.
    fn close(&mut self, slot: usize, reason: OutcomeCounterSelector) {
        if let Some(mut connection) = self.table.remove(slot) {
            connection.count_outcome(reason, &self.shared.counters);
            self.shared.release_connection(connection.prefix, Instant::now());
        }
    }
}

fn accept_nonblocking(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, peer) = listener.accept()?;
    stream.set_nonblocking(true)?;
    Ok((stream, peer))
}

impl NtsKeServerState {
    /// Releases the resources of a connection.
    fn release_connection(&self, prefix: ClientPrefix, now: Instant) {
        self.prefix_limiter.release(prefix, now);
        self.open_connections.fetch_sub(1, Release);
    }
}

#[derive(Default)]
pub(crate) struct ConnectionTable {
    slots: Vec<Option<NtsKeConnection>>,
    free: Vec<usize>,
    by_age: BTreeSet<(Instant, usize)>,
}

impl ConnectionTable {
    pub(crate) fn insert(&mut self, connection: NtsKeConnection) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.by_age.insert((connection.opened, slot));
        self.slots[slot] = Some(connection);
        slot
    }

    /// Returns the connection in a slot; `None` if it was closed after its event was reported.
    pub(crate) fn get(&mut self, slot: usize) -> Option<&mut NtsKeConnection> {
        self.slots.get_mut(slot)?.as_mut()
    }

    pub(crate) fn remove(&mut self, slot: usize) -> Option<NtsKeConnection> {
        let connection = self.slots.get_mut(slot)?.take()?;
        self.by_age.remove(&(connection.opened, slot));
        self.free.push(slot);
        Some(connection)
    }

    /// Returns the start and the slot of the oldest connection; `None` without connections.
    pub(crate) fn oldest(&self) -> Option<(Instant, usize)> {
        self.by_age.first().copied()
    }
}
