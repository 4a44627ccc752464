//! `horolog bench cores`: reply rate of a server against the number of its cores, measured between
//! two lab hosts at rising rates, with several repetitions of each rate.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_load::ramp::Ramp;
use horolog_load::{LoadError, LoadOptions, LoadProcedure, LoadRun};
use horolog_record::{
    BENCH_CORES_SCHEMA, BenchCoresResult, CaptureCheck, CoreCountResult, CoresRateResult,
    CoresRepetition, Finding, FindingCode, Host, LoadEngineKind, LoadResult, Severity, rfc3339_now,
};
use horolog_report::units;

use super::{distinct_values, parse_thread_count};
use crate::commands::server_under_test::{self, SearchProgressObserver, ServerUnderTest};
use crate::failure::CommandFailure;
use crate::files::ResultFiles;
use crate::output;
use crate::result_store::StoreResultArgs;
use crate::values;

mod capture;

/// Number of cores up to which every number is tested by default; above it the number doubles.
const CONSECUTIVE_CORES_MAX: usize = 8;

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
    #[arg(long, value_name = "RATE", value_parser = values::rate, default_value = "30000")]
    required_rate: f64,
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

/// Arguments, lab and load engine of the benchmark, shared by the measurements of all core counts.
struct CoresBench<'a> {
    args: &'a BenchCoresArgs,
    rates: Vec<f64>,
    lab: Lab,
    /// Load engine of the first run, with which all others run too; `None` before it.
    engine: Option<LoadEngineKind>,
}

pub(crate) fn run(args: &BenchCoresArgs) -> Result<(), CommandFailure> {
    let rates = sorted_rates(args)?;
    let files = ResultFiles::open([("--json", &args.json), ("--html", &args.html)])?
        .with_store(&args.store_args);
    output::install_interrupt_handler()?;
    let available = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut cores = if args.cores.is_empty() {
        default_core_counts(available)
    } else {
        distinct_values(&args.cores)
    };
    // Columns of the table are ordered by core count: each column's gain is relative to the one
    // before it.
    cores.sort_unstable();
    let (mut bench, started) = (CoresBench::open(args, rates)?, rfc3339_now());
    let capture = bench.check_reply_count()?;
    let mut columns = Vec::new();
    for cores in cores {
        if output::check_stop_request().is_break() {
            break;
        }
        columns.push(bench.measure_core_count(cores)?);
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
    files.write(&result)?;
    if result.cores_required().is_some() {
        return Ok(());
    }
    let wanted = units::human_rate(args.required_rate);
    Err(CommandFailure::Measurement(if result.is_decided() {
        format!("required rate not reached: no server answered {wanted}")
    } else {
        format!("required rate {wanted} not measured with every number of cores")
    }))
}

/// Returns the rates of `--rates` and `--required-rate`, in requests per second, rounded to whole
/// numbers of at least 1, ascending and without duplicates.
fn sorted_rates(args: &BenchCoresArgs) -> Result<Vec<f64>, CommandFailure> {
    let requested = values::numbers(&args.rates)
        .map_err(|error| CommandFailure::usage(format!("--rates: {error}")))?;
    let all = requested.into_iter().chain([args.required_rate]);
    let mut rates: Vec<_> = all.map(|rate| rate.round().max(1.0)).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    Ok(rates)
}

fn default_core_counts(cores: usize) -> Vec<usize> {
    let more =
        (1..).map(|power| CONSECUTIVE_CORES_MAX << power).take_while(|&number| number < cores);
    let last = (cores > CONSECUTIVE_CORES_MAX).then_some(cores);
    (1..=cores.min(CONSECUTIVE_CORES_MAX)).chain(more).chain(last).collect()
}

impl<'a> CoresBench<'a> {
    fn open(args: &'a BenchCoresArgs, rates: Vec<f64>) -> Result<Self, CommandFailure> {
        let queues = thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let lab = Lab::new(&LabConfig { queues, ..LabConfig::default() })?;
        Ok(Self { args, rates, lab, engine: None })
    }

    fn generator_host(&self) -> &LabHost {
        self.lab.client()
    }

    fn server_address(&self) -> SocketAddr {
        SocketAddr::new(self.lab.server().first_interface().ipv4.into(), 123)
    }

    fn start_server(&self, cores: usize) -> Result<ServerUnderTest, CommandFailure> {
        let (address, threads) = (self.server_address().to_string(), cores.to_string());
        let common = ["--local", "--stratum", "1", "--listen", &address, "--threads", &threads];
        let arguments = common.iter().chain(self.args.design.server_arguments());
        let arguments: Vec<_> = arguments.map(ToString::to_string).collect();
        ServerUnderTest::start(
            self.lab.server().command(ServerUnderTest::program_path()?),
            &arguments,
        )
    }

    /// Returns the options of a load with one trial at `rate` requests per second.
    fn load_options(&self, rate: f64) -> Result<LoadOptions, CommandFailure> {
        let ramp = Ramp { min: rate, max: rate, multiplier: 2.0, duration: self.args.time };
        let mut options = LoadOptions::new(
            server_under_test::target_name(self.server_address())?,
            LoadProcedure::Ramp(ramp),
        );
        options.engine = self.engine;
        options.namespaces = vec![self.lab.server().netns.clone()];
        options.command = output::command_line();
        Ok(options)
    }

    /// Runs a load at the lowest rate and compares the generator's count of replies with that of a
    /// packet capture.
    fn check_reply_count(&self) -> Result<CaptureCheck, CommandFailure> {
        let server = self.start_server(1)?;
        let mut options = self.load_options(self.rates[0])?;
        options.engine = Some(LoadEngineKind::Packet);
        options.counter_source = Some(server.counter_source());
        capture::compare_reply_counts(self.generator_host(), self.server_address(), options)
    }

    /// Measures a server on `cores` cores at rising rates, until it is saturated, the generator
    /// cannot send a rate, or all rates are done.
    fn measure_core_count(&mut self, cores: usize) -> Result<CoreCountResult, CommandFailure> {
        let server = self.start_server(cores)?;
        let plural = if cores == 1 { "" } else { "s" };
        let mut observer = SearchProgressObserver::named(format!("{cores} core{plural}: "));
        let mut points: Vec<CoresRateResult> = Vec::new();
        for rate in self.rates.clone() {
            let mut runs = Vec::new();
            for _ in 0..self.args.repetitions {
                let load = self.run_load(&server, rate, &mut observer)?;
                self.engine = Some(load.engine);
                runs.extend(load.trials.iter().map(|trial| CoresRepetition {
                    sent: trial.sent,
                    achieved_rate: trial.achieved_rate,
                    received: trial.received,
                    responses_per_s: trial.received as f64 / trial.duration_s,
                }));
                if output::check_stop_request().is_break() {
                    break;
                }
            }
            let saturated = is_saturated(&runs, self.args.loss_ratio);
            let point = CoresRateResult { rate, saturated, runs };
            let was_sent = point.is_rate_reached();
            points.push(point);
            if saturated || !was_sent || output::check_stop_request().is_break() {
                break;
            }
        }
        observer.finish();
        Ok(CoreCountResult { cores, server_command: server.command, points })
    }

    fn run_load(
        &self,
        server: &ServerUnderTest,
        rate: f64,
        observer: &mut SearchProgressObserver,
    ) -> Result<LoadResult, CommandFailure> {
        let mut options = self.load_options(rate)?;
        options.counter_source = Some(server.counter_source());
        let result: Result<LoadResult, LoadError> =
            self.generator_host().run(|| LoadRun::prepare(options)?.run(observer))?;
        Ok(result?)
    }
}

fn is_saturated(runs: &[CoresRepetition], loss_ratio: f64) -> bool {
    let sent: u64 = runs.iter().map(|run| run.sent).sum();
    let received: u64 = runs.iter().map(|run| run.received).sum();
    sent.saturating_sub(received) as f64 > sent as f64 * loss_ratio
}

/// Returns the findings on the whole benchmark.
fn findings(columns: &[CoreCountResult], capture: CaptureCheck, available: usize) -> Vec<Finding> {
    let finding = |code, message: String, advice: &str| Finding {
        code,
        severity: Severity::Warning,
        message,
        advice: advice.to_owned(),
        trial: None,
    };
    let most = columns.iter().map(|column| column.cores).max().unwrap_or_default();
    let shared_cores = (most >= available).then(|| {
        let message = format!(
            "with {most} threads the server had none of the {available} cores to itself: the \
             generator used them too"
        );
        finding(FindingCode::SharedMachine, message, "use a host with more cores than are compared")
    });
    let points = columns.iter().flat_map(|column| &column.points);
    let behind = points.filter(|point| !point.is_rate_reached());
    let unreached_rate = behind.map(|point| point.rate).reduce(f64::min).map(|rate| {
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
    let interrupted = output::check_stop_request().is_break().then(|| {
        let message = "the experiment was ended early".to_owned();
        finding(FindingCode::Interrupted, message, "missing values were not measured")
    });
    shared_cores.into_iter().chain(unreached_rate).chain(disagreement).chain(interrupted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_cores() {
        assert_eq!((default_core_counts(1), default_core_counts(4)), (vec![1], vec![1, 2, 3, 4]));
        assert_eq!(default_core_counts(8).len(), 8);
        assert_eq!(default_core_counts(48)[7..], [8, 16, 32, 48]);
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
