//! Counters of one core: steal, interrupts, system management interrupts (SMI). An unreadable
//! counter is absent.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// Address of `MSR_SMI_COUNT` on Intel CPUs.
const SYSTEM_MANAGEMENT_MSR: u64 = 0x34;
/// Index of `steal` in a CPU line of `/proc/stat` (proc(5)), counted from the CPU's name.
const STEAL_FIELD: usize = 8;
/// Tick of `/proc/stat` in ns: 1/`USER_HZ`, which is 1/100 s on all supported architectures.
const TICK_NS: u64 = 10_000_000;

/// Steal time and numbers of interrupts of one core at one instant; `None` where unreadable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CoreInterruptionCounts {
    pub(super) steal_ns: Option<u64>,
    pub(super) interrupts: Option<u64>,
    pub(super) system_management_interrupts: Option<u64>,
}

impl CoreInterruptionCounts {
    pub(super) fn read(core: usize) -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let interrupts = fs::read_to_string("/proc/interrupts").unwrap_or_default();
        Self {
            steal_ns: steal_ns(&stat, core),
            interrupts: interrupts_on_core(&interrupts, core),
            system_management_interrupts: read_smi_count(core),
        }
    }
}

fn steal_ns(stat: &str, core: usize) -> Option<u64> {
    let name = format!("cpu{core}");
    let line = stat.lines().find(|line| line.split_whitespace().next() == Some(&name))?;
    let ticks: u64 = line.split_whitespace().nth(STEAL_FIELD)?.parse().ok()?;
    ticks.checked_mul(TICK_NS)
}

/// Returns the sum of a core's column in `/proc/interrupts`.
fn interrupts_on_core(table: &str, core: usize) -> Option<u64> {
    let mut lines = table.lines();
    let name = format!("CPU{core}");
    let column = lines.next()?.split_whitespace().position(|title| title == name)?;
    let count = |line: &str| line.split_whitespace().nth(column + 1)?.parse::<u64>().ok();
    Some(lines.filter_map(count).sum())
}

fn read_smi_count(core: usize) -> Option<u64> {
    let registers = File::open(format!("/dev/cpu/{core}/msr")).ok()?;
    let mut value = [0; 8];
    registers.read_exact_at(&mut value, SYSTEM_MANAGEMENT_MSR).ok()?;
    Some(u64::from_ne_bytes(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_number_of_the_cores_line() {
        let stat =
            "cpu  1 2 3 4 5 6 7 99 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu10 1 2 3 4 5 6 7 11 0 0\n";
        assert_eq!(steal_ns(stat, 0), Some(80_000_000));
        assert_eq!(steal_ns(stat, 10), Some(110_000_000));
        assert_eq!(
            (steal_ns(stat, 1), steal_ns("cpu1 1 2", 1), steal_ns("", 0)),
            (None, None, None)
        );
    }

    #[test]
    fn interrupts_are_a_column() {
        let table =
            "           CPU0       CPU2\n  1:  10  20  IO-APIC  x\nLOC: 5 6 Local\nERR: 0\n";
        assert_eq!(
            (interrupts_on_core(table, 0), interrupts_on_core(table, 2)),
            (Some(15), Some(26))
        );
        assert_eq!((interrupts_on_core(table, 1), interrupts_on_core("", 0)), (None, None));
    }

    #[test]
    fn this_machine_counts_interrupts() {
        let counters = CoreInterruptionCounts::read(0);
        assert!(counters.interrupts.is_some_and(|count| count > 0), "{counters:?}");
    }
}
