//! `horolog bench cores`: a pair of lab hosts, a server on one core, then two and so on, and rising
//! rates against each, every rate several times.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_lab::{Lab, LabConfig, LabHost as PrivateHost};
use horolog_load::ramp::Ramp;
use horolog_load::{LoadError, LoadJob, LoadOptions, LoadRun};
use horolog_record::{
    BENCH_CORES_SCHEMA, BenchCoresResult, CaptureCheck, CoreCountResult, CoresRateResult,
    CoresRepetition, Finding, FindingCode, Host, LoadEngineKind, LoadResult, Severity, rfc3339_now,
};
use horolog_report::{html, table, to_json, units};

use super::{distinct, threads};
use crate::commands::server_under_test::{self, SearchProgress, ServerUnderTest};
use crate::failure::CommandFailure;
use crate::files::ResultFiles;
use crate::output;
use crate::result_store::KeepArgs;
use crate::values;

mod capture;

/// Greatest number of cores up to which every number is tested; beyond it the number doubles.
const EVERY_NUMBER_MAX: usize = 8;

/// Measure the reply rate of a server against the number of its cores.
///
/// Creates two lab hosts, starts a server on one core in one of them, then on two and so on, and
/// sends requests from the other at rising rates, each rate several times. A server is saturated at
/// the first rate at which more than --loss-ratio of the requests are unanswered; its capacity is
/// its reply rate there. The tables are those of Liu, Wu and Wang, "Design of NTP server based on
/// multi-core processor", Journal of Time and Frequency 43 (2020), 1, 18-28, with the values of the
/// paper next to the measured ones. The count of replies is checked once against a capture.
///
/// The generator runs on this host's cores as well; if the server has a thread for each core, they
/// share one.
#[derive(Args, Debug)]
pub(crate) struct CoresArgs {
    /// Numbers of cores of the server, such as 1,2,4 [default: every number up to 8, then doubled
    /// up to all].
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = threads)]
    cores: Vec<usize>,
    /// Requests per second: numbers, and ranges with a step or a factor.
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
    #[arg(long, value_name = "RATE", value_parser = values::rate, default_value = "30000")]
    required_rate: f64,
    /// Engine of the server. socket: a socket for each thread; shared-lock: one socket with locks,
    /// shared by all threads as in the paper; xdp: XDP.
    #[arg(long, value_enum, default_value_t = DesignArg::Socket)]
    design: DesignArg,
    /// Write the result to FILE as JSON; '-' writes it to standard output instead of the tables.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML report to FILE.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    keep: KeepArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum DesignArg {
    Socket,
    SharedLock,
    Xdp,
}

impl DesignArg {
    const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Socket => &["--engine", "socket"],
            Self::SharedLock => &["--engine", "socket", "--dispatch", "shared-lock"],
            // The generator's own program runs at the other end of the link.
            Self::Xdp => &["--engine", "xdp", "--xdp-reply", "transmit"],
        }
    }
}

/// State shared by all measurements.
struct CoresBench<'a> {
    args: &'a CoresArgs,
    rates: Vec<f64>,
    lab: Lab,
    /// Engine of the first run, which all others use too.
    engine: Option<LoadEngineKind>,
}

pub(crate) fn run(args: &CoresArgs) -> Result<(), CommandFailure> {
    let rates = rates(args)?;
    let files =
        ResultFiles::open([("--json", &args.json), ("--html", &args.html)])?.with_store(&args.keep);
    output::install_interrupt_handler()?;
    let available = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut cores = if args.cores.is_empty() { up_to(available) } else { distinct(&args.cores) };
    // The gain of a core is computed from column to column.
    cores.sort_unstable();
    let (mut bench, started) = (CoresBench::open(args, rates)?, rfc3339_now());
    let capture = bench.capture()?;
    let mut columns = Vec::new();
    for cores in cores {
        if output::flow().is_break() {
            break;
        }
        columns.push(bench.column(cores)?);
    }
    let result = BenchCoresResult {
        schema: BENCH_CORES_SCHEMA.to_owned(),
        started,
        command: output::command_line(),
        host: Host::read(),
        engine: bench.engine,
        required_rate: args.required_rate,
        findings: findings(&columns, capture, available),
        columns,
        capture: Some(capture),
    };
    files.write(&result, [to_json, html::bench_cores], table::bench_cores)?;
    if result.cores_required().is_some() {
        return Ok(());
    }
    let wanted = units::human_rate(args.required_rate);
    Err(CommandFailure::Limit(if result.is_decided() {
        format!("required rate not reached: no server answered {wanted}")
    } else {
        format!("required rate {wanted} not measured with every number of cores")
    }))
}

/// The requested rates, rising, including the required one.
fn rates(args: &CoresArgs) -> Result<Vec<f64>, CommandFailure> {
    let requested = values::numbers(&args.rates)
        .map_err(|error| CommandFailure::usage(format!("--rates: {error}")))?;
    let all = requested.into_iter().chain([args.required_rate]);
    let mut rates: Vec<_> = all.map(|rate| rate.round().max(1.0)).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    Ok(rates)
}

fn up_to(cores: usize) -> Vec<usize> {
    let more = (1..).map(|power| EVERY_NUMBER_MAX << power).take_while(|&number| number < cores);
    let last = (cores > EVERY_NUMBER_MAX).then_some(cores);
    (1..=cores.min(EVERY_NUMBER_MAX)).chain(more).chain(last).collect()
}

impl<'a> CoresBench<'a> {
    fn open(args: &'a CoresArgs, rates: Vec<f64>) -> Result<Self, CommandFailure> {
        let queues = thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let lab = Lab::new(&LabConfig { queues, ..LabConfig::default() })?;
        Ok(Self { args, rates, lab, engine: None })
    }

    fn client(&self) -> &PrivateHost {
        self.lab.client()
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::new(self.lab.server().first_interface().ipv4.into(), 123)
    }

    fn start(&self, cores: usize) -> Result<ServerUnderTest, CommandFailure> {
        let (address, threads) = (self.address().to_string(), cores.to_string());
        let common = ["--local", "--stratum", "1", "--listen", &address, "--threads", &threads];
        let arguments = common.iter().chain(self.args.design.arguments());
        let arguments: Vec<_> = arguments.map(ToString::to_string).collect();
        ServerUnderTest::start(self.lab.server().command(ServerUnderTest::program()?), &arguments)
    }

    /// One run at one rate.
    fn options(&self, rate: f64) -> Result<LoadOptions, CommandFailure> {
        let ramp = Ramp { min: rate, max: rate, multiplier: 2.0, duration: self.args.time };
        let mut options =
            LoadOptions::new(server_under_test::target(self.address())?, LoadJob::Ramp(ramp));
        options.engine = self.engine;
        options.namespaces = vec![self.lab.server().netns.clone()];
        options.command = output::command_line();
        Ok(options)
    }

    /// Counts the replies of one run a second time, by a method independent of the first.
    fn capture(&self) -> Result<CaptureCheck, CommandFailure> {
        let server = self.start(1)?;
        let mut options = self.options(self.rates[0])?;
        options.engine = Some(LoadEngineKind::Packet);
        options.counter_source = Some(server.counter_source());
        capture::check(self.client(), self.address(), options)
    }

    /// Loads a server on `cores` cores until it is saturated or all rates are done.
    fn column(&mut self, cores: usize) -> Result<CoreCountResult, CommandFailure> {
        let server = self.start(cores)?;
        let plural = if cores == 1 { "" } else { "s" };
        let mut follower = SearchProgress::named(format!("{cores} core{plural}: "));
        let mut points: Vec<CoresRateResult> = Vec::new();
        for rate in self.rates.clone() {
            let mut runs = Vec::new();
            for _ in 0..self.args.repetitions {
                let load = self.load(&server, rate, &mut follower)?;
                self.engine = Some(load.engine);
                runs.extend(load.trials.iter().map(|trial| CoresRepetition {
                    sent: trial.sent,
                    achieved_rate: trial.achieved_rate,
                    received: trial.received,
                    responses_per_s: trial.received as f64 / trial.duration_s,
                }));
                if output::flow().is_break() {
                    break;
                }
            }
            let saturated = is_saturated(&runs, self.args.loss_ratio);
            let point = CoresRateResult { rate, saturated, runs };
            let was_sent = point.is_rate_reached();
            points.push(point);
            if saturated || !was_sent || output::flow().is_break() {
                break;
            }
        }
        follower.finish();
        Ok(CoreCountResult { cores, server_command: server.command, points })
    }

    fn load(
        &self,
        server: &ServerUnderTest,
        rate: f64,
        follower: &mut SearchProgress,
    ) -> Result<LoadResult, CommandFailure> {
        let mut options = self.options(rate)?;
        options.counter_source = Some(server.counter_source());
        let result: Result<LoadResult, LoadError> =
            self.client().run(|| LoadRun::prepare(options)?.run(follower))?;
        Ok(result?)
    }
}

fn is_saturated(runs: &[CoresRepetition], loss_ratio: f64) -> bool {
    let sent: u64 = runs.iter().map(|run| run.sent).sum();
    let received: u64 = runs.iter().map(|run| run.received).sum();
    sent.saturating_sub(received) as f64 > sent as f64 * loss_ratio
}

/// The findings of the experiment as a whole.
fn findings(columns: &[CoreCountResult], capture: CaptureCheck, available: usize) -> Vec<Finding> {
    let finding = |code, message: String, advice: &str| Finding {
        code,
        severity: Severity::Warning,
        message,
        advice: advice.to_owned(),
        trial: None,
    };
    let most = columns.iter().map(|column| column.cores).max().unwrap_or_default();
    let shared = (most >= available).then(|| {
        let message = format!(
            "with {most} threads the server had none of the {available} cores to itself: the \
             generator used them too"
        );
        finding(FindingCode::SharedMachine, message, "use a host with more cores than are compared")
    });
    let points = columns.iter().flat_map(|column| &column.points);
    let behind = points.filter(|point| !point.is_rate_reached());
    let behind = behind.map(|point| point.rate).reduce(f64::min).map(|rate| {
        let message = format!("the generator could not send {}", units::human_rate(rate));
        finding(
            FindingCode::GeneratorLimit,
            message,
            "treat results above that rate as the \
            limit of the generator",
        )
    });
    let disagreement = (!capture.has_equal_counts()).then(|| {
        let message = format!(
            "the generator counted {} replies, the capture {}, and {} dropped by it",
            capture.counted, capture.captured, capture.dropped
        );
        finding(FindingCode::CountsDisagree, message, "discard these results")
    });
    let interrupted = output::flow().is_break().then(|| {
        let message = "the experiment was ended early".to_owned();
        finding(FindingCode::Interrupted, message, "missing values were not measured")
    });
    shared.into_iter().chain(behind).chain(disagreement).chain(interrupted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_cores() {
        assert_eq!((up_to(1), up_to(4)), (vec![1], vec![1, 2, 3, 4]));
        assert_eq!(up_to(8).len(), 8);
        assert_eq!(up_to(48)[7..], [8, 16, 32, 48]);
    }

    #[test]
    fn saturation_is_of_all_runs_together() {
        let run = |received| CoresRepetition {
            sent: 1000,
            achieved_rate: 1000.0,
            received,
            responses_per_s: received as f64,
        };
        assert!(!is_saturated(&[run(1000), run(990)], 0.005));
        assert!(is_saturated(&[run(1000), run(989)], 0.005));
        assert!(!is_saturated(&[], 0.0));
    }

    #[test]
    fn disagreement_of_a_capture_is_a_finding() {
        let capture = CaptureCheck { counted: 10, captured: 9, dropped: 0 };
        let codes: Vec<_> =
            findings(&[], capture, 2).into_iter().map(|finding| finding.code).collect();
        assert_eq!(codes, [FindingCode::CountsDisagree]);
    }
}
