//! Measurement of a tree of real relays in lab hosts: calibration of a single relay, the model's
//! prediction from it, and the delays of the whole tree.

use horolog_record::{RelayTreeMeasurementMethod, RelayTreeResult};
use horolog_relay::tree::{EngineProcessingTimes, ProcessingTime, Tree};
use horolog_sys::clock::realtime_minus_monotonic;
use horolog_sys::dma_latency::DmaLatencyRequest;

use super::delay_samples::{DelaySamples, fit_line};
use super::engine::CopyEngine;
use super::input::TreeInput;
use super::probe_sender::ProbeTrain;
use super::testbed::RelayTreeTestbed;
use super::{TreeMeasurementArgs, findings, outcome};
use crate::failure::CommandFailure;
use crate::output::{self, ProgressLine};

/// Number of rounds, each of which measures all levels, so that a change of the host's load affects
/// all of them alike.
const ROUNDS: usize = 10;
/// Uncounted packets at each level of a round, which warm up caches.
const WARM_UP: usize = 20;
/// Number of packets by which the order is detected in which an engine serves children.
const TRIAL_PACKETS: usize = 100;

/// Measures the tree with each engine, and returns predicted and measured delays.
pub(super) fn run(
    input: &TreeInput,
    args: &TreeMeasurementArgs,
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
    // Idle states are held off: the exit latency of an idle core depends on other activity, which
    // differs between levels and is not due to a relay.
    let dma_latency_request = DmaLatencyRequest::hold(0);
    let progress = ProgressLine::new();
    let clock_offset = realtime_minus_monotonic();
    let mut testbed = RelayTreeTestbed::open(&input.tree)?;
    let mut single_node = RelayTreeTestbed::open(&single_relay_tree(&input.tree)?)?;
    let (mut engines, mut measured) = (Vec::new(), Vec::new());
    for kind in kinds {
        let reversed = serves_last_first(&mut single_node, kind, &train)?;
        (single_node.reversed, testbed.reversed) = (reversed, reversed);
        let mut samples =
            [DelaySamples::new(single_node.tree()), DelaySamples::new(testbed.tree())];
        progress.set_message(&format!("{}: starting relays", kind.name()));
        let running_relays = [single_node.start(kind)?, testbed.start(kind)?];
        for round in 1..=ROUNDS {
            progress.set_message(&format!("{}: round {round} of {ROUNDS}", kind.name()));
            single_node.run_round(&running_relays[0], &train, &mut samples[0])?;
            testbed.run_round(&running_relays[1], &train, &mut samples[1])?;
        }
        let Some(calibration) = samples[0].calibration(reversed) else {
            if output::check_stop_request().is_break() {
                break;
            }
            let reason = "no packet passed one relay between lab hosts";
            return Err(CommandFailure::environment(reason));
        };
        let processing_time =
            ProcessingTime { first_ns: calibration.first_ns, next_ns: calibration.next_ns };
        engines.push(EngineProcessingTimes::uniform(kind.name(), &input.tree, processing_time));
        measured.push(samples[1].measured(calibration));
    }
    progress.finish();
    if engines.is_empty() {
        return Err(CommandFailure::environment(
            "nothing was measured: the run was ended too early",
        ));
    }
    // Links in the lab have no delay: forwarding is work of the sender, and so part of its
    // processing time.
    let mut result = outcome::predicted_result(&input.tree.clone().with_delay(0.0), &engines);
    result.method = Some(RelayTreeMeasurementMethod {
        packets: (train.packets * ROUNDS) as u64,
        repetitions: ROUNDS as u64,
        warm_up: train.warm_up as u64,
        interval_ns: train.interval.as_nanos() as u64,
        payload: train.payload,
        idle_states_held: dma_latency_request.is_ok(),
    });
    for (engine, measured) in result.engines.iter_mut().zip(measured) {
        engine.measured = Some(measured);
    }
    add_measured_gain(&mut result);
    let is_clock_stepped = !realtime_minus_monotonic().agrees(clock_offset);
    result.findings =
        findings::findings(&result, args, is_clock_stepped, dma_latency_request.err());
    Ok(result)
}

/// Returns a tree of one relay that has as many children as the node with the most in `tree`.
fn single_relay_tree(tree: &Tree) -> Result<Tree, CommandFailure> {
    Tree::regular(tree.degree_max(), 1, 0.0).map_err(CommandFailure::usage)
}

/// Returns true if the engine serves the last child of a table first, as measured on a single
/// relay.
fn serves_last_first(
    single_node: &mut RelayTreeTestbed,
    kind: CopyEngine,
    train: &ProbeTrain,
) -> Result<bool, CommandFailure> {
    single_node.reversed = false;
    let mut samples = DelaySamples::new(single_node.tree());
    let running = single_node.start(kind)?;
    single_node.run_round(
        &running,
        &ProbeTrain { packets: TRIAL_PACKETS, ..*train },
        &mut samples,
    )?;
    Ok(samples.calibration(false).is_some_and(|node| fit_line(&node.copies_ns).1 < 0.0))
}

fn add_measured_gain(result: &mut RelayTreeResult) {
    let [before, after] = &result.engines[..] else { return };
    let (Some(before), Some(after)) = (&before.measured, &after.measured) else { return };
    let difference = |a: Option<f64>, b: Option<f64>| Some(a? - b?);
    let tree = difference(before.tree_ns, after.tree_ns);
    let mean = difference(before.mean_ns, after.mean_ns);
    if let Some(gain) = &mut result.gain {
        (gain.measured_tree_ns, gain.measured_mean_ns) = (tree, mean);
    }
}
