//! Texts on the delays of a host, shared by the terminal and the HTML report.

use horolog_record::{
    DelayClaimVerdict, DelayMeasurement, DelaySetting, HostDelayResult, InterruptedDelay,
    InterruptedSleepStrategy, SchedulingPolicy, TimerSlackSetting,
};

use crate::units::{full_count, human_ns, percent};

/// Explanation of the metrics.
pub(crate) const NOTE: &str = "Overshoot: end of a wait minus its requested end, by \
                               CLOCK_MONOTONIC. Functions with a resolution of seconds or \
                               milliseconds have no shorter delays. Long delays have few waits. \
                               p99 and max: worst over all delays.";

/// Explanation of why functions differ: timer slack.
pub(crate) const SLACK: &str = "Timer slack: select, poll and epoll allow 0.1% of the delay, at \
                                most 100 ms, or the timer slack if larger; sleep, usleep and \
                                nanosleep the timer slack; alarm, timerfd, io_uring and real-time \
                                threads none.";

/// Heading of the claims.
pub(crate) const CLAIMS: &str = "Claims about clocks and delays";

/// Returns the name of a setting.
#[must_use]
pub const fn setting_name(setting: &DelaySetting) -> &'static str {
    match (setting.policy, setting.slack) {
        (SchedulingPolicy::Other, TimerSlackSetting::Default) => "SCHED_OTHER, default slack",
        (SchedulingPolicy::Other, TimerSlackSetting::Minimal) => "SCHED_OTHER, minimal slack",
        (SchedulingPolicy::Fifo, TimerSlackSetting::Default) => "SCHED_FIFO, default slack",
        (SchedulingPolicy::Fifo, TimerSlackSetting::Minimal) => "SCHED_FIFO, minimal slack",
    }
}

/// Returns true if a delay was measured under the setting; an interrupted run may have none.
pub(crate) fn is_measured(result: &HostDelayResult, setting: usize) -> bool {
    cells_of(result, setting).any(|cell| cell.overshoot_ns.is_some())
}

/// Returns the setting in words, with its timer slack.
pub(crate) fn setting(result: &HostDelayResult, index: usize) -> String {
    let setting = &result.settings[index];
    let name = setting_name(setting);
    if setting.error.is_none() && !is_measured(result, index) {
        return format!("{name}: not measured");
    }
    let slack = setting.slack_ns.map(human_ns);
    match (&setting.error, slack, setting.policy) {
        (Some(error), ..) => format!("{name}: not measured ({error})"),
        (None, _, SchedulingPolicy::Fifo) => format!("{name} (the kernel applies none)"),
        (None, Some(slack), _) => format!("{name} ({slack})"),
        (None, None, _) => name.to_owned(),
    }
}

/// Returns the cells of a setting.
pub(crate) fn cells_of(
    result: &HostDelayResult,
    setting: usize,
) -> impl Iterator<Item = &DelayMeasurement> + Clone {
    result.cells.iter().filter(move |cell| cell.setting == setting)
}

/// Returns the requested delays in ascending order, in ns.
pub(crate) fn delays(result: &HostDelayResult) -> Vec<u64> {
    let mut delays: Vec<_> = result.cells.iter().map(|cell| cell.requested_ns).collect();
    delays.sort_unstable();
    delays.dedup();
    delays
}

/// Titles of the cells of [`interrupted`].
pub(crate) const INTERRUPTED_TITLES: [&str; 5] =
    ["requested", "duration", "signals", "calls", "CPU"];

/// Returns the program's resumption after an interruption, in words.
pub(crate) const fn resumption(resumption: InterruptedSleepStrategy) -> &'static str {
    match resumption {
        InterruptedSleepStrategy::None => "not resumed",
        InterruptedSleepStrategy::Remaining => "resumed for the rest",
        InterruptedSleepStrategy::Absolute => "until the same time",
        InterruptedSleepStrategy::Again => "restarted",
    }
}

/// Returns the cells of an interrupted delay.
pub(crate) fn interrupted(delay: &InterruptedDelay) -> [String; 5] {
    let share = delay.processor_ns as f64 / delay.duration_ns.max(1) as f64;
    let took = human_ns(delay.duration_ns);
    [
        human_ns(delay.requested_ns),
        if delay.ended { took } else { format!(">{took}") },
        full_count(delay.interruptions),
        full_count(delay.calls),
        percent(share),
    ]
}

/// Returns a verdict in a word.
pub(crate) const fn verdict(verdict: DelayClaimVerdict) -> &'static str {
    match verdict {
        DelayClaimVerdict::Holds => "holds",
        DelayClaimVerdict::Fails => "does not hold",
        DelayClaimVerdict::NotMeasured => "not measured",
        DelayClaimVerdict::Elsewhere => "see",
    }
}

/// Returns the numbers of claims that hold and that do not.
pub(crate) fn tally(result: &HostDelayResult) -> String {
    let count = |verdict| result.claims.iter().filter(|claim| claim.verdict == verdict).count();
    format!(
        "{} hold, {} do not, {} not measured, {} covered by other commands.",
        count(DelayClaimVerdict::Holds),
        count(DelayClaimVerdict::Fails),
        count(DelayClaimVerdict::NotMeasured),
        count(DelayClaimVerdict::Elsewhere)
    )
}
