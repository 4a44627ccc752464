//! Far end of path measurements: services, each with an address and a thread, started by one call
//! each and ended together. Every service resists abuse: it sends unverified clients no more than
//! they sent, and has bounds of its own.

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

/// Longest wait of a service before it checks whether to end.
pub const TICK: Duration = Duration::from_millis(100);

/// Reason for which a service cannot listen.
#[derive(Debug, Error)]
#[error("cannot listen at {address} for {part}: {why}; {advice}", why = explain(.source))]
pub struct ServeError {
    /// Name of the service.
    pub part: &'static str,
    /// Address to listen at.
    pub address: SocketAddr,
    /// Error of the system.
    pub source: io::Error,
    /// Advice.
    pub advice: &'static str,
}

impl ServeError {
    /// Returns the error with the usual advice.
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
pub type ServiceCounts = BTreeMap<&'static str, u64>;

/// Running service.
#[derive(Debug)]
pub struct Service {
    /// Service name.
    pub name: &'static str,
    /// Address it listens at.
    pub address: SocketAddr,
    thread: JoinHandle<ServiceCounts>,
}

/// Far end: the running services.
#[derive(Debug, Default)]
pub struct FarEnd {
    parts: Vec<Service>,
    stop: Arc<AtomicBool>,
}

impl FarEnd {
    /// Returns a far end without services.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a service. `run` takes the end flag, which it must check at least every [`TICK`], and
    /// returns its counts.
    ///
    /// # Errors
    ///
    /// If no further thread can be started.
    pub fn start(
        &mut self,
        name: &'static str,
        address: SocketAddr,
        run: impl FnOnce(&AtomicBool) -> ServiceCounts + Send + 'static,
    ) -> Result<(), ServeError> {
        let stop = Arc::clone(&self.stop);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&stop))
            .map_err(|source| ServeError::new(name, address, source))?;
        self.parts.push(Service { name, address, thread });
        Ok(())
    }

    /// Returns the services in order of their start.
    #[must_use]
    pub fn parts(&self) -> &[Service] {
        &self.parts
    }

    /// Returns a service that has ended by itself, which none should.
    #[must_use]
    pub fn failed_service(&self) -> Option<&Service> {
        self.parts.iter().find(|part| part.thread.is_finished())
    }

    /// Ends all services and returns the counts of each.
    #[must_use]
    pub fn end(self) -> Vec<(&'static str, SocketAddr, ServiceCounts)> {
        self.stop.store(true, Ordering::Relaxed);
        let ended =
            |part: Service| (part.name, part.address, part.thread.join().unwrap_or_default());
        self.parts.into_iter().map(ended).collect()
    }
}
