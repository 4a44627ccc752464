//! From options to well-behaved clients beside a run: their network, which the load does not use,
//! and a plan of their own.

use horolog_sys::clock::MonotonicClock;
use horolog_time::Clock;

use super::{Opener, Prepared};
use crate::beside::{Beside, Manners};
use crate::clients::{CLIENTS_MAX, ClientsError, SourceNetwork};
use crate::error::LoadError;
use crate::options::{Job, LoadOptions};
use crate::plan::RunPlan;
use crate::ptp::{PtpKind, PtpPlan, Transport};
use crate::random;
use crate::target::Route;
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
    } else if options.surge.is_some() || matches!(options.job, Job::Course(_) | Job::Overload(_)) {
        "they go beside trials of one rate; leave them out of a course"
    } else if let Some(reason) = options.ptp.and_then(|ptp| beyond_ptp(&ptp, manners)) {
        reason
    } else {
        return Ok(());
    };
    Err(LoadError::WellBehaved(reason))
}

/// What well-behaved clients of a PTP master cannot be.
fn beyond_ptp(ptp: &PtpPlan, manners: &Manners) -> Option<&'static str> {
    if ptp.transport == Transport::Ethernet {
        return Some("over Ethernet all clients have one address; leave them out, or use UDP");
    }
    let is_burst = ptp.kind == PtpKind::Nsm && manners.burst > 1;
    is_burst.then_some("NetSync Monitor has one request of a client at a time; leave out the burst")
}

/// Where well-behaved clients come from, where there are any: not from where the load's own
/// `clients` do, out of its network.
pub(super) fn network(
    opener: &Opener<'_>,
    (crowd, clients): (Option<SourceNetwork>, u32),
    route: &Route,
) -> Result<Option<SourceNetwork>, LoadError> {
    let (Some(manners), Some(crowd)) = (&opener.options.well_behaved, crowd) else {
        return Ok(None);
    };
    let network = match manners.network {
        Some(network) => {
            SourceNetwork::new(network, opener.facts.target.ip(), &opener.taken(route))?
        }
        None => crowd.last_part(manners.clients, clients)?,
    };
    let (asked, room) = (manners.clients, network.room());
    if asked > room {
        return Err(ClientsError::NoRoom { network: network.prefix(), room, asked }.into());
    }
    let all = if opener.options.random_sources { crowd.room() } else { clients };
    let (own, others) = (network.addresses(asked), crowd.addresses(all));
    let have_some = own.start() <= others.end() && others.start() <= own.end();
    // Replies to all of their network are taken for theirs.
    if have_some || network.prefix().contains(crowd.address(0)) {
        let reason = "the load's own clients have their addresses; name another network";
        return Err(LoadError::WellBehaved(reason));
    }
    Ok(Some(network))
}

/// Readies well-behaved clients beside a run, where they are asked for.
pub(super) fn open(opener: &Opener<'_>, mut prepared: Prepared) -> Result<Prepared, LoadError> {
    let Some(manners) = &opener.options.well_behaved else { return Ok(prepared) };
    let crowd = &prepared.plan;
    let key = random::key_from_kernel()
        .map_err(|source| LoadError::System { action: "read random numbers", source })?;
    let plan = RunPlan {
        network: crowd.apart,
        apart: None,
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
