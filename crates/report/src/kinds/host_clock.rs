//! Document of a result of `horolog host clock`: facts with their meaning, and one row per clock.

use horolog_record::{
    ClockFacts, HostClockResult, KernelDiscipline, LeapState, PhcFacts, RtcFacts, TickFacts,
    TickMode, TickRateSource,
};

use super::host_all;
use crate::document::{
    BlockContent, DescribeResult, HeadlineMetric, NameColumn, NamedRow, NamedRowTable,
    ResultDocument, run_of,
};
use crate::facts::{FactGroup, HostFact, UNKNOWN, fact, listed};
use crate::metrics::{Metric, NamedItems, of_items};
use crate::units::{ABSENT, full_count, human_ns, mean_ns, percent, sentence, signed_ns};

const COLUMNS: [(&str, usize); 6] = [
    ("resolution", 10),
    ("min step", 9),
    ("cost", 9),
    ("read by", 11),
    ("rate", 12),
    ("± bound", 10),
];

const METHOD: &str = "Resolution: as reported by clock_getres(). Min step: \
                                      smallest observed increment. Cost: of one reading. Rate: \
                                      relative to CLOCK_MONOTONIC, with its error bound.";

const DAYS_PER_YEAR: f64 = 365.25;
/// Largest error bound of a relative rate that is shown, in ppm; the rate of a coarse clock on a
/// busy host has a larger one.
const RATE_ERROR_MAX_PPM: f64 = 100.0;

impl DescribeResult for HostClockResult {
    fn document(&self) -> ResultDocument<'_> {
        let read = self.clocks.iter().find(|clock| clock.name == "REALTIME");
        let facts = groups(self).into_iter().map(|group| {
            let title = group.title;
            BlockContent::Facts(group).under(title)
        });
        ResultDocument {
            kind: "host clock",
            heading: "clocks of this host".to_owned(),
            lead: format!("observed for {}, started {}", human_ns(self.observed_ns), self.started),
            headline: HeadlineMetric {
                name: "CLOCK_REALTIME read cost".to_owned(),
                value: read.and_then(|clock| clock.cost_ns).map(mean_ns),
                sentence: sentence(&host_all::clock(self)),
            },
            blocks: facts.chain([BlockContent::Table(clocks(self)).under("Clocks")]).collect(),
            method: METHOD,
            limits: &[],
            findings: &self.findings,
            run: run_of!(self),
        }
    }

    fn metrics() -> Vec<Metric<Self>> {
        let call = Metric::time("system-call", |result: &Self| result.system_call_ns);
        let cost = Metric::time("clock-cost", |clock: &ClockFacts| clock.cost_ns);
        of_items(clocks_by_name, [cost]).chain([call]).collect()
    }
}

fn clocks_by_name(result: &HostClockResult) -> NamedItems<'_, ClockFacts> {
    result.clocks.iter().map(|clock| (clock.name.clone(), clock)).collect()
}

fn clocks(result: &HostClockResult) -> NamedRowTable {
    let row = |clock: &ClockFacts| NamedRow {
        name: clock.name.clone(),
        cells: clock.error.clone().map_or_else(|| Ok(cells(clock).to_vec()), Err),
    };
    NamedRowTable {
        id: "clocks",
        label: "Clocks",
        names: NameColumn::words("CLOCK_", 18),
        columns: COLUMNS.map(|(title, width)| (title.into(), width)).to_vec(),
        rows: result.clocks.iter().map(row).collect(),
    }
}

/// Returns all facts except those about single clocks.
fn groups(result: &HostClockResult) -> Vec<FactGroup> {
    vec![
        FactGroup { title: "Tick", facts: tick(&result.tick) },
        FactGroup { title: "Clock", facts: clock(result) },
        FactGroup { title: "Hardware clocks", facts: hardware(result) },
        FactGroup { title: "Kernel discipline", facts: discipline(result.kernel) },
        FactGroup { title: "Wake-up", facts: waking(result) },
    ]
}

fn tick(tick: &TickFacts) -> Vec<HostFact> {
    let hz = tick.hz.map_or_else(|| UNKNOWN.to_owned(), |hz| hz.to_string());
    let how = match (tick.known_by, &tick.config_file) {
        (Some(TickRateSource::Config), Some(file)) => format!("from CONFIG_HZ in {file}"),
        (Some(TickRateSource::Config), None) => "from CONFIG_HZ".to_owned(),
        (Some(TickRateSource::Resolution), _) => {
            "from the resolution of CLOCK_MONOTONIC_COARSE".to_owned()
        }
        (Some(TickRateSource::Measured), _) => {
            "measured: the steps of CLOCK_MONOTONIC_COARSE".to_owned()
        }
        (None, _) => "neither configured nor measured".to_owned(),
    };
    let time = |ns: Option<u64>| ns.map_or_else(|| UNKNOWN.to_owned(), human_ns);
    let mut facts = vec![
        fact("HZ", hz, format!("timer interrupts a second on a busy core; {how}")),
        fact(
            "tick",
            time(tick.tick_ns),
            format!(
                "1/HZ; the coarse clocks advance by {}; jiffies-based timers (TCP, driver \
                 timeouts) have this granularity",
                time(tick.tick_measured_ns)
            ),
        ),
        fact("tick stops", mode_name(tick.mode), mode_meaning(tick.mode)),
        fact(
            "high-resolution timers",
            yes_no(tick.high_resolution),
            "if on, sleeps can end between ticks; if off, a sleep is a whole number of ticks",
        ),
        fact(
            "USER_HZ",
            tick.user_hz.map_or_else(|| UNKNOWN.to_owned(), |hz| hz.to_string()),
            "unit of times in /proc and of times(2); a fixed ABI value, not the timer frequency",
        ),
    ];
    facts.extend(jiffies(tick));
    facts
}

fn jiffies(tick: &TickFacts) -> Vec<HostFact> {
    let count = tick.jiffies.map_or_else(|| "needs root".to_owned(), full_count);
    let next = tick
        .next_wrap_32_days
        .map_or_else(String::new, |days| format!("; its low 32 bits wrap in {days:.1} days"));
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
                "tick count; starts five minutes before 2³² so that wrong comparisons fail \
                 early{next}"
            ),
        ),
        fact(
            "jiffies to ns",
            per_tick,
            "as jiffies_to_nsecs() computes; nsecs_to_jiffies() rounds to whole ticks",
        ),
        fact(
            "wrap at 32 bit",
            days(tick.wrap_32_days),
            "0xffffffff is followed by 0: 'now > then' becomes false although it is later; the \
             sign of the difference (time_after()) stays correct for half of the range",
        ),
        fact(
            "wrap at 64 bit",
            days(tick.wrap_64_days),
            format!("of jiffies_64; jiffies has {} bits here", tick.jiffies_bits),
        ),
    ]
}

const fn mode_name(mode: Option<TickMode>) -> &'static str {
    match mode {
        None => UNKNOWN,
        Some(TickMode::Periodic) => "never",
        Some(TickMode::Idle) => "on idle cores",
        Some(TickMode::Full) => "on idle and nohz_full cores",
    }
}

const fn mode_meaning(mode: Option<TickMode>) -> &'static str {
    match mode {
        None => "the kernel's configuration cannot be read",
        Some(TickMode::Periodic) => "each core is interrupted HZ times a second, idle or not",
        Some(TickMode::Idle) => "an idle core takes no tick interrupts and can sleep deeper",
        Some(TickMode::Full) => "a nohz_full core has no tick while it runs a single task",
    }
}

fn clock(result: &HostClockResult) -> Vec<HostFact> {
    let source = &result.clocksource;
    let mut facts = vec![
        fact(
            "xtime",
            "CLOCK_REALTIME",
            "kernel time of day in ns, updated at each tick and interpolated by the clocksource \
             in between; gettimeofday() returns it in µs, time() in s, the coarse clock as of the \
             last tick",
        ),
        fact(
            "clocksource",
            source.current.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
            "counter by which all clocks interpolate; tsc and kvm-clock are read without a \
             system call, hpet and acpi_pm cost microseconds",
        ),
        fact(
            "alternatives",
            listed(&source.available, UNKNOWN),
            "in /sys/devices/system/clocksource/clocksource0/available_clocksource",
        ),
        fact(
            "TSC",
            listed(&source.tsc_flags, "no TSC flags"),
            "constant_tsc: constant rate at all CPU frequencies; nonstop_tsc: runs in deep idle \
             states; both are required for use as clocksource",
        ),
    ];
    if let Some(ns) = result.system_call_ns {
        let cost = format!("{ns:.0} ns");
        facts.push(fact("system call", cost, "one reading by system call"));
    }
    facts.push(match result.cores {
        None => fact("across cores", ABSENT, "only one core is usable: nothing to compare"),
        Some(order) => fact(
            "across cores",
            format!("{} of {} backwards", full_count(order.backwards), full_count(order.handoffs)),
            format!(
                "readings of CLOCK_MONOTONIC on {} cores, each after one on another core; a \
                 backward step would order events wrongly",
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
            "offsets of these clocks for this process",
        ));
    }
    facts
}

fn hardware(result: &HostClockResult) -> Vec<HostFact> {
    let mut facts: Vec<_> = result.rtcs.iter().map(rtc).collect();
    if facts.is_empty() {
        facts.push(fact(
            "RTC",
            "none",
            "no /sys/class/rtc: no clock runs while the host is off; at boot the time comes from \
             the hypervisor or the network",
        ));
    }
    let before = facts.len();
    facts.extend(result.phcs.iter().map(phc));
    if facts.len() == before {
        facts.push(fact(
            "PTP clock",
            "none",
            "no NIC has a PHC (/dev/ptpN): timestamps are taken by the kernel",
        ));
    }
    facts
}

fn offset(ahead_ns: Option<i64>, error_bound_ns: Option<u64>, error: Option<&str>) -> String {
    match (ahead_ns, error_bound_ns) {
        (Some(ahead), Some(error_bound)) => {
            format!("system clock ahead by {} ± {}", signed_ns(ahead), human_ns(error_bound))
        }
        _ => error.unwrap_or(UNKNOWN).to_owned(),
    }
}

fn rtc(rtc: &RtcFacts) -> HostFact {
    let set = match rtc.set_system_clock {
        Some(true) => "; the system clock was set by it at boot",
        Some(false) => "; the system clock was not set by it",
        None => "",
    };
    let driver = rtc.driver.as_deref().unwrap_or("unknown driver");
    fact(
        rtc.name.clone(),
        offset(rtc.system_ahead_ns, rtc.error_bound_ns, rtc.error.as_deref()),
        format!("runs while the host is off ({driver}){set}"),
    )
}

fn phc(phc: &PhcFacts) -> HostFact {
    let name = phc.clock_name.as_deref().unwrap_or("unnamed");
    fact(
        phc.device.clone(),
        offset(phc.system_ahead_ns, phc.error_bound_ns, phc.error.as_deref()),
        format!("PHC of a NIC ({name}); disciplined by PTP it is on TAI, 37 s ahead of UTC"),
    )
}

fn discipline(kernel: Option<KernelDiscipline>) -> Vec<HostFact> {
    let Some(kernel) = kernel else {
        return vec![fact("adjtimex", "forbidden", "blocked by a sandbox")];
    };
    let leap = match kernel.leap {
        LeapState::None => "none",
        LeapState::Insert => "insert a second at the end of the UTC day",
        LeapState::Delete => "delete a second at the end of the UTC day",
        LeapState::Unsynchronised => "unknown",
    };
    let tai = match kernel.tai_offset_s {
        0 => "not set in the kernel, so CLOCK_TAI equals UTC here",
        _ => "lead of CLOCK_TAI over CLOCK_REALTIME",
    };
    vec![
        fact(
            "synchronised",
            yes_no(Some(kernel.synchronised)),
            "as reported to the kernel by the clock daemon (chronyd, ntpd, ptp4l)",
        ),
        fact(
            "frequency",
            format!("{:+.3} ppm", kernel.frequency_ppb / 1e3),
            "correction of the oscillator: 1 ppm is 86 ms per day",
        ),
        fact(
            "maximum error",
            signed_ns(kernel.maximum_error_ns).trim_start_matches('+').to_owned(),
            "error bound set by that daemon, growing by 500 ppm since; capped at 16 s",
        ),
        fact(
            "estimated error",
            signed_ns(kernel.estimated_error_ns).trim_start_matches('+').to_owned(),
            "that daemon's estimate of its error",
        ),
        fact("TAI minus UTC", format!("{} s", kernel.tai_offset_s), tai),
        fact("leap second", leap, "pending in the kernel"),
    ]
}

fn waking(result: &HostClockResult) -> Vec<HostFact> {
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
            "delay by which sleeps of SCHED_OTHER threads may be extended to coalesce wake-ups \
             (PR_SET_TIMERSLACK); real-time threads have none",
        ),
        fact(
            "frequency governor",
            listed(&waking.governors, "none"),
            "selects the CPU frequency; without one the hardware or the hypervisor does",
        ),
        fact(
            "idle states",
            listed(&states, "none listed"),
            format!(
                "idle states of a core and their exit latencies ({driver}); an open \
                 /dev/cpu_dma_latency prevents the deep ones"
            ),
        ),
        fact(
            "virtualisation",
            match (&waking.hypervisor, result.host.virtualised) {
                (Some(name), _) => name.clone(),
                (None, Some(false)) => "none".to_owned(),
                (None, _) => UNKNOWN.to_owned(),
            },
            "a hypervisor adds VM exits to timer latency, and the CPU time of other guests",
        ),
        fact(
            "steal time",
            waking.stolen_share.map_or_else(|| UNKNOWN.to_owned(), percent),
            "share of all cores' time that the hypervisor gave to others in this run",
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

/// Returns the cells of a clock, in the order of [`COLUMNS`].
fn cells(clock: &ClockFacts) -> [String; 6] {
    let absent = || ABSENT.to_owned();
    let ns = |ns: Option<u64>| ns.map_or_else(absent, human_ns);
    let by = match clock.by_vdso {
        Some(true) => "vDSO",
        Some(false) => "system call",
        None => ABSENT,
    };
    // A rate with an error bound above [`RATE_ERROR_MAX_PPM`] is not shown.
    let is_known =
        clock.rate_error_bound_ppm.is_none_or(|error_bound| error_bound < RATE_ERROR_MAX_PPM);
    let known = clock.rate_ppm.filter(|_| is_known);
    let ppm =
        |ppm: f64| format!("{ppm:+.3} ppm").replace("-0.000", "0.000").replace("+0.000", "0.000");
    [
        ns(clock.resolution_ns),
        ns(clock.step_ns),
        clock.cost_ns.map_or_else(absent, |cost| format!("{cost:.1} ns")),
        by.to_owned(),
        known.map_or_else(absent, ppm),
        clock
            .rate_error_bound_ppm
            .map_or_else(absent, |error_bound| format!("{error_bound:.3} ppm")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;
    use crate::table::TableStyle;

    #[test]
    fn a_clock_that_is_absent_and_an_offset_that_is_not_set_are_reported() {
        let mut result: HostClockResult = fixture::sample("host_clock");
        result.phcs.clear();
        result.kernel.as_mut().unwrap().tai_offset_s = 0;
        let text = result.text(&TableStyle { colour: false, width: 100 });
        assert!(text.contains("\n  PTP clock              none\n      no NIC has a PHC"), "{text}");
        assert!(text.contains("not set in the kernel, so CLOCK_TAI equals UTC here"), "{text}");
    }
}
