//! Turns that wake the peer and wait to be woken, timed one by one.

use std::io;
use std::time::Duration;

use horolog_record::{
    Distribution, HandoverMechanism, PingPongCost, PingPongRepetition, SwitchPeer, SwitchPlacement,
};
use horolog_stats::Recorder;
use horolog_sys::clock::MonotonicClock;
use horolog_sys::ping_pong::{HandoffMechanism, PeerPlacement, PingPongPeer, SyscallBaseline};
use horolog_sys::thread_usage::ContextSwitches;
use horolog_time::Clock;

use super::arithmetic::{self, median};
use super::steps::rest;
use super::{SwitchSetup, kind};

/// Turns of the warm-up, not counted.
const WARM_UP: u64 = 50;
/// Calls that measure the cost of a call alone.
const ALONE_CALLS: u32 = 2_000;
/// Running time after which a real-time thread rests, in ns.
const STRETCH_NS: u64 = 100_000_000;

/// Measures all repetitions of one handoff with one peer and placement.
pub(super) fn measure(
    setting: &SwitchSetup<'_>,
    way: HandoverMechanism,
    peer: SwitchPeer,
    (placement, core): (SwitchPlacement, usize),
) -> PingPongCost {
    let mut turns = Recorder::new();
    let mut repetitions = Vec::new();
    let mut error = None;
    for _ in 0..setting.repetitions {
        if setting.is_over() {
            break;
        }
        (setting.step)();
        let peer_placement = PeerPlacement { core, priority: setting.priority };
        match repetition(setting, (way, peer), peer_placement, &mut turns) {
            Ok(repetition) => repetitions.push(repetition),
            Err(why) => {
                error = Some(why.to_string());
                break;
            }
        }
    }
    PingPongCost {
        mechanism: way,
        peer,
        placement,
        turn_mean_ns: median(repetitions.iter().map(|one: &PingPongRepetition| Some(one.turn_ns))),
        per_switch_ns: median(repetitions.iter().map(|one| one.per_switch_ns)),
        turn_ns: Distribution::from_recorder(&turns),
        repetitions,
        error,
    }
}

fn repetition(
    setting: &SwitchSetup<'_>,
    (way, peer): (HandoverMechanism, SwitchPeer),
    peer_placement: PeerPlacement,
    turns: &mut Recorder,
) -> io::Result<PingPongRepetition> {
    let (way, kind) = (named(way), kind(peer));
    let alone_ns = alone(&SyscallBaseline::open(way, kind)?)?;
    let child = PingPongPeer::start(kind, way, peer_placement)?;
    for _ in 0..WARM_UP {
        child.turn()?;
    }
    let before = ContextSwitches::now()?;
    let (mut sum_ns, mut stretch_ns, mut rests) = (0, 0, 0);
    let mut last = MonotonicClock.now();
    for _ in 0..setting.turns {
        child.turn()?;
        let now = MonotonicClock.now();
        let turn_ns = (now - last).as_ns().unsigned_abs();
        turns.record(turn_ns);
        (sum_ns, stretch_ns, last) = (sum_ns + turn_ns, stretch_ns + turn_ns, now);
        if stretch_ns > STRETCH_NS {
            rest(Duration::from_nanos(stretch_ns));
            (stretch_ns, rests, last) = (0, rests + 1, MonotonicClock.now());
        }
    }
    let switches = ContextSwitches::now()?.since(before).all().saturating_sub(rests);
    drop(child);
    rest(Duration::from_nanos(stretch_ns));
    let cost = (alone_ns, setting.clock_ns);
    Ok(arithmetic::exchange(setting.turns, sum_ns, cost, switches))
}

/// Returns the cost of one side's calls, in ns.
fn alone(alone: &SyscallBaseline) -> io::Result<f64> {
    let begun = MonotonicClock.now();
    for _ in 0..ALONE_CALLS {
        alone.call()?;
    }
    Ok((MonotonicClock.now() - begun).as_ns() as f64 / f64::from(ALONE_CALLS))
}

const fn named(way: HandoverMechanism) -> HandoffMechanism {
    match way {
        HandoverMechanism::Pipe => HandoffMechanism::Pipe,
        HandoverMechanism::Futex => HandoffMechanism::Futex,
        HandoverMechanism::Eventfd => HandoffMechanism::EventFd,
    }
}
