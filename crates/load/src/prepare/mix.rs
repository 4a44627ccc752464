//! Options to a mix: a plan and an engine for each kind of requests, with a part of the clients, of
//! their network and of the threads.

use std::net::SocketAddr;
use std::sync::Arc;

use horolog_record::LoadEngineKind as Kind;

use super::{EngineOpener, PreparedLoad, probe, sessions};
use crate::clients::{LANES_MAX, SourceNetwork};
use crate::engine::mix::MixEngine;
use crate::engine::xdp::XdpEngine;
use crate::engine::{self, LoadEngine};
use crate::error::LoadError;
use crate::mix::{self, divide, shares};
use crate::nts::Sessions;
use crate::options::LoadOptions;
use crate::plan::{GuardPlan, PartPlan, RunPlan};

/// Resolves and checks everything, and opens the engines.
pub(super) fn prepare(options: &LoadOptions) -> Result<PreparedLoad, LoadError> {
    mix::check(options)?;
    // All parts use the same one of a name's addresses.
    let interface = options.hints.interface.as_deref();
    let address = options.target.resolve(options.family, interface)?;
    // Once, for all engines.
    let sessions = |run: &LoadOptions| -> Result<_, LoadError> {
        Ok(sessions(run, run.target.resolve(run.family, interface)?)?)
    };
    let sessions: Vec<_> =
        mix::runs(options, address).iter().map(sessions).collect::<Result<_, _>>()?;
    let mix = Mix { options, address, sessions };
    match options.engine {
        Some(kind) => probe::open_named(kind, &mut |kind| mix.open(kind)),
        None => probe::open_best(options, &mut |kind| mix.open(kind)),
    }
}

struct Mix<'a> {
    options: &'a LoadOptions,
    address: SocketAddr,
    /// NTS sessions of each part.
    sessions: Vec<Option<Arc<Sessions>>>,
}

impl Mix<'_> {
    /// Opens an engine of this kind for each part.
    fn open(&self, kind: Kind) -> Result<PreparedLoad, LoadError> {
        let (plans, network) = self.plans(kind)?;
        let engine: Box<dyn LoadEngine> = if kind == Kind::Xdp {
            Box::new(XdpEngine::open_mix(&plans)?)
        } else {
            let engines = plans.iter().map(|plan| engine::open(kind, plan));
            Box::new(MixEngine::new(kind, engines.collect::<Result<_, _>>()?))
        };
        let plan = self.whole(kind, &plans, network);
        let clients = plan.clients;
        Ok(PreparedLoad { plan, engine, clients, compliant_clients: None, fallbacks: Vec::new() })
    }

    /// Returns the runs of the mix, with their existing sessions.
    fn runs(&self) -> Vec<LoadOptions> {
        let runs = mix::runs(self.options, self.address).into_iter();
        let with = |(run, sessions)| LoadOptions { nts: None, sessions, ..run };
        runs.zip(self.sessions.iter().cloned()).map(with).collect()
    }

    /// Returns a plan for each part, and the network that contains all their clients.
    fn plans(&self, kind: Kind) -> Result<(Vec<RunPlan>, Option<SourceNetwork>), LoadError> {
        let runs = self.runs();
        let ptp = runs.iter().filter(|run| run.ptp.is_some()).count();
        if kind == Kind::Udp && ptp > 1 {
            let reason = "sockets on the PTP ports support one kind of request only".to_owned();
            return Err(engine::unfit(kind, reason, "use --engine packet").into());
        }
        let mut first = EngineOpener::new(&runs[0])?;
        let route = first.route(kind)?;
        let network = first.network(kind, &route)?;
        let threads = self.options.threads.unwrap_or_else(|| first.cores(&route)) as u32;
        let lanes = match kind {
            // In the kernel all parts share each thread.
            Kind::Xdp => vec![threads; runs.len()],
            Kind::Packet | Kind::Udp => divide(threads, &shares(&self.options.mix)),
        };
        let (count, mut first_lane) = (runs.len(), 0);
        let mut plans = Vec::with_capacity(count);
        for ((index, run), lanes) in runs.into_iter().enumerate().zip(lanes) {
            let part = network.map(|network| network.part(index, count)).transpose()?;
            // PTP sockets are one client, however many the mix has.
            let one_client = kind == Kind::Udp && run.ptp.is_some();
            let clients = run.clients.filter(|_| !one_client);
            let lanes = lanes.min(clients.unwrap_or(u32::MAX)) as usize;
            let run = LoadOptions {
                source_network: part.map(|network| network.prefix()),
                clients,
                threads: (!one_client).then_some(lanes),
                ..run
            };
            let (plan, _) = EngineOpener::new(&run)?.plan(kind)?;
            let lanes = plan.lanes;
            // The first one keeps the replies to all of them from the stack.
            let guard = network
                .filter(|_| index == 0)
                .map(|network| GuardPlan { network: network.prefix(), ports: 1..=u16::MAX });
            let shares_ports = plan.ptp.is_some() && ptp > 1;
            plans.push(RunPlan { first_lane, shares_ports, guard, ..plan });
            first_lane += if kind == Kind::Xdp { 0 } else { lanes };
        }
        if first_lane > LANES_MAX {
            return Err(LoadError::Threads(first_lane));
        }
        Ok((plans, network))
    }

    /// Returns the plan of a mix as a whole: the common values, and the sums of the parts.
    fn whole(&self, kind: Kind, plans: &[RunPlan], network: Option<SourceNetwork>) -> RunPlan {
        let lanes = plans.iter().map(|plan| plan.lanes);
        let parts = self.options.mix.iter().zip(shares(&self.options.mix)).zip(plans);
        // The target's port is that of NTP, if the mix has NTP requests.
        let ntp = plans.iter().find(|plan| plan.ptp.is_none()).unwrap_or(&plans[0]);
        RunPlan {
            target: ntp.target,
            network,
            lanes: if kind == Kind::Xdp { lanes.min().unwrap_or(1) } else { lanes.sum() },
            clients: plans.iter().map(|plan| plan.clients).sum(),
            interleaved: plans.iter().any(|plan| plan.interleaved),
            sessions: plans.iter().find_map(|plan| plan.sessions.clone()),
            offset: plans.iter().find_map(|plan| plan.offset),
            ptp: plans.iter().find_map(|plan| plan.ptp),
            parts: parts
                .map(|((part, share), plan)| PartPlan {
                    name: part.name.clone(),
                    mode: plan.mode(),
                    share,
                    clients: plan.clients,
                    nts: plan.sessions.is_some(),
                })
                .collect(),
            ..plans[0].clone()
        }
    }
}
