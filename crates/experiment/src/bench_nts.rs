//! Benchmark of authentication by NTS: capacity of a server and its CPU time per reply, by the
//! number of its threads and the share of requests that are authenticated, measured between two lab
//! hosts.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use horolog_lab::{Lab, LabConfig};
use horolog_load::mix::RequestMix;
use horolog_load::nts::{AeadAlgorithm, CookieMasterSecret, NtsSessions, SESSIONS_DEFAULT};
use horolog_load::ramp::Ramp;
use horolog_load::request_kind::NtsSessionSource;
use horolog_load::{LoadError, LoadOptions, LoadProcedure, LoadRun};
use horolog_record::{
    BENCH_NTS_SCHEMA, BenchNtsResult, CapacitySearchGoal, Finding, FindingCode, Host,
    LoadEngineKind, LoadResult, NtsMixCapacity, SearchEndReason, Severity, rfc3339_now,
};
use horolog_report::units;
use horolog_stats::{GoalLossRatio, SearchConfig};

use crate::observer::LoadTrialObserver;
use crate::server_under_test::{self, ServerUnderTest};
use crate::{ExperimentError, ExperimentObserver, distinct_values};

/// Loss ratio up to which a trial counts as lossless. It is not 0 because server and generator
/// share the host, on which a single scheduling delay can lose a request.
const LOSS_RATIO_MAX: f64 = 1e-4;

/// Share of a server's capacity at which its CPU time per reply is measured: high load without
/// loss.
const COST_SHARE: f64 = 0.9;

/// Settings of the benchmark.
pub struct NtsBenchOptions {
    /// Numbers of threads of the server; empty: powers of two, and one for each core.
    pub threads: Vec<usize>,
    /// Percentages of requests that are authenticated.
    pub shares: Vec<u8>,
    /// Approximate total duration of the trials of each search.
    pub search_duration: Duration,
    /// Engine of the server, as in `horolog serve --engine`.
    pub engine: &'static str,
    /// Threads of the generator; `None`: one for every second core.
    pub load_threads: Option<usize>,
    /// AEAD algorithm of the sessions.
    pub algorithm: AeadAlgorithm,
    /// Master secret of the server; `None`: one is created.
    pub master_secret: Option<MasterSecretFile>,
    /// Command line, for the result.
    pub command: Vec<String>,
}

/// Master secret, and the file from which the server reads it.
pub struct MasterSecretFile {
    secret: CookieMasterSecret,
    path: PathBuf,
    /// Temporary directory of a file that was created here, removed on drop.
    _directory: Option<tempfile::TempDir>,
}

/// Options, lab and master secret of the benchmark, shared by all measurements.
struct NtsBench<'a> {
    options: NtsBenchOptions,
    secret: MasterSecretFile,
    observer: &'a dyn ExperimentObserver,
    lab: Lab,
}

/// Runs the benchmark.
pub fn run(
    options: NtsBenchOptions,
    observer: &dyn ExperimentObserver,
) -> Result<BenchNtsResult, ExperimentError> {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (bench, started) = (NtsBench::open(options, observer, cores)?, rfc3339_now());
    let NtsBenchOptions { threads, shares, .. } = &bench.options;
    let threads =
        if threads.is_empty() { default_thread_counts(cores) } else { distinct_values(threads) };
    let shares = distinct_values(shares);
    let mut capacities = Vec::new();
    let combinations =
        threads.iter().flat_map(|threads| shares.iter().map(move |share| (*threads, *share)));
    for (threads, share) in combinations {
        capacities.push(bench.measure(threads, share)?);
        if observer.flow().is_break() {
            break;
        }
    }
    Ok(BenchNtsResult {
        schema: BENCH_NTS_SCHEMA.to_owned(),
        started,
        command: bench.options.command.clone(),
        host: Host::read(),
        findings: findings(&capacities, cores, observer.flow().is_break()),
        capacities,
    })
}

/// Returns the default thread counts: powers of two below `cores`, and `cores`.
fn default_thread_counts(cores: usize) -> Vec<usize> {
    let powers = (0..).map(|power| 1 << power).take_while(|&threads| threads < cores);
    powers.chain([cores]).collect()
}

/// Returns the findings on the whole benchmark.
fn findings(capacities: &[NtsMixCapacity], cores: usize, is_interrupted: bool) -> Vec<Finding> {
    let shared_cores = capacities.iter().any(|one| one.threads + one.load.threads > cores);
    let is_limit = |one: &NtsMixCapacity| {
        one.load.search.as_ref().is_some_and(|search| search.end == SearchEndReason::GeneratorLimit)
    };
    let finding = |code, message: String, advice: &str| Finding {
        code,
        severity: Severity::Warning,
        message,
        advice: advice.to_owned(),
        trial: None,
    };
    let of_cores = shared_cores.then(|| {
        let message = format!(
            "server and generator threads exceeded the {cores} cores, so each server thread had \
             less than one core"
        );
        let advice = "compare the CPU time per reply, or use a host with more cores";
        finding(FindingCode::SharedMachine, message, advice)
    });
    let of_generator = capacities.iter().any(is_limit).then(|| {
        let message = "for rates with ≥ the generator reached its limit before the server";
        let advice = "give it more cores with --load-threads, or compare the CPU time";
        finding(FindingCode::GeneratorLimit, message.to_owned(), advice)
    });
    let interrupted = is_interrupted.then(|| {
        let message = "the experiment was ended early".to_owned();
        finding(FindingCode::Interrupted, message, "missing values were not measured")
    });
    of_cores.into_iter().chain(of_generator).chain(interrupted).collect()
}

impl MasterSecretFile {
    /// Creates the value for a secret that was read from the file at `path`.
    #[must_use]
    pub fn new(secret: CookieMasterSecret, path: PathBuf) -> Self {
        Self { secret, path, _directory: None }
    }

    /// Generates a secret, and writes it to a file of a temporary directory.
    fn create() -> Result<Self, ExperimentError> {
        let failed = |error: io::Error| {
            ExperimentError::host(format!("cannot store the master secret: {error}"))
        };
        let directory =
            tempfile::Builder::new().prefix("horolog-bench-").tempdir().map_err(failed)?;
        let secret = CookieMasterSecret::generate().map_err(ExperimentError::host)?;
        let path = directory.path().join("secret");
        let mut options = File::options();
        let mut file =
            options.write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        file.write_all(secret.to_text().as_bytes()).map_err(failed)?;
        Ok(Self { secret, path, _directory: Some(directory) })
    }
}

impl<'a> NtsBench<'a> {
    fn open(
        mut options: NtsBenchOptions,
        observer: &'a dyn ExperimentObserver,
        cores: usize,
    ) -> Result<Self, ExperimentError> {
        let secret = match options.master_secret.take() {
            Some(supplied) => supplied,
            None => MasterSecretFile::create()?,
        };
        let lab = Lab::new(&LabConfig { queues: cores as u32, ..LabConfig::default() })?;
        Ok(Self { options, secret, observer, lab })
    }

    /// Measures the capacity of a server with `threads` threads while `share` percent of the
    /// requests are authenticated, and then its CPU time per reply near that capacity.
    fn measure(&self, threads: usize, share: u8) -> Result<NtsMixCapacity, ExperimentError> {
        let server = self.start_server(threads)?;
        let plural = if threads == 1 { "" } else { "s" };
        let label = format!("{threads} thread{plural}, {share}% authenticated");
        let load =
            self.run_load(&server, share, search_job(self.options.search_duration)?, &label)?;
        let sustained_rate = load.search.as_ref().and_then(|search| search.lower);
        let cpu_ns_per_reply = match sustained_rate.filter(|_| self.observer.flow().is_continue()) {
            Some(rate) => self.reply_cpu_ns(&server, share, rate * COST_SHARE, &label)?,
            None => None,
        };
        if let Some(search) = &load.search {
            let cost = cpu_ns_per_reply.map_or_else(String::new, |ns| {
                format!(", {} CPU time per reply", units::human_ns(ns.round() as u64))
            });
            let rate = units::human_rate(search.rate);
            self.observer.note(&format!("{label}: {rate}{cost}"));
        }
        Ok(NtsMixCapacity {
            threads,
            authenticated_percent: share,
            server_command: server.command,
            cpu_ns_per_reply,
            load,
        })
    }

    fn server_address(&self) -> SocketAddr {
        SocketAddr::new(self.lab.server().first_interface().ipv4.into(), 123)
    }

    fn start_server(&self, threads: usize) -> Result<ServerUnderTest, ExperimentError> {
        let (address, threads) = (self.server_address().to_string(), threads.to_string());
        let secret = self.secret.path.display().to_string();
        let engine = self.options.engine;
        let arguments = ["--local", "--stratum", "1", "--listen", &address, "--engine", engine];
        let more = ["--threads", &threads, "--nts-master-secret", &secret];
        let arguments: Vec<_> = arguments.into_iter().chain(more).map(str::to_owned).collect();
        ServerUnderTest::start(
            self.lab.server().command(ServerUnderTest::program_path()?),
            &arguments,
        )
    }

    /// Runs a load on a server, with `share` percent authenticated requests.
    fn run_load(
        &self,
        server: &ServerUnderTest,
        share: u8,
        job: LoadProcedure,
        label: &str,
    ) -> Result<LoadResult, ExperimentError> {
        let sessions = NtsSessions::from_master_secret(
            &self.secret.secret,
            self.options.algorithm,
            SESSIONS_DEFAULT,
            share,
        )
        .map_err(ExperimentError::host)?;
        let mut options =
            LoadOptions::new(server_under_test::target_name(self.server_address())?, job);
        // A fixed load engine makes the results of all shares comparable.
        options.engine = Some(LoadEngineKind::Packet);
        let half = thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2));
        options.threads = Some(self.options.load_threads.unwrap_or(half));
        options.namespaces = vec![self.lab.server().netns.clone()];
        options.requests = RequestMix::only(NtsSessionSource::Existing(Arc::new(sessions)));
        options.counter_source = Some(server.counter_source());
        options.command.clone_from(&self.options.command);
        self.observer.measurement_started(format!("{label}: "));
        let mut observer = LoadTrialObserver::new(self.observer);
        let result: Result<LoadResult, LoadError> =
            self.lab.client().run(|| LoadRun::prepare(options)?.run(&mut observer))?;
        self.observer.measurement_ended();
        Ok(result?)
    }

    /// Measures the server's CPU time per reply in ns, at `rate` requests per second; `None` if
    /// there were no replies or the kernel does not report CPU time.
    fn reply_cpu_ns(
        &self,
        server: &ServerUnderTest,
        share: u8,
        rate: f64,
        label: &str,
    ) -> Result<Option<f64>, ExperimentError> {
        let duration = self.options.search_duration / 4;
        let ramp = Ramp { min: rate, max: rate, multiplier: 2.0, duration };
        let before = server.cpu_ns();
        let result = self.run_load(server, share, LoadProcedure::Ramp(ramp), label)?;
        let spent = server.cpu_ns().zip(before).map(|(after, before)| after.saturating_sub(before));
        let replies: u64 = result.trials.iter().map(|trial| trial.received).sum();
        Ok(spent.filter(|_| replies > 0).map(|spent| spent as f64 / replies as f64))
    }
}

/// Returns a search whose trials take about `time` in total.
fn search_job(time: Duration) -> Result<LoadProcedure, ExperimentError> {
    let goal = GoalLossRatio::new(LOSS_RATIO_MAX).map_err(ExperimentError::options)?;
    let mut config = SearchConfig::new(goal, 1e3, 20e6);
    // With final trials of 1 s, the default, a search sends for about 10 s.
    config.scale(time / 10);
    Ok(LoadProcedure::Search { kind: CapacitySearchGoal::Ndr, config })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_threads() {
        assert_eq!(
            (default_thread_counts(1), default_thread_counts(2), default_thread_counts(6)),
            (vec![1], vec![1, 2], vec![1, 2, 4, 6])
        );
    }
}
