//! A tree of real relays: what one node takes alone, what the model makes of that, and what the
//! tree takes in private hosts.

use horolog_record::{RelayTreeMethod, RelayTreeResult};
use horolog_relay::tree::{Engine, Processing, Tree};
use horolog_sys::clock::realtime_minus_monotonic;
use horolog_sys::dma_latency::HeldLatency;

use super::courier::Course;
use super::engine::Maker;
use super::given::Given;
use super::pool::{Pool, line};
use super::stage::Stage;
use super::{MeasureArgs, doubts, outcome};
use crate::failure::Failure;
use crate::output::{self, Progress};

/// Rounds over all levels: what changes on the machine meanwhile changes for all of them.
const ROUNDS: usize = 10;
/// Packets at each level of a round that warm caches up before those that count.
const WARM_UP: usize = 20;
/// Packets by which it is seen in which order an engine serves children.
const TRIAL_PACKETS: usize = 100;

/// Measures the tree with each engine.
pub(super) fn run(given: &Given, args: &MeasureArgs) -> Result<RelayTreeResult, Failure> {
    let kinds = args.engines();
    if kinds.len() > 2 || (kinds.len() == 2 && kinds[0] == kinds[1]) {
        return Err(Failure::usage("--engine takes one engine, or two that differ"));
    }
    let course = Course {
        warm_up: WARM_UP,
        packets: (args.packets() as usize).div_ceil(ROUNDS),
        interval: args.interval(),
        payload: args.size().into(),
    };
    // How long an idle core takes to wake depends on what else goes on, which differs from level to
    // level and is none of a relay's doing.
    let awake = HeldLatency::hold(0);
    let progress = Progress::new();
    let clock = realtime_minus_monotonic();
    let mut stage = Stage::open(&given.tree)?;
    let mut one = Stage::open(&alone(&given.tree)?)?;
    let (mut engines, mut measured) = (Vec::new(), Vec::new());
    for kind in kinds {
        let reversed = serves_last_first(&mut one, kind, &course)?;
        (one.reversed, stage.reversed) = (reversed, reversed);
        let mut pools = [Pool::new(one.tree()), Pool::new(stage.tree())];
        progress.doing(&format!("{}: relays start", kind.name()));
        let casts = [one.start(kind)?, stage.start(kind)?];
        for round in 1..=ROUNDS {
            progress.doing(&format!("{}: round {round} of {ROUNDS}", kind.name()));
            one.round(&casts[0], &course, &mut pools[0])?;
            stage.round(&casts[1], &course, &mut pools[1])?;
        }
        let Some(calibration) = pools[0].calibration(reversed) else {
            if output::flow().is_break() {
                break;
            }
            let reason = "no packet came through one relay in private hosts";
            return Err(Failure::environment(reason));
        };
        let times = Processing { first_ns: calibration.first_ns, next_ns: calibration.next_ns };
        engines.push(Engine::uniform(kind.name(), &given.tree, times));
        measured.push(pools[1].measured(calibration));
    }
    progress.finish();
    if engines.is_empty() {
        return Err(Failure::environment("nothing was measured: the run was ended too early"));
    }
    // What a link takes is work of whoever sends, and in the processing.
    let mut result = outcome::of(&given.tree.clone().with_delay(0.0), &engines);
    result.method = Some(RelayTreeMethod {
        packets: (course.packets * ROUNDS) as u64,
        rounds: ROUNDS as u64,
        warm_up: course.warm_up as u64,
        interval_ns: course.interval.as_nanos() as u64,
        payload: course.payload,
        awake: awake.is_ok(),
    });
    for (engine, measured) in result.engines.iter_mut().zip(measured) {
        engine.measured = Some(measured);
    }
    add_measured_gain(&mut result);
    let stepped = !realtime_minus_monotonic().agrees(clock);
    result.findings = doubts::findings(&result, args, stepped, awake.err());
    Ok(result)
}

/// One relay with as many children as any node of a tree has.
fn alone(tree: &Tree) -> Result<Tree, Failure> {
    Tree::regular(tree.degree_max(), 1, 0.0).map_err(Failure::usage)
}

/// Whether an engine serves the last child of a table first, as one node alone shows.
fn serves_last_first(one: &mut Stage, kind: Maker, course: &Course) -> Result<bool, Failure> {
    one.reversed = false;
    let mut pool = Pool::new(one.tree());
    let cast = one.start(kind)?;
    one.round(&cast, &Course { packets: TRIAL_PACKETS, ..*course }, &mut pool)?;
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
