//! `horolog host`: measurements of this host's timing, and settings of its NICs.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

mod all;
mod clock;
mod delay;
mod interrupt;
mod nic;
mod switch;
mod timer;

use clap::{Args, Subcommand};
use horolog_probe::host::MeasuringThreadError;

use crate::failure::CommandFailure;

/// Measure this host's clocks, sleep functions, context switches, timers and interrupts, and show
/// its NICs.
#[derive(Args, Debug)]
pub(crate) struct HostArgs {
    #[command(subcommand)]
    command: HostCommand,
}

#[derive(Subcommand, Debug)]
enum HostCommand {
    All(all::HostAllArgs),
    Interrupt(interrupt::HostInterruptArgs),
    Switch(switch::HostSwitchArgs),
    Clock(clock::HostClockArgs),
    Delay(Box<delay::HostDelayArgs>),
    Nic(nic::HostNicArgs),
    Timer(timer::HostTimerArgs),
}

pub(crate) fn run(args: HostArgs) -> Result<(), CommandFailure> {
    match args.command {
        HostCommand::All(args) => all::run(&args),
        HostCommand::Interrupt(args) => interrupt::run(args),
        HostCommand::Switch(args) => switch::run(args),
        HostCommand::Clock(args) => clock::run(&args),
        HostCommand::Delay(args) => delay::run(&args),
        HostCommand::Nic(args) => nic::run(&args),
        HostCommand::Timer(args) => timer::run(args),
    }
}

impl From<MeasuringThreadError> for CommandFailure {
    fn from(error: MeasuringThreadError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::environment(error) }
    }
}

/// Limit of core numbers: the maximum of the kernel option NR_CPUS on x86-64.
const CORES_MAX: usize = 8_192;

/// List of cores, written as numbers and ranges with an optional step, such as `0,2..6:2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CoreList(pub(super) Vec<usize>);

/// Parses a list of cores.
pub(super) fn parse_core_list(text: &str) -> Result<CoreList, String> {
    let form = || "write cores as 0,2 or 0..7 or 0..6:2".to_owned();
    let mut cores = Vec::new();
    for part in text.split(',') {
        cores.extend(parse_core_range(part).ok_or_else(form)?);
    }
    Ok(CoreList(cores))
}

/// Parses one core, or a range of cores with an optional step; `None` if it is malformed.
fn parse_core_range(text: &str) -> Option<impl Iterator<Item = usize>> {
    let core = |text: &str| text.parse::<usize>().ok().filter(|core| *core < CORES_MAX);
    let (from, rest) = text.split_once("..").unwrap_or((text, text));
    let (to, step) = rest.split_once(':').unwrap_or((rest, "1"));
    let (from, to, step) = (core(from)?, core(to)?, core(step).filter(|step| *step > 0)?);
    (from <= to).then(|| (from..=to).step_by(step))
}

/// Scheduling of the measuring threads.
#[derive(Args, Debug)]
pub(super) struct MeasuringThreadArgs {
    /// Real-time priority of the measuring threads, 1 to 99 (SCHED_FIFO). If it is refused they run
    /// as SCHED_OTHER, which the result reports.
    #[arg(short, long, value_name = "N", default_value_t = 80,
          value_parser = clap::value_parser!(u8).range(1..=99), conflicts_with = "sched_other")]
    priority: u8,
    /// Run the measuring threads as SCHED_OTHER, as most programs run, instead of with --priority.
    #[arg(long)]
    sched_other: bool,
    /// Leave the CPU's idle states (C-states) enabled; otherwise all but polling are disabled
    /// (/dev/cpu_dma_latency) during the measurement.
    #[arg(long)]
    pub(super) allow_idle_states: bool,
}

impl MeasuringThreadArgs {
    /// Returns the real-time priority to request; `None` for SCHED_OTHER.
    pub(super) fn priority(&self) -> Option<u8> {
        (!self.sched_other).then_some(self.priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_whole_numbers() {
        assert_eq!(parse_core_list("0,2..6:2"), Ok(CoreList(vec![0, 2, 4, 6])));
        assert_eq!(parse_core_list("0"), Ok(CoreList(vec![0])));
        assert_eq!(parse_core_list("1..3"), Ok(CoreList(vec![1, 2, 3])));
        for wrong in ["", "a", "1.5", "-1", "9000", "0-3", "3..1", "0..4:0", "0,", "0..99999999"] {
            assert!(parse_core_list(wrong).is_err(), "{wrong}");
        }
    }
}
