//! From options to a plan and an open engine: everything that can be found out or refused before
//! the first trial is, here. What was asked for is done or refused; only the choice of an engine
//! that was left open falls back, and says so.

use std::net::{IpAddr, SocketAddr};
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;
use std::time::Duration;

use horolog_record::{Engine as Kind, Spacing};
use horolog_sys::affinity;
use horolog_sys::clock::MonotonicClock;
use horolog_sys::netlink::Netlink;
use horolog_time::Clock;
use horolog_wire::ptp::{EVENT_PORT, GENERAL_PORT};

use crate::beside::Beside;
use crate::clients::{CLIENTS_MAX, ClientsError, LANES_MAX, SourceNetwork};
use crate::engine::{self, Engine};
use crate::error::{self, LoadError};
use crate::nts::{CLIENTS_WITH_SESSIONS, NtsError, SessionCount, Sessions};
use crate::options::LoadOptions;
use crate::plan::{GuardPlan, RunPlan, TrialPlan};
use crate::ptp::Transport;
use crate::random;
use crate::target::{self, Route, TargetError};
use crate::token::Token;

mod beside;
mod check;
mod mix;

/// Engines from best to simplest.
const PREFERENCE: [Kind; 3] = [Kind::Xdp, Kind::Packet, Kind::Udp];

/// Real clients, each a socket, unless a number is asked for: enough that a server which spreads
/// its clients over several threads uses all of them.
const SOCKET_CLIENTS: u32 = 16;

/// Simulated clients unless a number is asked for: the most that ntpperf has.
const SIMULATED_CLIENTS: u32 = 16_384;

/// Requests with which an engine that was not asked for proves that its replies come back.
const PROBE: TrialPlan = TrialPlan {
    rate: 500.0,
    duration: Duration::from_millis(20),
    spacing: Spacing::Constant,
    clients: 0,
    nts: false,
    course: None,
    parts: Vec::new(),
};

/// An engine that is ready, and what it is ready for.
pub(crate) struct Prepared {
    pub(crate) plan: RunPlan,
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) clients: u32,
    /// Well-behaved clients, where there are any.
    pub(crate) beside: Option<Beside>,
    /// Better engines that could not be used, and why.
    pub(crate) fallbacks: Vec<(Kind, String)>,
}

/// What is the same for every engine.
struct Facts {
    target: SocketAddr,
    own_addresses: Vec<IpAddr>,
    cores: Vec<usize>,
    token: Token,
    sessions: Option<Arc<Sessions>>,
}

/// Finds out and checks everything, and opens the engine.
pub(crate) fn prepare(options: &LoadOptions) -> Result<Prepared, LoadError> {
    if !options.mix.is_empty() {
        return mix::prepare(options);
    }
    let mut opener = Opener::new(options)?;
    let prepared = match options.engine {
        Some(kind) => opener.open(kind),
        None if opener.over_ethernet() => opener.open_over_ethernet(),
        None => open_best(options, |kind| opener.open(kind)),
    }?;
    beside::open(&opener, prepared)
}

/// Checks everything that does not depend on the engine, and finds out what is the same for all.
fn find_out(options: &LoadOptions) -> Result<(Facts, Netlink, Route), LoadError> {
    check::options(options)?;
    let mut netlink = Netlink::open().map_err(TargetError::from)?;
    let target = match options.ptp {
        None => options.target.resolve(options.family)?,
        Some(ptp) => options.target.with_port(ptp.port()).resolve(options.family)?,
    };
    target::permit(target.ip(), options.i_own_this_target)?;
    let target = target::scoped(&mut netlink, target, &options.hints)?;
    // Says at once when there is no way at all.
    let route = target::find_route(&mut netlink, target.ip(), &options.hints, false)?;
    let addresses = netlink.addresses().map_err(TargetError::from)?;
    let key = random::key_from_kernel()
        .map_err(|source| LoadError::System { action: "read random numbers", source })?;
    let facts = Facts {
        target,
        own_addresses: addresses.iter().map(|own| own.prefix.address()).collect(),
        cores: affinity::allowed_cores()
            .map_err(|source| LoadError::System { action: "list the processor's cores", source })?,
        token: Token::new(key, MonotonicClock.now()),
        sessions: sessions(options)?,
    };
    check::plannable(options, facts.cores.len())?;
    Ok((facts, netlink, route))
}

/// Establishes what requests are to be authenticated with.
fn sessions(options: &LoadOptions) -> Result<Option<Arc<Sessions>>, NtsError> {
    if options.nts.is_none() && options.sessions.is_none() {
        return Ok(None);
    }
    if options.version != 4 {
        return Err(NtsError::Version(options.version));
    }
    if options.interleaved {
        return Err(NtsError::Interleaved);
    }
    if !options.additions.is_empty() {
        return Err(NtsError::Additions);
    }
    if let Some(sessions) = &options.sessions {
        return Ok(Some(Arc::clone(sessions)));
    }
    let each = options.nts.as_ref().is_some_and(|nts| nts.sessions == SessionCount::Each);
    if each && options.random_sources {
        return Err(NtsError::RandomSources);
    }
    let clients = options.clients.unwrap_or(CLIENTS_WITH_SESSIONS);
    let establish = |nts| Sessions::establish(nts, options.family, clients).map(Arc::new);
    options.nts.as_ref().map(establish).transpose()
}

/// Opens engines, and finds out what each needs but once.
struct Opener<'a> {
    options: &'a LoadOptions,
    facts: Facts,
    netlink: Netlink,
    plain: Route,
    /// The route with MAC addresses.
    full: Option<Route>,
}

impl<'a> Opener<'a> {
    fn new(options: &'a LoadOptions) -> Result<Self, LoadError> {
        let (facts, netlink, plain) = find_out(options)?;
        Ok(Self { options, facts, netlink, plain, full: None })
    }

    fn open(&mut self, kind: Kind) -> Result<Prepared, LoadError> {
        let (plan, clients) = self.plan(kind)?;
        let engine = engine::open(kind, &plan)?;
        Ok(Prepared { plan, engine, clients, beside: None, fallbacks: Vec::new() })
    }

    fn plan(&mut self, kind: Kind) -> Result<(RunPlan, u32), LoadError> {
        if kind == Kind::Xdp
            && let Some((reason, remedy)) = check::beyond_kernel(self.options)
        {
            return Err(engine::unfit(kind, reason.to_owned(), remedy).into());
        }
        if kind == Kind::Udp && self.options.well_behaved.is_some() {
            let reason = "all its clients have one address, and so have well-behaved ones";
            let remedy = "use --engine packet or xdp for --well-behaved";
            return Err(engine::unfit(kind, reason.to_owned(), remedy).into());
        }
        let route = self.route(kind)?;
        let network = self.network(kind, &route)?;
        let (lanes, clients) = self.lanes_and_clients(kind, network, &route)?;
        let apart = beside::network(self, (network, clients), &route)?;
        let plan = RunPlan {
            target: self.facts.target,
            apart,
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
            guard: network
                .map(|network| GuardPlan { network: network.prefix(), ports: self.reply_ports() }),
            in_a_row: 1,
            tapped: self.options.capture.is_some(),
            sessions: self.facts.sessions.clone(),
            additions: self.options.additions.clone(),
            offset: self.options.offset,
            ptp: self.options.ptp,
            parts: Vec::new(),
        };
        Ok((plan, clients))
    }

    /// The ports that replies come from.
    fn reply_ports(&self) -> RangeInclusive<u16> {
        match self.options.ptp {
            None => self.facts.target.port()..=self.facts.target.port(),
            Some(_) => EVENT_PORT..=GENERAL_PORT,
        }
    }

    fn route(&mut self, kind: Kind) -> Result<Route, LoadError> {
        if kind == Kind::Udp {
            return Ok(self.plain.clone());
        }
        if self.plain == Route::ThisHost {
            return Err(engine::unfit(
                kind,
                format!("{} is an address of this machine", self.facts.target.ip()),
                "use --engine udp, or load it from another machine or a lab",
            )
            .into());
        }
        if let Some(route) = &self.full {
            return Ok(route.clone());
        }
        let (target, hints) = (self.facts.target.ip(), &self.options.hints);
        let route = target::find_route(&mut self.netlink, target, hints, true)?;
        self.full = Some(route.clone());
        Ok(route)
    }

    /// Addresses that no client may have: this host's, and the router's.
    fn taken(&self, route: &Route) -> Vec<IpAddr> {
        let mut taken = self.facts.own_addresses.clone();
        if let Route::Link(link) = route {
            taken.extend(link.gateway);
        }
        taken
    }

    /// The network of simulated clients, for an engine that simulates them.
    fn network(&self, kind: Kind, route: &Route) -> Result<Option<SourceNetwork>, LoadError> {
        let target = self.facts.target.ip();
        if self.over_ethernet() {
            return Ok(None);
        }
        if kind == Kind::Udp {
            if self.options.source_network.is_some() || self.options.random_sources {
                let reason = "its clients are real sockets of this machine".to_owned();
                let remedy = "leave out the source network, or use --engine packet";
                return Err(engine::unfit(kind, reason, remedy).into());
            }
            return Ok(None);
        }
        let taken = self.taken(route);
        let network = match self.options.source_network {
            Some(network) => SourceNetwork::new(network, target, &taken)?,
            None => SourceNetwork::find(target, &taken)?,
        };
        Ok(Some(network))
    }

    /// Opens the first of the two engines that send frames without IP. Nothing is to be proven:
    /// answers need no route.
    fn open_over_ethernet(&mut self) -> Result<Prepared, LoadError> {
        match self.open(Kind::Xdp) {
            Err(LoadError::Engine(error)) => {
                let fallbacks = vec![(Kind::Xdp, error.to_string())];
                Ok(Prepared { fallbacks, ..self.open(Kind::Packet)? })
            }
            opened => opened,
        }
    }

    fn over_ethernet(&self) -> bool {
        self.options.ptp.is_some_and(|ptp| ptp.transport == Transport::Ethernet)
    }

    /// Sockets of PTP have their ports by number, so this host is one client.
    fn one_client(&self, kind: Kind, what: &str) -> Result<(usize, u32), LoadError> {
        let (clients, threads) = (self.options.clients, self.options.threads);
        if clients.unwrap_or(1) == 1 && threads.unwrap_or(1) == 1 {
            return Ok((1, 1));
        }
        let reason = format!("{what} has one client and one thread");
        let remedy = "leave out their numbers, or use --engine packet over UDP";
        Err(engine::unfit(kind, reason, remedy).into())
    }

    /// How many cores send where nothing is asked for.
    fn cores(&self, route: &Route) -> usize {
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
        network: Option<SourceNetwork>,
        route: &Route,
    ) -> Result<(usize, u32), LoadError> {
        if self.options.ptp.is_some_and(|ptp| ptp.clients_max().is_some()) {
            return self.one_client(kind, "NetSync Monitor over Ethernet");
        }
        if network.is_none() && self.options.ptp.is_some() && !self.over_ethernet() {
            return self.one_client(kind, "PTP by sockets");
        }
        let most = network.map_or(CLIENTS_MAX, |network| network.room());
        let usual = match network {
            Some(_) => SIMULATED_CLIENTS.min(most),
            None if self.over_ethernet() => SIMULATED_CLIENTS,
            None => SOCKET_CLIENTS,
        };
        let cores = self.cores(route);
        let with_sessions = self.facts.sessions.as_ref().and_then(|sessions| sessions.clients());
        let asked = self.options.clients.or(with_sessions);
        let lanes = self.options.threads.unwrap_or_else(|| {
            // Fewer clients than cores leave some cores idle.
            cores.min(asked.unwrap_or(usual).max(1) as usize)
        });
        let clients = asked.unwrap_or_else(|| usual.max(lanes as u32));
        if let (Some(network), true) = (network, clients > most) {
            let network = network.prefix();
            return Err(ClientsError::NoRoom { network, room: most, asked: clients }.into());
        }
        if self.options.random_sources {
            return Ok((lanes, most));
        }
        if clients > CLIENTS_MAX || (clients as usize) < lanes {
            return Err(ClientsError::Count { asked: clients, lanes, max: CLIENTS_MAX }.into());
        }
        Ok((lanes, clients))
    }
}

/// Opens the first engine of [`PREFERENCE`] that works.
fn open_best(
    options: &LoadOptions,
    mut open: impl FnMut(Kind) -> Result<Prepared, LoadError>,
) -> Result<Prepared, LoadError> {
    let simulation_asked = options.source_network.is_some() || options.random_sources;
    let mut fallbacks = Vec::new();
    for kind in PREFERENCE {
        if kind == Kind::Udp && (simulation_asked || options.well_behaved.is_some()) {
            break;
        }
        let proven = kind == Kind::Udp || simulation_asked;
        match open(kind).and_then(|ready| if proven { Ok(ready) } else { probe(ready) }) {
            Ok(prepared) => return Ok(Prepared { fallbacks, ..prepared }),
            Err(LoadError::Engine(error)) if kind != Kind::Udp => {
                fallbacks.push((kind, error.to_string()));
            }
            Err(LoadError::Target(error @ TargetError::NoEthernet(_))) => {
                fallbacks.push((kind, error.to_string()));
            }
            Err(LoadError::Clients(error @ ClientsError::NoDefault)) => {
                fallbacks.push((kind, error.to_string()));
            }
            Err(error) => return Err(error),
        }
    }
    let reasons = error::by_reason(&fallbacks).into_iter();
    let told: Vec<_> = reasons.map(|(engines, why)| format!("{engines}: {why}")).collect();
    Err(LoadError::NoSimulation(told.join("; ")))
}

/// Sends a few requests and refuses an engine whose simulated clients get no reply, most likely for
/// want of a route back to them.
fn probe(mut ready: Prepared) -> Result<Prepared, LoadError> {
    let clients = ready.clients;
    let counts = ready
        .engine
        .trial(&TrialPlan { clients, parts: ready.plan.parts.clone(), ..PROBE }, &mut || {
            ControlFlow::Continue(())
        })?;
    if counts.received > 0 {
        return Ok(ready);
    }
    let network = ready.plan.network.map_or_else(String::new, |net| net.prefix().to_string());
    let gateway = match &ready.plan.route {
        Route::Link(link) => link.source.to_string(),
        Route::ThisHost => String::new(),
    };
    Err(engine::unfit(
        ready.engine.kind(),
        format!("no reply to simulated clients from {network} came back"),
        &format!(
            "if it answers others, give the server the route 'ip route add {network} via {gateway}'"
        ),
    )
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Job;
    use crate::ramp::Ramp;

    fn options(target: &str) -> LoadOptions {
        let second = Duration::from_secs(1);
        let ramp = Ramp { min: 1000.0, max: 1000.0, multiplier: 1.5, duration: second };
        LoadOptions::new(target.parse().unwrap(), Job::Ramp(ramp))
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
        assert!(error.to_string().contains("address of this machine"), "{error}");
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
