//! A query from its options to its record: names become addresses, each server gets a socket and a
//! thread, and what the threads come back with is put together.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use horolog_io::target::{TargetName, TargetNameError, is_public, require_unicast};
use horolog_io::{TransmitStamp, UdpDevice, UdpOptions};
use horolog_ke::KeClient;
use horolog_nts::Nonces;
use horolog_record::{
    Host, QUERY_SCHEMA, QueryEnd, QueryEndReason, QueryResult, Sample, ServerResult, rfc3339_now,
};
use horolog_sys::adjtimex;
use horolog_sys::clock::Realtime;
use horolog_sys::packet::interface_index;
use horolog_time::{Span, measure_precision};
use horolog_wire::ntp;

use super::asker::{Asker, Done, Manner, Plan};
use super::card::{Card, Cards};
use super::differences::differences;
use super::error::QueryError;
use super::figures;
use super::findings::{self, Beside, Circumstances};
use super::options::{
    COUNT, COUNT_MAX, INTERVAL_LONG, INTERVAL_MIN, INTERVAL_POLITE, INTERVAL_PRIVATE, QueryOptions,
    TARGETS_MAX,
};
use super::pace::{Pace, SystemPace};
use super::session::Session;

/// The longest interval.
const INTERVAL_MAX: Duration = Duration::from_hours(1);
/// From the opening of the sockets to the first exchange. The kernel takes a moment to begin with
/// receive timestamps when somebody asks for them.
const SETTLING: Span = Span::from_ms(20);
/// Servers are asked one after another, this far apart where the interval has room, so that the
/// packets of one do not wait for those of another.
const STAGGER: Duration = Duration::from_millis(2);

/// A server as it was named, and its address.
struct Target {
    name: TargetName,
    address: Result<SocketAddr, TargetNameError>,
}

/// A query that can be run.
pub struct Query {
    options: QueryOptions,
    targets: Vec<Target>,
    interval: Duration,
}

/// A server that can be asked.
struct Opened {
    device: UdpDevice,
    session: Option<Session>,
    card: Option<Box<dyn Card>>,
    random: Nonces,
}

/// What is known of a server before it is asked.
struct Way {
    address: Option<IpAddr>,
    port: u16,
    opened: Result<Opened, QueryEnd>,
    /// Why there is no card, where one was asked for.
    no_card: Option<String>,
}

impl Query {
    /// Checks the options and looks the names up. A name without an address costs the others
    /// nothing; an error only if none has one.
    pub fn prepare(options: QueryOptions) -> Result<Self, QueryError> {
        check(&options)?;
        let targets: Vec<_> = options.targets.iter().map(|name| find(name, &options)).collect();
        let addresses: Vec<_> =
            targets.iter().filter_map(|target| target.address.as_ref().ok()).collect();
        for address in &addresses {
            require_unicast(address.ip())?;
            let link_local = matches!(address.ip(), IpAddr::V6(v6) if v6.is_unicast_link_local());
            if link_local && options.interface.is_none() {
                return Err(QueryError::NeedsInterface(address.ip()));
            }
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

    /// The time from one exchange to the next.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// Exchanges with all servers together.
    #[must_use]
    pub fn exchanges(&self) -> u64 {
        self.options.count * self.targets.len() as u64
    }

    /// Asks all servers at the same time and returns the record. `progress` is called after every
    /// exchange; `stop` says when to end early.
    pub fn run(
        self,
        progress: &(dyn Fn() + Sync),
        stop: &(dyn Fn() -> bool + Sync),
    ) -> QueryResult {
        let started = rfc3339_now();
        let precision = measure_precision(&Realtime);
        let cards = Mutex::new(Cards::default());
        let ways = each(self.targets.iter(), |target| self.open(target, &cards));
        let start = SystemPace.monotonic() + SETTLING;
        let stagger = STAGGER.min(self.interval / ways.len().max(1) as u32);
        let servers =
            each(ways.into_iter().zip(&self.targets).enumerate(), |(index, (way, target))| {
                let later = stagger * index as u32;
                let plan = Plan {
                    start: start + Span::from_ns(later.as_nanos() as i64),
                    interval: self.interval,
                    count: self.options.count,
                    closing: self.options.interleaved,
                };
                self.ask(target, way, &plan, precision, progress, stop)
            });
        self.record(started, servers)
    }

    fn open(&self, target: &Target, cards: &Mutex<Cards>) -> Way {
        let end = |reason, message| QueryEnd { reason, message };
        let mut way = Way {
            address: target.address.as_ref().ok().map(SocketAddr::ip),
            port: target.name.port(),
            opened: Err(end(QueryEndReason::Unresolved, String::new())),
            no_card: None,
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
            Err(message) => {
                way.opened = Err(end(QueryEndReason::NoKeys, message));
                return way;
            }
        };
        (way.address, way.port) = (Some(address.ip()), address.port());
        let card = self.card(address.ip(), cards);
        let (card, no_card) = match card.transpose() {
            Ok(card) => (card, None),
            Err(why) => (None, Some(why)),
        };
        way.no_card = no_card;
        let hardware = if card.is_some() { TransmitStamp::Hardware } else { TransmitStamp::Kernel };
        let options = UdpOptions {
            transmit_timestamps: Some(hardware),
            interface: self.options.interface.clone(),
            ..UdpOptions::default()
        };
        let opened = UdpDevice::connect(address, &options).map_err(|error| error.to_string());
        let opened = opened.and_then(|device| {
            let random = Nonces::new().map_err(|error| error.to_string())?;
            Ok(Opened { device, session, card, random })
        });
        way.opened = opened.map_err(|message| end(QueryEndReason::Unreachable, message));
        way
    }

    /// Keys, where they are asked for, and the server that goes with them.
    fn establish(
        &self,
        target: &Target,
        address: SocketAddr,
    ) -> Result<(Option<Session>, SocketAddr), String> {
        let Some(nts) = &self.options.nts else { return Ok((None, address)) };
        let family = self.options.family;
        let (session, server) = Session::establish(nts, &target.name, family)?;
        if server == target.name {
            return Ok((Some(session), address));
        }
        let address = server.resolve(family).map_err(|error| error.to_string())?;
        require_unicast(address.ip()).map_err(|error| error.to_string())?;
        let polite = self.interval >= polite_interval(self.options.count);
        if is_public(address.ip()) && !self.options.i_own_this_target && !polite {
            return Err(QueryError::Impolite(address.ip()).to_string());
        }
        Ok((Some(session), address))
    }

    fn card(&self, address: IpAddr, cards: &Mutex<Cards>) -> Option<Result<Box<dyn Card>, String>> {
        self.options.hardware_timestamps.then(|| {
            let interface = self.options.interface.as_deref();
            let mut cards = cards.lock().unwrap_or_else(PoisonError::into_inner);
            let card = cards.for_target(address, interface)?;
            Ok(Box::new(card) as Box<dyn Card>)
        })
    }

    fn ask(
        &self,
        target: &Target,
        way: Way,
        plan: &Plan,
        precision: i8,
        progress: &dyn Fn(),
        stop: &dyn Fn() -> bool,
    ) -> (ServerResult, Beside) {
        let manner = Manner {
            version: self.options.version,
            interleaved: self.options.interleaved,
            timeout: self.options.timeout,
            precision,
        };
        let done = match way.opened {
            Ok(Opened { device, session, card, random }) => {
                Asker::new(device, manner, session, card, random, &SystemPace)
                    .run(plan, progress, stop)
            }
            Err(end) => Done::nothing(end),
        };
        let name = &target.name;
        let plain = name.port() == ntp::PORT;
        let name = if plain { name.host().to_owned() } else { name.to_string() };
        let beside = Beside { no_card: way.no_card, silent: done.account.silent };
        (server_result((name, way.address, way.port), done, self.interval), beside)
    }

    fn record(&self, started: String, servers: Vec<(ServerResult, Beside)>) -> QueryResult {
        let (servers, beside): (Vec<_>, Vec<_>) = servers.into_iter().unzip();
        let samples: Vec<_> = servers.iter().map(|server| server.samples.as_slice()).collect();
        let differences = differences(&samples);
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
        let about = Circumstances {
            clock_synchronised: adjtimex::kernel_clock().ok().map(|clock| clock.synchronised),
            servers: &beside,
        };
        result.findings = findings::all(&result, &about);
        result
    }
}

/// What a server's account comes to.
fn server_result(
    (name, address, port): (String, Option<IpAddr>, u16),
    done: Done,
    interval: Duration,
) -> ServerResult {
    let Done { account, nts, card } = done;
    let samples = account.samples;
    let best = figures::best(&samples);
    ServerResult {
        name,
        address,
        port,
        nts,
        hardware_clock: card,
        says: account.says,
        counts: account.counts,
        ended: account.ended,
        transmit_stamps: account.transmit_stamps,
        receive_stamps: account.receive_stamps,
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

/// The dispersion of a sample; a server may state a precision of centuries.
fn dispersion_ns(sample: &Sample) -> i64 {
    i64::try_from(sample.dispersion_ns).unwrap_or(i64::MAX)
}

/// The same work on each, all at the same time.
fn each<T: Send, R: Send>(items: impl Iterator<Item = T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = items.map(|item| scope.spawn(move || work(item))).collect();
        let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended.map(|one| one.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

fn find(name: &TargetName, options: &QueryOptions) -> Target {
    Target { name: name.clone(), address: name.resolve(options.family) }
}

/// How often somebody else's server may be asked.
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
            // The name and the algorithms are the user's; better said now than after a connection.
            let asked =
                KeClient::new(&nts.trust, &algorithms).and_then(|client| client.begin(name));
            asked.map(drop).map_err(|error| QueryError::Nts(error.to_string()))
        }
        _ => Err(QueryError::Version(*version)),
    }
}

#[cfg(test)]
mod tests;
