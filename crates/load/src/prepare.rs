//! Preparation of a run: turns options into a plan and an open engine, and refuses before the first
//! trial what can be refused. Explicit options are obeyed or refused; only the automatic choice of
//! an engine falls back to another one, with a finding.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use horolog_record::LoadEngineKind as Kind;
use horolog_sys::affinity;
use horolog_sys::clock::ClockMonotonic;
use horolog_sys::netlink::Netlink;
use horolog_time::Clock;
use horolog_wire::ptp::{EVENT_PORT, GENERAL_PORT};

use crate::clients::{CLIENTS_MAX, LANES_MAX, SimulatedClientNetwork, SimulatedClientsError};
use crate::compliant_clients::RunningCompliantClients;
use crate::engine::{self, LoadEngine};
use crate::error::LoadError;
use crate::nts::{CLIENTS_WITH_SESSIONS, NtsError, NtsSessions, SessionCount};
use crate::options::LoadOptions;
use crate::plan::{ReplyDropPlan, RunPlan};
use crate::ptp::PtpLoadTransport;
use crate::random;
use crate::target::{self, Route, TargetError};
use crate::token::RequestTokenCodec;

mod check;
mod compliant_clients;
mod mix;
mod probe;

/// Default number of real clients, each with a socket: enough to load all threads of a server that
/// distributes clients over threads.
const SOCKET_CLIENTS: u32 = 16;

/// Default number of simulated clients: the most that ntpperf has.
const SIMULATED_CLIENTS: u32 = 16_384;

/// An open engine and its plan.
pub(crate) struct PreparedLoad {
    pub(crate) plan: RunPlan,
    pub(crate) engine: Box<dyn LoadEngine>,
    pub(crate) clients: u32,
    /// Compliant clients, if there are any.
    pub(crate) compliant_clients: Option<RunningCompliantClients>,
    /// Better engines that could not be used, each with the reason.
    pub(crate) fallbacks: Vec<(Kind, String)>,
}

/// Resolved values that do not depend on the engine.
struct ResolvedLoadOptions {
    target: SocketAddr,
    own_addresses: Vec<IpAddr>,
    cores: Vec<usize>,
    token: RequestTokenCodec,
    sessions: Option<Arc<NtsSessions>>,
}

/// Resolves and checks everything, and opens the engine.
pub(crate) fn prepare(options: &LoadOptions) -> Result<PreparedLoad, LoadError> {
    if !options.mix.is_empty() {
        return mix::prepare(options);
    }
    let mut opener = EngineOpener::new(options)?;
    let prepared = match options.engine {
        Some(kind) => probe::open_named(kind, &mut |kind| opener.open(kind)),
        None => probe::open_best(options, &mut |kind| opener.open(kind)),
    }?;
    compliant_clients::open_compliant_clients(&opener, prepared)
}

/// Checks the options and resolves the values that do not depend on the engine.
fn resolve_facts(
    options: &LoadOptions,
) -> Result<(ResolvedLoadOptions, Netlink, Route), LoadError> {
    check::check_options(options)?;
    let mut netlink = Netlink::open().map_err(TargetError::from)?;
    let interface = options.hints.interface.as_deref();
    let target = match options.ptp {
        None => options.target.resolve(options.family, interface)?,
        Some(ptp) => options.target.with_port(ptp.port()).resolve(options.family, interface)?,
    };
    target::check_permitted(target.ip(), options.i_own_this_target)?;
    // Fails if there is no route.
    let route = target::find_route(&mut netlink, target, &options.hints, false)?;
    let addresses = netlink.addresses().map_err(TargetError::from)?;
    let key = random::key_from_kernel()
        .map_err(|source| LoadError::System { action: "read random numbers", source })?;
    let facts = ResolvedLoadOptions {
        target,
        own_addresses: addresses.iter().map(|own| own.prefix.address()).collect(),
        cores: affinity::allowed_cores()
            .map_err(|source| LoadError::System { action: "list the CPUs", source })?,
        token: RequestTokenCodec::new(key, ClockMonotonic.now()),
        sessions: sessions(options, target)?,
    };
    check::check_rates(options, facts.cores.len())?;
    Ok((facts, netlink, route))
}

/// Returns the NTS sessions that authenticate requests: the existing ones, or new ones from NTS-KE;
/// `None` without NTS. An error if other options exclude NTS.
fn sessions(
    options: &LoadOptions,
    target: SocketAddr,
) -> Result<Option<Arc<NtsSessions>>, NtsError> {
    if options.nts.is_none() && options.sessions.is_none() {
        return Ok(None);
    }
    if options.version != 4 {
        return Err(NtsError::Version(options.version));
    }
    if options.interleaved {
        return Err(NtsError::Interleaved);
    }
    if !options.trailer.is_empty() {
        return Err(NtsError::Trailer);
    }
    if let Some(sessions) = &options.sessions {
        return Ok(Some(Arc::clone(sessions)));
    }
    let each = options.nts.as_ref().is_some_and(|nts| nts.sessions == SessionCount::PerClient);
    if each && options.random_sources {
        return Err(NtsError::RandomSources);
    }
    let clients = options.clients.unwrap_or(CLIENTS_WITH_SESSIONS);
    let (family, interface) = (options.family, options.hints.interface.as_deref());
    let establish =
        |nts| NtsSessions::open_sessions(nts, target, family, interface, clients).map(Arc::new);
    options.nts.as_ref().map(establish).transpose()
}

/// Opener of engines for one run; caches what several engines need.
struct EngineOpener<'a> {
    options: &'a LoadOptions,
    facts: ResolvedLoadOptions,
    netlink: Netlink,
    route: Route,
    /// Route with MAC addresses, once an engine has needed it.
    route_with_macs: Option<Route>,
}

impl<'a> EngineOpener<'a> {
    fn new(options: &'a LoadOptions) -> Result<Self, LoadError> {
        let (facts, netlink, route) = resolve_facts(options)?;
        Ok(Self { options, facts, netlink, route, route_with_macs: None })
    }

    fn open(&mut self, kind: Kind) -> Result<PreparedLoad, LoadError> {
        let (plan, clients) = self.plan(kind)?;
        let engine = engine::open(kind, &plan)?;
        Ok(PreparedLoad { plan, engine, clients, compliant_clients: None, fallbacks: Vec::new() })
    }

    fn plan(&mut self, kind: Kind) -> Result<(RunPlan, u32), LoadError> {
        if kind == Kind::Xdp
            && let Some((reason, remedy)) = check::unsupported_by_xdp(self.options)
        {
            return Err(engine::unavailable_error(kind, reason.to_owned(), remedy).into());
        }
        if kind == Kind::Udp && self.options.compliant_clients.is_some() {
            let reason = "all its clients have one address, so compliant clients would share it";
            let remedy = "use --engine packet or xdp for --compliant-clients";
            return Err(engine::unavailable_error(kind, reason.to_owned(), remedy).into());
        }
        let route = self.route(kind)?;
        let network = self.network(kind, &route)?;
        let (lanes, clients) = self.lanes_and_clients(kind, network, &route)?;
        let excluded_network =
            compliant_clients::compliant_network(self, (network, clients), &route)?;
        let plan = RunPlan {
            target: self.facts.target,
            excluded_network,
            route,
            version: self.options.version,
            lanes,
            cores: self.facts.cores.clone(),
            network,
            clients,
            random_sources: self.options.random_sources,
            token: self.facts.token,
            reply_timeout: self.options.reply_timeout,
            echo: self.options.echo,
            interleaved: self.options.interleaved,
            fairness: self.options.fairness,
            interval: self.options.interval(),
            first_lane: 0,
            shares_ports: false,
            reply_drop: network.map(|network| ReplyDropPlan {
                network: network.prefix(),
                ports: self.reply_ports(),
            }),
            consecutive_requests: 1,
            is_captured: self.options.capture.is_some(),
            sessions: self.facts.sessions.clone(),
            trailer: self.options.trailer.clone(),
            offset: self.options.offset,
            ptp: self.options.ptp,
            parts: Vec::new(),
        };
        Ok((plan, clients))
    }

    /// Returns the source ports of replies.
    fn reply_ports(&self) -> RangeInclusive<u16> {
        match self.options.ptp {
            None => self.facts.target.port()..=self.facts.target.port(),
            Some(_) => EVENT_PORT..=GENERAL_PORT,
        }
    }

    fn route(&mut self, kind: Kind) -> Result<Route, LoadError> {
        if kind == Kind::Udp {
            return Ok(self.route.clone());
        }
        if self.route == Route::ThisHost {
            return Err(engine::unavailable_error(
                kind,
                format!("{} is an address of this host", self.facts.target.ip()),
                "use --engine udp, or run the load from another host or a lab",
            )
            .into());
        }
        if let Some(route) = &self.route_with_macs {
            return Ok(route.clone());
        }
        let (target, hints) = (self.facts.target, &self.options.hints);
        let route = target::find_route(&mut self.netlink, target, hints, true)?;
        self.route_with_macs = Some(route.clone());
        Ok(route)
    }

    /// Returns the addresses that no simulated client may have: those of this host and of the
    /// router.
    fn reserved_addresses(&self, route: &Route) -> Vec<IpAddr> {
        let mut reserved = self.facts.own_addresses.clone();
        if let Route::Link(link) = route {
            reserved.extend(link.gateway);
        }
        reserved
    }

    /// Returns the network of simulated clients; `None` for the udp engine and for PTP over
    /// Ethernet.
    fn network(
        &self,
        kind: Kind,
        route: &Route,
    ) -> Result<Option<SimulatedClientNetwork>, LoadError> {
        let target = self.facts.target.ip();
        if self.is_over_ethernet() {
            return Ok(None);
        }
        if kind == Kind::Udp {
            if self.options.source_network.is_some() || self.options.random_sources {
                let reason = "its clients are sockets of this host".to_owned();
                let remedy = "omit the source network, or use --engine packet";
                return Err(engine::unavailable_error(kind, reason, remedy).into());
            }
            return Ok(None);
        }
        let reserved = self.reserved_addresses(route);
        let network = match self.options.source_network {
            Some(network) => SimulatedClientNetwork::new(network, target, &reserved)?,
            None => SimulatedClientNetwork::find(target, &reserved)?,
        };
        Ok(Some(network))
    }

    fn is_over_ethernet(&self) -> bool {
        self.options.ptp.is_some_and(|ptp| ptp.transport == PtpLoadTransport::Ethernet)
    }

    /// Returns one lane and one client, for `what`, which supports no more; an error if the options
    /// require more.
    fn single_client(&self, kind: Kind, what: &str) -> Result<(usize, u32), LoadError> {
        let (clients, threads) = (self.options.clients, self.options.threads);
        if clients.unwrap_or(1) == 1 && threads.unwrap_or(1) == 1 {
            return Ok((1, 1));
        }
        let reason = format!("{what} supports one client and one thread only");
        let remedy = "omit the numbers of clients and threads, or use --engine packet over UDP";
        Err(engine::unavailable_error(kind, reason, remedy).into())
    }

    /// Returns the default number of sending threads: one for each core, or for every second one if
    /// the target is this host.
    fn default_lanes(&self, route: &Route) -> usize {
        let cores = match route {
            // Threads that spin on every core would leave none to the server.
            Route::ThisHost => self.facts.cores.len().div_ceil(2),
            Route::Link(_) => self.facts.cores.len(),
        };
        cores.clamp(1, LANES_MAX)
    }

    fn lanes_and_clients(
        &self,
        kind: Kind,
        network: Option<SimulatedClientNetwork>,
        route: &Route,
    ) -> Result<(usize, u32), LoadError> {
        if self.options.ptp.is_some_and(|ptp| ptp.clients_max().is_some()) {
            return self.single_client(kind, "NetSync Monitor over Ethernet");
        }
        if network.is_none() && self.options.ptp.is_some() && !self.is_over_ethernet() {
            return self.single_client(kind, "PTP over UDP sockets");
        }
        let most = network.map_or(CLIENTS_MAX, |network| network.host_count());
        let default_clients = match network {
            Some(_) => SIMULATED_CLIENTS.min(most),
            None if self.is_over_ethernet() => SIMULATED_CLIENTS,
            None => SOCKET_CLIENTS,
        };
        let cores = self.default_lanes(route);
        let with_sessions =
            self.facts.sessions.as_ref().and_then(|sessions| sessions.per_client_sessions());
        let requested = self.options.clients.or(with_sessions);
        let lanes = self.options.threads.unwrap_or_else(|| {
            // Fewer clients than cores leave some cores idle.
            cores.min(requested.unwrap_or(default_clients).max(1) as usize)
        });
        let clients = requested.unwrap_or_else(|| default_clients.max(lanes as u32));
        if let (Some(network), true) = (network, clients > most) {
            let network = network.prefix();
            return Err(
                SimulatedClientsError::NoRoom { network, room: most, requested: clients }.into()
            );
        }
        if self.options.random_sources {
            return Ok((lanes, most));
        }
        if clients > CLIENTS_MAX || (clients as usize) < lanes {
            return Err(SimulatedClientsError::Count {
                requested: clients,
                lanes,
                max: CLIENTS_MAX,
            }
            .into());
        }
        Ok((lanes, clients))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::options::LoadProcedure;
    use crate::ramp::Ramp;

    fn options(target: &str) -> LoadOptions {
        let second = Duration::from_secs(1);
        let ramp = Ramp { min: 1000.0, max: 1000.0, multiplier: 1.5, duration: second };
        LoadOptions::new(target.parse().unwrap(), LoadProcedure::Ramp(ramp))
    }

    fn refusal(options: &LoadOptions) -> LoadError {
        prepare(options).err().unwrap()
    }

    #[test]
    fn a_server_on_this_host_is_for_sockets_only() {
        let mut options = options("127.0.0.1:50123");
        let prepared = prepare(&options).unwrap();
        assert_eq!(prepared.engine.kind(), Kind::Udp);
        assert_eq!(prepared.clients, SOCKET_CLIENTS);
        assert_eq!(prepared.fallbacks.len(), 2);
        options.engine = Some(Kind::Packet);
        let error = refusal(&options);
        assert!(error.to_string().contains("address of this host"), "{error}");
        assert!(!error.is_usage());
    }

    #[test]
    fn numbers_that_cannot_be_are_usage_errors() {
        let local = || options("127.0.0.1:50123");
        let wrong = [
            LoadOptions { version: 5, ..local() },
            LoadOptions { threads: Some(0), ..local() },
            LoadOptions { reply_timeout: Duration::ZERO, ..local() },
            LoadOptions { reply_timeout: Duration::from_secs(61), ..local() },
            LoadOptions { clients: Some(1), threads: Some(2), ..local() },
            LoadOptions { interleaved: true, random_sources: true, ..local() },
            LoadOptions { interleaved: true, echo: true, ..local() },
            LoadOptions { clients: Some(2_000_000), ..local() },
            options("8.8.8.8"),
            options("224.0.1.1"),
        ];
        for options in &wrong {
            let error = refusal(options);
            assert!(error.is_usage(), "{error}");
            assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn one_client_has_one_thread() {
        let options = LoadOptions { clients: Some(1), ..options("127.0.0.1:50123") };
        assert_eq!(prepare(&options).unwrap().plan.lanes, 1);
    }

    #[test]
    fn simulated_clients_are_not_quietly_replaced_by_sockets() {
        let network = Some("10.0.0.0/8".parse().unwrap());
        let options = LoadOptions { source_network: network, ..options("127.0.0.1:50123") };
        assert!(matches!(refusal(&options), LoadError::NoSimulation(_)));
    }
}
