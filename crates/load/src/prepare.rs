//! Preparation of a run: turns options into a plan and an open engine, and refuses before the first
//! trial what can be refused. Explicit options are obeyed or refused; only the automatic choice of
//! an engine falls back to another one, with a finding.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use horolog_record::LoadEngineKind as Kind;
use horolog_sys::affinity;
use horolog_sys::clock::ClockMonotonic;
use horolog_sys::netlink::Netlink;
use horolog_time::Clock;

use crate::clients::{CLIENTS_MAX, LANES_MAX, SimulatedClientNetwork, SimulatedClientsError};
use crate::compliant_clients::RunningCompliantClients;
use crate::engine::{self, LoadEngine};
use crate::error::LoadError;
use crate::mix::{MixPart, divide};
use crate::nts::NtsSessions;
use crate::offset::ServerOffsetOptions;
use crate::options::LoadOptions;
use crate::plan::{MixPartPlan, ReplyDropPlan, RunPlan};
use crate::random;
use crate::request_kind::RequestKind;
use crate::target::{self, Route, TargetError};
use crate::token::RequestTokenCodec;

mod check;
mod compliant_clients;
mod probe;

/// Default number of real clients, each with a socket: enough to load all threads of a server that
/// distributes clients over threads.
const SOCKET_CLIENTS: u32 = 16;

/// Default number of simulated clients: the most that ntpperf has.
const SIMULATED_CLIENTS: u32 = 16_384;

/// An open engine and its plans.
pub(crate) struct PreparedLoad {
    /// Plan of each kind of requests, at least one.
    pub(crate) plans: Vec<RunPlan>,
    /// Kinds of requests in each trial of a mix; empty for one kind.
    pub(crate) parts: Vec<MixPartPlan>,
    /// Network of all simulated clients; `None` for real clients.
    pub(crate) network: Option<SimulatedClientNetwork>,
    pub(crate) engine: Box<dyn LoadEngine>,
    /// Compliant clients, if there are any.
    pub(crate) compliant_clients: Option<RunningCompliantClients>,
    /// Better engines that could not be used, each with the reason.
    pub(crate) fallbacks: Vec<(Kind, String)>,
}

impl PreparedLoad {
    /// Returns the target. Its port is that of NTP, if there are NTP requests.
    pub(crate) fn target(&self) -> SocketAddr {
        let ntp = self.plans.iter().find(|plan| plan.requests.behaviour().fixed_port().is_none());
        ntp.unwrap_or(&self.plans[0]).target
    }

    /// Returns the route to the target.
    pub(crate) fn route(&self) -> &Route {
        &self.plans[0].route
    }

    /// Returns the number of clients over all kinds of requests.
    pub(crate) fn clients(&self) -> u32 {
        self.plans.iter().map(|plan| plan.clients).sum()
    }

    /// Returns the number of sending threads.
    pub(crate) fn lanes(&self) -> usize {
        let lanes = self.plans.iter().map(|plan| plan.lanes);
        // In the kernel all kinds of requests share each thread.
        if self.engine.kind() == Kind::Xdp { lanes.min().unwrap_or(1) } else { lanes.sum() }
    }

    /// Returns the kinds of requests.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &RequestKind> {
        self.plans.iter().map(|plan| &plan.requests)
    }

    /// Returns the NTS sessions that authenticate requests, if there are any.
    pub(crate) fn sessions(&self) -> Option<&Arc<NtsSessions>> {
        self.requests().find_map(RequestKind::sessions)
    }

    /// Returns the options of the offset measurement; `None` if no offsets are measured.
    pub(crate) fn offset(&self) -> Option<ServerOffsetOptions> {
        self.plans.iter().find_map(|plan| plan.offset)
    }
}

/// Resolves and checks everything, and opens the engine.
pub(crate) fn prepare(options: &LoadOptions) -> Result<PreparedLoad, LoadError> {
    let mut opener = EngineOpener::new(options)?;
    let prepared = match options.engine {
        Some(kind) => probe::open_named(kind, &mut |kind| opener.open(kind)),
        None => probe::open_best(options, &mut |kind| opener.open(kind)),
    }?;
    compliant_clients::open_compliant_clients(&opener, prepared)
}

/// Kind of requests, resolved as far as that does not depend on the engine.
struct ResolvedMixPart {
    requests: RequestKind,
    target: SocketAddr,
    token: RequestTokenCodec,
    /// Number of clients, if it was given.
    clients: Option<u32>,
}

impl ResolvedMixPart {
    fn new(
        requests: &RequestKind,
        options: &LoadOptions,
        mut target: SocketAddr,
        clients: Option<u32>,
    ) -> Result<Self, LoadError> {
        if let Some(port) = requests.behaviour().fixed_port() {
            target.set_port(port);
        }
        let key = random::key_from_kernel()
            .map_err(|source| LoadError::System { action: "read random numbers", source })?;
        let token = RequestTokenCodec::new(key, ClockMonotonic.now());
        let requests = requests.with_sessions(options, target, clients)?;
        Ok(Self { requests, target, token, clients })
    }
}

/// Resources of one kind of requests in a run: a part of the clients' network, and of the threads
/// if their number is determined.
#[derive(Clone, Copy)]
struct MixPartResources {
    network: Option<SimulatedClientNetwork>,
    threads: Option<usize>,
}

/// Opener of engines for one run; caches what several engines need.
struct EngineOpener<'a> {
    options: &'a LoadOptions,
    target: SocketAddr,
    own_addresses: Vec<IpAddr>,
    cores: Vec<usize>,
    parts: Vec<ResolvedMixPart>,
    netlink: Netlink,
    route: Route,
    /// Route with MAC addresses, once an engine has needed it.
    route_with_macs: Option<Route>,
}

impl<'a> EngineOpener<'a> {
    /// Checks the options and resolves the values that do not depend on the engine.
    fn new(options: &'a LoadOptions) -> Result<Self, LoadError> {
        check::check_options(options)?;
        let mut netlink = Netlink::open().map_err(TargetError::from)?;
        let target = options.target.resolve(options.family, options.hints.interface.as_deref())?;
        target::check_permitted(target.ip(), options.i_own_this_target)?;
        // Fails if there is no route.
        let route = target::find_route(&mut netlink, target, &options.hints, false)?;
        let addresses = netlink.addresses().map_err(TargetError::from)?;
        let own_addresses = addresses.iter().map(|own| own.prefix.address()).collect();
        let cores = affinity::allowed_cores()
            .map_err(|source| LoadError::System { action: "list the CPUs", source })?;
        let mix = &options.requests;
        let clients = match options.clients {
            Some(clients) if mix.is_several() => {
                divide(clients, &mix.shares()).into_iter().map(Some).collect()
            }
            clients => vec![clients; mix.parts().len()],
        };
        let parts = mix
            .kinds()
            .zip(clients)
            .map(|(requests, clients)| ResolvedMixPart::new(requests, options, target, clients));
        let parts = parts.collect::<Result<_, _>>()?;
        check::check_rates(options, cores.len())?;
        let route_with_macs = None;
        Ok(Self { options, target, own_addresses, cores, parts, netlink, route, route_with_macs })
    }

    fn open(&mut self, kind: Kind) -> Result<PreparedLoad, LoadError> {
        let (plans, network) = self.plans(kind)?;
        let engine = engine::open(kind, &plans)?;
        let parts = self.mix_parts(&plans);
        let fallbacks = Vec::new();
        Ok(PreparedLoad { plans, parts, network, engine, compliant_clients: None, fallbacks })
    }

    /// Returns the kinds of requests in each trial of a mix.
    fn mix_parts(&self, plans: &[RunPlan]) -> Vec<MixPartPlan> {
        let mix = &self.options.requests;
        if !mix.is_several() {
            return Vec::new();
        }
        let part_plan = |((part, share), plan): ((&MixPart, f64), &RunPlan)| MixPartPlan {
            name: part.name.clone(),
            mode: plan.requests.mode(),
            share,
            clients: plan.clients,
        };
        mix.parts().iter().zip(mix.shares()).zip(plans).map(part_plan).collect()
    }

    /// Returns a plan for each kind of requests, and the network that contains all their clients.
    fn plans(
        &mut self,
        kind: Kind,
    ) -> Result<(Vec<RunPlan>, Option<SimulatedClientNetwork>), LoadError> {
        check::check_engine(kind, self.options)?;
        let route = self.route(kind)?;
        let network = self.network(kind, &route)?;
        let (count, mut first_lane) = (self.parts.len(), 0);
        let has_fixed_port = |requests: &RequestKind| requests.behaviour().fixed_port().is_some();
        let on_fixed_ports =
            self.parts.iter().filter(|part| has_fixed_port(&part.requests)).count();
        let mut plans = Vec::with_capacity(count);
        for (index, threads) in self.threads(kind, &route).into_iter().enumerate() {
            let subnet = match network {
                Some(network) if count > 1 => Some(network.subnet(index, count)?),
                network => network,
            };
            let resources = MixPartResources { network: subnet, threads };
            let plan = self.plan(kind, &self.parts[index], resources, &route)?;
            let shares_ports = has_fixed_port(&plan.requests) && on_fixed_ports > 1;
            // The first engine of a mix drops the replies to all its parts before the stack.
            let reply_drop = match network {
                Some(network) if count > 1 => (index == 0)
                    .then(|| ReplyDropPlan { network: network.prefix(), ports: 1..=u16::MAX }),
                _ => plan.reply_drop,
            };
            let lanes = plan.lanes;
            plans.push(RunPlan { first_lane, shares_ports, reply_drop, ..plan });
            // In the kernel all parts share each thread.
            first_lane += if kind == Kind::Xdp { 0 } else { lanes };
        }
        if first_lane > LANES_MAX {
            return Err(LoadError::Threads(first_lane));
        }
        Ok((plans, network))
    }

    /// Returns the number of threads of each kind of requests in a mix; for one kind, the number
    /// in the options, if there is one.
    fn threads(&self, kind: Kind, route: &Route) -> Vec<Option<usize>> {
        if self.parts.len() == 1 {
            return vec![self.options.threads];
        }
        let threads = self.options.threads.unwrap_or_else(|| self.default_lanes(route)) as u32;
        let parts = match kind {
            Kind::Xdp => vec![threads; self.parts.len()],
            Kind::Packet | Kind::Udp => divide(threads, &self.options.requests.shares()),
        };
        let fewest = |(part, lanes): (&ResolvedMixPart, u32)| {
            // PTP sockets are one client, however many the mix has.
            let is_one_client = kind == Kind::Udp
                && part.requests.behaviour().single_client_reason(false).is_some();
            let lanes = lanes.min(part.clients.unwrap_or(u32::MAX));
            (!is_one_client).then_some(lanes as usize)
        };
        self.parts.iter().zip(parts).map(fewest).collect()
    }

    fn plan(
        &self,
        kind: Kind,
        part: &ResolvedMixPart,
        resources: MixPartResources,
        route: &Route,
    ) -> Result<RunPlan, LoadError> {
        let behaviour = part.requests.behaviour();
        let network = resources.network.filter(|_| !behaviour.is_over_ethernet());
        let resources = MixPartResources { network, ..resources };
        let (lanes, clients) = self.lanes_and_clients(kind, part, resources, route)?;
        let excluded_network =
            compliant_clients::compliant_network(self, (network, clients), route)?;
        Ok(RunPlan {
            target: part.target,
            excluded_network,
            route: route.clone(),
            requests: part.requests.clone(),
            lanes,
            cores: self.cores.clone(),
            network,
            clients,
            random_sources: self.options.random_sources,
            token: part.token,
            reply_timeout: self.options.reply_timeout.into(),
            fairness: self.options.fairness,
            interval: self.options.interval(),
            first_lane: 0,
            shares_ports: false,
            reply_drop: network.map(|network| ReplyDropPlan {
                network: network.prefix(),
                ports: behaviour.reply_ports(part.target.port()),
            }),
            consecutive_requests: 1,
            is_captured: self.options.capture.is_some(),
            offset: self.options.offset.filter(|_| behaviour.reports_transmit_time()),
        })
    }

    fn route(&mut self, kind: Kind) -> Result<Route, LoadError> {
        if kind == Kind::Udp {
            return Ok(self.route.clone());
        }
        if self.route == Route::ThisHost {
            return Err(engine::unavailable_error(
                kind,
                format!("{} is an address of this host", self.target.ip()),
                "use --engine udp, or run the load from another host or a lab",
            )
            .into());
        }
        if let Some(route) = &self.route_with_macs {
            return Ok(route.clone());
        }
        let (target, hints) = (self.target, &self.options.hints);
        let route = target::find_route(&mut self.netlink, target, hints, true)?;
        self.route_with_macs = Some(route.clone());
        Ok(route)
    }

    /// Returns the addresses that no simulated client may have: those of this host and of the
    /// router.
    fn reserved_addresses(&self, route: &Route) -> Vec<IpAddr> {
        let mut reserved = self.own_addresses.clone();
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
        let target = self.target.ip();
        if self.parts[0].requests.behaviour().is_over_ethernet() {
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

    /// Returns one lane and one client, for `what`, which supports no more; an error if the options
    /// require more.
    fn single_client(
        kind: Kind,
        what: &str,
        (clients, threads): (Option<u32>, Option<usize>),
    ) -> Result<(usize, u32), LoadError> {
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
            Route::ThisHost => self.cores.len().div_ceil(2),
            Route::Link(_) => self.cores.len(),
        };
        cores.clamp(1, LANES_MAX)
    }

    fn lanes_and_clients(
        &self,
        kind: Kind,
        part: &ResolvedMixPart,
        MixPartResources { network, threads }: MixPartResources,
        route: &Route,
    ) -> Result<(usize, u32), LoadError> {
        let behaviour = part.requests.behaviour();
        if let Some(what) = behaviour.single_client_reason(network.is_some()) {
            let clients = part.clients.filter(|_| self.parts.len() == 1);
            return Self::single_client(kind, what, (clients, threads));
        }
        let most = network.map_or(CLIENTS_MAX, |network| network.host_count());
        let default_clients = match network {
            Some(_) => SIMULATED_CLIENTS.min(most),
            None if behaviour.is_over_ethernet() => SIMULATED_CLIENTS,
            None => SOCKET_CLIENTS,
        };
        let requested = part.clients.or(behaviour.client_count());
        let lanes = threads.unwrap_or_else(|| {
            // Fewer clients than cores leave some cores idle.
            let cores = self.default_lanes(route);
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
    use crate::mix::RequestMix;
    use crate::options::LoadProcedure;
    use crate::ramp::Ramp;
    use crate::request_kind::NtpRequestOptions;
    use crate::trailer::TrailerOptions;

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
        assert_eq!(prepared.clients(), SOCKET_CLIENTS);
        assert_eq!(prepared.fallbacks.len(), 2);
        options.engine = Some(Kind::Packet);
        let error = refusal(&options);
        assert!(error.to_string().contains("address of this host"), "{error}");
        assert!(!error.is_usage());
    }

    #[test]
    fn numbers_that_cannot_be_are_usage_errors() {
        let local = || options("127.0.0.1:50123");
        let ntp = |version, interleaved| {
            let trailer = TrailerOptions::default();
            RequestMix::only(NtpRequestOptions { version, interleaved, trailer })
        };
        let wrong = [
            LoadOptions { requests: ntp(5, false), ..local() },
            LoadOptions { threads: Some(0), ..local() },
            LoadOptions { reply_timeout: Duration::ZERO, ..local() },
            LoadOptions { reply_timeout: Duration::from_secs(61), ..local() },
            LoadOptions { clients: Some(1), threads: Some(2), ..local() },
            LoadOptions { requests: ntp(4, true), random_sources: true, ..local() },
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
        assert_eq!(prepare(&options).unwrap().lanes(), 1);
    }

    #[test]
    fn simulated_clients_are_not_quietly_replaced_by_sockets() {
        let network = Some("10.0.0.0/8".parse().unwrap());
        let options = LoadOptions { source_network: network, ..options("127.0.0.1:50123") };
        assert!(matches!(refusal(&options), LoadError::NoSimulation(_)));
    }
}
