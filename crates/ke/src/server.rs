//! NTS-KE listener: a few threads, each with its own set of connections, that share the listening
//! sockets. Nothing blocks, and the resources of clients are bounded by [`KeLimits`]. The content
//! of cookies is determined by the [`CookieProvider`].

mod config;
mod connection;
mod counters;
mod prefix_limiter;
mod table;
mod worker;

use std::fmt;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;

pub use self::config::{KeConfig, KeLimits};
use self::counters::KeCounters;
pub use self::counters::KeCounts;
use self::prefix_limiter::PrefixLimiter;
use self::worker::KeWorker;
use crate::certificate::{CertificateResolver, Pair};
use crate::validity::CertificateValidity;
use crate::{ALPN, KeError};

/// Connections that may wait to be accepted, if the system allows that many (`somaxconn`).
const BACKLOG: u32 = 4096;
/// Virtual memory for a thread's stack; little of it is ever touched.
const STACK_BYTES: usize = 512 * 1024;
/// Timeout of a change while threads in the middle of a handshake have not applied it yet.
const APPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// Source of the cookies.
pub trait CookieProvider: Send + Sync {
    /// Numbers of the AEAD algorithms for which keys are available, of those known to
    /// [`crate::key_len`], in order of preference.
    fn algorithms(&self) -> Vec<u16>;

    /// Creates `count` different cookies for these keys. An empty list is reported to the client as
    /// an internal error.
    fn cookies(&self, algorithm: u16, c2s: &[u8], s2c: &[u8], count: usize) -> Vec<Vec<u8>>;
}

/// Facts about the certificate in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CertificateFacts {
    /// Start of the validity. It is in the future if a clock is wrong; the certificate is used all
    /// the same, because the wrong clock may be the time server's own.
    pub not_before: SystemTime,
    /// End of the validity.
    pub not_after: SystemTime,
}

/// A running listener. It stops on drop.
pub struct KeServer {
    shared: Arc<KeServerState>,
    provider: Arc<CryptoProvider>,
    threads: Vec<Thread>,
}

struct Thread {
    handle: Option<JoinHandle<()>>,
    wake: UnixStream,
}

/// State shared by the threads.
struct KeServerState {
    keeper: Arc<dyn CookieProvider>,
    tls: Arc<ServerConfig>,
    served: Arc<CertificateResolver>,
    settings: ArcSwap<Settings>,
    tally: KeCounters,
    neighbours: PrefixLimiter,
    open: AtomicUsize,
    stop: AtomicBool,
    /// Number of times that a thread has applied a change of the settings.
    followed: AtomicUsize,
}

/// A configuration with all its resources, not applied yet. Its new sockets are closed on drop.
pub struct PreparedConfig {
    pair: Pair,
    settings: Settings,
}

/// Settings that can be changed while running.
struct Settings {
    config: KeConfig,
    listeners: Vec<Arc<KeListener>>,
}

struct KeListener {
    /// The address as configured, where port 0 means any.
    configured: SocketAddr,
    socket: TcpListener,
    bound: SocketAddr,
}

impl KeServer {
    /// Reads the certificate, opens the sockets and starts the threads.
    pub fn start(config: KeConfig, keeper: Arc<dyn CookieProvider>) -> Result<Self, KeError> {
        config.check()?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let pair = load(&config, &provider)?;
        let served = Arc::new(CertificateResolver::new(pair));
        let tls = tls_config(&provider, &served)?;
        let threads = match config.threads {
            0 => thread::available_parallelism().map_or(1, usize::from),
            some => some,
        };
        let listeners = listen(&config.listen, &[])?;
        let shared = Arc::new(KeServerState {
            keeper,
            tls: Arc::new(tls),
            served,
            settings: ArcSwap::from_pointee(Settings { config, listeners }),
            tally: KeCounters::default(),
            neighbours: PrefixLimiter::new(),
            open: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            followed: AtomicUsize::new(0),
        });
        let mut server = Self { shared, provider, threads: Vec::with_capacity(threads) };
        for number in 0..threads {
            let doing = "start a thread for NTS key establishment";
            let thread = server.thread(number).map_err(|error| KeError::System { doing, error })?;
            server.threads.push(thread);
        }
        Ok(server)
    }

    fn thread(&self, number: usize) -> io::Result<Thread> {
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let worker = KeWorker::new(Arc::clone(&self.shared), woken)?;
        let handle = thread::Builder::new()
            .name(format!("nts-ke-{number}"))
            .stack_size(STACK_BYTES)
            .spawn(move || worker.run())?;
        Ok(Thread { handle: Some(handle), wake })
    }

    /// Performs all steps of a configuration change that can fail: reads the certificate and its
    /// key, even if their names are unchanged, and opens the sockets of new addresses. The running
    /// listener is not changed.
    ///
    /// # Errors
    ///
    /// If any of these resources is not available.
    pub fn prepare(&self, config: KeConfig) -> Result<PreparedConfig, KeError> {
        config.check()?;
        let pair = load(&config, &self.provider)?;
        let listeners = listen(&config.listen, &self.shared.settings.load().listeners)?;
        Ok(PreparedConfig { pair, settings: Settings { config, listeners } })
    }

    /// Applies a prepared configuration without losing a connection: a socket whose address stays
    /// is kept with its waiting connections; those waiting at a removed address are accepted before
    /// its socket is closed; and open connections continue. Handshakes from now on get the new
    /// certificate. The number of threads stays the same.
    pub fn apply(&self, prepared: PreparedConfig) {
        let PreparedConfig { pair, settings } = prepared;
        self.shared.served.exchange(pair);
        let followed = self.shared.followed.load(Acquire) + self.threads.len();
        self.shared.settings.store(Arc::new(settings));
        self.wake();
        // Sockets that are no longer needed are then closed when this returns.
        let deadline = Instant::now() + APPLY_TIMEOUT;
        while self.shared.followed.load(Acquire) < followed && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Connections so far, by outcome.
    #[must_use]
    pub fn counters(&self) -> KeCounts {
        self.shared.tally.read(self.shared.open.load(Acquire))
    }

    /// Returns true if a thread has ended although it was not stopped.
    #[must_use]
    pub fn has_died(&self) -> bool {
        let mut handles = self.threads.iter().filter_map(|thread| thread.handle.as_ref());
        handles.any(JoinHandle::is_finished)
    }

    /// The addresses listened on, in the order of the configuration.
    #[must_use]
    pub fn listen(&self) -> Vec<SocketAddr> {
        self.shared.settings.load().listeners.iter().map(|listener| listener.bound).collect()
    }

    /// Facts about the current certificate.
    #[must_use]
    pub fn certificate(&self) -> CertificateFacts {
        let CertificateValidity { not_before, not_after } = self.shared.served.validity();
        CertificateFacts { not_before, not_after }
    }

    fn wake(&self) {
        for thread in &self.threads {
            // A full buffer wakes just as well.
            let _ = (&thread.wake).write(&[0]);
        }
    }
}

impl Drop for KeServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Release);
        self.wake();
        for handle in self.threads.iter_mut().filter_map(|thread| thread.handle.take()) {
            // A panicked thread has printed its message already.
            let _ = handle.join();
        }
    }
}

impl fmt::Debug for KeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeServer")
            .field("listen", &self.listen())
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

/// Checks a certificate and its key as a listener does at start.
///
/// # Errors
///
/// If they are not usable.
pub fn check_certificate(certificate: &Path, key: &Path) -> Result<(), KeError> {
    let provider = aws_lc_rs::default_provider();
    Pair::load(certificate, key, &provider, SystemTime::now()).map(drop)
}

fn load(config: &KeConfig, provider: &CryptoProvider) -> Result<Pair, KeError> {
    Pair::load(&config.certificate, &config.key, provider, SystemTime::now())
}

/// The TLS configuration: TLS 1.3 alone, without resumable sessions and without early data.
fn tls_config(
    provider: &Arc<CryptoProvider>,
    served: &Arc<CertificateResolver>,
) -> Result<ServerConfig, KeError> {
    // SHA-256 costs a fifth of SHA-384 on a CPU with instructions for it, a tenth of a handshake,
    // and the keys negotiated here are for a 128-bit cipher.
    let first = TLS13_AES_128_GCM_SHA256;
    let mut cipher_suites = vec![first];
    cipher_suites.extend(provider.cipher_suites.iter().filter(|suite| **suite != first));
    let provider = CryptoProvider { cipher_suites, ..(**provider).clone() };
    let mut tls = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::clone(served) as _);
    tls.ignore_client_order = true;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.send_tls13_tickets = 0;
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(tls)
}

/// Returns a socket for each address; one that already listens there is reused, once.
fn listen(
    addresses: &[SocketAddr],
    present: &[Arc<KeListener>],
) -> Result<Vec<Arc<KeListener>>, KeError> {
    let mut present = present.to_vec();
    let open = |&configured: &SocketAddr| {
        if let Some(index) = present.iter().position(|one| one.configured == configured) {
            return Ok(present.remove(index));
        }
        if let Some(other) = present.iter().find(|one| overlap(one.bound, configured)) {
            return Err(KeError::Overlap(configured, other.bound));
        }
        let bound = |socket: TcpListener| socket.local_addr().map(|bound| (socket, bound));
        let (socket, bound) = horolog_sys::listen::listen_tcp(configured, BACKLOG)
            .and_then(bound)
            .map_err(|error| KeError::Listen { address: configured, error })?;
        Ok(Arc::new(KeListener { configured, socket, bound }))
    };
    addresses.iter().map(open).collect()
}

/// Returns true if one of two addresses is a wildcard that covers the other: the kernel lets only
/// one of them listen.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (one.ip().is_unspecified() || other.ip().is_unspecified())
}
