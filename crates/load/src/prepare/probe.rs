//! Choice of an engine by test requests before the first trial. An engine that receives no replies
//! is skipped, or refused if the user named it. If no engine receives replies, the test decides
//! nothing.

use std::ops::ControlFlow;
use std::time::Duration;

use horolog_record::LoadEngineKind as Kind;
use horolog_xdp::reported_redirect_support;

use super::PreparedLoad;
use crate::clients::SimulatedClientsError;
use crate::engine::{self, EngineError};
use crate::error::{self, LoadError};
use crate::loss_attribution::MissingReplyCounts;
use crate::options::LoadOptions;
use crate::plan::TrialPlan;
use crate::target::{FirstLink, Route, TargetError, return_route_command};

/// Engines in order of preference.
const PREFERENCE: [Kind; 3] = [Kind::Xdp, Kind::Packet, Kind::Udp];

/// Trial of ten requests that tests whether an engine receives replies.
const PROBE: TrialPlan = TrialPlan::constant(500.0, Duration::from_millis(20), 0);

type OpenEngineFn<'a> = &'a mut dyn FnMut(Kind) -> Result<PreparedLoad, LoadError>;

/// Opens the engine that the user named. The XDP engine is tested, unless its interface reports
/// support for transmitting redirected frames: it is refused if its requests remain unanswered and
/// those of the packet engine do not.
pub(super) fn open_named(kind: Kind, open: OpenEngineFn<'_>) -> Result<PreparedLoad, LoadError> {
    let ready = open(kind)?;
    if kind != Kind::Xdp || has_redirect_support(&ready) {
        return Ok(ready);
    }
    let (answered, ready) = probe(ready)?;
    if answered {
        return Ok(ready);
    }
    // The XDP program would take the replies to the other engine.
    drop(ready);
    match open(Kind::Packet).and_then(probe) {
        Ok((true, other)) => Err(xdp_frames_lost(&other).into()),
        _ => open(kind),
    }
}

/// Opens the first engine of [`PREFERENCE`] that can be opened and receives replies. If none does,
/// opens the udp engine, which needs no return route; if simulated clients are required, the first
/// engine that could be opened; if only compliant clients exclude the udp engine, returns an error.
pub(super) fn open_best(
    options: &LoadOptions,
    open: OpenEngineFn<'_>,
) -> Result<PreparedLoad, LoadError> {
    let over_ethernet = options.requests.kinds().any(|kind| kind.behaviour().is_over_ethernet());
    let simulated = options.source_network.is_some() || options.random_sources || over_ethernet;
    let (mut fallbacks, mut unanswered) = (Vec::new(), Vec::new());
    for kind in PREFERENCE {
        if kind == Kind::Udp && (simulated || options.compliant_clients.is_some()) {
            break;
        }
        // The last engine is not tested, since no other is left.
        let is_last =
            kind == Kind::Udp || (simulated && kind == Kind::Packet && unanswered.is_empty());
        // Simulated clients need a return route. If the interface reports support for redirected
        // frames, missing replies would show only that this route is missing, so the engine is not
        // tested.
        let is_known = |ready: &PreparedLoad| is_last || simulated && has_redirect_support(ready);
        let opened = open(kind)
            .and_then(|ready| if is_known(&ready) { Ok((true, ready)) } else { probe(ready) });
        match opened {
            Ok((true, ready)) => {
                if kind == Kind::Packet && unanswered.contains(&Kind::Xdp) {
                    fallbacks = vec![(Kind::Xdp, xdp_frames_lost(&ready).to_string())];
                }
                return Ok(PreparedLoad { fallbacks, ..ready });
            }
            Ok((false, ready)) => {
                fallbacks.push((kind, no_return_route(&ready).to_string()));
                unanswered.push(kind);
            }
            Err(error) if may_fall_back(&error, kind, over_ethernet) => {
                fallbacks.push((kind, error.to_string()));
            }
            Err(_) if simulated && !unanswered.is_empty() => {}
            Err(error) => return Err(error),
        }
    }
    match unanswered.first() {
        Some(&first) if simulated => open(first),
        _ => Err(no_engine_error(&fallbacks)),
    }
}

/// Returns true if this is the XDP engine and its interface reports support for redirected frames.
fn has_redirect_support(ready: &PreparedLoad) -> bool {
    let sends = |link: &FirstLink| reported_redirect_support(link.index) == Some(true);
    ready.engine.kind() == Kind::Xdp && link(ready).is_some_and(sends)
}

/// Returns true if the next engine may work after this one's error.
fn may_fall_back(error: &LoadError, kind: Kind, over_ethernet: bool) -> bool {
    match error {
        LoadError::Engine(_) => kind == Kind::Xdp || (kind == Kind::Packet && !over_ethernet),
        LoadError::Target(TargetError::NoEthernet(_))
        | LoadError::Clients(SimulatedClientsError::NoDefault) => !over_ethernet,
        _ => false,
    }
}

fn no_engine_error(fallbacks: &[(Kind, String)]) -> LoadError {
    let reasons = error::group_by_reason(fallbacks).into_iter();
    let messages: Vec<_> = reasons.map(|(engines, why)| format!("{engines}: {why}")).collect();
    LoadError::NoSimulation(messages.join("; "))
}

/// Sends test requests; returns true with the engine if any datagram arrives from the target.
fn probe(mut ready: PreparedLoad) -> Result<(bool, PreparedLoad), LoadError> {
    let (clients, parts) = (ready.clients(), ready.parts.clone());
    let plan = TrialPlan { clients, parts, ..PROBE };
    let counts = ready.engine.run_trial(&plan, &mut || ControlFlow::Continue(()))?;
    Ok((MissingReplyCounts::from_counts(&counts).arrived > 0, ready))
}

/// Returns the error that simulated clients receive no replies, most likely because the return
/// route is missing.
fn no_return_route(ready: &PreparedLoad) -> EngineError {
    let network = ready.network.map_or_else(String::new, |net| net.prefix().to_string());
    let command = link(ready).map(|link| return_route_command(&network, link.source));
    engine::unavailable_error(
        ready.engine.kind(),
        format!("no reply to simulated clients from {network} was received"),
        &format!(
            "if other clients receive replies, add the route '{}' on the server",
            command.unwrap_or_default()
        ),
    )
}

/// Returns the error that only the engine in `other` receives replies, not the XDP engine.
fn xdp_frames_lost(other: &PreparedLoad) -> EngineError {
    let name = link(other).map_or("", |link| &link.interface);
    let other = other.engine.kind().name();
    engine::unavailable_error(
        Kind::Xdp,
        format!("requests sent by XDP on {name} received no reply, those of engine '{other}' did"),
        &format!(
            "the driver or the link behind it loses XDP frames (a veth: enable GRO at the peer end \
             or attach an XDP program there); or use --engine {other}"
        ),
    )
}

fn link(ready: &PreparedLoad) -> Option<&FirstLink> {
    match ready.route() {
        Route::Link(link) => Some(link),
        Route::ThisHost => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{IntervalSink, LoadEngine};
    use crate::options::LoadProcedure;
    use crate::prepare::EngineOpener;
    use crate::ramp::Ramp;
    use crate::request_tracker::TrialCounts;

    /// An engine whose requests are answered or not.
    struct Fake(Kind, bool);

    impl LoadEngine for Fake {
        fn kind(&self) -> Kind {
            self.0
        }

        fn run(&mut self, _: &TrialPlan, all: &mut dyn IntervalSink) -> Result<(), EngineError> {
            // A reply that is wrong in all else has come as well.
            let mut invalid = TrialCounts::default().invalid;
            invalid[0] = u64::from(self.1);
            all.deliver_interval(TrialCounts { sent: 10, invalid, ..TrialCounts::default() });
            Ok(())
        }
    }

    fn options(simulated: bool) -> LoadOptions {
        let duration = Duration::from_secs(1);
        let ramp = Ramp { min: 1000.0, max: 1000.0, multiplier: 1.5, duration };
        let usual = LoadOptions::new("127.0.0.1:50123".parse().unwrap(), LoadProcedure::Ramp(ramp));
        let source_network = simulated.then(|| "10.64.0.0/10".parse().unwrap());
        LoadOptions { source_network, ..usual }
    }

    /// Opens the engine that was named, or the best, where those that simulate clients are
    /// answered, unanswered, or cannot be opened.
    fn chosen(
        named: Option<Kind>,
        simulated: bool,
        [xdp, packet]: [Option<bool>; 2],
    ) -> Result<PreparedLoad, LoadError> {
        let options = options(false);
        let mut opener = EngineOpener::new(&options).unwrap();
        let mut open = |kind| {
            let answered = match kind {
                Kind::Xdp => xdp,
                Kind::Packet => packet,
                Kind::Udp => Some(true),
            };
            let refused =
                || engine::unavailable_error(kind, "it is not here".to_owned(), "do without");
            let engine = Box::new(Fake(kind, answered.ok_or_else(refused)?));
            let (plans, network) = opener.plans(Kind::Udp)?;
            Ok(PreparedLoad {
                plans,
                parts: Vec::new(),
                network,
                engine,
                compliant_clients: None,
                fallbacks: Vec::new(),
            })
        };
        match named {
            Some(kind) => open_named(kind, &mut open),
            None => open_best(&self::options(simulated), &mut open),
        }
    }

    #[test]
    fn an_engine_is_one_that_is_answered() {
        use Kind::{Packet, Udp, Xdp};
        let (yes, no) = (Some(true), Some(false));
        for (simulated, answers, kind, fallbacks) in [
            (true, [yes, yes], Xdp, vec![]),
            (true, [no, yes], Packet, vec![Xdp]),
            (true, [None, no], Packet, vec![Xdp]),
            // No engine is answered, so nothing is known against the best one.
            (true, [no, no], Xdp, vec![]),
            (true, [no, None], Xdp, vec![]),
            (false, [no, yes], Packet, vec![Xdp]),
            (false, [no, no], Udp, vec![Xdp, Packet]),
            (false, [None, None], Udp, vec![Xdp, Packet]),
        ] {
            let prepared = chosen(None, simulated, answers).unwrap();
            assert_eq!(prepared.engine.kind(), kind, "{simulated}, {answers:?}");
            let left: Vec<_> = prepared.fallbacks.iter().map(|(kind, _)| *kind).collect();
            assert_eq!(left, fallbacks, "{simulated}, {answers:?}");
        }
        let why = &chosen(None, true, [no, yes]).unwrap().fallbacks[0].1;
        assert!(why.contains("loses XDP frames") && why.contains("--engine packet"), "{why}");
        assert!(matches!(chosen(None, true, [None, None]), Err(LoadError::NoSimulation(_))));
    }

    #[test]
    fn a_named_engine_is_refused_where_another_is_answered() {
        let (yes, no) = (Some(true), Some(false));
        for answers in [[yes, yes], [yes, None], [no, no], [no, None]] {
            let prepared = chosen(Some(Kind::Xdp), true, answers).unwrap();
            assert_eq!(prepared.engine.kind(), Kind::Xdp, "{answers:?}");
        }
        let error = chosen(Some(Kind::Xdp), true, [no, yes]).err().unwrap();
        assert!(error.to_string().contains("loses XDP frames") && !error.is_usage(), "{error}");
        let prepared = chosen(Some(Kind::Packet), true, [yes, no]).unwrap();
        assert_eq!(prepared.engine.kind(), Kind::Packet);
    }
}
