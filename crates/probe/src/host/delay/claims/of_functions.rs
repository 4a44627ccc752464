//! Claims about the functions to wait by.

use horolog_record::{Claim, DelayKind, DelaySlack, Resumption};
use horolog_sys::alarm::BesideAlarm;

use super::{Seen, claim, time};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
/// Two medians that differ by less are alike on a busy machine.
const ALIKE: f64 = 1.5;

pub(super) fn all(seen: &Seen<'_>) -> Vec<Claim> {
    let mut claims = Vec::from(of_sleep(seen));
    claims.extend(of_usleep(seen));
    claims.extend(of_usleep_s_faults(seen));
    claims.extend(of_nanosleep(seen));
    claims.extend(of_select(seen));
    claims
}

/// A wait that is made of an alarm replaces the one that is pending, or brings its signal.
fn is_made_of_alarms(beside: BesideAlarm) -> bool {
    beside.signals > 0 || beside.elapsed_s > 5
}

fn beside(beside: BesideAlarm) -> String {
    format!(
        "{} signals came, and an alarm that was pending came nearer by {} s",
        beside.signals, beside.elapsed_s
    )
}

fn of_sleep(seen: &Seen<'_>) -> [Claim; 3] {
    let exact = |kind| {
        seen.overshoot(kind, S).map(|d| {
            let figure = format!("a second took {} more in the median", time(d.p50));
            (d.p50 < S / 100, figure)
        })
    };
    [
        claim("sleep-exact", "sleep() is exact to the second.", exact(DelayKind::Sleep)),
        claim(
            "sleep-is-alarm",
            "sleep() sets a handler for SIGALRM, calls alarm() and pauses.",
            seen.evidence.sleep_beside_alarm.map(|one| (is_made_of_alarms(one), beside(one))),
        ),
        claim(
            "alarm-ends-pause",
            "pause() returns when the signal of alarm() has been handled, and the program goes on.",
            exact(DelayKind::AlarmPause),
        ),
    ]
}

fn of_usleep(seen: &Seen<'_>) -> [Claim; 4] {
    let shortest = || seen.overshoot(DelayKind::Usleep, US);
    let tick_ns = seen.result.tick.tick_ns;
    [
        claim(
            "usleep-tick",
            "usleep() is no finer than a tick: at HZ = 250 a short one takes 4 ms.",
            shortest().zip(tick_ns).map(|(d, tick)| {
                let took = d.p50 + US;
                let figure =
                    format!("1 µs took {} in the median, a tick is {}", time(took), time(tick));
                (took >= tick / 2, figure)
            }),
        ),
        claim("usleep-at-least", "usleep() waits at least as long as it is asked to.", {
            let cells = || {
                seen.result.cells.iter().filter(|cell| {
                    cell.function == DelayKind::Usleep && cell.overshoot_ns.is_some()
                })
            };
            let waits: u64 =
                cells().filter_map(|cell| Some(cell.overshoot_ns.as_ref()?.count)).sum();
            let early: u64 = cells().map(|cell| cell.early).sum();
            (waits > 0).then(|| (early == 0, format!("{early} of {waits} waits ended early")))
        }),
        claim(
            "short-is-longer",
            "Short delays take longer than they were set to.",
            seen.overshoot(DelayKind::Usleep, 100 * US).map(|d| {
                let share = d.p50 as f64 / (100 * US) as f64;
                let figure = format!(
                    "100 µs took {:.0}% more in the median, never less than {} more",
                    share * 100.0,
                    time(d.min)
                );
                (share > 0.05, figure)
            }),
        ),
        claim(
            "switch-10-ms",
            "Going into the kernel and out again takes 10 to 30 ms.",
            seen.under(DelayKind::Usleep, US, DelaySlack::Minimal).or_else(shortest).map(|d| {
                let figure = format!(
                    "a wait of 1 µs, with falling asleep and waking, took {} more in the median",
                    time(d.p50)
                );
                (d.p50 >= 5 * MS, figure)
            }),
        ),
    ]
}

fn of_usleep_s_faults(seen: &Seen<'_>) -> [Claim; 3] {
    let evidence = seen.evidence;
    [
        claim(
            "usleep-signals",
            "usleep() has an effect on signals.",
            evidence.usleep_beside_alarm.map(|one| (is_made_of_alarms(one), beside(one))),
        ),
        claim(
            "usleep-limit",
            "usleep() takes less than a second; with more it fails at once.",
            evidence.usleep_above_limit.as_ref().map(|one| {
                let (asked, took) = (one.asked.as_secs_f64(), one.took.as_secs_f64());
                let how = one.error.as_deref().unwrap_or("without an error");
                (took < asked, format!("{asked:.1} s took {took:.3} s, {how}"))
            }),
        ),
        claim(
            "usleep-obsolete",
            "usleep() is a function of the past.",
            evidence.posix_version.map(|version| {
                (
                    version >= 200_809,
                    format!("POSIX 2008 left it out; this C library is of {version}"),
                )
            }),
        ),
    ]
}

fn of_nanosleep(seen: &Seen<'_>) -> [Claim; 6] {
    let at = |ns| seen.overshoot(DelayKind::Nanosleep, ns);
    let resumed =
        |resumption| seen.result.interrupted.iter().find(|one| one.resumption == resumption);
    [
        claim(
            "nanosleep-not-ns",
            "nanosleep() takes nanoseconds and is not as fine as that.",
            at(US).map(|d| (d.p50 >= US, format!("1 µs took {} more in the median", time(d.p50)))),
        ),
        claim(
            "nanosleep-ms",
            "For delays of milliseconds nanosleep() is exact enough.",
            at(10 * MS).map(|d| {
                let share = d.p50 as f64 / (10 * MS) as f64;
                (share < 0.1, format!("10 ms took {:.1}% more in the median", share * 100.0))
            }),
        ),
        claim(
            "nanosleep-beats-usleep",
            "nanosleep() is finer than usleep() can be.",
            at(100 * US).zip(seen.overshoot(DelayKind::Usleep, 100 * US)).map(|(nano, micro)| {
                let ratio = micro.p50 as f64 / nano.p50.max(1) as f64;
                let figure = format!(
                    "at 100 µs usleep() overshoots by {}, nanosleep() by {}",
                    time(micro.p50),
                    time(nano.p50)
                );
                (ratio > ALIKE, figure)
            }),
        ),
        claim(
            "nanosleep-errors",
            "A program that does not look at what nanosleep() returns may use all of a processor.",
            seen.evidence.no_time.map(|one| {
                let figure = format!(
                    "with a time that is none it returned {} times in {:.0} ms and never slept ({:.0}% \
                     of a core)",
                    one.calls,
                    one.time.as_secs_f64() * 1e3,
                    one.processor_share * 100.0
                );
                // On a busy machine it does not get all of a core, but it asks for it.
                (one.sleeps == 0, figure)
            }),
        ),
        claim(
            "nanosleep-interrupted",
            "A signal ends nanosleep() early, which its return value tells.",
            resumed(Resumption::None).map(|one| {
                let figure = format!(
                    "{} ended after {} where nobody looked",
                    time(one.requested_ns),
                    time(one.took_ns)
                );
                (one.took_ns < one.requested_ns, figure)
            }),
        ),
        claim(
            "nanosleep-resumed",
            "One that is resumed with what was left waits as long as it should, and sleeps.",
            resumed(Resumption::Remaining).map(|one| {
                let share = one.processor_ns as f64 / one.took_ns.max(1) as f64;
                let is_so = one.took_ns >= one.requested_ns
                    && one.took_ns < 2 * one.requested_ns
                    && share < 0.5;
                let figure = format!(
                    "{} took {} over {} signals, at {:.1}% of a core",
                    time(one.requested_ns),
                    time(one.took_ns),
                    one.interruptions,
                    share * 100.0
                );
                (is_so, figure)
            }),
        ),
    ]
}

fn of_select(seen: &Seen<'_>) -> [Claim; 2] {
    [
        claim(
            "select-exact",
            "select() is exact to the microsecond.",
            seen.overshoot(DelayKind::Select, 10 * MS).map(|d| {
                (d.p50 < 2 * US, format!("10 ms took {} more in the median", time(d.p50)))
            }),
        ),
        claim(
            "select-best",
            "select() is the function of choice for a delay.",
            seen.overshoot(DelayKind::Select, 100 * MS)
                .zip(seen.overshoot(DelayKind::ClockNanosleepAbsolute, 100 * MS))
                .map(|(select, nano)| {
                    // The least, since a busy machine adds to either what it likes.
                    let ratio = nano.min as f64 / select.min.max(1) as f64;
                    let figure = format!(
                        "at 100 ms it overshoots by {} at least, clock_nanosleep() by {}: its slack \
                         is a thousandth of the delay",
                        time(select.min),
                        time(nano.min)
                    );
                    (ratio > ALIKE, figure)
                }),
        ),
    ]
}
