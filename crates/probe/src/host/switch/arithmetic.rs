//! Calculation of switch times from measured durations. Pure; an impossible value is `None`.

use horolog_record::{PingPongRepetition, YieldSwitchRepetition};

/// Minimum ratio of observed context switches to turns.
const SWITCH_RATIO_MIN: f64 = 0.99;

/// Returns true if the kernel counted enough context switches for this number of turns.
pub(super) fn has_switched(switches: u64, turns: u64) -> bool {
    switches as f64 >= turns as f64 * SWITCH_RATIO_MIN
}

/// Computes the switch time of the eight-step method: turns minus the baseline loop of both sides,
/// divided by two switches per turn. The value by the paper (Hao, Xue and Qin 2010) subtracts the
/// loop of one side only and counts one switch per turn. Both are `None` if switches are missing or
/// the loops took longer than the turns.
pub(super) fn yield_switch_repetition(
    turns: u64,
    loop_ns: u64,
    turns_ns: u64,
    switches: u64,
) -> YieldSwitchRepetition {
    let (count, loop_alone_ns, with_peer_ns) = (turns as f64, loop_ns as f64, turns_ns as f64);
    let is_complete = turns > 0 && has_switched(switches, turns);
    // Invalid if the loops of both sides alone took longer than the turns.
    let is_sound = is_complete && with_peer_ns >= 2.0 * loop_alone_ns;
    let figure = |ns: f64| is_sound.then_some(ns);
    YieldSwitchRepetition {
        loop_ns,
        turns_ns,
        switches,
        per_switch_ns: figure((with_peer_ns - 2.0 * loop_alone_ns) / (2.0 * count)),
        paper_ns: figure((with_peer_ns - loop_alone_ns) / count),
    }
}

/// Computes the switch time of the ping-pong method: half of a turn after subtracting the clock
/// reading and the calls of both sides; `None` if negative. `alone_ns` is the cost of one side's
/// calls, `clock_ns` that of a clock reading.
pub(super) fn ping_pong_repetition(
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

/// Returns the median of the values that exist; for an even number the mean of the two middle ones.
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
        let repetition = yield_switch_repetition(1_000, 200_000, 2_000_000, 1_000);
        assert_eq!((repetition.per_switch_ns, repetition.paper_ns), (Some(800.0), Some(1_800.0)));
    }

    #[test]
    fn negative_figures_are_refused() {
        // More for the loop alone than for both: something else ran meanwhile.
        let repetition = yield_switch_repetition(1_000, 300_000, 500_000, 1_000);
        assert_eq!((repetition.per_switch_ns, repetition.paper_ns), (None, None));
        let repetition = yield_switch_repetition(1_000, 600_000, 500_000, 1_000);
        assert_eq!((repetition.per_switch_ns, repetition.paper_ns), (None, None));
        assert_eq!(ping_pong_repetition(10, 1_000, (60.0, 0), 10).per_switch_ns, None);
    }

    #[test]
    fn switches_that_did_not_come_give_no_figure() {
        assert_eq!(yield_switch_repetition(1_000, 200_000, 2_000_000, 900).per_switch_ns, None);
        assert_eq!(yield_switch_repetition(1_000, 200_000, 2_000_000, 900).paper_ns, None);
        assert_eq!(yield_switch_repetition(0, 0, 0, 0).per_switch_ns, None);
    }

    #[test]
    fn an_exchange_is_less_its_calls_and_the_clock() {
        let repetition = ping_pong_repetition(100, 602_000, (1_000.0, 20), 100);
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
