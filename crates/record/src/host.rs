//! Properties of the host of a measurement, read from procfs and sysfs. Unreadable properties are
//! absent, never guessed.

use std::fs;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Host of a measurement: kernel, CPU and clocksource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Kernel release, as `uname -r` prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// CPU model name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// CPUs available to this process.
    pub cores: usize,
    /// Clocksource in use, such as `tsc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocksource: Option<String>,
    /// Frequency governor of the first CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// True if the CPU flags contain `hypervisor`; absent if the kernel reports no flags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtualised: Option<bool>,
}

impl Host {
    /// Reads the facts of this host.
    #[must_use]
    pub fn read() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            kernel: read_line("/proc/sys/kernel/osrelease"),
            cpu: cpuinfo_field(&cpuinfo, "model name"),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            clocksource: read_line(
                "/sys/devices/system/clocksource/clocksource0/current_clocksource",
            ),
            governor: read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            virtualised: cpuinfo_field(&cpuinfo, "flags")
                .map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor")),
        }
    }
}

fn read_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

fn cpuinfo_field(cpuinfo: &str, name: &str) -> Option<String> {
    cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// Returns the current UTC time of this host in RFC 3339 format with milliseconds.
#[must_use]
pub fn rfc3339_now() -> String {
    format!("{:.3}", Timestamp::now())
}

/// Parses an RFC 3339 time into microseconds since 1970; `None` if the text has another format or
/// the time is before 1970.
#[must_use]
pub fn rfc3339_micros(text: &str) -> Option<i64> {
    let instant = text.parse::<Timestamp>().ok()?;
    Some(instant.as_microsecond()).filter(|micros| *micros >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPUINFO: &str = "processor\t: 0\nmodel name\t: Some CPU @ 2.0 GHz\nflags\t\t: fpu tsc hypervisor aes\n\nprocessor\t: 1\nmodel name\t: Other\n";

    #[test]
    fn takes_the_first_processor_s_fields() {
        assert_eq!(cpuinfo_field(CPUINFO, "model name").unwrap(), "Some CPU @ 2.0 GHz");
        assert_eq!(cpuinfo_field(CPUINFO, "bogomips"), None);
    }

    #[test]
    fn this_machine_has_a_kernel_and_a_core() {
        let host = Host::read();
        assert!(host.kernel.is_some());
        assert!(host.cores >= 1);
    }

    #[test]
    fn an_instant_is_read_as_it_is_written() {
        assert_eq!(rfc3339_micros("1970-01-01T00:00:01.002Z"), Some(1_002_000));
        assert!(rfc3339_micros(&rfc3339_now()).is_some());
        assert_eq!(rfc3339_micros("today"), None);
    }
}
