//! What the terminal and the page say alike of a host's clocks: each fact with one line on what it
//! means.

use horolog_record::{
    ClockFacts, HostClockResult, HzSource, KernelDiscipline, LeapState, PhcFacts, RtcFacts,
    TickFacts, TickMode,
};

use crate::facts::{Fact, FactGroup, UNKNOWN, fact, listed};
use crate::units::{ABSENT, full_count, human_ns, percent, signed_ns};

/// The headings of the clocks' figures, without the name's.
pub(crate) const CLOCK_TITLES: [&str; 6] =
    ["resolution", "step seen", "cost", "read by", "rate", "doubt"];

/// What the clocks' figures are.
pub(crate) const CLOCKS_NOTE: &str = "Resolution: what the clock states of itself. Step: the \
                                      smallest in which it was seen to move. Cost: of one reading. \
                                      Rate: how much faster it ran than CLOCK_MONOTONIC, with the \
                                      doubt of that.";

const DAYS_PER_YEAR: f64 = 365.25;
/// A rate with more doubt is not shown: a coarse clock's on a busy machine.
const DOUBT_MAX_PPM: f64 = 100.0;

/// All facts but the clocks' figures.
pub(crate) fn groups(result: &HostClockResult) -> Vec<FactGroup> {
    vec![
        FactGroup { title: "Tick", facts: tick(&result.tick) },
        FactGroup { title: "Clock", facts: clock(result) },
        FactGroup { title: "Hardware clocks", facts: hardware(result) },
        FactGroup { title: "Kernel's discipline", facts: discipline(result.kernel) },
        FactGroup { title: "Waking", facts: waking(result) },
    ]
}

fn tick(tick: &TickFacts) -> Vec<Fact> {
    let hz = tick.hz.map_or_else(|| UNKNOWN.to_owned(), |hz| hz.to_string());
    let how = match (tick.known_by, &tick.config_file) {
        (Some(HzSource::Config), Some(file)) => format!("known by CONFIG_HZ in {file}"),
        (Some(HzSource::Config), None) => "known by CONFIG_HZ".to_owned(),
        (Some(HzSource::Resolution), _) => {
            "known by the resolution that CLOCK_MONOTONIC_COARSE states".to_owned()
        }
        (Some(HzSource::Measured), _) => "measured: the steps of CLOCK_MONOTONIC_COARSE".to_owned(),
        (None, _) => "neither configured nor seen".to_owned(),
    };
    let time = |ns: Option<u64>| ns.map_or_else(|| UNKNOWN.to_owned(), human_ns);
    let mut facts = vec![
        fact("HZ", hz, format!("timer interrupts a second on a busy core; {how}")),
        fact(
            "tick",
            time(tick.tick_ns),
            format!(
                "1/HZ; the coarse clocks were seen to move by {}, and what counts in jiffies (TCP's \
                 timers, timeouts of drivers) is no finer",
                time(tick.tick_measured_ns)
            ),
        ),
        fact("tick stops", mode_name(tick.mode), mode_meaning(tick.mode)),
        fact(
            "high-resolution timers",
            yes_no(tick.high_resolution),
            "with them sleeps end between ticks; without, a sleep is a whole number of ticks",
        ),
        fact(
            "USER_HZ",
            tick.user_hz.map_or_else(|| UNKNOWN.to_owned(), |hz| hz.to_string()),
            "the unit of times in /proc and of times(2); fixed for programs' sake, not the timer's",
        ),
    ];
    facts.extend(jiffies(tick));
    facts
}

fn jiffies(tick: &TickFacts) -> Vec<Fact> {
    let count = tick.jiffies.map_or_else(|| "needs root".to_owned(), full_count);
    let next = tick.next_wrap_32_days.map_or_else(String::new, |days| {
        format!("; its low 32 bits are through in {days:.1} days")
    });
    let days = |days: Option<f64>| match days {
        None => UNKNOWN.to_owned(),
        Some(days) if days < 10_000.0 => format!("{days:.1} days"),
        Some(days) => format!("{:.3e} days ({:.3e} years)", days, days / DAYS_PER_YEAR),
    };
    let per_tick =
        tick.tick_ns.map_or_else(|| UNKNOWN.to_owned(), |ns| format!("× {} ns", full_count(ns)));
    vec![
        fact(
            "jiffies",
            count,
            format!(
                "ticks counted, from five minutes before 2³² on so that a wrong comparison shows \
                 early{next}"
            ),
        ),
        fact(
            "jiffies to ns",
            per_tick,
            "what jiffies_to_nsecs() computes; the other way rounds to a whole tick",
        ),
        fact(
            "wrap at 32 bit",
            days(tick.wrap_32_days),
            "then 0xffffffff is followed by 0: 'now > then' turns false though it is later, while \
             the sign of the difference (time_after()) stays right for half of the range",
        ),
        fact(
            "wrap at 64 bit",
            days(tick.wrap_64_days),
            format!("of jiffies_64; jiffies itself has {} bits here", tick.jiffies_bits),
        ),
    ]
}

const fn mode_name(mode: Option<TickMode>) -> &'static str {
    match mode {
        None => UNKNOWN,
        Some(TickMode::Periodic) => "never",
        Some(TickMode::Idle) => "on idle cores",
        Some(TickMode::Full) => "on idle cores and on those named at boot",
    }
}

const fn mode_meaning(mode: Option<TickMode>) -> &'static str {
    match mode {
        None => "the kernel's configuration cannot be read",
        Some(TickMode::Periodic) => "each core is interrupted HZ times a second, idle or not",
        Some(TickMode::Idle) => "an idle core takes no interrupts and may sleep deeper",
        Some(TickMode::Full) => "a core named in nohz_full is left alone while one task runs on it",
    }
}

fn clock(result: &HostClockResult) -> Vec<Fact> {
    let source = &result.clocksource;
    let mut facts = vec![
        fact(
            "xtime",
            "CLOCK_REALTIME",
            "the kernel's time of day: in ns, brought up at each tick and interpolated by the \
             clocksource in between; gettimeofday() shows it in µs, time() in s, the coarse clock \
             as of the last tick",
        ),
        fact(
            "clocksource",
            source.current.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
            "the counter that all clocks interpolate by; tsc and kvm-clock are read without a \
             system call, hpet and acpi_pm cost microseconds",
        ),
        fact(
            "alternatives",
            listed(&source.available, UNKNOWN),
            "in /sys/devices/system/clocksource/clocksource0/available_clocksource",
        ),
        fact(
            "TSC",
            listed(&source.tsc_flags, "the processor says nothing of it"),
            "constant_tsc: its rate does not follow the frequency; nonstop_tsc: it counts on in \
             deep idle states; only with both it can be the clock",
        ),
    ];
    if let Some(ns) = result.system_call_ns {
        let cost = format!("{ns:.0} ns");
        facts.push(fact("system call", cost, "one reading that goes through the kernel"));
    }
    facts.push(match result.cores {
        None => fact("across cores", ABSENT, "one core alone may be used: nothing to compare"),
        Some(order) => fact(
            "across cores",
            format!(
                "{} of {} went back",
                full_count(order.backwards),
                full_count(order.handed_over)
            ),
            format!(
                "readings of CLOCK_MONOTONIC on {} cores, each after one of another core; one that \
                 is earlier would order events wrongly",
                order.cores
            ),
        ),
    });
    let waking = &result.waking;
    if (waking.namespace_monotonic_ns, waking.namespace_boottime_ns) != (0, 0) {
        facts.push(fact(
            "time namespace",
            format!(
                "monotonic {}, boottime {}",
                signed_ns(waking.namespace_monotonic_ns),
                signed_ns(waking.namespace_boottime_ns)
            ),
            "this process sees these clocks moved by so much",
        ));
    }
    facts
}

fn hardware(result: &HostClockResult) -> Vec<Fact> {
    let mut facts: Vec<_> = result.rtcs.iter().map(rtc).collect();
    if facts.is_empty() {
        facts.push(fact(
            "RTC",
            "none",
            "this machine has no /sys/class/rtc: nothing keeps the time while it is off, and at \
             boot its hypervisor or the network says it",
        ));
    }
    let before = facts.len();
    facts.extend(result.phcs.iter().map(phc));
    if facts.len() == before {
        facts.push(fact(
            "PTP clock",
            "none",
            "no card here has a clock of its own (/dev/ptpN): timestamps are the kernel's",
        ));
    }
    facts
}

fn offset(ahead_ns: Option<i64>, doubt_ns: Option<u64>, error: Option<&str>) -> String {
    match (ahead_ns, doubt_ns) {
        (Some(ahead), Some(doubt)) => {
            format!("system clock ahead by {} ± {}", signed_ns(ahead), human_ns(doubt))
        }
        _ => error.unwrap_or(UNKNOWN).to_owned(),
    }
}

fn rtc(rtc: &RtcFacts) -> Fact {
    let set = match rtc.set_system_clock {
        Some(true) => "; the system clock was set by it at boot",
        Some(false) => "; the system clock was not set by it",
        None => "",
    };
    let driver = rtc.driver.as_deref().unwrap_or("unknown driver");
    fact(
        rtc.name.clone(),
        offset(rtc.system_ahead_ns, rtc.doubt_ns, rtc.error.as_deref()),
        format!("keeps the time while the machine is off ({driver}){set}"),
    )
}

fn phc(phc: &PhcFacts) -> Fact {
    let name = phc.clock_name.as_deref().unwrap_or("unnamed");
    fact(
        phc.device.clone(),
        offset(phc.system_ahead_ns, phc.doubt_ns, phc.error.as_deref()),
        format!("the clock of a card ({name}); kept by PTP it is on TAI, 37 s ahead of UTC"),
    )
}

fn discipline(kernel: Option<KernelDiscipline>) -> Vec<Fact> {
    let Some(kernel) = kernel else {
        return vec![fact("adjtimex", "forbidden", "a sandbox keeps the kernel from being asked")];
    };
    let leap = match kernel.leap {
        LeapState::None => "none",
        LeapState::Insert => "a second is inserted at the end of the UTC day",
        LeapState::Delete => "a second is left out at the end of the UTC day",
        LeapState::Unsynchronised => "unknown",
    };
    let tai = match kernel.tai_offset_s {
        0 => "nobody told the kernel, so CLOCK_TAI is UTC here",
        _ => "CLOCK_TAI is ahead of CLOCK_REALTIME by so much",
    };
    vec![
        fact(
            "synchronised",
            yes_no(Some(kernel.synchronised)),
            "whether a program (chronyd, ntpd, ptp4l) has said that it keeps this clock right",
        ),
        fact(
            "frequency",
            format!("{:+.3} ppm", kernel.frequency_ppb / 1e3),
            "what is added to the oscillator's own: 1 ppm is 86 ms a day",
        ),
        fact(
            "maximum error",
            signed_ns(kernel.maximum_error_ns).trim_start_matches('+').to_owned(),
            "bound given by that program, growing by 500 ppm since; 16 s is the end of it",
        ),
        fact(
            "estimated error",
            signed_ns(kernel.estimated_error_ns).trim_start_matches('+').to_owned(),
            "what that program takes its own error for",
        ),
        fact("TAI minus UTC", format!("{} s", kernel.tai_offset_s), tai),
        fact("leap second", leap, "what the kernel was told is to come"),
    ]
}

fn waking(result: &HostClockResult) -> Vec<Fact> {
    let waking = &result.waking;
    let slack = waking.timer_slack_ns.map_or_else(|| UNKNOWN.to_owned(), human_ns);
    let state = |state: &horolog_record::IdleState| {
        let off = if state.disabled { ", off" } else { "" };
        format!("{} ({}{off})", state.name, human_ns(state.exit_latency_ns))
    };
    let states: Vec<_> = waking.idle_states.iter().map(state).collect();
    let driver = waking.idle_driver.as_deref().unwrap_or("no driver");
    vec![
        fact(
            "timer slack",
            slack,
            "an ordinary thread's sleeps may end so much later to join other wake-ups \
             (PR_SET_TIMERSLACK); real-time threads have none",
        ),
        fact(
            "frequency governor",
            listed(&waking.governors, "none"),
            "who chooses the processors' frequency; without one the hardware or the hypervisor does",
        ),
        fact(
            "idle states",
            listed(&states, "none told"),
            format!(
                "how an idle core sleeps and how long it takes to leave that ({driver}); an open \
                 /dev/cpu_dma_latency keeps it from deep ones"
            ),
        ),
        fact(
            "virtualisation",
            match (&waking.hypervisor, result.host.virtualised) {
                (Some(name), _) => name.clone(),
                (None, Some(false)) => "none".to_owned(),
                (None, _) => UNKNOWN.to_owned(),
            },
            "under a hypervisor a timer is late by an exit or two, and by whatever time other guests \
             take",
        ),
        fact(
            "stolen time",
            waking.stolen_share.map_or_else(|| UNKNOWN.to_owned(), percent),
            "share of all cores' time in which the hypervisor ran something else in this run",
        ),
    ]
}

fn yes_no(value: Option<bool>) -> &'static str {
    match value {
        Some(true) => "yes",
        Some(false) => "no",
        None => UNKNOWN,
    }
}

/// A clock's figures, in the order of [`CLOCK_TITLES`].
pub(crate) fn figures(clock: &ClockFacts) -> [String; 6] {
    let absent = || ABSENT.to_owned();
    let ns = |ns: Option<u64>| ns.map_or_else(absent, human_ns);
    let by = match clock.by_vdso {
        Some(true) => "vDSO",
        Some(false) => "system call",
        None => ABSENT,
    };
    // What is not known to a ten-thousandth is not worth telling.
    let is_known = clock.rate_doubt_ppm.is_none_or(|doubt| doubt < DOUBT_MAX_PPM);
    let known = clock.rate_ppm.filter(|_| is_known);
    let ppm =
        |ppm: f64| format!("{ppm:+.3} ppm").replace("-0.000", "0.000").replace("+0.000", "0.000");
    [
        ns(clock.resolution_ns),
        ns(clock.step_ns),
        clock.cost_ns.map_or_else(absent, |cost| format!("{cost:.1} ns")),
        by.to_owned(),
        known.map_or_else(absent, ppm),
        clock.rate_doubt_ppm.map_or_else(absent, |doubt| format!("{doubt:.3} ppm")),
    ]
}
