//! Kernel and hardware facts that affect wake-ups: clocksource, frequency and idle states,
//! hypervisor, time namespace. An unreadable fact is absent.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use horolog_record::{ClocksourceFacts, IdleState, WakeupFacts};
use horolog_sys::posix_clock::timer_slack_ns;

use super::devices::read_line;

const NS_PER_S: i64 = 1_000_000_000;
/// CPU flags of the time stamp counter.
const TSC_FLAGS: [&str; 6] =
    ["constant_tsc", "nonstop_tsc", "tsc_known_freq", "tsc_reliable", "tsc_adjust", "rdtscp"];
/// Clocksources that only a hypervisor provides, with its name.
const HYPERVISOR_CLOCKSOURCES: [(&str, &str); 4] = [
    ("kvm-clock", "KVM"),
    ("hyperv_clocksource_tsc_page", "Hyper-V"),
    ("hyperv_clocksource_msr", "Hyper-V"),
    ("xen", "Xen"),
];

/// Returns the kernel's clocksource and the CPU's TSC flags.
pub(super) fn clocksource(root: &Path) -> ClocksourceFacts {
    let directory = root.join("sys/devices/system/clocksource/clocksource0");
    let available = read_line(&directory.join("available_clocksource")).unwrap_or_default();
    let cpuinfo = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let flags: BTreeSet<_> = flags.split_whitespace().collect();
    ClocksourceFacts {
        current: read_line(&directory.join("current_clocksource")),
        available: available.split_whitespace().map(str::to_owned).collect(),
        tsc_flags: TSC_FLAGS
            .into_iter()
            .filter(|flag| flags.contains(flag))
            .map(str::to_owned)
            .collect(),
    }
}

/// Returns facts that can delay wake-ups. `stolen_share` is left `None`; it needs two readings.
pub(super) fn wakeup_facts(root: &Path, clocksource: &ClocksourceFacts) -> WakeupFacts {
    let cpus = root.join("sys/devices/system/cpu");
    let offsets = fs::read_to_string(root.join("proc/self/timens_offsets")).unwrap_or_default();
    WakeupFacts {
        timer_slack_ns: timer_slack_ns(),
        governors: governors(&cpus),
        idle_driver: read_line(&cpus.join("cpuidle/current_driver")),
        idle_states: idle_states(&cpus.join("cpu0/cpuidle")),
        hypervisor: hypervisor(root, clocksource),
        stolen_share: None,
        namespace_monotonic_ns: namespace_offset(&offsets, "monotonic"),
        namespace_boottime_ns: namespace_offset(&offsets, "boottime"),
    }
}

fn governors(cpus: &Path) -> Vec<String> {
    let policies = fs::read_dir(cpus.join("cpufreq")).into_iter().flatten();
    let of = |policy: fs::DirEntry| read_line(&policy.path().join("scaling_governor"));
    let kinds: BTreeSet<_> = policies.filter_map(|entry| of(entry.ok()?)).collect();
    kinds.into_iter().collect()
}

fn idle_states(directory: &Path) -> Vec<IdleState> {
    let state = |number: u32| {
        let directory = directory.join(format!("state{number}"));
        let latency_us: u64 = read_line(&directory.join("latency"))?.parse().ok()?;
        Some(IdleState {
            name: read_line(&directory.join("name"))?,
            exit_latency_ns: latency_us.saturating_mul(1_000),
            disabled: read_line(&directory.join("disable")).is_some_and(|text| text != "0"),
        })
    };
    // More states than any driver has.
    (0..64).map_while(state).collect()
}

/// Returns the hypervisor by clocksource and firmware, `unnamed` if neither names it; `None`
/// without the CPU flag `hypervisor` (bare metal, or a CPU other than x86).
fn hypervisor(root: &Path, clocksource: &ClocksourceFacts) -> Option<String> {
    let cpuinfo = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"))?;
    if !flags.split_whitespace().any(|flag| flag == "hypervisor") {
        return None;
    }
    let offered = |(name, _): &&(&str, &str)| clocksource.available.iter().any(|one| one == name);
    let by_clock = HYPERVISOR_CLOCKSOURCES.iter().find(offered).map(|(_, name)| (*name).to_owned());
    let firmware = [root.join("sys/hypervisor/type"), root.join("sys/class/dmi/id/product_name")];
    let by_firmware = firmware.iter().find_map(|path| read_line(path));
    match (by_clock, by_firmware) {
        (Some(clock), Some(firmware)) => Some(format!("{clock} ({firmware})")),
        (clock, firmware) => clock.or(firmware).or_else(|| Some("unnamed".to_owned())),
    }
}

/// Returns the offset of a clock in `/proc/self/timens_offsets`, in ns, from a line such as
/// `monotonic  1000  500` (seconds, nanoseconds); 0 if there is none.
fn namespace_offset(text: &str, clock: &str) -> i64 {
    let of = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next()? == clock).then_some(())?;
        let (seconds, ns) = (words.next()?.parse::<i64>().ok()?, words.next()?.parse().ok()?);
        Some(seconds.saturating_mul(NS_PER_S).saturating_add(ns))
    };
    text.lines().find_map(of).unwrap_or(0)
}

/// Returns total and steal time of all cores from the text of `/proc/stat`, in ticks of `USER_HZ`;
/// `None` if a number is missing or invalid.
pub(super) fn total_and_steal_ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    let numbers: Vec<u64> =
        line.split_whitespace().skip(1).map(|word| word.parse().ok()).collect::<Option<_>>()?;
    // user nice system idle iowait irq softirq steal; guests' time is in user's.
    let all = numbers.get(..8)?.iter().sum();
    Some((all, *numbers.get(7)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_machine_s_files_are_understood() {
        let root = tempfile::TempDir::new().unwrap();
        let root = root.path();
        let cpu = "sys/devices/system/cpu";
        write(root, "proc/cpuinfo", "processor : 0\nflags : fpu constant_tsc hypervisor rdtscp\n");
        write(root, "proc/self/timens_offsets", "monotonic 1000 5\nboottime -7 0\n");
        write(root, "sys/class/dmi/id/product_name", "Some Cloud\n");
        let source = "sys/devices/system/clocksource/clocksource0";
        write(root, &format!("{source}/current_clocksource"), "tsc\n");
        write(root, &format!("{source}/available_clocksource"), "tsc kvm-clock \n");
        for (policy, governor) in [("policy0", "powersave"), ("policy4", "performance")] {
            write(root, &format!("{cpu}/cpufreq/{policy}/scaling_governor"), governor);
        }
        for (state, name, latency) in [("state0", "POLL", "0"), ("state1", "C6", "133")] {
            write(root, &format!("{cpu}/cpu0/cpuidle/{state}/name"), name);
            write(root, &format!("{cpu}/cpu0/cpuidle/{state}/latency"), latency);
            write(root, &format!("{cpu}/cpu0/cpuidle/{state}/disable"), "1");
        }
        let clocksource = clocksource(root);
        assert_eq!(clocksource.tsc_flags, ["constant_tsc", "rdtscp"]);
        assert_eq!(clocksource.available, ["tsc", "kvm-clock"]);
        let waking = wakeup_facts(root, &clocksource);
        assert_eq!(waking.governors, ["performance", "powersave"]);
        assert_eq!(waking.hypervisor.as_deref(), Some("KVM (Some Cloud)"));
        let state = IdleState { name: "C6".into(), exit_latency_ns: 133_000, disabled: true };
        assert_eq!(waking.idle_states[1..], [state]);
        assert_eq!(waking.namespace_monotonic_ns, 1_000_000_000_005);
        assert_eq!(waking.namespace_boottime_ns, -7_000_000_000);
    }

    #[test]
    fn stolen_time_is_the_eighth_number() {
        let stat = "cpu  10 1 2 80 3 0 1 3 5 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(total_and_steal_ticks(stat), Some((100, 3)));
        assert_eq!(total_and_steal_ticks("cpu  1 2 x"), None);
    }
}
