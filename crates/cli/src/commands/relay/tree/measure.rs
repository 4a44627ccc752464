//! Measurement of a tree of real relays: the times of one node alone, the model's prediction from
//! them, and the times of the tree in lab hosts.

use horolog_record::{RelayTreeMethod, RelayTreeResult};
use horolog_relay::tree::{ProcessingTime, Tree, TreeEngine};
use horolog_sys::clock::realtime_minus_monotonic;
use horolog_sys::dma_latency::DmaLatencyRequest;

use super::delay_samples::{DelaySamples, line};
use super::engine::CopyEngine;
use super::input::TreeInput;
use super::probe_sender::ProbeTrain;
use super::testbed::TreeTestbed;
use super::{MeasureArgs, findings, outcome};
use crate::failure::CommandFailure;
use crate::output::{self, ProgressLine};

/// Rounds over all levels: changes on the host meanwhile affect all of them.
const ROUNDS: usize = 10;
/// Packets at each level of a round that warm caches up before the counted ones.
const WARM_UP: usize = 20;
/// Packets for detecting the order in which an engine serves children.
const TRIAL_PACKETS: usize = 100;

/// Measures the tree with each engine.
pub(super) fn run(
    input: &TreeInput,
    args: &MeasureArgs,
) -> Result<RelayTreeResult, CommandFailure> {
    let kinds = args.engines();
    if kinds.len() > 2 || (kinds.len() == 2 && kinds[0] == kinds[1]) {
        return Err(CommandFailure::usage("--engine takes one engine, or two different ones"));
    }
    let train = ProbeTrain {
        warm_up: WARM_UP,
        packets: (args.packets() as usize).div_ceil(ROUNDS),
        interval: args.interval(),
        payload: args.size().into(),
    };
    // The wake-up time of an idle core depends on other activity, which differs from level to level
    // and is not caused by a relay.
    let awake = DmaLatencyRequest::hold(0);
    let progress = ProgressLine::new();
    let clock = realtime_minus_monotonic();
    let mut stage = TreeTestbed::open(&input.tree)?;
    let mut one = TreeTestbed::open(&alone(&input.tree)?)?;
    let (mut engines, mut measured) = (Vec::new(), Vec::new());
    for kind in kinds {
        let reversed = serves_last_first(&mut one, kind, &train)?;
        (one.reversed, stage.reversed) = (reversed, reversed);
        let mut pools = [DelaySamples::new(one.tree()), DelaySamples::new(stage.tree())];
        progress.set_message(&format!("{}: starting relays", kind.name()));
        let casts = [one.start(kind)?, stage.start(kind)?];
        for round in 1..=ROUNDS {
            progress.set_message(&format!("{}: round {round} of {ROUNDS}", kind.name()));
            one.run_round(&casts[0], &train, &mut pools[0])?;
            stage.run_round(&casts[1], &train, &mut pools[1])?;
        }
        let Some(calibration) = pools[0].calibration(reversed) else {
            if output::flow().is_break() {
                break;
            }
            let reason = "no packet passed one relay between lab hosts";
            return Err(CommandFailure::environment(reason));
        };
        let times = ProcessingTime { first_ns: calibration.first_ns, next_ns: calibration.next_ns };
        engines.push(TreeEngine::uniform(kind.name(), &input.tree, times));
        measured.push(pools[1].measured(calibration));
    }
    progress.finish();
    if engines.is_empty() {
        return Err(CommandFailure::environment(
            "nothing was measured: the run was ended too early",
        ));
    }
    // The cost of a link is work of the sender, and part of the processing.
    let mut result = outcome::of(&input.tree.clone().with_delay(0.0), &engines);
    result.method = Some(RelayTreeMethod {
        packets: (train.packets * ROUNDS) as u64,
        repetitions: ROUNDS as u64,
        warm_up: train.warm_up as u64,
        interval_ns: train.interval.as_nanos() as u64,
        payload: train.payload,
        idle_states_held: awake.is_ok(),
    });
    for (engine, measured) in result.engines.iter_mut().zip(measured) {
        engine.measured = Some(measured);
    }
    add_measured_gain(&mut result);
    let stepped = !realtime_minus_monotonic().agrees(clock);
    result.findings = findings::findings(&result, args, stepped, awake.err());
    Ok(result)
}

/// One relay with as many children as any node of a tree has.
fn alone(tree: &Tree) -> Result<Tree, CommandFailure> {
    Tree::regular(tree.degree_max(), 1, 0.0).map_err(CommandFailure::usage)
}

/// Returns true if an engine serves the last child of a table first, measured on one node alone.
fn serves_last_first(
    one: &mut TreeTestbed,
    kind: CopyEngine,
    train: &ProbeTrain,
) -> Result<bool, CommandFailure> {
    one.reversed = false;
    let mut pool = DelaySamples::new(one.tree());
    let running = one.start(kind)?;
    one.run_round(&running, &ProbeTrain { packets: TRIAL_PACKETS, ..*train }, &mut pool)?;
    Ok(pool.calibration(false).is_some_and(|node| line(&node.copies_ns).1 < 0.0))
}

fn add_measured_gain(result: &mut RelayTreeResult) {
    let [before, after] = &result.engines[..] else { return };
    let (Some(before), Some(after)) = (&before.measured, &after.measured) else { return };
    let less = |a: Option<f64>, b: Option<f64>| Some(a? - b?);
    let tree = less(before.tree_ns, after.tree_ns);
    let mean = less(before.mean_ns, after.mean_ns);
    if let Some(gain) = &mut result.gain {
        (gain.measured_tree_ns, gain.measured_mean_ns) = (tree, mean);
    }
}
