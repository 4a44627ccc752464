//! The far end of path measurements: parts that each listen at an address and have a thread,
//! started by one call each and ended together. What a part answers is its own business; that it
//! cannot be abused is the business of all: none answers strangers with more than they sent, and
//! each has its bounds.

mod bucket;
mod reflector;
pub mod stamp;
pub mod udp;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use thiserror::Error;

/// How long a part may wait before it looks whether it is to end.
pub const TICK: Duration = Duration::from_millis(100);

/// Why a part cannot listen.
#[derive(Debug, Error)]
#[error("cannot listen at {address} for {part}: {source}; {advice}")]
pub struct ServeError {
    /// Which part.
    pub part: &'static str,
    /// Where.
    pub address: SocketAddr,
    /// What happened.
    pub source: io::Error,
    /// What to do about it.
    pub advice: &'static str,
}

impl ServeError {
    /// The error with what usually helps.
    #[must_use]
    pub fn new(part: &'static str, address: SocketAddr, source: io::Error) -> Self {
        let advice = match source.kind() {
            io::ErrorKind::AddrInUse => "another program has that port; give another",
            io::ErrorKind::PermissionDenied => {
                "ports below 1024 need root or CAP_NET_BIND_SERVICE; give another"
            }
            io::ErrorKind::AddrNotAvailable => "this host has no such address; give another",
            _ => "give another address or port",
        };
        Self { part, address, source, advice }
    }
}

/// What a part counted, by name.
pub type Counts = BTreeMap<&'static str, u64>;

/// A part that runs.
#[derive(Debug)]
pub struct Part {
    /// What it answers.
    pub name: &'static str,
    /// Where it listens.
    pub address: SocketAddr,
    thread: JoinHandle<Counts>,
}

/// A far end: the parts that run.
#[derive(Debug, Default)]
pub struct FarEnd {
    parts: Vec<Part>,
    stop: Arc<AtomicBool>,
}

impl FarEnd {
    /// One without parts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a part. `run` is handed what says that it is to end, which it has to look at every
    /// [`TICK`] at least, and returns what it counted.
    ///
    /// # Errors
    ///
    /// When there can be no further thread.
    pub fn start(
        &mut self,
        name: &'static str,
        address: SocketAddr,
        run: impl FnOnce(&AtomicBool) -> Counts + Send + 'static,
    ) -> Result<(), ServeError> {
        let stop = Arc::clone(&self.stop);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&stop))
            .map_err(|source| ServeError::new(name, address, source))?;
        self.parts.push(Part { name, address, thread });
        Ok(())
    }

    /// The parts, in the order in which they were started.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// A part that has ended by itself, which none should.
    #[must_use]
    pub fn dead(&self) -> Option<&Part> {
        self.parts.iter().find(|part| part.thread.is_finished())
    }

    /// Ends all parts; what each counted.
    #[must_use]
    pub fn end(self) -> Vec<(&'static str, SocketAddr, Counts)> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = |part: Part| (part.name, part.address, part.thread.join().unwrap_or_default());
        self.parts.into_iter().map(ended).collect()
    }
}
