//! Execution of a query from options to record: names are resolved, each server gets a socket and a
//! thread, and the outcomes are combined.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use horolog_io::target::{TargetName, TargetNameError, is_public, require_unicast};
use horolog_io::{TransmitTimestampSource, UdpDevice, UdpDeviceOptions};
use horolog_ke::NtsKeClient;
use horolog_nts::NonceStream;
use horolog_record::{
    EarlyQueryEnd, ExchangeSample, Host, QUERY_SCHEMA, QueryEndReason, QueryResult,
    QueryServerResult, rfc3339_now,
};
use horolog_sys::adjtimex;
use horolog_sys::clock::ClockRealtime;
use horolog_sys::packet::interface_index;
use horolog_time::{Span, TimeGrid, measure_precision};
use horolog_wire::ntp;

use super::differences::differences;
use super::error::QueryError;
use super::figures;
use super::findings::{self, QueryRunContext, QueryServerContext};
use super::nic_clock::{NicClock, NicClocksByInterface};
use super::options::{
    COUNT, COUNT_MAX, INTERVAL_LONG, INTERVAL_MIN, INTERVAL_POLITE, INTERVAL_PRIVATE, QueryOptions,
    TARGETS_MAX,
};
use super::poller::{
    PollOptions, PollPlan, PolledServerOutcome, QueryClock, ServerPoller, SystemQueryClock,
};
use super::server_stats::PolledServerStats;
use super::session::{NtsAssociation, NtsAssociationError};

/// Longest interval between exchanges.
const INTERVAL_MAX: Duration = Duration::from_hours(1);
/// Delay from opening the sockets to the first exchange, since the kernel starts timestamping with
/// a delay.
const TIMESTAMPING_DELAY: Span = Span::from_ms(20);
/// Offset between the polls of consecutive servers, if the interval permits, so that their packets
/// do not queue behind each other.
const STAGGER: Duration = Duration::from_millis(2);

/// Target name with its address, or the error of its resolution.
struct QueryTarget {
    name: TargetName,
    address: Result<SocketAddr, TargetNameError>,
}

/// Query with checked options and resolved targets.
pub struct PreparedQuery {
    options: QueryOptions,
    targets: Vec<QueryTarget>,
    interval: Duration,
}

/// Socket, NTS session and PHC with which a server is polled.
struct PollerResources {
    device: UdpDevice,
    session: Option<NtsAssociation>,
    nic_clock: Option<Box<dyn NicClock>>,
    random: NonceStream,
}

/// Result of preparing a server: how to poll it, or why it cannot be polled.
struct ServerPollPreparation {
    address: Option<IpAddr>,
    port: u16,
    resources: Result<PollerResources, EarlyQueryEnd>,
    /// Advice if the server cannot be polled.
    hint: Option<&'static str>,
    /// Reason why no PHC is used, if one was requested.
    nic_clock_error: Option<String>,
}

impl PreparedQuery {
    /// Checks the options and resolves the names. A name that cannot be resolved is an error only
    /// if that applies to all.
    ///
    /// # Errors
    ///
    /// If an option is invalid, an address is not unicast, or the interval is too short for a
    /// public server.
    pub fn prepare(options: QueryOptions) -> Result<Self, QueryError> {
        check_options(&options)?;
        let targets: Vec<_> =
            options.targets.iter().map(|name| resolve_target(name, &options)).collect();
        let addresses: Vec<_> =
            targets.iter().filter_map(|target| target.address.as_ref().ok()).collect();
        for address in &addresses {
            require_unicast(address.ip())?;
        }
        let public = addresses.iter().map(|address| address.ip()).find(|ip| is_public(*ip));
        let public = public.filter(|_| !options.i_own_this_target);
        let interval_min = public.map(|_| public_interval_min(options.count));
        let interval = options.interval.unwrap_or(interval_min.unwrap_or(INTERVAL_PRIVATE));
        if let (Some(address), Some(polite)) = (public, interval_min)
            && interval < polite
        {
            return Err(QueryError::IntervalTooShort(address));
        }
        if addresses.is_empty() {
            let first = targets.into_iter().find_map(|target| target.address.err());
            return first.map_or(Err(QueryError::TargetCount(0)), |error| Err(error.into()));
        }
        Ok(Self { options, targets, interval })
    }

    /// Returns the interval between exchanges.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns the number of exchanges with all servers together.
    #[must_use]
    pub fn exchange_count(&self) -> u64 {
        self.options.count * self.targets.len() as u64
    }

    /// Polls all servers concurrently and returns the record. Calls `progress` after each exchange;
    /// ends early when `stop` returns true.
    pub fn run(
        self,
        progress: &(dyn Fn() + Sync),
        stop: &(dyn Fn() -> bool + Sync),
    ) -> QueryResult {
        let started = rfc3339_now();
        let precision = measure_precision(&ClockRealtime);
        let nic_clocks = Mutex::new(NicClocksByInterface::default());
        let setups =
            run_parallel(self.targets.iter(), |target| self.prepare_server(target, &nic_clocks));
        let start = SystemQueryClock.monotonic() + TIMESTAMPING_DELAY;
        let stagger = STAGGER.min(self.interval / setups.len().max(1) as u32);
        let servers = run_parallel(
            setups.into_iter().zip(&self.targets).enumerate(),
            |(index, (way, target))| {
                let delay = stagger * index as u32;
                let plan = PollPlan {
                    grid: TimeGrid {
                        start: start + Span::from(delay),
                        interval: self.interval.into(),
                    },
                    count: self.options.count,
                    has_final_request: self.options.interleaved,
                };
                self.poll_server(target, way, &plan, precision, progress, stop)
            },
        );
        self.query_result(started, servers)
    }

    fn prepare_server(
        &self,
        target: &QueryTarget,
        nic_clocks: &Mutex<NicClocksByInterface>,
    ) -> ServerPollPreparation {
        let end = |reason, message| EarlyQueryEnd { reason, message };
        let mut setup = ServerPollPreparation {
            address: target.address.as_ref().ok().map(SocketAddr::ip),
            port: target.name.port(),
            resources: Err(end(QueryEndReason::Unresolved, String::new())),
            hint: None,
            nic_clock_error: None,
        };
        let address = match &target.address {
            Ok(address) => *address,
            Err(error) => {
                setup.resources = Err(end(QueryEndReason::Unresolved, error.to_string()));
                return setup;
            }
        };
        let (session, address) = match self.establish_session(target, address) {
            Ok(established) => established,
            Err((reason, error)) => {
                setup.resources = Err(end(reason, error.message));
                setup.hint = Some(error.hint);
                return setup;
            }
        };
        (setup.address, setup.port) = (Some(address.ip()), address.port());
        let nic_clock = self.open_nic_clock(address, nic_clocks);
        let (nic_clock, no_nic_clock) = match nic_clock.transpose() {
            Ok(nic_clock) => (nic_clock, None),
            Err(why) => (None, Some(why)),
        };
        setup.nic_clock_error = no_nic_clock;
        let hardware = if nic_clock.is_some() {
            TransmitTimestampSource::Hardware
        } else {
            TransmitTimestampSource::Kernel
        };
        let options = UdpDeviceOptions {
            transmit_timestamps: Some(hardware),
            interface: self.options.interface.clone(),
            ..UdpDeviceOptions::default()
        };
        // NTS-KE may have named another server than the target.
        let opened = UdpDevice::connect(address, &options)
            .map_err(|error| format!("no socket for {address}: {error}"));
        let opened = opened.and_then(|device| {
            let random = NonceStream::new().map_err(|error| error.to_string())?;
            Ok(PollerResources { device, session, nic_clock, random })
        });
        setup.resources = opened.map_err(|message| end(QueryEndReason::Unreachable, message));
        setup
    }

    /// Returns the NTS session, if requested, and the address of the server that it is for.
    fn establish_session(
        &self,
        target: &QueryTarget,
        address: SocketAddr,
    ) -> Result<(Option<NtsAssociation>, SocketAddr), (QueryEndReason, NtsAssociationError)> {
        let Some(nts) = &self.options.nts else { return Ok((None, address)) };
        let family = self.options.family;
        let no_keys = |error| (QueryEndReason::NoKeys, error);
        let interface = self.options.interface.as_deref();
        let session = NtsAssociation::establish(nts, &target.name, family, interface);
        let (session, server) = session.map_err(no_keys)?;
        let Some(named) = &session.usage().server else { return Ok((Some(session), address)) };
        let naming_error = |error: &dyn Display| {
            let message = format!("the NTS-KE server names {named} as NTP server: {error}");
            NtsAssociationError::new(
                message,
                "configure the NTS-KE server to name a reachable server",
            )
        };
        let unresolved = |error| (QueryEndReason::Unresolved, naming_error(&error));
        let address = server.resolve(family, interface);
        let address = address.map_err(unresolved)?;
        require_unicast(address.ip()).map_err(unresolved)?;
        let is_interval_permitted = self.interval >= public_interval_min(self.options.count);
        if is_public(address.ip()) && !self.options.i_own_this_target && !is_interval_permitted {
            return Err(no_keys(naming_error(&QueryError::IntervalTooShort(address.ip()))));
        }
        Ok((Some(session), address))
    }

    fn open_nic_clock(
        &self,
        address: SocketAddr,
        nic_clocks: &Mutex<NicClocksByInterface>,
    ) -> Option<Result<Box<dyn NicClock>, String>> {
        self.options.hardware_timestamps.then(|| {
            let interface = self.options.interface.as_deref();
            let mut nic_clocks = nic_clocks.lock().unwrap_or_else(PoisonError::into_inner);
            let nic_clock = nic_clocks.for_target(address, interface)?;
            Ok(Box::new(nic_clock) as Box<dyn NicClock>)
        })
    }

    fn poll_server(
        &self,
        target: &QueryTarget,
        setup: ServerPollPreparation,
        plan: &PollPlan,
        precision: i8,
        progress: &dyn Fn(),
        stop: &dyn Fn() -> bool,
    ) -> (QueryServerResult, QueryServerContext) {
        let options = PollOptions {
            version: self.options.version,
            interleaved: self.options.interleaved,
            timeout: self.options.timeout,
            precision,
        };
        let outcome = match setup.resources {
            Ok(PollerResources { device, session, nic_clock, random }) => {
                ServerPoller::new(device, options, session, nic_clock, random, &SystemQueryClock)
                    .run_plan(plan, progress, stop)
            }
            Err(end) => PolledServerOutcome::without_exchange(end, setup.hint),
        };
        let name = &target.name;
        let has_default_port = name.port() == ntp::PORT;
        let name = if has_default_port { name.host().to_owned() } else { name.to_string() };
        let PolledServerStats {
            unanswered_at_end: unanswered, port_unreachable: closed, hint, ..
        } = outcome.stats;
        let context = QueryServerContext {
            nic_clock_error: setup.nic_clock_error,
            unanswered_at_end: unanswered,
            port_unreachable: closed,
            hint,
        };
        (server_result((name, setup.address, setup.port), outcome, self.interval), context)
    }

    fn query_result(
        &self,
        started: String,
        servers: Vec<(QueryServerResult, QueryServerContext)>,
    ) -> QueryResult {
        let (servers, contexts): (Vec<_>, Vec<_>) = servers.into_iter().unzip();
        let measured: Vec<_> = servers
            .iter()
            .map(|server| (server.samples.as_slice(), stated_error_bound_ns(server)))
            .collect();
        let differences = differences(&measured);
        let mut result = QueryResult {
            schema: QUERY_SCHEMA.to_owned(),
            started,
            command: self.options.command.clone(),
            host: Host::read(),
            ntp_version: self.options.version,
            interleaved: self.options.interleaved,
            count: self.options.count,
            interval_ns: self.interval.as_nanos() as u64,
            reply_timeout_ns: self.options.timeout.as_nanos() as u64,
            servers,
            differences,
            limits: Vec::new(),
            findings: Vec::new(),
        };
        let run_context = QueryRunContext {
            clock_synchronised: adjtimex::kernel_clock().ok().map(|clock| clock.synchronised),
            servers: &contexts,
        };
        result.findings = findings::all_findings(&result, &run_context);
        result
    }
}

/// Builds the result of a server from its stats.
fn server_result(
    (name, address, port): (String, Option<IpAddr>, u16),
    outcome: PolledServerOutcome,
    interval: Duration,
) -> QueryServerResult {
    let PolledServerOutcome { stats, nts, nic_clock } = outcome;
    let samples = stats.samples;
    let best = figures::best_sample(&samples);
    QueryServerResult {
        name,
        address,
        port,
        nts,
        hardware_clock: nic_clock,
        server_state: stats.server_state,
        counts: stats.counts,
        ended: stats.end_reason,
        transmit_timestamps: stats.transmit_timestamps,
        receive_timestamps: stats.receive_timestamps,
        offset_ns: figures::summary(&samples, |sample| sample.offset_ns),
        delay_ns: figures::summary(&samples, |sample| sample.delay_ns),
        dispersion_ns: figures::summary(&samples, dispersion_ns),
        best,
        jitter_ns: best.and_then(|best| figures::jitter_ns(&samples, best.offset_ns)),
        drift: figures::fit_drift(&samples),
        allan: figures::allan_deviations(&samples, interval),
        samples,
    }
}

/// Returns the server's stated error bound in ns (half the root delay plus root dispersion); `None`
/// without a valid reply, or if any reply was unsynchronised.
fn stated_error_bound_ns(server: &QueryServerResult) -> Option<u64> {
    let state = server.server_state.as_ref().filter(|_| server.counts.unsynchronised == 0)?;
    Some((state.root_delay_ns / 2).saturating_add(state.root_dispersion_ns))
}

/// Returns the dispersion of a sample in ns, saturated: a server may state any precision.
fn dispersion_ns(sample: &ExchangeSample) -> i64 {
    i64::try_from(sample.dispersion_ns).unwrap_or(i64::MAX)
}

/// Calls `work` with each item, in a thread each; returns the results in order.
fn run_parallel<T: Send, R: Send>(
    items: impl Iterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = items.map(|item| scope.spawn(move || work(item))).collect();
        let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended.map(|one| one.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

fn resolve_target(name: &TargetName, options: &QueryOptions) -> QueryTarget {
    let address = name.resolve(options.family, options.interface.as_deref());
    QueryTarget { name: name.clone(), address }
}

/// Returns the minimum interval for `count` exchanges with a public server.
const fn public_interval_min(count: u64) -> Duration {
    if count > COUNT { INTERVAL_LONG } else { INTERVAL_POLITE }
}

fn check_options(options: &QueryOptions) -> Result<(), QueryError> {
    let QueryOptions { targets, count, interval, timeout, version, interface, .. } = options;
    if let Some(name) = interface.as_ref().filter(|name| interface_index(name).is_err()) {
        return Err(QueryError::NoInterface(name.clone()));
    }
    if !(1..=TARGETS_MAX).contains(&targets.len()) {
        return Err(QueryError::TargetCount(targets.len()));
    }
    if !(1..=COUNT_MAX).contains(count) {
        return Err(QueryError::ExchangeCount(*count));
    }
    if let Some(interval) = interval
        && !(INTERVAL_MIN..=INTERVAL_MAX).contains(interval)
    {
        return Err(QueryError::Interval(*interval));
    }
    if !(Duration::from_millis(1)..=Duration::from_mins(1)).contains(timeout) {
        return Err(QueryError::Timeout(*timeout));
    }
    match (version, &options.nts) {
        (1..=3, Some(_)) => Err(QueryError::NtsVersion(*version)),
        (1..=4, None) => Ok(()),
        (4, Some(nts)) => {
            let algorithms: Vec<_> = nts.algorithms.iter().map(|one| one.number()).collect();
            let name = nts.name.as_deref().unwrap_or("localhost");
            // Checks the user's certificate name and algorithms before any connection is made.
            let begun =
                NtsKeClient::new(&nts.trust, &algorithms).and_then(|client| client.begin(name));
            begun.map(drop).map_err(|error| QueryError::Nts(error.to_string()))
        }
        _ => Err(QueryError::Version(*version)),
    }
}

#[cfg(test)]
mod tests;
