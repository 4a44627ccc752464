//! Start of a relay with one engine, which must make all of its copies.

use horolog_record::RelayEngineKind;
use horolog_relay::{Relay, RoutingTableSpec, SocketEngineKind, XdpEngine};

use crate::ExperimentError;

/// Starts a relay in the calling thread's network namespace; an error if another engine makes the
/// copies.
pub(super) fn start_relay(
    engine: RelayEngineKind,
    spec: &RoutingTableSpec,
) -> Result<Relay, ExperimentError> {
    let (host, kernel) = match engine {
        RelayEngineKind::Send => (SocketEngineKind::Send, None),
        RelayEngineKind::Sendmmsg => (SocketEngineKind::Sendmmsg, None),
        RelayEngineKind::Xdp => {
            let kernel = XdpEngine::load(&[]).map_err(ExperimentError::host)?;
            (SocketEngineKind::Sendmmsg, Some(kernel))
        }
    };
    let relay = Relay::start(spec, host, kernel)?;
    verify_engine(&relay).map(|()| relay)
}

/// Returns an error if a relay with the XDP engine does not use it for its copies: the results
/// would be those of another engine.
pub(super) fn verify_engine(relay: &Relay) -> Result<(), ExperimentError> {
    let refused = relay.listing().groups.into_iter().find_map(|group| group.xdp_unavailable);
    refused.map_or(Ok(()), |why| {
        Err(ExperimentError::host(format!("in-kernel copies unavailable: {why}")))
    })
}
