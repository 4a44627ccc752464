//! Options to a mix: a plan and an engine for each kind of requests, with a part of the clients, of
//! their network and of the threads.

use std::net::SocketAddr;
use std::sync::Arc;

use horolog_record::LoadEngineKind as Kind;

use super::{EngineOpener, PreparedLoad, probe, sessions};
use crate::clients::{LANES_MAX, SimulatedClientNetwork};
use crate::engine::mix::MixEngine;
use crate::engine::xdp::XdpEngine;
use crate::engine::{self, LoadEngine};
use crate::error::LoadError;
use crate::mix::{self, divide, shares};
use crate::nts::NtsSessions;
use crate::options::LoadOptions;
use crate::plan::{MixPartPlan, ReplyDropPlan, RunPlan};

/// Resolves and checks everything, and opens the engines.
pub(super) fn prepare(options: &LoadOptions) -> Result<PreparedLoad, LoadError> {
    mix::check_mix(options)?;
    // Resolved once, so that all parts use the same address of a name.
    let interface = options.hints.interface.as_deref();
    let address = options.target.resolve(options.family, interface)?;
    // NTS-KE runs once, for all engines that are tried.
    let sessions = |run: &LoadOptions| -> Result<_, LoadError> {
        Ok(sessions(run, run.target.resolve(run.family, interface)?)?)
    };
    let sessions: Vec<_> =
        mix::part_runs(options, address).iter().map(sessions).collect::<Result<_, _>>()?;
    let mix = MixOpener { options, address, sessions };
    match options.engine {
        Some(kind) => probe::open_named(kind, &mut |kind| mix.open(kind)),
        None => probe::open_best(options, &mut |kind| mix.open(kind)),
    }
}

struct MixOpener<'a> {
    options: &'a LoadOptions,
    address: SocketAddr,
    /// NTS sessions of each part; `None` for a part without NTS.
    sessions: Vec<Option<Arc<NtsSessions>>>,
}

impl MixOpener<'_> {
    /// Opens an engine of this kind for each part.
    fn open(&self, kind: Kind) -> Result<PreparedLoad, LoadError> {
        let (plans, network) = self.part_plans(kind)?;
        let engine: Box<dyn LoadEngine> = if kind == Kind::Xdp {
            Box::new(XdpEngine::open_mix(&plans)?)
        } else {
            let engines = plans.iter().map(|plan| engine::open(kind, plan));
            Box::new(MixEngine::new(kind, engines.collect::<Result<_, _>>()?))
        };
        let plan = self.combined_plan(kind, &plans, network);
        let clients = plan.clients;
        Ok(PreparedLoad { plan, engine, clients, compliant_clients: None, fallbacks: Vec::new() })
    }

    /// Returns the options of each part, with its open NTS sessions.
    fn part_runs(&self) -> Vec<LoadOptions> {
        let runs = mix::part_runs(self.options, self.address).into_iter();
        let with_sessions = |(run, sessions)| LoadOptions { nts: None, sessions, ..run };
        runs.zip(self.sessions.iter().cloned()).map(with_sessions).collect()
    }

    /// Returns a plan for each part, and the network that contains all their clients.
    fn part_plans(
        &self,
        kind: Kind,
    ) -> Result<(Vec<RunPlan>, Option<SimulatedClientNetwork>), LoadError> {
        let runs = self.part_runs();
        let ptp = runs.iter().filter(|run| run.ptp.is_some()).count();
        if kind == Kind::Udp && ptp > 1 {
            let reason = "sockets on the PTP ports support one kind of request only".to_owned();
            return Err(engine::unavailable_error(kind, reason, "use --engine packet").into());
        }
        let mut first = EngineOpener::new(&runs[0])?;
        let route = first.route(kind)?;
        let network = first.network(kind, &route)?;
        let threads = self.options.threads.unwrap_or_else(|| first.default_lanes(&route)) as u32;
        let lanes = match kind {
            // In the kernel all parts share each thread.
            Kind::Xdp => vec![threads; runs.len()],
            Kind::Packet | Kind::Udp => divide(threads, &shares(&self.options.mix)),
        };
        let (count, mut first_lane) = (runs.len(), 0);
        let mut plans = Vec::with_capacity(count);
        for ((index, run), lanes) in runs.into_iter().enumerate().zip(lanes) {
            let part = network.map(|network| network.subnet(index, count)).transpose()?;
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
            // The first part's engine drops the replies to all parts before the stack.
            let reply_drop = network
                .filter(|_| index == 0)
                .map(|network| ReplyDropPlan { network: network.prefix(), ports: 1..=u16::MAX });
            let shares_ports = plan.ptp.is_some() && ptp > 1;
            plans.push(RunPlan { first_lane, shares_ports, reply_drop, ..plan });
            first_lane += if kind == Kind::Xdp { 0 } else { lanes };
        }
        if first_lane > LANES_MAX {
            return Err(LoadError::Threads(first_lane));
        }
        Ok((plans, network))
    }

    /// Returns the plan of a mix as a whole: the common values, and the sums of the parts.
    fn combined_plan(
        &self,
        kind: Kind,
        plans: &[RunPlan],
        network: Option<SimulatedClientNetwork>,
    ) -> RunPlan {
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
                .map(|((part, share), plan)| MixPartPlan {
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
