//! Processor time of this machine, as the kernel counts it: what copies cost is taken from that,
//! because what is done below the host is no process's.

use std::fs;

/// A tick of `/proc/stat` (`USER_HZ`), which is 1/100 s on every architecture that Horolog runs on.
const TICK_NS: f64 = 1e7;

/// Ticks of one core (proc(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    /// In programs and in the kernel on their behalf.
    programs: u64,
    /// In interrupts, hard and soft: all of the network's work that no program waits for.
    interrupts: u64,
}

/// The processor time of each core since the machine started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessorTime(Vec<(usize, Ticks)>);

impl ProcessorTime {
    /// `None` where the kernel does not tell.
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
        // The line of all cores together has a space where these have a number.
        let of_core = |line: &&str| !line.starts_with("cpu ");
        Self(text.lines().filter(of_core).filter_map(core).collect())
    }

    /// What was spent since `before` but for the source, in ns: all interrupts, and programs on the
    /// cores on which the source does not send.
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

#[cfg(test)]
mod tests {
    use super::*;

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
