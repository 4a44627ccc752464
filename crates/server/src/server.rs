//! A running server: sockets, their threads, the clock thread and the status socket, started
//! together and stopped together.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption};
use horolog_http::Responder;
use horolog_ke::KeServer;
use horolog_source::{Calibration, CalibrationStatus, SourceState};
use horolog_sys::clock::MonotonicClock;
use horolog_sys::memory::resident_bytes;
use horolog_time::{Clock, NS_PER_S, Span, Timestamp, Utc, measure_precision};
use horolog_wire::ntp::Leap;
use serde::Serialize;

use crate::calibrated;
use crate::clock::{ClockThread, look};
use crate::confine::{Confinement, confine};
use crate::establish::{self, EstablishmentPart, KeStatus};
use crate::hand_over::HandedOver;
use crate::hardware::Hardware;
use crate::leap_notice::pending;
use crate::listening::{ListenPart, Listening, Opened, WorkerStatus};
use crate::metrics;
use crate::page::{self, PageReader, PageSink};
use crate::ptp::{OpenPtp, PtpStatus, PtpThreads};
use crate::reload::{Part, ReloadError, ReloadHealth, ReloadReport, Reloadable, ReplyValues};
use crate::reloads::{LeapFilePart, LimitsPart, SecretsPart};
use crate::renewal::Renewal;
use crate::secrets::CookieRenewal;
use crate::sources::{OpenSources, SourcesThread};
use crate::status::{self, StatusSocket};
use crate::web::{self, Web};
use crate::worker::Surroundings;
use crate::xdp::{BodyError, SharedListen, Started, XdpBody, XdpPlace, XdpTotals};
use crate::{
    ClockHealth, Engine, HashKey, InterleavedTable, LeapFile, Limiter, ServerConfig, StartError,
    Totals, secrets,
};

/// No clock that is right shows an earlier time: this program was made later, 2026-01-01.
const MADE: Timestamp<Utc> = Timestamp::from_ns(1_767_225_600 * NS_PER_S);

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
    /// Addresses listened on where smeared time is served.
    pub smear_listen: Vec<SocketAddr>,
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
    /// TAI minus UTC, in seconds; absent where nobody knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tai_minus_utc_s: Option<i16>,
    /// The leap second that is next by the list: what is done, and at the end of which day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_leap: Option<String>,
    /// How far the served time is ahead of the system clock on purpose, in nanoseconds.
    pub test_offset_ns: i64,
    /// How fast that grows on purpose, in parts per billion.
    pub test_drift_ppb: i64,
    /// The sources of time and what each counts for.
    pub sources: Vec<SourceState>,
    /// The receiver that the system clock is calibrated by, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration: Option<CalibrationStatus>,
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
    /// The PTP grandmaster, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ptp: Option<PtpStatus>,
    /// The listener of NTS key establishment, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nts_ke: Option<KeStatus>,
    /// What each thread of the socket body counted.
    pub workers: Vec<WorkerStatus>,
    /// Requests that the XDP body answered, by core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xdp_answered_by_core: Option<Vec<u64>>,
    /// What the XDP body counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xdp_counters: Option<XdpTotals>,
    /// Clients that are remembered; absent where they are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<Clients>,
    /// Memory resident, in bytes; absent when the system does not tell.
    pub resident_bytes: Option<u64>,
}

/// Clients that a server remembers, those that have long been silent among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Clients {
    /// In interleaved mode, by the threads that answer.
    pub interleaved: u64,
    /// Held to limits by these threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited: Option<u64>,
    /// Held to limits by XDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by_xdp: Option<u64>,
}

const SCHEMA: &str = "horolog.status/1";

/// The parts that the status thread reads while they run.
#[derive(Debug)]
struct Running {
    reloadable: Reloadable,
    sandbox: Confinement,
    interleaved: Arc<InterleavedTable>,
    limiter: Arc<ArcSwapOption<Limiter>>,
    started: Instant,
    page: PageReader,
    without_xdp: Option<String>,
    // Fields are dropped in this order: nothing answers any more when the clock ends.
    establishment: Option<Arc<KeServer>>,
    ptp: Option<PtpThreads>,
    xdp: Option<XdpBody>,
    sockets: Arc<Listening>,
    clock: ClockThread,
    sources: SourcesThread,
    calibration: Option<Calibration>,
    hardware: Hardware,
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
            listen: self.sockets.addresses().stepped,
            smear_listen: self.sockets.addresses().smeared,
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
            tai_minus_utc_s: page.tai_minus_utc_s,
            pending_leap: self.sources.shared().next_leap().as_ref().map(pending),
            test_offset_ns: config.test_offset.as_ns(),
            test_drift_ppb: config.test_drift_ppb,
            sources: self.sources.shared().states(),
            calibration: self.calibration.as_ref().map(Calibration::status),
            synchronised: !page_expired && variables.leap != Leap::Unsynchronised,
            page_age_ns: (now - page.timebase.anchor).as_ns(),
            page_expired,
            clock: self.clock.health(),
            sandbox: self.sandbox.clone(),
            reload,
            counters: self.sockets.totals(),
            ptp: self.ptp.as_ref().map(PtpThreads::status),
            nts_ke: self.establishment.as_deref().map(KeStatus::of),
            workers: self.sockets.workers(),
            xdp_answered_by_core: self.xdp.as_ref().map(XdpBody::answered_by_core),
            xdp_counters: self.xdp.as_ref().map(XdpBody::totals),
            clients: None,
            resident_bytes: resident_bytes().ok(),
        }
    }

    /// The state with the clients counted, which goes through all that is remembered of them.
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

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    // Dropped first, so that the status thread's hold on the rest is gone when the rest goes.
    status: Option<StatusSocket>,
    metrics: Option<Responder>,
    web: Option<Web>,
    running: Arc<Running>,
}

impl Server {
    /// Opens everything that was asked for, and answers from then on.
    pub fn start(config: &ServerConfig) -> Result<Self, StartError> {
        config.check()?;
        let started = Instant::now();
        let leap_file = config.leap_seconds.file.as_deref().map(LeapFile::open).transpose()?;
        let opened = Opened::open(config)?;
        let addresses = opened.addresses();
        let sources = OpenSources::open(&config.source.sources, &addresses.stepped)
            .map_err(|(name, fault)| StartError::Source(name, fault))?;
        let calibration = calibrated::open(config)?;
        let listen: SharedListen = Arc::new(ArcSwap::from_pointee(addresses));

        let mut sinks: Vec<Box<dyn PageSink>> = Vec::new();
        let (xdp, without_xdp, handed_over) = start_xdp(config, &listen, &mut sinks)?;
        let ptp = OpenPtp::open(config)?;
        let hardware = Hardware::open(config)?;
        if let Some(path) = &config.status_socket {
            status::make_directory(path)?;
        }
        // Who the server becomes may not be one who may read the token.
        let web = Web::open(config.operation.web.as_ref())?;
        // Threads inherit it, so none may run yet.
        let sandbox = confine(config)?;
        // What a reload could not read is better found missing now.
        let secrets = secrets::load(&config.nts)?;
        if let Some(cookies) = &secrets.cookies {
            let (keys, is_test) = (Arc::clone(cookies), config.is_test());
            sinks.push(Box::new(CookieRenewal { keys, is_test }));
        }
        let hardware = hardware.start()?;
        let (calibration, sources) = calibrated::start(calibration, sources, config)?;
        let sources = SourcesThread::start(sources).map_err(StartError::Thread)?;
        let first = look();
        let mut renewal = Renewal::new(config, measure_precision(&MonotonicClock), &first)
            .with_leap_file(leap_file.clone())
            .no_earlier_than(MADE);
        let (writer, page) = page::shared(&renewal.hearing(sources.shared()).pages(&first));
        sinks.push(Box::new(writer));
        let clock = ClockThread::start(renewal, Arc::clone(sources.shared()), sinks)
            .map_err(StartError::Thread)?;

        let ntp_port = listen.load().all().first().map(SocketAddr::port);
        let establishment =
            establish::start(config, ntp_port, secrets.cookies.as_ref())?.map(Arc::new);
        let key = HashKey::random().map_err(StartError::Random)?;
        let surroundings = Surroundings {
            page: page.clone(),
            stop: Arc::new(AtomicBool::new(false)),
            age_max: Span::from_ns(config.page_life.as_nanos() as i64),
            interleaved: interleaved_table(config.interleaved.clients, key)?,
            limiter: Arc::new(ArcSwapOption::from_pointee(Limiter::new(&config.limits, key))),
            transmit_stamps: config.timestamps.transmit,
            hardware: hardware.conversions(),
            secrets: secrets.clone(),
        };
        let ptp = ptp.start(config, &page, &surroundings.hardware, xdp.as_ref());
        let ptp = ptp.map_err(StartError::Thread)?;
        let limits = LimitsPart {
            limiter: Arc::clone(&surroundings.limiter),
            responder: xdp.as_ref().map(XdpBody::responder),
            notices: Arc::clone(sources.shared()),
        };
        let interleaved = Arc::clone(&surroundings.interleaved);
        let limiter = Arc::clone(&surroundings.limiter);
        let sockets = Listening::start(opened, handed_over, config, surroundings, listen)
            .map_err(StartError::Thread)?;
        let sockets = Arc::new(sockets);
        let mut parts: Vec<Box<dyn Part>> = vec![Box::new(ReplyValues::new(clock.next()))];
        if config.limits.is_on() {
            parts.push(Box::new(limits));
        }
        if let Some(listener) = &establishment {
            let (listener, sockets) = (Arc::clone(listener), Arc::clone(&sockets));
            parts.push(Box::new(EstablishmentPart { listener, sockets }));
        }
        if secrets.is_some() {
            parts.push(Box::new(SecretsPart(secrets)));
        }
        if let Some(file) = leap_file {
            parts.push(Box::new(LeapFilePart(file)));
        }
        // Last, see `Reloadable::new`.
        parts.push(Box::new(ListenPart(Arc::clone(&sockets))));
        let reloadable = Reloadable::new(config, parts);
        let status_socket = config.status_socket.clone();
        let running = Arc::new(Running {
            reloadable,
            sandbox,
            interleaved,
            limiter,
            started,
            page,
            without_xdp,
            establishment,
            ptp,
            xdp,
            sockets,
            clock,
            sources,
            calibration,
            hardware,
        });
        let asked = Arc::clone(&running);
        let status = status_socket
            .map(|path| StatusSocket::start(path, move || asked.answer()))
            .transpose()?;
        let (metrics, web) = start_pages(config, web, &running)?;
        Ok(Self { status, metrics, web, running })
    }

    /// The addresses listened on, with the ports that the kernel chose where 0 was asked for.
    #[must_use]
    pub fn listen(&self) -> Vec<SocketAddr> {
        self.running.sockets.addresses().stepped
    }

    /// Takes over what a running server can change of this configuration, or changes nothing.
    /// Sockets that stay are not touched. `changed` are the names of all options, without hyphens
    /// in front, that differ from those in force: of these, what no reload changes waits for a
    /// restart, and the report and the status say so.
    pub fn reload(
        &self,
        new: &ServerConfig,
        changed: Vec<String>,
    ) -> Result<ReloadReport, ReloadError> {
        self.running.reloadable.reload(new, changed)
    }

    /// Notes for the status that a new configuration could not even be read.
    pub fn note_refused_reload(&self, reason: &str) {
        self.running.reloadable.refused(reason);
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

    /// What has happened to the sources of time and the calibration since the last call, each in
    /// one line for the user.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        let Running { sources, calibration, .. } = &*self.running;
        let calibrated = calibration.as_ref().map(Calibration::notices).unwrap_or_default();
        calibrated.into_iter().chain(sources.shared().notices()).collect()
    }

    /// Whether a thread has ended that should not have; the server is then of no use and better
    /// stopped.
    #[must_use]
    pub fn has_died(&self) -> bool {
        let Running { sockets, clock, sources, calibration, hardware, establishment, ptp, .. } =
            &*self.running;
        let establishment = establishment.as_deref();
        sockets.has_died()
            || clock.has_died()
            || sources.has_died()
            || calibration.as_ref().is_some_and(Calibration::has_died)
            || hardware.has_died()
            || establishment.is_some_and(KeServer::has_died)
            || ptp.as_ref().is_some_and(PtpThreads::has_died)
            || self.status.as_ref().is_some_and(StatusSocket::has_died)
            || self.metrics.as_ref().is_some_and(Responder::has_died)
            || self.web.as_ref().is_some_and(Web::has_died)
    }

    /// Stops answering within a second and returns the last state.
    #[allow(clippy::must_use_candidate, reason = "the state is a by-product of stopping")]
    pub fn stop(self) -> Status {
        let Self { status, metrics, web, mut running } = self;
        // These threads' hold on what runs goes with them, so this is the only one left.
        drop((status, metrics, web));
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

/// What answers by HTTP: the metrics and the live page, as far as they are wanted.
fn start_pages(
    config: &ServerConfig,
    web: Option<web::Opened>,
    running: &Arc<Running>,
) -> Result<(Option<Responder>, Option<Web>), StartError> {
    let told = || {
        let (state, whole) = (Arc::clone(running), Arc::clone(running));
        (move || state.status(), move || whole.whole_status())
    };
    let metrics = metrics::start(config.operation.metrics, told())?;
    let web = web::start(web, told()).map_err(StartError::Thread)?;
    Ok((metrics, web))
}

/// The XDP body, why it is not there or not everywhere, and what it hands to threads.
type StartedXdp = (Option<XdpBody>, Option<String>, Vec<HandedOver>);

/// Starts the XDP body as far as it is wanted, says why not where `auto` does without, and returns
/// the devices that it hands requests over by.
fn start_xdp(
    config: &ServerConfig,
    listen: &SharedListen,
    sinks: &mut Vec<Box<dyn PageSink>>,
) -> Result<StartedXdp, BodyError> {
    let without = |reason| Ok((None, reason, Vec::new()));
    if config.engine == Engine::Socket {
        return without(None);
    }
    let in_hardware = |name: &str| config.timestamps.hardware.iter().any(|one| one == name);
    match XdpBody::start(config, listen, in_hardware) {
        Ok(Started { body, sink, handed_over }) => {
            sinks.push(sink);
            let refusals = body.refusals();
            Ok((Some(body), refusals, handed_over))
        }
        // What was named and is not there is a mistake, not a reason to do without.
        Err(BodyError::Xdp(error)) if config.engine == Engine::Auto => {
            without(Some(error.to_string()))
        }
        Err(error) if config.engine == Engine::Auto && config.interfaces.is_empty() => {
            without(Some(error.to_string()))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
