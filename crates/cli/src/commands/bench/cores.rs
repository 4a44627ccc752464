//! `horolog bench cores`: reply rate of a server against the number of its cores.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_experiment::bench_cores::{self, CoresBenchOptions};
use horolog_report::units;

use super::parse_thread_count;
use crate::commands::experiment_progress::ExperimentProgress;
use crate::failure::CommandFailure;
use crate::files::ResultFiles;
use crate::output;
use crate::result_store::StoreResultArgs;
use crate::values;
use horolog_time::text::Rate;

/// Measure the reply rate of a server against the number of its cores.
///
/// Creates two lab hosts, starts a server on one core in one of them, then on two and so on, and
/// sends requests from the other at rising rates, each rate several times. A server is saturated at
/// the first rate at which more than --loss-ratio of the requests are unanswered; its capacity is
/// its reply rate there. The tables are those of Liu, Wu and Wang, "Design of NTP server based on
/// multi-core processor", Journal of Time and Frequency 43 (2020), 1, 18-28, with the values of the
/// paper next to the measured ones. The count of replies is checked once against a packet capture.
///
/// Requires root. The generator runs on this host's cores as well; if the server has a thread for
/// each core, generator and server share a core.
#[derive(Args, Debug)]
pub(crate) struct BenchCoresArgs {
    /// Numbers of cores of the server, such as 1,2,4 [default: every number up to 8, then doubled
    /// up to all].
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = parse_thread_count)]
    cores: Vec<usize>,
    /// Requests per second to send: numbers, and ranges with a step or a factor.
    #[arg(long, value_name = "LIST", default_value = "5k..50k:5k,75k..20M:*1.5")]
    rates: String,
    /// Repetitions of each rate.
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Duration of each trial.
    #[arg(short = 't', long, value_name = "TIME", value_parser = values::positive_duration, default_value = "1s")]
    time: Duration,
    /// Share of requests that may stay unanswered before a server counts as saturated.
    #[arg(long, value_name = "RATIO", value_parser = values::ratio, default_value = "0.5%")]
    loss_ratio: f64,
    /// Required requests per second. The result states the number of cores that sustain them; the
    /// exit status is 1 if no tested number does.
    #[arg(long, value_name = "RATE", default_value = "30000")]
    required_rate: Rate,
    /// Engine of the server. socket: a socket for each thread; shared-lock: one socket with locks,
    /// shared by all threads as in the paper; xdp: XDP.
    #[arg(long, value_enum, default_value_t = ServerDesignArg::Socket)]
    design: ServerDesignArg,
    /// Write the result to FILE as JSON; '-' writes it to standard output instead of the tables.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML report to FILE.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    store_args: StoreResultArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ServerDesignArg {
    Socket,
    SharedLock,
    Xdp,
}

impl ServerDesignArg {
    const fn server_arguments(self) -> &'static [&'static str] {
        match self {
            Self::Socket => &["--engine", "socket"],
            Self::SharedLock => &["--engine", "socket", "--dispatch", "shared-lock"],
            // XDP_TX needs an XDP program at the other end of the veth pair; the generator has one.
            Self::Xdp => &["--engine", "xdp", "--xdp-reply", "transmit"],
        }
    }
}

impl BenchCoresArgs {
    fn options(&self) -> Result<CoresBenchOptions, CommandFailure> {
        Ok(CoresBenchOptions {
            cores: self.cores.clone(),
            rates: values::numbers(&self.rates)
                .map_err(|error| CommandFailure::usage(format!("--rates: {error}")))?,
            repetitions: self.repetitions,
            trial_duration: self.time,
            loss_ratio: self.loss_ratio,
            required_rate: self.required_rate.per_second(),
            server_arguments: self.design.server_arguments(),
            command: output::command_line(),
        })
    }
}

pub(crate) fn run(args: &BenchCoresArgs) -> Result<(), CommandFailure> {
    let options = args.options()?;
    let files = ResultFiles::open([("--json", &args.json), ("--html", &args.html)])?
        .with_store(&args.store_args);
    output::install_interrupt_handler()?;
    let result = bench_cores::run(&options, &ExperimentProgress::default())?;
    files.write(&result)?;
    if result.cores_required().is_some() {
        return Ok(());
    }
    let wanted = units::human_rate(args.required_rate.per_second());
    Err(CommandFailure::Measurement(if result.is_decided() {
        format!("required rate not reached: no server answered {wanted}")
    } else {
        format!("required rate {wanted} not measured with every number of cores")
    }))
}
