//! Eight-step method of Hao, Xue and Qin 2010 (section 4.1.1), with its step numbers.

use std::io;
use std::thread;
use std::time::Duration;

use horolog_record::{ContextSwitchPeerKind, YieldSwitchCost, YieldSwitchRepetition};
use horolog_sys::clock::ClockMonotonic;
use horolog_sys::ping_pong::{HandoffMechanism, PeerPlacement, PeerlessHandoff, PingPongPeer};
use horolog_sys::thread_usage::ContextSwitches;
use horolog_time::Clock;

use super::arithmetic::{self, median};
use super::{ContextSwitchSetup, peer_kind};

/// Measures the repetitions with one peer kind, until the run is to end or one fails; its error is
/// stored in the record.
pub(super) fn measure_steps(
    setting: &ContextSwitchSetup<'_>,
    peer: ContextSwitchPeerKind,
) -> YieldSwitchCost {
    let mut steps = YieldSwitchCost {
        peer,
        repetitions: Vec::new(),
        per_switch_ns: None,
        paper_ns: None,
        error: None,
    };
    for _ in 0..setting.repetitions {
        if setting.is_over() {
            break;
        }
        (setting.report_repetition)();
        match run_repetition(setting, peer) {
            Ok(repetition) => steps.repetitions.push(repetition),
            Err(error) => {
                steps.error = Some(error.to_string());
                break;
            }
        }
    }
    steps.per_switch_ns = median(steps.repetitions.iter().map(|one| one.per_switch_ns));
    steps.paper_ns = median(steps.repetitions.iter().map(|one| one.paper_ns));
    steps
}

/// Runs one repetition. Step 1, a parent pinned to its core, is done by the caller.
fn run_repetition(
    setting: &ContextSwitchSetup<'_>,
    peer: ContextSwitchPeerKind,
) -> io::Result<YieldSwitchRepetition> {
    let kind = peer_kind(peer);
    let alone = PeerlessHandoff::open(HandoffMechanism::Yield, kind)?;
    let t1 = ClockMonotonic.now(); // step 2
    for _ in 0..setting.turns {
        alone.call()?; // step 3
    }
    let t2 = ClockMonotonic.now(); // step 4
    let peer_placement = PeerPlacement { core: setting.core, priority: setting.priority };
    let child = PingPongPeer::start(kind, HandoffMechanism::Yield, peer_placement)?; // step 5
    let before = ContextSwitches::now()?;
    let t3 = ClockMonotonic.now(); // step 6
    for _ in 0..setting.turns {
        child.turn()?; // step 7
    }
    let t4 = ClockMonotonic.now(); // step 8
    let switches = ContextSwitches::now()?.since(before).all();
    drop(child);
    let span_ns = |span: horolog_time::Span| span.as_ns().unsigned_abs();
    let turns_ns = span_ns(t4 - t3);
    sleep_as_long_as(Duration::from_nanos(turns_ns));
    Ok(arithmetic::yield_switch_repetition(setting.turns, span_ns(t2 - t1), turns_ns, switches))
}

/// Sleeps for `ran`, 1 ms to 1 s, so that real-time threads leave half of the core to others.
pub(super) fn sleep_as_long_as(ran: Duration) {
    thread::sleep(ran.clamp(Duration::from_millis(1), Duration::from_secs(1)));
}
