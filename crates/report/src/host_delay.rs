//! What the terminal and the page say alike of a host's delays.

use horolog_record::{
    ClaimVerdict, DelayCell, DelaySetting, DelaySlack, HostDelayResult, InterruptedDelay,
    Resumption, SchedulingPolicy,
};

use crate::units::{full_count, human_ns, percent};

/// What the figures are.
pub(crate) const NOTE: &str = "Overshoot: how much later than asked for a wait ended, by \
                               CLOCK_MONOTONIC. Functions that take whole seconds or milliseconds are \
                               asked for nothing shorter. Of long delays there are few waits. p99 and max: \
                               the worst of all delays.";

/// Why functions differ.
pub(crate) const SLACK: &str = "select, poll and epoll let the kernel be late by a thousandth of the \
                                delay, 100 ms at most, or by the timer slack where that is more; \
                                sleep, usleep and nanosleep by the timer slack; alarm, timerfd and \
                                io_uring by nothing, nor any real-time thread.";

/// The heading of the claims.
pub(crate) const CLAIMS: &str = "What is said of clocks and delays, and what holds here";

/// A setting's name; views of a plot have constant ones.
#[must_use]
pub const fn setting_name(setting: &DelaySetting) -> &'static str {
    match (setting.policy, setting.slack) {
        (SchedulingPolicy::Other, DelaySlack::Default) => "SCHED_OTHER, default slack",
        (SchedulingPolicy::Other, DelaySlack::Minimal) => "SCHED_OTHER, minimal slack",
        (SchedulingPolicy::Fifo, DelaySlack::Default) => "SCHED_FIFO, default slack",
        (SchedulingPolicy::Fifo, DelaySlack::Minimal) => "SCHED_FIFO, minimal slack",
    }
}

/// Whether there is a figure of a setting; the run may have ended before there was.
pub(crate) fn is_measured(result: &HostDelayResult, setting: usize) -> bool {
    cells_of(result, setting).any(|cell| cell.overshoot_ns.is_some())
}

/// A setting in full.
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

/// The cells of a setting.
pub(crate) fn cells_of(
    result: &HostDelayResult,
    setting: usize,
) -> impl Iterator<Item = &DelayCell> + Clone {
    result.cells.iter().filter(move |cell| cell.setting == setting)
}

/// The delays that were asked for, the shortest first.
pub(crate) fn delays(result: &HostDelayResult) -> Vec<u64> {
    let mut delays: Vec<_> = result.cells.iter().map(|cell| cell.requested_ns).collect();
    delays.sort_unstable();
    delays.dedup();
    delays
}

/// The headings of [`interrupted`].
pub(crate) const INTERRUPTED_TITLES: [&str; 5] =
    ["asked for", "took", "signals", "calls", "processor"];

/// How a program goes on, in words.
pub(crate) const fn resumption(resumption: Resumption) -> &'static str {
    match resumption {
        Resumption::None => "not resumed",
        Resumption::Remaining => "resumed with the rest",
        Resumption::Absolute => "until the same instant",
        Resumption::Again => "begun again",
    }
}

/// The figures of an interrupted delay.
pub(crate) fn interrupted(delay: &InterruptedDelay) -> [String; 5] {
    let share = delay.processor_ns as f64 / delay.took_ns.max(1) as f64;
    let took = human_ns(delay.took_ns);
    [
        human_ns(delay.requested_ns),
        if delay.ended { took } else { format!(">{took}") },
        full_count(delay.interruptions),
        full_count(delay.calls),
        percent(share),
    ]
}

/// A verdict in a word.
pub(crate) const fn verdict(verdict: ClaimVerdict) -> &'static str {
    match verdict {
        ClaimVerdict::Holds => "holds",
        ClaimVerdict::Fails => "does not hold",
        ClaimVerdict::NotMeasured => "not measured",
        ClaimVerdict::Elsewhere => "see",
    }
}

/// How many claims hold and how many do not.
pub(crate) fn tally(result: &HostDelayResult) -> String {
    let count = |verdict| result.claims.iter().filter(|claim| claim.verdict == verdict).count();
    format!(
        "{} hold, {} do not, {} were not measured, {} are other commands'.",
        count(ClaimVerdict::Holds),
        count(ClaimVerdict::Fails),
        count(ClaimVerdict::NotMeasured),
        count(ClaimVerdict::Elsewhere)
    )
}
