//! CPU time of this host, as counted by the kernel. It is the basis of the cost of copies, because
//! in-kernel work belongs to no process.

use std::fs::{self, DirEntry};
use std::process;
use std::thread;
use std::time::Instant;

/// A tick of `/proc/stat` (`USER_HZ`), which is 1/100 s on every architecture that Horolog
/// supports.
const TICK_NS: f64 = 1e7;

/// Ticks of one core (proc(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    /// In programs and in the kernel on their behalf.
    programs: u64,
    /// In interrupts, hard and soft: all network work for which no program waits.
    interrupts: u64,
}

/// CPU time of each core since boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessorTime(Vec<(usize, Ticks)>);

impl ProcessorTime {
    /// Reads it; `None` if the kernel does not report it.
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
            Some((core, Ticks { programs: user + nice + system, interrupts: hard + soft }))
        };
        // The line of all cores together has a space instead of the number.
        let of_core = |line: &&str| !line.starts_with("cpu ");
        Self(text.lines().filter(of_core).filter_map(core).collect())
    }

    /// CPU time since `before` except the source's, in ns: all interrupts, and programs on the
    /// cores from which the source does not send.
    pub(super) fn spent_ns(&self, before: &Self, sending: &[usize]) -> f64 {
        let mut ticks = 0;
        for (core, now) in &self.0 {
            let then = before.0.iter().find(|(other, _)| other == core);
            let then = then.map_or_else(Ticks::default, |(_, then)| *then);
            ticks += now.interrupts.saturating_sub(then.interrupts);
            if !sending.contains(core) {
                ticks += now.programs.saturating_sub(then.programs);
            }
        }
        ticks as f64 * TICK_NS
    }
}

/// CPU time used so far by other programs: not this one, its relays and the kernel's threads.
#[derive(Debug)]
pub(super) struct OtherProcesses {
    at: Instant,
    ticks: u64,
}

/// The kernel thread that is the parent of all others.
const KERNEL_THREADS: u32 = 2;

impl OtherProcesses {
    /// Reads it; `None` if the kernel does not report it.
    pub(super) fn read() -> Option<Self> {
        let number = |entry: DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
        let processes = fs::read_dir("/proc").ok()?.filter_map(|entry| number(entry.ok()?));
        // The time of a process that has ended meanwhile is part of its parent's.
        let stat = |process: u32| fs::read_to_string(format!("/proc/{process}/stat")).ok();
        let used = processes.filter_map(|process| Used::parse(&stat(process)?));
        Some(Self { at: Instant::now(), ticks: others(process::id(), used) })
    }

    /// The share of the host's CPU time that they have used since.
    pub(super) fn share_since(&self) -> Option<f64> {
        let now = Self::read()?;
        let cores = thread::available_parallelism().ok()?.get() as f64;
        let passed_ns = (now.at - self.at).as_nanos() as f64 * cores;
        let used_ns = now.ticks.saturating_sub(self.ticks) as f64 * TICK_NS;
        (passed_ns > 0.0).then(|| used_ns / passed_ns)
    }
}

/// The sum over all processes except `own`, its children and the kernel's threads.
fn others(own: u32, all: impl Iterator<Item = Used>) -> u64 {
    let is_other = |used: &Used| {
        ![used.process, used.parent].iter().any(|one| [own, KERNEL_THREADS].contains(one))
    };
    all.filter(is_other).map(|used| used.ticks).sum()
}

/// CPU time used by a process.
#[derive(Debug, PartialEq, Eq)]
struct Used {
    process: u32,
    parent: u32,
    /// Its own ticks, and those of its children that have ended.
    ticks: u64,
}

impl Used {
    /// Reads `/proc/PID/stat` (proc_pid_stat(5)).
    fn parse(text: &str) -> Option<Self> {
        // The name before it may contain spaces and parentheses.
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
        assert_eq!(Used::parse(line), Some(Used { process: 812, parent: 7, ticks: 657 }));
        for bad in ["", "812 (x", "812 (x) S 7 1 2 3", "812 (x) S y 0 0 0 0 0 0 0 0 0 3 4 5 6 7"] {
            assert_eq!(Used::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn neither_this_program_nor_the_kernel_is_another() {
        let all = [(1, 0, 1), (2, 0, 2), (9, 2, 4), (50, 1, 8), (70, 50, 16), (71, 70, 32)];
        let all = all.map(|(process, parent, ticks)| Used { process, parent, ticks });
        assert_eq!(others(70, all.into_iter()), 1 + 8);
    }

    #[test]
    fn the_source_s_own_time_is_left_out() {
        let before = ProcessorTime::parse(
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 1 1 50 0 0 2 0 0 0\ncpu1 0 0 0 9 0 0 0 0 0 0\n",
        );
        let after = ProcessorTime::parse(
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 2 1 4 60 0 1 5 0 0 0\ncpu1 7 0 9 9 0 0 8 0 0 0\nintr 1\n",
        );
        let ms = |sending: &[usize]| (after.spent_ns(&before, sending) / 1e6) as u64;
        assert_eq!((ms(&[]), ms(&[1]), ms(&[0, 1])), (320, 160, 120));
        assert_eq!(ProcessorTime::parse("cpu0 1 2\ngarbage"), ProcessorTime::default());
    }
}
