//! A thread that accepts connections and drives them. Every step is bounded: it never waits for one
//! client, and it lets each do one read at a time, or two once it has been answered.

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

use super::connection::{Connection, Desk, Next, Outcome};
use super::counters::count;
use super::neighbours::{Prefix, TooMuch};
use super::table::Table;
use super::{BACKLOG, Listener, Settings, Shared};

/// Events that are taken at a time.
const EVENTS: usize = 64;
/// Connections that are accepted at a time, between the steps of those that are open.
const ACCEPTED_AT_A_TIME: u32 = 4;
/// How far these threads stand back behind those that answer: where both want a core, handshakes
/// get a tenth of it.
const STEPS_BACK: u8 = 10;
/// How long nothing is accepted once the system has no descriptor or memory for it.
const PAUSE: Duration = Duration::from_millis(100);

const WAKE: u64 = u64::MAX;
/// Tokens from here on are listeners, below they are slots of the table.
const FIRST_LISTENER: u64 = 1 << 32;

pub(crate) struct Worker {
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    epoll: Epoll,
    wake: UnixStream,
    table: Table,
    /// While it is set, listeners are not waited for.
    paused_until: Option<Instant>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, wake: UnixStream) -> io::Result<Self> {
        wake.set_nonblocking(true)?;
        let epoll = Epoll::new(EVENTS)?;
        epoll.add(wake.as_fd(), WAKE)?;
        let settings = shared.settings.load_full();
        let worker =
            Self { shared, settings, epoll, wake, table: Table::default(), paused_until: None };
        worker.listen()?;
        Ok(worker)
    }

    /// Runs until it is told to stop.
    pub(crate) fn run(mut self) {
        // Without it all works the same, only less fairly.
        let _ = affinity::stand_back(STEPS_BACK);
        let mut ready = Vec::with_capacity(EVENTS);
        while !self.shared.stop.load(Acquire) {
            ready.clear();
            let wait = self.until_next(Instant::now());
            match self.epoll.wait_coarsely(wait) {
                Ok(tokens) => ready.extend(tokens),
                // There is no such error for a sound descriptor; if there were one, it must not
                // take the whole core.
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

    /// Ends what has taken too long, and a pause that is over.
    fn tidy(&mut self, now: Instant) {
        let timeout = self.settings.config.limits.timeout;
        while let Some((opened, slot)) = self.table.oldest() {
            if now.saturating_duration_since(opened) < timeout {
                break;
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

    /// The settings have changed, or the end has come.
    fn woken(&mut self) {
        while matches!(self.wake.read(&mut [0; 64]), Ok(1..)) {}
        self.unlisten();
        let before = mem::replace(&mut self.settings, self.shared.settings.load_full());
        for old in &before.listeners {
            if !self.settings.listeners.iter().any(|kept| Arc::ptr_eq(kept, old)) {
                // The last thread that lets go of it closes it, which resets whoever waits there.
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

    /// Accepts those that wait, up to so many.
    fn accept_from(&mut self, listener: &Listener, most: u32) {
        for _ in 0..most {
            match accept(&listener.socket) {
                Ok((stream, peer)) => {
                    count(&self.shared.tally.accepted);
                    self.admit(stream, peer);
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    // The client has gone already.
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    _ => {
                        count(&self.shared.tally.accept_failed);
                        return self.pause();
                    }
                },
            }
        }
    }

    /// Takes a connection in, or drops it.
    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        let (now, prefix) = (Instant::now(), Prefix::of(peer.ip()));
        let limits = self.settings.config.limits;
        let tally = &self.shared.tally;
        match self.shared.neighbours.admit(prefix, &limits, now) {
            Ok(()) => {}
            Err(TooMuch::AtATime) => return count(&tally.refused_concurrent),
            Err(TooMuch::ASecond) => return count(&tally.refused_rate),
        }
        if !self.find_room(limits.connections, limits.patience, now) {
            self.shared.neighbours.leave(prefix, now);
            return count(&self.shared.tally.refused_full);
        }
        let Ok(tls) = ServerConnection::new(Arc::clone(&self.shared.tls)) else {
            self.shared.leave(prefix, now);
            return count(&self.shared.tally.handshake_failed);
        };
        let slot = self.table.insert(Connection::new(stream, tls, now, prefix));
        let added = self.table.get(slot).map(|new| self.epoll.add(new.as_fd(), slot as u64));
        if matches!(added, Some(Ok(()))) {
            // Its first message has often come along.
            self.advance(slot);
        } else {
            self.close(slot, |tally| &tally.accept_failed);
        }
    }

    /// Takes one of the places for connections. When all are taken, an old connection of this
    /// thread gives way.
    fn find_room(&mut self, connections: usize, patience: Duration, now: Instant) -> bool {
        let take = |open: usize| (open < connections).then_some(open + 1);
        for _ in 0..2 {
            if self.shared.open.fetch_update(AcqRel, Relaxed, take).is_ok() {
                return true;
            }
            match self.table.oldest() {
                Some((opened, slot)) if now.saturating_duration_since(opened) >= patience => {
                    self.close(slot, |tally| &tally.crowded_out);
                }
                _ => return false,
            }
        }
        false
    }

    fn advance(&mut self, slot: usize) {
        let Some(connection) = self.table.get(slot) else { return };
        let desk = Desk {
            config: &self.settings.config,
            keeper: &*self.shared.keeper,
            tally: &self.shared.tally,
        };
        match connection.advance(&desk) {
            Next::Wait { write } if write == connection.watches_write => {}
            Next::Wait { write } => {
                connection.watches_write = write;
                let watched = self.epoll.watch_write(connection.as_fd(), slot as u64, write);
                if watched.is_err() {
                    self.close(slot, |tally| &tally.broken);
                }
            }
            Next::Close => self.close(slot, |tally| &tally.broken),
        }
    }

    /// Ends a connection; `reason` counts if nothing has been counted for it.
    fn close(&mut self, slot: usize, reason: Outcome) {
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

impl Shared {
    /// Gives back what a connection took.
    fn leave(&self, prefix: Prefix, now: Instant) {
        self.neighbours.leave(prefix, now);
        self.open.fetch_sub(1, Release);
    }
}
