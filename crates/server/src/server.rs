//! Running server: sockets, their threads, the clock thread and the status socket, started and
//! stopped together.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption};
use horolog_http::HttpResponder;
use horolog_ke::KeServer;
use horolog_source::{Calibration, CalibrationStatus, SourceState};
use horolog_sys::clock::MonotonicClock;
use horolog_sys::memory::resident_bytes;
use horolog_time::{Clock, Span, measure_precision};
use horolog_wire::ntp::LeapIndicator;
use serde::Serialize;

use crate::af_xdp::AfXdpQueue;
use crate::calibration;
use crate::clock::{ClockThread, read_clocks};
use crate::confine::{Confinement, confine};
use crate::hardware::Hardware;
use crate::host_time::{HostTime, SavedTime};
use crate::leap_notice::pending;
use crate::listeners::{Listeners, ListenersPart, OpenListeners, WorkerStatus};
use crate::metrics;
use crate::nts_ke::{self, NtsKePart, NtsKeStatus};
use crate::page::{self, PageReader, PageSink};
use crate::page_builder::PageBuilder;
use crate::ptp::{OpenPtp, PtpStatus, PtpThreads};
use crate::reload::{
    ReloadError, ReloadHealth, ReloadManager, ReloadPart, ReloadReport, ReplyValues,
};
use crate::reload_parts::{LeapFilePart, LimitsPart, SecretsPart};
use crate::secrets::CookieRenewal;
use crate::sources::{OpenSources, SourcesThread};
use crate::status::{self, StatusSocket};
use crate::web::{self, ServerLivePage};
use crate::worker::WorkerContext;
use crate::xdp::{SharedListen, StartedEngine, XdpCounts, XdpEngine, XdpEngineError, XdpInterface};
use crate::{
    ClockHealth, EngineSelection, HashKey, InterleavedTable, LeapFile, Limiter, ServerConfig,
    SocketCounts, StartError, secrets,
};

/// Status of a server: the JSON object of `horolog status`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Status {
    /// Name and version of this format.
    pub schema: &'static str,
    /// Process identifier.
    pub pid: u32,
    /// Time since the start, in seconds.
    pub uptime_s: f64,
    /// Listen addresses.
    pub listen: Vec<SocketAddr>,
    /// Listen addresses of smeared time.
    pub smear_listen: Vec<SocketAddr>,
    /// Engines that answer: `socket`, or `xdp` for both.
    pub engine: &'static str,
    /// Reason for which XDP does not answer, or not everywhere, although requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xdp_unavailable: Option<String>,
    /// Interfaces on which XDP answers.
    pub xdp_interfaces: Vec<XdpInterface>,
    /// Threads per listen address.
    pub threads: usize,
    /// Distribution of work among the threads.
    pub dispatch: &'static str,
    /// Leap indicator: 0 none, 1 insert, 2 delete, 3 unsynchronised.
    pub leap: u8,
    /// Stratum; 16 means unsynchronised, for which replies carry 0.
    pub stratum: u8,
    /// Precision of the clock, log2 of seconds.
    pub precision: i8,
    /// Reference identifier as carried in a packet.
    pub reference_id: [u8; 4],
    /// Delay to the reference clock, in nanoseconds.
    pub root_delay_ns: i64,
    /// Dispersion to the reference clock, in nanoseconds.
    pub root_dispersion_ns: i64,
    /// TAI minus UTC, in seconds; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tai_minus_utc_s: Option<i16>,
    /// Next leap second by the list: insertion or deletion, and the day at whose end it occurs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_leap: Option<String>,
    /// Deliberate lead of the served time over the system clock, in nanoseconds.
    pub test_offset_ns: i64,
    /// Deliberate drift of the served time, in parts per billion.
    pub test_drift_ppb: i64,
    /// Time sources and the role of each.
    pub sources: Vec<SourceState>,
    /// Receiver that calibrates the system clock, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration: Option<CalibrationStatus>,
    /// True if the served time may be used: the page is valid and the clock is synchronised.
    pub synchronised: bool,
    /// Age of the clock page, in nanoseconds.
    pub page_age_ns: i64,
    /// True if the clock page has expired, and nothing is answered.
    pub page_expired: bool,
    /// Health of the page updates.
    pub clock: ClockHealth,
    /// Confinement in force.
    pub sandbox: Confinement,
    /// History of reloads.
    pub reload: ReloadHealth,
    /// Counts of the socket engine.
    pub counters: SocketCounts,
    /// PTP grandmaster, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ptp: Option<PtpStatus>,
    /// NTS-KE listener, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nts_ke: Option<NtsKeStatus>,
    /// Counts of each thread of the socket engine.
    pub workers: Vec<WorkerStatus>,
    /// Requests answered by the XDP engine, by core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xdp_answered_by_core: Option<Vec<u64>>,
    /// Counts of the XDP engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xdp_counters: Option<XdpCounts>,
    /// Stored clients; absent if they are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<Clients>,
    /// Resident memory, in bytes; absent if the system does not report it.
    pub resident_bytes: Option<u64>,
}

/// Clients that a server stores, including those that have long been idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Clients {
    /// Clients in interleaved mode, stored by the socket threads.
    pub interleaved: u64,
    /// Clients with limits, stored by these threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited: Option<u64>,
    /// Clients with limits, stored by XDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by_xdp: Option<u64>,
}

const SCHEMA: &str = "horolog.status/2";

/// Parts of a running server that the status thread reads.
#[derive(Debug)]
struct ServerParts {
    reloadable: ReloadManager,
    sandbox: Confinement,
    interleaved: Arc<InterleavedTable>,
    limiter: Arc<ArcSwapOption<Limiter>>,
    started: Instant,
    page: PageReader,
    without_xdp: Option<String>,
    // Fields are dropped in this order: nothing answers any more when the clock ends.
    nts_ke: Option<Arc<KeServer>>,
    ptp: Option<PtpThreads>,
    xdp: Option<XdpEngine>,
    sockets: Arc<Listeners>,
    clock: ClockThread,
    sources: SourcesThread,
    saved_time: SavedTime,
    calibration: Option<Calibration>,
    hardware: Hardware,
}

impl ServerParts {
    fn status(&self) -> Status {
        // First, so that the following values are not older than the reloads that it counts.
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
            listen: self.sockets.addresses().stepped,
            smear_listen: self.sockets.addresses().smeared,
            engine: if self.xdp.is_some() { "xdp" } else { "socket" },
            xdp_unavailable: self.without_xdp.clone(),
            xdp_interfaces: self.xdp.as_ref().map(XdpEngine::interfaces).unwrap_or_default(),
            threads: config.threads,
            dispatch: config.dispatch.name(),
            leap: variables.leap as u8,
            stratum: variables.stratum,
            precision: variables.precision,
            reference_id: variables.reference_id,
            root_delay_ns: variables.root_delay.to_span().as_ns(),
            root_dispersion_ns: variables.root_dispersion.to_span().as_ns(),
            tai_minus_utc_s: page.tai_minus_utc_s,
            pending_leap: self.sources.shared().next_leap().as_ref().map(pending),
            test_offset_ns: config.test_offset.as_ns(),
            test_drift_ppb: config.test_drift_ppb,
            sources: self.sources.shared().states(),
            calibration: self.calibration.as_ref().map(Calibration::status),
            synchronised: !page_expired && variables.leap != LeapIndicator::Unsynchronised,
            page_age_ns: (now - page.timebase.anchor).as_ns(),
            page_expired,
            clock: self.clock.health(),
            sandbox: self.sandbox.clone(),
            reload,
            counters: self.sockets.totals(),
            ptp: self.ptp.as_ref().map(PtpThreads::status),
            nts_ke: self.nts_ke.as_deref().map(NtsKeStatus::of),
            workers: self.sockets.workers(),
            xdp_answered_by_core: self.xdp.as_ref().map(XdpEngine::answered_by_core),
            xdp_counters: self.xdp.as_ref().map(XdpEngine::totals),
            clients: None,
            resident_bytes: resident_bytes().ok(),
        }
    }

    /// Returns the status with the number of clients, which requires a scan of all stored ones.
    fn whole_status(&self) -> Status {
        let limited = self.limiter.load().as_ref().map(|limiter| limiter.clients());
        let by_xdp = self.xdp.as_ref().filter(|_| limited.is_some());
        let clients = Clients {
            interleaved: self.interleaved.clients(),
            limited,
            limited_by_xdp: by_xdp.map(|xdp| xdp.responder().limited_clients()),
        };
        Status { clients: Some(clients), ..self.status() }
    }

    fn answer(&self) -> String {
        // Numbers and lists of numbers under string keys always serialise.
        let mut text = serde_json::to_string(&self.whole_status()).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// Running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    // Dropped first, so that the status thread's reference to the rest is gone when the rest is
    // dropped.
    status: Option<StatusSocket>,
    metrics: Option<HttpResponder>,
    web: Option<ServerLivePage>,
    running: Arc<ServerParts>,
}

impl Server {
    /// Opens everything that is configured, and answers from then on.
    pub fn start(config: &ServerConfig) -> Result<Self, StartError> {
        config.check()?;
        let started = Instant::now();
        let leap_file = config.leap_seconds.file.as_deref().map(LeapFile::open).transpose()?;
        let opened = OpenListeners::open(config)?;
        let addresses = opened.addresses();
        let (specs, has_receiver) = (&config.source.sources, config.calibration.is_some());
        let sources = OpenSources::open(specs, &addresses.stepped, has_receiver)?;
        let host = HostTime::open(&config.plausibility);
        let calibration = calibration::open(config, host.basis)?;
        let listen: SharedListen = Arc::new(ArcSwap::from_pointee(addresses));

        let mut sinks: Vec<Box<dyn PageSink>> = Vec::new();
        let (xdp, without_xdp, handed_over) = start_xdp(config, &listen, &mut sinks)?;
        let ptp = OpenPtp::open(config)?;
        let hardware = Hardware::open(config)?;
        if let Some(path) = &config.status_socket {
            status::make_directory(path)?;
        }
        // The user that the server switches to may not be permitted to read the token.
        let web = ServerLivePage::open(config.operation.web.as_ref())?;
        // Threads inherit it, so none may run yet.
        let sandbox = confine(config)?;
        // A file that a reload could not read should be reported now.
        let (secrets, notice) = secrets::load(&config.nts)?;
        if let Some(cookies) = &secrets.cookies {
            let (keys, is_test) = (Arc::clone(cookies), config.is_test());
            sinks.push(Box::new(CookieRenewal { keys, is_test }));
        }
        let hardware = hardware.start()?;
        let (calibration, sources) = calibration::start(calibration, sources, config)?;
        let sources = SourcesThread::start(sources, host.basis).map_err(StartError::Thread)?;
        let first = read_clocks();
        let mut renewal = PageBuilder::new(config, measure_precision(&MonotonicClock), &first)
            .with_leap_file(leap_file.clone())
            .within(host.basis);
        let (writer, page) =
            page::shared(&renewal.update_from_sources(sources.shared()).pages(&first));
        sinks.push(Box::new(writer));
        let clock = ClockThread::start(renewal, Arc::clone(sources.shared()), sinks)
            .map_err(StartError::Thread)?;

        let saved_time = SavedTime::start(host, config.is_test(), &page, sources.shared())?;
        let ntp_port = listen.load().all().first().map(SocketAddr::port);
        let ke = nts_ke::start(config, ntp_port, secrets.cookies.as_ref())?.map(Arc::new);
        let key = HashKey::random().map_err(StartError::Random)?;
        let surroundings = WorkerContext {
            page: page.clone(),
            stop: Arc::new(AtomicBool::new(false)),
            age_max: Span::from_ns(config.page_life.as_nanos() as i64),
            interleaved: interleaved_table(config.interleaved.clients, key)?,
            limiter: Arc::new(ArcSwapOption::from_pointee(Limiter::new(&config.limits, key))),
            has_transmit_timestamps: config.timestamps.transmit,
            hardware: hardware.conversions(),
            secrets: secrets.clone(),
        };
        let ptp = ptp.start(config, &page, &surroundings.hardware, xdp.as_ref());
        let ptp = ptp.map_err(StartError::Thread)?;
        let limits = LimitsPart {
            limiter: Arc::clone(&surroundings.limiter),
            responder: xdp.as_ref().map(XdpEngine::responder),
            notices: Arc::clone(sources.shared()),
        };
        let interleaved = Arc::clone(&surroundings.interleaved);
        let limiter = Arc::clone(&surroundings.limiter);
        let sockets = Listeners::start(opened, handed_over, config, surroundings, listen)
            .map_err(StartError::Thread)?;
        let sockets = Arc::new(sockets);
        let mut parts: Vec<Box<dyn ReloadPart>> = vec![Box::new(ReplyValues::new(clock.next()))];
        if config.limits.is_on() {
            parts.push(Box::new(limits));
        }
        if let Some(listener) = &ke {
            let (listener, sockets) = (Arc::clone(listener), Arc::clone(&sockets));
            parts.push(Box::new(NtsKePart { listener, sockets }));
        }
        if secrets.is_some() {
            parts.push(Box::new(SecretsPart::new(secrets, notice, sources.shared())));
        }
        parts.extend(leap_file.map(|file| Box::new(LeapFilePart(file)) as Box<dyn ReloadPart>));
        // Last, see `ReloadManager::new`.
        parts.push(Box::new(ListenersPart(Arc::clone(&sockets))));
        let reloadable = ReloadManager::new(config, parts);
        let running = Arc::new(ServerParts {
            reloadable,
            sandbox,
            interleaved,
            limiter,
            started,
            page,
            without_xdp,
            nts_ke: ke,
            ptp,
            xdp,
            sockets,
            clock,
            sources,
            saved_time,
            calibration,
            hardware,
        });
        let status_parts = Arc::clone(&running);
        let status = config.status_socket.clone();
        let status = status.map(|path| StatusSocket::start(path, move || status_parts.answer()));
        let status = status.transpose()?;
        let (metrics, web) = start_pages(config, web, &running)?;
        Ok(Self { status, metrics, web, running })
    }

    /// Returns the listen addresses, with the ports that the kernel chose if 0 was requested.
    #[must_use]
    pub fn listen(&self) -> Vec<SocketAddr> {
        self.running.sockets.addresses().stepped
    }

    /// Adopts the changeable options of this configuration, or changes nothing. Sockets that stay
    /// are not touched. `changed` are the names of all options, without leading hyphens, that
    /// differ from those in force; those that no reload changes need a restart, and are listed in
    /// the report and the status.
    pub fn reload(
        &self,
        new: &ServerConfig,
        changed: Vec<String>,
    ) -> Result<ReloadReport, ReloadError> {
        self.running.reloadable.reload(new, changed)
    }

    /// Records for the status that a new configuration could not even be read.
    pub fn note_refused_reload(&self, reason: &str) {
        self.running.reloadable.refused(reason);
    }

    /// Returns the counts of the socket engine so far.
    #[must_use]
    pub fn counters(&self) -> SocketCounts {
        self.running.sockets.totals()
    }

    /// Returns the status as printed by `horolog status`.
    #[must_use]
    pub fn status(&self) -> Status {
        self.running.status()
    }

    /// Returns the events of the time sources and the calibration since the last call, one line
    /// each for the user.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        let ServerParts { sources, calibration, .. } = &*self.running;
        let calibrated = calibration.as_ref().map(Calibration::notices).unwrap_or_default();
        calibrated.into_iter().chain(sources.shared().notices()).collect()
    }

    /// Returns true if a thread has ended unexpectedly; the server is then useless and should be
    /// stopped.
    #[must_use]
    pub fn has_died(&self) -> bool {
        let ServerParts { sockets, clock, sources, saved_time, calibration, hardware, .. } =
            &*self.running;
        let ServerParts { nts_ke, ptp, .. } = &*self.running;
        let nts_ke = nts_ke.as_deref();
        sockets.has_died()
            || clock.has_died()
            || sources.has_died()
            || saved_time.has_died()
            || calibration.as_ref().is_some_and(Calibration::has_died)
            || hardware.has_died()
            || nts_ke.is_some_and(KeServer::has_died)
            || ptp.as_ref().is_some_and(PtpThreads::has_died)
            || self.status.as_ref().is_some_and(StatusSocket::has_died)
            || self.metrics.as_ref().is_some_and(HttpResponder::has_failed)
            || self.web.as_ref().is_some_and(ServerLivePage::has_died)
    }

    /// Stops answering within a second and returns the last status.
    #[allow(clippy::must_use_candidate, reason = "the state is a by-product of stopping")]
    pub fn stop(self) -> Status {
        let Self { status, metrics, web, mut running } = self;
        // These threads' references to the running parts are dropped with them, so this is the last
        // one.
        drop((status, metrics, web));
        running.saved_time.save();
        if let Some(running) = Arc::get_mut(&mut running) {
            if let Some(xdp) = &mut running.xdp {
                xdp.detach();
            }
            if let Some(ptp) = &mut running.ptp {
                ptp.stop();
            }
        }
        running.sockets.stop();
        running.status()
    }
}

fn interleaved_table(clients: usize, key: HashKey) -> Result<Arc<InterleavedTable>, StartError> {
    InterleavedTable::new(clients, key).map(Arc::new).ok_or(StartError::Memory(clients))
}

/// Starts the HTTP endpoints: the metrics and the live page, as configured.
fn start_pages(
    config: &ServerConfig,
    web: Option<web::BoundServerPage>,
    running: &Arc<ServerParts>,
) -> Result<(Option<HttpResponder>, Option<ServerLivePage>), StartError> {
    let status_readers = || {
        let (state, whole) = (Arc::clone(running), Arc::clone(running));
        (move || state.status(), move || whole.whole_status())
    };
    let metrics = metrics::start(config.operation.metrics, status_readers())?;
    let web = web::start(web, status_readers()).map_err(StartError::Thread)?;
    Ok((metrics, web))
}

/// XDP engine, the reason for which it is absent or does not run everywhere, and its redirect
/// devices.
type StartedXdp = (Option<XdpEngine>, Option<String>, Vec<AfXdpQueue>);

/// Starts the XDP engine if configured, returns the reason if `auto` continues without it, and
/// returns the devices that receive redirected requests.
fn start_xdp(
    config: &ServerConfig,
    listen: &SharedListen,
    sinks: &mut Vec<Box<dyn PageSink>>,
) -> Result<StartedXdp, XdpEngineError> {
    let without = |reason| Ok((None, reason, Vec::new()));
    if config.engine == EngineSelection::Socket {
        return without(None);
    }
    let in_hardware = |name: &str| config.timestamps.hardware.iter().any(|one| one == name);
    match XdpEngine::start(config, listen, in_hardware) {
        Ok(StartedEngine { body, sink, to_af_xdp: handed_over }) => {
            sinks.push(sink);
            let refusals = body.refusals();
            Ok((Some(body), refusals, handed_over))
        }
        // A named interface that is missing is an error, not a reason to continue without it.
        Err(XdpEngineError::Xdp(error)) if config.engine == EngineSelection::Auto => {
            without(Some(error.to_string()))
        }
        Err(error) if config.engine == EngineSelection::Auto && config.interfaces.is_empty() => {
            without(Some(error.to_string()))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
