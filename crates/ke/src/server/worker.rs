//! A thread that accepts connections and drives them. Every step is bounded: it never waits for one
//! client, and each client gets one read at a time, or two after its response.

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

use super::connection::{ConnectionContext, ConnectionOutcome, ConnectionStep, KeConnection};
use super::counters::count;
use super::prefix_limiter::{ClientPrefix, LimitExceeded};
use super::table::ConnectionTable;
use super::{BACKLOG, KeListener, KeServerState, Settings};

/// Greatest number of events fetched at a time.
const EVENTS: usize = 64;
/// Greatest number of connections accepted at a time, between steps of the open ones.
const ACCEPTED_AT_A_TIME: u32 = 4;
/// Nice increment relative to the NTP threads: if both need a core, handshakes get a tenth of it.
const STEPS_BACK: u8 = 10;
/// Pause of accepting after the system had no descriptor or memory for a connection.
const PAUSE: Duration = Duration::from_millis(100);

const WAKE: u64 = u64::MAX;
/// First token of listeners; smaller ones are slots of the table.
const FIRST_LISTENER: u64 = 1 << 32;

pub(crate) struct KeWorker {
    shared: Arc<KeServerState>,
    settings: Arc<Settings>,
    epoll: Epoll,
    wake: UnixStream,
    table: ConnectionTable,
    /// End of a pause, in which listeners are not polled.
    paused_until: Option<Instant>,
}

impl KeWorker {
    pub(crate) fn new(shared: Arc<KeServerState>, wake: UnixStream) -> io::Result<Self> {
        wake.set_nonblocking(true)?;
        let epoll = Epoll::new(EVENTS)?;
        epoll.add(wake.as_fd(), WAKE)?;
        let settings = shared.settings.load_full();
        let worker = Self {
            shared,
            settings,
            epoll,
            wake,
            table: ConnectionTable::default(),
            paused_until: None,
        };
        worker.listen()?;
        Ok(worker)
    }

    /// Runs until it is stopped.
    pub(crate) fn run(mut self) {
        // Without it everything works, only less fairly.
        let _ = affinity::increase_nice(STEPS_BACK);
        let mut ready = Vec::with_capacity(EVENTS);
        while !self.shared.stop.load(Acquire) {
            ready.clear();
            let wait = self.until_next(Instant::now());
            match self.epoll.wait_in_milliseconds(wait) {
                Ok(tokens) => ready.extend(tokens),
                // A valid descriptor has no such error; if there were one, it must not use the
                // whole core.
                Err(_) => std::thread::sleep(PAUSE),
            }
            for &token in &ready {
                match token {
                    WAKE => self.woken(),
                    FIRST_LISTENER.. => self.accept((token - FIRST_LISTENER) as usize),
                    slot => self.advance(slot as usize),
                }
            }
            self.tidy(Instant::now());
        }
        self.settings = self.shared.settings.load_full();
        while let Some((_, slot)) = self.table.oldest() {
            self.close(slot, |tally| &tally.broken);
        }
    }

    fn until_next(&self, now: Instant) -> Option<Duration> {
        let timeout = self.settings.config.limits.timeout;
        let deadline = self.table.oldest().map(|(opened, _)| opened + timeout);
        let next = deadline.into_iter().chain(self.paused_until).min()?;
        Some(next.saturating_duration_since(now))
    }

    /// Ends connections after their timeout, and a pause that is over.
    fn tidy(&mut self, now: Instant) {
        let timeout = self.settings.config.limits.timeout;
        while let Some((opened, slot)) = self.table.oldest() {
            if now.saturating_duration_since(opened) < timeout {
                break;
            }
            if let Some(connection) = self.table.get(slot) {
                connection.refuse_late();
            }
            self.close(slot, |tally| &tally.timed_out);
        }
        if self.paused_until.is_some_and(|until| until <= now) {
            self.paused_until = None;
            if self.listen().is_err() {
                self.pause();
            }
        }
    }

    /// Handles a wake-up: the settings have changed, or the thread must stop.
    fn woken(&mut self) {
        while matches!(self.wake.read(&mut [0; 64]), Ok(1..)) {}
        self.unlisten();
        let before = mem::replace(&mut self.settings, self.shared.settings.load_full());
        for old in &before.listeners {
            if !self.settings.listeners.iter().any(|current| Arc::ptr_eq(current, old)) {
                // The last thread to drop the socket closes it, which resets its waiting
                // connections.
                self.accept_from(old, BACKLOG);
            }
        }
        self.paused_until = None;
        if self.listen().is_err() {
            self.pause();
        }
        self.shared.followed.fetch_add(1, AcqRel);
    }

    fn listen(&self) -> io::Result<()> {
        for (token, listener) in (FIRST_LISTENER..).zip(&self.settings.listeners) {
            self.epoll.add_shared(listener.socket.as_fd(), token)?;
        }
        Ok(())
    }

    fn unlisten(&self) {
        for listener in &self.settings.listeners {
            // It is not in the set during a pause.
            let _ = self.epoll.remove(listener.socket.as_fd());
        }
    }

    fn pause(&mut self) {
        self.unlisten();
        self.paused_until = Some(Instant::now() + PAUSE);
    }

    fn accept(&mut self, listener: usize) {
        if let Some(listener) = self.settings.listeners.get(listener).map(Arc::clone) {
            self.accept_from(&listener, ACCEPTED_AT_A_TIME);
        }
    }

    /// Accepts up to `most` waiting connections.
    fn accept_from(&mut self, listener: &KeListener, most: u32) {
        for _ in 0..most {
            match accept(&listener.socket) {
                Ok((stream, peer)) => {
                    count(&self.shared.tally.accepted);
                    self.admit(stream, peer);
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    // The client has closed already.
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    _ => {
                        count(&self.shared.tally.accept_failed);
                        return self.pause();
                    }
                },
            }
        }
    }

    /// Admits a connection, or drops it.
    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        let (now, prefix) = (Instant::now(), ClientPrefix::of(peer.ip()));
        let limits = self.settings.config.limits;
        let tally = &self.shared.tally;
        match self.shared.neighbours.admit(prefix, &limits, now) {
            Ok(()) => {}
            Err(LimitExceeded::AtATime) => return count(&tally.refused_concurrent),
            Err(LimitExceeded::ASecond) => return count(&tally.refused_rate),
        }
        if !self.find_room(limits.connections, limits.eviction_age, now) {
            self.shared.neighbours.release(prefix, now);
            return count(&self.shared.tally.refused_full);
        }
        let Ok(tls) = ServerConnection::new(Arc::clone(&self.shared.tls)) else {
            self.shared.leave(prefix, now);
            return count(&self.shared.tally.handshake_failed);
        };
        let slot = self.table.insert(KeConnection::new(stream, tls, now, prefix));
        let added = self.table.get(slot).map(|new| self.epoll.add(new.as_fd(), slot as u64));
        if matches!(added, Some(Ok(()))) {
            // Its first message has often arrived with it.
            self.advance(slot);
        } else {
            self.close(slot, |tally| &tally.accept_failed);
        }
    }

    /// Reserves a slot for a connection. When all are in use, an old connection of this thread is
    /// closed.
    fn find_room(&mut self, connections: usize, timeout: Duration, now: Instant) -> bool {
        let take = |open: usize| (open < connections).then_some(open + 1);
        for _ in 0..2 {
            if self.shared.open.fetch_update(AcqRel, Relaxed, take).is_ok() {
                return true;
            }
            match self.table.oldest() {
                Some((opened, slot)) if now.saturating_duration_since(opened) >= timeout => {
                    self.close(slot, |tally| &tally.crowded_out);
                }
                _ => return false,
            }
        }
        false
    }

    fn advance(&mut self, slot: usize) {
        let Some(connection) = self.table.get(slot) else { return };
        let desk = ConnectionContext {
            config: &self.settings.config,
            keeper: &*self.shared.keeper,
            tally: &self.shared.tally,
        };
        match connection.advance(&desk) {
            ConnectionStep::Wait { write } if write == connection.watches_write => {}
            ConnectionStep::Wait { write } => {
                connection.watches_write = write;
                let watched = self.epoll.watch_write(connection.as_fd(), slot as u64, write);
                if watched.is_err() {
                    self.close(slot, |tally| &tally.broken);
                }
            }
            ConnectionStep::Close => self.close(slot, |tally| &tally.broken),
        }
    }

    /// Ends a connection; `reason` counts if no outcome has been counted for it.
    fn close(&mut self, slot: usize, reason: ConnectionOutcome) {
        if let Some(mut connection) = self.table.remove(slot) {
            connection.conclude(reason, &self.shared.tally);
            self.shared.leave(connection.prefix, Instant::now());
        }
    }
}

fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, peer) = listener.accept()?;
    stream.set_nonblocking(true)?;
    Ok((stream, peer))
}

impl KeServerState {
    /// Releases the resources of a connection.
    fn leave(&self, prefix: ClientPrefix, now: Instant) {
        self.neighbours.release(prefix, now);
        self.open.fetch_sub(1, Release);
    }
}
