//! Common words of the terminal and the HTML report on a host's delays.

use horolog_record::{
    ClaimVerdict, DelayCell, DelaySetting, DelaySlack, HostDelayResult, InterruptedDelay,
    Resumption, SchedulingPolicy,
};

use crate::units::{full_count, human_ns, percent};

/// Explanation of the figures.
pub(crate) const NOTE: &str = "Overshoot: end of a wait minus its requested end, by \
                               CLOCK_MONOTONIC. Functions with a resolution of seconds or \
                               milliseconds have no shorter delays. Long delays have few waits. \
                               p99 and max: worst over all delays.";

/// Reason for which functions differ.
pub(crate) const SLACK: &str = "Timer slack: select, poll and epoll allow 0.1% of the delay, at \
                                most 100 ms, or the timer slack if larger; sleep, usleep and \
                                nanosleep the timer slack; alarm, timerfd, io_uring and real-time \
                                threads none.";

/// Heading of the claims.
pub(crate) const CLAIMS: &str = "Claims about clocks and delays";

/// Returns a setting's name; views of a plot have constant ones.
#[must_use]
pub const fn setting_name(setting: &DelaySetting) -> &'static str {
    match (setting.policy, setting.slack) {
        (SchedulingPolicy::Other, DelaySlack::Default) => "SCHED_OTHER, default slack",
        (SchedulingPolicy::Other, DelaySlack::Minimal) => "SCHED_OTHER, minimal slack",
        (SchedulingPolicy::Fifo, DelaySlack::Default) => "SCHED_FIFO, default slack",
        (SchedulingPolicy::Fifo, DelaySlack::Minimal) => "SCHED_FIFO, minimal slack",
    }
}

/// Returns true if there is a figure of a setting; the run may have ended before there was.
pub(crate) fn is_measured(result: &HostDelayResult, setting: usize) -> bool {
    cells_of(result, setting).any(|cell| cell.overshoot_ns.is_some())
}

/// Returns a setting in full.
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
) -> impl Iterator<Item = &DelayCell> + Clone {
    result.cells.iter().filter(move |cell| cell.setting == setting)
}

/// Returns the requested delays, the shortest first.
pub(crate) fn delays(result: &HostDelayResult) -> Vec<u64> {
    let mut delays: Vec<_> = result.cells.iter().map(|cell| cell.requested_ns).collect();
    delays.sort_unstable();
    delays.dedup();
    delays
}

/// Headings of [`interrupted`].
pub(crate) const INTERRUPTED_TITLES: [&str; 5] =
    ["requested", "duration", "signals", "calls", "CPU"];

/// Returns the program's resumption after an interruption, in words.
pub(crate) const fn resumption(resumption: Resumption) -> &'static str {
    match resumption {
        Resumption::None => "not resumed",
        Resumption::Remaining => "resumed for the rest",
        Resumption::Absolute => "until the same time",
        Resumption::Again => "restarted",
    }
}

/// Returns the figures of an interrupted delay.
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
pub(crate) const fn verdict(verdict: ClaimVerdict) -> &'static str {
    match verdict {
        ClaimVerdict::Holds => "holds",
        ClaimVerdict::Fails => "does not hold",
        ClaimVerdict::NotMeasured => "not measured",
        ClaimVerdict::Elsewhere => "see",
    }
}

/// Returns the numbers of claims that hold and that do not.
pub(crate) fn tally(result: &HostDelayResult) -> String {
    let count = |verdict| result.claims.iter().filter(|claim| claim.verdict == verdict).count();
    format!(
        "{} hold, {} do not, {} not measured, {} covered by other commands.",
        count(ClaimVerdict::Holds),
        count(ClaimVerdict::Fails),
        count(ClaimVerdict::NotMeasured),
        count(ClaimVerdict::Elsewhere)
    )
}
