//! Preparation of compliant clients: checks, a network that the load does not use, and a plan of
//! their own.

use horolog_sys::clock::ClockMonotonic;
use horolog_time::Clock;

use super::{EngineOpener, PreparedLoad};
use crate::clients::{CLIENTS_MAX, SimulatedClientNetwork, SimulatedClientsError};
use crate::compliant_clients::{CompliantClientOptions, RunningCompliantClients};
use crate::error::LoadError;
use crate::options::{LoadOptions, LoadProcedure};
use crate::plan::RunPlan;
use crate::random;
use crate::target::Route;
use crate::token::RequestTokenCodec;

/// Refuses invalid options of compliant clients.
pub(super) fn check_options(
    compliant: &CompliantClientOptions,
    options: &LoadOptions,
) -> Result<(), LoadError> {
    let reason = if compliant.clients == 0 || compliant.clients > CLIENTS_MAX {
        "their number must be from 1 to 1000000"
    } else if compliant.burst == 0 || compliant.interval.is_zero() {
        "each client must send at least once in its interval"
    } else if options.random_sources && compliant.network.is_none() {
        "random sources use the whole network; name another network for compliant clients"
    } else if options.overload_test.is_some()
        || matches!(options.job, LoadProcedure::Profile(_) | LoadProcedure::Overload(_))
    {
        "they require trials of constant rate; omit the load profile"
    } else if let Some(reason) = options
        .requests
        .kinds()
        .find_map(|requests| requests.behaviour().unsupported_as_compliant(compliant))
    {
        reason
    } else {
        return Ok(());
    };
    Err(LoadError::CompliantClients(reason))
}

/// Returns the network of compliant clients: the configured one, or an unused subnet of the load's
/// network, of which `clients` addresses are in use. `None` without compliant clients or without
/// simulated clients. An error if the network is too small or overlaps the load's clients.
pub(super) fn compliant_network(
    opener: &EngineOpener<'_>,
    (load_network, clients): (Option<SimulatedClientNetwork>, u32),
    route: &Route,
) -> Result<Option<SimulatedClientNetwork>, LoadError> {
    let (Some(compliant), Some(load_network)) = (&opener.options.compliant_clients, load_network)
    else {
        return Ok(None);
    };
    let network = match compliant.network {
        Some(network) => SimulatedClientNetwork::new(
            network,
            opener.target.ip(),
            &opener.reserved_addresses(route),
        )?,
        None => load_network.last_subnet(compliant.clients, clients)?,
    };
    let (requested, room) = (compliant.clients, network.host_count());
    if requested > room {
        return Err(
            SimulatedClientsError::NoRoom { network: network.prefix(), room, requested }.into()
        );
    }
    let all = if opener.options.random_sources { load_network.host_count() } else { clients };
    let (own, others) = (network.addresses(requested), load_network.addresses(all));
    let overlaps = own.start() <= others.end() && others.start() <= own.end();
    // Replies to the whole network of the compliant clients count as theirs.
    if overlaps || network.prefix().contains(load_network.address(0)) {
        let reason = "the network is in use by the load's own clients; name another one";
        return Err(LoadError::CompliantClients(reason));
    }
    Ok(Some(network))
}

/// Prepares compliant clients for a run, if requested.
pub(super) fn open_compliant_clients(
    opener: &EngineOpener<'_>,
    mut prepared: PreparedLoad,
) -> Result<PreparedLoad, LoadError> {
    let Some(compliant) = &opener.options.compliant_clients else { return Ok(prepared) };
    let load_plan = &prepared.plans[0];
    let key = random::key_from_kernel()
        .map_err(|source| LoadError::System { action: "read random numbers", source })?;
    let plan = RunPlan {
        network: load_plan.excluded_network,
        excluded_network: None,
        lanes: 1,
        // Their rate is so low that they need no core for themselves.
        cores: Vec::new(),
        clients: compliant.clients,
        random_sources: false,
        token: RequestTokenCodec::new(key, ClockMonotonic.now()),
        requests: load_plan.requests.behaviour().compliant_requests(),
        // The offsets of the load's own requests are sufficient.
        offset: None,
        fairness: true,
        first_lane: load_plan.lanes,
        reply_drop: None,
        consecutive_requests: compliant.burst,
        ..load_plan.clone()
    };
    prepared.compliant_clients = Some(RunningCompliantClients::open(compliant.clone(), plan)?);
    Ok(prepared)
}
