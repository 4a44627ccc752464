//! NTS-KE listener: threads that share the listening sockets, each with its own connections and
//! event loop. The resources used by clients are limited by [`NtsKeLimits`]. Cookies are created by
//! a [`CookieProvider`].

mod config;
mod connection;
mod counters;
mod prefix_limiter;
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

pub use self::config::{NtsKeConfig, NtsKeLimits};
use self::counters::NtsKeCounters;
pub use self::counters::NtsKeCounts;
use self::prefix_limiter::PrefixLimiter;
use self::worker::NtsKeWorker;
use crate::certificate::{CertificateKeyPair, CertificateResolver};
use crate::validity::CertificateValidity;
use crate::{ALPN, NtsKeError};

/// Length of the accept queue; the system limits it to `net.core.somaxconn`.
const BACKLOG: u32 = 4096;
/// Size of a thread's stack in virtual memory, in bytes.
const STACK_BYTES: usize = 512 * 1024;
/// Longest wait until all threads have applied a new configuration.
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

/// Validity period of the certificate in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerCertificateValidity {
    /// Start of the validity. A certificate whose validity begins in the future is used as well,
    /// because the server's own clock may be wrong.
    pub not_before: SystemTime,
    /// End of the validity.
    pub not_after: SystemTime,
}

/// Running listener; stops on drop.
pub struct NtsKeServer {
    shared: Arc<NtsKeServerState>,
    provider: Arc<CryptoProvider>,
    threads: Vec<NtsKeThreadHandle>,
}

struct NtsKeThreadHandle {
    handle: Option<JoinHandle<()>>,
    wake_socket: UnixStream,
}

/// State shared by the threads.
struct NtsKeServerState {
    cookie_provider: Arc<dyn CookieProvider>,
    tls: Arc<ServerConfig>,
    certificate_resolver: Arc<CertificateResolver>,
    settings: ArcSwap<ConfigWithSockets>,
    counters: NtsKeCounters,
    prefix_limiter: PrefixLimiter,
    open_connections: AtomicUsize,
    stop: AtomicBool,
    /// Number of settings changes applied by the threads, summed over all threads.
    applied_count: AtomicUsize,
}

/// Checked configuration with its certificate and sockets, ready for [`NtsKeServer::apply`]. New
/// sockets are closed on drop.
pub struct PreparedNtsKeConfig {
    certificate: CertificateKeyPair,
    settings: ConfigWithSockets,
}

/// Configuration and sockets, replaced as a whole by a change.
struct ConfigWithSockets {
    config: NtsKeConfig,
    listeners: Vec<Arc<NtsKeListeningSocket>>,
}

struct NtsKeListeningSocket {
    /// Configured address; port 0 stands for any port.
    configured: SocketAddr,
    socket: TcpListener,
    bound: SocketAddr,
}

impl NtsKeServer {
    /// Reads the certificate, opens the sockets and starts the threads.
    pub fn start(
        config: NtsKeConfig,
        cookie_provider: Arc<dyn CookieProvider>,
    ) -> Result<Self, NtsKeError> {
        config.check()?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let pair = load_certificate(&config, &provider)?;
        let certificate_resolver = Arc::new(CertificateResolver::new(pair));
        let tls = tls_config(&provider, &certificate_resolver)?;
        let threads = match config.threads {
            0 => thread::available_parallelism().map_or(1, usize::from),
            some => some,
        };
        let listeners = open_listeners(&config.listen, &[])?;
        let shared = Arc::new(NtsKeServerState {
            cookie_provider,
            tls: Arc::new(tls),
            certificate_resolver,
            settings: ArcSwap::from_pointee(ConfigWithSockets { config, listeners }),
            counters: NtsKeCounters::default(),
            prefix_limiter: PrefixLimiter::new(),
            open_connections: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            applied_count: AtomicUsize::new(0),
        });
        let mut server = Self { shared, provider, threads: Vec::with_capacity(threads) };
        for number in 0..threads {
            let doing = "start a thread for NTS key establishment";
            let thread =
                server.start_thread(number).map_err(|error| NtsKeError::System { doing, error })?;
            server.threads.push(thread);
        }
        Ok(server)
    }

    fn start_thread(&self, number: usize) -> io::Result<NtsKeThreadHandle> {
        let (wake, wake_receiver) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let worker = NtsKeWorker::new(Arc::clone(&self.shared), wake_receiver)?;
        let handle = thread::Builder::new()
            .name(format!("nts-ke-{number}"))
            .stack_size(STACK_BYTES)
            .spawn(move || worker.run())?;
        Ok(NtsKeThreadHandle { handle: Some(handle), wake_socket: wake })
    }

    /// Prepares a new configuration: reads the certificate and its key again, and opens sockets for
    /// new addresses. The running listener is not changed.
    ///
    /// # Errors
    ///
    /// A value, the certificate, the key or an address is not usable.
    pub fn prepare(&self, config: NtsKeConfig) -> Result<PreparedNtsKeConfig, NtsKeError> {
        config.check()?;
        let pair = load_certificate(&config, &self.provider)?;
        let listeners = open_listeners(&config.listen, &self.shared.settings.load().listeners)?;
        Ok(PreparedNtsKeConfig {
            certificate: pair,
            settings: ConfigWithSockets { config, listeners },
        })
    }

    /// Applies a prepared configuration without losing a connection: open connections continue,
    /// sockets of unchanged addresses are reused, and connections in the accept queue of a removed
    /// address are accepted before its socket is closed. New handshakes use the new certificate.
    /// The number of threads does not change.
    pub fn apply(&self, prepared: PreparedNtsKeConfig) {
        let PreparedNtsKeConfig { certificate: pair, settings } = prepared;
        self.shared.certificate_resolver.replace(pair);
        let applied_count = self.shared.applied_count.load(Acquire) + self.threads.len();
        self.shared.settings.store(Arc::new(settings));
        self.wake();
        // Waits, so that removed sockets are closed when this returns.
        let deadline = Instant::now() + APPLY_TIMEOUT;
        while self.shared.applied_count.load(Acquire) < applied_count && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the counts of connections by outcome since the start.
    #[must_use]
    pub fn counts(&self) -> NtsKeCounts {
        self.shared.counters.read(self.shared.open_connections.load(Acquire))
    }

    /// Returns true if a thread has ended without a request to stop.
    #[must_use]
    pub fn has_failed_thread(&self) -> bool {
        let mut handles = self.threads.iter().filter_map(|thread| thread.handle.as_ref());
        handles.any(JoinHandle::is_finished)
    }

    /// Returns the bound addresses in the order of the configuration.
    #[must_use]
    pub fn listen_addresses(&self) -> Vec<SocketAddr> {
        self.shared.settings.load().listeners.iter().map(|listener| listener.bound).collect()
    }

    /// Returns the validity period of the current certificate.
    #[must_use]
    pub fn certificate_info(&self) -> ServerCertificateValidity {
        let CertificateValidity { not_before, not_after } =
            self.shared.certificate_resolver.validity();
        ServerCertificateValidity { not_before, not_after }
    }

    fn wake(&self) {
        for thread in &self.threads {
            // If the buffer is full, a wake-up is pending already.
            let _ = (&thread.wake_socket).write(&[0]);
        }
    }
}

impl Drop for NtsKeServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Release);
        self.wake();
        for handle in self.threads.iter_mut().filter_map(|thread| thread.handle.take()) {
            // A panicked thread has printed its message already.
            let _ = handle.join();
        }
    }
}

impl fmt::Debug for NtsKeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NtsKeServer")
            .field("listen", &self.listen_addresses())
            .field("counters", &self.counts())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

/// Checks a certificate and its key as a listener does at its start.
///
/// # Errors
///
/// The certificate or the key is not usable.
pub fn check_certificate(certificate: &Path, key: &Path) -> Result<(), NtsKeError> {
    let provider = aws_lc_rs::default_provider();
    CertificateKeyPair::load(certificate, key, &provider, SystemTime::now()).map(drop)
}

fn load_certificate(
    config: &NtsKeConfig,
    provider: &CryptoProvider,
) -> Result<CertificateKeyPair, NtsKeError> {
    CertificateKeyPair::load(&config.certificate, &config.key, provider, SystemTime::now())
}

/// Returns the TLS configuration: only TLS 1.3, without session resumption and early data.
fn tls_config(
    provider: &Arc<CryptoProvider>,
    certificate_resolver: &Arc<CertificateResolver>,
) -> Result<ServerConfig, NtsKeError> {
    // On a CPU with SHA extensions, SHA-256 takes a fifth of the time of SHA-384, which saves a
    // tenth of a handshake.
    let preferred = TLS13_AES_128_GCM_SHA256;
    let mut cipher_suites = vec![preferred];
    cipher_suites.extend(provider.cipher_suites.iter().filter(|suite| **suite != preferred));
    let provider = CryptoProvider { cipher_suites, ..(**provider).clone() };
    let mut tls = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::clone(certificate_resolver) as _);
    tls.ignore_client_order = true;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.send_tls13_tickets = 0;
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(tls)
}

/// Returns a listening socket for each address, in the same order; sockets in `present` with the
/// same configured address are reused.
fn open_listeners(
    addresses: &[SocketAddr],
    present: &[Arc<NtsKeListeningSocket>],
) -> Result<Vec<Arc<NtsKeListeningSocket>>, NtsKeError> {
    let mut present = present.to_vec();
    let open = |&configured: &SocketAddr| {
        if let Some(index) = present.iter().position(|one| one.configured == configured) {
            return Ok(present.remove(index));
        }
        if let Some(other) = present.iter().find(|one| is_overlapping(one.bound, configured)) {
            return Err(NtsKeError::Overlap(configured, other.bound));
        }
        let bound = |socket: TcpListener| socket.local_addr().map(|bound| (socket, bound));
        let (socket, bound) = horolog_sys::listen::listen_tcp(configured, BACKLOG)
            .and_then(bound)
            .map_err(|error| NtsKeError::Listen { address: configured, error })?;
        Ok(Arc::new(NtsKeListeningSocket { configured, socket, bound }))
    };
    addresses.iter().map(open).collect()
}

/// Returns true if the two addresses have the same port and IP version, and one is the wildcard
/// address: the kernel does not allow listening on both.
fn is_overlapping(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (one.ip().is_unspecified() || other.ip().is_unspecified())
}
