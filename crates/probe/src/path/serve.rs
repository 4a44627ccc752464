//! Far end of path measurements: UDP services, each with a socket and a thread, started
//! individually and stopped together. To resist abuse, each sends unverified clients no more bytes
//! than they sent, and has rate limits.

mod rate_limiter;
mod reflector;
pub mod stamp;
pub mod udp;

use horolog_sys::explain::explain;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use thiserror::Error;

/// Longest interval at which a service must check the stop flag.
pub const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Reason why a service cannot listen.
#[derive(Debug, Error)]
#[error("cannot listen on {address} for {part}: {why}; {advice}", why = explain(.source))]
pub struct FarEndListenError {
    /// Name of the service.
    pub part: &'static str,
    /// Address to listen on.
    pub address: SocketAddr,
    /// Error of the system.
    pub source: io::Error,
    /// Advice to the user.
    pub advice: &'static str,
}

impl FarEndListenError {
    /// Returns the error with advice by the kind of `source`.
    #[must_use]
    pub fn new(part: &'static str, address: SocketAddr, source: io::Error) -> Self {
        let advice = match source.kind() {
            io::ErrorKind::AddrInUse => "port in use by another program; choose another",
            io::ErrorKind::PermissionDenied => {
                "ports below 1024 need root or CAP_NET_BIND_SERVICE; choose another"
            }
            io::ErrorKind::AddrNotAvailable => "not an address of this host; choose another",
            _ => "choose another address or port",
        };
        Self { part, address, source, advice }
    }
}

/// Counts of a service, by name.
pub type FarEndServiceCounts = BTreeMap<&'static str, u64>;

/// Thread of a far-end service, with the service's name and address.
#[derive(Debug)]
pub struct RunningFarEndService {
    /// Service name.
    pub name: &'static str,
    /// Listen address.
    pub address: SocketAddr,
    thread: JoinHandle<FarEndServiceCounts>,
}

/// Far end: the running services.
#[derive(Debug, Default)]
pub struct RunningFarEnd {
    services: Vec<RunningFarEndService>,
    stop: Arc<AtomicBool>,
}

impl RunningFarEnd {
    /// Returns a far end without services.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a service in a thread. `run` gets the stop flag, which it must check at least every
    /// [`STOP_CHECK_INTERVAL`], and returns its counts.
    ///
    /// # Errors
    ///
    /// If no further thread can be started.
    pub fn start(
        &mut self,
        name: &'static str,
        address: SocketAddr,
        run: impl FnOnce(&AtomicBool) -> FarEndServiceCounts + Send + 'static,
    ) -> Result<(), FarEndListenError> {
        let stop = Arc::clone(&self.stop);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&stop))
            .map_err(|source| FarEndListenError::new(name, address, source))?;
        self.services.push(RunningFarEndService { name, address, thread });
        Ok(())
    }

    /// Returns the services in order of their start.
    #[must_use]
    pub fn services(&self) -> &[RunningFarEndService] {
        &self.services
    }

    /// Returns a service whose thread has ended without request, if any.
    #[must_use]
    pub fn failed_service(&self) -> Option<&RunningFarEndService> {
        self.services.iter().find(|part| part.thread.is_finished())
    }

    /// Stops all services and returns name, address and counts of each; the counts are empty if its
    /// thread panicked.
    #[must_use]
    pub fn shut_down(self) -> Vec<(&'static str, SocketAddr, FarEndServiceCounts)> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = |part: RunningFarEndService| {
            (part.name, part.address, part.thread.join().unwrap_or_default())
        };
        self.services.into_iter().map(ended).collect()
    }
}
