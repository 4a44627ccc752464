//! From options to well-behaved clients beside a run: their network, which the load does not use,
//! and a plan of their own.

use horolog_sys::clock::MonotonicClock;
use horolog_time::Clock;

use super::{Opener, Prepared};
use crate::beside::{Beside, Manners};
use crate::clients::{CLIENTS_MAX, SourceNetwork};
use crate::error::LoadError;
use crate::options::LoadOptions;
use crate::plan::RunPlan;
use crate::random;
use crate::token::Token;

/// Refuses well-behaved clients that cannot be.
pub(super) fn check(manners: &Manners, options: &LoadOptions) -> Result<(), LoadError> {
    let reason = if manners.clients == 0 || manners.clients > CLIENTS_MAX {
        "their number must be from 1 to 1000000"
    } else if manners.burst == 0 || manners.interval.is_zero() {
        "each must ask at least once in its interval"
    } else if options.random_sources && manners.network.is_none() {
        "random sources leave no part of the network; name another one for them"
    } else if options.echo {
        "a reflector limits nobody"
    } else if options.ptp.is_some() {
        "they ask for NTP, whose servers limit clients by their address; leave them out with PTP"
    } else {
        return Ok(());
    };
    Err(LoadError::WellBehaved(reason))
}

/// Readies well-behaved clients beside a run, where they are asked for.
pub(super) fn open(opener: &Opener<'_>, mut prepared: Prepared) -> Result<Prepared, LoadError> {
    let Some(manners) = &opener.options.well_behaved else { return Ok(prepared) };
    let crowd = &prepared.plan;
    let network = match (manners.network, crowd.network) {
        (Some(network), _) => {
            let target = opener.facts.target.ip();
            Some(SourceNetwork::new(network, target, &opener.taken(&crowd.route))?)
        }
        (None, Some(network)) => Some(network.last_part(manners.clients, prepared.clients)?),
        (None, None) => None,
    };
    let overlap = |network: SourceNetwork| {
        let whole = crowd.random_sources;
        let used = |client| whole || client < prepared.clients;
        let first = crowd.network.and_then(|crowd| crowd.client(network.address(0)));
        first.is_some_and(used)
    };
    if network.is_some_and(overlap) {
        let reason = "the load's own clients have their addresses; name another network";
        return Err(LoadError::WellBehaved(reason));
    }
    let key = random::key_from_kernel()
        .map_err(|source| LoadError::System { action: "read random numbers", source })?;
    let plan = RunPlan {
        network,
        lanes: 1,
        // They ask so seldom that they take no core for themselves.
        cores: Vec::new(),
        clients: manners.clients,
        random_sources: false,
        token: Token::new(key, MonotonicClock.now()),
        interleaved: false,
        sessions: None,
        // The load's own requests are enough for them.
        offset: None,
        fairness: true,
        first_lane: crowd.lanes,
        guard: None,
        in_a_row: manners.burst,
        ..crowd.clone()
    };
    prepared.beside = Some(Beside::open(manners.clone(), plan)?);
    Ok(prepared)
}
