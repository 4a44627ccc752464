//! Claims about the wait functions.

use horolog_record::{InterruptedSleepStrategy, TestedDelayClaim, TimerSlackSetting, WaitFunction};
use horolog_sys::alarm::PendingAlarmEffect;

use super::{DelayClaimInput, format_time, tested_claim};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
/// Ratio of two overshoots up to which they count as equal on a busy host.
const EQUAL_RATIO_MAX: f64 = 1.5;

pub(super) fn function_claims(input: &DelayClaimInput<'_>) -> Vec<TestedDelayClaim> {
    let mut claims = Vec::from(sleep_claims(input));
    claims.extend(usleep_claims(input));
    claims.extend(usleep_defect_claims(input));
    claims.extend(nanosleep_claims(input));
    claims.extend(select_claims(input));
    claims
}

/// Returns true if a wait function uses alarm(2) itself: it delivers SIGALRM, or moves the pending
/// alarm nearer by more than 5 s.
fn is_made_of_alarms(interaction: PendingAlarmEffect) -> bool {
    interaction.signals > 0 || interaction.elapsed_s > 5
}

fn describe_interaction(interaction: PendingAlarmEffect) -> String {
    format!(
        "{} signals arrived, and a pending alarm moved {} s nearer",
        interaction.signals, interaction.elapsed_s
    )
}

fn sleep_claims(input: &DelayClaimInput<'_>) -> [TestedDelayClaim; 3] {
    let exact = |kind| {
        input.overshoot(kind, S).map(|d| {
            let figure = format!("a second took {} longer at the median", format_time(d.p50));
            (d.p50 < S / 100, figure)
        })
    };
    [
        tested_claim(
            "sleep-exact",
            "sleep() is accurate to the second.",
            exact(WaitFunction::Sleep),
        ),
        tested_claim(
            "sleep-is-alarm",
            "sleep() installs a handler for SIGALRM, calls alarm() and pauses.",
            input
                .evidence
                .sleep_alarm_interaction
                .map(|one| (is_made_of_alarms(one), describe_interaction(one))),
        ),
        tested_claim(
            "alarm-ends-pause",
            "pause() returns after the signal of alarm() has been handled, and the program \
             continues.",
            exact(WaitFunction::AlarmPause),
        ),
    ]
}

fn usleep_claims(input: &DelayClaimInput<'_>) -> [TestedDelayClaim; 4] {
    let shortest = || input.overshoot(WaitFunction::Usleep, US);
    let tick_ns = input.result.tick.tick_ns;
    [
        tested_claim(
            "usleep-tick",
            "usleep() has the resolution of a tick: at HZ = 250 a short one takes 4 ms.",
            shortest().zip(tick_ns).map(|(d, tick)| {
                let took = d.p50 + US;
                let figure = format!(
                    "1 µs took {} at the median, a tick is {}",
                    format_time(took),
                    format_time(tick)
                );
                (took >= tick / 2, figure)
            }),
        ),
        tested_claim("usleep-at-least", "usleep() waits at least the requested time.", {
            let cells = || {
                input.result.cells.iter().filter(|cell| {
                    cell.function == WaitFunction::Usleep && cell.overshoot_ns.is_some()
                })
            };
            let waits: u64 =
                cells().filter_map(|cell| Some(cell.overshoot_ns.as_ref()?.count)).sum();
            let early: u64 = cells().map(|cell| cell.early).sum();
            (waits > 0).then(|| (early == 0, format!("{early} of {waits} waits returned early")))
        }),
        tested_claim(
            "short-is-longer",
            "Short delays take longer than requested.",
            input.overshoot(WaitFunction::Usleep, 100 * US).map(|d| {
                let share = d.p50 as f64 / (100 * US) as f64;
                let figure = format!(
                    "100 µs took {:.0}% longer at the median, at least {} longer",
                    share * 100.0,
                    format_time(d.min)
                );
                (share > 0.05, figure)
            }),
        ),
        tested_claim(
            "switch-10-ms",
            "A switch into the kernel and back takes 10 to 30 ms.",
            input
                .overshoot_with_slack(WaitFunction::Usleep, US, TimerSlackSetting::Minimal)
                .or_else(shortest)
                .map(|d| {
                    let figure = format!(
                        "a wait of 1 µs, including sleep and wake-up, took {} longer at the median",
                        format_time(d.p50)
                    );
                    (d.p50 >= 5 * MS, figure)
                }),
        ),
    ]
}

fn usleep_defect_claims(input: &DelayClaimInput<'_>) -> [TestedDelayClaim; 3] {
    let evidence = input.evidence;
    [
        tested_claim(
            "usleep-signals",
            "usleep() interferes with signals.",
            evidence
                .usleep_alarm_interaction
                .map(|one| (is_made_of_alarms(one), describe_interaction(one))),
        ),
        tested_claim(
            "usleep-limit",
            "usleep() accepts less than a second; above that it fails at once.",
            evidence.usleep_above_limit.as_ref().map(|one| {
                let (requested, took) = (one.requested.as_secs_f64(), one.duration.as_secs_f64());
                let how = one.error.as_deref().unwrap_or("without an error");
                (took < requested, format!("{requested:.1} s took {took:.3} s, {how}"))
            }),
        ),
        tested_claim(
            "usleep-obsolete",
            "usleep() is obsolete.",
            evidence.posix_version.map(|version| {
                (
                    version >= 200_809,
                    format!("POSIX 2008 removed it; this C library implements {version}"),
                )
            }),
        ),
    ]
}

fn nanosleep_claims(input: &DelayClaimInput<'_>) -> [TestedDelayClaim; 6] {
    let at = |ns| input.overshoot(WaitFunction::Nanosleep, ns);
    let resumed =
        |resumption| input.result.interrupted.iter().find(|one| one.resumption == resumption);
    [
        tested_claim(
            "nanosleep-not-ns",
            "nanosleep() takes nanoseconds, but its resolution is coarser.",
            at(US).map(|d| {
                (d.p50 >= US, format!("1 µs took {} longer at the median", format_time(d.p50)))
            }),
        ),
        tested_claim(
            "nanosleep-ms",
            "For delays of milliseconds nanosleep() is accurate enough.",
            at(10 * MS).map(|d| {
                let share = d.p50 as f64 / (10 * MS) as f64;
                (share < 0.1, format!("10 ms took {:.1}% longer at the median", share * 100.0))
            }),
        ),
        tested_claim(
            "nanosleep-beats-usleep",
            "nanosleep() is more accurate than usleep() can be.",
            at(100 * US).zip(input.overshoot(WaitFunction::Usleep, 100 * US)).map(
                |(nano, micro)| {
                    let ratio = micro.p50 as f64 / nano.p50.max(1) as f64;
                    let figure = format!(
                        "at 100 µs usleep() overshoots by {}, nanosleep() by {}",
                        format_time(micro.p50),
                        format_time(nano.p50)
                    );
                    (ratio > EQUAL_RATIO_MAX, figure)
                },
            ),
        ),
        tested_claim(
            "nanosleep-errors",
            "A program that ignores the return value of nanosleep() may use a CPU fully.",
            input.evidence.invalid_sleep_loop.map(|one| {
                let figure = format!(
                    "with an invalid time it returned {} times in {:.0} ms and never slept ({:.0}% \
                     of a core)",
                    one.calls,
                    one.time.as_secs_f64() * 1e3,
                    one.processor_share * 100.0
                );
                // On a busy host the loop may not get a whole core, but it never sleeps.
                (one.voluntary_switches == 0, figure)
            }),
        ),
        tested_claim(
            "nanosleep-interrupted",
            "A signal ends nanosleep() early, which its return value reports.",
            resumed(InterruptedSleepStrategy::None).map(|one| {
                let figure = format!(
                    "{} returned after {} when the return value was ignored",
                    format_time(one.requested_ns),
                    format_time(one.duration_ns)
                );
                (one.duration_ns < one.requested_ns, figure)
            }),
        ),
        tested_claim(
            "nanosleep-resumed",
            "A wait resumed with the remaining time lasts as long as it should, and sleeps.",
            resumed(InterruptedSleepStrategy::Remaining).map(|one| {
                let share = one.processor_ns as f64 / one.duration_ns.max(1) as f64;
                let is_so = one.duration_ns >= one.requested_ns
                    && one.duration_ns < 2 * one.requested_ns
                    && share < 0.5;
                let figure = format!(
                    "{} took {} over {} signals, at {:.1}% of a core",
                    format_time(one.requested_ns),
                    format_time(one.duration_ns),
                    one.interruptions,
                    share * 100.0
                );
                (is_so, figure)
            }),
        ),
    ]
}

fn select_claims(input: &DelayClaimInput<'_>) -> [TestedDelayClaim; 2] {
    [
        tested_claim(
            "select-exact",
            "select() is accurate to the microsecond.",
            input.overshoot(WaitFunction::Select, 10 * MS).map(|d| {
                (d.p50 < 2 * US, format!("10 ms took {} longer at the median", format_time(d.p50)))
            }),
        ),
        tested_claim(
            "select-best",
            "select() is the best function for a delay.",
            input.overshoot(WaitFunction::Select, 100 * MS)
                .zip(input.overshoot(WaitFunction::ClockNanosleepAbsolute, 100 * MS))
                .map(|(select, nano)| {
                    // Compared by the minimum, since a busy host adds arbitrary time to either
                    // median.
                    let ratio = nano.min as f64 / select.min.max(1) as f64;
                    let figure = format!(
                        "at 100 ms it overshoots by {} at least, clock_nanosleep() by {}: its slack \
                         is a thousandth of the delay",
                        format_time(select.min),
                        format_time(nano.min)
                    );
                    (ratio > EQUAL_RATIO_MAX, figure)
                }),
        ),
    ]
}
