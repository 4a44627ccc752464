//! A running server: sockets, their threads, the clock thread and the status socket, started
//! together and stopped together.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use arc_swap::ArcSwap;
use horolog_io::UdpError;
use horolog_sys::clock::MonotonicClock;
use horolog_sys::memory::resident_bytes;
use horolog_time::{Clock, Span};
use horolog_wire::ntp::Leap;
use serde::Serialize;

use crate::clock::{ClockThread, look};
use crate::confine::{Confinement, confine};
use crate::listening::{ListenPart, Listening, Opened, WorkerStatus};
use crate::metrics::{self, MetricsError};
use crate::page::{self, PageReader, PageSink};
use crate::reload::{Part, ReloadError, ReloadHealth, ReloadReport, Reloadable, ReplyValues};
use crate::renewal::Renewal;
use crate::status::{self, StatusError, StatusSocket};
use crate::worker::Surroundings;
use crate::xdp::{BodyError, SharedListen, XdpBody, XdpPlace, XdpTotals};
use crate::{ClockHealth, ConfigError, ConfineError, Engine, ServerConfig, Totals, precision};

/// Why a server did not start; its text is one line for the user. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is not right.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The port is taken.
    #[error(
        "address {0} is in use by another process (ss -ulpn 'sport = :{port}' names it); \
         choose another with --listen",
        port = .0.port()
    )]
    InUse(SocketAddr),
    /// A socket could not be opened.
    #[error(transparent)]
    Listen(UdpError),
    /// The kernel does not answer, and was told to.
    #[error(transparent)]
    Xdp(#[from] BodyError),
    /// The status socket could not be made.
    #[error(transparent)]
    Status(#[from] StatusError),
    /// Metrics cannot be told where they were wanted.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// It cannot be confined as it has to be.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}; see the limits on processes and memory (ulimit -a)")]
    Thread(#[source] io::Error),
}

impl From<UdpError> for StartError {
    fn from(error: UdpError) -> Self {
        match error {
            UdpError::InUse(address) => Self::InUse(address),
            other => Self::Listen(other),
        }
    }
}

/// What a server tells about itself: the JSON object of `horolog status`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Status {
    /// Name and version of this format.
    pub schema: &'static str,
    /// Process identifier.
    pub pid: u32,
    /// Time since the start, in seconds.
    pub uptime_s: f64,
    /// Addresses listened on.
    pub listen: Vec<SocketAddr>,
    /// The bodies that answer: `socket`, or `xdp` for both.
    pub engine: &'static str,
    /// Why XDP does not answer, or not everywhere, where it was wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_xdp: Option<String>,
    /// Where XDP answers.
    pub xdp_places: Vec<XdpPlace>,
    /// Threads for each address.
    pub threads: usize,
    /// How they share the work.
    pub dispatch: &'static str,
    /// Leap indicator: 0 none, 1 insert, 2 delete, 3 unsynchronised.
    pub leap: u8,
    /// Stratum; 16 means unsynchronised.
    pub stratum: u8,
    /// Precision of the clock, log2 of seconds.
    pub precision: i8,
    /// Reference identifier, as a packet carries it.
    pub reference_id: [u8; 4],
    /// Delay to the reference clock, in nanoseconds.
    pub root_delay_ns: i64,
    /// Dispersion to the reference clock, in nanoseconds.
    pub root_dispersion_ns: i64,
    /// How far the served time is ahead of the system clock on purpose, in nanoseconds.
    pub test_offset_ns: i64,
    /// How fast that grows on purpose, in parts per billion.
    pub test_drift_ppb: i64,
    /// Whether the served time may be used: the page is alive and the clock is synchronised.
    pub synchronised: bool,
    /// Age of the clock page, in nanoseconds.
    pub page_age_ns: i64,
    /// Whether the clock page has expired, and nothing is answered.
    pub page_expired: bool,
    /// How the renewing of the clock page goes.
    pub clock: ClockHealth,
    /// What it has given up.
    pub sandbox: Confinement,
    /// How reloading went.
    pub reload: ReloadHealth,
    /// What the socket body counted.
    pub counters: Totals,
    /// What each thread of the socket body counted.
    pub workers: Vec<WorkerStatus>,
    /// Requests that the XDP body answered, by core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xdp_answered_by_core: Option<Vec<u64>>,
    /// What the XDP body counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xdp_counters: Option<XdpTotals>,
    /// Memory resident, in bytes; absent when the system does not tell.
    pub resident_bytes: Option<u64>,
}

const SCHEMA: &str = "horolog.status/1";

/// The parts that the status thread reads while they run.
#[derive(Debug)]
struct Running {
    reloadable: Reloadable,
    sandbox: Confinement,
    started: Instant,
    page: PageReader,
    without_xdp: Option<String>,
    // Fields are dropped in this order: nothing answers any more when the clock ends.
    xdp: Option<XdpBody>,
    sockets: Arc<Listening>,
    clock: ClockThread,
}

impl Running {
    fn status(&self) -> Status {
        // First, so that what follows is not older than the reloads that it counts.
        let reload = self.reloadable.health();
        let page = self.page.read();
        let variables = page.variables;
        let now = MonotonicClock.now();
        let page_expired = now >= page.timebase.expires;
        let config = self.reloadable.config();
        Status {
            schema: SCHEMA,
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            listen: self.sockets.addresses(),
            engine: if self.xdp.is_some() { "xdp" } else { "socket" },
            without_xdp: self.without_xdp.clone(),
            xdp_places: self.xdp.as_ref().map(XdpBody::places).unwrap_or_default(),
            threads: config.threads,
            dispatch: config.dispatch.name(),
            leap: variables.leap as u8,
            stratum: variables.stratum,
            precision: variables.precision,
            reference_id: variables.reference_id,
            root_delay_ns: variables.root_delay.to_span().as_ns(),
            root_dispersion_ns: variables.root_dispersion.to_span().as_ns(),
            test_offset_ns: config.test_offset.as_ns(),
            test_drift_ppb: config.test_drift_ppb,
            synchronised: !page_expired && variables.leap != Leap::Unsynchronised,
            page_age_ns: (now - page.timebase.anchor).as_ns(),
            page_expired,
            clock: self.clock.health(),
            sandbox: self.sandbox.clone(),
            reload,
            counters: self.sockets.totals(),
            workers: self.sockets.workers(),
            xdp_answered_by_core: self.xdp.as_ref().map(XdpBody::answered_by_core),
            xdp_counters: self.xdp.as_ref().map(XdpBody::totals),
            resident_bytes: resident_bytes().ok(),
        }
    }

    fn answer(&self) -> String {
        // Numbers and lists of numbers under string keys always serialise.
        let mut text = serde_json::to_string(&self.status()).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    // Dropped first, so that the status thread's hold on the rest is gone when the rest goes.
    status: Option<StatusSocket>,
    metrics: Option<metrics::Responder>,
    running: Arc<Running>,
}

impl Server {
    /// Opens everything that was asked for, and answers from then on.
    pub fn start(config: &ServerConfig) -> Result<Self, StartError> {
        config.check()?;
        let started = Instant::now();
        let opened = Opened::open(&config.listen, config)?;
        let listen: SharedListen = Arc::new(ArcSwap::from_pointee(opened.addresses()));

        let first = look();
        let mut renewal = Renewal::new(config, precision::measure(&MonotonicClock), &first);
        let (writer, page) = page::shared(&renewal.page(&first));
        let mut sinks: Vec<Box<dyn PageSink>> = vec![Box::new(writer)];
        let (xdp, without_xdp) = start_xdp(config, &listen, &mut sinks)?;
        if let Some(path) = &config.status_socket {
            status::make_directory(path)?;
        }
        // Threads inherit it, so none may run yet.
        let sandbox = confine(config)?;
        let clock = ClockThread::start(renewal, sinks).map_err(StartError::Thread)?;

        let surroundings = Surroundings {
            page: page.clone(),
            stop: Arc::new(AtomicBool::new(false)),
            age_max: Span::from_ns(config.page_life.as_nanos() as i64),
        };
        let sockets =
            Listening::start(opened, config, surroundings, listen).map_err(StartError::Thread)?;
        let sockets = Arc::new(sockets);
        let parts: Vec<Box<dyn Part>> = vec![
            Box::new(ReplyValues::new(clock.next())),
            // Last, see `Reloadable::new`.
            Box::new(ListenPart(Arc::clone(&sockets))),
        ];
        let reloadable = Reloadable::new(config, parts);
        let status_socket = config.status_socket.clone();
        let running = Arc::new(Running {
            reloadable,
            sandbox,
            started,
            page,
            without_xdp,
            xdp,
            sockets,
            clock,
        });
        let asked = Arc::clone(&running);
        let status = status_socket
            .map(|path| StatusSocket::start(path, move || asked.answer()))
            .transpose()?;
        let metrics = start_metrics(config, &running)?;
        Ok(Self { status, metrics, running })
    }

    /// The addresses listened on, with the ports that the kernel chose where 0 was asked for.
    #[must_use]
    pub fn listen(&self) -> Vec<SocketAddr> {
        self.running.sockets.addresses()
    }

    /// Takes over what a running server can change of this configuration, or changes nothing.
    /// Sockets that stay are not touched.
    pub fn reload(&self, new: &ServerConfig) -> Result<ReloadReport, ReloadError> {
        self.running.reloadable.reload(new)
    }

    /// The options that a reload can change, by their names without hyphens in front.
    #[must_use]
    pub fn reloadable_keys(&self) -> Vec<&'static str> {
        self.running.reloadable.keys()
    }

    /// Notes for the status that a new configuration could not even be read.
    pub fn note_refused_reload(&self, reason: &str) {
        self.running.reloadable.refused(reason);
    }

    /// Notes for the status which options were changed and wait for a restart.
    pub fn note_restart_needed(&self, keys: Vec<String>) {
        self.running.reloadable.restart_needed(keys);
    }

    /// What the socket body counted so far.
    #[must_use]
    pub fn counters(&self) -> Totals {
        self.running.sockets.totals()
    }

    /// What `horolog status` prints.
    #[must_use]
    pub fn status(&self) -> Status {
        self.running.status()
    }

    /// Whether a thread has ended that should not have; the server is then of no use and better
    /// stopped.
    #[must_use]
    pub fn has_died(&self) -> bool {
        self.running.sockets.has_died() || self.running.clock.has_died()
    }

    /// Stops answering within a second and returns the last state.
    #[allow(clippy::must_use_candidate, reason = "the state is a by-product of stopping")]
    pub fn stop(self) -> Status {
        let Self { status, metrics, mut running } = self;
        // These threads' hold on what runs goes with them, so this is the only one left.
        drop((status, metrics));
        if let Some(xdp) = Arc::get_mut(&mut running).and_then(|running| running.xdp.as_mut()) {
            xdp.detach();
        }
        running.sockets.stop();
        running.status()
    }
}

fn start_metrics(
    config: &ServerConfig,
    running: &Arc<Running>,
) -> Result<Option<metrics::Responder>, MetricsError> {
    let Some(address) = config.operation.metrics else { return Ok(None) };
    let asked = Arc::clone(running);
    let answer = move |path: &str| metrics::answer(path, || asked.status());
    let started =
        TcpListener::bind(address).and_then(|listener| metrics::Responder::start(listener, answer));
    started.map(Some).map_err(|error| MetricsError(address, error))
}

/// Starts the XDP body as far as it is wanted, and says why not where `auto` does without.
fn start_xdp(
    config: &ServerConfig,
    listen: &SharedListen,
    sinks: &mut Vec<Box<dyn PageSink>>,
) -> Result<(Option<XdpBody>, Option<String>), BodyError> {
    if config.engine == Engine::Socket {
        return Ok((None, None));
    }
    match XdpBody::start(config, listen) {
        Ok((body, sink)) => {
            sinks.push(sink);
            let refusals = body.refusals();
            Ok((Some(body), refusals))
        }
        // What was named and is not there is a mistake, not a reason to do without.
        Err(BodyError::Xdp(error)) if config.engine == Engine::Auto => {
            Ok((None, Some(error.to_string())))
        }
        Err(error) if config.engine == Engine::Auto && config.interfaces.is_empty() => {
            Ok((None, Some(error.to_string())))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
