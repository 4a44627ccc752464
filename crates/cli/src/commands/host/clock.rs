//! `horolog host clock`: measures the clocks of this host, and writes the result as text, JSON and
//! HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::Args;
use horolog_probe::host::clock::{HostClockOptions, measure};

use crate::failure::{CommandFailure, check_findings};
use crate::files::ResultFileArgs;
use crate::output::{self, ProgressLine};
use crate::values;

/// Maximum of `--time`; a longer observation does not make the rates more accurate.
const TIME_MAX: Duration = Duration::from_hours(1);

/// Show the clocks of this host and their behaviour: the tick (HZ, jiffies), the clocksource, POSIX
/// clocks with resolution, cost and rate, RTC and PTP clocks, the kernel's discipline, and causes
/// of late wake-ups.
///
/// Each value is followed by a line that explains it. No clock is changed. The count of jiffies
/// requires root. Exit status 1 if a clock goes backwards from one core to another.
#[derive(Args, Debug)]
pub(crate) struct HostClockArgs {
    /// Time over which the rates of the clocks are compared, at most 1h.
    #[arg(short, long, value_name = "TIME", value_parser = parse_time, default_value = "2s")]
    time: Duration,
    #[command(flatten)]
    files: ResultFileArgs,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    match values::positive_duration(text)? {
        long if long > TIME_MAX => Err("at most 1h".into()),
        time => Ok(time),
    }
}

pub(super) fn run(args: &HostClockArgs) -> Result<(), CommandFailure> {
    let files = args.files.open()?;
    output::install_interrupt_handler()?;
    let progress = ProgressLine::new();
    progress.set_message("observing the clocks");
    let options = HostClockOptions { time: args.time, command: output::command_line() };
    let result = measure(options, &|| output::check_stop_request().is_break());
    progress.finish();
    files.write(&result)?;
    check_findings(&result.findings)
}
