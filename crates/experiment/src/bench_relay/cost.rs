//! CPU time of this host from `/proc/stat`, from which the CPU time per copy is computed: in-kernel
//! copies are not charged to any process.

use std::fs::{self, DirEntry};
use std::process;
use std::thread;
use std::time::Instant;

/// Tick of `/proc/stat` (1/`USER_HZ`) in ns: 10 ms on every architecture that Horolog supports.
const TICK_NS: f64 = 1e7;

/// CPU time of one core since boot, in ticks (`proc_stat(5)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CoreCpuTime {
    /// Ticks of user, nice and system time: programs, and the kernel on their behalf.
    programs: u64,
    /// Ticks of hard and soft interrupts (irq, softirq), which include packet reception and XDP.
    interrupts: u64,
}

/// CPU time of each core since boot, by the number of the core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuTimeByCore(Vec<(usize, CoreCpuTime)>);

impl CpuTimeByCore {
    /// Reads `/proc/stat`; `None` if it cannot be read or has no lines for cores.
    pub(super) fn read() -> Option<Self> {
        let text = fs::read_to_string("/proc/stat").ok()?;
        Some(Self::parse(&text)).filter(|time| !time.0.is_empty())
    }

    fn parse(text: &str) -> Self {
        let core = |line: &str| {
            let mut words = line.strip_prefix("cpu")?.split_whitespace();
            let core = words.next()?.parse().ok()?;
            let numbers: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
            // user nice system idle iowait irq softirq
            let [user, nice, system, _, _, hard, soft] = *numbers.first_chunk()?;
            Some((core, CoreCpuTime { programs: user + nice + system, interrupts: hard + soft }))
        };
        // The line with the sum over all cores has no core number ("cpu  ").
        let of_core = |line: &&str| !line.starts_with("cpu ");
        Self(text.lines().filter(of_core).filter_map(core).collect())
    }

    /// Returns the CPU time since `before` in ns, without that of the source: interrupts on all
    /// cores, and programs on the cores from which the source does not send.
    pub(super) fn spent_since_ns(&self, before: &Self, source_cores: &[usize]) -> f64 {
        let mut ticks = 0;
        for (core, now) in &self.0 {
            let then = before.0.iter().find(|(other, _)| other == core);
            let then = then.map_or_else(CoreCpuTime::default, |(_, then)| *then);
            ticks += now.interrupts.saturating_sub(then.interrupts);
            if !source_cores.contains(core) {
                ticks += now.programs.saturating_sub(then.programs);
            }
        }
        ticks as f64 * TICK_NS
    }
}

/// CPU time that other programs have used until one instant. This process, its children and kernel
/// threads are left out.
#[derive(Debug)]
pub(super) struct OtherProcessesCpuTime {
    read_at: Instant,
    ticks: u64,
}

/// Process ID of kthreadd, the parent of all kernel threads.
const KTHREADD_PID: u32 = 2;

impl OtherProcessesCpuTime {
    /// Reads `/proc/PID/stat` of all processes; `None` if `/proc` cannot be read.
    pub(super) fn read() -> Option<Self> {
        let number = |entry: DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
        let processes = fs::read_dir("/proc").ok()?.filter_map(|entry| number(entry.ok()?));
        // The time of a process that exits meanwhile is added to cutime and cstime of its parent.
        let stat = |process: u32| fs::read_to_string(format!("/proc/{process}/stat")).ok();
        let used = processes.filter_map(|process| ProcessCpuTime::parse(&stat(process)?));
        Some(Self { read_at: Instant::now(), ticks: sum_other_ticks(process::id(), used) })
    }

    /// Returns the share of the host's CPU time that other programs have used since this value was
    /// read, from 0 to 1; `None` if `/proc` or the number of cores cannot be read.
    pub(super) fn share_since(&self) -> Option<f64> {
        let now = Self::read()?;
        let cores = thread::available_parallelism().ok()?.get() as f64;
        let passed_ns = (now.read_at - self.read_at).as_nanos() as f64 * cores;
        let used_ns = now.ticks.saturating_sub(self.ticks) as f64 * TICK_NS;
        (passed_ns > 0.0).then(|| used_ns / passed_ns)
    }
}

/// Returns the ticks of all processes except process ID `own`, its children and kernel threads.
fn sum_other_ticks(own: u32, all: impl Iterator<Item = ProcessCpuTime>) -> u64 {
    let is_other = |used: &ProcessCpuTime| {
        ![used.process, used.parent].iter().any(|one| [own, KTHREADD_PID].contains(one))
    };
    all.filter(is_other).map(|used| used.ticks).sum()
}

/// CPU time of one process, from `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct ProcessCpuTime {
    process: u32,
    parent: u32,
    /// Ticks of the process and of its children that have been waited for.
    ticks: u64,
}

impl ProcessCpuTime {
    /// Parses the text of `/proc/PID/stat` (`proc_pid_stat(5)`); `None` if it is malformed.
    fn parse(text: &str) -> Option<Self> {
        // The command name in field 2 may itself contain spaces and parentheses.
        let (name, behind_name) = text.rsplit_once(')')?;
        let words: Vec<_> = behind_name.split_whitespace().collect();
        // utime, stime, cutime and cstime are fields 14 to 17; the state after the name is 3.
        let ticks = words.get(11..15)?.iter().map(|word| word.parse::<u64>().ok());
        Some(Self {
            process: name.split_whitespace().next()?.parse().ok()?,
            parent: words.get(1)?.parse().ok()?,
            ticks: ticks.sum::<Option<u64>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_process_is_read_whatever_its_name() {
        let line = "812 (a) b (c) S 7 812 812 0 -1 4194560 130 500 0 0 3 4 50 600 20 0 1 0 99";
        assert_eq!(
            ProcessCpuTime::parse(line),
            Some(ProcessCpuTime { process: 812, parent: 7, ticks: 657 })
        );
        for bad in ["", "812 (x", "812 (x) S 7 1 2 3", "812 (x) S y 0 0 0 0 0 0 0 0 0 3 4 5 6 7"] {
            assert_eq!(ProcessCpuTime::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn neither_this_program_nor_the_kernel_is_another() {
        let all = [(1, 0, 1), (2, 0, 2), (9, 2, 4), (50, 1, 8), (70, 50, 16), (71, 70, 32)];
        let all = all.map(|(process, parent, ticks)| ProcessCpuTime { process, parent, ticks });
        assert_eq!(sum_other_ticks(70, all.into_iter()), 1 + 8);
    }

    #[test]
    fn the_source_s_own_time_is_left_out() {
        let before = CpuTimeByCore::parse(
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 1 1 50 0 0 2 0 0 0\ncpu1 0 0 0 9 0 0 0 0 0 0\n",
        );
        let after = CpuTimeByCore::parse(
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 2 1 4 60 0 1 5 0 0 0\ncpu1 7 0 9 9 0 0 8 0 0 0\nintr 1\n",
        );
        let ms = |sending: &[usize]| (after.spent_since_ns(&before, sending) / 1e6) as u64;
        assert_eq!((ms(&[]), ms(&[1]), ms(&[0, 1])), (320, 160, 120));
        assert_eq!(CpuTimeByCore::parse("cpu0 1 2\ngarbage"), CpuTimeByCore::default());
    }
}
