//! Collection of what the nodes of a run publish, until all have finished or are given up. The end
//! is certain: nodes that do not finish are requested to, and are waited for once more.

use std::thread;
use std::time::Duration;

use horolog_sys::clock::ClockMonotonic;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

/// State of a run after a collection.
pub(crate) struct CollectionState {
    /// True if all nodes had finished before their entries were collected, so that none can follow.
    pub(crate) all_finished: bool,
    /// True if the run is to end early.
    pub(crate) ends_early: bool,
    /// Time to the next collection.
    pub(crate) pause: Duration,
}

/// Calls `collect` until all nodes have finished. At the deadline, or if the run is to end early,
/// calls `stop` once, with true at the deadline, and then waits at most the returned grace period.
pub(crate) fn collect_until_finished<R>(
    run: &mut R,
    mut deadline: Timestamp<Monotonic>,
    mut collect: impl FnMut(&mut R) -> CollectionState,
    stop: impl Fn(&mut R, bool) -> Span,
) {
    let mut is_stopping = false;
    loop {
        let state = collect(run);
        let is_late = !state.all_finished && ClockMonotonic.now() > deadline;
        if !is_stopping && (state.ends_early || is_late) {
            is_stopping = true;
            deadline = ClockMonotonic.now() + stop(run, !state.ends_early);
        } else if is_late {
            return;
        }
        if state.all_finished {
            return;
        }
        thread::sleep(state.pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects from nodes that finish, or request an early end, at these collections; returns the
    /// number of collections and the calls of `stop`.
    fn run(deadline_ms: i64, finished_at: usize, early_at: usize) -> (usize, Vec<bool>) {
        let mut run = (0, Vec::new());
        let deadline = ClockMonotonic.now() + Span::from_ms(deadline_ms);
        let collect = |run: &mut (usize, Vec<bool>)| {
            run.0 += 1;
            CollectionState {
                all_finished: run.0 >= finished_at,
                ends_early: run.0 >= early_at,
                pause: Duration::from_millis(1),
            }
        };
        collect_until_finished(&mut run, deadline, collect, |run, is_late| {
            run.1.push(is_late);
            Span::from_ms(20)
        });
        run
    }

    #[test]
    fn a_run_ends_when_its_nodes_have_finished() {
        assert_eq!(run(60_000, 3, usize::MAX), (3, vec![]));
        assert_eq!(run(60_000, 3, 2), (3, vec![false]), "stopped early");
        assert_eq!(run(60_000, 3, 3), (3, vec![false]), "the reason comes with the end");
        assert_eq!(run(-1, 1, usize::MAX), (1, vec![]), "finished and late");
        assert_eq!(run(-1, 3, usize::MAX), (3, vec![true]));
    }

    #[test]
    fn nodes_that_never_finish_are_stopped_once_and_abandoned() {
        let (collections, stops) = run(-1, usize::MAX, usize::MAX);
        assert_eq!(stops, [true]);
        assert!((2..=25).contains(&collections), "{collections}");
        assert_eq!(run(60_000, usize::MAX, 2).1, [false]);
        assert_eq!(run(-1, usize::MAX, 1).1, [false], "the early end is the reason");
    }
}
