//! Switch times from measured times. Pure: an impossible value is discarded.

use horolog_record::{PingPongRepetition, YieldSwitchRepetition};

/// Share of the switches that must have occurred.
const SWITCHES_MIN: f64 = 0.99;

/// Computes the eight steps: the loop's time is subtracted, once for each side, and the rest is
/// divided by two switches per turn. The paper subtracts one side's and counts both switches as
/// one.
pub(super) fn steps(
    turns: u64,
    loop_ns: u64,
    turns_ns: u64,
    switches: u64,
) -> YieldSwitchRepetition {
    let (count, alone, together) = (turns as f64, loop_ns as f64, turns_ns as f64);
    let is_complete = turns > 0 && switches as f64 >= count * SWITCHES_MIN;
    // If the loop alone took longer than its share, no value of that repetition is valid.
    let is_sound = is_complete && together >= 2.0 * alone;
    let figure = |ns: f64| is_sound.then_some(ns);
    YieldSwitchRepetition {
        loop_ns,
        turns_ns,
        switches,
        per_switch_ns: figure((together - 2.0 * alone) / (2.0 * count)),
        paper_ns: figure((together - alone) / count),
    }
}

/// Computes an exchange: both sides' calls are subtracted from a turn, and half of it is a switch.
pub(super) fn exchange(
    turns: u64,
    turns_ns: u64,
    (alone_ns, clock_ns): (f64, u64),
    switches: u64,
) -> PingPongRepetition {
    let count = turns.max(1) as f64;
    let turn_ns = (turns_ns as f64 / count - clock_ns as f64).max(0.0);
    let per_switch = (turn_ns - 2.0 * alone_ns) / 2.0;
    PingPongRepetition {
        baseline_ns: alone_ns,
        turn_ns,
        switches_per_turn: switches as f64 / count,
        per_switch_ns: (per_switch >= 0.0).then_some(per_switch),
    }
}

/// Returns the median; the mean of the two middle values for an even number.
pub(super) fn median(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().flatten().collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of document 003: 1,000 turns of two switches of 800 ns and two calls of 200 ns.
    #[test]
    fn a_turn_has_two_switches_and_two_calls() {
        let repetition = steps(1_000, 200_000, 2_000_000, 1_000);
        assert_eq!((repetition.per_switch_ns, repetition.paper_ns), (Some(800.0), Some(1_800.0)));
    }

    #[test]
    fn negative_figures_are_refused() {
        // More for the loop alone than for both: something else ran meanwhile.
        let repetition = steps(1_000, 300_000, 500_000, 1_000);
        assert_eq!((repetition.per_switch_ns, repetition.paper_ns), (None, None));
        let repetition = steps(1_000, 600_000, 500_000, 1_000);
        assert_eq!((repetition.per_switch_ns, repetition.paper_ns), (None, None));
        assert_eq!(exchange(10, 1_000, (60.0, 0), 10).per_switch_ns, None);
    }

    #[test]
    fn switches_that_did_not_come_give_no_figure() {
        assert_eq!(steps(1_000, 200_000, 2_000_000, 900).per_switch_ns, None);
        assert_eq!(steps(1_000, 200_000, 2_000_000, 900).paper_ns, None);
        assert_eq!(steps(0, 0, 0, 0).per_switch_ns, None);
    }

    #[test]
    fn an_exchange_is_less_its_calls_and_the_clock() {
        let repetition = exchange(100, 602_000, (1_000.0, 20), 100);
        assert_eq!((repetition.turn_ns, repetition.per_switch_ns), (6_000.0, Some(2_000.0)));
        assert!((repetition.switches_per_turn - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_median_is_of_those_that_are_there() {
        assert_eq!(median([Some(3.0), None, Some(1.0), Some(2.0)]), Some(2.0));
        assert_eq!(median([Some(3.0), Some(1.0)]), Some(2.0));
        assert_eq!(median([None]), None);
    }
}
