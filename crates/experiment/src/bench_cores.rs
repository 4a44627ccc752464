//! Benchmark of the cores of a server: its reply rate against their number, measured between two
//! lab hosts at rising rates, with several repetitions of each rate.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_load::ramp::Ramp;
use horolog_load::{LoadError, LoadOptions, LoadProcedure, LoadRun};
use horolog_record::{
    BENCH_CORES_SCHEMA, BenchCoresResult, CaptureCheck, CoreCountResult, CoresRateResult,
    CoresRepetition, Finding, FindingCode, Host, LoadEngineKind, LoadResult, Severity, rfc3339_now,
};
use horolog_report::units;

use crate::observer::LoadTrialObserver;
use crate::server_under_test::{self, ServerUnderTest};
use crate::{ExperimentError, ExperimentObserver, distinct_values};

mod capture;

/// Number of cores up to which every number is tested by default; above it the number doubles.
const CONSECUTIVE_CORES_MAX: usize = 8;

/// Settings of the benchmark.
#[derive(Clone, Debug)]
pub struct CoresBenchOptions {
    /// Numbers of cores of the server; empty: every number up to 8, then doubled up to all.
    pub cores: Vec<usize>,
    /// Requests per second to send, in any order.
    pub rates: Vec<f64>,
    /// Repetitions of each rate.
    pub repetitions: u32,
    /// Duration of each trial.
    pub trial_duration: Duration,
    /// Share of requests that may stay unanswered before a server counts as saturated.
    pub loss_ratio: f64,
    /// Requests per second that a server is to answer; they are sent too.
    pub required_rate: f64,
    /// Arguments of `horolog serve` that select the engine.
    pub server_arguments: &'static [&'static str],
    /// Command line, for the result.
    pub command: Vec<String>,
}

/// Options, lab and load engine of the benchmark, shared by the measurements of all core counts.
struct CoresBench<'a> {
    options: &'a CoresBenchOptions,
    observer: &'a dyn ExperimentObserver,
    rates: Vec<f64>,
    lab: Lab,
    /// Load engine of the first run, with which all others run too; `None` before it.
    engine: Option<LoadEngineKind>,
}

/// Runs the benchmark.
pub fn run(
    options: &CoresBenchOptions,
    observer: &dyn ExperimentObserver,
) -> Result<BenchCoresResult, ExperimentError> {
    let available = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut cores = if options.cores.is_empty() {
        default_core_counts(available)
    } else {
        distinct_values(&options.cores)
    };
    // Columns of the table are ordered by core count: each column's gain is relative to the one
    // before it.
    cores.sort_unstable();
    let lab = Lab::new(&LabConfig { queues: available as u32, ..LabConfig::default() })?;
    let rates = sorted_rates(options);
    let mut bench = CoresBench { options, observer, rates, lab, engine: None };
    let started = rfc3339_now();
    let capture = bench.check_reply_count()?;
    let mut columns = Vec::new();
    for cores in cores {
        if observer.flow().is_break() {
            break;
        }
        columns.push(bench.measure_core_count(cores)?);
    }
    Ok(BenchCoresResult {
        schema: BENCH_CORES_SCHEMA.to_owned(),
        started,
        command: options.command.clone(),
        host: Host::read(),
        engine: bench.engine,
        required_rate: options.required_rate,
        findings: findings(&columns, capture, available, observer.flow().is_break()),
        columns,
        capture: Some(capture),
    })
}

/// Returns the rates to send and the required rate, rounded to whole numbers of at least 1,
/// ascending and without duplicates.
fn sorted_rates(options: &CoresBenchOptions) -> Vec<f64> {
    let all = options.rates.iter().chain([&options.required_rate]);
    let mut rates: Vec<_> = all.map(|rate| rate.round().max(1.0)).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    rates
}

fn default_core_counts(cores: usize) -> Vec<usize> {
    let more =
        (1..).map(|power| CONSECUTIVE_CORES_MAX << power).take_while(|&number| number < cores);
    let last = (cores > CONSECUTIVE_CORES_MAX).then_some(cores);
    (1..=cores.min(CONSECUTIVE_CORES_MAX)).chain(more).chain(last).collect()
}

impl CoresBench<'_> {
    fn generator_host(&self) -> &LabHost {
        self.lab.client()
    }

    fn server_address(&self) -> SocketAddr {
        SocketAddr::new(self.lab.server().first_interface().ipv4.into(), 123)
    }

    fn start_server(&self, cores: usize) -> Result<ServerUnderTest, ExperimentError> {
        let (address, threads) = (self.server_address().to_string(), cores.to_string());
        let common = ["--local", "--stratum", "1", "--listen", &address, "--threads", &threads];
        let arguments = common.iter().chain(self.options.server_arguments);
        let arguments: Vec<_> = arguments.map(ToString::to_string).collect();
        ServerUnderTest::start(
            self.lab.server().command(ServerUnderTest::program_path()?),
            &arguments,
        )
    }

    /// Returns the options of a load with one trial at `rate` requests per second.
    fn load_options(&self, rate: f64) -> Result<LoadOptions, ExperimentError> {
        let ramp =
            Ramp { min: rate, max: rate, multiplier: 2.0, duration: self.options.trial_duration };
        let mut options = LoadOptions::new(
            server_under_test::target_name(self.server_address())?,
            LoadProcedure::Ramp(ramp),
        );
        options.engine = self.engine;
        options.namespaces = vec![self.lab.server().netns.clone()];
        options.command.clone_from(&self.options.command);
        Ok(options)
    }

    /// Runs a load at the lowest rate and compares the generator's count of replies with that of a
    /// packet capture.
    fn check_reply_count(&self) -> Result<CaptureCheck, ExperimentError> {
        let server = self.start_server(1)?;
        let mut options = self.load_options(self.rates[0])?;
        options.engine = Some(LoadEngineKind::Packet);
        options.counter_source = Some(server.counter_source());
        capture::compare_reply_counts(
            self.generator_host(),
            self.server_address(),
            options,
            self.observer,
        )
    }

    /// Measures a server on `cores` cores at rising rates, until it is saturated, the generator
    /// cannot send a rate, or all rates are done.
    fn measure_core_count(&mut self, cores: usize) -> Result<CoreCountResult, ExperimentError> {
        let server = self.start_server(cores)?;
        let plural = if cores == 1 { "" } else { "s" };
        self.observer.measurement_started(format!("{cores} core{plural}: "));
        let mut observer = LoadTrialObserver::new(self.observer);
        let mut points: Vec<CoresRateResult> = Vec::new();
        for rate in self.rates.clone() {
            let mut runs = Vec::new();
            for _ in 0..self.options.repetitions {
                let load = self.run_load(&server, rate, &mut observer)?;
                self.engine = Some(load.engine);
                runs.extend(load.trials.iter().map(|trial| CoresRepetition {
                    sent: trial.sent,
                    achieved_rate: trial.achieved_rate,
                    received: trial.received,
                    responses_per_s: trial.received as f64 / trial.duration_s,
                }));
                if self.observer.flow().is_break() {
                    break;
                }
            }
            let saturated = is_saturated(&runs, self.options.loss_ratio);
            let point = CoresRateResult { rate, saturated, runs };
            let was_sent = point.is_rate_reached();
            points.push(point);
            if saturated || !was_sent || self.observer.flow().is_break() {
                break;
            }
        }
        self.observer.measurement_ended();
        Ok(CoreCountResult { cores, server_command: server.command, points })
    }

    fn run_load(
        &self,
        server: &ServerUnderTest,
        rate: f64,
        observer: &mut LoadTrialObserver<'_>,
    ) -> Result<LoadResult, ExperimentError> {
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
fn findings(
    columns: &[CoreCountResult],
    capture: CaptureCheck,
    available: usize,
    is_interrupted: bool,
) -> Vec<Finding> {
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
    let interrupted = is_interrupted.then(|| {
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
            findings(&[], capture, 2, false).into_iter().map(|finding| finding.code).collect();
        assert_eq!(codes, [FindingCode::CountsDisagree]);
    }
}
