//! Simulated servers and generators for the tests of the search.

use std::time::Duration;

use super::{Search, SearchConfig, SearchOutcome, SearchStep, TrialOutcome};

/// Returns the loss ratio as a function of the rate, for a server with a fixed capacity.
pub(super) fn hard_capacity(capacity: f64) -> impl Fn(f64) -> f64 {
    move |rate| (1.0 - capacity / rate).max(0.0)
}

/// Returns the outcome of a trial that achieves its rate and loses this share.
pub(super) fn outcome(rate: f64, duration: Duration, loss: f64) -> TrialOutcome {
    let sent = (rate * duration.as_secs_f64()).round();
    TrialOutcome {
        intended_rate: rate,
        achieved_rate: rate,
        sent: sent as u64,
        lost: (sent * loss).ceil() as u64,
        duration,
    }
}

/// Runs a search to its end; `trial` simulates each trial.
pub(super) fn run(
    config: SearchConfig,
    mut trial: impl FnMut(f64, Duration) -> TrialOutcome,
) -> SearchOutcome {
    let mut search = Search::new(config).unwrap();
    for _ in 0..=config.max_trials {
        match search.next() {
            SearchStep::Trial { rate, duration } => {
                assert!((config.min_rate..=config.max_rate).contains(&rate));
                search.record(&trial(rate, duration));
            }
            SearchStep::Done(outcome) => return outcome,
        }
    }
    panic!("the search did not end: {search:?}");
}

pub(super) fn run_loss(config: SearchConfig, loss: impl Fn(f64) -> f64) -> SearchOutcome {
    run(config, |rate, duration| outcome(rate, duration, loss(rate)))
}

/// Returns the outcome of a trial with a generator that cannot send more than `limit` per second.
pub(super) fn generator_limited(
    rate: f64,
    duration: Duration,
    limit: f64,
    loss: impl Fn(f64) -> f64,
) -> TrialOutcome {
    let achieved = rate.min(limit);
    TrialOutcome { intended_rate: rate, ..outcome(achieved, duration, loss(achieved)) }
}
