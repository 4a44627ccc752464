//! Running server: all its sockets and threads, started and stopped together.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption};
use horolog_http::HttpResponder;
use horolog_ke::NtsKeServer;
use horolog_ptp::{OpenPtpPorts, PtpThreads};
use horolog_source::{ClockPageReader, ClockPageSink, RunningCalibration, shared_pages};
use horolog_sys::clock::ClockMonotonic;
use horolog_sys::memory::resident_bytes;
use horolog_time::{Clock, Span, measure_precision};
use horolog_wire::ntp::LeapIndicator;

use crate::clock::host_time::{PlausibilityAtStart, TimeSaveThread};
use crate::clock::leap_file::LeapFile;
use crate::clock::leap_notice::describe_leap;
use crate::clock::page_builder::ClockPageBuilder;
use crate::clock::sources::{self, OpenSources, SourcesThread};
use crate::clock::thread::{ClockThread, read_clocks};
use crate::config::{EngineSelection, ServerConfig};
use crate::nts::authenticate::Secrets;
use crate::nts::nts_ke::{self, NtsKeReloader, NtsKeStatus};
use crate::nts::secrets::{self, CookieKeyRotator};
use crate::operation::confine::{ConfinementStatus, confine};
use crate::operation::metrics;
use crate::operation::reload::{
    ReloadError, ReloadManager, ReloadOutcome, Reloader, ReplyValuesReloader,
};
use crate::operation::reload_parts::{LeapFileReloader, LimitsReloader, SecretsReloader};
use crate::operation::server_status::{SCHEMA, ServerStatus, StoredClientCounts};
use crate::operation::status::{self, StatusSocket};
use crate::operation::web::{self, ServerLivePage};
use crate::reply::address_hash::AddressHashKey;
use crate::reply::interleaved::InterleavedTable;
use crate::reply::limits::Limiter;
use crate::sockets::counters::SocketEngineCounts;
use crate::sockets::hardware::HardwareTimestamping;
use crate::sockets::listen::SharedListenAddresses;
use crate::sockets::listeners::{Listeners, ListenersReloader, OpenListeners};
use crate::sockets::worker::WorkerContext;
use crate::start_error::StartError;
use crate::xdp::engine::{StartedXdpEngine, XdpEngine, XdpEngineError};
use crate::xdp::queues::AfXdpQueue;

/// Parts of a running server, from which the status is made.
#[derive(Debug)]
struct ServerParts {
    reload_manager: ReloadManager,
    sandbox: ConfinementStatus,
    interleaved: Arc<InterleavedTable>,
    limiter: Arc<ArcSwapOption<Limiter>>,
    started: Instant,
    page: ClockPageReader,
    xdp_refusals: Option<String>,
    // Fields are dropped in this order: the clock thread ends only when nothing answers any more.
    nts_ke: Option<Arc<NtsKeServer>>,
    ptp: Option<PtpThreads>,
    xdp: Option<XdpEngine>,
    sockets: Arc<Listeners>,
    clock: ClockThread,
    sources: SourcesThread,
    saved_time: TimeSaveThread,
    calibration: Option<RunningCalibration>,
    hardware: HardwareTimestamping,
}

impl ServerParts {
    fn status(&self) -> ServerStatus {
        // Read first, so that the values below are not older than the reloads it counts.
        let reload = self.reload_manager.health();
        let page = self.page.read();
        let variables = page.variables;
        let now = ClockMonotonic.now();
        let page_expired = now >= page.timebase.expires;
        let config = self.reload_manager.config();
        ServerStatus {
            schema: SCHEMA.into(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            listen: self.sockets.addresses().stepped,
            smear_listen: self.sockets.addresses().smeared,
            engine: if self.xdp.is_some() { "xdp" } else { "socket" }.into(),
            xdp_unavailable: self.xdp_refusals.clone(),
            xdp_interfaces: self.xdp.as_ref().map(XdpEngine::interfaces).unwrap_or_default(),
            threads: config.threads,
            dispatch: config.dispatch,
            leap: variables.leap as u8,
            stratum: variables.stratum,
            precision: variables.precision,
            reference_id: variables.reference_id,
            root_delay_ns: variables.root_delay.to_span().as_ns(),
            root_dispersion_ns: variables.root_dispersion.to_span().as_ns(),
            tai_minus_utc_s: page.tai_minus_utc_s,
            pending_leap: self.sources.shared().next_leap().as_ref().map(describe_leap),
            test_offset_ns: config.test_offset.as_ns(),
            test_drift_ppb: config.test_drift_ppb,
            sources: self.sources.shared().states(),
            calibration: self.calibration.as_ref().map(RunningCalibration::status),
            synchronised: !page_expired && variables.leap != LeapIndicator::Unsynchronised,
            page_age_ns: (now - page.timebase.anchor).as_ns(),
            page_expired,
            clock: self.clock.health(),
            sandbox: self.sandbox.clone(),
            reload,
            counters: self.sockets.totals(),
            ptp: self.ptp.as_ref().map(PtpThreads::status),
            nts_ke: self.nts_ke.as_deref().map(NtsKeStatus::from_listener),
            workers: self.sockets.workers(),
            xdp_answered_by_core: self.xdp.as_ref().map(XdpEngine::answered_by_core),
            xdp_counters: self.xdp.as_ref().map(XdpEngine::totals),
            clients: None,
            resident_bytes: resident_bytes().ok(),
        }
    }

    /// Returns the status with the numbers of stored clients, for which all slots of the tables are
    /// read.
    fn status_with_clients(&self) -> ServerStatus {
        let limited = self.limiter.load().as_ref().map(|limiter| limiter.clients());
        let by_xdp = self.xdp.as_ref().filter(|_| limited.is_some());
        let clients = StoredClientCounts {
            interleaved: self.interleaved.clients(),
            limited,
            limited_by_xdp: by_xdp.map(|xdp| xdp.responder().limited_clients()),
        };
        ServerStatus { clients: Some(clients), ..self.status() }
    }

    fn status_line(&self) -> String {
        // Numbers, texts and lists of them under string keys always serialise.
        let mut text = serde_json::to_string(&self.status_with_clients()).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// Running server. Dropping it stops the server.
#[derive(Debug)]
pub struct Server {
    // Dropped first, because the status thread has a reference to `parts`.
    status: Option<StatusSocket>,
    metrics: Option<HttpResponder>,
    web: Option<ServerLivePage>,
    parts: Arc<ServerParts>,
}

/// Starts the status socket, if one is configured.
fn start_status(
    config: &ServerConfig,
    running: &Arc<ServerParts>,
) -> Result<Option<StatusSocket>, StartError> {
    let start = |path| {
        let parts = Arc::clone(running);
        StatusSocket::start(path, move || parts.status_line())
    };
    Ok(config.status_socket.clone().map(start).transpose()?)
}

/// Returns the context that all threads of the socket engine share, with new tables of clients.
fn worker_context(
    config: &ServerConfig,
    page: &ClockPageReader,
    hardware: &HardwareTimestamping,
    secrets: &Secrets,
) -> Result<WorkerContext, StartError> {
    let key = AddressHashKey::random().map_err(StartError::Random)?;
    Ok(WorkerContext {
        page: page.clone(),
        stop: Arc::new(AtomicBool::new(false)),
        age_max: Span::from_ns(config.page_life.as_nanos() as i64),
        interleaved: interleaved_table(config.interleaved.clients, key)?,
        limiter: Arc::new(ArcSwapOption::from_pointee(Limiter::new(&config.limits, key))),
        has_transmit_timestamps: config.timestamps.transmit,
        hardware: hardware.conversions(),
        secrets: secrets.clone(),
    })
}

impl Server {
    /// Opens all configured sockets and files, confines the process as configured, and starts the
    /// server.
    pub fn start(config: &ServerConfig) -> Result<Self, StartError> {
        config.check()?;
        let started = Instant::now();
        let leap_file = config.leap_seconds.file.as_deref().map(LeapFile::open).transpose()?;
        let opened = OpenListeners::open(config)?;
        let addresses = opened.addresses();
        let (specs, has_receiver) = (&config.source.sources, config.calibration.is_some());
        let sources = OpenSources::open(specs, &addresses.stepped, has_receiver)?;
        let host = PlausibilityAtStart::open(&config.plausibility);
        let calibration = sources::open_calibration(config, host.plausibility_rules)?;
        let listen: SharedListenAddresses = Arc::new(ArcSwap::from_pointee(addresses));

        let mut sinks: Vec<Box<dyn ClockPageSink>> = Vec::new();
        let (xdp, without_xdp, af_xdp_queues) = start_xdp(config, &listen, &mut sinks)?;
        let ptp = OpenPtpPorts::open(&config.ptp, &config.timestamps.hardware)?;
        let hardware = HardwareTimestamping::open(config)?;
        if let Some(path) = &config.status_socket {
            status::make_directory(path)?;
        }
        // Read now, because the user to which the server switches may not be permitted to read the
        // token.
        let web = ServerLivePage::open(config.operation.web.as_ref())?;
        // Threads inherit the confinement, so none may run before.
        let sandbox = confine(config)?;
        // Loaded under confinement, so that a file that a reload could not read is reported now.
        let (secrets, notice) = secrets::load(&config.nts)?;
        if let Some(cookies) = &secrets.cookies {
            let (keys, is_test) = (Arc::clone(cookies), config.has_test_time());
            sinks.push(Box::new(CookieKeyRotator { keys, is_test }));
        }
        let hardware = hardware.start()?;
        let (calibration, sources) = sources::start_calibration(calibration, sources, config)?;
        let sources =
            SourcesThread::start(sources, host.plausibility_rules).map_err(StartError::Thread)?;
        let first = read_clocks();
        let mut page_builder =
            ClockPageBuilder::new(config, measure_precision(&ClockMonotonic), &first)
                .with_leap_file(leap_file.clone())
                .with_plausibility(host.plausibility_rules);
        let (writer, page) =
            shared_pages(&page_builder.update_from_sources(sources.shared()).pages(&first));
        sinks.push(Box::new(writer));
        let clock = ClockThread::start(page_builder, Arc::clone(sources.shared()), sinks)
            .map_err(StartError::Thread)?;

        let saved_time =
            TimeSaveThread::start(host, config.has_test_time(), &page, sources.shared())?;
        let ntp_port = listen.load().all_addresses().first().map(SocketAddr::port);
        let ke = nts_ke::start(config, ntp_port, secrets.cookies.as_ref())?.map(Arc::new);
        let context = worker_context(config, &page, &hardware, &secrets)?;
        let responder = |interface: &str| xdp.as_ref()?.responder_on(interface);
        let ptp = ptp.start(&page, &context.hardware, responder);
        let ptp = ptp.map_err(StartError::Thread)?;
        let limits = LimitsReloader {
            limiter: Arc::clone(&context.limiter),
            responder: xdp.as_ref().map(XdpEngine::responder),
            notices: Arc::clone(sources.shared()),
        };
        let interleaved = Arc::clone(&context.interleaved);
        let limiter = Arc::clone(&context.limiter);
        let sockets = Listeners::start(opened, af_xdp_queues, config, context, listen)
            .map_err(StartError::Thread)?;
        let sockets = Arc::new(sockets);
        let mut parts: Vec<Box<dyn Reloader>> =
            vec![Box::new(ReplyValuesReloader::new(clock.next_config_slot()))];
        if config.limits.is_on() {
            parts.push(Box::new(limits));
        }
        if let Some(listener) = &ke {
            let (listener, sockets) = (Arc::clone(listener), Arc::clone(&sockets));
            parts.push(Box::new(NtsKeReloader { listener, sockets }));
        }
        if secrets.is_configured() {
            parts.push(Box::new(SecretsReloader::new(secrets, notice, sources.shared())));
        }
        parts.extend(leap_file.map(|file| Box::new(LeapFileReloader(file)) as Box<dyn Reloader>));
        // Must be last; see `ReloadManager::new`.
        parts.push(Box::new(ListenersReloader(Arc::clone(&sockets))));
        let reloadable = ReloadManager::new(config, parts);
        let running = Arc::new(ServerParts {
            reload_manager: reloadable,
            sandbox,
            interleaved,
            limiter,
            started,
            page,
            xdp_refusals: without_xdp,
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
        let status = start_status(config, &running)?;
        let (metrics, web) = start_pages(config, web, &running)?;
        Ok(Self { status, metrics, web, parts: running })
    }

    /// Returns the listen addresses of UTC, with their actual ports.
    #[must_use]
    pub fn listen(&self) -> Vec<SocketAddr> {
        self.parts.sockets.addresses().stepped
    }

    /// Adopts the options of this configuration that can change at run time, or none. Unchanged
    /// listen sockets are not affected. `changed` are the names of all options, without leading
    /// hyphens, that differ from those in force; those that need a restart are listed in the report
    /// and the status.
    pub fn reload(
        &self,
        new: &ServerConfig,
        changed: Vec<String>,
    ) -> Result<ReloadOutcome, ReloadError> {
        self.parts.reload_manager.reload(new, changed)
    }

    /// Counts a reload whose configuration could not be read, for the status.
    pub fn note_refused_reload(&self, reason: &str) {
        self.parts.reload_manager.record_refusal(reason);
    }

    /// Returns the counts of the socket engine.
    #[must_use]
    pub fn counters(&self) -> SocketEngineCounts {
        self.parts.sockets.totals()
    }

    /// Returns the status that `horolog status` prints, but without the numbers of stored clients.
    #[must_use]
    pub fn status(&self) -> ServerStatus {
        self.parts.status()
    }

    /// Removes and returns the notices of calibration and time sources since the last call, one
    /// line each.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        let ServerParts { sources, calibration, .. } = &*self.parts;
        let calibrated = calibration.as_ref().map(RunningCalibration::notices).unwrap_or_default();
        calibrated.into_iter().chain(sources.shared().notices()).collect()
    }

    /// Returns true if a thread has ended unexpectedly. The server no longer works and should be
    /// stopped.
    #[must_use]
    pub fn has_died(&self) -> bool {
        let ServerParts { sockets, clock, sources, saved_time, calibration, hardware, .. } =
            &*self.parts;
        let ServerParts { nts_ke, ptp, .. } = &*self.parts;
        let nts_ke = nts_ke.as_deref();
        sockets.has_died()
            || clock.has_died()
            || sources.has_died()
            || saved_time.has_died()
            || calibration.as_ref().is_some_and(RunningCalibration::has_died)
            || hardware.has_died()
            || nts_ke.is_some_and(NtsKeServer::has_failed_thread)
            || ptp.as_ref().is_some_and(PtpThreads::has_died)
            || self.status.as_ref().is_some_and(StatusSocket::has_died)
            || self.metrics.as_ref().is_some_and(HttpResponder::has_failed)
            || self.web.as_ref().is_some_and(ServerLivePage::has_died)
    }

    /// Saves the served time if configured, stops the server within a second, and returns the last
    /// status.
    #[allow(clippy::must_use_candidate, reason = "the state is a by-product of stopping")]
    pub fn stop(self) -> ServerStatus {
        let Self { status, metrics, web, parts: mut running } = self;
        // Their threads have references to `parts`; the remaining reference is then the only one.
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

fn interleaved_table(
    clients: usize,
    key: AddressHashKey,
) -> Result<Arc<InterleavedTable>, StartError> {
    InterleavedTable::new(clients, key).map(Arc::new).ok_or(StartError::Memory(clients))
}

/// Starts the metrics endpoint and the live page, if configured.
fn start_pages(
    config: &ServerConfig,
    web: Option<web::BoundServerLivePage>,
    running: &Arc<ServerParts>,
) -> Result<(Option<HttpResponder>, Option<ServerLivePage>), StartError> {
    let status_readers = || {
        let (state, whole) = (Arc::clone(running), Arc::clone(running));
        (move || state.status(), move || whole.status_with_clients())
    };
    let metrics = metrics::start(config.operation.metrics, status_readers())?;
    let web = web::start(web, status_readers()).map_err(StartError::Thread)?;
    Ok((metrics, web))
}

/// Result of starting XDP: the engine if it runs, the reason for which it does not run on some or
/// all interfaces, and `AF_XDP` sockets for redirected requests.
type XdpStartResult = (Option<XdpEngine>, Option<String>, Vec<AfXdpQueue>);

/// Starts the XDP engine, if configured, and adds its sink to `sinks`. With `auto`, a failure is
/// returned as the reason for which the server continues without XDP; if interfaces were named,
/// only a failure of [`XdpEngineError::Xdp`] is.
fn start_xdp(
    config: &ServerConfig,
    listen: &SharedListenAddresses,
    sinks: &mut Vec<Box<dyn ClockPageSink>>,
) -> Result<XdpStartResult, XdpEngineError> {
    let without = |reason| Ok((None, reason, Vec::new()));
    if config.engine == EngineSelection::Socket {
        return without(None);
    }
    let in_hardware = |name: &str| config.timestamps.hardware.iter().any(|one| one == name);
    match XdpEngine::start(config, listen, in_hardware) {
        Ok(StartedXdpEngine { engine: body, sink, af_xdp_queues }) => {
            sinks.push(sink);
            let refusals = body.refusals();
            Ok((Some(body), refusals, af_xdp_queues))
        }
        // If the user named an interface that does not exist, the server does not start.
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
