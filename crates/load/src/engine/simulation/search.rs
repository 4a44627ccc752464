//! Search through the engine's own loop and counters, against a server with a known limit, on a
//! network that reorders and duplicates packets, and with an occasional stall of the server.

use std::cell::Cell;

use horolog_stats::search::StopReason;
use horolog_stats::{GoalLossRatio, Search, SearchConfig, SearchOutcome, SearchStep, TrialOutcome};

use super::profiles::run;
use super::*;
use crate::load_profile::LoadPhase;
use crate::trial::achieved_rate;

/// Capacity of the simulated server, in requests per second.
const LIMIT: f64 = 5_000.0;
/// Capacity of the server's token bucket, in requests.
const BURST: f64 = 5.0;
/// Trial durations are multiples of this.
const STEP: Duration = Duration::from_millis(50);
/// Requests between two stalls of the server, in each of which [`STALL`] requests are not answered.
/// One in ten of the long trials contains a stall.
const BETWEEN_STALLS: u64 = 5_000;
const STALL: u64 = 10;

thread_local! {
    /// Time of the last update of the server's token bucket, as the 64 bits of an NTP timestamp,
    /// and the tokens in it.
    static BUCKET: Cell<(u64, f64)> = const { Cell::new((0, BURST)) };
}

/// Server that answers at most [`LIMIT`] requests per second, by a token bucket.
fn rate_limited(_: u64, reply: Header) -> Vec<(Span, Header)> {
    let (filled, tokens) = BUCKET.get();
    let now = reply.receive.to_bits();
    let seconds = now.wrapping_sub(filled) as f64 / 2_f64.powi(32);
    let tokens = LIMIT.mul_add(seconds, tokens).min(BURST);
    let answered = tokens >= 1.0;
    BUCKET.set((now, if answered { tokens - 1.0 } else { tokens }));
    if answered { vec![(Span::ZERO, reply)] } else { vec![] }
}

fn stalling(n: u64, reply: Header) -> Vec<(Span, Header)> {
    let stalled = n % BETWEEN_STALLS < STALL && n > STALL;
    if stalled { vec![] } else { rate_limited(n, reply) }
}

fn search(faults: FaultInjectionPlan, behaviour: ServerBehaviour) -> SearchOutcome {
    let mut scene = SimulatedLane::with_frames(faults, behaviour);
    let mut config = SearchConfig::new(GoalLossRatio::NDR, 250.0, 25e3);
    config.initial_duration = STEP;
    config.final_duration = STEP * 2;
    let mut search = Search::new(config).unwrap();
    loop {
        let (rate, duration) = match search.next() {
            SearchStep::Trial { rate, duration } => (rate, duration),
            SearchStep::Done(outcome) => return outcome,
        };
        let steps = duration.as_secs_f64() / STEP.as_secs_f64();
        let duration = STEP * steps.ceil() as u32;
        let phase = LoadPhase::constant("trial", rate, duration);
        let counts = run(&mut scene, vec![phase]).into_iter().reduce(|mut sum, one| {
            sum.merge(&one);
            sum
        });
        let counts = counts.unwrap();
        assert_eq!(counts.invalid, [0; InvalidReplyReason::ALL.len()]);
        search.record(&TrialOutcome {
            intended_rate: rate,
            achieved_rate: achieved_rate(&counts),
            sent: counts.sent,
            lost: counts.lost(),
            duration,
        });
    }
}

fn assert_limit_found(found: &SearchOutcome) {
    assert_eq!(found.reason, StopReason::Converged, "{found:?}");
    // In a trial the burst comes on top.
    let most = LIMIT + BURST / (STEP * 2).as_secs_f64();
    let rate = found.rate.unwrap();
    assert!((0.97 * LIMIT..=1.02 * most).contains(&rate), "{found:?}");
}

#[test]
fn a_server_s_limit_is_found() {
    assert_limit_found(&search(FaultInjectionPlan::default(), rate_limited));
}

#[test]
fn noise_does_not_hide_a_server_s_limit() {
    let plan = faults(|plan| {
        plan.reordering = 0.05;
        plan.duplication = 0.01;
    });
    assert_limit_found(&search(plan, stalling));
}
