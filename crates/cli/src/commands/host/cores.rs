//! Which cores are measured, and how threads run there, as they are written. Pure.

use clap::Args;

use crate::values;

/// More cores than any machine has.
const CORE_MAX: f64 = 8_191.0;

/// Cores, as `0,2..6:2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CoreList(pub(super) Vec<usize>);

/// Reads a list of cores.
pub(super) fn core_list(text: &str) -> Result<CoreList, String> {
    let numbers = values::numbers(text)?;
    let core =
        |number: f64| (number.fract() == 0.0 && number <= CORE_MAX).then_some(number as usize);
    let cores: Option<Vec<_>> = numbers.into_iter().map(core).collect();
    cores.map(CoreList).ok_or_else(|| "cores are whole numbers, such as 0,2..6:2".to_owned())
}

/// How the measuring threads run.
#[derive(Args, Debug)]
pub(super) struct ThreadArgs {
    /// Real-time priority of the measuring threads, 1 to 99 (SCHED_FIFO). Where it is refused they
    /// run as ordinary ones, which the result says.
    #[arg(short, long, value_name = "N", default_value_t = 80,
          value_parser = clap::value_parser!(u8).range(1..=99), conflicts_with = "ordinary")]
    priority: u8,
    /// Run as ordinary threads (SCHED_OTHER), as most programs do.
    #[arg(long)]
    ordinary: bool,
    /// Leave the processors' idle states as they are; else the deep ones are held off
    /// (/dev/cpu_dma_latency) while it measures.
    #[arg(long)]
    pub(super) leave_idle_states: bool,
}

impl ThreadArgs {
    /// The priority to ask for.
    pub(super) fn priority(&self) -> Option<u8> {
        (!self.ordinary).then_some(self.priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_whole_numbers() {
        assert_eq!(core_list("0,2..6:2"), Ok(CoreList(vec![0, 2, 4, 6])));
        for wrong in ["", "a", "1.5", "-1", "9000", "0-3"] {
            assert!(core_list(wrong).is_err(), "{wrong}");
        }
    }
}
