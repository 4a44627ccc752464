//! `horolog host clock`: flags to a look at this host's clocks, its result as text, JSON and page.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::Args;
use horolog_probe::host::clock::{HostClockOptions, look};
use horolog_report::{html, table, to_json};

use crate::failure::{Failure, verdict};
use crate::files::FileArgs;
use crate::output::{self, Progress};
use crate::values;

/// Rates of a longer time say no more.
const TIME_MAX: Duration = Duration::from_hours(1);

/// Show what this host's clocks are and do: the tick (HZ, jiffies), the clocksource, every POSIX
/// clock with its resolution, cost and rate, RTC and PTP clocks, the kernel's discipline, what
/// makes wake-ups late.
///
/// Each fact has a line on what it means. Nothing is set. Root is told the count of jiffies too.
/// Exit status 1 where a clock goes back from one core to another.
#[derive(Args, Debug)]
pub(crate) struct ClockArgs {
    /// For how long to watch the clocks' rates against each other, 1h at most.
    #[arg(short, long, value_name = "TIME", value_parser = time, default_value = "2s")]
    time: Duration,
    #[command(flatten)]
    files: FileArgs,
}

fn time(text: &str) -> Result<Duration, String> {
    match values::long_duration(text)? {
        long if long > TIME_MAX => Err("1h at most".into()),
        time => Ok(time),
    }
}

pub(super) fn run(args: &ClockArgs) -> Result<(), Failure> {
    let files = args.files.open()?;
    output::end_gently()?;
    let progress = Progress::new();
    progress.doing("watching the clocks");
    let options = HostClockOptions { time: args.time, command: output::command_line() };
    let result = look(options, &|| output::flow().is_break());
    progress.finish();
    files.write(&result, [to_json, html::host_clock], table::host_clock)?;
    verdict(&[], &result.findings)
}
