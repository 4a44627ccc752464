//! Claims about the tick, its counters, and the clocks.

use horolog_record::TestedDelayClaim;

use super::{DelayClaimInput, format_time, tested_claim};

const SECONDS_PER_DAY: f64 = 86_400.0;
const DAYS_PER_YEAR: f64 = 365.25;
/// Tick rates in Hz that a kernel can be configured for.
const USUAL_HZ: [u32; 4] = [100, 250, 300, 1_000];
/// Claimed wrap time of a 32-bit tick counter at HZ = 100, in days.
const CLAIMED_DAYS: f64 = 497.0;

pub(super) fn time_claims(input: &DelayClaimInput<'_>) -> Vec<TestedDelayClaim> {
    let mut claims = Vec::from(tick_claims(input));
    claims.extend(jiffies_claims(input));
    claims.extend(clock_claims(input));
    claims
}

fn tick_claims(input: &DelayClaimInput<'_>) -> [TestedDelayClaim; 6] {
    let (tick, evidence) = (&input.result.tick, input.evidence);
    let hz = tick.hz;
    let is_hz = |wanted: u32| hz.map(|hz| (hz == wanted, format!("HZ = {hz}")));
    [
        tested_claim(
            "hz-choices",
            "HZ is 100, 250, 300 or 1000, selected at kernel build time.",
            hz.map(|hz| (USUAL_HZ.contains(&hz), format!("HZ = {hz}"))),
        ),
        tested_claim("hz-default", "HZ is 250 by default.", is_hz(250)),
        tested_claim(
            "hz-2-6",
            "Since Linux 2.6 HZ is 1000, so the clock interrupts every millisecond.",
            is_hz(1_000),
        ),
        tested_claim(
            "irq-0",
            "The timer interrupt is IRQ 0 and occurs HZ times per second.",
            hz.zip(evidence.irq_0_per_s).map(|(hz, rate)| {
                let is_so = (rate - f64::from(hz)).abs() < f64::from(hz) / 20.0;
                (is_so, format!("IRQ 0 occurred {rate:.1} times per second, HZ = {hz}"))
            }),
        ),
        tested_claim(
            "tick-inverse",
            "A tick is 1/HZ: 4 ms at HZ = 250.",
            // The resolution is preferred: an observed step may be several ticks if this thread was
            // preempted.
            hz.zip(tick.coarse_resolution_ns.or(tick.tick_measured_ns)).map(|(hz, ns)| {
                let product = f64::from(hz) * ns as f64 / 1e9;
                let figure = format!("the coarse clock advances by {}, HZ = {hz}", format_time(ns));
                ((product - 1.0).abs() < 0.02, figure)
            }),
        ),
        tested_claim(
            "jiffies-per-second",
            "jiffies advances by HZ per second.",
            hz.zip(evidence.jiffies_per_s).map(|(hz, rate)| {
                let is_so = (rate - f64::from(hz)).abs() < f64::from(hz) / 50.0;
                (is_so, format!("it advanced by {rate:.1} per second, HZ = {hz}"))
            }),
        ),
    ]
}

fn jiffies_claims(input: &DelayClaimInput<'_>) -> [TestedDelayClaim; 5] {
    let tick = &input.result.tick;
    let days_at_100 = 2_f64.powi(32) / 100.0 / SECONDS_PER_DAY;
    let here = tick
        .wrap_32_days
        .map_or_else(String::new, |days| format!("; at this HZ 32 bits last {days:.1} days"));
    [
        tested_claim(
            "wrap-497-days",
            "At HZ = 100 a 32-bit counter overflows after about 497 days.",
            Some((
                (days_at_100 - CLAIMED_DAYS).abs() < 1.0,
                format!("2³² / 100 s = {days_at_100:.1} days{here}"),
            )),
        ),
        tested_claim(
            "jiffies-overflows",
            "jiffies, an unsigned long, overflows after little more than a year.",
            Some((
                tick.jiffies_bits == 32,
                format!("an unsigned long has {} bits on this host", tick.jiffies_bits),
            )),
        ),
        tested_claim(
            "jiffies-64",
            "jiffies_64 lasts for millions of years.",
            tick.wrap_64_days.map(|days| {
                let years = days / DAYS_PER_YEAR;
                (years > 1e6, format!("{years:.2e} years"))
            }),
        ),
        tested_claim(
            "jiffies-low-half",
            "jiffies is the low 32 bits of jiffies_64.",
            tick.jiffies.map(|jiffies| {
                let is_half = tick.jiffies_bits == 32;
                (is_half, format!("it has {} bits and its value is {jiffies}", tick.jiffies_bits))
            }),
        ),
        tested_claim(
            "time-before",
            "Counters must be compared by time_before() and time_after(), not by '<'.",
            Some((
                is_after(5, u32::MAX - 5) && !is_numerically_greater(5, u32::MAX - 5),
                "11 ticks after 0xfffffffa a 32-bit counter is 5: '<' orders that earlier, the \
                 sign of the difference later"
                    .to_owned(),
            )),
        ),
    ]
}

/// Computes the kernel's `time_after()`, which is correct across the overflow for differences below
/// 2^31.
const fn is_after(now: u32, then: u32) -> bool {
    then.wrapping_sub(now).cast_signed() < 0
}

const fn is_numerically_greater(now: u32, then: u32) -> bool {
    now > then
}

fn clock_claims(input: &DelayClaimInput<'_>) -> [TestedDelayClaim; 3] {
    let (tick, evidence) = (&input.result.tick, input.evidence);
    [
        tested_claim(
            "gettimeofday-microsecond",
            "gettimeofday() returns the time of day (xtime) to the microsecond.",
            evidence.gettimeofday_step_ns.map(|ns| {
                (ns == 1_000, format!("the smallest observed step is {}", format_time(ns)))
            }),
        ),
        tested_claim(
            "clock-as-fine-as-tick",
            "The system clock has the resolution of its tick: 4 ms at HZ = 250.",
            evidence.step_ns.zip(tick.tick_ns).map(|(step, tick)| {
                let is_so = step > tick / 2;
                (
                    is_so,
                    format!(
                        "it moves in steps of {}, the tick is {}",
                        format_time(step),
                        format_time(tick)
                    ),
                )
            }),
        ),
        tested_claim(
            "rtc-sets-time",
            "At boot the kernel reads the real-time clock and sets the time of day from it.",
            Some(match (evidence.rtcs, evidence.is_set_by_rtc) {
                (0, _) => (false, "this host has no real-time clock".to_owned()),
                (_, true) => (true, "its real-time clock reports that (hctosys is 1)".to_owned()),
                (_, false) => (false, "its real-time clock was not used (hctosys is 0)".to_owned()),
            }),
        ),
    ]
}
