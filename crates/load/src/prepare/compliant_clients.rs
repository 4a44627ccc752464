//! Options of compliant clients during a run: their network, which the load does not use, and their
//! own plan.

use horolog_sys::clock::MonotonicClock;
use horolog_time::Clock;

use super::{EngineOpener, PreparedLoad};
use crate::clients::{CLIENTS_MAX, ClientsError, SourceNetwork};
use crate::compliant_clients::{CompliantClientGroup, CompliantClientOptions};
use crate::error::LoadError;
use crate::options::{LoadJob, LoadOptions};
use crate::plan::RunPlan;
use crate::ptp::{PtpKind, PtpLoadTransport, PtpPlan};
use crate::random;
use crate::target::Route;
use crate::token::TokenCodec;

/// Refuses invalid options of compliant clients.
pub(super) fn check(
    compliant: &CompliantClientOptions,
    options: &LoadOptions,
) -> Result<(), LoadError> {
    let reason = if compliant.clients == 0 || compliant.clients > CLIENTS_MAX {
        "their number must be from 1 to 1000000"
    } else if compliant.burst == 0 || compliant.interval.is_zero() {
        "each client must send at least once in its interval"
    } else if options.random_sources && compliant.network.is_none() {
        "random sources use the whole network; name another network for compliant clients"
    } else if options.echo {
        "a reflector has no rate limiting"
    } else if options.surge.is_some()
        || matches!(options.job, LoadJob::Profile(_) | LoadJob::Overload(_))
    {
        "they require trials of constant rate; omit the load profile"
    } else if let Some(reason) = options.ptp.and_then(|ptp| beyond_ptp(&ptp, compliant)) {
        reason
    } else {
        return Ok(());
    };
    Err(LoadError::WellBehaved(reason))
}

/// Returns the option that compliant clients of a PTP master do not support.
fn beyond_ptp(ptp: &PtpPlan, compliant: &CompliantClientOptions) -> Option<&'static str> {
    if ptp.transport == PtpLoadTransport::Ethernet {
        return Some(
            "over Ethernet all clients share one address; omit compliant clients, or use \
                     UDP",
        );
    }
    let is_burst = ptp.kind == PtpKind::Nsm && compliant.burst > 1;
    is_burst.then_some(
        "NetSync Monitor allows one outstanding request for each client; omit the \
                        burst",
    )
}

/// Returns the network of compliant clients, if there are any: a part of the load's network that
/// its own `clients` do not use.
pub(super) fn network(
    opener: &EngineOpener<'_>,
    (crowd, clients): (Option<SourceNetwork>, u32),
    route: &Route,
) -> Result<Option<SourceNetwork>, LoadError> {
    let (Some(compliant), Some(crowd)) = (&opener.options.well_behaved, crowd) else {
        return Ok(None);
    };
    let network = match compliant.network {
        Some(network) => {
            SourceNetwork::new(network, opener.facts.target.ip(), &opener.taken(route))?
        }
        None => crowd.last_part(compliant.clients, clients)?,
    };
    let (requested, room) = (compliant.clients, network.room());
    if requested > room {
        return Err(ClientsError::NoRoom { network: network.prefix(), room, requested }.into());
    }
    let all = if opener.options.random_sources { crowd.room() } else { clients };
    let (own, others) = (network.addresses(requested), crowd.addresses(all));
    let have_some = own.start() <= others.end() && others.start() <= own.end();
    // Replies to any address of their network count as theirs.
    if have_some || network.prefix().contains(crowd.address(0)) {
        let reason = "the network is in use by the load's own clients; name another one";
        return Err(LoadError::WellBehaved(reason));
    }
    Ok(Some(network))
}

/// Prepares compliant clients for a run, if requested.
pub(super) fn open(
    opener: &EngineOpener<'_>,
    mut prepared: PreparedLoad,
) -> Result<PreparedLoad, LoadError> {
    let Some(compliant) = &opener.options.well_behaved else { return Ok(prepared) };
    let crowd = &prepared.plan;
    let key = random::key_from_kernel()
        .map_err(|source| LoadError::System { action: "read random numbers", source })?;
    let plan = RunPlan {
        network: crowd.apart,
        apart: None,
        lanes: 1,
        // Their rate is so low that they need no core for themselves.
        cores: Vec::new(),
        clients: compliant.clients,
        random_sources: false,
        token: TokenCodec::new(key, MonotonicClock.now()),
        interleaved: false,
        sessions: None,
        // The offsets of the load's own requests are sufficient.
        offset: None,
        fairness: true,
        first_lane: crowd.lanes,
        guard: None,
        in_a_row: compliant.burst,
        ..crowd.clone()
    };
    prepared.compliant_clients = Some(CompliantClientGroup::open(compliant.clone(), plan)?);
    Ok(prepared)
}
