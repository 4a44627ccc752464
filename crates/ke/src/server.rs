//! The listener of NTS key establishment: a few threads, each with its own set of connections, that
//! share the listening sockets. Nothing blocks, and all that a client can take is bounded by
//! [`KeLimits`]. What cookies hold is the [`Keeper`]'s affair.

mod config;
mod connection;
mod counters;
mod neighbours;
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
pub use self::counters::KeCounters;
use self::counters::Tally;
use self::neighbours::Neighbours;
use self::worker::Worker;
use crate::certificate::{Pair, Served};
use crate::validity::Validity;
use crate::{ALPN, KeError};

/// Connections that may wait to be accepted, if the system allows that many (`somaxconn`).
const BACKLOG: u32 = 4096;
/// Virtual memory for a thread's stack; little of it is ever touched.
const STACK_BYTES: usize = 512 * 1024;
/// How long a change waits for threads that are in the middle of a handshake to follow it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who makes the cookies.
pub trait Keeper: Send + Sync {
    /// Numbers of the AEAD algorithms that keys can be had for, the most wanted first, of those
    /// that [`crate::key_len`] knows.
    fn algorithms(&self) -> Vec<u16>;

    /// Makes `count` different cookies for these keys. None at all is told to the client as an
    /// internal error.
    fn cookies(&self, algorithm: u16, c2s: &[u8], s2c: &[u8], count: usize) -> Vec<Vec<u8>>;
}

/// Of the certificate that is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CertificateFacts {
    /// The first instant at which clients take it. In the future where a clock is wrong; it is
    /// served all the same, because a time server's own clock may be what is wrong.
    pub not_before: SystemTime,
    /// The last instant at which clients take it.
    pub not_after: SystemTime,
}

/// A listener at work. It stops when it is dropped.
pub struct KeServer {
    shared: Arc<Shared>,
    provider: Arc<CryptoProvider>,
    threads: Vec<Thread>,
}

struct Thread {
    handle: Option<JoinHandle<()>>,
    wake: UnixStream,
}

/// What the threads share.
struct Shared {
    keeper: Arc<dyn Keeper>,
    tls: Arc<ServerConfig>,
    served: Arc<Served>,
    settings: ArcSwap<Settings>,
    tally: Tally,
    neighbours: Neighbours,
    open: AtomicUsize,
    stop: AtomicBool,
    /// How many times a thread has followed a change of the settings.
    followed: AtomicUsize,
}

/// A configuration with everything that it needs, which nothing follows yet. Its new sockets are
/// closed when it is dropped.
pub struct Prepared {
    pair: Pair,
    settings: Settings,
}

/// What can be changed under way.
struct Settings {
    config: KeConfig,
    listeners: Vec<Arc<Listener>>,
}

struct Listener {
    /// As it was asked for, where port 0 is any.
    asked: SocketAddr,
    socket: TcpListener,
    bound: SocketAddr,
}

impl KeServer {
    /// Reads the certificate, opens the sockets and starts the threads.
    pub fn start(config: KeConfig, keeper: Arc<dyn Keeper>) -> Result<Self, KeError> {
        config.check()?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let pair = load(&config, &provider)?;
        let served = Arc::new(Served::new(pair));
        let tls = tls_config(&provider, &served)?;
        let threads = match config.threads {
            0 => thread::available_parallelism().map_or(1, usize::from),
            some => some,
        };
        let listeners = listen(&config.listen, &[])?;
        let shared = Arc::new(Shared {
            keeper,
            tls: Arc::new(tls),
            served,
            settings: ArcSwap::from_pointee(Settings { config, listeners }),
            tally: Tally::default(),
            neighbours: Neighbours::new(),
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
        let worker = Worker::new(Arc::clone(&self.shared), woken)?;
        let handle = thread::Builder::new()
            .name(format!("nts-ke-{number}"))
            .stack_size(STACK_BYTES)
            .spawn(move || worker.run())?;
        Ok(Thread { handle: Some(handle), wake })
    }

    /// Does everything of a change to another configuration that can fail: reads the certificate
    /// and its key, also where their names are the same, and opens the sockets of new addresses.
    /// What runs is not changed.
    ///
    /// # Errors
    ///
    /// If anything of it cannot be had.
    pub fn prepare(&self, config: KeConfig) -> Result<Prepared, KeError> {
        config.check()?;
        let pair = load(&config, &self.provider)?;
        let listeners = listen(&config.listen, &self.shared.settings.load().listeners)?;
        Ok(Prepared { pair, settings: Settings { config, listeners } })
    }

    /// Follows a configuration that was prepared, without losing a connection: a socket whose
    /// address stays is kept, with all that wait at it; those that wait at one whose address goes
    /// are accepted before it is closed; and open connections go on. Handshakes from now on get the
    /// new certificate. The number of threads stays.
    pub fn apply(&self, prepared: Prepared) {
        let Prepared { pair, settings } = prepared;
        self.shared.served.exchange(pair);
        let followed = self.shared.followed.load(Acquire) + self.threads.len();
        self.shared.settings.store(Arc::new(settings));
        self.wake();
        // So that sockets that are no longer wanted are closed when this returns.
        let deadline = Instant::now() + PATIENCE;
        while self.shared.followed.load(Acquire) < followed && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// What became of the connections so far.
    #[must_use]
    pub fn counters(&self) -> KeCounters {
        self.shared.tally.read(self.shared.open.load(Acquire))
    }

    /// Whether a thread has ended without being told to.
    #[must_use]
    pub fn has_died(&self) -> bool {
        let mut handles = self.threads.iter().filter_map(|thread| thread.handle.as_ref());
        handles.any(JoinHandle::is_finished)
    }

    /// Where it listens, in the order of the configuration.
    #[must_use]
    pub fn listen(&self) -> Vec<SocketAddr> {
        self.shared.settings.load().listeners.iter().map(|listener| listener.bound).collect()
    }

    /// Of the certificate that is served now.
    #[must_use]
    pub fn certificate(&self) -> CertificateFacts {
        let Validity { not_before, not_after } = self.shared.served.validity();
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
            // A thread that panicked has nothing more to say than it printed.
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

/// Reads a certificate and its key and says what is wrong with them, if anything is, as a listener
/// would when it is started.
///
/// # Errors
///
/// If they are not right.
pub fn check_certificate(certificate: &Path, key: &Path) -> Result<(), KeError> {
    let provider = aws_lc_rs::default_provider();
    Pair::load(certificate, key, &provider, SystemTime::now()).map(drop)
}

fn load(config: &KeConfig, provider: &CryptoProvider) -> Result<Pair, KeError> {
    Pair::load(&config.certificate, &config.key, provider, SystemTime::now())
}

/// TLS 1.3 alone, without sessions to resume and without early data.
fn tls_config(
    provider: &Arc<CryptoProvider>,
    served: &Arc<Served>,
) -> Result<ServerConfig, KeError> {
    // SHA-256 costs a fifth of SHA-384 where the processor knows it, a tenth of a handshake, and
    // the keys that are agreed upon here are for a cipher of 128 bits.
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

/// A socket for each address; one that listens there already is taken over, once.
fn listen(
    addresses: &[SocketAddr],
    present: &[Arc<Listener>],
) -> Result<Vec<Arc<Listener>>, KeError> {
    let mut present = present.to_vec();
    let open = |&asked: &SocketAddr| {
        if let Some(kept) = present.iter().position(|one| one.asked == asked) {
            return Ok(present.remove(kept));
        }
        if let Some(other) = present.iter().find(|one| overlap(one.bound, asked)) {
            return Err(KeError::Overlap(asked, other.bound));
        }
        let bound = |socket: TcpListener| socket.local_addr().map(|bound| (socket, bound));
        let (socket, bound) = horolog_sys::listen::tcp(asked, BACKLOG)
            .and_then(bound)
            .map_err(|error| KeError::Listen { address: asked, error })?;
        Ok(Arc::new(Listener { asked, socket, bound }))
    };
    addresses.iter().map(open).collect()
}

/// Whether one of two addresses is a wildcard that covers the other: the kernel lets only one of
/// them listen.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (one.ip().is_unspecified() || other.ip().is_unspecified())
}
