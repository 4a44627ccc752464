//! Execution of a query from its options to its record: names are resolved, each server gets a
//! socket and a thread, and the threads' outcomes are combined.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use horolog_io::target::{TargetName, TargetNameError, is_public, require_unicast};
use horolog_io::{TransmitTimestamp, UdpDevice, UdpOptions};
use horolog_ke::KeClient;
use horolog_nts::Nonces;
use horolog_record::{
    ExchangeSample, Host, QUERY_SCHEMA, QueryEnd, QueryEndReason, QueryResult, ServerResult,
    rfc3339_now,
};
use horolog_sys::adjtimex;
use horolog_sys::clock::Realtime;
use horolog_sys::packet::interface_index;
use horolog_time::{Span, measure_precision};
use horolog_wire::ntp;

use super::differences::differences;
use super::error::QueryError;
use super::figures;
use super::findings::{self, QueryRunContext, QueryServerContext};
use super::nic_clock::{NicClock, NicClocks};
use super::options::{
    COUNT, COUNT_MAX, INTERVAL_LONG, INTERVAL_MIN, INTERVAL_POLITE, INTERVAL_PRIVATE, QueryOptions,
    TARGETS_MAX,
};
use super::pace::{QueryClock, SystemQueryClock};
use super::poller::{PollOptions, PollOutcome, PollPlan, ServerPoller};
use super::server_stats::ServerStats;
use super::session::{NtsAssociation, SessionError};

/// Longest interval.
const INTERVAL_MAX: Duration = Duration::from_hours(1);
/// Delay from opening the sockets to the first exchange. The kernel needs a moment to start receive
/// timestamps after they are enabled.
const SETTLING: Span = Span::from_ms(20);
/// Offset between the polls of consecutive servers, if the interval permits, so that the packets of
/// one do not wait for those of another.
const STAGGER: Duration = Duration::from_millis(2);

/// Server with its name and address.
struct QueryTarget {
    name: TargetName,
    address: Result<SocketAddr, TargetNameError>,
}

/// Query ready to run.
pub struct Query {
    options: QueryOptions,
    targets: Vec<QueryTarget>,
    interval: Duration,
}

/// Server ready to be polled.
struct OpenServer {
    device: UdpDevice,
    session: Option<NtsAssociation>,
    nic_clock: Option<Box<dyn NicClock>>,
    random: Nonces,
}

/// Setup of a server before it is polled.
struct ServerSetup {
    address: Option<IpAddr>,
    port: u16,
    opened: Result<OpenServer, QueryEnd>,
    /// Advice if it is not usable.
    hint: Option<&'static str>,
    /// Reason for a missing NIC clock, if one was requested.
    no_nic_clock: Option<String>,
}

impl Query {
    /// Checks the options and resolves the names. A name without an address does not affect the
    /// others; it is an error only if no name has one.
    pub fn prepare(options: QueryOptions) -> Result<Self, QueryError> {
        check(&options)?;
        let targets: Vec<_> = options.targets.iter().map(|name| find(name, &options)).collect();
        let addresses: Vec<_> =
            targets.iter().filter_map(|target| target.address.as_ref().ok()).collect();
        for address in &addresses {
            require_unicast(address.ip())?;
        }
        let public = addresses.iter().map(|address| address.ip()).find(|ip| is_public(*ip));
        let public = public.filter(|_| !options.i_own_this_target);
        let polite = public.map(|_| polite_interval(options.count));
        let interval = options.interval.unwrap_or(polite.unwrap_or(INTERVAL_PRIVATE));
        if let (Some(address), Some(polite)) = (public, polite)
            && interval < polite
        {
            return Err(QueryError::Impolite(address));
        }
        if addresses.is_empty() {
            let first = targets.into_iter().find_map(|target| target.address.err());
            return first.map_or(Err(QueryError::Targets(0)), |error| Err(error.into()));
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
    pub fn exchanges(&self) -> u64 {
        self.options.count * self.targets.len() as u64
    }

    /// Polls all servers at the same time and returns the record. `progress` is called after every
    /// exchange; `stop` returns true to end early.
    pub fn run(
        self,
        progress: &(dyn Fn() + Sync),
        stop: &(dyn Fn() -> bool + Sync),
    ) -> QueryResult {
        let started = rfc3339_now();
        let precision = measure_precision(&Realtime);
        let nic_clocks = Mutex::new(NicClocks::default());
        let ways = each(self.targets.iter(), |target| self.open(target, &nic_clocks));
        let start = SystemQueryClock.monotonic() + SETTLING;
        let stagger = STAGGER.min(self.interval / ways.len().max(1) as u32);
        let servers =
            each(ways.into_iter().zip(&self.targets).enumerate(), |(index, (way, target))| {
                let later = stagger * index as u32;
                let plan = PollPlan {
                    start: start + Span::from_ns(later.as_nanos() as i64),
                    interval: self.interval,
                    count: self.options.count,
                    closing: self.options.interleaved,
                };
                self.poll_server(target, way, &plan, precision, progress, stop)
            });
        self.record(started, servers)
    }

    fn open(&self, target: &QueryTarget, nic_clocks: &Mutex<NicClocks>) -> ServerSetup {
        let end = |reason, message| QueryEnd { reason, message };
        let mut way = ServerSetup {
            address: target.address.as_ref().ok().map(SocketAddr::ip),
            port: target.name.port(),
            opened: Err(end(QueryEndReason::Unresolved, String::new())),
            hint: None,
            no_nic_clock: None,
        };
        let address = match &target.address {
            Ok(address) => *address,
            Err(error) => {
                way.opened = Err(end(QueryEndReason::Unresolved, error.to_string()));
                return way;
            }
        };
        let (session, address) = match self.establish(target, address) {
            Ok(established) => established,
            Err((reason, error)) => {
                way.opened = Err(end(reason, error.message));
                way.hint = Some(error.hint);
                return way;
            }
        };
        (way.address, way.port) = (Some(address.ip()), address.port());
        let nic_clock = self.open_nic_clock(address, nic_clocks);
        let (nic_clock, no_nic_clock) = match nic_clock.transpose() {
            Ok(nic_clock) => (nic_clock, None),
            Err(why) => (None, Some(why)),
        };
        way.no_nic_clock = no_nic_clock;
        let hardware = if nic_clock.is_some() {
            TransmitTimestamp::Hardware
        } else {
            TransmitTimestamp::Kernel
        };
        let options = UdpOptions {
            transmit_timestamps: Some(hardware),
            interface: self.options.interface.clone(),
            ..UdpOptions::default()
        };
        // NTS-KE may have named another server than the target.
        let opened = UdpDevice::connect(address, &options)
            .map_err(|error| format!("no socket for {address}: {error}"));
        let opened = opened.and_then(|device| {
            let random = Nonces::new().map_err(|error| error.to_string())?;
            Ok(OpenServer { device, session, nic_clock, random })
        });
        way.opened = opened.map_err(|message| end(QueryEndReason::Unreachable, message));
        way
    }

    /// Returns keys, if requested, and the server that they belong to.
    fn establish(
        &self,
        target: &QueryTarget,
        address: SocketAddr,
    ) -> Result<(Option<NtsAssociation>, SocketAddr), (QueryEndReason, SessionError)> {
        let Some(nts) = &self.options.nts else { return Ok((None, address)) };
        let family = self.options.family;
        let no_keys = |error| (QueryEndReason::NoKeys, error);
        let interface = self.options.interface.as_deref();
        let session = NtsAssociation::establish(nts, &target.name, family, interface);
        let (session, server) = session.map_err(no_keys)?;
        let Some(named) = &session.describe().server else { return Ok((Some(session), address)) };
        let named = |error: &dyn Display| {
            let message = format!("the NTS-KE server names {named} as NTP server: {error}");
            SessionError::new(message, "configure the NTS-KE server to name a reachable server")
        };
        let unresolved = |error| (QueryEndReason::Unresolved, named(&error));
        let address = server.resolve(family, interface);
        let address = address.map_err(unresolved)?;
        require_unicast(address.ip()).map_err(unresolved)?;
        let polite = self.interval >= polite_interval(self.options.count);
        if is_public(address.ip()) && !self.options.i_own_this_target && !polite {
            return Err(no_keys(named(&QueryError::Impolite(address.ip()))));
        }
        Ok((Some(session), address))
    }

    fn open_nic_clock(
        &self,
        address: SocketAddr,
        nic_clocks: &Mutex<NicClocks>,
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
        way: ServerSetup,
        plan: &PollPlan,
        precision: i8,
        progress: &dyn Fn(),
        stop: &dyn Fn() -> bool,
    ) -> (ServerResult, QueryServerContext) {
        let options = PollOptions {
            version: self.options.version,
            interleaved: self.options.interleaved,
            timeout: self.options.timeout,
            precision,
        };
        let done = match way.opened {
            Ok(OpenServer { device, session, nic_clock, random }) => {
                ServerPoller::new(device, options, session, nic_clock, random, &SystemQueryClock)
                    .run(plan, progress, stop)
            }
            Err(end) => PollOutcome::nothing(end, way.hint),
        };
        let name = &target.name;
        let plain = name.port() == ntp::PORT;
        let name = if plain { name.host().to_owned() } else { name.to_string() };
        let ServerStats { unanswered, closed, hint, .. } = done.account;
        let context =
            QueryServerContext { no_nic_clock: way.no_nic_clock, unanswered, closed, hint };
        (server_result((name, way.address, way.port), done, self.interval), context)
    }

    fn record(
        &self,
        started: String,
        servers: Vec<(ServerResult, QueryServerContext)>,
    ) -> QueryResult {
        let (servers, contexts): (Vec<_>, Vec<_>) = servers.into_iter().unzip();
        let measured: Vec<_> = servers
            .iter()
            .map(|server| (server.samples.as_slice(), stated_error(server)))
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
        let about = QueryRunContext {
            clock_synchronised: adjtimex::kernel_clock().ok().map(|clock| clock.synchronised),
            servers: &contexts,
        };
        result.findings = findings::all(&result, &about);
        result
    }
}

/// Builds the result of a server from its stats.
fn server_result(
    (name, address, port): (String, Option<IpAddr>, u16),
    done: PollOutcome,
    interval: Duration,
) -> ServerResult {
    let PollOutcome { account, nts, nic_clock } = done;
    let samples = account.samples;
    let best = figures::best(&samples);
    ServerResult {
        name,
        address,
        port,
        nts,
        hardware_clock: nic_clock,
        server_state: account.server_state,
        counts: account.counts,
        ended: account.ended,
        transmit_timestamps: account.transmit_timestamps,
        receive_timestamps: account.receive_timestamps,
        offset_ns: figures::figures(&samples, |sample| sample.offset_ns),
        delay_ns: figures::figures(&samples, |sample| sample.delay_ns),
        dispersion_ns: figures::figures(&samples, dispersion_ns),
        best,
        jitter_ns: best.and_then(|best| figures::jitter_ns(&samples, best.offset_ns)),
        drift: figures::drift(&samples),
        allan: figures::allan(&samples, interval),
        samples,
    }
}

/// Returns the error bound that a server states for its own time, in ns; `None` if it is not
/// synchronised.
fn stated_error(server: &ServerResult) -> Option<u64> {
    let state = server.server_state.as_ref().filter(|_| server.counts.unsynchronised == 0)?;
    Some((state.root_delay_ns / 2).saturating_add(state.root_dispersion_ns))
}

/// Returns the dispersion of a sample; a server may state a precision of centuries.
fn dispersion_ns(sample: &ExchangeSample) -> i64 {
    i64::try_from(sample.dispersion_ns).unwrap_or(i64::MAX)
}

/// Runs the same work on each item, all at the same time.
fn each<T: Send, R: Send>(items: impl Iterator<Item = T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = items.map(|item| scope.spawn(move || work(item))).collect();
        let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended.map(|one| one.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

fn find(name: &TargetName, options: &QueryOptions) -> QueryTarget {
    let address = name.resolve(options.family, options.interface.as_deref());
    QueryTarget { name: name.clone(), address }
}

/// Returns the least interval for a public server.
const fn polite_interval(count: u64) -> Duration {
    if count > COUNT { INTERVAL_LONG } else { INTERVAL_POLITE }
}

fn check(options: &QueryOptions) -> Result<(), QueryError> {
    let QueryOptions { targets, count, interval, timeout, version, interface, .. } = options;
    if let Some(name) = interface.as_ref().filter(|name| interface_index(name).is_err()) {
        return Err(QueryError::NoInterface(name.clone()));
    }
    if !(1..=TARGETS_MAX).contains(&targets.len()) {
        return Err(QueryError::Targets(targets.len()));
    }
    if !(1..=COUNT_MAX).contains(count) {
        return Err(QueryError::Count(*count));
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
            // The name and the algorithms are set by the user; errors in them are better reported
            // now than after a connection.
            let begun =
                KeClient::new(&nts.trust, &algorithms).and_then(|client| client.begin(name));
            begun.map(drop).map_err(|error| QueryError::Nts(error.to_string()))
        }
        _ => Err(QueryError::Version(*version)),
    }
}

#[cfg(test)]
mod tests;
