//! Ping-pong method: turns that wake the peer and block until it wakes this thread, timed one by
//! one.

use std::io;
use std::time::Duration;

use horolog_record::{
    ContextSwitchPeerKind, ContextSwitchPlacement, Distribution, HandoverMechanism, PingPongCost,
    PingPongRepetition,
};
use horolog_stats::Histogram;
use horolog_sys::clock::ClockMonotonic;
use horolog_sys::ping_pong::{HandoffMechanism, PeerPlacement, PeerlessHandoff, PingPongPeer};
use horolog_sys::thread_usage::ContextSwitches;
use horolog_time::Clock;

use super::arithmetic::{self, median};
use super::steps::sleep_as_long_as;
use super::{ContextSwitchSetup, peer_kind};

/// Turns of the warm-up, not counted.
const WARM_UP_TURNS: u64 = 50;
/// Number of calls for the baseline cost without a peer.
const BASELINE_CALLS: u32 = 2_000;
/// Running time in ns after which the measuring thread pauses, so that a real-time one is not
/// throttled.
const RUN_TIME_MAX_NS: u64 = 100_000_000;

/// Measures the repetitions with one handoff mechanism, peer kind and placement, until the run is
/// to end or one fails; its error is stored in the record.
pub(super) fn measure(
    setting: &ContextSwitchSetup<'_>,
    mechanism: HandoverMechanism,
    peer: ContextSwitchPeerKind,
    (placement, core): (ContextSwitchPlacement, usize),
) -> PingPongCost {
    let mut turns = Histogram::new();
    let mut repetitions = Vec::new();
    let mut error = None;
    for _ in 0..setting.repetitions {
        if setting.is_over() {
            break;
        }
        (setting.report_repetition)();
        let peer_placement = PeerPlacement { core, priority: setting.priority };
        match run_repetition(setting, (mechanism, peer), peer_placement, &mut turns) {
            Ok(repetition) => repetitions.push(repetition),
            Err(why) => {
                error = Some(why.to_string());
                break;
            }
        }
    }
    PingPongCost {
        mechanism,
        peer,
        placement,
        turn_mean_ns: median(repetitions.iter().map(|one: &PingPongRepetition| Some(one.turn_ns))),
        per_switch_ns: median(repetitions.iter().map(|one| one.per_switch_ns)),
        turn_ns: Distribution::from_histogram(&turns),
        repetitions,
        error,
    }
}

fn run_repetition(
    setting: &ContextSwitchSetup<'_>,
    (mechanism, peer): (HandoverMechanism, ContextSwitchPeerKind),
    peer_placement: PeerPlacement,
    turns: &mut Histogram,
) -> io::Result<PingPongRepetition> {
    let (mechanism, kind) = (handoff_mechanism(mechanism), peer_kind(peer));
    let baseline_ns = baseline_call_ns(&PeerlessHandoff::open(mechanism, kind)?)?;
    let child = PingPongPeer::start(kind, mechanism, peer_placement)?;
    for _ in 0..WARM_UP_TURNS {
        child.turn()?;
    }
    let before = ContextSwitches::now()?;
    let (mut sum_ns, mut run_time_ns, mut pauses) = (0, 0, 0);
    let mut last = ClockMonotonic.now();
    for _ in 0..setting.turns {
        child.turn()?;
        let now = ClockMonotonic.now();
        let turn_ns = (now - last).as_ns().unsigned_abs();
        turns.record(turn_ns);
        (sum_ns, run_time_ns, last) = (sum_ns + turn_ns, run_time_ns + turn_ns, now);
        if run_time_ns > RUN_TIME_MAX_NS {
            sleep_as_long_as(Duration::from_nanos(run_time_ns));
            (run_time_ns, pauses, last) = (0, pauses + 1, ClockMonotonic.now());
        }
    }
    let switches = ContextSwitches::now()?.since(before).all().saturating_sub(pauses);
    drop(child);
    sleep_as_long_as(Duration::from_nanos(run_time_ns));
    let cost = (baseline_ns, setting.clock_ns);
    Ok(arithmetic::ping_pong_repetition(setting.turns, sum_ns, cost, switches))
}

/// Returns the cost of one side's system calls without a switch, in ns.
fn baseline_call_ns(alone: &PeerlessHandoff) -> io::Result<f64> {
    let begun = ClockMonotonic.now();
    for _ in 0..BASELINE_CALLS {
        alone.call()?;
    }
    Ok((ClockMonotonic.now() - begun).as_ns() as f64 / f64::from(BASELINE_CALLS))
}

const fn handoff_mechanism(mechanism: HandoverMechanism) -> HandoffMechanism {
    match mechanism {
        HandoverMechanism::Pipe => HandoffMechanism::Pipe,
        HandoverMechanism::Futex => HandoffMechanism::Futex,
        HandoverMechanism::Eventfd => HandoffMechanism::EventFd,
    }
}
