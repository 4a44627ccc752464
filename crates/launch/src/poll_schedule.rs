//! Schedule of the checks of each condition, and the decision whether all of them hold: a pure
//! function of check results and times. Times are counted from the start of the wait.

use std::time::Duration;

use crate::condition::CheckResult;

/// Maximum age of a confirmation at the end of the wait; conditions confirmed earlier are checked
/// again once all hold.
const CONFIRMATION_AGE_MAX: Duration = Duration::from_secs(1);

/// Pauses between the checks of one condition.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Backoff {
    /// Pause from the first check to the second.
    pub first: Duration,
    /// Factor from one pause to the next.
    pub factor: f64,
    /// Longest pause.
    pub longest: Duration,
}

impl Backoff {
    /// Returns the pause after `checks` failed checks in succession: `first` after one, at most
    /// `longest`.
    fn pause(&self, checks: u32) -> Duration {
        let exponent = i32::try_from(checks.saturating_sub(1)).unwrap_or(i32::MAX);
        let pause = self.first.as_secs_f64() * self.factor.powi(exponent);
        Duration::try_from_secs_f64(pause).map_or(self.longest, |pause| pause.min(self.longest))
    }
}

/// Results of the checks of one condition, and its next check.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ConditionState {
    /// Time since which it has held, from the start of the wait; `None` while it does not hold.
    pub held_since: Option<Duration>,
    /// Number of finished checks.
    pub tries: u64,
    /// Number of times that the condition held and then failed.
    pub lost: u64,
    /// Detail of the last check.
    pub detail: Option<String>,
    /// Time of the last check in which it held.
    confirmed: Duration,
    /// Failed checks since it last held.
    failures: u32,
    /// True while a check is in progress.
    is_being_checked: bool,
    /// Time of the next check while the condition does not hold.
    due: Duration,
}

/// Change of a condition from one check to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConditionChange {
    /// The condition holds now.
    Held,
    /// The condition no longer holds.
    Lost,
}

/// Check schedule of several conditions.
#[derive(Clone, PartialEq, Debug)]
pub struct ConditionCheckSchedule {
    conditions: Vec<ConditionState>,
    backoff: Backoff,
}

impl ConditionCheckSchedule {
    /// Returns a schedule of unchecked conditions, each with its first check at its time in `due`,
    /// counted from the start of the wait.
    #[must_use]
    pub fn new(due: impl IntoIterator<Item = Duration>, backoff: Backoff) -> Self {
        let conditions = due
            .into_iter()
            .map(|due| ConditionState { due, ..ConditionState::default() })
            .collect();
        Self { conditions, backoff }
    }

    /// Returns the state of each condition, in order.
    #[must_use]
    pub fn conditions(&self) -> &[ConditionState] {
        &self.conditions
    }

    /// Returns the indices of the conditions to check now, and marks these as being checked: those
    /// that do not hold and are due, and, if all hold, those whose confirmation is too old. The
    /// caller must check each and record the result.
    pub fn take_due(&mut self, now: Duration) -> Vec<usize> {
        let all_held = self.conditions.iter().all(|condition| condition.held_since.is_some());
        let mut due_indices = Vec::new();
        for (index, condition) in self.conditions.iter_mut().enumerate() {
            let is_due = match condition.held_since {
                None => condition.due <= now,
                Some(_) => all_held && condition.is_stale(now),
            };
            if is_due && !condition.is_being_checked {
                condition.is_being_checked = true;
                due_indices.push(index);
            }
        }
        due_indices
    }

    /// Returns the time of the next check; `None` while every condition that does not hold is being
    /// checked, and if all hold.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        let waiting = self
            .conditions
            .iter()
            .filter(|condition| condition.held_since.is_none() && !condition.is_being_checked);
        waiting.map(|condition| condition.due).min()
    }

    /// Records the result of a check. Returns the change of the condition, if there is one.
    pub fn record_check(
        &mut self,
        index: usize,
        now: Duration,
        result: CheckResult,
    ) -> Option<ConditionChange> {
        let backoff = self.backoff;
        let condition = self.conditions.get_mut(index)?;
        condition.is_being_checked = false;
        condition.tries += 1;
        condition.detail = Some(result.detail);
        let was_held = condition.held_since.is_some();
        if result.holds {
            condition.confirmed = now;
            condition.failures = 0;
            condition.held_since.get_or_insert(now);
            return (!was_held).then_some(ConditionChange::Held);
        }
        condition.failures = condition.failures.saturating_add(1);
        condition.due = now.saturating_add(backoff.pause(condition.failures));
        if was_held {
            condition.held_since = None;
            condition.lost += 1;
        }
        was_held.then_some(ConditionChange::Lost)
    }

    /// Returns true if all conditions hold, none is being checked, and each was confirmed within
    /// [`CONFIRMATION_AGE_MAX`].
    #[must_use]
    pub fn is_done(&self, now: Duration) -> bool {
        self.conditions.iter().all(|condition| {
            condition.held_since.is_some()
                && !condition.is_being_checked
                && !condition.is_stale(now)
        })
    }
}

impl ConditionState {
    fn is_stale(&self, now: Duration) -> bool {
        now.saturating_sub(self.confirmed) > CONFIRMATION_AGE_MAX
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const BACKOFF: Backoff =
        Backoff { first: Duration::from_millis(100), factor: 2.0, longest: Duration::from_secs(5) };

    fn check_result(holds: bool) -> CheckResult {
        CheckResult { holds, detail: String::new() }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Simulates conditions that hold in these periods (ms); returns the end and checks of each.
    fn simulate(holds: &[&[(u64, u64)]], check_ms: u64) -> (Option<u64>, Vec<u64>) {
        let mut schedule =
            ConditionCheckSchedule::new(holds.iter().map(|_| Duration::ZERO), BACKOFF);
        let mut open: Vec<(u64, usize)> = Vec::new();
        for now in 0..200_000 {
            for (_, index) in open.extract_if(.., |(end, _)| *end == now) {
                let holds = holds[index].iter().any(|(from, to)| (*from..*to).contains(&now));
                schedule.record_check(index, ms(now), check_result(holds));
            }
            if schedule.is_done(ms(now)) {
                let checks = schedule.conditions().iter().map(|known| known.tries).collect();
                return (Some(now), checks);
            }
            open.extend(
                schedule.take_due(ms(now)).into_iter().map(|index| (now + check_ms, index)),
            );
        }
        (None, schedule.conditions().iter().map(|known| known.tries).collect())
    }

    #[test]
    fn pauses_grow_up_to_the_longest() {
        let pauses = [1, 2, 3, 6, 7, u32::MAX].map(|checks| BACKOFF.pause(checks).as_millis());
        assert_eq!(pauses, [100, 200, 400, 3_200, 5_000, 5_000]);
    }

    #[test]
    fn a_condition_that_holds_at_once_is_checked_once() {
        assert_eq!(simulate(&[&[(0, u64::MAX)], &[(0, u64::MAX)]], 2), (Some(2), vec![1, 1]));
    }

    #[test]
    fn a_condition_that_held_long_ago_is_checked_again_at_the_end() {
        let (done, checks) = simulate(&[&[(0, u64::MAX)], &[(9_000, u64::MAX)]], 1);
        assert!(done.is_some_and(|done| (9_000..15_000).contains(&done)), "{done:?}");
        assert_eq!(checks[0], 2);
    }

    #[test]
    fn what_is_lost_meanwhile_is_waited_for_again() {
        let (done, _) = simulate(&[&[(0, 100), (30_000, u64::MAX)], &[(9_000, u64::MAX)]], 1);
        assert!(done.is_some_and(|done| done >= 30_000), "{done:?}");
        let never = simulate(&[&[(0, 100)], &[(9_000, u64::MAX)]], 1);
        assert_eq!(never.0, None);
    }

    proptest! {
        /// Never done while one does not hold, and no check before its pause ends.
        #[test]
        fn looks_keep_their_pauses(answers in vec(any::<bool>(), 1..40)) {
            let mut course = ConditionCheckSchedule::new([Duration::ZERO], BACKOFF);
            let mut now = Duration::ZERO;
            for answer in answers {
                if course.is_done(now) {
                    break;
                }
                now = course.next_due().unwrap_or(now);
                prop_assert_eq!(course.take_due(now), vec![0]);
                prop_assert!(course.take_due(now).is_empty(), "a look is under way");
                let change = course.record_check(0, now, check_result(answer));
                prop_assert_eq!(change, answer.then_some(ConditionChange::Held));
                prop_assert_eq!(course.is_done(now), answer);
                prop_assert!(answer || course.next_due().unwrap() >= now + BACKOFF.first);
            }
        }
    }
}
