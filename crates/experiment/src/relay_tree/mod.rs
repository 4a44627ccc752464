//! Measurement of a tree of real relays in lab hosts: calibration of a single relay, the model's
//! prediction from it, and the delays of the whole tree.

use std::time::Duration;

use horolog_record::{RelayEngineKind, RelayTreeMeasurementMethod, RelayTreeResult};
use horolog_relay::tree::{EngineProcessingTimes, ProcessingTime, Tree, predicted_result};
use horolog_sys::clock::realtime_minus_monotonic;
use horolog_sys::dma_latency::DmaLatencyRequest;

use crate::{ExperimentError, ExperimentObserver};
use delay_samples::{DelaySamples, fit_line};
use probe_sender::ProbeTrain;
use testbed::RelayTreeTestbed;

mod delay_samples;
mod engine;
mod findings;
mod probe_sender;
mod testbed;

/// Number of rounds, each of which measures all levels, so that a change of the host's load affects
/// all of them alike.
const ROUNDS: usize = 10;
/// Uncounted packets at each level of a round, which warm up caches.
const WARM_UP: usize = 20;
/// Number of packets by which the order is detected in which an engine serves children.
const TRIAL_PACKETS: usize = 100;

/// Settings of the measurement.
#[derive(Clone, Debug)]
pub struct TreeMeasurementOptions {
    /// Engines to measure with: one, or two different ones to compare.
    pub engines: Vec<RelayEngineKind>,
    /// Packets to measure at each level of the tree, not counting the warm-up.
    pub packets: u32,
    /// Interval between packets.
    pub interval: Duration,
    /// Payload of each packet in bytes.
    pub payload: usize,
    /// Command line, for the result.
    pub command: Vec<String>,
}

/// Measures the tree with each engine, and returns predicted and measured delays.
pub fn run(
    tree: &Tree,
    options: &TreeMeasurementOptions,
    observer: &dyn ExperimentObserver,
) -> Result<RelayTreeResult, ExperimentError> {
    let train = ProbeTrain {
        warm_up: WARM_UP,
        packets: (options.packets as usize).div_ceil(ROUNDS),
        interval: options.interval,
        payload: options.payload,
    };
    // Idle states are held off: the exit latency of an idle core depends on other activity, which
    // differs between levels and is not due to a relay.
    let dma_latency_request = DmaLatencyRequest::hold(0);
    observer.measurement_started(String::new());
    let clock_offset = realtime_minus_monotonic();
    let mut testbed = RelayTreeTestbed::open(tree, observer)?;
    let mut single_node = RelayTreeTestbed::open(&single_relay_tree(tree)?, observer)?;
    let (mut engines, mut measured) = (Vec::new(), Vec::new());
    for &kind in &options.engines {
        let reversed = serves_last_first(&mut single_node, kind, &train)?;
        (single_node.reversed, testbed.reversed) = (reversed, reversed);
        let mut samples =
            [DelaySamples::new(single_node.tree()), DelaySamples::new(testbed.tree())];
        observer.activity(&format!("{}: starting relays", kind.name()));
        let running_relays = [single_node.start(kind)?, testbed.start(kind)?];
        for round in 1..=ROUNDS {
            observer.activity(&format!("{}: round {round} of {ROUNDS}", kind.name()));
            single_node.run_round(&running_relays[0], &train, &mut samples[0])?;
            testbed.run_round(&running_relays[1], &train, &mut samples[1])?;
        }
        let Some(calibration) = samples[0].calibration(reversed) else {
            if observer.flow().is_break() {
                break;
            }
            let reason = "no packet passed one relay between lab hosts";
            return Err(ExperimentError::host(reason));
        };
        let processing_time =
            ProcessingTime { first_ns: calibration.first_ns, next_ns: calibration.next_ns };
        engines.push(EngineProcessingTimes::uniform(kind.name(), tree, processing_time));
        measured.push(samples[1].measured(calibration));
    }
    observer.measurement_ended();
    if engines.is_empty() {
        return Err(ExperimentError::host("nothing was measured: the run was ended too early"));
    }
    // Links in the lab have no delay: forwarding is work of the sender, and so part of its
    // processing time.
    let mut result =
        predicted_result(&tree.clone().with_delay(0.0), &engines, options.command.clone());
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
    result.findings = findings::findings(
        &result,
        options,
        is_clock_stepped,
        dma_latency_request.err(),
        observer.flow().is_break(),
    );
    Ok(result)
}

/// Returns a tree of one relay that has as many children as the node with the most in `tree`.
fn single_relay_tree(tree: &Tree) -> Result<Tree, ExperimentError> {
    Tree::regular(tree.degree_max(), 1, 0.0).map_err(ExperimentError::options)
}

/// Returns true if the engine serves the last child of a table first, as measured on a single
/// relay.
fn serves_last_first(
    single_node: &mut RelayTreeTestbed<'_>,
    kind: RelayEngineKind,
    train: &ProbeTrain,
) -> Result<bool, ExperimentError> {
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
